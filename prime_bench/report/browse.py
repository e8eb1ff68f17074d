"""Rows over many sources: what each person measured, with what, and in what it differs.

A source is a folder of records, a bundle, a publication in a folder or on a hub, or a folder that
holds several of these. A row is an arm on a backbone under one choice of settings, over its seeds,
in one source; the same records in several sources are one row.
"""

import hashlib
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from prime_bench.base.errors import DataError, EnvironmentFault
from prime_bench.base.files import NotReadable, read_file
from prime_bench.catalog import DENSE
from prime_bench.findings import Score
from prime_bench.recipe.differences import value_text
from prime_bench.report.bundle import MOST_BYTES, Bundle, read_bundle
from prime_bench.report.hub import SCHEME, HubRepository
from prime_bench.report.publication import MANIFEST, PublicationManifest, packed_in
from prime_bench.report.publish import manifest_of, manifest_on
from prime_bench.report.quantities.formulas import (
    METRICS,
    Moments,
    Tally,
    improvements,
    moments,
    tally,
)
from prime_bench.report.quantities.layout import arm_label, catalogue_rank
from prime_bench.report.quantities.matches import settings_of
from prime_bench.store.pairing import ArmKey, ComparisonKey, group_runs, pair_up
from prime_bench.store.record import Record, RunRecord
from prime_bench.store.runs import Runs

_OF_MACHINE = "environment."
"""What begins the dotted keys of `settings_of` that are about the machine."""
_KIND = f"{_OF_MACHINE}device_kind"
_LEVELS = tuple(name for name, key in Score.model_fields.items() if "float" in str(key.annotation))
"""Names of the metrics in a score."""


@dataclass(frozen=True, kw_only=True)
class BrowseSource:
    """Records that somebody has put together."""

    name: str
    """As it was asked for, or found in a folder that was."""
    title: str
    by: str = ""
    """Who published it, in their own words."""
    page: str = ""
    """Path or address of the page of its report."""
    records: Sequence[Record] = field(repr=False)
    digest: Callable[[str], str] = field(repr=False)
    """SHA-256 of the record.json of a job, by its id."""

    @property
    def runs(self) -> list[RunRecord]:
        """Records of training runs; those of probes are left out."""
        return [record for record in self.records if isinstance(record, RunRecord)]


@dataclass(frozen=True, kw_only=True)
class BrowseChange:
    """The paired differences of an arm from Dense in the same source; positive is better."""

    mean: Moments
    tally: Tally


@dataclass(frozen=True, kw_only=True)
class BrowseRow:
    """An arm on a backbone under one choice of settings, over its seeds."""

    sources: tuple[int, ...]
    """Numbers of the sources that have these records, from 1."""
    dataset: str
    """Name of the card."""
    backbone: str
    arm: str
    """Name of the arm when its jobs ran."""
    differs: Mapping[str, object]
    """Dotted settings that rows of the same data set and backbone, or of the same plug-in there,
    do not all share."""
    seeds: tuple[int, ...]
    test: Mapping[str, Moments]
    """Metric -> its test scores over the seeds; one that no run has is left out."""
    changes: Mapping[str, BrowseChange]
    """Metric -> paired differences from Dense; empty for Dense and without a pair."""
    parameters: int
    macs: int
    """Multiply-accumulates of a row's forward pass, by the formulas."""
    wall_s: float
    """Mean seconds of a job, on its device."""
    epochs: float
    """Mean number of epochs."""
    devices: tuple[str, ...]
    verified: bool
    """Whether all its data matched the published digests."""
    degenerate: int
    """Number of degenerate runs among its jobs."""
    runs: Sequence[RunRecord] = field(repr=False)

    def plain(self) -> dict[str, Any]:
        """The row as JSON values."""
        return {
            "sources": list(self.sources),
            "dataset": self.dataset,
            "backbone": self.backbone,
            "arm": self.arm,
            "differs": dict(self.differs),
            "seeds": list(self.seeds),
            "test": {metric: vars(value) for metric, value in self.test.items()},
            "changes": {
                metric: {**vars(change.mean), **vars(change.tally)}
                for metric, change in self.changes.items()
            },
            "parameters": self.parameters,
            "macs": self.macs,
            "wall_s": self.wall_s,
            "epochs": self.epochs,
            "devices": list(self.devices),
            "verified": self.verified,
            "degenerate": self.degenerate,
            "jobs": [run.job_id for run in self.runs],
        }


@dataclass(frozen=True, kw_only=True)
class Overview:
    """All rows of some sources."""

    sources: Sequence[BrowseSource]
    rows: Sequence[BrowseRow]
    left_out: Sequence[str]
    """A message for each source, and for each record, that cannot be read."""

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics that a row has."""
        return tuple(name for name in _LEVELS if any(name in row.test for row in self.rows))


def browse(names: Sequence[str]) -> Overview:
    """Read the sources and make their rows.

    Args:
        names: Folders of records, bundles, publications in a folder or as `hf:org/name`, and
            folders with several of these.

    Raises:
        UsageError: A name that no repository can have.
        DataError: No source can be read; or there is no training run in any.
    """
    sources: list[BrowseSource] = []
    left_out: list[str] = []
    seen: set[str | Path] = set()
    for name in names:
        for place, read in _found(name, left_out):
            if place in seen:
                continue
            seen.add(place)
            try:
                source, unreadable = read()
            except (DataError, EnvironmentFault) as error:
                left_out.append(error.message)
            else:
                sources.append(source)
                left_out += unreadable
    rows = _rows(sources)
    if not rows:
        told = "".join(f"\n{message}" for message in left_out)
        raise DataError(
            f"no training run in {', '.join(names)}{told}",
            hint="name folders of records, bundles of `pack`, folders or repositories of `publish`",
        )
    return Overview(sources=sources, rows=rows, left_out=left_out)


Read = Callable[[], tuple[BrowseSource, list[str]]]
"""Reads one source; also returns a message for each of its records that cannot be read."""


def _found(name: str, left_out: list[str]) -> Iterator[tuple[str | Path, Read]]:
    """What a name stands for, itself or all there is in a folder, and where that is: the same for
    two ways to write one path.
    """
    if name.startswith(SCHEME):
        repository = HubRepository(name.removeprefix(SCHEME))
        yield str(repository), lambda: _of_hub(repository)
        return
    path = Path(name)
    try:
        if (path / MANIFEST).exists() or not path.is_dir():
            yield path.resolve(), _reader(path)
            return
        children = sorted(path.iterdir())
    except OSError as error:
        left_out.append(f"{path}: {error.strerror}")
        return
    if Runs(path).job_ids():
        yield path.resolve(), lambda: _of_runs(path)
    inner = [child for child in children if child.suffix == ".zip" or (child / MANIFEST).exists()]
    yield from ((child.resolve(), _reader(child)) for child in inner)
    if not inner and not Runs(path).job_ids():
        left_out.append(f"{path}: neither records, nor bundles, nor a publication in it")


def _reader(path: Path) -> Read:
    """What reads the publication or the bundle at a path."""
    return lambda: _of_folder(path) if path.is_dir() else _of_bundle(path)


def _of_runs(folder: Path) -> tuple[BrowseSource, list[str]]:
    runs = Runs(folder)
    records, unreadable = runs.readable()
    title = f"records in {folder}"
    digest = runs.record_digest
    return BrowseSource(name=str(folder), title=title, records=records, digest=digest), unreadable


def _of_bundle(path: Path) -> tuple[BrowseSource, list[str]]:
    return _of(read_bundle(path), name=str(path))


def _of_folder(folder: Path) -> tuple[BrowseSource, list[str]]:
    manifest = manifest_of(folder)
    path = folder / manifest.bundle
    try:
        content = read_file(path, most_bytes=MOST_BYTES)
    except (FileNotFoundError, NotReadable) as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from error
    bundle = packed_in(manifest, content, where=path)
    return _of(bundle, name=str(folder), manifest=manifest, page=str(folder / manifest.page))


def _of_hub(repository: HubRepository) -> tuple[BrowseSource, list[str]]:
    head = repository.head()
    if head is None:
        raise DataError(f"{repository}: no such repository, or none that the token may see")
    if MANIFEST not in head.files:
        raise DataError(f"{repository}: has no publication")
    manifest, _ = manifest_on(repository, head)
    assert manifest is not None  # noqa: S101  # else it has raised
    content = repository.read(manifest.bundle, commit=head.commit, most_bytes=MOST_BYTES)
    bundle = packed_in(manifest, content, where=Path(str(repository)) / manifest.bundle)
    return _of(bundle, name=str(repository), manifest=manifest, page=repository.address)


def _of(
    bundle: Bundle, *, name: str, manifest: PublicationManifest | None = None, page: str = ""
) -> tuple[BrowseSource, list[str]]:
    source = BrowseSource(
        name=name,
        title=bundle.jobs.title,
        by=manifest.by if manifest else "",
        page=page,
        records=bundle.records,
        digest=bundle.digests.__getitem__,
    )
    return source, bundle.unreadable


def _rows(sources: Sequence[BrowseSource]) -> list[BrowseRow]:
    """The rows of all sources by data set, backbone and arm."""
    found: dict[str, BrowseRow] = {}
    for number, source in enumerate(sources, start=1):
        grouped, _ = group_runs(source.runs)
        for comparison, arms in grouped.items():
            dense = next((runs for key, runs in arms.items() if key.plugin == DENSE), {})
            for key, runs in arms.items():
                row = _row(number, runs, dense if key.plugin != DENSE else {})
                same = _identity(source, comparison, key, runs)
                if same in found:
                    numbers = (*found[same].sources, number)
                    found[same] = replace(found[same], sources=numbers)
                else:
                    found[same] = row
    rows = list(found.values())
    told = zip(rows, _differing(rows), strict=True)
    return sorted((replace(row, differs=differs) for row, differs in told), key=_order)


def _order(row: BrowseRow) -> tuple[Any, ...]:
    """Sort key: data set, backbone and arm, Dense first; then what differs, numbers as numbers."""
    is_arm = row.runs[0].job.plugin != DENSE
    differs = [
        (key, 0, float(value), "")
        if isinstance(value, int | float)
        else (key, 1, 0.0, value_text(value))
        for key, value in row.differs.items()
    ]
    backbone = catalogue_rank(row.backbone)
    return row.dataset, backbone, is_arm, arm_label(row.arm), differs, row.sources


def _identity(
    source: BrowseSource, comparison: ComparisonKey, key: ArmKey, runs: Mapping[int, RunRecord]
) -> str:
    """The same for the same records, whatever holds them."""
    digests = sorted(source.digest(run.job_id) for run in runs.values())
    return hashlib.sha256(repr((comparison, key, digests)).encode()).hexdigest()


def _row(number: int, runs: Mapping[int, RunRecord], dense: Mapping[int, RunRecord]) -> BrowseRow:
    own = [runs[seed] for seed in sorted(runs)]
    first = own[0]
    scores = {name: _known(getattr(run.result.test, name) for run in own) for name in _LEVELS}
    return BrowseRow(
        sources=(number,),
        dataset=first.dataset,
        backbone=first.job.backbone,
        arm=min(run.arm for run in own),
        differs={},
        seeds=tuple(sorted(runs)),
        test={name: moments(values) for name, values in scores.items() if values},
        changes=_changes(dense, runs),
        parameters=first.budget.backbone_parameters + first.budget.plugin_parameters,
        macs=first.budget.backbone_macs + first.budget.plugin_macs,
        wall_s=statistics.fmean(run.wall_s for run in own),
        epochs=statistics.fmean(run.result.epochs for run in own),
        devices=tuple(sorted({run.environment.device for run in own})),
        verified=all(run.data_verified is True for run in own),
        degenerate=sum(run.degenerate is not None for run in own),
        runs=own,
    )


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _changes(
    dense: Mapping[int, RunRecord], runs: Mapping[int, RunRecord]
) -> dict[str, BrowseChange]:
    pairs, _ = pair_up(dense, runs)
    found: dict[str, BrowseChange] = {}
    for metric in METRICS if pairs else ():
        # Both runs of a pair have both scores.
        baseline, arm = (
            [getattr(run.result.test, metric) for run in runs]
            for runs in ([pair.baseline for pair in pairs], [pair.arm for pair in pairs])
        )
        values = improvements(metric, baseline=baseline, arm=arm)
        found[metric] = BrowseChange(mean=moments(values), tally=tally(values))
    return found


def _differing(rows: Sequence[BrowseRow]) -> list[dict[str, object]]:
    """For each row its settings that comparable rows do not all share.

    Settings of an arm are compared with those of its plug-in, all others with those of every row,
    on the same data set and backbone.
    """
    tables = [_facts(row.runs[0]) for row in rows]
    groups: dict[tuple[str, ...], list[int]] = {}
    for index, row in enumerate(rows):
        place = (row.dataset, row.backbone)
        groups.setdefault(place, []).append(index)
        groups.setdefault((*place, row.runs[0].job.plugin), []).append(index)
    found: list[dict[str, object]] = [{} for _ in rows]
    for name, members in groups.items():
        of_arm = len(name) > 2
        keys = dict.fromkeys(
            key for i in members for key in tables[i] if key.startswith("arm.") == of_arm
        )
        for key in keys:
            own = [i for i in members if key in tables[i]]
            if len({value_text(tables[i][key]) for i in own}) > 1:
                for i in own:
                    found[i][key] = tables[i][key]
    return found


def _facts(run: RunRecord) -> dict[str, object]:
    """The settings of a run by dotted key; of the machine the kind of its device alone."""
    table = settings_of(run)
    facts = {key: value for key, value in table.items() if not key.startswith(_OF_MACHINE)}
    return {**facts, "device": table[_KIND]}

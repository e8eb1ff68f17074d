"""Where the records of a report are from: folders of runs and bundles, alone or together.

A job that several of them have counts once, as the first of them has it; where their results differ
the conflict is named.
"""

import os
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from prime_bench.base.errors import DataError
from prime_bench.base.files import read_file
from prime_bench.base.identity import canonical_json
from prime_bench.base.words import job_name
from prime_bench.report.bundle import FILES, Bundle, read_bundle
from prime_bench.report.quantities.records import RecipeJobs
from prime_bench.report.tables.model import TableNote, note
from prime_bench.store.agreement import differing_results, score_distances
from prime_bench.store.pairing import arm_key_of, comparison_key_of
from prime_bench.store.record import ProbeRecord, Record, RunRecord
from prime_bench.store.runs import RECORD, Runs


@dataclass(frozen=True, kw_only=True)
class Conflict:
    """Two records of one job whose results differ."""

    shown: Record
    place: Path
    """Where the record that is shown is from."""
    other: Record
    other_place: Path
    differing: Sequence[str]
    """Where they differ, and how far."""


@dataclass(frozen=True, kw_only=True)
class RecordSource:
    """The records of a folder or a bundle, or of several, read once."""

    path: Path
    """What a message names: the bundle, or the folder of records; of several the first."""
    records: Sequence[RunRecord]
    probes: Sequence[ProbeRecord]
    unreadable: Sequence[str]
    """A message for each record that cannot be read."""
    digest: Callable[[str], str]
    """SHA-256 of the record.json of a job, by its id."""
    files: Callable[[str], Mapping[str, bytes]]
    """Content of the record.json of a job and of the files beside it that a bundle has, by name."""
    packed: RecipeJobs | None = None
    """The jobs of a bundle's recipe, or of all bundles'; None for folders, and for bundles whose
    recipes cannot stand in one table."""
    packed_recipe: bytes | None = None
    """The recipe.toml of the first bundle."""
    origins: Mapping[Path, frozenset[str]] = field(default_factory=dict)
    """Ids of the jobs whose records are taken from each source; empty for a single source."""
    also_in: frozenset[str] = frozenset()
    """Ids of jobs whose record a further source has too, with the same results."""
    conflicts: Sequence[Conflict] = ()
    remarks: Sequence[str] = ()
    """What a reader of the tables should know of the sources as a whole."""

    @property
    def name(self) -> str:
        """What a message names."""
        return ", ".join(map(str, self.origins)) or str(self.path)

    @property
    def every(self) -> list[Record]:
        """Records of training runs, then those of probes."""
        return [*self.records, *self.probes]


def read_sources(places: Sequence[Path]) -> RecordSource:
    """Read folders of records and bundles (`*.zip`), the one that counts in a conflict first.

    Raises DataError for a file that is not a bundle, and for a folder that is not there beside
    other sources.
    """
    # Path.resolve raises RuntimeError for a loop of symbolic links.
    distinct = list({os.path.realpath(place): place for place in reversed(places)}.values())[::-1]
    if len(distinct) == 1:
        return _read(distinct[0])
    for place in distinct:
        if place.suffix != ".zip" and not place.is_dir():
            raise DataError(f"{place}: no such folder of records")
    return _together([_read(place) for place in distinct])


def source_of(bundle: Bundle) -> RecordSource:
    """The records of a bundle that was read."""
    source = _source(
        bundle.path,
        bundle.records,
        bundle.unreadable,
        digest=bundle.digests.__getitem__,
        files=lambda job_id: {RECORD: bundle.contents[job_id], **bundle.files[job_id]},
    )
    return replace(source, packed=bundle.jobs, packed_recipe=bundle.recipe)


def _read(place: Path) -> RecordSource:
    if place.suffix == ".zip":
        return source_of(read_bundle(place))
    runs = Runs(place)
    found, unreadable = runs.readable()

    def files(job_id: str) -> dict[str, bytes]:
        paths = {name: runs.path(job_id) / name for name in FILES}
        return {name: read_file(path) for name, path in paths.items() if path.is_file()}

    return _source(place, found, unreadable, digest=runs.record_digest, files=files)


def _source(
    path: Path,
    found: Iterable[Record],
    unreadable: Sequence[str],
    *,
    digest: Callable[[str], str],
    files: Callable[[str], Mapping[str, bytes]],
) -> RecordSource:
    every = sorted(found, key=lambda record: record.job_id)
    return RecordSource(
        path=path,
        records=[record for record in every if isinstance(record, RunRecord)],
        probes=[record for record in every if isinstance(record, ProbeRecord)],
        unreadable=unreadable,
        digest=digest,
        files=files,
    )


def _together(sources: Sequence[RecordSource]) -> RecordSource:
    chosen: dict[str, tuple[Record, RecordSource]] = {}
    also_in: set[str] = set()
    conflicts = []
    for source in sources:
        for record in source.every:
            job_id = record.job_id
            if job_id not in chosen:
                chosen[job_id] = record, source
                continue
            first, its_source = chosen[job_id]
            if differing := differing_results(first, record):
                conflicts.append(
                    Conflict(
                        shown=first,
                        place=its_source.path,
                        other=record,
                        other_place=source.path,
                        differing=differing,
                    )
                )
            else:
                also_in.add(job_id)
    bundles = [source for source in sources if source.packed is not None]
    packed = _merged([source.packed for source in bundles if source.packed is not None])
    remarks = []
    if bundles and packed is None:
        names = dict.fromkeys(source.packed.name for source in bundles if source.packed)
        remarks = [
            f"The bundles are of recipes that do not fit into one table ({', '.join(names)}), so "
            "every record is shown"
        ]
    made = _source(
        sources[0].path,
        [record for record, _ in chosen.values()],
        [fault for source in sources for fault in source.unreadable],
        digest=lambda job_id: chosen[job_id][1].digest(job_id),
        files=lambda job_id: chosen[job_id][1].files(job_id),
    )
    return replace(
        made,
        packed=packed,
        packed_recipe=bundles[0].packed_recipe if bundles else None,
        origins={
            source.path: frozenset(
                job_id for job_id, (_, its_source) in chosen.items() if its_source is source
            )
            for source in sources
        },
        also_in=frozenset(also_in),
        conflicts=conflicts,
        remarks=remarks,
    )


def conflict_text(conflict: Conflict) -> str:
    """A line on a conflict: what the job is, where the records are from, and how they differ."""
    shown, other = conflict.shown, conflict.other
    return (
        f"{_named(shown)}: {conflict.other_place} ({_machine(other)}) has other numbers than "
        f"{conflict.place} ({_machine(shown)}), which counts since it is named first: "
        f"{'; '.join(conflict.differing)}"
    )


def source_notes(source: RecordSource, job_ids: Container[str]) -> list[TableNote]:
    """Notes on where the records of these jobs are from, and where sources differ; none for one
    source.
    """
    notes = [note("origin", text) for text in source.remarks]
    records = {record.job_id: record for record in source.every if record.job_id in job_ids}
    if source.origins:
        parts = []
        for place, jobs in source.origins.items():
            own = [record for job_id, record in records.items() if job_id in jobs]
            machines = dict.fromkeys(_machine(record) for record in own)
            parts.append(f"{place}: {len(own)}{' by ' * bool(own)}{' and '.join(machines)}")
        twice = sum(job_id in source.also_in for job_id in records)
        same = f"; {twice} in more than one, with the same results" if twice else ""
        notes.append(note("origin", f"Records by source: {'; '.join(parts)}{same}"))
    conflicts = [conflict for conflict in source.conflicts if conflict.shown.job_id in records]
    notes += [note("conflict", conflict_text(conflict)) for conflict in conflicts[:_MOST_CONFLICTS]]
    n_jobs = len({conflict.shown.job_id for conflict in conflicts})
    if n_jobs > 1:
        farthest = [
            f"{name} {max(distances):.1e}"
            for name in ("AUC", "LogLoss")
            if (distances := [d[name] for c in conflicts if name in (d := _distances(c))])
        ]
        most = f", on test rows at most {' and '.join(farthest)} apart" if farthest else ""
        text = f"{n_jobs} jobs have other numbers in another source{most}"
        notes.append(note("conflict", text))
    return notes


_MOST_CONFLICTS = 20
"""How many conflicts a table names one by one."""


def _distances(conflict: Conflict) -> dict[str, float]:
    return score_distances(conflict.shown, conflict.other)


def _named(record: Record) -> str:
    """What the record's job is called, with its id."""
    job = record.job
    name = job_name(record.dataset, job.backbone, record.arm, job.seed, kind=job.kind)
    return f"{name} ({record.job_id})"


def _machine(record: Record) -> str:
    """The machine and device, as far as the record knows."""
    environment = record.environment
    return ", ".join(filter(None, (environment.host, environment.device)))


_MERGED = {"name", "title", "tables", "notes", "family", "jobs", "variants", "labels"}
"""What may differ between recipes that stand in one table."""


def _meanings(recipe: RecipeJobs) -> Iterator[tuple[tuple[str, ...], object]]:
    """Each name of a recipe, and what it stands for; in a grid one name stands for several."""
    yield ("rest",), canonical_json(recipe.model_dump(mode="json", exclude=_MERGED))
    for dataset, variant in recipe.variants.items():
        yield ("dataset", dataset), variant
    for asked in recipe.jobs:
        job, variant = asked.job, recipe.variants[asked.dataset]
        comparison = comparison_key_of(job, dataset=asked.dataset, variant=variant)
        yield ("arm", asked.arm), (asked.label, arm_key_of(job), canonical_json(job.probe))
        yield ("backbone", asked.dataset, job.backbone), comparison
        yield ("training", asked.dataset), comparison.training


def _merged(recipes: Sequence[RecipeJobs]) -> RecipeJobs | None:
    """The jobs of all recipes; None where a name stands for two things, or there is no recipe.

    One person may have packed other seeds, backbones or arms of a recipe than another.
    """
    if not recipes:
        return None
    meanings: dict[tuple[str, ...], set[object]] = {}
    for recipe in recipes:
        own: dict[tuple[str, ...], set[object]] = {}
        for key, value in _meanings(recipe):
            own.setdefault(key, set()).add(value)
        if any(meanings.setdefault(key, values) != values for key, values in own.items()):
            return None
    first = recipes[0]
    jobs = {(asked.dataset, asked.job.id): asked for recipe in recipes for asked in recipe.jobs}
    return first.model_copy(
        update={
            "name": " and ".join(dict.fromkeys(recipe.name for recipe in recipes)),
            "title": " and ".join(dict.fromkeys(recipe.title for recipe in recipes)),
            "tables": list(dict.fromkeys(t for recipe in recipes for t in recipe.tables)),
            "notes": list(dict.fromkeys(n for recipe in recipes for n in recipe.notes)),
            "family": list(dict.fromkeys(pair for recipe in recipes for pair in recipe.family)),
            "jobs": list(jobs.values()),
            "variants": {k: v for recipe in recipes for k, v in recipe.variants.items()},
            "labels": {k: v for recipe in recipes for k, v in recipe.labels.items()},
        }
    )

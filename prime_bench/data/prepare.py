"""Prepare a table from raw files, a download, or the seed of a synthetic log."""

import contextlib
import importlib.metadata
import platform
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from prime_bench.base.errors import DataError, EnvironmentFault
from prime_bench.data.column_checks import column_warnings
from prime_bench.data.encode.encoder import Encoded, encode
from prime_bench.data.manifest import (
    SPLIT_NAMES,
    BestPossible,
    InputFile,
    Manifest,
    TableSpec,
    fingerprint_of,
)
from prime_bench.data.publish import check_space, is_quiet, replacing, sole_writer, table_bytes
from prime_bench.data.raw.download import downloaded, files_needed, how_to_get
from prime_bench.data.raw.find import (
    cardinality_differences,
    differences,
    find_sources,
    likely_cause,
)
from prime_bench.data.raw.kaggle_criteo import KaggleFile, split_log
from prime_bench.data.raw.reader import Reader
from prime_bench.data.raw.source import SourceFile, digest_source
from prime_bench.data.stages import Chunk, OnProgress, StageProgress, no_log, no_progress
from prime_bench.data.synthetic.rows import BestCounter, chunks, columns
from prime_bench.data.table import PreparedTable
from prime_bench.settings.data import LogSettings, SyntheticSettings

VOCABULARY_NOTE = (
    "vocabulary over all splits: values that occur in validation or test rows alone own embedding"
    " rows that are never trained"
)
UNVERIFIED_NOTE = "unverified: the files are not the published ones"
NO_DIGESTS_NOTE = "unverified: no digests are published for these files"
OWN_NOTE = "own data"


def prepare(
    spec: TableSpec,
    *,
    data_dir: Path,
    source: Path | Sequence[Path] | None = None,
    allow_unverified: bool = False,
    keep_download: bool = False,
    on_progress: OnProgress = no_progress,
    log: Callable[[str], None] = no_log,
) -> Manifest:
    """Prepare the table of `spec` below `data_dir` unless it exists; returns its manifest.

    The new folder appears only when it is complete. After an error, or if the process is killed,
    there is no new table, and an existing one is unchanged.

    Args:
        spec: Card and data settings of the table.
        data_dir: The folder below which tables lie.
        source: The raw file, folder or archive, or several. None for a synthetic log, to accept an
            existing table whatever its source, or to download the files.
        allow_unverified: Accept files whose digests are not the published ones; the manifest and
            all reports say so.
        keep_download: Keep the downloaded archive. Otherwise it is deleted once the table is
            verified.
        on_progress: Called with the progress of each stage.
        log: Called with one-line messages for the user.

    Raises DataError if the files are not as they must be, EnvironmentFault if there are no files,
    a download fails or the disk is full.
    """
    sources = find_sources(spec.card, source) if source is not None else []
    folder = spec.folder(data_dir)
    # Checked before the lock is taken, so that a table in a read-only folder can be used.
    found = _whole_table(folder, spec, log=no_log)
    if found is not None and _unchanged(found.inputs, sources) and is_quiet(folder):
        return _accepted(found, spec, sources, allow_unverified=allow_unverified)
    if found is None:
        _refuse_no_source(spec, sources)
    with sole_writer(folder, log=log):
        found = _whole_table(folder, spec, log=log)
        if found is not None and _same_inputs(found.inputs, sources):
            return _accepted(found, spec, sources, allow_unverified=allow_unverified)
        _refuse_no_source(spec, sources)
        if found is not None:
            log(f"{folder}: was prepared from other files; preparing it again")
        preparer = _Preparer(spec, folder, allow_unverified, on_progress, log)
        if isinstance(spec.settings, SyntheticSettings):
            return preparer.generate(spec.settings)
        if sources:
            return preparer.read(sources)
        with downloaded(
            spec, data_dir, keep=keep_download, log=log, on_progress=on_progress
        ) as archive:
            manifest = preparer.read(find_sources(spec.card, archive))
            if manifest.verified is True and not keep_download:
                shutil.rmtree(archive.parent)
            else:
                log(f"kept the download {archive}")
    return manifest


@dataclass
class _Preparer:
    """Writes the table of `spec` into `folder`, which the caller has locked."""

    spec: TableSpec
    folder: Path
    allow_unverified: bool
    on_progress: OnProgress
    log: Callable[[str], None]

    def generate(self, settings: SyntheticSettings) -> Manifest:
        """Prepare the table of a synthetic log."""
        # Most synthetic tables are small, so the space they need is not worth a message.
        parts = table_bytes(rows=settings.rows, n_fields=len(columns(settings)))
        check_space(self.folder.parent, parts, log=no_log)
        with replacing(self.folder) as hidden:
            manifest = _generate(self.spec, settings, hidden, self.on_progress)
            manifest.write(hidden)
        return manifest

    def read(self, sources: Sequence[SourceFile]) -> Manifest:
        """Prepare the table from raw files."""
        spec = self.spec
        with replacing(self.folder) as hidden, self._split(sources, hidden / "folds") as files:
            reader = Reader(
                spec.card,
                spec.settings,
                files,
                exact=bool(spec.card.files) and not self.allow_unverified,
                on_progress=self.on_progress,
                log=self.log,
            )
            manifest = _read(spec, reader, hidden, self.allow_unverified, self.on_progress)
            manifest.write(hidden)
        for text in manifest.warnings:
            self.log(f"warning: {text}")
        return manifest

    def _split(
        self, sources: Sequence[SourceFile], folder: Path
    ) -> contextlib.AbstractContextManager[Sequence[SourceFile]]:
        """The file of each split; for Kaggle's log of Criteo these are written below `folder`."""
        (first, *_) = sources
        if not isinstance(first, KaggleFile):
            return contextlib.nullcontext(sources)
        return split_log(
            self.spec.card,
            first,
            folder,
            check_space=self._check_space,
            on_progress=self.on_progress,
        )

    def _check_space(self, log_bytes: int, rows: int) -> None:
        parts = {"split log": log_bytes}
        parts |= table_bytes(rows=rows, n_fields=len(self.spec.card.fields))
        check_space(self.folder.parent, parts, log=self.log)


def _generate(
    spec: TableSpec, settings: SyntheticSettings, folder: Path, on_progress: OnProgress
) -> Manifest:
    best = BestCounter()

    def counted() -> Iterator[Chunk]:
        rows = 0
        for chunk in chunks(settings, best=best):
            yield chunk
            rows += len(chunk.labels)
            on_progress(StageProgress(stage="making", done=rows, total=settings.rows, rows=rows))

    encoded = encode(
        counted(),
        fields=columns(settings),
        settings=settings,
        folder=folder,
        on_progress=on_progress,
    )
    return _manifest(spec, encoded, verified=True, best=best.result())


def _read(
    spec: TableSpec,
    reader: Reader,
    folder: Path,
    allow_unverified: bool,
    on_progress: OnProgress,
) -> Manifest:
    card = spec.card

    def published() -> Iterator[Chunk]:
        yield from reader.chunks()
        # Checked as soon as all files are read, before the rows are counted and written.
        if not allow_unverified:
            _refuse_unpublished(spec, reader.inputs, reader.positives)

    encoded = encode(
        published(),
        fields=card.fields,
        settings=spec.settings,
        folder=folder,
        train_values_min_count=card.train_values_min_count,
        on_progress=on_progress,
    )
    _refuse_one_class(spec, encoded)
    own: Literal["own"] = "own"
    verified = (
        own
        if spec.file is not None and not card.files
        else bool(card.files) and not differences(card, reader.inputs, reader.positives)
    )
    unlike = cardinality_differences(card, encoded.train_values)
    if verified is True and unlike:
        raise DataError(
            "\n".join([f"{card.name}: the table does not match its card", *unlike]),
            hint="the files are the published ones, so this is a fault of prime-bench",
        )
    return _manifest(
        spec,
        encoded,
        verified=verified,
        inputs=reader.inputs,
        warnings=_warnings(encoded, folder) if spec.file is not None else (),
    )


def _warnings(encoded: Encoded, folder: Path) -> list[str]:
    return column_warnings(
        folder,
        schema=encoded.schema,
        numeric=encoded.numeric,
        missing=encoded.missing,
        train_values=encoded.train_values,
    )


def _manifest(
    spec: TableSpec,
    encoded: Encoded,
    *,
    verified: bool | Literal["own"],
    inputs: Sequence[InputFile] = (),
    warnings: Sequence[str] = (),
    best: dict[str, BestPossible] | None = None,
) -> Manifest:
    notes = list(spec.card.notes)
    if verified == "own":
        notes.append(OWN_NOTE)
    elif not verified:
        notes.append(UNVERIFIED_NOTE if spec.card.files else NO_DIGESTS_NOTE)
    if spec.settings.vocabulary == "all":
        notes.append(VOCABULARY_NOTE)
    return Manifest.model_validate(
        {
            "dataset": spec.name,
            "settings": spec.settings.plain(),
            "variant": spec.digest,
            "fingerprint": fingerprint_of(encoded.outputs),
            "verified": verified,
            "notes": notes,
            "rows": encoded.rows,
            "positives": encoded.positives,
            "n_fields": len(encoded.schema.fields),
            "vocabulary_total": sum(encoded.schema.shape.vocabulary_sizes),
            "inputs": list(inputs),
            "outputs": encoded.outputs,
            "versions": {
                "python": platform.python_version(),
                **{name: importlib.metadata.version(name) for name in _WRITERS},
            },
            "missing": encoded.missing,
            "numeric": encoded.numeric,
            "warnings": list(warnings),
            "best": best,
            "card": None if spec.file is None else spec.card,
        }
    )


_WRITERS = ("prime-bench", "numpy", "polars")


def _whole_table(folder: Path, spec: TableSpec, *, log: Callable[[str], None]) -> Manifest | None:
    """The manifest of the table in `folder`; None if the table is absent, incomplete or damaged."""
    if not folder.exists():
        return None
    try:
        manifest = PreparedTable.open(folder).manifest
    except DataError as error:
        log(f"{error.message}; preparing the table again")
        return None
    missing = [name for name in manifest.outputs if not (folder / name).is_file()]
    if missing or manifest.variant != spec.digest:
        fault = f"{missing[0]} is missing" if missing else "the manifest is of other settings"
        log(f"{folder}: {fault}; preparing the table again")
        return None
    return manifest


def _accepted(
    manifest: Manifest,
    spec: TableSpec,
    sources: Sequence[SourceFile],
    *,
    allow_unverified: bool,
) -> Manifest:
    """The manifest of an existing table. Refuses unpublished files as reading them would."""
    if sources and not allow_unverified:
        positives = [getattr(manifest.positives, split) for split in SPLIT_NAMES]
        _refuse_unpublished(spec, manifest.inputs, positives)
    return manifest


def _unchanged(inputs: Sequence[InputFile], sources: Sequence[SourceFile]) -> bool:
    """Whether path, size and time of the `sources` are those in the manifest, or none are given."""
    # The three inputs of a log that `prepare` split are one source.
    read = dict.fromkeys((file.path, file.size, file.mtime_ns) for file in inputs)
    return not sources or list(read) == [
        (source.name, source.size, source.mtime_ns) for source in sources
    ]


def _same_inputs(inputs: Sequence[InputFile], sources: Sequence[SourceFile]) -> bool:
    """Whether a table was made from the contents of `sources`, which are read only if necessary."""
    if _unchanged(inputs, sources):
        return True
    if isinstance(sources[0], KaggleFile):
        made_from = {file.made_from for file in inputs}
        return None not in made_from and made_from == {digest_source(sources[0])}
    return len(inputs) == len(sources) and all(
        (source.compressed or source.size == file.content_bytes)
        and digest_source(source) == file.sha256
        for file, source in zip(inputs, sources, strict=True)
    )


def _refuse_unpublished(
    spec: TableSpec, inputs: Sequence[InputFile], positives: Sequence[int]
) -> None:
    """Raise DataError if the card has digests and the files have others."""
    card = spec.card
    lines = differences(card, inputs, positives) if card.files else []
    if lines:
        cause = likely_cause(card, inputs, positives)
        raise DataError(
            "\n".join([f"these are not the published files of {card.title}", *lines]),
            hint=f"likely cause: {cause}. To use them as they are, marked as unverified in every"
            " record and report, add --allow-unverified",
        )


def _refuse_one_class(spec: TableSpec, encoded: Encoded) -> None:
    """Raise DataError if all rows of a split have the same label, since it has no AUC then."""
    faults = [
        f"all {getattr(encoded.rows, split):,} rows of {split} have label {int(positives > 0)}"
        for split in SPLIT_NAMES
        if (positives := getattr(encoded.positives, split)) in (0, getattr(encoded.rows, split))
    ]
    if faults:
        own = ", or other fractions" if isinstance(spec.settings, LogSettings) else ""
        raise DataError(
            "\n".join([f"{spec.name}: no AUC can be computed", *faults]),
            hint=f"give more rows{own}: each split needs clicks and rows without one",
        )


def _refuse_no_source(spec: TableSpec, sources: Sequence[SourceFile]) -> None:
    """Raise EnvironmentFault if files are needed, none were given and none can be downloaded."""
    card = spec.card
    if sources or card.kind == "generated" or card.archives:
        return
    raise EnvironmentFault(
        "\n".join(
            [f"{spec.name}: needs its raw data, and no --from was given", *files_needed(spec)]
        ),
        hint=how_to_get(spec),
    )

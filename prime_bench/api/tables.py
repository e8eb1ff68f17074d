"""Prepared tables of data sets."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prime_bench.api.recipes import Changes, Log, StrPath, loaded_recipe
from prime_bench.base.errors import DataError, UsageError, UserError, did_you_mean
from prime_bench.recipe.recipe import Recipe
from prime_bench.schedule.plan import table_specs_of

if TYPE_CHECKING:
    from prime_bench.data.draft import CardDraft
    from prime_bench.data.manifest import BestPossible, Manifest, TableSpec
    from prime_bench.data.stages import StageProgress

_RAW_FORMATS = {"avazu": "avazu-raw", "criteo": "criteo"}
"""Shape of synthetic data -> the format of its raw files."""


@dataclass(frozen=True, kw_only=True)
class Preparation:
    """A prepared table, as `prepare` has made or found it."""

    dataset: str
    """Name of the data set in the recipe; without a recipe the name of its card."""
    folder: Path
    manifest: Manifest
    """Its settings, row counts, digests and notes."""
    made: bool
    """Whether it was made now; False where it was there already."""


def prepare(
    dataset: str | TableSpec,
    *,
    settings: Mapping[str, Any] | None = None,
    source: StrPath | Sequence[StrPath] | None = None,
    allow_unverified: bool = False,
    keep_download: bool = False,
    data_dir: StrPath = "data",
    on_progress: Callable[[StageProgress], None] | None = None,
    log: Log | None = None,
) -> Preparation:
    """Make the prepared table of a data set, or find that it is there.

    Args:
        dataset: Name of a data set: `avazu`, `criteo`, `avazu-raw` or `synthetic`.
        settings: Data settings that differ from the card's defaults, such as `{"rows": 20_000}`.
        source: Raw data: a file, folder, archive or pattern, or several, which are read one after
            another. None for generated data, and to download.
        allow_unverified: Whether to accept files that are not the published ones.
        keep_download: Whether to keep a downloaded archive after the table is verified.
        data_dir: Folder of the prepared tables.
        on_progress: Called now and then with the stage, and how much of it is done.
        log: Called with messages for the user.

    Returns:
        The table's folder and manifest.

    Raises:
        UsageError: There is no such data set or setting, or an argument does not apply to it.
        DataError: The files are missing, damaged or not the published ones.
        EnvironmentFault: The disk or the network fails. After any error, or Ctrl-C, there is no
            new table, and an old one stays.
    """
    from prime_bench.data.manifest import resolve
    from prime_bench.data.prepare import prepare as make
    from prime_bench.data.stages import no_log, no_progress

    spec = resolve(dataset, dict(settings or {})) if isinstance(dataset, str) else dataset
    _check_source(spec, source, unverified=allow_unverified, keep_download=keep_download)
    folder = Path(data_dir)
    before = _manifest_there(spec, folder)
    manifest = make(
        spec,
        data_dir=folder,
        source=None if source is None else file_paths(source),
        allow_unverified=allow_unverified,
        keep_download=keep_download,
        on_progress=on_progress or no_progress,
        log=log or no_log,
    )
    return Preparation(
        dataset=spec.name,
        folder=spec.folder(folder),
        manifest=manifest,
        made=manifest != before,
    )


def prepare_recipe(
    recipe: StrPath | Recipe,
    *,
    sources: Mapping[str, StrPath] | None = None,
    changes: Changes = (),
    allow_unverified: bool = False,
    keep_download: bool = False,
    data_dir: StrPath = "data",
    on_progress: Callable[[str, StageProgress], None] | None = None,
    on_table: Callable[[Preparation], None] | None = None,
    on_error: Callable[[str, UserError], None] | None = None,
    log: Log | None = None,
) -> list[Preparation]:
    """Make the prepared table of every data set of a recipe, under the recipe's settings.

    Args:
        recipe: A recipe.
        sources: Raw data by the name of the data set; the others are downloaded or generated.
        changes: Keys of the recipe to override.
        allow_unverified: Whether to accept files that are not the published ones.
        keep_download: Whether to keep downloaded archives after their tables are verified.
        data_dir: Folder of the prepared tables.
        on_progress: Called now and then with the data set's name and how far it is.
        on_table: Called with each table as soon as it is there.
        on_error: Called with the data set's name and its error, in place of raising it. The
            other data sets are prepared in either case.
        log: Called with messages for the user.

    Returns:
        The tables, in the order of the recipe.

    Raises:
        UsageError: The recipe is faulty, or `sources` does not fit it.
        UserError: The first error of a data set, unless there is `on_error`.
    """
    return prepare_tables(
        table_specs_of(loaded_recipe(recipe, changes)),
        whose="the recipe",
        sources=sources,
        allow_unverified=allow_unverified,
        keep_download=keep_download,
        data_dir=data_dir,
        on_progress=on_progress,
        on_table=on_table,
        on_error=on_error,
        log=log,
    )


def prepare_tables(
    specs: Mapping[str, TableSpec],
    *,
    whose: str,
    sources: Mapping[str, StrPath] | None,
    allow_unverified: bool,
    keep_download: bool,
    data_dir: StrPath,
    on_progress: Callable[[str, StageProgress], None] | None,
    on_table: Callable[[Preparation], None] | None,
    on_error: Callable[[str, UserError], None] | None,
    log: Log | None,
) -> list[Preparation]:
    """Make the tables of data sets by their names, as `prepare_recipe` does.

    `whose`, such as "the recipe", says in messages to what the names belong.
    """
    paths = {name: Path(path) for name, path in (sources or {}).items()}
    for name in paths:
        if name not in specs:
            raise UsageError(
                f"{whose} has no data set `{name}`{did_you_mean(name, specs)}",
                hint=f"it has: {', '.join(specs)}",
            )
        if specs[name].card.kind == "generated":
            raise UsageError(f"{name} is generated and reads no files")
    tables: list[Preparation] = []
    errors: list[UserError] = []
    for name, spec in specs.items():
        try:
            made = prepare(
                spec,
                source=paths.get(name),
                allow_unverified=allow_unverified and bool(spec.card.files),
                keep_download=keep_download and _downloads(spec, paths.get(name)),
                data_dir=data_dir,
                on_progress=_named(on_progress, name),
                log=log,
            )
        except UserError as error:
            errors.append(error)
            if on_error is not None:
                on_error(name, error)
            continue
        tables.append(replace(made, dataset=name))
        if on_table is not None:
            on_table(tables[-1])
    if errors and on_error is None:
        raise errors[0]
    return tables


def draft_card(
    source: StrPath,
    output: StrPath | None = None,
    *,
    replace: bool = False,
    on_progress: Callable[[StageProgress], None] | None = None,
) -> tuple[CardDraft, Path]:
    """Write a draft of a card for a log of your own; every role and rule on it is a guess.

    Args:
        source: A log, or a folder with train, valid and test files.
        output: The card; None for one beside the log, with its name.
        replace: Whether to replace a card that is there.
        on_progress: Called now and then with how much of a file was read.

    Returns:
        The draft, and the file that was written. Without a label (`has_label`) it is no card yet.

    Raises:
        UsageError: There is a card already.
        DataError: The log cannot be read.
        EnvironmentFault: The card cannot be written.
    """
    from prime_bench.base.files import write_whole
    from prime_bench.data import draft
    from prime_bench.data.stages import no_progress

    log = Path(source)
    path = Path(output) if output is not None else draft.card_path(log)
    if path.suffix != ".toml":
        raise UsageError(f"{path}: a card's name ends in .toml")
    if path.exists() and not replace:
        raise UsageError(
            f"{path}: is there already", hint="--force replaces it, --output FILE writes another"
        )
    made = draft.draft_card(log, on_progress=on_progress or no_progress)
    write_whole(path, made.text)
    return made, path


@dataclass(frozen=True, kw_only=True)
class RawFiles:
    """Raw files of synthetic data, as `write_raw` has written them."""

    folder: Path
    raw_format: str
    """As which data set's files: `avazu-raw`, `avazu` or `criteo`."""
    rows: int
    best: dict[str, BestPossible]
    """Split -> metrics of the true probabilities."""


def write_raw(
    folder: StrPath,
    *,
    settings: Mapping[str, Any] | None = None,
    raw_format: str | None = None,
    on_progress: Callable[[StageProgress], None] | None = None,
) -> RawFiles:
    """Write synthetic data as raw files, to test `prepare` with them; no table is made.

    Args:
        folder: A new or empty folder.
        settings: Settings of the data set `synthetic` that shape its rows: `shape`, `rows`,
            `strength` and `seed`.
        raw_format: As which data set's files: `avazu-raw`, `avazu` or `criteo`; None for
            `avazu-raw` or `criteo`, as the shape is.
        on_progress: Called now and then with the stage, and how much of it is done.

    Raises:
        UsageError: There is no such setting or format, or the folder is not empty.
        EnvironmentFault: The files cannot be written.
    """
    from prime_bench.data.manifest import resolve
    from prime_bench.data.stages import no_progress
    from prime_bench.data.synthetic import raw_files
    from prime_bench.settings.data import SyntheticSettings

    own = resolve("synthetic", dict(settings or {})).settings
    assert isinstance(own, SyntheticSettings)  # noqa: S101
    chosen = raw_format or _RAW_FORMATS[own.shape]
    best = raw_files.write_raw(
        own, Path(folder), raw_format=chosen, on_progress=on_progress or no_progress
    )
    return RawFiles(folder=Path(folder), raw_format=chosen, rows=own.rows, best=best)


def export_fuxictr(
    table: StrPath, to: StrPath, *, data_dir: StrPath = "data", log: Log | None = None
) -> Path:
    """Write a prepared table as FuxiCTR 2.3.10 reads it. The ids stay what they are.

    Args:
        table: Folder of the table, or the name of a data set with one prepared table.
        to: A new or empty folder. Its name is the dataset_id of FuxiCTR's configuration.
        data_dir: Folder of the prepared tables.
        log: Called with messages for the user.

    Returns:
        The folder that was written, as an absolute path.

    Raises:
        UsageError: The data set has several tables, or the folder is not empty.
        DataError: There is no such table.
        EnvironmentFault: The files cannot be written.
    """
    from prime_bench.data.fuxictr_files import export_table
    from prime_bench.data.manifest import find_tables, told_apart
    from prime_bench.data.stages import no_log
    from prime_bench.data.table import PreparedTable

    found = find_tables(os.fspath(table), data_dir=Path(data_dir))
    if len(found) > 1:
        raise UsageError(
            f"{table}: has {len(found)} prepared tables; name one by its folder in place of "
            f"`{table}`",
            hint=" or ".join(told_apart(found)),
        )
    # Not `..` but a name is the dataset_id.
    folder = Path(os.path.abspath(to))  # noqa: PTH100  # `resolve` fails on a link to itself
    export_table(PreparedTable.open(found[0]), folder, log=log or no_log)
    return folder


def _named(
    on_progress: Callable[[str, StageProgress], None] | None, name: str
) -> Callable[[StageProgress], None] | None:
    return None if on_progress is None else lambda progress: on_progress(name, progress)


def _downloads(spec: TableSpec, source: object) -> bool:
    """Whether `prepare` may download the raw data."""
    return source is None and bool(spec.card.archives)


def file_paths(source: StrPath | Sequence[StrPath]) -> list[Path]:
    """One path or several, as a list."""
    given = [source] if isinstance(source, str | os.PathLike) else source
    return [Path(path) for path in given]


def _check_source(
    spec: TableSpec, source: object, *, unverified: bool, keep_download: bool
) -> None:
    """Raise UsageError for an argument that has no effect on this data set."""
    if spec.card.kind == "generated" and source is not None:
        raise UsageError(f"source (--from): {spec.name} is generated and reads no files")
    if unverified and not spec.card.files:
        raise UsageError(
            f"allow_unverified (--allow-unverified): no digests are published for {spec.name}"
        )
    if keep_download and not _downloads(spec, source):
        raise UsageError("keep_download (--keep-download): nothing is downloaded")


def _manifest_there(spec: TableSpec, data_dir: Path) -> Manifest | None:
    try:
        return spec.manifest(data_dir)
    except DataError:
        return None

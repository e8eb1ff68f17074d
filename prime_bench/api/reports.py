"""Reports on records, and bundles of records."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from prime_bench.api.recipes import (
    Changes,
    Only,
    Places,
    StrPath,
    change_texts,
    only_texts,
    places_of,
)
from prime_bench.base.errors import UsageError
from prime_bench.store.runs import Runs

if TYPE_CHECKING:
    from prime_bench.report.browse import Overview
    from prime_bench.report.publish import Published
    from prime_bench.report.view import ReportView


def report(
    recipe: StrPath | None = None,
    *,
    only: Only = (),
    changes: Changes = (),
    tables: Sequence[str] = (),
    level: Literal["simple", "full"] = "simple",
    against: Literal["paper", "bars"] | None = None,
    check: StrPath | None = None,
    allow_missing: bool = False,
    mixed: bool = False,
    accept_source: bool = False,
    arms: Sequence[str] = (),
    metrics: Sequence[str] = (),
    runs_dir: Places = "runs",
) -> ReportView:
    """Make the tables of a recipe's jobs, or of everything that has records.

    Args:
        recipe: A recipe, or a bundle that `pack` has written. None: the recipe of the bundles in
            `runs_dir`, or everything where there is none; with `against="paper"` then each of
            the paper's tables from its own bundled recipe.
        only: Which data sets, backbones, arms and seeds.
        changes: Keys of the recipe to override, as they were given to `run`.
        tables: Names of tables to make in place of the recipe's own.
        level: `full` adds statistics over backbones, of each cell, and every pair.
        against: `paper` puts a comparison with every printed number and claim of the paper first,
            `bars` one of Dense with the runs that BARS publishes.
        check: A TOML file with numbers to compare with; `ReportView.agrees` has the result, and
            `ReportView.check` the verdict of each.
        allow_missing: Whether numbers of `check` may have no cell in the report.
        mixed: Whether to compare runs that differ in more than the arm; captions say so.
        accept_source: Whether records count that differ from the recipe's jobs in nothing but the
            source of a class of your own; captions and notes say which. Without a recipe they
            count as of the version that was started last.
        arms: Which arms the figures show. Without it, figures of single pairs show the recipe's
            first arm beside Dense, the others all.
        metrics: What tables and figures show in place of AUC and LogLoss, by the names in records:
            `gauc`, `ne`, `pcoc`, `ece`, `ece_all`, ... The first is shown where there is one alone.
        runs_dir: Folder of the records, or a list of folders and bundles. A job that several have
            counts once, as the first of them has it; notes name the jobs whose results differ.

    Returns:
        The report. A notebook shows its tables; `.tables` has them as frames, `.figures` as
        matplotlib figures, `.render(format)` as text, and `.write(folder)` writes files.

    Raises:
        UsageError: The recipe or `check` is faulty, or there is no such table.
        DataError: There is no record, or the bundle cannot be read.
    """
    from prime_bench.report.request import ReportRequest, metrics_named, read_source
    from prime_bench.report.view import ReportView, compared_with

    for name, value, known in (
        ("level", level, ("simple", "full")),
        ("against", against, (None, "paper", "bars")),
    ):
        if value not in known:
            raise UsageError(f"{name}: one of {known} is wanted, got {value!r}")
    if allow_missing and check is None:
        raise UsageError("allow_missing goes with check")
    for name, names in (("tables", tables), ("arms", arms), ("metrics", metrics)):
        if isinstance(names, str):
            raise UsageError(f"{name}: a list of names is wanted, got `{names}`")
    request = ReportRequest(
        recipe=None if recipe is None else str(recipe),
        tables=tables,
        level=level,
        only=only_texts(only),
        changes=change_texts(changes),
        mixed=mixed,
        accept_source=accept_source,
        metrics=metrics_named(metrics),
    )
    if metrics and against:
        raise UsageError(f"--metric goes with records alone: {against} has AUC and LogLoss")
    source = read_source(request.recipe, places_of(runs_dir))
    if recipe is None and source.packed is None and against == "paper":
        made, records = request.paper_report(source), None
    else:
        made, records = request.report(source)
    made, checked = compared_with(
        made,
        against=against,
        check=None if check is None else Path(check),
        allow_missing=allow_missing,
    )
    return ReportView(report=made, check=checked, _records=records, _arms=tuple(arms))


def pack(
    recipe: StrPath | None,
    output: StrPath,
    *,
    only: Only = (),
    changes: Changes = (),
    accept_source: bool = False,
    runs_dir: Places = "runs",
) -> list[str]:
    """Write the records of a recipe's jobs into a bundle, without weights and data.

    `report` and `records` read it. The same records give the same bytes.

    Args:
        recipe: A recipe; None for that of the bundles in `runs_dir`.
        output: The bundle; its name ends in `.zip`.
        only: Which jobs of the recipe; the bundle is then of these alone.
        changes: Keys of the recipe to override, as they were given to `run`.
        accept_source: Whether records of another version of a class of your own are packed, too; a
            report on the bundle shows them with `accept_source`.
        runs_dir: Folder of the records, or a list of folders and bundles. A job that several have
            counts once, as the first of them has it; a warning names the jobs whose results differ.

    Returns:
        The ids of the packed jobs.

    Raises:
        UsageError: The recipe is faulty, or `output` is not named so.
        DataError: There is no record.

    Warns:
        UserWarning: A record cannot be read, or differs from that of an earlier place, and is left
            out.
    """
    from prime_bench.report.request import pack as pack_records
    from prime_bench.report.sources import read_sources

    job_ids, unreadable = pack_records(
        None if recipe is None else str(recipe),
        Path(output),
        changes=change_texts(changes),
        only=only_texts(only),
        runs=read_sources(places_of(runs_dir)),
        accept_source=accept_source,
    )
    for fault in unreadable:
        warnings.warn(f"left out: {fault}", stacklevel=2)
    return job_ids


def publish(
    what: StrPath,
    to: StrPath,
    *,
    changes: Changes = (),
    by: str = "",
    anonymous: bool = False,
    private: bool = False,
    replace: bool = False,
    message: str = "",
    runs_dir: StrPath = "runs",
) -> Published:
    """Put the records of a recipe, the page of their report and a manifest where others find them.

    The same records and words again change nothing. Whoever reads finds what was there before or
    all of what is new, also after a kill.

    Args:
        what: A recipe, or a bundle that `pack` has written.
        to: A folder, or `hf:org/name`, a data set repository of the Hugging Face hub, which is made
            where it does not exist. The token is that of `hf auth login`, or HF_TOKEN.
        changes: Keys of the recipe to override, as they were given to `run`.
        by: Who publishes, as they call themselves.
        anonymous: Whether to leave out the names of machines and folders. The records that have
            changed are sealed with new digests, and the manifest names them.
        private: Whether a new repository is private.
        replace: Whether to put the publication in the place of another one.
        message: Message of the commit on the hub; empty for the title of the report.
        runs_dir: Folder of the records.

    Returns:
        Where it is, the manifest, and what was done: `published`, `replaced`, `completed` (a file
        was missing or damaged) or `unchanged`.

    Raises:
        UsageError: The recipe or the name of the repository is faulty, or something else is there.
        DataError: There is no record, the bundle cannot be read, or it names the user's home.
        EnvironmentFault: Disk, network, token or permission.

    Warns:
        UserWarning: A record cannot be read and is left out.
    """
    from prime_bench.report.publish import publish as publish_records
    from prime_bench.report.publish import target_of

    done = publish_records(
        str(what),
        target_of(str(to), private=private),
        changes=change_texts(changes),
        by=by,
        anonymous=anonymous,
        replace=replace,
        message=message,
        runs=Runs(Path(runs_dir)),
    )
    for fault in done.left_out:
        warnings.warn(f"left out: {fault}", stacklevel=2)
    return done


def browse(*sources: StrPath, output: StrPath | None = None) -> Overview:
    """Make rows, and one page, of the records of many people.

    Args:
        sources: Folders of records, bundles, publications in a folder or as `hf:org/name`, and
            folders with several of these.
        output: Where to write the page, a file; None: nowhere.

    Returns:
        The rows, each an arm on a backbone under one choice of settings over its seeds, with the
        settings in which comparable rows differ; the sources; and a message for each source or
        record that cannot be read and was left out.

    Raises:
        UsageError: A name that no repository can have.
        DataError: There is no training run in any source.
        EnvironmentFault: The page cannot be written.
    """
    from prime_bench.base.files import write_whole
    from prime_bench.report.browse import browse as browse_sources
    from prime_bench.report.formats.browse_page import render

    found = browse_sources([str(source) for source in sources])
    if output is not None:
        write_whole(Path(output), render(found, folder=Path(output).parent))
    return found

"""`prime-bench study`: prepare, run and report several recipes together."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from prime_bench.base.errors import EXIT_FAILED, EXIT_INTERRUPTED, UserError
from prime_bench.base.files import check_can_write
from prime_bench.base.words import counted
from prime_bench.cli import complete, options

if TYPE_CHECKING:
    from prime_bench.api import StudyEstimate, StudyPlan
    from prime_bench.recipe.study import Study
    from prime_bench.report.study import StudyReport
    from prime_bench.schedule.estimate import Total
    from prime_bench.schedule.run import RunSummary

STUDY_SCHEMA = 1


@click.command()
@click.argument("study", shell_complete=complete.studies)
@click.option(
    "--plan",
    "plan_only",
    is_flag=True,
    help="Print jobs, shared jobs, time, memory and disk of each recipe, and do nothing.",
)
@click.option("--only-report", is_flag=True, help="Report on the records that there are.")
@click.option(
    "--output",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Folder of the report.  [default: report/STUDY]",
)
@click.option(
    "--from",
    "sources",
    multiple=True,
    metavar="NAME=PATH",
    help="Raw data of a data set, as for `prepare --recipe`; may be repeated.",
)
@click.option(
    "--allow-unverified",
    is_flag=True,
    help="Accept files that are not the published ones; records and reports say so.",
)
@click.option(
    "--measure",
    "measured",
    is_flag=True,
    help="With --plan: train ten seconds for each data set, backbone and arm whose pace no record "
    "tells.",
)
@options.where_jobs_run
@options.retries
@options.fail_fast
@options.max_hours
@options.retrain
@options.data_dir
@options.runs_dir
@options.as_json
@click.pass_context
def study(
    ctx: click.Context,
    /,
    study: str,
    plan_only: bool,
    only_report: bool,
    output: Path | None,
    sources: tuple[str, ...],
    allow_unverified: bool,
    measured: bool,
    retries: int,
    fail_fast: bool,
    max_hours: float | None,
    retrain: str | None,
    data_dir: Path,
    runs_dir: Path,
    as_json: bool,
    **where: Any,
) -> None:
    """Do several recipes: prepare, run every job once, and report all.

    STUDY is a file (docs/studies.md) or the name of a bundled study: `paper`, or `miniature`, which
    rehearses the same on small generated logs. The same command continues after Ctrl-C, `kill -9`
    or a failure; nothing that is finished is done again. Costs are measured last, on this machine,
    one job at a time.
    """
    from prime_bench import api

    mode = "--plan" if plan_only else "--only-report" if only_report else ""
    if measured and not plan_only:
        raise click.UsageError("--measure goes with --plan")
    if plan_only and only_report:
        raise click.UsageError("--plan and --only-report exclude each other")
    for flag, given in (
        ("--from", bool(sources)),
        ("--allow-unverified", allow_unverified),
        ("--output", output is not None and plan_only),
    ):
        if given and mode:
            raise click.UsageError(f"{flag} has no effect with {mode}")
    loaded = api.load_study(study)
    folder = output or Path("report") / loaded.name
    if only_report:
        _report(loaded, folder, runs_dir=runs_dir, as_json=as_json)
        return
    opened = api.open_engine(**where)

    def planned() -> "StudyPlan":
        return api.plan_study(
            loaded,
            device=where["device"],
            engine=opened,
            retrain_stale=retrain == "stale",
            data_dir=data_dir,
            runs_dir=runs_dir,
        )

    if plan_only:
        made = planned()
        found = api.estimate_study(
            made,
            device=where["device"],
            engine=opened,
            measure=measured,
            runs_dir=runs_dir,
            log=_log,
        )
        for fault in found.not_measured:
            _log(fault)
        _print_plan(made, found, as_json=as_json)
        return
    check_can_write(folder)
    _prepare(loaded, sources, allow_unverified=allow_unverified, data_dir=data_dir)
    summaries = _run(
        planned(),
        engine=opened,
        device=where["device"],
        max_hours=max_hours if max_hours is not None else loaded.max_hours,
        retries=retries,
        fail_fast=fail_fast,
        runs_dir=runs_dir,
    )
    if any(summary.stopped for summary in summaries):
        ctx.exit(EXIT_INTERRUPTED)
    if not any(summary.done or summary.had_record or summary.skipped for summary in summaries):
        _log("no report: no job of the study has a record")
        ctx.exit(EXIT_FAILED)
    _report(loaded, folder, runs_dir=runs_dir, as_json=as_json, summaries=summaries)
    ctx.exit(0 if all(summary.ok for summary in summaries) else EXIT_FAILED)


def _paper(**given: Any) -> None:
    study.callback(study="paper", **given)  # type: ignore[misc]


paper = click.Command(
    "paper",
    callback=_paper,
    params=[param for param in study.params if param.name != "study"],
    help="Do the whole paper: short for `study paper`.",
)


def _log(message: object) -> None:
    from prime_bench.cli.output import print_text

    print_text(str(message), err=True)


def _prepare(
    study: "Study", sources: tuple[str, ...], *, allow_unverified: bool, data_dir: Path
) -> None:
    """Prepare every table. Raises the first error, after all tables were tried."""
    from prime_bench import api
    from prime_bench.cli.prepare import paths_by_name
    from prime_bench.cli.prepare_output import progress_bars, summary

    errors: list[UserError] = []
    with progress_bars() as bars:
        api.prepare_study(
            study,
            sources=paths_by_name(sources),
            allow_unverified=allow_unverified,
            data_dir=data_dir,
            on_progress=bars,
            on_table=lambda made: _log(summary(made)) if made.made else None,
            on_error=lambda _name, error: errors.append(error),
            log=_log,
        )
    for error in errors[1:]:
        _log(f"error: {error}\n")
    if errors:
        raise errors[0]


def _run(
    made: "StudyPlan",
    *,
    engine: Any,
    device: str,
    max_hours: float | None,
    retries: int,
    fail_fast: bool,
    runs_dir: Path,
) -> list["RunSummary"]:
    """Do the queue, then measure costs, until the user or the time limit stops it."""
    from prime_bench import api
    from prime_bench.cli.progress import RunProgress
    from prime_bench.cli.run import print_failures, tell_stopping

    start, summaries = time.monotonic(), []
    for plan in [*([made.queue] if made.queue else []), *made.costs]:
        hours = (time.monotonic() - start) / 3600
        with RunProgress(plan) as progress:
            summary = api.run(
                plan,
                engine="local" if plan.recipe.kind == "cost" else engine,
                device=device,
                retries=retries,
                fail_fast=fail_fast,
                max_hours=None if max_hours is None else max(0.0, max_hours - hours),
                runs_dir=runs_dir,
                on_event=progress.event,
                on_outcome=progress.outcome,
                on_stop=tell_stopping,
            )
        _log(f"{plan.recipe.name}: {summary}")
        print_failures(summary, runs_dir=runs_dir)
        summaries.append(summary)
        if summary.stopped or (fail_fast and summary.failed):
            break
    return summaries


def _report(
    study: "Study",
    folder: Path,
    *,
    runs_dir: Path,
    as_json: bool,
    summaries: "list[RunSummary] | None" = None,
) -> None:
    """Write the report, and print where it is and what it says of the claims."""
    from prime_bench import api
    from prime_bench.cli.output import print_json, print_line

    _log("writing the report")
    made = api.report_study(study, runs_dir=runs_dir)
    made.write(folder)
    if as_json:
        print_json(STUDY_SCHEMA, _plain(made, folder, summaries or []))
        return
    if study.label:
        print_line(f"{study.label}.")
    for claim, verdict, _ in made.verdicts:
        print_line(f"{verdict}: {claim}")
    for name in made.missing:
        print_line(f"no record yet: {name}")
    n_tables, n_figures = len(made.view.report.tables), len(made.figures)
    print_line(
        f"{folder / 'index.md'}: {counted(n_tables, 'table')}, {counted(n_figures, 'figure')}"
    )


def _plain(made: "StudyReport", folder: Path, summaries: "list[RunSummary]") -> dict[str, Any]:
    return {
        "study": made.study.name,
        "title": made.study.title,
        "label": made.study.label,
        "output": str(folder),
        "jobs_done": sum(summary.done for summary in summaries),
        "jobs_failed": sum(len(summary.failed) for summary in summaries),
        "jobs_left": sum(summary.interrupted + summary.not_started for summary in summaries),
        "tables": [table.name for table in made.view.report.tables],
        "figures": [figure.name for figure in made.figures],
        "missing": made.missing,
        "claims": [
            {"claim": claim, "verdict": verdict, "numbers": numbers}
            for claim, verdict, numbers in made.verdicts
        ],
    }


def _print_plan(made: "StudyPlan", found: "StudyEstimate", *, as_json: bool) -> None:
    """Print a line a recipe, then all together; or one JSON object."""
    from prime_bench.cli.output import print_json, print_line, print_text, table_text
    from prime_bench.cli.plan import outlook, summary

    if as_json:
        print_json(STUDY_SCHEMA, _plan_plain(made, found))
        return
    rows = [
        [
            whole.recipe.name,
            whole.recipe.kind,
            len(whole.jobs),
            len(whole.jobs) - len(part.jobs),
            len(part.jobs) - part.counts.get("done", 0),
            *_amounts(total),
        ]
        for whole, part, total in zip(made.plans, made.parts, found.by_recipe, strict=True)
    ]
    header = ["recipe", "kind", "jobs", "shared", "left", "time", "memory", "disk"]
    print_text(table_text(rows, header=header, n_words=2))
    print_line("")
    print_line(made.study.title)
    if made.study.label:
        print_line(f"{made.study.label}.")
    print_line(
        f"{counted(made.n_jobs, 'job')}; shared with a recipe above and done once: "
        f"{made.n_shared:,}"
    )
    print_line("time, memory, disk: of the jobs that are left, as many at once as `slots` says")
    if _prepare_commands(made):
        print_line("-: not known before the tables are there, which the study prepares first")
    if made.queue is not None and found.queue is not None:
        print_text(summary(made.queue))
        for line in outlook(found.queue.total):
            print_line(line)
    told = made.queue.prepare_commands if made.queue is not None else []
    for plan, item in zip(made.costs, found.costs, strict=True):
        states = summary(plan, told=told)
        print_text(f"{plan.recipe.name}, measured last and one after another: {states}")
        for line in outlook(item.total):
            print_line(line)


def _prepare_commands(made: "StudyPlan") -> list[str]:
    """The commands that make the tables which jobs of the study lack, each once."""
    plans = [*([made.queue] if made.queue is not None else []), *made.costs]
    return list(dict.fromkeys(command for plan in plans for command in plan.prepare_commands))


def _amounts(total: "Total") -> list[str]:
    """Time, memory of the largest job and disk of the jobs of a recipe that are to run."""
    from prime_bench.cli.output import duration, size

    known = total.known_jobs
    unknown = f" + {total.jobs - known} unknown" if known < total.jobs else ""
    time_text = f"{duration(total.elapsed_s)}{unknown}" if known else "unknown"
    return [
        time_text if total.jobs else "-",
        size(total.memory_bytes) if total.memory_bytes else "-",
        size(total.disk_bytes) if total.disk_bytes else "-",
    ]


def _plan_plain(made: "StudyPlan", found: "StudyEstimate") -> dict[str, Any]:
    return {
        "study": made.study.name,
        "title": made.study.title,
        "label": made.study.label,
        "jobs": made.n_jobs,
        "shared": made.n_shared,
        "prepare": _prepare_commands(made),
        "total": found.queue.total.plain() if found.queue else None,
        "recipes": [
            {
                "recipe": whole.recipe.name,
                "kind": whole.recipe.kind,
                "jobs": len(whole.jobs),
                "shared": len(whole.jobs) - len(part.jobs),
                "counts": part.counts,
                "total": total.plain(),
            }
            for whole, part, total in zip(made.plans, made.parts, found.by_recipe, strict=True)
        ],
    }

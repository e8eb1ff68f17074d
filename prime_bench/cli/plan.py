"""`prime-bench plan`: what a recipe's jobs are and in which state."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from prime_bench.base.characters import visible
from prime_bench.base.words import counted
from prime_bench.cli import complete, options

if TYPE_CHECKING:
    from prime_bench.schedule.estimate import Estimate, PlanEstimate, Total
    from prime_bench.schedule.plan import Plan
    from prime_bench.settings.interface import Budget

PLAN_SCHEMA = 1


@click.command()
@click.argument("recipe", shell_complete=complete.recipes)
@options.only
@options.changes
@options.device
@options.slots
@options.threads
@options.retrain
@options.accept_source
@click.option(
    "--measure",
    "measured",
    is_flag=True,
    help="Train ten seconds for each data set, backbone and arm whose pace no record tells.",
)
@options.data_dir
@options.runs_dir
@options.as_json
def plan(
    recipe: str,
    only: tuple[str, ...],
    changes: tuple[str, ...],
    device: str,
    slots: int | Literal["auto"],
    threads: int | None,
    retrain: str | None,
    accept_source: bool,
    measured: bool,
    data_dir: Path,
    runs_dir: Path,
    as_json: bool,
) -> None:
    """List the jobs of a recipe, and why each would run.

    RECIPE is a file or the name of a bundled recipe. Also estimates time, memory and disk.
    `--device`, `--slots` and `--threads-per-job` say how the jobs would run: which records could
    not pair, and whose times count for the estimate, depends on it.
    """
    from prime_bench import api
    from prime_bench.cli.output import print_line

    engine = api.open_engine(device=device, slots=slots, threads=threads)
    made = api.plan(
        recipe,
        only=only,
        changes=changes,
        engine=engine,
        retrain_stale=retrain == "stale",
        accept_source=accept_source,
        data_dir=data_dir,
        runs_dir=runs_dir,
    )
    found = api.estimate(
        made,
        engine=engine,
        measure=measured,
        runs_dir=runs_dir,
        log=lambda message: print_line(message, err=True),
    )
    for fault in found.not_measured:
        print_line(fault, err=True)
    print_plan(made, found, as_json=as_json)


def print_plan(made: "Plan", estimate: "PlanEstimate", *, as_json: bool = False) -> None:
    """Print the plan as a table, or as one JSON object with the jobs under `jobs`."""
    from prime_bench.cli.output import print_json, print_line, print_text
    from prime_bench.settings.interface import added_text

    estimates, total, added = estimate.jobs, estimate.total, estimate.added
    if as_json:
        content = {
            "recipe": made.recipe.name,
            "title": made.recipe.title,
            "counts": made.counts,
            "prepare": made.prepare_commands,
            "candidates": made.candidates,
            "earlier": made.earlier,
            "unfit": made.unfit,
            "skipped": list(made.skipped),
            "total": total.plain(),
            "added": {
                dataset: {
                    arm: {
                        backbone: {
                            "parameters": budget.plugin_parameters,
                            "macs_per_row": budget.plugin_macs,
                        }
                        for backbone, budget in budgets.items()
                    }
                    for arm, budgets in arms.items()
                }
                for dataset, arms in added.items()
            },
            "jobs": [
                planned.plain() | (found.plain() if found else {})
                for planned in made.jobs
                for found in [estimates.get(planned.job_id or "")]
            ],
        }
        print_json(PLAN_SCHEMA, content)
        return
    _print_table(made, estimates)
    print_text(f"\n{visible(made.recipe.title)}\n{summary(made)}")
    for line in outlook(total):
        print_line(line)
    families = {planned.job_spec.arm.name: planned.job_spec.arm.family for planned in made.jobs}
    for dataset, arms in added.items():
        budgets: dict[str, list[Budget]] = {}
        for arm, own in arms.items():
            budgets.setdefault(families[arm], []).extend(own.values())
        parts = "; ".join(f"{arm} {added_text(own)}" for arm, own in budgets.items())
        print_line(f"{dataset}: parameters, and multiply-accumulates a row, added: {parts}")


def _print_table(made: "Plan", estimates: "Mapping[str, Estimate]") -> None:
    from prime_bench.cli.output import duration, print_text, size, table_text
    from prime_bench.schedule.estimate import Estimate

    several = len({planned.job_spec.kind for planned in made.jobs}) > 1
    header = ["job", *(["kind"] if several else []), "dataset", "backbone", "arm", "seed", "state"]
    header += ["time", "memory", "why"]
    rows = []
    for planned in made.jobs:
        estimate = estimates.get(planned.job_id or "", Estimate())
        rows.append(
            [
                planned.job_id or "-",
                *([planned.job_spec.kind] if several else []),
                planned.job_spec.dataset,
                planned.job_spec.backbone_name,
                planned.job_spec.arm.name,
                planned.job_spec.seed,
                planned.state,
                "-" if estimate.wall_s is None else duration(estimate.wall_s),
                "-" if estimate.memory_bytes is None else size(estimate.memory_bytes),
                "too few rows, see below" if planned.state == "unfit" else planned.why,
            ]
        )
    print_text(table_text(rows, header=header))


def outlook(total: "Total") -> Iterator[str]:
    """Say in lines what time, memory and disk the jobs that would run take."""
    from prime_bench.cli.output import duration, size
    from prime_bench.schedule.estimate import MEMORY_NOTE, RANGE_NOTE

    if not total.jobs:
        return
    yield f"slots: {total.slots}"
    if total.known_jobs:
        low, high = duration(total.elapsed_low_s), duration(total.elapsed_high_s)
        yield (
            f"time: about {duration(total.elapsed_s)} ({low} to {high}) for "
            f"{counted(total.known_jobs, 'job')}, {duration(total.wall_s)} one after another "
            f"({'; '.join(total.sources)})"
        )
        yield RANGE_NOTE
    if total.known_jobs < total.jobs:
        yield (
            f"time: unknown for {counted(total.jobs - total.known_jobs, 'job')}, since nothing "
            "like them has run; `plan --measure` trains ten seconds for each backbone and arm"
        )
    if total.memory_bytes:
        yield f"{MEMORY_NOTE}: at most {size(total.memory_bytes)} a job"
    if total.disk_bytes:
        wanted = total.disk_bytes + total.disk_at_work_bytes
        too_little = "" if wanted <= total.disk_free_bytes else ", which does not suffice"
        yield (
            f"disk: {size(total.disk_bytes)} of checkpoints, up to "
            f"{size(total.disk_at_work_bytes)} more while all slots are at work; "
            f"{size(total.disk_free_bytes)} are free{too_little}"
        )


def summary(made: "Plan", *, told: Sequence[str] = ()) -> str:
    """A line with the number of jobs in each state, then lines on candidates, on stale, broken and
    unfit jobs, on records of another source, and the commands that prepare data.

    Commands in `told` are left out.
    """
    from dataclasses import replace

    kinds = dict.fromkeys(planned.job_spec.kind for planned in made.jobs)
    parts = []
    for kind in kinds:
        own = replace(
            made, jobs=[planned for planned in made.jobs if planned.job_spec.kind == kind]
        )
        counts = ", ".join(f"{number} {state}" for state, number in own.counts.items())
        parts.append(counts if len(kinds) == 1 else f"{len(own.jobs)} {kind} ({counts})")
    lines = [f"{counted(len(made.jobs), 'job')}: {', '.join(parts)}"]
    for backbone, arms in made.candidates.items():
        counts = ", ".join(f"{arm} {number}" for arm, number in arms.items())
        common = "" if len({*arms.values()}) == 1 else "; not a common budget"
        lines.append(visible(f"candidates on {backbone}: {counts}{common}"))
    stale = sum(planned.state == "stale" for planned in made.jobs)
    again = sum(planned.state == "stale" for planned in made.to_run)
    if again < stale:
        lines.append(f"stale: `--retrain stale` does {counted(stale - again, 'job')} again")
    lines += [visible(f"broken: {why}") for why in made.broken]
    lines += [visible(f"source: {text}") for text in made.earlier]
    lines += [visible(f"unfit: {why}") for why in made.unfit]
    lines += [visible(text) for text in made.skipped]
    lines += [
        visible(f"to prepare: {command}")
        for command in made.prepare_commands
        if command not in told
    ]
    return "\n".join(lines)

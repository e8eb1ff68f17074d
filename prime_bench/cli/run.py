"""`prime-bench run`: do every job of a recipe that has no record."""

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import click

from prime_bench.cli import codes, options

if TYPE_CHECKING:
    from prime_bench.schedule.engine import Backend, Limits
    from prime_bench.schedule.plan import Plan
    from prime_bench.schedule.run import JobCounts
    from prime_bench.store.record import DeviceKind
    from prime_bench.store.runs import Runs

_STOPPING = b"\nstopping: running jobs go on to the end of their epoch; once more ends them now\n"


@click.command()
@click.argument("recipe")
@options.only
@options.changes
@options.device
@click.option(
    "--slots",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Jobs at once on each device, each in a process of its own.",
)
@click.option(
    "--threads-per-job",
    "threads",
    type=click.IntRange(min=1),
    help="CPU threads of a job; by default the slots share the cores.  [ray: 1]",
)
@click.option(
    "--retries",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Further tries of a job that fails.",
)
@click.option("--fail-fast", is_flag=True, help="Start no job after one has failed.")
@click.option("--max-hours", type=options.Finite(min=0), help="Start no job after that time.")
@click.option(
    "--job-timeout",
    "job_timeout_s",
    type=options.Finite(min=0, min_open=True),
    metavar="SECONDS",
    help="End a job that takes longer; it counts as failed.",
)
@options.retrain
@click.option(
    "--keep-predictions",
    is_flag=True,
    help="Leave predictions.npz in each job's folder, as `prime-bench predict` does later.",
)
@options.compiled
@click.option(
    "--engine",
    type=click.Choice(["local", "ray"]),
    default="local",
    show_default=True,
    help="Child processes here, or tasks of a Ray cluster.",
)
@click.option(
    "--address",
    default="auto",
    show_default=True,
    help="Of the Ray cluster: HOST:PORT, or `auto` for the one that runs on this machine.",
)
@options.dry_run
@options.data_dir
@options.runs_dir
@click.pass_context
def run(
    ctx: click.Context,
    recipe: str,
    only: tuple[str, ...],
    changes: tuple[str, ...],
    device: str,
    slots: int,
    threads: int | None,
    retries: int,
    fail_fast: bool,
    max_hours: float | None,
    job_timeout_s: float | None,
    retrain: str | None,
    keep_predictions: bool,
    compiled: bool,
    engine: str,
    address: str,
    dry_run: bool,
    data_dir: Path,
    runs_dir: Path,
) -> None:
    """Do every job of RECIPE, a file or the name of a bundled recipe, that has no record."""
    from prime_bench.cli.plan import load_plan, print_plan
    from prime_bench.schedule.engine import Limits
    from prime_bench.schedule.estimate import estimates_of
    from prime_bench.store.runs import Runs

    backend, kind, threads = _engine(
        engine,
        device=device,
        slots=slots,
        threads=threads,
        job_timeout_s=job_timeout_s,
        address=address,
    )
    made = load_plan(
        recipe,
        only=only,
        changes=options.with_compile(changes, compiled),
        data_dir=data_dir,
        runs_dir=runs_dir,
        device_kind=kind,
        retrain=retrain,
    )
    if dry_run:
        estimates = estimates_of(made, runs=Runs(runs_dir), device_kind=kind)
        print_plan(made, estimates, runs_dir=runs_dir)
        return
    max_s = None if max_hours is None else max_hours * 3600
    limits = Limits(retries=retries, fail_fast=fail_fast, max_s=max_s)
    code = _run(
        recipe,
        made,
        backend,
        runs=Runs(runs_dir),
        threads=threads,
        limits=limits,
        keep_predictions=keep_predictions,
    )
    ctx.exit(code)


def _run(
    recipe: str,
    made: "Plan",
    backend: "Backend",
    *,
    runs: "Runs",
    threads: int,
    limits: "Limits",
    keep_predictions: bool,
) -> int:
    """Do the plan's jobs, show how far they are, and give back the exit code."""
    from prime_bench.cli.progress import RunProgress
    from prime_bench.schedule.run import run_plan

    with RunProgress(made) as progress, _stopping_gently(backend) as asked:
        tally = run_plan(
            made,
            backend,
            runs=runs,
            threads=threads,
            limits=limits,
            keep_predictions=keep_predictions,
            on_event=progress.event,
            on_outcome=progress.outcome,
        )
    _say(recipe, made, tally, runs_dir=runs.folder)
    if asked:
        return codes.INTERRUPTED
    return codes.FAILED if tally.failed or tally.not_run or made.broken else 0


def _engine(
    name: str,
    *,
    device: str,
    slots: int,
    threads: int | None,
    job_timeout_s: float | None,
    address: str,
) -> "tuple[Backend, DeviceKind, int]":
    """The engine, the kind of its devices, and the CPU threads of one of its jobs.

    Raises UsageError for a wrong `device`, EnvironmentFault for one or a cluster that is not there.
    """
    from prime_bench.schedule.devices import cores, find_devices
    from prime_bench.schedule.local import LocalBackend

    if name == "ray":
        from prime_bench.schedule.cluster import RayBackend

        cluster = RayBackend(
            address=address,
            device=device,
            slots=slots,
            threads=threads or 1,
            job_timeout_s=job_timeout_s,
        )
        return cluster, cluster.device_kind, threads or 1
    devices = find_devices(device)
    local = LocalBackend(devices=devices, slots=slots, job_timeout_s=job_timeout_s)
    share = max(1, cores() // (slots * len(devices)))
    return local, devices[0].kind, threads or share


@contextlib.contextmanager
def _stopping_gently(backend: "Backend") -> Iterator[list[int]]:
    """The first Ctrl-C or SIGTERM asks the engine to stop at the next checkpoints, a second one
    interrupts. Yields what came: a list that is empty until then.
    """
    came: list[int] = []
    signals = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.getsignal(number) for number in signals}

    def ask(number: int, _frame: FrameType | None) -> None:
        if came:
            raise KeyboardInterrupt
        came.append(number)
        # Not through Python's stderr, in whose middle the signal may have come.
        os.write(2, _STOPPING)
        backend.stop()

    for number in signals:
        signal.signal(number, ask)
    try:
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _say(recipe: str, made: "Plan", tally: "JobCounts", *, runs_dir: Path) -> None:
    """The run's last words: a line of counts, then a line for each job that has no record."""
    from prime_bench.cli.plan import summary

    before = made.counts.get("done", 0)
    words = [
        f"{tally.done} jobs done",
        f"{before} had a record",
        f"{len(tally.failed)} failed",
        *([f"{len(made.broken)} broken"] if made.broken else []),
        *([f"{len(tally.not_run)} not run"] if tally.not_run else []),
        *([f"{tally.skipped} left to another process"] if tally.skipped else []),
        *([f"{tally.interrupted} interrupted"] if tally.interrupted else []),
        *([f"{tally.left} not started"] if tally.left else []),
    ]
    click.echo(f"{recipe}: {', '.join(words)}")
    for outcome in (*tally.failed, *tally.not_run):
        request = outcome.request
        click.echo(
            f"{outcome.state}: {request.dataset} {request.job.backbone} {request.arm} "
            f"seed {request.job.seed}: {outcome.why} ({runs_dir / request.job.id})",
            err=True,
        )
    if tally.interrupted or tally.left:
        click.echo("the same command goes on where this one was", err=True)
    if made.prepare_commands or made.broken:
        click.echo(summary(made), err=True)

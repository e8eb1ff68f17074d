"""Options that several commands share."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])


def _slot_count(ctx: click.Context, param: click.Parameter, value: str) -> int | str:
    """Parse `auto` or a positive integer; fails with a usage error for anything else."""
    if value == "auto":
        return "auto"
    if not value.isdecimal() or int(value) < 1:
        what = f"{value!r} is neither `auto` nor a number from 1 on"
        raise click.BadParameter(what, ctx=ctx, param=param)
    return int(value)


class Finite(click.FloatRange):
    """A range of numbers that excludes NaN."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Parse a finite number; fails with a usage error for anything else."""
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number", param, ctx)
        return number


def _folder(name: str, *, variable: str, about: str) -> Callable[[Command], Command]:
    """The option `--<name>-dir`; the default is the folder `<name>` in the working folder."""
    return click.option(
        f"--{name}-dir",
        type=click.Path(path_type=Path, file_okay=False),
        default=Path(name),
        envvar=variable,
        show_default=True,
        show_envvar=True,
        help=about,
    )


data_dir = _folder("data", variable="PRIME_BENCH_DATA", about="Folder of the prepared tables.")
runs_dir = _folder("runs", variable="PRIME_BENCH_RUNS", about="Folder of the records.")
runs_dirs = click.option(
    "--runs-dir",
    "runs_dirs",
    multiple=True,
    type=click.Path(path_type=Path),
    default=(Path("runs"),),
    envvar="PRIME_BENCH_RUNS",
    show_default="runs",
    show_envvar=True,
    help="Folder of the records, or a bundle; may be repeated. Of a job that several have, the "
    "first counts.",
)
only = click.option(
    "--only",
    multiple=True,
    metavar="KEY=VALUE",
    help="Narrow to a data set, backbone, arm or seed; may be repeated.",
)
changes = click.option(
    "--set",
    "changes",
    multiple=True,
    metavar="KEY=VALUE",
    help="Override a key of the recipe, such as training.max_epochs=1; it makes other jobs.",
)

compiled = click.option(
    "--compile", "compiled", is_flag=True, help="Short for --set training.compile=true."
)
dry_run = click.option("--dry-run", is_flag=True, help="Print the plan and do nothing.")
as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
device = click.option(
    "--device",
    default="auto",
    show_default=True,
    help="`cpu`, `cuda` (all there are), or a list such as `cuda:0,cuda:1`; `auto` is cuda where "
    "there is one.",
)
slots = click.option(
    "--slots",
    metavar="N|AUTO",
    callback=_slot_count,
    default="auto",
    show_default=True,
    help="Jobs at once on each device, each in a process of its own. `auto`: on CPUs one a core, "
    "on GPUs as many as their memory holds and one a core at most. On a Ray cluster N is for GPUs.",
)
threads = click.option(
    "--threads-per-job",
    "threads",
    type=click.IntRange(min=1),
    help="CPU threads of a job; by default OMP_NUM_THREADS, or 1 for `--slots auto` on CPUs, or "
    "else the slots share the cores.  [ray: 1]",
)
retries = click.option(
    "--retries",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Further tries of a job that fails.",
)
fail_fast = click.option("--fail-fast", is_flag=True, help="Start no job after one has failed.")
max_hours = click.option("--max-hours", type=Finite(min=0), help="Start no job after that time.")
job_timeout = click.option(
    "--job-timeout",
    "job_timeout_s",
    type=Finite(min=0, min_open=True),
    metavar="SECONDS",
    help="End a job that takes longer; it counts as failed.",
)
engine = click.option(
    "--engine",
    "name",
    type=click.Choice(["local", "ray"]),
    default="local",
    show_default=True,
    help="Child processes here, or tasks of a Ray cluster.",
)
address = click.option(
    "--address",
    default="auto",
    show_default=True,
    help="The Ray cluster: HOST:PORT, or `auto` for the one that runs on this machine.",
)
nodes = click.option(
    "--nodes",
    metavar="LABEL",
    help="Nodes of the Ray cluster that take jobs: KEY=VALUE is a label of theirs, NAME a "
    "resource, such as accelerator_type:H100.  [default: all]",
)
node_timeout = click.option(
    "--node-timeout",
    "node_timeout_s",
    type=Finite(min=0),
    default=0,
    metavar="SECONDS",
    help="How long to wait for a node of the Ray cluster that can take a job, where none is there: "
    "an autoscaler is asked for as many as the jobs need.  [default: 0]",
)
mixed_devices = click.option(
    "--allow-mixed-devices",
    "mixed_devices",
    is_flag=True,
    help="On a Ray cluster: let arms that are compared run on different models of a device.",
)
sync_data = click.option(
    "--sync-data",
    is_flag=True,
    help="On a Ray cluster: send each node the tables that it lacks.",
)
one_device = click.option(
    "--device",
    default="auto",
    show_default=True,
    help="`cpu`, `cuda` or `cuda:INDEX`; `auto` is cuda where there is one.",
)
retrain = click.option(
    "--retrain",
    type=click.Choice(["stale"]),
    help="Do jobs again whose records cannot pair with those of this device; old ones are kept.",
)
accept_source = click.option(
    "--accept-source",
    is_flag=True,
    help="Let records count that differ from what is asked for in nothing but the source of a "
    "class of your own. For an edit that changes no number.",
)


def where_jobs_run(command: Command) -> Command:
    """The options that `api.open_engine` takes, under the names of its arguments."""
    for option in reversed(
        (
            device,
            slots,
            threads,
            job_timeout,
            engine,
            address,
            nodes,
            node_timeout,
            mixed_devices,
            sync_data,
        )
    ):
        command = option(command)
    return command


def with_compile(changes: tuple[str, ...], compiled: bool) -> tuple[str, ...]:
    """The `--set` changes, with the one for which `--compile` is short."""
    return (*changes, "training.compile=true") if compiled else changes

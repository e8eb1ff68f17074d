"""`prime-bench predict`: the predictions of finished jobs, from their weights."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from prime_bench.cli import codes, options

if TYPE_CHECKING:
    from prime_bench.store.record import RunRecord
    from prime_bench.store.runs import Runs


@click.command()
@click.argument("what", metavar="JOB|RECIPE")
@options.only
@options.changes
@options.one_device
@options.data_dir
@options.runs_dir
@click.pass_context
def predict(
    ctx: click.Context,
    what: str,
    only: tuple[str, ...],
    changes: tuple[str, ...],
    device: str,
    data_dir: Path,
    runs_dir: Path,
) -> None:
    """Write predictions.npz into the folders of finished jobs, from the weights that they kept.

    JOB is the id of a job, or its first digits, four at least; RECIPE stands for all its jobs that
    have a record. The file has `valid` and `test`, the probabilities (float32) in the order of the
    table's rows, and `valid_labels` and `test_labels`. It is what `run --keep-predictions` leaves.

    Nothing is written where the predictions do not give the recorded metrics; exit code 1 then.
    """
    from prime_bench.recipe.job import check_device
    from prime_bench.store.runs import Runs

    check_device(device)
    runs = Runs(runs_dir)
    records = _records(what, only=only, changes=changes, data_dir=data_dir, runs=runs)
    failed = 0
    for number, record in enumerate(records, start=1):
        job = record.job
        name = f"{record.dataset} {job.backbone} {record.arm} seed {job.seed}"
        with _bar(f"{number} of {len(records)}: {name}") as say:
            failed += not _predict_one(record, runs, data_dir=data_dir, device=device, say=say)
    ctx.exit(codes.FAILED if failed else 0)


def _records(
    what: str,
    *,
    only: tuple[str, ...],
    changes: tuple[str, ...],
    data_dir: Path,
    runs: "Runs",
) -> "list[RunRecord]":
    """The records of training runs that are meant. Raises DataError where there is none."""
    from prime_bench.base.errors import DataError
    from prime_bench.cli.jobs import ids_meant
    from prime_bench.store.record import RunRecord

    ids = ids_meant(what, runs, only=only, changes=changes, data_dir=data_dir)
    found = [runs.find(job_id) for job_id in ids]
    records = [record for record in found if isinstance(record, RunRecord)]
    if not records:
        raise DataError(
            f"{what}: no training run has a record in {runs.folder}",
            hint="train it first, with `prime-bench run`",
        )
    return records


def _predict_one(
    record: "RunRecord",
    runs: "Runs",
    *,
    data_dir: Path,
    device: str,
    say: Callable[[int, int], None],
) -> bool:
    """Whether the file is written."""
    from prime_bench.cli.tables import table_of
    from prime_bench.data.table import PreparedTable
    from prime_bench.training.checkpoint import PREDICTIONS
    from prime_bench.training.device import resolve_device
    from prime_bench.training.evaluation import SPLITS, save_predictions
    from prime_bench.training.recompute import recompute

    table = PreparedTable.open(table_of(record.job.fingerprint, data_dir=data_dir))
    labels = {name: table.split(name).labels for name in SPLITS}
    total = sum(len(part) for part in labels.values())
    folder = runs.path(record.job_id)
    found = recompute(
        record, folder, table, device=resolve_device(device), on_rows=lambda n: say(n, total)
    )
    if found.differences:
        lines = "\n".join(f"  {line}" for line in [*found.differences, *found.conditions])
        click.echo(
            f"{folder}: not written, the predictions are not the record's\n{lines}", err=True
        )
        return False
    save_predictions(folder / PREDICTIONS, found.probabilities, labels)
    click.echo(f"{folder / PREDICTIONS}: test AUC {record.result.test.auc}, as recorded")
    return True


@contextmanager
def _bar(title: str) -> Iterator[Callable[[int, int], None]]:
    """A bar of rows on stderr, where that is a terminal; it is told of more rows and of all."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, disable=not console.is_terminal) as bars:
        task = bars.add_task(title, total=None)
        yield lambda n, total: bars.update(task, advance=n, total=total)

"""`prime-bench predict`: the predictions of finished jobs, from their weights."""

from pathlib import Path
from typing import TYPE_CHECKING, Self

import click

from prime_bench.base.characters import visible
from prime_bench.base.errors import EXIT_FAILED
from prime_bench.cli import complete, options

if TYPE_CHECKING:
    from rich.progress import TaskID

    from prime_bench.api import Prediction, PredictionProgress


@click.command()
@click.argument("what", metavar="JOB|RECIPE", shell_complete=complete.jobs_and_recipes)
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
    """Write the predictions of finished jobs from their weights.

    JOB is the id of a job, or its first digits, four at least; RECIPE stands for all its jobs that
    have a record. Each job's folder gets predictions.npz, which has `valid` and `test`, the
    probabilities (float32) in the order of the table's rows, and `valid_labels` and `test_labels`.
    It is what `run --keep-predictions` leaves.

    Nothing is written where the predictions do not give the recorded metrics; exit code 1 then.
    """
    from prime_bench import api

    with _Bars() as bars:
        made = api.predict(
            what,
            only=only,
            changes=changes,
            device=device,
            data_dir=data_dir,
            runs_dir=runs_dir,
            on_progress=bars.move,
            on_prediction=_print,
        )
    ctx.exit(0 if all(prediction.written for prediction in made) else EXIT_FAILED)


def _print(prediction: "Prediction") -> None:
    """Print the file that was written, or why it was not."""
    from prime_bench.cli.output import print_line

    if prediction.written:
        auc = prediction.record.result.test.auc
        print_line(f"{prediction.path}: test AUC {auc}, as recorded")
        return
    folder = prediction.path.parent
    print_line(f"{folder}: not written, the predictions are not the record's", err=True)
    for line in (*prediction.differences, *prediction.conditions):
        print_line(f"  {line}", err=True)


class _Bars:
    """A bar of rows for each job on stderr, where that is a terminal."""

    def __init__(self) -> None:
        from rich.progress import Progress, TextColumn

        from prime_bench.cli.output import console

        screen = console(stderr=True)
        self._bars = Progress(
            TextColumn("{task.description}", markup=False),
            *Progress.get_default_columns()[1:],
            console=screen,
            disable=not screen.is_terminal,
        )
        self._tasks: dict[int, TaskID] = {}

    def move(self, progress: "PredictionProgress") -> None:
        """Move the job's bar."""
        record = progress.record
        if progress.number not in self._tasks:
            name = f"{record.dataset} {record.job.backbone} {record.arm} seed {record.job.seed}"
            title = f"{progress.number} of {progress.n_jobs}: {name}"
            self._tasks[progress.number] = self._bars.add_task(
                visible(title), total=progress.n_rows
            )
        self._bars.update(self._tasks[progress.number], completed=progress.rows)

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._bars.stop()

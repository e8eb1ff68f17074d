"""`prime-bench predict`: the predictions of finished jobs, from their weights."""

import sys
from pathlib import Path
from typing import IO, TYPE_CHECKING, Self

import click

from prime_bench.base.characters import visible
from prime_bench.base.errors import EXIT_FAILED, UsageError
from prime_bench.base.words import job_name
from prime_bench.cli import complete, options

if TYPE_CHECKING:
    import numpy as np
    from rich.progress import TaskID

    from prime_bench.api import Prediction, PredictionProgress, RowPredictions


@click.command()
@click.argument("what", metavar="JOB|RECIPE", shell_complete=complete.jobs_and_recipes)
@click.option(
    "--from",
    "sources",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="Predict the rows of this file, folder, archive or pattern instead; may be repeated.",
)
@click.option(
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="With --from: the file to write.  [default: stdout]",
)
@options.only
@options.changes
@options.one_device
@options.data_dir
@options.runs_dir
@click.pass_context
def predict(
    ctx: click.Context,
    what: str,
    sources: tuple[Path, ...],
    output: Path | None,
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

    With --from, JOB predicts the rows of other raw files of its data set, in any form that
    `prepare` reads for a log. They need no label. The result is a csv of `row`, from 1 in the order
    of the files, and `probability`. Values that are not in the vocabulary of the job's table are
    predicted as such, and counted on stderr.
    """
    from prime_bench import api

    if sources:
        if only or changes:
            raise UsageError("--from: takes a job, and neither --only nor --set")
        _predict_rows(what, sources, output, device=device, data_dir=data_dir, runs_dir=runs_dir)
        return
    if output is not None:
        raise UsageError("--output: is for the rows of --from; each job's folder gets its own file")
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


def _predict_rows(
    job: str,
    sources: tuple[Path, ...],
    output: Path | None,
    *,
    device: str,
    data_dir: Path,
    runs_dir: Path,
) -> None:
    """Write the csv of the rows in the files, in pieces."""
    import contextlib

    from prime_bench import api
    from prime_bench.base.files import whole_file
    from prime_bench.cli.output import print_line
    from prime_bench.cli.prepare_output import progress_bars

    with contextlib.ExitStack() as stack:
        move = stack.enter_context(progress_bars())
        opened = whole_file(output) if output else contextlib.nullcontext(sys.stdout.buffer)
        table = _Table(stack.enter_context(opened))
        made = api.predict_rows(
            job,
            sources,
            device=device,
            data_dir=data_dir,
            runs_dir=runs_dir,
            on_block=table.add,
            on_progress=lambda now: move("predicting", now),
            log=lambda text: print_line(text, err=True),
        )
    if output is not None:
        print_line(f"{output}: {made.rows:,} rows")
    for line in _notes(made):
        print_line(line, err=True)


def _notes(made: "RowPredictions") -> list[str]:
    """How many values of each field the vocabulary lacks, and what is not as it was."""
    counts = sorted(made.unknown.items(), key=lambda item: -item[1])
    lines = [
        f"`{name}`: {n:,} of {made.rows:,} values are not in the vocabulary ({n / made.rows:.1%})"
        for name, n in counts
        if n
    ]
    return [*lines, *(f"not as in the run: {text}" for text in made.conditions)]


class _Table:
    """A csv of row numbers and probabilities, written as they come."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self._rows = file, 0

    def add(self, probabilities: "np.ndarray") -> None:
        """Write the next rows; (n,) float32, in digits from which the same bits are read."""
        import polars as pl

        frame = pl.DataFrame({"probability": probabilities}).with_row_index("row", self._rows + 1)
        self._file.write(frame.write_csv(include_header=not self._rows).encode())
        self._rows += len(probabilities)


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
            name = job_name(record.dataset, record.job.backbone, record.arm, record.job.seed)
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

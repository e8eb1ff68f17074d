"""Write a synthetic log as raw files in the published formats, to test reading at full size."""

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl

from prime_bench.base.errors import UsageError, did_you_mean
from prime_bench.data.manifest import SPLIT_NAMES, BestPossible
from prime_bench.data.publish import replacing, sole_writer
from prime_bench.data.stages import OnProgress, StageProgress, no_log, no_progress
from prime_bench.data.synthetic.rows import BLOCK_ROWS, BestCounter, SyntheticBlock, SyntheticLog
from prime_bench.settings.data import SyntheticSettings

_FIRST_DAY = np.datetime64("2014-10-21")  # the first day of Kaggle's log
# Odd, so that row number * step modulo 2^64 gives ids that look random and never repeat.
_ID_STEP = np.uint64(0x9E3779B97F4A7C15)


def write_raw(
    settings: SyntheticSettings,
    folder: Path,
    *,
    raw_format: str,
    on_progress: OnProgress = no_progress,
    log: Callable[[str], None] = no_log,
) -> dict[str, BestPossible]:
    """Write the csv files of the log into the new or empty `folder`, or none after an error.

    `raw_format` is `avazu-raw` (Kaggle's train.csv with 24 columns and the rows of all splits),
    `avazu` or `criteo` (train.csv, valid.csv and test.csv of Avazu_x1 or Criteo_x4). Memory does
    not grow with the number of rows.

    Returns split -> metrics of the true probabilities. Raises UsageError for an unknown format, a
    format of another shape, or a folder that is not empty; EnvironmentFault if the files cannot be
    written.
    """
    _check(settings, folder, raw_format)
    clicks = SyntheticLog(settings)
    best = BestCounter()
    _, table_of, names = _FORMATS[raw_format]
    with (
        sole_writer(folder, log=log),
        replacing(folder) as hidden,
        contextlib.ExitStack() as files,
    ):
        outputs = [files.enter_context((hidden / f"{name}.csv").open("wb")) for name in names]
        for number, block in enumerate(clicks.blocks()):
            table = table_of(clicks, block, number)
            for index, output in enumerate(outputs):
                part = table.filter(pl.Series(block.split == index)) if len(names) > 1 else table
                # No value has a comma or a quote, and a missing value must not become `""`.
                part.write_csv(output, include_header=number == 0, quote_style="never")
            best.add(block.probabilities, block.split)
            done = number * BLOCK_ROWS + len(block.labels)
            on_progress(StageProgress(stage="making", done=done, total=settings.rows, rows=done))
        for output in outputs:
            output.flush()
            os.fsync(output.fileno())
    return best.result()


def _kaggle_avazu(log: SyntheticLog, block: SyntheticBlock, number: int) -> pl.DataFrame:
    """The columns id, click, hour as YYMMDDHH, and the other fields in order; a block is a day."""
    row = np.arange(len(block.labels), dtype=np.uint64) + np.uint64(number * BLOCK_ROWS)
    day = str(_FIRST_DAY + number).replace("-", "")[2:]
    return log.texts(block.codes).select(
        pl.Series("id", row * _ID_STEP),
        pl.Series("click", block.labels),
        (day + pl.col("hour")).alias("hour"),
        pl.exclude("hour"),
    )


def _avazu_x1(log: SyntheticLog, block: SyntheticBlock, _number: int) -> pl.DataFrame:
    """The columns label and feat_1 to feat_22, with an integer for each (field, value)."""
    starts = np.cumsum([0] + [field.size for field in log.shape.categorical])
    features = {
        f"feat_{position + 1}": codes.astype(np.int64) + starts[position]
        for position, codes in enumerate(block.codes)
    }
    return pl.DataFrame({"label": block.labels} | features)


def _criteo_x4(log: SyntheticLog, block: SyntheticBlock, _number: int) -> pl.DataFrame:
    """The columns Label, I1 to I13 as integers and C1 to C26; missing values are empty."""
    numerics = [
        pl.Series(field.name, values, nan_to_null=True).cast(pl.Int64)
        for field, values in zip(log.shape.numeric, block.numerics.T, strict=True)
    ]
    return pl.DataFrame(
        [pl.Series("Label", block.labels), *numerics, *log.texts(block.codes).get_columns()]
    )


RawTable = Callable[[SyntheticLog, SyntheticBlock, int], pl.DataFrame]
_FORMATS: dict[str, tuple[str, RawTable, tuple[str, ...]]] = {
    "avazu-raw": ("avazu", _kaggle_avazu, ("train",)),
    "avazu": ("avazu", _avazu_x1, SPLIT_NAMES),
    "criteo": ("criteo", _criteo_x4, SPLIT_NAMES),
}
RAW_FORMATS = tuple(_FORMATS)
"""The formats, named as the cards that read them."""


def _check(settings: SyntheticSettings, folder: Path, raw_format: str) -> None:
    if raw_format not in _FORMATS:
        raise UsageError(
            f"no raw format `{raw_format}`{did_you_mean(raw_format, RAW_FORMATS)}",
            hint=f"formats: {', '.join(RAW_FORMATS)}",
        )
    shape = _FORMATS[raw_format][0]
    if settings.shape != shape:
        raise UsageError(
            f"raw format `{raw_format}` needs shape `{shape}`, got `{settings.shape}`",
            hint=f"add --shape {shape}",
        )
    if folder.is_file() or (folder.is_dir() and any(folder.iterdir())):
        raise UsageError(f"{folder}: is in use", hint="name a new or an empty folder")

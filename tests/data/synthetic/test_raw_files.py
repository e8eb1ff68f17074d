"""The synthetic log in the published formats: the same rows, whole or absent."""

import csv
from pathlib import Path

import numpy as np
import pytest

from prime_bench.base.errors import EnvironmentFault, UsageError
from prime_bench.data.manifest import SPLIT_NAMES
from prime_bench.data.synthetic.raw_files import RAW_FORMATS, write_raw
from prime_bench.data.synthetic.rows import BLOCK_ROWS, BestCounter, chunks
from prime_bench.settings.data import SyntheticSettings

ROWS = BLOCK_ROWS + 2000


def settings_of(shape: str) -> SyntheticSettings:
    return SyntheticSettings(shape=shape, rows=ROWS, seed=7)


def lines_of(path: Path) -> tuple[list[str], list[list[str]]]:
    with path.open(newline="", encoding="utf-8") as file:
        header, *rows = csv.reader(file)
    return header, rows


def expected_rows(settings: SyntheticSettings) -> tuple[list[list[str]], np.ndarray]:
    """Label, numerics and categories of each row as texts, and the splits."""
    rows, splits = [], []
    for chunk in chunks(settings):
        for label, numbers, texts in zip(
            chunk.labels.tolist(), chunk.numerics.tolist(), chunk.categories.rows(), strict=True
        ):
            written = ["" if number != number else str(int(number)) for number in numbers]
            rows.append([str(label), *written, *texts])
        splits.append(chunk.split)
    return rows, np.concatenate(splits)


def test_avazu_raw_is_the_same_rows(tmp_path):
    settings = settings_of("avazu")
    progress: list[int] = []
    write_raw(
        settings,
        tmp_path / "raw",
        raw_format="avazu-raw",
        on_progress=lambda now: progress.append(now.done),
    )
    assert [path.name for path in tmp_path.rglob("*.csv")] == ["train.csv"]
    header, rows = lines_of(tmp_path / "raw" / "train.csv")
    names = [name for name in next(iter(chunks(settings))).categories.columns if name != "hour"]
    assert header == ["id", "click", "hour", *names]
    expected, _ = expected_rows(settings)
    # Ours has the hour of day last; the file has a date and hour in place 2.
    assert [[row[1], *row[3:], row[2][6:]] for row in rows] == expected
    assert len({row[0] for row in rows}) == ROWS
    times = [row[2] for row in rows]
    assert times == sorted(times)
    assert (times[0], times[-1][:6]) == ("14102100", "141022")
    assert progress == [BLOCK_ROWS, ROWS]


def test_avazu_is_the_same_rows_under_integer_names(tmp_path):
    settings = settings_of("avazu")
    write_raw(settings, tmp_path / "raw", raw_format="avazu")
    expected, splits = expected_rows(settings)
    integer_of: dict[tuple[int, str], str] = {}
    for index, split in enumerate(SPLIT_NAMES):
        header, rows = lines_of(tmp_path / "raw" / f"{split}.csv")
        assert header == ["label", *(f"feat_{number}" for number in range(1, 23))]
        here = [expected[row] for row in np.flatnonzero(splits == index)]
        assert len(rows) == len(here)
        for written, original in zip(rows, here, strict=True):
            assert written[0] == original[0]
            for field in range(1, 23):
                name = integer_of.setdefault((field, original[field]), written[field])
                assert written[field] == name
    # One integer a value, over all fields, as in Avazu_x1.
    assert len(set(integer_of.values())) == len(integer_of)
    assert all(str(int(name)) == name for name in integer_of.values())


def test_criteo_is_the_same_rows(tmp_path):
    settings = settings_of("criteo")
    write_raw(settings, tmp_path / "raw", raw_format="criteo")
    expected, splits = expected_rows(settings)
    for index, split in enumerate(SPLIT_NAMES):
        header, rows = lines_of(tmp_path / "raw" / f"{split}.csv")
        numeric = [f"I{number}" for number in range(1, 14)]
        assert header == ["Label", *numeric, *(f"C{number}" for number in range(1, 27))]
        assert rows == [expected[row] for row in np.flatnonzero(splits == index)]
    assert b'"' not in (tmp_path / "raw" / "test.csv").read_bytes()


@pytest.mark.parametrize("raw_format", RAW_FORMATS)
def test_files_are_the_same_bytes_and_the_best_is_the_tables(tmp_path, raw_format):
    settings = settings_of(raw_format.split("-")[0])
    best = [write_raw(settings, tmp_path / name, raw_format=raw_format) for name in ("a", "b")]
    files = sorted(path.name for path in (tmp_path / "a").iterdir())
    assert files
    for name in files:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    counter = BestCounter()
    assert sum(len(chunk.labels) for chunk in chunks(settings, best=counter)) == ROWS
    assert best == [counter.result()] * 2


def test_a_fault_leaves_nothing(tmp_path):
    def stop(_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_raw(
            settings_of("avazu"), tmp_path / "new" / "raw", raw_format="avazu", on_progress=stop
        )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("shape", "raw_format", "message"),
    [
        ("avazu", "avazu-rwa", "no raw format `avazu-rwa`; did you mean `avazu-raw`?"),
        ("avazu", "criteo", "raw format `criteo` needs shape `criteo`, got `avazu`"),
        ("criteo", "avazu-raw", "raw format `avazu-raw` needs shape `avazu`, got `criteo`"),
    ],
)
def test_format_that_cannot_be_written(tmp_path, shape, raw_format, message):
    with pytest.raises(UsageError, match=message.replace("?", r"\?")):
        write_raw(settings_of(shape), tmp_path / "raw", raw_format=raw_format)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_in_use_stays_as_it_is(tmp_path):
    kept = tmp_path / "notes.txt"
    kept.write_text("mine")
    for folder in (tmp_path, kept):
        with pytest.raises(UsageError, match="is in use"):
            write_raw(settings_of("avazu"), folder, raw_format="avazu")
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
    assert kept.read_text() == "mine"


def test_an_empty_folder_is_taken(tmp_path):
    folder = tmp_path / "raw"
    folder.mkdir()
    write_raw(settings_of("avazu"), folder, raw_format="avazu-raw")
    assert [path.name for path in tmp_path.rglob("*")] == ["raw", "train.csv"]


def test_a_path_through_a_file_is_the_environments_fault(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(EnvironmentFault):
        write_raw(settings_of("avazu"), tmp_path / "file" / "raw", raw_format="avazu")

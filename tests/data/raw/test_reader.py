"""Blocks in which a column is short text, whole numbers or neither: the rows are the same."""

import tracemalloc

import numpy as np
import pytest

from prime_bench.base.errors import DataError
from prime_bench.data.encode.encoder import encode
from prime_bench.data.manifest import resolve
from prime_bench.data.prepare import prepare
from prime_bench.data.raw.find import find_sources
from prime_bench.data.raw.reader import Reader

HEADER = ["Label", *(f"I{i}" for i in range(1, 14)), *(f"C{i}" for i in range(1, 27))]
# Whole numbers as people and tools write them, and what is left to the parser of numbers.
NUMBERS = ["", "0", "-1", "12", "99999999", "-9999999", "007", "-0"]
OTHERS = ["1.5", "1e3", "123456789", "-12345678", "0.0"]


@pytest.fixture
def log(tmp_path, csv):
    """Criteo's format, 300, 60 and 60 rows; other numbers and long texts in the middle only."""
    random = np.random.default_rng(6)
    for split, n_rows in (("train", 300), ("valid", 60), ("test", 60)):
        lines = [",".join(HEADER)]
        for row in range(n_rows):
            middle = 100 <= row < 200
            numbers = random.choice(NUMBERS + OTHERS * middle, 13).tolist()
            words = [f"{random.integers(0, 4):08x}" for _ in range(26)]
            words[0] = "longer than eight" if middle and row % 3 else "short"
            words[1] = "" if row % 2 else "é" * (5 if middle else 4)
            words[25] = "longer than eight" if split == "test" else f"{row % 3}"
            lines.append(",".join([f"{row % 2}{'.0' * (row % 3 == 0)}", *numbers, *words]))
        csv(tmp_path / "log" / f"{split}.csv", lines)
    return tmp_path / "log"


@pytest.fixture
def read(log):
    """Reads the log in blocks of `block_bytes`."""
    spec = resolve("criteo", {"min_count": 2})
    return lambda block_bytes: Reader(
        spec.card, spec.settings, find_sources(spec.card, log), block_bytes=block_bytes
    )


def test_blocks_do_not_matter(tmp_path, read, log):
    found = []
    for block_bytes in (1 << 21, 5_000, 700):
        folder = tmp_path / str(block_bytes)
        folder.mkdir()
        settings = resolve("criteo", {"min_count": 2}).settings
        fields = resolve("criteo", {}).card.fields
        found.append(
            encode(read(block_bytes).chunks(), fields=fields, settings=settings, folder=folder)
        )
    assert found[0] == found[1] == found[2]
    words = (tmp_path / "700" / "vocabulary" / "C1.txt").read_text().split()
    assert words == ["short", "longer", "than", "eight"]
    missing = [line.split(",")[15] for line in (log / "train.csv").read_text().split("\n")[1:-1]]
    assert found[0].missing["C2"].train == missing.count("")


@pytest.mark.parametrize("block_bytes", [1 << 21, 700])
def test_numbers_and_labels_are_pythons(read, log, block_bytes):
    chunks = list(read(block_bytes).chunks())
    numbers = np.concatenate([chunk.numerics for chunk in chunks])
    labels = np.concatenate([chunk.labels for chunk in chunks])
    rows = [
        line.split(",")
        for split in ("train", "valid", "test")
        for line in (log / f"{split}.csv").read_text().split("\n")[1:-1]
    ]
    expected = [[float(text) if text else np.nan for text in row[1:14]] for row in rows]
    np.testing.assert_array_equal(numbers, expected)
    assert labels.tolist() == [int(float(row[0])) for row in rows]


@pytest.mark.parametrize("block_bytes", [1 << 21, 700])
@pytest.mark.parametrize("label", ["2", "", "10", "1.00", "0.0000000", "00000000"])
def test_a_wrong_label_is_named_with_its_line(read, log, label, block_bytes):
    lines = (log / "train.csv").read_text().split("\n")
    lines[150] = label + lines[150][lines[150].index(",") :]
    (log / "train.csv").write_text("\n".join(lines))
    with pytest.raises(DataError, match=rf"line 151: `Label`: expected 0 or 1, found `{label}`"):
        list(read(block_bytes).chunks())


def test_memory_does_not_grow_with_the_rows(avazu_folder, tmp_path, monkeypatch):
    monkeypatch.setitem(Reader.__init__.__kwdefaults__, "block_bytes", 1 << 16)
    peaks = []
    for copies in (100, 1_000):
        folder = tmp_path / str(copies)
        folder.mkdir()
        for path in avazu_folder.iterdir():
            header, _, rows = path.read_bytes().partition(b"\n")
            (folder / path.name).write_bytes(header + b"\n" + rows * copies)
        tracemalloc.start()  # NumPy's arrays as well
        prepare(
            resolve("avazu", {}), data_dir=folder / "data", source=folder, allow_unverified=True
        )
        peaks.append(tracemalloc.get_traced_memory()[1] / 1e6)
        tracemalloc.stop()
    # 360,000 more rows have 22 MB of text and 33 MB of ids.
    assert peaks[1] < peaks[0] + 5, peaks

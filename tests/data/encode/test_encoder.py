"""The encoder against an oracle in plain Python, and what must not matter."""

import dataclasses
import math
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prime_bench.base.errors import DataError
from prime_bench.data.card import CardColumn
from prime_bench.data.encode.encoder import encode
from prime_bench.data.raw.packed import pack_text
from prime_bench.data.schema import Schema
from prime_bench.settings.data import DataSettings, LogSettings

SPLITS = ("train", "valid", "test")
# Values that other tools change: numbers, nulls, blanks, reserved names, separators, other scripts.
TRAPS = [
    *("0012", "12", "12.0", "1e5", "100000", "0x1f", "007", "nan", "NULL", "null", "None", "inf"),
    *(
        "__OOV__",
        "__PAD__",
        " ",
        " a",
        "a ",
        "a,b",
        '"q"',
        "é",
        "e\u0301",
        "ß",
        "日本",
        "\u2028",
        "A",
        "a",
    ),
]
field_text = st.one_of(st.sampled_from(["", *TRAPS]), st.text("ab01", max_size=2))


def text_fields(*names):
    return [CardColumn(name=name, role="categorical") for name in names]


def read_back(folder):
    """Everything in the folder, as Python values."""
    schema = Schema.model_validate_json((folder / "schema.json").read_text())
    arrays = {
        split: {
            kind: np.load(folder / f"{split}.{kind}.npy") for kind in ("ids", "numerics", "labels")
        }
        for split in SPLITS
    }
    vocabularies = {
        field.name: (folder / "vocabulary" / f"{field.name}.txt").read_text().split("\n")[:-1]
        for field in schema.categorical
    }
    return schema, arrays, vocabularies


def expected_vocabulary(values, *, min_count):
    counts = Counter(value for value in values if value != "")
    kept = [value for value, count in counts.items() if count >= min_count]
    return sorted(kept, key=lambda value: (-counts[value], value.encode()))


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(st.tuples(field_text, field_text, st.integers(0, 2)), min_size=3, max_size=60),
    scope=st.sampled_from(["all", "train"]),
    min_count=st.integers(1, 3),
    size=st.integers(1, 70),
)
def test_ids_are_the_oracles(chunks_of_rows, rows, scope, min_count, size):
    rows = [*rows, ("", "x", 0), ("y", "", 1), ("y", "0012", 2)]
    with TemporaryDirectory() as name:
        folder = Path(name)
        encoded = encode(
            chunks_of_rows(rows, size=size),
            fields=text_fields("first", "second"),
            settings=DataSettings(vocabulary=scope, min_count=min_count),
            folder=folder,
        )
        schema, arrays, vocabularies = read_back(folder)
    for column, field in enumerate(("first", "second")):
        counted = [row[column] for row in rows if scope == "all" or row[2] == 0]
        expected = expected_vocabulary(counted, min_count=min_count)
        assert vocabularies[field] == expected
        size_ = schema.fields[column].vocabulary_size
        assert size_ == len(expected) + 2
        id_of = {value: i + 1 for i, value in enumerate(expected)}
        # A bijection: no two values share an id, and none has PAD or out-of-vocabulary.
        assert sorted(id_of.values()) == list(range(1, size_ - 1))
        for index, split in enumerate(SPLITS):
            found = arrays[split]["ids"][:, column]
            values = [row[column] for row in rows if row[2] == index]
            assert found.tolist() == [id_of.get(value, size_ - 1) for value in values]
            known = [value for value in values if value in id_of]
            assert [expected[i - 1] for i in found if i < size_ - 1] == known
        missing = [sum(row[column] == "" for row in rows if row[2] == i) for i in range(3)]
        assert list(encoded.missing[field].plain().values()) == missing
        in_train = Counter(row[column] for row in rows if row[2] == 0 and row[column])
        assert encoded.train_values[field] == len(in_train)
    for index, split in enumerate(SPLITS):
        labels = [i % 2 for i, row in enumerate(rows) if row[2] == index]
        assert arrays[split]["labels"].tolist() == labels
        assert getattr(encoded.rows, split) == len(labels)
        assert getattr(encoded.positives, split) == sum(labels)


@pytest.fixture(scope="module")
def chunks_of_rows():
    """Rows (first, second, split) to chunks of `size`, for hypothesis: scoped wider than a test."""
    from prime_bench.data.stages import Chunk

    def make(rows, *, size):
        for start in range(0, len(rows), size):
            part = rows[start : start + size]
            yield Chunk(
                categories=pl.DataFrame(
                    {"first": [row[0] for row in part], "second": [row[1] for row in part]},
                    schema={"first": pl.String, "second": pl.String},
                ),
                numerics=np.empty((len(part), 0)),
                labels=np.array([i % 2 for i in range(start, start + len(part))], np.uint8),
                split=np.array([row[2] for row in part], np.uint8),
            )

    return make


def test_text_is_text(tmp_path, chunks_of):
    """Each trap keeps its spelling and an id of its own."""
    split = [0] * len(TRAPS) + [1, 2]
    encode(
        chunks_of({"a": [*TRAPS, "", ""]}, split=split),
        fields=text_fields("a"),
        settings=DataSettings(),
        folder=tmp_path,
    )
    _, arrays, vocabularies = read_back(tmp_path)
    assert vocabularies["a"] == sorted(TRAPS, key=str.encode)
    assert len(set(arrays["train"]["ids"][:, 0].tolist())) == len(TRAPS)
    assert arrays["valid"]["ids"][0, 0] == len(TRAPS) + 1


@pytest.mark.parametrize(
    "values", [["", "", "", ""], ["a", "b", "c", "d"]], ids=["missing", "rare"]
)
def test_a_column_without_kept_values_has_pad_and_oov_only(tmp_path, chunks_of, values):
    encode(
        chunks_of({"a": values}, split=[0, 0, 1, 2]),
        fields=text_fields("a"),
        settings=DataSettings(min_count=2),
        folder=tmp_path,
    )
    schema, arrays, vocabularies = read_back(tmp_path)
    assert schema.fields[0].vocabulary_size == 2
    assert vocabularies["a"] == []
    assert all((arrays[split]["ids"] == 1).all() for split in SPLITS)


CATEGORIES = [pl.Categories.random() for _ in range(2)]
TYPES = {
    "one Categories": lambda _: pl.Categorical(CATEGORIES[0]),
    "text": lambda _: pl.String(),
    "global Categories": lambda _: pl.Categorical(),
    "changing Categories": lambda i: pl.Categorical(CATEGORIES[i % 2]),
    "mixed": lambda i: pl.Categorical(CATEGORIES[0]) if i % 2 else pl.String(),
    "packed": lambda _: None,
    "packed, then text": lambda i: None if i < 4 else pl.Categorical(CATEGORIES[1]),
    "text, then packed": lambda i: pl.String() if i < 4 else None,
    "packed, text, packed": lambda i: pl.String() if i in (3, 4) else None,
}


def typed(chunk, dtype):
    """The chunk with its texts as `dtype`; packed if there is none."""
    if dtype is not None:
        return dataclasses.replace(chunk, categories=chunk.categories.cast(dtype))
    packed = {
        column.name: np.array([pack_text(text) for text in column], dtype=np.uint64)
        for column in chunk.categories
    }
    return dataclasses.replace(chunk, categories=pl.DataFrame(), packed=packed)


@pytest.mark.parametrize("kind", TYPES)
def test_the_type_of_a_column_does_not_matter(tmp_path, chunks_of, tree, kind):
    found = []
    for name, type_of in (("plain", TYPES["text"]), ("typed", TYPES[kind])):
        folder = tmp_path / name
        folder.mkdir()
        values = [f"v{i * i % 17}é" if i % 5 else "" for i in range(60)]
        chunks = chunks_of({"a": values, "b": values[::-1]}, split=[0, 1, 2] * 20, size=7)
        encoded = encode(
            (typed(chunk, type_of(i)) for i, chunk in enumerate(chunks)),
            fields=text_fields("a", "b"),
            settings=DataSettings(min_count=3),
            folder=folder,
            train_values_min_count=2,
        )
        assert encoded.outputs == tree(folder)
        assert encoded.missing["a"].plain() == {"train": 4, "valid": 4, "test": 4}
        found.append((encoded.outputs, encoded.train_values, encoded.missing))
    assert found[0] == found[1]


@pytest.mark.parametrize("rule", ["raw", "log_bucket", "log1p", "minmax"])
@pytest.mark.parametrize("scope", ["all", "train"])
def test_blocks_do_not_matter(tmp_path, chunks_of, rule, scope):
    random = np.random.default_rng(1)
    numerics = np.where(random.random((500, 2)) < 0.2, np.nan, random.lognormal(2, 2, (500, 2)))
    values = [f"v{i}" for i in random.zipf(1.5, 500) % 40]
    found = []
    for size in (500, 1, 37):
        folder = tmp_path / str(size)
        folder.mkdir()
        encoded = encode(
            chunks_of({"a": values}, numerics=numerics, split=[0, 2, 1, 0, 0] * 100, size=size),
            fields=[
                CardColumn(name="n", role="numeric"),
                *text_fields("a"),
                CardColumn(name="m", role="numeric"),
            ],
            settings=DataSettings(numeric=rule, vocabulary=scope, min_count=2),
            folder=folder,
        )
        found.append(encoded.outputs)
    assert found[0] == found[1] == found[2]


def test_order_of_fields_is_kept_with_numerics_between(tmp_path, chunks_of):
    fields = [
        CardColumn(name="n", role="numeric"),
        *text_fields("a"),
        CardColumn(name="m", role="numeric"),
        CardColumn(name="h", role="hour", semantic="hour"),
    ]
    encode(
        chunks_of(
            {"a": ["x", "y", "y"], "h": ["00", "01", "02"]},
            numerics=[[1.0, -4.0], [2.0, math.nan], [3.0, 6.0]],
            split=[0, 1, 2],
        ),
        fields=fields,
        settings=DataSettings(numeric="raw"),
        folder=tmp_path,
    )
    schema, arrays, _ = read_back(tmp_path)
    assert [(f.name, f.kind) for f in schema.fields] == [
        ("n", "numeric"),
        ("a", "categorical"),
        ("m", "numeric"),
        ("h", "categorical"),
    ]
    assert schema.fields[3].semantic == "hour"
    assert arrays["train"]["ids"].tolist() == [[2, 1]]
    assert arrays["valid"]["numerics"].tolist() == [[2.0, 0.0]]
    assert arrays["test"]["numerics"].tolist() == [[3.0, 6.0]]


def test_minmax_is_fitted_to_training_rows(tmp_path, chunks_of):
    encode(
        chunks_of({}, numerics=[[1.0], [5.0], [9.0], [-7.0]], split=[0, 0, 1, 2], size=3),
        fields=[CardColumn(name="n", role="numeric")],
        settings=DataSettings(numeric="minmax"),
        folder=tmp_path,
    )
    _, arrays, _ = read_back(tmp_path)
    assert [arrays[split]["numerics"].tolist() for split in SPLITS] == [
        [[0.0], [1.0]],
        [[1.0]],
        [[0.0]],
    ]


@pytest.mark.parametrize("zero_is_missing", [True, False])
def test_buckets_get_ids_in_order_of_value(tmp_path, chunks_of, zero_is_missing):
    # Buckets 8, 8, -3, 0, missing, 1, 1 in training; 35 once in test.
    values = [20, 20, -3, 0, math.nan, 1, 3, 8, 403]
    encode(
        chunks_of({"a": ["x"] * 9}, numerics=[[v] for v in values], split=[0] * 7 + [1, 2]),
        fields=[*text_fields("a"), CardColumn(name="n", role="numeric")],
        settings=DataSettings(
            numeric="log_bucket", vocabulary="train", zero_is_missing=zero_is_missing
        ),
        folder=tmp_path,
    )
    schema, arrays, vocabularies = read_back(tmp_path)
    expected = ["-3", "1", "8"] if zero_is_missing else ["-3", "0", "1", "8"]
    assert vocabularies["n"] == expected
    oov = len(expected) + 1
    ids = {value: expected.index(value) + 1 for value in expected}
    zero = ids.get("0", oov)
    assert arrays["train"]["ids"][:, 1].tolist() == [
        *(ids["8"], ids["8"], ids["-3"], zero, oov, ids["1"], ids["1"])
    ]
    assert arrays["valid"]["ids"].tolist() == [[1, oov]]
    assert schema.fields[1].vocabulary_size == len(expected) + 2
    assert arrays["train"]["numerics"].shape == (7, 0)


def test_min_count_holds_for_buckets(tmp_path, chunks_of):
    values = [20, 20, 5, 1, 1, 1]
    encode(
        chunks_of({}, numerics=[[v] for v in values], split=[0, 0, 0, 0, 1, 2]),
        fields=[CardColumn(name="n", role="numeric")],
        settings=DataSettings(numeric="log_bucket", min_count=2),
        folder=tmp_path,
    )
    assert read_back(tmp_path)[2]["n"] == ["1", "8"]


def test_time_split(tmp_path, chunks_of):
    times = [3, 1, 2, 2, 1, 1, 1, 5, 4, 1]
    encoded = encode(
        chunks_of({"a": [str(t) for t in times]}, split=times, split_type=np.int64, size=3),
        fields=text_fields("a"),
        settings=LogSettings(split="time", split_fractions=(0.7, 0.1, 0.2), vocabulary="train"),
        folder=tmp_path,
    )
    _, arrays, vocabularies = read_back(tmp_path)
    assert vocabularies["a"] == ["1", "2"]
    # Rows stay in file order within a split; hours 1 and 2 hold 7 rows, 3 holds one.
    assert arrays["train"]["ids"][:, 0].tolist() == [1, 2, 2, 1, 1, 1, 1]
    assert (encoded.rows.valid, encoded.rows.test) == (1, 2)


@pytest.mark.parametrize("split", [[0, 0, 2], [1, 1, 1], [0, 1, 1]])
def test_a_split_without_rows_is_refused(tmp_path, chunks_of, split):
    missing = " and ".join(name for i, name in enumerate(SPLITS) if i not in split)
    with pytest.raises(DataError, match=rf"no row for {missing} \(3 rows in all\)"):
        encode(
            chunks_of({"a": ["x"] * 3}, split=split),
            fields=text_fields("a"),
            settings=DataSettings(),
            folder=tmp_path,
        )

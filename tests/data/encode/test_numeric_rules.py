"""The rules of numeric columns against their definitions, exactly and by brute force."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prime_bench.data.card import CardColumn
from prime_bench.data.encode.codes import ExactSums, NumericFields, quantile_cuts
from prime_bench.data.encode.encoder import encode
from prime_bench.data.schema import Schema
from prime_bench.settings.data import DataSettings

NAN = float("nan")
SPLITS = ("train", "valid", "test")
number = st.floats(-1e30, 1e30, width=64) | st.sampled_from([0.0, -0.0, 1.0, 0.1, 1e-300, NAN])


def block(*values):
    return np.array(values, dtype=np.float64)[:, None]


@given(st.lists(number, min_size=1, max_size=40), st.integers(1, 40))
def test_means_are_exact_in_any_blocks(values, size):
    sums = ExactSums(1)
    for start in range(0, len(values), size):
        sums.update(block(*values[start : start + size]))
    present = [Fraction(value) for value in values if not math.isnan(value)]
    expected = float(sum(present) / len(present)) if present else NAN
    np.testing.assert_equal(sums.means(), [expected])


def test_a_sum_of_many_rows_does_not_overflow():
    sums = ExactSums(1)
    for _ in range(3):
        sums.update(np.full((1 << 17, 1), math.nextafter(2.0, 0.0)))
    assert sums.means() == [math.nextafter(2.0, 0.0)]


@settings(max_examples=50)
@given(st.lists(number, min_size=2, max_size=30), st.integers(2, 8))
def test_cuts_are_the_smallest_values_that_reach_a_share(values, n_bins):
    present = [value for value in values if not math.isnan(value)]
    expected = sorted(
        {
            min(v for v in present if sum(x <= v for x in present) * n_bins >= k * len(present))
            for k in range(1, n_bins)
            if present
        }
    )
    expected = [cut for cut in expected if cut < max(present)]
    distinct, counts = np.unique(np.array(values), return_counts=True)
    assert quantile_cuts(distinct, counts, n_bins=n_bins) == expected


def test_cuts_are_numpys_where_no_value_repeats():
    values = np.sort(np.random.default_rng(1).normal(size=997))
    found = quantile_cuts(values, np.ones(997, dtype=np.uint32), n_bins=10)
    shares = np.arange(1, 10) / 10
    assert found == np.quantile(values, shares, method="inverted_cdf").tolist()


RULES = {"a": "raw", "b": "quantile", "c": "standard", "d": "log_bucket", "e": "minmax", "f": None}


@pytest.fixture(scope="module")
def rows():
    """(400, 6) values with gaps, and the split of each row."""
    random = np.random.default_rng(5)
    values = random.lognormal(1, 2, size=(400, 6)).round(3)
    values[random.random(values.shape) < 0.1] = NAN
    split = random.choice(3, size=400, p=[0.6, 0.2, 0.2])
    # What is fitted may know nothing of these.
    values[split == 2] *= 100
    return values, split


def encoded(folder, chunks_of_arrays, rows, *, rule="log1p", block_rows=400):
    values, split = rows
    columns = [
        CardColumn(name=name, role="numeric", numeric=own, bins=4 if own == "quantile" else None)
        for name, own in RULES.items()
    ]
    folder.mkdir(exist_ok=True)
    return encode(
        chunks_of_arrays(values, split, block_rows),
        fields=columns,
        settings=DataSettings(numeric=rule),
        folder=folder,
    )


@pytest.fixture
def chunks_of_arrays():
    import polars as pl

    from prime_bench.data.stages import Chunk

    def chunks(values, split, size):
        for start in range(0, len(values), size):
            part = slice(start, start + size)
            yield Chunk(
                categories=pl.DataFrame(),
                numerics=values[part],
                labels=np.arange(len(values), dtype=np.uint8)[part] % 2,
                split=split[part].astype(np.uint8),
            )

    return chunks


def test_each_column_by_its_own_rule(tmp_path, chunks_of_arrays, rows):
    made = encoded(tmp_path / "one", chunks_of_arrays, rows)
    values, split = rows
    schema = Schema.read(tmp_path / "one" / "schema.json")
    assert [field.kind[0] for field in schema.fields] == list("ncncnn")
    train = values[split == 0]
    present = [column[~np.isnan(column)] for column in train.T]

    mean = float(sum(map(Fraction, present[2])) / len(present[2]))
    squares = [Fraction((x - mean) ** 2) for x in present[2].tolist()]
    deviation = math.sqrt(float(sum(squares) / len(squares)))
    low, high = present[4].min(), present[4].max()
    cuts = np.quantile(present[1], [0.25, 0.5, 0.75], method="inverted_cdf").tolist()
    assert made.numeric["b"].cuts == cuts
    assert (made.numeric["c"].mean, made.numeric["c"].deviation) == (mean, deviation)
    assert (made.numeric["e"].low, made.numeric["e"].high) == (low, high)
    assert [fit.rule for fit in made.numeric.values()] == [
        rule or "log1p" for rule in RULES.values()
    ]

    vocabulary = (tmp_path / "one" / "vocabulary" / "b.txt").read_text().splitlines()
    assert vocabulary == [f"<= {cuts[0]}", f"<= {cuts[1]}", f"<= {cuts[2]}", f"> {cuts[2]}"]
    for index, name in enumerate(SPLITS):
        own = values[split == index]
        gaps = np.isnan(own)
        ids = np.load(tmp_path / "one" / f"{name}.ids.npy")
        numerics = np.load(tmp_path / "one" / f"{name}.numerics.npy")
        expected = [
            [5 if math.isnan(x) else 1 + sum(cut < x for cut in cuts) for x in own[:, 1].tolist()]
        ]
        assert ids[:, :1].T.tolist() == expected
        filled = np.where(gaps, 0, own)
        np.testing.assert_array_equal(numerics[:, 0], filled[:, 0].astype(np.float32))
        standard = np.where(gaps[:, 2], 0, (own[:, 2] - mean) / deviation)
        np.testing.assert_array_equal(numerics[:, 1], standard.astype(np.float32))
        scaled = np.clip((filled[:, 4] - low) / (high - low), 0, 1)
        np.testing.assert_allclose(numerics[:, 2], np.where(gaps[:, 4], 0, scaled), rtol=1e-6)
        np.testing.assert_array_equal(numerics[:, 3], np.log1p(filled[:, 5]).astype(np.float32))


def test_blocks_do_not_matter(tmp_path, chunks_of_arrays, rows):
    one = encoded(tmp_path / "one", chunks_of_arrays, rows)
    other = encoded(tmp_path / "other", chunks_of_arrays, rows, block_rows=7)
    assert one.outputs == other.outputs
    assert one.numeric == other.numeric


@pytest.mark.parametrize("rule", ["raw", "log1p"])
def test_a_rule_of_all_columns_is_that_of_each(tmp_path, chunks_of_arrays, rows, rule):
    """Whatever the other columns need between the passes, a column has the same values."""
    encoded(tmp_path / "mixed", chunks_of_arrays, rows, rule=rule)
    values, split = rows
    alone = NumericFields([rule])
    expected = alone.values(alone.spooled(values[split == 0][:, 5:]))
    found = np.load(tmp_path / "mixed" / "train.numerics.npy")[:, 3:]
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("rule", ["minmax", "standard"])
def test_a_constant_or_empty_column_is_zero(rule):
    fields = NumericFields([rule, rule])
    train = np.array([[3.0, NAN], [3.0, NAN], [NAN, NAN]])
    fields.fit(train)
    if fields.has_deviations:
        fields.fit_deviations(train)
    other = np.array([[3.0, 5.0], [8.0, NAN], [NAN, 1.0]])
    assert fields.values(np.vstack([train, other])).tolist() == [[0.0, 0.0]] * 6
    assert fields.constants(1).mean is None
    assert fields.constants(1).low is None

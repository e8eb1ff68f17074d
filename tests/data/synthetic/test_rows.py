"""The synthetic click log: the same rows for ever, and what is planted in them."""

import hashlib
import subprocess
import sys

import numpy as np
import polars as pl
import pytest

from prime_bench.base.errors import EnvironmentFault
from prime_bench.data.card import load_card
from prime_bench.data.manifest import resolve
from prime_bench.data.prepare import prepare
from prime_bench.data.stages import Chunk
from prime_bench.data.synthetic.fields import SHAPES, CategoricalField, Sampler, random_words
from prime_bench.data.synthetic.rows import BLOCK_ROWS, SyntheticLog, chunks, columns
from prime_bench.settings.data import SyntheticSettings

MANY_ROWS = 12 * BLOCK_ROWS


def settings_of(
    shape: str, rows: int, *, strength: float = 1.0, seed: int = 7
) -> SyntheticSettings:
    return SyntheticSettings(shape=shape, rows=rows, strength=strength, seed=seed)


def joined(parts: list[Chunk]) -> Chunk:
    return Chunk(
        categories=pl.concat([part.categories for part in parts]),
        numerics=np.concatenate([part.numerics for part in parts]),
        labels=np.concatenate([part.labels for part in parts]),
        split=np.concatenate([part.split for part in parts]),
    )


def rows_of(settings: SyntheticSettings) -> Chunk:
    return joined(list(chunks(settings)))


def assert_equal_rows(left: Chunk, right: Chunk) -> None:
    assert left.categories.equals(right.categories)
    np.testing.assert_array_equal(left.numerics, right.numerics)
    np.testing.assert_array_equal(left.labels, right.labels)
    np.testing.assert_array_equal(left.split, right.split)


@pytest.fixture(scope="module")
def avazu() -> Chunk:
    return rows_of(settings_of("avazu", MANY_ROWS))


@pytest.fixture(scope="module")
def criteo() -> Chunk:
    return rows_of(settings_of("criteo", MANY_ROWS))


@pytest.mark.parametrize("shape", ["avazu", "criteo"])
def test_chunk_has_the_columns_that_are_announced(shape, request):
    rows = request.getfixturevalue(shape)
    announced = columns(settings_of(shape, 10))
    categorical = [column.name for column in announced if column.role == "categorical"]
    assert rows.categories.columns == categorical
    assert rows.categories.dtypes == [pl.String] * len(categorical)
    assert rows.categories.null_count().sum_horizontal().item() == 0
    n_numeric = len(announced) - len(categorical)
    assert rows.numerics.shape == (MANY_ROWS, n_numeric)
    assert rows.numerics.dtype == np.float64
    assert (len(categorical), n_numeric) == {"avazu": (22, 0), "criteo": (26, 13)}[shape]
    assert rows.labels.dtype == rows.split.dtype == np.uint8
    assert set(np.unique(rows.labels)) == {0, 1}


def test_avazu_names_its_meanings():
    meanings = {column.name: column.semantic for column in columns(settings_of("avazu", 10))}
    known = {name: meaning for name, meaning in meanings.items() if meaning is not None}
    assert known == {
        name: name for name in ("site_category", "app_category", "device_type", "hour")
    }


@pytest.mark.parametrize("shape", ["avazu", "criteo"])
def test_same_seed_same_rows(shape):
    settings = settings_of(shape, BLOCK_ROWS + 100)
    assert_equal_rows(rows_of(settings), rows_of(settings))


@pytest.mark.parametrize("shape", ["avazu", "criteo"])
def test_other_seed_other_rows(shape):
    one, other = (rows_of(settings_of(shape, 5000, seed=seed)) for seed in (1, 2))
    for name in one.categories.columns:
        # The hour follows from the place in the day.
        same = (one.categories[name] == other.categories[name]).all()
        assert same == (name == "hour"), name
    assert (one.labels != other.labels).any()
    assert (one.split != other.split).any()
    assert not np.array_equal(one.numerics, other.numerics, equal_nan=True) or shape == "avazu"


# Whoever changes these changes every number that was made from synthetic data: raise NUMERICS.
@pytest.mark.parametrize(
    ("shape", "expected"), [("avazu", "b5c0e5d4c5e57e7b"), ("criteo", "7979213bdb42d62f")]
)
def test_rows_stay_what_they_were(shape, expected):
    rows = rows_of(settings_of(shape, 1000, seed=2021))
    digest = hashlib.sha256(rows.categories.write_csv().encode())
    for array in (rows.numerics, rows.labels, rows.split):
        digest.update(np.nan_to_num(array, nan=-99).astype("<f8").tobytes())
    assert digest.hexdigest()[:16] == expected


@pytest.mark.parametrize("shape", ["avazu", "criteo"])
@pytest.mark.parametrize("rows", [10, BLOCK_ROWS - 1, BLOCK_ROWS, BLOCK_ROWS + 1])
def test_more_rows_extend_fewer(shape, rows, request):
    longer = request.getfixturevalue(shape)
    shorter = rows_of(settings_of(shape, rows))
    assert len(shorter.labels) == rows
    head = Chunk(
        categories=longer.categories.head(rows),
        numerics=longer.numerics[:rows],
        labels=longer.labels[:rows],
        split=longer.split[:rows],
    )
    assert_equal_rows(shorter, head)


def test_block_needs_no_block_before_it():
    log = SyntheticLog(settings_of("avazu", MANY_ROWS))
    alone = SyntheticLog(settings_of("avazu", MANY_ROWS)).block(3)
    in_order = list(log.blocks())[3]
    np.testing.assert_array_equal(alone.codes, in_order.codes)
    np.testing.assert_array_equal(alone.labels, in_order.labels)
    assert not np.array_equal(alone.codes, log.block(4).codes)


def test_blocks_share_no_luck():
    blocks = [SyntheticLog(settings_of("avazu", MANY_ROWS)).block(number) for number in range(3)]
    luck = [block.labels - block.probabilities for block in blocks]
    luck += [(block.split == 0).astype(np.float64) for block in blocks]
    luck += [(block.codes[1] == 0).astype(np.float64) for block in blocks]
    correlation = np.corrcoef(luck) - np.eye(len(luck))
    assert np.abs(correlation).max() < 4.5 / np.sqrt(BLOCK_ROWS)


@pytest.mark.parametrize("shape", ["avazu", "criteo"])
def test_strength_changes_labels_only(shape):
    weak, strong = (rows_of(settings_of(shape, 5000, strength=x)) for x in (0.0, 2.0))
    assert weak.categories.equals(strong.categories)
    np.testing.assert_array_equal(weak.numerics, strong.numerics)
    np.testing.assert_array_equal(weak.split, strong.split)
    assert (weak.labels != strong.labels).any()


@pytest.mark.parametrize("strength", [0.0, 1.0, 5.0, 1e200])
@pytest.mark.parametrize(("shape", "rate"), [("avazu", 0.17), ("criteo", 0.256)])
def test_click_rate(shape, rate, strength):
    for seed in (1, 2021):
        labels = rows_of(settings_of(shape, 60_000, strength=strength, seed=seed)).labels
        # 4 standard errors of 60,000 labels are 0.007.
        assert abs(labels.mean() - rate) < 0.008


@pytest.mark.parametrize("shape", ["avazu", "criteo"])
def test_splits_are_alike(shape, request):
    rows = request.getfixturevalue(shape)
    shares = np.bincount(rows.split) / MANY_ROWS
    np.testing.assert_allclose(shares, [0.8, 0.1, 0.1], atol=0.005)
    # The subgroups' fields have the same distribution in all splits.
    for name in SHAPES[shape].group_fields:
        values = rows.categories[name].to_numpy()
        for value in np.unique(values):
            by_split = [(values[rows.split == split] == value).mean() for split in range(3)]
            assert max(by_split) - min(by_split) < 0.02


def contrasts(shape: str, strength: float) -> np.ndarray:
    """Log-odds of a click at a field's commonest value against all others: (fields, subgroups)."""
    log = SyntheticLog(settings_of(shape, MANY_ROWS, strength=strength))
    blocks = list(log.blocks())
    codes = np.concatenate([block.codes for block in blocks], axis=1)
    labels = np.concatenate([block.labels for block in blocks])
    groups = log.response.groups(codes)
    names = [field.name for field in log.shape.categorical]
    others = [
        row
        for row in range(len(names))
        if names[row] not in log.shape.group_fields and 0.1 < (codes[row] == 0).mean() < 0.9
    ]
    assert len(others) >= 5
    table = np.empty((len(others), log.shape.group_classes**2))
    for line, row in enumerate(others):
        for group in range(table.shape[1]):
            rates = [
                (labels[(groups == group) & here].sum() + 0.5)
                / (((groups == group) & here).sum() + 1)
                for here in (codes[row] == 0, codes[row] != 0)
            ]
            table[line, group] = np.diff(np.log(rates) - np.log1p(-np.array(rates)))[0]
    return table


@pytest.mark.parametrize("shape", ["avazu", "criteo"])
def test_strength_makes_subgroups_answer_differently(shape):
    spread = {
        strength: float(np.median(contrasts(shape, strength).std(axis=1)))
        for strength in (0.0, 3.0)
    }
    assert spread[3.0] > 2.5 * spread[0.0], spread


def test_strength_zero_is_one_response():
    response = SyntheticLog(settings_of("avazu", 10, strength=0.0)).response
    for effects in response.value_effects:
        np.testing.assert_array_equal(effects, np.broadcast_to(effects[0], effects.shape))


@pytest.mark.parametrize("strength", [0.0, 0.5, 1.0, 4.0])
def test_difficulty_does_not_depend_on_strength(strength):
    log = SyntheticLog(settings_of("avazu", 2 * BLOCK_ROWS, strength=strength))
    p = np.concatenate([block.probabilities for block in log.blocks()])
    assert abs(np.std(np.log(p) - np.log1p(-p)) - 1.5) < 0.05


def test_popularity_is_heavy_tailed(avazu):
    train = avazu.categories.filter(pl.Series(avazu.split == 0))
    test = avazu.categories.filter(pl.Series(avazu.split == 2))
    counts = {
        name: train[name].value_counts()["count"].sort(descending=True) for name in train.columns
    }
    # Most addresses come once, one device in most rows: as in the real log.
    assert (counts["device_ip"] == 1).mean() > 0.6
    assert 0.8 < counts["device_id"][0] / len(train) < 0.84
    for name in ("site_id", "app_id", "device_model"):
        top = counts[name].head(len(counts[name]) // 10).sum() / len(train)
        assert top > 0.4, name
    unseen = {
        name: (~test[name].is_in(train[name].unique().implode())).mean() for name in test.columns
    }
    assert unseen["device_ip"] > 0.3
    assert 0 < unseen["site_id"] < 0.05
    assert unseen["banner_pos"] == 0


def test_more_rows_show_more_values(avazu):
    few = avazu.categories["device_ip"].head(10_000).n_unique()
    assert avazu.categories["device_ip"].n_unique() > 8 * few


def test_hours_rise_within_a_day(avazu):
    hours = avazu.categories["hour"].cast(pl.Int64).to_numpy().reshape(-1, BLOCK_ROWS)
    assert (np.diff(hours, axis=1) >= 0).all()
    assert len(np.unique(hours)) == 24


def test_criteo_values_are_missing_at_their_rates(criteo):
    for column, field in enumerate(SHAPES["criteo"].numeric):
        share = np.isnan(criteo.numerics[:, column]).mean()
        assert abs(share - field.missing_share) < 0.006, field.name
    for field in SHAPES["criteo"].categorical:
        share = (criteo.categories[field.name] == "").mean()
        assert abs(share - (field.common[0] if field.missing else 0)) < 0.006, field.name


def test_criteo_numbers_are_heavy_tailed_integers(criteo):
    for column, field in enumerate(SHAPES["criteo"].numeric):
        values = criteo.numerics[:, column]
        values = values[~np.isnan(values)]
        np.testing.assert_array_equal(values, np.round(values))
        assert values.min() == field.minimum
        assert values.max() <= field.maximum
        assert abs(np.median(values) - field.median) <= 0.05 * field.median + 1
        assert np.quantile(values, 0.999) > 8 * max(np.median(values), 0.5), field.name
    assert criteo.numerics[:, 1].min() == -3


def test_criteo_numbers_matter(criteo):
    differences = []
    for values in criteo.numerics.T:
        missing = np.isnan(values)
        low = values < np.nanmedian(values)
        parts = [
            criteo.labels[rows] for rows in (missing, low, ~missing & ~low) if rows.sum() > 5000
        ]
        rates = [part.mean() for part in parts]
        differences.append(max(rates) - min(rates))
    # A standard error of a rate of 5,000 rows is 0.006.
    assert sum(difference > 0.025 for difference in differences) >= 6


@pytest.mark.parametrize("exponent", [0.8, 1.05, 1.5])
def test_field_follows_its_law(exponent):
    field = CategoricalField(name="x", size=1000, exponent=exponent, common=(0.3, 0.1))
    words = random_words(3, "x", 500_000).view(np.uint32)
    shares = np.bincount(Sampler(field.quantiles()).draw(words), minlength=1000) / 1e6
    edges = np.arange(1, 1000, dtype=np.float64)
    mass = (edges[1:] ** (1 - exponent) - edges[:-1] ** (1 - exponent)) / (
        999.0 ** (1 - exponent) - 1
    )
    expected = np.concatenate([[0.3, 0.1], 0.6 * mass])
    np.testing.assert_allclose(shares[:200], expected[:200], atol=0.0015)
    assert len(shares) == 1000


@pytest.mark.parametrize("size", [3, 65_536, 65_537, 10_000_000])
def test_texts_are_a_bijection(size):
    field = CategoricalField(name="C3", size=size)
    codes = np.unique(np.concatenate([np.arange(min(size, 1_000_000)), np.arange(size - 3, size)]))
    texts = field.write(codes.astype(np.uint32))
    assert texts.n_unique() == len(codes)
    assert texts.str.contains("^[0-9a-f]{8}$").all()


def test_a_large_field_writes_as_a_small_one():
    codes = np.arange(500, dtype=np.uint32)
    small, large = (
        CategoricalField(name="C3", size=size, common=(0.1,), missing=True).write(codes)
        for size in (500, 100_000)
    )
    assert small.to_list() == large.to_list()
    assert small[0] == ""


def test_card_gives_what_the_demo_needs():
    card = load_card("synthetic")
    settings = card.settings_class.parse(card.defaults, where="datasets/synthetic.toml")
    assert isinstance(settings, SyntheticSettings)
    assert (settings.shape, settings.seed) == ("avazu", 2021)
    assert settings.strength > 0
    assert any("synthetic" in note for note in card.notes)


_MEMORY = """
import resource, sys
from prime_bench.data.synthetic.rows import chunks
from prime_bench.data.synthetic.rows import BestCounter
from prime_bench.settings.data import SyntheticSettings
peaks, best = {}, BestCounter()
for number, chunk in enumerate(chunks(SyntheticSettings(shape="criteo", rows=10**9), best=best)):
    peaks[number] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    if number == 40:
        break
print(peaks[40] - peaks[8])
"""


def test_memory_does_not_grow_with_the_rows():
    done = subprocess.run(
        [sys.executable, "-c", _MEMORY], capture_output=True, text=True, check=True
    )
    # 32 more blocks of 16,384 rows hold 110 MB of numbers alone.
    assert float(done.stdout) < 25


def test_rows_beyond_the_disk_are_refused_before_any_is_made(tmp_path):
    spec = resolve("synthetic", {"rows": 10**20})
    with pytest.raises(EnvironmentFault, match=r"needs about .* GB of disk"):
        prepare(spec, data_dir=tmp_path / "data")
    assert not (tmp_path / "data").exists() or not list((tmp_path / "data").glob("synthetic*"))

"""The ways to split a log, each against an oracle that looks at the rows one by one."""

from collections import Counter, defaultdict
from datetime import datetime, timedelta, timezone

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prime_bench.base.errors import DataError, UsageError
from prime_bench.data.card import DatasetCard
from prime_bench.data.manifest import TableSpec, resolve
from prime_bench.data.prepare import prepare
from prime_bench.data.raw.text import read_lines
from prime_bench.data.split import TimeCounts
from prime_bench.data.table import PreparedTable

N_ROWS = 3_000
SPLITS = ("train", "valid", "test")


def card_of(*columns, **facts):
    named = [{"name": "click", "role": "label"}, {"name": "row", "role": "categorical"}, *columns]
    return DatasetCard.model_validate(
        {"name": "mylog", "title": "A log", "kind": "log", "columns": named, **facts}
    )


@pytest.fixture
def splits_of(tmp_path, monkeypatch):
    """The split of each row of a log with the text `values` in its last column, by row number."""
    monkeypatch.setitem(read_lines.__kwdefaults__, "block_bytes", 5_000)

    def run(column, values, **keys):
        card = card_of({"name": "value", **column})
        settings = card.settings_class.parse(keys, where="")
        rows = [f"{i % 3 % 2},r{i},{value}\n" for i, value in enumerate(values)]
        path = tmp_path / "log.csv"
        path.write_text("".join(["click,row,value\n", *rows]))
        folder = tmp_path / f"data{len(list(tmp_path.iterdir()))}"
        spec = TableSpec(card=card, settings=settings)
        manifest = prepare(spec, data_dir=folder, source=path)
        table = PreparedTable.open(spec.folder(folder))
        names = (spec.folder(folder) / "vocabulary" / "row.txt").read_text().split("\n")[:-1]
        found = {}
        for split in SPLITS:
            ids = table.split(split).ids[:, 0]
            found |= {int(names[i - 1][1:]): split for i in ids.tolist()}
            # Rows keep their order.
            order = [int(names[i - 1][1:]) for i in ids.tolist()]
            assert order == sorted(order)
        assert len(found) == len(values)
        empty = Counter(found[i] for i, value in enumerate(values) if not value)
        if manifest.missing and "value" in manifest.missing:
            assert manifest.missing["value"].plain() == {s: empty[s] for s in SPLITS}
        return [found[i] for i in range(len(values))]

    return run


def shares(found):
    counts = Counter(found)
    return [counts[split] / len(found) for split in SPLITS]


def test_groups_never_straddle(splits_of):
    random = np.random.default_rng(1)
    groups = [f"user {random.integers(0, 600)}" for _ in range(N_ROWS)]
    found = splits_of({"role": "group"}, groups, split="group")
    of_group = defaultdict(set)
    for group, split in zip(groups, found, strict=True):
        of_group[group].add(split)
    assert all(len(own) == 1 for own in of_group.values())
    # Of 600 groups, a share of 0.1 has a standard deviation of 0.012.
    own = [next(iter(splits)) for splits in of_group.values()]
    np.testing.assert_allclose(shares(own), [0.8, 0.1, 0.1], atol=0.05)
    other = splits_of({"role": "group"}, groups, split="group", split_seed=5)
    assert other != found
    # The rest of a row does not matter, nor does its place.
    again = splits_of({"role": "group"}, groups[::-1], split="group")
    assert again[::-1] == found


def test_rows_without_a_group_are_split_one_by_one(splits_of):
    found = splits_of({"role": "group", "also": "categorical"}, ["", "a"] * 1_500, split="group")
    assert len(set(found[1::2])) == 1
    np.testing.assert_allclose(shares(found[::2]), [0.8, 0.1, 0.1], atol=0.05)


@pytest.mark.parametrize("fractions", [(0.8, 0.1, 0.1), (0.34, 0.33, 0.33)])
def test_fractions_are_in_the_order_of_the_file(splits_of, fractions):
    keys = {"split": "fraction", "split_fractions": fractions}
    found = splits_of({"role": "dropped"}, ["x"] * N_ROWS, **keys)
    first, second = round(N_ROWS * fractions[0]), round(N_ROWS * (fractions[0] + fractions[1]))
    expected = ["train"] * first + ["valid"] * (second - first) + ["test"] * (N_ROWS - second)
    assert found == expected


def test_fractions_of_more_rows_than_are_counted_one_by_one(splits_of, monkeypatch):
    monkeypatch.setattr(TimeCounts, "MOST", 256)
    found = splits_of({"role": "dropped"}, ["x"] * N_ROWS, split="fraction")
    assert found == sorted(found, key=SPLITS.index)
    np.testing.assert_allclose(shares(found), [0.8, 0.1, 0.1], atol=2 / 256)


START = datetime(2024, 2, 28, 22, 0, tzinfo=timezone.utc)  # noqa: UP017


def at(minutes):
    return START + timedelta(minutes=minutes)


TIMES = {
    "seconds": lambda m: str(int(at(m).timestamp())),
    "milliseconds": lambda m: str(int(at(m).timestamp() * 1000)),
    "before 1970": lambda m: str(m - 5_000),
    "blank": lambda m: at(m).strftime("%Y-%m-%d %H:%M"),
    "seconds of a clock": lambda m: at(m).strftime("%Y-%m-%d %H:%M:%S"),
    "fractions": lambda m: at(m).strftime("%Y-%m-%d %H:%M:%S.%f"),
    "Z": lambda m: at(m).strftime("%Y-%m-%dT%H:%M:%SZ"),
    "zones": lambda m: (
        at(m).astimezone(timezone(timedelta(hours=m % 25 - 12, minutes=m % 2 * 30))).isoformat()
    ),
}


@pytest.mark.parametrize("form", TIMES)
@pytest.mark.parametrize("most", [1 << 16, 64])
def test_no_row_is_earlier_than_one_of_an_earlier_split(splits_of, form, most, monkeypatch):
    """Whatever the order in the file; with more distinct times than are counted one by one too."""
    monkeypatch.setattr(TimeCounts, "MOST", most)
    minutes = np.random.default_rng(3).integers(0, 2_000, N_ROWS).tolist()
    found = splits_of({"role": "time"}, [TIMES[form](m) for m in minutes], split="time")
    of_split = defaultdict(list)
    for minute, split in zip(minutes, found, strict=True):
        of_split[split].append(minute)
    assert max(of_split["train"]) < min(of_split["valid"])
    assert max(of_split["valid"]) < min(of_split["test"])
    np.testing.assert_allclose(shares(found), [0.8, 0.1, 0.1], atol=0.002 if most > 64 else 0.04)


def test_days(splits_of):
    days = [f"2024-01-{1 + i % 10:02}" for i in range(N_ROWS)]
    found = splits_of({"role": "time", "also": "categorical"}, days, split="time")
    assert found == [
        "train" if i % 10 < 8 else "valid" if i % 10 == 8 else "test" for i in range(N_ROWS)
    ]


def test_a_time_can_be_a_numeric_field_too(splits_of):
    times = [str(i) for i in range(N_ROWS)]
    keys = {"split": "time", "numeric": "minmax"}
    assert splits_of({"role": "time", "also": "numeric"}, times, **keys) == (
        splits_of({"role": "dropped"}, times, split="fraction")
    )


@pytest.mark.parametrize(
    ("splits", "texts"),
    [
        ({}, ("train", "valid", "test")),
        (
            {"train": ["0", "1"], "valid": ["validation"], "test": ["a longer name"]},
            ("0", "1", "validation", "a longer name"),
        ),
    ],
)
def test_a_column_says_it(splits_of, splits, texts):
    values = np.random.default_rng(4).choice(texts, N_ROWS).tolist()
    column = {"role": "split"} | ({"splits": splits} if splits else {})
    split_of = {text: split for split in SPLITS for text in splits.get(split, [split])}
    found = splits_of(column, values, split="column")
    assert found == [split_of[value] for value in values]


WRONG = {
    "split": ({"role": "split"}, "valid", "dev", "column", "expected `train`, `valid`, `test`"),
    "longer": ({"role": "split"}, "train", "trainx", "column", "expected `train`, `valid`, `test`"),
    "empty": ({"role": "split"}, "train", "", "column", "expected `train`, `valid`, `test`"),
    "time": ({"role": "time"}, "2024-01-01", "2024-13-01", "time", "expected a time like that of"),
    "clock": ({"role": "time"}, "2024-01-01", "10:00", "time", "expected a time like that of"),
    "number": ({"role": "time"}, "17", "2024-01-01", "time", "expected a whole number like that"),
    "date": ({"role": "time"}, "2024-01-01", "20240101", "time", "expected a time like that of"),
    "no time": ({"role": "time"}, "17", "", "time", "expected a whole number like that"),
    "fraction": ({"role": "time"}, "17", "17.5", "time", "expected a whole number like that"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_value_is_named_with_its_line(splits_of, name):
    column, good, bad, split, expected = WRONG[name]
    values = [good] * 500
    values[400] = bad
    with pytest.raises(DataError) as error:
        splits_of(column, values, split=split)
    assert f"log.csv: line 402: `value`: {expected}" in error.value.message
    assert error.value.message.endswith(f"found `{bad}`")


def test_the_first_time_has_an_example(splits_of):
    with pytest.raises(DataError, match="line 2: `value`: expected a time such as 1700000000"):
        splits_of({"role": "time"}, ["yesterday"] * 9, split="time")


def test_parquet_has_the_splits_of_csv(tmp_path):
    """Times and groups as typed columns."""
    card = card_of({"name": "at", "role": "time"}, {"name": "user", "role": "group"})
    frame = pl.DataFrame(
        {
            "click": [i % 3 % 2 for i in range(900)],
            "row": [f"r{i}" for i in range(900)],
            "at": [at(i * 7 % 900).replace(tzinfo=None) for i in range(900)],
            "user": [i % 70 for i in range(900)],
        }
    )
    frame.write_parquet(tmp_path / "a.parquet")
    frame.with_columns(pl.col("at").dt.to_string("%Y-%m-%dT%H:%M:%S")).write_csv(tmp_path / "a.csv")
    for split in ("time", "group", "fraction"):
        spec = TableSpec(card=card, settings=card.settings_class.parse({"split": split}, where=""))
        both = [
            prepare(spec, data_dir=tmp_path / split / name, source=tmp_path / name).fingerprint
            for name in ("a.parquet", "a.csv")
        ]
        assert both[0] == both[1]


@pytest.mark.parametrize(
    ("split", "roles"), [("time", "time or hour"), ("column", "split"), ("group", "group")]
)
def test_a_split_needs_its_column(tmp_path, split, roles):
    path = tmp_path / "mylog.toml"
    path.write_text(
        'name = "mylog"\ntitle = "x"\nkind = "log"\ncolumns = [\n'
        '{ name = "click", role = "label" },\n{ name = "user", role = "categorical" },\n]\n'
    )
    with pytest.raises(UsageError, match=f"split: {split} needs a column with the role {roles}"):
        resolve(str(path), {"split": split})


BAD_CARDS = {
    "also": ([{"name": "a", "role": "dropped", "also": "numeric"}], "`also` is a key of columns"),
    "splits": ([{"name": "a", "role": "time", "splits": {}}], None),
    "two splits": (
        [{"name": "a", "role": "split", "splits": {"train": ["1"], "test": ["2"]}}],
        "`splits` has train, valid and test",
    ),
    "one text twice": (
        [{"name": "a", "role": "split", "splits": {s: ["1"] for s in SPLITS}}],
        "each text once",
    ),
    "two groups": (
        [{"name": "a", "role": "group"}, {"name": "b", "role": "group"}],
        "two columns have the role group",
    ),
}


@pytest.mark.parametrize("name", BAD_CARDS)
def test_cards_that_are_refused(name):
    columns, expected = BAD_CARDS[name]
    if expected is None:
        card_of(*columns)
        return
    with pytest.raises(ValueError, match=expected):
        card_of(*columns)


def test_roles_of_a_split_need_a_log():
    with pytest.raises(ValueError, match='the role group needs kind = "log"'):
        card_of({"name": "a", "role": "group"}, kind="splits")


@given(
    st.lists(st.lists(st.integers(-500, 500), min_size=1, max_size=20), min_size=1, max_size=12),
    st.integers(2, 40),
)
def test_times_are_counted_as_by_hand(blocks, most):
    """Joined by the smallest sufficient shift, whatever the blocks."""
    counts = TimeCounts(n_fields=2)
    counts.MOST = most
    for block in blocks:
        times = np.array(block)
        counts.add(times, np.stack([times % 2 == 0, times % 3 == 0]))
    everything = [time for block in blocks for time in block]
    shift = next(s for s in range(64) if len({t >> s for t in everything}) <= most)
    assert counts.shift == shift
    expected = Counter(time >> shift for time in everything)
    assert dict(zip(counts.times.tolist(), counts.rows.tolist(), strict=True)) == expected
    for field, divisor in enumerate((2, 3)):
        own = Counter(time >> shift for time in everything if time % divisor == 0)
        found = zip(counts.times.tolist(), counts.missing[:, field].tolist(), strict=True)
        assert dict(found) == {time: own[time] for time in expected}

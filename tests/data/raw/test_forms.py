"""The same rows in every form of file that is read: one fingerprint, whatever the split."""

import bz2
import csv as csv_module
import gzip
import io
import lzma
import zipfile

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prime_bench.base.errors import DataError, UsageError
from prime_bench.data.card import DatasetCard
from prime_bench.data.manifest import TableSpec
from prime_bench.data.prepare import prepare
from prime_bench.data.raw.frames import lines_of
from prime_bench.data.raw.text import read_lines
from prime_bench.data.split import RowHash

COLUMNS = [
    ("click", "label"),
    ("user", "categorical"),
    ("site", "categorical"),
    ("price", "numeric"),
    ("age", "numeric"),
    ("note", "dropped"),
    ("slot", "categorical"),
]
NAMES = [name for name, _ in COLUMNS]


def card_of(*, columns=COLUMNS, kind="log", **facts):
    return DatasetCard.model_validate(
        {
            "name": "mylog",
            "title": "A log",
            "kind": kind,
            "columns": [{"name": name, "role": role} for name, role in columns],
            **facts,
        }
    )


def spec_of(card, **keys):
    settings = card.settings_class.parse({"min_count": 2, "numeric": "log1p", **keys}, where="")
    return TableSpec(card=card, settings=settings)


@pytest.fixture(scope="module")
def rows():
    """1,000 rows of texts: leading zeros, long and empty texts, fractions, letters beyond ASCII."""
    random = np.random.default_rng(11)

    def row():
        return [
            str(random.integers(0, 2)),
            f"{random.integers(0, 60):04}",
            ""
            if random.random() < 0.1
            else f"www.{'é' * random.integers(0, 3)}{random.integers(0, 9)}.org",
            "" if random.random() < 0.2 else str(float(f"{random.lognormal():.3g}")),
            "" if random.random() < 0.2 else str(random.integers(-5, 90)),
            f"n{random.integers(0, 1000)}",
            str(random.integers(0, 24)),
        ]

    return [row() for _ in range(1_000)]


def text_of(rows, *, names=NAMES, end="\n", **form):
    file = io.StringIO()
    writer = csv_module.writer(file, lineterminator=end, **form)
    writer.writerow(names)
    writer.writerows(rows)
    return file.getvalue().encode()


def plain(rows):
    return text_of(rows, quoting=csv_module.QUOTE_NONE)


def reordered(rows):
    order = [3, 0, 6, 5, 1, 4, 2]
    names = ["extra", *(NAMES[i] for i in order), "", "more"]
    more = [["x", *(row[i] for i in order), "", "y,z"] for row in rows]
    return text_of(more, names=names)


def typed(rows):
    """What a reader that guesses types makes of the csv, ids kept as texts."""
    texts = pl.DataFrame(rows, schema=dict.fromkeys(NAMES, pl.String), orient="row")
    texts = texts.with_columns(pl.when(pl.all() != "").then(pl.all()).name.keep())
    return texts.with_columns(
        pl.col("click").cast(pl.Int64),
        pl.col("site").cast(pl.Categorical),
        pl.col("price").cast(pl.Float64),
        pl.col("age").cast(pl.Float64),  # whole numbers with missing values
        pl.col("slot").cast(pl.UInt8),
    )


def parquet(rows):
    file = io.BytesIO()
    typed(rows).write_parquet(file, row_group_size=300)
    return file.getvalue()


def pandas_parquet(rows):
    file = io.BytesIO()
    frame = typed(rows).with_columns(pl.col("site").cast(pl.String)).to_pandas()
    frame.to_parquet(file)
    return file.getvalue()


def arrow(rows):
    file = io.BytesIO()
    typed(rows).select(*reversed(NAMES), pl.lit(1).alias("extra")).write_ipc(file)
    return file.getvalue()


def in_zip(rows):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("inner.csv", plain(rows))
    return file.getvalue()


FORMS = {
    "crlf.csv": lambda rows: text_of(rows, end="\r\n"),
    "tabs.tsv": lambda rows: text_of(rows, delimiter="\t"),
    "semicolons.csv": lambda rows: text_of(rows, delimiter=";"),
    "bars.txt": lambda rows: text_of(rows, delimiter="|"),
    "quoted.csv": lambda rows: text_of(rows, quoting=csv_module.QUOTE_ALL),
    "quoted_crlf.csv": lambda rows: text_of(rows, quoting=csv_module.QUOTE_ALL, end="\r\n"),
    "some_quoted.csv": lambda rows: text_of(rows, quoting=csv_module.QUOTE_NONNUMERIC),
    "reordered.csv": reordered,
    "mark.csv": lambda rows: b"\xef\xbb\xbf" + plain(rows),
    "quoted_mark.csv": lambda rows: b"\xef\xbb\xbf" + text_of(rows, quoting=csv_module.QUOTE_ALL),
    "a.csv.gz": lambda rows: gzip.compress(plain(rows)),
    "a.csv.bz2": lambda rows: bz2.compress(plain(rows)),
    "a.csv.xz": lambda rows: lzma.compress(plain(rows)),
    "a.csv.zst": lambda rows: pa.compress(plain(rows), codec="zstd", asbytes=True),
    "a.zip": in_zip,
    "a.parquet": parquet,
    "pandas.parquet": pandas_parquet,
    "a.arrow": arrow,
    "without_ending": parquet,
}


@pytest.mark.parametrize("keys", [{"split": "hash"}, {"split": "hash", "vocabulary": "train"}])
def test_one_fingerprint(tmp_path, rows, keys, monkeypatch):
    """The reference is plain csv in the order of the card; blocks are small."""
    monkeypatch.setitem(read_lines.__kwdefaults__, "block_bytes", 4_000)
    spec = spec_of(card_of(), **keys)
    found = {}
    for name, content_of in {"plain.csv": plain, **FORMS}.items():
        (tmp_path / name).write_bytes(content_of(rows))
        manifest = prepare(spec, data_dir=tmp_path / f"of {name}", source=tmp_path / name)
        found[name] = manifest.fingerprint
        assert manifest.rows.total == len(rows)
    assert set(found.values()) == {found["plain.csv"]}, found


def test_extra_columns_are_named_once(tmp_path, rows):
    path = tmp_path / "a.csv"
    path.write_bytes(reordered(rows))
    told = []
    prepare(spec_of(card_of()), data_dir=tmp_path / "data", source=path, log=told.append)
    assert [line for line in told if "not on the card" in line] == [
        f"{path}: not on the card, left out: `extra`, ``, `more`"
    ]


text = st.text(st.characters(blacklist_characters="\r\0", codec="utf-8"), max_size=6)


@settings(max_examples=60)
@given(
    st.lists(st.lists(text, min_size=3, max_size=3), min_size=1, max_size=12),
    st.integers(3, 60),
    st.sampled_from([",", "\t", ";", "|"]),
    st.sampled_from([csv_module.QUOTE_ALL, csv_module.QUOTE_MINIMAL]),
    st.permutations(["a", "b", "c"]),
)
def test_fields_are_those_of_the_csv_module(rows, block_bytes, separator, quoting, order):
    """Embedded separators, line feeds and marks, whatever the blocks; each row has its line."""
    content = text_of(rows, names=order, delimiter=separator, quoting=quoting)
    found, lines_at = [], []
    for lines in read_lines(
        io.BytesIO(content).read, where="a", header=["a", "b", "c"], block_bytes=block_bytes
    ):
        n_rows = len(lines.ends)
        found += [[lines.field(row, column) for column in range(3)] for row in range(n_rows)]
        lines_at += [lines.number(row) for row in range(n_rows)]
    assert found == [[row[order.index(name)] for name in "abc"] for row in rows]
    starts, line = [], 2
    for row in rows:
        starts.append(line)
        line += 1 + sum(field.count("\n") for field in row)
    assert lines_at == starts


def test_a_row_has_the_hash_of_its_plain_line():
    rows = [["1", "a", ""], ["0", "é", "long text of more"], ["1", "", "x"]]
    frame = pl.DataFrame(rows, schema=dict.fromkeys("abc", pl.String), orient="row")
    lines = lines_of(frame, numbers=np.arange(1, 4))
    content = "".join(",".join(row) + "\n" for row in rows).encode()
    assert lines.content == content
    starts = np.array([0, *(np.flatnonzero(np.frombuffer(content, np.uint8) == 10)[:-1] + 1)])
    ends = np.flatnonzero(np.frombuffer(content, np.uint8) == 10)
    expected = RowHash(5)(np.frombuffer(content, np.uint8), starts, ends)
    found = RowHash(5)(lines.text, lines.starts(0), lines.ends[:, -1])
    np.testing.assert_array_equal(found, expected)


NUMBERS = ["1.5", "1e3", " 1.5", "1.5 ", "+1", "1_0", "nan", "inf", "-inf", "0x10", "1e999", "1,5"]
NUMBERS += [
    ".5",
    "5.",
    "1e-400",
    "--1",
    "1.5.2",
    "True",
    "1e",
    "\u0661",
    "  2",
    " ",
    "\u00a01",
    "123456789012345678901234567890",
]


@pytest.mark.parametrize("number", NUMBERS)
def test_a_number_is_one_in_every_form_or_in_none(tmp_path, number):
    """Plain, quoted and as text in Parquet: the same values, or the same refusal."""
    rows = [[f"{i % 2}", f"u{i}", "s", "2.5", "1", "", "9"] for i in range(200)]
    rows[30][3] = number
    outcomes = []
    columns = pl.DataFrame(rows, schema=dict.fromkeys(NAMES, pl.String), orient="row")
    columns.write_parquet(tmp_path / "a.parquet")
    (tmp_path / "b.csv").write_bytes(text_of(rows, quoting=csv_module.QUOTE_ALL))
    (tmp_path / "c.tsv").write_bytes(text_of(rows, delimiter="\t"))
    for name in ("a.parquet", "b.csv", "c.tsv"):
        try:
            manifest = prepare(
                spec_of(card_of(), min_count=1, numeric="raw"),
                data_dir=tmp_path / f"of {name}",
                source=tmp_path / name,
            )
            outcomes.append(manifest.fingerprint)
        except DataError as error:
            unit = "row 31" if name == "a.parquet" else "line 32"
            place, _, fault = error.message.removeprefix(f"{tmp_path / name}: ").partition(": ")
            outcomes.append(f"{place == unit} {fault}")
    assert len(set(outcomes)) == 1, outcomes
    fault = f"True `price`: expected a finite number or nothing, found `{number}`"
    assert len(outcomes[0]) == 64 or outcomes[0] == fault


TYPES = {
    "integers": (pl.Series([1, 20, None], dtype=pl.Int32), ["1", "20", ""]),
    "large integers": (pl.Series([2**64 - 1], dtype=pl.UInt64), ["18446744073709551615"]),
    "whole floats": (pl.Series([1.0, -0.0, 2e15, None]), ["1", "0", "2000000000000000", ""]),
    "floats": (pl.Series([0.1, float("nan"), -2.5, float("inf")]), ["0.1", "", "-2.5", "inf"]),
    "single": (pl.Series([0.1, 16777216.0], dtype=pl.Float32), ["0.1", "16777216.0"]),
    "not whole alone": (pl.Series([5.0, 0.5, -0.0, None]), ["5.0", "0.5", "-0.0", ""]),
    "categories": (pl.Series(["a", None, "b"], dtype=pl.Categorical), ["a", "", "b"]),
    "enumeration": (pl.Series(["a", "b"], dtype=pl.Enum(["b", "a"])), ["a", "b"]),
    "true and false": (pl.Series([True, False, None]), ["true", "false", ""]),
    "nothing": (pl.Series([None, None], dtype=pl.Null), ["", ""]),
    "days": (pl.Series(["2024-01-31"]).str.to_date(), ["2024-01-31"]),
    "times": (
        pl.Series(["2024-01-31 10:00:00", "2024-01-31 10:00:00.5"]).str.to_datetime(
            "%Y-%m-%d %H:%M:%S%.f", time_unit="us"
        ),
        ["2024-01-31 10:00:00", "2024-01-31 10:00:00.500"],
    ),
    "texts": (pl.Series(["0012", "NULL", "", None]), ["0012", "NULL", "", ""]),
}


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("ending", ["parquet", "arrow"])
def test_the_text_of_each_type(tmp_path, name, ending):
    """The values of a typed column have the ids of a csv that holds their texts."""
    column, texts = TYPES[name]
    card = card_of(columns=[("click", "label"), ("row", "dropped"), ("user", "categorical")])
    times = 100
    label = [i % 3 % 2 for i in range(times * len(texts))]
    frame = pl.DataFrame(
        {"click": label, "row": range(len(label)), "user": pl.concat([column] * times)}
    )
    path = tmp_path / f"a.{ending}"
    frame.write_parquet(path) if ending == "parquet" else frame.write_ipc(path)
    csv = tmp_path / "a.csv"
    pairs = zip(label, texts * times, strict=True)
    lines = [f"{one},{row},{text}\n" for row, (one, text) in enumerate(pairs)]
    csv.write_text("".join(["click,row,user\n", *lines]))
    both = [
        prepare(spec_of(card, split="hash"), data_dir=tmp_path / source.suffix, source=source)
        for source in (path, csv)
    ]
    assert both[0].fingerprint == both[1].fingerprint


def test_texts_that_mean_missing(tmp_path, rows):
    expected = tmp_path / "a.csv"
    expected.write_bytes(plain(rows))
    null = [[field or ["NULL", "\\N"][i % 2] for field in row] for i, row in enumerate(rows)]
    other = tmp_path / "b.csv"
    other.write_bytes(plain(null))
    card = card_of(format={"missing": ["NULL", "\\N"]})
    found = prepare(spec_of(card), data_dir=tmp_path / "b", source=other)
    assert found.fingerprint == (
        prepare(spec_of(card_of()), data_dir=tmp_path / "a", source=expected).fingerprint
    )
    assert spec_of(card).digest != spec_of(card_of()).digest


def test_marks_that_are_ordinary_characters(tmp_path, rows):
    inches = [[f'{field}"' if i == 2 else field for i, field in enumerate(row)] for row in rows]
    path = tmp_path / "a.csv"
    path.write_bytes(
        text_of(inches, quoting=csv_module.QUOTE_NONE, quotechar=None, escapechar=None)
    )
    card = card_of(format={"quote": ""})
    manifest = prepare(spec_of(card), data_dir=tmp_path / "data", source=path)
    (folder,) = (tmp_path / "data").iterdir()
    assert 'www.3.org"' in (folder / "vocabulary" / "site.txt").read_text().split("\n")
    assert manifest.rows.total == len(rows)
    with pytest.raises(DataError, match="line 2: has a quotation mark inside a field"):
        prepare(spec_of(card_of()), data_dir=tmp_path / "other", source=path)


def test_a_separator_that_the_card_names(tmp_path, rows):
    path = tmp_path / "a.csv"
    path.write_bytes(plain(rows))
    card = card_of(format={"separator": "\t"})
    with pytest.raises(DataError, match="expected 7 tab-separated fields, line 1 has 1; it looks"):
        prepare(spec_of(card), data_dir=tmp_path / "data", source=path)
    # It says nothing of the values, so that the table is the same.
    assert spec_of(card).digest == spec_of(card_of()).digest
    with pytest.raises(UsageError, match="separator"):
        DatasetCard.parse({**card.plain(), "format": {"separator": "::"}}, where="")


def put(line, field, value):
    def edit(rows):
        rows = [list(row) for row in rows]
        rows[line - 2][field] = value
        return text_of(rows, quoting=csv_module.QUOTE_ALL)

    return edit


def spoiled(line, change):
    def edit(rows):
        lines = text_of(rows, quoting=csv_module.QUOTE_ALL).split(b"\n")
        lines[line - 1] = change(lines[line - 1])
        return b"\n".join(lines)

    return edit


FAULTS = {
    "label": (put(40, 0, "2"), "line 40: `click`: expected 0 or 1, found `2`"),
    "number": (put(40, 3, "x,\ny"), "line 40: `price`: expected a finite number or nothing, found"),
    "a field more": (spoiled(9, lambda line: line + b',"x"'), "line 9 has 8"),
    "a field less": (spoiled(9, lambda line: line[: line.rindex(b",")]), "line 9 has 6"),
    "blank line": (spoiled(9, lambda _: b""), "line 9 is blank"),
    "not UTF-8": (spoiled(9, lambda line: line[:-2] + b'\xff"'), "line 9: is not UTF-8"),
    "NUL": (spoiled(9, lambda line: line[:-2] + b'\0"'), "line 9: has a NUL byte"),
    "carriage return": (spoiled(9, lambda line: line[:-2] + b'\r"'), "line 9: has a carriage ret"),
    "mark inside": (
        spoiled(9, lambda line: line.replace(b",", b',x"y",', 1)),
        "line 9: has a quot",
    ),
    "mark behind": (spoiled(9, lambda line: line + b"x"), "line 9: has a quotation mark inside"),
    "no end": (spoiled(900, lambda line: line[:-1]), "line 900: "),
}


@pytest.mark.parametrize("name", FAULTS)
@pytest.mark.parametrize("block_bytes", [500, 1 << 21])
def test_faults_of_quoted_files(tmp_path, rows, name, block_bytes, monkeypatch):
    monkeypatch.setitem(read_lines.__kwdefaults__, "block_bytes", block_bytes)
    change, expected = FAULTS[name]
    path = tmp_path / "a.csv"
    path.write_bytes(change(rows))
    with pytest.raises(DataError) as error:
        prepare(spec_of(card_of()), data_dir=tmp_path / "data", source=path)
    assert error.value.message.startswith(f"{path}: ")
    assert expected in error.value.message
    assert not (tmp_path / "data").exists()


def test_a_quote_without_end_takes_bounded_memory(tmp_path, rows, monkeypatch):
    monkeypatch.setattr("prime_bench.data.raw.text.LONGEST_LINE", 10_000)
    monkeypatch.setitem(read_lines.__kwdefaults__, "block_bytes", 1_000)
    path = tmp_path / "a.csv"
    path.write_bytes(plain(rows).replace(b"\n1,", b'\n1,"', 1))
    with pytest.raises(DataError, match="a quoted field that begins here, or later, has no end"):
        prepare(spec_of(card_of()), data_dir=tmp_path / "data", source=path)


def cut(content):
    return content[: len(content) // 2]


def without_footer(content):
    return content[:-400] + bytes(392) + content[-8:]


@pytest.mark.parametrize("form", [parquet, arrow])
@pytest.mark.parametrize("damage", [cut, without_footer])
def test_damaged_columns(tmp_path, rows, form, damage):
    path = tmp_path / "a.bin"
    path.write_bytes(damage(form(rows)))
    with pytest.raises(DataError, match="is damaged or no"):
        prepare(spec_of(card_of()), data_dir=tmp_path / "data", source=path)
    assert not (tmp_path / "data").exists()


def without(name):
    return lambda frame: frame.drop(name).with_columns(pl.lit("x").alias("sites"))


COLUMN_FAULTS = {
    "a missing column": (
        without("site"),
        "missing `site`; unexpected `sites`; did you mean `sites`",
    ),
    "a list": (
        lambda frame: frame.with_columns(user=pl.concat_list("user")),
        "`user`: a column of type List(String) is not read",
    ),
    "label": (
        lambda frame: frame.with_columns(click=pl.lit(0.5)),
        "row 1: `click`: expected 0 or 1, found `0.5`",
    ),
    "no rows": (lambda frame: frame.head(0), "has no rows"),
}


@pytest.mark.parametrize("name", COLUMN_FAULTS)
def test_faults_of_columns(tmp_path, rows, name):
    change, expected = COLUMN_FAULTS[name]
    path = tmp_path / "a.parquet"
    change(typed(rows)).write_parquet(path)
    with pytest.raises(DataError) as error:
        prepare(spec_of(card_of()), data_dir=tmp_path / "data", source=path)
    assert expected in error.value.message


def test_a_label_of_truth_values(tmp_path, rows):
    path, other = tmp_path / "a.parquet", tmp_path / "a.csv"
    typed(rows).with_columns(pl.col("click") == 1).write_parquet(path)
    other.write_bytes(plain(rows))
    spec = spec_of(card_of())
    assert (
        prepare(spec, data_dir=tmp_path / "a", source=path).fingerprint
        == prepare(spec, data_dir=tmp_path / "b", source=other).fingerprint
    )


def test_parquet_in_gz_is_told(tmp_path, rows):
    path = tmp_path / "a.parquet.gz"
    path.write_bytes(gzip.compress(parquet(rows)))
    with pytest.raises(DataError, match="is a Parquet or Arrow file inside another") as error:
        prepare(spec_of(card_of()), data_dir=tmp_path / "data", source=path)
    assert "unpack" in error.value.hint


@pytest.fixture
def parts(tmp_path, rows):
    """A folder with the rows in four files of as many forms, and files that hold no data."""
    folder = tmp_path / "parts"
    folder.mkdir()
    contents = {
        "1.csv": plain(rows[:200]),
        "2.tsv.gz": gzip.compress(text_of(rows[200:300], delimiter="\t")),
        "3.parquet": parquet(rows[300:700]),
        "4.zip": in_zip(rows[700:]),
        "README.md": b"about",
        ".hidden.csv": b"x",
    }
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    return folder


@pytest.mark.parametrize("split", ["hash", "fraction"])
def test_several_files_are_one_log(tmp_path, rows, parts, split):
    spec = spec_of(card_of(), split=split)
    (tmp_path / "a.csv").write_bytes(plain(rows))
    expected = prepare(spec, data_dir=tmp_path / "a", source=tmp_path / "a.csv")
    data = sorted(path for path in parts.iterdir() if path.name[0].isdigit())
    ways = [parts, data, parts / "[1-4].*", [parts / "[12]*", *data[2:]]]
    for number, source in enumerate(ways):
        folder = tmp_path / str(number)
        found = prepare(spec, data_dir=folder, source=source)
        assert found.fingerprint == expected.fingerprint
        assert [file.rows for file in found.inputs] == [200, 100, 400, 300]
        # Neither made again nor read again, also where the files have another time.
        data[0].touch()
        assert prepare(spec, data_dir=folder, source=source) == found
    # The table keeps the order of the rows.
    other = prepare(spec, data_dir=tmp_path / "other", source=data[::-1])
    assert other.fingerprint != expected.fingerprint


def test_a_fault_has_the_file_of_its_row(tmp_path, rows, parts):
    frame = typed(rows[300:310]).with_columns(pl.Series("click", [0, 1, 0, 2, *[0] * 6]))
    frame.write_parquet(parts / "3.parquet")
    with pytest.raises(DataError) as error:
        prepare(spec_of(card_of()), data_dir=tmp_path / "data", source=parts)
    assert error.value.message == (
        f"{parts / '3.parquet'}: row 4: `click`: expected 0 or 1, found `2`"
    )


def test_a_file_that_changed_is_seen(tmp_path, rows, parts):
    spec = spec_of(card_of())
    first = prepare(spec, data_dir=tmp_path / "data", source=parts)
    (parts / "1.csv").write_bytes(plain(rows[:199]))
    second = prepare(spec, data_dir=tmp_path / "data", source=parts)
    assert (first.rows.total, second.rows.total) == (1_000, 999)
    (parts / "4.zip").unlink()
    assert prepare(spec, data_dir=tmp_path / "data", source=parts).rows.total == 699


def test_sources_that_are_amiss(tmp_path, rows, parts):
    wrong = {
        "has both 1.csv and 1.csv.gz": parts,
        "1.csv: is given twice": [parts / "1.csv", parts / "1.csv"],
        "no file has such a name": parts / "*.json",
        "there is no such file or folder": [parts / "1.csv", parts / "5.csv"],
    }
    (parts / "1.csv.gz").write_bytes(gzip.compress(plain(rows)))
    for expected, source in wrong.items():
        with pytest.raises(DataError, match=expected):
            prepare(spec_of(card_of()), data_dir=tmp_path / "data", source=source)


def test_published_splits_in_other_forms(tmp_path, rows):
    card = card_of(kind="splits")
    spec = spec_of(card)
    thirds = {"train": rows[:600], "valid": rows[600:800], "test": rows[800:]}
    found = []
    for ending, content_of in (("csv", plain), ("parquet", parquet), ("tsv", FORMS["tabs.tsv"])):
        folder = tmp_path / ending
        folder.mkdir()
        for split, own in thirds.items():
            (folder / f"{split}.{ending}").write_bytes(content_of(own))
        for number, source in enumerate([folder, sorted(folder.iterdir())]):
            data = tmp_path / f"{ending}-{number}"
            found.append(prepare(spec, data_dir=data, source=source))
    assert len({manifest.fingerprint for manifest in found}) == 1
    assert found[0].rows.plain() == {"train": 600, "valid": 200, "test": 200}

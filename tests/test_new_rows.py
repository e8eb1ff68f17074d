"""`predict JOB --from`: rows of raw files have the probabilities that they have in the table."""

import csv
import gzip
import io
import json
import shutil
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from prime_bench import api
from prime_bench.cli.main import exit_code
from prime_bench.data.manifest import MANIFEST_NAME, SPLIT_NAMES
from prime_bench.data.new_rows import NewRows
from prime_bench.data.synthetic.rows import chunks, columns
from prime_bench.data.table import PreparedTable
from prime_bench.recipe.file import load_recipe
from prime_bench.recipe.job import JobRequest
from prime_bench.schedule.plan import make_plan
from prime_bench.settings.data import SyntheticSettings
from prime_bench.store.runs import Runs
from prime_bench.worker import run_job

RULES = ("raw", "log_bucket", "log1p", "minmax", "standard", "quantile")
NUMBERS = [f'  {{ name = "{rule}", role = "numeric", numeric = "{rule}" }},' for rule in RULES]
CARD = """\
name = "mylog"
title = "every rule"
kind = "log"
defaults = { split = "column", min_count = 2 }
columns = [
  { name = "click", role = "label" },
  { name = "when", role = "split" },
  { name = "short", role = "categorical" },
  { name = "long", role = "categorical" },
  { name = "hour", role = "hour" },
  { name = "session", role = "dropped" },
"""
CARD += "\n".join([*NUMBERS, "]\n"])
RECIPE = """\
schema = 1
title = "ours"
seeds = [1]
arms = ["prime"]
[dataset.%s]
%s
[training]
max_epochs = 1
batch_size = 64
[backbone.DNN]
hidden_units = [8]
"""
ROWS = 700


def _rows():
    """The rows of a log, as texts: long and short values, rare ones, missing ones."""
    random = np.random.default_rng(11)
    rows = []
    for number in range(ROWS):
        split = ("train", "valid", "test")[min(number * 10 // ROWS // 3, 2)]
        user = int(random.zipf(1.3)) % 90
        values = {
            "click": str(int(random.random() < 0.3)),
            "when": split,
            "short": random.choice(["a", "b", "", f"x{user}", "süß"]),
            # The first blocks of a file may have short values alone.
            "long": f"a longer value {user}" if user % 3 else f"l{user}",
            "hour": f"141021{int(random.integers(24)):02}",
            "session": f"s{number}",
        }
        for rule in RULES:
            number = random.normal(3, 40) * 10 ** random.integers(0, 4)
            text = str(round(number, 3)) if random.random() < 0.7 else str(int(number))
            values[rule] = "" if random.random() < 0.1 else text
        rows.append(values)
    return rows


def _write(path, rows, *, names=None, separator=","):
    names = names or list(rows[0])
    text = io.StringIO()
    writer = csv.DictWriter(
        text, names, delimiter=separator, extrasaction="ignore", lineterminator="\n"
    )
    writer.writeheader()
    writer.writerows(rows)
    content = text.getvalue().encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def _trained(recipe):
    """Train the one job of a recipe in this process, and keep its predictions; returns its id."""
    runs = Runs(Path("runs"))
    (planned,) = make_plan(load_recipe(recipe), data_dir=Path("data"), runs=runs).jobs
    request = JobRequest(
        job=planned.job,
        dataset=planned.job_spec.dataset,
        arm="prime",
        table=str(planned.table_spec.folder(Path("data"))),
        runs="runs",
        device="cpu",
        threads=1,
        keep_predictions=True,
    )
    run_job(request, lambda _: None)
    return planned.job_id


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with a trained job on a log of one's own, and one on the synthetic log."""
    folder = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        Path("mylog.toml").write_text(CARD)
        Path("own.toml").write_text(RECIPE % ("mylog", 'card = "mylog.toml"'))
        _write(Path("mylog.csv"), _rows())
        api.prepare("mylog.toml", source="mylog.csv")
        settings = 'shape = "criteo"\nrows = 900\nnumeric = "log_bucket"'
        Path("synthetic.toml").write_text(RECIPE % ("synthetic", settings))
        api.prepare_recipe("synthetic.toml")
        jobs = {name: _trained(f"{name}.toml") for name in ("own", "synthetic")}
        Path("mylog.toml").unlink()  # the table has it
    return folder, jobs


@pytest.fixture
def jobs(made, monkeypatch):
    monkeypatch.chdir(made[0])
    return made[1]


@pytest.fixture
def kept(jobs):
    """The test split's probabilities of the own job, as its run kept them."""
    return np.load(f"runs/{jobs['own']}/predictions.npz")["test"]


def _test_rows():
    return [row for row in _rows() if row["when"] == "test"]


def _without(row, *names):
    return {name: value for name, value in row.items() if name not in names}


def _in_file(path):
    frame = pl.read_csv(path, schema={"row": pl.Int64, "probability": pl.Float32})
    assert frame["row"].to_list() == list(range(1, frame.height + 1))
    return frame["probability"].to_numpy()


FORMS = ["plain", "any order, no label", "gz", "tab", "parquet", "two files"]


@pytest.mark.parametrize("form", FORMS)
def test_rows_of_the_test_split_have_its_probabilities_to_the_bit(
    jobs, kept, tmp_path, form, capsys
):
    rows = _test_rows()
    names = [name for name in reversed(rows[0]) if name not in ("click", "when", "session")]
    files = [tmp_path / "new.csv"]
    if form == "plain":
        _write(files[0], rows)
    elif form == "any order, no label":
        _write(files[0], rows, names=names)
    elif form == "gz":
        files = [_write(tmp_path / "new.csv.gz", rows)]
    elif form == "tab":
        _write(files[0], rows, separator="\t")
    elif form == "parquet":
        files = [tmp_path / "new.parquet"]
        pl.DataFrame(rows).select(names).write_parquet(files[0])
    else:
        files = [tmp_path / "a.csv", tmp_path / "b.csv"]
        _write(files[0], rows[:100])
        _write(files[1], rows[100:], names=names)
    given = [word for file in files for word in ("--from", str(file))]

    output = tmp_path / "out.csv"
    assert exit_code(["predict", jobs["own"], *given, "--output", str(output)]) == 0
    out, err = capsys.readouterr()
    assert out == f"{output}: {len(rows)} rows\n"
    assert np.array_equal(_in_file(output), kept)
    # Of the card's own columns that are not needed nothing is said.
    assert "not on the card" not in err


@pytest.mark.usefixtures("jobs")
@pytest.mark.parametrize("shape", ["own", "synthetic"])
def test_ids_and_numbers_are_those_of_the_table(tmp_path, shape):
    """Also in blocks that are no blocks of the file."""
    (folder,) = Path("data").glob("mylog-*" if shape == "own" else "synthetic-*")
    table, file = PreparedTable.open(folder), tmp_path / "log.csv"
    if shape == "own":
        _write(file, _rows())
    else:
        _write(file, _synthetic_rows(table))
    rows = NewRows(table, file)
    blocks = list(rows.blocks(n_rows=97))

    assert [len(block) for block in blocks[:-1]] == [97] * (len(blocks) - 1)
    order = np.argsort(_splits(table, shape), kind="stable")
    for part in ("ids", "numerics"):
        found = np.concatenate([getattr(block, part) for block in blocks])
        wanted = np.concatenate([getattr(table.split(split), part) for split in SPLIT_NAMES])
        assert found.dtype == wanted.dtype
        assert np.array_equal(found[order], wanted), part
    assert rows.rows == table.manifest.rows.total
    # In the table, too, rare values have no id of their own.
    sizes = {field.name: field.vocabulary_size for field in table.schema.categorical}
    for column, (name, unknown) in enumerate(rows.unknown.items()):
        ids = np.concatenate([table.split(split).ids[:, column] for split in SPLIT_NAMES])
        outside = int((ids == sizes[name] - 1).sum())
        missing = table.manifest.missing[name].total
        zeros = outside - missing - unknown  # of log_bucket
        assert zeros == 0 or (zeros > 0 and name in _bucketed(table)), name


def _bucketed(table):
    return [name for name, fit in table.manifest.numeric.items() if fit.rule == "log_bucket"]


def _synthetic_rows(table):
    settings = SyntheticSettings(**{**table.manifest.settings})
    names = [column.name for column in columns(settings) if column.role == "numeric"]
    rows = []
    for chunk in chunks(settings):
        numbers = [
            {name: "" if np.isnan(x) else str(int(x)) for name, x in zip(names, row, strict=True)}
            for row in chunk.numerics
        ]
        texts = chunk.categories.to_dicts()
        rows += [{**a, **b} for a, b in zip(numbers, texts, strict=True)]
    return rows


def _splits(table, shape):
    if shape == "own":
        return np.array([SPLIT_NAMES.index(row["when"]) for row in _rows()])
    settings = SyntheticSettings(**{**table.manifest.settings})
    return np.concatenate([chunk.split for chunk in chunks(settings)])


def test_a_synthetic_job_predicts_its_test_split_to_the_bit(jobs, tmp_path):
    (folder,) = Path("data").glob("synthetic-*")
    table = PreparedTable.open(folder)
    rows = _synthetic_rows(table)
    chosen = [rows[i] for i in np.flatnonzero(_splits(table, "synthetic") == 2)]
    made = api.predict_rows(jobs["synthetic"], _write(tmp_path / "new.csv", chosen))

    wanted = np.load(f"runs/{jobs['synthetic']}/predictions.npz")["test"]
    assert np.array_equal(made.probabilities, wanted)
    assert (made.rows, made.conditions) == (len(wanted), [])


def test_unknown_values_are_counted_and_missing_ones_are_not(jobs, tmp_path, capsys):
    rows = _test_rows()[:4]
    for row in rows:
        row.update(short="a", long="a longer value 1", log_bucket="1", quantile="1e30")
    rows[0].update(short="never", long="a value that is never there")
    rows[1].update(short="", long="nope")
    rows[2].update(short="never", log_bucket="987654321")
    rows[3].update(log_bucket="")
    file = _write(tmp_path / "new.csv", [{**row, "more": "1", "again": ""} for row in rows])

    assert exit_code(["predict", jobs["own"], "--from", str(file)]) == 0
    out, err = capsys.readouterr()
    assert out.splitlines()[0] == "row,probability"
    assert len(out.splitlines()) == 5
    assert err.splitlines() == [
        f"{file}: not on the card, left out: `more`, `again`",
        "`short`: 2 of 4 values are not in the vocabulary (50.0%)",
        "`long`: 2 of 4 values are not in the vocabulary (50.0%)",
        "`log_bucket`: 1 of 4 values are not in the vocabulary (25.0%)",
    ]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda row: _without(row, "short") | {"shrt": "a"}, "missing `short`"),
        (lambda row: row | {"minmax": "much"}, "line 2: `minmax`: expected a finite number"),
        (lambda row: row | {"hour": "14102199"}, "line 2: `hour`: expected 8 digits"),
    ],
)
def test_a_file_that_does_not_fit_is_named_and_no_file_is_left(
    jobs, tmp_path, change, message, capsys
):
    file = _write(tmp_path / "new.csv", [change(row) for row in _test_rows()])
    output = tmp_path / "out" / "new.csv"

    assert exit_code(["predict", jobs["own"], "--from", str(file), "--output", str(output)]) == 3
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"error: {file}: ")
    assert message in err
    assert "short" not in message or "did you mean `shrt`?" in err
    assert "minmax" not in message or "but the card of this job is that of its table" in err
    assert list(output.parent.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["own.toml", "--from", "mylog.csv"], 2, "rows of a file are predicted by one job"),
        (["JOB", "--from", "none.csv"], 3, "none.csv: there is no such file"),
        (["JOB", "--from", "mylog.csv", "--only", "seed=1"], 2, "--from: takes a job"),
        (["JOB", "--output", "x.csv"], 2, "--output: is for the rows of --from"),
    ],
)
def test_what_is_refused(jobs, arguments, code, message, capsys):
    words = [jobs["own"] if word == "JOB" else word for word in arguments]

    assert exit_code(["predict", *words]) == code
    assert message in capsys.readouterr().err


@pytest.fixture
def copy(made, tmp_path, monkeypatch):
    """The own table and job in a folder of the test's own; returns the table's folder."""
    for name in ("data", "runs"):
        shutil.copytree(made[0] / name, tmp_path / name)
    shutil.copy(made[0] / "mylog.csv", tmp_path)
    monkeypatch.chdir(tmp_path)
    return next(Path("data").glob("mylog-*"))


def test_a_table_that_kept_no_constants_says_to_prepare_it_again(copy, made, capsys):
    """Tables of version 0.1.0: fingerprint and job stay what they are when they are made again."""
    manifest = json.loads((copy / MANIFEST_NAME).read_text())
    del manifest["numeric"]
    (copy / MANIFEST_NAME).write_text(json.dumps(manifest))

    assert exit_code(["predict", made[1]["own"], "--from", "mylog.csv"]) == 3
    err = capsys.readouterr().err
    assert "did not keep what the rule quantile of `quantile` was fitted to" in err
    assert "delete its folder and prepare it again" in err


@pytest.mark.parametrize("name", ["vocabulary/short.txt", "checkpoint.safetensors"])
def test_what_was_changed_is_refused(copy, made, name, capsys):
    file = copy / name if "/" in name else Path("runs") / made[1]["own"] / name
    content = bytearray(file.read_bytes())
    content[-2] ^= 1
    file.write_bytes(content)

    assert exit_code(["predict", made[1]["own"], "--from", "mylog.csv"]) == 3
    assert str(file) in capsys.readouterr().err

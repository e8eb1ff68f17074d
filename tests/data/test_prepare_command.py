"""`prime-bench prepare` on the command line."""

import json

import pytest
from click.testing import CliRunner

from prime_bench.cli.main import cli, exit_code
from prime_bench.cli.prepare import prepare as command
from prime_bench.data.manifest import resolve
from prime_bench.data.table import PreparedTable
from prime_bench.settings.data import LogSettings, SyntheticSettings


def run(capsys, *arguments):
    code = exit_code(["prepare", *map(str, arguments)])
    captured = capsys.readouterr()
    assert code == 0, captured.err
    return captured


def test_json(tmp_path, avazu_folder, capsys):
    flags = ["--from", avazu_folder, "--allow-unverified", "--data-dir", tmp_path, "--json"]
    out, err = run(capsys, "avazu", *flags)
    content = json.loads(out)
    assert content["schema"] == 1
    assert content["dataset"] == "avazu"
    assert content["rows"] == {"train": 300, "valid": 40, "test": 60}
    assert content["fields"] == 22
    assert content["verified"] is False
    table = PreparedTable.open(content["path"])
    assert content["fingerprint"] == table.manifest.fingerprint
    # No terminal, no progress.
    assert err == ""


def test_summary(tmp_path, avazu_folder, capsys):
    flags = ["--from", avazu_folder, "--allow-unverified", "--data-dir", tmp_path]
    out, _ = run(capsys, "avazu", *flags)
    spec = resolve("avazu", {})
    manifest = spec.manifest(tmp_path)
    for text in (
        str(spec.folder(tmp_path)),
        f"{manifest.vocabulary_total:,} ids",
        manifest.fingerprint[:12],
        f"{manifest.positives.train / 300:.4f} positive",
        "note: unverified",
    ):
        assert text in out
    assert [line.split()[-1] for line in out.splitlines() if "verified  " in line] == ["no"]


def test_folder_from_the_environment(tmp_path, avazu_folder, monkeypatch, capsys):
    monkeypatch.setenv("PRIME_BENCH_DATA", str(tmp_path / "elsewhere"))
    run(capsys, "avazu", "--from", avazu_folder, "--allow-unverified")
    assert resolve("avazu", {}).manifest(tmp_path / "elsewhere") is not None


def test_synthetic_summary_has_the_best_possible_metrics(tmp_path, capsys):
    flags = ["--rows", "3000", "--shape", "criteo", "--strength", "0.5", "--seed", "4"]
    out, err = run(capsys, "synthetic", *flags, "--data-dir", tmp_path)
    assert "best possible on test: AUC 0." in out
    assert err == ""
    (folder,) = tmp_path.iterdir()
    settings = PreparedTable.open(folder).manifest.settings
    assert [settings[key] for key in ("rows", "shape", "strength", "seed")] == [
        *(3000, "criteo", 0.5, 4)
    ]


@pytest.mark.parametrize("more", [[], ["--raw", "raw"]])
def test_a_single_test_row_has_no_best(tmp_path, monkeypatch, capsys, more):
    monkeypatch.chdir(tmp_path)

    out, _ = run(capsys, "synthetic", "--rows", 20, *more)

    assert "best possible on test: none, its rows are too few" in out


@pytest.mark.parametrize(
    ("flags", "name"),
    [
        ([], "avazu-raw"),
        (["--raw-format", "avazu"], "avazu"),
        (["--shape", "criteo"], "criteo"),
    ],
)
def test_raw_files_are_read_by_their_reader(tmp_path, capsys, flags, name):
    raw = tmp_path / "raw"
    flags = ["synthetic", "--rows", "20000", "--raw", raw, *flags]
    out, _ = run(capsys, *flags)
    assert f"20,000 rows as files of {name}" in out
    source = raw / "train.csv" if name == "avazu-raw" else raw
    unverified = [] if name == "avazu-raw" else ["--allow-unverified"]
    flags = ["--from", source, "--data-dir", tmp_path / "data", "--json", *unverified]
    content = json.loads(run(capsys, name, *flags).out)
    assert sum(content["rows"].values()) == 20_000


def test_raw_and_direct_tables_hold_the_same_rows(tmp_path, capsys):
    """Two ways from one seed to a table: through files and the reader, and without."""
    rows = ["--rows", "9000", "--shape", "criteo"]
    run(capsys, "synthetic", *rows, "--raw", tmp_path / "raw")
    flags = ["--data-dir", tmp_path / "data", "--json", "--min-count", "10", "--numeric", "raw"]
    read = json.loads(
        run(capsys, "criteo", "--from", tmp_path / "raw", "--allow-unverified", *flags).out
    )
    made = json.loads(run(capsys, "synthetic", *rows, *flags).out)
    first, second = PreparedTable.open(read["path"]), PreparedTable.open(made["path"])
    for split in ("train", "valid", "test"):
        for kind in ("ids", "numerics", "labels"):
            a, b = getattr(first.split(split), kind), getattr(second.split(split), kind)
            assert a.tobytes() == b.tobytes(), (split, kind)


REFUSED = [
    (["crieto"], 2, "no data set `crieto`; did you mean `criteo`?"),
    (["avazu", "--split", "hash"], 2, "--split: avazu has no such setting"),
    (["avazu", "--seed", "1", "--rows", "5"], 2, "--seed, --rows: avazu has no such setting"),
    (["avazu", "--seed", "1"], 2, "\n\nhint: its flags: --vocabulary, --numeric, --bins, --min-co"),
    (["avazu", "--numeric", "raw"], 2, "numeric: avazu has no numeric fields"),
    (["criteo", "--numeric", "log"], 2, "numeric: input should be 'raw', 'log_bucket'"),
    (["criteo", "--min-count", "0"], 2, "min_count: input should be greater than or equal to 1"),
    (["criteo", "--min-count", "x"], 2, "'x' is not a valid integer"),
    (["criteo", "--zero-is-missing", "no"], 2, "zero_is_missing: has an effect with"),
    (["avazu", "--raw", "x"], 2, "--raw: avazu is not generated"),
    (["avazu", "--raw-format", "avazu"], 2, "--raw: avazu is not generated"),
    (["synthetic", "--raw-format", "avazu"], 2, "--raw-format: needs --raw DIR"),
    (["synthetic", "--from", "x"], 2, "source (--from): synthetic is generated"),
    (["synthetic", "--allow-unverified"], 2, "(--allow-unverified): no digests are published"),
    (["synthetic", "--raw", "x", "--min-count", "2"], 2, "--min-count: without effect on raw"),
    (["synthetic", "--raw", "x", "--from", "y", "--allow-unverified"], 2, "--from, --allow-unver"),
    (["synthetic", "--raw", "x", "--raw-format", "criteo"], 2, "needs shape `criteo`"),
    (["synthetic", "--shape", "movielens"], 2, "shape: input should be 'avazu' or 'criteo'"),
    (["avazu-raw", "--split-fractions", "8:1:1"], 2, "expected three numbers such as"),
    (["avazu-raw", "--split-fractions", "0.5,0.5"], 2, "split_fractions"),
    (["avazu-raw", "--split-fractions", "8,1,1"], 2, "the three fractions must add up to 1"),
    ([], 2, "Missing argument 'NAME'"),
    (["avazu", "--form", "x"], 2, "No such option"),
]


@pytest.mark.parametrize(("arguments", "code", "expected"), REFUSED)
def test_wrong_arguments(tmp_path, monkeypatch, capsys, arguments, code, expected):
    monkeypatch.chdir(tmp_path)
    assert exit_code(["prepare", *arguments]) == code
    err = capsys.readouterr().err
    assert expected in err
    assert list(tmp_path.iterdir()) == []


def test_split_flags_reach_the_settings(tmp_path, raw_log, csv, capsys):
    path = csv(tmp_path / "log", raw_log)
    flags = ["--split-fractions", "0.5,0.25,0.25", "--split-seed", "3", "--min-count", "2"]
    flags += ["--vocabulary", "train", "--data-dir", tmp_path / "data", "--json"]
    content = json.loads(run(capsys, "avazu-raw", "--from", path, *flags).out)
    expected = {"split_fractions": [0.5, 0.25, 0.25], "split_seed": 3}
    expected |= {"min_count": 2, "vocabulary": "train"}
    assert {key: content["settings"][key] for key in expected} == expected
    assert 150 < content["rows"]["train"] < 250


def test_every_setting_has_a_flag():
    flags = {option.name for option in command.params}
    assert {*LogSettings.model_fields, *SyntheticSettings.model_fields} <= flags


def test_messages_go_to_stderr(tmp_path, avazu_folder):
    flags = ["--from", str(avazu_folder), "--allow-unverified", "--data-dir", str(tmp_path / "d")]
    runner = CliRunner()
    assert runner.invoke(cli, ["prepare", "avazu", *flags]).exit_code == 0
    path = avazu_folder / "test.csv"
    path.write_text(path.read_text().replace(",1,", ",2,", 1))
    result = runner.invoke(cli, ["prepare", "avazu", *flags, "--json"])
    assert "preparing it again" in result.stderr
    assert json.loads(result.stdout)["dataset"] == "avazu"


@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help(flag):
    result = CliRunner().invoke(cli, ["prepare", flag])
    assert result.exit_code == 0
    assert "--allow-unverified" in result.stdout

"""`report --metric`, and the numbers of runs in JSON and CSV."""

import io
import json
from collections.abc import Callable
from pathlib import Path
from statistics import mean

import polars as pl
import pytest

from prime_bench import api
from prime_bench.base.errors import UsageError
from prime_bench.cli.main import exit_code
from prime_bench.findings import CalibrationBin, GroupCounts, Score
from prime_bench.report.quantities.formulas import (
    difference_text,
    improvements,
    probability_of_improvement,
)
from prime_bench.store.record import RunRecord
from prime_bench.store.runs import Runs

MakeRecord = Callable[..., RunRecord]
SEEDS = (1, 2, 3)
PCOC = {"dense": (0.90, 1.20, 1.01), "prime": (1.05, 0.85, 1.01)}
GAUC = {"dense": (0.60, 0.61, 0.62), "prime": (0.63, 0.60, 0.66)}


def with_metrics(record: RunRecord, *, pcoc: float | None, gauc: float | None) -> RunRecord:
    """The record with a PCOC and a group AUC on test rows; without groups where that is None."""
    groups = GroupCounts(
        column="user", groups=2, rows=8, one_class_groups=1, one_class_rows=2, rows_without_group=0
    )
    test = Score(
        auc=record.result.test.auc,
        logloss=record.result.test.logloss,
        gauc=gauc,
        ne=0.8,
        pcoc=pcoc,
        ece=0.02,
        ece_all=0.01,
        deciles=[CalibrationBin(rows=10, clicks=2, predicted=2.1)],
        groups=None if gauc is None else groups,
    )
    result = record.result.model_copy(update={"test": test})
    return record.model_copy(update={"result": result})


@pytest.fixture
def runs(tmp_path: Path, make_record: MakeRecord) -> Path:
    folder = Runs(tmp_path / "runs")
    for arm in ("dense", "prime"):
        for seed, pcoc, gauc in zip(SEEDS, PCOC[arm], GAUC[arm], strict=True):
            record = make_record(arm=arm, seed=seed)
            folder.put(with_metrics(record, pcoc=pcoc, gauc=gauc))
    return folder.folder


def by_hand(metric: str) -> list[float]:
    if metric == "pcoc":
        return [abs(a - 1) - abs(b - 1) for a, b in zip(PCOC["dense"], PCOC["prime"], strict=True)]
    return [b - a for a, b in zip(GAUC["dense"], GAUC["prime"], strict=True)]


@pytest.mark.parametrize(
    ("metric", "expected"),
    [
        ("auc", [0.25, -0.25]),
        ("gauc", [0.25, -0.25]),
        ("logloss", [-0.25, 0.25]),
        ("ne", [-0.25, 0.25]),
        ("ece", [-0.25, 0.25]),
        ("ece_all", [-0.25, 0.25]),
        # 0.75 and 1.25 are as far from 1 as each other, 1 is nearer than both.
        ("pcoc", [0.25, -0.25]),
    ],
)
def test_a_positive_difference_is_better(metric, expected):
    baseline, arm = [0.75, 1.0], [1.0, 0.75]
    assert improvements(metric, baseline=baseline, arm=arm).tolist() == expected


def test_of_two_ratios_the_nearer_to_one_is_better():
    assert improvements("pcoc", baseline=[0.9, 1.25], arm=[1.05, 0.75]).tolist() == pytest.approx(
        [0.05, 0]
    )
    assert probability_of_improvement("pcoc", baseline=[0.9, 1.25], arm=[1.0]) == 1
    assert (
        difference_text("pcoc", arm="PRIME", baseline="Dense")
        == "|Dense \N{MINUS SIGN} 1| \N{MINUS SIGN} |PRIME \N{MINUS SIGN} 1|"
    )
    assert difference_text("ne", arm="PRIME", baseline="Dense") == "Dense \N{MINUS SIGN} PRIME"


def test_the_main_table_shows_any_metric(runs: Path) -> None:
    made = api.report(metrics=["pcoc", "gauc"], runs_dir=runs)
    (table,) = made.report.tables
    (block,) = table.blocks
    keys = ("pcoc.dense", "pcoc.prime", "pcoc.prime.delta")
    shown = [key for key in (column.key for column in block.columns) if key.startswith("pcoc")]
    assert tuple(shown) == keys
    assert not any(c.key.startswith(("auc", "logloss")) for c in block.columns)
    better = {column.key: column.better for column in block.columns}
    assert [better[key] for key in keys] == ["nearest 1", "nearest 1", "higher"]
    for metric, levels in (("pcoc", PCOC), ("gauc", GAUC)):
        assert block.cell("DNN", f"{metric}.prime").value == pytest.approx(mean(levels["prime"]))
        change = block.cell("DNN", f"{metric}.prime.delta").quantity
        assert change.value == pytest.approx(mean(by_hand(metric)))
        assert (change.tally.wins, change.tally.ties, change.tally.losses) == (
            sum(value > 0 for value in by_hand(metric)),
            sum(value == 0 for value in by_hand(metric)),
            sum(value < 0 for value in by_hand(metric)),
        )
        won = block.cell("pairs_won", f"{metric}.prime.delta").quantity
        assert (won.value, won.of, won.ties) == (2, 3, 0 if metric == "gauc" else 1)
    minus = "\N{MINUS SIGN}"
    differences = (
        f"|Dense {minus} 1| {minus} |arm {minus} 1| for PCOC and arm {minus} Dense for GAUC"
    )
    assert differences in table.caption


def test_tests_and_pairs_are_of_the_metric(runs: Path) -> None:
    made = api.report(metrics=["gauc"], level="full", runs_dir=runs)
    tables = {table.name: table for table in made.report.tables}
    (row,) = tables["family"].blocks[0].rows
    assert row.key == "prime.dense.gauc"
    found = tables["cells"].blocks[0]
    assert found.cell("DNN.prime", "gauc.median").value == pytest.approx(0.03)
    assert found.cell("DNN.prime", "gauc.won").value == 2
    assert found.cell("DNN.prime", "gauc.wilcoxon").value == 0.5
    pairs = tables["pairs"].blocks[0]
    seeds = [pairs.cell("DNN.prime", f"gauc.{seed}").value for seed in SEEDS]
    assert seeds == pytest.approx(by_hand("gauc"))


def test_figures_show_the_metric(runs: Path) -> None:
    figures = api.report(metrics=["pcoc", "ne"], runs_dir=runs).figures
    wins = next(figure for name, figure in figures.items() if name.startswith("wins"))
    assert [axes.get_title() for axes in wins.axes[:2]] == ["PCOC: 2 of 3 won", "NE: 0 of 3 won"]
    pairs = next(figure for name, figure in figures.items() if name.startswith("pairs"))
    assert "Test PCOC" in {axes.get_ylabel() for axes in pairs.axes}
    # What is called equivalent is a difference of AUC.
    for metrics, n_bands in (["pcoc"], 0), (["auc"], 1):
        figures = api.report(metrics=metrics, runs_dir=runs).figures
        forest = next(figure for name, figure in figures.items() if name.startswith("forest"))
        assert len(forest.axes[0].patches) == n_bands


def test_records_without_a_metric_have_a_dash_and_a_note(
    tmp_path: Path, make_record: MakeRecord
) -> None:
    folder = Runs(tmp_path / "runs")
    for arm in ("dense", "prime"):
        folder.put(make_record(arm=arm, seed=1))  # of an older version
        folder.put(with_metrics(make_record(arm=arm, seed=2), pcoc=1.5, gauc=None))
    made = api.report(metrics=["gauc", "pcoc"], runs_dir=folder.folder)
    (table,) = made.report.tables
    assert table.blocks[0].cell("DNN", "gauc.dense").value is None
    assert table.blocks[0].cell("DNN", "pcoc.dense").value == 1.5
    text = made.render("text")
    flat = " ".join(text.split())
    for reason in (
        "no test GAUC for 2 of 4 runs: their records are of a version before it",
        "no test GAUC for 2 of 4 runs: their table was prepared without `gauc_by`",
        "no test PCOC for 2 of 4 runs: their records are of a version before it",
    ):
        assert reason in flat
    assert "--" in text
    assert "before it" not in " ".join(api.report(runs_dir=folder.folder).render("text").split())


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        (["--metric", "gauk"], "--metric gauk: no such metric; did you mean `gauc`"),
        (["--metric", "ne", "--against", "paper"], "--metric goes with records alone"),
        (["--metric", "ne", "--table", "dense_weight"], "dense_weight shows metrics of its own"),
        (["--metric", "ne", "--table", "gdcn_seeds"], "gdcn_seeds shows metrics of its own"),
    ],
)
def test_faults_of_metric(runs: Path, capsys, arguments, fault):
    assert exit_code(["report", "--runs-dir", str(runs), *arguments]) == 2
    assert fault in capsys.readouterr().err


def test_json_and_csv_have_validation_epochs_and_times(runs: Path, capsys) -> None:
    assert exit_code(["report", "--runs-dir", str(runs), "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    records = {record.job_id: record for record in Runs(runs).readable()[0]}
    assert {run["job_id"] for run in content["runs"]} == set(records)
    for run in content["runs"]:
        record = records[run["job_id"]]
        assert run["test"] == record.result.test.plain()
        assert run["valid"]["auc"] == record.result.valid.auc
        assert (run["epochs"], run["wall_s"]) == (record.result.epochs, record.wall_s)
        assert run["epoch_s"] == record.epoch_s

    assert exit_code(["report", "--runs-dir", str(runs), "--format", "csv"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("table,block,")
    frame = pl.read_csv(io.StringIO(out), infer_schema_length=None)
    cell = frame.filter((pl.col("row") == "DNN") & (pl.col("column") == "auc.dense"))
    dense = [record for record in records.values() if record.arm == "dense"]
    assert cell["valid_auc"].item() == pytest.approx(mean(r.result.valid.auc for r in dense))
    assert cell["epochs"].item() == mean(r.result.epochs for r in dense)
    assert cell["wall_s"].item() == pytest.approx(mean(r.wall_s for r in dense))
    # A difference is of two arms: no number is that of its runs.
    change = frame.filter((pl.col("row") == "DNN") & (pl.col("column") == "auc.prime.delta"))
    assert change["jobs"].item().count(" ") == 5
    assert change["epochs"].item() is None


def test_csv_files_open_in_a_spreadsheet_and_in_programs(runs: Path, tmp_path: Path) -> None:
    made = api.report(runs_dir=runs)
    made.write(tmp_path / "out", format="csv")
    content = (tmp_path / "out" / "main.csv").read_bytes()
    assert content.startswith(b"\xef\xbb\xbftable,block,")
    assert content[3:].decode() == made.render("csv")
    assert pl.read_csv(content).columns == made.cells().columns


def test_names_of_metrics_in_python(runs: Path) -> None:
    with pytest.raises(UsageError, match="metrics: a list of names is wanted"):
        api.report(metrics="gauc", runs_dir=runs)

"""The comparison with FuxiCTR: its verdicts, and a whole run on a stand-in for the model zoo."""

import importlib
import json
import math
import shutil
import sys
import warnings
from concurrent.futures import Future
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from prime_bench.base.errors import UsageError
from prime_bench.data.table import PreparedTable

ROOT = Path(__file__).parents[2]
RECIPE = """
schema = 1
title = "t"
seeds = [1]
arms = ["dense"]
[dataset.tiny]
[training]
batch_size = 50
learning_rate = 0.02
max_epochs = 3
embedding_dim = 4
[backbone.DNN]
hidden_units = [8]
batch_norm = true
embedding_l2 = 1e-4
"""
STAND_IN = """
from fuxictr.pytorch.layers import FeatureEmbedding, MLP_Block
from fuxictr.pytorch.models import BaseModel


class DNN(BaseModel):
    def __init__(self, feature_map, embedding_dim=10, hidden_units=[64], net_dropout=0,
                 batch_norm=False, learning_rate=1e-3, **kwargs):
        super().__init__(feature_map, **kwargs)
        self.embedding_layer = FeatureEmbedding(feature_map, embedding_dim)
        self.mlp = MLP_Block(
            input_dim=feature_map.sum_emb_out_dim(), output_dim=1, hidden_units=hidden_units,
            output_activation=self.output_activation, dropout_rates=net_dropout,
            batch_norm=batch_norm,
        )
        self.compile(kwargs["optimizer"], kwargs["loss"], learning_rate)
        self.reset_parameters()

    def forward(self, inputs):
        return {"y_pred": self.mlp(self.embedding_layer(self.get_inputs(inputs), flatten_emb=True))}
"""


@pytest.fixture(scope="module")
def module():
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        patch.syspath_prepend(str(ROOT / "benchmarks"))
        warnings.simplefilter("ignore")
        # It imports FuxiCTR's layers first, without its preprocessing.
        found = importlib.import_module("against_fuxictr")
        importlib.import_module("fuxictr.pytorch.models")
        importlib.import_module("fuxictr.pytorch.dataloaders")
    return found


@pytest.fixture
def script(module, monkeypatch):
    """The script, with both sides in this process, which saves the start of two others."""

    class Here:
        def __init__(self, *_: object, **__: object) -> None:
            pass

        def __enter__(self):
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def submit(self, work, run):
            future: Future = Future()
            future.set_result(work(run))
            return future

    monkeypatch.setattr(module, "ProcessPoolExecutor", Here)
    monkeypatch.setattr(module, "keep_freed_memory", lambda: None)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("PYTHONHASHSEED", "0")
    yield module
    for name in [name for name in sys.modules if name.startswith("fuxictr_zoo_")]:
        del sys.modules[name]


@pytest.fixture
def arguments(table, tmp_path):
    """A prepared table with its vocabulary, a recipe and a zoo."""
    folder = tmp_path / "data" / "tiny-12345678"
    shutil.copytree(table, folder)
    (folder / "vocabulary").mkdir(exist_ok=True)
    for field in PreparedTable.open(folder).schema.categorical:
        values = "".join(f"v{i}\n" for i in range(field.vocabulary_size - 2))
        (folder / "vocabulary" / f"{field.name}.txt").write_text(values)
    (tmp_path / "recipe.toml").write_text(RECIPE)
    zoo = tmp_path / "zoo" / "DNN" / "DNN_torch" / "src"
    zoo.mkdir(parents=True)
    (zoo / "DNN.py").write_text(STAND_IN)
    return {
        "--table": folder,
        "--recipe": tmp_path / "recipe.toml",
        "--zoo": tmp_path / "zoo",
        "--out": tmp_path / "out",
        "--seeds": 2,
    }


def run(script, arguments, monkeypatch):
    """The script's exit code."""
    words = [str(word) for pair in arguments.items() for word in pair]
    monkeypatch.setattr(sys, "argv", ["against_fuxictr.py", *words])
    with pytest.raises(SystemExit) as ended:
        script.main()
    return ended.value.code


def test_both_sides_train_and_the_report_has_their_means(script, arguments, monkeypatch, capsys):
    code = run(script, arguments, monkeypatch)

    shown = capsys.readouterr()
    report = json.loads((arguments["--out"] / "report.json").read_text())
    assert shown.out.startswith("tiny: 321 / 150 / 140 rows")
    assert (arguments["--out"] / "report.md").read_text() == shown.out
    auc, logloss = report["compared"]
    for line, key in ((auc, "auc"), (logloss, "logloss")):
        for side in ("ours", "FuxiCTR"):
            runs = [
                json.loads((arguments["--out"] / f"DNN-{side}-{seed}.json").read_text())
                for seed in (1, 2)
            ]
            values = [run["test"][key] for run in runs]
            assert line[side]["n"] == 2
            assert line[side]["mean"] == pytest.approx(sum(values) / 2)
            assert values[0] != values[1], "seeds differ"
            assert all(1 <= run["epochs"] <= 3 for run in runs)
    assert min(auc["ours"]["mean"], auc["FuxiCTR"]["mean"]) > 0.6, "both have learnt"
    assert {line["side"] for line in report["speeds"]} == {"ours", "FuxiCTR"}
    verdicts = {line["verdict"] for line in report["compared"]}
    worst = next(v for v in ("different", "inconclusive", "equivalent") if v in verdicts)
    assert code == script.EXIT_CODES[worst]


DROPPING = RECIPE.replace("batch_norm = true", "batch_norm = true\nnet_dropout = 0.5")


def test_from_an_equal_start_both_sides_have_equal_scores(script, arguments, monkeypatch, capsys):
    arguments["--recipe"].write_text(DROPPING)

    assert run(script, {**arguments, "--equal-start": 4}, monkeypatch) == 0

    lines = json.loads((arguments["--out"] / "report.json").read_text())["compared"]
    assert [(line["seed"], line["verdict"]) for line in lines] == [(1, "equal"), (2, "equal")]
    assert lines[0]["ours"] != lines[1]["ours"]
    for line in lines:
        assert abs(line["difference"]["auc"]) < 1e-5
        assert abs(line["difference"]["logloss"]) < 1e-7
        assert line["FuxiCTR"]["auc"] > 0.6
    runs = [json.loads(file.read_text()) for file in arguments["--out"].glob("DNN-*.json")]
    assert [run["epochs"] for run in runs] == [4] * 4, "no early stop"
    assert "4 epoch(s) in float64 from one start" in capsys.readouterr().out


COMPILED = "self.compile(kwargs"


@pytest.mark.parametrize(
    ("was", "becomes"),
    [
        (COMPILED, f"learning_rate *= 1.01\n        {COMPILED}"),
        (COMPILED, f"kwargs['optimizer'] = 'Adamax'\n        {COMPILED}"),
        ("batch_norm=batch_norm,", "batch_norm=batch_norm, hidden_activations='Tanh',"),
    ],
)
def test_another_rate_optimizer_or_model_is_different_from_an_equal_start(
    script, arguments, monkeypatch, was, becomes
):
    changed = STAND_IN.replace(was, becomes)
    assert changed != STAND_IN
    script.model_file(arguments["--zoo"], "DNN").write_text(changed)

    assert run(script, {**arguments, "--equal-start": 2, "--seeds": 1}, monkeypatch) == 1


def test_a_finished_run_is_not_done_again(script, arguments, monkeypatch, capsys):
    run(script, arguments, monkeypatch)
    before = capsys.readouterr()
    (arguments["--out"] / "DNN-FuxiCTR-2.json").unlink()
    asked: list[str] = []
    for name in ("run_ours", "run_theirs"):
        original = getattr(script, name)
        monkeypatch.setattr(
            script, name, lambda run, original=original: asked.append(run.name) or original(run)
        )

    run(script, arguments, monkeypatch)

    def compared(text):
        return text.partition("| backbone   | side")[0]

    assert asked == ["DNN-FuxiCTR-2"]
    assert compared(capsys.readouterr().out) == compared(before.out), "a seed repeats its run"


def test_a_finished_run_with_other_settings_is_refused(script, arguments, monkeypatch, capsys):
    run(script, arguments, monkeypatch)
    arguments["--recipe"].write_text(RECIPE.replace("[8]", "[16]"))

    assert run(script, arguments, monkeypatch) == 2

    error = capsys.readouterr().err
    assert "DNN-ours-1.json: is a run with other settings" in error
    assert "hint: name another folder with --out" in error


@pytest.mark.parametrize(
    ("recipe", "changes", "message"),
    [
        (RECIPE, {"--zoo": Path("/nowhere")}, "/nowhere: no DNN/src/DNN.py or DNN/DNN_torch"),
        (RECIPE, {"--backbones": "AFM"}, "no backbone `AFM`"),
        (RECIPE, {"--dataset": "other"}, "no data set `other`"),
        (
            RECIPE.replace("batch_size = 50", "batch_size = 64"),  # 321 = 5 x 64 + 1
            {},
            "the last batch has one row",
        ),
        (
            RECIPE.replace("max_epochs = 3", 'loss = "logit"'),
            {},
            "training.loss: FuxiCTR has only probability",
        ),
    ],
)
def test_mistakes_are_reported(script, arguments, monkeypatch, capsys, recipe, changes, message):
    arguments["--recipe"].write_text(recipe)

    assert run(script, {**arguments, **changes}, monkeypatch) == 2
    assert message in capsys.readouterr().err


def test_a_key_that_fuxictrs_class_would_swallow_is_refused(script, arguments, monkeypatch, capsys):
    file = script.model_file(arguments["--zoo"], "DNN")
    without = STAND_IN.replace("net_dropout=0,", "").replace("dropout_rates=net_dropout,", "")
    file.write_text(without)

    assert run(script, arguments, monkeypatch) == 2
    assert "DNN has no argument net_dropout" in capsys.readouterr().err


def test_a_stop_keeps_what_is_finished(script, arguments, monkeypatch):
    def killed(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(script, "run_theirs", killed)
    words = [str(word) for pair in arguments.items() for word in pair]
    monkeypatch.setattr(sys, "argv", ["against_fuxictr.py", *words])
    with pytest.raises(KeyboardInterrupt):
        script.main()

    assert [path.name for path in arguments["--out"].glob("*.json")] == ["DNN-ours-1.json"]


VALUES = st.lists(st.floats(0.4, 0.9), min_size=2, max_size=8).filter(
    lambda values: max(values) - min(values) > 1e-3
)


@given(ours=VALUES, theirs=VALUES)
def test_the_interval_is_welchs(module, ours, theirs):
    found = module.Comparison(ours=ours, theirs=theirs)
    expected = stats.ttest_ind(ours, theirs, equal_var=False).confidence_interval(0.9)

    assert found.interval == pytest.approx((expected.low, expected.high), abs=1e-12)


@given(ours=VALUES, theirs=VALUES)
def test_equivalent_is_what_two_one_sided_tests_say(module, ours, theirs):
    found = module.Comparison(ours=ours, theirs=theirs)
    margin = found.margin

    def p_value(shift, alternative):
        moved = [value + shift for value in ours]
        return stats.ttest_ind(moved, theirs, equal_var=False, alternative=alternative).pvalue

    largest = max(p_value(margin, "greater"), p_value(-margin, "less"))
    if abs(largest - 0.05) > 1e-9:
        assert (found.verdict == "equivalent") == (largest < 0.05)


@pytest.mark.parametrize(
    ("shift", "spread", "n", "verdict"),
    [
        (0.0, 0.0004, 5, "equivalent"),
        (0.0005, 0.0002, 5, "equivalent"),
        (0.0, 0.002, 5, "inconclusive"),
        (0.0011, 0.001, 5, "inconclusive"),
        (0.01, 0.001, 5, "different"),
        (-0.01, 0.001, 5, "different"),
        # A third of the deviation is the margin where that is more than 0.001.
        (0.0, 0.03, 200, "equivalent"),
    ],
)
def test_verdicts(script, shift, spread, n, verdict):
    theirs = [0.94 + spread * (i % 5 - 2) / math.sqrt(2.5) for i in range(n)]
    found = script.Comparison(ours=[value + shift for value in theirs], theirs=theirs)

    assert found.verdict == verdict
    if verdict == "inconclusive" and found.seeds is not None:
        times = math.ceil(found.seeds / 5)
        many = script.Comparison(ours=list(found.ours) * times, theirs=list(theirs) * times)
        assert many.verdict == "equivalent" if shift == 0 else many.verdict != "equivalent"


def test_the_seeds_that_would_be_needed_are_the_fewest(script):
    found = script.Comparison(ours=[0.940, 0.943, 0.946], theirs=[0.941, 0.943, 0.945])
    n = found.seeds
    room = found.margin - abs(found.difference)

    def half(n):
        return stats.t.ppf(0.95, 2 * n - 2) * found.pooled * math.sqrt(2 / n)

    assert n is not None
    assert half(n) < room <= half(n - 1)


def test_a_model_file_may_import_its_neighbours(script, tmp_path):
    folder = tmp_path / "Two" / "src"
    folder.mkdir(parents=True)
    (folder / "layers.py").write_text("WIDTH = 7\n")
    (folder / "Two.py").write_text("from .layers import WIDTH\n\n\nclass Two:\n    width = WIDTH\n")

    assert script.model_class(script.model_file(tmp_path, "Two")).width == 7
    with pytest.raises(UsageError, match="model_zoo of a checkout"):
        script.model_file(tmp_path, "Three")

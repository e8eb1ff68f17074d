"""The checks for a GPU, on the CPU: the script as it will run there, and what makes it say no."""

import importlib
import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from prime_bench.data.manifest import SplitCounts
from prime_bench.data.table import PreparedTable
from prime_bench.recipe.file import load_recipe
from prime_bench.training.metrics import auc, logloss

ROOT = Path(__file__).parents[2]
CPU = torch.device("cpu")


@pytest.fixture
def load(monkeypatch):
    """A module beside the script, as the script imports it."""
    for folder in ("benchmarks", "scripts"):
        monkeypatch.syspath_prepend(str(ROOT / folder))
    return importlib.import_module


@pytest.fixture
def bench(load, tmp_path):
    return load("gpu_checks").Bench(
        device=CPU,
        small=True,
        backbones=["DNN"],
        folder=tmp_path,
        deadline=time.perf_counter() + 600,
        recipe=load_recipe("cost"),
    )


def test_the_whole_script_on_the_cpu(tmp_path):
    checks = ["agreement", "determinism", "epoch", "evaluation"]
    done = subprocess.run(
        [
            *("sh", str(ROOT / "scripts" / "gpu_check.sh"), "--device", "cpu", "--small"),
            *("--backbones", "DNN", "--only", *checks, "--threads", "1"),
            *("--output", str(tmp_path / "out"), "--work", str(tmp_path)),
        ],
        env={"PATH": "/usr/bin:/bin", "PYTHON": sys.executable, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    content = json.loads((tmp_path / "out" / "gpu_check.json").read_text())
    verdicts = {name: result["verdict"] for name, result in content["checks"].items()}
    assert verdicts == dict.fromkeys(["agreement", "determinism", "generate", *checks[2:]], "ok")
    assert content["checks"]["agreement"]["figures"]["float64 weight"] == 0
    assert set(content["checks"]["epoch"]["figures"]) == {"DNN dense", "DCNv2 prime"}
    assert "check        verdict" in done.stdout
    # Neither the rows nor the packages stay; torch's own cache may.
    left = {path.name for path in tmp_path.iterdir()} - {"out"}
    assert not [name for name in left if not name.startswith("torchinductor")]


class TestVerdicts:
    @pytest.fixture
    def script(self, load):
        return load("gpu_check")

    def test_a_fault_is_wrong_and_keeps_what_needs_it_from_starting(
        self, script, bench, monkeypatch, capsys
    ):
        def fails(_bench):
            raise RuntimeError("out of luck\nand more")

        monkeypatch.setitem(script.CHECKS, "generate", fails)
        results = {}
        for name in ("generate", "epoch"):
            results[name] = script._done(bench, name, results)

        assert results["generate"]["verdict"] == "WRONG"
        assert results["generate"]["why"] == "RuntimeError: out of luck"
        assert (results["epoch"]["verdict"], results["epoch"]["why"]) == (
            "skipped",
            "without generate",
        )
        assert "out of luck" in capsys.readouterr().err

    def test_a_wrong_check_is_exit_code_1(self, script, monkeypatch, tmp_path, capsys):
        monkeypatch.setattr(sys, "argv", ["gpu_check.py", "--device", "cpu", "--only", "generate"])
        monkeypatch.setitem(script.CHECKS, "generate", lambda _: {"rows": 1 / 0})
        monkeypatch.setenv("OUT", str(tmp_path / "out"))

        assert script.main() == 1
        assert "ZeroDivisionError" in capsys.readouterr().out
        assert (tmp_path / "out" / "gpu_check.json").is_file()

    def test_no_check_starts_after_the_deadline(self, script, bench):
        bench.deadline = time.perf_counter() - 1

        result = script._done(bench, "agreement", {})
        assert (result["verdict"], result["why"]) == ("skipped", "no time left")


class TestChecks:
    def test_another_result_than_the_cpus_is_wrong(self, load, bench, monkeypatch):
        checks = load("gpu_checks")
        found = iter([dict.fromkeys(checks.ALLOWED, torch.zeros(3)) for _ in range(4)])
        monkeypatch.setattr(checks, "_three_steps", lambda *_, **__: next(found))
        assert checks.agreement(bench)["arms"] == 2

        for value in (2e-5, float("nan")):
            odd = {name: torch.tensor([0, value, 0]) for name in checks.ALLOWED}
            found = iter([odd, dict.fromkeys(checks.ALLOWED, torch.zeros(3))])
            with pytest.raises(checks.Wrong, match="DNN dense: float64 prediction differs"):
                checks.agreement(bench)

    def test_two_runs_that_differ_are_wrong(self, load, bench, monkeypatch):
        checks = load("gpu_checks")
        original, calls = checks.trainer_of, []

        def other(job, schema, *, device):
            calls.append(job)
            job = job.job.model_copy(update={"seed": job.seed + len(calls)})
            return original(job.resolve(), schema, device=device)

        monkeypatch.setattr(checks, "trainer_of", other)
        with pytest.raises(checks.Wrong, match="DNN dense: two runs of 5 steps differ"):
            checks.determinism(bench)

    def test_scores_counted_plainly_are_the_metrics(self, load):
        random = np.random.default_rng(4)
        # Few values, so that there are ties, and both ends of the range.
        p = (random.integers(0, 30, 999) / 29).astype(np.float32)
        labels = (random.random(999) < p).astype(np.uint8)

        found = load("gpu_checks")._plain_scores(labels, p.astype(np.float64))
        assert found == pytest.approx((auc(labels, p), logloss(labels, p)), abs=1e-12)


def test_the_table_is_one_that_a_worker_opens(load, tmp_path, monkeypatch):
    monkeypatch.setattr(load("gpu_table"), "_BLOCK_ROWS", 64)
    schema = load("avazu_shape").schema(40_000)
    rows = SplitCounts(train=150, valid=64, test=1)

    load("gpu_table").write_table(tmp_path / "t", schema, rows=rows)
    table = PreparedTable.open(tmp_path / "t")
    train = table.split("train")
    assert table.schema.shape.embedding_rows == 40_000
    assert train.ids.shape == (150, 22)
    assert (train.ids >= 1).all()
    assert (train.ids < schema.shape.vocabulary_sizes).all()
    assert table.manifest.positives.train == train.labels.sum() > 0
    assert not np.array_equal(train.ids[:64], train.ids[64:128])

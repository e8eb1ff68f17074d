"""The checks for a GPU, on the CPU: the script as it will run there, and what makes it say no."""

import importlib
import importlib.metadata
import json
import os
import re
import signal
import subprocess
import sys
import time
import venv
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from prime_bench.data.manifest import SplitCounts
from prime_bench.data.table import PreparedTable
from prime_bench.training.metrics import auc, logloss

ROOT = Path(__file__).parents[2]
CPU = torch.device("cpu")
SCRIPT = ROOT / "scripts" / "gpu_check.sh"
SMALL = ["--device", "cpu", "--small", "--backbones", "DNN", "--threads", "1"]


@pytest.fixture
def load(monkeypatch):
    """A module beside the script, as the script imports it."""
    for folder in ("benchmarks", "scripts"):
        monkeypatch.syspath_prepend(str(ROOT / folder))
    return importlib.import_module


@pytest.fixture
def bench(load, tmp_path):
    return load("gpu_session").Bench(
        device=CPU, small=True, threads=1, backbones=["DNN"], folder=tmp_path
    )


def needs_of(*names: str) -> set[str]:
    """The installed distributions with these names, and what they need themselves."""
    found: set[str] = set()
    left = list(names)
    while left:
        name = re.split(r"[^\w.-]", left.pop(), maxsplit=1)[0].lower().replace("_", "-")
        if name in found:
            continue
        try:
            lines = importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:
            continue  # for another platform
        found.add(name)
        left += [line for line in lines if "extra ==" not in line]
    return found


@pytest.fixture(scope="module")
def bare_python(tmp_path_factory) -> Path:
    """An interpreter with torch, NumPy, what these need, and no other package."""
    folder = tmp_path_factory.mktemp("bare")
    venv.create(folder, symlinks=True, with_pip=False)
    site = next((folder / "lib").glob("python*/site-packages"))
    installed = needs_of("torch", "numpy")
    assert {"torch", "numpy", "typing-extensions"} <= installed
    assert not {"pydantic", "click", "fuxictr", "safetensors", "polars"} & installed
    for name in installed:
        distribution = importlib.metadata.distribution(name)
        for top in {Path(file).parts[0] for file in distribution.files or []} - {".."}:
            if not (site / top).exists():
                (site / top).symlink_to(distribution.locate_file(top))
    return folder / "bin" / "python"


@pytest.fixture(scope="module")
def packed(tmp_path_factory) -> Path:
    """A checkout with the folder that `--pack` makes, here from the installed packages: there is no
    network in tests.
    """
    checkout = tmp_path_factory.mktemp("checkout")
    for name in ("prime_bench", "scripts", "benchmarks", "recipes", "datasets", "constraints.txt"):
        (checkout / name).symlink_to(ROOT / name)
    # The script looks for the folder beside the file that it is.
    (checkout / "scripts").unlink()
    (checkout / "scripts").mkdir()
    for path in (ROOT / "scripts").glob("gpu_*"):
        (checkout / "scripts" / path.name).write_bytes(path.read_bytes())
    folder = checkout / ".gpu_packages"
    folder.mkdir()
    sys.path.insert(0, str(ROOT / "scripts"))
    try:
        names = importlib.import_module("gpu_packages").DISTRIBUTIONS
    finally:
        sys.path.remove(str(ROOT / "scripts"))
    for name in names:
        distribution = importlib.metadata.distribution(name)
        tag = re.search(r"^Tag: (.+)$", distribution.read_text("WHEEL"), re.MULTILINE)[1]
        wheel = folder / f"{name.replace('-', '_')}-{distribution.version}-{tag}.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            for file in distribution.files:
                if file.parts[0] != ".." and "__pycache__" not in file.parts:
                    archive.write(file.locate(), str(file))
    return checkout


def environment_of(python: Path, tmp_path: Path) -> dict[str, str]:
    return {"PATH": "/usr/bin:/bin", "PYTHON": str(python), "TMPDIR": str(tmp_path)}


def run(checkout: Path, python: Path, tmp_path: Path, *arguments: str):
    return subprocess.run(
        ["sh", str(checkout / "scripts" / "gpu_check.sh"), *arguments],
        env=environment_of(python, tmp_path),
        capture_output=True,
        text=True,
        check=False,
    )


class TestWithTorchAndNumpyAlone:
    def test_the_small_form_runs(self, packed, bare_python, tmp_path):
        checks = ["agreement", "bits", "evaluation"]
        done = run(
            packed,
            bare_python,
            tmp_path,
            *(*SMALL, "--only", *checks),
            *("--output", str(tmp_path / "out"), "--work", str(tmp_path)),
        )

        assert done.returncode == 0, done.stderr
        content = json.loads((tmp_path / "out" / "gpu_check.json").read_text())
        verdicts = {name: check["verdict"] for name, check in content["checks"].items()}
        wanted = ["agreement", "bits", "generate", "job", "evaluation"]
        assert verdicts == dict.fromkeys(wanted, "ok")
        assert content["finished"]
        agreement = content["checks"]["agreement"]["parts"]["DNN"]["figures"]
        assert agreement["float64 weight"] == 0
        assert set(content["checks"]["job"]["parts"]) == {"DNN dense", "DCNv2 prime"}
        markdown = (tmp_path / "out" / "gpu_check.md").read_text()
        assert markdown in done.stdout
        assert "| evaluation | ok |" in markdown
        # Neither the rows nor the packages stay; torch's own cache may.
        left = {path.name for path in tmp_path.iterdir()} - {"out"}
        assert not [name for name in left if not name.startswith("torchinductor")]

    def test_what_is_missing_is_named_with_what_to_do(self, bare_python, tmp_path):
        checkout = tmp_path / "checkout"
        (checkout / "scripts").mkdir(parents=True)
        for path in (ROOT / "scripts").glob("gpu_*"):
            (checkout / "scripts" / path.name).write_bytes(path.read_bytes())

        done = run(checkout, bare_python, tmp_path, *SMALL)

        assert done.returncode == 4
        assert done.stdout == ""
        first, hint = done.stderr.splitlines()
        assert first.startswith(
            f"gpu_check: neither installed nor packed in {checkout / '.gpu_packages'}: "
        )
        for name in ("pydantic", "fuxictr", "safetensors", "yaml"):
            assert name in first
        assert "torch" not in first
        assert "scripts/gpu_check.sh --pack" in hint

    def test_an_interpreter_without_torch_is_named(self, tmp_path):
        venv.create(tmp_path / "empty", symlinks=True, with_pip=False)
        done = run(ROOT, tmp_path / "empty" / "bin" / "python", tmp_path, *SMALL)

        assert done.returncode == 4
        assert "cannot import numpy and torch\nhint: " in done.stderr
        assert "PYTHON" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_figures_so_far_are_in_the_file_after_a_kill(tmp_path, number):
    output = tmp_path / "out" / "gpu_check.json"
    process = subprocess.Popen(
        [
            *("sh", str(SCRIPT), *SMALL, "--backbones", "DNN", "DCNv2", "FwFM", "AutoInt"),
            *("--only", "agreement", "--output", str(output.parent), "--work", str(tmp_path)),
        ],
        env=environment_of(Path(sys.executable), tmp_path),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline().endswith("agreement DNN\n")
    os.kill(process.pid, number)
    process.communicate()

    assert process.returncode == (-9 if number == signal.SIGKILL else 143)
    content = json.loads(output.read_text())
    assert not content["finished"]
    parts = content["checks"]["agreement"]["parts"]
    assert parts["DNN"]["verdict"] == "ok"
    assert parts["DNN"]["figures"]["float64 weight"] == 0
    assert parts["AutoInt"]["verdict"] == "not reached"
    markdown = output.with_name("gpu_check.md").read_text()
    assert "interrupted, or still running" in markdown
    assert "not reached: " in markdown


def test_unknown_names_are_refused(tmp_path):
    for option, name in (("--only", "speed"), ("--backbones", "dnn")):
        arguments = ["--device", "cpu", option, name]
        done = run(ROOT, Path(sys.executable), tmp_path, *arguments)
        assert done.returncode == 2
        assert done.stderr.startswith(
            f"gpu_check: no {option[2:-1] if option != '--only' else 'check'}"
        )
        assert "DNN" in done.stderr or "agreement" in done.stderr


class Clock:
    """A clock that work moves on."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> float:
        return self.seconds

    def work(self, *seconds: float):
        """A part that takes these seconds, one after another and the last for ever."""
        left = list(seconds)

        def run(_bench, _part):
            self.seconds += left.pop(0) if len(left) > 1 else left[0]
            return {}

        return run


class TestOrderOfEvents:
    @pytest.fixture
    def session(self, load):
        return load("gpu_session")

    @pytest.fixture
    def results(self, load, tmp_path):
        about = {
            **dict.fromkeys(["device", "date", "torch", "cuda", "python", "commit"], "x"),
            **{"threads": 1, "small": True, "minutes": 9.0},
        }
        return load("gpu_results").Results(tmp_path / "out", about=about, started=0.0)

    def check(self, session, name, run, *, parts=("a",), **more):
        return session.Check(name=name, run=run, parts=lambda _: parts, **{"part_s": 1, **more})

    def test_a_fault_is_wrong_and_keeps_what_needs_it_from_starting(
        self, session, bench, results, capsys
    ):
        def fails(_bench, part):
            if part == "bad":
                raise RuntimeError("out of luck\nand more")
            return {"n": 3}

        checks = [
            self.check(session, "first", fails, parts=("bad", "good")),
            self.check(session, "second", lambda *_: {}, needs=("first",)),
            self.check(session, "third", lambda *_: {}, needs_cuda=True),
        ]
        session.run_checks(checks, bench, results, deadline=time.perf_counter() + 60)

        found = results.plain()["checks"]
        assert {name: check["verdict"] for name, check in found.items()} == {
            "first": "WRONG",
            "second": "left out",
            "third": "left out",
        }
        assert results.wrong
        assert found["first"]["parts"]["bad"]["why"] == "RuntimeError: out of luck"
        assert found["first"]["parts"]["good"]["figures"] == {"n": 3}
        assert found["second"]["parts"]["a"]["why"] == "needs first"
        assert found["third"]["parts"]["a"]["why"] == "needs CUDA"
        assert "WRONG: bad (RuntimeError: out of luck); n 3" in results.markdown()
        assert "out of luck" in capsys.readouterr().err

    def test_a_part_that_no_longer_fits_is_left_out_and_named(self, session, bench, results):
        clock = Clock()
        first = self.check(session, "first", clock.work(4), parts=("a", "b", "c"), part_s=10)
        second = self.check(session, "second", clock.work(1), parts=("d", "e"), part_s=9)
        third = self.check(session, "third", clock.work(1), parts=("f",), part_s=2)
        session.run_checks([first, second, third], bench, results, deadline=18, clock=clock.now)

        parts = {
            part: (result.verdict, result.why)
            for check in results.checks.values()
            for part, result in check.items()
        }
        # After `a` the measured time counts, not the rough one: `b` and `c` fit.
        assert parts == {
            **dict.fromkeys("abcf", ("ok", "")),
            **dict.fromkeys("de", ("left out", "takes about 9 s, 6 s are left")),
        }
        assert "left out: d, e (takes about 9 s, 6 s are left)" in results.markdown()

    def test_the_longest_part_so_far_is_what_the_next_may_take(self, session, bench, results):
        clock = Clock()
        check = self.check(session, "x", clock.work(6, 2, 2), parts=("a", "b", "c"), part_s=1)
        session.run_checks([check], bench, results, deadline=13, clock=clock.now)

        assert results.checks["x"]["b"].verdict == "ok"
        assert results.checks["x"]["c"].why == "takes about 6 s, 5 s are left"

    def test_the_file_is_written_after_each_part(self, session, bench, results, tmp_path):
        seen = []

        def look(_bench, _part):
            path = tmp_path / "out" / "gpu_check.json"
            seen.append(json.loads(path.read_text())["checks"]["x"]["parts"] if seen else None)
            return {"n": len(seen)}

        check = self.check(session, "x", look, parts=("a", "b"))
        session.run_checks([check], bench, results, deadline=time.perf_counter() + 60)
        assert seen[1]["a"]["figures"] == {"n": 1}
        assert seen[1]["b"]["verdict"] == "not reached"


class TestChecks:
    def test_another_result_than_the_cpus_is_wrong(self, load, bench, monkeypatch):
        bits = load("gpu_bits")
        equal = dict.fromkeys(bits.ALLOWED, torch.zeros(3))
        found = iter([equal] * 4)
        monkeypatch.setattr(bits, "three_steps", lambda *_, **__: next(found))
        assert bits.agreement(bench, "DNN") == dict.fromkeys(bits.ALLOWED, 0.0)

        for value in (2e-5, float("nan")):
            odd = {name: torch.tensor([0, value, 0]) for name in bits.ALLOWED}
            found = iter([odd, equal])
            with pytest.raises(bits.Wrong, match="dense: float64 prediction differs"):
                bits.agreement(bench, "DNN")

    def test_two_runs_that_differ_are_wrong(self, load, bench, monkeypatch):
        bits = load("gpu_bits")
        monkeypatch.setattr(
            load("gpu_session").Bench, "start_peers", lambda *_: [load("unittest.mock").MagicMock()]
        )
        seeds = iter(range(9))
        monkeypatch.setattr(bits, "derive", lambda *_: next(seeds))
        with pytest.raises(bits.Wrong, match="dense: repeated differ"):
            bits.bits(bench, "DNN")

    def test_scores_counted_plainly_are_the_metrics(self, load):
        random = np.random.default_rng(4)
        # Few values, so that there are ties, and both ends of the range.
        p = (random.integers(0, 30, 999) / 29).astype(np.float32)
        labels = (random.random(999) < p).astype(np.uint8)

        found = load("gpu_jobs").plain_scores(labels, p.astype(np.float64))
        assert found == pytest.approx((auc(labels, p), logloss(labels, p)), abs=1e-12)


@pytest.mark.parametrize("dataset", ["avazu", "criteo"])
def test_the_table_is_one_that_a_worker_opens(load, tmp_path, monkeypatch, dataset):
    data = load("gpu_data")
    monkeypatch.setattr(data, "_BLOCK_ROWS", 64)
    monkeypatch.setattr(data, "SMALL_ROWS", SplitCounts(train=150, valid=64, test=1))
    shape = data.shape_of(dataset, small=True)

    data.write_table(tmp_path / "t", shape, device=CPU)
    table = PreparedTable.open(tmp_path / "t")
    train = table.split("train")
    assert table.schema.shape.embedding_rows == 40_000
    assert train.ids.shape == (150, {"avazu": 22, "criteo": 26}[dataset])
    assert train.numerics.shape == (150, {"avazu": 0, "criteo": 13}[dataset])
    assert np.isfinite(train.numerics).all()
    assert (train.ids >= 1).all()
    assert (train.ids < table.schema.shape.vocabulary_sizes).all()
    assert len(np.unique(train.ids[:, -1])) > 1
    assert table.manifest.positives.train == train.labels.sum() > 0
    assert not np.array_equal(train.ids[:64], train.ids[64:128])


def test_the_full_shapes(load):
    data = load("gpu_data")
    for dataset, n_fields, n_ids in (("avazu", 22, 1_544_294), ("criteo", 39, 998_960)):
        shape = data.shape_of(dataset)
        assert len(shape.schema.fields) == n_fields
        assert shape.schema.shape.embedding_rows == n_ids
        assert min(shape.schema.shape.vocabulary_sizes) >= 2

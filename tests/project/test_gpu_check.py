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
    folders = [str(ROOT / folder) for folder in ("benchmarks", "scripts")]
    for folder in folders:
        monkeypatch.syspath_prepend(folder)
    # For the processes that the checks start.
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), *folders]))
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
        if name == "typing-inspection" and name not in needs_of("pydantic"):
            continue  # before pydantic 2.11
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
    @pytest.mark.long
    def test_the_small_form_runs(self, packed, bare_python, tmp_path):
        checks = ["agreement", "bits", "steps", "steps_criteo", "costs", "pairs", "table_pass"]
        checks += ["host", "memory", "pinned", "evaluation", "at_once_mps", "sizes"]
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
        assert verdicts == {
            **dict.fromkeys([*checks, "generate", "job", "resume"], "ok"),
            **{"memory": "left out", "at_once_mps": "left out", "table_pass": "left out and ok"},
        }
        assert content["finished"]
        figures = {
            name: {part: result["figures"] for part, result in check["parts"].items()}
            for name, check in content["checks"].items()
        }
        assert figures["agreement"]["avazu DNN"]["float64 weight"] == 0
        steps = figures["steps_criteo"]["criteo DNN"]
        assert steps["prime"]["eager_ms"][0] > 0 < steps["dense"]["inference_eager_ms"][0]
        assert figures["host"]["DNN prime"]["eager"]["operators"] > 50
        assert figures["costs"]["once"]["order_s"] > 0 < figures["costs"]["once"]["upload_s"]
        assert set(content["checks"]["job"]["parts"]) == {"DNN dense", "DCNv2 prime"}
        markdown = (tmp_path / "out" / "gpu_check.md").read_text()
        assert markdown in done.stdout
        assert "| evaluation | ok |" in markdown
        assert "left out: once (needs CUDA)" in markdown
        assert "| DNN | prime |" in markdown
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


@pytest.mark.parametrize(
    "number", [signal.SIGKILL, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)]
)
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
    assert process.stdout.readline().endswith("agreement avazu DNN\n")
    os.kill(process.pid, number)
    process.communicate()

    assert process.returncode == (-9 if number == signal.SIGKILL else 143)
    content = json.loads(output.read_text())
    assert not content["finished"]
    parts = content["checks"]["agreement"]["parts"]
    assert parts["avazu DNN"]["verdict"] == "ok"
    assert parts["avazu DNN"]["figures"]["float64 weight"] == 0
    assert parts["avazu FwFM"]["verdict"] == "not reached"
    markdown = output.with_name("gpu_check.md").read_text()
    assert "interrupted, or still running" in markdown
    assert "not reached: " in markdown


def test_unknown_names_are_refused(load, monkeypatch, capsys):
    gpu_check = load("gpu_check")
    # What concerns the whole process: search path, variables and signals.
    monkeypatch.setattr(load("gpu_packages"), "provide", lambda _: None)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    for option, name in (("--only", "speed"), ("--backbones", "dnn")):
        monkeypatch.setattr(sys, "argv", ["gpu_check", "--device", "cpu", option, name])
        assert gpu_check.main() == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert err.startswith(f"gpu_check: no {option[2:-1] if option != '--only' else 'check'}")
        assert "DNN" in err or "agreement" in err


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
        plan = load("gpu_hours").Plan(
            seeds=5, epochs=4, batch_size=256, rows={"avazu": {}}, backbones=("DNN",)
        )
        return load("gpu_results").Results(tmp_path / "out", about=about, plan=plan, started=0.0)

    def check(self, session, name, run, *, parts=("a",), **more):
        return session.Check(name=name, run=run, parts=lambda _: parts, **{"part_s": 1, **more})

    def run_checks(self, session, bench, results, checks, *, seconds=60, clock=time.perf_counter):
        bench.deadline = clock() + seconds
        session.run_checks(checks, bench, results, clock=clock)

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
        self.run_checks(session, bench, results, checks)

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
        checks = [first, second, third]
        self.run_checks(session, bench, results, checks, seconds=18, clock=clock.now)

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
        # Of the first part nobody knows what it has prepared for the others.
        check = self.check(session, "x", clock.work(9, 4, 3, 1), parts=tuple("abcd"), part_s=1)
        self.run_checks(session, bench, results, [check], seconds=19, clock=clock.now)

        assert [results.checks["x"][part].verdict for part in "abc"] == ["ok"] * 3
        assert results.checks["x"]["d"].why == "takes about 4 s, 3 s are left"

    def test_a_part_may_say_that_it_cannot_be_done_here(self, session, bench, results):
        def cannot(_bench, _part):
            raise session.LeftOut("no service")

        self.run_checks(session, bench, results, [self.check(session, "x", cannot)])
        assert results.checks["x"]["a"].verdict == "left out"
        assert not results.wrong
        assert "left out: a (no service)" in results.markdown()

    def test_what_a_check_has_started_ends_with_it(self, session, bench, results):
        ended = []

        def start(bench, _part):
            bench.ending.callback(ended.append, "ended")
            bench.peer_environment["X"] = "1"
            return {"so far": len(ended)}

        checks = [self.check(session, name, start, parts=("a", "b")) for name in ("x", "y")]
        self.run_checks(session, bench, results, checks)
        assert [results.figures(name)["a"]["so far"] for name in ("x", "y")] == [0, 2]
        assert ended == ["ended"] * 4
        assert bench.peer_environment == {}

    def test_the_file_is_written_after_each_part(self, session, bench, results, tmp_path):
        seen = []

        def look(_bench, _part):
            path = tmp_path / "out" / "gpu_check.json"
            seen.append(json.loads(path.read_text())["checks"]["x"]["parts"] if seen else None)
            return {"n": len(seen)}

        check = self.check(session, "x", look, parts=("a", "b"))
        self.run_checks(session, bench, results, [check])
        assert seen[1]["a"]["figures"] == {"n": 1}
        assert seen[1]["b"]["verdict"] == "not reached"


class TestChecks:
    def test_another_result_than_the_cpus_is_wrong(self, load, bench, monkeypatch):
        bits = load("gpu_bits")
        equal = dict.fromkeys(bits.ALLOWED, torch.zeros(3))
        found = iter([equal] * 4)
        monkeypatch.setattr(bits, "three_steps", lambda *_, **__: next(found))
        assert bits.agreement(bench, "criteo DNN") == dict.fromkeys(bits.ALLOWED, 0.0)

        for value in (2e-5, float("nan")):
            odd = {name: torch.tensor([0, value, 0]) for name in bits.ALLOWED}
            found = iter([odd, equal])
            with pytest.raises(bits.Wrong, match="dense: float64 prediction differs"):
                bits.agreement(bench, "avazu DNN")

    def test_two_runs_that_differ_are_wrong(self, load, bench, monkeypatch):
        bits = load("gpu_bits")
        monkeypatch.setattr(
            load("gpu_session").Bench, "start_peers", lambda *_: [load("unittest.mock").MagicMock()]
        )
        seeds = iter(range(9))
        monkeypatch.setattr(bits, "derive", lambda *_: next(seeds))
        with pytest.raises(bits.Wrong, match="dense: repeated differ"):
            bits.bits(bench, "DNN")

    def test_a_plug_in_that_does_not_start_neutral_is_wrong(self, load, bench, monkeypatch):
        bits = load("gpu_bits")
        assert bits.pairs(bench, "DNN") == {"steps": 3}

        original, seeds = bits.trainer_of, iter(range(9))

        def other(job, schema, *, device):
            changed = job.job.model_copy(update={"seed": next(seeds)})
            return original(changed.resolve(), schema, device=device)

        monkeypatch.setattr(bits, "trainer_of", other)
        with pytest.raises(bits.Wrong, match="evaluation: PRIME differs from Dense by up to"):
            bits.pairs(bench, "DNN")

    def test_other_dropout_masks_are_wrong(self, load, bench, monkeypatch):
        bits = load("gpu_bits")
        seeds = iter([1, 2])
        monkeypatch.setattr(bits, "derive", lambda *_: next(seeds))
        with pytest.raises(bits.Wrong, match="training: PRIME differs"):
            bits.pairs(bench, "DNN")

    def test_a_continued_run_with_other_weights_is_wrong(self, load, bench, monkeypatch):
        jobs = load("gpu_jobs")
        original = bench.run

        def other(job, **folders):
            return original(job.model_copy(update={"seed": 1}), **folders)

        monkeypatch.setattr(bench, "run", other)
        with pytest.raises(jobs.Wrong, match="DNN dense: the continued run has other weights"):
            jobs.resume(bench, "DNN dense")

    def test_other_rows_than_in_the_file_are_wrong(self, load, bench, monkeypatch):
        jobs = load("gpu_jobs")
        jobs.generate(bench, "once")
        assert jobs.pinned(bench, "pinned")["rows"] == 3_011

        original = jobs.batches.Rows._gathered
        monkeypatch.setattr(
            jobs.batches.Rows, "_gathered", lambda self, places: original(self, places[::-1].copy())
        )
        with pytest.raises(jobs.Wrong, match="pinned: other ids than in the file"):
            jobs.pinned(bench, "pinned")

    def test_a_process_that_does_not_answer_is_killed(self, load, bench):
        session = load("gpu_session")
        (peer,) = bench.start_peers(1)
        with pytest.raises(session.Late, match="not done after 0 s"):
            peer.answer(seconds=0.2)
        bench.end_check()

    def test_a_process_that_fails_is_wrong(self, load, bench, capfd):
        session = load("gpu_session")
        (peer,) = bench.start_peers(1)
        peer.tell("nothing that it knows")
        with pytest.raises(session.Wrong, match="the other process ended with code 1"):
            peer.answer()
        bench.end_check()
        assert "KeyError" in capfd.readouterr().err

    def test_scores_counted_plainly_are_the_metrics(self, load):
        random = np.random.default_rng(4)
        # Few values, so that there are ties, and both ends of the range.
        p = (random.integers(0, 30, 999) / 29).astype(np.float32)
        labels = (random.random(999) < p).astype(np.uint8)

        found = load("gpu_jobs").plain_scores(labels, p.astype(np.float64))
        assert found == pytest.approx((auc(labels, p), logloss(labels, p)), abs=1e-12)


class TestMps:
    """NVIDIA's service, by a script in its place."""

    @pytest.fixture
    def speed(self, load, monkeypatch):
        speed = load("gpu_speed")
        monkeypatch.setattr(speed, "at_once", lambda bench, _part: dict(bench.peer_environment))
        return speed

    def service(self, tmp_path, monkeypatch, *, code):
        folder = tmp_path / "bin"
        folder.mkdir()
        script = folder / "nvidia-cuda-mps-control"
        script.write_text(
            "#!/bin/sh\n"
            f'echo "$* $(test "$1" || cat) $CUDA_MPS_PIPE_DIRECTORY" >> {tmp_path}/calls\n'
            f"echo no permission >&2\nexit {code}\n"
        )
        script.chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")

    def test_it_is_started_for_the_other_processes_and_ended(
        self, speed, bench, tmp_path, monkeypatch
    ):
        self.service(tmp_path, monkeypatch, code=0)
        pipes = str(tmp_path / "cuda_mps_pipe_directory")

        assert speed.at_once_mps(bench, "2")["CUDA_MPS_PIPE_DIRECTORY"] == pipes
        assert "CUDA_MPS_PIPE_DIRECTORY" not in os.environ
        assert (tmp_path / "calls").read_text() == f"-d  {pipes}\n"
        bench.end_check()
        assert (tmp_path / "calls").read_text() == f"-d  {pipes}\n quit {pipes}\n"

    def test_without_it_the_part_is_left_out(self, load, speed, bench, tmp_path, monkeypatch):
        left_out = load("gpu_session").LeftOut
        monkeypatch.setenv("PATH", str(tmp_path))
        with pytest.raises(left_out, match="nvidia-cuda-mps-control is not installed"):
            speed.at_once_mps(bench, "2")
        self.service(tmp_path, monkeypatch, code=3)
        with pytest.raises(left_out, match="does not start: no permission"):
            speed.at_once_mps(bench, "2")


class TestHours:
    PLAN = {
        "seeds": 3,
        "epochs": 4,
        "batch_size": 100,
        "rows": {
            "avazu": {"train": 1_001, "valid": 200, "test": 5},
            "criteo": {"train": 2_002, "valid": 101, "test": 5},
        },
        "backbones": ("DNN", "PNN"),
    }

    def figures(self, *, forms=("eager", "graph")):
        """Another time for each arm: 1, 2, 3, ... ms a step, a tenth of it a forward pass."""
        times = iter(range(1, 9))
        return {
            dataset: {
                backbone: {
                    arm: {
                        key: value
                        for ms in [next(times)]
                        for form in forms
                        for key, value in (
                            (f"{form}_ms", [ms, ms, 50 * ms]),
                            (f"inference_{form}_ms", [0.1 * ms]),
                        )
                    }
                    for arm in ("dense", "prime")
                }
                for backbone in ("DNN", "PNN")
            }
            for dataset in ("avazu", "criteo")
        }

    def test_they_are_the_sum_over_all_runs(self, load):
        found = load("gpu_hours").hours(
            "graph",
            load("gpu_hours").Plan(**self.PLAN),
            steps=self.figures(),
            # 11 steps of 1 ms and 2 forward passes of 0.1 ms are 0.0112 s. PNN with PRIME takes 4
            # times as long.
            jobs={
                "DNN dense": {"epoch_s": 0.5112, "job_s": 2.5112},
                "PNN prime": {"epoch_s": 0.7448, "job_s": 4.7448},
            },
        )

        assert found.epoch_rest_s == pytest.approx(0.6)
        assert found.job_rest_s == pytest.approx(3.0)
        seconds = 0.0
        for ms in (1, 2, 3, 4):  # Avazu
            seconds += 3 * (4 * (11 * ms / 1e3 + 2 * ms / 1e4 + 0.6) + 3.0)
        for ms in (5, 6, 7, 8):  # Criteo has twice the rows
            seconds += 3 * (4 * (21 * ms / 1e3 + 2 * ms / 1e4 + 1.2) + 6.0)
        assert found.total == pytest.approx(seconds / 3600)
        steps_s = sum(11 * ms / 1e3 + 2 * ms / 1e4 + 0.6 for ms in (1, 2, 3, 4))
        steps_s += sum(21 * ms / 1e3 + 2 * ms / 1e4 + 1.2 for ms in (5, 6, 7, 8))
        assert found.each_epoch == pytest.approx(3 * steps_s / 3600)

    def test_what_is_not_measured_is_named_and_nothing_computed(self, load):
        module = load("gpu_hours")
        steps, plan = self.figures(forms=("eager",)), module.Plan(**self.PLAN)
        assert isinstance(module.hours("eager", plan, steps=steps, jobs={}), module.Hours)
        assert len(module.hours("graph", plan, steps=steps, jobs={})) == 4
        del steps["criteo"]["PNN"]["prime"]["inference_eager_ms"]
        assert module.hours("eager", plan, steps=steps, jobs={}) == ["PNN on criteo"]

    def test_the_plan_is_that_of_the_recipe(self, bench):
        plan = bench.plan()
        n_runs = plan.seeds * len(plan.backbones) * len(plan.rows) * 2
        assert (n_runs, plan.epochs) == (260, 4)

    def test_the_document_has_the_hours(self, load):
        module = load("gpu_results")
        about = {
            **dict.fromkeys(["device", "date", "torch", "cuda", "python", "commit"], "x"),
            **{"threads": 1, "small": False, "minutes": 9.0},
        }
        plan = load("gpu_hours").Plan(**self.PLAN)
        results = module.Results(None, about=about, plan=plan, started=0.0)
        for check, dataset in (("steps", "avazu"), ("steps_criteo", "criteo")):
            parts = {f"{dataset} {name}": f for name, f in self.figures()[dataset].items()}
            results.begin(check, list(parts))
            for part, figures in parts.items():
                results.put(check, part, module.PartResult(verdict="ok", figures=figures))

        markdown = results.markdown()
        hours = load("gpu_hours").hours("graph", plan, steps=self.figures(), jobs={})
        assert f"| graph | {hours.total:.2f} | {hours.each_epoch:.2f} |" in markdown
        assert "| graph, TF32 | not computed: DNN on avazu, PNN on avazu, " in markdown
        assert "largest, training graph: 2.000 (DNN)" in markdown
        assert "| PNN | prime | 4 x1.33 | 4 x1.33 | - |" in markdown


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

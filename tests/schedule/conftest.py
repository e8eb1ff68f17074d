"""A small recipe, data of which only the manifest is there, and workers that play a part."""

import json
import sys
from textwrap import dedent
from types import SimpleNamespace

import pytest

from prime_bench.data.manifest import resolve
from prime_bench.recipe.file import load_recipe
from prime_bench.recipe.job import Job, JobRequest
from prime_bench.schedule.engine import Limits, Queue, Work
from prime_bench.settings.backbones import DNNSettings
from prime_bench.settings.training import TrainSpec
from prime_bench.store.runs import Runs

RECIPE = """\
    schema = 1
    title = "Small"
    seeds = [7, 3]
    arms = ["dense", "prime"]

    [dataset.synthetic]
    rows = 1000

    [backbone.DNN]
    hidden_units = [8]
"""
WORKER = """
import json, os, signal, sys, time
from pathlib import Path
from prime_bench.base.identity import digest  # and not Job: pydantic's import takes its time

parts, key = json.loads(sys.argv[1]), os.environ["PRIME_BENCH_EVENT_KEY"]
if parts.get("start") == "exit":
    sys.exit("no such library")
if parts.get("start") == "close":
    os.close(1)
    time.sleep(60)
print(f"worker {os.getpid()}", file=sys.stderr)
for line in sys.stdin:
    request = json.loads(line)
    job = {k: v for k, v in request["job"].items() if v or k not in ("code", "probe")}
    if job["training"]["matmul"] == "float32":  # as `Job.plain`
        del job["training"]["matmul"]
    job_id = digest(job)[:16]
    part = parts[str(request["job"]["seed"])]
    folder = Path(request["runs"]) / job_id
    if part == "killed once":
        part = "done" if (folder / "failure.json").exists() else "killed"

    def send(event, **keys):
        print(key, json.dumps({"event": event, "job_id": job_id, **keys}), flush=True)

    if part == "gentle":  # before its first event, on which a test may stop it
        stop = []  # a handler that printed could come in the middle of another line
        signal.signal(signal.SIGTERM, lambda *_: stop.append(True))
    # An event with free text, in which the tests read where the job runs.
    place = [str(os.getpid()), request["device"], os.environ.get("CUDA_VISIBLE_DEVICES", "")]
    send("restarted", reason=" ".join(place))
    if part == "done":
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "record.json").touch()
        scores = {"train_loss": None, "valid_auc": None, "valid_logloss": None}
        rest = {"step": 1, "learning_rate": 0.1, "improved": False, "wall_s": 1.0}
        send("epoch", validation={"epoch": 1, **scores, **rest})
        send("done", wall_s=1.0)
    elif part == "failed":
        send("failed", error="RuntimeError: out of luck")
    elif part == "short":  # of open files, say
        send("failed", error="EnvironmentFault: /x: too many files open", machine=True)
    elif part == "killed":
        print("last words", file=sys.stderr, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    elif part.startswith("by "):
        print("last words", file=sys.stderr, flush=True)
        os.kill(os.getpid(), int(part[3:]))
    elif part == "ended":
        print("Traceback\\nSystemError: gone", file=sys.stderr, flush=True)
        os._exit(3)
    elif part == "fault":
        send("fault", error="no device", hint="buy one", exit_code=4)
        os._exit(4)
    elif part == "gentle":
        while not stop:
            time.sleep(0.05)
            send("progress", progress={"epoch": 1, "rows": 1, "rows_total": 2})
        send("interrupted")
        os._exit(0)
    elif part == "endless":
        while True:
            time.sleep(0.05)
            send("progress", progress={"epoch": 1, "rows": 1, "rows_total": 2})
    elif part == "stopped":  # as on a SIGTERM that somebody sends to the worker alone
        send("interrupted")
        os._exit(0)
    elif part == "quiet":
        os._exit(0)
    elif part in ("dies", "leaves", "deaf"):  # a process of the plug-in holds the pipe open
        if (child := os.fork()) == 0:
            time.sleep(60)
            os._exit(0)
        send("restarted", reason=f"{child} a b")
        if part == "dies":
            os.kill(os.getpid(), signal.SIGSEGV)
        elif part == "deaf":
            time.sleep(60)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "record.json").touch()
        send("done", wall_s=1.0)
    elif part == "recorded":
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "record.json").touch()
        os._exit(1)
    elif part in ("skipped", "empty"):
        send("skipped") if part == "skipped" else send("done", wall_s=1.0)
    else:
        sys.stdout.buffer.write(bytes.fromhex(part).replace(b"KEY", key.encode()) + b"\\n")
        sys.stdout.flush()
        time.sleep(60)
"""


@pytest.fixture
def recipe_file(tmp_path):
    path = tmp_path / "small.toml"
    path.write_text(dedent(RECIPE))
    return path


@pytest.fixture
def recipe(recipe_file):
    """2 seeds x DNN x (dense, prime) on one data set: 4 jobs."""
    return load_recipe(recipe_file)


@pytest.fixture
def runs(tmp_path):
    return Runs(tmp_path / "runs")


@pytest.fixture
def data_dir(tmp_path):
    return tmp_path / "data"


@pytest.fixture
def prepare(data_dir, write_manifest):
    """Make a data set count as prepared and return its fingerprint."""

    def prepare(name, keys, fingerprint="f" * 64):
        spec = resolve(name, keys)
        spec.folder(data_dir).mkdir(parents=True, exist_ok=True)
        counts = {"train": 800, "valid": 120, "test": 80}
        write_manifest(
            spec.folder(data_dir),
            rows=counts,
            positives=counts,
            dataset=name,
            settings=spec.settings.plain(),
            variant=spec.digest,
            fingerprint=fingerprint,
            verified=True,
            notes=[],
        )
        return fingerprint

    return prepare


@pytest.fixture
def schema():
    """schema.json of a table of two categorical fields and a numeric one."""
    fields = [
        {"name": "a", "kind": "categorical", "vocabulary_size": 30},
        {"name": "b", "kind": "categorical", "vocabulary_size": 70},
        {"name": "n", "kind": "numeric"},
    ]
    return json.dumps({"fields": fields})


@pytest.fixture
def record_of(plain_record):
    """The record of a job: two epochs of 10 s, and 5 s for the rest."""

    def record_of(
        job, *, device_kind="cpu", stopped="patience", epochs=2, epoch_s=10.0, **environment
    ):
        scores = {"valid_auc": 0.75, "valid_logloss": 0.5}
        validation = {"learning_rate": 0.1, "train_loss": 0.5, "improved": True, **scores}
        return plain_record(
            job,
            dataset="synthetic",
            history=[
                {"epoch": e, "step": e, "wall_s": epoch_s * e, **validation}
                for e in range(1, epochs + 1)
            ],
            budget={"backbone_macs": 1000, "plugin_macs": 0 if job.plugin == "dense" else 500},
            result={"epochs": epochs, "stopped": stopped},
            environment={"device_kind": device_kind, **environment},
            wall_s=epoch_s * epochs + 5,
        )

    return record_of


@pytest.fixture
def finish(runs, record_of):
    """Write the record of a job."""

    def finish(job, **facts):
        runs.put(record_of(job, **facts))

    return finish


@pytest.fixture
def worker():
    """The command of a worker that plays `parts`: what it does with the job of each seed."""

    def worker(**parts):
        return (sys.executable, "-c", WORKER, json.dumps(parts))

    return worker


@pytest.fixture
def request_of(runs):
    """The request for a job of that seed."""

    def request_of(seed):
        job = Job(
            fingerprint="f" * 64,
            backbone="DNN",
            backbone_settings=DNNSettings().plain(),
            plugin="dense",
            plugin_settings={},
            training=TrainSpec(),
            seed=seed,
        )
        return JobRequest(
            job=job, dataset="synthetic", arm="dense", table="nowhere", runs=str(runs.folder)
        )

    return request_of


@pytest.fixture
def queue_of(runs):
    """A queue of requests that need nothing."""

    def queue_of(*requests, **limits):
        works = [Work(request=request) for request in requests]
        return Queue(works, runs=runs, limits=Limits(**limits))

    return queue_of


@pytest.fixture
def clock(monkeypatch):
    """The seconds of the clock of a cluster's engine, which passes only while the engine sleeps."""
    now = [100.0]

    def sleep(seconds):
        now[0] += seconds

    time = SimpleNamespace(monotonic=lambda: now[0], sleep=sleep)
    monkeypatch.setattr("prime_bench.schedule.cluster.time", time)
    return now

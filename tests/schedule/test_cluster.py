"""Ray nodes on this machine, started and stopped here: the same results as the local engine's, also
where a node is killed half-way, has a fault, or has another version.
"""

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

import prime_bench
from prime_bench.cli.main import exit_code

RECIPE = """
schema = 1
title = "Small"
seeds = [1, 2, 3]
arms = ["dense", "prime"]
[dataset.synthetic]
rows = 2000
[training]
batch_size = 256
max_epochs = 2
[backbone.DNN]
hidden_units = [8]
net_dropout = 0.1
"""
RAY = (str(Path(sys.executable).with_name("ray")), "start", "--block", "--disable-usage-stats")
SMALL = ("--num-gpus", "0", "--object-store-memory", "80000000", "--node-ip-address", "127.0.0.1")
# A cluster of the test's own, whatever token this user's other clusters ask for. Ray's workers have
# a low priority by default, and would wait for the tests that run beside these.
OPEN = {"RAY_AUTH_MODE": "disabled", "RAY_worker_niceness": "0"}
RUN = (sys.executable, "-m", "prime_bench", "run", "recipe.toml", "--engine", "ray")
PATIENCE_S = 300
LIST = """
import json, sys, ray
ray.init(address=sys.argv[1], log_to_driver=False, logging_level=40)
print(json.dumps({n["Labels"]["name"]: n["NodeID"] for n in ray.nodes()
                  if n["Alive"] and "name" in n["Labels"]}))
"""


class LocalCluster:
    """A head without CPUs, and nodes beside it that can be killed one by one."""

    def __init__(self, folder):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.address = f"127.0.0.1:{port}"
        self.processes, self._arguments, self._variables = {}, {}, {}
        own = ["--temp-dir", folder, "--include-dashboard", "false", "--num-cpus", "0"]
        self._start("head", "--head", "--port", str(port), *own)

    def join(self, name, *, n_cpus=1, **variables):
        """Start a node with a label of that name."""
        labels = ["--labels", f"name={name}", "--num-cpus", str(n_cpus)]
        self._start(name, "--address", self.address, *labels, **variables)

    def ids(self, number):
        """Name -> id of the living nodes, as soon as there are so many."""
        found = {}
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            done = subprocess.run(
                [sys.executable, "-c", LIST, self.address],
                env={**os.environ, **OPEN},
                capture_output=True,
                text=True,
                check=False,
            )
            # Ray may say more after it.
            found = json.loads((done.stdout.splitlines() or ["{}"])[0])
            if len(found) == number:
                return found
            for name, process in list(self.processes.items()):
                if process.poll() is not None:  # two nodes have chosen the same port
                    self._start(name, *self._arguments[name], **self._variables[name])
        raise AssertionError(f"no {number} nodes but {found}")

    def kill(self, name):
        """End a node and all of its processes at once."""
        process = self.processes.pop(name)
        if process.poll() is None:
            # Everything that belongs to a node is in its process group.
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def _start(self, name, *arguments, **variables):
        self._arguments[name], self._variables[name] = arguments, variables
        self.processes[name] = subprocess.Popen(
            [*RAY, *SMALL, *arguments],
            env={**os.environ, **OPEN, **variables},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )


@pytest.fixture
def cluster():
    # Ray's sockets want a short path.
    with tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as folder:
        made = LocalCluster(folder)
        try:
            yield made
        finally:
            for name in list(made.processes):
                made.kill(name)


@pytest.fixture
def work(tmp_path, monkeypatch, capsys):
    """A folder with the recipe and its data."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "recipe.toml").write_text(RECIPE)
    assert exit_code(["prepare", "synthetic", "--rows", "2000"]) == 0
    capsys.readouterr()
    return tmp_path


def _run(work, cluster, *arguments, **variables):
    return subprocess.Popen(
        [*RUN, "--address", cluster.address, "--runs-dir", "cluster", *arguments],
        cwd=work,
        env={**os.environ, **OPEN, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _results(folder):
    found = {}
    for path in sorted(folder.glob("*/record.json")):
        record = json.loads(path.read_text())
        history = [{**line, "wall_s": None} for line in record["history"]]
        weights = (path.parent / "checkpoint.safetensors").read_bytes()
        names = sorted(file.name for file in path.parent.iterdir())
        found[path.parent.name] = (record["result"], record["pairing"], history, weights, names)
    return found


def _local(work, *arguments):
    local = ["run", "recipe.toml", "--device", "cpu", "--threads-per-job", "1"]
    assert exit_code([*local, "--runs-dir", "local", *arguments]) == 0
    return _results(work / "local")


def _wait(condition, run):
    """Until the condition holds, while the run goes on."""
    deadline = time.monotonic() + PATIENCE_S
    while not (found := condition()):
        assert run.poll() is None, run.communicate()
        assert time.monotonic() < deadline, "too late"
        time.sleep(0.02)
    return found


def test_a_killed_nodes_job_goes_on_elsewhere_with_the_same_bits(work, cluster):
    # So many epochs that the job is not done when its sixth has come back and is noticed.
    long = ["--only", "seed=1", "--only", "arm=prime", "--set", "training.max_epochs=60"]
    long += ["--set", "training.patience=60", "--set", "training.batch_size=16"]
    cluster.join("a")
    cluster.join("b")
    ids = {node_id: name for name, node_id in cluster.ids(2).items()}
    run = _run(work, cluster, *long)
    job = _wait(lambda: list((work / "cluster").glob("*/resume.state")), run)[0].parent
    _wait(lambda: len((job / "history.jsonl").read_text().splitlines()) >= 6, run)
    assert json.loads((job / "config.json").read_text())["arm"] == "prime"
    ran_on = json.loads((job / "environment.json").read_text())["node"]
    cluster.kill(ids[ran_on])
    out, err = run.communicate(timeout=PATIENCE_S)

    assert run.returncode == 0, err
    assert out == "recipe.toml: 1 jobs done, 0 had a record, 0 failed\n"
    assert "is lost, and its jobs go on elsewhere" in err
    assert json.loads((job / "record.json").read_text())["environment"]["node"] != ran_on
    epochs = re.findall(r"from the state after epoch (\d+)", (job / "log.txt").read_text())
    assert epochs
    assert int(epochs[0]) >= 5
    assert list((work / "cluster" / ".claims").iterdir()) == []
    assert _results(work / "cluster") == _local(work, *long)


def _other_version(folder):
    """A copy of the package that says it is another version."""
    package = folder / "prime_bench"
    shutil.copytree(Path(prime_bench.__file__).parent, package)
    init = package / "__init__.py"
    init.write_text(init.read_text().replace('"0.1.0"', '"0.2.0"'))
    return str(folder)


def test_nodes_with_faults_take_no_jobs_and_each_is_told_of_once(work, cluster):
    (work / "elsewhere").mkdir()
    cluster.join("good")
    cluster.join("other", PYTHONPATH=_other_version(work / "other"))
    cluster.join("empty", PRIME_BENCH_DATA=str(work / "elsewhere"))
    cluster.ids(3)
    run = _run(work, cluster, "--retries", "1")
    out, err = run.communicate(timeout=PATIENCE_S)

    assert run.returncode == 0, err
    assert out == "recipe.toml: 6 jobs done, 0 had a record, 0 failed\n"
    said = [line for line in err.splitlines() if "takes no jobs for now" in line]
    assert len(said) == 2, err
    assert sum("it has prime-bench 0.2.0 with numerics" in line for line in said) == 1
    (table,) = (work / "data").iterdir()
    missing = f"{work / 'elsewhere' / table.name}: no prepared table here"
    assert sum(missing in line for line in said) == 1
    assert "hint: copy the table's folder there, `rsync -a FOLDER HOST:DATA/`" in err
    assert _results(work / "cluster") == _local(work)


def test_a_node_without_data_is_sent_the_table_once(work, cluster):
    there = work / "new" / "data"
    cluster.join("empty", n_cpus=2, PRIME_BENCH_DATA=str(there))
    cluster.ids(1)
    run = _run(work, cluster, "--sync-data")
    out, err = run.communicate(timeout=PATIENCE_S)

    assert run.returncode == 0, err
    assert out == "recipe.toml: 6 jobs done, 0 had a record, 0 failed\n"
    (table,) = (work / "data").iterdir()
    assert err.count(f"is sent a table that it lacks: {table.name}, ") == 1
    assert [path.name for path in there.iterdir()] == [table.name]
    sent = {path.relative_to(table) for path in table.rglob("*") if path.is_file()}
    for name in sent:
        assert (there / table.name / name).read_bytes() == (table / name).read_bytes()
    assert _results(work / "cluster") == _local(work)


def test_where_no_node_can_take_a_job_the_run_ends_and_says_why_for_each(work, cluster):
    cluster.join("empty", PRIME_BENCH_DATA=str(work / "elsewhere"))
    cluster.ids(1)
    run, on_gpus = _run(work, cluster), _run(work, cluster, "--device", "cuda")
    chosen = _run(work, cluster, "--nodes", "name=nobody")
    out, err = run.communicate(timeout=PATIENCE_S)
    _, no_gpu = on_gpus.communicate(timeout=PATIENCE_S)
    _, not_chosen = chosen.communicate(timeout=PATIENCE_S)

    assert (run.returncode, out) == (4, "")
    assert f"error: no node of the Ray cluster {cluster.address} can take a job" in err
    assert "no prepared table here" in err
    assert on_gpus.returncode == 4
    assert "device cuda is not there: no node of the Ray cluster" in no_gpu
    assert chosen.returncode == 4
    assert "no node of the Ray cluster has `name=nobody`" in not_chosen


def test_a_device_with_an_index_is_the_clusters_choice(work):
    done = subprocess.run(
        [*RUN, "--device", "cuda:1"], cwd=work, capture_output=True, text=True, check=False
    )

    assert done.returncode == 2
    assert "with --engine ray the cluster chooses which one" in done.stderr


@pytest.mark.parametrize("address", ["127.0.0.1:1", "nowhere.invalid:6379", "127.0.0.1:port"])
def test_an_address_where_nothing_answers_is_one_message_at_once(work, address):
    done = subprocess.run(
        [*RUN, "--address", address],
        cwd=work,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert done.returncode == 4
    assert f"error: no Ray cluster at {address}: " in done.stderr


def _workers(work):
    """How many workers of jobs in `work` exist now."""
    count = 0
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            with contextlib.suppress(OSError):
                command = (path / "cmdline").read_bytes()
                environment = (path / "environ").read_bytes()
                count += b"prime_bench.worker" in command and str(work).encode() in environment
    return count


@pytest.mark.slow
def test_two_runs_never_have_more_workers_than_the_cluster_has_cpus(work, cluster):
    cluster.join("a", n_cpus=2, PRIME_BENCH_DATA=str(work / "data"))
    cluster.ids(1)
    first = _run(work, cluster)
    second = _run(work, cluster, "--set", "training.max_epochs=3")
    seen = []
    while first.poll() is None or second.poll() is None:
        seen.append(_workers(work))
        time.sleep(0.05)
    outs = [run.communicate() for run in (first, second)]

    assert [run.returncode for run in (first, second)] == [0, 0], outs
    assert max(seen) == 2
    assert len(list((work / "cluster").glob("*/record.json"))) == 12


@pytest.mark.slow
def test_a_node_with_a_full_disk_is_set_aside(work, cluster):
    small = work / "small"
    small.mkdir()
    size = ("-o", "size=4m")
    if subprocess.run(["mount", "-t", "tmpfs", *size, "tmpfs", str(small)], check=False).returncode:
        pytest.skip("mounting a small disk needs root")
    try:
        cluster.join("good")
        cluster.join("full", TMPDIR=str(small))
        cluster.ids(2)
        run = _run(work, cluster)
        out, err = run.communicate(timeout=PATIENCE_S)
    finally:
        cluster.kill("full")
        subprocess.run(["umount", "-l", str(small)], check=True)

    assert run.returncode == 0, err
    assert out == "recipe.toml: 6 jobs done, 0 had a record, 0 failed\n"
    assert f"takes no jobs for now: {small}: 4 MB are free, a job may need" in err


@pytest.mark.slow
def test_the_loss_of_the_head_is_one_message_and_the_same_command_goes_on(work, cluster):
    cluster.join("a")
    cluster.ids(1)
    long = ["--set", "training.max_epochs=50", "--set", "training.patience=50"]
    run = _run(work, cluster, *long, RAY_gcs_rpc_server_reconnect_timeout_s="12")
    _wait(lambda: list((work / "cluster").glob("*/record.json")), run)
    cluster.kill("head")
    out, err = run.communicate(timeout=PATIENCE_S)

    assert (run.returncode, out) == (4, ""), err
    (message,) = [line for line in err.splitlines() if line.startswith("error: ")]
    assert message.startswith("error: the head")
    assert f"of the Ray cluster {cluster.address} no longer answers" in message
    assert "are safe" in message
    assert "the same command then continues" in err
    assert "Traceback" not in err
    done = {path: path.read_bytes() for path in (work / "cluster").glob("*/record.json")}
    assert done
    local = ["run", "recipe.toml", "--device", "cpu", "--threads-per-job", "1", *long]
    assert exit_code([*local, "--runs-dir", "cluster"]) == 0
    assert {path: path.read_bytes() for path in done} == done

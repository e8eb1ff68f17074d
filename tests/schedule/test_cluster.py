"""Two Ray nodes on this machine, started and stopped here: the same results as the local engine's,
and one of them killed half-way.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

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
SMALL = ("--num-cpus", "1", "--num-gpus", "0", "--object-store-memory", "100000000")
# A cluster of the test's own, whatever token this user's other clusters ask for.
OPEN = {"RAY_AUTH_MODE": "disabled"}
RUN = (sys.executable, "-m", "prime_bench", "run", "recipe.toml", "--engine", "ray")
PATIENCE_S = 120


@pytest.fixture(scope="module")
def address():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return f"127.0.0.1:{port}"


def _start(*arguments, **variables):
    """A node; everything that belongs to it is in its process group."""
    return subprocess.Popen(
        [*RAY, *SMALL, "--node-ip-address", "127.0.0.1", *arguments],
        env={**os.environ, **OPEN, **variables},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _end(node):
    if node.poll() is None:
        os.killpg(node.pid, signal.SIGKILL)
    node.wait()


@pytest.fixture(scope="module")
def head(address):
    # Ray's sockets want a short path.
    with tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as folder:
        own = ["--temp-dir", folder, "--include-dashboard", "false"]
        node = _start("--head", "--port", address.partition(":")[2], *own)
        try:
            yield node
        finally:
            _end(node)


@pytest.fixture
def second(address, head):
    """A node beside the head, which a test may kill."""
    assert head.poll() is None
    node = _start("--address", address)
    yield node
    _end(node)


@pytest.fixture
def work(tmp_path, monkeypatch, capsys):
    """A folder with the recipe and its data."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "recipe.toml").write_text(RECIPE)
    assert exit_code(["prepare", "synthetic", "--rows", "2000"]) == 0
    capsys.readouterr()
    return tmp_path


def _run(work, address, *arguments):
    return subprocess.Popen(
        [*RUN, "--address", address, *arguments],
        cwd=work,
        env={**os.environ, **OPEN},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _wait_for_nodes(address, number):
    """Until the cluster has so many nodes that take jobs."""
    code = (
        "import sys, ray\n"
        "ray.init(address=sys.argv[1], log_to_driver=False, logging_level=40)\n"
        "print(sum(bool(n['Alive'] and n['Resources'].get('CPU')) for n in ray.nodes()))\n"
    )
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        done = subprocess.run(
            [sys.executable, "-c", code, address],
            env={**os.environ, **OPEN},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.stdout.strip() == str(number):
            return
    raise AssertionError(f"no {number} nodes: {done.stderr}")


def _results(folder):
    found = {}
    for path in sorted(folder.glob("*/record.json")):
        record = json.loads(path.read_text())
        history = [{**line, "wall_s": None} for line in record["history"]]
        weights = (path.parent / "checkpoint.safetensors").read_bytes()
        names = sorted(file.name for file in path.parent.iterdir())
        found[path.parent.name] = (record["result"], record["pairing"], history, weights, names)
    return found


def test_two_nodes_give_the_local_engines_results_even_when_one_is_lost(work, address, second):
    _wait_for_nodes(address, 2)
    run = _run(work, address, "--runs-dir", "cluster")
    while run.poll() is None and not list((work / "cluster").glob("*/record.json")):
        time.sleep(0.1)
    assert run.poll() is None, "all jobs were done before a node could be killed"
    _end(second)
    out, err = run.communicate(timeout=PATIENCE_S)

    assert run.returncode == 0, err
    # Ray may say on stdout which node it has lost.
    assert out.endswith("recipe.toml: 6 jobs done, 0 had a record, 0 failed\n")
    assert list((work / "cluster" / ".claims").iterdir()) == []
    local = ["run", "recipe.toml", "--device", "cpu", "--threads-per-job", "1"]
    assert exit_code([*local, "--runs-dir", "local"]) == 0
    assert len(_results(work / "local")) == 6
    assert _results(work / "cluster") == _results(work / "local")


def test_a_node_without_the_data_or_a_gpu_is_one_message(work, address, head):
    assert head.poll() is None
    elsewhere = work / "elsewhere"
    node = _start("--address", address, PRIME_BENCH_DATA=str(elsewhere))
    try:
        _wait_for_nodes(address, 2)
        run, on_gpus = _run(work, address), _run(work, address, "--device", "cuda")
        out, err = run.communicate(timeout=PATIENCE_S)
        _, no_gpu = on_gpus.communicate(timeout=PATIENCE_S)
    finally:
        _end(node)

    assert run.returncode == 3
    assert "jobs done" not in out
    (table,) = (work / "data").iterdir()
    said = [line for line in err.splitlines() if line.startswith("error: node ")]
    assert len(said) == 1
    assert f"{elsewhere / table.name}: no prepared table here" in said[0]
    assert "hint: copy the table's folder there, `rsync -a FOLDER HOST:DATA/`" in err
    assert on_gpus.returncode == 4
    assert "device cuda is not there: no node of the Ray cluster" in no_gpu


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

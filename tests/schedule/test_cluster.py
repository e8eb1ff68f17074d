"""Ray nodes on this machine, started and stopped here: the same results as the local engine's, also
where a node is killed half-way, has a fault, or has another version.
"""

import contextlib
import importlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from prime_bench.cli.main import exit_code

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))
ray_nodes = importlib.import_module("ray_nodes")
OPEN, PATIENCE_S = ray_nodes.OPEN, ray_nodes.PATIENCE_S
n_workers, other_version = ray_nodes.n_workers, ray_nodes.other_version
results, small_disk, wait_for = ray_nodes.results, ray_nodes.small_disk, ray_nodes.wait_for

pytestmark = pytest.mark.long

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
RUN = (sys.executable, "-m", "prime_bench", "run", "recipe.toml", "--engine", "ray")


@contextlib.contextmanager
def _started():
    # Ray's sockets want a short path.
    with (
        tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as folder,
        ray_nodes.LocalCluster(folder) as made,
    ):
        yield made


@pytest.fixture(scope="module")
def head():
    """A cluster of the head alone, which takes longer to start than most tests."""
    with _started() as made:
        yield made


@pytest.fixture
def cluster(head):
    """The cluster for nodes of one test, which end with it."""
    yield head
    head.kill_nodes()


@pytest.fixture
def own_cluster():
    with _started() as made:
        yield made


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """The folder of the recipe's data."""
    folder = tmp_path_factory.mktemp("prepared") / "data"
    assert exit_code(["prepare", "synthetic", "--rows", "2000", "--data-dir", str(folder)]) == 0
    return folder


@pytest.fixture
def work(tmp_path, monkeypatch, data):
    """A folder with the recipe and its data."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "recipe.toml").write_text(RECIPE)
    shutil.copytree(data, tmp_path / "data")
    return tmp_path


@pytest.fixture(scope="module")
def local_results(tmp_path_factory, data):
    """What the recipe's jobs give without a cluster."""
    folder = tmp_path_factory.mktemp("local")
    (folder / "recipe.toml").write_text(RECIPE)
    return _local(folder, "--data-dir", str(data))


def _run(work, cluster, *arguments, **variables):
    return subprocess.Popen(
        [*RUN, "--address", cluster.address, "--runs-dir", "cluster", *arguments],
        cwd=work,
        env={**os.environ, **OPEN, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _local(work, *arguments):
    local = ["run", str(work / "recipe.toml"), "--device", "cpu", "--threads-per-job", "1"]
    assert exit_code([*local, "--runs-dir", str(work / "local"), *arguments]) == 0
    return results(work / "local")


def test_a_killed_nodes_job_goes_on_elsewhere_with_the_same_bits(work, cluster):
    # So many epochs that the job is not done when its third has come back and is noticed.
    long = ["--only", "seed=1", "--only", "arm=prime", "--set", "training.max_epochs=20"]
    long += ["--set", "training.patience=20", "--set", "training.batch_size=32"]
    cluster.join("a")
    cluster.join("b")
    ids = {node_id: name for name, node_id in cluster.ids(2).items()}
    run = _run(work, cluster, *long)
    job = wait_for(lambda: list((work / "cluster").glob("*/resume.state")), run)[0].parent
    wait_for(lambda: len((job / "history.jsonl").read_text().splitlines()) >= 3, run)
    assert json.loads((job / "config.json").read_text())["arm"] == "prime"
    ran_on = json.loads((job / "environment.json").read_text())["node"]
    cluster.kill(ids[ran_on])
    out, err = run.communicate(timeout=PATIENCE_S)

    assert run.returncode == 0, err
    assert out == "recipe.toml: 1 job done, 0 had a record, 0 failed\n"
    assert "is lost, and its jobs go on elsewhere" in err
    assert json.loads((job / "record.json").read_text())["environment"]["node"] != ran_on
    epochs = re.findall(r"from the state after epoch (\d+)", (job / "log.txt").read_text())
    assert epochs
    assert int(epochs[0]) >= 2
    assert list((work / "cluster" / ".claims").iterdir()) == []
    assert results(work / "cluster") == _local(work, *long)


def test_nodes_with_faults_take_no_jobs_and_each_is_told_of_once(work, cluster, local_results):
    (work / "elsewhere").mkdir()
    cluster.join("good")
    cluster.join("other", PYTHONPATH=other_version(work / "other"))
    cluster.join("empty", PRIME_BENCH_DATA=str(work / "elsewhere"))
    cluster.ids(3)
    run = _run(work, cluster, "--retries", "1")
    out, err = run.communicate(timeout=PATIENCE_S)

    assert run.returncode == 0, err
    assert out == "recipe.toml: 6 jobs done, 0 had a record, 0 failed\n"
    said = [line for line in err.splitlines() if "takes no jobs for now" in line]
    assert len(said) == 2, err
    assert sum("it has prime-bench 0.1.0.post1 with numerics" in line for line in said) == 1
    (table,) = (work / "data").iterdir()
    missing = f"{work / 'elsewhere' / table.name}: no prepared table here"
    assert sum(missing in line for line in said) == 1
    assert "hint: copy the table's folder there, `rsync -a FOLDER HOST:DATA/`" in err
    assert results(work / "cluster") == local_results


def test_a_node_without_data_is_sent_the_table_once(work, cluster, local_results):
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
    assert results(work / "cluster") == local_results


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


@pytest.mark.usefixtures("work")
def test_a_device_with_an_index_is_the_clusters_choice(capsys):
    assert exit_code([*RUN[3:], "--device", "cuda:1"]) == 2
    assert "with --engine ray the cluster chooses which one" in capsys.readouterr().err


@pytest.mark.usefixtures("work")
@pytest.mark.parametrize("address", ["127.0.0.1:1", "nowhere.invalid:6379", "127.0.0.1:port"])
def test_an_address_where_nothing_answers_is_one_message_at_once(capsys, monkeypatch, address):
    # It would look for the cluster for minutes.
    monkeypatch.setattr("ray.init", lambda **_options: pytest.fail("Ray is asked"))

    assert exit_code([*RUN[3:], "--address", address]) == 4
    assert f"error: no Ray cluster at {address}: " in capsys.readouterr().err


@pytest.mark.slow
def test_two_runs_never_have_more_workers_than_the_cluster_has_cpus(work, cluster):
    cluster.join("a", n_cpus=2, PRIME_BENCH_DATA=str(work / "data"))
    cluster.ids(1)
    first = _run(work, cluster)
    second = _run(work, cluster, "--set", "training.max_epochs=3")
    seen = []
    while first.poll() is None or second.poll() is None:
        seen.append(n_workers(work))
        time.sleep(0.05)
    outs = [run.communicate() for run in (first, second)]

    assert [run.returncode for run in (first, second)] == [0, 0], outs
    assert max(seen) == 2
    assert len(list((work / "cluster").glob("*/record.json"))) == 12


@pytest.mark.slow
def test_a_node_with_a_full_disk_is_set_aside(work, cluster):
    small = work / "small"
    small.mkdir()
    if (within := small_disk(small)) is None:
        pytest.skip("this user may mount no small disk")
    cluster.join("good")
    cluster.join("full", within=within, TMPDIR=str(small))
    cluster.ids(2)
    run = _run(work, cluster)
    out, err = run.communicate(timeout=PATIENCE_S)

    assert run.returncode == 0, err
    assert out == "recipe.toml: 6 jobs done, 0 had a record, 0 failed\n"
    assert f"takes no jobs for now: {small}: 4 MB are free, a job may need" in err


@pytest.mark.slow
def test_the_loss_of_the_head_is_one_message_and_the_same_command_goes_on(work, own_cluster):
    cluster = own_cluster
    cluster.join("a")
    cluster.ids(1)
    long = ["--set", "training.max_epochs=50", "--set", "training.patience=50"]
    run = _run(work, cluster, *long, RAY_gcs_rpc_server_reconnect_timeout_s="12")
    wait_for(lambda: list((work / "cluster").glob("*/record.json")), run)
    cluster.kill("head")
    out, err = run.communicate(timeout=PATIENCE_S)

    assert (run.returncode, out) == (4, ""), err
    (message,) = [line for line in err.splitlines() if line.startswith("error: ")]
    assert message.startswith("error: the head")
    assert f"of the Ray cluster {cluster.address} no longer answers" in message
    assert " safe, " in message
    assert "the same command then continues" in err
    assert "Traceback" not in err
    done = {path: path.read_bytes() for path in (work / "cluster").glob("*/record.json")}
    assert done
    local = ["run", "recipe.toml", "--device", "cpu", "--threads-per-job", "1", *long]
    assert exit_code([*local, "--runs-dir", "cluster"]) == 0
    assert {path: path.read_bytes() for path in done} == done

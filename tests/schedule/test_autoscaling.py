"""A cluster that begins without workers: what the run asks for, and that the cluster grows by it.

The autoscaler is Ray's own, with its provider for tests, which starts nodes on this machine.
"""

import contextlib
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
from prime_bench.schedule import cluster

RECIPE = """
schema = 1
title = "Small"
seeds = [1, 2]
arms = ["dense", "prime"]
[dataset.synthetic]
rows = 2000
[training]
batch_size = 256
max_epochs = 1
[backbone.DNN]
hidden_units = [8]
"""
OPEN = {"RAY_AUTH_MODE": "disabled", "RAY_worker_niceness": "0"}
PATIENCE_S = 300
NODE = {"CPU": 1, "memory": 4_000_000_000, "object_store_memory": 80_000_000}
PROVIDER = """
from ray.autoscaler._private.fake_multi_node.node_provider import FakeMultiNodeProvider

class Provider(FakeMultiNodeProvider):
    # A node finds its own memory, and Ray does not let this provider name it.
    def _create_node_with_resources_and_labels(self, config, tags, count, resources, labels):
        named = {name: amount for name, amount in resources.items() if name != "memory"}
        super()._create_node_with_resources_and_labels(config, tags, count, named, labels)
"""
LIVING = """
import json, sys, ray
ray.init(address=sys.argv[1], log_to_driver=False, logging_level=40)
print(sum(n["Alive"] and n["Resources"].get("CPU", 0) > 0 for n in ray.nodes()))
"""


class _Ray:
    """Notes what is asked of Ray. `free` is how many tasks there is room for."""

    def __init__(self, free):
        self.free, self.options_seen, self.waiting, self.n_submitted = free, None, [], 0

    def remote(self, _function):
        return self

    def options(self, **options):
        self.options_seen = options

        class _Task:
            def remote(_self):
                self.n_submitted += 1
                self.waiting.append(self.n_submitted)
                return self.n_submitted

        return _Task()

    def wait(self, references, *, num_returns, timeout):
        assert num_returns == len(references)
        assert timeout == 0
        done, left = references[: self.free], references[self.free :]
        self.waiting = [one for one in self.waiting if one not in done]
        return done, left

    def cancel(self, reference):
        self.waiting.remove(reference)


def test_demand_is_what_is_missing_and_is_withdrawn(monkeypatch):
    ray, now = _Ray(free=0), [100.0]
    monkeypatch.setattr(cluster, "ray", ray)
    monkeypatch.setattr(cluster.time, "monotonic", lambda: now[0])
    demand = cluster._Demand({"num_cpus": 2, "memory": 5})
    for n_slots, seconds, stands in [(3, 0, 3), (5, 1, 3), (5, 5, 5), (2, 5, 2), (0, 0, 0)]:
        now[0] += seconds
        demand.ask(n_slots)
        assert len(ray.waiting) == stands

    assert ray.options_seen == {"num_cpus": 2, "memory": 5, "max_retries": 0}
    assert ray.n_submitted == 5
    now[0] += 5
    demand.ask(3)
    ray.free = 2  # a node has come, and has done two of the three
    now[0] += 5
    demand.ask(3)
    assert len(ray.waiting) == 3
    assert ray.n_submitted == 5 + 3 + 2


@pytest.fixture
def growing(tmp_path):
    """Address of a cluster whose head has no CPU, and which starts two nodes of one at most."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    config = {
        "cluster_name": "growing",
        "max_workers": 2,
        "upscaling_speed": 10,
        "idle_timeout_minutes": 0.2,
        "provider": {
            "type": "external",
            "module": "provider.Provider",
            "gcs_address": address,
            "launch_multiple": True,
            "disable_node_updaters": True,
            "disable_launch_config_check": True,
            "use_internal_ips": True,
            "use_node_id_as_ip": True,
            "head_node_id": "f" * 51 + "00000",
        },
        "available_node_types": {
            "ray.head.default": {"resources": {"CPU": 0}, "node_config": {}, "max_workers": 0},
            "worker": {"resources": NODE, "node_config": {}, "min_workers": 0, "max_workers": 2},
        },
        "head_node_type": "ray.head.default",
        "auth": {},
        "docker": {},
        "file_mounts_sync_continuously": False,
        **{key: {} for key in ("file_mounts", "head_node", "worker_nodes")},
        **{key: [] for key in ("cluster_synced_files", "rsync_exclude", "rsync_filter")},
        **{key: [] for key in ("initialization_commands", "setup_commands")},
        **{key: [] for key in ("head_setup_commands", "worker_setup_commands")},
        **{key: [] for key in ("head_start_ray_commands", "worker_start_ray_commands")},
    }
    (tmp_path / "provider.py").write_text(PROVIDER)
    (tmp_path / "autoscaling.json").write_text(json.dumps(config))
    # Ray's sockets want a short path.
    with tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as folder:
        command = [str(Path(sys.executable).with_name("ray")), "start", "--head", "--block"]
        command += ["--disable-usage-stats", "--include-dashboard", "false", "--temp-dir", folder]
        command += ["--port", address.rpartition(":")[2], "--node-ip-address", "127.0.0.1"]
        command += ["--num-cpus", "0", "--num-gpus", "0", "--object-store-memory", "80000000"]
        command += ["--autoscaling-config", str(tmp_path / "autoscaling.json")]
        variables = {
            "PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]),
            "RAY_FAKE_CLUSTER": "1",
            "RAY_OVERRIDE_NODE_ID_FOR_TESTING": "f" * 51 + "00000",
            "RAY_CLOUD_INSTANCE_ID": "f" * 51 + "00000",
            "AUTOSCALER_UPDATE_INTERVAL_S": "1",
        }
        head = subprocess.Popen(
            command,
            env={**os.environ, **OPEN, **variables},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            yield address
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(head.pid, signal.SIGKILL)
            head.wait()


def _living(address):
    done = subprocess.run(
        [sys.executable, "-c", LIVING, address],
        env={**os.environ, **OPEN},
        capture_output=True,
        text=True,
        check=False,
    )
    return int((done.stdout.splitlines() or ["-1"])[0])


def _wait_for(address, n_nodes):
    deadline = time.monotonic() + PATIENCE_S
    while (found := _living(address)) != n_nodes:
        assert time.monotonic() < deadline, found


@pytest.mark.slow
def test_a_cluster_without_workers_grows_and_shrinks_again(tmp_path, monkeypatch, growing):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "recipe.toml").write_text(RECIPE)
    assert exit_code(["prepare", "synthetic", "--rows", "2000"]) == 0
    _wait_for(growing, 0)
    command = [sys.executable, "-m", "prime_bench", "--debug", "run", "recipe.toml"]
    command += ["--engine", "ray", "--address", growing]
    at_once, waited = (
        subprocess.run(
            [*command, *more],
            env={**os.environ, **OPEN},
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        for more in ([], ["--node-timeout", "200"])
    )

    assert at_once.returncode == 4
    hint = "--node-timeout SECONDS waits for nodes that an autoscaler starts"
    assert hint in at_once.stderr, at_once.stderr
    assert waited.returncode == 0, waited.stderr
    assert waited.stdout == "recipe.toml: 4 jobs done, 0 had a record, 0 failed\n"
    assert "no node can take a job, the run waits for one: at most 200 s" in waited.stderr
    records = [json.loads(path.read_text()) for path in (tmp_path / "runs").glob("*/record.json")]
    assert len({record["environment"]["node"] for record in records}) == 2
    # Nothing that was asked for is left, so the nodes are no longer needed.
    _wait_for(growing, 0)

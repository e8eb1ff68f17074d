"""The files of `scripts/cluster`, with stand-ins for Slurm's and Ray's commands on the path."""

import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest
import yaml

from prime_bench.base.files import pins

FOLDER = Path(__file__).parents[2] / "scripts" / "cluster"
NOTE = '#!/bin/bash\necho "${0##*/} $*" >> calls\n'
COMMANDS = {
    "scontrol": NOTE + "printf '%s\\n' ${3//,/ }\n",
    "srun": NOTE + 'while [[ $1 == --* ]]; do shift; done\nexec "$@"\n',
    "ray": NOTE + "[ $1 = start ] || exit 0\ntrap 'exit 0' TERM\nsleep 60 & wait\n",
    # It has its trap before the note that a test waits for.
    "prime-bench": "#!/bin/bash\ntrap 'echo saved >> calls; exit 130' TERM\n"
    + NOTE
    + 'if [ "$2" = long ]; then sleep 60 & wait; fi\n'
    # A cluster that has just begun does not end before its head and other nodes.
    "begun() { grep -q '^ray start --head' calls && grep -q '^ray start --block' calls; }\n"
    "while [[ $SLURM_JOB_NODELIST == *,* ]] && ! begun; do\n"
    'sleep 0.05\ndone\nexit "${CODE:-0}"\n',
}
FIELDS = {
    "": {"apiVersion", "kind", "metadata", "spec"},
    "spec": {"entrypoint", "shutdownAfterJobFinishes", "ttlSecondsAfterFinished", "rayClusterSpec"},
    "rayClusterSpec": {
        *("rayVersion", "enableInTreeAutoscaling", "autoscalerOptions", "headGroupSpec"),
        "workerGroupSpecs",
    },
    "autoscalerOptions": {"idleTimeoutSeconds"},
    "headGroupSpec": {"rayStartParams", "template"},
    "workerGroupSpecs": {
        *("groupName", "replicas", "minReplicas", "maxReplicas", "rayStartParams", "template"),
    },
}
"""Names of KubeRay's reference of ray.io/v1 that are used, by the field that they are part of."""


@pytest.fixture
def start(tmp_path):
    """Start a script in a folder of its own, with the stand-ins; `calls` has what they got."""
    commands = tmp_path / "bin"
    commands.mkdir()
    for name, text in COMMANDS.items():
        (commands / name).write_text(text)
        (commands / name).chmod(0o755)
    with socket.create_server(("127.0.0.1", 0)) as head:
        slurm = {
            "PATH": f"{commands}:{os.environ['PATH']}",
            "SLURM_JOB_ID": "4711",
            "SLURM_JOB_NODELIST": "localhost,b,c",
            "SLURM_CPUS_PER_TASK": "6",
            "SLURM_GPUS_ON_NODE": "2",
            "RAY_PORT": str(head.getsockname()[1]),
        }
        started = []

        def begin(name, *arguments, **variables):
            script = subprocess.Popen(
                ["bash", str(FOLDER / name), *arguments],
                cwd=tmp_path,
                env={**slurm, **variables},
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            started.append(script)
            return script

        yield begin
        for script in started:
            if script.poll() is None:
                os.killpg(script.pid, signal.SIGKILL)
                script.wait()


def _calls(folder, *, of, number=1):
    """What a command was called with, as soon as it was."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        text = (folder / "calls").read_text() if (folder / "calls").exists() else ""
        if len(found := [line for line in text.splitlines() if line.startswith(of)]) >= number:
            return found
        time.sleep(0.02)
    raise AssertionError(text)


@pytest.mark.parametrize("name", sorted(path.name for path in FOLDER.glob("*.slurm")))
def test_scripts_are_valid(name):
    checkers = [["bash", "-n"], *([["shellcheck"]] if shutil.which("shellcheck") else [])]
    for checker in checkers:
        done = subprocess.run([*checker, str(FOLDER / name)], capture_output=True, text=True)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("code", [0, 1])
def test_ray_runs_on_all_nodes_and_the_runs_exit_code_is_kept(tmp_path, start, code):
    script = start("ray.slurm", "main13", "--retries", "1", CODE=str(code))

    assert script.wait(timeout=60) == code
    (port,) = {line.split("--port=")[1].split()[0] for line in _calls(tmp_path, of="ray start --h")}
    (others,) = _calls(tmp_path, of="srun")
    assert "--nodes=2 --ntasks=2" in others
    assert "--exclude=localhost" in others
    assert f"ray start --block --address=localhost:{port} --num-cpus=6 --num-gpus=2" in others
    (run,) = _calls(tmp_path, of="prime-bench")
    assert run.startswith("prime-bench run main13 --retries 1 --engine ray --address localhost:")


@pytest.mark.parametrize("name", ["ray.slurm", "array.slurm"])
def test_slurms_warning_reaches_the_run_which_saves_its_state(tmp_path, start, name):
    script = start(name, "long")
    _calls(tmp_path, of="prime-bench")
    script.send_signal(signal.SIGTERM)

    assert script.wait(timeout=60) == 130
    assert _calls(tmp_path, of="saved") == ["saved"]


def test_one_node_needs_no_srun(tmp_path, start):
    assert start("ray.slurm", "main13", SLURM_JOB_NODELIST="localhost").wait(timeout=60) == 0
    assert "srun" not in (tmp_path / "calls").read_text()


def test_the_manifest_has_the_documented_fields_and_the_tested_ray():
    job = yaml.safe_load((FOLDER / "rayjob.yaml").read_text())
    cluster = job["spec"]["rayClusterSpec"]
    (workers,) = cluster["workerGroupSpecs"]
    parts = {
        "": job,
        "spec": job["spec"],
        "rayClusterSpec": cluster,
        "autoscalerOptions": cluster["autoscalerOptions"],
        "headGroupSpec": cluster["headGroupSpec"],
        "workerGroupSpecs": workers,
    }
    assert {name: set(part) for name, part in parts.items()} == FIELDS
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    assert cluster["rayVersion"] == pins()["ray"]
    for group in (cluster["headGroupSpec"], workers):
        pod = group["template"]["spec"]
        volumes = {volume["name"] for volume in pod["volumes"]}
        (container,) = pod["containers"]
        assert {mount["name"] for mount in container["volumeMounts"]} == volumes
        assert all(isinstance(value, str) for value in group["rayStartParams"].values())
    assert workers["minReplicas"] <= workers["replicas"] <= workers["maxReplicas"]

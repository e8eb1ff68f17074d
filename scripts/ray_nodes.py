"""Ray nodes on this machine, for tests and for `cluster_trial.py`: started, killed one by one, and
some of them with a fault.
"""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import prime_bench

PATIENCE_S = 900.0
"""How long to wait for what takes seconds where nothing else computes."""
RAY = (str(Path(sys.executable).with_name("ray")), "start", "--block", "--disable-usage-stats")
SMALL = (
    *("--num-gpus", "0", "--object-store-memory", "80000000", "--node-ip-address", "127.0.0.1"),
    # It would be one more Python process on each node, which sends logs that nobody reads.
    *("--include-log-monitor", "false"),
)
OPEN = {
    # A cluster of one's own, whatever token this user's other clusters ask for.
    "RAY_AUTH_MODE": "disabled",
    # Ray's workers have a low priority by default, and would wait for all that runs beside them.
    "RAY_worker_niceness": "0",
    # A node is lost after five checks without an answer. A killed one refuses them at once, so that
    # this shortens the wait for it from 15 s to 0.5 s; a slow one still has 10 s for each.
    "RAY_health_check_period_ms": "100",
    # Before the first check of a node. By default 5 s, and a node killed earlier is missed then.
    "RAY_health_check_initial_delay_ms": "500",
}
_LIST = """
import json, sys, time
from ray._private.state import GlobalState
from ray._raylet import GcsClientOptions
address, wait_s = sys.argv[1], float(sys.argv[2])
state = GlobalState()
state._initialize_global_state(GcsClientOptions.create(
    address, None, allow_cluster_id_nil=True, fetch_cluster_id_if_nil=False))
for number in map(int, sys.stdin):
    end = time.monotonic() + wait_s
    while True:
        names = {node["Labels"]["name"]: node["NodeID"] for node in state.node_table()
                 if node["Alive"] and "name" in node["Labels"]}
        if len(names) == number or time.monotonic() > end:
            break
        time.sleep(0.05)
    print(json.dumps(names), flush=True)
"""
_LIST_S = _ANSWER_S = 10.0
_Found = TypeVar("_Found")


class LocalCluster:
    """A head without CPUs, and nodes beside it that can be killed one by one.

    A context manager that kills them all.
    """

    def __init__(self, folder: str) -> None:
        """Start the head. `folder` is Ray's; its path has to be short, since sockets are in it."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        self.address = f"127.0.0.1:{self._port}"
        self._folder = folder
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._commands: dict[str, tuple[Sequence[str], Mapping[str, str]]] = {}
        self._lister: subprocess.Popen[str] | None = None
        self.start_head()

    def start_head(self) -> None:
        """Start the head, at the same address also the second time."""
        own = ["--temp-dir", self._folder, "--include-dashboard", "false", "--num-cpus", "0"]
        own += ["--no-monitor"]  # nothing here starts nodes by demand
        self._start("head", [*RAY, *SMALL, "--head", "--port", str(self._port), *own], {})

    def join(
        self, name: str, *, n_cpus: int = 1, within: Sequence[str] = (), **variables: str
    ) -> None:
        """Start a node with a label of that name.

        Args:
            name: Its name.
            n_cpus: How many CPUs it says it has.
            within: A command that starts the node's, such as `small_disk`.
            variables: Environment variables.
        """
        self._wait_for_head()
        command = [*within, *RAY, *SMALL, "--address", self.address]
        command += ["--labels", f"name={name}", "--num-cpus", str(n_cpus)]
        # In one folder, nodes that start at the same moment choose the same name of a socket. One
        # of them fails, and `ray start` notices it after 30 s. Ray 2.52 ignores the option.
        command += ["--temp-dir", f"{self._folder}/{name}"]
        self._start(name, command, variables)

    def ids(self, number: int) -> dict[str, str]:
        """Name -> id of the living nodes beside the head, as soon as there are so many."""
        found: dict[str, str] = {}
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            found = self._list(number)
            if len(found) == number:
                return found
            for name, process in list(self._processes.items()):
                if process.poll() is not None:  # two nodes have chosen the same name of a socket
                    self._start(name, *self._commands[name])
        raise AssertionError(f"no {number} nodes but {found}")

    def kill(self, name: str) -> None:
        """End a node and all of its processes at once."""
        process = self._processes.pop(name)
        if process.poll() is None:
            # Everything that belongs to a node is in its process group.
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def kill_nodes(self) -> None:
        """End the nodes beside the head, and wait until the head knows it."""
        for name in set(self._processes) - {"head"}:
            self.kill(name)
        self.ids(0)

    def kill_all(self) -> None:
        """End the nodes and the head."""
        self._end_lister()
        for name in list(self._processes):
            self.kill(name)

    def __enter__(self) -> "LocalCluster":
        return self

    def __exit__(self, *_error: object) -> None:
        self.kill_all()

    def _list(self, number: int) -> dict[str, str]:
        """The same, waiting for so many for a while. One process answers each time: to import Ray
        takes it a second.
        """
        if self._lister is None:
            self._lister = subprocess.Popen(
                [sys.executable, "-c", _LIST, self.address, str(_LIST_S)],
                env={**os.environ, **OPEN},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
        with contextlib.suppress(BrokenPipeError):
            print(number, file=self._lister.stdin, flush=True)
            for line in self._lister.stdout or ():
                return json.loads(line)
        self._end_lister()  # Ray fails as long as the head does not answer
        return {}

    def _end_lister(self) -> None:
        if self._lister is not None:
            self._lister.kill()
            self._lister.communicate()
            self._lister = None

    def _wait_for_head(self) -> None:
        """Until it takes connections; a node that is started before gives up after some seconds."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", self._port), timeout=_ANSWER_S).close()
                return
            time.sleep(0.1)

    def _start(self, name: str, command: Sequence[str], variables: Mapping[str, str]) -> None:
        self._commands[name] = command, variables
        self._processes[name] = subprocess.Popen(
            command,
            env={**os.environ, **OPEN, **variables},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )


def other_version(folder: Path) -> str:
    """Make a copy of the package that says it is another version; its PYTHONPATH."""
    package = folder / "prime_bench"
    shutil.copytree(Path(prime_bench.__file__).parent, package)
    init = package / "__init__.py"
    text = init.read_text(encoding="utf-8")
    version = prime_bench.__version__
    init.write_text(text.replace(f'"{version}"', f'"{version}.post1"'), encoding="utf-8")
    return str(folder)


def small_disk(folder: Path, *, size: str = "4m") -> tuple[str, ...] | None:
    """A command before another one, which then sees a disk of that size at `folder`, and no other
    process does; None where this user may mount nothing. The disk ends with the command.
    """
    script = 'mount -t tmpfs -o size="$1" tmpfs "$2" && shift 2 && exec "$@"'
    for user in ((), ("--user", "--map-root-user")):
        command = ("unshare", "--mount", *user, "sh", "-c", script, "sh", size, str(folder))
        with contextlib.suppress(FileNotFoundError):
            if not subprocess.run([*command, "true"], capture_output=True, check=False).returncode:
                return command
    return None


def results(folder: Path) -> dict[str, tuple[Any, ...]]:
    """Job id -> what must not depend on where the job ran: result, hashes, history without times,
    bytes of the weights, names of the files.
    """
    found = {}
    for path in sorted(folder.glob("*/record.json")):
        record = json.loads(path.read_text(encoding="utf-8"))
        history = [{**line, "wall_s": None} for line in record["history"]]
        weights = (path.parent / "checkpoint.safetensors").read_bytes()
        names = sorted(file.name for file in path.parent.iterdir())
        found[path.parent.name] = (record["result"], record["pairing"], history, weights, names)
    return found


def n_workers(folder: Path) -> int:
    """How many workers exist now that have `folder` in an environment variable."""
    count = 0
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            command = (path / "cmdline").read_bytes()
            environment = (path / "environ").read_bytes()
            count += b"prime_bench.worker" in command and os.fsencode(folder) in environment
    return count


def wait_for(
    condition: Callable[[], _Found],
    run: subprocess.Popen[str],
    *,
    patience_s: float = PATIENCE_S,
) -> _Found:
    """What the condition returns as soon as it is true, while the run goes on."""
    deadline = time.monotonic() + patience_s
    while not (found := condition()):
        if run.poll() is not None:
            raise AssertionError(f"the run has ended with {run.returncode}: {run.communicate()}")
        if time.monotonic() > deadline:
            raise AssertionError(f"it has not come about within {patience_s:.0f} s")
        time.sleep(0.02)
    return found

"""Repeat what runs on a Ray cluster must show, with nodes on this machine; print it as Markdown.

    python scripts/cluster_trial.py --work /tmp/trial            # all parts that are not done there
    python scripts/cluster_trial.py --work /tmp/trial --only b   # one part, again

a  three of four nodes have a fault: another version, no data, a full disk
b  a node is killed in epoch 7 of 10
c  two runs at once on one cluster
d  the head is killed
e  what a cluster costs ten trivial jobs
f  what a terminal and a log file show

Each part starts nodes of its own and leaves its folder and its outcome in the folder `--work`, from
which the table is made; a part that was stopped leaves none, and is done the next time. It needs no
GPU, and on two idle cores about ten minutes. Exit code 1 if something did not hold.
"""

import argparse
import contextlib
import fcntl
import json
import os
import pty
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from tabulate import tabulate

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # the package beside this script, as for the processes that it starts

from ray_nodes import (  # noqa: E402
    OPEN,
    LocalCluster,
    n_workers,
    other_version,
    results,
    small_disk,
    wait_for,
)

from prime_bench.base.words import counted  # noqa: E402

RECIPE = """
schema = 1
title = "Cluster trial"
seeds = {seeds}
arms = ["dense", "prime"]
[dataset.synthetic]
rows = {rows}
[training]
batch_size = {batch_size}
max_epochs = {epochs}
patience = {epochs}
[backbone.DNN]
hidden_units = [8]
net_dropout = 0.1
"""
COMMAND = (sys.executable, "-m", "prime_bench")
VARIABLES = {**OPEN, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
RAYS_OWN = re.compile(r"\((raylet|autoscaler|pid=|NodeSlot)|\bray::|worker\.py:\d|Traceback")
"""What lines of Ray have in them, and none of ours."""
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
START = re.compile(r"^\S+ \S+ on ", re.MULTILINE)
"""The line of a job's log that each try has once."""
WIDTH, HEIGHT = 150, 30
HEAD_TIMEOUT_S = 30
SAMPLE_S = 0.05
PATIENCE_S = 3600.0
"""What takes seconds may take a quarter of an hour where much else computes."""


Found = TypeVar("Found")


class Part:
    """One part: its folder, what was seen, and the runs that it starts."""

    def __init__(self, folder: Path, *, rows: int = 2000, **recipe: object) -> None:
        """Make the folder anew, with a recipe and its data. Keys of `recipe` fill `RECIPE`."""
        shutil.rmtree(folder, ignore_errors=True)
        (folder / "tmp").mkdir(parents=True)
        self.folder = folder
        self.facts: list[tuple[str, bool, str]] = []
        """What must hold, whether it did, and what was seen."""
        self.texts: list[tuple[str, str]] = []
        """Title and text of what is printed below the table."""
        self.started: list[subprocess.Popen[str]] = []
        defaults: dict[str, object] = {"seeds": [1, 2, 3], "batch_size": 256, "epochs": 2}
        text = RECIPE.format(rows=rows, **(defaults | recipe))
        (folder / "recipe.toml").write_text(text, encoding="utf-8")
        self.whole("prepare", "synthetic", "--rows", str(rows))

    def must(self, claim: str, held: bool, seen: object) -> None:
        """Note whether something held that must, and what was seen."""
        self.facts.append((claim, bool(held), str(seen)))

    @contextlib.contextmanager
    def cluster(self) -> Iterator[LocalCluster]:
        """A cluster without nodes; its runs end with it. Ray's sockets want a short path."""
        with (
            tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as short,
            LocalCluster(short) as made,
        ):
            try:
                yield made
            finally:
                for run in self.started:
                    run.kill()

    def join(
        self, cluster: LocalCluster, name: str, *, within: Sequence[str] = (), **variables: str
    ) -> None:
        """Start a node of one CPU: a good one, if the variables do not say otherwise."""
        good = {"TMPDIR": str(self.folder / "tmp"), "PYTHONPATH": str(ROOT)}
        cluster.join(name, n_cpus=1, within=within, **(good | variables))

    def run(
        self,
        *arguments: str,
        on: LocalCluster | None = None,
        runs: str = "cluster",
        name: str = "run",
        variables: Mapping[str, str] | None = None,
    ) -> "subprocess.Popen[str]":
        """Start `run`, on a cluster or here; what it prints goes to NAME.out and NAME.err."""
        where = ["--engine", "ray", "--address", on.address] if on is not None else []
        with self.path(f"{name}.out").open("w") as out, self.path(f"{name}.err").open("w") as err:
            run = subprocess.Popen(
                [*COMMAND, "run", "recipe.toml", "--runs-dir", runs, *where, *arguments],
                cwd=self.folder,
                env={**os.environ, **VARIABLES, **(variables or {})},
                stdout=out,
                stderr=err,
                text=True,
            )
        self.started.append(run)
        return run

    def end(
        self, run: "subprocess.Popen[str]", *, name: str = "run", code: int = 0
    ) -> tuple[str, str]:
        """Wait for the end of a run: its stdout and stderr, after a note of its exit code."""
        run.wait(timeout=PATIENCE_S)
        out, err = (self.path(f"{name}.{end}").read_text() for end in ("out", "err"))
        last = (err.strip().splitlines() or [""])[-1]
        seen = f"{run.returncode}; {out.strip() or last}"
        self.must(f"exit code {code} ({name})", run.returncode == code, seen)
        return out, err

    def local(self, *arguments: str) -> None:
        """Note whether the records are those of an undisturbed run on this machine."""
        here = ("--device", "cpu", "--slots", "2", "--threads-per-job", "1", *arguments)
        self.end(self.run(*here, runs="local", name="local"), name="local")
        wanted, found = results(self.folder / "local"), results(self.folder / "cluster")
        same = sum(wanted[job_id] == found.get(job_id) for job_id in wanted)
        seen = f"{same} of {len(wanted)}"
        self.must("results, hashes, history and weights are those of a local run, bit for bit",
                  wanted == found and bool(wanted), seen)  # fmt: skip

    def whole(self, *arguments: str) -> str:
        """The stdout of a command of prime-bench that has to succeed."""
        done = subprocess.run(
            [*COMMAND, *arguments],
            cwd=self.folder,
            env={**os.environ, **VARIABLES},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise AssertionError(f"{' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout

    def wait(self, condition: Callable[[], Found], run: "subprocess.Popen[str]") -> Found:
        """Wait for a condition while a run goes on; what it returned."""
        return wait_for(condition, run, patience_s=PATIENCE_S)

    def path(self, name: str) -> Path:
        """A file of this part."""
        return self.folder / name

    def records(self) -> dict[str, bytes]:
        """Job id -> bytes of its record."""
        paths = self.folder.glob("cluster/*/record.json")
        return {path.parent.name: path.read_bytes() for path in paths}


def faults(folder: Path) -> Part:
    """Part a."""
    part = Part(folder)
    part.path("nothing").mkdir()
    part.path("small").mkdir()
    disk = small_disk(part.path("small"))
    with part.cluster() as cluster:
        part.join(cluster, "good")
        part.join(cluster, "other", PYTHONPATH=other_version(part.path("other")))
        part.join(cluster, "empty", PRIME_BENCH_DATA=str(part.path("nothing")))
        if disk is not None:
            part.join(cluster, "full", within=disk, TMPDIR=str(part.path("small")))
        good = cluster.ids(3 + (disk is not None))["good"]
        out, err = part.end(part.run("--retries", "1", on=cluster))
    wanted = "recipe.toml: 6 jobs done, 0 had a record, 0 failed\n"
    part.must("all 6 jobs are done, none has failed", out == wanted, out.strip())
    tries = [len(START.findall(file.read_text())) for file in part.folder.glob("cluster/*/log.txt")]
    part.must("each job was tried once", tries == [1] * 6, f"tries in the logs: {tries}")
    nodes = [json.loads(record)["environment"]["node"] for record in part.records().values()]
    part.must("all on the good node", set(nodes) == {good}, f"{len(set(nodes))} nodes in records")
    said = [line for line in err.splitlines() if "takes no jobs for now" in line]
    reasons = {
        "the node of another version": "it has prime-bench ",
        "the node without data": "no prepared table here",
        "the node with a full disk": "MB are free, a job may need",
    }
    for which, reason in reasons.items():
        n_said = sum(reason in line for line in said)
        if disk is None and "disk" in which:
            part.must(f"{which} is named once", False, "not tried: this user may mount nothing")
        else:
            part.must(f"{which} is named once", n_said == 1, f"{n_said} lines")
    part.texts.append(("A run with bad nodes, on stderr", err))
    part.local()
    return part


def killed_node(folder: Path) -> Part:
    """Part b."""
    part = Part(folder, rows=40_000, seeds=[1], batch_size=64, epochs=10)
    only = ("--only", "arm=prime")
    with part.cluster() as cluster:
        for name in "one", "two":
            part.path(name).mkdir()
            part.join(cluster, name, TMPDIR=str(part.path(name)))
        names = {node_id: name for name, node_id in cluster.ids(2).items()}
        run = part.run(*only, on=cluster)
        history = part.wait(lambda: list(part.folder.glob("cluster/*/history.jsonl")), run)[0]
        part.wait(lambda: len(history.read_text().splitlines()) >= 6, run)
        job = history.parent
        first = json.loads((job / "environment.json").read_text())["node"]
        start = time.monotonic()
        cluster.kill(names[first])
        left = list(part.path(names[first]).glob("prime-bench-*/runs/*/history.jsonl"))
        n_done = [len(file.read_text().splitlines()) for file in left]
        goes_on = "from the state after epoch "
        part.wait(lambda: goes_on in (job / "log.txt").read_text(), run)
        after_s = time.monotonic() - start
        _, err = part.end(run)
    part.must("killed in epoch 7 of 10", n_done == [6], f"epochs that the node had done: {n_done}")
    lost = [line for line in err.splitlines() if "is lost, and its jobs go on elsewhere" in line]
    part.must("the loss is told once", len(lost) == 1, "; ".join(lost))
    epochs = re.findall(rf"{goes_on}(\d+)", (job / "log.txt").read_text())
    resumed = [int(epoch) + 1 for epoch in epochs]
    held = len(resumed) == 1 and resumed[0] in (6, 7)
    part.must("the job goes on from epoch 6 or 7", held, f"epoch {resumed}, after {after_s:.1f} s")
    second = json.loads((job / "record.json").read_text())["environment"]["node"]
    seen = f"{names[first]}, then {names[second]}"
    part.must("on the other node", {names[first], names[second]} == {"one", "two"}, seen)
    part.local(*only)
    return part


def two_runs(folder: Path) -> Part:
    """Part c."""
    part = Part(folder)
    with part.cluster() as cluster:
        # A variable in which the workers of this trial can be told from others.
        data = str(part.path("data"))
        part.join(cluster, "one", PRIME_BENCH_DATA=data)
        part.join(cluster, "two", PRIME_BENCH_DATA=data)
        cluster.ids(2)
        started = [
            part.run(on=cluster, name="first"),
            part.run("--set", "training.max_epochs=3", on=cluster, name="second"),
        ]
        seen = []
        while any(run.poll() is None for run in started):
            seen.append(n_workers(part.folder))
            time.sleep(SAMPLE_S)
        for run, name in zip(started, ("first", "second"), strict=True):
            part.end(run, name=name)
    counts = ", ".join(f"{n} in {seen.count(n)}" for n in sorted(set(seen)))
    claim = "with 2 CPUs never more than 2 workers, and 2 at some time"
    part.must(claim, max(seen) == 2, f"of {len(seen)} samples: {counts}")
    part.must("12 records", len(part.records()) == 12, len(part.records()))
    return part


def lost_head(folder: Path) -> Part:
    """Part d."""
    part = Part(folder, batch_size=32, epochs=100)
    patience = {"RAY_gcs_rpc_server_reconnect_timeout_s": str(HEAD_TIMEOUT_S)}
    with part.cluster() as cluster:
        part.join(cluster, "one")
        cluster.ids(1)
        run = part.run(on=cluster, name="before", variables=patience)
        part.wait(part.records, run)
        start = time.monotonic()
        cluster.kill("head")
        _, err = part.end(run, name="before", code=4)
        after_s = time.monotonic() - start
        safe = part.records()
        cluster.kill_all()
        cluster.start_head()
        part.join(cluster, "one")
        cluster.ids(1)
        out, _ = part.end(part.run(on=cluster, name="after"), name="after")
    messages = [line for line in err.splitlines() if line.startswith("error: ")]
    one = len(messages) == 1 and "no longer answers" in messages[0] and "Traceback" not in err
    part.must("one message of ours", one, f"after {after_s:.0f} s")
    told = f"of this run {counted(len(safe), 'record')} safe, {counted(6 - len(safe), 'job')} left"
    part.must("it says what is safe", told in err, told)
    part.must("it says how to go on", "the same command then continues" in err, "its hint")
    wanted = f"{6 - len(safe)} jobs done, {len(safe)} had a record, 0 failed"
    part.must("the same command does the rest", wanted in out, out.strip())
    unchanged = part.records().items() >= safe.items()
    part.must("the records that were there are unchanged", unchanged, f"{len(safe)} records")
    part.texts.append((f"The message (Ray waits for its head {HEAD_TIMEOUT_S} s here)", err))
    part.local()
    return part


def overhead(folder: Path) -> Part:
    """Part e."""
    part = Part(folder, seeds=[1, 2, 3, 4, 5], epochs=1)
    seconds: dict[str, float] = {}

    def measure(name: str, *arguments: str, on: LocalCluster | None = None) -> None:
        start = time.monotonic()
        run = part.run(*arguments, on=on, runs=name.replace(" ", "-"), name=name)
        part.end(run, name=name)
        seconds[name] = time.monotonic() - start

    for n_slots in (1, 2):
        here = ("--device", "cpu", "--slots", str(n_slots), "--threads-per-job", "1")
        measure(f"local, {n_slots} at once", *here)
    for nodes in (("one",), ("one", "two")):
        with part.cluster() as cluster:
            for name in nodes:
                part.join(cluster, name)
            cluster.ids(len(nodes))
            measure(f"Ray, nodes of 1 CPU: {len(nodes)}", on=cluster)
    most = 2 * seconds["local, 2 at once"]
    taken = seconds["Ray, nodes of 1 CPU: 2"]
    claim = "ten trivial jobs on two nodes take at most twice the local time"
    part.must(claim, taken <= most, f"{taken:.1f} s, at most {most:.1f} s")
    rows = [(name, f"{taken:.1f}") for name, taken in seconds.items()]
    table = tabulate(rows, headers=("ten trivial jobs", "seconds"), tablefmt="github")
    part.texts.append(("What a cluster costs; the nodes were there before", table))
    return part


def shown(folder: Path) -> Part:
    """Part f."""
    part = Part(folder, rows=40_000, batch_size=64, epochs=2, seeds=[1, 2])
    with part.cluster() as cluster:
        part.join(cluster, "one")
        part.join(cluster, "two")
        ids = cluster.ids(2)
        ray = ("--engine", "ray", "--address", cluster.address)
        code, frames = _in_terminal(part, "run", "recipe.toml", *ray)
        endless = ("--set", "training.max_epochs=1000", "--set", "training.patience=1000")
        run = part.run(*endless, on=cluster, runs="log", name="log")
        part.wait(lambda: "jobs have ended; running: " in part.path("log.err").read_text(), run)
        status = "\n".join(_in_terminal(part, "status", "--runs-dir", "log")[1])
        job = next(folder for folder in part.folder.glob("log/*") if folder.name[0] != ".")
        details = part.whole("show", "job", job.name, "--runs-dir", "log")
        run.send_signal(signal.SIGTERM)
        out, err = part.end(run, name="log", code=130)
    part.must("exit code 0 (terminal)", code == 0, code)
    bars = [frame for frame in frames if len(re.findall(r"epoch \d+: ", frame)) == 2]
    places = {name: f"(node {node_id[:8]})" for name, node_id in ids.items()}
    both = [frame for frame in bars if all(place in frame for place in places.values())]
    # A narrow line is cut, so that the node may not be in it.
    part.must("a terminal has a bar for each running job", bool(bars), f"{len(bars)} frames")
    part.must("... and names the node of each", bool(both), f"{len(both)} frames")
    for name, text in (("terminal", "\n".join(frames)), ("log", err)):
        n_rays = len(RAYS_OWN.findall(text))
        part.must(f"no line of Ray's own in the {name}", n_rays == 0, f"{n_rays} lines")
    part.must("stdout has the summary alone", out.count("\n") == 1, out.strip())
    said = [line for line in err.splitlines() if "jobs have ended; running: " in line]
    named = [line for line in said if any(place in line for place in places.values())]
    part.must("a log has a line a minute with jobs and nodes", bool(named), f"{len(named)} lines")
    short = [node_id[:8] for node_id in ids.values()]
    for command, text, n_wanted in (("status", status, 2), ("show job", details, 1)):
        n_named = sum(node in text for node in short)
        of_both = f"{n_named} of 2 nodes"
        part.must(f"`{command}` names the node of each job", n_named == n_wanted, of_both)
    about = [line for line in details.splitlines() if any(node in line for node in short)]
    part.texts += [
        ("A terminal while two jobs run", (both or bars or [""])[-1]),
        ("The end in the terminal", frames[-1]),
        ("A log: stderr of a run without a terminal that was stopped by SIGTERM", err),
        ("`status` meanwhile, in a terminal", status),
        ("`show job` meanwhile, its lines with the node", "\n".join(about)),
    ]
    return part


def _in_terminal(part: Part, *command: str) -> tuple[int, list[str]]:
    """Do a command of prime-bench in a terminal: exit code, and what it showed, frame by frame."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", HEIGHT, WIDTH, 0, 0))
    run = subprocess.Popen(
        [*COMMAND, *command],
        cwd=part.folder,
        env={**os.environ, **VARIABLES, "TERM": "xterm", "COLUMNS": str(WIDTH)},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        text=True,
    )
    part.started.append(run)
    os.close(theirs)
    read = bytearray()
    with contextlib.suppress(OSError):  # the end of a terminal
        while piece := os.read(ours, 1 << 16):
            read += piece
    os.close(ours)
    code = run.wait(timeout=PATIENCE_S)
    part.path(f"{command[0]}.terminal").write_bytes(read)
    # A frame begins where the one before is erased, line by line from below.
    pieces = re.split(r"(?:\r?\x1b\[(?:1A|2K))+", read.decode("utf-8", "replace"))
    frames = [ESCAPES.sub("", piece).replace("\r", "").strip("\n") for piece in pieces]
    return code, [frame for frame in frames if frame.strip()]


PARTS = {
    "a": (faults, "three of four nodes with a fault, --retries 1"),
    "b": (killed_node, "a node killed in epoch 7 of 10"),
    "c": (two_runs, "two runs at once on two nodes of 1 CPU"),
    "d": (lost_head, "the head killed"),
    "e": (overhead, "overhead"),
    "f": (shown, "what a terminal and a log show"),
}


def _do(name: str, work: Path) -> None:
    """Do a part, and leave its outcome in the folder; what went wrong is an outcome too."""
    do, title = PARTS[name]
    outcome = work / f"{name}.json"
    outcome.unlink(missing_ok=True)
    print(f"{name}: {title} ...", file=sys.stderr, flush=True)
    start = time.monotonic()
    facts: Sequence[tuple[str, bool, str]]
    texts: Sequence[tuple[str, str]]
    try:
        part = do(work / name)
        facts, texts = part.facts, part.texts
    except Exception as error:  # noqa: BLE001  # the other parts can still be tried
        facts, texts = [("the part comes to its end", False, f"{error!r}")], []
    seconds = time.monotonic() - start
    whole = {"title": title, "seconds": seconds, "facts": facts, "texts": texts}
    outcome.write_text(json.dumps(whole), encoding="utf-8")
    n_held = sum(held for _, held, _ in facts)
    print(f"{name}: {n_held} of {len(facts)} held, {seconds:.0f} s", file=sys.stderr, flush=True)


def _print(work: Path) -> int:
    """Print what the parts have left; the number of things that did not hold."""
    rows, texts, n_wrong = [], [], 0
    for name in PARTS:
        path = work / f"{name}.json"
        if not path.exists():
            continue
        found = json.loads(path.read_text(encoding="utf-8"))
        rows.append((name, f"**{found['title']}**", "", f"{found['seconds']:.0f} s"))
        for claim, held, seen in found["facts"]:
            n_wrong += not held
            cell = " ".join(seen.replace("|", "/").split())
            rows.append(("", claim, "yes" if held else "**NO**", cell[:200]))
        texts += [(f"{name}. {title}", text) for title, text in found["texts"]]
    print(tabulate(rows, headers=("part", "what must hold", "held", "seen"), tablefmt="github"))
    for title, text in texts:
        shown_as = text if text.startswith("|") else f"```text\n{text.strip()}\n```"
        print(f"\n### {title}\n\n{shown_as}")
    return n_wrong


def _end(*_: object) -> None:
    """End, and the nodes before; a second signal does not stop that."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    sys.exit(130)


def main() -> int:
    """Do the parts and print the table; 1 if something did not hold."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--work", type=Path, help="folder of this trial; by default a new one")
    parser.add_argument("--only", choices=list(PARTS), action="append", help="do this part (again)")
    given = parser.parse_args()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _end)
    work: Path = (given.work or Path(tempfile.mkdtemp(prefix="cluster-trial-"))).resolve()
    work.mkdir(parents=True, exist_ok=True)
    print(f"folder: {work}", file=sys.stderr)
    for name in given.only or [name for name in PARTS if not (work / f"{name}.json").exists()]:
        _do(name, work)
    return 1 if _print(work) else 0


if __name__ == "__main__":
    sys.exit(main())

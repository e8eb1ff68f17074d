"""What the GPU checks share, and the order of events: a check consists of parts, the file of
results is written after each, and a part that no longer fits into the time is left out.
"""

import contextlib
import functools
import gc
import json
import math
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from gpu_data import FINGERPRINT, Shape, draw, shape_of
from gpu_hours import Plan
from gpu_results import Figures, PartResult, Results, Verdict

from prime_bench.data.manifest import Manifest
from prime_bench.probes.arms import Pool
from prime_bench.recipe.file import load_recipe
from prime_bench.recipe.job import Job, JobRequest
from prime_bench.recipe.recipe import Recipe
from prime_bench.store.record import RunRecord
from prime_bench.training.checkpoint import one_line
from prime_bench.training.device import fix_arithmetic
from prime_bench.training.graph import GraphedStep, capture_on
from prime_bench.training.optimizer import Optimizer
from prime_bench.worker import run_job

ARMS = ("dense", "prime")
SEED = 2021
_POOL_BATCHES = 24
_NO_DROPOUT: dict[str, Any] = {"net_dropout": 0.0, "attention_dropout": [0.0, 0.0]}


_ANSWER_S = 60.0
"""After which another process that does not answer is killed, unless it has more to do."""


class Wrong(Exception):
    """A check found what should not be; the text says what."""


class Late(Wrong):
    """Another process has not answered in time."""


class LeftOut(Exception):
    """A part cannot be done here; the text says why."""


@dataclass(kw_only=True, eq=False)
class Bench:
    """The device, the sizes, and what one check leaves for another."""

    device: torch.device
    small: bool
    threads: int
    backbones: list[str]
    folder: Path
    """Where the generated table and the runs are."""
    deadline: float = math.inf
    """What the performance counter shows when the time is over."""
    trained: dict[str, RunRecord] = field(default_factory=dict)
    """Records of the check `job`, by the part's name."""
    peers: "list[Peer]" = field(default_factory=list)
    """Processes beside this one, which end with the check that has started them."""
    peer_environment: dict[str, str] = field(default_factory=dict)
    """Variables of such processes beside this one's."""
    ending: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    """What is to be done after the check."""

    def __post_init__(self) -> None:
        if self.on_cuda:
            torch.cuda.set_device(self.device)  # which `wait` and the clocks mean

    @property
    def on_cuda(self) -> bool:
        """Whether the device is a GPU."""
        return self.device.type == "cuda"

    @functools.cached_property
    def recipe(self) -> Recipe:
        """The paper's main experiment, whose settings all checks use."""
        return load_recipe("main13")

    @property
    def table(self) -> Path:
        """Folder of the generated table."""
        return self.folder / "table"

    @property
    def runs(self) -> Path:
        """Folder of the jobs' records."""
        return self.folder / "runs"

    @property
    def batch_size(self) -> int:
        """Rows of a batch; those of the recipe unless small."""
        return 256 if self.small else self.recipe.training.batch_size

    def plan(self) -> Plan:
        """What main13 asks for, with the number of epochs that `schedule.estimate` assumes where no
        run has ended: two validations that improve, and `patience` that do not.
        """
        return Plan(
            seeds=len(self.recipe.seeds),
            epochs=self.recipe.training.patience + 2,
            batch_size=self.batch_size,
            rows={name: self.shape(name).rows.plain() for name in ("avazu", "criteo")},
            backbones=tuple(self.recipe.backbones),
        )

    @functools.cache  # noqa: B019  # lives as long as the process
    def shape(self, dataset: str) -> Shape:
        """The fields and numbers of rows of `avazu` or `criteo`."""
        return shape_of(dataset, small=self.small)

    @functools.cache  # noqa: B019  # lives as long as the process
    def pool(self, dataset: str) -> Pool:
        """Rows on the device, enough for 24 batches."""
        n_rows = _POOL_BATCHES * self.batch_size
        rows = draw(self.shape(dataset).schema, n_rows, seed=SEED, device=self.device)
        return Pool(rows, n_rows=n_rows, seed=SEED, device=self.device)

    def job(
        self,
        backbone: str,
        plugin: str,
        *,
        dataset: str = "avazu",
        dropout: bool = True,
        training: dict[str, Any] | None = None,
    ) -> Job:
        """A training job with the settings of recipes/main13.toml."""
        settings = self.recipe.backbones[backbone][dataset].plain()
        settings |= {} if dropout else {k: v for k, v in _NO_DROPOUT.items() if k in settings}
        (arm,) = (arm for arm in self.recipe.arms if arm.plugin == plugin)
        changed = {"batch_size": self.batch_size, **(training or {})}
        return Job(
            fingerprint=FINGERPRINT,
            backbone=backbone,
            backbone_settings=settings,
            plugin=plugin,
            plugin_settings=arm.settings.plain(),
            training=self.recipe.training.model_copy(update=changed),
            seed=SEED,
        )

    def graphed(self, optimizer: Optimizer) -> GraphedStep:
        """The steps that a run does: a CUDA graph on CUDA, eager on the CPU."""
        return GraphedStep(optimizer, capture=capture_on(self.device))

    def request(self, job: Job, *, table: Path, runs: Path) -> JobRequest:
        """What an engine would give to a worker."""
        fingerprint = Manifest.read(table).fingerprint
        return JobRequest(
            job=job.model_copy(update={"fingerprint": fingerprint}),
            dataset=table.name,
            arm=job.plugin,
            table=str(table),
            runs=str(runs),
            device=str(self.device),
            threads=self.threads,
        )

    def run(self, job: Job, *, table: Path | None = None, runs: Path | None = None) -> RunRecord:
        """The job's record, by the worker that every run uses."""
        request = self.request(job, table=table or self.table, runs=runs or self.runs)
        record = run_job(request, lambda _: None)
        assert isinstance(record, RunRecord)  # noqa: S101
        return record

    def start_peers(self, n: int) -> "list[Peer]":
        """Processes 1 to n beside this one; those that a part before has started are used again."""
        while len(self.peers) < n:
            peer = Peer(self)
            self.ending.callback(peer.end)
            self.peers.append(peer)
        return self.peers[:n]

    def end_check(self) -> None:
        """End the processes beside this one, and undo what else the check has left."""
        self.peers.clear()
        self.peer_environment.clear()
        self.ending.close()

    def wait(self) -> None:
        """Until the device has done everything."""
        if self.on_cuda:
            torch.cuda.synchronize()

    def clean_up(self) -> None:
        """Undo what a part may have left: memory on the device, and how it computes."""
        gc.collect()
        if self.on_cuda:
            torch.cuda.empty_cache()
        fix_arithmetic(threads=self.threads)


class Peer:
    """Another process that does what it is asked on the same device."""

    def __init__(self, bench: Bench) -> None:
        """Start the process."""
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("gpu_process.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **bench.peer_environment},
            text=True,
        )
        settings = {
            "device": str(bench.device),
            "small": bench.small,
            "threads": bench.threads,
            "folder": str(bench.folder),
        }
        self._write(settings)

    def tell(self, what: str, **arguments: object) -> None:
        """Send a request; `answer` gives what it has come to."""
        self._write({"do": what, **arguments})

    def answer(self, *, seconds: float = _ANSWER_S) -> Any:
        """Wait for the answer to the first request that has none yet. A process that does not
        answer within `seconds` is killed.

        Raises Late if it was killed, and Wrong if it has failed.
        """
        assert self._process.stdout is not None  # noqa: S101
        timer = threading.Timer(seconds, self._process.kill)
        timer.start()
        line = self._process.stdout.readline()
        timer.cancel()
        if line:
            return json.loads(line)
        if self._process.wait() == -signal.SIGKILL:
            raise Late(f"not done after {seconds:.0f} s")
        raise Wrong(f"the other process ended with code {self._process.returncode}")

    def _write(self, what: Mapping[str, object]) -> None:
        assert self._process.stdin is not None  # noqa: S101
        self._process.stdin.write(json.dumps(what) + "\n")
        self._process.stdin.flush()

    def end(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()


@dataclass(frozen=True, kw_only=True)
class Check:
    """Something to find out, in parts that are done one after another."""

    name: str
    run: Callable[[Bench, str], Figures]
    """Does a part, by its name. Raises what is wrong, `Wrong` above all."""
    parts: Callable[[Bench], Sequence[str]]
    part_s: float
    """Rough seconds of a part on an H100, until one has been measured. None has been so far."""
    needs: tuple[str, ...] = ()
    """Checks that must have passed before."""
    needs_cuda: bool = False


def run_checks(
    checks: Sequence[Check],
    bench: Bench,
    results: Results,
    *,
    clock: Callable[[], float] = time.perf_counter,
) -> None:
    """Do the checks until `clock` shows the bench's deadline. The results are written after each
    part.
    """
    for check in checks:
        results.begin(check.name, check.parts(bench))
    for check in checks:
        taken_s: list[float] = []
        for part in check.parts(bench):
            # The first part may have started processes or compiled kernels for all.
            expected_s = max(taken_s[1:] or taken_s or [check.part_s])
            left_s = bench.deadline - clock()
            if reason := _reason_to_leave_out(check, bench, results, expected_s, left_s):
                results.put(check.name, part, PartResult(verdict="left out", why=reason))
                continue
            result = _done(check, bench, part, clock)
            taken_s.append(result.seconds)
            results.put(check.name, part, result)
            print(f"{result.verdict:8} {result.seconds:6.1f} s  {check.name} {part}", flush=True)
        bench.end_check()


def _reason_to_leave_out(
    check: Check, bench: Bench, results: Results, expected_s: float, left_s: float
) -> str:
    """Empty if the part is to be done."""
    if check.needs_cuda and not bench.on_cuda:
        return "needs CUDA"
    if lacking := [need for need in check.needs if results.verdict(need) != "ok"]:
        return f"needs {', '.join(lacking)}"
    if left_s < expected_s:
        return f"takes about {expected_s:.0f} s, {max(left_s, 0):.0f} s are left"
    return ""


def _done(check: Check, bench: Bench, part: str, clock: Callable[[], float]) -> PartResult:
    verdict: Verdict
    start = clock()
    try:
        verdict, why, figures = "ok", "", check.run(bench, part)
    except LeftOut as reason:
        verdict, why, figures = "left out", str(reason), {}
    except Exception as error:  # noqa: BLE001  # whatever it is, the other parts are worth doing
        traceback.print_exc()
        verdict, why, figures = "WRONG", one_line(error), {}
    try:
        bench.clean_up()
    except RuntimeError as error:  # the device may be lost
        verdict, why = "WRONG", why or one_line(error)
    return PartResult(verdict=verdict, why=why, seconds=clock() - start, figures=figures)

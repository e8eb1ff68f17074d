"""Checks of speed and memory: steps and forward passes in each form, the host's part, and several
processes at once.
"""

import functools
import importlib
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any

import torch
from gpu_results import Figures
from gpu_session import ARMS, Bench, Late, LeftOut

from prime_bench.probes.arms import Trainer, forms_on, forward_of, trainer_of
from prime_bench.probes.timing import Step, clock_for, latencies_ms
from prime_bench.training.batches import Batch
from prime_bench.training.device import fix_arithmetic
from prime_bench.training.embedding_adam import TablePass, in_blocks
from prime_bench.training.graph import GraphedStep, NotCaptured

WIDELY_MEASURED = ("DNN", "DCNv2", "FiBiNET", "AutoInt")
"""Backbones whose inference is timed at other batch sizes too, and that are compiled."""
_OTHER_BATCH_SIZES = (1, 64, 1_024, 16_384, 65_536)
_SMALL_BATCH_SIZES = (1, 512)
_STEPS, _WARM_UP_STEPS, _REPETITIONS = 20, 5, 2
_SMALL_STEPS = 2
_MEMORY_STEPS = 3
"""Adam's state exists after the first step."""


def by_importance(backbones: Sequence[str]) -> list[str]:
    """Those that are measured widely first."""
    first = [name for name in WIDELY_MEASURED if name in backbones]
    return [*first, *(name for name in backbones if name not in first)]


def steps(bench: Bench, part: str) -> Figures:
    """Training step and inference of both arms of a backbone in every form but compiled, and what
    memory they take. `part` is `dataset backbone`.
    """
    dataset, backbone = part.split()
    arms = _Arms(bench, backbone, dataset=dataset)
    found: Figures = {plugin: dict(arms.memory[plugin]) for plugin in ARMS}
    arms.time_training(
        found, "eager_ms", {name: t.optimizer.step for name, t in arms.trainers.items()}
    )
    for form in forms_on(bench.device, with_compiled=False):
        arms.time_inference(found, f"inference_{form}_ms", form)
    if not bench.on_cuda:
        return {**found, "note": "graph and TF32: need CUDA"}
    arms.time_graph(found, "graph_ms", {name: t.step for name, t in arms.trainers.items()})
    fix_arithmetic(threads=bench.threads, matmul="tf32")
    # As new graphs, since the precision is part of a graph.
    again = {name: bench.graphed(t.optimizer) for name, t in arms.trainers.items()}
    arms.time_graph(found, "tf32_ms", again)
    return found


def sizes(bench: Bench, backbone: str) -> Figures:
    """Inference of both arms at other batch sizes."""
    arms = _Arms(bench, backbone, dataset="avazu")
    found: Figures = {plugin: {} for plugin in ARMS}
    for size in _SMALL_BATCH_SIZES if bench.small else _OTHER_BATCH_SIZES:
        for form in forms_on(bench.device, with_compiled=False):
            arms.time_inference(found, f"inference_{form}_ms {size}", form, batch_size=size)
    return found


def compiled(bench: Bench, backbone: str) -> Figures:
    """Training step and inference of both arms under `training.compile`. In another process, which
    is killed when the time is over: nobody knows how long a compiler takes.
    """
    (peer,) = bench.start_peers(1)
    peer.tell("compiled", backbone=backbone)
    try:
        found: Figures = peer.answer(seconds=max(1.0, bench.deadline - time.perf_counter()))
    except Late as late:
        raise LeftOut(str(late)) from late
    return found


def compiled_here(bench: Bench, *, backbone: str) -> Figures:
    """What `compiled` asks the other process for."""
    arms = _Arms(bench, backbone, dataset="avazu", training={"compile": True})
    found: Figures = {plugin: {} for plugin in ARMS}
    arms.time_training(found, "compiled_ms", {name: t.step for name, t in arms.trainers.items()})
    arms.time_inference(found, "inference_compiled_ms", "compiled")
    return found


class _Arms:
    """Both arms of a backbone, which take turns, so that a device whose clock drifts slows both."""

    def __init__(
        self, bench: Bench, backbone: str, *, dataset: str, training: dict[str, Any] | None = None
    ) -> None:
        self._bench, self._pool = bench, bench.pool(dataset)
        self.memory: dict[str, Figures] = {}
        self.trainers: dict[str, Trainer] = {}
        for plugin in ARMS:
            job = bench.job(backbone, plugin, dataset=dataset, training=training).resolve()
            before = _allocated(bench)
            trainer = trainer_of(job, bench.shape(dataset).schema, device=bench.device)
            self.trainers[plugin] = trainer
            self.memory[plugin] = {
                "parameters": sum(p.numel() for p in trainer.arm.parameters() if p.requires_grad),
                "weights_bytes": _weights_bytes(trainer),
                **({} if training else self._peaks(trainer, before)),
            }

    def _peaks(self, trainer: Trainer, before: int) -> Figures:
        """The most that training and inference have allocated; nothing on the CPU."""
        if not self._bench.on_cuda:
            return {}
        batches = self._pool.batches(batch_size=self._bench.batch_size, n=_MEMORY_STEPS)
        torch.cuda.reset_peak_memory_stats()
        for batch in batches:
            trainer.step(batch)
        training = torch.cuda.max_memory_allocated() - before
        with_state = _allocated(self._bench)
        torch.cuda.reset_peak_memory_stats()
        with torch.inference_mode():
            trainer.arm.eval()(batches[0].ids, batches[0].numerics)
            trainer.arm.train()
        activations = torch.cuda.max_memory_allocated() - with_state
        return {
            "training_bytes": training,
            "inference_bytes": activations + _weights_bytes(trainer),
        }

    def time_training(
        self, found: Figures, name: str, steps: Mapping[str, Callable[[Batch], object]]
    ) -> None:
        """Add the milliseconds of each arm's training step, one number a repetition."""
        batches = self._batches(self._bench.batch_size)
        self._time(found, name, [functools.partial(_nth, step, batches) for step in steps.values()])

    def time_graph(self, found: Figures, name: str, steps: Mapping[str, GraphedStep]) -> None:
        """The same of graphs; a note where there is none."""
        self.time_training(found, name, steps)
        for arm, step in steps.items():
            if step.why:
                del found[arm][name]
                found["note"] = f"{name} of {arm}: {step.why}"

    def time_inference(
        self, found: Figures, name: str, form: Any, *, batch_size: int | None = None
    ) -> None:
        """Add the milliseconds of a forward pass, one number a repetition."""
        batches = self._batches(batch_size or self._bench.batch_size)
        arms = [trainer.arm.eval() for trainer in self.trainers.values()]
        try:
            with torch.inference_mode():
                chosen = [forward_of(arm, form, like=batches[0]) for arm in arms]
                self._time(found, name, [functools.partial(_nth, step, batches) for step in chosen])
        except NotCaptured as error:
            found["note"] = f"{name}: {error}"
        for arm in arms:
            arm.train()

    def _batches(self, size: int) -> list[Batch]:
        return self._pool.batches(batch_size=size, n=_STEPS + _WARM_UP_STEPS)

    def _time(self, found: Figures, name: str, chosen: Sequence[Step]) -> None:
        small = self._bench.small
        for turn in range(1 if small else _REPETITIONS):
            times = latencies_ms(
                chosen,
                steps=_SMALL_STEPS if small else _STEPS,
                warm_up_steps=1 if small else _WARM_UP_STEPS,
                clock=clock_for(self._bench.device),
                turn=turn,
            )
            for plugin, taken_ms in zip(self.trainers, times, strict=True):
                found[plugin].setdefault(name, []).append(taken_ms)


def _nth(step: Callable[[Batch], object], batches: Sequence[Batch], number: int) -> None:
    step(batches[number % len(batches)])


def _weights_bytes(trainer: Trainer) -> int:
    return sum(value.nbytes for value in trainer.arm.state_dict().values())


def _allocated(bench: Bench) -> int:
    return torch.cuda.memory_allocated() if bench.on_cuda else 0


_HOST_STEPS = 20
_PROFILED_STEPS = 3


def host(bench: Bench, part: str) -> Figures:
    """What the host and the device each need for a step; `part` is `backbone plugin`. A step takes
    at least the longer of both.
    """
    backbone, plugin = part.split()
    job = bench.job(backbone, plugin).resolve()
    trainer = trainer_of(job, bench.shape("avazu").schema, device=bench.device)
    batches = bench.pool("avazu").batches(batch_size=bench.batch_size, n=_WARM_UP_STEPS)
    found: Figures = {"eager": _host_and_device(bench, trainer.optimizer.step, batches)}
    if not bench.on_cuda:
        return {**found, "note": "graph: needs CUDA"}
    as_graph = _host_and_device(bench, trainer.step, batches)
    why = trainer.step.why
    return {**found, **({"note": f"graph: {why}"} if why else {"graph": as_graph})}


def _host_and_device(
    bench: Bench, step: Callable[[Batch], object], batches: Sequence[Batch]
) -> Figures:
    for batch in batches:
        step(batch)
    host_ms, wall_ms = [], []
    for number in range(_SMALL_STEPS if bench.small else _HOST_STEPS):
        bench.wait()
        start = time.perf_counter()
        step(batches[number % len(batches)])
        launched = time.perf_counter()
        bench.wait()
        host_ms.append(1e3 * (launched - start))
        wall_ms.append(1e3 * (time.perf_counter() - start))
    activities = [torch.profiler.ProfilerActivity.CPU]
    if bench.on_cuda:
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    with torch.profiler.profile(activities=activities) as profile:
        for batch in batches[:_PROFILED_STEPS]:
            step(batch)
        bench.wait()
    events = [event for event in profile.events() if not event.is_user_annotation]
    kernels = [event for event in events if event.device_type.name == "CUDA"]
    n_steps = len(batches[:_PROFILED_STEPS])
    found = {
        "host_ms": median(host_ms),
        "alone_ms": median(wall_ms),
        "operators": sum(event.name.startswith("aten::") for event in events) / n_steps,
    }
    if kernels:  # none on the CPU, and where the profiler may not look at the device
        found["device_ms"] = sum(event.time_range.elapsed_us() for event in kernels) / 1e3 / n_steps
        found["kernels"] = len(kernels) / n_steps
    return found


_PASS_MOVES = 7
"""Four tensors of a table's size are read and three are written."""
_WINDOW_S = 4.0
_SMALL_WINDOW_S = 0.2


def at_once(bench: Bench, part: str) -> Figures:
    """Steps a second of DNN with PRIME, and memory, where as many processes train on the device at
    once as `part` says.
    """
    n, found = int(part), {}
    if not bench.peers:  # all start here, so that the windows below measure nothing else
        before = _free_bytes(bench)
        peers = bench.start_peers(max(at_once_parts(bench)))
        for peer in peers:
            peer.tell("throughput", seconds=0.0)
        for peer in peers:
            peer.answer()
        found["process_bytes"] = (before - _free_bytes(bench)) / len(peers)
    for peer in bench.peers[:n]:
        peer.tell("throughput", seconds=_SMALL_WINDOW_S if bench.small else _WINDOW_S)
    answers = [peer.answer() for peer in bench.peers[:n]]
    return {
        **found,
        "steps_per_s": sum(answer["steps_per_s"] for answer in answers),
        "allocated_bytes": max(answer["allocated_bytes"] for answer in answers),
    }


def at_once_parts(bench: Bench) -> list[int]:
    """How many processes train at once."""
    return [1, 2] if bench.small else [1, 2, 4, 8]


def _free_bytes(bench: Bench) -> int:
    return torch.cuda.mem_get_info(bench.device)[0] if bench.on_cuda else 0


def throughput(bench: Bench, *, seconds: float) -> Figures:
    """Steps a second of DNN with PRIME over about `seconds`; at least one step."""
    step, batches = _ready(bench)
    start, n_steps = time.perf_counter(), 0
    while n_steps == 0 or time.perf_counter() < start + seconds:
        for batch in batches:
            step(batch)
        n_steps += len(batches)
        bench.wait()
    return {
        "steps_per_s": n_steps / (time.perf_counter() - start),
        "allocated_bytes": torch.cuda.max_memory_allocated() if bench.on_cuda else 0,
    }


@functools.cache
def _ready(bench: Bench) -> tuple[Callable[[Batch], object], list[Batch]]:
    job = bench.job("DNN", "prime").resolve()
    trainer = trainer_of(job, bench.shape("avazu").schema, device=bench.device)
    batches = bench.pool("avazu").batches(batch_size=bench.batch_size, n=2 if bench.small else 16)
    for batch in batches:
        trainer.step(batch)
    bench.wait()
    return trainer.step, batches


_MPS = "nvidia-cuda-mps-control"


def at_once_mps(bench: Bench, part: str) -> Figures:
    """As `at_once`, with the processes' kernels on the device together, by NVIDIA's Multi-Process
    Service.
    """
    if not bench.peers:
        _start_mps(bench)
    return at_once(bench, part)


def _start_mps(bench: Bench) -> None:
    """Start the service; it ends with the check. Raises LeftOut if it cannot be started."""
    if shutil.which(_MPS) is None:
        raise LeftOut(f"{_MPS} is not installed")
    folders = {
        name: bench.folder / name.lower()
        for name in ("CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY")
    }
    for folder in folders.values():
        folder.mkdir(exist_ok=True)
    bench.peer_environment |= {name: str(folder) for name, folder in folders.items()}
    environment = {**os.environ, **bench.peer_environment}
    command = functools.partial(
        subprocess.run, env=environment, capture_output=True, text=True, check=False, timeout=20
    )
    started = command([_MPS, "-d"])
    if started.returncode != 0:
        raise LeftOut(f"{_MPS} does not start: {(started.stderr or started.stdout).strip()}")
    bench.ending.callback(command, [_MPS], input="quit\n")


def passes(_: Bench) -> list[str]:
    """The ways to update a table."""
    return ["kernel", "blocks"]


def table_pass(bench: Bench, which: str) -> Figures:
    """The update of a full-size embedding table against a copy of the same number of bytes: W, S, m
    and v are read, W, m and v written.
    """
    table = _pass_named(bench, which)
    n_rows, width = bench.shape("avazu").schema.shape.embedding_rows, 10
    tensors = [torch.full((n_rows, width), 1e-3, device=bench.device) for _ in "WSmv"]
    moved_bytes = _PASS_MOVES * tensors[0].nbytes
    source = torch.zeros(moved_bytes // 2, dtype=torch.uint8, device=bench.device)
    target = torch.empty_like(source)
    one = torch.ones((), device=bench.device)
    update = functools.partial(table, *tensors, l2=0.01, clip=one, count=one, learning_rate=1e-3)
    pass_ms, copy_ms = latencies_ms(
        [lambda _: update(), lambda _: target.copy_(source)],
        steps=_SMALL_STEPS if bench.small else _STEPS,
        warm_up_steps=_WARM_UP_STEPS,
        clock=clock_for(bench.device),
    )
    return {
        "pass_ms": pass_ms,
        "copy_ms": copy_ms,
        "pass_gb_per_s": moved_bytes / 1e6 / pass_ms,
        "copy_gb_per_s": moved_bytes / 1e6 / copy_ms,
    }


def _pass_named(bench: Bench, which: str) -> TablePass:
    if which == "blocks":
        return in_blocks
    try:
        module = importlib.import_module("prime_bench.training.table_kernel")
    except ModuleNotFoundError as error:
        raise LeftOut(f"{error.name} is not installed") from error
    if not bench.on_cuda:
        raise LeftOut("needs CUDA")
    chosen: TablePass = module.kernel_pass
    return chosen

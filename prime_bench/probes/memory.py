"""Peak memory of an arm's training: weights, gradients, optimiser state and activations.

On CUDA torch's allocator knows the peak. On the CPU each arm trains in a process of its own, whose
resident memory is read: `python -m prime_bench.probes.memory` reads a JSON JobRequest, whose job
names the arm, from stdin and writes the peak in bytes to stdout.
"""

import gc
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import torch

from prime_bench.base.errors import EnvironmentFault
from prime_bench.base.machine import keep_freed_memory
from prime_bench.base.sources import search_path
from prime_bench.data.schema import Schema
from prime_bench.data.table import PreparedTable
from prime_bench.findings import MemoryLabel
from prime_bench.probes.arms import Pool, trainer_of
from prime_bench.recipe.job import JobRequest, ResolvedJob
from prime_bench.training.batches import Batch
from prime_bench.training.device import fix_arithmetic, resolve_device
from prime_bench.training.embedding_adam import fused_adam

# Adam's state exists after the first step, and compiled code after the second.
_STEPS = 5
_STATUS = Path("/proc/self/status")
_BYTES_A_KIB = 1024


def memory_label(device: torch.device, *, compiled: bool) -> MemoryLabel:
    """The way in which memory is measured on a device."""
    if device.type == "cuda":
        return "max_memory_allocated"
    # A compiler in the process would account for most of its growth.
    return "resident growth" if _STATUS.is_file() and not compiled else "not measured"


def peak_training_bytes(
    request: JobRequest, job: ResolvedJob, table: PreparedTable, *, device: torch.device
) -> int | None:
    """Peak memory of a few training steps of the job's arm, without the batches; None if it cannot
    be measured.
    """
    label = memory_label(device, compiled=job.training.compile)
    if label == "max_memory_allocated":
        return _allocated(job, table, device=device)
    return _grown_in_a_process(request) if label == "resident growth" else None


def _allocated(job: ResolvedJob, table: PreparedTable, *, device: torch.device) -> int:
    batches = _batches(job, table, device=device)
    gc.collect()
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    _train(job, table.schema, batches, device=device)
    return torch.cuda.max_memory_allocated(device) - before


def _grown_in_a_process(request: JobRequest) -> int:
    done = subprocess.run(
        [sys.executable, "-P", "-m", "prime_bench.probes.memory"],
        env={**os.environ, "PYTHONPATH": search_path()},
        input=json.dumps(request.plain()),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise EnvironmentFault(
            f"the process that measures memory ended with code {done.returncode}\n"
            f"{done.stderr.strip()}"
        )
    return int(done.stdout)


def _batches(job: ResolvedJob, table: PreparedTable, *, device: torch.device) -> list[Batch]:
    size = job.training.batch_size
    pool = Pool(table.split("train"), n_rows=_STEPS * size, seed=job.seed, device=device)
    return pool.batches(batch_size=size, n=_STEPS)


def _train(job: ResolvedJob, schema: Schema, batches: list[Batch], *, device: torch.device) -> None:
    trainer = trainer_of(job, schema, device=device)
    for batch in batches:
        trainer.step(batch)
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _touch_libraries() -> None:
    """Do a tiny training step, so that the libraries which torch loads for it are not counted as
    part of an arm.
    """
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
    weights = list(model.parameters())
    probabilities = torch.sigmoid(model(torch.ones(64, 8)))
    loss = torch.nn.functional.binary_cross_entropy(probabilities, torch.ones(64, 1))
    gradients = torch.autograd.grad(loss, weights)
    # Not `torch.optim.Adam`, which imports torch's compiler: a second for each arm.
    first, second = ([torch.zeros_like(weight) for weight in weights] for _ in range(2))
    counts = [torch.zeros(()) for _ in weights]
    with torch.no_grad():
        fused_adam(weights, gradients, first, second, counts, learning_rate=0.001)


def _resident_bytes(key: str) -> int:
    """`VmRSS`, the resident memory now, or `VmHWM`, its peak since the process started."""
    found = re.search(rf"^{key}:\s+(\d+) kB$", _STATUS.read_text(encoding="ascii"), re.MULTILINE)
    if found is None:
        raise EnvironmentFault(f"{_STATUS}: no {key}")
    return int(found[1]) * _BYTES_A_KIB


def main() -> None:
    """Measure the arm of one request."""
    request = JobRequest.parse(json.loads(sys.stdin.read()), where="request")
    keep_freed_memory()  # as in a worker
    fix_arithmetic(threads=request.threads or 1, matmul=request.job.training.matmul)
    device = resolve_device(request.device)
    table = PreparedTable.open(request.table)
    job = request.job.resolve()
    batches = _batches(job, table, device=device)
    _touch_libraries()
    before = _resident_bytes("VmRSS")
    _train(job, table.schema, batches, device=device)
    print(_resident_bytes("VmHWM") - before)


if __name__ == "__main__":
    main()

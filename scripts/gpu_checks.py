"""The checks of `gpu_check.py` in their order: the most telling ones first."""

from collections.abc import Callable

import gpu_bits
import gpu_jobs
import gpu_speed
from gpu_session import ARMS, Bench, Check


def _backbones(bench: Bench) -> list[str]:
    return gpu_speed.by_importance(bench.backbones)


def _on(dataset: str) -> Callable[[Bench], list[str]]:
    return lambda bench: [f"{dataset} {name}" for name in _backbones(bench)]


def _jobs(_: Bench) -> list[str]:
    return list(gpu_jobs.JOBS)


def _first_job(_: Bench) -> list[str]:
    return [gpu_jobs.JOBS[0]]


def _numbers(bench: Bench) -> list[str]:
    return list(map(str, gpu_speed.at_once_parts(bench)))


def _once(_: Bench) -> list[str]:
    return ["once"]


def _some(bench: Bench) -> list[str]:
    return [name for name in gpu_speed.WIDELY_MEASURED if name in bench.backbones]


def _arms(bench: Bench) -> list[str]:
    return [f"{backbone} {plugin}" for backbone in _some(bench) for plugin in ARMS]


CHECKS = (
    Check(name="agreement", run=gpu_bits.agreement, parts=_on("avazu"), part_s=2),
    Check(name="bits", run=gpu_bits.bits, parts=_backbones, part_s=4),
    Check(name="steps", run=gpu_speed.steps, parts=_on("avazu"), part_s=5),
    Check(name="generate", run=gpu_jobs.generate, parts=_once, part_s=8),
    Check(name="job", run=gpu_jobs.job, parts=_jobs, part_s=30, needs=("generate",)),
    Check(name="steps_criteo", run=gpu_speed.steps, parts=_on("criteo"), part_s=6),
    Check(name="costs", run=gpu_jobs.costs, parts=_once, part_s=12, needs=("generate",)),
    Check(name="pairs", run=gpu_bits.pairs, parts=_backbones, part_s=2),
    Check(name="table_pass", run=gpu_speed.table_pass, parts=gpu_speed.passes, part_s=2),
    Check(name="host", run=gpu_speed.host, parts=_arms, part_s=3),
    Check(name="at_once", run=gpu_speed.at_once, parts=_numbers, part_s=20),
    Check(name="resume", run=gpu_jobs.resume, parts=_jobs, part_s=8),
    Check(
        name="memory",
        run=gpu_jobs.memory,
        parts=_once,
        part_s=4,
        needs=("resume",),
        needs_cuda=True,
    ),
    Check(name="pinned", run=gpu_jobs.pinned, parts=gpu_jobs.places, part_s=4, needs=("generate",)),
    Check(name="evaluation", run=gpu_jobs.evaluation, parts=_first_job, part_s=6, needs=("job",)),
    Check(
        name="at_once_mps",
        run=gpu_speed.at_once_mps,
        parts=lambda bench: _numbers(bench)[1:],
        part_s=20,
        needs_cuda=True,
    ),
    Check(name="sizes", run=gpu_speed.sizes, parts=_some, part_s=3),
    Check(name="compiled", run=gpu_speed.compiled, parts=lambda bench: _some(bench)[:2], part_s=60),
    Check(name="agreement_criteo", run=gpu_bits.agreement, parts=_on("criteo"), part_s=2),
    Check(
        name="compiled_more",
        run=gpu_speed.compiled,
        parts=lambda bench: _some(bench)[2:],
        part_s=60,
    ),
)
"""In the order in which they are done."""

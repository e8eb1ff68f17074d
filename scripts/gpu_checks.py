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


def _some(bench: Bench) -> list[str]:
    return [name for name in gpu_speed.WIDELY_MEASURED if name in bench.backbones]


def _arms(bench: Bench) -> list[str]:
    return [f"{backbone} {plugin}" for backbone in _some(bench) for plugin in ARMS]


CHECKS = (
    Check(name="agreement", run=gpu_bits.agreement, parts=_backbones, part_s=2),
    Check(name="bits", run=gpu_bits.bits, parts=_backbones, part_s=4),
    Check(name="steps", run=gpu_speed.steps, parts=_on("avazu"), part_s=4),
    Check(name="generate", run=gpu_jobs.generate, parts=lambda _: ["avazu"], part_s=15),
    Check(
        name="job",
        run=gpu_jobs.job,
        parts=lambda _: gpu_jobs.JOBS,
        part_s=40,
        needs=("generate",),
    ),
    Check(
        name="evaluation",
        run=gpu_jobs.evaluation,
        parts=lambda _: [gpu_jobs.JOBS[0]],
        part_s=6,
        needs=("job",),
    ),
    Check(name="steps_criteo", run=gpu_speed.steps, parts=_on("criteo"), part_s=5),
    Check(name="host", run=gpu_speed.host, parts=_arms, part_s=3),
    Check(
        name="at_once",
        run=gpu_speed.at_once,
        parts=lambda bench: list(map(str, gpu_speed.at_once_parts(bench))),
        part_s=20,
    ),
    Check(name="sizes", run=gpu_speed.sizes, parts=_some, part_s=4),
    Check(name="compiled", run=gpu_speed.compiled, parts=_some, part_s=90),
)
"""In the order in which they are done."""

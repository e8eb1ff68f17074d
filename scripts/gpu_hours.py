"""How long recipes/main13.toml takes on the device, computed from what the GPU checks have found.

    hours = sum over data sets, backbones and arms of
            seeds x (E x (ceil(n_train / B) x step + ceil(n_valid / B) x forward + o) + r) / 3600

E is the number of epochs of a run, an assumption. o are the seconds of an epoch beside its steps
and forward passes, and r those of a job outside its epochs: the medians of what the jobs of the
check `job` took, scaled by the rows of the data set.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

FORMS = {
    "eager": ("eager_ms", "inference_eager_ms"),
    "graph": ("graph_ms", "inference_graph_ms"),
    "graph, TF32": ("tf32_ms", "inference_graph_ms"),
}
"""Form -> the figures of a training step and of a forward pass."""
Arms = Mapping[str, Mapping[str, Any]]
"""Arm -> figures of the check `steps`."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What main13 asks for."""

    seeds: int
    epochs: int
    """Assumed number of epochs of a run."""
    batch_size: int
    rows: Mapping[str, Mapping[str, int]]
    """Data set -> rows of each split."""
    backbones: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Hours:
    """Hours of all runs, one after another, in one form."""

    total: float
    each_epoch: float
    """Part of an epoch more or less of every run."""
    epoch_rest_s: float
    """o on Avazu_x1."""
    job_rest_s: float
    """r on Avazu_x1."""


def hours(
    form: str,
    plan: Plan,
    *,
    steps: Mapping[str, Mapping[str, Arms]],
    jobs: Mapping[str, Mapping[str, Any]],
) -> Hours | list[str]:
    """The hours in a form, or what has not been measured.

    Args:
        form: A key of `FORMS`.
        plan: What is run.
        steps: Data set -> backbone -> figures of both arms.
        jobs: `backbone arm` -> figures of the check `job`; without any, o and r are 0.
    """
    lacking = [
        f"{backbone} on {dataset}"
        for dataset in plan.rows
        for backbone in plan.backbones
        if not _measured(form, steps.get(dataset, {}).get(backbone, {}))
    ]
    if lacking:
        return lacking
    epoch_rest_s, job_rest_s = _rests(plan, steps["avazu"], jobs)
    total = each_epoch = 0.0
    for dataset, rows in plan.rows.items():
        scale = rows["train"] / plan.rows["avazu"]["train"]
        for backbone in plan.backbones:
            for found in steps[dataset][backbone].values():
                epoch_s = _own_s(form, plan, rows, found) + scale * epoch_rest_s
                total += plan.seeds * (plan.epochs * epoch_s + scale * job_rest_s)
                each_epoch += plan.seeds * epoch_s
    return Hours(
        total=total / 3600,
        each_epoch=each_epoch / 3600,
        epoch_rest_s=epoch_rest_s,
        job_rest_s=job_rest_s,
    )


def _measured(form: str, arms: Arms) -> bool:
    return bool(arms) and all(key in found for found in arms.values() for key in FORMS[form])


def _own_s(form: str, plan: Plan, rows: Mapping[str, int], found: Mapping[str, Any]) -> float:
    """Seconds of the steps and forward passes of an epoch."""
    step_ms, forward_ms = (median(found[key]) for key in FORMS[form])
    batches = {name: math.ceil(rows[name] / plan.batch_size) for name in ("train", "valid")}
    return float(batches["train"] * step_ms + batches["valid"] * forward_ms) / 1e3


def _rests(
    plan: Plan, steps: Mapping[str, Arms], jobs: Mapping[str, Mapping[str, Any]]
) -> tuple[float, float]:
    """o and r of Avazu_x1."""
    of_epochs, of_jobs = [0.0], [0.0]
    for name, job in jobs.items():
        backbone, arm = name.split()
        # Jobs run as graphs where there are any.
        form = "graph" if _measured("graph", steps[backbone]) else "eager"
        own_s = _own_s(form, plan, plan.rows["avazu"], steps[backbone][arm])
        of_epochs.append(max(0.0, job["epoch_s"] - own_s))
        of_jobs.append(job["job_s"] - job["epoch_s"])
    return median(of_epochs[1:] or of_epochs), median(of_jobs[1:] or of_jobs)

"""The routing probe of one trained PRIME: entropy and load of its routers, and how far groups of
rows share experts. Everything is computed in evaluation mode.

Shapes: N rows, B rows of a batch, G bags, M experts a bag, k groups.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch

from prime_bench.base.errors import DataError, UsageError
from prime_bench.data.table import PreparedTable
from prime_bench.findings import BagRouting, FieldRouting, GroupRouting, GroupSize, RoutingFindings
from prime_bench.plugins.attach import ArmModel
from prime_bench.probes.arms import load_trained
from prime_bench.probes.groups import Grouping, choose, grouping_of, no_such_field
from prime_bench.recipe.events import EpochProgress
from prime_bench.recipe.job import JobRequest, ResolvedJob
from prime_bench.settings.probes import RoutingSettings
from prime_bench.training.batches import Rows
from prime_bench.training.progress import ProgressMeter


def run(
    request: JobRequest,
    job: ResolvedJob,
    table: PreparedTable,
    *,
    device: torch.device,
    on_progress: Callable[[EpochProgress], None],
) -> RoutingFindings:
    """Route every row of the split.

    Raises UsageError for an arm without routers, DataError if weights of experts are not numbers.
    """
    settings = job.probe_as(RoutingSettings)
    arm = load_trained(request, job, table.schema, device=device)
    split = table.split(settings.split)
    sums = RoutingSums([grouping_of(table, split, name) for name in settings.fields])
    progress = ProgressMeter(on_progress, rows_total=len(split))
    for batch in Rows(split, device=device).in_order(batch_size=job.training.batch_size):
        weights = routing_of(arm, batch.ids, batch.numerics)
        sums.add(weights)
        progress.add(len(batch.labels))
    bags = sums.overall()
    return RoutingFindings(
        split=settings.split,
        rows=len(split),
        entropy=float(np.mean([bag.entropy for bag in bags])),
        normalised_entropy=float(np.mean([bag.normalised_entropy for bag in bags])),
        effective_experts=float(np.mean([bag.effective_experts for bag in bags])),
        largest_load=max(bag.largest_load for bag in bags),
        bags=bags,
        fields=[
            sums.field(index, name, split.labels, min_rows=settings.min_rows)
            for index, name in enumerate(settings.fields)
        ],
    )


@torch.inference_mode()
def routing_of(arm: ArmModel, ids: torch.Tensor, numerics: torch.Tensor) -> np.ndarray:
    """The rows' weights of experts (B, G, M), float64.

    Raises UsageError for an arm without routers, DataError if a weight is not a number.
    """
    weights = arm.routing(ids, numerics)
    if weights is None:
        raise UsageError("the arm has no routers")
    if not bool(weights.isfinite().all()):
        raise DataError(
            "weights of experts are not numbers: the routing of a run that has diverged cannot be"
            " measured",
            hint="the notes of `prime-bench report` say how its training run ended",
        )
    return weights.double().cpu().numpy()


class RoutingSums:
    """Sums of entropies and weights over rows: over all rows, and over each group of each field."""

    def __init__(self, groupings: Sequence[Grouping | None]) -> None:
        self._groupings = groupings
        self._rows = 0
        self._totals: list[np.ndarray] = []

    def add(self, weights: np.ndarray) -> None:
        """Add the weights (B, G, M) of the next rows, in the order of the file."""
        # (B, G, 1 + M): entropy, then the weights themselves.
        numbers = np.concatenate([entropies(weights)[..., np.newaxis], weights], axis=2)
        rows = slice(self._rows, self._rows + len(numbers))
        if not self._totals:
            sizes = [1, *(0 if g is None else len(g.names) for g in self._groupings)]
            self._totals = [np.zeros((size, *numbers.shape[1:])) for size in sizes]
        self._totals[0] += numbers.sum(axis=0)
        for grouping, total in zip(self._groupings, self._totals[1:], strict=True):
            if grouping is not None:
                np.add.at(total, grouping.codes[rows], numbers)
        self._rows = rows.stop

    def overall(self) -> list[BagRouting]:
        """The routing of each bag over all rows."""
        return bags_of(self._totals[0][0] / self._rows)

    def field(self, index: int, name: str, labels: np.ndarray, *, min_rows: int) -> FieldRouting:
        """The routing of each bag over each group's rows, and the overlap of each two groups."""
        grouping = self._groupings[index]
        if grouping is None:
            skipped = no_such_field(name)
            return FieldRouting(field=name, groups=[], too_small=[], overlap=[], skipped=skipped)
        choice = choose(grouping, labels, rows=min_rows)
        means = [
            self._totals[1 + index][code] / size.rows
            for code, size in zip(choice.codes, choice.groups, strict=True)
        ]
        return FieldRouting(
            field=name,
            groups=[_group(size, mean) for size, mean in zip(choice.groups, means, strict=True)],
            too_small=choice.too_small,
            overlap=overlap([mean[:, 1:] for mean in means]),
            skipped=None if means else "no group has enough rows",
        )


def entropies(weights: np.ndarray) -> np.ndarray:
    """Weights (B, G, M) that sum to 1 over M -> entropy in nats (B, G); 0 ln 0 is 0."""
    logs = np.log(weights, out=np.zeros_like(weights), where=weights > 0)
    found: np.ndarray = -(weights * logs).sum(axis=2)
    return found


def bags_of(means: np.ndarray) -> list[BagRouting]:
    """Mean entropy and mean weights (G, 1 + M) -> the routing of each bag."""
    found = []
    for entropy, *load in means.tolist():
        most = math.log(len(load))
        found.append(
            BagRouting(
                entropy=entropy,
                normalised_entropy=entropy / most if most else 0.0,
                effective_experts=math.exp(entropy),
                load=load,
                largest_load=max(load),
            )
        )
    return found


def overlap(loads: Sequence[np.ndarray]) -> list[list[float]]:
    """Loads (G, M) of k groups -> (k, k): the mean over bags of the sum of the smaller loads."""
    return [[float(np.minimum(a, b).sum(axis=1).mean()) for b in loads] for a in loads]


def _group(size: GroupSize, mean: np.ndarray) -> GroupRouting:
    return GroupRouting(size=size, bags=bags_of(mean))

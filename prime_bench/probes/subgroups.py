"""The subgroups probe of one trained arm: scores and calibration of each semantic group.

Shapes: N rows of a split, n rows of a group.
"""

from collections.abc import Callable

import numpy as np
import torch

from prime_bench.data.table import PreparedTable
from prime_bench.findings import FieldSubgroups, GroupSize, SubgroupFindings, SubgroupScore
from prime_bench.probes.arms import load_trained
from prime_bench.probes.groups import choose, grouping_of, no_such_field
from prime_bench.recipe.events import EpochProgress
from prime_bench.recipe.job import JobRequest, ResolvedJob
from prime_bench.settings.probes import SubgroupsSettings
from prime_bench.training.batches import Rows
from prime_bench.training.evaluation import predict
from prime_bench.training.graph import capture_on
from prime_bench.training.metrics import auc, logloss
from prime_bench.training.progress import ProgressMeter


def run(
    request: JobRequest,
    job: ResolvedJob,
    table: PreparedTable,
    *,
    device: torch.device,
    on_progress: Callable[[EpochProgress], None],
) -> SubgroupFindings:
    """Predict every row of the split with the run's weights, and score all rows and each group."""
    settings = job.probe_as(SubgroupsSettings)
    arm = load_trained(request, job, table.schema, device=device)
    split = table.split(settings.split)
    rows = Rows(split, device=device)
    progress = ProgressMeter(on_progress, rows_total=len(split))
    predicted = predict(
        arm,
        rows,
        batch_size=job.training.batch_size,
        capture=capture_on(device),
        on_rows=progress.add,
    )
    probabilities, labels = predicted.float().cpu().numpy(), rows.labels
    everything = GroupSize(name="all rows", rows=len(labels), positives=int(labels.sum()))
    bins = settings.calibration_bins
    fields = []
    for name in settings.fields:
        grouping = grouping_of(table, split, name)
        if grouping is None:
            skipped = no_such_field(name)
            fields.append(FieldSubgroups(field=name, groups=[], too_small=[], skipped=skipped))
            continue
        choice = choose(grouping, labels, rows=settings.min_rows)
        groups = []
        for code, size in zip(choice.codes, choice.groups, strict=True):
            mine = grouping.codes == code
            groups.append(score_group(size, labels[mine], probabilities[mine], bins=bins))
        fields.append(
            FieldSubgroups(
                field=name,
                groups=groups,
                too_small=choice.too_small,
                skipped=None if groups else "no group has enough rows",
            )
        )
    overall = score_group(everything, np.asarray(labels), probabilities, bins=bins)
    return SubgroupFindings(split=settings.split, overall=overall, fields=fields)


def score_group(
    size: GroupSize, labels: np.ndarray, probabilities: np.ndarray, *, bins: int
) -> SubgroupScore:
    """Score one group from the labels (n,) of 0 and 1 and the probabilities (n,) of its rows."""
    sound = bool(np.isfinite(probabilities).all())
    both = 0 < size.positives < size.rows
    exact = probabilities.astype(np.float64)
    return SubgroupScore(
        size=size,
        click_rate=size.positives / size.rows,
        mean_prediction=float(exact.mean()) if sound else None,
        auc=auc(labels, probabilities) if sound and both else None,
        logloss=logloss(labels, probabilities) if sound and both else None,
        calibration_error=calibration_error(labels, exact, bins=bins) if sound else None,
    )


def calibration_error(labels: np.ndarray, probabilities: np.ndarray, *, bins: int) -> float:
    """Mean over the rows (n,) of |click rate - mean prediction| of the row's bin.

    Bins are made by sorting rows by prediction and cutting them into `bins` parts whose sizes
    differ by one at most. Rows with equal predictions keep the order of the file. With fewer rows
    than bins, each row is a bin of its own.
    """
    order = np.argsort(probabilities, kind="stable")
    difference = labels[order].astype(np.float64) - probabilities[order]
    parts = np.array_split(difference, min(bins, len(difference)))
    return float(sum(abs(part.sum()) for part in parts) / len(difference))

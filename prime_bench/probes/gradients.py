"""The gradient diagnosis of one trained arm: do semantic groups pull the shared Top-NN in less
compatible directions than random groups of the same sizes and label counts?

All on validation rows, in evaluation mode, with the unregularised loss of the run.
"""

import hashlib
from collections.abc import Callable

import numpy as np
import torch

from prime_bench.base.errors import DataError
from prime_bench.data.table import PreparedTable
from prime_bench.findings import FieldGradients, GradientFindings
from prime_bench.plugins.attach import ArmModel
from prime_bench.probes.gap import Diagnosis, NoDirection
from prime_bench.probes.groups import (
    Choice,
    Grouping,
    choose,
    grouping_of,
    no_such_field,
    null_grouping,
)
from prime_bench.probes.sharing import sharing_of
from prime_bench.probes.trained import load_trained
from prime_bench.recipe.events import EpochProgress
from prime_bench.recipe.job import JobRequest, ResolvedJob
from prime_bench.settings.probes import NULL_FIELD, GradientsSettings


def run(
    request: JobRequest,
    job: ResolvedJob,
    table: PreparedTable,
    *,
    device: torch.device,
    on_progress: Callable[[EpochProgress], None],
) -> GradientFindings:
    """Measure every field. Raises DataError where none of them can be measured."""
    settings = job.probe_as(GradientsSettings)
    arm = load_trained(request, job, table.schema, device=device)
    names = [*settings.fields, *_null_names(settings)]
    fields, digest = [], hashlib.sha256()
    for number, name in enumerate(names, start=1):
        grouping = _grouping(table, name, settings=settings, seed=job.seed)
        if grouping is None:
            skipped = no_such_field(name)
            fields.append(FieldGradients(field=name, groups=[], too_small=[], skipped=skipped))
        else:
            fields.append(_field(arm, table, grouping, settings=settings, job=job, digest=digest))
        on_progress(EpochProgress(epoch=1, rows=number, rows_total=len(names)))
    if all(field.skipped for field in fields):
        raise DataError("; ".join(f"{field.field}: {field.skipped}" for field in fields))
    return GradientFindings(fields=fields, rows=digest.hexdigest())


def _field(
    arm: ArmModel,
    table: PreparedTable,
    grouping: Grouping,
    *,
    settings: GradientsSettings,
    job: ResolvedJob,
    digest: "hashlib._Hash",
) -> FieldGradients:
    """One field's findings; the rows that were measured go into the digest."""
    valid = table.split("valid")
    choice = large_groups(grouping, valid.labels, settings=settings)
    found = FieldGradients(field=grouping.field, groups=choice.groups, too_small=choice.too_small)
    if len(choice.codes) < 2:
        skipped = f"{len(choice.codes)} groups have enough rows, two are needed"
        return found.model_copy(update={"skipped": skipped})
    diagnosis = Diagnosis(
        arm, valid, grouping, choice, settings=settings, spec=job.training, seed=job.seed
    )
    digest.update(diagnosis.blocks.astype("<i8").tobytes())
    try:
        found = found.model_copy(update={"measures": diagnosis.measures()})
    except NoDirection as fault:
        return found.model_copy(update={"skipped": str(fault)})
    if settings.sharing_steps == 0:
        return found
    sharing = sharing_of(
        arm, valid, grouping, choice, settings=settings, spec=job.training, seed=job.seed
    )
    return found.model_copy(update={"sharing": sharing})


def large_groups(grouping: Grouping, labels: np.ndarray, *, settings: GradientsSettings) -> Choice:
    """The groups with enough rows of both labels for their blocks."""
    return choose(
        grouping,
        labels,
        positives=settings.blocks * settings.positives_per_block,
        negatives=settings.blocks * settings.negatives_per_block,
    )


def _null_names(settings: GradientsSettings) -> list[str]:
    return [f"{NULL_FIELD}{number + 1}" for number in range(settings.null_labels)]


def _grouping(
    table: PreparedTable, name: str, *, settings: GradientsSettings, seed: int
) -> Grouping | None:
    """Validation rows by a semantic field or a null label; None where there is no such field."""
    valid = table.split("valid")
    if name not in _null_names(settings):
        return grouping_of(table, valid, name)
    return null_grouping(len(valid), name=name, n_groups=settings.null_groups, seed=seed)

"""The gradients probe of one trained arm: are the gradients of semantic groups in the shared Top-NN
less alike than those of random groups of the same sizes and label counts?

Everything is computed on validation rows, in evaluation mode, from the run's loss without L2. The
competition gap is the mean cosine of random groups less that of the semantic ones (Eq. 28).

Shapes: n blocks, k groups, R random groupings. The gradient of a group is the mean of its blocks',
so with G (n, n) the inner products of the blocks' gradients and A (k, n) the indicator of the
blocks of each group, the inner products of the groups are A G A^T up to a factor that cosines do
not depend on.
"""

import hashlib
import math
from collections.abc import Callable, Iterator
from typing import Literal

import numpy as np
import torch
from torch import nn

from prime_bench.base.errors import DataError
from prime_bench.data.table import PreparedTable, Split
from prime_bench.findings import (
    EQUAL_COSINES,
    FieldGradients,
    Gap,
    GradientFindings,
    Measure,
)
from prime_bench.plugins.attach import ArmModel
from prime_bench.probes.arms import batch_of, load_trained
from prime_bench.probes.groups import (
    ChosenGroups,
    Grouping,
    block_groupings,
    choose,
    draw_blocks,
    grouping_of,
    no_such_field,
    null_grouping,
    row_groupings,
)
from prime_bench.probes.inner_products import NoRowGradients, block_grams, example_grams
from prime_bench.probes.sharing import sharing_of
from prime_bench.recipe.events import EpochProgress
from prime_bench.recipe.job import JobRequest, ResolvedJob
from prime_bench.settings.probes import NULL_FIELD, GradientsSettings
from prime_bench.settings.training import TrainSpec
from prime_bench.training.batches import Batch


def run(
    request: JobRequest,
    job: ResolvedJob,
    table: PreparedTable,
    *,
    device: torch.device,
    on_progress: Callable[[EpochProgress], None],
) -> GradientFindings:
    """Measure every field. Raises DataError if no field can be measured."""
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
    """The findings of one field. Adds the measured rows to the digest."""
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


def large_groups(
    grouping: Grouping, labels: np.ndarray, *, settings: GradientsSettings
) -> ChosenGroups:
    """Choose the groups that have enough rows of both labels for their blocks."""
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
    """The groups of validation rows by a semantic field or a null label; None if the table has no
    such field.
    """
    valid = table.split("valid")
    if name not in _null_names(settings):
        return grouping_of(table, valid, name)
    return null_grouping(len(valid), name=name, n_groups=settings.null_groups, seed=seed)


# Numbers in the largest array of a batch of groupings: a few MB, which fit into a CPU's cache.
_BATCH_NUMBERS = 1 << 20


def cosines(gram: np.ndarray) -> np.ndarray:
    """Inner products (..., k, k) -> cosines (..., k, k); NaN for a gradient of 0."""
    norms = np.sqrt(np.diagonal(gram, axis1=-2, axis2=-1))
    with np.errstate(invalid="ignore", divide="ignore"):
        found: np.ndarray = gram / (norms[..., :, np.newaxis] * norms[..., np.newaxis, :])
    return found


def mean_cosine(gram: np.ndarray) -> np.ndarray:
    """Inner products (..., k, k) -> mean cosine (...) over all pairs of two groups."""
    first, second = np.triu_indices(gram.shape[-1], k=1)
    mean: np.ndarray = cosines(gram)[..., first, second].mean(axis=-1)
    return mean


def regrouped(gram: np.ndarray, groupings: np.ndarray, *, n_groups: int) -> np.ndarray:
    """Inner products of blocks (n, n), their groups (R, n) -> those of groups (R, k, k)."""
    step = max(1, _BATCH_NUMBERS // (n_groups * len(gram)))
    found, numbers = [], np.arange(n_groups)[:, np.newaxis]
    for start in range(0, len(groupings), step):
        members = groupings[start : start + step, np.newaxis, :] == numbers
        indicators = members.astype(np.float64)  # (R, k, n)
        half = (indicators.reshape(-1, len(gram)) @ gram).reshape(indicators.shape)
        found.append(half @ indicators.transpose(0, 2, 1))
    return np.concatenate(found)


def gap_of(semantic: float, random: np.ndarray) -> Gap:
    """Compare the semantic groups' mean cosine with those of random groupings (R,)."""
    n, mean = len(random), float(random.mean())
    deviation = float(random.std(ddof=1)) if n > 1 else 0.0
    return Gap(
        permutations=n,
        random=mean,
        random_deviation=deviation,
        gap=mean - semantic,
        monte_carlo_error=deviation / math.sqrt(n),
        p_value=(1 + int((random <= semantic + EQUAL_COSINES).sum())) / (1 + n),
    )


# Blocks in a batch, where the gradients of single blocks are not needed.
_BLOCKS_A_BATCH = 8


class NoDirection(Exception):
    """A gradient is 0 or not finite, so it has no cosine with others."""


class Diagnosis:
    """The gradients of a grouping's balanced blocks in an arm's Top-NN.

    `arm` is in evaluation mode, and none of its parameters requires a gradient; those of the
    Top-NN do from now on.
    """

    def __init__(
        self,
        arm: ArmModel,
        split: Split,
        grouping: Grouping,
        choice: ChosenGroups,
        *,
        settings: GradientsSettings,
        spec: TrainSpec,
        seed: int,
    ) -> None:
        self._arm, self._split, self._spec, self._seed = arm, split, spec, seed
        self._settings = settings
        self._field, self._n_groups = grouping.field, len(choice.codes)
        self._sets = parameter_sets(arm, include_head=settings.include_head)
        self._device = next(arm.parameters()).device
        self.blocks = draw_blocks(
            grouping,
            split.labels,
            choice.codes,
            blocks=settings.blocks,
            positives=settings.positives_per_block,
            negatives=settings.negatives_per_block,
            seed=seed,
        )
        """Rows of the split in each block, (n, rows of a block)."""

    def measures(self) -> list[Measure]:
        """Cosines of the semantic groups and both gaps: over the Top-NN and, if `include_head` is
        set, over the Top-NN with its shared output layer. Raises NoDirection.
        """
        by_block = self._random_blocks()
        own = np.repeat(np.arange(self._n_groups), self._settings.blocks)[np.newaxis]
        # Products in float32 depend on their order: these are the semantic groups in another one.
        blocks_of = by_block.reshape(len(by_block), self._n_groups, self._settings.blocks)
        same = (blocks_of == blocks_of[:, :, :1]).all(axis=(1, 2))
        grams = self.block_grams()
        by_example, note = self._random_examples()
        measures, n_parameters = [], 0
        for index, (name, parameters) in enumerate(self._sets.items()):
            n_parameters += sum(parameter.numel() for parameter in parameters)
            groups = regrouped(grams[index], own, n_groups=self._n_groups)[0]
            random = mean_cosine(regrouped(grams[index], by_block, n_groups=self._n_groups))
            semantic = float(mean_cosine(groups))
            random[same] = semantic
            if not np.isfinite([semantic, *random]).all():
                raise NoDirection("the gradient of a group is 0 or not a number")
            example = None if by_example is None else gap_of(semantic, by_example[index])
            measures.append(
                Measure(
                    parameters=name,
                    n_parameters=n_parameters,
                    semantic=semantic,
                    cosines=cosines(groups).tolist(),
                    block=gap_of(semantic, random),
                    example=example,
                    note=note,
                )
            )
        return measures

    def block_grams(self) -> np.ndarray:
        """Inner products of the blocks' gradients, (sets, n, n): over the Top-NN, then over the
        Top-NN and each further set of parameters.
        """
        grams = block_grams(
            self._arm,
            self._batches,
            list(self._sets.values()),
            n_blocks=len(self.blocks),
            spec=self._spec,
        )
        return np.cumsum(grams, axis=0)

    def example_grams(self, groupings: np.ndarray) -> np.ndarray:
        """Inner products of the gradients of groups of rows, (sets, R, k, k), with the sets of
        `block_grams`. `groupings` (R, k, rows) has indices into the rows of all blocks. Raises
        NoRowGradients.
        """
        grams = example_grams(
            self._arm,
            lambda: self._batches(blocks_each=_BLOCKS_A_BATCH),
            list(self._sets.values()),
            groupings,
            spec=self._spec,
        )
        return np.cumsum(grams, axis=0)

    def _random_blocks(self) -> np.ndarray:
        return block_groupings(
            self._n_groups,
            self._settings.blocks,
            n=self._settings.permutations,
            seed=self._seed,
            field=self._field,
        )

    def _random_examples(self) -> tuple[np.ndarray | None, str | None]:
        """Mean cosines of random groups of rows (sets, R), or None with the reason if they were
        asked for and cannot be had.
        """
        if self._settings.example_permutations == 0:
            return None, None
        groupings = row_groupings(
            self._split.labels[self.blocks.ravel()],
            self._n_groups,
            n=self._settings.example_permutations,
            seed=self._seed,
            field=self._field,
        )
        try:
            return mean_cosine(self.example_grams(groupings)), None
        except NoRowGradients as error:
            return None, f"no gap of random rows: {error}"

    def _batches(self, *, blocks_each: int = 1) -> Iterator[Batch]:
        """The rows of all blocks in order, `blocks_each` blocks a batch."""
        for start in range(0, len(self.blocks), blocks_each):
            rows = self.blocks[start : start + blocks_each].ravel()
            yield batch_of(self._split, rows, device=self._device)


ParameterSets = dict[Literal["top", "top_and_head"], list[nn.Parameter]]


def parameter_sets(arm: ArmModel, *, include_head: bool) -> ParameterSets:
    """The parameters of the Top-NN and, as a set of its own, those of the output layer that another
    path shares, if asked for. All of them require gradients from now on.
    """
    backbone = arm.backbone
    sets: ParameterSets = {"top": [backbone.get_parameter(n) for n in backbone.top_parameters]}
    if include_head and backbone.shared_head:
        sets["top_and_head"] = [backbone.get_parameter(name) for name in backbone.shared_head]
    for parameters in sets.values():
        for parameter in parameters:
            parameter.requires_grad_()
    return sets

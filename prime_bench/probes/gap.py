"""Cosines and gaps from inner products of gradients (Eq. 28).

Shapes: n blocks, k groups, R random groupings. The gradient of a group is the mean of its blocks',
so with G (n, n) the blocks' inner products and A (k, n) the indicator of who is in which group, the
groups' are A G A^T up to a factor that cosines do not see.
"""

import math
from collections.abc import Iterator
from typing import Literal

import numpy as np
from torch import nn

from prime_bench.data.table import Split
from prime_bench.findings import Gap, Measure
from prime_bench.plugins.attach import ArmModel
from prime_bench.probes.groups import (
    Choice,
    Grouping,
    block_groupings,
    draw_blocks,
    row_groupings,
)
from prime_bench.probes.inner_products import NoRowGradients, block_grams, example_grams
from prime_bench.probes.trained import batch_of
from prime_bench.settings.probes import GradientsSettings
from prime_bench.settings.training import TrainSpec
from prime_bench.training.batches import Batch

# Numbers in the largest array of a batch of groupings: a few MB, which stay in a CPU's cache.
_BATCH_NUMBERS = 1 << 20


def cosines(gram: np.ndarray) -> np.ndarray:
    """Inner products (..., k, k) -> cosines (..., k, k); NaN for a gradient of 0."""
    norms = np.sqrt(np.diagonal(gram, axis1=-2, axis2=-1))
    with np.errstate(invalid="ignore", divide="ignore"):
        found: np.ndarray = gram / (norms[..., :, np.newaxis] * norms[..., np.newaxis, :])
    return found


def mean_cosine(gram: np.ndarray) -> np.ndarray:
    """Inner products (..., k, k) -> mean cosine (...) over the pairs of two groups."""
    first, second = np.triu_indices(gram.shape[-1], k=1)
    mean: np.ndarray = cosines(gram)[..., first, second].mean(axis=-1)
    return mean


def regrouped(gram: np.ndarray, groupings: np.ndarray, *, n_groups: int) -> np.ndarray:
    """Blocks' inner products (n, n), groups of the blocks (R, n) -> groups' products (R, k, k)."""
    step = max(1, _BATCH_NUMBERS // (n_groups * len(gram)))
    found, numbers = [], np.arange(n_groups)[:, np.newaxis]
    for start in range(0, len(groupings), step):
        members = groupings[start : start + step, np.newaxis, :] == numbers
        indicators = members.astype(np.float64)  # (R, k, n)
        half = (indicators.reshape(-1, len(gram)) @ gram).reshape(indicators.shape)
        found.append(half @ indicators.transpose(0, 2, 1))
    return np.concatenate(found)


def gap_of(semantic: float, random: np.ndarray) -> Gap:
    """The semantic groups' mean cosine against those of random groupings (R,)."""
    n, mean = len(random), float(random.mean())
    deviation = float(random.std(ddof=1)) if n > 1 else 0.0
    return Gap(
        permutations=n,
        random=mean,
        random_deviation=deviation,
        gap=mean - semantic,
        monte_carlo_error=deviation / math.sqrt(n),
        p_value=(1 + int((random <= semantic).sum())) / (1 + n),
    )


# Rows go through the model so many blocks at a time where their gradients need not be told apart.
_BLOCKS_A_BATCH = 8


class NoDirection(Exception):
    """A gradient is 0 or not finite, so that it has no cosine with another."""


class Diagnosis:
    """The gradients of a grouping's balanced blocks in an arm's Top-NN.

    `arm` is in evaluation mode and asks for no gradient; the Top-NN's parameters do from now on.
    """

    def __init__(
        self,
        arm: ArmModel,
        split: Split,
        grouping: Grouping,
        choice: Choice,
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
        """Semantic cosines and both gaps, for the Top-NN and, where asked for, with the head.

        Raises NoDirection.
        """
        by_block = self._random_blocks()
        own = np.repeat(np.arange(self._n_groups), self._settings.blocks)[np.newaxis]
        grams = self.block_grams()
        by_example, note = self._random_examples()
        measures, n_parameters = [], 0
        for index, (name, parameters) in enumerate(self._sets.items()):
            n_parameters += sum(parameter.numel() for parameter in parameters)
            groups = regrouped(grams[index], own, n_groups=self._n_groups)[0]
            random = mean_cosine(regrouped(grams[index], by_block, n_groups=self._n_groups))
            semantic = float(mean_cosine(groups))
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
        """Inner products of the blocks' gradients, (sets, n, n): in the Top-NN, then with what each
        further set of parameters adds.
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
        """Inner products of the gradients of groups of rows, (sets, R, k, k), sets as above;
        `groupings` (R, k, rows) counts the rows of all blocks in their order. Raises
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
        """Mean cosines of random groups of rows (sets, R), or None and, where there should be some,
        the reason.
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
        """The blocks in order, so many a batch."""
        for start in range(0, len(self.blocks), blocks_each):
            rows = self.blocks[start : start + blocks_each].ravel()
            yield batch_of(self._split, rows, device=self._device)


ParameterSets = dict[Literal["top", "top_and_head"], list[nn.Parameter]]


def parameter_sets(arm: ArmModel, *, include_head: bool) -> ParameterSets:
    """The Top-NN's parameters and, where asked for and shared with another path, the head's: what
    that set adds to the first. They ask for gradients from now on.
    """
    backbone = arm.backbone
    sets: ParameterSets = {"top": [backbone.get_parameter(n) for n in backbone.top_parameters]}
    if include_head and backbone.shared_head:
        sets["top_and_head"] = [backbone.get_parameter(name) for name in backbone.shared_head]
    for parameters in sets.values():
        for parameter in parameters:
            parameter.requires_grad_()
    return sets

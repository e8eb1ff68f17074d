"""Inner products of the gradients that blocks of rows have in a set of parameters.

Shapes: n blocks, B rows of a block, P parameters.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from prime_bench.plugins.attach import Arm
from prime_bench.settings.training import TrainSpec
from prime_bench.training.batches import Batch
from prime_bench.training.loss import batch_loss

BUFFER_BYTES = 1 << 30
"""Gradients of all blocks that are held at once; a larger Top-NN takes several passes."""
_COLUMNS = 1 << 13


@dataclass(frozen=True)
class _Part:
    """A stretch of a parameter's numbers, in their order."""

    set_index: int
    parameter: nn.Parameter
    start: int
    stop: int


def block_grams(
    arm: Arm,
    batches: Callable[[], Iterable[Batch]],
    sets: Sequence[Sequence[nn.Parameter]],
    *,
    n_blocks: int,
    spec: TrainSpec,
    buffer_bytes: int = BUFFER_BYTES,
) -> list[np.ndarray]:
    """For each set of parameters the inner products (n, n) float64 of the blocks' gradients.

    The gradient is that of the block's mean BCE, without any L2. `batches` gives the n blocks anew
    at each call; there is one call for each pass.
    """
    device = sets[0][0].device
    grams = [torch.zeros(n_blocks, n_blocks, dtype=torch.float64, device=device) for _ in sets]
    width = max(1, buffer_bytes // (4 * n_blocks))
    for parts in _passes(sets, width=width):
        parameters = list({id(part.parameter): part.parameter for part in parts}.values())
        widths = [part.stop - part.start for part in parts]
        rows = torch.empty(n_blocks, sum(widths), device=device)
        for row, batch in zip(rows, batches(), strict=True):
            loss = batch_loss(arm, batch, kind=spec.loss)
            found = torch.autograd.grad(loss, parameters)
            by_id = {id(p): g.flatten() for p, g in zip(parameters, found, strict=True)}
            torch.cat([by_id[id(p.parameter)][p.start : p.stop] for p in parts], out=row)
        for part, columns in zip(parts, torch.split(rows, widths, dim=1), strict=True):
            _add_products(grams[part.set_index], columns)
    return [gram.cpu().numpy() for gram in grams]


def _add_products(gram: Tensor, columns: Tensor) -> None:
    """Add the inner products of the rows (n, P): float32 within a stretch of P, float64 over them,
    so that the sum is as exact as its terms.
    """
    for stretch in torch.split(columns, _COLUMNS, dim=1):
        gram.add_(stretch @ stretch.T)


def _passes(sets: Sequence[Sequence[nn.Parameter]], *, width: int) -> list[list[_Part]]:
    """The parameters cut and packed so that no pass has more than `width` numbers a block."""
    passes: list[list[_Part]] = [[]]
    room = width
    for index, parameters in enumerate(sets):
        for parameter in parameters:
            start = 0
            while start < parameter.numel():
                if room == 0:
                    passes.append([])
                    room = width
                stop = min(parameter.numel(), start + room)
                passes[-1].append(_Part(index, parameter, start, stop))
                room -= stop - start
                start = stop
    return passes

"""Inner products of gradients: of whole blocks of rows, and of arbitrary groups of rows.

A block's gradient is computed by autograd. Groups of rows are too many for that, so the gradients
of single rows are kept in factors: for a Linear those are the row's input a and delta, the gradient
of its output, whose outer product is the gradient of the weight.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from prime_bench.plugins.attach import ArmModel
from prime_bench.settings.training import TrainSpec
from prime_bench.training.batches import Batch
from prime_bench.training.optimizer import batch_loss

BUFFER_BYTES = 1 << 30
"""Memory for the gradients of all blocks; a larger Top-NN takes several passes over the rows."""
_COLUMNS = 1 << 13


@dataclass(frozen=True)
class _Part:
    """A contiguous part of a parameter's numbers."""

    set_index: int
    parameter: nn.Parameter
    start: int
    stop: int


def block_grams(
    arm: ArmModel,
    batches: Callable[[], Iterable[Batch]],
    sets: Sequence[Sequence[nn.Parameter]],
    *,
    n_blocks: int,
    spec: TrainSpec,
    buffer_bytes: int = BUFFER_BYTES,
) -> list[np.ndarray]:
    """Inner products (n, n) float64 of the blocks' gradients, over each set of parameters.

    A block's gradient is that of its mean BCE, without L2. Each call of `batches` returns the n
    blocks from the start; it is called once a pass.
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
    """Add the inner products of the rows (n, P). Products of `_COLUMNS` columns are summed in
    float32 and their sums in float64, so that the result is as exact as its terms.
    """
    for stretch in torch.split(columns, _COLUMNS, dim=1):
        gram.add_(stretch @ stretch.T)


def _passes(sets: Sequence[Sequence[nn.Parameter]], *, width: int) -> list[list[_Part]]:
    """Divide the parameters among passes with at most `width` numbers a block."""
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


CACHE_BYTES = 1 << 30
"""Memory for the factors of all rows' gradients."""
# Numbers of one group's gradient that are computed at once.
_PIECE_NUMBERS = 1 << 18


class NoRowGradients(Exception):
    """This module has no formula of a row's gradient for a layer of the Top-NN."""


@dataclass(frozen=True)
class _Piece:
    """Some columns of a Linear's weight, or all other parameters of a layer."""

    set_index: int
    layer: nn.Module
    columns: tuple[int, int] | None
    """First and last column + 1 of a Linear's weight; None for the other parameters of a layer,
    whose gradient of a row is kept as a vector."""
    numbers: int
    """Numbers that are kept of each row."""


def example_grams(
    arm: ArmModel,
    batches: Callable[[], Iterable[Batch]],
    sets: Sequence[Sequence[nn.Parameter]],
    groupings: np.ndarray,
    *,
    spec: TrainSpec,
    cache_bytes: int = CACHE_BYTES,
) -> list[np.ndarray]:
    """Inner products (R, k, k) float64 of the groups' gradients, over each set of parameters.

    `groupings` (R, k, N / k) has indices into the N rows of `batches`, each call of which returns
    all rows from the start; it is called once a pass. Raises NoRowGradients.
    """
    n_rows, n_groups = groupings[0].size, groupings.shape[1]
    device = sets[0][0].device
    members = torch.from_numpy(groupings.reshape(len(groupings), -1)).to(device)
    grams = torch.zeros(
        len(sets), len(groupings), n_groups, n_groups, dtype=torch.float64, device=device
    )
    for pieces in _example_passes(arm, sets, room=max(1, cache_bytes // (4 * n_rows))):
        kept = _keep(arm, batches(), pieces, spec=spec)
        for piece, factors in zip(pieces, kept, strict=True):
            for gram, rows in zip(grams[piece.set_index], members, strict=True):
                exact = _sums(piece, factors, rows, n_groups=n_groups).double()  # (k, numbers)
                gram.addmm_(exact, exact.T)
    return [gram.cpu().numpy() for gram in grams]


def _sums(piece: _Piece, factors: tuple[Tensor, ...], rows: Tensor, *, n_groups: int) -> Tensor:
    """The groups' gradients (k, numbers) in a piece, from the factors of each row."""
    shape = (n_groups, len(rows) // n_groups, -1)
    grouped = [factor.index_select(0, rows).view(shape) for factor in factors]
    if piece.columns is None:
        return grouped[0].sum(dim=1)  # (k, N / k, w) -> (k, w)
    delta, inputs = grouped
    return torch.bmm(delta.mT, inputs).flatten(1)


def _example_passes(
    arm: ArmModel, sets: Sequence[Sequence[nn.Parameter]], *, room: int
) -> list[list[_Piece]]:
    """Divide the pieces of all sets among passes that keep about `room` numbers of a row."""
    owners = {
        id(parameter): layer
        for layer in arm.modules()
        for parameter in layer.parameters(recurse=False)
    }
    passes: list[list[_Piece]] = [[]]
    free = room
    for index, parameters in enumerate(sets):
        for layer in dict.fromkeys(owners[id(parameter)] for parameter in parameters):
            for piece in _pieces(index, layer):
                if passes[-1] and piece.numbers > free:
                    passes.append([])
                    free = room
                passes[-1].append(piece)
                free -= piece.numbers
    return passes


def _pieces(set_index: int, layer: nn.Module) -> list[_Piece]:
    numbers = sum(parameter.numel() for parameter in layer.parameters())
    if isinstance(layer, nn.BatchNorm1d | nn.LayerNorm):
        return [_Piece(set_index, layer, None, numbers)]
    if not isinstance(layer, nn.Linear):
        raise NoRowGradients(f"the Top-NN has a {type(layer).__name__}")
    width, out = layer.in_features, layer.out_features
    step = max(1, _PIECE_NUMBERS // out)
    pieces = [
        _Piece(set_index, layer, (start, min(width, start + step)), out + min(step, width - start))
        for start in range(0, width, step)
    ]
    bias = [] if layer.bias is None else [_Piece(set_index, layer, None, out)]
    return pieces + bias


def _keep(
    arm: ArmModel, batches: Iterable[Batch], pieces: Sequence[_Piece], *, spec: TrainSpec
) -> list[tuple[Tensor, ...]]:
    """The factors of all N rows for each piece: delta (N, out) and a (N, columns), or a vector
    (N, numbers).
    """
    seen: dict[nn.Module, tuple[Tensor, Tensor]] = {}

    def see(layer: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        seen[layer] = inputs[0].detach(), output

    layers = {piece.layer for piece in pieces}
    hooks = [layer.register_forward_hook(see) for layer in layers]
    kept: list[list[tuple[Tensor, ...]]] = [[] for _ in pieces]
    try:
        for batch in batches:
            loss = batch_loss(arm, batch, kind=spec.loss) * len(batch.labels)
            deltas = torch.autograd.grad(loss, [output for _, output in seen.values()])
            rows = {
                layer: (inputs, delta)
                for (layer, (inputs, _)), delta in zip(seen.items(), deltas, strict=True)
            }
            for piece, own in zip(pieces, kept, strict=True):
                own.append(_factors(piece, *rows[piece.layer]))
    finally:
        for hook in hooks:
            hook.remove()
    return [tuple(torch.cat(factor) for factor in zip(*own, strict=True)) for own in kept]


def _factors(piece: _Piece, inputs: Tensor, delta: Tensor) -> tuple[Tensor, ...]:
    """The factors of a batch's rows for a piece, from its layer's inputs a and from delta."""
    layer = piece.layer
    if piece.columns is not None:
        start, stop = piece.columns
        return delta, inputs[:, start:stop]
    if isinstance(layer, nn.BatchNorm1d):
        mean, variance = layer.running_mean, layer.running_var
        normal = F.batch_norm(inputs, mean, variance, eps=layer.eps)
    elif isinstance(layer, nn.LayerNorm):
        normal = F.layer_norm(inputs, layer.normalized_shape, eps=layer.eps)
    else:
        return (delta,)
    return (torch.cat([delta * normal, delta], dim=1),)

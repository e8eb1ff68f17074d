"""Embeddings of all fields: one table for all categorical fields, a vector for each numeric field.

    E_f = table[offset_f + id_f]  (categorical),    E_f = x_f w_f  (numeric)

Shapes: B rows, C categorical and K numeric fields, F = C + K, k embedding width, V ids of all
fields together. The same function as FuxiCTR's FeatureEmbedding, which has an nn.Embedding for
each categorical field and an nn.Linear(1, k) for each numeric one.
"""

import itertools
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from prime_bench.data.schema import Schema

PAD = 0
INITIAL_STD = 1e-4  # as FuxiCTR's embedding_initializer, nn.init.normal_(std=1e-4)


@dataclass(frozen=True)
class LookedUp:
    """Rows of a table that a training step looked up before the forward pass."""

    ids: Tensor
    """(B, C): the same tensor object that `forward` will be given."""
    rows: Tensor
    """(B, C, k): the rows of these ids."""


class FieldEmbedding(nn.Module):
    """Embeddings in schema order: ids (B, C) int32 or int64, numerics (B, K) -> (B, F, k).

    `table` (V, k) holds the tables of all categorical fields one after another, and `offsets` (C,)
    their first rows. `numeric_weight` is (K, k). Either is None if there are no such fields. The
    row PAD of each field is zero and stays zero, since it gets no gradient.

    While `looked_up` is set, `forward` takes the rows of its ids from there, and the backward pass
    ends at these rows. A training step that applies their gradient itself so avoids a gradient of
    all V rows.
    """

    offsets: Tensor
    table: nn.Parameter | None
    numeric_weight: nn.Parameter | None

    def __init__(self, schema: Schema, width: int) -> None:
        super().__init__()
        self.schema = schema
        self.looked_up: LookedUp | None = None
        shape = schema.shape
        ends = list(itertools.accumulate(shape.vocabulary_sizes))
        self._runs = [
            (kind, len(list(fields)))
            for kind, fields in itertools.groupby(field.kind for field in schema.fields)
        ]
        self.register_buffer("offsets", torch.tensor([0, *ends[:-1]]), persistent=False)
        self.table = nn.Parameter(torch.empty(ends[-1], width)) if ends else None
        self.numeric_weight = (
            nn.Parameter(torch.empty(shape.n_numeric, width)) if shape.n_numeric else None
        )
        self._reset(shape.vocabulary_sizes)
        self._freeze_padding()

    def forward(self, ids: Tensor, numerics: Tensor) -> Tensor:
        """Look up the categorical fields and scale the vectors of the numeric fields."""
        parts: dict[str, Tensor] = {}
        if self.table is not None:
            held = self.looked_up
            parts["categorical"] = (
                held.rows
                if held is not None and held.ids is ids
                else _rows(self.table, ids + self.offsets)
            )  # (B, C, k)
        if self.numeric_weight is not None:
            parts["numeric"] = (
                numerics.unsqueeze(-1) * self.numeric_weight
            )  # (B, K, 1) -> (B, K, k)
        if len(parts) == 1:
            return next(iter(parts.values()))
        # split and cat, since the gradient of each is a single copy however the kinds interleave.
        runs = {
            kind: iter(torch.split(part, [n for other, n in self._runs if other == kind], dim=1))
            for kind, part in parts.items()
        }
        return torch.cat([next(runs[kind]) for kind, _ in self._runs], dim=1)  # (B, F, k)

    def _reset(self, sizes: tuple[int, ...]) -> None:
        with torch.no_grad():
            for rows in [] if self.table is None else torch.split(self.table, list(sizes)):
                rows[PAD].zero_()
                rows[PAD + 1 :].normal_(std=INITIAL_STD)
            for weight in [] if self.numeric_weight is None else self.numeric_weight:
                nn.init.xavier_normal_(weight.unsqueeze(1))  # nn.Linear(1, k).weight is (k, 1)

    def _freeze_padding(self) -> None:
        # A hook zeroes the gradient of C rows; a mask would be another tensor of (V, k).
        table: Any = self.table  # torch has no types for the method
        if table is not None:
            table.register_post_accumulate_grad_hook(self._clear_padding_gradient)

    def _clear_padding_gradient(self, table: Tensor) -> None:
        if table.grad is not None:
            table.grad.index_fill_(0, self.offsets + PAD, 0.0)

    def __setstate__(self, state: dict[str, object]) -> None:
        # A copied or unpickled Parameter has lost its hooks.
        restore: Any = super().__setstate__
        restore(state)
        self._freeze_padding()


def _rows(table: Tensor, places: Tensor) -> Tensor:
    """The rows of `table` (V, k) at `places` (B, C), as (B, C, k)."""
    if table.device.type != "cpu":
        return F.embedding(places, table)
    # index_select gives the same numbers, and its gradient costs a third of embedding's, a tenth at
    # k = 1. On accelerators that gradient is not deterministic, so embedding is used there.
    opaque = torch.compiler.is_compiling() and not torch.is_grad_enabled()
    look_up: Any = _opaque_index_select if opaque else torch.index_select
    rows: Tensor = look_up(table, 0, places.flatten())
    return rows.view(*places.shape, -1)


# Opaque to torch.compile, which would otherwise fuse the lookup into every operation that reads the
# rows, and so repeat it element by element.
@torch.library.custom_op("prime_bench::index_select", mutates_args=())
def _opaque_index_select(table: Tensor, dim: int, index: Tensor) -> Tensor:
    return table.index_select(dim, index)


@_opaque_index_select.register_fake
def _(table: Tensor, dim: int, index: Tensor) -> Tensor:
    return table.index_select(dim, index)

"""Embeddings of all fields: one table for the categorical ones, one weight vector for each numeric
one.

    E_f = table[offset_f + id_f]  (categorical),    E_f = x_f w_f  (numeric)

Shapes: B rows, C categorical and K numeric fields, F = C + K, k embedding width, V ids of all
fields together. Source: FuxiCTR's FeatureEmbedding, which has one nn.Embedding a categorical field
and one nn.Linear(1, k) a numeric one.
"""

import itertools
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from prime_bench.data.schema import Schema

PAD = 0
INITIAL_STD = 1e-4  # FuxiCTR's embedding_initializer, nn.init.normal_(std=1e-4)


@dataclass(frozen=True)
class LookedUp:
    """Rows of a table that were looked up before the forward pass."""

    ids: Tensor
    """(B, C), the very tensor that forward will be given."""
    rows: Tensor
    """(B, C, k)."""


class FieldEmbedding(nn.Module):
    """ids (B, C) int32 or int64, numerics (B, K) -> (B, F, k), in schema order.

    `table` (V, k) holds the fields' tables one after another, `offsets` (C,) says where each
    begins, `numeric_weight` is (K, k); a kind without fields has None. Row PAD of each field is
    zero and stays zero: it gets no gradient.

    While `looked_up` is set, forward takes the rows of its ids from there, and backward ends at
    them: a training step that knows what to do with their gradient needs none of all V rows.
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
        """Look the categories up and scale the numeric fields' vectors."""
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
        # split and cat: the gradient of either is one copy, however the kinds are interleaved.
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
        # The gradient of C rows is overwritten after it was accumulated; a mask would be another
        # (V, k).
        table: Any = self.table  # torch gives the method no types
        if table is not None:
            table.register_post_accumulate_grad_hook(self._clear_padding_gradient)

    def _clear_padding_gradient(self, table: Tensor) -> None:
        if table.grad is not None:
            table.grad.index_fill_(0, self.offsets + PAD, 0.0)

    def __setstate__(self, state: dict[str, Any]) -> None:
        # A copied or unpickled Parameter has lost its hooks.
        restore: Any = super().__setstate__
        restore(state)
        self._freeze_padding()


def _rows(table: Tensor, places: Tensor) -> Tensor:
    """(V, k) and (B, C) -> (B, C, k)."""
    if table.device.type != "cpu":
        return F.embedding(places, table)
    # The same numbers; the gradient by index_add costs a third of embedding's, at k = 1 a tenth.
    # On accelerators index_add sums in no fixed order.
    opaque = torch.compiler.is_compiling() and not torch.is_grad_enabled()
    look_up: Any = _opaque_index_select if opaque else torch.index_select
    rows: Tensor = look_up(table, 0, places.flatten())
    return rows.view(*places.shape, -1)


# A compiler looks into operations that it knows: it would look the rows up once more, number by
# number, in everything that reads them.
@torch.library.custom_op("prime_bench::index_select", mutates_args=())
def _opaque_index_select(table: Tensor, dim: int, index: Tensor) -> Tensor:
    return table.index_select(dim, index)


@_opaque_index_select.register_fake
def _(table: Tensor, dim: int, index: Tensor) -> Tensor:
    return table.index_select(dim, index)

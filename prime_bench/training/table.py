"""An embedding table in training: FuxiCTR's dense rule without a dense gradient.

The loss reads the rows z_i = W[r_i] of a batch, and backward gives dz_i. The gradient of row r of
the whole table is

    G_r = l2 W_r + S_r,    S_r = sum of dz_i over i with r_i = r    (0 for a row of padding)

so S is 0 but for the rows of the batch. Its share of the squared norm that is clipped needs no pass
over the table, because every S_r is a sum over the batch:

    |G|^2 = l2^2 |W|^2 + sum over i of dz_i . (2 l2 z_i + S_{r_i})

with |W|^2 from the update before. The update is one pass over W, S and Adam's m and v, of the
module `table_pass`.

Shapes: V rows of the table, k its width, B rows and C categorical fields of the batch, i < B C.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from prime_bench.backbones.embedding import PAD, FieldEmbedding, LookedUp
from prime_bench.training.table_pass import TablePass


class TrainedTable:
    """The table of an embedding that learns, with its state. Nothing here waits for the device."""

    def __init__(self, embedding: FieldEmbedding, *, l2: float, table_pass: TablePass) -> None:
        assert embedding.table is not None  # noqa: S101
        self.parameter = embedding.table
        self._embedding, self._l2, self._pass = embedding, l2, table_pass
        self._weight = self.parameter.detach()
        self._sums = torch.zeros_like(self._weight)  # S
        self._first, self._second = (torch.zeros_like(self._weight) for _ in "mv")
        self._squares: Tensor | None = None  # |W|^2, float64; None before it was first asked for
        self._rows: Tensor | None = None

    def look_up(self, ids: Tensor) -> None:
        """Hand the rows of `ids` (B, C) to the embedding's next forward pass on them."""
        places = (ids + self._embedding.offsets).flatten()
        rows = self._weight.index_select(0, places).view(*ids.shape, -1).requires_grad_()
        self._places, self._inside = places, ids.ne(PAD).unsqueeze(-1)
        self._rows, self._embedding.looked_up = rows, LookedUp(ids, rows)

    def collect(self) -> Tensor:
        """After backward: sum the gradient up by rows, and return |G|^2, a float64 scalar."""
        rows, self._rows, self._embedding.looked_up = self._rows, None, None
        assert rows is not None  # noqa: S101
        squares = self._l2**2 * self._sum_of_squares()
        if rows.grad is not None:
            gradient = (rows.grad * self._inside).flatten(0, 1)  # (B, C, k) -> (B C, k)
            self._add_rows(gradient)
            met = torch.add(
                self._sums.index_select(0, self._places),
                rows.detach().flatten(0, 1),
                alpha=2 * self._l2,
            )
            squares = squares + (gradient * met).sum(dtype=torch.float64)
        self._dense = self.parameter.grad is not None
        if self.parameter.grad is not None:
            # The backbone has looked other ids up as well. The hook of the embedding has seen to
            # the padding.
            dense, self.parameter.grad = self.parameter.grad, None
            met = dense + 2 * self._sums + 2 * self._l2 * self._weight
            squares = squares + (dense * met).sum(dtype=torch.float64)
            self._sums += dense
        return squares

    def _sum_of_squares(self) -> Tensor:
        if self._squares is None:
            self._squares = self._weight.double().square().sum()
        return self._squares

    def _add_rows(self, gradient: Tensor) -> None:
        if gradient.device.type == "cpu":
            self._sums.index_add_(0, self._places, gradient)
        else:
            # On accelerators index_add sums in no fixed order; this one sorts.
            self._sums = torch.ops.aten.embedding_dense_backward(
                gradient, self._places, len(self._sums), -1, False
            )

    def update(self, clip: Tensor, *, step: int, learning_rate: float) -> None:
        """The step number `step`, from 1, with the clip factor `clip`, a scalar."""
        self._squares = self._pass(
            self._weight,
            self._sums,
            self._first,
            self._second,
            l2=self._l2,
            clip=clip.to(self._weight.dtype),
            step=step,
            learning_rate=learning_rate,
        )
        if self._dense:
            self._sums.zero_()
        else:
            self._sums.index_fill_(0, self._places, 0.0)

    def state_dict(self) -> dict[str, Tensor]:
        """What the next step depends on beside W; no copies."""
        return {"first": self._first, "second": self._second, "squares": self._sum_of_squares()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """What `state_dict` gave, from any device."""
        device = self._weight.device
        self._first, self._second, self._squares = (
            state[name].to(device, copy=True) for name in ("first", "second", "squares")
        )

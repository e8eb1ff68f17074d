"""Adam for embedding tables: the update of FuxiCTR's dense Adam, without a dense gradient and in
one pass over memory a step.

The gradient of a table W is S + l2 W, where S is nonzero in the rows of the batch alone. Its norm,
which clipping needs, follows from |W|^2 of the step before and from the rows of the batch. The
update then reads W, S and Adam's moments m and v once: g = c (S + l2 W) with the clip factor c.

Nothing here is a Python number that changes from step to step, and all state keeps its memory, so
that a step can be a CUDA graph (`training.graph`).

Shapes: B rows of a batch, C categorical fields, V rows of a table, k embedding width.
"""

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor
from torch.optim.adam import adam

from prime_bench.backbones.embedding import PAD, FieldEmbedding, LookedUp
from prime_bench.training.device import compiled

BETAS = (0.9, 0.999)
EPSILON = 1e-8

TablePass = Callable[..., Tensor]
"""(W, S, m, v, *, l2, clip, count, learning_rate) -> |W|^2. `clip` is c and `count` the number of
the step from 1, float32 scalars on the device; the result is a float64 scalar on the device. W, m
and v (V, k) are contiguous and updated in place; S (V, k) may be columns of a wider matrix."""

# Numbers of a block: as many as a CPU's caches hold of g, W, S, m and v. An accelerator, on which
# few kernels are best, updates the whole table at once.
_CPU_BLOCK = 1 << 19


def fused_adam(
    weights: Sequence[Tensor],
    gradients: Sequence[Tensor],
    first: Sequence[Tensor],
    second: Sequence[Tensor],
    counts: Sequence[Tensor],
    *,
    learning_rate: float,
) -> None:
    """torch's fused Adam with the protocol's constants. `counts` are the steps that each weight has
    taken before, float32 scalars on the device, and are increased by 1.
    """
    adam(
        list(weights),
        list(gradients),
        list(first),
        list(second),
        [],
        list(counts),
        fused=True,
        lr=learning_rate,
        beta1=BETAS[0],
        beta2=BETAS[1],
        eps=EPSILON,
        weight_decay=0.0,
        amsgrad=False,
        maximize=False,
    )


def in_blocks(
    weight: Tensor,
    sums: Tensor,
    first: Tensor,
    second: Tensor,
    *,
    l2: float,
    clip: Tensor,
    count: Tensor,
    learning_rate: float,
) -> Tensor:
    """Update a table block by block, with torch's fused Adam."""
    squares = torch.zeros((), dtype=torch.float64, device=clip.device)
    whole = (weight, sums, first, second)
    blocks = (
        zip(*(torch.split(tensor.view(-1), _CPU_BLOCK) for tensor in whole), strict=True)
        if clip.device.type == "cpu"
        else [whole]
    )
    for w, s, m, v in blocks:
        g = torch.add(s, w, alpha=l2).mul_(clip)
        fused_adam([w], [g], [m], [v], [count - 1], learning_rate=learning_rate)
        squares += torch.dot(w.view(-1), w.view(-1))
    return squares


def compiled_pass(device: torch.device) -> TablePass:
    """The update of a table as one loop: on a CPU by torch.compile, on CUDA by Triton, without
    which torch.compile does not work there either.
    """
    if device.type == "cuda":
        from prime_bench.training.table_kernel import kernel_pass  # imports triton

        return kernel_pass
    formula: Callable[..., Tensor] = compiled(_formula)

    def one_pass(
        *tensors: Tensor, l2: float, clip: Tensor, count: Tensor, learning_rate: float
    ) -> Tensor:
        steps = count.double()
        # Tensors, because torch compiles a function again for each other number, and computed here,
        # because the loop would compute them again for each number of the table.
        scalars = (
            torch.full_like(clip, l2),
            (learning_rate / (1 - BETAS[0] ** steps)).to(clip.dtype),
            (1 - BETAS[1] ** steps).sqrt().to(clip.dtype),
        )
        squares: Tensor = formula(*(tensor.flatten() for tensor in tensors), clip, *scalars)
        return squares

    return one_pass


def _formula(
    weight: Tensor,
    sums: Tensor,
    first: Tensor,
    second: Tensor,
    clip: Tensor,
    l2: Tensor,
    rate: Tensor,
    root: Tensor,
) -> Tensor:
    gradient = clip * (sums + l2 * weight)
    # 1 - beta is computed in float64: 1 - float32(0.999) would be wrong by 1e-5 of its value.
    first.mul_(BETAS[0]).add_(gradient, alpha=1 - BETAS[0])
    second.mul_(BETAS[1]).add_(gradient * gradient, alpha=1 - BETAS[1])
    weight.sub_(rate * first / (second.sqrt() / root + EPSILON))
    return (weight.double() * weight.double()).sum()


class TrainedTable:
    """A trainable embedding table with the state of its Adam. No method waits for the device."""

    def __init__(self, embedding: FieldEmbedding, *, l2: float, table_pass: TablePass) -> None:
        assert embedding.table is not None  # noqa: S101
        self.parameter, self.offsets = embedding.table, embedding.offsets
        self.vocabulary_sizes = embedding.schema.shape.vocabulary_sizes
        self._embedding, self._l2, self._pass = embedding, l2, table_pass
        self.weight = self.parameter.detach()
        self._first, self._second = (torch.zeros_like(self.weight) for _ in "mv")
        self._squares = torch.zeros((), dtype=torch.float64, device=self.weight.device)  # |W|^2
        self._begun = False  # whether `_squares` is there
        self._rows: Tensor | None = None

    def begin(self) -> None:
        """Compute |W|^2 before the first step; call it before each one."""
        if not self._begun:
            self._squares.copy_(self.weight.double().square().sum())
            self._begun = True

    def look_up(self, ids: Tensor, places: Tensor) -> None:
        """Look up the rows of `ids` (B, C), which are the table's rows `places` (B C,), for the
        embedding's next forward pass.
        """
        self.parameter.grad = None  # a step that has failed half-way may have left one
        rows = self.weight.index_select(0, places).view(*ids.shape, -1).requires_grad_()
        self._rows, self._embedding.looked_up = rows, LookedUp(ids, rows)

    def take_rows(self) -> Tensor:
        """The rows that were looked up (B, C, k), with their gradient, after the backward pass."""
        rows, self._rows, self._embedding.looked_up = self._rows, None, None
        assert rows is not None  # noqa: S101
        return rows

    def square_norm(
        self, rows: Tensor, gradient: Tensor | None, *, places: Tensor, sums: Tensor
    ) -> Tensor:
        """|G|^2, a float64 scalar. `rows` (B C, k) are those at `places`, `gradient` (B C, k) is
        theirs, and `sums` (V, k) is their gradient summed up by rows.

        A gradient that the backward pass has left in the table itself is added to `sums`.
        """
        squares = self._l2**2 * self._squares
        if gradient is not None:
            met = torch.add(sums.index_select(0, places), rows, alpha=2 * self._l2)
            squares = squares + (gradient * met).sum(dtype=torch.float64)
        if self.parameter.grad is not None:
            # The backbone has looked up other ids as well. The embedding's hook has set the
            # gradient of PAD to 0.
            dense, self.parameter.grad = self.parameter.grad, None
            met = dense + 2 * sums + 2 * self._l2 * self.weight
            squares = squares + (dense * met).sum(dtype=torch.float64)
            sums += dense
        return squares

    def update(self, sums: Tensor, clip: Tensor, *, count: Tensor, learning_rate: float) -> None:
        """Do a step with the gradient's sums by rows, (V, k); the other arguments are those of a
        `TablePass`.
        """
        squares = self._pass(
            self.weight,
            sums,
            self._first,
            self._second,
            l2=self._l2,
            clip=clip.to(self.weight.dtype),
            count=count,
            learning_rate=learning_rate,
        )
        self._squares.copy_(squares)

    def state_dict(self) -> dict[str, Tensor]:
        """Everything that the next step depends on beside W: m and v, (V, k) each, and |W|^2.

        Tensors are not copied.
        """
        self.begin()
        return {"first": self._first, "second": self._second, "squares": self._squares}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Continue from `state`, whose tensors may be on another device."""
        for name, own in self.state_dict().items():
            own.copy_(state[name])


class TrainedTables:
    """The trainable tables of a model that have the same fields, and so look up the same rows."""

    def __init__(self, tables: Sequence[TrainedTable]) -> None:
        self.tables = tables
        on_cpu = tables[0].weight.device.type == "cpu"
        # S of each table on a CPU, zero between two steps; an accelerator makes another each step.
        self._zeros = [torch.zeros_like(table.weight) for table in tables] if on_cpu else None

    @classmethod
    def grouped(cls, tables: Sequence[TrainedTable]) -> "list[TrainedTables]":
        """One for each different list of fields, in practice one."""
        groups: dict[tuple[int, ...], list[TrainedTable]] = {}
        for table in tables:
            groups.setdefault(table.vocabulary_sizes, []).append(table)
        return [cls(group) for group in groups.values()]

    def look_up(self, ids: Tensor) -> None:
        """Look up the rows of `ids` (B, C) in all tables."""
        self._places = (ids + self.tables[0].offsets).flatten()
        self._inside = ids.ne(PAD).unsqueeze(-1)
        for table in self.tables:
            table.begin()
            table.look_up(ids, self._places)

    def collect(self) -> list[Tensor]:
        """Sum up the gradients by rows, after the backward pass.

        Returns |G|^2 of each table, float64 scalars.
        """
        looked_up = [table.take_rows() for table in self.tables]
        gradients = [
            None if rows.grad is None else (rows.grad * self._inside).flatten(0, 1)
            for rows in looked_up
        ]  # (B, C, k) -> (B C, k)
        self._sums = self._summed(gradients)
        self._dense = [table.parameter.grad is not None for table in self.tables]
        return [
            table.square_norm(rows.detach().flatten(0, 1), gradient, places=self._places, sums=sums)
            for table, rows, gradient, sums in zip(
                self.tables, looked_up, gradients, self._sums, strict=True
            )
        ]

    def update(self, clip: Tensor, *, count: Tensor, learning_rate: float) -> None:
        """Do a step of each table; the arguments are those of a `TablePass`."""
        for table, sums in zip(self.tables, self._sums, strict=True):
            table.update(sums, clip, count=count, learning_rate=learning_rate)
        for zeros, dense in zip(self._zeros or (), self._dense, strict=False):
            if dense:
                zeros.zero_()
            else:
                zeros.index_fill_(0, self._places, 0.0)

    def _summed(self, gradients: Sequence[Tensor | None]) -> list[Tensor]:
        """The gradients (B C, k) summed up by rows: (V, k) of each table."""
        if self._zeros is not None:
            for zeros, gradient in zip(self._zeros, gradients, strict=True):
                if gradient is not None:
                    zeros.index_add_(0, self._places, gradient)
            return self._zeros
        # On accelerators index_add sums in no fixed order. This function sorts the places first,
        # and does it once for all tables if they are columns of one.
        columns = [
            table.weight.new_zeros(len(self._places), table.weight.shape[1])
            if gradient is None
            else gradient
            for table, gradient in zip(self.tables, gradients, strict=True)
        ]
        n_rows = len(self.tables[0].weight)
        summed = torch.ops.aten.embedding_dense_backward(
            torch.cat(columns, dim=1), self._places, n_rows, -1, False
        )
        return list(summed.split([table.weight.shape[1] for table in self.tables], dim=1))

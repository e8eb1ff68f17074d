"""Adam for embedding tables: the update of FuxiCTR's dense Adam, without a dense gradient and in
one pass over memory a step.

The gradient of a table W is S + l2 W, where S is nonzero in the rows of the batch alone. Its norm,
which clipping needs, follows from |W|^2 of the step before and from the rows of the batch. The
update then reads W, S and Adam's moments m and v once: g = c (S + l2 W) with the clip factor c.

Shapes: B rows of a batch, C categorical fields, k embedding width.
"""

import math
from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from torch.optim.adam import adam

from prime_bench.backbones.embedding import PAD, FieldEmbedding, LookedUp
from prime_bench.training.device import compiled

BETAS = (0.9, 0.999)
EPSILON = 1e-8


def corrections(steps: int, *, learning_rate: float) -> tuple[float, float]:
    """Bias corrections of step t = `steps`, from 1: the learning rate over 1 - beta_1^t, and
    sqrt(1 - beta_2^t).
    """
    first, second = BETAS
    return learning_rate / (1 - first**steps), math.sqrt(1 - second**steps)


TablePass = Callable[..., Tensor]
"""(W, S, m, v, *, l2, clip, step, learning_rate) -> |W|^2. `clip` is c, a scalar on the device;
`step` counts from 1; the result is a float64 scalar on the device."""

# Numbers of a block: as many as a CPU's caches hold of g, W, S, m and v. An accelerator, on which
# few kernels are best, updates the whole table at once.
_CPU_BLOCK = 1 << 19


def in_blocks(
    weight: Tensor,
    sums: Tensor,
    first: Tensor,
    second: Tensor,
    *,
    l2: float,
    clip: Tensor,
    step: int,
    learning_rate: float,
) -> Tensor:
    """Update a table block by block, with torch's fused Adam."""
    squares = torch.zeros((), dtype=torch.float64, device=clip.device)
    size = _CPU_BLOCK if clip.device.type == "cpu" else weight.numel()
    parts = (torch.split(tensor.view(-1), size) for tensor in (weight, sums, first, second))
    for w, s, m, v in zip(*parts, strict=True):
        g = torch.add(s, w, alpha=l2).mul_(clip)
        before = torch.full((), step - 1, dtype=torch.float32, device=clip.device)
        adam(
            [w],
            [g],
            [m],
            [v],
            [],
            [before],
            fused=True,
            lr=learning_rate,
            beta1=BETAS[0],
            beta2=BETAS[1],
            eps=EPSILON,
            weight_decay=0.0,
            amsgrad=False,
            maximize=False,
        )
        squares += torch.dot(w, w)
    return squares


def compiled_pass(device: torch.device) -> TablePass:
    """The update of a table as one compiled loop."""
    formula: Callable[..., Tensor] = compiled(_formula, device=device)

    def one_pass(
        *tensors: Tensor, l2: float, clip: Tensor, step: int, learning_rate: float
    ) -> Tensor:
        # As tensors, because torch compiles a function again for each other number.
        scalars = (
            torch.full_like(clip, value)
            for value in (l2, *corrections(step, learning_rate=learning_rate))
        )
        squares: Tensor = formula(*(tensor.view(-1) for tensor in tensors), clip, *scalars)
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
        self.parameter = embedding.table
        self._embedding, self._l2, self._pass = embedding, l2, table_pass
        self._weight = self.parameter.detach()
        self._sums = torch.zeros_like(self._weight)  # S
        self._first, self._second = (torch.zeros_like(self._weight) for _ in "mv")
        self._squares: Tensor | None = None  # |W|^2, float64; None before the first step
        self._rows: Tensor | None = None

    def look_up(self, ids: Tensor) -> None:
        """Look up the rows of `ids` (B, C) for the embedding's next forward pass."""
        places = (ids + self._embedding.offsets).flatten()
        rows = self._weight.index_select(0, places).view(*ids.shape, -1).requires_grad_()
        self._places, self._inside = places, ids.ne(PAD).unsqueeze(-1)
        self._rows, self._embedding.looked_up = rows, LookedUp(ids, rows)

    def collect(self) -> Tensor:
        """Sum up the gradient by rows, after the backward pass. Returns |G|^2, a float64 scalar."""
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
            # The backbone has looked up other ids as well. The embedding's hook has set the
            # gradient of PAD to 0.
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
            # On accelerators index_add sums in no fixed order; this function sorts first.
            self._sums = torch.ops.aten.embedding_dense_backward(
                gradient, self._places, len(self._sums), -1, False
            )

    def update(self, clip: Tensor, *, step: int, learning_rate: float) -> None:
        """Do step number `step`, from 1, with the clip factor `clip`, a scalar on the device."""
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
        """Everything that the next step depends on beside W. Tensors are not copied."""
        return {"first": self._first, "second": self._second, "squares": self._sum_of_squares()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Continue from `state`, whose tensors may be on another device."""
        device = self._weight.device
        self._first, self._second, self._squares = (
            state[name].to(device, copy=True) for name in ("first", "second", "squares")
        )

"""Count the parameters and multiply-accumulates (MACs) of a model while torch runs it.

The formulas in `settings` must give the same counts. A MAC is one product inside a matrix product,
or a product with a weight whose results are summed (PRIME's u, Eq. 24). Element-wise operations are
not counted, nor operations whose work does not depend on the number of rows (APG's products of
weights).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

_FEW_ROWS, _MORE_ROWS = 3, 7  # more than one, since torch may use another kernel for a single row


@dataclass(frozen=True, kw_only=True)
class Counts:
    """The parameters of a model, and the MACs of its forward pass."""

    parameters: int
    """Number of trainable parameters."""
    macs: int
    """Multiply-accumulates for each row."""


def count(model: nn.Module, batch: Callable[[int], tuple[Tensor, ...]]) -> Counts:
    """Count the parameters and MACs of `model` in evaluation mode.

    `batch(n)` returns the inputs of n rows. The model is run on batches of two sizes; their
    difference gives the MACs of a row.
    """
    was_training = model.training
    model.eval()
    products = []
    with torch.no_grad():
        for n_rows in (_FEW_ROWS, _MORE_ROWS):
            inputs = batch(n_rows)
            with _Products(model) as seen:
                model(*inputs)
            products.append(seen.total)
    model.train(was_training)
    return Counts(
        parameters=sum(p.numel() for p in model.parameters() if p.requires_grad),
        macs=(products[1] - products[0]) // (_MORE_ROWS - _FEW_ROWS),
    )


class _Products(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sums up the MACs of all operations inside the context."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.total = 0
        self._weights = {parameter.data_ptr() for parameter in model.parameters()}
        self._weighted: list[Tensor] = []  # kept alive, so that no other tensor gets the address

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, object] | None = None,
    ) -> Any:
        """Called by torch for every operation."""
        out = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        if name in ("mm", "bmm", "mv", "dot"):
            self.total += out.numel() * args[0].shape[-1]
        elif name in ("addmm", "baddbmm", "addmv"):
            self.total += out.numel() * args[1].shape[-1]
        elif name == "mul" and any(self._is_weight(factor) for factor in args):
            self._weighted.append(out)
        elif name == "sum" and any(args[0] is weighted for weighted in self._weighted):
            self.total += args[0].numel()
        return out

    def _is_weight(self, factor: Any) -> bool:
        return isinstance(factor, Tensor) and factor.data_ptr() in self._weights

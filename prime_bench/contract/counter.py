"""Parameters and multiply-accumulates of a model as torch runs it: what the formulas of `settings`
must agree with.

A multiply-accumulate is one product inside a matrix product, or one product with a weight whose
results are summed over (PRIME's u, Eq. 24). Element-wise work is not counted, nor what is done once
a batch, whatever its size (APG's products of weights).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

_FEW_ROWS, _MORE_ROWS = 3, 7  # more than one: a row alone may take another kernel


@dataclass(frozen=True, kw_only=True)
class Counts:
    """What a model has and what a row of its forward pass costs."""

    parameters: int
    """Trainable ones."""
    macs: int


def count(model: nn.Module, batch: Callable[[int], tuple[Tensor, ...]]) -> Counts:
    """Count `model` in evaluation mode on batches of two sizes; `batch(n)` has the inputs of n
    rows.
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
    """Sums up the multiply-accumulates of all operations inside."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.total = 0
        self._weights = {parameter.data_ptr() for parameter in model.parameters()}
        self._weighed: list[Tensor] = []  # kept, so that no other tensor gets its address

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Called by torch for every operation."""
        out = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        if name in ("mm", "bmm", "mv", "dot"):
            self.total += out.numel() * args[0].shape[-1]
        elif name in ("addmm", "baddbmm", "addmv"):
            self.total += out.numel() * args[1].shape[-1]
        elif name == "mul" and any(self._is_weight(factor) for factor in args):
            self._weighed.append(out)
        elif name == "sum" and any(args[0] is weighed for weighed in self._weighed):
            self.total += args[0].numel()
        return out

    def _is_weight(self, factor: Any) -> bool:
        return isinstance(factor, Tensor) and factor.data_ptr() in self._weights

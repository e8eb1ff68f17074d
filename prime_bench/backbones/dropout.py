"""Dropout whose mask is a product of two short random vectors.

    y_bj = x_bj / (1 - p) where u_b v_j mod 2^32 >= p 2^32, else 0

u (B,) and v (n,) are odd 32-bit words from torch's global generator of the device. A product of odd
words with one that is uniform is uniform over the odd words, so that any two masks of a batch are
independent, and any three: only the four corners of a rectangle are not, whose fourth product
follows from the other three modulo 2^32. Those of a row, or of a column, are independent all
together.

torch's own dropout draws a word for each number, which on a CPU takes longer than the product of
the layer before it; here it is B + n words, and what is left a compiler fuses with its neighbours.

Shapes: B rows, n numbers of a row.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn

_WORDS = 1 << 32


class DroppedReLU(nn.Dropout):
    """Dropout of ReLU, (B, ...) -> (B, ...).

    Behind a ReLU the result says what backward needs: it is above 0 where x is and where it was
    kept. So no mask is stored, and the next layer has the result anyway.
    """

    def forward(self, x: Tensor) -> Tensor:
        """ReLU alone where p is 0 or not in training."""
        if not self.training or self.p == 0:
            return torch.relu(x)
        apply: Any = _DroppedReLU.apply  # torch gives the method no types
        y: Tensor = apply(x, self.p)
        return y


def dropout(x: Tensor, p: float, *, training: bool) -> Tensor:
    """Each number of x (B, ...) is 0 with probability p, and over 1 - p otherwise; x itself where p
    is 0 or not in training.
    """
    return x * _factors(x, p) if training and p > 0 else x


class _DroppedReLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, p: float) -> Tensor:
        y = torch.relu(x).mul_(_factors(x, p))
        ctx.p = p
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (y,) = ctx.saved_tensors
        passed = torch.ops.aten.threshold_backward(gradient, y, 0)
        return passed * (1 / (1 - ctx.p)), None


def _factors(x: Tensor, p: float) -> Tensor:
    """0 or 1 / (1 - p) for each number of x (B, ...)."""
    n_rows, width = len(x), math.prod(x.shape[1:])
    words = torch.randint(
        -_WORDS // 2, _WORDS // 2, (n_rows + width,), dtype=torch.int32, device=x.device
    ).bitwise_or(1)
    products = words[:n_rows].unsqueeze(1) * words[n_rows:]  # (B, 1), (n,) -> (B, n), wraps
    kept = products >= round(p * _WORDS) - _WORDS // 2
    return kept.to(x.dtype).mul(1 / (1 - p)).view_as(x)

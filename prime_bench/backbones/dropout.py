"""Dropout whose mask is a product of two short random vectors.

    y_bj = x_bj / (1 - p) where u_b v_j mod 2^32 >= p 2^32, else 0

u (B,) and v (n,) are random odd 32-bit words from torch's global generator of the device. The
product of a uniform odd word with another odd word is uniform over the odd words, so any two and
any three elements of the mask are independent, and so are all elements of a row or of a column.
Only the four corners of a rectangle are dependent: three products determine the fourth modulo 2^32.

torch's own dropout draws a word for each element, which on a CPU takes longer than the matrix
product of the preceding layer. Here B + n words are drawn, and a compiler fuses the rest with the
neighbouring operations.

Shapes: B rows, n elements of a row.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn

_WORDS = 1 << 32
# Numbers of a block on a CPU, whose products stay in its caches: a quarter of the time of a whole
# layer of 4096 x 400 at once. A compiler fuses the operations instead.
_CPU_BLOCK = 1 << 17


class DroppedReLU(nn.Dropout):
    """ReLU followed by dropout, (B, ...) -> (B, ...).

    Backward needs no mask: the output is positive exactly where x is positive and kept, and the
    next layer keeps the output anyway.
    """

    def forward(self, x: Tensor) -> Tensor:
        """ReLU and dropout of x; ReLU alone in evaluation mode or with p = 0."""
        if not self.training or self.p == 0:
            return torch.relu(x)
        apply: Any = _DroppedReLU.apply  # torch has no types for `apply`
        y: Tensor = apply(x, self.p)
        return y


def dropout(x: Tensor, p: float, *, training: bool) -> Tensor:
    """Set each element of x (B, ...) to 0 with probability p, and divide the others by 1 - p.

    Returns x itself if not `training` or if p is 0.
    """
    return x * _drop(x.new_ones(x.shape), p) if training and p > 0 else x


class _DroppedReLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, p: float) -> Tensor:
        y = _drop(torch.relu(x).contiguous(), p)
        ctx.p = p
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (y,) = ctx.saved_tensors
        return torch.ops.aten.threshold_backward(gradient, y, 0).mul_(1 / (1 - ctx.p)), None


def _drop(x: Tensor, p: float) -> Tensor:
    """Dropout in place of x (B, ...), which is contiguous. Returns x."""
    n_rows, width = len(x), math.prod(x.shape[1:])
    words = torch.randint(
        -_WORDS // 2, _WORDS // 2, (n_rows + width,), dtype=torch.int32, device=x.device
    ).bitwise_or(1)
    least = round(p * _WORDS) - _WORDS // 2
    whole = x.device.type != "cpu" or torch.compiler.is_compiling()
    block = n_rows if whole else max(1, _CPU_BLOCK // max(1, width))
    flat, u, v = x.view(n_rows, width), words[:n_rows].unsqueeze(1), words[n_rows:]
    for part, of_rows in zip(torch.split(flat, block), torch.split(u, block), strict=True):
        kept = (of_rows * v).ge_(least)  # (b, 1), (n,) -> (b, n), wraps; 0 or 1
        part.mul_(kept).mul_(1 / (1 - p))
    return x

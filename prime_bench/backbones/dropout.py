"""Dropout whose mask is a hash of two short random vectors.

    y_bj = x_bj / (1 - p) where hash(u_b xor v_j) >= p 2^32, else 0

u (B,) and v (n,) are 32-bit words from torch's global generator of the device; the hash is
murmur3's finalizer, in which every bit of the input moves every bit of the result with probability
1/2. torch's own dropout draws a word an element, which on a CPU takes several times as long as the
product of the layer before it; this draws B + n words, and a compiler can fuse the rest with what
is around it.

Shapes: B rows, n numbers of a row.
"""

import math

import torch
from torch import Tensor, nn

_WORDS = 1 << 32
_FIRST, _SECOND = 0x85EBCA6B - _WORDS, 0xC2B2AE35 - _WORDS  # murmur3's factors, as int32


class Dropout(nn.Dropout):
    """`dropout` as a layer."""

    def forward(self, x: Tensor) -> Tensor:
        """(B, ...) -> (B, ...)."""
        return dropout(x, self.p, training=self.training)


def dropout(x: Tensor, p: float, *, training: bool) -> Tensor:
    """Each number of x (B, ...) is 0 with probability p, independently, and over 1 - p otherwise;
    x itself where p is 0 or not in training.
    """
    if not training or p == 0:
        return x
    kept = _kept(len(x), math.prod(x.shape[1:]), p, device=x.device).view_as(x)
    return x * (kept.to(x.dtype) * (1 / (1 - p)))


def _kept(n_rows: int, width: int, p: float, *, device: torch.device) -> Tensor:
    """Which of (B, n) numbers stay, bool."""
    words = torch.randint(
        -_WORDS // 2, _WORDS // 2, (n_rows + width,), dtype=torch.int32, device=device
    )
    mixed = words[:n_rows].unsqueeze(1) ^ words[n_rows:]  # (B, 1), (n,) -> (B, n)
    # int32 wraps and shifts its sign in: the masks make it the logical shift that is meant. A last
    # shift of the finalizer is left out, it changes the low half alone.
    mixed = (mixed ^ (mixed >> 16 & 0xFFFF)) * _FIRST
    mixed = (mixed ^ (mixed >> 13 & 0x7FFFF)) * _SECOND
    return mixed >= round(p * _WORDS) - _WORDS // 2

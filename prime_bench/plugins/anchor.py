"""The Dense anchor: p = alpha p_d + (1 - alpha) p_s (Eq. 17), written so that p is p_d bit by bit
where p_s is.
"""

import math

import torch
from torch import Tensor


def anchored(dense_probability: Tensor, correction: Tensor, dense_weight: float) -> Tensor:
    """p_d + (1 - alpha) (p_s - p_d) in [0, 1]; p_d and correction = p_s - p_d are (B,).

    A correction that is exactly 0 gives p_d itself. Rounding alone can leave [0, 1], by a unit in
    the last place; the cross entropy refuses such a number.
    """
    return torch.add(dense_probability, correction, alpha=1 - dense_weight).clamp(0, 1)


def log_weight(weight: float) -> float:
    """log(weight), and minus infinity for a part of the mixture that is switched off."""
    return math.log(weight) if weight > 0 else -math.inf

"""Adam's constants and what they make of the number of steps.

    m <- beta_1 m + (1 - beta_1) g,    v <- beta_2 v + (1 - beta_2) g^2
    W <- W - rate m / (sqrt(v) / root + eps)
    rate = lr / (1 - beta_1^t),    root = sqrt(1 - beta_2^t)

Kingma and Ba, Adam: A Method for Stochastic Optimization, ICLR 2015, with torch's defaults, as
FuxiCTR uses them.
"""

import math

BETAS = (0.9, 0.999)
EPSILON = 1e-8


def corrections(steps: int, *, learning_rate: float) -> tuple[float, float]:
    """`rate` and `root` of step t = `steps`, counted from 1."""
    first, second = BETAS
    return learning_rate / (1 - first**steps), math.sqrt(1 - second**steps)

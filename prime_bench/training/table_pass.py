"""One step of Adam on a whole table, in one pass over memory: in blocks that a cache holds, with
torch's own kernels, or in one loop that a compiler makes.

    g = c (l2 W + S),    Adam with g,    and |W|^2 of the new W

Both change W, m and v in place; these and S have one shape and are contiguous.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.optim.adam import adam

from prime_bench.training.adam import BETAS, EPSILON, corrections
from prime_bench.training.compiling import compiled

TablePass = Callable[..., Tensor]
"""(W, S, m, v, *, l2, clip, step, learning_rate) -> |W|^2: `clip` is c, a scalar on the device,
`step` counts from 1, the result a float64 scalar on the device."""

# Numbers of a block: what a CPU's caches hold of g, W, S, m and v. An accelerator, whose kernels
# should be few, takes the table at once.
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
    """Block by block, with torch's fused Adam."""
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
    """The pass as one loop over each table, made by a compiler."""
    formula: Callable[..., Tensor] = compiled(_formula, device=device)

    def one_pass(
        *tensors: Tensor, l2: float, clip: Tensor, step: int, learning_rate: float
    ) -> Tensor:
        # Tensors, not numbers: a compiled function is made anew for each number.
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
    # 1 - beta is a Python number, rounded once: 1 - float32(0.999) is off by 1e-5 of itself.
    first.mul_(BETAS[0]).add_(gradient, alpha=1 - BETAS[0])
    second.mul_(BETAS[1]).add_(gradient * gradient, alpha=1 - BETAS[1])
    weight.sub_(rate * first / (second.sqrt() / root + EPSILON))
    return (weight.double() * weight.double()).sum()

"""The update of an embedding table as one Triton kernel. It imports triton, which CUDA builds of
torch bring along: import this module only where that is installed.

Each operation of the formula is rounded on its own (no fused multiply-add, IEEE division and square
root), so that Triton's interpreter on the CPU and an NVIDIA GPU give W, m and v the same bits.
|W|^2 is summed up in float64, by a number of programs and in an order that the size of the table
alone decides; nothing is tuned by measuring. Two processes on one GPU therefore give the same bits.

The kernel moves 28 bytes for each number of the table: it reads W, S, m and v and writes W, m and
v. A row of S that does not fill the 32-byte sectors it lies in costs the whole sectors.

Shapes: V rows of a table, k embedding width.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from prime_bench.training.embedding_adam import BETAS, EPSILON

# Numbers that a program takes at a time: 8 a thread, two vectors of 16 bytes.
_BLOCK = 1024
_WARPS = 4
# Upper bound of the programs, each of which computes the bias corrections and leaves a part of
# |W|^2. Of 72 registers a thread (sm_90, ptxas -v), 7 fit on each of an H100's 132 multiprocessors.
_PROGRAMS = 2048


def kernel_pass(
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
    """Do a `TablePass` without waiting for the device; a CUDA graph can capture it.

    `sums` (V, k) may be some columns of a wider matrix. Call it once before a capture: the first
    call for a width and a layout compiles the kernel.
    """
    tensors = (weight, sums, first, second)
    assert all(tensor.dtype == torch.float32 for tensor in (*tensors, clip, count))  # noqa: S101
    assert all(tensor.shape == weight.shape for tensor in tensors)  # noqa: S101
    assert all(t.is_contiguous() for t in (weight, first, second, sums[:1]))  # noqa: S101
    n_blocks = triton.cdiv(weight.numel(), _BLOCK)
    partials = torch.empty(min(n_blocks, _PROGRAMS), dtype=torch.float64, device=weight.device)
    device_of: Any = torch.cuda.device_of  # torch gives it no types
    with device_of(weight):  # Triton launches on the current device
        _update[(len(partials),)](
            *tensors,
            clip,
            count,
            partials,
            weight.numel(),
            n_blocks,
            sums.stride(0),
            l2,
            learning_rate,
            width=weight.shape[1],
            packed=sums.is_contiguous(),
            beta1=BETAS[0],
            beta2=BETAS[1],
            # Computed in float64: 1 - float32(0.999) would be wrong by 1e-5 of its value.
            rest1=1 - BETAS[0],
            rest2=1 - BETAS[1],
            epsilon=EPSILON,
            block=_BLOCK,
            num_warps=_WARPS,
            enable_fp_fusion=False,
        )
    return partials.sum()


@triton.jit
def _update(
    weight,
    sums,
    first,
    second,
    clip,
    count,
    partials,
    size,
    n_blocks,
    row_stride,
    l2,
    learning_rate: tl.float64,  # without this, Triton passes a float as float32
    width: tl.constexpr,
    packed: tl.constexpr,
    beta1: tl.constexpr,
    beta2: tl.constexpr,
    rest1: tl.constexpr,
    rest2: tl.constexpr,
    epsilon: tl.constexpr,
    block: tl.constexpr,
):
    c = tl.load(clip)
    steps = tl.load(count).to(tl.int32)
    rate = (learning_rate / (1.0 - _power(beta1, steps))).to(tl.float32)
    root = tl.sqrt(1.0 - _power(beta2, steps)).to(tl.float32)
    program = tl.program_id(0)
    lanes = tl.arange(0, block)
    squares = tl.zeros([block], tl.float64)
    for number in range(program, n_blocks, tl.num_programs(0)):
        start = tl.cast(number, tl.int64) * block
        places = start + lanes
        sources = places
        if not packed:
            column = (start % width).to(tl.int32) + lanes
            sources = (start // width + column // width) * row_stride + column % width
        # Without a mask, because a mask that may begin anywhere prevents loads of 16 bytes.
        if start + block <= size:
            w = tl.load(weight + places)
            s = tl.load(sums + sources)
            m = tl.load(first + places)
            v = tl.load(second + places)
        else:
            w = tl.load(weight + places, mask=places < size, other=0.0)
            s = tl.load(sums + sources, mask=places < size, other=0.0)
            m = tl.load(first + places, mask=places < size, other=0.0)
            v = tl.load(second + places, mask=places < size, other=0.0)
        g = c * (s + l2 * w)
        m = beta1 * m + rest1 * g
        v = beta2 * v + rest2 * (g * g)
        w -= tl.div_rn(rate * m, tl.div_rn(tl.sqrt_rn(v), root) + epsilon)
        if start + block <= size:
            tl.store(weight + places, w)
            tl.store(first + places, m)
            tl.store(second + places, v)
        else:
            tl.store(weight + places, w, mask=places < size)
            tl.store(first + places, m, mask=places < size)
            tl.store(second + places, v, mask=places < size)
        squares += w.to(tl.float64) * w.to(tl.float64)
    tl.store(partials + program, tl.sum(squares))


@triton.jit
def _power(base: tl.constexpr, exponent):
    """`base` to a whole number, in float64, by repeated squaring."""
    power = tl.full((), 1.0, tl.float64)
    square = tl.full((), base, tl.float64)
    while exponent > 0:
        power = tl.where(exponent % 2 == 1, power * square, power)
        square *= square
        exponent //= 2
    return power

"""The Triton kernel of a table's update, in Triton's interpreter on the CPU, and what it compiles
to. triton is no dependency of the CPU build of torch: `pip install triton==3.7.1` for torch 2.13.
"""

import math
import os
import re
import subprocess
import sys
from importlib.metadata import version
from itertools import pairwise

import numpy as np
import pytest
import torch

pytest.importorskip("triton", reason="triton is not installed; CUDA builds of torch bring it")

L2, BLOCK = 0.01, 1024
# (V, k), columns of the matrix that S is part of, first column of S, programs at most
LAYOUTS = {
    "one number": ((1, 1), 1, 0, 2048),
    "less than a block": ((103, 9), 9, 0, 2048),
    "whole blocks": ((128, 16), 16, 0, 2048),
    "a block and a rest": ((103, 10), 10, 0, 2048),
    "columns of a wider S": ((103, 10), 11, 1, 2048),
    "one column of a wider S": ((1500, 1), 11, 0, 2048),
    "several blocks a program": ((900, 7), 9, 1, 3),
}
# t, clip factor, L2, learning rate
STEPS = {
    "first step": [(1, 1.0, L2, 1e-3)],
    "no L2": [(1, 1.0, 0.0, 1e-3), (2, 1.0, 0.0, 1e-3)],
    "clipped": [(1, 0.37, L2, 1e-3), (2, 1.0, L2, 1e-3), (3, 0.02, L2, 1e-3)],
    "another learning rate": [(1, 1.0, L2, 1e-3), (2, 1.0, L2, 1e-4), (3, 0.5, L2, 1e-4)],
    "late": [(60_001, 1.0, L2, 1e-4), (60_002, 0.9, L2, 1e-4)],
    "last count of float32": [(2**24, 1.0, L2, 1e-3)],
}
CASES = [(layout, steps) for layout in LAYOUTS for steps in STEPS]

# TRITON_INTERPRET counts when triton is imported, so that the kernel runs in another process.
IN_THE_INTERPRETER = """
import sys, torch
from prime_bench.training import table_kernel
done = []
for case in torch.load(sys.argv[1]):
    W, m, v = case["state"]
    table_kernel._PROGRAMS = case["programs"]
    for wide, (t, clip, l2, rate) in zip(case["wide"], case["steps"], strict=True):
        S = wide[:, case["column"] : case["column"] + W.shape[1]]
        squares = table_kernel.kernel_pass(
            W, S, m, v, l2=l2, clip=torch.tensor(clip), count=torch.tensor(float(t)),
            learning_rate=rate,
        )
    done.append((W, m, v, squares))
torch.save(done, sys.argv[2])
"""

# A driver for a device that is not there: the kernel is compiled for the arguments of the call, and
# not launched.
COMPILED = """
import sys, torch, triton
from triton.backends.compiler import GPUTarget
from prime_bench.training import table_kernel

class Driver:
    def get_current_device(self): return 0
    def get_current_stream(self, device): return 0
    def get_current_target(self): return GPUTarget("cuda", int(sys.argv[1]), 32)

class Kernel:
    def __getitem__(self, grid):
        return lambda *args, **options: print(update.warmup(*args, grid=grid, **options).asm["ptx"])

triton.runtime.driver.set_active(Driver())
update, table_kernel._update = table_kernel._update, Kernel()
W, S, m, v = (torch.zeros(1_540, 10) for _ in range(4))
clip = count = torch.ones(())
table_kernel.kernel_pass(W, S, m, v, l2=0.0, clip=clip, count=count, learning_rate=1e-3)
"""


def run(code, *arguments, **variables):
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def make_case(layout, steps):
    (rows, width), columns, column, programs = LAYOUTS[layout]
    random = torch.Generator().manual_seed(len(layout) + len(steps))

    def normal(*shape, scale):
        return scale * torch.randn(shape, generator=random)

    wide = [normal(rows, columns, scale=1e-3) for _ in STEPS[steps]]
    for gradient in wide:  # most rows of a table are not in the batch
        gradient[torch.rand(rows, generator=random) < 0.7] = 0
    state = [normal(rows, width, scale=1e-2), torch.zeros(rows, width), torch.zeros(rows, width)]
    if STEPS[steps][0][0] > 1:
        state[1:] = [normal(rows, width, scale=1e-4), normal(rows, width, scale=1e-3) ** 2]
    return {
        "state": state,
        "wide": wide,
        "column": column,
        "programs": programs,
        "steps": STEPS[steps],
    }


@pytest.fixture(scope="module")
def updated(tmp_path_factory):
    """For each case its input, and (W, m, v, |W|^2) after the steps."""
    folder = tmp_path_factory.mktemp("kernel")
    cases = [make_case(*case) for case in CASES]
    torch.save(cases, folder / "in.pt")
    run(IN_THE_INTERPRETER, folder / "in.pt", folder / "out.pt", TRITON_INTERPRET="1")
    return dict(zip(CASES, zip(cases, torch.load(folder / "out.pt"), strict=True), strict=True))


def oracle(case, dtype):
    """W, m and v after the steps in NumPy, with each operation rounded to `dtype`."""
    w, m, v = (tensor.numpy().astype(dtype) for tensor in case["state"])
    for wide, (t, clip, l2, rate) in zip(case["wide"], case["steps"], strict=True):
        s = wide.numpy()[:, case["column"] : case["column"] + w.shape[1]].astype(dtype)
        g = dtype(np.float32(clip)) * (s + dtype(l2) * w)
        m = dtype(0.9) * m + dtype(1 - 0.9) * g
        v = dtype(0.999) * v + dtype(1 - 0.999) * (g * g)
        denominator = np.sqrt(v) / dtype(math.sqrt(1 - 0.999**t)) + dtype(1e-8)
        w = w - dtype(rate / (1 - 0.9**t)) * m / denominator
    return w, m, v


@pytest.mark.parametrize(("layout", "steps"), CASES)
def test_every_operation_is_rounded_once_to_float32(updated, layout, steps):
    case, (*found, _) = updated[layout, steps]
    for one, other in zip(found, oracle(case, np.float32), strict=True):
        np.testing.assert_array_equal(one.numpy(), other, strict=True)


@pytest.mark.parametrize(("layout", "steps"), CASES)
def test_float64(updated, layout, steps):
    case, (*found, _) = updated[layout, steps]
    rate = max(step[3] for step in case["steps"])
    # An error of g, relative to the terms whose difference it is, counts as much in m and v. In W
    # it counts more where g is not above EPSILON: there Adam's step is steep in g.
    for one, other, scale in zip(found, oracle(case, np.float64), (rate, 1e-4, 1e-7), strict=True):
        np.testing.assert_allclose(one.numpy(), other, rtol=3e-7, atol=1e-4 * scale)


@pytest.mark.parametrize(("layout", "steps"), CASES)
def test_torchs_adam_has_the_same_rule(updated, layout, steps):
    case, (weight, *_) = updated[layout, steps]
    parameter = torch.nn.Parameter(case["state"][0].clone())
    adam = torch.optim.Adam([parameter], eps=1e-8, fused=True)
    adam.state[parameter] = {
        "step": torch.tensor(case["steps"][0][0] - 1.0),
        "exp_avg": case["state"][1].clone(),
        "exp_avg_sq": case["state"][2].clone(),
    }
    for wide, (_, clip, l2, rate) in zip(case["wide"], case["steps"], strict=True):
        sums = wide[:, case["column"] :][:, : weight.shape[1]]
        parameter.grad = torch.tensor(clip) * (sums + l2 * parameter.detach())
        adam.param_groups[0]["lr"] = rate
        adam.step()
    torch.testing.assert_close(weight, parameter.detach(), rtol=3e-7, atol=1e-4 * rate)


@pytest.mark.parametrize(("layout", "steps"), CASES)
def test_sum_of_squares(updated, layout, steps):
    _, (weight, *_, squares) = updated[layout, steps]
    assert squares.dtype == torch.float64
    assert squares.shape == ()
    assert squares.item() == pytest.approx(weight.double().square().sum().item(), rel=1e-13)


def test_the_cases_reach_what_they_name():
    sizes = {name: math.prod(shape) for name, (shape, *_) in LAYOUTS.items()}
    assert sizes["less than a block"] < BLOCK
    assert sizes["whole blocks"] % BLOCK == 0
    assert sizes["several blocks a program"] > 2 * BLOCK * LAYOUTS["several blocks a program"][3]
    rates = [rate for *_, rate in STEPS["another learning rate"]]
    assert any(one != other for one, other in pairwise(rates))


@pytest.mark.parametrize("architecture", [80, 90])
def test_compiled_code_rounds_like_the_interpreter(architecture, tmp_path):
    """IEEE rounding, no fused multiply-add, a learning rate in float64, loads of 16 bytes."""
    ptx = run(COMPILED, architecture, TRITON_CACHE_DIR=str(tmp_path), TRITON_INTERPRET="0")
    inexact = [name for name in ("fma.", ".approx", ".full") if name in ptx]
    assert inexact == []
    # Triton before 3.6 takes numbers below 1.2e-38 for zeros, as the CPU does (fidelity 44).
    old = [int(part) for part in version("triton").split(".")[:2]] < [3, 6]
    ftz = ".ftz" if old else ""
    assert ptx.count(".ftz") == (24 if old else 0)
    assert ptx.count(f"div.rn{ftz}.f32") == 16
    assert ptx.count(f"sqrt.rn{ftz}.f32") == 8
    assert ptx.count(".param .f32") == 1  # L2
    assert ptx.count(".param .f64") == 1
    assert re.search(r"^\tld\.global\.v4", ptx, flags=re.MULTILINE), "a load without a mask"


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_device_and_a_graph_on_it_give_the_same_bits(layout):
    from prime_bench.training.table_kernel import kernel_pass

    case = make_case(layout, "late")
    width = LAYOUTS[layout][0][1]
    state = [tensor.cuda() for tensor in case["state"]]
    wide, clip, count = (torch.zeros(n, device="cuda") for n in (case["wide"][0].shape, (), ()))
    sums = wide[:, case["column"] : case["column"] + width]

    def update():
        return kernel_pass(
            state[0], sums, *state[1:], l2=L2, clip=clip, count=count, learning_rate=1e-4
        )

    update()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        squares = update()
    for tensor, value in zip(state, case["state"], strict=True):
        tensor.copy_(value)
    for gradient, (t, factor, *_) in zip(case["wide"], case["steps"], strict=True):
        wide.copy_(gradient)
        clip.fill_(factor)
        count.fill_(t)
        graph.replay()
    for tensor, expected in zip(state, oracle(case, np.float32), strict=True):
        np.testing.assert_array_equal(tensor.cpu().numpy(), expected, strict=True)
    assert squares.item() == pytest.approx(state[0].double().square().sum().item(), rel=1e-13)

"""How a worker computes, and jobs that need more memory than there is: refused before they start
where that is certain, and always with the sizes.
"""

import json
import os
import subprocess
import sys
import warnings

import pytest
import torch

from prime_bench.base import machine
from prime_bench.base.errors import EnvironmentFault
from prime_bench.training import job as training_job
from prime_bench.training import loop
from prime_bench.training.device import (
    NoDevice,
    fix_arithmetic,
    is_out_of_memory,
    resolve_device,
)
from prime_bench.worker import run_job

CPU = torch.device("cpu")
ALLOCATION = 1 << 55


def test_only_failed_allocations_are_out_of_memory():
    def torch_fails():
        torch.empty(ALLOCATION)

    with pytest.raises(RuntimeError) as error:
        torch_fails()
    assert is_out_of_memory(error.value)
    assert is_out_of_memory(MemoryError())
    assert is_out_of_memory(torch.OutOfMemoryError("CUDA out of memory"))
    assert not is_out_of_memory(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))


@pytest.mark.parametrize(
    "message",
    [
        "CUDA error: out of memory\nCUDA kernel errors might be reported at some other call",
        "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "cuDNN error: CUDNN_STATUS_ALLOC_FAILED",
        "[enforce fail at alloc_cpu.cpp:121] DefaultCPUAllocator: can't allocate memory",
        "std::bad_alloc",
    ],
)
def test_every_form_of_a_failed_allocation_is_known_also_as_the_cause(message):
    cause = RuntimeError(message)
    assert is_out_of_memory(cause)
    fault = EnvironmentFault("sizes")
    fault.__cause__ = cause
    assert is_out_of_memory(fault)
    assert not is_out_of_memory(EnvironmentFault(message))


@pytest.fixture
def no_cuda(monkeypatch):
    """A torch that sees no GPU and says why, on a machine with a driver or without one."""

    def no_cuda(*, driver, warning=None):
        def is_available():
            if warning:
                warnings.warn(warning, stacklevel=1)
            return False

        monkeypatch.setattr(torch.cuda, "is_available", is_available)
        monkeypatch.setattr(machine, "has_nvidia_driver", lambda: driver)
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    return no_cuda


def test_auto_never_computes_on_the_cpu_where_a_gpu_waits(no_cuda, monkeypatch):
    no_cuda(driver=False)
    assert resolve_device("auto") == CPU

    no_cuda(driver=True)
    monkeypatch.setattr(torch.version, "cuda", None)
    with pytest.raises(NoDevice, match="built without CUDA") as error:
        resolve_device("auto")
    assert "pip install torch===" in error.value.hint
    assert resolve_device("cpu") == CPU


def test_a_driver_that_is_too_old_is_said_with_what_torch_says(no_cuda, monkeypatch):
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    no_cuda(
        driver=True, warning="The NVIDIA driver on your system is too old (found version 12040)"
    )
    for name in ("auto", "cuda"):
        with pytest.raises(NoDevice, match=r"too old for torch .*found version 12040") as error:
            resolve_device(name)
        assert "install a driver for CUDA 13.0" in error.value.hint


def test_the_chosen_gpu_becomes_the_current_one(monkeypatch):
    chosen = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    assert resolve_device("cuda:1") == torch.device("cuda", 1)
    assert resolve_device("auto") == torch.device("cuda", 0)
    assert chosen == [torch.device("cuda", 1), torch.device("cuda", 0)]
    with pytest.raises(NoDevice, match=r"device cuda:2 is not there: .* sees 2 CUDA devices"):
        resolve_device("cuda:2")


def test_a_job_that_runs_out_of_memory_fails_with_sizes_and_the_next_one_is_done(
    make_request, monkeypatch, tmp_path
):
    request = make_request()
    with monkeypatch.context() as patch:
        patch.setattr(loop.Optimizer, "step", lambda *_: torch.empty(ALLOCATION))
        with pytest.raises(EnvironmentFault, match="out of memory on cpu"):
            run_job(request, lambda _: None)
    failure = json.loads((tmp_path / "runs" / request.job.id / "failure.json").read_text())
    assert "30 rows x 4 x 4 bytes" in failure["error"]
    assert "DefaultCPUAllocator" in failure["traceback"]
    assert run_job(request, lambda _: None).result.test.auc > 0.5


def test_a_table_that_cannot_fit_is_refused_before_it_is_built(make_request, monkeypatch):
    monkeypatch.setattr(training_job, "device_bytes", lambda _: 1000)
    monkeypatch.setattr(training_job, "build_arm", None)
    with pytest.raises(EnvironmentFault, match="out of memory on cpu"):
        run_job(make_request(), lambda _: None)


def test_another_error_stays_what_it_is(make_request, monkeypatch):
    def broken(*_):
        raise RuntimeError("a bug")

    monkeypatch.setattr(loop.Optimizer, "step", broken)
    with pytest.raises(RuntimeError, match="a bug"):
        run_job(make_request(), lambda _: None)


def test_products_have_the_precision_of_the_job_whatever_the_environment_says(monkeypatch):
    monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", "1")
    fix_arithmetic(threads=1, matmul="tf32")
    assert "NVIDIA_TF32_OVERRIDE" not in os.environ
    assert torch.get_float32_matmul_precision() == "high"
    fix_arithmetic(threads=1)
    assert torch.get_float32_matmul_precision() == "highest"


def test_kernels_are_deterministic_whatever_was_set_before(monkeypatch):
    """And with the threads that are asked for."""
    cudnn = torch.backends.cudnn
    for name, value in (("allow_tf32", True), ("deterministic", False), ("benchmark", True)):
        monkeypatch.setattr(cudnn, name, value)
    before = torch.get_num_threads()
    fix_arithmetic(threads=3)
    threads = torch.get_num_threads()
    torch.set_num_threads(before)
    assert threads == 3
    assert (cudnn.allow_tf32, cudnn.deterministic, cudnn.benchmark) == (False, True, False)


def test_subnormal_numbers_are_zeros_in_every_thread():
    """In a process of its own: the mode belongs to threads, and stays."""
    code = (
        "import torch\n"
        "from prime_bench.training.device import fix_arithmetic\n"
        "fix_arithmetic(threads=2)\n"
        "x = torch.full((2_000_000,), 1.5e-38)\n"
        "print(int((x * 0.1).count_nonzero()), int((x * 1.0).count_nonzero()))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0", "2000000"]

"""How a worker computes, and jobs that need more memory than there is: refused before they start
where that is certain, and always with the sizes.
"""

import json
import subprocess
import sys

import pytest
import torch

from prime_bench.base.errors import EnvironmentFault
from prime_bench.settings.interface import Budget, TableShape
from prime_bench.training import device, loop
from prime_bench.training import job as training_job
from prime_bench.training.device import device_bytes, is_out_of_memory, memory_need
from prime_bench.worker import run_job

CPU = torch.device("cpu")
ALLOCATION = 1 << 55
BUDGET = Budget(
    backbone_parameters=10_000_000 + 600_000, plugin_parameters=0, backbone_macs=1, plugin_macs=0
)
SHAPE = TableShape(vocabulary_sizes=(400_000, 599_998), n_numeric=2)


def message_of(total, monkeypatch):
    monkeypatch.setattr(device, "device_bytes", lambda _: total)
    need = memory_need(BUDGET, SHAPE, embedding_dim=10, batch_size=4096)
    return need, need.fault(CPU).message


def test_the_sizes_are_those_of_the_table_with_its_gradient_and_moments(monkeypatch):
    need, message = message_of(1 << 30, monkeypatch)
    assert need.bytes == 16 * 10_600_000
    assert "out of memory on cpu (1.0 GiB)" in message
    assert "1,000,000 rows x 10 x 4 bytes takes 0.15 GiB" in message
    assert "all 10,600,000 parameters 0.16 GiB; a batch of 4,096 rows comes on top" in message
    assert "\n" not in message


def test_what_would_fit(monkeypatch):
    _, message = message_of(16 * 5_600_000, monkeypatch)  # room for half of the table
    assert message.endswith(
        "at this width at most 500,000 rows fit, with these rows a width of at most 5"
    )
    _, message = message_of(16 * 600_000, monkeypatch)
    assert message.endswith("no table fits beside the other parameters")
    _, message = message_of(16 * 10_600_000, monkeypatch)
    assert "without the batch that fits" in message


def test_the_cpu_has_the_machines_memory_or_what_its_group_may_use(monkeypatch, tmp_path):
    whole = device_bytes(CPU)
    assert whole > 1 << 28
    limit = tmp_path / "memory.max"
    monkeypatch.setattr(device, "_GROUP_LIMIT", limit)
    for text, expected in (("4096\n", 4096), ("max\n", device_bytes(CPU)), (str(1 << 60), None)):
        limit.write_text(text)
        assert device_bytes(CPU) == (expected or min(device_bytes(CPU), 1 << 60))


def test_only_failed_allocations_are_out_of_memory():
    def torch_fails():
        torch.empty(ALLOCATION)

    with pytest.raises(RuntimeError) as error:
        torch_fails()
    assert is_out_of_memory(error.value)
    assert is_out_of_memory(MemoryError())
    assert is_out_of_memory(torch.OutOfMemoryError("CUDA out of memory"))
    assert not is_out_of_memory(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))


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

"""How many jobs run at once on machines with other cores, memory and devices than this one."""

import os
from dataclasses import replace

import pytest

from prime_bench.schedule import slots as module
from prime_bench.schedule.devices import CPU, Device
from prime_bench.schedule.slots import chosen_slots, worker_variables
from prime_bench.settings.interface import Budget, TableShape
from prime_bench.settings.memory import MemoryNeed, rows_fit

GIB = 1 << 30
AVAZU = MemoryNeed.of(
    Budget(
        backbone_parameters=15_850_000, plugin_parameters=0, backbone_macs=410_000, plugin_macs=0
    ),
    TableShape(vocabulary_sizes=(1_544_489 // 22,) * 22, n_numeric=0),
    embedding_dim=10,
    batch_size=4096,
    train_rows=28_300_276,
    valid_rows=4_042_897,
    test_rows=8_085_794,
)


def gpus(number, *, gib=80):
    return [Device(name="cuda:0", label=f"cuda:{i}", memory_bytes=gib * GIB) for i in range(number)]


@pytest.fixture(autouse=True)
def machine(monkeypatch):
    """A machine with 16 cores, 256 GiB and no MPS, or with others."""
    for name in ("OMP_NUM_THREADS", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"):
        monkeypatch.delenv(name, raising=False)

    def machine(*, cores=16, gib=256.0, mps=None):
        monkeypatch.setattr(module, "cores", lambda: cores)
        monkeypatch.setattr(module, "memory_bytes", lambda: int(gib * GIB))
        monkeypatch.setattr(module, "mps_control", lambda: mps)

    machine()
    return machine


@pytest.mark.parametrize("cores", [1, 2, 16])
def test_on_a_cpu_a_core_a_job_with_one_thread(machine, cores):
    machine(cores=cores)
    found = chosen_slots([CPU], [AVAZU], n_jobs=100)
    assert (found.on_each, found.total, found.threads) == (cores, cores, 1)
    assert chosen_slots([CPU], []).total == cores, "where nothing is known of the jobs"


def test_fewer_jobs_than_cores_keep_their_one_thread():
    found = chosen_slots([CPU], [AVAZU], n_jobs=3)
    assert (found.total, found.threads) == (3, 1)


def test_memory_bounds_the_jobs_and_one_always_runs(machine):
    machine(gib=3 * AVAZU.host_bytes / GIB / 0.9 + 0.01)
    found = chosen_slots([CPU], [AVAZU])
    assert (found.total, found.bound) == (3, "by memory")
    machine(gib=3 * AVAZU.host_bytes / GIB / 0.9 - 0.01)
    assert chosen_slots([CPU], [AVAZU]).total == 2, "a tenth is for the rest of the machine"
    machine(gib=0.1)
    assert chosen_slots([CPU], [AVAZU]).total == 1


def test_the_memory_of_the_host_is_for_the_jobs_of_all_devices_and_the_largest_counts(machine):
    machine(cores=100, gib=7 * AVAZU.host_bytes / GIB / 0.9 + 0.01)
    light = replace(AVAZU, parameters=1000, train_rows=1000, valid_rows=9, test_rows=9)
    for needs in ([light, AVAZU], [AVAZU, light]):
        found = chosen_slots(gpus(2, gib=800), needs)
        assert (found.on_each, found.total, found.bound) == (3, 6, "by memory")


def test_few_jobs_are_spread_over_all_gpus_and_share_the_cores(machine):
    machine(cores=32)
    found = chosen_slots(gpus(2), [AVAZU], n_jobs=5)
    assert (found.on_each, found.total, found.threads) == (3, 6, 5)
    assert found.bound == "a job each"
    assert chosen_slots(gpus(2), [AVAZU], n_jobs=4).threads == 8


@pytest.mark.parametrize(
    ("text", "total", "threads"), [("4", 4, 4), ("4,2", 4, 4), ("32", 1, 32), ("x", 16, 1)]
)
def test_the_variable_gives_the_threads_of_a_job(monkeypatch, text, total, threads):
    monkeypatch.setenv("OMP_NUM_THREADS", text)
    found = chosen_slots([CPU], [])
    assert (found.total, found.threads) == (total, threads)


def test_what_is_asked_for_goes_before_the_variable_and_the_choice(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    assert chosen_slots([CPU], [], slots=2).threads == 4
    assert chosen_slots([CPU], [], slots=2, threads=3).threads == 3
    assert chosen_slots([CPU], [], threads=8).total == 2
    monkeypatch.delenv("OMP_NUM_THREADS")
    found = chosen_slots(gpus(2), [AVAZU], slots=3)
    assert (found.on_each, found.total, found.threads, found.bound) == (3, 6, 2, "as asked for")


def test_on_a_gpu_its_memory_bounds_the_jobs_or_the_cores_do(machine):
    found = chosen_slots(gpus(1, gib=40), [AVAZU])
    assert found.bound == "by memory of the device"
    assert found.on_each == int(0.9 * 40 * GIB / AVAZU.gpu_bytes(40 * GIB))
    assert 4 <= found.on_each < 16
    assert chosen_slots(gpus(1, gib=24), [AVAZU]).on_each < found.on_each
    assert chosen_slots(gpus(2), [AVAZU]).on_each == 8, "16 cores for two of them"
    machine(cores=2)
    assert chosen_slots(gpus(1), [AVAZU]).on_each == 2


def test_the_largest_job_and_the_smallest_gpu_count():
    small = Device(name="cuda:0", label="cuda:1", memory_bytes=16 * GIB)
    alone = chosen_slots([small], [AVAZU]).on_each
    assert chosen_slots([*gpus(1), small], [AVAZU]).on_each == alone
    light = AVAZU.__class__(**{**vars(AVAZU), "train_rows": 1000, "valid_rows": 9, "test_rows": 9})
    assert (
        chosen_slots(gpus(1, gib=24), [light]).on_each
        > chosen_slots(gpus(1, gib=24), [light, AVAZU]).on_each
    )


@pytest.mark.parametrize("gib", [8, 16, 24, 80, 140])
def test_no_chosen_slot_trains_from_pinned_memory(machine, gib):
    """The worker decides by the same numbers, whenever it starts."""
    machine(cores=128, gib=4096)
    found = chosen_slots(gpus(1, gib=gib), [AVAZU])
    (jobs,) = [
        value
        for name, value in worker_variables("cuda", on_each=found.on_each).items()
        if name.startswith("PRIME_BENCH")
    ]
    train_bytes = AVAZU.row_bytes * AVAZU.train_rows
    assert rows_fit(train_bytes, total_bytes=gib * GIB, jobs=int(jobs))


def test_mps_serves_no_more_than_its_clients(machine, tmp_path):
    machine(cores=500, gib=4096, mps=tmp_path)
    tiny = AVAZU.__class__(**{**vars(AVAZU), "train_rows": 9, "valid_rows": 9, "test_rows": 9})
    found = chosen_slots(gpus(1, gib=800), [tiny])
    assert (found.on_each, found.bound) == (48, "by MPS")
    assert chosen_slots([CPU], []).total == 500, "it serves no CPU"


def test_a_worker_on_a_gpu_has_segments_that_grow_unless_the_user_chose(monkeypatch):
    assert list(worker_variables("cpu", on_each=2)) == ["PRIME_BENCH_JOBS_ON_DEVICE"]
    found = worker_variables("cuda", on_each=2)
    assert found["PYTORCH_CUDA_ALLOC_CONF"] == "expandable_segments:True"
    for name in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"):
        with monkeypatch.context() as patch:
            patch.setenv(name, "max_split_size_mb:128")
            assert list(worker_variables("cuda", on_each=2)) == ["PRIME_BENCH_JOBS_ON_DEVICE"]
    assert "PYTORCH_CUDA_ALLOC_CONF" not in os.environ


def test_the_choice_can_be_read():
    assert str(chosen_slots([CPU], [], n_jobs=100)) == (
        "16 jobs at once, 1 CPU thread each (a core each)"
    )
    assert str(chosen_slots([CPU], [], slots=1)) == (
        "1 job at once, 16 CPU threads each (as asked for)"
    )

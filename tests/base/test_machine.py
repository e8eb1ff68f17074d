"""Cores and memory under the limits of control groups, and machines whose GPU torch cannot use."""

import ctypes
import json
import os
import subprocess
import sys

import pytest

from prime_bench.base import machine
from prime_bench.base.files import pins
from prime_bench.base.machine import cores, cpu_name, memory_bytes, unused_gpu


@pytest.fixture
def groups(monkeypatch, tmp_path):
    """A process in the control group /a/b with these files, on eight cores."""
    top = tmp_path / "cgroup"
    (top / "a" / "b").mkdir(parents=True)
    own = tmp_path / "own"
    own.write_text("0::/a/b\n")
    monkeypatch.setattr(machine, "_GROUPS", top)
    monkeypatch.setattr(machine, "_OWN_GROUP", own)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)

    def groups(name, **texts):
        for folder, text in texts.items():
            place = {"top": top, "a": top / "a", "b": top / "a" / "b"}[folder]
            (place / name).write_text(text)

    return groups


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        ({}, 8),
        ({"b": "max 100000\n"}, 8),
        ({"b": "250000 100000\n"}, 2),
        ({"b": "50000 100000\n"}, 1),
        ({"top": "300000 100000\n", "b": "max 100000\n"}, 3),
        ({"a": "400000 100000\n", "b": "600000 100000\n"}, 4),
        ({"b": "nonsense"}, 8),
    ],
)
def test_a_quota_leaves_fewer_cores(groups, texts, expected):
    groups("cpu.max", **texts)
    assert cores() == expected


def test_the_group_of_a_host_is_not_there_in_a_container(groups, monkeypatch, tmp_path):
    groups("cpu.max", top="200000 100000\n")
    own = tmp_path / "host"
    own.write_text("0::/kubepods/pod7\n")
    monkeypatch.setattr(machine, "_OWN_GROUP", own)
    assert cores() == 2


def test_the_machine_has_its_memory_or_what_the_groups_allow(groups):
    whole = memory_bytes()
    assert whole > 1 << 28
    groups("memory.max", b=f"{1 << 60}\n")
    assert memory_bytes() == whole
    groups("memory.max", b="max\n", a="4096\n")
    assert memory_bytes() == 4096


def test_the_cpu_has_the_name_of_its_vendor(monkeypatch, tmp_path):
    info = tmp_path / "cpuinfo"
    monkeypatch.setattr(machine, "_CPU_INFO", info)
    monkeypatch.setattr(machine.platform, "processor", lambda: "")
    monkeypatch.setattr(machine.platform, "machine", lambda: "arm64")
    assert cpu_name() == "arm64"
    info.write_text("vendor_id\t: V\nmodel\t\t: 85\nmodel name\t: A CPU: 2 GHz \nmodel name\t: B\n")
    assert cpu_name() == "A CPU: 2 GHz"
    info.write_text("vendor_id\t: V\n")
    assert cpu_name() == "arm64"
    monkeypatch.setattr(machine.platform, "processor", lambda: "x86")
    assert cpu_name() == "x86"


@pytest.fixture
def driver(monkeypatch, tmp_path):
    """The file of a driver, which is there."""
    path = tmp_path / "nvidiactl"
    path.touch()
    monkeypatch.setattr(machine, "_NVIDIA_DRIVERS", (path,))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return path


@pytest.mark.usefixtures("driver")
@pytest.mark.parametrize(
    ("cuda", "warning", "message", "hint"),
    [
        (None, "", "torch 2.13.0 is built without CUDA", f"torch==={pins()['torch']}"),
        ("13.0", "driver too old (found 12040)", "too old for torch 2.13.0 (CUDA 13.0)", "13.0 or"),
        ("13.0", "", "sees no GPU", "nvidia-smi"),
    ],
)
def test_a_gpu_that_torch_cannot_use_is_an_error(cuda, warning, message, hint):
    fault = unused_gpu(torch="2.13.0", cuda=cuda, warning=warning)
    assert fault.exit_code == 4
    assert message in fault.message
    assert warning in fault.message
    assert hint in fault.hint
    assert "`--device cpu`" in fault.hint


def test_without_a_driver_or_with_all_gpus_hidden_the_cpu_is_meant(driver, monkeypatch):
    for hidden in ("", "-1"):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)
        assert unused_gpu(torch="2.13.0", cuda=None, warning="") is None
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    driver.unlink()
    assert unused_gpu(torch="2.13.0", cuda=None, warning="") is None


_FAULTS = """
import json, resource, sys, threading
import numpy as np
from prime_bench.base.machine import keep_freed_memory, return_freed_memory

def faults(n_bytes):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    np.ones(n_bytes, dtype=np.uint8)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

if sys.argv[1] == "keep":
    keep_freed_memory()
found = [faults(1 << 26) for _ in range(3)]
if sys.argv[1] == "keep":
    thread = threading.Thread(target=faults, args=(1 << 28,))  # more than an arena of a thread has
    thread.start()
    thread.join()
    return_freed_memory()
print(json.dumps([*found, faults(1 << 26)]))
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="another C library's malloc")
def test_freed_memory_is_kept_until_it_is_returned():
    found = {
        mode: json.loads(subprocess.check_output([sys.executable, "-c", _FAULTS, mode]))
        for mode in ("keep", "default")
    }
    pages = (1 << 26) // (2 << 20)  # of 2 MiB, in case the system gives those
    assert min(found["default"]) >= pages
    assert found["keep"][0] >= pages
    assert max(found["keep"][1:3]) < pages
    assert found["keep"][3] >= pages

"""What `--device` means on machines with other devices than this one."""

import json
import os
import subprocess

import pytest

from prime_bench.base.errors import EnvironmentFault, UsageError
from prime_bench.schedule import devices
from prime_bench.schedule.devices import CPU, check_devices, find_devices, mps_control


@pytest.fixture
def machine(monkeypatch):
    """A machine with a driver and so many CUDA devices; the environment may show fewer."""

    def machine(n_devices, *, driver=True, visible=None, code=0, cuda="13.0", warning=""):
        def asked(command, **_options):
            found = [{"name": f"GPU {i}", "memory_bytes": 80 << 30} for i in range(n_devices)]
            said = {"torch": "2.9", "cuda": cuda, "warning": warning, "devices": found}
            return subprocess.CompletedProcess(
                command,
                code,
                stdout=f"a banner\n{json.dumps(said)}\n",
                stderr="Traceback\nImportError: torch",
            )

        monkeypatch.setattr(devices.subprocess, "run", asked)
        monkeypatch.setattr(devices.machine, "has_nvidia_driver", lambda: driver == "nvidia")
        monkeypatch.setattr(devices, "_has_driver", lambda: bool(driver))
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        if visible is not None:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)

    return machine


def _seen(text):
    """What each device's process sees."""
    found = find_devices(text)
    assert {device.name for device in found} == {"cuda:0"}
    assert {device.kind for device in found} == {"cuda"}
    return [device.variables["CUDA_VISIBLE_DEVICES"] for device in found]


def test_cpu_asks_nobody(machine):
    machine(2, code=1)

    assert find_devices("cpu") == [CPU]
    assert CPU.kind == "cpu"


def test_auto_is_every_cuda_device_or_the_cpu(machine):
    machine(2)
    assert _seen("auto") == ["0", "1"]

    machine(0)
    assert find_devices("auto") == [CPU]


@pytest.mark.parametrize(
    ("text", "names"),
    [(" cpu ", ["cpu"]), ("auto ", ["auto"]), (" cuda:0, cuda:1 ", ["cuda:0", "cuda:1"])],
)
def test_spaces_around_a_name_are_no_part_of_it(text, names):
    assert check_devices(text) == names


def test_a_device_has_the_name_that_the_user_knows_and_its_memory(machine):
    machine(2)
    (found,) = find_devices("cuda:1")

    assert (found.label, found.title, found.memory_bytes) == ("cuda:1", "GPU 1", 80 << 30)
    assert CPU.title


@pytest.mark.parametrize("text", ["auto", "cuda", "cuda:1"])
@pytest.mark.parametrize(
    ("build", "message"),
    [
        ({"cuda": None}, "torch 2.9 is built without CUDA"),
        ({"warning": "driver is too old (found version 12040)"}, r"found version 12040"),
        ({}, "sees no GPU"),
    ],
)
def test_an_nvidia_driver_that_torch_cannot_use_is_an_error(machine, text, build, message):
    machine(0, driver="nvidia", **build)

    with pytest.raises(EnvironmentFault, match=message) as caught:
        find_devices(text)
    assert "`--device cpu`" in caught.value.hint
    assert find_devices("cpu") == [CPU]


def test_gpus_that_the_environment_hides_are_not_missed(machine):
    machine(0, driver="nvidia", visible="")

    assert find_devices("auto") == [CPU]


def test_mps_is_there_where_its_pipe_is(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(tmp_path))
    assert mps_control() is None
    (tmp_path / "control").touch()
    assert mps_control() is None, "a file that somebody has left"
    (tmp_path / "control").unlink()
    os.mkfifo(tmp_path / "control")
    assert mps_control() == tmp_path / "control"


def test_auto_without_a_driver_does_not_ask_torch(machine):
    machine(2, driver=False, code=1)

    assert find_devices("auto") == [CPU]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("cuda", ["0", "1", "2"]),
        ("cuda:1", ["1"]),
        ("cuda:2,cuda:0", ["2", "0"]),
        (" cuda:0 , cuda:1 ", ["0", "1"]),
    ],
)
def test_a_process_sees_its_own_device_alone(machine, text, expected):
    machine(3)

    assert _seen(text) == expected


def test_devices_are_counted_among_those_that_the_environment_shows(machine):
    machine(2, visible="GPU-5a,7")

    assert _seen("cuda:1,cuda:0") == ["7", "GPU-5a"]


@pytest.mark.parametrize(
    ("n_devices", "text"), [(0, "cuda"), (0, "cuda:0"), (1, "cuda:1"), (1, "cuda:0,cuda:3")]
)
def test_a_device_that_is_not_there_is_one_message(machine, n_devices, text):
    machine(n_devices, driver=False)

    with pytest.raises(EnvironmentFault) as caught:
        find_devices(text)
    assert caught.value.message == (
        f"device {text} is not there: torch 2.9 sees {n_devices} CUDA devices"
    )
    assert "use `auto` or `cpu`" in caught.value.hint


def test_a_torch_that_cannot_be_loaded_is_one_message(machine):
    machine(1, code=1)

    with pytest.raises(EnvironmentFault, match="ImportError: torch"):
        find_devices("cuda")


def test_a_torch_that_dies_without_a_word_is_one_message(monkeypatch):
    died = subprocess.CompletedProcess((), 1, stdout="", stderr=" ")
    monkeypatch.setattr(devices.subprocess, "run", lambda *_, **__: died)
    with pytest.raises(EnvironmentFault, match=r"cannot list the devices: no reason given\Z"):
        find_devices("cuda")


@pytest.mark.parametrize("driver", ["none", "nvidia", "amd"])
def test_auto_asks_torch_where_there_is_a_driver_of_either_vendor(monkeypatch, tmp_path, driver):
    asked, file = [], tmp_path / "kfd"
    if driver == "amd":
        file.touch()
    seen = devices._SeenByTorch(torch="2", cuda=None, warning="", devices=[])
    monkeypatch.setattr(devices, "_AMD_DRIVER", file)
    monkeypatch.setattr(devices.machine, "has_nvidia_driver", lambda: driver == "nvidia")
    monkeypatch.setattr(devices, "unused_gpu", lambda **_keys: None)
    monkeypatch.setattr(devices, "_seen_by_torch", lambda: asked.append(1) or seen)
    assert find_devices("auto") == [CPU]
    assert bool(asked) == (driver != "none")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("gpu", "no device `gpu`"),
        ("", "no device ``"),
        ("cuda:0,", "no device ``"),
        ("cuda:-1", "no device `cuda:-1`"),
        ("cpu,cuda:0", "only cuda:INDEX can stand in a list"),
        ("cuda,cuda:1", "only cuda:INDEX can stand in a list"),
        ("cuda:0,cuda:0", "a device is named twice"),
    ],
)
def test_other_texts_are_usage_errors(text, said):
    with pytest.raises(UsageError, match=said):
        check_devices(text)


def test_the_real_torch_answers():
    seen = devices._seen_by_torch()

    assert seen.torch
    assert all(device.name and device.memory_bytes > 0 for device in seen.devices)

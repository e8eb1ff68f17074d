"""What `--device` means on machines with other devices than this one."""

import json
import subprocess

import pytest

from prime_bench.base.errors import EnvironmentFault, UsageError
from prime_bench.schedule import devices
from prime_bench.schedule.devices import CPU, check_devices, find_devices


@pytest.fixture
def machine(monkeypatch):
    """A machine with a driver and so many CUDA devices; the environment may show fewer."""

    def machine(n_devices, *, driver=True, visible=None, code=0):
        def asked(command, **_options):
            said = json.dumps(["2.9", n_devices])
            return subprocess.CompletedProcess(
                command, code, stdout=f"a banner\n{said}\n", stderr="Traceback\nImportError: torch"
            )

        monkeypatch.setattr(devices.subprocess, "run", asked)
        monkeypatch.setattr(devices, "_has_driver", lambda: driver)
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
    version, n_devices = devices._seen_by_torch()

    assert version
    assert n_devices >= 0

import importlib.metadata
import json
import os
import re
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import IO

import pytest

from prime_bench.base import machine
from prime_bench.base.files import pins
from prime_bench.schedule import doctor
from prime_bench.schedule.doctor import PACKAGES, HealthCheck, examine

ROOT = Path(__file__).parents[2]


def saying(answer: object) -> tuple[str, ...]:
    return (sys.executable, "-c", f"print({json.dumps(answer)!r})")


def _install(monkeypatch: pytest.MonkeyPatch, changed: dict[str, str | None]) -> None:
    """Make all packages have the version of their pin, or that of `changed`; None: not there."""
    versions = {name.lower(): version for name, version in pins().items()} | changed

    def version(name: str) -> str:
        if (found := versions[name]) is None:
            raise importlib.metadata.PackageNotFoundError(name)
        return found

    monkeypatch.setattr(importlib.metadata, "version", version)


CPU_ALONE = saying(
    {
        "torch": "2.13.0",
        "cuda": None,
        "devices": [{"device": "cpu", "name": "A CPU", "step_ms": 51.26}],
    }
)


def found(tmp_path: Path, command: tuple[str, ...] = CPU_ALONE) -> dict[str, HealthCheck]:
    findings = examine(data_dir=tmp_path / "data", runs_dir=tmp_path / "runs", command=command)
    return {finding.topic: finding for finding in findings}


def test_every_dependency_is_looked_at_and_has_a_pin() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(PACKAGES) == {re.split("[>=]", line)[0] for line in project["dependencies"]}
    assert set(PACKAGES) <= set(map(str.lower, pins()))


def test_a_sound_machine_has_no_fault(tmp_path: Path) -> None:
    findings = found(tmp_path)
    assert [f for f in findings.values() if f.state == "fault"] == []
    assert findings["cpu"].found == "A CPU: a DNN step of 4,096 rows takes 51.3 ms"
    assert findings["CUDA"] == HealthCheck(
        topic="CUDA",
        state="note",
        found="torch 2.13.0 without CUDA",
        advice="for a GPU, install a torch build for its driver",
    )
    assert findings["tables"].found == f"none in {tmp_path / 'data'}"
    assert findings["tables"].advice == "prime-bench prepare synthetic"


def test_another_version_is_a_note_and_a_build_of_the_same_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    versions = {"torch": f"{pins()['torch']}+cu130", "polars": "99.0.0"}
    _install(monkeypatch, versions)
    findings = found(tmp_path)
    assert findings["torch"].state == "ok"
    assert findings["polars"].state == "note"
    said = f"99.0.0; this release was checked with {pins()['polars']}"
    assert findings["polars"].found == said
    assert findings["polars"].advice == f"pip install polars=={pins()['polars']}"


@pytest.mark.parametrize(
    ("version", "bounds", "says"),
    [
        (None, ["fuxictr==2.3.10"], "not installed"),
        ("2.3.9", ["fuxictr==2.3.10"], "2.3.9; this release needs 2.3.10"),
        ("2.3.9+cpu", ["click>=1", "fuxictr>=2.3.10"], "2.3.9+cpu; this release needs 2.3.10 or"),
    ],
)
def test_a_package_that_does_not_do_is_a_fault_with_the_command_that_installs_it(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    version: str | None,
    bounds: list[str],
    says: str,
) -> None:
    _install(monkeypatch, {"fuxictr": version})
    monkeypatch.setattr(importlib.metadata, "requires", lambda _: bounds)
    broken = saying({"torch": "1", "cuda": None, "devices": [{"device": "cpu", "fault": "no"}]})
    findings = found(tmp_path, broken)

    finding = findings["fuxictr"]
    assert (finding.state, finding.advice) == ("fault", f"pip install fuxictr=={pins()['fuxictr']}")
    assert finding.found.startswith(says)
    assert findings["cpu"].advice == "first install fuxictr as said above"


def test_no_compiler_is_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert found(tmp_path)["C++ compiler"] == HealthCheck(
        topic="C++ compiler",
        state="note",
        found="no no-such-compiler: --compile does not work on the CPU",
        advice="install g++, or name your compiler in the variable CXX",
    )
    monkeypatch.setenv("CXX", sys.executable)
    compiler = doctor._compiler()
    assert (compiler.state, compiler.found, compiler.advice) == ("ok", sys.executable, "")


@pytest.mark.parametrize(("short", "state"), [(0, "ok"), (1, "note")])
def test_little_memory_or_disk_is_a_note(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, short: int, state: str
) -> None:
    usage = SimpleNamespace(free=20_000_000_000 - short)
    monkeypatch.setattr(doctor, "memory_bytes", lambda: 4_000_000_000 - short)
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda _folder: usage)
    memory, folder = doctor._memory(), doctor._folder("records", tmp_path)
    assert (memory.state, memory.found) == (state, "4.0 GB in all")
    advice = "`plan` says what a job needs; use one slot"
    assert memory.advice == (advice if short else "")
    assert (folder.state, folder.found) == (state, f"{tmp_path}: 20.0 GB free")
    assert (folder.advice == "Criteo at full size wants 20 GB") == (state == "note")


def test_a_folder_where_nothing_can_be_made_is_a_fault() -> None:
    findings = examine(data_dir=Path("/proc/data"), runs_dir=Path(os.devnull), command=CPU_ALONE)
    faults = {f.topic: f.found for f in findings if f.state == "fault"}
    assert faults == {
        "prepared tables": "/proc/data: nothing can be made here",
        "records": f"{os.devnull}: a part of the path is a file, not a folder",
    }


def test_a_full_disk_is_a_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(**_: object) -> IO[bytes]:
        return Path("/dev/full").open("r+b")

    monkeypatch.setattr("tempfile.TemporaryFile", full)
    finding = found(tmp_path)["records"]
    assert (finding.state, finding.found) == ("fault", f"{tmp_path / 'runs'}: the disk is full")
    assert finding.advice.startswith("free some space")


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ((sys.executable, "-c", "raise ImportError('libcudart.so.13')"), "libcudart.so.13"),
        ((sys.executable, "-c", "raise SystemExit(9)"), "exit code 9"),
        (("sleep", "60"), "training for a second did not end within 0.5 s"),
    ],
)
def test_a_torch_that_does_not_load_is_a_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...], reason: str
) -> None:
    if command[0] == "sleep":
        monkeypatch.setattr(doctor, "_TRY_TIMEOUT_S", 0.5)
    finding = found(tmp_path, command)["devices"]
    assert finding.state == "fault"
    assert reason in finding.found


def test_a_device_that_fails_is_a_fault(tmp_path: Path) -> None:
    answer = {
        "torch": "2.13.0",
        "cuda": "13.0",
        "devices": [
            {"device": "cpu", "name": "A CPU", "step_ms": 51.0},
            {"device": "cuda:0", "fault": "CUDA error: no kernel image"},
        ],
    }
    findings = found(tmp_path, saying(answer))
    assert findings["cuda:0"] == HealthCheck(
        topic="cuda:0",
        state="fault",
        found="CUDA error: no kernel image",
        advice="check the driver with nvidia-smi",
    )
    assert findings["CUDA"].found == "torch 2.13.0 for CUDA 13.0"


def test_a_device_that_fails_without_a_word_says_what_to_install(tmp_path: Path) -> None:
    answer = {"torch": "2", "cuda": None, "devices": [{"device": "cpu"}]}
    finding = found(tmp_path, saying(answer))["cpu"]
    assert (finding.state, finding.found) == ("fault", "no reason given")
    assert finding.advice == f"pip install torch=={pins()['torch']}"


def test_a_gpu_that_torch_cannot_use_is_a_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = tmp_path / "nvidiactl"
    driver.touch()
    monkeypatch.setattr(machine, "_NVIDIA_DRIVERS", (driver,))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    cpu = {"device": "cpu", "name": "A CPU", "step_ms": 51.0}
    old = {"cuda": "13.0", "warning": "The NVIDIA driver on your system is too old (found 12040)"}
    for build, said in (({"cuda": None}, "is built without CUDA"), (old, "(found 12040)")):
        finding = found(tmp_path, saying({"torch": "2.13.0", "devices": [cpu], **build}))["CUDA"]
        assert finding.state == "fault"
        assert said in finding.found
        assert "install" in finding.advice


def test_mps_is_looked_for_where_there_is_a_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "MPS" not in found(tmp_path)
    names = ("cpu", "cuda:0")
    devices = [{"device": name, "name": "It", "step_ms": 1.0} for name in names]
    command = saying({"torch": "2.13.0", "cuda": "13.0", "devices": devices})
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(tmp_path))
    finding = found(tmp_path, command)["MPS"]
    assert finding.state == "note"
    assert finding.found == "does not run: jobs on one GPU compute in turns"
    assert finding.advice == (
        "start it with `nvidia-cuda-mps-control -d`, end it with `echo quit | "
        "nvidia-cuda-mps-control`"
    )
    os.mkfifo(tmp_path / "control")
    finding = found(tmp_path, command)["MPS"]
    assert (finding.state, finding.found) == ("ok", f"runs ({tmp_path}); workers use it")


def test_each_prepared_table_has_a_line_and_other_folders_have_none(
    tmp_path: Path, table: Path
) -> None:
    (tmp_path / "data" / "downloads").mkdir(parents=True)
    (tmp_path / "data" / table.name).symlink_to(table)
    said = {"topic": "table", "state": "ok", "advice": ""}
    line = f"{tmp_path / 'data' / table.name}: 611 rows, not verified"
    assert [one.plain() for one in doctor._tables(tmp_path / "data")] == [{**said, "found": line}]


@pytest.mark.parametrize(
    ("verified", "words"), [(True, "verified"), (False, "not verified"), ("own", "own data")]
)
def test_a_table_says_whether_its_data_are_those_of_the_card(
    tmp_path: Path, write_manifest: Callable[..., None], verified: object, words: str
) -> None:
    folder, counts = tmp_path / "tiny-1", {"train": 3000, "valid": 1, "test": 1}
    folder.mkdir()
    write_manifest(folder, rows=counts, positives=counts, verified=verified)
    (finding,) = doctor._tables(tmp_path)
    assert finding.found == f"{folder}: 3,002 rows, {words}"


def test_a_broken_table_is_a_fault(tmp_path: Path) -> None:
    folder = tmp_path / "data" / "avazu-12345678"
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text("{")
    finding = found(tmp_path)["table"]
    assert finding.state == "fault"
    assert finding.found.startswith(f"{folder / 'manifest.json'}: ")
    assert finding.advice.startswith("prepare the table again")


def test_a_python_that_is_too_old_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    assert doctor._python().state == "ok"
    monkeypatch.setattr(doctor, "_MINIMUM_PYTHON", (sys.version_info[0], sys.version_info[1] + 1))
    finding = doctor._python()
    wanted = f"{sys.version_info[0]}.{sys.version_info[1] + 1}"
    assert (finding.state, finding.advice) == ("fault", f"install Python {wanted} or newer")


def test_without_an_installed_release_another_version_is_a_note(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where prime-bench is a folder on the path, nothing says what it needs."""

    def requires(name: str) -> list[str]:
        raise importlib.metadata.PackageNotFoundError(name)

    _install(monkeypatch, {"click": "0.1"})
    monkeypatch.setattr(importlib.metadata, "requires", requires)
    finding = doctor._package("click")
    assert (finding.state, finding.found.partition(";")[0]) == ("note", "0.1")

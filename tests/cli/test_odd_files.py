"""Named pipes, devices, folders and huge files where a file of ours belongs: nothing waits, nothing
is read without a limit, and the other jobs are listed as always.
"""

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import pytest

from prime_bench.cli.main import exit_code

Make = Callable[[Path], None]


def pipe(path: Path) -> None:
    os.mkfifo(path)


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def folder(path: Path) -> None:
    path.mkdir()
    (path / "mine").write_text("x")


def huge(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


def loop(path: Path) -> None:
    path.symlink_to(path.name)


KINDS = (pipe, device, folder, huge, loop)


@pytest.fixture(autouse=True)
def in_time() -> Iterator[None]:
    """End a test that waits for somebody who writes to its pipe."""

    def late(_number: int, _frame: FrameType | None) -> None:
        raise TimeoutError("still waiting")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def put(make: Make, path: Path) -> None:
    path.unlink(missing_ok=True)
    make(path)


def states(capsys: pytest.CaptureFixture[str]) -> dict[str, tuple[str, str]]:
    """State and reason of each job by its id, as `status` has them."""
    capsys.readouterr()
    assert exit_code(["status", "--json"]) == 0
    jobs = json.loads(capsys.readouterr().out)["jobs"]
    return {job["job_id"]: (job["state"], job["why"]) for job in jobs}


READING = (
    "status",
    "plan quick",
    "report",
    "verify",
    "compare prime prime",
    "clean",
    "clean --unfinished",
    "pack quick -o o.zip",
    "show job {}",
    "ls recipes",
)


@pytest.mark.parametrize("make", KINDS)
@pytest.mark.parametrize(
    "name", ["record.json", "config.json", "failure.json", "history.jsonl", "log.txt"]
)
def test_such_a_job_is_broken_and_the_others_are_not(
    jobs: dict[str, Path], capsys: pytest.CaptureFixture[str], name: str, make: Make
) -> None:
    dense, prime = jobs["dense"], jobs["prime"]
    (dense / "record.json").unlink()
    put(make, dense / name)

    found = states(capsys)
    assert found[prime.name][0] == "done"
    if (make, name) != (huge, "log.txt"):  # a long log is read from its end
        assert found[dense.name][0] == "broken"
        assert f"{name}: " in found[dense.name][1]
        assert "move the job's folder away" in found[dense.name][1]
    for command in READING:
        code = exit_code([word.format(dense.name) for word in command.split()])
        err = capsys.readouterr().err
        assert code in (0, 1, 3), (command, err)
        assert "Traceback" not in err
    assert os.path.lexists(dense / name), "`clean` has not asked"


@pytest.mark.parametrize("make", KINDS)
@pytest.mark.parametrize(
    "name",
    ["history.jsonl", "config.json", "checkpoint.safetensors", "predictions.npz", "test.json"],
)
def test_beside_a_record_such_a_file_is_left_alone(
    jobs: dict[str, Path], capsys: pytest.CaptureFixture[str], name: str, make: Make
) -> None:
    put(make, jobs["dense"] / name)

    assert {state for state, _ in states(capsys).values()} == {"done"}
    for command in READING:
        code = exit_code([word.format(jobs["dense"].name) for word in command.split()])
        assert code in (0, 1, 3), (command, capsys.readouterr().err)
    capsys.readouterr()
    assert exit_code(["verify", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)["findings"]
    assert str(jobs["dense"] / name) in {finding["where"] for finding in found}
    if name == "checkpoint.safetensors":
        assert exit_code(["predict", jobs["dense"].name]) == 3


@pytest.mark.parametrize("make", [*KINDS, Path.touch])
@pytest.mark.usefixtures("jobs")
def test_a_folder_of_a_job_that_is_none(capsys: pytest.CaptureFixture[str], make: Make) -> None:
    path = Path("runs") / ("0" * 16)
    make(path)

    found = states(capsys)
    assert found.pop(path.name)[0] == ("interrupted" if make is folder else "broken")
    assert {state for state, _ in found.values()} == {"done"}


@pytest.mark.parametrize("make", [pipe, folder, loop])
def test_a_lock_that_is_no_file_breaks_its_job_alone(
    jobs: dict[str, Path], capsys: pytest.CaptureFixture[str], make: Make
) -> None:
    dense = jobs["dense"]
    (dense / "record.json").unlink()
    lock = Path("runs") / ".claims" / f"{dense.name}.lock"
    make(lock)

    found = states(capsys)
    assert found[jobs["prime"].name][0] == "done"
    assert found[dense.name][0] == "broken"
    assert f"{lock}: a " in found[dense.name][1]
    for command in ("clean", "clean --unfinished", "report", "verify", f"show job {dense.name}"):
        assert exit_code(command.split()) in (0, 1, 3), capsys.readouterr().err


def test_a_failed_job_without_a_config_is_failed(
    jobs: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("record.json", "config.json"):
        (jobs["dense"] / name).unlink()
    (jobs["dense"] / "failure.json").write_text('{"error": "out of luck"}')

    assert states(capsys)[jobs["dense"].name] == ("failed", "out of luck; it has no config.json")


@pytest.mark.parametrize("text", ["null", "[]", '{"job": null}', '{"job": 1}', "{", "[" * 9999])
def test_a_config_of_something_else_hides_no_job(
    jobs: dict[str, Path], capsys: pytest.CaptureFixture[str], text: str
) -> None:
    dense = jobs["dense"]
    (dense / "config.json").write_text(text)
    assert {state for state, _ in states(capsys).values()} == {"done"}

    (dense / "record.json").unlink()
    state, why = states(capsys)[dense.name]
    assert (state, why.endswith("its config.json cannot be read")) == ("interrupted", True)
    assert exit_code(["show", "job", dense.name]) == 0

    (dense / "config.json").write_text((jobs["prime"] / "config.json").read_text())
    assert states(capsys)[dense.name][1].endswith(f"of the job {jobs['prime'].name}")


@pytest.mark.parametrize("make", KINDS)
def test_recipes_bundles_and_tables(
    jobs: dict[str, Path], capsys: pytest.CaptureFixture[str], make: Make
) -> None:
    assert jobs
    put(make, Path("x.toml"))
    put(make, Path("b.zip"))
    assert exit_code(["ls", "recipes"]) == 0
    for command in ("plan x.toml", "show recipe x.toml", "diff x.toml quick", "report x.toml"):
        assert exit_code(command.split()) == 2, command
    assert exit_code(["report", "b.zip"]) == (4 if make is loop else 3)
    (table,) = Path("data").iterdir()
    for name in ("schema.json", "manifest.json"):
        put(make, table / name)
        for command in ("ls datasets", "plan quick --set dataset.synthetic.rows=1000"):
            assert exit_code(command.split()) in (0, 1, 3), command
    assert "Traceback" not in capsys.readouterr().err

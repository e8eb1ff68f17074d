"""Exit codes, messages, and what is imported for `--help`."""

import errno
import os
import resource
import subprocess
import sys
from pathlib import Path

import click
import pytest
from polars.exceptions import PanicException

from prime_bench import __version__
from prime_bench.base.errors import DataError, EnvironmentFault, UsageError
from prime_bench.cli import main as module
from prime_bench.cli.main import COMMANDS, cli, exit_code

PROGRAM = [sys.executable, "-c", "from prime_bench.cli.main import main; main()"]


@pytest.fixture
def raising(monkeypatch):
    """Make `prime-bench plan` raise."""

    def raising(error):
        @click.command()
        def fails():
            """Fail."""
            raise error

        monkeypatch.setattr(module.importlib, "import_module", lambda _name: module)
        monkeypatch.setattr(module, "fails", fails, raising=False)
        monkeypatch.setitem(COMMANDS, "plan", "prime_bench.cli.main:fails")

    return raising


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (
            UsageError("no such thing", hint="look again"),
            2,
            "error: no such thing\n\nhint: look again\n",
        ),
        (DataError("bad rows"), 3, "error: bad rows\n"),
        (EnvironmentFault("/x: the disk is full"), 4, "error: /x: the disk is full\n"),
        (OSError(errno.ENOSPC, "no space", "/y"), 4, "error: /y: the disk is full\n"),
        (PermissionError(errno.EACCES, "denied", "/z"), 4, "error: /z: permission denied\n"),
        (OSError(errno.EMFILE, "no", "/a"), 4, "error: /a: the process has too many files open"),
        (OSError(errno.ESTALE, "no", "/b"), 4, "error: /b: the network folder has lost the file"),
        (OSError(errno.EREMOTEIO, "Remote I/O error", "/c"), 4, "error: /c: Remote I/O error\n"),
        (FileNotFoundError(errno.ENOENT, "no", "/d"), 4, "error: /d: no such file or folder\n"),
        (MemoryError(), 4, "error: the memory does not suffice\n"),
        (
            ModuleNotFoundError("No module named 'polars.io'", name="polars.io"),
            4,
            "error: the package polars is not installed\n\nhint: pip install polars==",
        ),
        (ModuleNotFoundError("odd", name="prime_bench.odd"), 70, "error: a bug of prime-bench"),
        (PanicException("no thread"), 4, "error: a library has given up: no thread\n"),
        (OSError("odd"), 70, "error: a bug of prime-bench: OSError: odd\n"),
        (OSError(errno.EBADF, "bad"), 70, "error: a bug of prime-bench: OSError: "),
        (ValueError("odd"), 70, "error: a bug of prime-bench: ValueError: odd\n"),
        (AssertionError("shape"), 70, "error: a bug of prime-bench: AssertionError: shape\n"),
        (KeyboardInterrupt(), 130, "interrupted; "),
        (click.UsageError("wrong option"), 2, "wrong option"),
    ],
    ids=lambda part: repr(part)[:30],
)
@pytest.mark.parametrize("debug", [False, True])
def test_each_error_has_its_code_and_a_traceback_on_request_alone(
    raising, capsys, error, code, message, debug
):
    raising(error)

    assert exit_code(["--debug", "plan"] if debug else ["plan"]) == code

    out, err = capsys.readouterr()
    assert out == ""
    assert message in err
    shown = debug and not isinstance(error, click.ClickException)
    assert ("Traceback (most recent call last)" in err) == shown
    if code == 70:
        assert "prime-bench --debug" in err


LONG = "x" * 300
COMMANDS_OF_PATHS = (
    "plan {}",
    "run {}",
    "status {}",
    "report {}",
    "verify {}",
    "predict {}",
    "profile {}",
    "pack {} --output o.zip",
    "compare {} dense",
    "diff {} quick",
    "show recipe {}",
    "show dataset {}",
    "show backbone DNN --data {}",
    "export {} there",
    "status --runs-dir {}",
    "clean --runs-dir {}",
    "report --runs-dir {}",
    "verify --runs-dir {}",
    "ls datasets --data-dir {}",
    "plan quick --data-dir {}",
    "prepare synthetic --rows 100 --data-dir {}",
)


@pytest.mark.parametrize("command", COMMANDS_OF_PATHS)
@pytest.mark.parametrize("path", [LONG, "loop", "loop.toml", "below/file"])
def test_a_path_that_cannot_be_is_told(tmp_path, monkeypatch, capsys, command, path):
    """`Path.exists` and its like raise for most of these."""
    monkeypatch.chdir(tmp_path)
    for name in ("loop", "loop.toml"):
        Path(name).symlink_to(name)
    Path("below").touch()
    before = sorted(tmp_path.iterdir())

    code = exit_code([word.format(path) for word in command.split()])
    err = capsys.readouterr().err
    # `status` and `ls` have nothing to list.
    assert code in ((0, 2, 3, 4) if path != LONG else (2, 3, 4)), err
    assert code == 0 or path in err
    assert "a bug" not in err
    assert sorted(tmp_path.iterdir()) == before


def test_a_working_folder_that_was_deleted(tmp_path, monkeypatch, capsys):
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()

    assert exit_code(["ls", "recipes"]) == 0
    for command, said in (
        ("plan quick", "the current folder was deleted"),
        ("prepare synthetic --rows 100", "data: nothing can be made here"),
    ):
        assert exit_code(command.split()) == 4
        assert said in capsys.readouterr().err


def test_success_is_0_and_a_command_may_choose_its_code(raising):
    raising(click.exceptions.Exit(1))
    assert exit_code(["plan"]) == 1
    assert exit_code(["--version"]) == 0


def test_the_version_is_the_packages(capsys):
    exit_code(["--version"])

    assert __version__ in capsys.readouterr().out


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("pln", "no command `pln`; did you mean `plan`?"),
        ("RUN", "no command `RUN`; did you mean `run`?"),
        ("reprot", "no command `reprot`; did you mean `report`?"),
        ("xyz", "no command `xyz`\n"),
    ],
)
def test_a_misspelt_command_suggests_the_nearest(capsys, word, message):
    assert exit_code([word]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [["--no-such-option"], ["plan"], ["plan", "quick", "too-much"], ["run", "quick", "--only"]],
    ids=" ".join,
)
def test_wrong_arguments_are_a_usage_error(capsys, arguments):
    assert exit_code(arguments) == 2

    out, err = capsys.readouterr()
    assert out == ""
    assert "Error: " in err


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_is_listed_and_has_help(capsys, name):
    assert exit_code(["--help"]) == 0
    listed = capsys.readouterr().out
    assert f"\n  {name} " in listed

    assert exit_code([name, "--help"]) == 0
    helped = capsys.readouterr().out
    assert helped.startswith(f"Usage: prime-bench {name} ")
    assert "--debug" not in helped


def test_the_commands_are_loaded_when_they_are_called():
    """The heavy packages stay out of `--help`, and of the table of commands."""
    heavy = ("torch", "polars", "numpy", "fuxictr", "scipy", "rich", "jinja2")
    code = (
        "import sys; from prime_bench.cli.main import exit_code; exit_code(['--help']);"
        f"print([name for name in {heavy!r} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stderr == "[]\n"


def test_help_is_quick():
    def cpu_s():
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([*PROGRAM, "--help"], capture_output=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    # Of the processor, since other processes make the wall time longer; measured: 0.13 s.
    assert any(cpu_s() < 0.3 for _ in range(5))


def test_an_unknown_target_is_our_bug(monkeypatch, capsys):
    monkeypatch.setitem(COMMANDS, "plan", "prime_bench.cli.main:COMMANDS")

    assert exit_code(["plan"]) == 70
    assert "is not a command" in capsys.readouterr().err


def test_completion_is_not_disturbed_by_a_word_that_is_no_command():
    context = click.Context(cli, resilient_parsing=True)

    assert cli.get_command(context, "pln") is None


def test_a_reader_that_leaves_early_is_no_error():
    """`prime-bench plan main13 | head -1`: quiet, and no failure."""
    reader, writer = os.pipe()
    os.close(reader)  # before anything is written, so that the very first write finds nobody
    command = [*PROGRAM, "plan", "main13"]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)

    assert done.stderr == b""
    assert done.returncode == 0


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_an_error_that_cannot_be_printed_keeps_its_code(unbuffered):
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    with Path("/dev/full").open("wb", buffering=0) as full:
        done = subprocess.run([*PROGRAM, "plan", "nope"], stderr=full, check=False, env=environment)

    assert done.returncode == 2


def test_half_a_line_on_a_full_stderr_changes_no_code(monkeypatch):
    """As of a progress line: Python would flush it at its end, and exit with 120."""
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        full.write("half a line")
        monkeypatch.setattr(sys, "stderr", full)

        assert module._flushed(3) == 3

        full.flush()


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("arguments", [["--help"], ["ls", "recipes", "--json"]])
def test_an_output_that_is_cut_is_told(tmp_path, arguments, unbuffered):
    """As on a disk that is nearly full: the first write takes a part."""
    path = tmp_path / "out"
    with path.open("wb") as out:
        done = subprocess.run(
            PROGRAM + arguments,
            stdout=out,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000)),
        )

    assert path.stat().st_size == 1000
    assert done.returncode == 4
    assert done.stderr.startswith("error: the operating system: the file would be larger")
    assert "Exception" not in done.stderr


def test_a_closed_stdout_is_told():
    code = "import os, sys; os.close(1); os.execv(sys.executable, sys.argv[1:])"
    command = [sys.executable, "-c", code, *PROGRAM, "ls", "recipes", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.returncode == 2
    assert done.stderr.startswith("error: stdout is closed\n")


def test_the_program_passes_its_code_on():
    done = subprocess.run([*PROGRAM, "plan", "nope"], capture_output=True, text=True, check=False)

    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("error: nope: no such recipe")

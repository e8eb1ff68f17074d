"""Names of strangers on the terminal: every command that reads shows them, and obeys none."""

import contextlib
import io
import json
import os
import pty
import re
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from prime_bench.base.characters import display_width, has_unseen
from prime_bench.base.files import bundled_folder
from prime_bench.catalog import PLUGINS
from prime_bench.cli.main import exit_code, main
from prime_bench.cli.output import table_text
from prime_bench.recipe.job import Job
from prime_bench.settings.backbones import DNNSettings
from prime_bench.settings.training import TrainSpec
from prime_bench.store.record import RunRecord
from prime_bench.store.runs import Runs

VECTORS = Path(__file__).parents[1] / "vectors" / "hostile_names.json"
HOSTILE: dict[str, str] = json.loads(VECTORS.read_text(encoding="utf-8"))
ANSI, BIDI, OSC = (HOSTILE[key] for key in ("ANSI", "bidirectional", "OSC"))


@pytest.fixture
def folder(
    tmp_path: Path, plain_record: Callable[..., RunRecord], monkeypatch: pytest.MonkeyPatch
) -> Path:
    """Records, failures, logs, tables, recipes and files with hostile names."""
    monkeypatch.chdir(tmp_path)
    runs = Runs(tmp_path / "runs")
    first = ""
    for name in HOSTILE.values():
        for arm, plugin in {"dense": "dense", name: "prime"}.items():
            job = Job(
                fingerprint="f" * 64,
                backbone=name,
                backbone_settings=DNNSettings().plain(),
                plugin=plugin,
                plugin_settings=PLUGINS[plugin].settings().plain(),
                training=TrainSpec(),
                seed=1,
                numerics=1,
            )
            record = plain_record(
                job,
                dataset=name,
                arm=arm,
                data_notes=[name],
                result={"degenerate": name, "notes": [name]},
                environment={
                    "device": name,
                    "commit": name,
                    "versions": {"torch": name, name: name},
                },
            )
            runs.put(record)
            first = first or job.id
    broken = tmp_path / "runs" / "0123456789abcdef"
    broken.mkdir()
    (broken / "config.json").write_text(
        json.dumps({"job": job.plain(), "dataset": ANSI, "arm": ANSI, "origins": {ANSI: ANSI}})
    )
    (broken / "failure.json").write_text(json.dumps({"error": OSC, "traceback": f"{ANSI}\n{BIDI}"}))
    (broken / "log.txt").write_text(f"{ANSI}\n{OSC}\n")
    text = (bundled_folder("recipes") / "quick.toml").read_text(encoding="utf-8")
    text = re.sub(r"(?m)^title = .*$", lambda _: f"title = {json.dumps(ANSI + BIDI)}", text)
    (tmp_path / "quick.toml").write_text(text, encoding="utf-8")
    (tmp_path / f"{ANSI.replace('/', '')}.toml").write_text(text, encoding="utf-8")
    (tmp_path / "bad.toml").write_text(f'{json.dumps(ANSI)} = 1\n{json.dumps(BIDI)} = "x"\n')
    return tmp_path


def reading_commands(folder: Path) -> list[list[str]]:
    names = [path.name for path in sorted((folder / "runs").iterdir())]
    # HTML is read in tests/report/formats: its figures take minutes for so many names.
    formats = ("text", "markdown", "latex", "json", "csv")
    return [
        *(["report", "--format", format] for format in formats),
        ["report", "--level", "full"],
        ["ls"],
        ["ls", "recipes"],
        ["ls", "datasets"],
        *(["show", "job", name] for name in names[:4]),
        ["show", "recipe", "quick.toml"],
        ["status"],
        ["status", "--json"],
        ["status", "quick.toml"],
        ["verify"],
        ["verify", "--json"],
        ["compare", "dense", "prime"],
        ["compare", "dense", ANSI],
        ["compare", "dense", "prime", "--json"],
        ["plan", "quick.toml"],
        ["plan", "bad.toml"],
        ["diff", "quick.toml", "quick"],
        # What the user gives may be a file name that a shell has completed.
        *(["report", ANSI], ["show", "job", OSC], ["show", "recipe", BIDI], [ANSI], ["ls", ANSI]),
        *(["report", f"--{ANSI}"], ["report", "--only", ANSI], ["plan", "quick", "--set", OSC]),
        ["--debug", "report", ANSI],
    ]


Call = Callable[..., list[int | str | None]]


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch) -> Call:
    """Call commands as the program does, with these streams: their exit codes."""

    def call(
        commands: list[list[str]], *, stdout: io.TextIOWrapper, stderr: io.TextIOWrapper
    ) -> list[int | str | None]:
        codes = []
        for command in commands:
            with monkeypatch.context() as patch:
                patch.setattr(sys, "stdout", stdout)
                patch.setattr(sys, "stderr", stderr)
                with pytest.raises(SystemExit) as ended:
                    main(command)
            codes.append(ended.value.code)
        return codes

    return call


OnATerminal = Callable[..., tuple[str, list[int | str | None]]]


@pytest.fixture
def on_a_terminal(call: Call, monkeypatch: pytest.MonkeyPatch) -> OnATerminal:
    """Call commands from a terminal: all that it gets, and their exit codes."""

    def on_a_terminal(
        commands: list[list[str]], **environment: str
    ) -> tuple[str, list[int | str | None]]:
        monkeypatch.setenv("COLUMNS", "100")
        monkeypatch.setenv("TERM", "xterm")
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        reader, writer = pty.openpty()
        parts: list[bytes] = []

        def read() -> None:
            with contextlib.suppress(OSError):  # Linux says so where the other end was closed.
                while part := os.read(reader, 1 << 16):
                    parts.append(part)

        terminal = threading.Thread(target=read)
        terminal.start()
        with os.fdopen(writer, "w", encoding="utf-8") as stream:
            codes = call(commands, stdout=stream, stderr=stream)
        terminal.join()
        os.close(reader)
        return b"".join(parts).decode("utf-8").replace("\r\n", "\n"), codes

    return on_a_terminal


def test_a_terminal_gets_no_control_character_of_a_name(
    folder: Path, on_a_terminal: OnATerminal
) -> None:
    commands = reading_commands(folder)
    printed, codes = on_a_terminal(commands)
    assert set(codes) <= {0, 1, 2, 3}, list(zip(commands, codes, strict=True))
    ours = re.compile(r"\x1b\[[0-9;]*m")
    assert ours.search(printed)
    assert [line for line in ours.sub("", printed).split("\n") if has_unseen(line)] == []
    for shown in (r"\x1b[31mred\x1b[0m", r"\u202edef", r"\x1b]0;title\x07"):
        assert shown in printed


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("environment", [{"NO_COLOR": "1"}, {"TERM": "dumb"}], ids=repr)
def test_there_is_no_bold_where_the_user_wants_none(
    on_a_terminal: OnATerminal, environment: dict[str, str]
) -> None:
    printed, codes = on_a_terminal([["report"], ["status"]], **environment)
    assert 0 in codes
    assert "\x1b" not in printed


def test_a_name_with_a_line_break_forges_no_line(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in reading_commands(folder):
        # In a report a line break is a space, at which its lines may be broken.
        if command[0] != "report" and "--json" not in command:
            exit_code(command)
    out, err = capsys.readouterr()
    forged = re.compile(r"(?m)^\s*(error: it is broken|hint: run rm -rf|second)\b")
    assert not forged.search(out)
    assert not forged.search(err)


@pytest.mark.usefixtures("folder")
def test_json_has_names_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(["status", "--json"]) == 0
    out = capsys.readouterr().out
    names = {job["name"] for job in json.loads(out)["jobs"]}
    assert any(ANSI in name for name in names), names
    assert not has_unseen(out.replace("\n", ""))


ENCODINGS = ["cp1252", "ascii"]


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_no_encoding_of_the_terminal_is_our_bug(folder: Path, call: Call, encoding: str) -> None:
    """Letters that it lacks are escapes in texts; documents are UTF-8 whatever it is."""
    commands = reading_commands(folder)
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding) for _ in range(2))
    codes = call(commands, stdout=out, stderr=err)
    assert 70 not in codes, list(zip(commands, codes, strict=True))
    printed = cast("io.BytesIO", out.buffer).getvalue()
    assert printed
    assert b"Traceback" not in printed


@pytest.mark.usefixtures("folder")
def test_documents_are_utf_8_and_json_in_every_encoding(call: Call) -> None:
    outputs = {}
    for encoding in ("ascii", "utf-8"):
        out, err = (io.TextIOWrapper(io.BytesIO(), encoding) for _ in range(2))
        assert call([["report", "--json"]], stdout=out, stderr=err) == [0]
        outputs[encoding] = cast("io.BytesIO", out.buffer).getvalue()
    assert outputs["ascii"] == outputs["utf-8"]
    assert HOSTILE["CJK"] in {pair["dataset"] for pair in json.loads(outputs["ascii"])["pairs"]}


def test_a_table_is_laid_out_by_the_width_of_its_letters() -> None:
    rows = [["中文", "1"], ["e\u0301te\u0301", "22"], ["a\nb\x1b", "333"], ["👩‍🔬", "4"]]
    lines = table_text(rows, header=["name", "n"], n_words=1).splitlines()
    assert [display_width(line) for line in lines] == [13] * 5
    assert lines[3] == r"a\nb\x1b  333"
    broken = table_text([["k", "one two three"]], header=["key", "meaning"], n_words=2, width=13)
    assert broken.splitlines() == ["key  meaning", "k    one two", "     three"]

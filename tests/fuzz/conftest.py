"""Input that is nearly right: values, files and lines with something changed, by a seed."""

import copy
import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from prime_bench.cli.main import exit_code

MADE_UP = Path(__file__).parents[1] / "records"
ODD: list[Any] = [
    *(None, True, [], {}, "", "x", "\x1b[31m", "\ud800", "é" * 300, "../../x", "a:b", "nan"),
    *(0, -1, 1, 2**31, 2**63, 2**64, 10**400, 0.5, -0.0, 1e308, 1e-320, float("nan"), float("inf")),
    *([None], [[]], {"": None}, {"kind": "cost"}, ["x"] * 300),
]
BYTES = (b"", b"\x00", b"\xff\xfe", b"\xef\xbb\xbf", b"{", b"[" * 3000, b"null", b"\n" * 9, b'"')


def nested(n_levels: int) -> list[Any]:
    """A list in a list in a list."""
    found: list[Any] = []
    for _ in range(n_levels):
        found = [found]
    return found


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every container in a JSON value with each of its keys."""
    found: list[tuple[Any, Any]] = []
    if isinstance(value, dict | list):
        for key in list(value) if isinstance(value, dict) else range(len(value)):
            found += [(value, key), *places(value[key])]
    return found


def changed(value: Any, chance: random.Random) -> Any:
    """A copy with one to three of its values replaced, deleted, moved or renamed."""
    made = copy.deepcopy(value)
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        where = places(made)
        if not where:
            return chance.choice(ODD)
        container, key = chance.choice(where)
        match chance.randrange(6):
            case 0 | 1:
                container[key] = copy.deepcopy(chance.choice([*ODD, nested(120)]))
            case 2:
                del container[key]
            case 3:
                container[key] = copy.deepcopy(chance.choice(chance.choice(where)[:1]))
            case 4 if isinstance(container, dict):
                container[chance.choice(("", "x", "schema", "job", f"{key}_"))] = container[key]
            case _:
                other, their = chance.choice(where)
                container[key] = copy.deepcopy(other[their]) if their in places_of(other) else None
    return made


def places_of(container: Any) -> Any:
    """The keys that a container still has."""
    return container if isinstance(container, dict) else range(len(container))


def torn(content: bytes, chance: random.Random) -> bytes:
    """The content with bytes cut off, changed, added or repeated."""
    at, to = sorted(chance.randrange(len(content) + 1) for _ in range(2))
    match chance.randrange(5):
        case 0:
            return content[:at]
        case 1:
            return content[:at] + content[to:]
        case 2:
            return content[:at] + chance.choice(BYTES) + content[at:]
        case 3:
            return content[:to] + content[at:]
        case _:
            return chance.choice(BYTES)


def mangled_json(content: bytes, chance: random.Random) -> bytes:
    """A JSON file with something wrong in its values, or in its bytes."""
    if chance.random() < 0.3:
        return torn(content, chance)
    return json.dumps(changed(json.loads(content), chance)).encode()


@pytest.fixture
def mangle() -> Callable[[bytes, random.Random], bytes]:
    return mangled_json


@pytest.fixture
def tear() -> Callable[[bytes, random.Random], bytes]:
    return torn


@pytest.fixture
def odd_words() -> list[str]:
    """Odd values as words of a command or of a recipe."""
    return [json.dumps(value) if not isinstance(value, str) else value for value in ODD]


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Run a command; its exit code, stdout and stderr. It may not end as a bug of ours."""

    def call(arguments: list[str], *, allowed: tuple[int, ...], what: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = exit_code(arguments)
        out, err = capsys.readouterr()
        assert code in allowed, f"{what}\n{arguments}: {code}\n{err}"
        assert "Traceback" not in err, what
        return code, out, err

    return call


@pytest.fixture
def made_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The folders of six made-up records in `runs` of an empty working folder."""
    monkeypatch.chdir(tmp_path)
    folders = sorted(path for path in MADE_UP.iterdir() if (path / "record.json").is_file())
    for folder in folders[:: len(folders) // 6][:6]:
        shutil.copytree(folder, tmp_path / "runs" / folder.name)
        record = json.loads((folder / "record.json").read_bytes())
        files = {
            "config.json": {key: record[key] for key in ("job_id", "job", "dataset", "arm")},
            "environment.json": record["environment"],
            "failure.json": {"error": "RuntimeError: odd", "traceback": "Traceback\n..."},
            "progress.json": {"epoch": 1, "rows": 5, "rows_total": 9, "rows_per_s": 3.0},
        }
        own = tmp_path / "runs" / folder.name
        for name, table in files.items():
            (own / name).write_text(json.dumps(table))
        lines = [json.dumps(line) for line in record.get("history", [])]
        (own / "history.jsonl").write_text("".join(f"{line}\n" for line in lines))
        (own / "log.txt").write_text("2026-01-01 00:00:00 x\n")
    return sorted((tmp_path / "runs").iterdir())

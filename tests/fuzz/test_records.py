"""Files of jobs with something wrong in them: every command goes on with the others."""

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest

Call = Callable[..., tuple[int, str, str]]
Mangle = Callable[[bytes, random.Random], bytes]
READING = (
    "status",
    "report",
    "report --table main --json",
    "verify",
    "compare dense prime",
    "clean --unfinished",
    "plan apg",
    "status apg",
    "show job {}",
    "show job {} --json",
)
FILES = ("config.json", "environment.json", "failure.json", "progress.json", "history.jsonl")


@pytest.mark.parametrize("seed", range(30))
def test_a_mangled_record_hides_no_other(
    made_up: list[Path], call: Call, mangle: Mangle, seed: int
) -> None:
    chance = random.Random(seed)
    mangled = chance.choice(made_up)
    content = mangle((mangled / "record.json").read_bytes(), chance)
    (mangled / "record.json").write_bytes(content)
    what = f"seed {seed}, record.json: {content[:2000]!r}"

    _, out, _ = call(["status", "--json"], allowed=(0,), what=what)
    jobs = {job["job_id"]: job["state"] for job in json.loads(out)["jobs"]}
    assert {jobs[path.name] for path in made_up if path != mangled} == {"done"}, what
    assert jobs[mangled.name] in ("done", "broken"), what
    for command in chance.sample(READING, 4):
        words = [word.format(mangled.name) for word in command.split()]
        # An arm of which no other record is left is a name that `compare` does not know.
        call(words, allowed=(0, 1, 2, 3) if words[0] == "compare" else (0, 1, 3), what=what)


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("done", [False, True])
def test_mangled_files_of_a_job_hide_neither_it_nor_another(
    made_up: list[Path], call: Call, mangle: Mangle, seed: int, done: bool
) -> None:
    chance = random.Random(seed)
    mangled = chance.choice(made_up)
    if not done:
        (mangled / "record.json").unlink()
    names = chance.sample(FILES, 2)
    for name in FILES:
        content = (mangled / name).read_bytes()
        if name in names:
            lines = content.splitlines() if name == "history.jsonl" else [content]
            content = b"\n".join(mangle(line, chance) for line in lines)
            (mangled / name).write_bytes(content)
        elif chance.random() < 0.4:
            (mangled / name).unlink()
    texts = {name: (mangled / name).read_bytes()[:700] for name in names}
    what = f"seed {seed}: {texts}"

    _, out, _ = call(["status", "--json"], allowed=(0,), what=what)
    jobs = {job["job_id"]: job["state"] for job in json.loads(out)["jobs"]}
    assert {jobs.pop(path.name) for path in made_up if path != mangled} == {"done"}, what
    assert set(jobs.values()) <= ({"done"} if done else {"failed", "interrupted"}), what
    for command in ("status", "show job {}", "show job {} --json", chance.choice(READING)):
        words = [word.format(mangled.name) for word in command.split()]
        # An arm of which no other record is left is a name that `compare` does not know.
        call(words, allowed=(0, 1, 2, 3) if words[0] == "compare" else (0, 1, 3), what=what)

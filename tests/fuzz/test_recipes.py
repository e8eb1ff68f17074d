"""Recipes with something wrong in them: a plan, or a message that names the file."""

import random
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from prime_bench.base.files import bundled_folder

Call = Callable[..., tuple[int, str, str]]
SHIPPED = sorted(bundled_folder("recipes").glob("*.toml"))
KEYS = ("seeds", "arms", "kind", "schema", "rank", "plugin", "hidden_units", "max_epochs", "card")
HEADERS = ("[arm.x]", "[dataset]", "[[dataset]]", "[backbone.DNN.on.avazu]", "[probe]", "[a.b.c]")


def changed_lines(text: str, chance: random.Random, odd: list[str]) -> str:
    """The text with one to three lines changed, deleted, doubled or added."""
    lines = text.splitlines()
    for _ in range(chance.choice((1, 1, 2, 3))):
        at = chance.randrange(len(lines))
        value = chance.choice(odd)
        key, equals, old = lines[at].partition("=")
        match chance.randrange(7):
            case 0 if equals:
                lines[at] = f"{key}= {value}"
            case 1 if equals:
                lines[at] = f'{key}= "{value}"'
            case 2 if equals:
                lines[at] = f"{chance.choice(KEYS)} ={old}"
            case 3:
                del lines[at]
            case 4:
                lines.insert(at, chance.choice(lines))
            case 5:
                lines.insert(at, chance.choice(HEADERS))
            case _:
                lines[at] = re.sub(r"\d+", lambda found: found[0] * chance.choice((0, 2, 40)), old)
        lines = lines or [""]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("seed", range(50))
def test_a_changed_recipe_is_planned_or_refused(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    call: Call,
    tear: Callable[[bytes, random.Random], bytes],
    odd_words: list[str],
    seed: int,
) -> None:
    monkeypatch.chdir(tmp_path)
    chance = random.Random(seed)
    text = chance.choice(SHIPPED).read_text(encoding="utf-8")
    if chance.random() < 0.2:
        content = tear(text.encode(), chance)
    else:
        content = changed_lines(text, chance, odd_words).encode(errors="surrogatepass")
    Path("x.toml").write_bytes(content)
    what = f"seed {seed}: {content[:3000]!r}"

    code, _, err = call(["plan", "x.toml", "--json"], allowed=(0, 2, 3), what=what)
    assert code == 0 or "x.toml" in err or "--set" in err or "dataset" in err, what
    call(["ls", "recipes"], allowed=(0,), what=what)
    call(["diff", "x.toml", "quick"], allowed=(0, 2), what=what)
    assert [path.name for path in tmp_path.iterdir()] == ["x.toml"]

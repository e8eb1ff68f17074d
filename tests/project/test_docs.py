"""Documentation is made from the code, or checked against it."""

import ast
import functools
import importlib
import inspect
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import click
import pytest

from prime_bench.base.errors import UsageError
from prime_bench.cli.main import COMMANDS, cli
from prime_bench.data.card import DatasetCard
from prime_bench.recipe.file import load_recipe
from prime_bench.settings.keys import keys_of

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
write_docs = importlib.import_module("write_docs")
README = (ROOT / "README.md").read_text(encoding="utf-8")
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
LINKED = [*DOCUMENTS, ROOT / "CHANGELOG.md", *sorted((ROOT / "reports").rglob("*.md"))]


def test_made_parts_are_fresh() -> None:
    command = [sys.executable, str(ROOT / "scripts" / "write_docs.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.stdout == ""
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_command_is_in_the_readme(name: str) -> None:
    """In its text; the README has no list of files in which every name stands anyway."""
    assert re.search(rf"prime-bench {name}\b", README)


def test_the_readme_is_short() -> None:
    assert len(README.encode()) <= 12_000
    assert "<!-- made" not in README


@pytest.mark.parametrize("path", LINKED, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    links = re.findall(r"\]\((?!https?://|#)([^)#]+)", text)
    missing = [link for link in links if not (path.parent / link).exists()]

    assert missing == []


def test_python_in_the_readme_calls_what_there_is() -> None:
    """Of docs/python.md and docs/your-own-plugin.md every block is run elsewhere."""
    n_calls = 0
    for block in re.findall(r"^```python\n(.*?)^```$", README, flags=re.MULTILINE | re.DOTALL):
        tree, names = ast.parse(block), {}
        imports = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
        exec(compile(ast.Module(imports, []), "README.md", "exec"), names)
        for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
            first, *attributes = ast.unparse(call.func).split(".")
            if first in names:
                n_calls += 1
                called = functools.reduce(getattr, attributes, names[first])
                given = {str(keyword.arg): None for keyword in call.keywords}
                inspect.signature(called).bind(*call.args, **given)

    assert n_calls >= 4


RECIPES = re.findall(
    r"^```toml\n(schema = 1\ntitle = [^\n]*\n(?:kind = [^\n]*\n)?seeds.*?)^```$",
    "\n".join(path.read_text(encoding="utf-8") for path in DOCUMENTS),
    flags=re.MULTILINE | re.DOTALL,
)


def test_recipes_in_documents_were_found() -> None:
    assert len(RECIPES) >= 5


@pytest.mark.parametrize("text", RECIPES, ids=lambda text: text.splitlines()[1])
def test_a_recipe_in_a_document_is_one(text: str, tmp_path: Path) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text(text.replace('plugin = "my_gate:Gate"', 'plugin = "prime"'), encoding="utf-8")

    assert load_recipe(path).job_specs


def test_every_key_is_explained() -> None:
    """A key without a docstring would stand in the documents with its name alone."""
    silent = [
        f"{model.__name__}.{key.name}"
        for model in write_docs.models()
        for key in keys_of(model)
        if not key.doc
    ]

    assert silent == []


def test_the_card_in_the_documents_is_one() -> None:
    text = (ROOT / "docs" / "cards.md").read_text(encoding="utf-8")
    (card,) = re.findall(r"^```text\n(name = .*?)^```$", text, flags=re.MULTILINE | re.DOTALL)
    table = tomllib.loads(card)
    file = {"md5": "0" * 32, "rows": 2, "positives": 1}

    assert DatasetCard.parse(table, where="card").name == "ourlog"
    every = {"train": file, "valid": file, "test": file}
    assert DatasetCard.parse({**table, "files": every}, where="card").files.keys() == every.keys()
    with pytest.raises(UsageError, match="files: give train, valid and test, or none"):
        DatasetCard.parse({**table, "files": {"train": file}}, where="card")


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_files_named_in_documents_exist(path: Path) -> None:
    """`training/loop.py` or `prime_bench/training/loop.py`; a bare `loop.py` may be a user's."""
    if path.name in ("files.md", "decisions.md"):
        pytest.skip("made, or about files of other packages as well")
    named = re.findall(r"`((?:\w+/)+\w+\.py)`", path.read_text(encoding="utf-8"))
    missing = [
        name
        for name in named
        if not (ROOT / name).exists() and not (ROOT / "prime_bench" / name).exists()
    ]

    assert missing == []


def slug(heading: str) -> str:
    """What a heading is called in a link, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


@pytest.mark.parametrize("path", LINKED, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_to_headings_lead_there(path: Path) -> None:
    links = re.findall(r"\]\((?!https?://)([^)#]*)#([^)]+)\)", path.read_text(encoding="utf-8"))
    missing = []
    for file, anchor in links:
        text = (path.parent / file if file else path).read_text(encoding="utf-8")
        if anchor not in map(slug, re.findall(r"^#+ (.+)", text, flags=re.MULTILINE)):
            missing.append(f"{file}#{anchor}")

    assert missing == []


def commands_with_json() -> list[str]:
    names = []
    for name in COMMANDS:
        command = cli.get_command(click.Context(cli), name)
        subs = command.commands if isinstance(command, click.Group) else {"": command}
        names += [
            f"{name} {inner}".strip()
            for inner, sub in subs.items()
            if sub and any(parameter.name == "as_json" for parameter in sub.params)
        ]
    return names


def test_what_json_prints_is_documented() -> None:
    text = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")

    assert re.findall(r"^\| `([^`]+)` \|", text, flags=re.MULTILINE) == commands_with_json()


def test_readme_has_links() -> None:
    assert len(re.findall(r"\]\((?!https?://|#)([^)#]+)", README)) >= 5


def test_numerics_has_a_line_for_each_version() -> None:
    from prime_bench.base.identity import NUMERICS

    text = (ROOT / "docs" / "numerics.md").read_text(encoding="utf-8")
    versions = [int(number) for number in re.findall(r"^## (\d+)", text, flags=re.MULTILINE)]

    assert versions == list(range(1, NUMERICS + 1)) or versions == list(range(NUMERICS, 0, -1))

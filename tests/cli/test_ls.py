"""`ls`, `show recipe` and `show arm`: what they print is what there is."""

import json
import re
import tomllib
from collections.abc import Callable
from importlib.metadata import EntryPoint
from pathlib import Path

import click
import pytest

from prime_bench import catalog
from prime_bench.base.files import bundled_folder
from prime_bench.catalog import BACKBONES, PLUGINS
from prime_bench.cli.main import COMMANDS, cli, exit_code
from prime_bench.data.card import card_names
from prime_bench.recipe.file import load_recipe
from prime_bench.recipe.study import load_study
from prime_bench.report.figures import FIGURES
from prime_bench.report.tables.definition import shipped_tables

RECIPES = sorted(bundled_folder("recipes").glob("*.toml"))
Answer = Callable[..., str]


@pytest.fixture
def answer(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Answer:
    monkeypatch.chdir(tmp_path)

    def answer(*arguments: str) -> str:
        assert exit_code([*arguments]) == 0
        return capsys.readouterr().out

    return answer


def test_ls_alone_names_everything(answer: Answer) -> None:
    text = answer("ls")
    assert all(len(line) <= 80 for line in text.splitlines())
    names = set(text.replace(",", " ").split())
    wanted = [*BACKBONES, *PLUGINS, *card_names(), *shipped_tables(), *FIGURES]
    assert names >= {*wanted, *(path.stem for path in RECIPES)}
    listed = json.loads(answer("ls", "--json"))
    assert set(listed) == {
        *("schema", "backbones", "arms", "recipes", "studies", "datasets", "tables", "figures")
    }


def test_arms_are_listed_with_label_and_source(answer: Answer) -> None:
    rows = json.loads(answer("ls", "arms", "--json"))["arms"]
    assert [row["name"] for row in rows] == list(PLUGINS)
    text = answer("ls", "arms")
    assert all(entry.cite in text for entry in PLUGINS.values())


def test_entry_points_are_listed_without_being_loaded(
    answer: Answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = EntryPoint("gate", "no_such_module:Gate", "prime_bench.plugins")
    monkeypatch.setattr(catalog, "entry_points", lambda group: [own] if group == own.group else [])
    (row,) = [r for r in json.loads(answer("ls", "arms", "--json"))["arms"] if r["name"] == "gate"]
    assert row["cite"] == "no_such_module:Gate"
    assert "no_such_module:Gate" in answer("ls", "arms")
    assert "gate" in answer("ls")


def test_recipes_of_the_working_folder_are_listed_too(answer: Answer, tmp_path: Path) -> None:
    text = (bundled_folder("recipes") / "quick.toml").read_text(encoding="utf-8")
    (tmp_path / "recipes").mkdir()
    (tmp_path / "mine.toml").write_text(text, encoding="utf-8")
    (tmp_path / "recipes" / "other.toml").write_text(text, encoding="utf-8")
    (tmp_path / "pyproject.toml").write_text("[project]\n", encoding="utf-8")
    (tmp_path / "broken.toml").write_text("[", encoding="utf-8")
    rows = json.loads(answer("ls", "recipes", "--json"))["recipes"]
    names = [row["name"] for row in rows]
    assert names == [*(path.stem for path in RECIPES), "mine.toml", "recipes/other.toml"]
    for row in rows:
        recipe = load_recipe(row["name"])
        assert (row["title"], row["kind"]) == (recipe.title, recipe.kind)


def test_studies_are_listed_those_of_the_working_folder_too(answer: Answer, tmp_path: Path) -> None:
    text = (bundled_folder("recipes") / "studies" / "paper.toml").read_text(encoding="utf-8")
    (tmp_path / "recipes" / "studies").mkdir(parents=True)
    (tmp_path / "mine.toml").write_text(text, encoding="utf-8")
    (tmp_path / "recipes" / "studies" / "other.toml").write_text(text, encoding="utf-8")
    (tmp_path / "quick.toml").write_text('schema = 1\nseeds = [1]\narms = ["dense"]\n')
    rows = json.loads(answer("ls", "studies", "--json"))["studies"]
    names = [row["name"] for row in rows]
    assert names == ["miniature", "paper", "mine.toml", "recipes/studies/other.toml"]
    for row in rows:
        study = load_study(row["name"])
        assert (row["title"], row["recipes"]) == (study.title, len(study.recipes))
    assert "mine.toml" in answer("ls", "studies")


def test_datasets_are_listed_with_their_tables(answer: Answer, tmp_path: Path) -> None:
    assert exit_code(["prepare", "synthetic", "--rows", "400"]) == 0
    answer("ls")
    broken = tmp_path / "data" / "broken"
    broken.mkdir()
    (broken / "manifest.json").write_text("{", encoding="utf-8")
    rows = {row["name"]: row for row in json.loads(answer("ls", "datasets", "--json"))["datasets"]}
    assert list(rows) == card_names()
    (folder,) = rows["synthetic"]["tables"]
    assert (tmp_path / folder / "manifest.json").is_file()
    assert rows["avazu"]["tables"] == []


def test_tables_and_figures_are_listed(answer: Answer) -> None:
    tables = json.loads(answer("ls", "tables", "--json"))["tables"]
    assert [row["name"] for row in tables] == shipped_tables()
    figures = json.loads(answer("ls", "figures", "--json"))["figures"]
    assert {row["name"]: row["title"] for row in figures} == FIGURES


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_a_recipe_is_printed_as_its_file_has_it(answer: Answer, path: Path) -> None:
    text = answer("show", "recipe", path.stem)
    assert text == path.read_text(encoding="utf-8")
    shown = json.loads(answer("show", "recipe", path.stem, "--json"))
    assert shown["text"] == text
    assert shown["seeds"] == tomllib.loads(text)["seeds"]


@pytest.mark.parametrize("name", PLUGINS)
def test_an_arm_is_shown_with_its_keys_and_defaults(answer: Answer, name: str) -> None:
    shown = json.loads(answer("show", "arm", name, "--json"))
    defaults = PLUGINS[name].settings().model_dump(mode="json")
    assert {key["name"]: key["default"] for key in shown["keys"]} == defaults
    assert all(key["doc"].endswith(".") for key in shown["keys"]), shown["keys"]
    text = answer("show", "arm", name)
    assert PLUGINS[name].cite in text
    assert all(key["doc"] in " ".join(text.split()) for key in shown["keys"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["arm", "prim"], "unknown plug-in `prim`; did you mean `prime`?"),
        (["recipe", "quikc"], "no such recipe; did you mean `quick`?"),
    ],
)
def test_a_wrong_name_suggests_the_nearest(
    capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert exit_code(["show", *arguments]) == 2
    assert message in capsys.readouterr().err


def commands(group: click.Group, context: click.Context) -> list[click.Command]:
    found = []
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        found.append(command)
        if isinstance(command, click.Group):
            found += commands(command, context)
    return found


@pytest.mark.parametrize("command", commands(cli, click.Context(cli)), ids=lambda c: c.name)
def test_a_summary_fits_a_terminal_of_80_columns(command: click.Command) -> None:
    longest = max(map(len, COMMANDS))
    summary = command.get_short_help_str(limit=80 - 2 - longest - 2)
    assert summary.endswith(".")
    assert not summary.endswith("...")


HEADS = {
    "backbones": ["backbone", "Top-NN", "sites", "citation"],
    "arms": ["arm", "label", "source"],
    "recipes": ["recipe", "kind", "title"],
    "studies": ["study", "recipes", "title"],
    "datasets": ["data set", "prepared tables", "title"],
    "tables": ["table", "title"],
    "figures": ["figure", "what it shows"],
}
LISTINGS = [
    (
        "backbones",
        {"name": "A", "top_nn": ["l1", "l2", "l3"], "sites": ["s", "t"], "cite": "Me"},
        ["A", "l1 ... l3", "s, t", "Me"],
    ),
    (
        "backbones",
        {"name": "A", "top_nn": ["l1", "l2"], "sites": [], "cite": "Me"},
        ["A", "l1, l2", "Me"],
    ),
    (
        "backbones",
        {"name": "A", "top_nn": [], "sites": None, "cite": "Me"},
        ["A", "none", "-", "Me"],
    ),
    (
        "backbones",
        {"name": "A", "top_nn": None, "sites": None, "cite": "m:A"},
        ["A", "-", "-", "m:A"],
    ),
    ("arms", {"name": "a", "label": "An arm", "cite": "Me"}, ["a", "An arm", "Me"]),
    ("recipes", {"name": "r", "kind": "cost", "title": "What"}, ["r", "cost", "What"]),
    ("studies", {"name": "s", "recipes": 4, "title": "What"}, ["s", "4", "What"]),
    (
        "datasets",
        {"name": "d", "tables": ["D/a", "D/b"], "title": "What"},
        ["d", "D/a, D/b", "What"],
    ),
    ("datasets", {"name": "d", "tables": [], "title": "What"}, ["d", "none", "What"]),
    ("tables", {"name": "t", "title": "What"}, ["t", "What"]),
    ("figures", {"name": "f", "title": "What"}, ["f", "What"]),
]


@pytest.mark.parametrize(("kind", "row", "cells"), LISTINGS)
def test_each_column_has_what_its_head_says(
    answer: Answer,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    row: dict[str, object],
    cells: list[str],
) -> None:
    monkeypatch.setattr("prime_bench.api.listing", lambda given, **_: [row] * (given == kind))

    lines = [re.split(r" {2,}", line) for line in answer("ls", kind).splitlines()]
    assert lines == [HEADS[kind], cells]
    assert json.loads(answer("ls", kind, "--json")) == {"schema": 1, kind: [row]}


def test_of_nothing_no_table_is_printed(answer: Answer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("prime_bench.api.listing", lambda *_, **__: [])

    assert answer("ls", "recipes") == ""
    assert json.loads(answer("ls", "recipes", "--json")) == {"schema": 1, "recipes": []}

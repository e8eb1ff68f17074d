"""Which of the names that `report` and `pack` are given is the recipe, and which are sources."""

from pathlib import Path

import click
import pytest

from prime_bench.base.errors import UsageError
from prime_bench.cli.sources import recipe_and_places


@click.command()
@click.argument("given", nargs=-1)
@click.option("--runs-dir", "runs_dirs", multiple=True, type=Path, default=[Path("runs")])
def command(given: tuple[str, ...], runs_dirs: tuple[Path, ...]) -> None:
    """Take what `report` takes."""


def found(line: str) -> tuple[str | None, list[str]]:
    context = command.make_context("report", line.split())
    given, runs_dirs = context.params["given"], context.params["runs_dirs"]
    recipe, places = recipe_and_places(context, given, runs_dirs)
    return recipe, [str(place) for place in places]


@pytest.fixture(autouse=True)
def _folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Folders of records, two of which have names that recipes have too."""
    monkeypatch.chdir(tmp_path)
    for name in ("records", "quick", "odd.toml"):
        (tmp_path / name).mkdir()


@pytest.mark.parametrize(
    ("line", "recipe", "places"),
    [
        ("", None, ["runs"]),
        ("--runs-dir x", None, ["x"]),
        ("quick", "quick", ["runs"]),
        ("quick/", None, ["quick"]),
        ("quick quick", "quick", ["quick"]),
        ("odd.toml", "odd.toml", ["runs"]),
        ("records", None, ["records"]),
        ("records nowhere", "nowhere", ["records"]),
        ("b.zip quick records a.zip", "quick", ["b.zip", "records", "a.zip"]),
        ("b.zip --runs-dir x --runs-dir records", None, ["b.zip", "x", "records"]),
    ],
)
def test_the_recipe_and_the_sources_in_their_order(
    line: str, recipe: str | None, places: list[str]
) -> None:
    assert found(line) == (recipe, places)


def test_a_second_recipe_is_refused() -> None:
    with pytest.raises(UsageError) as caught:
        found("records quick main13")
    assert caught.value.message == (
        "main13: neither a bundle nor a folder, and quick is already the recipe"
    )

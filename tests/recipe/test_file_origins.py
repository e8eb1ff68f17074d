from pathlib import Path
from textwrap import dedent

import pytest

from prime_bench.recipe.file import given, load_recipe, origins

RECIPE = """\
    schema = 1
    title = "Small"
    seeds = [7]
    arms = ["narrow"]

    [arm.narrow]
    plugin = "prime"
    rank = 2

    [dataset.synthetic]
    rows = 1000

    [training]
    embedding_dim = 4
    max_epochs = 1

    [backbone.DNN]
    hidden_units = [8]
    net_dropout = 0.1
    [backbone.DNN.on.synthetic]
    net_dropout = 0.2
"""


@pytest.fixture
def recipe(tmp_path: Path) -> str:
    path = tmp_path / "small.toml"
    path.write_text(dedent(RECIPE), encoding="utf-8")
    return str(path)


def of(recipe: str, *changes: str) -> dict[str, str]:
    loaded = load_recipe(recipe, changes=changes)
    return dict(origins(loaded, loaded.job_specs()[0]))


def test_what_the_file_sets_and_nothing_else(recipe: str) -> None:
    assert of(recipe) == dict.fromkeys(
        [
            "seed",
            "training.max_epochs",
            "backbone.hidden_units",
            "backbone.net_dropout",
            "backbone.embedding_dim",
            "arm.rank",
            "data.rows",
        ],
        "recipe",
    )


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ("seeds=[1]", "seed"),
        ("training.patience=3", "training.patience"),
        ("training.embedding_dim=8", "backbone.embedding_dim"),
        ("backbone.DNN.on.synthetic.net_dropout=0.3", "backbone.net_dropout"),
        ("arm.narrow.bags=2", "arm.bags"),
        ("dataset.synthetic.rows=2000", "data.rows"),
    ],
)
def test_origins_distinguish_set_from_the_file(recipe: str, change: str, key: str) -> None:
    found = of(recipe, change)
    assert found[key] == "--set"
    assert [other for other in found if found[other] == "--set"] == [key]


def test_the_table_of_a_data_set_wins_over_the_backbones_own(recipe: str) -> None:
    assert of(recipe, "backbone.DNN.net_dropout=0.3")["backbone.net_dropout"] == "recipe"


def test_a_whole_table_that_is_set_is_no_part_of_the_file() -> None:
    assert given({"a": {"b": 1}, "c": 2}, [("a",)]) == {("a",): "--set", ("c",): "recipe"}

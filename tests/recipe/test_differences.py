from dataclasses import replace

import pytest

from prime_bench.recipe.differences import KeyDifference, differing_keys, resolved, value_text
from prime_bench.recipe.file import load_recipe
from prime_bench.recipe.sweep import CandidateBudget


def table(*changes: str) -> dict[str, object]:
    return resolved(load_recipe("quick", changes=changes), {"synthetic": {"rows": 5}})


def test_a_recipe_does_not_differ_from_itself() -> None:
    assert differing_keys(table(), table()) == []


def test_a_key_of_each_part_is_found_with_its_dotted_name() -> None:
    right = table("seeds=[1]", "training.patience=9", "backbone.DNN.net_dropout=0.7")
    assert differing_keys(table(), right) == [
        KeyDifference(key="seeds", left=table()["seeds"], right=[1]),
        KeyDifference(key="training.patience", left=2, right=9),
        KeyDifference(key="backbone.DNN.on.synthetic.net_dropout", left=0.1, right=0.7),
    ]


def test_a_key_that_one_has_alone_comes_after_those_of_both() -> None:
    left, right = {"a": 1, "b": 2}, {"c": 3, "b": 4}
    assert differing_keys(left, right) == [
        KeyDifference(key="a", left=1, right=None),
        KeyDifference(key="b", left=2, right=4),
        KeyDifference(key="c", left=None, right=3),
    ]


def test_defaults_are_written_out() -> None:
    assert table()["training.max_gradient_norm"] == 10.0


def test_every_part_of_a_recipe_has_its_keys() -> None:
    budget = CandidateBudget(candidates=3, seed=4)
    recipe = replace(load_recipe("subgroups"), budget=budget)
    arms, settings = {arm.name: arm for arm in recipe.arms}, recipe.probe
    assert settings is not None

    found = resolved(recipe, {"avazu": {"rows": 5, "deep": {"er": 1, "none": {}}}})

    own = [dataset for dataset in recipe.datasets if dataset in recipe.backbones["DNN"]]
    expected: dict[str, object] = {
        "title": recipe.title,
        "kind": "subgroups",
        "seeds": recipe.seeds,
        "arms": list(arms),
        "arm.prime.label": arms["prime"].label,
        "arm.prime.plugin": "prime",
        "arm.prime.rank": 16,
        "dataset.avazu.rows": 5,
        "dataset.avazu.deep.er": 1,
        "training.patience": recipe.training.patience,
        **{
            f"backbone.DNN.on.{name}.hidden_units": list(
                recipe.backbones["DNN"][name].plain()["hidden_units"]  # type: ignore[arg-type]
            )
            for name in own
        },
        **{f"probe.{key}": value for key, value in settings.plain().items()},
        "budget.candidates": 3,
        "budget.seed": 4,
        "report.choose": None,
    }
    assert found.items() >= expected.items()
    parts = [key.partition(".")[0] for key in found]
    assert list(dict.fromkeys(parts)) == [
        *("title", "kind", "seeds", "arms", "arm", "dataset", "training", "backbone", "probe"),
        *("budget", "report"),
    ]
    plain = resolved(load_recipe("quick"), {})
    assert not [key for key in plain if key.startswith(("probe", "budget", "dataset"))]


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), ("é", '"é"'), ([1, 2.5], "[1, 2.5]"), (False, "false"), (0, "0")],
)
def test_a_value_is_shown_as_a_recipe_has_it(value: object, text: str) -> None:
    assert value_text(value) == text

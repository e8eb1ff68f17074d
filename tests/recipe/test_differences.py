from prime_bench.recipe.differences import KeyDifference, differing_keys, resolved
from prime_bench.recipe.file import load_recipe


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

"""Report definitions."""

import re
from pathlib import Path

import pytest

from prime_bench.base.errors import UsageError
from prime_bench.base.files import bundled_folder
from prime_bench.recipe.file import load_recipe
from prime_bench.report.tables.definition import (
    PivotDefinition,
    shipped_tables,
    shows_any_metric,
)
from prime_bench.report.tables.expected import load_bars, load_paper
from prime_bench.report.tables.kinds import load_definition, read_definition

MAIN = bundled_folder("reports") / "main.toml"


def test_shipped_definitions_load() -> None:
    names = [path.stem for path in bundled_folder("reports").glob("*.toml")]

    assert "main" in names
    assert all(load_definition(name).decimals >= 1 for name in names)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("decimals", "decimal", "unknown key; did you mean `decimals`?"),
        ("decimals = 4", "decimals = 0", "decimals"),
        ("schema = 1", "schema = 2", "schema"),
        ('kind = "pivot"', 'kind = "pivott"', "kind: expected one of pivot, "),
        ('label = "{arm.label}"', 'label = "{seed}"', "`{seed}` is not an item of `each`"),
        ('each = ["metric", "arm"]', 'each = ["arm"]', "`{metric}` is not an item of `each`"),
        ('shows = "level"', 'shows = "levl"', "no statistic `levl`; did you mean `level`?"),
        ("schema = 1", "schema = ", "cannot read the report definition"),
    ],
)
def test_a_fault_is_named(tmp_path: Path, old: str, new: str, words: str) -> None:
    path = tmp_path / "main.toml"
    path.write_text(MAIN.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")

    with pytest.raises(UsageError) as caught:
        read_definition(path)
    assert words in caught.value.message
    assert str(path) in caught.value.message


def test_a_column_that_tells_no_arm_is_named(tmp_path: Path) -> None:
    path = tmp_path / "pairs.toml"
    text = (MAIN.parent / "pairs.toml").read_text(encoding="utf-8")
    path.write_text(text.replace('rows = ["backbone.arm"]', 'rows = ["backbone"]'), "utf-8")

    with pytest.raises(UsageError, match="neither `rows` nor `each` has an arm"):
        read_definition(path)


def test_an_unknown_table_is_a_mistake_with_a_suggestion() -> None:
    with pytest.raises(UsageError, match="did you mean `controls`"):
        load_definition("control")


@pytest.mark.parametrize("name", shipped_tables())
def test_a_table_of_the_paper_names_a_bundled_recipe(name: str) -> None:
    recipe = load_definition(name).recipe

    assert recipe is None or load_recipe(recipe).job_specs()


def test_tables_without_a_metric_of_their_own_show_any() -> None:
    names = [name for name in shipped_tables() if shows_any_metric(load_definition(name))]

    # The hint of `--metric` names those that are of no recipe of the paper.
    general = {"cells", "family", "main", "pairs"}
    assert set(names) == general | {"controls", "criteo_numeric", "structural"}


@pytest.mark.parametrize("name", shipped_tables())
def test_a_number_under_the_name_of_a_metric_is_of_that_metric(name: str) -> None:
    """Whatever `--metric` asks for: `both_won` is of AUC and LogLoss."""
    definition = load_definition(name)

    for column in definition.columns if isinstance(definition, PivotDefinition) else ():
        if "metric" not in column.each and column.metric is None and column.shows != "both_won":
            words = f"{definition.caption} {column.group} {column.label}"
            assert not re.search("AUC|LogLoss", words), column.key


def test_numbers_to_compare_with_name_tables_that_there_are() -> None:
    for expected in (load_paper(), load_bars()):
        assert {address.partition(".")[0] for address in expected.printed()} <= set(
            shipped_tables()
        )


BARS_RECIPES = {
    "avazu": "main13",
    "frappe": "frappe13",
    "movielens": "movielens13",
    "criteo-x1": "criteo_x1_13",
}


def test_bars_has_both_scores_of_every_run_on_each_of_its_data_sets() -> None:
    """12 backbones each; on the three data sets after Avazu five of them have five runs."""
    runs = {
        tuple(address.split(".")[1:4]): number.runs
        for address, number in load_bars().printed().items()
    }
    repeated = {"DCN", "DNN", "DeepFM", "WideDeep", "DCNv2"}

    for dataset, name in BARS_RECIPES.items():
        backbones = set(load_recipe(name).backbones) - {"GDCN"}
        for metric in ("auc", "logloss"):
            own = {b: n for (d, b, m), n in runs.items() if (d, m) == (dataset, metric)}
            five = repeated if dataset != "avazu" else set()
            assert own == {b: 5 if b in five else 1 for b in backbones}
    assert len(runs) == len(BARS_RECIPES) * 12 * 2

"""Studies: what they set in which recipe, and every fault at its file and line."""

import re
from collections import Counter
from pathlib import Path
from textwrap import dedent
from typing import get_args

import pytest

from prime_bench.base.errors import UsageError
from prime_bench.recipe.file import load_recipe
from prime_bench.recipe.study import FigureKind, bundled_studies, find_study, load_study

ONE = """\
schema = 1
title = "One"
seeds = [1, 2]
arms = ["dense", "prime"]
[dataset.avazu]
[backbone.DNN]
hidden_units = [8]
[backbone.DNN.on.avazu]
embedding_l2 = 0.5
"""
TWO = """\
schema = 1
title = "Two"
kind = "routing"
seeds = [3]
arms = ["prime"]
[dataset.criteo]
[backbone.DCNv2]
"""


@pytest.fixture
def study(tmp_path):
    """Load a study beside the recipes `one` and `two`; returns it."""
    (tmp_path / "one.toml").write_text(ONE)
    (tmp_path / "two.toml").write_text(TWO)

    def load(text, *, name="mine.toml"):
        (tmp_path / name).write_text(dedent(text))
        return load_study(tmp_path / name)

    return load


BOTH = """\
schema = 1
title = "Both"
[[recipes]]
recipe = "one.toml"
[[recipes]]
recipe = "two.toml"
"""


def _faults(load, text):
    with pytest.raises(UsageError) as error:
        load(text)
    return error.value.message


def test_without_keys_of_its_own_a_study_has_the_recipes_as_they_are(study, tmp_path):
    made = study(BOTH)

    plain = [load_recipe(tmp_path / f"{name}.toml") for name in ("one", "two")]
    assert [item.recipe.job_specs() for item in made.recipes] == [r.job_specs() for r in plain]
    assert (made.name, made.title, made.label, made.against) == ("mine", "Both", "", None)
    assert [item.figures for item in made.recipes] == [None, None]


def test_every_key_of_a_study_is_where_it_belongs(study, tmp_path):
    made = study(
        """\
        schema = 1
        title = "Both"
        label = " Of mine "
        against = "paper"
        max_hours = 2.5
        [[recipes]]
        recipe = "one.toml"
        only = ["seed=2", "arm=prime"]
        tables = ["main", "cells"]
        figures = ["pairs"]
        [[recipes]]
        recipe = "two.toml"
        tables = ["routing"]
        figures = []
        """
    )

    assert (made.title, made.label, made.against, made.max_hours) == (
        "Both",
        "Of mine",
        "paper",
        2.5,
    )
    one, two = made.recipes
    assert (one.only, one.tables, one.figures) == (
        ["seed=2", "arm=prime"],
        ["main", "cells"],
        ["pairs"],
    )
    assert (two.only, two.tables, two.figures) == ([], ["routing"], [])
    assert made.path == tmp_path / "mine.toml"
    assert made.argument == "mine.toml"
    assert load_study("paper").argument == "paper"


def test_what_holds_on_one_data_set_is_for_the_recipes_that_have_it(study, tmp_path):
    other = ONE.replace("avazu", "criteo").replace("embedding_l2 = 0.5", "embedding_l2 = 0.125")
    (tmp_path / "two.toml").write_text(other)

    made = study(BOTH + "[set]\nbackbone.DNN.on.avazu.embedding_l2 = 0.25\n")

    one, two = (item.recipe.backbones["DNN"] for item in made.recipes)
    assert one["avazu"].embedding_l2 == 0.25
    assert two["criteo"].embedding_l2 == 0.125


def test_a_fault_that_the_recipe_has_itself_names_recipe_and_study(study, tmp_path):
    (tmp_path / "two.toml").write_text(TWO.replace("seeds = [3]", "seeds = [3]\ndepth = 3"))

    lines = _faults(study, BOTH).splitlines()

    assert len(lines) == 1
    assert lines[0].startswith(f"{tmp_path / 'two.toml'}:5: depth: unknown key")


def test_a_key_of_the_study_holds_in_the_recipes_that_have_its_name(study):
    made = study(
        BOTH
        + """\
        set.training.batch_size = 64
        [set]
        seeds = [9]
        dataset.avazu = { card = "synthetic", rows = 500 }
        backbone.DNN.hidden_units = [4, 4]
        backbone.DNN.on.avazu.embedding_l2 = 0.25
        arm.prime.rank = 3
        """.replace("        ", "")
    )

    one, two = (item.recipe for item in made.recipes)
    assert one.seeds == two.seeds == [9]
    assert one.datasets == {"avazu": {"card": "synthetic", "rows": 500}}
    assert two.datasets == {"criteo": {}}
    assert one.backbones["DNN"]["avazu"].hidden_units == (4, 4)
    assert one.backbones["DNN"]["avazu"].embedding_l2 == 0.25
    assert [arm.settings.rank for arm in (one.arms[1], two.arms[0])] == [3, 3]
    # The last recipe alone.
    assert (one.training.batch_size, two.training.batch_size) == (4096, 64)


def test_a_recipes_own_key_comes_before_the_studys(study):
    made = study(BOTH + "set.seeds = [5]\n[set]\nseeds = [4]\ntraining.patience = 7\n")

    assert [item.recipe.seeds for item in made.recipes] == [[4], [5]]
    assert [item.recipe.training.patience for item in made.recipes] == [7, 7]


def test_a_recipe_may_be_there_twice_under_two_names(study):
    made = study(
        """\
        schema = 1
        title = "Twice"
        [[recipes]]
        recipe = "one.toml"
        only = ["seed=2"]
        [[recipes]]
        recipe = "one.toml"
        name = "wide"
        set.backbone.DNN.hidden_units = [16]
        """
    )

    assert [item.recipe.name for item in made.recipes] == ["one", "wide"]
    assert [item.only for item in made.recipes] == [["seed=2"], []]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("schema = 1\ntitle = 1\nrecipes = []\n", "mine.toml:2: title: "),
        (
            BOTH + "tabels = []\n",
            "mine.toml:7: recipes.1.tabels: unknown key; did you mean `tables`",
        ),
        (BOTH + 'figures = ["pears"]\n', "mine.toml:7: recipes.1.figures.0: "),
        (BOTH + "max_hours = 0\n", "mine.toml:7: recipes.1.max_hours: unknown key"),
        (BOTH.replace("two.toml", "main31"), "did you mean `main13`"),
        (
            BOTH.replace("two", "one"),
            "mine.toml:5: recipes.1: another recipe of the study is called",
        ),
        (
            BOTH + "[set]\nbackbone.DCN2.num_cross_layers = 2\n",
            "mine.toml:8: set.backbone.DCN2.num_cross_layers: no recipe",
        ),
        (BOTH + "[set]\nprobe.min_rows = 2\n", "mine.toml:8: set.probe.min_rows: keys of a probe"),
        (BOTH + '[set]\n"a b" = 2\n', "mine.toml:8: set.a b: `a b` has a letter"),
        (
            BOTH + "[set]\ntraining.pacience = 2\n",
            "mine.toml:8: in the recipe one: training.pacience",
        ),
        (BOTH + "set.training.patience = 0\n", "mine.toml:7: in the recipe two: training"),
        (BOTH + 'only = ["seed=4"]\n', "mine.toml:7: recipes.1.only: seed=4: no such seed"),
    ],
)
def test_a_fault_has_its_file_and_line(study, text, fault):
    assert fault in _faults(study, text)


def test_two_recipes_with_faults_do_not_hide_each_others_place(study, tmp_path):
    (tmp_path / "two.toml").write_text(TWO + "depth = 3\n")

    assert "two.toml:8: " in _faults(study, BOTH)


def test_a_study_that_is_not_there_is_named_with_the_nearest(tmp_path):
    with pytest.raises(UsageError, match=r"papr: no such study; did you mean `paper`\?"):
        find_study("papr")
    with pytest.raises(UsageError, match="a folder, not a study"):
        find_study(tmp_path)
    assert find_study("paper").samefile(find_study("recipes/studies/paper.toml"))


def test_figures_can_be_chosen_that_there_are():
    from prime_bench.report.figures import FIGURES

    assert set(get_args(FigureKind)) == set(FIGURES), (
        "FigureKind of prime_bench/recipe/study.py has the names of FIGURES in report/figures"
    )


def test_the_bundled_studies_are_the_paper_and_the_same_in_small():
    paper, small = (load_study(find_study(name)) for name in ("paper", "miniature"))

    assert [path.stem for path in bundled_studies()] == ["miniature", "paper"]
    assert (paper.label, small.label[:9]) == ("", "Miniature")
    assert paper.against == small.against == "paper"
    for item, same in zip(paper.recipes, small.recipes, strict=True):
        assert (item.recipe.name, item.tables, item.figures) == (
            same.recipe.name,
            same.tables,
            same.figures,
        )
        assert list(item.recipe.backbones) == list(same.recipe.backbones)
        assert [arm.name for arm in item.recipe.arms] == [arm.name for arm in same.recipe.arms]
        # No name of a real log goes with generated rows.
        assert {keys["card"] for keys in same.recipe.datasets.values()} == {"synthetic"}


def test_the_paper_has_every_recipe_behind_its_tables():
    from prime_bench.report.tables.definition import shipped_tables
    from prime_bench.report.tables.kinds import load_definition

    needed = {load_definition(name).recipe for name in shipped_tables()} - {"", None}
    ours = {item.recipe.name for item in load_study("paper").recipes}
    assert needed - ours <= {"criteo_numeric"}  # ours, not the paper's


def test_the_study_in_the_documents_is_one(tmp_path):
    page = Path(__file__).parents[2] / "docs" / "studies.md"
    (text,) = re.findall(r"^```toml\n(.*?)^```$", page.read_text("utf-8"), flags=re.M | re.S)
    (tmp_path / "mine.toml").write_text(text, encoding="utf-8")

    made = load_study(tmp_path / "mine.toml")

    assert [item.recipe.name for item in made.recipes] == ["main13", "subgroups"]
    assert {item.recipe.datasets["avazu"]["min_count"] for item in made.recipes} == {2}
    assert made.recipes[1].recipe.probe.min_rows == 500


def test_the_page_counts_the_jobs_of_the_paper(tmp_path):
    from prime_bench import api

    made = api.plan_study("paper", data_dir=tmp_path, runs_dir=tmp_path, device="cpu")

    page = (Path(__file__).parents[2] / "docs" / "studies.md").read_text("utf-8")
    kinds = Counter(planned.job_spec.kind for part in made.parts for planned in part.jobs)
    assert f"has {made.n_jobs} jobs: {kinds['train']} training runs" in page
    assert all(f"{kinds[kind]} `{kind}`" in page for kind in kinds if kind != "train")
    assert f"would\nhave {made.n_shared} more" in page


def test_a_key_of_a_grids_table_can_be_set(study, tmp_path):
    text = ONE.replace("[8]", "[8]\ngrid.net_dropout = [0.0, 0.1]\n")
    (tmp_path / "swept.toml").write_text(text)

    made = study(
        """\
        schema = 1
        title = "Swept"
        set.backbone.DNN.hidden_units = [4]
        [[recipes]]
        recipe = "swept.toml"
        """
    )

    backbones = made.recipes[0].recipe.backbones
    assert len(backbones) == 2
    assert {per["avazu"].hidden_units for per in backbones.values()} == {(4,)}

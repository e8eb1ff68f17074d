"""Grids of a recipe: their points, names, ids, and the faults of a table `grid`."""

import itertools

import pytest

from prime_bench.base.errors import UsageError
from prime_bench.base.frozen import MOST_FAULTS
from prime_bench.recipe.file import load_recipe, origins
from prime_bench.recipe.sweep import CandidateBudget, GridPoint, Sweep, read_sweep

GRIDS = """
[backbone.DNN.grid]
net_dropout = [0.0, 0.1]

[arm.p]
plugin = "prime"
label = "Mine"
bags = 2
[arm.p.grid]
rank = [4, 8]
experts_per_bag = [2, 4]
"""


@pytest.fixture
def swept(sound):
    """A recipe with a grid of an arm and a grid of one of its two backbones: 2 seeds."""
    return sound.replace('"prime"]', '"p"]') + GRIDS


def test_a_grid_stands_for_an_arm_or_backbone_a_point(write, swept):
    recipe = load_recipe(write(swept))

    points = ["[rank=4,experts_per_bag=2]", "[rank=4,experts_per_bag=4]"]
    points += [point.replace("rank=4", "rank=8") for point in points]
    assert [arm.name for arm in recipe.arms] == ["dense", *(f"p{point}" for point in points)]
    assert recipe.arms[1].label == "Mine (rank = 4, experts_per_bag = 2)"
    assert [arm.settings.rank for arm in recipe.arms[1:]] == [4, 4, 8, 8]
    assert {arm.settings.bags for arm in recipe.arms[1:]} == {2}
    assert list(recipe.backbones) == ["DNN[net_dropout=0.0]", "DNN[net_dropout=0.1]", "DCNv2"]
    assert recipe.backbones["DNN[net_dropout=0.1]"]["synthetic"].net_dropout == 0.1
    assert len(recipe.job_specs()) == 2 * 3 * 5
    assert {job_spec.backbone for job_spec in recipe.job_specs()} == {"DNN", "DCNv2"}


def test_ids_are_those_of_the_same_settings_by_hand(write, swept):
    """The only things that a grid adds to a job are labels."""
    job_specs = load_recipe(write(swept)).job_specs()

    for dropout, rank, experts in itertools.product((0.0, 0.1), (4, 8), (2, 4)):
        by_hand = swept.partition("[backbone.DNN.grid]")[0].replace(
            "[backbone.DNN]", f"[backbone.DNN]\nnet_dropout = {dropout}"
        )
        by_hand += f'[arm.p]\nplugin = "prime"\nbags = 2\nrank = {rank}\n'
        by_hand += f"experts_per_bag = {experts}\n"
        hand = load_recipe(write(by_hand, "hand.toml")).job_specs(only=["backbone=DNN"])
        ids = {spec.bind("f").id for spec in hand}

        assert len(ids) == 4
        assert ids <= {spec.bind("f").id for spec in job_specs}


@pytest.mark.parametrize(
    ("only", "number"),
    [
        (["arm=p"], 2 * 3 * 4),
        (["arm=p[rank=4,experts_per_bag=2]"], 2 * 3),
        (["backbone=DNN"], 2 * 2 * 5),
        (["backbone=DNN[net_dropout=0.1]", "arm=dense"], 2),
        (["backbone=DNN", "backbone=DCNv2"], 2 * 3 * 5),
    ],
)
def test_only_takes_a_point_or_all_of_a_grid(write, swept, only, number):
    assert len(load_recipe(write(swept)).job_specs(only=only)) == number


def test_set_changes_a_grid(write, swept):
    changes = ["arm.p.grid.rank=[3]", "backbone.DNN.grid.net_dropout=[0.5]"]

    recipe = load_recipe(write(swept), changes=changes)

    assert [arm.name for arm in recipe.arms[1:]] == [
        "p[rank=3,experts_per_bag=2]",
        "p[rank=3,experts_per_bag=4]",
    ]
    assert origins(recipe, recipe.job_specs()[-1]) == {
        "seed": "recipe",
        "training.max_epochs": "recipe",
        "backbone.embedding_dim": "recipe",
        "backbone.parallel_dnn_hidden_units": "recipe",
        "arm.bags": "recipe",
        "arm.rank": "--set",
        "arm.experts_per_bag": "recipe",
        "data.rows": "recipe",
    }


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1e-5, "1e-05"),
        (True, "true"),
        ("logit", "logit"),
        ([400, 400], "400-400"),
        (0.1, "0.1"),
    ],
)
def test_values_in_names(value, text):
    point = GridPoint(of="p", label="P", values={"key": value})

    assert (point.name, point.full_label) == (f"p[key={text}]", f"P (key = {text})")


# ---- drawn points


def drawn(samples, *, seed=1, **values):
    values = values or {"a": [1, 2, 3, 4], "b": ["x", "y", "z"], "c": [True, False]}
    return Sweep(values=values, samples=samples, seed=seed).points()


def test_drawn_points_are_distinct_and_more_go_on_where_fewer_end():
    every = drawn(24)

    assert len({tuple(point.items()) for point in every}) == 24
    for fewer in range(1, 24):
        assert drawn(fewer) == every[:fewer]
    assert drawn(10, seed=2) != every[:10]


def test_the_draw_is_the_same_everywhere():
    """Literals: a change of the stream would make other jobs of everybody's recipes."""
    assert drawn(4) == DRAWN


DRAWN = [
    {"a": 4, "b": "z", "c": True},
    {"a": 1, "b": "y", "c": False},
    {"a": 3, "b": "y", "c": True},
    {"a": 2, "b": "y", "c": True},
]


def test_the_order_of_keys_and_a_key_more_leave_the_draw_of_others():
    points = drawn(20, a=list(range(50)), b=list(range(50)))
    turned = drawn(20, b=list(range(50)), a=list(range(50)))
    wider = drawn(20, a=list(range(50)), b=list(range(50)), c=list(range(50)))

    assert points == turned
    assert [point["a"] for point in points] == [point["a"] for point in wider]


def test_every_value_is_drawn_as_often():
    """Chi-squared over 5 values and 1,000 of 100,000 points: its 99.9 % quantile is 18.5."""
    points = drawn(1000, a=[1, 2, 3, 4, 5], b=list(range(20_000)))
    counts = [sum(point["a"] == value for point in points) for value in (1, 2, 3, 4, 5)]

    assert sum((n - 200) ** 2 / 200 for n in counts) < 18.5


def test_a_recipe_draws(write, swept):
    more = swept.replace("[4, 8]", "[4, 8, 16]\nsamples = 3\nseed = 5")
    names = [arm.name for arm in load_recipe(write(more)).arms[1:]]
    again = [arm.name for arm in load_recipe(write(more.replace("= 3", "= 5"))).arms[1:]]

    assert len(names) == 3
    assert again[:3] == names


# ---- faults

FAULTY = """\
schema = 1
title = "Faulty"
seeds = [1]
arms = ["dense", "p", "q", "r", "s", "t", "p[rank=4]"]
[dataset.synthetic]
[backbone.DNN]
hidden_units = [8]
[backbone.DNN.on.synthetic]
net_dropout = 0.1
[backbone.DNN.grid]
net_dropout = [0.0, 0.1]
embedding_l2 = []
[backbone.DCNv2.grid]
num_cross_layers = [1, 0]
[arm.p]
plugin = "prime"
rank = 4
[arm.p.grid]
rank = [4, 8]
[arm.q]
plugin = "prime"
[arm.q.grid]
rnk = [4, 8]
rank = [
  4,
  "x",
]
[arm.r]
plugin = "prime"
grid = 3
[arm.s]
plugin = "prime"
[arm.s.grid]
rank = 8
bags = [1, 2, 1]
seed = 3
sample = 4
[arm.t]
plugin = "prime"
grid = { temperature = [1, 1.0], bags = [2] }
[arm."p[rank=4]"]
plugin = "prime"
[report]
sensitivity = ["rank", "width"]
family = [["t", "dense"]]
"""
EXPECTED = [
    (11, "backbone.DNN.grid.net_dropout: is set beside the grid too: leave it out in one"),
    (12, "backbone.DNN.grid.embedding_l2: has no value"),
    (14, "backbone.DCNv2.grid.num_cross_layers.1: input should be greater than or equal to 1"),
    (19, "arm.p.grid.rank: is set beside the grid too: leave it out in one of both places"),
    (23, "arm.q.grid.rnk: unknown key; did you mean `rank`?"),
    (26, "arm.q.grid.rank.1: input should be a valid integer"),
    (30, "arm.r.grid: must be a table with a list of values for each key"),
    (34, "arm.s.grid.rank: must be a list of values, got 8"),
    (35, "arm.s.grid.bags.2: 1 is listed twice"),
    (36, "arm.s.grid.seed: has no effect without `samples`: nothing is drawn"),
    (37, "arm.s.grid.sample: must be a list of values, got 4; did you mean `samples`?"),
    (40, "arm.t.grid: `t[temperature=1.0,bags=2]` has the same settings as `t[temperature=1,"),
    (44, "report.sensitivity.1: no `grid` has the key `width`"),
    (45, "report.family: `t` has a grid: name a point, such as `t[temperature=1,bags=2]`, or set"),
]


def _message(path, changes=()):
    with pytest.raises(UsageError) as caught:
        load_recipe(path, changes=changes)
    return caught.value.message


def test_every_fault_of_a_grid_has_its_line(write):
    path = write(FAULTY)

    lines = _message(path).splitlines()

    for number, text in EXPECTED:
        assert any(line.startswith(f"{path}:{number}: {text}") for line in lines), (number, lines)
    assert len(lines) == len(EXPECTED), lines


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        ("arm.p.grid.rank=[]", "arm.p.grid.rank: has no value"),
        ("arm.p.grid.rank=[4, inf]", "arm.p.grid.rank.1: must be finite, got Infinity"),
        ("backbone.DCNv2.grid.cross_dims=[1]", "backbone.DCNv2.grid.cross_dims: unknown key"),
        (
            "backbone.DNN.grid.batch_norm=[true, 'x']",
            'backbone.DNN.grid.batch_norm.1: input should be a valid boolean, got "x"',
        ),
        ("arm.p.grid={}", "arm.p.grid: has no key: give each that it varies a list of values"),
        ("arm.p.grid.samples=5", "samples: 5 points are asked for, the grid has 4"),
        ("arm.p.grid.samples=0", "samples: must be a whole number of at least 1, got 0"),
        ("arm.p.grid.samples=true", "samples: must be a whole number of at least 1, got true"),
        (f"arm.p.grid.rank={list(range(1, 600))}", "arm.p.grid: has 1,198 points, at most 1,000"),
        ("report.choose='test'", "report.choose: input should be 'validation', got \"test\""),
        ("arm.p.grid.anchor_epsilon=[1e-6]", "arm.p.grid: `p[rank=4,experts_per_bag=2,anchor_eps"),
    ],
)
def test_faults_of_set(write, swept, change, wanted):
    assert wanted in _message(write(swept), [change])


def test_a_fault_inside_a_list_of_values_has_both_places(write, swept):
    text = swept.replace("\n[arm.p]", "hidden_units = [[8], [16, 0]]\n[arm.p]")
    text = text.replace("[backbone.DNN]\nhidden_units = [8]\n", "[backbone.DNN]\n")

    assert "backbone.DNN.grid.hidden_units.1.1: input should be" in _message(write(text))


@pytest.mark.parametrize("key", ["arm.p.grid.rank", "backbone.DNN.grid.embedding_dim"])
def test_of_very_many_faults_of_a_grid_the_first_are_named(write, swept, key):
    message = _message(write(swept), [f"{key}={[-number for number in range(150)]}"])

    lines = [line for line in message.splitlines() if f"{key}." in line]
    assert len(lines) == MOST_FAULTS
    assert f"{key}.0: " in lines[0]


def test_a_product_of_grids_has_a_limit(write, swept):
    values = f"{list(range(1, 400))}"
    changes = [f"arm.p.grid.rank={values}", f"backbone.DNN.grid.net_dropout={values}"]

    assert "are 639,200 jobs, at most 200,000" in _message(write(swept), changes)


def test_choosing_needs_a_grid_and_training(write, sound):
    choose = '\n[report]\nchoose = "validation"\n'

    assert "no arm and no backbone has a `grid` to choose from" in _message(write(sound + choose))
    probe = sound.replace("seeds", 'kind = "routing"\nseeds', 1).replace('"dense", "prime"', '"p"')
    assert "only a recipe that trains" in _message(write(probe + GRIDS + choose))


def test_a_point_is_not_also_an_arm(write, swept):
    named = swept.replace('"p"]', '"p", "p[rank=4,experts_per_bag=2]"]')

    text = named + '[arm."p[rank=4,experts_per_bag=2]"]\nplugin = "prime"\n'

    assert "is the name of a point of a grid, too" in _message(write(text))


def test_a_family_may_name_points_or_with_choose_the_arm(write, swept):
    point = swept + '[report]\nfamily = [["p[rank=4,experts_per_bag=2]", "dense"]]\n'
    arm = swept + '[report]\nchoose = "validation"\nfamily = [["p", "dense"]]\n'

    assert load_recipe(write(point)).report.family[0][0] == "p[rank=4,experts_per_bag=2]"
    assert load_recipe(write(arm)).report.family[0][0] == "p"
    chosen = _message(write(point + 'choose = "validation"\n'))
    assert "`p[rank=4,experts_per_bag=2]` is a point of a grid: with `choose`, name `p`" in chosen


def test_a_huge_product_is_not_walked():
    values = {str(key): list(range(100)) for key in range(50)}

    sweep, faults = read_sweep({**values, "samples": 20}, also_set=())
    assert sweep is not None
    assert len(sweep.points()) == 20
    assert faults == []
    assert "at most 1,000" in str(read_sweep(values, also_set=())[1][0])


# ---- a common budget

BUDGET = """
[budget]
candidates = 2
[report]
choose = "validation"
"""


def trained(job_specs):
    """Arms by backbone and family, as names of points."""
    found = {}
    for spec in job_specs:
        key = (spec.backbone, spec.arm.family)
        found.setdefault(key, set()).add((spec.backbone_name, spec.arm.name))
    return found


def test_a_budget_leaves_each_arm_as_many_points(write, swept):
    all_points = trained(load_recipe(write(swept)).job_specs())
    recipe = load_recipe(write(swept + BUDGET))
    points = trained(recipe.job_specs())

    assert {key: len(own) for key, own in points.items()} == {
        ("DNN", "dense"): 2,
        ("DNN", "p"): 2,
        ("DCNv2", "dense"): 1,  # it has no grid there
        ("DCNv2", "p"): 2,
    }
    assert all(own <= all_points[key] for key, own in points.items())
    assert len(recipe.job_specs()) == 2 * 7
    narrowed = recipe.job_specs(only=["backbone=DNN", "arm=p"])
    assert trained(narrowed)["DNN", "p"] == points["DNN", "p"]


def test_a_larger_budget_keeps_the_points_of_a_smaller_one(write, swept):
    sizes = range(1, 9)
    recipe = load_recipe(write(swept + BUDGET))
    drawn = [
        trained(
            load_recipe(write(swept + BUDGET), changes=[f"budget.candidates={size}"]).job_specs()
        )["DNN", "p"]
        for size in sizes
    ]

    assert [len(own) for own in drawn] == list(sizes)
    assert all(fewer < more for fewer, more in itertools.pairwise(drawn))
    other = load_recipe(write(swept + BUDGET), changes=["budget.seed=4"])
    assert trained(other.job_specs()) != trained(recipe.job_specs())


def test_a_budget_draws_the_same_everywhere():
    assert CandidateBudget(candidates=3, seed=1).drawn(4, 5) == {(0, 2), (0, 4), (3, 4)}
    assert CandidateBudget(candidates=20).drawn(4, 5) == {
        (i, j) for i in range(4) for j in range(5)
    }


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        ("budget.candidates=0", "budget.candidates: input should be greater than or equal to 1"),
        ("budget.candidate=3", "budget.candidate: unknown key; did you mean `candidates`?"),
    ],
)
def test_faults_of_a_budget(write, swept, change, wanted):
    assert wanted in _message(write(swept + BUDGET), [change])


def test_a_budget_needs_a_choice(write, swept):
    text = swept + BUDGET.partition("[report]")[0]

    assert "budget: needs `choose` in [report]" in _message(write(text))

"""The gap from inner products of gradients equals the gap from gradients of the regrouped rows."""

import numpy as np
import pytest
import torch
from scipy.stats import kstest

from prime_bench.probes import gradients, inner_products
from prime_bench.probes.arms import batch_of
from prime_bench.probes.gradients import (
    Diagnosis,
    NoDirection,
    cosines,
    gap_of,
    large_groups,
    mean_cosine,
    regrouped,
)
from prime_bench.probes.groups import Grouping, block_groupings, null_grouping, row_groupings
from prime_bench.report.quantities.gaps import reduction
from prime_bench.settings.probes import GradientsSettings
from prime_bench.settings.training import TrainSpec
from prime_bench.training.optimizer import batch_loss

SETTINGS = GradientsSettings(
    blocks=3,
    positives_per_block=8,
    negatives_per_block=10,
    permutations=40,
    example_permutations=20,
)
SEED, SPEC = 11, TrainSpec()
ARMS = [
    ("DNN", "dense"),
    ("DNN", "prime"),
    ("DCNv2", "residual_parameters"),
    ("DCN", "prime"),
    ("MaskNet", "dense"),
    ("FiBiNET", "prime"),
    ("AutoInt", "dense"),
]


@pytest.fixture
def split(make_split):
    return make_split(2000, seed=2)


def _grouping(split):
    return Grouping(field="hour", names=[str(i) for i in range(6)], codes=split.ids[:, 0])


@pytest.fixture
def diagnose(split):
    """A diagnosis of an arm over the split's first field."""

    def diagnose(arm, *, settings=SETTINGS, spec=SPEC):
        grouping = _grouping(split)
        choice = large_groups(grouping, split.labels, settings=settings)
        assert len(choice.codes) == 4
        return Diagnosis(arm, split, grouping, choice, settings=settings, spec=spec, seed=SEED)

    return diagnose


def _direct(arm, split, groups, *, spec=SPEC, names=None):
    """Mean cosine of new gradients: one of the whole loss of each group's rows (k, rows)."""
    parameters = [arm.backbone.get_parameter(n) for n in names or arm.backbone.top_parameters]
    gradients = []
    for rows in groups:
        batch = batch_of(split, rows, device=torch.device("cpu"))
        loss = batch_loss(arm, batch, kind=spec.loss)
        parts = torch.autograd.grad(loss, parameters)
        gradients.append(torch.cat([part.flatten() for part in parts]).double())
    rows = torch.stack(gradients).numpy()
    return float(mean_cosine(rows @ rows.T))


@pytest.mark.parametrize(("backbone", "plugin"), ARMS)
def test_20_random_groupings_of_either_unit_equal_new_gradients(
    make_arm, split, diagnose, backbone, plugin
):
    arm = make_arm(backbone, plugin)
    diagnosis = diagnose(arm)
    k, m = 4, SETTINGS.blocks

    by_block = block_groupings(k, m, n=20, seed=SEED, field="hour")
    gram = diagnosis.block_grams()[0]
    found = mean_cosine(regrouped(gram, by_block, n_groups=k))
    for value, groups in zip(found, by_block, strict=True):
        rows = [diagnosis.blocks[groups == group].ravel() for group in range(k)]
        assert value == pytest.approx(_direct(arm, split, rows), abs=3e-6)

    flat = diagnosis.blocks.ravel()
    by_row = row_groupings(split.labels[flat], k, n=20, seed=SEED, field="hour")
    found = mean_cosine(diagnosis.example_grams(by_row)[0])
    for value, groups in zip(found, by_row, strict=True):
        assert value == pytest.approx(_direct(arm, split, flat[groups]), abs=3e-6)
    assert np.ptp(found) > 1e-3


def test_the_loss_is_that_of_the_run_without_l2(make_arm, split, diagnose):
    spec = TrainSpec(loss="logit")
    arm = make_arm("DNN", "prime")
    with torch.no_grad():  # a saturated probability has no gradient, its logit has one
        [*arm.backbone.parameters()][-1].fill_(30.0)

    semantic = diagnose(arm, spec=spec).measures()[0].semantic

    rows = diagnose(arm).blocks.reshape(4, -1)
    assert semantic == pytest.approx(_direct(arm, split, rows, spec=spec), abs=3e-6)


def test_the_shared_head_is_measured_beside_the_top_nn(make_arm, split, diagnose):
    settings = SETTINGS.model_copy(update={"include_head": True})
    arm = make_arm("DCNv2", "prime")

    top, both = diagnose(arm, settings=settings).measures()

    names = arm.backbone.top_parameters
    rows = diagnose(arm).blocks.reshape(4, -1)
    assert (top.parameters, both.parameters) == ("top", "top_and_head")
    assert both.n_parameters - top.n_parameters == 5 + 4 * 4 + 1
    assert top.semantic == pytest.approx(_direct(arm, split, rows), abs=3e-6)
    with_head = [*names, *arm.backbone.shared_head]
    assert both.semantic == pytest.approx(_direct(arm, split, rows, names=with_head), abs=3e-6)
    assert both.example.permutations == 20
    assert len(diagnose(make_arm("DNN"), settings=settings).measures()) == 1


def test_several_passes_find_what_one_finds(make_arm, split, diagnose, monkeypatch):
    arm = make_arm("FiBiNET", "prime")
    hooks = [len(layer._forward_hooks) for layer in arm.modules()]
    whole = diagnose(arm)
    by_row = row_groupings(np.tile(np.repeat([1, 0], [8, 10]), 12), 4, n=2, seed=1, field="f")
    calls = []

    def counted(diagnosis):
        give = diagnosis._batches
        diagnosis._batches = lambda **kw: calls.append(1) or give(**kw)
        return diagnosis

    parts = [counted(diagnose(arm)).block_grams(), counted(diagnose(arm)).example_grams(by_row)]
    assert len(calls) == 2
    monkeypatch.setattr(
        inner_products.block_grams, "__kwdefaults__", {"buffer_bytes": 4 * 12 * 100}
    )
    monkeypatch.setattr(
        inner_products.example_grams, "__kwdefaults__", {"cache_bytes": 4 * 216 * 10}
    )
    monkeypatch.setattr(inner_products, "_PIECE_NUMBERS", 21)
    numbers, keep = [], inner_products._keep

    def kept(arm, batches, pieces, *, spec):
        numbers.append([piece.numbers for piece in pieces])
        return keep(arm, batches, pieces, spec=spec)

    monkeypatch.setattr(inner_products, "_keep", kept)
    again = [counted(diagnose(arm)).block_grams(), counted(diagnose(arm)).example_grams(by_row)]

    assert len(calls) > 10
    assert all(len(one) == 1 or sum(one) <= 10 for one in numbers)
    assert [len(layer._forward_hooks) for layer in arm.modules()] == hooks
    for left, right in zip(parts, again, strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-5, atol=1e-9)
    assert whole.blocks.shape == (12, 18)
    assert (split.labels[whole.blocks] == np.repeat([1, 0], [8, 10])).all()


def test_a_piece_of_a_layer_counts_what_is_kept_of_a_row(monkeypatch):
    monkeypatch.setattr(inner_products, "_PIECE_NUMBERS", 21)
    pieces = inner_products._pieces(0, torch.nn.Linear(5, 7))
    # Three inputs and seven gradients of outputs, two and seven, and the bias's seven.
    assert [piece.numbers for piece in pieces] == [10, 9, 7]


def test_measures_say_what_the_numbers_give(make_arm, diagnose):
    diagnosis = diagnose(make_arm("DNN", "prime"))

    (measure,) = diagnosis.measures()

    semantic = np.array(measure.cosines)
    assert measure.semantic == pytest.approx(semantic[np.triu_indices(4, 1)].mean())
    assert (measure.block.permutations, measure.example.permutations) == (40, 20)
    # Of the diagnosis's own seed and field.
    by_row = row_groupings(
        np.tile(np.repeat([1, 0], [8, 10]), 12), 4, n=20, seed=SEED, field="hour"
    )
    random = mean_cosine(diagnosis.example_grams(by_row)[0])
    assert measure.example.random == pytest.approx(random.mean(), abs=1e-9)
    for gap in (measure.block, measure.example):
        assert gap.gap == pytest.approx(gap.random - measure.semantic)
        assert gap.monte_carlo_error == pytest.approx(
            gap.random_deviation / np.sqrt(gap.permutations)
        )
    assert diagnosis.measures() == [measure]


def test_layers_without_row_gradients_leave_the_block_gap_and_say_so(make_arm, diagnose):
    (measure,) = diagnose(make_arm("DNN", "hidden_subspace")).measures()

    assert measure.example is None
    assert measure.note == "no gap of random rows: the Top-NN has a SubspaceLayer"
    assert measure.block.permutations == 40


def test_an_arm_without_a_gradient_has_no_direction(make_arm, diagnose):
    arm = make_arm("DNN", batch_norm=False)
    arm.backbone.get_parameter(arm.backbone.top_parameters[-1]).data.fill_(1e4)

    with pytest.raises(NoDirection, match="0 or not a number"):
        diagnose(arm).measures()


@pytest.mark.parametrize("numbers", [1, 2 * 3 * 5, 1 << 20])
def test_groupings_in_batches_of_any_size_give_the_sums_of_each(monkeypatch, numbers):
    """Also where a single grouping has more numbers than a batch is meant to have."""
    monkeypatch.setattr(gradients, "_BATCH_NUMBERS", numbers)
    random = np.random.default_rng(5)
    rows = random.normal(size=(5, 4))
    groupings = random.integers(0, 3, size=(7, 5))

    found = regrouped(rows @ rows.T, groupings, n_groups=3)

    sums = np.array([[rows[of == group].sum(axis=0) for group in range(3)] for of in groupings])
    np.testing.assert_allclose(found, sums @ sums.transpose(0, 2, 1), atol=1e-12)


def test_without_random_rows_asked_for_there_is_the_gap_of_blocks_alone(make_arm, diagnose):
    settings = SETTINGS.model_copy(update={"example_permutations": 0})

    (measure,) = diagnose(make_arm("DNN"), settings=settings).measures()

    assert (measure.example, measure.note) == (None, None)
    assert measure.block.permutations == 40


def test_cosines_of_known_vectors():
    vectors = np.array([[1.0, 0.0], [0.0, 2.0], [3.0, 3.0]])

    found = cosines(vectors @ vectors.T)

    half = np.sqrt(0.5)
    np.testing.assert_allclose(found, [[1, 0, half], [0, 1, half], [half, half, 1]], atol=1e-15)
    assert mean_cosine(vectors @ vectors.T) == pytest.approx(2 * half / 3)


def test_the_p_value_counts_groupings_at_most_as_alike():
    gap = gap_of(0.5, np.array([0.4, 0.5, 0.6, 0.7]))

    assert gap.p_value == (1 + 2) / (1 + 4)
    assert gap.gap == pytest.approx(0.05)
    assert gap_of(0.1, np.array([0.4, 0.5])).p_value == 1 / 3
    assert gap_of(0.3, np.array([0.1 + 0.2, 0.3 + 1e-12])).p_value == 1
    assert gap_of(0.3, np.array([0.3 + 1e-6])).p_value == 1 / 2


@pytest.mark.parametrize("backbone", ["DNN", "DCNv2", "FiBiNET", "AutoInt"])
def test_random_groupings_into_the_same_groups_are_ties(make_arm, diagnose, backbone):
    """With a block a group every grouping has the same groups, and nothing to find."""
    settings = SETTINGS.model_copy(update={"blocks": 1, "permutations": 200})

    (measure,) = diagnose(make_arm(backbone), settings=settings).measures()

    assert measure.block.p_value == 1
    assert measure.block.gap == pytest.approx(0, abs=1e-15)
    assert reduction(measure.block.gap, measure.block.gap) is None


def test_every_grouping_of_the_semantic_groups_counts(make_arm, diagnose):
    """Which groupings are the semantic one is told from their sets of blocks, not from cosines."""
    settings = SETTINGS.model_copy(update={"blocks": 2, "permutations": 3000})
    diagnosis = diagnose(make_arm("DNN"), settings=settings)
    groupings = block_groupings(4, 2, n=3000, seed=SEED, field="hour")
    semantic = np.repeat(np.arange(4), 2)
    same = [
        {frozenset(np.flatnonzero(groups == g)) for g in range(4)}
        == {frozenset(np.flatnonzero(semantic == g)) for g in range(4)}
        for groups in groupings
    ]
    found = mean_cosine(regrouped(diagnosis.block_grams()[0], groupings, n_groups=4))

    (measure,) = diagnosis.measures()

    assert sum(same) > 10
    below = (found < measure.semantic) & ~np.array(same)
    assert measure.block.p_value == (1 + below.sum() + sum(same)) / 3001


def test_a_random_label_has_no_gap_and_uniform_p_values(make_arm, make_split):
    """Over 20 seeds; `scripts/gap_null.py` does the same on trained arms."""
    split, arm = make_split(3000, seed=9), make_arm("DNN", "prime")
    settings = SETTINGS.model_copy(update={"permutations": 199, "example_permutations": 99})
    found = []
    for seed in range(20):
        null = null_grouping(len(split), name="null_1", n_groups=4, seed=seed)
        choice = large_groups(null, split.labels, settings=settings)
        diagnosis = Diagnosis(arm, split, null, choice, settings=settings, spec=SPEC, seed=seed)
        found.append(diagnosis.measures()[0])

    for gaps in ([m.block for m in found], [m.example for m in found]):
        values = np.array([gap.gap for gap in gaps])
        assert abs(values.mean()) < 3 * values.std(ddof=1) / np.sqrt(20)
        assert kstest([gap.p_value for gap in gaps], "uniform").pvalue > 0.05

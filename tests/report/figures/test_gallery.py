"""From records to figures: which there are, and that they are drawn from the right runs."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from prime_bench.base.errors import UsageError
from prime_bench.findings import (
    FieldGradients,
    FieldSubgroups,
    Gap,
    GradientFindings,
    GroupSize,
    Measure,
    Routing,
    SubgroupFindings,
    SubgroupScore,
    Validation,
)
from prime_bench.report.figures.differences import cost_points, median_row, subgroup_rows
from prime_bench.report.figures.gallery import figures_of, leading_arm
from prime_bench.report.figures.gradients import arm_order, gap_findings
from prime_bench.report.figures.pairs import paired_scores
from prime_bench.report.figures.save import figure_bytes, write_figures
from prime_bench.report.quantities.records import gather
from prime_bench.settings.plugins import PrimeConfig
from prime_bench.store.record import ProbeRecord, RunRecord

MakeRecord = Callable[..., RunRecord]


def probe_of(record: RunRecord, findings: Any) -> ProbeRecord:
    job = record.job.model_copy(update={"kind": findings.kind, "probe": {"seen": True}})
    plain = record.plain()
    own = {key: plain[key] for key in ("dataset", "arm", "data_variant", "data_verified")}
    return ProbeRecord.parse(
        {
            **own,
            "job_id": job.id,
            "job": job.plain(),
            "findings": findings.plain(),
            "environment": plain["environment"],
            "wall_s": 1.0,
        },
        where="",
    )


def gradients_of(record: RunRecord, *, gap: float, rows: str = "the same") -> ProbeRecord:
    def field(name: str, gap: float) -> FieldGradients:
        block = Gap(
            permutations=9,
            random=0.9,
            random_deviation=0.01,
            gap=gap,
            monte_carlo_error=0.001,
            p_value=0.1,
        )
        measure = Measure(
            parameters="top", n_parameters=5, semantic=0.9 - gap, cosines=[[1.0]], block=block
        )
        return FieldGradients(field=name, groups=[], too_small=[], measures=[measure])

    fields = [field("hour", gap), field("device_type", gap), field("null_1", 0.0)]
    return probe_of(record, GradientFindings(fields=fields, rows=rows))


def subgroups_of(record: RunRecord, *, auc: float) -> ProbeRecord:
    def score(name: str, rows: int, auc: float | None) -> SubgroupScore:
        return SubgroupScore(
            size=GroupSize(name=name, rows=rows, positives=rows // 5),
            click_rate=0.2,
            mean_prediction=0.2,
            auc=auc,
            logloss=0.4,
            calibration_error=0.01,
        )

    groups = [score(f"{index:02}", 1000 + index, auc) for index in range(12)]
    groups.append(score("one class", 5000, None))
    fields = [FieldSubgroups(field="hour", groups=groups, too_small=[])]
    overall = score("all", 99_999, auc)
    return probe_of(record, SubgroupFindings(split="test", overall=overall, fields=fields))


@pytest.fixture
def trained(full_set: list[RunRecord]) -> list[RunRecord]:
    """The full set with two validations a run, PRIME's with its routers'."""
    routing = Routing(entropy=[1.0, 1.2], effective_experts=[2.7, 3.3], largest_load=[0.3, 0.5])
    return [
        record.model_copy(
            update={
                "history": [
                    Validation(
                        epoch=epoch,
                        step=100 * epoch,
                        learning_rate=1e-3,
                        train_loss=0.4,
                        valid_auc=0.75,
                        valid_logloss=0.4,
                        improved=True,
                        wall_s=epoch * (12.0 if record.arm == "prime" else 10.0),
                        routing=routing if record.arm == "prime" else None,
                    )
                    for epoch in (1, 2)
                ]
            }
        )
        for record in full_set
    ]


def test_every_figure_that_the_records_suffice_for(
    trained: list[RunRecord], make_record: MakeRecord, tmp_path: Path
) -> None:
    probes = [
        make(make_record(arm=arm, seed=seed), **{key: value})
        for arm, gap, auc in (("dense", 0.4, 0.75), ("prime", 0.2, 0.751))
        for seed in (1, 2)
        for make, key, value in ((gradients_of, "gap", gap), (subgroups_of, "auc", auc))
    ]

    figures = figures_of(gather(trained, probes=probes), baseline="dense")

    every = ("pairs", "wins", "forest", "tradeoff", "curves", "load", "controls")
    assert [item.name for item in figures] == [
        *(f"{kind}-avazu" for kind in every),
        "competition-avazu",
        "gap-avazu",
        "subgroups-avazu-dnn",
        *(f"{kind}-criteo" for kind in every),
    ]
    assert {item.name: item.title for item in figures[:10]} == {
        "pairs-avazu": "Every pair of PRIME and Dense",
        "wins-avazu": "Pairs won by PRIME against Dense",
        "forest-avazu": "Differences and their intervals",
        "tradeoff-avazu": "Gain and cost",
        "curves-avazu": "Learning curves of PRIME and Dense",
        "load-avazu": "Load over training of PRIME",
        "controls-avazu": "Controls",
        "competition-avazu": "Gradient alignment of Dense",
        "gap-avazu": "Competition gap",
        "subgroups-avazu-dnn": "Subgroups, PRIME on DNN",
    }
    assert [item.data for item in figures] == ["Avazu"] * 10 + ["Criteo"] * 7
    axes = {item.name: item.figure.axes for item in figures}
    labels = {name: (own[0].get_xlabel(), own[0].get_ylabel()) for name, own in axes.items()}
    minus = "\N{MINUS SIGN}"
    assert labels["pairs-avazu"][1] == "Test AUC"
    assert labels["forest-avazu"][0] == f"Test AUC: arm {minus} Dense"
    assert labels["tradeoff-avazu"][0] == "Parameters added to Dense"
    assert labels["curves-avazu"] == ("Epoch", "Validation AUC")
    assert labels["controls-avazu"][0] == f"Test AUC: PRIME {minus} control"
    controls = [label.get_text() for label in axes["controls-avazu"][0].get_yticklabels()]
    assert controls == ["Residual (params) (n = 14)"]
    assert labels["subgroups-avazu-dnn"][0] == f"AUC within the group: PRIME {minus} Dense"
    wins = [own.get_title().partition(":")[0] for own in axes["wins-avazu"]]
    assert wins == ["AUC", "LogLoss"]
    # Both arms' headings, and the band of what is called equivalent.
    headings = [text.get_text() for text in axes["forest-avazu"][0].texts]
    assert {"PRIME", "Residual (params)"} <= set(headings)
    assert len(axes["forest-avazu"][0].patches) == len(axes["subgroups-avazu-dnn"][0].patches) == 1
    heights = [bar.get_height() for bar in axes["competition-avazu"][0].patches[:2]]
    assert heights == pytest.approx([0.9, 0.5])
    # PRIME's runs alone have routers: five seeds, and a line of an even load.
    assert len(axes["load-avazu"][0].lines) == 5 + 1
    even = axes["load-avazu"][0].lines[-1].get_ydata()[0]
    assert even == pytest.approx(1 / PrimeConfig().experts_per_bag)
    first = write_figures(figures[:1], tmp_path)
    assert [path.name for path in first] == [
        f"pairs-avazu.{kind}" for kind in ("svg", "pdf", "png")
    ]


def test_order_of_records_changes_no_figure(trained: list[RunRecord]) -> None:
    some = [record for record in trained if record.job.backbone == "DNN"]
    texts = [
        [
            figure_bytes(item.figure, "svg", name=item.name)
            for item in figures_of(gather(records), baseline="dense")
        ]
        for records in (some, some[::-1])
    ]

    assert texts[0] == texts[1]


@pytest.mark.parametrize("arms", [(), ("dense",), ("prime",), ("residual_parameters", "prime")])
def test_no_baseline_or_nothing_but_it_has_no_pairs(
    full_set: list[RunRecord], arms: tuple[str, ...]
) -> None:
    records = [record for record in full_set if record.arm in arms]

    assert figures_of(gather(records), baseline="dense") == []


def test_two_versions_of_one_data_set_have_files_of_their_own(make_record: MakeRecord) -> None:
    records = [
        make_record(arm=arm, seed=1, fingerprint=letter * 64)
        for arm in ("dense", "prime")
        for letter in "ab"
    ]

    names = [item.name for item in figures_of(gather(records), baseline="dense")]

    assert len(names) == len(set(names)) > 0


def test_the_first_arm_leads(full_set: list[RunRecord]) -> None:
    controls = [record for record in full_set if record.arm != "prime"]

    leading = leading_arm(gather(full_set).grid(baseline="dense"))
    without = leading_arm(gather(controls).grid(baseline="dense"))

    assert (leading and leading.name, without and without.name) == ("prime", "residual_parameters")
    assert leading_arm(gather([]).grid(baseline="dense")) is None


def test_chosen_arms_are_shown_each_under_its_name(
    trained: list[RunRecord], make_record: MakeRecord
) -> None:
    probes = [
        make(make_record(arm=arm, seed=1), **{key: value})
        for arm, gap, auc in (
            ("dense", 0.4, 0.75),
            ("prime", 0.2, 0.751),
            ("residual_parameters", 0.3, 0.76),
        )
        for make, key, value in ((gradients_of, "gap", gap), (subgroups_of, "auc", auc))
    ]
    records = gather([run for run in trained if run.dataset == "avazu"], probes=probes)

    both = figures_of(records, baseline="dense", arms=["residual_parameters", "prime"])
    control = figures_of(records, baseline="dense", arms=["residual_parameters"])

    assert [item.name for item in both] == [
        "pairs-avazu-residual-parameters",
        "wins-avazu-residual-parameters",
        "pairs-avazu-prime",
        "wins-avazu-prime",
        "forest-avazu",
        "tradeoff-avazu",
        "curves-avazu-residual-parameters",
        "curves-avazu-prime",
        "load-avazu-prime",
        "controls-avazu",
        "competition-avazu",
        "gap-avazu",
        "subgroups-avazu-dnn-residual-parameters",
        "subgroups-avazu-dnn-prime",
    ]
    # Of several arms the axis names none, of one that arm.
    for figures, arm in ((both, "arm"), (control, "Residual (params)")):
        (forest,) = (item.figure for item in figures if item.name == "forest-avazu")
        assert forest.axes[0].get_xlabel() == f"Test AUC: {arm} \N{MINUS SIGN} Dense"
    assert all("PRIME" not in item.title for item in control)
    for item in control:
        text = figure_bytes(item.figure, "svg", name=item.name).decode()
        assert "PRIME" not in text, item.name
        if not item.name.startswith(("competition", "tradeoff")):
            assert "Residual (params)" in text, item.name


def test_a_chosen_arm_that_a_probe_did_not_measure_has_no_figure_of_it(
    make_record: MakeRecord,
) -> None:
    arms = ("dense", "prime", "residual_parameters")
    probes = [subgroups_of(make_record(arm=arm), auc=0.75) for arm in arms[:2]]
    probes += [gradients_of(make_record(arm=arm), gap=0.4) for arm in arms[1:]]

    def names(*chosen: str) -> list[str]:
        records = gather([], probes=probes)
        return [item.name for item in figures_of(records, baseline="dense", arms=chosen)]

    assert names("residual_parameters") == ["competition-avazu"]
    assert names("prime") == ["competition-avazu", "subgroups-avazu-dnn-prime"]
    assert names() == ["competition-avazu", "gap-avazu", "subgroups-avazu-dnn"]


def test_probes_of_other_numerics_are_not_compared(make_record: MakeRecord) -> None:
    probes = [
        gradients_of(make_record(arm=arm, numerics=numerics), gap=0.4)
        for arm, numerics in (("dense", 1), ("prime", 2))
    ]

    names = [item.name for item in figures_of(gather([], probes=probes), baseline="dense")]

    assert names == ["competition-avazu", "competition-avazu-2"]


def test_subgroups_are_those_of_prime_where_no_arm_is_chosen(make_record: MakeRecord) -> None:
    arms = ("prime", "dense", "apg")
    probes = [subgroups_of(make_record(arm=arm), auc=0.75) for arm in arms]

    (figure,) = figures_of(gather([], probes=probes), baseline="dense")

    assert figure.title == "Subgroups, PRIME on DNN"


def test_an_arm_without_a_record_is_refused(trained: list[RunRecord]) -> None:
    with pytest.raises(UsageError, match=r"--arms prim: no such arm beside dense.*`prime`"):
        figures_of(gather(trained), baseline="dense", arms=["prim"])
    with pytest.raises(UsageError, match="--arms dense"):
        figures_of(gather(trained), baseline="dense", arms=["dense"])


def test_pairs_are_those_that_tables_compare(full_set: list[RunRecord]) -> None:
    """The mispaired seed is in neither; the degenerate one in both."""
    block = gather(full_set).grid(baseline="dense").blocks[0]
    cells = {
        cell.backbone: cell for cell in paired_scores(block, ("dense", "prime"), metric="logloss")
    }

    for row in block.layout.rows:
        own = block.comparisons[row.label, "prime", "logloss"]
        assert tuple(cells[row.label].differences) == own.seeds
        assert list(cells[row.label].differences.values()) == pytest.approx(own.differences)
    assert 948432 not in cells["DCNv2"].seeds


def test_cost_is_that_of_the_pairs(trained: list[RunRecord]) -> None:
    grid = gather(trained).grid(baseline="dense")
    assert grid.baseline
    elsewhere = [
        record.model_copy(
            update={"environment": record.environment.model_copy(update={"device": "another"})}
        )
        if record.arm == "prime"
        else record
        for record in trained
    ]
    apart = gather(elsewhere).grid(baseline="dense")
    assert apart.baseline

    points = cost_points(grid.blocks[0], grid.baseline, arms=grid.others)
    unlike = cost_points(apart.blocks[0], apart.baseline, arms=apart.others)

    ratios = {(point.arm, point.step_time_ratio) for point in points}
    assert ratios == {("PRIME", 1.2), ("Residual (params)", 1.0)}
    assert {point.added_parameters for point in points} == {1.0}
    assert {point.step_time_ratio for point in unlike if point.arm == "PRIME"} == {None}


def test_gain_and_cost_are_medians_over_the_pairs(make_record: MakeRecord) -> None:
    """A time is that of the pairs whose runs both have validations, and steps before them."""
    records = []
    for seed, gain, wall_s, step in (
        (1, 0.01, 20.0, 100),
        (2, 0.03, None, 100),
        (3, 0.02, 12.0, 100),
        (4, 0.02, 12.0, 0),
    ):
        for arm, auc in (("dense", 0.7), ("prime", 0.7 + gain)):
            record = make_record(arm=arm, seed=seed, auc=auc)
            history = [
                Validation(
                    epoch=1,
                    step=100 if arm == "dense" else step,
                    learning_rate=1e-3,
                    train_loss=0.4,
                    valid_auc=0.75,
                    valid_logloss=0.4,
                    improved=True,
                    wall_s=10.0 if arm == "dense" else wall_s,
                )
                for _ in range(0 if arm == "prime" and wall_s is None else 1)
            ]
            budget = {"backbone_parameters": 400, "plugin_parameters": 100}
            update = {"history": history, "budget": record.budget.model_copy(update=budget)}
            records.append(record.model_copy(update=update))
    grid = gather(records).grid(baseline="dense")
    assert grid.baseline

    (point,) = cost_points(grid.blocks[0], grid.baseline, arms=grid.others)

    assert (point.backbone, point.arm, point.n_pairs) == ("DNN", "PRIME", 4)
    assert point.difference == pytest.approx(0.02)
    assert point.added_parameters == 0.25
    assert point.step_time_ratio == pytest.approx(1.6)


def test_arms_stand_between_the_baseline_and_prime(make_record: MakeRecord) -> None:
    """The catalogue's in its order, others by their name."""
    arms = ("prime", "own_mod:B", "own_mod:A", "residual_parameters", "dense")
    records = [gradients_of(make_record(arm=arm), gap=0.1) for arm in arms]

    order = arm_order(records, baseline="dense")

    assert order[0] == "Dense"
    assert order[1] == "Residual (params)"
    assert order[-1] == "PRIME"
    assert len(order) == 5


@pytest.mark.parametrize(("n", "level"), [(1, None), (2, 0.5), (3, 0.75), (5, 0.9375)])
def test_the_range_of_n_covers_the_median_as_often_as_it_says(n: int, level: float | None) -> None:
    """Against all 2^n ways in which n values fall below or above a median."""
    row = median_row([0.1 * value for value in range(n)], label="DNN")
    patterns = [[bits >> place & 1 for place in range(n)] for bits in range(2**n)]
    covered = sum(0 < sum(pattern) < n for pattern in patterns) / 2**n

    assert row.level == level
    assert row.level is None or row.level == pytest.approx(covered)
    assert row.estimate == pytest.approx(0.05 * (n - 1))


def test_gaps_on_other_rows_and_of_random_labels_are_left_out(make_record: MakeRecord) -> None:
    records = [
        gradients_of(make_record(arm="dense", seed=1), gap=0.4),
        gradients_of(make_record(arm="prime", seed=1), gap=0.2),
        gradients_of(make_record(arm="residual_parameters", seed=1), gap=0.3, rows="others"),
    ]

    found = gap_findings(records, baseline="dense")

    assert {(item.arm, item.field) for item in found} == {
        (arm, field) for arm in ("Dense", "PRIME") for field in ("hour", "device_type")
    }
    assert {round(item.gap, 9) for item in found} == {0.4, 0.2}


def test_subgroups_are_the_largest_and_paired_by_seed(make_record: MakeRecord) -> None:
    records = [
        subgroups_of(make_record(arm=arm, seed=seed), auc=auc + 0.01 * seed)
        for arm, auc in (("dense", 0.75), ("prime", 0.753))
        for seed in (1, 2, 3)
    ]
    records.append(subgroups_of(make_record(arm="prime", seed=4), auc=0.99))

    rows = subgroup_rows(records, backbone="DNN", arms=("dense", "prime"))

    assert [row.label for row in rows] == [
        "All rows",
        *(f"{index:02}" for index in range(11, 4, -1)),
    ]
    assert {row.heading for row in rows[1:]} == {"hour"}
    assert {row.n for row in rows} == {3}
    assert [row.estimate for row in rows] == pytest.approx([0.003] * len(rows))


def test_tables_need_no_matplotlib_and_figures_no_torch() -> None:
    code = (
        "import sys\n"
        "import prime_bench.report.formats.render, prime_bench.report.document\n"
        "import prime_bench.cli.report\n"
        "assert 'matplotlib' not in sys.modules\n"
        "import prime_bench.report.figures.gallery\n"
        "print([name for name in ('torch', 'matplotlib.pyplot') if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert (done.stdout.strip(), done.stderr) == ("[]", "")

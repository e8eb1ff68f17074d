"""Every figure: the numbers that it shows, and the cases that break drawings."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from prime_bench.report.figures.curves import Curve, LoadCurve, draw_learning_curves, draw_load
from prime_bench.report.figures.differences import (
    ControlBar,
    CostPoint,
    ForestRow,
    draw_controls,
    draw_forest,
    draw_tradeoff,
)
from prime_bench.report.figures.gradients import GapFinding, draw_competition, draw_gap_reduction
from prime_bench.report.figures.pairs import PairedScores, draw_paired_dots, draw_win_grid
from prime_bench.report.figures.style import BLUE, GREY, ORANGE

Svg = Callable[[Figure], str]
MakeScores = Callable[..., PairedScores]
NAN = float("nan")
MINUS = "\N{MINUS SIGN}"
AWKWARD = ("Wide&Deep_x $a$ <b>", "a name that is much longer than any axis has room for, really")


def heights(figure: Figure) -> list[float]:
    return [bar.get_height() for bar in figure.axes[0].patches if bar.get_width() > 0]


def row(label: str, estimate: float, *, half: float | None = 0.001, n: int = 5) -> ForestRow:
    return ForestRow(
        label=label,
        estimate=estimate,
        low=None if half is None else estimate - half,
        high=None if half is None else estimate + half,
        n=n,
        level=None if half is None else 0.9375,
    )


def curve(arm: str, values: Sequence[float], *, best: int | None = 1, seed: int = 1) -> Curve:
    epochs = tuple(range(1, len(values) + 1))
    return Curve(arm=arm, seed=seed, epochs=epochs, values=tuple(values), best_epoch=best)


def load(*, backbone: str = "DNN", seed: int = 1, n_epochs: int = 3) -> LoadCurve:
    return LoadCurve(
        backbone=backbone,
        seed=seed,
        epochs=tuple(range(1, n_epochs + 1)),
        largest_load=tuple((0.2 + 0.1 * epoch, 0.4) for epoch in range(n_epochs)),
        n_experts=8,
    )


def point(backbone: str = "DNN", difference: float = 0.001, ratio: float | None = 1.2) -> CostPoint:
    return CostPoint(
        backbone=backbone,
        arm="PRIME",
        difference=difference,
        added_parameters=0.0075,
        step_time_ratio=ratio,
        n_pairs=5,
    )


def test_competition_shows_means_and_gaps(findings: list[GapFinding], svg: Svg) -> None:
    figure = draw_competition([item for item in findings if item.arm == "Dense"])

    assert heights(figure) == pytest.approx([0.9, 0.5, 0.9, 0.5])
    text = svg(figure)
    assert text.count(">0.40<") == 2
    assert "n = 4 findings a bar" in text


def test_competition_of_what_is_no_number_and_of_negative_cosines(
    findings: list[GapFinding], svg: Svg
) -> None:
    bad = GapFinding(backbone="DNN", arm="Dense", seed=9, field="hour", semantic=NAN, matched=0.9)
    low = GapFinding(backbone="AFM", arm="Dense", seed=9, field="hour", semantic=-0.2, matched=-0.1)

    text = svg(draw_competition([*findings, bad, low]))

    assert "Left out, not a number: 1" in text
    assert ">0.10<" in text


def test_gap_reduction_shows_each_arm_and_the_percentage(
    findings: list[GapFinding], svg: Svg
) -> None:
    figure = draw_gap_reduction(findings, arms=["Dense", "Residual", "PRIME"])

    assert heights(figure) == pytest.approx([0.4, 0.3, 0.2] * 2)
    assert svg(figure).count(f">{MINUS}50 %<") == 2
    fills = [to_hex(bar.get_facecolor()) for bar in figure.axes[0].patches[:3]]
    assert fills == [GREY, ORANGE, BLUE]


def test_gap_reduction_compares_only_what_arms_share(findings: list[GapFinding], svg: Svg) -> None:
    """A Dense checkpoint more, with a gap of its own, moves no bar."""
    more = GapFinding(backbone="DNN", arm="Dense", seed=3, field="hour", semantic=0.0, matched=0.9)

    figure = draw_gap_reduction([*findings, more], arms=["Dense", "Residual", "PRIME"])

    assert heights(figure) == pytest.approx([0.4, 0.3, 0.2] * 2)
    assert "Left out, unpaired or not a number: 1" in svg(figure)


@pytest.mark.parametrize(
    ("absent", "bars", "n_percentages"),
    [("Dense", [0.3, 0.2], 1), ("Residual", [0.4, 0.2], 2), ("PRIME", [0.4, 0.3], 1)],
)
def test_gap_reduction_without_an_arm_on_one_backbone(
    findings: list[GapFinding], svg: Svg, absent: str, bars: list[float], n_percentages: int
) -> None:
    some = [item for item in findings if (item.backbone, item.arm) != ("DCNv2", absent)]

    figure = draw_gap_reduction(some, arms=["Dense", "Residual", "PRIME"])

    assert heights(figure) == pytest.approx([0.4, 0.3, 0.2, *bars])
    assert svg(figure).count(f">{MINUS}50 %<") == n_percentages


def test_no_percentage_of_a_gap_that_is_not_above_zero() -> None:
    flat = [
        GapFinding(backbone="DNN", arm=arm, seed=1, field="hour", semantic=0.9, matched=matched)
        for arm, matched in (("Dense", 0.9), ("PRIME", 0.8))
    ]

    figure = draw_gap_reduction(flat, arms=["Dense", "PRIME"])

    assert [text.get_text() for text in figure.axes[0].texts] == []


def test_controls_average_all_pairs(svg: Svg) -> None:
    bars = [
        ControlBar(label="Uniform routing", differences={"DNN": (0.001, 0.002), "AFM": (0.006,)}),
        ControlBar(label="Auxiliary loss", differences={"DNN": (-0.001, NAN), "AFM": ()}),
        ControlBar(label="No record", differences={"DNN": ()}),
    ]

    figure = draw_controls(bars, reference="PRIME")

    widths = [bar.get_width() for bar in figure.axes[0].patches]
    assert widths == pytest.approx([0.003, -0.001])
    text = svg(figure)
    assert "Uniform routing (n = 3)" in text
    assert "Auxiliary loss (n = 1)" in text
    assert "No record" not in text
    assert "+0.0030" in text
    assert f"{MINUS}0.0010" in text


def test_dots_count_wins_by_the_metric_s_direction(make_scores: MakeScores, svg: Svg) -> None:
    for metric in ("auc", "logloss"):
        cell = make_scores(metric=metric)

        text = svg(draw_paired_dots([cell], baseline="Dense", arm="PRIME", metric_label=metric))

        assert "DNN: 3/5" in text
        assert "tie" in text


def test_forest_says_levels_and_names_what_is_left_out(svg: Svg) -> None:
    rows = [row("DNN", 0.002), row("AFM", -0.001, half=None, n=1), row("NFM", NAN)]

    text = svg(draw_forest(rows, axis_label="ΔAUC", band=0.001, note="A note."))

    assert "93.75% at n = 5" in text
    assert "+0.0020 [+0.0010, +0.0030]" in text
    assert f"{MINUS}0.0010  n = 1" in text
    assert "Left out, not a number: 1" in text
    assert "within ±0.001" in text


def test_forest_bends_where_one_row_dwarfs_the_others(svg: Svg) -> None:
    near = [row(f"B{index}", 0.002 + 0.0001 * index) for index in range(6)]

    assert "logarithmic" not in svg(draw_forest(near, axis_label="Δ"))
    text = svg(draw_forest([*near, row("far", 0.2), row("back", -0.15)], axis_label="Δ"))
    assert "logarithmic beyond ±0.001" in text
    for tick in ("+0.100", f"{MINUS}0.100", ">0<"):
        assert tick in text


def test_win_grid_has_a_sign_for_every_square(make_scores: MakeScores, svg: Svg) -> None:
    cell = make_scores(differences=(0.0012, -0.0003, 0.0, 0.00001))

    text = svg(draw_win_grid({"AUC": [cell]}, seeds=(2021, 190034, 27011, 948432, 7), arm="PRIME"))

    assert "AUC: 2 of 4 won" in text
    for square in ("▲ 12", "▽ 3", ">=<", "▲ &lt;1", ">·<"):
        assert square in text, square


def test_tradeoff_leaves_out_times_that_do_not_compare(svg: Svg) -> None:
    figure = draw_tradeoff([point(), point("AFM", -0.002, None)], baseline="Dense")

    left, right = figure.axes
    assert len(left.lines[0].get_xdata()) == 2
    assert list(right.lines[0].get_xdata()) == [1.2]
    assert "devices differ: 1" in svg(figure)


def test_curves_break_at_what_is_no_number_and_mark_the_kept_epoch() -> None:
    figure = draw_learning_curves(
        {"DNN": [curve("Dense", (0.7, NAN, 0.72), best=3), curve("PRIME", (0.71,), best=None)]},
        arms=("Dense", "PRIME"),
        metric_label="Validation AUC",
    )

    line, kept, single = figure.axes[0].lines
    assert np.isnan(line.get_ydata()[1])
    assert (list(kept.get_xdata()), list(kept.get_ydata())) == ([3], [0.72])
    assert single.get_marker() == "_"


def test_load_is_the_mean_over_bags_beside_an_even_load() -> None:
    figure = draw_load([load()])

    line, even = figure.axes[0].lines
    assert list(line.get_ydata()) == pytest.approx([0.3, 0.35, 0.4])
    assert even.get_ydata()[0] == pytest.approx(1 / 8)


@pytest.mark.parametrize("n", [1, 13])
def test_any_number_of_backbones_and_awkward_names(
    make_scores: MakeScores, svg: Svg, n: int
) -> None:
    names = [f"{AWKWARD[index % 2]} {index}" for index in range(n)]
    cells = [make_scores(name) for name in names]
    arm = AWKWARD[1]

    for figure in (
        draw_paired_dots(cells, baseline="Dense", arm=arm, metric_label="AUC"),
        draw_win_grid({"AUC": cells, "LogLoss": cells}, seeds=(2021, 190034), arm="PRIME"),
        draw_forest([row(name, 0.001 * index) for index, name in enumerate(names)], axis_label="Δ"),
        draw_tradeoff([point(name) for name in names], baseline=arm),
        draw_learning_curves(
            {name: [curve("Dense", (0.7, 0.71)), curve(arm, (0.7, 0.72))] for name in names},
            arms=("Dense", arm),
            metric_label="AUC",
        ),
        draw_load([load(backbone=name, seed=seed) for name in names for seed in range(6)]),
        draw_controls(
            [ControlBar(label=name, differences={"DNN": (0.001,)}) for name in names], reference=arm
        ),
    ):
        assert "Wide&amp;Deep_x $a$" in svg(figure)


@pytest.mark.parametrize(
    "draw",
    [
        lambda: draw_competition([]),
        lambda: draw_gap_reduction([], arms=["Dense", "PRIME"]),
        lambda: draw_controls([], reference="PRIME"),
        lambda: draw_paired_dots([], baseline="Dense", arm="PRIME", metric_label="AUC"),
        lambda: draw_forest([row("DNN", NAN)], axis_label="Δ"),
        lambda: draw_win_grid({"AUC": []}, seeds=(1,), arm="PRIME"),
        lambda: draw_tradeoff([], baseline="Dense"),
        lambda: draw_learning_curves({"DNN": []}, arms=("Dense", "PRIME"), metric_label="AUC"),
        lambda: draw_load([load(n_epochs=0)]),
    ],
)
def test_nothing_to_show_is_said(draw: Callable[[], Figure], svg: Svg) -> None:
    figure = draw()

    assert figure.axes == []
    assert ">no " in svg(figure)


@pytest.mark.parametrize(
    "differences", [(0.001,), (0.0, 0.0), (NAN, 0.001), (0.26, 1e-7), (-0.5, -0.4)]
)
def test_cells_of_any_size(
    make_scores: MakeScores, svg: Svg, differences: tuple[float, ...]
) -> None:
    cell = make_scores(differences=differences)
    estimates = list(cell.differences.values())

    n, wins = len(estimates), sum(value > 0 for value in estimates)
    assert n == sum(not np.isnan(value) for value in differences)

    dots = svg(draw_paired_dots([cell], baseline="Dense", arm="PRIME", metric_label="AUC"))
    assert f"DNN: {wins}/{n}" in dots
    grid = svg(draw_win_grid({"AUC": [cell]}, seeds=cell.seeds, arm="PRIME"))
    assert f"AUC: {wins} of {n} won" in grid
    assert grid.count(">·<") == len(differences) - n
    forest = svg(
        draw_forest([row("DNN", value) for value in estimates], axis_label="Δ", band=0.001)
    )
    for value in estimates:
        assert f"{abs(value):.4f} [" in forest
    tradeoff = draw_tradeoff([point(difference=value) for value in estimates], baseline="Dense")
    svg(tradeoff)
    assert tradeoff.axes[0].lines[0].get_ydata() == pytest.approx(estimates)

"""Every mark of a figure is where its number says, looks as the legend says, and can be read."""

import itertools
import math
from collections.abc import Callable, Sequence
from statistics import stdev

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Text
from matplotlib.transforms import Bbox

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
from prime_bench.report.figures.sensitivity import (
    Sensitivity,
    SensitivityPoint,
    draw_sensitivity,
)
from prime_bench.report.figures.style import BLUE, FAINT, GREEN, GREY, INK, ORANGE

Svg = Callable[[Figure], str]
MakeScores = Callable[..., PairedScores]
MINUS = "\N{MINUS SIGN}"


def texts_of(figure: Figure) -> list[Text]:
    """Every text that is shown: of ticks those alone within the axes."""
    found = [*figure.texts, *(text for legend in figure.legends for text in legend.get_texts())]
    found += [text for text in figure.get_children() if isinstance(text, Text)]
    for axes in figure.axes:
        found += [axes.title, axes.xaxis.label, axes.yaxis.label, *axes.texts]
        for axis, limits in ((axes.xaxis, axes.get_xlim()), (axes.yaxis, axes.get_ylim())):
            low, high = sorted(limits)
            found += [
                tick.label1 for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high
            ]
    unique = {id(text): text for text in found if text.get_visible() and text.get_text().strip()}
    return list(unique.values())


def assert_readable(figure: Figure) -> None:
    """All texts are within the figure, none covers another, and no data is cut off."""
    figure.draw_without_rendering()  # places the texts of legends
    boxes = [(text.get_text(), text.get_window_extent(), text) for text in texts_of(figure)]
    whole = figure.bbox.padded(2)
    for words, box, _ in boxes:
        assert whole.x0 <= box.x0, words
        assert box.x1 <= whole.x1, words
        assert whole.y0 <= box.y0, words
        assert box.y1 <= whole.y1, words
    level = [(words, box) for words, box, text in boxes if text.get_rotation() in (0, 90)]
    for (one, first), (other, second) in itertools.combinations(level, 2):
        shared = Bbox.intersection(first, second)
        assert shared is None or min(shared.width, shared.height) <= 4, (one, other)
    for axes in figure.axes:
        for line in axes.lines:
            if line.get_transform() != axes.transData:
                continue  # a line across the plot
            for values, limits in (
                (line.get_xdata(), axes.get_xlim()),
                (line.get_ydata(), axes.get_ylim()),
            ):
                shown = [float(value) for value in values if math.isfinite(value)]
                assert min(limits) <= min(shown, default=min(limits))
                assert max(shown, default=max(limits)) <= max(limits)


def dots(axes: Axes) -> list[tuple[float, float]]:
    """Data of the lines without a stroke."""
    return [
        (float(x), float(y))
        for line in axes.lines
        if line.get_linestyle() == "None"
        for x, y in zip(line.get_xdata(), line.get_ydata(), strict=True)
    ]


def look(line: Line2D) -> tuple[str, str, object]:
    return to_hex(line.get_color()), line.get_linestyle(), line.get_marker()


def legend_of(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.legends[0].get_texts()]


def ticks(axes: Axes, *, of: str = "x") -> list[str]:
    axis = axes.xaxis if of == "x" else axes.yaxis
    return [label.get_text() for label in axis.get_majorticklabels()]


def row(
    label: str, low: float, estimate: float, high: float, *, heading: str, overall: bool = False
) -> ForestRow:
    return ForestRow(
        label=label,
        estimate=estimate,
        low=low,
        high=high,
        n=5,
        level=0.9375,
        heading=heading,
        overall=overall,
    )


def test_a_forest_has_its_rows_from_the_top(svg: Svg) -> None:
    rows = [
        row("DNN", 0.001, 0.002, 0.004, heading="PRIME"),
        row("AFM", -0.003, -0.001, 0.0005, heading="PRIME"),
        row("Over backbones", -0.002, 0.0005, 0.003, heading="PRIME", overall=True),
        row("DNN", 0.0005, 0.001, 0.002, heading="APG"),
    ]

    figure = draw_forest(rows, axis_label="Test AUC: a difference", band=0.001, note="A note.")

    (axes,) = figure.axes
    assert_readable(figure)
    # A row apart; the first row of an arm stands below its heading.
    heights = [1, 2, 3.4, 5.8]
    assert list(axes.get_yticks()) == pytest.approx(heights)
    assert ticks(axes, of="y") == ["DNN", "AFM", "Over backbones", "DNN"]
    assert [label.get_fontweight() for label in axes.get_yticklabels()] == (
        ["normal", "normal", "bold", "normal"]
    )
    bottom, top = axes.get_ylim()
    assert 5.8 + 0.5 <= bottom <= 5.8 + 1
    assert -1 <= top <= -0.5
    zero, *estimates = axes.lines
    assert (list(zero.get_xdata()), to_hex(zero.get_color())) == ([0, 0], INK)
    assert [(line.get_xdata()[0], line.get_ydata()[0]) for line in estimates] == [
        (item.estimate, pytest.approx(height)) for item, height in zip(rows, heights, strict=True)
    ]
    # A circle is better, an empty square worse; a diamond is over the others.
    assert [line.get_marker() for line in estimates] == ["o", "s", "D", "o"]
    assert [to_hex(line.get_markeredgecolor()) for line in estimates] == [BLUE, ORANGE, BLUE, BLUE]
    filled = [to_hex(line.get_markerfacecolor()) for line in estimates]
    assert filled == [BLUE, "#ffffff", BLUE, BLUE]
    assert estimates[2].get_markersize() > estimates[0].get_markersize()
    for item, height, across, ends in zip(
        rows, heights, axes.collections[::2], axes.collections[1::2], strict=True
    ):
        ((start, end),) = across.get_segments()
        assert [*start, *end] == pytest.approx([item.low, height, item.high, height])
        assert [to_hex(c) for c in across.get_color()] == [ORANGE if item.estimate < 0 else BLUE]
        for x, segment in zip((item.low, item.high), ends.get_segments(), strict=True):
            (x0, y0), (x1, y1) = sorted(segment.tolist())
            assert (x0, x1) == (x, x)
            assert height - 0.5 < y0 < height < y1 < height + 0.5
    band = axes.patches[0].get_window_extent().transformed(axes.transData.inverted())
    assert (band.x0, band.x1) == pytest.approx((-0.001, 0.001))
    *beside, first, second = axes.texts
    assert [text.get_position()[1] for text in beside] == pytest.approx(heights)
    assert {text.get_verticalalignment() for text in axes.texts} == {"center"}
    assert beside[1].get_text() == f"{MINUS}0.0010 [{MINUS}0.0030, +0.0005]  n = 5"
    assert [(text.get_text(), text.get_position()[1]) for text in (first, second)] == [
        ("PRIME", 0),
        ("APG", pytest.approx(4.8)),
    ]
    assert axes.get_xlabel() == "Test AUC: a difference"
    note = "Exact intervals: 93.75% at n = 5. Shaded: within ±0.001. A note."
    assert note in svg(figure)


def test_a_forest_without_headings_or_a_band(svg: Svg) -> None:
    rows = [
        ForestRow(label="DNN", estimate=0.002, low=None, high=None, n=1, level=None),
        row("Over backbones", 0.001, 0.002, 0.003, heading="", overall=True),
    ]

    figure = draw_forest(rows, axis_label="Δ")
    single = draw_forest(rows[:1], axis_label="Δ")

    (axes,) = figure.axes
    assert_readable(figure)
    assert list(axes.get_yticks()) == pytest.approx([0, 1.4])
    assert not axes.patches
    assert len(axes.collections) == 2  # of one interval
    assert "Shaded" not in svg(figure)
    assert "No row has enough pairs for an interval." in svg(single)


def test_pairs_are_drawn_by_who_is_better(make_scores: MakeScores, svg: Svg) -> None:
    cells = [
        make_scores("DNN", (0.001, -0.002, 0.0)),
        make_scores("AFM", (0.003, math.nan)),
        make_scores("NFM", (math.nan,)),
    ]

    figure = draw_paired_dots(cells, baseline="Dense", arm="PRIME", metric_label="Test AUC")

    first = figure.axes[0]
    assert_readable(figure)
    assert [look(line) for line in first.lines] == [
        (BLUE, "-", "o"),
        (ORANGE, "--", "s"),
        (FAINT, ":", "D"),
    ]
    assert [list(line.get_xdata()) for line in first.lines] == [[0, 1]] * 3
    assert [list(line.get_ydata()) for line in first.lines] == [
        pytest.approx([0.75, 0.75 + difference]) for difference in (0.001, -0.002, 0)
    ]
    assert ticks(first) == ["Dense", "PRIME"]
    assert [axes.get_title() for axes in figure.axes] == ["DNN: 1/3", "AFM: 1/1"]
    assert [axes.get_ylabel() for axes in figure.axes] == ["Test AUC", ""]
    assert legend_of(figure) == ["PRIME is better", "PRIME is worse", "tie"]
    handles = [look(handle) for handle in figure.legends[0].legend_handles]
    assert handles == [look(line) for line in first.lines]
    # The scores themselves along the axis, and not what they are above another number.
    close = draw_paired_dots(
        [make_scores("DNN", (0.00001, -0.00002))], baseline="A", arm="B", metric_label="AUC"
    )
    close.draw_without_rendering()
    assert close.axes[0].yaxis.get_offset_text().get_text() == ""
    assert "n = 4 pairs, a line a seed;" in svg(figure)
    assert "Left out, not a number: 2." in svg(figure)
    untied = draw_paired_dots([cells[1]], baseline="Dense", arm="PRIME", metric_label="AUC")
    assert legend_of(untied) == ["PRIME is better", "PRIME is worse"]


def test_squares_are_coloured_by_sign_and_size(make_scores: MakeScores, svg: Svg) -> None:
    cells = [make_scores("DNN", (0.0012, -0.0003, 0.0)), make_scores("AFM", (-0.0012,))]

    figure = draw_win_grid(
        {"AUC": cells, "LogLoss": cells[:1]}, seeds=(2021, 190034, 27011, 7), arm="PRIME"
    )

    left, right = figure.axes
    assert_readable(figure)
    shades = left.collections[0].get_array().reshape(2, 4)
    assert shades.mask.tolist() == [[False, False, False, True], [False, True, True, True]]
    won, lost, tied = shades[0, 0], shades[0, 1], shades[0, 2]
    # The root of a size against twice the 90th percentile of all sizes.
    size = float(np.quantile([0.0012, 0.0003, 0.0, 0.0012], 0.9))
    assert [won, lost, tied] == pytest.approx(
        [(0.0012 / size / 2) ** 0.5, -((0.0003 / size / 2) ** 0.5), 0]
    )
    assert shades[1, 0] == pytest.approx(-won)
    colours = left.collections[0].get_cmap()
    assert [to_hex(colours(share)) for share in (0.0, 1.0)] == [ORANGE, BLUE]
    assert [to_hex(edge) for edge in left.collections[0].get_edgecolor()] == ["#ffffff"]
    low, high = left.collections[0].get_clim()
    assert low == -high < -1
    assert ticks(left, of="y") == ["DNN", "AFM"]
    assert ticks(left) == ["2021", "190034", "27011", "7"]
    assert left.get_ylim() == (2, 0)  # the first at the top
    assert [(text.get_text(), text.get_position()) for text in left.texts[:5]] == [
        ("▲ 12", (0.5, 0.5)),
        ("▽ 3", (1.5, 0.5)),
        ("=", (2.5, 0.5)),
        ("·", (3.5, 0.5)),
        ("▽ 12", (0.5, 1.5)),
    ]
    assert [axes.get_title() for axes in (left, right)] == [
        "AUC: 1 of 4 won",
        "LogLoss: 1 of 3 won",
    ]
    assert "n = 3 to 4 pairs a metric." in svg(figure)


def test_controls_have_a_bar_over_all_pairs_and_a_dot_a_backbone(svg: Svg) -> None:
    bars = [
        ControlBar(label="Uniform", differences={"DNN": (0.001, 0.002), "AFM": (0.006,)}),
        ControlBar(label="Auxiliary", differences={"DNN": (-0.001, math.nan)}),
    ]

    figure = draw_controls(bars, reference="PRIME")

    (axes,) = figure.axes
    assert_readable(figure)
    assert np.array(dots(axes)) == pytest.approx(np.array([(0.0015, 0), (0.006, 0), (-0.001, 1)]))
    middles = [(bar.get_y() + bar.get_height() / 2, bar.get_height()) for bar in axes.patches]
    assert [middle for middle, _ in middles] == pytest.approx([0, 1])
    assert all(0.4 < height < 0.9 for _, height in middles)
    assert [to_hex(bar.get_facecolor()) for bar in axes.patches] == [BLUE, ORANGE]
    assert [bool(bar.get_hatch()) for bar in axes.patches] == [False, True]
    assert ticks(axes, of="y") == ["Uniform (n = 3)", "Auxiliary (n = 1)"]
    assert axes.yaxis_inverted()
    # Beside the bar and its dots, or beside zero.
    assert [(text.get_text(), text.xy) for text in axes.texts] == [
        ("+0.0030", (0.006, 0)),
        (f"{MINUS}0.0010", (0, 1)),
    ]
    assert axes.get_xlabel() == f"Test AUC: PRIME {MINUS} control"
    assert "Above zero: PRIME is ahead." in svg(figure)


def point(backbone: str, arm: str, difference: float, share: float, time: float | None, n: int):
    return CostPoint(
        backbone=backbone,
        arm=arm,
        difference=difference,
        added_parameters=share,
        step_time_ratio=time,
        n_pairs=n,
    )


def test_gain_stands_over_parameters_and_over_time(svg: Svg) -> None:
    points = [
        point("DNN", "PRIME", 0.001, 0.01, 1.2, 5),
        point("AFM", "PRIME", -0.0005, 0.05, None, 3),
        point("DNN", "APG", 0.002, 0.02, 1.5, 5),
    ]

    figure = draw_tradeoff(points, baseline="Dense")

    left, right = figure.axes
    assert_readable(figure)
    first, second, zero = left.lines
    assert [list(first.get_xdata()), list(first.get_ydata())] == [[1, 5], [0.001, -0.0005]]
    assert [list(second.get_xdata()), list(second.get_ydata())] == [[2], [0.002]]
    assert list(zero.get_ydata()) == [0, 0]
    assert [list(line.get_xdata()) for line in right.lines[:2]] == [[1.2], [1.5]]
    assert list(right.lines[3].get_xdata()) == [1, 1]  # as fast as Dense
    assert [look(line)[0] for line in (first, second)] == [BLUE, ORANGE]
    assert look(first)[2] != look(second)[2]
    assert {to_hex(line.get_markeredgecolor()) for line in (first, second)} == {INK}
    assert legend_of(figure) == ["PRIME", "APG"]
    # Of several arms no names are written.
    assert not left.texts
    assert left.get_xlabel() == "Parameters added to Dense"
    assert right.get_xlabel() == "Time of a training step, Dense = 1"
    assert left.get_ylabel() == "Test AUC: median paired difference"
    assert "2 %" in ticks(left)
    assert "+0.0010" in ticks(left, of="y")
    note = "3 points; each is the median over n = 3 to 5 pairs."
    assert note in svg(figure)
    assert "Without a time, since devices differ: 1." in svg(figure)


def test_names_beside_points_that_are_close_cover_nothing() -> None:
    places = [(0.0010, 0.02), (0.00105, 0.021), (0.0011, 0.02), (0.001, 0.0222), (-0.001, 0.001)]
    points = [
        point(f"Backbone {index}", "PRIME", difference, share, 1 + share, 5)
        for index, (difference, share) in enumerate(places)
    ]

    figure = draw_tradeoff(points, baseline="Dense")

    assert_readable(figure)
    for axes in figure.axes:
        assert sorted(text.get_text() for text in axes.texts) == [
            f"Backbone {index}" for index in range(5)
        ]
        names = {text.get_text(): text.xy for text in axes.texts}
        drawn = axes.lines[0]
        assert [names[f"Backbone {index}"] for index in range(5)] == list(
            zip(drawn.get_xdata(), drawn.get_ydata(), strict=True)
        )
        pixels = axes.transData.transform(list(names.values()))
        for text in axes.texts:
            box = text.get_window_extent()
            assert not any(box.padded(-3).contains(*pixel) for pixel in pixels), text
            own = axes.transData.transform(text.xy)
            assert abs(own[1] - (box.y0 + box.y1) / 2) < figure.dpi / 72 * 20  # 20 points


def curve(arm: str, seed: int, values: Sequence[float], *, best: int | None) -> Curve:
    epochs = tuple(range(1, len(values) + 1))
    return Curve(arm=arm, seed=seed, epochs=epochs, values=tuple(values), best_epoch=best)


def test_curves_look_as_the_legend_says(svg: Svg) -> None:
    curves = {
        "DNN": [
            curve("PRIME", 1, (0.70, 0.72), best=2),
            curve("Dense", 1, (0.70, 0.71), best=1),
            curve("APG", 1, (0.1, 0.2), best=1),
        ],
        "AFM": [curve("APG", 1, (0.1, 0.2), best=1)],
        "NFM": [curve("Dense", 1, (0.70,), best=7)],
    }

    figure = draw_learning_curves(curves, arms=("Dense", "PRIME"), metric_label="Validation AUC")

    first, second = figure.axes
    assert_readable(figure)
    prime, its_best, dense, other_best = first.lines
    assert look(prime)[:2] == (BLUE, "-")
    assert look(dense)[:2] == (ORANGE, "--")
    assert [(look(line)[0], look(line)[2]) for line in (its_best, other_best)] == [
        (BLUE, "o"),
        (ORANGE, "s"),
    ]
    assert (list(its_best.get_xdata()), list(its_best.get_ydata())) == ([2], [0.72])
    assert (list(other_best.get_xdata()), list(other_best.get_ydata())) == ([1], [0.70])
    assert list(prime.get_xdata()) == [1, 2]
    assert list(prime.get_ydata()) == [0.70, 0.72]
    assert [axes.get_title() for axes in figure.axes] == ["DNN", "NFM"]
    assert len(second.lines) == 1  # its kept epoch is not there
    assert [axes.get_xlabel() for axes in figure.axes] == ["Epoch", "Epoch"]
    assert [axes.get_ylabel() for axes in figure.axes] == ["Validation AUC", ""]
    assert legend_of(figure) == ["Dense", "PRIME"]
    handles = [look(handle)[:2] for handle in figure.legends[0].legend_handles]
    assert handles == [look(dense)[:2], look(prime)[:2]]
    assert "n = 3 runs, a line each;" in svg(figure)


def load(backbone: str, seed: int, loads: Sequence[tuple[float, ...]], n: int) -> LoadCurve:
    return LoadCurve(
        backbone=backbone,
        seed=seed,
        epochs=tuple(range(1, len(loads) + 1)),
        largest_load=tuple(loads),
        n_experts=n,
    )


def test_load_has_a_line_a_seed_with_the_range_of_the_bags(svg: Svg) -> None:
    curves = [
        load("DNN", 1, [(0.2, 0.6), (0.3, 0.3)], 8),
        load("DNN", 2, [(0.5, 0.7), (0.4, 0.6)], 8),
        load("AFM", 2, [(0.4, 0.5, 0.9)], 4),
    ]

    figure = draw_load(curves)

    first, second = figure.axes
    assert_readable(figure)
    one, two, even = first.lines
    assert list(one.get_ydata()) == pytest.approx([0.4, 0.3])
    assert list(two.get_ydata()) == pytest.approx([0.6, 0.5])
    assert list(one.get_xdata()) == [1, 2]
    assert list(even.get_ydata()) == pytest.approx([1 / 8] * 2)
    assert list(second.lines[1].get_ydata()) == pytest.approx([1 / 4] * 2)
    assert second.lines[0].get_marker() == "o"  # of one epoch
    assert look(second.lines[0])[:2] == look(two)[:2] != look(one)[:2]
    band = first.collections[1].get_paths()[0].get_extents()
    assert (band.y0, band.y1) == pytest.approx((0.4, 0.7))
    # As its line, which is seen through it; an edge would make the range wider.
    fills = [to_hex(band.get_facecolor()) for band in first.collections]
    assert fills == [look(one)[0], look(two)[0]]
    assert all(band.get_alpha() < 0.5 for band in first.collections)
    assert [*first.collections[0].get_linewidth()] == [0]
    handles = [look(handle)[:2] for handle in figure.legends[0].legend_handles]
    assert handles == [look(one)[:2], look(two)[:2]]
    assert (first.get_ylim()[0], second.get_ylim()[0]) == (0, 0)
    assert [axes.get_title() for axes in figure.axes] == ["DNN", "AFM"]
    assert legend_of(figure) == ["seed 1", "seed 2"]
    assert first.get_ylabel() == "Largest mean load"
    assert "n = 3 runs; line: mean over the 2 to 3 bags of a run" in svg(figure)


def test_sixteen_seeds_have_lines_of_their_own() -> None:
    figure = draw_load([load("DNN", seed, [(0.2,), (0.3,)], 8) for seed in range(16)])

    assert len({look(line)[:2] for line in figure.axes[0].lines[:16]}) == 16


def test_competition_has_the_random_bar_left_of_the_semantic_one(
    findings: list[GapFinding], svg: Svg
) -> None:
    dense = [item for item in findings if item.arm == "Dense"]
    more = GapFinding(backbone="AFM", arm="Dense", seed=1, field="hour", semantic=0.25, matched=0.5)

    figure = draw_competition([*dense, more])

    (axes,) = figure.axes
    assert_readable(figure)
    bars = axes.patches[:6]
    left, right = bars[::2], bars[1::2]
    for place, (random, semantic) in enumerate(zip(left, right, strict=True)):
        assert random.get_x() + random.get_width() == pytest.approx(place)
        assert semantic.get_x() == pytest.approx(place)
        assert random.get_width() == pytest.approx(semantic.get_width())
        assert 0.2 < random.get_width() < 0.5
    assert [bar.get_height() for bar in left] == pytest.approx([0.9, 0.9, 0.5])
    assert [bar.get_height() for bar in right] == pytest.approx([0.5, 0.5, 0.25])
    assert [to_hex(bar.get_facecolor()) for bar in bars[:2]] == [BLUE, ORANGE]
    handles = figure.legends[0].legend_handles
    assert [to_hex(handle.get_facecolor()) for handle in handles] == [BLUE, ORANGE]
    assert legend_of(figure) == ["Matched random groups", "Semantic groups"]
    assert ticks(axes) == ["DNN", "DCNv2", "AFM"]
    numbers = [text for text in axes.texts if text.get_text()]
    assert [text.get_text() for text in numbers] == ["0.40", "0.40", "0.25"]
    middle = right[2].get_x() + right[2].get_width() / 2
    assert numbers[2].xy == pytest.approx((middle, 0.5))
    box = numbers[2].get_window_extent()
    assert (box.x0 + box.x1) / 2 == pytest.approx(axes.transData.transform((middle, 0.5))[0], abs=2)
    ((start, end),) = axes.collections[2].get_segments()
    assert [*start, *end] == pytest.approx([2, 0.5, 2 + right[2].get_width(), 0.5])
    arrows = [text for text in axes.texts if not text.get_text()]
    assert (arrows[2].xyann, arrows[2].xy) == (
        pytest.approx((middle, 0.5)),
        pytest.approx((middle, 0.25)),
    )
    note = "Means of n = 1 to 4 findings a bar: 5 checkpoints in all; fields: site_category, hour."
    assert note in svg(figure)


def test_gap_reduction_has_an_arm_beside_the_other(findings: list[GapFinding], svg: Svg) -> None:
    arms = ["Dense", "Residual", "PRIME"]
    # The seeds of one arm differ, its fields too.
    moved = {(1, "hour"): 0.04, (1, "site_category"): 0.0, (2, "hour"): -0.02}
    shifted = [
        GapFinding(
            backbone=item.backbone,
            arm=item.arm,
            seed=item.seed,
            field=item.field,
            semantic=item.semantic - moved.get((item.seed, item.field), -0.02),
            matched=item.matched,
        )
        for item in findings
    ]

    figure = draw_gap_reduction(shifted, arms=arms)

    (axes,) = figure.axes
    assert_readable(figure)
    bars = axes.patches[:6]
    middles = [bar.get_x() + bar.get_width() / 2 for bar in bars]
    width = bars[0].get_width()
    assert middles == pytest.approx([c + d * width for c in (0, 1) for d in (-1, 0, 1)])
    assert 0.6 < 3 * width < 1
    assert [bar.get_height() for bar in bars] == pytest.approx([0.4, 0.3, 0.2] * 2)
    # A dot for each seed: the mean over its fields.
    expected = [(-width, 0.42), (-width, 0.38), (0, 0.32), (0, 0.28)]
    assert np.array(dots(axes)[:4]) == pytest.approx(np.array(expected), abs=1e-12)
    assert [to_hex(bar.get_facecolor()) for bar in bars[:3]] == [GREY, ORANGE, BLUE]
    assert legend_of(figure) == arms
    assert ticks(axes) == ["DNN", "DCNv2"]
    assert [(text.get_text(), text.xy) for text in axes.texts] == [
        (f"{MINUS}50 %", (0, pytest.approx(0.4))),
        (f"{MINUS}50 %", (1, pytest.approx(0.4))),
    ]
    assert "the arms share (n = 2 by seed, 2 by field)" in svg(figure)
    assert "Percentage: from Dense to PRIME." in svg(figure)


def tried(
    x: str, line: str, valid: Sequence[float], test: Sequence[float], *, chosen: bool = False
) -> SensitivityPoint:
    scores = {"valid": tuple(valid), "test": tuple(test)}
    return SensitivityPoint(x=x, line=line, scores=scores, chosen=chosen)


def test_sensitivity_has_means_bars_and_a_ring(svg: Svg) -> None:
    shown = Sensitivity(
        backbone="DNN",
        points=(
            tried("4", "a", (0.70, 0.72), (0.60, 0.61)),
            tried("8", "a", (0.73, 0.75), (0.62, 0.66), chosen=True),
            tried("8", "b", (0.71,), (0.59,)),
        ),
        x_values=("4", "8"),
        lines=("a", "b"),
        left_out=2,
    )

    figure = draw_sensitivity([shown], keys=["rank", "gate"], others=["width"])

    valid, test = figure.axes
    assert_readable(figure)
    assert [axes.get_title() for axes in figure.axes] == ["DNN: validation", "DNN: test"]
    for axes, (first, chosen, other), deviations in (
        (valid, (0.71, 0.74, 0.71), (stdev([0.70, 0.72]), stdev([0.73, 0.75]), 0)),
        (test, (0.605, 0.64, 0.59), (stdev([0.60, 0.61]), stdev([0.62, 0.66]), 0)),
    ):
        line, ring, second = axes.lines
        assert list(line.get_ydata()) == pytest.approx([first, chosen])
        assert list(line.get_xdata()) == pytest.approx([-0.03, 0.97])
        assert np.isnan(second.get_ydata()[0])
        assert second.get_ydata()[1] == pytest.approx(other)
        assert list(second.get_xdata()) == pytest.approx([0.03, 1.03])
        assert (ring.get_xdata()[0], ring.get_ydata()[0]) == pytest.approx((0.97, chosen))
        assert (look(ring)[2], to_hex(ring.get_markeredgecolor())) == ("o", INK)
        bars = [bar.get_segments() for bar in axes.collections]
        lengths = [top - bottom for (_, bottom), (_, top) in bars[0]]
        assert lengths == pytest.approx([2 * deviations[0], 2 * deviations[1]])
        colours = [to_hex(bar.get_color()[0]) for bar in axes.collections]
        assert colours == [look(line)[0], look(second)[0]]
        assert ticks(axes) == ["4", "8"]
        left, right = axes.get_xlim()
        assert left < -0.03
        assert right > 1.03
        assert axes.get_xlabel() == "rank"
        assert look(line)[0] != look(second)[0]
        assert look(line)[2] != look(second)[2]
        handles = [look(handle) for handle in figure.legends[0].legend_handles]
        assert handles == [look(line), look(second)]
    assert (valid.get_ylabel(), test.get_ylabel()) == ("AUC", "")
    assert legend_of(figure) == ["gate = a", "gate = b"]
    text = svg(figure)
    assert "n = 1 to 2 seeds a point" in text
    assert "Of width each point has the value of the highest validation AUC." in text
    assert "Left out, without a validation AUC of every seed: 2." in text


def test_sensitivity_of_many_backbones_and_lines(svg: Svg) -> None:
    def of(backbone: str, n_lines: int) -> Sensitivity:
        names = tuple(f"v{index}" for index in range(n_lines))
        return Sensitivity(
            backbone=backbone,
            points=tuple(tried("1", name, (0.7,), (0.6,)) for name in names),
            x_values=("1",),
            lines=names,
            left_out=0,
        )

    nothing = Sensitivity(backbone="NFM", points=(), x_values=(), lines=(), left_out=1)
    shown = [of("DNN", 2), of("AFM", 10), nothing, of("DCNv2", 1)]

    figure = draw_sensitivity(shown, keys=["a", "b"], others=())

    assert_readable(figure)
    assert [axes.get_title() for axes in figure.axes] == [
        f"{name}: {split}" for name in ("DNN", "AFM", "DCNv2") for split in ("validation", "test")
    ]
    assert figure.axes[0].get_subplotspec().get_gridspec().get_geometry() == (2, 4)
    assert [axes.get_ylabel() for axes in figure.axes] == ["AUC", ""] * 3
    assert legend_of(figure) == [f"b = v{index}" for index in range(8)]
    handles = [look(handle) for handle in figure.legends[0].legend_handles]
    assert len(set(handles)) == 8
    assert [look(line) for line in figure.axes[2].lines] == handles
    assert "Lines: the first 8 of 10 values." in svg(figure)
    single = draw_sensitivity([of("DNN", 1)], keys=["a"], others=())
    assert not single.legends
    assert "Lines: the first" not in svg(single)
    assert "no settings with a validation AUC" in svg(
        draw_sensitivity([nothing], keys=["a"], others=())
    )


def test_green_is_the_colour_of_the_third_of_four_arms(findings: list[GapFinding]) -> None:
    more = [
        GapFinding(
            backbone=item.backbone,
            arm="APG",
            seed=item.seed,
            field=item.field,
            semantic=item.semantic,
            matched=item.matched,
        )
        for item in findings
        if item.arm == "Dense"
    ]

    figure = draw_gap_reduction(
        [*findings, *more], arms=["Dense", "Residual", "APG", "absent", "PRIME"]
    )

    fills = [to_hex(bar.get_facecolor()) for bar in figure.axes[0].patches[:4]]
    assert fills == [GREY, ORANGE, GREEN, BLUE]
    assert legend_of(figure) == ["Dense", "Residual", "APG", "PRIME"]

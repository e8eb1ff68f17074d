"""The style is the same whatever the user's matplotlib is set to, and leaves no trace."""

import matplotlib
import pytest
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Text

from prime_bench.report.figures.style import (
    LONGEST_LABEL,
    add_legend,
    add_note,
    bar_styles,
    difference_scale,
    empty_figure,
    epoch_axis,
    label_outer,
    limit_ticks,
    shorten,
    signed_number,
    signed_ticks,
    small_multiples,
    styled,
)

MINUS = "\N{MINUS SIGN}"


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.00123, "+0.0012"), (-0.00061, "\N{MINUS SIGN}0.0006"), (-0.00001, "0.0000")],
)
def test_a_difference_has_a_sign_and_a_real_minus(value: float, text: str) -> None:
    assert signed_number(value, 4) == text


@pytest.mark.parametrize(
    "label", ["DNN", "word " * 20, "x" * 99, "Wide&Deep_x (hidden_units = [400, 400])"]
)
def test_labels_are_short_and_keep_their_beginning(label: str) -> None:
    text = shorten(label)

    assert LONGEST_LABEL // 2 < len(text) <= LONGEST_LABEL or text == label
    assert text.endswith("…") == (len(label.strip()) > LONGEST_LABEL)
    assert label.startswith(text.rstrip("…")[:10].strip())


def test_style_is_ours_and_leaves_no_trace() -> None:
    seen = {}

    @styled
    def draw() -> Figure:
        keys = ("font.size", "text.parse_math", "axes.grid")
        seen.update({key: matplotlib.rcParams[key] for key in keys})
        return empty_figure(3.0, "nothing")

    with matplotlib.rc_context({"font.size": 33, "axes.grid": True}):
        draw()
        after = matplotlib.rcParams["font.size"]

    # The last one is matplotlib's own default, which the style leaves as it is.
    assert seen == {"font.size": 7.5, "text.parse_math": False, "axes.grid": False}
    assert after == 33


@pytest.mark.parametrize("n_arms", [1, 2, 3, 5])
def test_every_arm_looks_its_own(n_arms: int) -> None:
    looks = bar_styles(n_arms)

    assert len(looks) == n_arms
    assert len({(look["facecolor"], look["hatch"]) for look in looks}) == n_arms


@pytest.mark.parametrize(("n", "rows"), [(1, 1), (5, 1), (6, 2), (13, 3)])
def test_small_plots_stand_five_a_row(n: int, rows: int) -> None:
    figure, every = small_multiples(n)

    assert len(every) == n == len(figure.axes)
    assert every[0].get_subplotspec().get_gridspec().nrows == rows


def test_an_empty_figure_says_why() -> None:
    figure = empty_figure(3.0, "no pairs")

    assert figure.texts[0].get_text() == "no pairs"


@pytest.mark.parametrize("words", ["PRIME", "w" * LONGEST_LABEL])
def test_a_legend_is_as_wide_as_its_figure_at_most(words: str) -> None:
    @styled
    def draw() -> Figure:
        figure, _ = small_multiples(1)
        names = [f"{words} is better", f"{words} is worse", "tie"]
        add_legend(figure, [Line2D([], [], label=name) for name in names])
        return figure

    figure = draw()
    (legend,) = figure.legends

    box = legend.get_window_extent()
    assert (box.x0, box.x1) == (max(box.x0, 0), min(box.x1, figure.bbox.width))
    assert len(legend.get_texts()) == 3


def test_a_single_epoch_is_a_whole_number() -> None:
    axes = Figure().subplots()
    axes.plot([1], [0.5])
    epoch_axis(axes)

    low, high = axes.get_xlim()
    assert [tick for tick in axes.get_xticks() if low <= tick <= high] == [1]


@pytest.mark.parametrize("horizontal", [True, False])
def test_a_scale_bends_where_one_value_dwarfs_the_others(horizontal: bool) -> None:
    """The threshold is the decade of the smaller values; the ends are in sight with room."""
    axes = Figure().subplots()
    axis, other = (axes.xaxis, axes.yaxis) if horizontal else (axes.yaxis, axes.xaxis)

    said = difference_scale(axes, (0.02, 0.03, 0.04, 0.4), ends=(-0.3, 0.6), horizontal=horizontal)

    assert said == " (logarithmic beyond ±0.01)"
    assert (axis.get_scale(), other.get_scale()) == ("symlog", "linear")
    limits = axes.get_xlim() if horizontal else axes.get_ylim()
    assert limits == pytest.approx((-0.45, 0.9))
    assert list(axis.get_majorticklocs()) == pytest.approx([-0.1, -0.01, 0, 0.01, 0.1])
    labels = [label.get_text() for label in axis.get_majorticklabels()]
    assert labels == [f"{MINUS}0.10", f"{MINUS}0.01", "0", "+0.01", "+0.10"]


@pytest.mark.parametrize(("largest", "bends"), [(0.017, False), (0.019, True)])
def test_a_scale_bends_beyond_six_times_the_middle(largest: float, bends: bool) -> None:
    axes = Figure().subplots()
    axes.plot([0.002, largest], [0, 0])

    said = difference_scale(axes, (0.002, 0.003, largest), horizontal=True)

    assert bool(said) == bends
    assert (axes.get_xscale() == "symlog") == bends


def test_values_that_are_all_small_are_told_apart_on_a_linear_scale() -> None:
    """No value is so small beside 0.001 that the scale would bend for it."""
    axes = Figure().subplots()

    assert difference_scale(axes, (0.0, 1e-6, 0.005), horizontal=True) == ""


def test_ticks_of_differences_have_a_sign_and_equally_many_decimals() -> None:
    axes = Figure().subplots()
    axes.set_xlim(-0.0025, 0.005)
    axes.set_xticks([-0.0025, 0, 0.005])

    signed_ticks(axes)

    labels = [label.get_text() for label in axes.get_xticklabels()]
    assert labels == [f"{MINUS}0.0025", "0", "+0.0050"]


def test_only_the_outer_small_plots_are_labelled() -> None:
    _, plots = small_multiples(7)

    label_outer(plots, x="Epoch", y="AUC")

    assert [axes.get_ylabel() for axes in plots] == ["AUC", "", "", "", "", "AUC", ""]
    assert [axes.get_xlabel() for axes in plots] == ["", "", *["Epoch"] * 5]


@pytest.mark.parametrize(("n", "width", "height"), [(1, 3.35, 2.1), (3, 4.6, 2.1), (6, 7.4, 3.45)])
def test_small_plots_grow_with_their_number(n: int, width: float, height: float) -> None:
    figure, _ = small_multiples(n)

    assert tuple(figure.get_size_inches()) == pytest.approx((width, height))


def test_a_note_says_what_was_left_out_and_why() -> None:
    figure = Figure(figsize=(3.35, 2))
    axes = figure.subplots()

    add_note(figure, "n = 5.", left_out=2, why="unpaired")
    (first,) = [text.get_text() for text in figure.findobj(Text) if "n = 5" in text.get_text()]
    add_note(figure, "n = 6 " * 20)
    (second,) = [text.get_text() for text in figure.findobj(Text) if "n = 6" in text.get_text()]

    assert first == "n = 5. Left out, unpaired: 2."
    assert max(map(len, second.splitlines())) <= 3.35 * 20
    assert second.split() == ("n = 6 " * 20).split()
    assert axes.figure is figure


def test_ticks_are_round_and_few() -> None:
    axes = Figure().subplots()
    axes.set_xlim(0, 0.97)
    axes.set_ylim(0, 0.97)

    limit_ticks(axes, horizontal=True, at_most=4)
    limit_ticks(axes, horizontal=False, at_most=2)

    inside = [
        [tick for tick in found if tick <= 0.97] for found in (axes.get_xticks(), axes.get_yticks())
    ]
    assert inside[0] == pytest.approx([0, 0.25, 0.5, 0.75])
    assert inside[1] == pytest.approx([0, 0.5])

"""The style is the same whatever the user's matplotlib is set to, and leaves no trace."""

import matplotlib
import pytest
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from prime_bench.report.figures.style import (
    LONGEST_LABEL,
    add_legend,
    bar_styles,
    difference_text,
    empty_figure,
    epoch_axis,
    shorten,
    small_multiples,
    styled,
)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.00123, "+0.0012"), (-0.00061, "\N{MINUS SIGN}0.0006"), (-0.00001, "0.0000")],
)
def test_a_difference_has_a_sign_and_a_real_minus(value: float, text: str) -> None:
    assert difference_text(value, 4) == text


@pytest.mark.parametrize(
    "label", ["DNN", "word " * 20, "x" * 99, "Wide&Deep_x (hidden_units = [400, 400])"]
)
def test_labels_are_short_and_keep_their_beginning(label: str) -> None:
    text = shorten(label)

    assert 0 < len(text) <= LONGEST_LABEL
    assert label.startswith(text.rstrip("…")[:10].strip())


def test_style_is_ours_and_leaves_no_trace() -> None:
    seen = {}

    @styled
    def draw() -> Figure:
        seen.update(
            size=matplotlib.rcParams["font.size"], math=matplotlib.rcParams["text.parse_math"]
        )
        return empty_figure(3.0, "nothing")

    with matplotlib.rc_context({"font.size": 33, "axes.grid": True}):
        draw()
        after = matplotlib.rcParams["font.size"]

    assert seen == {"size": 7.5, "math": False}
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

"""Files of a figure: the same bytes each time, whole, and fit to stand in a page."""

import io
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from matplotlib.image import imread

from prime_bench.base.errors import EnvironmentFault
from prime_bench.report.figures.pairs import PairedScores, draw_paired_dots
from prime_bench.report.figures.save import (
    FILE_TYPES,
    FileType,
    NamedFigure,
    figure_bytes,
    inline_svg,
    labelled,
    write_figures,
)
from prime_bench.report.figures.style import FAINT, INK, PNG_DPI

MakeScores = Callable[..., PairedScores]
BEGINNINGS = {"svg": b"<?xml", "pdf": b"%PDF", "png": b"\x89PNG"}


@pytest.mark.parametrize("suffix", FILE_TYPES)
def test_the_same_figure_is_the_same_bytes(make_scores: MakeScores, suffix: FileType) -> None:
    first, second = (
        figure_bytes(
            draw_paired_dots([make_scores()], baseline="Dense", arm="PRIME", metric_label="AUC"),
            suffix,
            name="dots",
        )
        for _ in range(2)
    )

    assert first == second
    assert first.startswith(BEGINNINGS[suffix])
    assert not re.search(rb"20\d\d-\d\d-\d\dT|/CreationDate", first)


@pytest.mark.parametrize("suffix", FILE_TYPES)
@pytest.mark.parametrize(("key", "value"), [("savefig.bbox", "tight"), ("xtick.labelsize", 20)])
def test_a_file_is_the_same_whatever_the_users_matplotlib_is_set_to(
    make_scores: MakeScores, suffix: FileType, key: str, value: object
) -> None:
    def made() -> bytes:
        figure = draw_paired_dots(
            [make_scores()], baseline="Dense", arm="PRIME", metric_label="AUC"
        )
        return figure_bytes(figure, suffix, name="dots")

    with matplotlib.rc_context({key: value}):  # type: ignore[dict-item]  # keys are literals
        theirs = made()

    assert theirs == made()


def test_three_files(make_scores: MakeScores, tmp_path: Path) -> None:
    figure = draw_paired_dots([make_scores()], baseline="Dense", arm="PRIME", metric_label="AUC")

    named = NamedFigure(name="dots", title="Dots", data="avazu", figure=figure)
    paths = write_figures([named], tmp_path / "figures")

    assert [path.name for path in paths] == ["dots.svg", "dots.pdf", "dots.png"]
    assert all(path.stat().st_size > 1000 for path in paths)


def test_a_label_stands_above_the_figure_and_moves_nothing(make_scores: MakeScores) -> None:
    def draw() -> NamedFigure:
        figure = draw_paired_dots(
            [make_scores()], baseline="Dense", arm="PRIME", metric_label="AUC"
        )
        assert figure.legends
        return NamedFigure(name="dots", title="Dots", data="avazu", figure=figure)

    def pixels(item: NamedFigure) -> np.ndarray:
        made = figure_bytes(item.figure, "png", name=item.name, above_in=item.above_in)
        return np.asarray(imread(io.BytesIO(made)))

    plain, item = pixels(draw()), labelled(draw(), "Miniature: these numbers say nothing " * 3)
    found = pixels(item)

    above = len(found) - len(plain)
    assert above == round(item.above_in * PNG_DPI)
    assert above > 2 * 0.1 * PNG_DPI  # two lines
    np.testing.assert_allclose(found[above:], plain, atol=0.02)
    ink = (found[:above, :, :3] < 0.9).any(axis=(1, 2))
    assert ink.any()
    assert not ink[0]
    assert "Miniature" in inline_svg(item)


def test_a_png_is_white_and_an_svg_has_no_ground(make_scores: MakeScores) -> None:
    """A viewer may show a PNG on black; an SVG stands in a page of any colour."""
    figure = draw_paired_dots([make_scores()], baseline="Dense", arm="PRIME", metric_label="AUC")

    corner = imread(io.BytesIO(figure_bytes(figure, "png", name="dots")))[0, 0]
    ground = figure_bytes(figure, "svg", name="dots").decode().partition('id="patch_1"')[2][:200]

    assert corner.tolist() == [1, 1, 1, 1]
    assert "fill: none" in ground


def test_a_file_in_the_way_of_the_folder(make_scores: MakeScores, tmp_path: Path) -> None:
    (tmp_path / "figures").write_text("")
    figure = draw_paired_dots([make_scores()], baseline="Dense", arm="PRIME", metric_label="AUC")

    with pytest.raises(EnvironmentFault):
        write_figures(
            [NamedFigure(name="dots", title="Dots", data="avazu", figure=figure)],
            tmp_path / "figures",
        )


def test_inline_elements_share_nothing(make_scores: MakeScores) -> None:
    texts = [
        inline_svg(
            NamedFigure(
                name=name,
                title='pairs of "A" & <B>',
                data="avazu",
                figure=draw_paired_dots(
                    [make_scores()], baseline="Dense", arm="PRIME", metric_label="AUC"
                ),
            )
        )
        for name in ("one", "two")
    ]
    ids = [set(re.findall(r'\bid="([^"]+)"', text)) for text in texts]
    uses = [set(re.findall(r'(?:href="#|url\(#)([^")]+)', text)) for text in texts]

    assert not ids[0] & ids[1]
    for own, used, text in zip(ids, uses, texts, strict=True):
        assert used
        assert used <= own
        assert ElementTree.fromstring(text).get("aria-label") == 'pairs of "A" & <B>, avazu'
        assert INK not in text
        assert FAINT not in text
        assert "<style" not in text
        assert "currentColor" in text

"""Files of a figure: the same bytes each time, whole, and fit to stand in a page."""

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path

import pytest

from prime_bench.base.errors import EnvironmentFault
from prime_bench.report.figures.pairs import PairedScores, draw_paired_dots
from prime_bench.report.figures.save import (
    FILE_TYPES,
    FileType,
    NamedFigure,
    figure_bytes,
    inline_svg,
    write_figures,
)
from prime_bench.report.figures.style import FAINT, INK

MakeCell = Callable[..., PairedScores]
BEGINNINGS = {"svg": b"<?xml", "pdf": b"%PDF", "png": b"\x89PNG"}


@pytest.mark.parametrize("suffix", FILE_TYPES)
def test_the_same_figure_is_the_same_bytes(make_cell: MakeCell, suffix: FileType) -> None:
    first, second = (
        figure_bytes(
            draw_paired_dots([make_cell()], baseline="Dense", arm="PRIME", metric_label="AUC"),
            suffix,
            name="dots",
        )
        for _ in range(2)
    )

    assert first == second
    assert first.startswith(BEGINNINGS[suffix])
    assert not re.search(rb"20\d\d-\d\d-\d\dT|/CreationDate", first)


def test_three_files(make_cell: MakeCell, tmp_path: Path) -> None:
    figure = draw_paired_dots([make_cell()], baseline="Dense", arm="PRIME", metric_label="AUC")

    named = NamedFigure(name="dots", title="Dots", data="avazu", figure=figure)
    paths = write_figures([named], tmp_path / "figures")

    assert [path.name for path in paths] == ["dots.svg", "dots.pdf", "dots.png"]
    assert all(path.stat().st_size > 1000 for path in paths)


def test_a_file_in_the_way_of_the_folder(make_cell: MakeCell, tmp_path: Path) -> None:
    (tmp_path / "figures").write_text("")
    figure = draw_paired_dots([make_cell()], baseline="Dense", arm="PRIME", metric_label="AUC")

    with pytest.raises(EnvironmentFault):
        write_figures(
            [NamedFigure(name="dots", title="Dots", data="avazu", figure=figure)],
            tmp_path / "figures",
        )


def test_inline_elements_share_nothing(make_cell: MakeCell) -> None:
    texts = [
        inline_svg(
            NamedFigure(
                name=name,
                title='pairs of "A" & <B>',
                data="avazu",
                figure=draw_paired_dots(
                    [make_cell()], baseline="Dense", arm="PRIME", metric_label="AUC"
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

"""Files of a figure: the same bytes each time, whole, and fit to stand in a page."""

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path

import pytest

from prime_bench.base.errors import EnvironmentFault
from prime_bench.report.figures.inputs import PairedScores
from prime_bench.report.figures.paired_dots import draw_paired_dots
from prime_bench.report.figures.save import SUFFIXES, figure_bytes, inline_svg, save_figure
from prime_bench.report.figures.style import FAINT, INK

MakeCell = Callable[..., PairedScores]
BEGINNINGS = {"svg": b"<?xml", "pdf": b"%PDF", "png": b"\x89PNG"}


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_the_same_figure_is_the_same_bytes(make_cell: MakeCell, suffix: str) -> None:
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

    paths = save_figure(figure, tmp_path / "figures", name="dots")

    assert [path.name for path in paths] == ["dots.svg", "dots.pdf", "dots.png"]
    assert all(path.stat().st_size > 1000 for path in paths)


def test_a_file_in_the_way_of_the_folder(make_cell: MakeCell, tmp_path: Path) -> None:
    (tmp_path / "figures").write_text("")
    figure = draw_paired_dots([make_cell()], baseline="Dense", arm="PRIME", metric_label="AUC")

    with pytest.raises(EnvironmentFault):
        save_figure(figure, tmp_path / "figures", name="dots")


def test_inline_elements_share_nothing(make_cell: MakeCell) -> None:
    texts = [
        inline_svg(
            draw_paired_dots([make_cell()], baseline="Dense", arm="PRIME", metric_label="AUC"),
            name=name,
            label='pairs of "A" & <B>',
        )
        for name in ("one", "two")
    ]
    ids = [set(re.findall(r'\bid="([^"]+)"', text)) for text in texts]
    uses = [set(re.findall(r'(?:href="#|url\(#)([^")]+)', text)) for text in texts]

    assert not ids[0] & ids[1]
    for own, used, text in zip(ids, uses, texts, strict=True):
        assert used
        assert used <= own
        assert ElementTree.fromstring(text).get("aria-label") == 'pairs of "A" & <B>'
        assert INK not in text
        assert FAINT not in text
        assert "<style" not in text
        assert "currentColor" in text

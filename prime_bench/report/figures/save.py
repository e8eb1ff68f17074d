"""Figures as files and as part of a page: the same figure gives the same bytes."""

import functools
import io
import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import matplotlib
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox

from prime_bench.base.files import write_whole
from prime_bench.report.figures.style import FAINT, INK, PAGE_IN, PNG_DPI, without_glyph_warnings

FileType = Literal["svg", "pdf", "png"]
FILE_TYPES: tuple[FileType, ...] = ("svg", "pdf", "png")
# Without dates, which alone would differ between two files of one figure.
_METADATA: dict[FileType, dict[str, None]] = {
    "svg": {"Date": None},
    "pdf": {"CreationDate": None},
    "png": {},
}
_LABEL_LETTERS_PER_IN, _LABEL_LINE_IN = 20, 0.12
"""Letters of a label's line, and its height, at the size of notes."""
_SVG_ID = re.compile(r'(\bid="|href="#|url\(#)')


@dataclass(frozen=True, kw_only=True)
class NamedFigure:
    """A figure, the name of its files, and its title in a page."""

    name: str
    title: str
    """What it shows, without the data."""
    data: str
    """Printed name of the data set."""
    figure: Figure
    above_in: float = 0.0
    """Inches above the figure that belong to it, with a label in them."""

    @property
    def width_share(self) -> float:
        """Its width as a share of a page of a paper, at most 1."""
        return min(1.0, float(self.figure.get_figwidth()) / PAGE_IN)

    @functools.cached_property
    def svg(self) -> bytes:
        """The content of its SVG file, which a page has as well: drawing takes most of the time."""
        return self.content("svg")

    def content(self, file_type: FileType) -> bytes:
        """The content of a file of it, which each call draws."""
        return figure_bytes(self.figure, file_type, name=self.name, above_in=self.above_in)


def write_figures(figures: Sequence[NamedFigure], folder: Path) -> list[Path]:
    """Write `<name>.svg`, `.pdf` and `.png` of each figure; return the paths.

    Raises EnvironmentFault where the folder cannot be written to.
    """
    paths = []
    for item in figures:
        for file_type in FILE_TYPES:
            path = folder / f"{item.name}.{file_type}"
            write_whole(path, item.svg if file_type == "svg" else item.content(file_type))
            paths.append(path)
    return paths


def labelled(item: NamedFigure, label: str) -> NamedFigure:
    """Return the figure with a line of small type above it."""
    width_in, height_in = (float(size) for size in item.figure.get_size_inches())
    for legend in item.figure.legends:
        # One that stands outside of the plots would move to the new upper edge.
        place = legend.get_window_extent().transformed(item.figure.transFigure.inverted())
        legend.borderaxespad = 0
        legend.set_loc("lower left")
        legend.set_bbox_to_anchor((place.x0, place.y0), transform=item.figure.transFigure)
    text = textwrap.fill(label, int(width_in * _LABEL_LETTERS_PER_IN))
    item.figure.text(
        0.5, 1 + 0.03 / height_in, text, ha="center", va="bottom", fontsize=6.5, color=FAINT
    )
    return replace(item, above_in=0.06 + _LABEL_LINE_IN * (1 + text.count("\n")))


def figure_bytes(figure: Figure, file_type: FileType, *, name: str, above_in: float = 0.0) -> bytes:
    """Return the figure as the content of a file; the ids inside an SVG follow from `name`.

    `above_in` are the inches above it that are shown too.
    """
    buffer = io.BytesIO()
    # Text stays text in SVG (small, can be searched) and is TrueType in PDF (publishers refuse
    # Type 3).
    settings: dict[Any, Any] = {"svg.hashsalt": name, "svg.fonttype": "none", "pdf.fonttype": 42}
    with matplotlib.rc_context(), without_glyph_warnings():
        # As for the drawing: a matplotlibrc with `savefig.bbox: tight` would crop every figure.
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(settings)
        figure.savefig(
            buffer,
            format=file_type,
            dpi=PNG_DPI,
            metadata=_METADATA[file_type],
            facecolor="white" if file_type == "png" else "none",
            bbox_inches=_with_room_above(figure, above_in) if above_in else None,
        )
    content = buffer.getvalue()
    if file_type != "svg":
        return content
    # For readers without the font: Verdana has its widths, and any sans-serif is close.
    return content.replace(b"'DejaVu Sans'", b"'DejaVu Sans', Verdana, sans-serif")


def _with_room_above(figure: Figure, above_in: float) -> Bbox:
    width_in, height_in = (float(size) for size in figure.get_size_inches())
    return Bbox.from_bounds(0.0, 0.0, width_in, height_in + above_in)


def inline_svg(item: NamedFigure) -> str:
    """Return the figure as an `<svg>` element that can stand in a page beside others.

    Its ids begin with the figure's name, its colours are the page's (which has a CSS variable
    `--faint`), and its title is what a screen reader reads.
    """
    text = item.svg.decode("utf-8")
    svg = text[text.index("<svg") :]
    for tag in ("metadata", "style"):  # a `<style>` would hold for the whole page
        svg = re.sub(rf"<{tag}.*?</{tag}>\s*", "", svg, flags=re.DOTALL)
    svg = _SVG_ID.sub(rf"\g<1>{item.name}-", svg).replace(INK, "currentColor")
    svg = svg.replace(FAINT, "var(--faint)")
    title = (
        f"{item.title}, {item.data}".replace("&", "&amp;")
        .replace('"', "&quot;")
        .replace("<", "&lt;")
    )
    return svg.replace("<svg", f'<svg role="img" aria-label="{title}"', 1)

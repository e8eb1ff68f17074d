"""Figures to files: SVG, PDF and PNG, the same bytes whenever the figure is the same."""

import io
import re
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from prime_bench.base.files import write_whole
from prime_bench.report.figures.style import FAINT, INK, PNG_DOTS_PER_INCH

SUFFIXES = ("svg", "pdf", "png")
# Dates are the only thing that differs between two runs; the program's version stays in.
_UNDATED: dict[str, dict[str, None]] = {
    "svg": {"Date": None},
    "pdf": {"CreationDate": None},
    "png": {},
}
_ID = re.compile(r'(\bid="|href="#|url\(#)')


def save_figure(figure: Figure, folder: Path, *, name: str) -> list[Path]:
    """Write `<name>.svg`, `.pdf` and `.png`; the paths written. Raises EnvironmentFault."""
    paths = [folder / f"{name}.{suffix}" for suffix in SUFFIXES]
    for path in paths:
        write_whole(path, figure_bytes(figure, path.suffix[1:], name=name))
    return paths


def figure_bytes(figure: Figure, suffix: str, *, name: str) -> bytes:
    """The figure as a file of one kind. `name` makes the ids inside an SVG, so it must be fixed."""
    buffer = io.BytesIO()
    # Type is text in SVG (small, searchable) and TrueType in PDF (publishers refuse Type 3).
    settings: dict[Any, Any] = {"svg.hashsalt": name, "svg.fonttype": "none", "pdf.fonttype": 42}
    with matplotlib.rc_context(settings):
        figure.savefig(
            buffer,
            format=suffix,
            dpi=PNG_DOTS_PER_INCH,
            metadata=_UNDATED[suffix],
            facecolor="white" if suffix == "png" else "none",
        )
    content = buffer.getvalue()
    if suffix != "svg":
        return content
    # Where the font is not installed: Verdana has its widths, and any sans-serif is close.
    return content.replace(b"'DejaVu Sans'", b"'DejaVu Sans', Verdana, sans-serif")


def inline_svg(figure: Figure, *, name: str, label: str) -> str:
    """An `<svg>` element for a page with others: own ids, the page's colours, a name to read aloud.

    The page's style has `--faint`.
    """
    text = figure_bytes(figure, "svg", name=name).decode("utf-8")
    element = text[text.index("<svg") :]
    for name_of in ("metadata", "style"):  # a `<style>` would hold for the whole page
        element = re.sub(rf"<{name_of}.*?</{name_of}>\s*", "", element, flags=re.DOTALL)
    element = _ID.sub(rf"\g<1>{name}-", element).replace(INK, "currentColor")
    element = element.replace(FAINT, "var(--faint)")
    words = label.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")
    return element.replace("<svg", f'<svg role="img" aria-label="{words}"', 1)

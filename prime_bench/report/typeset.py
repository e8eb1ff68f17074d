"""The table's numbers as text cells, in the conventions of Markdown or of LaTeX."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from prime_bench.report.notes import spread
from prime_bench.report.numbers import fixed, signed
from prime_bench.report.stats import METRICS, Metric, Moments, Tally
from prime_bench.report.tables import MainTable, Panel

MISSING = "--"


class Style(Protocol):
    """How a format writes one cell. `flagged` is True where a degenerate run is in it."""

    def text(self, words: str) -> str:
        """Words, with everything escaped that the format would take for its own."""
        ...

    def value(self, moments: Moments, *, remark: str, flagged: bool) -> str:
        """Mean and spread; `remark` says how many of how many where some are missing."""
        ...

    def change(self, value: float, *, remark: str, flagged: bool, tally: Tally | None) -> str:
        """A difference, bold where it is above zero; `tally` where the wins belong to it."""
        ...


@dataclass(frozen=True, kw_only=True)
class Markdown:
    """GitHub's Markdown."""

    decimals: int

    def text(self, words: str) -> str:
        """See `Style`."""
        return " ".join(words.split()).replace("|", "\\|").replace("*", "\\*")

    def value(self, moments: Moments, *, remark: str, flagged: bool) -> str:
        """See `Style`."""
        return spread(moments, decimals=self.decimals) + "†" * flagged + _bracketed(remark)

    def change(self, value: float, *, remark: str, flagged: bool, tally: Tally | None) -> str:
        """See `Style`."""
        text = signed(value, self.decimals)
        text = f"**{text}**" if value > 0 else text
        # The wins' denominator is the number of pairs, so it says what the remark would say.
        return text + "†" * flagged + _bracketed(won(tally) if tally else remark)


@dataclass(frozen=True, kw_only=True)
class Latex:
    """LaTeX in the paper's manner: values in mathematics, positive differences bold."""

    decimals: int

    def text(self, words: str) -> str:
        """See `Style`."""
        return "".join(_LATEX.get(letter, letter) for letter in " ".join(words.split()))

    def value(self, moments: Moments, *, remark: str, flagged: bool) -> str:
        """See `Style`."""
        sd = "" if moments.sd is None else rf"\pm{fixed(moments.sd, self.decimals)}"
        return f"${fixed(moments.mean, self.decimals)}{sd}${self._after(remark, flagged)}"

    def change(
        self,
        value: float,
        *,
        remark: str,
        flagged: bool,
        tally: Tally | None,  # noqa: ARG002  # wins have rows of their own: the paper's columns lack them
    ) -> str:
        """See `Style`."""
        text = signed(value, self.decimals)
        text = rf"\textbf{{{text}}}" if value > 0 else f"${text}$"
        return text + self._after(remark, flagged)

    def _after(self, remark: str, flagged: bool) -> str:
        return r"\textsuperscript{\dag}" * flagged + (rf"\,({self.text(remark)})" if remark else "")


_LATEX = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": "$<$",
    ">": "$>$",
    "|": "$|$",
    '"': "''",
    "±": r"$\pm$",
    "Δ": r"$\Delta$",
    "\N{MINUS SIGN}": "$-$",
    "†": r"$\dagger$",
    "\N{EN DASH}": "--",
    "\N{GREEK SMALL LETTER ALPHA}": r"$\alpha$",
}


def columns(table: MainTable, style: Style) -> list[str]:
    """Heads of one metric's columns: the baseline, then each arm with its Δ."""
    heads = [style.text(table.baseline.label)] if table.baseline else []
    for arm in table.others:
        heads.append(style.text(arm.label))
        if table.baseline:
            heads.append(style.text("Δ"))
    return heads


def body_row(table: MainTable, panel: Panel, row: str, style: Style) -> list[str]:
    """One backbone's cells in one panel, metric after metric; all missing where it has none."""
    cells: list[str] = []
    for metric in METRICS:
        for arm in table.arms:
            cell = panel.cells.get((row, arm.name, metric))
            n_seeds = len(panel.design.seeds)
            if cell is None or cell.moments is None:
                cells.append(MISSING)
            else:
                remark = f"n={cell.moments.n}" if cell.moments.n < n_seeds else ""
                flagged = bool(cell.degenerate)
                cells.append(style.value(cell.moments, remark=remark, flagged=flagged))
            if table.baseline and arm is not table.baseline:
                cells.append(_comparison(panel, row, arm.name, metric, style))
    return cells


def summary_rows(table: MainTable, panel: Panel, style: Style) -> list[tuple[str, list[str]]]:
    """The rows below the backbones: Mean and, where there is a baseline, what the pairs say."""
    rows = [("Mean", _mean_row(table, panel, style))]
    if table.baseline is None:
        return rows
    medians: list[str] = []
    pairs: list[str] = []
    backbones: list[str] = []
    for metric in METRICS:
        for arm in table.arms:
            for row in (medians, pairs, backbones):
                row.append(MISSING)
            if arm is table.baseline:
                continue
            summary = panel.summaries[arm.name, metric]
            n_backbones = summary.backbones_compared
            medians.append(_over_backbones(panel, arm.name, metric, summary.paired_median, style))
            pairs.append(won(summary.tally) if summary.differences else MISSING)
            backbones.append(f"{summary.backbones_won}/{n_backbones}" if n_backbones else MISSING)
    return [
        *rows,
        ("Paired median Δ", medians),
        ("Pairs won", pairs),
        ("Backbones won", backbones),
    ]


def won(tally: Tally) -> str:
    """`4/5`, and how many are tied where any is."""
    text = f"{tally.wins}/{tally.wins + tally.ties + tally.losses}"
    return f"{text}, {tally.ties} tied" if tally.ties else text


def row_labels(panels: Sequence[Panel]) -> list[str]:
    """Rows of panels side by side, in order of first mention."""
    return list(dict.fromkeys(row.label for panel in panels for row in panel.design.rows))


def _comparison(panel: Panel, row: str, arm: str, metric: Metric, style: Style) -> str:
    comparison = panel.comparisons.get((row, arm, metric))
    if comparison is None or comparison.mean is None:
        return MISSING
    n = len(comparison.seeds)
    return style.change(
        comparison.mean,
        remark=f"n={n}" if n < len(panel.design.seeds) else "",
        flagged=bool(comparison.degenerate_seeds),
        tally=comparison.tally,
    )


def _mean_row(table: MainTable, panel: Panel, style: Style) -> list[str]:
    cells: list[str] = []
    for metric in METRICS:
        for arm in table.arms:
            summary = panel.summaries[arm.name, metric]
            flagged = any(panel.cells[row, arm.name, metric].degenerate for row in panel.mean_rows)
            cells.append(
                style.value(summary.mean, remark="", flagged=flagged) if summary.mean else MISSING
            )
            if table.baseline and arm is not table.baseline:
                cells.append(_over_backbones(panel, arm.name, metric, summary.delta, style))
    return cells


def _over_backbones(
    panel: Panel, arm: str, metric: Metric, value: float | None, style: Style
) -> str:
    if value is None:
        return MISSING
    own = (item for key, item in panel.comparisons.items() if key[1:] == (arm, metric))
    flagged = any(item.degenerate_seeds for item in own)
    return style.change(value, remark="", flagged=flagged, tally=None)


def _bracketed(remark: str) -> str:
    return f" ({remark})" if remark else ""

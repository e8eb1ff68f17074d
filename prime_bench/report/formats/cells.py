"""Text of cells and notes. It is made last: nothing reads a number out of it again."""

from dataclasses import dataclass

from prime_bench.report.formats.numbers import fixed, signed
from prime_bench.report.quantities.formulas import Moments, SeedInterval, Tally
from prime_bench.report.quantities.values import (
    Count,
    Difference,
    EquivalenceVerdict,
    Extent,
    Quantity,
)
from prime_bench.report.tables.model import Cell, Phrase, TableNote

MISSING = "--"


@dataclass(frozen=True, kw_only=True)
class PrintedCell:
    """A cell with its final digits and no markup."""

    text: str
    number: str = ""
    """The part of `text` before `±`, where the cell is a single number; empty for others."""
    spread: str = ""
    """The part of `text` after `±`."""
    remark: str = ""
    """Printed after the text in brackets, in every format: `n=4`."""
    aside: str = ""
    """Printed in place of the remark by formats with room; LaTeX has the paper's columns alone."""
    bold: bool = False
    dagger: bool = False
    """Whether a degenerate run is among the jobs, which is printed as †."""
    missing: bool = False
    """Whether there is no value; `text` is a dash then."""


def printed(cell: Cell) -> PrintedCell:
    """Return the text of a cell; `--` where its quantity has no value."""
    quantity, decimals = cell.quantity, cell.decimals
    bold, dagger = cell.emphasised, quantity.degenerate
    match quantity:
        case Phrase(parts=parts):
            return PrintedCell(text=joined(parts), bold=bold, dagger=dagger)
        case Extent(low=low, high=high, confidence=confidence):
            text = f"{signed(low, decimals)} to {signed(high, decimals)}"
            text += "" if confidence is None else f" ({fixed(100 * confidence, 1)}%)"
            return PrintedCell(text=text, bold=bold, dagger=dagger)
        case EquivalenceVerdict(verdict=verdict, margin=margin):
            text = verdict if margin is None else f"{verdict} ({fixed(margin, decimals)})"
            return PrintedCell(text=text, bold=bold, dagger=dagger)
        case Quantity(value=None):
            return PrintedCell(text=MISSING, missing=True)
        case Count(value=float() | int() as value, of=of, ties=ties):
            text = f"{value:,.0f}" if of is None else f"{value:.0f}/{of}"
            remark = f"{ties} tied" if ties else ""
            return PrintedCell(text=text, remark=remark, bold=bold, dagger=dagger)
    assert quantity.value is not None  # noqa: S101  # the case above
    aside = interval_text(quantity.interval, decimals) if quantity.interval else ""
    if isinstance(quantity, Difference):
        # A whole number, the difference of two counts, has a sign even where it is zero.
        number = signed(quantity.value, decimals) if decimals else f"{quantity.value:+.0f}"
        spread = ""
        aside = tally_text(quantity.tally) if quantity.tally else aside
    else:
        number = fixed(quantity.value, decimals)
        spread = "" if quantity.sd is None else fixed(quantity.sd, decimals)
    return PrintedCell(
        text=f"{number}±{spread}" if spread else number,
        number=number,
        spread=spread,
        remark="" if quantity.n in (None, quantity.planned) else f"n={quantity.n}",
        aside=aside,
        bold=bold,
        dagger=dagger,
    )


def joined(parts: tuple[str | Cell, ...]) -> str:
    """Return a sentence: words, and the text of the cells between them."""
    return "".join(part if isinstance(part, str) else printed(part).text for part in parts)


def note_text(note: TableNote) -> str:
    """Return the text of a note, without a full stop."""
    return joined(note.parts)


def moments_text(moments: Moments | None, *, decimals: int) -> str:
    """Return `0.7402±0.0010`; without the spread for a single value, `--` for none."""
    if moments is None:
        return MISSING
    sd = "" if moments.sd is None else f"±{fixed(moments.sd, decimals)}"
    return fixed(moments.mean, decimals) + sd


def interval_text(interval: SeedInterval, decimals: int) -> str:
    """Return `n=5, 95 % interval -0.0010 to +0.0020`."""
    bounds = f"{signed(interval.low, decimals)} to {signed(interval.high, decimals)}"
    return f"n={interval.n}, {100 * interval.confidence:g} % interval {bounds}"


def tally_text(tally: Tally) -> str:
    """Return the pairs won of all, `4/5`, or `4/5, 1 tied`; `--` without a pair."""
    of = tally.wins + tally.ties + tally.losses
    text = f"{tally.wins}/{of}" if of else MISSING
    return f"{text}, {tally.ties} tied" if tally.ties else text

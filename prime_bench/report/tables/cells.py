"""Numbers as cells of a table: digits, dashes, bold and daggers are decided here."""

from collections.abc import Iterable

from prime_bench.report.formats.numbers import fixed, signed
from prime_bench.report.quantities import grid
from prime_bench.report.quantities.stats import Moments, Tally
from prime_bench.report.tables.model import Better, Cell

MISSING_CELL = Cell()


def words(text: str) -> Cell:
    """A cell of words."""
    return Cell(text=text)


def level(
    value: float | None,
    *,
    decimals: int,
    sd: float | None = None,
    noise: float | None = None,
    remark: str = "",
    flagged: bool = False,
    jobs: Iterable[str] = (),
) -> Cell:
    """A number with its spread, `0.7402±0.0010`; `--` for None."""
    if value is None:
        return Cell(jobs=tuple(jobs))
    text = fixed(value, decimals) + ("" if sd is None else f"±{fixed(sd, decimals)}")
    return Cell(
        text=text,
        value=value,
        sd=sd,
        noise=noise,
        remark=remark,
        flagged=flagged,
        jobs=tuple(jobs),
    )


def averaged(scores: grid.ArmScores, *, n_seeds: int, decimals: int, with_sd: bool = False) -> Cell:
    """The mean over seeds, and how many there are where some of `n_seeds` have no score."""
    moments = scores.moments
    n = moments.n if moments else 0
    return level(
        moments.mean if moments else None,
        sd=moments.sd if moments and with_sd else None,
        noise=moments.error if moments else None,
        decimals=decimals,
        remark=f"n={n}" if n < n_seeds else "",
        flagged=bool(scores.degenerate),
        jobs=scores.jobs,
    )


def spread(moments: Moments | None, *, decimals: int) -> str:
    """`0.7402±0.0010`; without the spread for a single run, `--` for none."""
    if moments is None:
        return Cell().text
    return level(moments.mean, decimals=decimals, sd=moments.sd).text


def change(
    value: float | None,
    *,
    decimals: int,
    better: Better = "higher",
    sd: float | None = None,
    noise: float | None = None,
    remark: str = "",
    aside: str = "",
    flagged: bool = False,
    jobs: Iterable[str] = (),
) -> Cell:
    """A signed difference, bold where it is an improvement before rounding; `--` for None."""
    if value is None:
        return Cell(jobs=tuple(jobs))
    return Cell(
        text=signed(value, decimals),
        value=value,
        sd=sd,
        noise=noise,
        remark=remark,
        aside=aside,
        bold=improves(value, better),
        flagged=flagged,
        jobs=tuple(jobs),
    )


def count(part: int, of: int | None, *, remark: str = "", jobs: Iterable[str] = ()) -> Cell:
    """`4/5`, or `4` where there is nothing to be of; `--` of none."""
    if of is None:
        return Cell(text=str(part), value=float(part), remark=remark, jobs=tuple(jobs))
    if not of:
        return Cell(jobs=tuple(jobs))
    return Cell(text=f"{part}/{of}", value=float(part), remark=remark, jobs=tuple(jobs))


def tallied(tally: Tally, *, jobs: Iterable[str] = ()) -> Cell:
    """Pairs won of all pairs, and how many are tied where any is."""
    of = tally.wins + tally.ties + tally.losses
    remark = f"{tally.ties} tied" if tally.ties else ""
    return count(tally.wins, of, remark=remark, jobs=jobs)


def won(tally: Tally) -> str:
    """`4/5`, and how many are tied where any is, as words."""
    cell = tallied(tally)
    return f"{cell.text}, {cell.remark}" if cell.remark else cell.text


def improves(difference: float, better: Better) -> bool:
    """Whether a difference goes the better way; zero does not."""
    return difference > 0 if better == "higher" else difference < 0

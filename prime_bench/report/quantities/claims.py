"""The abstract's claims, one line each: reproduced, not reproduced, or not enough runs.

A claim is judged on the cells of a report alone. It needs every run that the paper had; with fewer
the answer is that there are not enough, whatever they say.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from prime_bench.report.formats.numbers import fixed, signed
from prime_bench.report.tables.model import Cell, Report

Answer = Literal["reproduced", "not reproduced", "not enough runs"]
SEEDS = (2021, 190034, 27011, 948432, 992817)
N_BACKBONES, N_WON = 13, 11
N_PAIRS, N_CONTROL_PAIRS, N_GAPS = 65, 20, 48
MARGIN, MARGIN_SHARE = 0.001, 0.5
"""How far a median may be from the printed one: by both, absolutely and as a share of it."""
PRINTED_REDUCTION_PERCENT, MARGIN_PERCENT = 34.3, 5.0
"""The gap's reduction, and by how much less it may be."""
MEDIANS = {
    ("avazu", "auc"): 0.0022,
    ("avazu", "logloss"): 0.0011,
    ("criteo", "auc"): 0.0066,
    ("criteo", "logloss"): 0.0081,
}
RULE = (
    f"Reproduced means: at least {N_WON} of {N_BACKBONES} backbones; a median above zero and "
    f"within {MARGIN:g}, and within half, of the printed one; each of ten seeds above APG; both "
    "backbones with fewer parameters and a lower latency than APG (on one device: the ratio "
    "decides, not the milliseconds); a gap smaller by at least "
    f"{PRINTED_REDUCTION_PERCENT:g}% less {MARGIN_PERCENT:g} points; both mean differences to the "
    "matched controls above zero. Each needs all runs that the paper had, else there are not "
    "enough"
)


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A sentence of the paper, our answer and what it rests on."""

    key: str
    text: str
    answer: Answer
    evidence: str
    jobs: tuple[str, ...]


def judge_claims(report: Report) -> list[Claim]:
    """Every claim, in the abstract's order."""
    cells = {address: cell for table in report.tables for address, cell in table.cells()}
    return [
        *(_won(cells, dataset) for dataset in ("avazu", "criteo")),
        *(_median(cells, dataset, metric) for dataset, metric in MEDIANS),
        _above_apg(cells),
        _cheaper(cells, "parameters", "uses fewer parameters than APG on both backbones", unit="M"),
        _cheaper(cells, "latency", "has a lower inference latency than APG on both backbones"),
        _gap(cells),
        *_controls(cells),
    ]


Cells = dict[str, Cell]


def _won(cells: Cells, dataset: str) -> Claim:
    won = cells.get(f"main.{dataset}.backbones_won.auc.prime.delta", Cell())
    pairs = cells.get(f"main.{dataset}.pairs_won.auc.prime.delta", Cell())
    enough = _of(won) == N_BACKBONES and _of(pairs) == N_PAIRS
    return Claim(
        key=f"won.{dataset}",
        text=f"PRIME improves mean AUC for {N_WON} of {N_BACKBONES} architectures ({dataset})",
        answer=_answer(enough, (won.value or 0) >= N_WON),
        evidence=f"{won.text} backbones, {pairs.text} pairs",
        jobs=won.jobs,
    )


def _median(cells: Cells, dataset: str, metric: str) -> Claim:
    printed = MEDIANS[dataset, metric]
    cell = cells.get(f"main.{dataset}.paired_median.{metric}.prime.delta", Cell())
    pairs = cells.get(f"main.{dataset}.pairs_won.{metric}.prime.delta", Cell())
    value = cell.value
    margin = min(MARGIN, MARGIN_SHARE * printed)
    name = "AUC gain" if metric == "auc" else "LogLoss reduction"
    return Claim(
        key=f"median.{dataset}.{metric}",
        text=f"The median paired {name} is {fixed(printed, 4)} ({dataset})",
        answer=_answer(
            _of(pairs) == N_PAIRS and value is not None,
            value is not None and value > 0 and abs(value - printed) <= margin,
        ),
        evidence=f"{cell.text} over {_of(pairs) or 0} pairs",
        jobs=cell.jobs,
    )


def _above_apg(cells: Cells) -> Claim:
    found = [
        cells.get(f"apg.avazu.{backbone}.delta.seed.{seed}", Cell())
        for backbone in ("FiBiNET", "DCNv2")
        for seed in SEEDS
    ]
    values = [cell.value for cell in found if cell.value is not None]
    return Claim(
        key="apg.seeds",
        text="PRIME outperforms APG in all ten seed-level AUC comparisons",
        answer=_answer(len(values) == len(found), all(value > 0 for value in values)),
        evidence=f"{sum(value > 0 for value in values)} of {len(values)} seeds, of {len(found)}"
        + (f"; least {signed(min(values), 4)}" if values else ""),
        jobs=tuple(job for cell in found for job in cell.jobs),
    )


def _cheaper(cells: Cells, column: str, text: str, *, unit: str = "") -> Claim:
    ratios, jobs, words = [], [], []
    for backbone in ("FiBiNET", "DCNv2"):
        own, rival = (
            cells.get(f"apg.avazu.{backbone}.{arm}.{column}", Cell()) for arm in ("prime", "apg")
        )
        jobs += [*own.jobs, *rival.jobs]
        if own.value is not None and rival.value:
            ratios.append(own.value / rival.value)
            sizes = f" ({own.text}{unit} against {rival.text}{unit})" if unit else ""
            words.append(f"{backbone} {fixed(ratios[-1], 4)} of APG's{sizes}")
    return Claim(
        key=f"apg.{column}",
        text=f"PRIME {text}",
        answer=_answer(len(ratios) == 2, all(ratio < 1 for ratio in ratios)),
        evidence="; ".join(words) or "no measurement",
        jobs=tuple(jobs),
    )


def _gap(cells: Cells) -> Claim:
    cell = cells.get("gradients.avazu.mean.block.prime.reduction", Cell())
    n = cells.get("gradients.avazu.mean.n", Cell())
    dense, prime = (
        cells.get(f"gradients.avazu.mean.block.{arm}", Cell()) for arm in ("dense", "prime")
    )
    value = cell.value
    return Claim(
        key="gap",
        text=f"PRIME reduces the competition gap by {PRINTED_REDUCTION_PERCENT:g}%",
        answer=_answer(
            n.value == N_GAPS and value is not None,
            value is not None and value >= PRINTED_REDUCTION_PERCENT - MARGIN_PERCENT,
        ),
        evidence=f"{cell.text}% smaller ({dense.text} to {prime.text}) over {n.text} of {N_GAPS} "
        "checkpoints and fields; the gap also measures how the groups' covariates differ"
        if value is not None
        else "no measurement",
        jobs=cell.jobs,
    )


def _controls(cells: Cells) -> Iterator[Claim]:
    for key, name in (("parameter_matched", "parameter"), ("mac_matched", "MAC")):
        cell = cells.get(f"controls.avazu.{key}.auc", Cell())
        won = cells.get(f"controls.avazu.{key}.auc.won", Cell())
        yield Claim(
            key=f"control.{key}",
            text=f"PRIME is above the {name}-matched control",
            answer=_answer(
                _of(won) == N_CONTROL_PAIRS and cell.value is not None, (cell.value or 0) > 0
            ),
            evidence=f"mean difference of AUC {cell.text}, {won.text} pairs won",
            jobs=cell.jobs,
        )


def _of(cell: Cell) -> int | None:
    """The denominator of a count."""
    _, slash, of = cell.text.partition("/")
    return int(of) if slash else None


def _answer(enough: bool, holds: bool) -> Answer:
    if not enough:
        return "not enough runs"
    return "reproduced" if holds else "not reproduced"

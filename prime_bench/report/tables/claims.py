"""Claims of the paper's abstract and conclusion, and whether the records reproduce them.

A claim is judged on the quantities of a report's cells. It needs every run that the paper had; with
fewer runs the verdict is "not enough runs", and of generated rows it is not judged.
"""

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, replace
from typing import Literal

from prime_bench.base.words import counted
from prime_bench.report.quantities.values import MISSING, Count, Difference, Level, Quantity
from prime_bench.report.tables.model import Cell, shown

_DECIMALS = 4
_DATASETS = {"avazu": "Avazu", "criteo": "Criteo"}
ClaimVerdict = Literal["reproduced", "not reproduced", "not enough runs", "not judged"]
SEEDS = (2021, 190034, 27011, 948432, 992817)
N_BACKBONES, N_WON = 13, 11
N_PAIRS, N_CONTROL_PAIRS, N_GAPS = 65, 20, 48
DIAGNOSED = ("DNN", "AutoInt", "FiBiNET", "DCNv2")
"""Backbones whose competition gap is measured."""
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
    f"{PRINTED_REDUCTION_PERCENT:g}% less {MARGIN_PERCENT:g} points; a gap of Dense above zero on "
    "each of four backbones; the mean difference to a control above zero. Each needs all runs "
    "that the paper had, else there are not enough"
)


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A sentence of the paper, our verdict, and the numbers behind it."""

    key: str
    text: str
    verdict: ClaimVerdict
    basis: tuple[str | Cell, ...]
    """Words, with the numbers that were judged between them."""
    jobs: tuple[str, ...]


def judge_claims(
    quantities: Mapping[str, Quantity], *, generated: Set[str] = frozenset()
) -> list[Claim]:
    """Judge every claim: those of the abstract in its order, then those of the conclusion.

    Args:
        quantities: The quantity of each cell of a report, by address. Those that the report does
            not have count as missing runs.
        generated: Ids of the jobs on generated rows, which say nothing about the paper's data: a
            claim with one of them behind its numbers is not judged.
    """
    claims = [
        _less_alike(quantities),
        *(_won(quantities, dataset) for dataset in ("avazu", "criteo")),
        *(_median(quantities, dataset, metric) for dataset, metric in MEDIANS),
        _above_apg(quantities),
        _cheaper(
            quantities, "parameters", "uses fewer parameters than APG on both backbones", unit="M"
        ),
        _cheaper(quantities, "latency", "has a lower inference latency than APG on both backbones"),
        _gap(quantities),
        *_controls(quantities),
    ]
    return [
        claim if generated.isdisjoint(claim.jobs) else replace(claim, verdict="not judged")
        for claim in claims
    ]


def _won(quantities: Mapping[str, Quantity], dataset: str) -> Claim:
    won = _find(quantities, f"main.{dataset}.backbones_won.auc.prime.delta")
    pairs = _find(quantities, f"main.{dataset}.pairs_won.auc.prime.delta")
    enough = _of(won) == N_BACKBONES and _of(pairs) == N_PAIRS
    return Claim(
        key=f"won.{dataset}",
        text=f"PRIME improves mean AUC for {N_WON} of {N_BACKBONES} architectures "
        f"({_DATASETS[dataset]})",
        verdict=_verdict(enough, (won.value or 0) >= N_WON),
        basis=(_number(won), " backbones, ", _number(pairs), " pairs"),
        jobs=won.jobs,
    )


def _median(quantities: Mapping[str, Quantity], dataset: str, metric: str) -> Claim:
    theirs = MEDIANS[dataset, metric]
    ours = _find(quantities, f"main.{dataset}.paired_median.{metric}.prime.delta")
    pairs = _find(quantities, f"main.{dataset}.pairs_won.{metric}.prime.delta")
    value = ours.value
    margin = min(MARGIN, MARGIN_SHARE * theirs)
    name = "AUC gain" if metric == "auc" else "LogLoss reduction"
    return Claim(
        key=f"median.{dataset}.{metric}",
        text=f"The median paired {name} is {theirs:.4f} ({_DATASETS[dataset]})",
        verdict=_verdict(
            _of(pairs) == N_PAIRS and value is not None,
            value is not None and value > 0 and abs(value - theirs) <= margin,
        ),
        basis=(_number(ours), f" over {counted(_of(pairs) or 0, 'pair')}"),
        jobs=ours.jobs,
    )


def _above_apg(quantities: Mapping[str, Quantity]) -> Claim:
    found = [
        _find(quantities, f"apg.avazu.{backbone}.delta.seed.{seed}")
        for backbone in ("FiBiNET", "DCNv2")
        for seed in SEEDS
    ]
    values = [quantity.value for quantity in found if quantity.value is not None]
    n_above = sum(value > 0 for value in values)
    above = f"{n_above} of {counted(len(values), 'seed')}, of {len(found)}"
    least = ("; least ", _number(Difference(value=min(values)))) if values else ()
    return Claim(
        key="apg.seeds",
        text="PRIME outperforms APG in all ten seed-level AUC comparisons",
        verdict=_verdict(len(values) == len(found), all(value > 0 for value in values)),
        basis=(above, *least),
        jobs=tuple(job for quantity in found for job in quantity.jobs),
    )


def _cheaper(
    quantities: Mapping[str, Quantity], column: str, text: str, *, unit: str = ""
) -> Claim:
    ratios: list[float] = []
    jobs: list[str] = []
    basis: list[str | Cell] = []
    for backbone in ("FiBiNET", "DCNv2"):
        own, rival = (
            _find(quantities, f"apg.avazu.{backbone}.{arm}.{column}") for arm in ("prime", "apg")
        )
        jobs += [*own.jobs, *rival.jobs]
        if own.value is not None and rival.value:
            ratios.append(own.value / rival.value)
            basis += ["; "] if basis else []
            basis += [f"{backbone} ", _number(Level(value=ratios[-1])), " of APG's"]
            if unit:
                basis += [" (", _number(own), f"{unit} against ", _number(rival), f"{unit})"]
    return Claim(
        key=f"apg.{column}",
        text=f"PRIME {text}",
        verdict=_verdict(len(ratios) == 2, all(ratio < 1 for ratio in ratios)),
        basis=tuple(basis) or ("no measurement",),
        jobs=tuple(jobs),
    )


def _less_alike(quantities: Mapping[str, Quantity]) -> Claim:
    """The diagnosis; how large its gaps are, the comparison of the printed numbers has."""
    cells = [f"gradients.avazu.{backbone}" for backbone in DIAGNOSED]
    gaps = [_find(quantities, f"{cell}.block.dense") for cell in cells]
    n = sum(_find(quantities, f"{cell}.n").value or 0 for cell in cells)
    found: list[str | Cell] = []
    for backbone, gap in zip(DIAGNOSED, gaps, strict=True):
        found += ["; gaps: " if not found else ", ", f"{backbone} ", _number(gap)]
    values = [gap.value for gap in gaps if gap.value is not None]
    return Claim(
        key="gap.dense",
        text="Dense's gradients are less alike over semantic groups than over random ones in all "
        "four architectures",
        verdict=_verdict(
            n == N_GAPS and len(values) == len(DIAGNOSED), all(value > 0 for value in values)
        ),
        basis=(f"{n:.0f} of {N_GAPS} checkpoints and fields", *found)
        if values
        else ("no measurement",),
        jobs=tuple(dict.fromkeys(job for gap in gaps for job in gap.jobs)),
    )


def _gap(quantities: Mapping[str, Quantity]) -> Claim:
    smaller = _find(quantities, "gradients.avazu.mean.block.prime.reduction")
    n = _find(quantities, "gradients.avazu.mean.n")
    dense, prime = (
        _find(quantities, f"gradients.avazu.mean.block.{arm}") for arm in ("dense", "prime")
    )
    value = smaller.value
    found = (
        *("reduction ", shown(smaller, 1), "% (", _number(dense), " to ", _number(prime)),
        ") over ",
        *(_number(n), f" of {N_GAPS} checkpoints and fields; the gap also measures how the "),
        "groups' covariates differ",
    )
    return Claim(
        key="gap",
        text=f"PRIME reduces the competition gap by {PRINTED_REDUCTION_PERCENT:g}%",
        verdict=_verdict(
            n.value == N_GAPS and value is not None,
            value is not None and value >= PRINTED_REDUCTION_PERCENT - MARGIN_PERCENT,
        ),
        basis=("no measurement",) if value is None else found,
        jobs=smaller.jobs,
    )


_CONTROLS = {
    "parameter_matched": "PRIME is above the parameter-matched control",
    "mac_matched": "PRIME is above the MAC-matched control",
    "uniform_routing": "PRIME is above uniform routing",
    "permuted_routing": "PRIME is above permuted routing",
}


def _controls(quantities: Mapping[str, Quantity]) -> Iterator[Claim]:
    for key, text in _CONTROLS.items():
        ahead = _find(quantities, f"controls.avazu.{key}.auc")
        won = _find(quantities, f"controls.avazu.{key}.auc.won")
        yield Claim(
            key=f"control.{key}",
            text=text,
            verdict=_verdict(
                _of(won) == N_CONTROL_PAIRS and ahead.value is not None, (ahead.value or 0) > 0
            ),
            basis=("mean difference of AUC ", _number(ahead), ", ", _number(won), " pairs won"),
            jobs=ahead.jobs,
        )


def _find(quantities: Mapping[str, Quantity], address: str) -> Quantity:
    """The quantity of a cell; MISSING where the records give no such cell.

    Tables have rows and columns for the backbones, arms and seeds that have records alone, so an
    address that is absent is no fault. A test looks all of them up in a report of all runs.
    """
    return quantities.get(address, MISSING)


def _of(quantity: Quantity) -> int | None:
    """How many a count could be at most; None of what is not a count."""
    return quantity.of if isinstance(quantity, Count) else None


def _number(quantity: Quantity) -> Cell:
    return shown(quantity, _DECIMALS)


def _verdict(enough: bool, holds: bool) -> ClaimVerdict:
    if not enough:
        return "not enough runs"
    return "reproduced" if holds else "not reproduced"

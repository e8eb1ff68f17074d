"""The paper's own numbers fed in as records: our tables of them are its tables, digit by digit.

The paper computed from unrounded runs, we from its printed digits: a number of ours may be off by
one unit of the last digit. The places where it is are listed; nothing is edited to fit.
"""

import math
import re
from collections.abc import Callable

import pytest

from prime_bench.data.manifest import resolve
from prime_bench.report.document import make_report
from prime_bench.report.formats.cells import joined, note_text, printed
from prime_bench.report.quantities.records import gather
from prime_bench.report.quantities.values import Count, Difference, Level, Quantity, count
from prime_bench.report.tables.claims import judge_claims
from prime_bench.report.tables.comparison import claims_table, expected_table
from prime_bench.report.tables.expected import judge, load_paper
from prime_bench.report.tables.kinds import load_definition
from prime_bench.report.tables.model import Report
from prime_bench.store.record import GENERATED_NOTE, RunRecord

SEEDS = (2021, 190034, 27011, 948432, 992817)
PAPER = load_paper()
PRINTED = PAPER.printed()
UNIT = 1e-4

MakeRecord = Callable[..., RunRecord]


def with_moments(mean: float, sd: float | None) -> list[float]:
    """Five values of that mean and sample SD; a LogLoss of 4.08 ± 4.26 must stay above zero."""
    return [mean + (sd or 0) * step / math.sqrt(5) for step in (-1, -1, -1, -1, 4)]


def report_of(records: list[RunRecord], *names: str) -> Report:
    return make_report(gather(records), definitions={n: load_definition(n) for n in names})


@pytest.fixture(scope="module")
def make(make_record: MakeRecord) -> MakeRecord:
    return make_record


@pytest.fixture(scope="module")
def main(make: MakeRecord) -> Report:
    records = []
    for dataset in ("avazu", "criteo"):
        for backbone in sorted(backbones(dataset)):
            for arm in ("dense", "prime"):
                place = f"main.{dataset}.{backbone}"
                auc, loss = (PRINTED[f"{place}.{metric}.{arm}"] for metric in ("auc", "logloss"))
                scores = zip(
                    SEEDS,
                    with_moments(auc.value, auc.sd),
                    with_moments(loss.value, loss.sd),
                    strict=True,
                )
                facts = {"dataset": dataset, "backbone": backbone, "arm": arm}
                records += [make(seed=s, auc=a, logloss=b, **facts) for s, a, b in scores]
    return report_of(records, "main")


@pytest.fixture(scope="module")
def apg(make: MakeRecord) -> Report:
    """Seeds of APG and PRIME as printed; Dense and LogLoss are printed as means alone."""
    records = []
    for backbone in ("FiBiNET", "DCNv2"):
        for arm in ("dense", "apg", "prime"):
            place = f"apg.avazu.{backbone}.{arm}"
            for seed in SEEDS:
                auc = PRINTED.get(f"{place}.seed.{seed}", PRINTED[f"{place}.auc"]).value
                loss = PRINTED[f"{place}.logloss"].value
                records.append(make(backbone=backbone, arm=arm, seed=seed, auc=auc, logloss=loss))
    return report_of(records, "apg")


@pytest.fixture(scope="module")
def gdcn(make: MakeRecord) -> Report:
    arms = ("dense", "prime", "cross_1_pre", "cross_2_pre", "cross_2_pre_no_ln")
    records = [
        make(
            dataset="criteo",
            backbone="GDCN",
            arm=arm,
            seed=seed,
            plugin="dense" if arm == "dense" else "prime",
            plugin_settings={} if arm == "dense" else {"k": arm},
            auc=PRINTED[f"gdcn_seeds.criteo.GDCN.{seed}.{arm}"].value,
            logloss=0.44,
        )
        for arm in arms
        for seed in SEEDS
    ]
    return report_of(records, "gdcn_seeds")


def backbones(dataset: str) -> set[str]:
    found = {a.split(".")[2] for a in PRINTED if a.startswith(f"main.{dataset}.")}
    return found - {"mean", "paired_median", "backbones_won"}


def off_by_units(report: Report, prefix: str) -> list[tuple[str, int, int]]:
    """Addresses under `prefix` whose printed digits differ: by how many units, value and SD."""
    found = []
    for item in judge(report, PAPER, spreads=True).judged:
        cell = item.place.cell
        if (
            not item.address.startswith(prefix)
            or isinstance(cell.quantity, Count)
            or not cell.value
        ):
            continue
        ours = [float(number) for number in re.findall(r"[+-]?\d+\.\d+", printed(cell).text)]
        theirs = [item.printed.value, *([item.printed.sd] if item.printed.sd is not None else [])]
        units = [round((a - b) / UNIT) for a, b in zip(ours, theirs, strict=False)] + [0]
        if any(units):
            found.append((item.address, units[0], units[1]))
    return sorted(found)


def test_the_papers_numbers_were_found() -> None:
    assert backbones("avazu") == backbones("criteo")
    assert len(backbones("avazu")) == 13
    assert len(PRINTED) > 250


def test_main_table_is_the_papers_within_a_unit(main: Report) -> None:
    found = [item for item in off_by_units(main, "main.") if ".paired_median." not in item[0]]

    assert found == [
        # Eight deltas of cells: the difference of two rounded means is not the rounded difference.
        ("main.avazu.DeepFM.logloss.prime.delta", -1, 0),
        ("main.avazu.FiBiNET.logloss.prime.delta", 1, 0),
        ("main.avazu.FwFM.auc.prime.delta", 1, 0),
        ("main.avazu.PNN.logloss.prime.delta", 1, 0),
        ("main.avazu.mean.logloss.prime", 0, -1),  # one mean of standard deviations
        ("main.criteo.AutoInt.logloss.prime.delta", 1, 0),
        ("main.criteo.DCN.logloss.prime.delta", 1, 0),
        ("main.criteo.FwFM.logloss.prime.delta", 1, 0),
        ("main.criteo.NFM.logloss.prime.delta", -1, 0),
    ]


def test_counts_are_the_papers_and_medians_need_seeds(main: Report) -> None:
    cells = dict(cell for table in main.tables for cell in table.cells())

    for dataset in ("avazu", "criteo"):
        assert printed(cells[f"main.{dataset}.backbones_won.auc.prime.delta"]).text == "11/13"
    # Five made-up values of a mean and an SD have other medians than the paper's unprinted seeds.
    assert "main.avazu.paired_median.auc.prime.delta" in PRINTED


def test_apg_table_is_the_papers_within_a_unit(apg: Report) -> None:
    found = [item for item in off_by_units(apg, "apg.") if ".parameters" not in item[0]]

    assert found == [
        ("apg.avazu.FiBiNET.delta.seed.190034", 1, 0),
        ("apg.avazu.FiBiNET.delta.seed.2021", -1, 0),
    ]


def test_all_ten_seeds_favour_prime(apg: Report) -> None:
    claim = next(claim for claim in judge_claims(apg.quantities()) if claim.key == "apg.seeds")

    assert claim.verdict == "reproduced"
    assert joined(claim.basis) == "10 of 10 seeds, of 10; least +0.0003"


def test_gdcn_means_are_the_papers_within_a_unit(gdcn: Report) -> None:
    assert off_by_units(gdcn, "gdcn_seeds.") == [
        ("gdcn_seeds.criteo.GDCN.mean.dense", 1, 0),
        ("gdcn_seeds.criteo.GDCN.mean.prime", 1, 0),
    ]


def claims_of(report: Report) -> dict[str, str]:
    return {claim.key: claim.verdict for claim in judge_claims(report.quantities())}


def test_the_papers_own_numbers_reproduce_its_counts(main: Report) -> None:
    answers = claims_of(main)

    assert answers["won.avazu"] == answers["won.criteo"] == "reproduced"
    assert answers["apg.seeds"] == answers["gap"] == "not enough runs"
    assert answers["control.parameter_matched"] == "not enough runs"


@pytest.mark.parametrize("missing", ["seed", "backbone"])
def test_fewer_than_all_runs_are_not_enough(make: MakeRecord, missing: str) -> None:
    names = sorted(backbones("avazu"))[1 if missing == "backbone" else 0 :]
    seeds = SEEDS[1:] if missing == "seed" else SEEDS
    records = [
        make(backbone=name, arm=arm, seed=seed, auc=0.76 + gain, logloss=0.37)
        for name in names
        for arm, gain in (("dense", 0), ("prime", 0.0022))
        for seed in seeds
    ]

    answers = claims_of(report_of(records, "main"))
    assert answers["won.avazu"] == answers["median.avazu.auc"] == "not enough runs"


@pytest.mark.parametrize(
    ("gain", "won", "median"),
    [
        (0.0022, "reproduced", "reproduced"),
        (0.0013, "reproduced", "reproduced"),
        (0.0010, "reproduced", "not reproduced"),
        (0.0033, "reproduced", "not reproduced"),
        (-0.0022, "not reproduced", "not reproduced"),
    ],
)
def test_a_claim_has_its_verdict_from_the_numbers(
    make: MakeRecord, gain: float, won: str, median: str
) -> None:
    records = [
        make(backbone=name, arm=arm, seed=seed, auc=0.76 + gain * (arm == "prime"), logloss=0.37)
        for name in sorted(backbones("avazu"))
        for arm in ("dense", "prime")
        for seed in SEEDS
    ]
    answers = claims_of(report_of(records, "main"))

    assert (answers["won.avazu"], answers["median.avazu.auc"]) == (won, median)


@pytest.mark.parametrize(
    ("key", "n", "number"),
    [
        (
            "median.avazu.auc",
            {"main.avazu.pairs_won.auc.prime.delta": count(40, of=65)},
            {"main.avazu.paired_median.auc.prime.delta": Difference(value=0.0015)},
        ),
        (
            "gap",
            {"gradients.avazu.mean.n": count(48)},
            {"gradients.avazu.mean.block.prime.reduction": Level(value=34.0)},
        ),
        (
            "control.mac_matched",
            {"controls.avazu.mac_matched.auc.won": count(15, of=20)},
            {"controls.avazu.mac_matched.auc": Difference(value=0.001)},
        ),
    ],
)
def test_a_number_that_is_not_there_is_not_judged(
    key: str, n: dict[str, Quantity], number: dict[str, Quantity]
) -> None:
    """However many runs are behind it, as where every gap of Dense is 0."""
    verdicts = [
        claim.verdict
        for quantities in (n, {**n, **number})
        for claim in judge_claims(quantities)
        if claim.key == key
    ]

    assert verdicts == ["not enough runs", "reproduced"]


@pytest.mark.parametrize("notes", [(), ("synthetic data: figures say nothing",)])
def test_generated_rows_neither_reproduce_the_paper_nor_fail_to(
    make: MakeRecord, notes: tuple[str, ...]
) -> None:
    """Where a recipe calls a generated log `avazu`, as the study `miniature` does."""
    records = [
        make(backbone=name, arm=arm, seed=seed, auc=0.76 + 0.01 * (arm == "prime"), notes=notes)
        for name in sorted(backbones("avazu"))
        for arm in ("dense", "prime")
        for seed in SEEDS
    ]
    report = report_of(records, "main")
    claims = claims_table(report, PAPER)
    numbers, found = expected_table(report, PAPER, name="paper", gate=False)

    answers = {row.key: printed(row.cells[1]).text for row in claims.blocks[0].rows}
    assert answers["won.avazu"] == ("not judged" if notes else "reproduced")
    assert {item.verdict for item in found.judged} == {"not judged"} or not notes
    for table in (claims, numbers):
        said = [note_text(item) for item in table.notes]
        assert any(text.startswith("Not judged where rows") for text in said) == bool(notes)
    # The user's own file may be of generated rows.
    _, found = expected_table(report, PAPER, name="check", gate=True)
    assert "not judged" not in {item.verdict for item in found.judged}


def test_the_card_of_generated_rows_has_the_note_by_which_they_are_known() -> None:
    assert any(note.startswith(GENERATED_NOTE) for note in resolve("synthetic", {}).card.notes)


@pytest.mark.parametrize(
    ("gap", "n", "verdict"),
    [(0.2, 12, "reproduced"), (-0.2, 12, "not reproduced"), (0.2, 11, "not enough runs")],
)
def test_the_diagnosis_needs_a_gap_above_zero_on_each_of_four_backbones(
    gap: float, n: int, verdict: str
) -> None:
    quantities: dict[str, Quantity] = {}
    for backbone in ("DNN", "AutoInt", "FiBiNET", "DCNv2"):
        value = gap if backbone == "FiBiNET" else 0.3
        quantities[f"gradients.avazu.{backbone}.block.dense"] = Level(value=value)
        quantities[f"gradients.avazu.{backbone}.n"] = count(n if backbone == "DNN" else 12)
    (claim,) = [claim for claim in judge_claims(quantities) if claim.key == "gap.dense"]

    assert claim.verdict == verdict
    assert joined(claim.basis).startswith(f"{36 + n} of 48 checkpoints and fields; gaps: DNN 0.30")


def test_a_claim_says_how_many_of_its_runs_are_degenerate(make: MakeRecord) -> None:
    """A Dense run that collapsed is won by PRIME."""
    records = [
        make(arm=arm, seed=seed, auc=auc, logloss=0.4, degenerate="AUC 0.5" if auc == 0.5 else None)
        for arm, scores in (("dense", (0.5, 0.76)), ("prime", (0.76, 0.76)))
        for seed, auc in zip(SEEDS, scores, strict=False)
    ]
    table = claims_table(report_of(records, "main"), PAPER)
    evidence = table.blocks[0].cell("won.avazu", "evidence")

    assert printed(evidence).text.endswith("1/2 pairs; degenerate runs among them: 1")

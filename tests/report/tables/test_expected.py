"""Numbers from a file beside a report: which verdict each has, and what a file may hold."""

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from scipy.stats import ttest_ind, ttest_ind_from_stats

from prime_bench.base.errors import UsageError
from prime_bench.findings import Score
from prime_bench.report.document import make_report
from prime_bench.report.formats.cells import note_text, printed
from prime_bench.report.quantities.formulas import Tally, t_interval
from prime_bench.report.quantities.records import gather
from prime_bench.report.quantities.values import Difference
from prime_bench.report.tables.addresses import missing_because
from prime_bench.report.tables.comparison import expected_table
from prime_bench.report.tables.expected import ExpectedNumbers, JudgedNumbers, judge, read_expected
from prime_bench.report.tables.kinds import load_definition
from prime_bench.report.tables.model import Report, shown
from prime_bench.store.record import ProbeRecord, RunRecord
from prime_bench.store.runs import Runs

SEEDS = (2021, 190034, 27011, 948432, 992817)
RECORDS = Path(__file__).parents[2] / "records"
MEAN, SD = 0.76, 0.002
T_4 = 2.7764
"""Student's quantile of 0.975 with 4 degrees of freedom, from a printed table."""

MakeRecord = Callable[..., RunRecord]


def report_of(records: list[RunRecord], *names: str) -> Report:
    definitions = {name: load_definition(name) for name in names or ("main",)}
    return make_report(gather(records), definitions=definitions)


def five(mean: float, sd: float) -> list[float]:
    """Five values of that mean and sample standard deviation."""
    return [mean + sd * step / math.sqrt(2.5) for step in (-2, -1, 0, 1, 2)]


@pytest.fixture
def report(make_record: MakeRecord) -> Report:
    """Five seeds of Dense with AUC 0.76 ± 0.002."""
    scores = zip(SEEDS, five(MEAN, SD), strict=True)
    return report_of([make_record(seed=s, auc=a, logloss=0.4) for s, a in scores])


def expected(values: dict[str, Any], **changes: Any) -> ExpectedNumbers:
    table = {"schema": 1, "title": "numbers", "tolerance": 0.001, "values": values, **changes}
    return ExpectedNumbers.parse(table, where="")


def verdict(report: Report, theirs: object, **changes: Any) -> str:
    """Of the AUC of Dense on DNN."""
    numbers = expected({"main.avazu.DNN.auc.dense": theirs}, **changes)
    (item,) = judge(report, numbers, spreads=True).judged
    return item.verdict


@pytest.mark.parametrize(
    ("theirs", "changes", "said"),
    [
        (0.761, {}, "inside"),
        (0.7611, {}, "outside"),
        (0.7600001, {"tolerance": 1e-9}, "outside"),
        (0.76 + 1e-12, {"tolerance": 0}, "outside"),
        (0.7000, {"not_judged": ["main.*.dense"]}, "not judged"),
        (0.7700, {"one_sided": ["main.*"]}, "not above"),
        (0.7500, {"one_sided": ["main.*"]}, "above"),
        ([0.76, 0.0021], {}, "inside"),
        ([0.76, 0.9], {}, "other SD"),
        ([0.77, 0.9], {}, "outside"),
    ],
)
def test_the_tolerance_alone_decides(
    report: Report, theirs: object, changes: dict[str, Any], said: str
) -> None:
    """Seeds vary by 0.002 here, which passes nothing."""
    assert verdict(report, theirs, **changes) == said


def test_a_tolerance_of_0_is_exact(report: Report) -> None:
    own = judge(report, expected({"main.avazu.DNN.auc.dense": 0.76}), spreads=True).judged[0]
    value = own.place.cell.value
    assert value is not None

    assert verdict(report, value, tolerance=0) == "inside"
    for other in (math.nextafter(value, 0), math.nextafter(value, 1)):
        assert verdict(report, other, tolerance=0) == "outside"


def test_an_sd_that_the_report_does_not_have_is_another(make_record: MakeRecord) -> None:
    report = report_of([make_record(seed=1, auc=0.76, logloss=0.4)])

    assert verdict(report, [0.76, 0.002]) == "other SD"


@pytest.mark.parametrize("noise", ["none", "seeds"])
@pytest.mark.parametrize("scores", [(0.5, 0.5), (0.5, 0.9)])
def test_a_degenerate_run_never_passes(
    make_record: MakeRecord, noise: str, scores: tuple[float, float]
) -> None:
    """Neither by noise of its own making nor where the file has its very number."""
    records = [
        make_record(arm=arm, seed=seed, auc=auc, logloss=5.0, degenerate="AUC 0.5")
        for arm in ("dense", "prime")
        for seed, auc in enumerate(scores)
    ]
    report = report_of(records, "main", "cells", "family", "pairs")
    numbers = {
        address: cell.value
        for table in report.tables
        for address, cell in table.cells()
        if cell.value is not None
    }
    found = judge(report, expected(numbers, noise=noise, runs=2), spreads=True)

    assert len(found.judged) > 40
    assert {item.verdict for item in found.judged} == {"degenerate run"}


def test_a_probe_of_a_degenerate_run_never_passes() -> None:
    found, _ = Runs(RECORDS).readable()
    runs = [record for record in found if isinstance(record, RunRecord)]
    probes = [record for record in found if isinstance(record, ProbeRecord)]
    probed = {probe.job.training_run.id for probe in probes if probe.job.kind == "routing"}
    collapsed = [
        run.model_copy(
            update={"result": run.result.model_copy(update={"test": Score(auc=0.5, logloss=0.7)})}
        )
        if run.job_id in probed
        else run
        for run in runs
    ]
    definitions = {"routing": load_definition("routing")}
    report = make_report(gather(collapsed, probes=probes), definitions=definitions)
    numbers = {a: c.value for a, c in report.tables[0].cells() if c.value is not None}
    assert numbers

    assert {item.verdict for item in judge(report, expected(numbers), spreads=True).judged} == {
        "degenerate run"
    }


@pytest.mark.parametrize("sd", [0.002, 0.001, 0.02, 1e-9])
@pytest.mark.parametrize("runs", [2, 5, 16])
def test_seed_noise_is_that_of_both_sides(report: Report, sd: float, runs: int) -> None:
    """A difference is outside where scipy's test of Welch has p < 0.05."""
    seeds = {"noise": "seeds", "runs": runs, "tolerance": 0}
    error = math.sqrt(SD**2 / 5 + sd**2 / runs)
    verdicts = []
    for deviations in (0.5, 1.5, 2, 2.2, 2.5, 3, 4, 8, 14):
        theirs = MEAN + deviations * error
        p = ttest_ind_from_stats(MEAN, SD, 5, theirs, sd, runs, equal_var=False).pvalue
        numbers = expected({"main.avazu.DNN.auc.dense": [theirs, sd]}, **seeds)
        (item,) = judge(report, numbers, spreads=False).judged
        assert item.verdict == ("outside" if p < 0.05 else "inside seed noise")
        verdicts.append(item.verdict)
    assert len(set(verdicts)) == 2


@pytest.mark.parametrize("sd", [0.002, 0.0004])
def test_published_runs_are_judged_by_their_own_mean_and_sd(report: Report, sd: float) -> None:
    """As `[mean, SD]` of as many runs is: outside where scipy's test of Welch has p < 0.05."""
    verdicts = []
    for shift in (0.0001, 0.001, 0.002, 0.003, 0.004, 0.006):
        theirs = five(MEAN + shift, sd)[:4]
        p = ttest_ind(five(MEAN, SD), theirs, equal_var=False).pvalue
        numbers = expected(
            {"main.avazu.DNN.auc.dense": {"runs": theirs}}, noise="seeds", tolerance=0
        )
        (item,) = judge(report, numbers, spreads=False).judged
        assert item.verdict == ("outside" if p < 0.05 else "inside seed noise")
        verdicts.append(item.verdict)
    assert len(set(verdicts)) == 2


def test_a_single_published_run_varies_as_ours(report: Report) -> None:
    """It lies where a sixth run of ours would in 95 % of cases."""
    bound = T_4 * SD * math.sqrt(1 + 1 / 5)
    for shift, said in ((0.999, "inside seed noise"), (1.001, "outside")):
        theirs = {"runs": [MEAN + shift * bound]}
        assert verdict(report, theirs, noise="seeds", tolerance=0) == said


def test_published_runs_have_the_digits_that_they_are_written_with(
    report: Report, tmp_path: Path
) -> None:
    path = tmp_path / "runs.toml"
    value = "{ runs = [0.76100, 0.76300, 0.75600] }"
    head = 'schema = 1\ntitle = "n"\ntolerance = "printed"\nnoise = "seeds"\nruns = 1\n'
    path.write_text(f'{head}[values.main.avazu.DNN]\n"auc.dense" = {value}\n', encoding="utf-8")

    (number,) = read_expected(path).printed().values()

    assert number.value == pytest.approx(0.76, abs=1e-12)
    assert number.sd == pytest.approx(math.sqrt((1e-6 + 9e-6 + 16e-6) / 2), rel=1e-9)
    assert (number.runs, number.decimals, number.sd_decimals) == (3, 5, 5)
    table, _ = expected_table(report, read_expected(path), name="check", gate=False)
    (row,) = table.blocks[0].rows
    shown = dict(zip((c.key for c in table.blocks[0].columns), row.cells, strict=True))
    assert printed(shown["runs"]).text == "5, 3"
    assert printed(shown["theirs"]).text == "0.76000±0.00361"


def test_without_an_sd_theirs_vary_as_ours(report: Report) -> None:
    for runs in (1, 5):
        bound = T_4 * SD * math.sqrt(1 / 5 + 1 / runs)
        for shift, said in ((0.999, "inside seed noise"), (1.001, "outside")):
            for sign in (-1, 1):
                theirs = MEAN + sign * shift * bound
                assert verdict(report, theirs, noise="seeds", runs=runs, tolerance=0) == said


def test_one_run_of_ours_varies_as_theirs(make_record: MakeRecord) -> None:
    report = report_of([make_record(seed=1, auc=MEAN, logloss=0.4)])
    bound = T_4 * SD * math.sqrt(1 + 1 / 5)
    seeds = {"noise": "seeds", "runs": 5, "tolerance": 0}

    assert verdict(report, [MEAN + 0.999 * bound, SD], **seeds) == "inside seed noise"
    assert verdict(report, [MEAN + 1.001 * bound, SD], **seeds) == "outside"
    assert verdict(report, MEAN + 0.0001, **seeds) == "noise unknown"
    assert verdict(report, MEAN + 0.0001, **seeds, exact=["main.*"]) == "outside"


def test_an_sd_is_judged_where_seed_noise_passes(report: Report) -> None:
    seeds = {"noise": "seeds", "runs": 5}

    assert verdict(report, [MEAN, 0.9], **seeds) == "other SD"
    # F of 4 and 4: 9.6045 at 0.975.
    assert verdict(report, [MEAN, SD * math.sqrt(9.60)], **seeds) == "inside"
    assert verdict(report, [MEAN, SD * math.sqrt(9.61)], **seeds) == "other SD"
    numbers = expected({"main.avazu.DNN.auc.dense": [MEAN, 0.9]}, **seeds)
    assert judge(report, numbers, spreads=False).judged[0].verdict == "inside"


def test_means_and_differences_have_the_noise_of_what_they_are_made_of(
    make_record: MakeRecord,
) -> None:
    """Ours vary by nothing, so that the bound is that of their SDs alone."""
    records = [
        make_record(backbone=backbone, arm=arm, seed=seed, auc=0.76, logloss=0.4)
        for backbone in ("DNN", "DCNv2")
        for arm in ("dense", "prime")
        for seed in SEEDS
    ]
    report = report_of(records)
    keys = {
        "noise": "seeds",
        "runs": 5,
        "tolerance": 0,
        "means": ["main.*.mean.*"],
        "differences": {"auc.prime.delta": ["auc.prime", "auc.dense"]},
    }
    rows = {
        f"main.avazu.{backbone}.auc.{arm}": [0.76, 0.001]
        for backbone in ("DNN", "DCNv2")
        for arm in ("dense", "prime")
    }
    # Welch: k equal independent SDs of five runs have 4 k degrees of freedom.
    error = 0.001 / math.sqrt(5)
    bounds = {
        "main.avazu.mean.auc.dense": (0.76, 2.3060 * error / math.sqrt(2)),
        "main.avazu.DNN.auc.prime.delta": (0.0, 2.3060 * error * math.sqrt(2)),
        "main.avazu.mean.auc.prime.delta": (0.0, 2.1199 * error),
    }
    for address, (centre, bound) in bounds.items():
        for shift, said in ((0.999, "inside seed noise"), (1.001, "outside")):
            # The Mean row's Δ is made of the rows' Δ, which need not be in the file's order.
            deltas = {f"main.avazu.{b}.auc.prime.delta": 0.0 for b in ("DNN", "DCNv2")}
            numbers = expected({**rows, **deltas, address: centre + shift * bound}, **keys)
            found = {item.address: item for item in judge(report, numbers, spreads=True).judged}
            assert found[address].verdict == said, (address, shift)


@pytest.mark.parametrize(
    ("written", "ours", "said"),
    [
        ("16.00", 16.0049, "inside"),
        ("16.00", 16.0051, "outside"),
        ("16.0000", 16.0010, "outside"),
        ("16", 16.4, "inside"),
        ("0.7600", 0.76005, "inside"),
        ("0.7600", 0.76006, "outside"),
        ("[16.00, 0.10]", 16.0, "other SD"),
    ],
)
def test_printed_digits_are_the_tolerance(
    make_record: MakeRecord, tmp_path: Path, written: str, ours: float, said: str
) -> None:
    """As the file writes them, with the zeros at the end."""
    report = report_of([make_record(seed=1, auc=0.7, logloss=ours)])
    text = (
        'schema = 1\ntitle = "n"\ntolerance = "printed"\n'
        f'[values.main.avazu.DNN]\n"logloss.dense" = {written}\n'
    )
    (tmp_path / "n.toml").write_text(text, encoding="utf-8")
    (item,) = judge(report, read_expected(tmp_path / "n.toml"), spreads=True).judged

    assert item.verdict == said


def judged(report: Report, *addresses: str) -> JudgedNumbers:
    return judge(report, expected(dict.fromkeys(addresses, 0.76)), spreads=True)


def test_a_number_without_a_cell_is_missing_and_has_its_nearest(report: Report) -> None:
    wanted = {
        "main.avazu.DNM.auc.dense": "the nearest is `main.avazu.DNN.auc.dense`",
        "main.criteo.DNN.auc.dense": "the nearest is `main.avazu.DNN.auc.dense`",
        "mian.avazu.DNN.auc.dense": "the nearest is `main.avazu.DNN.auc.dense`",
        "main.avazu.DNN.acu.dense": "the nearest is `main.avazu.DNN.auc.dense`",
        "main.avazu.DNN": "the nearest is `main.avazu.DNN.auc.dense`",
        "cost.avazu.DNN.dense.memory": "the table `cost` is not shown; --table cost shows it",
    }
    found = judged(report, *wanted, "main.avazu.DNN.auc.dense")

    assert found.missing == tuple(wanted)
    assert missing_because(report, found.missing) == wanted
    assert not found.agrees(allow_missing=False)
    assert found.agrees(allow_missing=True)


@pytest.mark.parametrize("gate", [True, False])
def test_numbers_without_a_cell_are_named_in_a_check_and_counted_elsewhere(
    report: Report, gate: bool
) -> None:
    addresses = [f"main.avazu.{name}.auc.dense" for name in ("DNN", "AFM", "FwFM")]
    numbers = expected(dict.fromkeys(addresses, 0.76))
    table, _ = expected_table(report, numbers, name="numbers", gate=gate)
    notes = [note_text(note) for note in table.notes if note.kind == "comparison"]

    assert sum(note.startswith("No such cell: main.avazu.") for note in notes) == 2 * gate
    assert ("2 more have no cell in the tables of this report" in notes) is not gate


def test_nothing_compared_is_no_agreement(report: Report) -> None:
    for numbers in ({"main.avazu.AFM.auc.dense": 0.7}, {}):
        assert not judge(report, expected(numbers), spreads=True).agrees(allow_missing=True)
    unjudged = expected({"main.avazu.DNN.auc.dense": 0.7}, not_judged=["main.*"])
    assert not judge(report, unjudged, spreads=True).agrees(allow_missing=True)


def test_a_second_device_renames_blocks_of_cost_and_the_old_address_fails() -> None:
    found, _ = Runs(RECORDS).readable()
    probes = [r for r in found if isinstance(r, ProbeRecord) and r.job.kind == "cost"]
    other = [
        probe.model_copy(
            update={
                "environment": probe.environment.model_copy(update={"device": "another"}),
                "job": probe.job.model_copy(
                    update={"probe": {**probe.job.probe, "device": "another"}}
                ),
            }
        )
        for probe in probes
    ]

    def cost(records: list[ProbeRecord]) -> Report:
        definitions = {"cost": load_definition("cost")}
        return make_report(gather([], probes=records), definitions=definitions)

    address, cell = next((a, c) for a, c in cost(probes).tables[0].cells() if c.value is not None)
    numbers = expected({address: cell.value})
    assert judge(cost(probes), numbers, spreads=True).agrees(allow_missing=False)

    both = cost([*probes, *other])
    found = judge(both, numbers, spreads=True)
    assert found.missing == (address,)
    assert not found.agrees(allow_missing=False)
    block, _, cell_of_it = address.removeprefix("cost.").partition(".")
    near = missing_because(both, found.missing)[address]
    elsewhere = expected({f"cost.{block}/a third.{cell_of_it}": cell.value})
    table, _ = expected_table(both, elsewhere, name="check", gate=True)
    assert table.caption == "None of these numbers belongs to a table of this report."
    assert near.startswith(f"the nearest is `cost.{block}/")
    assert near.endswith(f".{cell_of_it}`")


def test_numbers_are_shown_as_they_are_written_and_differences_beyond_the_tolerance(
    report: Report, tmp_path: Path
) -> None:
    text = (
        'schema = 1\ntitle = "n"\ntolerance = 1e-6\n'
        '[values.main.avazu.DNN]\n"auc.dense" = [0.7600, 0.002]\n"logloss.dense" = 0.400002\n'
    )
    (tmp_path / "n.toml").write_text(text, encoding="utf-8")
    table, _ = expected_table(report, read_expected(tmp_path / "n.toml"), name="check", gate=True)
    texts = [
        [printed(cell).text for cell in row.cells[1:4]]
        for block in table.blocks
        for row in block.rows
    ]

    assert texts == [
        ["0.760000±0.002000", "0.7600±0.0020", "0.000000"],
        ["0.400000±0.000000", "0.400002", "-0.000002"],
    ]


def test_a_difference_from_an_exact_number_is_not_printed_as_0(
    report: Report, tmp_path: Path
) -> None:
    text = 'schema = 1\ntitle = "n"\ntolerance = 0\n[values.main.avazu.DNN]\n"auc.dense" = 0.8\n'
    for written, words in (("0.8", "-0.04"), ("0.76003", "-0.00003"), ("0.7603", "-0.0003")):
        path = tmp_path / "n.toml"
        path.write_text(text.replace("0.8", written), encoding="utf-8")
        table, _ = expected_table(report, read_expected(path), name="check", gate=True)
        ((cell,),) = ([printed(row.cells[3]) for row in block.rows] for block in table.blocks)
        assert cell.text == words


def test_pairs_won_are_whole_numbers_among_differences(make_record: MakeRecord) -> None:
    report = report_of(
        [
            make_record(arm=arm, seed=seed, auc=0.7 + gain * (arm == "prime"))
            for seed, gain in zip(SEEDS, (0.01, 0.02, -0.01, 0.03, 0.01), strict=True)
            for arm in ("dense", "prime")
        ]
    )
    numbers = expected({"main.avazu.pairs_won.auc.prime.delta": 3}, decimals=4)

    table, _ = expected_table(report, numbers, name="check", gate=True)

    ((row,),) = (block.rows for block in table.blocks)
    assert [printed(cell).text for cell in row.cells[1:4]] == ["4/5", "3", "+1"]


def test_a_difference_stands_without_the_pairs_and_the_interval_of_its_table() -> None:
    interval = t_interval(five(0.01, 0.002))
    ours = Difference(value=0.01, interval=interval, tally=Tally(wins=4, ties=0, losses=1))

    assert printed(shown(ours.bare(), 4)).aside == ""
    assert printed(shown(ours, 4)).aside


@pytest.mark.parametrize(
    ("versions", "software"),
    [({}, "none"), ({"torch": "2.9.0"}, "torch 2.9.0")],
)
def test_the_software_of_both_sides_is_named(
    make_record: MakeRecord, versions: dict[str, str], software: str
) -> None:
    record = make_record()
    environment = record.environment.model_copy(update={"versions": versions})
    report = report_of([record.model_copy(update={"environment": environment})])
    numbers = expected(
        {"main.avazu.DNN.auc.dense": 0.7}, software="torch 2.6", accelerator="their card"
    )

    table, _ = expected_table(report, numbers, name="check", gate=True)

    said = f"Ours: {software} on a CPU; theirs: torch 2.6 on their card. Latencies"
    assert any(note_text(item).startswith(said) for item in table.notes)


HEAD = 'schema = 1\ntitle = ""\n'


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("schema = 1", "title"),
        (HEAD + 'tolerance = 0\n[values]\na = "x"', "values.a: expected a number"),
        (HEAD + "tolerance = 0\n[values]\na = [1, 2, 3]", "values.a: expected a number"),
        (HEAD + "tolerance = 0\n[values]\na = [0.50, 0.1, true]", "got [0.50, 0.1, True]"),
        (HEAD + "tolerance = 0\n[values]\na = [1, -0.5]", "not below 0"),
        (HEAD + "tolerance = 0\n[values]", "values: no number to compare is there"),
        (HEAD + "tolerance = 0\n[values]\na = nan", "values.a: expected a number"),
        (HEAD + "tolerance = 0\n[values]\na = [1, inf]", "values.a: expected a number"),
        (HEAD + "tolerance = 0\n[values]\na = { runs = [] }", "values.a.runs: expected [a number"),
        (
            HEAD + "tolerance = 0\n[values]\na.runs = 1",
            "values.a.runs: expected [a number a run], got",
        ),
        (HEAD + 'tolerance = 0\n[values]\na.runs = [1, "2"]', "values.a.runs: expected [a number"),
        (HEAD + "tolerance = 0\n[values]\na.runs = [1, nan]", "values.a.runs: expected [a number"),
        (HEAD + "tolerance = inf\n[values]\na = 1", ": tolerance: expected a number from 0 on, "),
        (HEAD + "tolerance = nan\n[values]\na = 1", ": tolerance: expected a number from 0 on, "),
        (HEAD + "tolerance = -1\n[values]\na = 1", 'from 0 on, or "printed", got -1'),
        (HEAD + 'tolerance = "print"\n[values]\na = 1', 'or "printed", got "print"'),
        (HEAD + 'tolerance = 0\n[values]\n"a.b" = 1\na.b = 1', "values.a.b: it is there twice"),
        (HEAD + 'tolerance = 0\nnoise = "seeds"\n[values]\na = 1', "runs: missing"),
        (HEAD + 'tolerance = 0\nnot_judged = ["b.*"]\n[values]\na.b = 1', "not_judged: no number"),
        (HEAD + "tolerance = 0\nother_runs = { a = 0 }\n[values]\na = 1", "other_runs"),
        ("schema = ", "cannot read"),
    ],
)
def test_a_faulty_file_of_numbers_is_one_message(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "n.toml").write_text(text, encoding="utf-8")

    with pytest.raises(UsageError, match=re.escape(words)) as caught:
        read_expected(tmp_path / "n.toml")
    assert all(
        line.startswith(f"{tmp_path / 'n.toml'}: ") for line in caught.value.message.splitlines()
    )

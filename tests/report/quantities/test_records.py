"""The stored records: golden reports in six formats, and every statistic worked out by hand.

To accept a change of the golden files: `python tests/report/quantities/test_records.py`.
"""

import json
import math
import re
import shutil
from pathlib import Path
from typing import get_args

import pytest

from prime_bench.report.document import make_report
from prime_bench.report.formats.cells import printed
from prime_bench.report.formats.html import table_html
from prime_bench.report.formats.render import SUFFIXES, Format, render
from prime_bench.report.quantities.costs import measured_costs
from prime_bench.report.quantities.records import gather
from prime_bench.report.request import ReportRequest, read_source
from prime_bench.report.tables.kinds import load_definition
from prime_bench.report.tables.model import Cell, Report
from prime_bench.settings.probes import Kind
from prime_bench.store.record import ProbeRecord
from prime_bench.store.runs import Runs

RECORDS = Path(__file__).parents[2] / "records"
GOLDEN = Path(__file__).parents[1] / "golden" / "records"
FORMATS: tuple[Format, ...] = get_args(Format)
TABLES = (
    *("main", "apg", "cost", "gradients", "routing", "subgroups"),
    *("family", "cells", "pairs"),
)
STEP = 2**-13
PRIME = ("prime", 27011)


def report_of(folder: Path) -> Report:
    return ReportRequest(recipe=None, tables=TABLES).report(read_source(None, folder))[0]


def text_of(report: Report, format: Format) -> str:
    """The whole report; of HTML the tables alone: the page around them has tests of its own."""
    if format == "html":
        return "\n".join(table_html(table) for table in report.tables)
    return render(report, format)


def golden(format: Format) -> Path:
    return GOLDEN / f"report.{SUFFIXES[format]}"


@pytest.fixture(scope="module")
def report() -> Report:
    return report_of(RECORDS)


@pytest.fixture(scope="module")
def cells(report: Report) -> dict[str, Cell]:
    return {address: cell for table in report.tables for address, cell in table.cells()}


@pytest.mark.parametrize("format", FORMATS)
def test_golden(report: Report, format: Format, tmp_path: Path) -> None:
    made = tmp_path / golden(format).name
    made.write_text(text_of(report, format), encoding="utf-8")

    assert golden(format).is_file(), f"read {made}, and copy it to {golden(format)}"
    assert made.read_text(encoding="utf-8") == golden(format).read_text(encoding="utf-8"), made


def digits_of_scores() -> list[tuple[Path, str, int]]:
    """Every digit of the test scores of one record a backbone: where it stands."""
    places = []
    for file in sorted(RECORDS.glob("*/record.json")):
        text = file.read_text(encoding="utf-8")
        record = json.loads(text)
        if record["job"]["kind"] != "train" or (record["arm"], record["job"]["seed"]) != PRIME:
            continue
        start = text.index('"test": {')
        for name in ("auc", "logloss"):
            number = re.compile(rf'"{name}": 0\.(\d+)').search(text, start)
            assert number
            places += [(file, name, number.start(1) + index) for index in range(len(number[1]))]
    return places


def test_a_mutation_of_one_digit_of_a_score_changes_every_format(tmp_path: Path) -> None:
    expected = {format: golden(format).read_text(encoding="utf-8") for format in FORMATS}
    places = digits_of_scores()
    folder = Path(shutil.copytree(RECORDS, tmp_path / "records"))

    assert len(places) > 40
    for file, name, place in places:
        text = file.read_text(encoding="utf-8")
        copy = folder / file.relative_to(RECORDS)
        copy.write_text(
            text[:place] + str((int(text[place]) + 5) % 10) + text[place + 1 :], encoding="utf-8"
        )
        mutated = report_of(folder)
        copy.write_text(text, encoding="utf-8")
        # Beyond the printed digits, only the formats with full precision can differ.
        printed = place - text.rindex("0.", 0, place) - 1 <= 4
        for format in FORMATS if printed else ("json", "csv"):
            assert text_of(mutated, format) != expected[format], (file.parent.name, name, format)


@pytest.mark.parametrize("format", FORMATS)
def test_a_mutation_of_one_digit_of_a_golden_file_is_seen(report: Report, format: Format) -> None:
    text, made = golden(format).read_text(encoding="utf-8"), text_of(report, format)
    digits = [match.start() for match in re.finditer(r"\d", text)]

    assert len(digits) > 1000
    for place in digits[:: max(1, len(digits) // 200)]:
        mutated = text[:place] + str((int(text[place]) + 1) % 10) + text[place + 1 :]
        assert mutated != made


def in_steps(value: float | None) -> float:
    assert value is not None
    return value / STEP


@pytest.mark.parametrize(
    ("address", "steps"),
    [
        ("main.avazu.FiBiNET.auc.dense", 6226),  # + mean of 0, 2, -2, 4, -4
        ("main.avazu.FiBiNET.auc.prime", 6244),
        ("main.avazu.FiBiNET.auc.prime.delta", 18),  # mean of 10, 20, 30, -10, 40
        ("main.avazu.FiBiNET.logloss.prime.delta", 7.2),  # mean of 4, 8, 12, -4, 16
        ("main.avazu.DCNv2.auc.prime.delta", 10),  # mean of 5, 5, -5, 15, 30
        ("main.avazu.mean.auc.prime.delta", 14),
        ("main.avazu.paired_median.auc.prime.delta", 12.5),  # of all ten
        ("main.avazu.paired_median.logloss.prime.delta", 5),
        ("cells.avazu.FiBiNET.prime.auc.median", 20),
        ("cells.avazu.DCNv2.prime.logloss.median", 2),
        ("pairs.avazu.DCNv2.prime.auc.27011", -5),
        ("family.avazu.prime.dense.auc.hodges_lehmann", 12.5),  # medians 20 and 5
        ("family.avazu.apg.dense.auc.hodges_lehmann", 0),  # 5 and -5
        ("apg.avazu.FiBiNET.delta.auc", 13),
        ("apg.avazu.FiBiNET.delta.logloss", -5.2),
        ("apg.avazu.DCNv2.delta.seed.27011", 0),
        ("subgroups.avazu.FiBiNET.hour.00.auc.delta", 10),
        ("subgroups.avazu.FiBiNET.hour.00.logloss.delta", -10),
    ],
)
def test_levels_and_differences_are_those_of_the_hand(
    cells: dict[str, Cell], address: str, steps: float
) -> None:
    assert in_steps(cells[address].value) == pytest.approx(steps, abs=1e-6)


@pytest.mark.parametrize(
    ("address", "value"),
    [
        # FiBiNET: |d| = 10, 10, 20, 30, 40 have ranks 1.5, 1.5, 3, 4, 5; the one loss has 1.5:
        # of 32 signs three have a sum of at most 1.5.
        ("cells.avazu.FiBiNET.prime.auc.wilcoxon", 2 * 3 / 32),
        ("cells.avazu.FiBiNET.prime.auc.sign", 2 * (1 + 5) / 32),
        # DCNv2: |d| = 5, 5, 5, 15, 30 have ranks 2, 2, 2, 4, 5; the loss has 2: four of 32.
        ("cells.avazu.DCNv2.prime.auc.wilcoxon", 2 * 4 / 32),
        # LogLoss has a tie: |d| = 2, 2, 6, 9 have ranks 1.5, 1.5, 3, 4: three of 16.
        ("cells.avazu.DCNv2.prime.logloss.wilcoxon", 2 * 3 / 16),
        ("cells.avazu.DCNv2.prime.logloss.sign", 2 * (1 + 4) / 16),
        ("cells.avazu.FiBiNET.prime.floor", 0.0625),
        # APG is Dense + 5 at each seed: it beats 22 of 25 runs, ties none.
        ("cells.avazu.FiBiNET.apg.auc.improvement", 22 / 25),
        ("cells.avazu.FiBiNET.apg.auc.correlation", 1),
        ("family.avazu.prime.dense.auc.wilcoxon", 0.5),
        ("family.avazu.prime.dense.auc.holm", 1),
        ("cost.avazu.FiBiNET.prime.inference", 2.3 / 2.1),
        ("cost.avazu.FiBiNET.apg.training", 16 / 15),
        ("cost.avazu.FiBiNET.apg.memory", 1.5),
        ("cost.avazu.FiBiNET.prime.parameters", 1.02),
        ("apg.avazu.FiBiNET.prime.parameters", 19.158200 + 0.120224),
        ("apg.avazu.FiBiNET.delta.latency", -0.2),
        ("gradients.avazu.mean.block.prime.reduction", 30),
        ("gradients.avazu.mean.n", 2),
        ("routing.avazu.all.effective_experts", 2.718),
        ("main.avazu.pairs_won.auc.prime.delta", 8),
        ("main.avazu.backbones_won.auc.apg.delta", 1),
    ],
)
def test_statistics_are_those_of_the_hand(
    cells: dict[str, Cell], address: str, value: float
) -> None:
    assert cells[address].value == pytest.approx(value, abs=1e-12)


def test_spreads_are_sample_deviations(cells: dict[str, Cell]) -> None:
    # Of 0, 2, -2, 4, -4: sqrt(40 / 4); PRIME's are 10, 22, 28, -6, 36 around 18.
    dense, prime = (
        cells[f"main.avazu.FiBiNET.auc.{arm}"].quantity.sd for arm in ("dense", "prime")
    )

    assert in_steps(dense) == pytest.approx(math.sqrt(10))
    assert in_steps(prime) == pytest.approx(math.sqrt((64 + 16 + 100 + 576 + 324) / 4))
    assert in_steps(cells["main.avazu.mean.auc.dense"].quantity.sd) == pytest.approx(math.sqrt(10))


def test_ties_are_said_and_not_won(cells: dict[str, Cell]) -> None:
    cell = cells["cells.avazu.DCNv2.prime.logloss.won"]

    assert (printed(cell).text, printed(cell).remark) == ("3/5", "1 tied")
    tie = cells["pairs.avazu.DCNv2.prime.logloss.2021"]
    assert (printed(tie).text, tie.emphasised) == ("0.0000", False)


def test_direction_is_data_of_the_table(cells: dict[str, Cell]) -> None:
    """In the APG table PRIME less APG: lower LogLoss and costs are better, so bold below zero."""
    signs = {
        key: (cells[f"apg.avazu.FiBiNET.delta.{key}"].value or 0) > 0
        for key in ("auc", "logloss", "parameters", "latency")
    }

    assert signs == {"auc": True, "logloss": False, "parameters": False, "latency": False}
    assert all(cells[f"apg.avazu.FiBiNET.delta.{key}"].emphasised for key in signs)
    assert all(cells[f"apg.avazu.FiBiNET.prime.{key}"].emphasised for key in signs)
    assert not cells["apg.avazu.DCNv2.delta.seed.27011"].emphasised


def test_every_number_names_the_jobs_behind_it(report: Report) -> None:
    known = {record.job_id for record in report.records}

    for table in report.tables:
        for address, cell in table.cells():
            if cell.value is not None and not address.endswith(".rows"):
                assert cell.jobs, address
                assert set(cell.jobs) <= known


def _probe_records(kind: Kind) -> list[ProbeRecord]:
    records, _ = Runs(RECORDS).readable()
    return [r for r in records if isinstance(r, ProbeRecord) and r.job.kind == kind]


@pytest.mark.parametrize("kind", ["cost", "gradients", "routing", "subgroups"])
def test_measurements_on_two_versions_of_the_data_are_two_blocks(kind: Kind) -> None:
    records = _probe_records(kind)
    other = [
        record.model_copy(update={"job": record.job.model_copy(update={"fingerprint": "f" * 64})})
        for record in records
    ]
    definitions = {kind: load_definition(kind)}
    one, both = (
        make_report(gather([], probes=probes), definitions=definitions).tables[0].blocks
        for probes in (records, [*records, *other])
    )

    assert len(both) == 2 * len(one)
    assert len({block.key for block in both}) == len(both)
    assert {block.key.partition(".")[0].partition("/")[0] for block in both} == {
        "avazu#1",
        "avazu#2",
    }


def test_a_measurement_of_older_numerics_is_replaced() -> None:
    (record, *_) = _probe_records("routing")
    newer = record.model_copy(update={"job": record.job.model_copy(update={"numerics": 9})})

    assert gather([], probes=[newer, record]).probes_of("routing") == [newer]


@pytest.mark.parametrize("latest", ["a", "z"])
def test_of_two_measurements_of_a_cost_the_later_one_counts(latest: str) -> None:
    (record, *_) = _probe_records("cost")
    found = [
        record.model_copy(
            update={
                "job_id": name,
                "environment": record.environment.model_copy(
                    update={"started": f"2026-01-0{1 + (name == latest)}T00:00:00Z"}
                ),
            }
        )
        for name in ("a", "z")
    ]

    for records in (found, found[::-1]):
        (of_device,) = measured_costs(records).values()
        assert {cost.record.job_id for cost in of_device.values()} == {latest}


if __name__ == "__main__":
    GOLDEN.mkdir(parents=True, exist_ok=True)
    for each in FORMATS:
        golden(each).write_text(text_of(report_of(RECORDS), each), encoding="utf-8")

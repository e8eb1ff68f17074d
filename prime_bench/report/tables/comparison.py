"""Tables that compare a report with expected numbers and with the claims of the paper."""

import math
from collections.abc import Iterator, Sequence, Set

from prime_bench.base.words import counted
from prime_bench.report.provenance import merged_provenance
from prime_bench.report.quantities.formulas import ERROR_RATE
from prime_bench.report.quantities.values import Count, Difference, Level
from prime_bench.report.tables.addresses import missing_because
from prime_bench.report.tables.claims import RULE, Claim, judge_claims
from prime_bench.report.tables.expected import (
    MISMATCHES,
    ExpectedNumbers,
    JudgedNumber,
    JudgedNumbers,
    judge,
    matches,
)
from prime_bench.report.tables.model import (
    Block,
    Cell,
    Column,
    NoteKind,
    Provenance,
    Report,
    Row,
    Table,
    TableNote,
    note,
    series,
    shown,
    words,
)
from prime_bench.store.record import Record


def claims_table(report: Report, expected: ExpectedNumbers) -> Table:
    """One line a claim, with both software stacks and accelerators below."""
    claims = judge_claims(report.quantities(), generated=report.generated)
    block = Block(
        key="abstract",
        label="",
        columns=(
            Column(key="claim", label="Claim", kind="words"),
            Column(key="answer", label="Answer", kind="words"),
            Column(key="evidence", label="Numbers", kind="words"),
        ),
        rows=tuple(
            Row(
                key=claim.key,
                cells=(
                    words(claim.text),
                    words(claim.verdict, jobs=claim.jobs, emphasised=claim.verdict == "reproduced"),
                    words(*claim.basis, *_collapsed(report, claim), jobs=claim.jobs),
                ),
            )
            for claim in claims
        ),
    )
    verdicts = [claim.verdict for claim in claims]
    n_not_judged = verdicts.count("not judged")
    not_judged = f", {n_not_judged} not judged" if n_not_judged else ""
    records = _records_of(report, [job for claim in claims for job in claim.jobs])
    return Table(
        name="claims",
        title="Claims of abstract and conclusion",
        caption=(
            f"Claims of {expected.title} and what these records say: "
            f"{verdicts.count('reproduced')} reproduced, {verdicts.count('not reproduced')} not "
            f"reproduced, {verdicts.count('not enough runs')} without enough runs{not_judged}."
        ),
        blocks=(block,),
        notes=(
            *(note("comparison", text) for text in _other_data_sets(report, expected)),
            note("comparison", RULE),
            *([note("comparison", _GENERATED)] if n_not_judged else []),
            *([note("bold", "Bold: reproduced")] if "reproduced" in verdicts else []),
            *_notes(report, expected, records=records),
        ),
        provenance=merged_provenance(report, records),
        label="tab:claims",
    )


def _collapsed(report: Report, claim: Claim) -> Iterator[str]:
    """How many of the runs behind a claim are degenerate, where any is."""
    if n := len(report.degenerate.intersection(claim.jobs)):
        yield f"; degenerate runs among them: {n}"


def expected_table(
    report: Report, expected: ExpectedNumbers, *, name: str, gate: bool
) -> tuple[Table, JudgedNumbers]:
    """Our value, theirs, difference and verdict of every number that has a cell.

    A `gate` judges standard deviations too, and names each number that has no cell; else these are
    counted.
    """
    generated = frozenset() if gate else report.generated
    numbers = judge(report, expected, spreads=gate, generated=generated)
    judged = numbers.judged
    disagreeing = any(item.verdict in MISMATCHES for item in judged)
    records = _records_of(report, [job for item in judged for job in item.place.cell.jobs])
    table = Table(
        name=name,
        title=f"Against {expected.title}",
        caption=(
            f"Ours beside {expected.title}, and the difference, ours less theirs. "
            f"{' '.join(_meanings(expected, spreads=gate))}"
            if judged
            else f"{next(_other_data_sets(report, expected), _NOTHING)}."
        ),
        blocks=tuple(_blocks(judged, expected)),
        notes=(
            *_counts(numbers),
            *_known(numbers, expected),
            *_of_generated(numbers, generated),
            *_absent(report, numbers, named=gate),
            *([note("bold", "Bold: a number that does not agree")] if disagreeing else []),
            *_notes(report, expected, records=records),
        ),
        provenance=merged_provenance(report, records),
        label=f"tab:{name}",
        side_by_side=8,
    )
    return table, numbers


def _meanings(expected: ExpectedNumbers, *, spreads: bool) -> Iterator[str]:
    """What the verdicts of this file mean, a sentence each."""
    by_digits = expected.tolerance == "printed"
    reach = "half a unit of the last printed digit" if by_digits else f"{expected.tolerance:g}"
    within = f"within {reach}" if expected.tolerance else "equal"
    if expected.noise == "none":
        yield f"Inside: {within}; other SD: the standard deviation is not."
    else:
        yield (
            f"Inside: {within}. Inside seed noise: two sets of runs of one distribution differ by "
            f"more in {100 * ERROR_RATE:g} % of cases (Welch's t from both standard deviations; "
            "runs of a side that has none are taken to vary as the other's). n: runs of ours, of "
            "theirs."
        )
        if spreads:
            yield "Other SD: by an F test, which errs as often on runs that vary normally."
    yield "A number with a degenerate run behind it never agrees."
    if expected.one_sided:
        yield "Costs are only judged by whether ours is above."


def _counts(numbers: JudgedNumbers) -> Iterator[TableNote]:
    """How many numbers have each verdict."""
    verdicts = [item.verdict for item in numbers.judged]
    if verdicts:
        counts = [f"{verdicts.count(v)} {v}" for v in dict.fromkeys(verdicts)]
        yield note("comparison", f"{counted(len(verdicts), 'number')}: {series(counts)}")


def _known(numbers: JudgedNumbers, expected: ExpectedNumbers) -> Iterator[TableNote]:
    """Why numbers differ that are known to."""
    differing = [item.address for item in numbers.of(*MISMATCHES)]
    for pattern, why in expected.explained.items():
        if number := sum(matches(address, [pattern]) for address in differing):
            yield note("comparison", f"Known to differ, {number} of {pattern}: {why}")


def _of_generated(numbers: JudgedNumbers, generated: Set[str]) -> Iterator[TableNote]:
    """Why numbers of generated rows are not judged."""
    if any(not generated.isdisjoint(item.place.cell.jobs) for item in numbers.judged):
        yield note("comparison", _GENERATED)


_GENERATED = (
    "Not judged where rows behind it were generated, which say nothing about the paper's data"
)


def _absent(report: Report, numbers: JudgedNumbers, *, named: bool) -> Iterator[TableNote]:
    """The numbers without a cell: each with the nearest that there is, or how many."""
    if named:
        for address, why in missing_because(report, numbers.missing).items():
            yield note("comparison", f"No such cell: {address}: {why}")
    elif numbers.judged and numbers.missing:
        text = f"{len(numbers.missing)} more have no cell in the tables of this report"
        yield note("comparison", text)


def _records_of(report: Report, jobs: Sequence[str]) -> list[Record]:
    """The report's records of these jobs."""
    wanted = set(jobs)
    return [record for record in report.records if record.job_id in wanted]


def _other_data_sets(report: Report, expected: ExpectedNumbers) -> Iterator[str]:
    """Text of a note, where the numbers' addresses name no data set of the records."""
    named = {part for address in expected.printed() for part in address.split(".")}
    # The key of a block can have more behind the data set: `avazu/<device>`.
    named |= {part.partition("/")[0] for part in named}
    if named.isdisjoint(record.dataset for record in report.records):
        yield f"None of these records is of the data sets of {expected.title}"


_NOTHING = "None of these numbers belongs to a table of this report"


def _blocks(judged: Sequence[JudgedNumber], expected: ExpectedNumbers) -> Iterator[Block]:
    """A block for each block of each table; for each column of it where the table says so."""
    groups: dict[tuple[str, str, str], list[JudgedNumber]] = {}
    for item in judged:
        place = item.place
        by_column = place.table.compared_by == "column"
        key = (place.table.name, place.block.key, place.column.key if by_column else "")
        groups.setdefault(key, []).append(item)
    spread = expected.noise == "seeds"
    for (table, block, column), items in groups.items():
        first = items[0].place
        where = f"{first.table.title}, {first.block.label}" if first.block.label else table
        head = f"{first.column.group} {first.column.label}".strip() if column else ""
        if column and first.column.kind == "change":
            head = f"{first.column.label} {first.column.group}".strip()
        yield Block(
            key=".".join(part for part in (table, block, column) if part),
            label=f"{where}: {head}" if column else where,
            columns=(
                Column(key="cell", label="Cell", kind="words"),
                Column(key="ours", label="Ours", kind="number"),
                Column(key="theirs", label="Theirs", kind="number"),
                *([Column(key="runs", label="n", kind="words")] if spread else []),
                Column(key="difference", label="Difference", kind="number"),
                Column(key="verdict", label="Verdict", kind="words"),
            ),
            rows=tuple(_row(item, expected, alone=bool(column)) for item in items),
        )


def _row(item: JudgedNumber, expected: ExpectedNumbers, *, alone: bool) -> Row:
    place, printed, difference = item.place, item.printed, item.difference
    row, column = place.row.key, place.column.key
    written = expected.decimals or max(printed.decimals, printed.sd_decimals)
    decimals = written
    if isinstance(expected.tolerance, float) and 0 < expected.tolerance < 1:
        # A difference beyond the tolerance is not printed as 0.
        decimals = max(written, math.ceil(-math.log10(expected.tolerance)))
    if expected.tolerance == 0 and difference:
        decimals = max(written, min(17, math.ceil(-math.log10(abs(difference)))))
    if isinstance(place.cell.quantity, Count) or place.column.kind == "count":
        written = decimals = 0
    ahead = Difference(value=difference, jobs=place.cell.jobs if difference is not None else ())
    ours = Cell(quantity=place.cell.quantity.bare(), decimals=max(place.cell.decimals, decimals))
    return Row(
        key=row if alone else f"{row}.{column}",
        cells=(
            words(row if alone else f"{row}: {column}"),
            ours,
            shown(Level(value=printed.value, sd=printed.sd), written),
            *([words(_runs(item))] if expected.noise == "seeds" else []),
            Cell(quantity=ahead, decimals=decimals),
            words(item.verdict, emphasised=item.verdict in MISMATCHES),
        ),
    )


def _runs(item: JudgedNumber) -> str:
    """How many runs are behind our number and behind theirs."""
    ours, theirs = item.place.cell.quantity.n, item.printed.runs
    return f"{'-' if ours is None else ours}, {'-' if theirs is None else theirs}"


def _notes(
    report: Report, expected: ExpectedNumbers, *, records: Sequence[Record]
) -> Iterator[TableNote]:
    """Notes that concern every number: software, devices, records, data and settings."""
    if records:
        yield from _stacks(merged_provenance(report, records), expected)
        yield from _footnotes(report)


def _stacks(found: Provenance, expected: ExpectedNumbers) -> Iterator[TableNote]:
    """Note the software and the accelerator of both sides."""
    ours = series([f"torch {version}" for version in found.versions.get("torch", ())]) or "none"
    devices = series(list(found.devices)) or "no device"
    if expected.software or expected.accelerator:
        yield note(
            "comparison",
            f"Ours: {ours} on {devices}; theirs: {expected.software} on {expected.accelerator}. "
            "Latencies are compared as ratios alone, since milliseconds of two accelerators do not "
            "compare",
        )


def _footnotes(report: Report) -> list[TableNote]:
    """The notes of all tables that concern records, data and settings, each once."""
    every = dict.fromkeys(note for table in report.tables for note in table.notes)
    return [note for note in every if note.kind in _FOOTNOTES]


_FOOTNOTES: tuple[NoteKind, ...] = ("unreadable", "source", "conflict", "mixed", "data", "recipe")
"""Kinds of notes that bear on every number: records that cannot be read, records of another
version of a user's own class, jobs whose numbers differ between sources, runs that are compared on
request, vocabulary and files of the data, and what a recipe says of its settings."""

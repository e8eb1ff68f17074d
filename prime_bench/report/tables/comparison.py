"""Tables that compare a report with expected numbers and with the claims of the paper."""

from collections.abc import Iterator, Sequence

from prime_bench.report.provenance import merged_provenance
from prime_bench.report.quantities.values import Count, Difference, Level
from prime_bench.report.tables.claims import RULE, judge_claims
from prime_bench.report.tables.expected import (
    MISMATCHES,
    NOISE_DEVIATIONS,
    ExpectedNumbers,
    JudgedNumber,
    NumberVerdict,
    judge,
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
    """One line a claim of the abstract, with both software stacks and accelerators below."""
    claims = judge_claims(report.quantities())
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
                    words(*claim.basis, jobs=claim.jobs),
                ),
            )
            for claim in claims
        ),
    )
    verdicts = [claim.verdict for claim in claims]
    records = _records_of(report, [job for claim in claims for job in claim.jobs])
    return Table(
        name="claims",
        title="The abstract's claims",
        caption=(
            f"Claims of {expected.title} and what these records say: "
            f"{verdicts.count('reproduced')} reproduced, {verdicts.count('not reproduced')} not "
            f"reproduced, {verdicts.count('not enough runs')} without enough runs."
        ),
        blocks=(block,),
        notes=(
            *(note("comparison", text) for text in _other_data_sets(report, expected)),
            note("comparison", RULE),
            *_notes(report, expected, records=records),
        ),
        provenance=merged_provenance(report, records),
        label="tab:claims",
    )


def expected_table(report: Report, expected: ExpectedNumbers, *, name: str) -> tuple[Table, bool]:
    """Our value, theirs, difference and verdict of every number; whether all of them agree."""
    judged, unknown = judge(report, expected)
    verdicts = [item.verdict for item in judged]
    agree = not unknown and not any(verdict in MISMATCHES for verdict in verdicts)
    left_out = len(expected.printed()) - len(judged) - len(unknown)
    reach = f"within {NOISE_DEVIATIONS} standard deviations of our number over other seeds"
    records = _records_of(report, [job for item in judged for job in item.cell.jobs])
    table = Table(
        name=name,
        title=f"Against {expected.title}",
        caption=(
            f"Ours beside {expected.title}, and the difference, ours less theirs. Inside seed "
            f"noise: {reach} (2 SD of a five-seed mean, where it is one); inside: within "
            f"{expected.tolerance:g}; costs are only judged by whether ours is above."
            if judged
            else f"{next(_other_data_sets(report, expected), _NOTHING)}."
        ),
        blocks=tuple(_blocks(judged, expected)),
        notes=(
            *_counts(verdicts, unknown=unknown, left_out=left_out),
            *_notes(report, expected, records=records),
        ),
        provenance=merged_provenance(report, records),
        label=f"tab:{name}",
        side_by_side=8,
    )
    return table, agree and bool(judged)


def _counts(
    verdicts: Sequence[NumberVerdict], *, unknown: Sequence[str], left_out: int
) -> Iterator[TableNote]:
    """How many numbers have each verdict, and how many have none."""
    if verdicts:
        counts = [f"{verdicts.count(v)} {v}" for v in dict.fromkeys(verdicts)]
        yield note("comparison", f"{len(verdicts)} numbers: {series(counts)}")
    for address in unknown:
        yield note("comparison", f"No such cell: {address}")
    if verdicts and left_out:
        text = f"{left_out} more are of tables or blocks that this report does not show"
        yield note("comparison", text)


def _records_of(report: Report, jobs: Sequence[str]) -> list[Record]:
    """The report's records of these jobs."""
    wanted = set(jobs)
    return [record for record in report.records if record.job_id in wanted]


def _other_data_sets(report: Report, expected: ExpectedNumbers) -> Iterator[str]:
    """Text of a note, where the numbers' addresses name no data set of the records."""
    named = {part for address in expected.printed() for part in address.split(".")}
    if named.isdisjoint(record.dataset for record in report.records):
        yield f"None of these records is of the data sets of {expected.title}"


_NOTHING = "None of these numbers belongs to a table of this report"


def _blocks(judged: Sequence[JudgedNumber], expected: ExpectedNumbers) -> Iterator[Block]:
    """A block for each block of each table; for each column of it where the table says so."""
    groups: dict[tuple[str, str, str], list[JudgedNumber]] = {}
    for item in judged:
        by_column = item.table.compared_by == "column"
        key = (item.table.name, item.block.key, item.column.key if by_column else "")
        groups.setdefault(key, []).append(item)
    for (table, block, column), items in groups.items():
        first = items[0]
        place = f"{first.table.title}, {first.block.label}" if first.block.label else table
        head = f"{first.column.group} {first.column.label}".strip() if column else ""
        if column and first.column.kind == "change":
            head = f"{first.column.label} {first.column.group}".strip()
        yield Block(
            key=".".join(part for part in (table, block, column) if part),
            label=f"{place}: {head}" if column else place,
            columns=(
                Column(key="cell", label="Cell", kind="words"),
                Column(key="ours", label="Ours", kind="number"),
                Column(key="theirs", label="Theirs", kind="number"),
                Column(key="difference", label="Difference", kind="number"),
                Column(key="verdict", label="Verdict", kind="words"),
            ),
            rows=tuple(_row(item, expected, alone=bool(column)) for item in items),
        )


def _row(item: JudgedNumber, expected: ExpectedNumbers, *, alone: bool) -> Row:
    printed, difference = item.printed, item.difference
    place = item.row.key if alone else f"{item.row.key}: {item.column.key}"
    decimals = 0 if isinstance(item.cell.quantity, Count) else expected.decimals
    ahead = Difference(value=difference, jobs=item.cell.jobs if difference is not None else ())
    return Row(
        key=item.row.key if alone else f"{item.row.key}.{item.column.key}",
        cells=(
            words(place),
            Cell(quantity=item.cell.quantity.bare(), decimals=item.cell.decimals),
            shown(Level(value=printed.value, sd=printed.sd), decimals),
            Cell(quantity=ahead, decimals=decimals),
            words(item.verdict, emphasised=item.verdict in MISMATCHES),
        ),
    )


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


_FOOTNOTES: tuple[NoteKind, ...] = ("unreadable", "mixed", "data", "recipe")
"""Kinds of notes that bear on every number: records that cannot be read, runs that are compared on
request, vocabulary and files of the data, and what a recipe says of its settings."""

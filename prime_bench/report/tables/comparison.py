"""Tables that compare a report with expected numbers and with the claims of the paper."""

from collections.abc import Iterator, Sequence

from prime_bench.report.provenance import merged_provenance
from prime_bench.report.quantities.values import Count, Difference, Level
from prime_bench.report.tables.claims import RULE, judge_claims
from prime_bench.report.tables.expected import (
    MISMATCHES,
    NOISE_DEVIATIONS,
    ExpectedNumbers,
    Judged,
    Verdict,
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
            Column(key="evidence", label="Evidence", kind="words"),
        ),
        rows=tuple(
            Row(
                key=claim.key,
                cells=(
                    words(claim.text),
                    words(claim.answer, jobs=claim.jobs, emphasised=claim.answer == "reproduced"),
                    words(*claim.evidence, jobs=claim.jobs),
                ),
            )
            for claim in claims
        ),
    )
    answers = [claim.answer for claim in claims]
    behind = _behind(report, [job for claim in claims for job in claim.jobs])
    return Table(
        name="claims",
        title="The abstract's claims",
        caption=(
            f"Claims of {expected.title} and what these records say: "
            f"{answers.count('reproduced')} reproduced, {answers.count('not reproduced')} not "
            f"reproduced, {answers.count('not enough runs')} without enough runs."
        ),
        blocks=(block,),
        notes=(
            *(note("comparison", text) for text in _foreign(report, expected)),
            note("comparison", RULE),
            *_notes(report, expected, behind=behind),
        ),
        provenance=merged_provenance(report, behind),
        label="tab:claims",
    )


def expected_table(report: Report, expected: ExpectedNumbers, *, name: str) -> tuple[Table, bool]:
    """Our value, theirs, difference and verdict of every number; whether all of them agree."""
    judged, unknown = judge(report, expected)
    verdicts = [item.verdict for item in judged]
    agree = not unknown and not any(verdict in MISMATCHES for verdict in verdicts)
    left_out = len(expected.printed()) - len(judged) - len(unknown)
    reach = f"within {NOISE_DEVIATIONS} standard deviations of our number over other seeds"
    behind = _behind(report, [job for item in judged for job in item.cell.jobs])
    table = Table(
        name=name,
        title=f"Against {expected.title}",
        caption=(
            f"Ours beside {expected.title}, and the difference, ours less theirs. Inside seed "
            f"noise: {reach} (2 SD of a five-seed mean, where it is one); inside: within "
            f"{expected.tolerance:g}; costs are only judged by whether ours is above."
            if judged
            else f"{next(_foreign(report, expected), _NOTHING)}."
        ),
        blocks=tuple(_blocks(judged, expected)),
        notes=(
            *_counts(verdicts, unknown=unknown, left_out=left_out),
            *_notes(report, expected, behind=behind),
        ),
        provenance=merged_provenance(report, behind),
        label=f"tab:{name}",
        side_by_side=8,
    )
    return table, agree and bool(judged)


def _counts(
    verdicts: Sequence[Verdict], *, unknown: Sequence[str], left_out: int
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


def _behind(report: Report, jobs: Sequence[str]) -> list[Record]:
    """The records of these jobs: a comparison says nothing of the others."""
    wanted = set(jobs)
    return [record for record in report.records if record.job_id in wanted]


def _foreign(report: Report, expected: ExpectedNumbers) -> Iterator[str]:
    """That all records are of other data sets than the numbers, whose addresses name theirs."""
    named = {part for address in expected.printed() for part in address.split(".")}
    if named.isdisjoint(record.dataset for record in report.records):
        yield f"None of these records is of the data sets of {expected.title}"


_NOTHING = "None of these numbers belongs to a table of this report"


def _blocks(judged: Sequence[Judged], expected: ExpectedNumbers) -> Iterator[Block]:
    """A block a column of a table where its rows are many, else a block a table and block."""
    groups: dict[tuple[str, str, str], list[Judged]] = {}
    for item in judged:
        tall = item.table.name == "main"
        key = (item.table.name, item.block.key, item.column.key if tall else "")
        groups.setdefault(key, []).append(item)
    for (table, block, column), items in groups.items():
        first = items[0]
        place = f"{first.table.title}, {first.block.label}" if first.block.label else table
        head = f"{first.column.group} {first.column.label}".strip() if column else ""
        if column and first.column.label == "Δ":
            head = f"Δ {first.column.group}"
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


def _row(item: Judged, expected: ExpectedNumbers, *, alone: bool) -> Row:
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
    report: Report, expected: ExpectedNumbers, *, behind: Sequence[Record]
) -> Iterator[TableNote]:
    """What bears on every number; nothing where no record is behind one."""
    if behind:
        yield from _stacks(merged_provenance(report, behind), expected)
        yield from _footnotes(report)


def _stacks(found: Provenance, expected: ExpectedNumbers) -> Iterator[TableNote]:
    """Both software stacks and accelerators: what neither side can leave out."""
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
    """What must be known of records, data and settings, from the notes of all tables."""
    every = dict.fromkeys(note for table in report.tables for note in table.notes)
    return [note for note in every if note.kind in _FOOTNOTES]


_FOOTNOTES: tuple[NoteKind, ...] = ("unreadable", "mixed", "data", "recipe")
"""Kinds of notes that bear on every number: records that cannot be read, runs that are compared on
request, vocabulary and files of the data, and what a recipe says of its settings."""

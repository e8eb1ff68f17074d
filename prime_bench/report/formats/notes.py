"""Notes as text: those of one table, and those shared by several."""

from collections.abc import Iterable
from dataclasses import dataclass

from prime_bench.base.words import counted
from prime_bench.report.formats.cells import note_text
from prime_bench.report.tables.model import NoteKind, Report, Table, series

FINGERPRINT_DIGITS = 12
_NEVER_SHARED: tuple[NoteKind, ...] = ("measurement",)
"""Kinds of notes that stay below their table: the jobs that it counts are not those of others."""


@dataclass(frozen=True, kw_only=True)
class SharedNotes:
    """Notes that several tables have in common."""

    tables: str
    """Titles of these tables."""
    notes: tuple[str, ...]


def all_notes(table: Table) -> list[str]:
    """Return every note of a table that is printed alone; the last names its provenance."""
    return [*(note_text(note) for note in table.notes), provenance_line(table)]


def own_notes(table: Table, report: Report) -> list[str]:
    """Return the notes that no other table of the report has; the last names the provenance."""
    others = _can_be_shared(other for other in report.tables if other is not table)
    own = [
        text
        for note in table.notes
        if (text := note_text(note)) not in others or note.kind in _NEVER_SHARED
    ]
    return [*own, provenance_line(table)]


def shared_notes(report: Report) -> list[SharedNotes]:
    """Return the notes that several tables have, each once, grouped by the tables that have it."""
    tables_of: dict[str, list[Table]] = {}
    for table in report.tables:
        for text in _can_be_shared([table]):
            tables_of.setdefault(text, []).append(table)
    groups: dict[str, list[str]] = {}
    for text, tables in tables_of.items():
        if len(tables) > 1:
            everywhere = len(tables) == len(report.tables)
            titles = "All tables" if everywhere else ", ".join(table.title for table in tables)
            groups.setdefault(titles, []).append(text)
    return [SharedNotes(tables=titles, notes=tuple(notes)) for titles, notes in groups.items()]


def _can_be_shared(tables: Iterable[Table]) -> dict[str, None]:
    """Texts of the notes that are printed once where several tables have them, in order."""
    return dict.fromkeys(
        note_text(note)
        for table in tables
        for note in table.notes
        if note.kind not in _NEVER_SHARED
    )


def provenance_line(table: Table) -> str:
    """Return the last note below a table, which names its provenance, without a full stop."""
    found = table.provenance
    source = f"recipe {found.recipe}" if found.recipe else "every record"
    if found.started is None:
        return f"Made by prime-bench {found.package_version} from {source}: no record behind it"
    first, last = found.started
    data = [
        f"{name} {', '.join(digest[:FINGERPRINT_DIGITS] for digest in digests)}"
        for name, digests in found.fingerprints.items()
    ]
    parts = [
        f"{counted(len(table.jobs), 'record')}, {first if first == last else f'{first} to {last}'}",
        f"code {series(list(found.commits))}",
        f"data {'; '.join(data)}",
        f"torch {series(list(found.versions.get('torch', ('unknown',))))}",
        f"on {series(list(found.devices))}",
    ]
    return f"Made by prime-bench {found.package_version} from {source}: {', '.join(parts)}"

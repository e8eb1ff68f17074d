"""Which notes stand below a table, and which stand once for several tables."""

from collections.abc import Iterable
from dataclasses import dataclass

from prime_bench.report.formats.cells import note_text
from prime_bench.report.tables.model import NoteKind, Report, Table


@dataclass(frozen=True, kw_only=True)
class SharedNotes:
    """Notes that the same tables have in common."""

    tables: str
    """Titles of the tables."""
    notes: tuple[str, ...]


def own_notes(table: Table, report: Report) -> list[str]:
    """Notes of the table that no other table of the report has."""
    others = _may_be_shared(other for other in report.tables if other is not table)
    return [
        text for note in table.notes if (text := note_text(note)) not in others or note.kind in _OWN
    ]


def shared_notes(report: Report) -> list[SharedNotes]:
    """Notes that several tables of the report have, once each, by the tables that have them."""
    tables_of: dict[str, list[Table]] = {}
    for table in report.tables:
        for text in _may_be_shared([table]):
            tables_of.setdefault(text, []).append(table)
    groups: dict[str, list[str]] = {}
    for text, tables in tables_of.items():
        if len(tables) > 1:
            everywhere = len(tables) == len(report.tables)
            titles = "All tables" if everywhere else ", ".join(table.title for table in tables)
            groups.setdefault(titles, []).append(text)
    return [SharedNotes(tables=titles, notes=tuple(notes)) for titles, notes in groups.items()]


_OWN: tuple[NoteKind, ...] = ("measurement",)
"""Kinds of notes that stay below their table: how many jobs it has says nothing of others."""


def _may_be_shared(tables: Iterable[Table]) -> dict[str, None]:
    """Texts of the tables' notes in order, each once, without those that stay below their table."""
    return dict.fromkeys(
        note_text(note) for table in tables for note in table.notes if note.kind not in _OWN
    )

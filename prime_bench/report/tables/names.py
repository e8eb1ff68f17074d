"""Arms by the names that a definition uses."""

from collections.abc import Sequence

from prime_bench.report.quantities.grid import Grid
from prime_bench.report.quantities.layout import ArmColumn
from prime_bench.report.tables.model import TableNote, note


def arms_named(grid: Grid, names: Sequence[str]) -> list[ArmColumn]:
    """The arms of these names, in their order; one that the grid does not have is left out."""
    known = {arm.name: arm for arm in grid.arms}
    return [known[name] for name in names if name in known]


def absent_note(grid: Grid, names: Sequence[str]) -> list[TableNote]:
    """The note on arms that a table shows by definition and these jobs do not have."""
    known = {arm.name for arm in grid.arms}
    absent = [name for name in names if name not in known]
    return [note("absent", f"Not among these jobs: {', '.join(absent)}")] if absent else []

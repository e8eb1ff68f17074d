"""How far a long step is."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class StageProgress:
    """Told now and then, in order."""

    stage: str
    """`reading` or `making`, then `counting` and `writing`; before them `downloading`, and
    `checking` and `splitting` of a log that has to be split."""
    done: int
    """Of `total`: rows from `making` and `counting` on, else bytes of the files as stored."""
    total: int
    rows: int
    """Rows done in this stage."""


OnProgress = Callable[[StageProgress], None]


def silent(_: StageProgress) -> None:
    """Tell nobody."""

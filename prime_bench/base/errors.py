"""Mistakes the user can mend, each with the exit code that the command line returns for it.

Everything that is not one of these is a bug of ours: it keeps its traceback and exits with 70.
"""

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """A mistake the user can mend; shown without a traceback.

    `message` says what and where (file, line, key); `hint` says what to do.
    """

    exit_code = 2

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(f"{message}\n\nhint: {hint}" if hint else message)
        self.message = message
        self.hint = hint


class UsageError(UserError):
    """Wrong arguments or a faulty recipe (exit code 2)."""

    exit_code = 2


class DataError(UserError):
    """Bad or missing data (exit code 3)."""

    exit_code = 3


class EnvironmentFault(UserError):
    """Disk, permission, device or network (exit code 4)."""

    exit_code = 4


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`; did you mean "x"?` for the nearest known name, or an empty string where none is near."""
    by_lower = {candidate.lower(): candidate for candidate in known}
    near = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.6)
    return f"; did you mean `{by_lower[near[0]]}`?" if near else ""

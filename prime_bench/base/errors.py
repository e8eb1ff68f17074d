"""Errors that the user can correct, and the exit codes of the command line.

Any other exception is a bug in prime-bench: shown with its traceback, exit code 70.
"""

import difflib
from collections.abc import Iterable

EXIT_FAILED = 1
"""Some jobs failed, or something that was checked does not hold."""
EXIT_BUG = 70
"""Any exception but a UserError."""
EXIT_INTERRUPTED = 130
"""Ctrl-C or SIGTERM."""


class UserError(Exception):
    """An error that the user can correct; shown without a traceback.

    Attributes:
        message: What is wrong and where (file, line, key).
        hint: What to do; may be empty.
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
    """Faulty or missing data (exit code 3)."""

    exit_code = 3


class EnvironmentFault(UserError):
    """A fault of disk, permissions, device or network (exit code 4)."""

    exit_code = 4


_MOST_KNOWN = 200
"""Number of known names, and of letters of a name, above which no similar one is looked for."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return `; did you mean "x"?` with the most similar known name; empty if none is similar."""
    known = list(known)
    if len(known) > _MOST_KNOWN or len(name) > _MOST_KNOWN:
        return ""
    by_lower = {candidate.lower(): candidate for candidate in known}
    near = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.6)
    return f"; did you mean `{by_lower[near[0]]}`?" if near else ""

"""Exit codes of the command line; those of a user's mistake are in `base.errors`."""

FAILED = 1
"""Some jobs failed, or something that was checked does not hold."""
BUG = 70
INTERRUPTED = 130

"""Free disk, looked at before a long run and not at its end."""

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from prime_bench.base.errors import EnvironmentFault
from prime_bench.base.files import nearest_folder, writing


def table_bytes(*, rows: int, n_fields: int) -> dict[str, int]:
    """Bytes of a prepared table and of the rows that wait on disk while it is made.

    A field has 4 bytes in both, a row 1 more in the table and 9 more while it waits; vocabularies
    are small beside it.
    """
    return {"table": rows * (4 * n_fields + 1), "working files": rows * (4 * n_fields + 9)}


def check_space(folder: Path, parts: Mapping[str, int], *, say: Callable[[str], None]) -> None:
    """Say how many bytes are needed below `folder`, which need not exist, and how many are free.

    Raises EnvironmentFault where these are too few.
    """
    there = nearest_folder(folder)
    with writing(there):
        free = shutil.disk_usage(there).free
    needed = sum(parts.values())
    listed = ", ".join(f"{what} {gigabytes(n_bytes)}" for what, n_bytes in parts.items())
    need = f"about {gigabytes(needed)} of disk ({listed}), {gigabytes(free)} are free"
    if needed > free:
        raise EnvironmentFault(
            f"{folder}: needs {need}", hint="free some space, or name another folder (--data-dir)"
        )
    say(f"{folder}: needs {need}")


def gigabytes(n_bytes: int) -> str:
    """For people: 1.23 GB."""
    return f"{n_bytes / 1e9:.2f} GB"

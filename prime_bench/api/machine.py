"""Checks of this machine and of plug-ins, and the deletion of leftovers."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from prime_bench.api.recipes import StrPath
from prime_bench.base.errors import UsageError
from prime_bench.contract.result import RuleResult
from prime_bench.store.runs import Runs

if TYPE_CHECKING:
    from prime_bench.schedule.doctor import HealthCheck
    from prime_bench.store.leftovers import Leftover


def doctor(
    *,
    data_dir: StrPath = "data",
    runs_dir: StrPath = "runs",
    on_check: Callable[[HealthCheck], None] | None = None,
) -> list[HealthCheck]:
    """Check this machine: versions, memory, disk, devices, prepared tables.

    A child process trains for a second on each device.

    Args:
        data_dir: Folder of the prepared tables.
        runs_dir: Folder of the records.
        on_check: Called with each result as it comes.

    Returns:
        A result a check; its `state` is `fault` where something does not work.
    """
    from prime_bench.schedule.doctor import examine

    results = []
    for result in examine(data_dir=Path(data_dir), runs_dir=Path(runs_dir)):
        results.append(result)
        if on_check is not None:
            on_check(result)
    return results


def check(name: str) -> list[RuleResult]:
    """Check that a plug-in or backbone keeps the rules on which every comparison relies.

    They are in docs/your-own-plugin.md. The checks run in a child process.

    Args:
        name: A bundled plug-in or backbone, an entry point, or `module:Class`.

    Returns:
        A result a rule; its `fault` is None where the rule is kept.

    Raises:
        UsageError: There is no such plug-in or backbone, or its code ended the process.
    """
    # In a process of its own: somebody's code may do anything.
    done = subprocess.run(
        [sys.executable, "-m", "prime_bench.contract", name],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise UsageError(f"{name}: its process ended with the exit code {done.returncode}")
    answer = json.loads(done.stdout.splitlines()[-1])
    if "error" in answer:
        raise UsageError(answer["error"]["message"], hint=answer["error"]["hint"])
    return [RuleResult(**result) for result in answer["results"]]


def leftovers(*, unfinished: bool = False, runs_dir: StrPath = "runs") -> list[Leftover]:
    """List what no record needs: replaced records, saved states of finished jobs, part files.

    Files of a running job are not among them.

    Args:
        unfinished: Whether to add the folders of jobs that failed or were interrupted.
        runs_dir: Folder of the records.
    """
    from prime_bench.store import leftovers as files

    return list(files.leftovers(Runs(Path(runs_dir)), unfinished=unfinished))


def clean(found: Sequence[Leftover], *, runs_dir: StrPath = "runs") -> list[Leftover]:
    """Delete leftovers.

    Args:
        found: Some or all of what `leftovers` has listed.
        runs_dir: Folder of the records.

    Returns:
        Those that were deleted. One whose job runs again meanwhile is kept.

    Raises:
        EnvironmentFault: A file cannot be deleted.
    """
    from prime_bench.store.leftovers import remove

    runs = Runs(Path(runs_dir))
    return [leftover for leftover in found if remove(leftover, runs)]

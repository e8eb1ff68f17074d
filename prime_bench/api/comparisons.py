"""Comparisons of two arms, recipes, or folders or bundles of records."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from prime_bench.api.execution import plan_for
from prime_bench.api.recipes import Log, StrPath, loaded_recipe
from prime_bench.base.errors import DataError, UsageError
from prime_bench.recipe.file import find_recipe
from prime_bench.recipe.recipe import Recipe
from prime_bench.schedule.plan import RecipeDiff, recipe_diff
from prime_bench.store.record import RunRecord

if TYPE_CHECKING:
    from prime_bench.report.quantities.matches import MatchRow


@dataclass(frozen=True, kw_only=True)
class TwoSides:
    """Two sides that `compare` has compared."""

    rows: list[MatchRow]
    """A row for each data set and backbone: scores of both sides, their paired differences, and
    the settings that differ."""
    alone: list[str]
    """What has no partner on the other side, a line each."""


def compare(
    left: str,
    right: str,
    *,
    data_dir: StrPath = "data",
    runs_dir: StrPath = "runs",
    log: Log | None = None,
) -> TwoSides:
    """Compare two arms, two recipes, or two folders or bundles of records, seed by seed.

    Args:
        left: An arm or plug-in that has records in `runs_dir`, a recipe, or a folder or bundle of
            records.
        right: One of the same kind. Differences are `right` over `left`; positive favours `right`.
        data_dir: Folder of the prepared tables, for recipes.
        runs_dir: Folder of the records, for arms and recipes.
        log: Called with each record that cannot be read.

    Raises:
        UsageError: A side is nothing of these, or the two are not of one kind.
        DataError: No run of one side has a partner on the other, or a bundle cannot be read.
    """
    from prime_bench.data.stages import no_log
    from prime_bench.report.quantities.matches import match_arms, match_sets, rows_of

    log = log or no_log
    kinds = [_kind_of(side) for side in (left, right)]
    if kinds[0] != kinds[1]:
        raise UsageError(
            f"{left} is a {kinds[0]} and {right} a {kinds[1]}",
            hint="give two arms, two recipes, or two folders or bundles",
        )
    alone: list[str] = []
    if kinds[0] == "folder or bundle":
        sides = [_readable(Path(side), log=log) for side in (left, right)]
        matches, alone = match_sets(*sides)
    elif kinds[0] == "recipe":
        sides = [
            _planned_runs(side, data_dir=data_dir, runs_dir=runs_dir, log=log)
            for side in (left, right)
        ]
        matches, alone = match_sets(*sides)
    else:
        found = _readable(Path(runs_dir), log=log)
        known = sorted({name for run in found for name in (run.arm, run.job.plugin)})
        for side in (left, right):
            if side not in known:
                raise UsageError(
                    f"{side}: no folder or bundle, no recipe, and no arm of a record in {runs_dir}",
                    hint=f"arms: {', '.join(known) or 'none'}",
                )
        matches = match_arms(found, left, right)
    if not matches:
        raise DataError(
            f"no run of {left} has one of {right} to compare with",
            hint="`prime-bench status` lists what there is",
        )
    return TwoSides(rows=rows_of(matches), alone=alone)


def _kind_of(side: str) -> Literal["folder or bundle", "recipe", "arm"]:
    if Path(side).is_dir() or Path(side).suffix == ".zip":
        return "folder or bundle"
    try:
        find_recipe(side)
    except UsageError:
        if Path(side).suffix == ".toml":
            raise
        return "arm"
    return "recipe"


def _readable(place: Path, *, log: Log) -> list[RunRecord]:
    """The training runs in a folder or bundle; a record that cannot be read is named and left out.

    Raises DataError for a file that is no bundle.
    """
    from prime_bench.report.sources import read_sources

    source = read_sources([place])
    for fault in source.unreadable:
        log(f"left out: {fault}")
    return list(source.records)


def _planned_runs(
    recipe: str, *, data_dir: StrPath, runs_dir: StrPath, log: Log
) -> list[RunRecord]:
    """The training runs of a recipe's jobs."""
    made = plan_for(recipe, only=(), changes=(), data_dir=data_dir, runs_dir=runs_dir)
    for why in made.broken:
        log(f"left out: {why}")
    return [planned.record for planned in made.jobs if isinstance(planned.record, RunRecord)]


def diff(left: StrPath | Recipe, right: StrPath | Recipe) -> RecipeDiff:
    """Find the settings in which two recipes differ, and how many jobs they share.

    Args:
        left: A recipe.
        right: Another one.

    Raises:
        UsageError: A recipe is faulty.
    """
    return recipe_diff(loaded_recipe(left, ()), loaded_recipe(right, ()))

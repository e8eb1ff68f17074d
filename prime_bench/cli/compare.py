"""`prime-bench compare`: two arms, two recipes or two folders of runs against each other."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from prime_bench.cli import complete, options

if TYPE_CHECKING:
    from prime_bench.report.quantities.matches import Match, MatchRow
    from prime_bench.report.quantities.stats import Moments
    from prime_bench.store.record import RunRecord

COMPARE_SCHEMA = 1
_DECIMALS = 4


@click.command()
@click.argument("left", metavar="A", shell_complete=complete.sides)
@click.argument("right", metavar="B", shell_complete=complete.sides)
@click.option("--changed", is_flag=True, help="Leave out what is the same on both sides.")
@options.data_dir
@options.runs_dir
@options.as_json
def compare(
    left: str, right: str, changed: bool, data_dir: Path, runs_dir: Path, as_json: bool
) -> None:
    """Compare two arms, recipes or folders of runs by seed.

    Prints the test metrics of A and B, the paired differences (B over A; positive favours B, for
    LogLoss too) and where settings and environment differ. Two arms are compared wherever both have
    records in the runs folder under the same settings otherwise.
    """
    from prime_bench.base.errors import DataError
    from prime_bench.cli.output import print_json
    from prime_bench.report.quantities.matches import rows_of

    matches, alone = _matches(left, right, data_dir=data_dir, runs_dir=runs_dir)
    if not matches:
        raise DataError(
            f"no run of {left} has one of {right} beside it",
            hint="`prime-bench status` lists what there is",
        )
    rows = [row for row in rows_of(matches) if row.changed or not changed]
    if as_json:
        lines = [_plain(row) for row in rows]
        print_json(COMPARE_SCHEMA, {"sides": [left, right], "rows": lines, "alone": alone})
    else:
        click.echo(_text(rows, left, right))
        for line in alone:
            click.echo(line)


def _matches(
    left: str, right: str, *, data_dir: Path, runs_dir: Path
) -> "tuple[list[Match], list[str]]":
    """What belongs together, and what has no partner. Raises UsageError and DataError."""
    from prime_bench.base.errors import UsageError
    from prime_bench.report.quantities.matches import match_arms, match_sets

    kinds = [_kind(side) for side in (left, right)]
    if kinds[0] != kinds[1]:
        raise UsageError(f"{left} is a {kinds[0]} and {right} a {kinds[1]}: name two of one kind")
    if kinds[0] == "folder":
        return match_sets(_records(Path(left)), _records(Path(right)))
    if kinds[0] == "recipe":
        sides = [_of_recipe(side, data_dir=data_dir, runs_dir=runs_dir) for side in (left, right)]
        return match_sets(*sides)
    records = _records(runs_dir)
    known = sorted({name for record in records for name in (record.arm, record.job.plugin)})
    for side in (left, right):
        if side not in known:
            raise UsageError(
                f"{side}: no folder, no recipe, and no arm of a record in {runs_dir}",
                hint=f"arms: {', '.join(known) or 'none'}",
            )
    return match_arms(records, left, right), []


def _records(folder: Path) -> "list[RunRecord]":
    """The training runs in a folder; a record that cannot be read is named and left out."""
    from prime_bench.store.record import RunRecord
    from prime_bench.store.runs import Runs

    records, faults = Runs(folder).readable()
    for fault in faults:
        click.echo(f"left out: {fault}", err=True)
    return [record for record in records if isinstance(record, RunRecord)]


def _kind(side: str) -> str:
    from prime_bench.base.errors import UsageError
    from prime_bench.recipe.file import find_recipe

    if Path(side).is_dir():
        return "folder"
    try:
        find_recipe(side)
    except UsageError:
        if Path(side).suffix == ".toml":
            raise
        return "arm"
    return "recipe"


def _of_recipe(recipe: str, *, data_dir: Path, runs_dir: Path) -> "list[RunRecord]":
    from prime_bench import api
    from prime_bench.store.record import RunRecord

    made = api.plan(recipe, device="cpu", data_dir=data_dir, runs_dir=runs_dir)
    for why in made.broken:
        click.echo(f"left out: {why}", err=True)
    return [planned.record for planned in made.jobs if isinstance(planned.record, RunRecord)]


def _text(rows: "list[MatchRow]", left: str, right: str) -> str:
    from prime_bench.cli.output import table_text

    if not rows:
        return "nothing differs"
    header = ["", "seeds", f"AUC {left}", f"AUC {right}", "Δ AUC", "won", "Δ LogLoss"]
    cells = [
        [
            row.name,
            str(len(row.seeds)),
            _spread(row.left),
            _spread(row.right),
            _change(row.auc),
            f"{row.auc_tally.wins}/{len(row.seeds)}",
            _change(row.logloss),
        ]
        for row in rows
    ]
    parts = [table_text(cells, header=header)]
    parts += ["\n  ".join(lines) for lines in _settings(rows)]
    parts += [
        f"{row.name}, seed {seed}: no pair in the strict sense: {why}"
        for row in rows
        for seed, why in row.unpaired.items()
    ]
    return "\n\n".join(parts)


def _settings(rows: "list[MatchRow]") -> Iterator[list[str]]:
    """What differs, once for all rows in which the same does."""
    from prime_bench.recipe.differences import value_text

    blocks: dict[str, list[str]] = {}
    for row in rows:
        lines = [
            f"{key}: {value_text(a)} -> {value_text(b)}" for key, (a, b) in row.settings.items()
        ]
        blocks.setdefault("\n".join(lines), []).append(row.name)
    for text, names in blocks.items():
        if text:
            yield [f"{', '.join(names)}: what differs", *text.split("\n")]


def _spread(moments: "Moments | None") -> str:
    from prime_bench.report.formats.cells import moments_text

    return moments_text(moments, decimals=_DECIMALS)


def _change(moments: "Moments | None") -> str:
    from prime_bench.report.formats.numbers import signed

    return "--" if moments is None else signed(moments.mean, _DECIMALS)


def _plain(row: "MatchRow") -> dict[str, Any]:
    return {
        "name": row.name,
        "seeds": row.seeds,
        "auc": [None if side is None else vars(side) for side in (row.left, row.right)],
        "auc_difference": None if row.auc is None else vars(row.auc),
        "auc_wins": row.auc_tally.wins,
        "auc_losses": row.auc_tally.losses,
        "logloss_difference": None if row.logloss is None else vars(row.logloss),
        "settings": {key: list(values) for key, values in row.settings.items()},
        "unpaired": {str(seed): why for seed, why in row.unpaired.items()},
    }

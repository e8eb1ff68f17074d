"""`prime-bench compare`: two arms, recipes, folders of runs or bundles against each other."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from prime_bench.base.characters import visible
from prime_bench.cli import complete, options

if TYPE_CHECKING:
    from prime_bench.report.quantities.formulas import Moments
    from prime_bench.report.quantities.matches import MatchRow

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
    """Compare two arms, recipes, or folders or bundles of runs by seed.

    Prints the test metrics of A and B, the paired differences (B over A; positive favours B, for
    LogLoss too) and where settings and environment differ. Two arms are compared wherever both have
    records in the runs folder under the same settings otherwise.
    """
    from prime_bench import api
    from prime_bench.cli.output import print_json, print_line, print_text

    found = api.compare(
        left,
        right,
        data_dir=data_dir,
        runs_dir=runs_dir,
        log=lambda message: print_line(message, err=True),
    )
    rows = [row for row in found.rows if row.changed or not changed]
    if as_json:
        lines = [_plain(row) for row in rows]
        print_json(COMPARE_SCHEMA, {"sides": [left, right], "rows": lines, "alone": found.alone})
    else:
        print_text(_text(rows, left, right))
        for line in found.alone:
            print_line(line)


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
        visible(f"{row.name}, seed {seed}: not a pair: {why}")
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
            visible(f"{key}: {value_text(a)} -> {value_text(b)}")
            for key, (a, b) in row.settings.items()
        ]
        blocks.setdefault("\n".join(lines), []).append(visible(row.name))
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

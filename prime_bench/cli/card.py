"""`prime-bench card`: draft a card for a log of one's own."""

import shlex
from pathlib import Path

import click

from prime_bench.base.errors import EXIT_FAILED, UsageError
from prime_bench.base.words import counted
from prime_bench.cli import options

CARD_SCHEMA = 1


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="The card, a .toml; by default it lies beside the log and has its name.",
)
@click.option("--force", is_flag=True, help="Replace a card that is there.")
@options.as_json
def card(files: tuple[Path, ...], output: Path | None, force: bool, as_json: bool) -> int:
    """Draft a card for your own log.

    FILES is a log (csv or other text, compressed or not, Parquet, Arrow), or a folder with train,
    valid and test files, or these three. Every role and rule on the draft is a guess from the
    values, with its reason beside it: read and edit it, then `prepare CARD --from FILE`. All rows
    are read and checked once. Exit code 1 if no label was found, which the card then has to name.
    """
    from prime_bench import api
    from prime_bench.cli.output import print_json, print_line, print_text, table_text
    from prime_bench.cli.prepare_output import progress_bars

    source = _one(files)
    with progress_bars() as bars:
        draft, path = api.draft_card(
            source,
            output,
            replace=force,
            on_progress=lambda progress: bars(source.name, progress),
        )
    command = shlex.join(["prime-bench", "prepare", str(path), "--from", str(source)])
    if as_json:
        columns = [
            {"name": one.name, "role": one.role, "numeric": one.numeric, "why": one.why}
            for one in draft.columns
        ]
        print_json(
            CARD_SCHEMA,
            {
                "path": str(path),
                "name": draft.name,
                "rows": draft.rows,
                "columns": columns,
                "could_be_label": [] if draft.has_label else draft.could_be_label,
            },
        )
    else:
        rows = [[one.name, one.role, one.numeric or "", one.why] for one in draft.columns]
        print_text(table_text(rows, header=["column", "role", "rule", "why"], n_words=4))
        print_line(
            f"{path}: {counted(sum(draft.rows.values()), 'row')}; read and edit it, then: {command}"
        )
    if draft.has_label:
        return 0
    print_text("\n".join(["no label was found; it could be:", *draft.could_be_label]), err=True)
    return EXIT_FAILED


def _one(files: tuple[Path, ...]) -> Path:
    """The file or folder; that of three files for ready-made splits."""
    if len(files) == 1:
        return files[0]
    folders = {path.parent for path in files}
    splits = sorted(path.name.partition(".")[0].lower() for path in files)
    if len(folders) > 1 or splits != ["test", "train", "valid"]:
        raise UsageError(
            "several files are train, valid and test of one folder",
            hint="give one log, or a folder with train.csv, valid.csv and test.csv",
        )
    return folders.pop()

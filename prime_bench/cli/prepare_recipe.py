"""`prime-bench prepare --recipe`: every table that a recipe needs."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from prime_bench.base.errors import DataError, UsageError, UserError, did_you_mean
from prime_bench.cli.output import print_json
from prime_bench.cli.prepared import PREPARE_SCHEMA, plain, summary
from prime_bench.cli.preparing import bars
from prime_bench.data.manifest import Manifest, TableSpec
from prime_bench.data.prepare import prepare
from prime_bench.recipe.file import load_recipe
from prime_bench.schedule.plan import variants_of


def prepare_recipe(
    argument: str,
    *,
    sources: Sequence[str],
    allow_unverified: bool,
    keep_download: bool,
    data_dir: Path,
    as_json: bool,
) -> int:
    """Prepare what is missing and print all; an error of one data set does not stop the others.

    Returns the exit code of the first error, or 0. Raises UsageError for wrong arguments.
    """
    recipe = load_recipe(argument)
    variants = variants_of(recipe)
    paths = _paths(sources, variants)
    tables, failed = [], []
    for name, variant in variants.items():
        before = _there(variant, data_dir)
        try:
            with bars(name) as on_progress:
                manifest = prepare(
                    variant,
                    data_dir=data_dir,
                    source=paths.get(name),
                    allow_unverified=allow_unverified and bool(variant.card.files),
                    keep_download=keep_download,
                    on_progress=on_progress,
                    log=lambda message: click.echo(message, err=True),
                )
        except UserError as error:
            failed.append((name, error))
            click.echo(f"error: {error}", err=True)
            continue
        state = "was there" if manifest == before else "made"
        tables.append({"state": state, **plain(manifest, variant.folder(data_dir))})
        if not as_json:
            click.echo(f"{summary(manifest, variant.folder(data_dir))}\n  {state}\n")
    if as_json:
        content = {
            "recipe": recipe.name,
            "tables": tables,
            "failed": {name: error.message for name, error in failed},
        }
        print_json(PREPARE_SCHEMA, content)
    else:
        click.echo(_counts(recipe.name, tables=[str(t["state"]) for t in tables], failed=failed))
    return failed[0][1].exit_code if failed else 0


def _paths(sources: Sequence[str], variants: Mapping[str, TableSpec]) -> dict[str, Path]:
    """Where the raw files of each data set are, as far as `--from NAME=PATH` says."""
    paths: dict[str, Path] = {}
    for source in sources:
        name, equals, path = source.partition("=")
        if not equals or not path:
            raise UsageError(f"--from {source}: with --recipe expected NAME=PATH")
        if name not in variants:
            near = did_you_mean(name, variants)
            raise UsageError(
                f"--from {source}: the recipe has no dataset `{name}`{near}",
                hint=f"it has: {', '.join(variants)}",
            )
        if variants[name].card.kind == "generated":
            raise UsageError(f"--from {source}: {name} is generated and reads no files")
        if name in paths:
            raise UsageError(f"--from {source}: {name} is given twice")
        paths[name] = Path(path)
    return paths


def _there(variant: TableSpec, data_dir: Path) -> Manifest | None:
    try:
        return variant.manifest(data_dir)
    except DataError:
        return None


def _counts(recipe: str, *, tables: Sequence[str], failed: Sequence[tuple[str, UserError]]) -> str:
    parts = [f"{tables.count('made')} made", f"{tables.count('was there')} already there"]
    if failed:
        parts.append(f"{len(failed)} failed ({', '.join(name for name, _ in failed)})")
    return f"{recipe}: {', '.join(parts)}"

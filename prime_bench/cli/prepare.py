"""`prime-bench prepare`: raw click logs, or a seed, to prepared tables."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from prime_bench.base.errors import UsageError, UserError
from prime_bench.base.words import counted
from prime_bench.cli import complete, options
from prime_bench.cli.output import print_json, print_line, print_text
from prime_bench.cli.prepare_output import (
    PREPARE_SCHEMA,
    best_line,
    best_plain,
    plain,
    progress_bars,
    summary,
)

if TYPE_CHECKING:
    from prime_bench.api import Preparation
    from prime_bench.data.manifest import TableSpec

_SETTINGS = "prime_bench.cli.prepare.settings"
# What shapes the rows of the synthetic log, and so its raw files; the rest shapes the table.
_RAW_SETTINGS = frozenset({"shape", "rows", "strength", "seed"})


def _keep(ctx: click.Context, option: click.Parameter, value: object) -> None:
    if value is not None:
        ctx.meta.setdefault(_SETTINGS, {})[option.name] = value


def _setting(flag: str, *, metavar: str, help: str, type: Any = None) -> Callable[[Any], Any]:
    """A flag that overrides the setting of its name; which data set has which is up to its card."""
    return click.option(
        flag, type=type, metavar=metavar, help=help, callback=_keep, expose_value=False
    )


@click.command()
@click.argument("name", required=False, shell_complete=complete.datasets)
@click.option(
    "--recipe",
    metavar="RECIPE",
    shell_complete=complete.recipes,
    help="Prepare every data set of RECIPE, under its settings, in place of NAME.",
)
@click.option(
    "--from",
    "sources",
    multiple=True,
    metavar="PATH",
    help="Raw data: a file, folder or 'pattern*' for a log, also several times; a folder or .zip"
    " with three for published splits, or what they were made from (AFN's .libsvm files, Kaggle's"
    " train.txt or dac.tar.gz). With --recipe NAME=PATH, and once for each data set. Without it"
    " published splits are downloaded.",
)
@_setting("--vocabulary", metavar="all|train", help="Rows whose values get an id.")
@_setting("--numeric", metavar="RULE", help="raw, log_bucket, log1p, minmax, standard, quantile.")
@_setting("--bins", metavar="N", type=int, help="quantile: bins of a numeric field.")
@_setting("--min-count", metavar="N", type=int, help="Rows that a value needs to get an id.")
@_setting("--zero-is-missing", metavar="yes|no", type=bool, help="log_bucket: zero has no id.")
@_setting("--gauc-by", metavar="COLUMN", help="Groups of the group AUC, such as the user.")
@_setting(
    "--split",
    metavar="hash|time|fraction|column|group",
    help="A log: how rows are split (docs/cards.md).",
)
@_setting("--split-fractions", metavar="A,B,C", help="A log: shares of the splits.")
@_setting("--split-seed", metavar="S", type=int, help="A log: seed of --split hash and group.")
@_setting("--shape", metavar="avazu|criteo", help="synthetic: the log that it imitates.")
@_setting("--rows", metavar="N", type=int, help="synthetic: rows of all splits.")
@_setting("--strength", metavar="X", type=float, help="synthetic: how much subgroups differ.")
@_setting("--seed", metavar="S", type=int, help="synthetic: seed of everything.")
@click.option(
    "--raw",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="synthetic: write raw csv files into DIR, and no table.",
)
@click.option(
    "--raw-format", metavar="NAME", help="As which data set's files: avazu-raw, avazu or criteo."
)
@click.option(
    "--allow-unverified",
    is_flag=True,
    help="Accept files that are not the published ones; records and reports say so.",
)
@click.option(
    "--keep-download", is_flag=True, help="Keep what was downloaded when the table is verified."
)
@options.data_dir
@options.as_json
@click.pass_context
def prepare(
    ctx: click.Context,
    name: str | None,
    recipe: str | None,
    sources: tuple[str, ...],
    raw: Path | None,
    raw_format: str | None,
    allow_unverified: bool,
    keep_download: bool,
    data_dir: Path,
    as_json: bool,
) -> int:
    """Make the prepared table of a data set.

    NAME is one that `ls datasets` lists, or the file of a card of your own. A table that is there
    already is not made again.
    """
    settings = ctx.meta.get(_SETTINGS, {})
    if recipe is not None:
        _check_recipe_flags(name, settings, raw=raw, raw_format=raw_format)
        return _prepare_recipe(
            recipe,
            sources=sources,
            allow_unverified=allow_unverified,
            keep_download=keep_download,
            data_dir=data_dir,
            as_json=as_json,
        )
    if name is None:
        raise UsageError("Missing argument 'NAME', or --recipe RECIPE")
    spec = _table_spec(name, settings)
    source = sources or None
    _check_raw(spec, raw=raw, raw_format=raw_format)
    if raw is not None:
        _check_raw_settings(settings, source=source, unverified=allow_unverified)
        _write_raw(settings, raw, raw_format, as_json=as_json)
        return 0

    from prime_bench import api

    with progress_bars() as bars:
        made = api.prepare(
            spec,
            source=source,
            allow_unverified=allow_unverified,
            keep_download=keep_download,
            data_dir=data_dir,
            on_progress=lambda progress: bars(name, progress),
            log=_log,
        )
    if as_json:
        print_json(PREPARE_SCHEMA, plain(made))
    else:
        print_text(summary(made))
    return 0


def _prepare_recipe(
    argument: str,
    *,
    sources: tuple[str, ...],
    allow_unverified: bool,
    keep_download: bool,
    data_dir: Path,
    as_json: bool,
) -> int:
    """Prepare every data set of a recipe; returns the exit code of the first error, or 0."""
    from prime_bench import api

    failed: dict[str, UserError] = {}

    def show(made: "Preparation") -> None:
        if not as_json:
            print_text(f"{summary(made)}\n  {_state(made)}\n")

    def fail(name: str, error: UserError) -> None:
        failed[name] = error
        _log(f"error: {error}")

    recipe = api.load_recipe(argument)
    with progress_bars() as bars:
        tables = api.prepare_recipe(
            recipe,
            sources=paths_by_name(sources),
            allow_unverified=allow_unverified,
            keep_download=keep_download,
            data_dir=data_dir,
            on_progress=bars,
            on_table=show,
            on_error=fail,
            log=_log,
        )
    if as_json:
        content = {
            "recipe": recipe.name,
            "tables": [{"state": _state(made), **plain(made)} for made in tables],
            "failed": {name: error.message for name, error in failed.items()},
        }
        print_json(PREPARE_SCHEMA, content)
    else:
        n_made = sum(made.made for made in tables)
        counts = [f"{n_made} made", f"{len(tables) - n_made} already there"]
        counts += [f"{len(failed)} failed ({', '.join(failed)})"] if failed else []
        print_line(f"{recipe.name}: {', '.join(counts)}")
    return next((error.exit_code for error in failed.values()), 0)


def _state(made: "Preparation") -> str:
    return "made" if made.made else "was there"


def _log(message: str) -> None:
    print_text(message, err=True)


def paths_by_name(sources: tuple[str, ...]) -> dict[str, str]:
    """The paths of `--from NAME=PATH` by data set."""
    paths: dict[str, str] = {}
    for source in sources:
        name, equals, path = source.partition("=")
        if not equals or not path:
            raise UsageError(f"--from {source}: expected NAME=PATH")
        if name in paths:
            raise UsageError(f"--from {source}: {name} is given twice")
        paths[name] = path
    return paths


def _check_recipe_flags(
    name: str | None, settings: Mapping[str, Any], *, raw: Path | None, raw_format: str | None
) -> None:
    if name is not None:
        raise UsageError(f"--recipe names the data sets, so `{name}` is one too many")
    flags = [_flag(key) for key in settings]
    flags += [flag for flag, value in (("--raw", raw), ("--raw-format", raw_format)) if value]
    if flags:
        raise UsageError(f"{', '.join(flags)}: with --recipe the settings are the recipe's")


def _table_spec(name: str, given: Mapping[str, Any]) -> "TableSpec":
    from prime_bench.data.manifest import resolve

    known = resolve(name, {}).card.settings_class.model_fields
    foreign = [_flag(key) for key in given if key not in known]
    if foreign:
        raise UsageError(
            f"{', '.join(foreign)}: {name} has no such setting",
            hint=f"its flags: {', '.join(_flag(key) for key in known)}",
        )
    overrides = dict(given)
    if "split_fractions" in overrides:
        overrides["split_fractions"] = _numbers(overrides["split_fractions"])
    return resolve(name, overrides)


def _flag(key: str) -> str:
    return f"--{key.replace('_', '-')}"


def _numbers(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise UsageError(
            f"--split-fractions: expected three numbers such as 0.8,0.1,0.1, got `{text}`"
        ) from None


def _check_raw(spec: "TableSpec", *, raw: Path | None, raw_format: str | None) -> None:
    generated = spec.card.kind == "generated"
    if not generated and (raw is not None or raw_format is not None):
        raise UsageError(f"--raw: {spec.name} is not generated; only synthetic data is")
    if raw is None and raw_format is not None:
        raise UsageError("--raw-format: needs --raw DIR")


def _check_raw_settings(
    settings: Mapping[str, Any], *, source: tuple[str, ...] | None, unverified: bool
) -> None:
    given = [_flag(key) for key in settings if key not in _RAW_SETTINGS]
    given += ["--from"] if source is not None else []
    given += ["--allow-unverified"] if unverified else []
    if given:
        raise UsageError(f"{', '.join(given)}: without effect on raw files (--raw)")


def _write_raw(
    settings: Mapping[str, Any], folder: Path, raw_format: str | None, *, as_json: bool
) -> None:
    from prime_bench import api

    with progress_bars() as bars:
        made = api.write_raw(
            folder,
            settings=settings,
            raw_format=raw_format,
            on_progress=lambda progress: bars("synthetic", progress),
        )
    if as_json:
        content = {"dataset": "synthetic", "raw": str(folder), "raw_format": made.raw_format}
        print_json(PREPARE_SCHEMA, {**content, "rows": made.rows, "best": best_plain(made.best)})
        return
    print_line(f"{folder}: {counted(made.rows, 'row')} as files of {made.raw_format}")
    print_line(best_line(made.best))

"""`prime-bench prepare`: raw click logs, or a seed, to prepared tables."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from prime_bench.base.errors import UsageError
from prime_bench.cli import options
from prime_bench.cli.output import print_json
from prime_bench.cli.prepared import PREPARE_SCHEMA, best_line, best_plain, plain, summary

if TYPE_CHECKING:
    from prime_bench.data.manifest import TableSpec

_SETTINGS = "prime_bench.cli.prepare.settings"
# What shapes the rows of the synthetic log, and so its raw files; the rest shapes the table.
_RAW_SETTINGS = frozenset({"shape", "rows", "strength", "seed"})
_RAW_FORMATS = {"avazu": "avazu-raw", "criteo": "criteo"}


def _keep(ctx: click.Context, option: click.Parameter, value: object) -> None:
    if value is not None:
        ctx.meta.setdefault(_SETTINGS, {})[option.name] = value


def _setting(flag: str, *, metavar: str, help: str, type: Any = None) -> Callable[[Any], Any]:
    """A flag that overrides the setting of its name; which data set has which is up to its card."""
    return click.option(
        flag, type=type, metavar=metavar, help=help, callback=_keep, expose_value=False
    )


@click.command()
@click.argument("name", required=False)
@click.option(
    "--recipe",
    metavar="RECIPE",
    help="Prepare every data set of RECIPE, under its settings, in place of NAME.",
)
@click.option(
    "--from",
    "sources",
    multiple=True,
    metavar="PATH",
    help="Raw data: a csv for avazu-raw; a folder or .zip with three for avazu and criteo, or what"
    " they were made from (AFN's .libsvm files, Kaggle's train.txt or dac.tar.gz). With --recipe"
    " NAME=PATH, and once for each data set. Without it avazu and criteo are downloaded.",
)
@_setting("--vocabulary", metavar="all|train", help="Rows whose values get an id.")
@_setting("--numeric", metavar="RULE", help="raw, log_bucket, log1p or minmax.")
@_setting("--min-count", metavar="N", type=int, help="Rows that a value needs to get an id.")
@_setting("--zero-is-missing", metavar="yes|no", type=bool, help="log_bucket: zero has no id.")
@_setting("--split", metavar="hash|time", help="avazu-raw: how rows are split.")
@_setting("--split-fractions", metavar="A,B,C", help="avazu-raw: shares of the splits.")
@_setting("--split-seed", metavar="S", type=int, help="avazu-raw: seed of --split hash.")
@_setting("--shape", metavar="avazu|criteo", help="synthetic: fields like those of.")
@_setting("--rows", metavar="N", type=int, help="synthetic: rows of all splits.")
@_setting("--strength", metavar="X", type=float, help="synthetic: of the planted subgroups.")
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
    help="Take files that are not the published ones; records and reports say so.",
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
    """Make the prepared table of the data set NAME: avazu, criteo, avazu-raw or synthetic."""
    settings = ctx.meta.get(_SETTINGS, {})
    if recipe is not None:
        from prime_bench.cli.prepare_recipe import prepare_recipe

        _check_recipe_flags(name, settings, raw=raw, raw_format=raw_format)
        return prepare_recipe(
            recipe,
            sources=sources,
            allow_unverified=allow_unverified,
            keep_download=keep_download,
            data_dir=data_dir,
            as_json=as_json,
        )
    if name is None:
        raise UsageError("Missing argument 'NAME', or --recipe RECIPE")
    variant = _variant(name, settings)
    source = _one(sources)
    _check_flags(
        variant, source=source, raw=raw, raw_format=raw_format, unverified=allow_unverified
    )
    if keep_download and (source is not None or not variant.card.archives):
        raise UsageError("--keep-download: nothing is downloaded")
    if raw is not None:
        _check_raw_settings(settings)
        _write_raw(variant, raw, raw_format, as_json=as_json)
        return 0

    from prime_bench.cli.preparing import bars
    from prime_bench.data.prepare import prepare as make

    with bars(name) as on_progress:
        manifest = make(
            variant,
            data_dir=data_dir,
            source=source,
            allow_unverified=allow_unverified,
            keep_download=keep_download,
            on_progress=on_progress,
            log=lambda message: click.echo(message, err=True),
        )
    folder = variant.folder(data_dir)
    if as_json:
        print_json(PREPARE_SCHEMA, plain(manifest, folder))
    else:
        click.echo(summary(manifest, folder))
    return 0


def _one(sources: tuple[str, ...]) -> Path | None:
    if len(sources) > 1:
        raise UsageError("--from: is given twice; several are for --recipe, as NAME=PATH")
    return Path(sources[0]) if sources else None


def _check_recipe_flags(
    name: str | None, settings: Mapping[str, Any], *, raw: Path | None, raw_format: str | None
) -> None:
    if name is not None:
        raise UsageError(f"--recipe names the data sets, so `{name}` is one too many")
    flags = [_flag(key) for key in settings]
    flags += [flag for flag, value in (("--raw", raw), ("--raw-format", raw_format)) if value]
    if flags:
        raise UsageError(f"{', '.join(flags)}: with --recipe the settings are the recipe's")


def _variant(name: str, given: Mapping[str, Any]) -> "TableSpec":
    from prime_bench.data.card import load_card
    from prime_bench.data.manifest import resolve

    known = load_card(name).settings_class.model_fields
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


def _check_flags(
    variant: "TableSpec",
    *,
    source: Path | None,
    raw: Path | None,
    raw_format: str | None,
    unverified: bool,
) -> None:
    generated = variant.card.kind == "generated"
    if generated and source is not None:
        raise UsageError(f"--from: {variant.name} is generated and reads no files")
    if not generated and (raw is not None or raw_format is not None):
        raise UsageError(f"--raw: {variant.name} is not generated; only synthetic data is")
    if raw is None and raw_format is not None:
        raise UsageError("--raw-format: needs --raw DIR")
    if unverified and not variant.card.files:
        raise UsageError(f"--allow-unverified: no digests are published for {variant.name}")


def _check_raw_settings(settings: Mapping[str, Any]) -> None:
    without_effect = [_flag(key) for key in settings if key not in _RAW_SETTINGS]
    if without_effect:
        raise UsageError(f"{', '.join(without_effect)}: without effect on raw files (--raw)")


def _write_raw(
    variant: "TableSpec", folder: Path, raw_format: str | None, *, as_json: bool
) -> None:
    from prime_bench.cli.preparing import bars
    from prime_bench.data.synthetic.raw_files import write_raw
    from prime_bench.settings.data import SyntheticSettings

    settings = variant.settings
    assert isinstance(settings, SyntheticSettings)  # noqa: S101
    chosen = raw_format or _RAW_FORMATS[settings.shape]
    with bars(variant.name) as on_progress:
        best = write_raw(
            settings,
            folder,
            raw_format=chosen,
            on_progress=on_progress,
        )
    if as_json:
        content = {"dataset": variant.name, "raw": str(folder), "raw_format": chosen}
        print_json(PREPARE_SCHEMA, {**content, "rows": settings.rows, "best": best_plain(best)})
        return
    click.echo(f"{folder}: {settings.rows:,} rows as files of {chosen}")
    click.echo(best_line(best))

"""`prime-bench prepare`: a raw click log, or a seed, to a prepared table."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from prime_bench.base.errors import UsageError
from prime_bench.cli import options

if TYPE_CHECKING:
    from prime_bench.data.manifest import BestPossible, Manifest
    from prime_bench.data.variant import DataVariant

PREPARE_SCHEMA = 1
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
@click.argument("name")
@click.option(
    "--from",
    "source",
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="Raw data: a csv for avazu-raw; for avazu and criteo a folder or .zip with three.",
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
@options.data_dir
@options.as_json
@click.pass_context
def prepare(
    ctx: click.Context,
    name: str,
    source: Path | None,
    raw: Path | None,
    raw_format: str | None,
    allow_unverified: bool,
    data_dir: Path,
    as_json: bool,
) -> None:
    """Make the prepared table of the dataset NAME: avazu, criteo, avazu-raw or synthetic."""
    settings = ctx.meta.get(_SETTINGS, {})
    variant = _variant(name, settings)
    _check_flags(
        variant, source=source, raw=raw, raw_format=raw_format, unverified=allow_unverified
    )
    if raw is not None:
        _check_raw_settings(settings)
        _write_raw(variant, raw, raw_format, as_json=as_json)
        return

    from prime_bench.cli.preparing import bars
    from prime_bench.data.prepare import prepare as make

    with bars(name) as on_progress:
        manifest = make(
            variant,
            data_dir=data_dir,
            source=source,
            allow_unverified=allow_unverified,
            on_progress=on_progress,
            say=lambda message: click.echo(message, err=True),
        )
    folder = variant.folder(data_dir)
    click.echo(_json(manifest, folder) if as_json else _summary(manifest, folder))


def _variant(name: str, given: Mapping[str, Any]) -> "DataVariant":
    from prime_bench.data.card import load_card
    from prime_bench.data.variant import resolve

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
    variant: "DataVariant",
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
    variant: "DataVariant", folder: Path, raw_format: str | None, *, as_json: bool
) -> None:
    from prime_bench.cli.preparing import bars
    from prime_bench.data.synthetic_raw import write_raw
    from prime_bench.settings.dataset import SyntheticSettings

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
        content = {"schema": PREPARE_SCHEMA, "dataset": variant.name, "raw": str(folder)}
        content |= {"raw_format": chosen, "rows": settings.rows, "best": _best_plain(best)}
        click.echo(json.dumps(content, indent=1))
        return
    click.echo(f"{folder}: {settings.rows:,} rows as files of {chosen}")
    click.echo(_best_line(best["test"]))


def _json(manifest: "Manifest", folder: Path) -> str:
    content = {
        "schema": PREPARE_SCHEMA,
        "dataset": manifest.dataset,
        "fingerprint": manifest.fingerprint,
        "path": str(folder),
        "verified": manifest.verified,
        "rows": manifest.rows.plain(),
        "positives": manifest.positives.plain(),
        "fields": manifest.n_fields,
        "vocabulary_total": manifest.vocabulary_total,
        "settings": manifest.settings,
        "notes": manifest.notes,
        "best": None if manifest.best is None else _best_plain(manifest.best),
    }
    return json.dumps(content, indent=1, ensure_ascii=False)


def _best_plain(best: Mapping[Any, "BestPossible"]) -> dict[str, Any]:
    return {split: score.plain() for split, score in best.items()}


def _summary(manifest: "Manifest", folder: Path) -> str:
    lines = [f"{manifest.dataset}: {folder}"]
    for split, rows in manifest.rows.plain().items():
        share = getattr(manifest.positives, split) / rows
        lines.append(f"  {split:<12}{rows:>12,} rows, {share:.4f} positive")
    lines += [
        f"  fields      {manifest.n_fields:>12}",
        f"  vocabulary  {manifest.vocabulary_total:>12,} ids",
        f"  fingerprint {manifest.fingerprint[:12]:>12}",
        f"  verified    {'yes' if manifest.verified else 'no':>12}",
    ]
    if manifest.best is not None:
        lines.append(f"  {_best_line(manifest.best['test'])}")
    return "\n".join([*lines, *(f"  note: {note}" for note in manifest.notes)])


def _best_line(best: "BestPossible") -> str:
    return f"best possible on test: AUC {best.auc:.4f}, LogLoss {best.logloss:.4f}"

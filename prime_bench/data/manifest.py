"""A variant: a data set under one choice of settings, and the folder it lies in."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from prime_bench.base.errors import DataError, UsageError, did_you_mean
from prime_bench.base.files import write_whole
from prime_bench.base.frozen import Frozen
from prime_bench.base.identity import digest
from prime_bench.data.card import DatasetCard, card_names, load_card
from prime_bench.settings.data import DataSettings, SyntheticSettings

ENCODING = 1
"""Version of what `prepare` writes for given rows and settings; a new one makes new variants."""


@dataclass(frozen=True, kw_only=True)
class DataVariant:
    """A card and resolved settings."""

    card: DatasetCard
    settings: DataSettings

    @property
    def name(self) -> str:
        """Name of the card."""
        return self.card.name

    @property
    def digest(self) -> str:
        """SHA-256 over name, settings and what of the card shapes the table."""
        settings = self.settings.plain()
        if self.settings.numeric != "log_bucket":
            del settings["zero_is_missing"]
        columns = [[column.name, column.role, column.semantic] for column in self.card.columns]
        return digest(
            {"encoding": ENCODING, "name": self.name, "settings": settings, "columns": columns}
        )

    def folder(self, data_dir: Path) -> Path:
        """Where the prepared table lies."""
        return data_dir / f"{self.name}-{self.digest[:8]}"

    def manifest(self, data_dir: Path) -> "Manifest | None":
        """The table's manifest, None where there is none. Raises DataError for an unfit one."""
        folder = self.folder(data_dir)
        return Manifest.read(folder) if (folder / MANIFEST_NAME).is_file() else None

    def prepare_command(self, *, source: str | None = None) -> str:
        """The command that makes it, with every flag that differs from the card's defaults.

        `source` is what `--from` names; None: what there is to download, else a path to fill in.
        """
        words = ["prime-bench", "prepare", self.name]
        default = _parse(self.card, {}, where="").plain()
        for key, value in self.settings.plain().items():
            if value != default[key]:
                words += [f"--{key.replace('_', '-')}", _flag_value(value)]
        if source is None and self.card.kind != "generated" and not self.card.archives:
            source = "PATH"
        if source is not None:
            words += ["--from", source]
        return " ".join(words)


def resolve(name: str, overrides: Mapping[str, Any], *, where: str = "") -> DataVariant:
    """The variant of card `name` under its defaults and `overrides`, whose key `card`, if there,
    names the card instead: a recipe may so have several variants of one data set.

    Raises UsageError, with paths below `where`, for an unknown name, key or value, and for a key
    that has no effect.
    """
    keys = dict(overrides)
    card = load_card(str(keys.pop("card", name)))
    settings = _parse(card, keys, where=where)
    prefix = f"{where}." if where else ""
    if not _has_numeric_fields(card, settings):
        for key in ("numeric", "zero_is_missing"):
            if key in overrides:
                raise UsageError(f"{prefix}{key}: {name} has no numeric fields")
    if "zero_is_missing" in overrides and settings.numeric != "log_bucket":
        raise UsageError(f'{prefix}zero_is_missing: has an effect with numeric = "log_bucket" only')
    return DataVariant(card=card, settings=settings)


def _parse(card: DatasetCard, overrides: Mapping[str, Any], *, where: str) -> DataSettings:
    return card.settings_class.parse({**card.defaults, **overrides}, where=where)


def _has_numeric_fields(card: DatasetCard, settings: DataSettings) -> bool:
    if isinstance(settings, SyntheticSettings):
        return settings.shape == "criteo"
    return any(column.role == "numeric" for column in card.columns)


def _flag_value(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ",".join(str(item) for item in value)
    return str(value)


MANIFEST_NAME = "manifest.json"
SCHEMA_NAME = "schema.json"
VOCABULARY_FOLDER = "vocabulary"
MANIFEST_SCHEMA: Final = 1
_ADVICE = "prepare the table again, which replaces it, or remove its folder"


class SplitCounts(Frozen):
    """One number a split."""

    train: int
    valid: int
    test: int

    @property
    def total(self) -> int:
        """Of all three."""
        return self.train + self.valid + self.test


class InputFile(Frozen):
    """A file that was read."""

    path: str
    """Absolute; `archive.zip/member` for a member of an archive."""
    size: int
    """Bytes as stored."""
    mtime_ns: int
    """Last change, which with path and size says `unchanged` without reading."""
    content_bytes: int
    """Bytes of the uncompressed content."""
    md5: str
    """Of the uncompressed content."""
    sha256: str
    """Of the uncompressed content."""
    rows: int
    made_from: str | None = None
    """SHA-256 of the log that this split was made from here; None for a split as published."""


class BestPossible(Frozen):
    """Metrics of the true probabilities, which no model can beat but by luck."""

    auc: float
    logloss: float


class Manifest(Frozen):
    """What a prepared table was made from, and what it is."""

    manifest_schema: Literal[1] = MANIFEST_SCHEMA
    dataset: str
    """Name of the card."""
    settings: dict[str, Any]
    """Resolved settings of the variant."""
    variant: str
    """Digest of the variant."""
    fingerprint: str
    """Digest of schema, vocabularies and arrays."""
    verified: bool
    """Whether the inputs matched published digests, or were generated here."""
    notes: list[str]
    """What every report on this data has to say."""
    rows: SplitCounts
    positives: SplitCounts
    n_fields: int
    vocabulary_total: int
    """Ids of all categorical fields together, PAD and out-of-vocabulary included."""
    inputs: list[InputFile]
    outputs: dict[str, str]
    """SHA-256 of each file of the table but this one."""
    versions: dict[str, str]
    """Packages that wrote it."""
    missing: dict[str, SplitCounts] | None = None
    """Of each field: rows without a value; None where a former version did not count them."""
    best: dict[Literal["train", "valid", "test"], BestPossible] | None = None
    """Only for generated data."""

    @classmethod
    def read(cls, folder: Path) -> "Manifest":
        """The manifest of a prepared table. Raises DataError where it is missing or unfit."""
        path = folder / MANIFEST_NAME
        try:
            table = json.loads(path.read_text(encoding="utf-8"))
        except (FileNotFoundError, NotADirectoryError):
            raise DataError(
                f"{folder}: no prepared table here ({MANIFEST_NAME} is missing)"
            ) from None
        except (OSError, ValueError, RecursionError) as error:
            raise DataError(f"{path}: cannot be read: {error}", hint=_ADVICE) from error
        if not isinstance(table, dict) or table.get("manifest_schema") != MANIFEST_SCHEMA:
            raise DataError(f"{path}: not a manifest of version {MANIFEST_SCHEMA}", hint=_ADVICE)
        try:
            return cls.parse(table, where=str(path))
        except UsageError as error:
            raise DataError(error.message, hint=_ADVICE) from error

    def write(self, folder: Path) -> None:
        """Write it whole; to be called when everything else in `folder` is on disk."""
        text = json.dumps(self.plain(), indent=1, ensure_ascii=False)
        write_whole(folder / MANIFEST_NAME, text + "\n")


def fingerprint_of(outputs: Mapping[str, str]) -> str:
    """The digest of a table's content, from the SHA-256 of each of its files but the manifest."""
    return digest(dict(outputs))


def find_tables(table: str | Path, *, data_dir: Path) -> list[Path]:
    """The folder `table`, or the folders of the data set `table` below `data_dir`, sorted.

    Raises DataError where there is none.
    """
    if Path(table).is_dir():
        return [Path(table)]
    found = [
        path.parent
        for path in sorted(data_dir.glob(f"*/{MANIFEST_NAME}"))
        if Manifest.read(path.parent).dataset == table
    ]
    if not found:
        known = card_names()
        raise DataError(
            f"{table}: neither a folder nor a data set with a prepared table in {data_dir}"
            + ("" if table in known else did_you_mean(str(table), known)),
            hint=f"prime-bench prepare {table}"
            if table in known
            else f"datasets: {', '.join(known)}",
        )
    return found


def table_with(fingerprint: str, *, data_dir: Path) -> Path:
    """The folder below `data_dir` of the table with that fingerprint.

    Raises DataError where there is none.
    """
    for path in sorted(data_dir.glob(f"*/{MANIFEST_NAME}")):
        if Manifest.read(path.parent).fingerprint == fingerprint:
            return path.parent
    raise DataError(
        f"no table in {data_dir} has the fingerprint {fingerprint}",
        hint="prepare the job's data again, with `prime-bench prepare`, or name another --data-dir",
    )

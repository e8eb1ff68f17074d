"""A variant: a data set under one choice of settings, and the folder it lies in."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prime_bench.base.errors import UsageError
from prime_bench.base.identity import digest
from prime_bench.data.card import DatasetCard, load_card
from prime_bench.data.manifest import MANIFEST_NAME, Manifest
from prime_bench.settings.dataset import DataSettings, SyntheticSettings

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

    def manifest(self, data_dir: Path) -> Manifest | None:
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

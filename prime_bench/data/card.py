"""Dataset cards: what a log looks like, where it can be had, how it is prepared by default."""

import functools
import tomllib
from typing import Any, Literal, Self

import pydantic

from prime_bench.base.errors import UsageError, did_you_mean
from prime_bench.base.files import bundled_folder
from prime_bench.base.frozen import Frozen
from prime_bench.settings.data import DataSettings, LogSettings, SyntheticSettings

SETTINGS: dict[str, type[DataSettings]] = {
    "splits": DataSettings,
    "log": LogSettings,
    "generated": SyntheticSettings,
}


class CardColumn(Frozen):
    """One column of the file, in the order of its header."""

    name: str
    role: Literal["label", "categorical", "numeric", "hour", "dropped"]
    """`hour` holds YYMMDDHH and becomes a categorical field, the hour of day, placed last."""
    semantic: str | None = None
    """What the column means; None where nobody knows."""
    train_values: int | None = None
    """Distinct values with `train_values_min_count` or more of the published training rows."""


class CardFile(Frozen):
    """A published file, and what it must hold."""

    md5: str = pydantic.Field(pattern="^[0-9a-f]{32}$")
    """Of the uncompressed csv."""
    rows: int
    positives: int


class CardArchive(Frozen):
    """Where an archive with all files can be had; either `repository` or `url` is given."""

    repository: str | None = None
    """Of the Hugging Face hub, a data set."""
    url: str | None = None
    file: str
    """Name in the repository, and here."""
    size: int
    """Bytes; an estimate, for the check of free disk where the server does not say."""

    @pydantic.model_validator(mode="after")
    def _has_one_address(self) -> Self:
        if (self.repository is None) == (self.url is None):
            raise ValueError("an archive has either a repository or a url")
        return self


class DatasetCard(Frozen):
    """One file in `datasets/`."""

    name: str
    title: str
    kind: Literal["splits", "log", "generated"]
    """splits: train, valid and test csv as published; log: one csv, split here; generated: none."""
    licence: str
    homepage: str
    archives: list[CardArchive] = []
    """Where the files can be downloaded, tried in this order; empty where one has to print in."""
    raw_form: Literal["libsvm", "kaggle"] | None = None
    """What else can be read: AFN's libsvm files, or Kaggle's log of Criteo, split here."""
    notes: list[str] = []
    """What every report on this data has to print."""
    columns: list[CardColumn] = []
    """Empty for generated data, whose columns depend on its settings."""
    files: dict[Literal["train", "valid", "test"], CardFile] = {}
    """Empty where no digests are published."""
    train_values_min_count: int = 1
    defaults: dict[str, Any] = {}
    """Settings that differ from the settings class's own defaults."""

    @pydantic.model_validator(mode="after")
    def _fits_its_kind(self) -> Self:
        if self.kind == "generated":
            return self
        if [column.role for column in self.columns].count("label") != 1:
            raise ValueError("a card has exactly one label column")
        if len({column.name for column in self.columns}) < len(self.columns):
            raise ValueError("two columns have one name")
        return self

    @property
    def settings_class(self) -> type[DataSettings]:
        """The settings that this kind of data set has."""
        return SETTINGS[self.kind]

    @property
    def header(self) -> list[str]:
        """Names of all columns, in the order of the file."""
        return [column.name for column in self.columns]

    @property
    def fields(self) -> list[CardColumn]:
        """The columns that become fields, in schema order: as in the file, the hour last."""
        kept = [column for column in self.columns if column.role in ("categorical", "numeric")]
        return kept + [column for column in self.columns if column.role == "hour"]


def card_names() -> list[str]:
    """Names of all bundled cards, sorted."""
    return sorted(path.stem.replace("_", "-") for path in bundled_folder("datasets").glob("*.toml"))


@functools.cache
def load_card(name: str) -> DatasetCard:
    """The card of that name. Raises UsageError with the nearest name where there is none."""
    known = card_names()
    if name not in known:
        raise UsageError(
            f"no dataset `{name}`{did_you_mean(name, known)}", hint=f"datasets: {', '.join(known)}"
        )
    path = bundled_folder("datasets") / f"{name.replace('-', '_')}.toml"
    return DatasetCard.parse(tomllib.loads(path.read_text(encoding="utf-8")), where=str(path))

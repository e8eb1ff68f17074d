"""Cards: the columns of a data set, where its files can be had, and its default settings."""

import functools
import os
import re
import tomllib
import unicodedata
from pathlib import Path
from typing import Any, Literal, Self

import pydantic

from prime_bench.base.errors import UsageError, did_you_mean
from prime_bench.base.files import bundled_folder, read_file
from prime_bench.base.frozen import Fault, Frozen
from prime_bench.base.toml import excess, place, read_toml
from prime_bench.settings.data import (
    DataSettings,
    LogSettings,
    NumericRule,
    SyntheticSettings,
)

CARDS_VARIABLE = "PRIME_BENCH_CARDS"
"""Environment variable with a folder of further cards, which are called by their file names."""
MOST_BYTES = 1 << 20
"""Bytes of a card. One of twelve columns has about 2 KiB."""

SETTINGS: dict[str, type[DataSettings]] = {
    "splits": DataSettings,
    "log": LogSettings,
    "generated": SyntheticSettings,
}


class CardColumn(Frozen):
    """A column of a raw file."""

    name: str
    """As in the header of the file."""
    role: Literal["label", "categorical", "numeric", "hour", "time", "split", "group", "dropped"]
    """`hour` holds YYMMDDHH and becomes a categorical field, the hour of day, placed last. `time`,
    `split` and `group` say how a log is split, and are no fields without `also`."""
    also: Literal["categorical", "numeric"] | None = None
    """The field that a column with the role time, split or group becomes as well."""
    splits: dict[Literal["train", "valid", "test"], list[str]] = {}
    """For the role split: the texts of the rows of each split; by default its name."""
    semantic: str | None = None
    """What the column means; None if unknown."""
    numeric: NumericRule | None = None
    """How the values of a numeric column are transformed; None for the rule of the data set."""
    bins: int | None = pydantic.Field(None, ge=2, le=10_000)
    """For the rule quantile: the number of bins; None for that of the data set."""
    train_values: int | None = None
    """Number of distinct values in `train_values_min_count` or more published train rows."""

    @pydantic.model_validator(mode="after")
    def _has_keys_of_its_role(self) -> Self:
        if self.also is not None and self.role not in ("time", "split", "group"):
            raise ValueError("`also` is a key of columns with the role time, split or group")
        if self.splits and self.role != "split":
            raise ValueError("`splits` is a key of the column with the role split")
        texts = [text for split in self.splits.values() for text in split]
        if self.splits and (len(self.splits) < 3 or len(set(texts)) < len(texts)):
            raise ValueError("`splits` has train, valid and test, and each text once")
        if "numeric" not in (self.role, self.also) and (self.numeric or self.bins):
            key = "numeric" if self.numeric else "bins"
            raise ValueError(f'`{key}` is a key of columns with role = "numeric"')
        if self.bins is not None and self.numeric not in (None, "quantile"):
            raise ValueError('`bins` has an effect with numeric = "quantile" only')
        return self

    def rule(self, settings: DataSettings) -> NumericRule:
        """The rule of a numeric column under the settings of its data set."""
        return self.numeric or settings.numeric

    def n_bins(self, settings: DataSettings) -> int:
        """The number of bins of a numeric column with the rule quantile."""
        return self.bins or settings.bins


class CardFormat(Frozen):
    """How text files of a data set are written, where that is not as in a plain csv."""

    separator: Literal[",", "\t", ";", "|", " "] | None = None
    """Between the fields of a line. None: the one that splits the header into the card's
    columns."""
    quote: Literal['"', "'", ""] = '"'
    """Mark around fields that hold a separator or a line feed; inside, it is written twice. Empty:
    marks are ordinary characters."""
    missing: list[str] = []
    """Texts that stand for a missing value, such as `NULL`, besides the empty one."""


class CardFile(Frozen):
    """Published facts about the file of one split, by which it is verified."""

    md5: str = pydantic.Field(pattern="^[0-9a-f]{32}$")
    """MD5 of the uncompressed csv, as it is or with line feeds in place of CRLF."""
    rows: int
    """Rows of the file, without the header."""
    positives: int
    """Rows with the label 1."""


class CardArchive(Frozen):
    """A download that contains all files; either `repository` or `url` is given."""

    repository: str | None = None
    """A data set repository of the Hugging Face hub."""
    url: str | None = None
    """Any other address."""
    file: str
    """File name in the repository, and on disk after the download."""
    size: int
    """Estimated bytes, for the check of free disk space if the server gives no size."""

    @pydantic.model_validator(mode="after")
    def _has_one_address(self) -> Self:
        if (self.repository is None) == (self.url is None):
            raise ValueError("an archive has either a repository or a url")
        return self


class DatasetCard(Frozen):
    """The description of a data set: one TOML file, of your own or in `datasets/`."""

    name: str = pydantic.Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")
    """What commands and recipes call the data set."""
    title: str
    """What reports call it."""
    kind: Literal["splits", "log", "generated"]
    """`splits`: train, valid and test csv as published; `log`: one csv, which `prepare` splits;
    `generated`: a synthetic log without files."""
    licence: str = ""
    """Under which terms the data may be used."""
    homepage: str = ""
    """Where the data set is described or published."""
    archives: list[CardArchive] = []
    """Where the files can be downloaded, tried in this order; empty where an account is needed."""
    raw_form: Literal["libsvm", "kaggle"] | None = None
    """Another format that can be read: AFN's libsvm files, or Kaggle's log of Criteo."""
    notes: list[str] = []
    """Sentences that every report on this data has to print."""
    columns: list[CardColumn] = []
    """Columns in the order of a plain csv; a file may have more, and others first. Empty for a
    synthetic log, where the settings decide."""
    format: CardFormat = CardFormat()
    """How text files are written."""
    files: dict[Literal["train", "valid", "test"], CardFile] = {}
    """Split -> its published facts; empty if none are published."""
    train_values_min_count: int = 1
    """Minimum number of train rows of a value that `CardColumn.train_values` counts."""
    defaults: dict[str, Any] = {}
    """Data settings whose default for this card differs from that of the settings class."""

    @pydantic.model_validator(mode="after")
    def _fits_its_kind(self) -> Self:
        if self.kind == "generated":
            return self
        n_labels = [column.role for column in self.columns].count("label")
        if n_labels != 1:
            raise ValueError(
                f"a card has exactly one label column, here are {n_labels or 'none'}: give the "
                'column of clicks (0 or 1) role = "label"'
            )
        if len({column.name for column in self.columns}) < len(self.columns):
            raise ValueError("two columns have one name")
        roles = [column.role for column in self.columns]
        for role in ("hour", "time", "split", "group"):
            if roles.count(role) > 1:
                raise ValueError(f"two columns have the role {role}")
            if self.kind != "log" and role != "hour" and role in roles:
                raise ValueError(f'the role {role} needs kind = "log"')
        if not self.fields:
            raise ValueError("no column becomes a field: give one the role categorical or numeric")
        if 0 < len(self.files) < 3:
            raise ValueError("files: give train, valid and test, or none of them")
        return self

    @property
    def settings_class(self) -> type[DataSettings]:
        """The class of the data settings of this kind of data set."""
        return SETTINGS[self.kind]

    @property
    def header(self) -> list[str]:
        """The names of all columns, in the order of the file."""
        return [column.name for column in self.columns]

    @property
    def fields(self) -> list[CardColumn]:
        """The columns that become fields, in schema order: as in the file, but the hour last."""
        columns = [
            column.model_copy(update={"role": column.also, "also": None}) if column.also else column
            for column in self.columns
        ]
        kept = [column for column in columns if column.role in ("categorical", "numeric")]
        return kept + [column for column in self.columns if column.role == "hour"]


def own_name(stem: str) -> str:
    """The name that a draft gives to the user's own card in the file `stem`.toml."""
    # Letters with an accent without it: a name is part of paths.
    text = unicodedata.normalize("NFKD", stem).encode("ascii", "ignore").decode()
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-._") or "log"
    return f"{name}-own" if name in card_names() else name[:100]


def card_names() -> list[str]:
    """The names of all bundled cards, sorted."""
    return sorted(path.stem.replace("_", "-") for path in bundled_folder("datasets").glob("*.toml"))


@functools.cache
def load_card(name: str) -> DatasetCard:
    """Load the bundled card `name`. Raises UsageError, with the nearest known name, if there is
    none.
    """
    known = card_names()
    if name not in known:
        own = own_cards()
        raise UsageError(
            f"no data set `{name}`{did_you_mean(name, [*known, *own])}",
            hint=f"data sets: {', '.join([*known, *own])}; or a card's file, such as mylog.toml",
        )
    path = bundled_folder("datasets") / f"{name.replace('-', '_')}.toml"
    return DatasetCard.parse(tomllib.loads(path.read_text(encoding="utf-8")), where=str(path))


def own_cards() -> dict[str, Path]:
    """The cards in the folder that `CARDS_VARIABLE` names: file name without `.toml` -> file."""
    folder = os.environ.get(CARDS_VARIABLE)
    files = sorted(Path(folder).glob("*.toml")) if folder else []
    return {file.stem: file for file in files if file.stem not in card_names()}


def card_file(reference: str, *, folder: Path = Path()) -> Path | None:
    """The file of an own card, which need not exist; None for the name of a bundled one.

    `reference` is a path ending in `.toml`, which is relative to `folder`, or a name. Raises
    UsageError for an unknown name.
    """
    if reference.endswith(".toml"):
        return folder / reference
    if (own := own_cards().get(reference)) is not None:
        return own
    file = folder / f"{reference}.toml"
    if reference not in card_names() and file.is_file():
        hint = f"for the card {file} say `{file.name}`"
        raise UsageError(f"no data set `{reference}`", hint=hint)
    if (folder / reference).is_file():
        raise UsageError(
            f"{reference}: is no card, whose name ends in .toml",
            hint=f"`prime-bench card {reference}` writes one for a log",
        )
    load_card(reference)
    return None


def read_card(path: Path) -> DatasetCard:
    """Read a card of one's own. Raises UsageError with every fault at its line."""
    try:
        content = read_file(path, most_bytes=MOST_BYTES)
    except FileNotFoundError as error:
        raise UsageError(
            f"{path}: there is no such card",
            hint="`prime-bench card FILE` writes one for a log in FILE",
        ) from error
    except OSError as error:
        raise UsageError(f"{path}: cannot read the card: {error.strerror}") from error
    text, table = read_toml(content, path=path, noun="card", most_bytes=MOST_BYTES)
    if why := excess(table):
        raise UsageError(f"{path}: {why}")
    card, faults = DatasetCard.check(table)
    if card is not None:
        faults = [*_own_faults(card)]
    if card is None or faults:
        raise UsageError("\n".join(place(fault, path=path, text=text) for fault in faults))
    return card


def _own_faults(card: DatasetCard) -> list[Fault]:
    """What is wrong with a sound card as one of one's own."""
    faults = []
    if card.kind == "generated":
        faults.append(Fault(("kind",), "only the bundled card `synthetic` is generated"))
    if card.name in card_names():
        why = f"`{card.name}` is a bundled data set, so a card of your own needs another name"
        faults.append(Fault(("name",), why))
    _, wrong = card.settings_class.check(card.defaults)
    return faults + [fault.below("defaults") for fault in wrong]

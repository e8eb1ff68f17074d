"""Which table a recipe means, and what a prepared table was made from.

A `TableSpec` is a card with resolved data settings: it knows the folder of the table and the
command that prepares it. The `Manifest` in that folder is written last, so a folder that has one
is complete.
"""

import contextlib
import json
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from prime_bench.base.errors import DataError, UsageError, did_you_mean
from prime_bench.base.files import fault_of_disk, read_json, write_whole
from prime_bench.base.frozen import Frozen, JsonTable
from prime_bench.base.identity import digest
from prime_bench.data.card import (
    CardColumn,
    DatasetCard,
    card_file,
    card_names,
    load_card,
    own_name,
    read_card,
)
from prime_bench.settings.data import DataSettings, LogSettings, NumericRule, SyntheticSettings

SPLIT_NAMES = ("train", "valid", "test")
MANIFEST_NAME = "manifest.json"
SCHEMA_NAME = "schema.json"
VOCABULARY_FOLDER = "vocabulary"
MANIFEST_SCHEMA: Final = 1
"""Version of the manifest's own keys."""
ENCODING = 1
"""Version of what `prepare` writes for given rows and settings. It is part of a table's digest, so
a new version gives new tables."""
_ADVICE = "prepare the table again, which replaces it, or remove its folder"


def vocabulary_file(field: str) -> str:
    """Name of the file of a field's vocabulary in the folder of a table.

    What a header may have in a name and a file name may not is written as %XX.
    """
    safe = re.sub(r'[\x00-\x1f"%*/:<>?\\|]', lambda found: f"%{ord(found[0]):02X}", field)
    return f"{VOCABULARY_FOLDER}/{safe}.txt"


class SplitCounts(Frozen):
    """A count for each split."""

    train: int
    valid: int
    test: int

    @property
    def total(self) -> int:
        """The sum over the three splits."""
        return self.train + self.valid + self.test


PublishedForm = Literal["as stored", "line feeds", "CRLF"]
"""Bytes as stored, with line feeds in place of CRLF, or with CRLF in place of line feeds."""


class InputFile(Frozen):
    """A raw file from which a table was made."""

    path: str
    """Absolute; `archive.zip/member` for a member of an archive."""
    size: int
    """Bytes as stored."""
    mtime_ns: int
    """Time of the last change. A file with the same path, size and time counts as unchanged and is
    not read again."""
    content_bytes: int
    """Bytes of the uncompressed content."""
    md5: str
    """MD5 of the uncompressed content, with line feeds in place of CRLF."""
    sha256: str
    """SHA-256 of the uncompressed content as it is stored."""
    rows: int
    made_from: str | None = None
    """SHA-256 of the log that `prepare` split into this file; None for a published split."""
    md5_as_stored: str | None = None
    """MD5 of the content with its CRLF; None if it has none, if `md5` is published, and if no MD5
    is."""
    md5_with_crlf: str | None = None
    """MD5 of the content with CRLF in place of its line feeds; None unless it is published."""
    published: PublishedForm | None = None
    """The form of the content that has the MD5 on the card; None if no form has it, if the card has
    no MD5, and in tables of versions that read no CRLF."""


class NumericFit(Frozen):
    """The rule of a numeric field, with the constants that it has from the training rows."""

    rule: NumericRule
    low: float | None = None
    """minmax: the lowest value; None without values."""
    high: float | None = None
    """minmax: the highest value; None without values."""
    mean: float | None = None
    """standard: the mean; None without values."""
    deviation: float | None = None
    """standard: the standard deviation, with the divisor n; None without values."""
    cuts: list[float] | None = None
    """quantile: the highest value of each bin but the last, rising; ids are counted from 1."""


class BestPossible(Frozen):
    """Metrics of the true click probabilities, the best that a model can reach in expectation."""

    auc: float
    """Expected area under the ROC curve."""
    logloss: float
    """Mean binary entropy of the probabilities, in nats."""


class Manifest(Frozen):
    """What a prepared table was made from, and what it contains."""

    manifest_schema: Literal[1] = MANIFEST_SCHEMA
    """Version of the manifest's keys."""
    dataset: str
    """Name of the card."""
    settings: dict[str, Any]
    """The resolved data settings, as in the JSON file."""
    variant: str
    """Digest of the `TableSpec`."""
    fingerprint: str
    """SHA-256 over schema, vocabularies and arrays."""
    verified: bool | Literal["own"]
    """Whether the inputs have the published digests, or the rows are synthetic; `own` for a card
    of one's own without digests."""
    notes: list[str]
    """Sentences that every report on this table has to print."""
    rows: SplitCounts
    """Rows of each split."""
    positives: SplitCounts
    """Rows with the label 1 of each split."""
    n_fields: int
    """Categorical and numeric fields together."""
    vocabulary_total: int
    """Ids of all categorical fields together, PAD and out-of-vocabulary included."""
    inputs: list[InputFile]
    """The raw files; empty for a synthetic table."""
    outputs: dict[str, str]
    """SHA-256 of each file of the table except the manifest."""
    versions: dict[str, str]
    """Versions of Python and of the packages that wrote the table."""
    missing: dict[str, SplitCounts] | None = None
    """Name of each field -> its rows without a value; None in tables of versions before."""
    best: dict[Literal["train", "valid", "test"], BestPossible] | None = None
    """The best possible metrics on each split of a synthetic table; None for real data."""
    numeric: dict[str, NumericFit] | None = None
    """Name of each numeric field -> how it was transformed; None in tables of versions before."""
    warnings: list[str] = []
    """What the training rows show of columns of the user's own data: of no use, lost by a rule, or
    telling the label."""
    card: DatasetCard | None = None
    """The content of the user's own card, so that its file is not needed later; None for a bundled
    one."""

    @property
    def gauc_by(self) -> str:
        """The column with the groups of the group AUC; empty where the table has none."""
        return str(self.settings.get("gauc_by") or "")

    @property
    def own_card(self) -> JsonTable | None:
        """The content of the user's own card as JSON values; None for a bundled one."""
        return None if self.card is None else self.card.plain()

    @classmethod
    def read(cls, folder: Path) -> "Manifest":
        """Read the manifest of the table in `folder`.

        Raises DataError where it is missing, cannot be read or has another version, and
        EnvironmentFault for an error of the disk.
        """
        path = folder / MANIFEST_NAME
        try:
            table = read_json(path)
        except (FileNotFoundError, NotADirectoryError):
            raise DataError(
                f"{folder}: no prepared table here ({MANIFEST_NAME} is missing)"
            ) from None
        except (OSError, ValueError) as error:
            if (fault := fault_of_disk(error, path)) is not None:
                raise fault from error
            raise DataError(f"{path}: cannot be read: {error}", hint=_ADVICE) from error
        if not isinstance(table, dict) or table.get("manifest_schema") != MANIFEST_SCHEMA:
            raise DataError(f"{path}: not a manifest of version {MANIFEST_SCHEMA}", hint=_ADVICE)
        try:
            return cls.parse(table, where=str(path))
        except UsageError as error:
            raise DataError(error.message, hint=_ADVICE) from error

    def write(self, folder: Path) -> None:
        """Write the manifest atomically. All other files of `folder` must be on disk already."""
        text = json.dumps(self.plain(), indent=1, ensure_ascii=False)
        write_whole(folder / MANIFEST_NAME, text + "\n")


def fingerprint_of(outputs: Mapping[str, str]) -> str:
    """The fingerprint of a table, from the SHA-256 of each of its files except the manifest."""
    return digest(dict(outputs))


@dataclass(frozen=True, kw_only=True)
class TableSpec:
    """A card and resolved data settings, which together determine a prepared table."""

    card: DatasetCard
    settings: DataSettings
    file: Path | None = None
    """File of the user's own card; None for a bundled one."""

    @property
    def name(self) -> str:
        """Name of the card."""
        return self.card.name

    @property
    def digest(self) -> str:
        """SHA-256 over the name, the settings and those facts of the card that shape the table."""
        settings = self.settings.plain()
        for key in _without_effect(self.card, self.settings):
            if key != "numeric":  # its digests are older than rules of columns
                del settings[key]
        if not self.settings.gauc_by:  # the digests of tables without groups are older
            del settings["gauc_by"]
        columns = [
            [column.name, column.role, column.semantic, *_rule(column), *_split_role(column)]
            for column in self.card.columns
        ]
        facts = {"encoding": ENCODING, "name": self.name, "settings": settings, "columns": columns}
        # The separator cannot change what the fields are called or hold.
        form = self.card.format.plain()
        del form["separator"]
        if self.card.format != type(self.card.format)(separator=self.card.format.separator):
            facts["format"] = form
        return digest(facts)

    def folder(self, data_dir: Path) -> Path:
        """The folder of the prepared table below `data_dir`."""
        return data_dir / f"{self.name}-{self.digest[:8]}"

    def manifest(self, data_dir: Path) -> Manifest | None:
        """The manifest of the prepared table, or None where there is no table.

        Raises DataError where a manifest cannot be read.
        """
        folder = self.folder(data_dir)
        return Manifest.read(folder) if (folder / MANIFEST_NAME).is_file() else None

    def prepare_command(self, *, source: str | None = None) -> str:
        """The command that prepares the table, with each flag that differs from the card's default.

        `source` is the path after `--from`. Without one, the command has no `--from` if the data
        can be downloaded or is synthetic, else `--from PATH` for the user to fill in.
        """
        card = self.name if self.file is None else shlex.quote(str(self.file))
        words = ["prime-bench", "prepare", card]
        default = _parse(self.card, {}, where="").plain()
        for key, value in self.settings.plain().items():
            if value != default[key]:
                words += [f"--{key.replace('_', '-')}", shlex.quote(_flag_value(value))]
        if source is None and self.card.kind != "generated" and not self.card.archives:
            source = "PATH"
        if source is not None:
            words += ["--from", source]
        return " ".join(words)


def resolve(
    name: str,
    overrides: Mapping[str, Any],
    *,
    where: str = "",
    folder: Path = Path(),
    carried: Callable[[], Iterable[DatasetCard]] = tuple,
) -> TableSpec:
    """The table of card `name` under the card's defaults and `overrides`.

    `name` is that of a bundled card, or the path of one's own. A key `card` in `overrides` names
    another card, so that a recipe may have several tables of one data set under names of its own.

    Args:
        name: The card, if `overrides` has none.
        overrides: Data settings, and `card`.
        where: The path of `overrides` in a recipe, for messages.
        folder: To which the path of a card is relative.
        carried: Gives the cards that tables and records carry, which are used where the file of
            the user's own card is gone.

    Raises UsageError, with paths below `where`, for an unknown name, key or value, and for a key
    that has no effect.
    """
    keys = dict(overrides)
    prefix = f"{where}." if where else ""
    reference = str(keys.pop("card", name))
    file = card_file(reference, folder=folder)
    if file is None:
        card = load_card(reference)
    elif not file.exists() and (found := _carried(file, carried())):
        card = found
    else:
        card = read_card(file)
    settings = _parse(card, keys, where=where)
    for key, why in _without_effect(card, settings).items():
        if key in overrides:
            raise UsageError(f"{prefix}{key}: {why}")
    if fault := _split_fault(card, settings):
        raise UsageError(f"{prefix}split: {fault}, and {name} has none")
    if fault := _group_fault(card, settings):
        raise UsageError(f"{prefix}gauc_by: {fault}")
    return TableSpec(card=card, settings=settings, file=file)


def _carried(file: Path, cards: Iterable[DatasetCard]) -> DatasetCard | None:
    """The one of `cards` with the name of a card's file, or of its draft; None if there is none.

    Raises UsageError where there are several.
    """
    names = (file.stem, own_name(file.stem))
    found = {card.model_dump_json(): card for card in cards if card.name in names}
    if len(found) > 1:
        raise UsageError(
            f"{file}: there is no such card, and {len(found)} different ones of that name were used"
            " here before",
            hint="write the card again; `prime-bench show dataset TABLE --json` prints that of a"
            " table",
        )
    return next(iter(found.values()), None)


def carried_cards(data_dir: Path) -> list[DatasetCard]:
    """The users' own cards from which the tables below `data_dir` were prepared."""
    manifests = (manifest for _, manifest in _readable(data_dir))
    return [manifest.card for manifest in manifests if manifest.card is not None]


def read_cards(tables: Iterable[JsonTable | None]) -> list[DatasetCard]:
    """The cards that records carry as JSON values; what is none is left out."""
    cards = (DatasetCard.check(table)[0] for table in tables if table is not None)
    return [card for card in cards if card is not None]


def _parse(card: DatasetCard, overrides: Mapping[str, Any], *, where: str) -> DataSettings:
    """The card's defaults with `overrides`. Raises UsageError with paths below `where`."""
    return card.settings_class.parse({**card.defaults, **overrides}, where=where)


def _without_effect(card: DatasetCard, settings: DataSettings) -> dict[str, str]:
    """Settings of numeric fields that change nothing in this data set, and why."""
    numeric = [column for column in card.fields if column.role == "numeric"]
    if isinstance(settings, SyntheticSettings) and settings.shape == "criteo":
        numeric = [CardColumn(name="any", role="numeric")]
    if not numeric:
        why = f"{card.name} has no numeric fields"
        return dict.fromkeys(("numeric", "bins", "zero_is_missing"), why)
    found = {}
    if all(column.numeric for column in numeric):
        found["numeric"] = f"every numeric column of {card.name} has a rule of its own"
    if all(column.rule(settings) != "log_bucket" for column in numeric):
        found["zero_is_missing"] = 'has an effect with numeric = "log_bucket" only'
    if all(column.rule(settings) != "quantile" or column.bins for column in numeric):
        found["bins"] = 'has an effect with numeric = "quantile" only'
    return found


def _rule(column: CardColumn) -> list[object]:
    """The rule of a column in a digest; empty where that is the data set's."""
    return [column.numeric, column.bins] if column.numeric or column.bins else []


def _split_role(column: CardColumn) -> list[object]:
    """What the digest needs to know of a column by which a log is split."""
    facts = [{"also": column.also}] if column.also else []
    return facts + ([{"splits": column.splits}] if column.splits else [])


def _split_fault(card: DatasetCard, settings: DataSettings) -> str | None:
    """What the card lacks for the split of the settings; None if nothing."""
    if not isinstance(settings, LogSettings):
        return None
    needed = {"time": ("time", "hour"), "column": ("split",), "group": ("group",)}
    roles = needed.get(settings.split, ())
    if not roles or any(column.role in roles for column in card.columns):
        return None
    return f"{settings.split} needs a column with the role {' or '.join(roles)}"


def _group_fault(card: DatasetCard, settings: DataSettings) -> str | None:
    """Why the column of `gauc_by` cannot have the groups; None if it can, or if there is none."""
    if not (name := settings.gauc_by):
        return None
    if isinstance(settings, SyntheticSettings):
        # Here, since a table of files does without the generator.
        from prime_bench.data.synthetic.fields import SHAPES

        shape = SHAPES[settings.shape]
        columns = {field.name: "categorical" for field in shape.categorical}
        columns |= {field.name: "numeric" for field in shape.numeric}
    else:
        columns = {column.name: column.also or column.role for column in card.columns}
    if name not in columns:
        return f"{card.name} has no column `{name}`{did_you_mean(name, columns)}"
    if (role := columns[name]) in ("label", "numeric"):
        return (
            f"`{name}` is {'the label' if role == 'label' else 'numeric'}; groups are values of a"
            " column with another role: categorical, or dropped if no model is to read it"
        )
    return None


def _flag_value(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ",".join(str(item) for item in value)
    return str(value)


def prepared_tables(data_dir: Path) -> list[tuple[str, Path]]:
    """Data set and folder of every prepared table below `data_dir`; one whose manifest cannot be
    read is left out.
    """
    return [(manifest.dataset, folder) for folder, manifest in _readable(data_dir)]


def _readable(data_dir: Path) -> Iterator[tuple[Path, Manifest]]:
    """Folder and manifest of every prepared table below `data_dir` whose manifest can be read."""
    for path in sorted(data_dir.glob(f"*/{MANIFEST_NAME}")):
        with contextlib.suppress(DataError):
            yield path.parent, Manifest.read(path.parent)


def find_tables(table: str | Path, *, data_dir: Path) -> list[Path]:
    """The folder `table`, or the folders of the data set `table` below `data_dir`, sorted.

    The folder may be named without `data_dir`. A folder of the data set's name that is no prepared
    table, such as that of its raw data, does not hide its tables. Raises DataError where there is
    none.
    """
    if (Path(table) / MANIFEST_NAME).exists():
        return [Path(table)]
    name = str(table)
    if name.endswith(".toml"):
        name = read_card(Path(name)).name if Path(name).exists() else Path(name).stem
    folders = [path.parent for path in sorted(data_dir.glob(f"*/{MANIFEST_NAME}"))]
    names = {folder: Manifest.read(folder).dataset for folder in folders}
    found = [folder for folder in folders if name in (names[folder], folder.name)]
    if found or Path(table).is_dir():
        return found or [Path(table)]
    own = Path(f"{name}.toml")
    if name in card_names() or own.is_file():
        hint = f"`prime-bench prepare {name if name in card_names() else f'{own} --from LOG'}`"
        raise DataError(f"{table}: has no prepared table in {data_dir}", hint=f"{hint} makes it")
    prepared = sorted(set(names.values()))
    raise DataError(
        f"{table}: neither a folder nor a data set with a prepared table in {data_dir}"
        + did_you_mean(name, [*prepared, *card_names()]),
        hint=f"prepared tables in {data_dir}: {', '.join(prepared) or 'none'}; "
        "`prime-bench ls datasets` lists what can be prepared",
    )


def told_apart(folders: Sequence[Path]) -> list[str]:
    """Each folder of a table of one data set, with the settings in which the tables differ."""
    settings = [Manifest.read(folder).settings for folder in folders]
    keys = {key: None for table in settings for key in table}
    differing = [key for key in keys if any(t.get(key) != settings[0].get(key) for t in settings)]
    return [
        f"{folder} ({', '.join(f'{key} {_flag_value(table.get(key))}' for key in differing)})"
        if differing
        else str(folder)
        for folder, table in zip(folders, settings, strict=True)
    ]


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

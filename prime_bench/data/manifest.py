"""The manifest of a prepared table: written last, so a folder that has one is whole."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal

from prime_bench.base.errors import DataError, UsageError
from prime_bench.base.files import write_whole
from prime_bench.base.identity import digest
from prime_bench.settings.model import Settings

MANIFEST_NAME = "manifest.json"
SCHEMA_NAME = "schema.json"
VOCABULARY_FOLDER = "vocabulary"
MANIFEST_SCHEMA: Final = 1
_ADVICE = "prepare the table again, which replaces it, or remove its folder"


class SplitCounts(Settings):
    """One number a split."""

    train: int
    valid: int
    test: int

    @property
    def total(self) -> int:
        """Of all three."""
        return self.train + self.valid + self.test


class InputFile(Settings):
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


class BestPossible(Settings):
    """Metrics of the true probabilities, which no model can beat but by luck."""

    auc: float
    logloss: float


class Manifest(Settings):
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

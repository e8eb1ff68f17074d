"""Open a prepared table by its path. Arrays are memory-mapped; nothing but numpy is needed."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from prime_bench.base.errors import DataError, UserError
from prime_bench.base.files import sha256_of
from prime_bench.data.manifest import (
    SCHEMA_NAME,
    SPLIT_NAMES,
    VOCABULARY_FOLDER,
    Manifest,
    resolve,
    table_with,
)
from prime_bench.data.schema import Field, Schema


@dataclass(frozen=True, kw_only=True)
class Split:
    """N rows in file order, as read-only memory maps."""

    ids: np.ndarray
    """(N, C) int32, a column for each categorical field: 0 is PAD, V - 1 is out of vocabulary."""
    numerics: np.ndarray
    """(N, K) float32, a column for each numeric field."""
    labels: np.ndarray
    """(N,) uint8, 0 or 1."""

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True, kw_only=True)
class PreparedTable:
    """A prepared table: its schema, its manifest and three splits."""

    path: Path
    schema: Schema
    manifest: Manifest

    @classmethod
    def open(cls, path: Path | str) -> "PreparedTable":
        """Open the table in the folder `path`.

        Raises DataError, with the command that prepares it, if it is missing or incomplete.
        """
        folder = Path(path)
        try:
            manifest = Manifest.read(folder)
            schema = Schema.read(folder / SCHEMA_NAME)
        except DataError as error:
            raise DataError(error.message, hint=_how_to_prepare(folder)) from error
        table = cls(path=folder, schema=schema, manifest=manifest)
        for name in SPLIT_NAMES:
            table.split(name)
        return table

    def split(self, name: str) -> Split:
        """Map the split `train`, `valid` or `test`. Raises DataError if a file does not fit."""
        n_rows = getattr(self.manifest.rows, name)
        shape = self.schema.shape
        return Split(
            ids=self._map(f"{name}.ids.npy", np.int32, (n_rows, len(shape.vocabulary_sizes))),
            numerics=self._map(f"{name}.numerics.npy", np.float32, (n_rows, shape.n_numeric)),
            labels=self._map(f"{name}.labels.npy", np.uint8, (n_rows,)),
        )

    def values(self, field: Field) -> list[str]:
        """The value of each id of a categorical field, (V,).

        PAD and out-of-vocabulary are `(padding)` and `(out of vocabulary)`. Raises DataError if the
        vocabulary file is missing or has another length than the schema says.
        """
        path = self.path / VOCABULARY_FOLDER / f"{field.name}.txt"
        try:
            lines = path.read_bytes().decode("utf-8", "replace").split("\n")
        except OSError as error:
            raise DataError(
                f"{path}: cannot be read: {error}", hint=_how_to_prepare(self.path)
            ) from error
        values = ["(padding)", *lines[:-1], "(out of vocabulary)"]
        if len(values) != field.vocabulary_size:
            raise DataError(
                f"{path}: has {len(values) - 2} values, the schema {field.vocabulary_size} ids",
                hint=f"delete the folder and {_how_to_prepare(self.path)}",
            )
        return values

    def check_contents(self) -> None:
        """Compare the SHA-256 of every file with the manifest, which takes seconds per gigabyte.

        Raises DataError for the first file that has changed since the table was prepared.
        """
        for name, digest in self.manifest.outputs.items():
            path = self.path / name
            try:
                found = sha256_of(path)
            except OSError as error:
                raise DataError(
                    f"{path}: cannot be read: {error}", hint=_how_to_prepare(self.path)
                ) from error
            if found != digest:
                raise DataError(
                    f"{path}: was changed since it was prepared (SHA-256 {found[:12]}..., the"
                    f" manifest has {digest[:12]}...)",
                    hint=f"delete the folder and {_how_to_prepare(self.path)}",
                )

    def _map(self, name: str, dtype: type, shape: tuple[int, ...]) -> np.ndarray:
        path = self.path / name
        try:
            # An array without elements cannot be mapped.
            array: np.ndarray = np.load(
                path, mmap_mode=None if 0 in shape else "r", allow_pickle=False
            )
        except (OSError, ValueError, EOFError) as error:
            raise DataError(
                f"{path}: cannot be read: {error}", hint=_how_to_prepare(self.path)
            ) from error
        if array.dtype != dtype or array.shape != shape:
            raise DataError(
                f"{path}: expected {np.dtype(dtype)} {shape}, found {array.dtype} {array.shape}",
                hint=_how_to_prepare(self.path),
            )
        return array


def check_tables(
    fingerprints: Iterable[str], *, data_dir: Path, log: Callable[[str], None]
) -> Iterator[tuple[Path, str]]:
    """Read the prepared tables with these fingerprints, and yield the folder and fault of each
    whose contents are not those of its manifest.

    A record may outlive its data: `log` is called with a line for each table that is not there.
    """
    for fingerprint in sorted(fingerprints):
        try:
            folder = table_with(fingerprint, data_dir=data_dir)
        except DataError:
            log(f"not checked: no table {fingerprint[:8]} in {data_dir}")
            continue
        try:
            PreparedTable.open(folder).check_contents()
        except DataError as error:
            yield folder, error.message


def _how_to_prepare(folder: Path) -> str:
    """A hint with the command that prepares the table in `folder`, derived from its name."""
    name = folder.name.rpartition("-")[0]
    try:
        spec = resolve(name, {})
    except UserError:
        return "prepare it with `prime-bench prepare`"
    if spec.folder(folder.parent) == folder:
        return f"prepare it with `{spec.prepare_command()}`"
    return f"prepare it with `prime-bench prepare {name}` and the settings of your recipe"

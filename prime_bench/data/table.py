"""Open a prepared table by its path. Arrays are memory-mapped; nothing but numpy is needed.

A table is what its manifest says: the manifest names exactly the files of the schema, the
fingerprint is that of their digests, and `check_contents` reads them. A job holds the files open
and looks at the end whether they are still as they were read (`check_unchanged`).
"""

import functools
import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from pathlib import Path

import numpy as np

from prime_bench.base.errors import DataError, UserError
from prime_bench.base.files import READ_BYTES, open_file
from prime_bench.data.manifest import (
    MANIFEST_NAME,
    SCHEMA_NAME,
    SPLIT_NAMES,
    Manifest,
    fingerprint_of,
    resolve,
    table_with,
    vocabulary_file,
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
    groups: np.ndarray | None = None
    """(N,) int32: the group of each row for the group AUC, 0 without one; None in a table that was
    prepared without `gauc_by`."""

    def __len__(self) -> int:
        return len(self.labels)


class _OpenFile:
    """A file that is held open, so that it can be told whether it was written to. A table that is
    prepared again has other files; those that are open stay what they are.
    """

    def __init__(self, path: Path) -> None:
        with open_file(path) as file:
            self.descriptor = os.dup(file.fileno())
        self.seen = os.fstat(self.descriptor)
        """What the system said of the file when it was opened, or last before it was read whole."""

    def __del__(self) -> None:
        if hasattr(self, "descriptor"):
            os.close(self.descriptor)

    def stat(self) -> os.stat_result:
        """What the system says now."""
        return os.fstat(self.descriptor)

    def blocks(self, *, head_bytes: int, row_bytes: int) -> Iterator[bytes]:
        """The content: the head, and then blocks of whole rows."""
        at, wanted = 0, head_bytes or READ_BYTES
        while block := os.pread(self.descriptor, wanted, at):
            yield block
            at += len(block)
            wanted = max(READ_BYTES // row_bytes, 1) * row_bytes


def _traces(found: os.stat_result) -> tuple[int, ...]:
    # The time of the last change of the inode cannot be set back, as that of the content can.
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


@dataclass(frozen=True, kw_only=True)
class PreparedTable:
    """A prepared table: its schema, its manifest and three splits."""

    path: Path
    schema: Schema
    manifest: Manifest
    _arrays: dict[str, _OpenFile] = dataclass_field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    """The files that are mapped."""
    _head_bytes: dict[str, int] = dataclass_field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    """Bytes before the elements of a mapped file."""
    _checked: dict[str, os.stat_result] = dataclass_field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    """What the system said of each file before it was checked."""
    _splits: dict[str, Split] = dataclass_field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    @classmethod
    def open(cls, path: Path | str) -> "PreparedTable":
        """Open the table in the folder `path`. The arrays' shapes are checked, not what they hold.

        Raises DataError, with the command that prepares it, if it is missing or incomplete, or if
        its manifest contradicts itself.
        """
        folder = Path(path)
        try:
            manifest = Manifest.read(folder)
            schema = Schema.read(folder / SCHEMA_NAME)
        except DataError as error:
            raise DataError(error.message, hint=_how_to_prepare(folder)) from error
        table = cls(path=folder, schema=schema, manifest=manifest)
        table._check_manifest()
        for name in SPLIT_NAMES:
            table.split(name)
        return table

    def split(self, name: str) -> Split:
        """Map the split `train`, `valid` or `test`, once. Raises DataError if a file does not
        fit.
        """
        if name not in self._splits:
            n_rows = getattr(self.manifest.rows, name)
            shape = self.schema.shape
            n_ids = len(shape.vocabulary_sizes)
            self._splits[name] = Split(
                ids=self._map(f"{name}.ids.npy", np.int32, (n_rows, n_ids)),
                numerics=self._map(f"{name}.numerics.npy", np.float32, (n_rows, shape.n_numeric)),
                labels=self._map(f"{name}.labels.npy", np.uint8, (n_rows,)),
                groups=(
                    self._map(f"{name}.groups.npy", np.int32, (n_rows,))
                    if self.manifest.gauc_by
                    else None
                ),
            )
        return self._splits[name]

    def values(self, field: Field) -> list[str]:
        """The value of each id of a categorical field, (V,).

        PAD and out-of-vocabulary are `(padding)` and `(out of vocabulary)`. Raises DataError if the
        vocabulary file is missing or has another length than the schema says.
        """
        path = self.path / vocabulary_file(field.name)
        try:
            with open_file(path) as file:
                lines = file.read().decode("utf-8", "replace").split("\n")
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
        """Compare the SHA-256 of every file with the manifest, and ids and labels with the values
        that they may have. Takes less than a second for a gigabyte in the system's cache.

        Raises DataError for the first file that has changed since the table was prepared, or that
        has values which no table has.
        """
        for name in self.manifest.outputs:
            self._check_file(name)

    def check_unchanged(self) -> None:
        """Check that no array was written to since `check_contents`. Takes microseconds, unless one
        was touched without being written to: it is then read again.

        Raises DataError for the first array that was.
        """
        for name, one in self._arrays.items():
            now = one.stat()
            if (now.st_size, now.st_mtime_ns) != (one.seen.st_size, one.seen.st_mtime_ns):
                raise DataError(
                    f"{self.path / name}: was written to while a job read it",
                    hint="let `prime-bench verify` say whether the table is still as it was "
                    "prepared, then run the recipe again",
                )
            if _traces(now) != _traces(one.seen):
                self._check_file(name)

    def is_current(self) -> bool:
        """Whether the folder has the very files that were checked, and nobody has touched them."""
        try:
            return all(
                _traces((self.path / name).stat()) == _traces(seen)
                for name, seen in self._checked.items()
            )
        except OSError:
            return False

    def _check_manifest(self) -> None:
        """Raise DataError unless the manifest names the files of the schema and no others, and has
        the fingerprint of their digests.
        """
        outputs = self.manifest.outputs
        fault = ""
        if odd := sorted(
            outputs.keys() ^ files_of(self.schema, grouped=bool(self.manifest.gauc_by))
        ):
            names = "names" if odd[0] in outputs else "does not name"
            belongs = "does not belong" if odd[0] in outputs else "belongs"
            fault = f"it {names} {odd[0]}, which {belongs} to the schema"
        elif self.manifest.fingerprint != fingerprint_of(outputs):
            fault = "its fingerprint is not that of the digests of its files"
        if fault:
            raise DataError(
                f"{self.path / MANIFEST_NAME}: was changed since the table was prepared: {fault}",
                hint=f"delete the folder and {_how_to_prepare(self.path)}",
            )

    def _check_file(self, name: str) -> None:
        """Read a file of the table, and compare its SHA-256 and its values with what they must be.
        Raises DataError.
        """
        running, limits = hashlib.sha256(), self._limits(name)
        largest = np.zeros_like(limits)
        try:
            one = self._arrays.get(name) or _OpenFile(self.path / name)
            seen = one.stat()
            blocks = one.blocks(
                head_bytes=self._head_bytes.get(name, 0), row_bytes=limits.nbytes or 1
            )
            for number, block in enumerate(blocks):
                running.update(block)
                # A file that was cut or grew has no whole rows, and another digest.
                if number and len(limits) and len(block) % limits.nbytes == 0:
                    rows = np.frombuffer(block, dtype=limits.dtype).reshape(-1, len(limits))
                    np.maximum(largest, rows.max(axis=0), out=largest)
        except OSError as error:
            raise self._unreadable(name, error) from error
        expected, found = self.manifest.outputs[name], running.hexdigest()
        if found != expected:
            raise DataError(
                f"{self.path / name}: was changed since it was prepared (SHA-256 {found[:12]}...,"
                f" the manifest has {expected[:12]}...)",
                hint=f"delete the folder and {_how_to_prepare(self.path)}",
            )
        if (largest > limits).any():
            raise self._out_of_range(name, column=int((largest > limits).argmax()))
        one.seen = self._checked[name] = seen

    def _limits(self, name: str) -> np.ndarray:
        """The largest value that a column of the array may have, one a column; none for files whose
        values are not bounded. They are unsigned, so that a negative id is above every limit.
        """
        if name.endswith(".ids.npy"):
            return np.array(self.schema.shape.vocabulary_sizes, dtype=np.uint32) - np.uint32(1)
        if name.endswith(".labels.npy"):
            return np.ones(1, dtype=np.uint8)
        return np.zeros(0, dtype=np.uint8)

    def _out_of_range(self, name: str, *, column: int) -> DataError:
        what = "labels other than 0 and 1"
        if name.endswith(".ids.npy"):
            field = self.schema.categorical[column]
            last = (field.vocabulary_size or 0) - 1
            what = f"ids of {field.name} that are not within 0 and {last}"
        return DataError(
            f"{self.path / name}: has {what}",
            hint=f"no table of `prime-bench prepare` has; delete the folder and "
            f"{_how_to_prepare(self.path)}",
        )

    def _unreadable(self, name: str, error: Exception) -> DataError:
        return DataError(
            f"{self.path / name}: cannot be read: {error}", hint=_how_to_prepare(self.path)
        )

    def _map(self, name: str, dtype: type, shape: tuple[int, ...]) -> np.ndarray:
        """Map the array in a file, which is held open. Raises DataError where it does not fit."""
        try:
            one = _OpenFile(self.path / name)
            with open(one.descriptor, "rb", closefd=False) as file:
                version = np.lib.format.read_magic(file)
                read_header = _READ_HEADER[version]
                found, fortran_order, found_dtype = read_header(file)
                head_bytes = file.tell()
                if (found, found_dtype, fortran_order) != (shape, np.dtype(dtype), False):
                    raise DataError(
                        f"{self.path / name}: expected {np.dtype(dtype)} {shape}, found"
                        f" {found_dtype} {found}",
                        hint=_how_to_prepare(self.path),
                    )
                # An array without elements cannot be mapped.
                array = (
                    np.empty(shape, dtype)
                    if 0 in shape
                    else np.memmap(file, dtype=dtype, mode="r", offset=head_bytes, shape=shape)
                )
        except (OSError, ValueError, EOFError, KeyError) as error:
            raise self._unreadable(name, error) from error
        self._arrays[name], self._head_bytes[name] = one, head_bytes
        return array


_READ_HEADER = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


def files_of(schema: Schema, *, grouped: bool) -> set[str]:
    """The files of a table with this schema, except the manifest; `grouped` says whether it has the
    groups of rows.
    """
    parts = ("ids", "numerics", "labels", *(["groups"] if grouped else []))
    arrays = {f"{split}.{part}.npy" for split in SPLIT_NAMES for part in parts}
    vocabularies = {vocabulary_file(field.name) for field in schema.categorical}
    return {SCHEMA_NAME, *arrays, *vocabularies}


def checked_table(path: Path | str) -> PreparedTable:
    """Open the table in the folder `path` and check what it holds, once a process as long as nobody
    touches it. Raises DataError if it is missing, or not as it was prepared.
    """
    table = _checked_table(Path(path))
    if not table.is_current():
        _checked_table.cache_clear()
        table = _checked_table(Path(path))
    return table


@functools.lru_cache(maxsize=8)
def _checked_table(path: Path) -> PreparedTable:
    table = PreparedTable.open(path)
    # An id that was changed on the disk would train without an error, or fail far from its cause.
    table.check_contents()
    return table


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

"""Files of the encoder: coded rows between its passes, and the arrays of the table.

Shapes: n rows of a block, C categorical fields, K numeric fields.
"""

import hashlib
import io
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.lib import format as npy


@dataclass(frozen=True, kw_only=True)
class SpoolBlock:
    """n consecutive rows of a spool, read from disk on demand."""

    spool: "Spool"
    start: int
    """The number of rows before the block."""
    rows: int

    def codes(self) -> np.ndarray:
        """The codes (C, n) int32."""
        width = self.spool.n_codes
        flat = self.spool.load("codes", np.int32, first=self.start * width, count=self.rows * width)
        return flat.reshape(width, self.rows)

    def numerics(self) -> np.ndarray:
        """The numeric values (n, K), of the dtype of the spool."""
        width, dtype = self.spool.n_numerics, self.spool.numeric_dtype
        flat = self.spool.load("numerics", dtype, first=self.start * width, count=self.rows * width)
        return flat.reshape(self.rows, width)

    def labels(self) -> np.ndarray:
        """The labels (n,) uint8."""
        return self.spool.load("labels", np.uint8, first=self.start, count=self.rows)

    def split(self) -> np.ndarray:
        """(n,) int64: the split of each row, as `Chunk.split` had it; its time or its number for a
        split by time or by order.
        """
        return self.spool.load("split", np.int64, first=self.start, count=self.rows)


class Spool:
    """Coded rows in a temporary folder, appended and read block by block."""

    def __init__(
        self, folder: Path, *, n_codes: int, n_numerics: int, numeric_dtype: type[np.floating]
    ) -> None:
        self.folder = folder
        self.n_codes = n_codes
        self.n_numerics = n_numerics
        self.numeric_dtype = numeric_dtype
        self.blocks: list[SpoolBlock] = []
        self.rows = 0
        folder.mkdir()
        self._files = {
            name: (folder / name).open("wb") for name in ("codes", "numerics", "labels", "split")
        }

    def append(
        self, *, codes: np.ndarray, numerics: np.ndarray, labels: np.ndarray, split: np.ndarray
    ) -> None:
        """Add n rows: codes (C, n), numerics (n, K), labels (n,), split (n,)."""
        n_rows = len(labels)
        assert codes.shape == (self.n_codes, n_rows), codes.shape  # noqa: S101
        parts = {
            "codes": codes.astype(np.int32, copy=False),
            "numerics": numerics.astype(self.numeric_dtype, copy=False),
            "labels": labels.astype(np.uint8, copy=False),
            "split": split.astype(np.int64, copy=False),
        }
        for name, array in parts.items():
            self._files[name].write(np.ascontiguousarray(array).data)
        self.blocks.append(SpoolBlock(spool=self, start=self.rows, rows=n_rows))
        self.rows += n_rows

    def load(self, name: str, dtype: type, *, first: int, count: int) -> np.ndarray:
        """Read `count` items of the file `name`, from item `first` on."""
        if count == 0:
            return np.empty(0, dtype=dtype)
        offset = first * np.dtype(dtype).itemsize
        return np.fromfile(self.folder / name, dtype=dtype, count=count, offset=offset)

    def finish(self) -> None:
        """Close the files for writing. To be called after the last `append`."""
        for file in self._files.values():
            file.close()

    def close(self) -> None:
        """Close the files and delete them with their folder. The spool is of no use afterwards."""
        self.finish()
        for name in self._files:
            (self.folder / name).unlink(missing_ok=True)
        self.folder.rmdir()


class ArrayFile:
    """A .npy file of known shape, written row by row and hashed on the way."""

    def __init__(self, path: Path, *, dtype: type, shape: tuple[int, ...]) -> None:
        self.path = path
        self._dtype = np.dtype(dtype)
        self._shape = shape
        self._hash = hashlib.sha256()
        self._rows = 0
        self._file = path.open("wb")
        header = {"descr": npy.dtype_to_descr(self._dtype), "fortran_order": False, "shape": shape}
        start = io.BytesIO()
        npy.write_array_header_1_0(start, header)
        self._file.write(start.getvalue())
        self._hash.update(start.getvalue())

    def append(self, rows: np.ndarray) -> None:
        """Append rows of shape (n, *shape[1:])."""
        assert rows.dtype == self._dtype, rows.dtype  # noqa: S101
        assert rows.shape[1:] == self._shape[1:], rows.shape  # noqa: S101
        if rows.size:
            content = np.ascontiguousarray(rows).data
            self._file.write(content)
            self._hash.update(content)
        self._rows += len(rows)

    def finish(self) -> str:
        """Sync the file to disk and return its SHA-256. All rows must have been appended."""
        assert self._rows == self._shape[0], (self._rows, self._shape)  # noqa: S101
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        return self._hash.hexdigest()

    def close(self) -> None:
        """Close the file, also after an error."""
        self._file.close()

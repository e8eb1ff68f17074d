"""Rows on disk between the passes of the encoder, and the arrays that become the table."""

import hashlib
import io
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.lib import format as npy


@dataclass(frozen=True, kw_only=True)
class SpoolBlock:
    """n rows of the spool."""

    spool: "Spool"
    start: int
    """Rows before it."""
    rows: int

    def codes(self) -> np.ndarray:
        """(C, n) int32."""
        width = self.spool.n_codes
        flat = self.spool.load("codes", np.int32, first=self.start * width, count=self.rows * width)
        return flat.reshape(width, self.rows)

    def numerics(self) -> np.ndarray:
        """(n, K) float32 or float64."""
        width, dtype = self.spool.n_numerics, self.spool.numeric_dtype
        flat = self.spool.load("numerics", dtype, first=self.start * width, count=self.rows * width)
        return flat.reshape(self.rows, width)

    def labels(self) -> np.ndarray:
        """(n,) uint8."""
        return self.spool.load("labels", np.uint8, first=self.start, count=self.rows)

    def split(self) -> np.ndarray:
        """(n,) int64: splits, or the keys that they will be made from."""
        return self.spool.load("split", np.int64, first=self.start, count=self.rows)


class Spool:
    """Blocks of coded rows in a folder of their own; plain reads and writes, not mapped memory."""

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
        """`count` items of one of the files, from item `first` on."""
        if count == 0:
            return np.empty(0, dtype=dtype)
        offset = first * np.dtype(dtype).itemsize
        return np.fromfile(self.folder / name, dtype=dtype, count=count, offset=offset)

    def finish(self) -> None:
        """No more rows will come."""
        for file in self._files.values():
            file.close()

    def close(self) -> None:
        """Delete the files."""
        self.finish()
        for name in self._files:
            (self.folder / name).unlink(missing_ok=True)
        self.folder.rmdir()


class ArrayFile:
    """A .npy file of known shape, written in order and hashed on the way."""

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
        """Add rows, shaped (n, *shape[1:])."""
        assert rows.dtype == self._dtype, rows.dtype  # noqa: S101
        assert rows.shape[1:] == self._shape[1:], rows.shape  # noqa: S101
        if rows.size:
            content = np.ascontiguousarray(rows).data
            self._file.write(content)
            self._hash.update(content)
        self._rows += len(rows)

    def finish(self) -> str:
        """Bring it to the disk; the SHA-256 of the file."""
        assert self._rows == self._shape[0], (self._rows, self._shape)  # noqa: S101
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        return self._hash.hexdigest()

    def close(self) -> None:
        """Close it, whatever happened."""
        self._file.close()

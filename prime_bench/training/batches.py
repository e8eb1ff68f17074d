"""Batches: the rows of a split on the model's device, and the order in which an epoch reads them.

Shapes: N rows of a split, B rows of a batch, C categorical and K numeric fields.
"""

import hashlib
import os
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from prime_bench.base.streams import derive
from prime_bench.data.prefetch import prefetch
from prime_bench.data.table import Split
from prime_bench.settings.memory import JOBS_ON_DEVICE, rows_fit
from prime_bench.settings.training import joins_last_row
from prime_bench.training.device import device_bytes

_COPY_ROWS = 1 << 20


@dataclass(frozen=True)
class Batch:
    """B rows on the model's device."""

    ids: Tensor
    """(B, C) int32."""
    numerics: Tensor
    """(B, K) float32."""
    labels: Tensor
    """(B,) uint8."""


class Rows:
    """The rows of a split, gathered into batches. The whole split is copied to the GPU if it fits
    (`settings.memory.rows_fit`); otherwise a thread reads batches ahead from the memory maps.
    """

    def __init__(self, split: Split, *, device: torch.device) -> None:
        self._arrays = (split.ids, split.numerics, split.labels)
        self._device = device
        self._resident = (
            tuple(_moved(array, device) for array in self._arrays)
            if _fits(self._arrays, device)
            else None
        )

    def __len__(self) -> int:
        return len(self._arrays[2])

    @property
    def labels(self) -> np.ndarray:
        """Labels (N,) uint8, in the order of the file."""
        return self._arrays[2]

    def shuffled(self, order: Tensor, *, batch_size: int) -> Iterator[Batch]:
        """Iterate over the rows in `order` (N,), in batches with the bounds of `batch_bounds`."""
        bounds = batch_bounds(len(order), batch_size)
        if self._resident is not None:
            order = order.to(self._device)
            for start, stop in bounds:
                rows = order[start:stop]
                yield Batch(*(column.index_select(0, rows) for column in self._resident))
            return
        places = order.numpy()
        # The next batch is read from the disk while the model trains on this one.
        with prefetch(self._gathered(places[start:stop]) for start, stop in bounds) as batches:
            for host in batches:
                yield self._sent(host)

    def in_order(self, *, batch_size: int) -> Iterator[Batch]:
        """Iterate over the rows in the order of the file; the last batch may have a single row."""
        for start in range(0, len(self), batch_size):
            rows = slice(start, start + batch_size)
            if self._resident is not None:
                yield Batch(*(column[rows] for column in self._resident))
            else:
                yield self._sent(self._pinned(np.array(array[rows]) for array in self._arrays))

    def _gathered(self, places: np.ndarray) -> tuple[Tensor, ...]:
        return self._pinned(array.take(places, axis=0) for array in self._arrays)

    def _pinned(self, columns: Iterable[np.ndarray]) -> tuple[Tensor, ...]:
        tensors = (torch.from_numpy(column) for column in columns)
        # The host does not wait for the copy of pinned memory.
        return tuple(t.pin_memory() if self._device.type == "cuda" else t for t in tensors)

    def _sent(self, columns: tuple[Tensor, ...]) -> Batch:
        return Batch(*(column.to(self._device, non_blocking=True) for column in columns))


def row_order(n_rows: int, *, seed: int, epoch: int) -> Tensor:
    """The order (N,) int64 in which epoch `epoch`, counted from 1, reads the train rows.

    It is drawn on the CPU from a random stream of its own, so it is a function of the three numbers
    alone, whatever the device.
    """
    generator = torch.Generator().manual_seed(derive(seed, f"row-order/{epoch}"))
    return torch.randperm(n_rows, generator=generator)


class RowOrders:
    """The row orders of a run, each drawn in a thread while the epoch before it is trained: that
    takes a second or two for the rows of a published data set, in which a GPU would wait.
    """

    def __init__(self, n_rows: int, *, seed: int) -> None:
        self._n_rows, self._seed = n_rows, seed
        self._pool = ThreadPoolExecutor(max_workers=1)
        self._next: tuple[int, Future[Tensor]] | None = None

    def of(self, epoch: int, *, last: bool) -> Tensor:
        """The order (N,) of epoch `epoch`; unless it is the `last`, the next one is begun."""
        begun = self._next if self._next is not None and self._next[0] == epoch else None
        order = self._begun(epoch).result() if begun is None else begun[1].result()
        self._next = None if last else (epoch + 1, self._begun(epoch + 1))
        return order

    def close(self) -> None:
        """End the thread, without waiting for an order that nobody needs."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _begun(self, epoch: int) -> Future[Tensor]:
        return self._pool.submit(row_order, self._n_rows, seed=self._seed, epoch=epoch)


def row_order_digest(order: Tensor) -> str:
    """SHA-256 of a row order as little-endian int64, 64 hex digits."""
    return hashlib.sha256(order.numpy().astype("<i8", copy=False).tobytes()).hexdigest()


def batch_bounds(n_rows: int, batch_size: int) -> list[tuple[int, int]]:
    """Start and end of each batch. A single row left over joins the last batch (fidelity 39)."""
    if n_rows == 0:
        return []
    starts = list(range(0, n_rows, batch_size))
    if joins_last_row(n_rows, batch_size):
        starts.pop()
    return list(zip(starts, [*starts[1:], n_rows], strict=True))


def _fits(arrays: tuple[np.ndarray, ...], device: torch.device) -> bool:
    if device.type != "cuda":
        return False
    return rows_fit(
        sum(array.nbytes for array in arrays),
        total_bytes=device_bytes(device),
        jobs=int(os.environ.get(JOBS_ON_DEVICE, "1")),
    )


def _moved(array: np.ndarray, device: torch.device) -> Tensor:
    """Copy an array to the device in blocks, so that the host never holds a second copy of it."""
    dtype = torch.from_numpy(np.empty(0, dtype=array.dtype)).dtype
    moved = torch.empty(array.shape, dtype=dtype, device=device)
    for start in range(0, len(array), _COPY_ROWS):
        block = np.array(array[start : start + _COPY_ROWS])
        moved[start : start + len(block)].copy_(torch.from_numpy(block))
    return moved

"""How much memory a training run needs at the least, and what is said where that is not there."""

import os
from dataclasses import dataclass
from pathlib import Path

import torch

from prime_bench.base.errors import EnvironmentFault
from prime_bench.settings.interface import Budget, TableShape

# A weight, its gradient, and Adam's two moments, in float32.
_BYTES_A_PARAMETER = 4 * 4
_GIB = 1 << 30
_GROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")


@dataclass(frozen=True, kw_only=True)
class Need:
    """What takes memory in a run, before the first row is read."""

    table_rows: int
    """Embedding rows, all fields together."""
    width: int
    """Numbers an embedding row."""
    parameters: int
    """Trainable parameters, those of the table included."""
    batch_size: int

    @property
    def bytes(self) -> int:
        """Weights, gradients and Adam's moments."""
        return _BYTES_A_PARAMETER * self.parameters

    def fault(self, device: torch.device) -> EnvironmentFault:
        """Out of memory on `device`: the sizes, and what would fit."""
        total = device_bytes(device)
        table = _BYTES_A_PARAMETER * self.table_rows * self.width
        return EnvironmentFault(
            f"out of memory on {device} ({total / _GIB:.1f} GiB): the embedding table of"
            f" {self.table_rows:,} rows x {self.width} x 4 bytes takes {table / _GIB:.2f} GiB with"
            f" its gradient and Adam's two moments, all {self.parameters:,} parameters"
            f" {self.bytes / _GIB:.2f} GiB; a batch of {self.batch_size:,} rows comes on top;"
            f" {self._what_fits(total)}",
            hint="give a job the machine to itself (--slots 1), lower training.batch_size or"
            " training.embedding_dim, raise the data set's min_count, or take a larger device",
        )

    def _what_fits(self, total: int) -> str:
        rest = self.parameters - self.table_rows * self.width
        numbers = (total // _BYTES_A_PARAMETER) - rest
        if self.bytes <= total:
            return f"without the batch that fits into {total / _GIB:.1f} GiB that nothing else uses"
        if numbers < self.width:
            return "no table fits beside the other parameters"
        return (
            f"at this width at most {numbers // self.width:,} rows fit, with these rows a width of"
            f" at most {numbers // self.table_rows}"
        )


def need_of(budget: Budget, shape: TableShape, *, embedding_dim: int, batch_size: int) -> Need:
    """What a run of this size needs."""
    return Need(
        table_rows=shape.embedding_rows,
        width=embedding_dim,
        parameters=budget.backbone_parameters + budget.plugin_parameters,
        batch_size=batch_size,
    )


def device_bytes(device: torch.device) -> int:
    """All memory of the device; of the CPU, what this process may use."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        return min(physical, int(_GROUP_LIMIT.read_text(encoding="ascii")))
    except (OSError, ValueError):
        return physical  # no limit, or none that can be read


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an allocation failed, on whatever device."""
    # The CPU's allocator has no exception of its own.
    told = isinstance(error, RuntimeError) and "can't allocate memory" in str(error)
    return told or isinstance(error, (MemoryError, torch.OutOfMemoryError))

"""How much memory a training run needs, counted before it reads a row."""

from dataclasses import dataclass

from prime_bench.base.errors import EnvironmentFault
from prime_bench.settings.interface import Budget, TableShape

JOBS_ON_DEVICE = "PRIME_BENCH_JOBS_ON_DEVICE"
"""Environment variable of a worker: how many jobs share its device. 1 if it is not set."""
ROWS_SHARE = 0.6
"""A split is copied to a GPU if it takes at most this part of the job's share of its memory."""

_GIB = 1 << 30
_FLOAT_BYTES = 4
_ORDER_BYTES = 8
# A weight, its gradient, and Adam's two moments, in float32.
_TRAINED_COPIES = 4
# On the host the best weights come to these, and the copy of all of them that is being saved.
_HOST_COPIES = 8
# On a GPU a graph of the step is compared with eager steps (`training.graph`): weights and moments
# as they were before, and after the eager steps.
_GRAPH_COPIES = 2 * 3
# A layer of 400 units stores a value and a gradient for each 200 to 400 multiply-accumulates.
_ACTIVATIONS_A_MAC = 0.01
# A graph has activations of its own, apart from those of the eager steps.
_ACTIVATIONS_ON_A_GPU = 2
# Python with torch takes 0.37 GB (docs/performance.md); the rest is for a compiler.
_PROCESS_BYTES = 0.7e9
# An assumption until `scripts/gpu_check.sh` has measured it: CUDA's context with its kernels, and
# the work space of cuBLAS.
_CONTEXT_BYTES = 0.8e9


@dataclass(frozen=True, kw_only=True)
class MemoryNeed:
    """The sizes that decide how much memory a training run needs."""

    table_rows: int
    """Embedding rows of all fields together."""
    width: int
    """Numbers in an embedding row."""
    parameters: int
    """Trainable parameters, embedding rows included."""
    macs: int
    """Multiply-accumulates of a row in the forward pass."""
    batch_size: int
    row_bytes: int
    """Bytes of a row in the prepared table: ids, numeric values and label."""
    train_rows: int
    valid_rows: int
    test_rows: int

    @classmethod
    def of(
        cls,
        budget: Budget,
        shape: TableShape,
        *,
        embedding_dim: int,
        batch_size: int,
        train_rows: int,
        valid_rows: int,
        test_rows: int,
    ) -> "MemoryNeed":
        """Count the need of a run with this budget on a table of this shape and these rows."""
        return cls(
            table_rows=shape.embedding_rows,
            width=embedding_dim,
            parameters=budget.backbone_parameters + budget.plugin_parameters,
            macs=budget.backbone_macs + budget.plugin_macs,
            batch_size=batch_size,
            row_bytes=_FLOAT_BYTES * shape.n_fields + 1,
            train_rows=train_rows,
            valid_rows=valid_rows,
            test_rows=test_rows,
        )

    @property
    def trained_bytes(self) -> int:
        """Bytes of weights, gradients and Adam's two moments: what no run can do without."""
        return _FLOAT_BYTES * _TRAINED_COPIES * self.parameters

    @property
    def activation_bytes(self) -> int:
        """Bytes of a batch's activations and their gradients, roughly."""
        return round(_FLOAT_BYTES * _ACTIVATIONS_A_MAC * self.macs * self.batch_size)

    @property
    def host_bytes(self) -> int:
        """Bytes of a worker that trains on the CPU, without the pages of the table that it maps."""
        weights = _FLOAT_BYTES * _HOST_COPIES * self.parameters
        # The order of an epoch's rows, and that of the next.
        orders = 2 * _ORDER_BYTES * self.train_rows
        return round(_PROCESS_BYTES + weights + self.activation_bytes + orders)

    def gpu_bytes(self, total_bytes: int) -> int:
        """Bytes of a worker on a GPU with a memory of `total_bytes`: context, weights, gradients
        and moments, their copies while a graph is verified, activations, row order, and the rows
        if they fit.
        """
        weights = _FLOAT_BYTES * (_TRAINED_COPIES + _GRAPH_COPIES) * self.parameters
        order = _ORDER_BYTES * self.train_rows
        activations = _ACTIVATIONS_ON_A_GPU * self.activation_bytes
        needed = round(_CONTEXT_BYTES + weights + activations + order)
        largest = self.row_bytes * max(self.train_rows, self.valid_rows, self.test_rows)
        if not rows_fit(largest, total_bytes=total_bytes, jobs=1):
            return needed
        # Train and valid rows are held while the model trains, valid and test rows afterwards.
        held = self.row_bytes * (self.valid_rows + max(self.train_rows, self.test_rows))
        return max(needed + held, round(largest / ROWS_SHARE))

    def fault(self, device: str, *, total_bytes: int) -> EnvironmentFault:
        """The error for a run that does not fit on `device`: its sizes, and what would fit."""
        table = _FLOAT_BYTES * _TRAINED_COPIES * self.table_rows * self.width
        return EnvironmentFault(
            f"out of memory on {device} ({total_bytes / _GIB:.1f} GiB): the embedding table of"
            f" {self.table_rows:,} rows x {self.width} x 4 bytes takes {table / _GIB:.2f} GiB with"
            f" its gradient and Adam's two moments, all {self.parameters:,} parameters"
            f" {self.trained_bytes / _GIB:.2f} GiB; a batch of {self.batch_size:,} rows comes on"
            f" top; {self._what_fits(total_bytes)}",
            hint="give a job the machine to itself (--slots 1), lower training.batch_size or"
            " training.embedding_dim, raise the data set's min_count, or take a larger device",
        )

    def _what_fits(self, total_bytes: int) -> str:
        rest = self.parameters - self.table_rows * self.width
        numbers = (total_bytes // (_FLOAT_BYTES * _TRAINED_COPIES)) - rest
        if self.trained_bytes <= total_bytes:
            return (
                f"without the batch that fits into {total_bytes / _GIB:.1f} GiB that nothing else"
                " uses"
            )
        if numbers < self.width:
            return "no table fits beside the other parameters"
        return (
            f"at this width at most {numbers // self.width:,} rows fit, with these rows a width of"
            f" at most {numbers // self.table_rows}"
        )


def rows_fit(n_bytes: int, *, total_bytes: int, jobs: int) -> bool:
    """Whether a split of `n_bytes` is copied to a GPU of `total_bytes` that `jobs` jobs share.

    It depends on these numbers alone, and not on what other processes have taken by now.
    """
    return n_bytes <= ROWS_SHARE * total_bytes / jobs


# Parts of the messages with which torch and CUDA say that memory does not suffice.
_OUT_OF_MEMORY = (
    "out of memory",  # torch's allocator on a GPU; CUDA, also while it makes its context
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
    "CUSPARSE_STATUS_ALLOC_FAILED",
    "CUSPARSE_STATUS_INSUFFICIENT_RESOURCES",
    "CUDA_ERROR_OUT_OF_MEMORY",
    "can't allocate memory",  # torch's allocator on the CPU
    "Cannot allocate memory",  # the operating system
    "std::bad_alloc",
    "MemoryError",
)


def says_out_of_memory(text: str) -> bool:
    """Whether the message of an error, or the last words of a process, tell of a failed
    allocation.
    """
    return any(part in text for part in _OUT_OF_MEMORY)

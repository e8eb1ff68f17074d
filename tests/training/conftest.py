"""Small tables and jobs that the training tests share."""

import contextlib

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from prime_bench.catalog import BACKBONES, PLUGINS
from prime_bench.data.schema import Field, Schema
from prime_bench.data.table import Split
from prime_bench.recipe.job import Job
from prime_bench.settings.training import TrainSpec

SIZES = (7, 12, 5)
NUMERIC = 2


@pytest.fixture(scope="session")
def schema():
    """Three categorical fields with two numeric ones between them."""
    categorical = [
        Field(name=f"c{i}", kind="categorical", vocabulary_size=size)
        for i, size in enumerate(SIZES)
    ]
    numeric = [Field(name=f"n{i}", kind="numeric") for i in range(NUMERIC)]
    return Schema(fields=[categorical[0], numeric[0], *categorical[1:], numeric[1]])


@pytest.fixture(scope="session")
def make_split():
    """Rows whose labels depend on the fields, so that there is something to learn."""

    def make(n_rows, *, seed=0):
        random = np.random.default_rng(seed)
        ids = np.stack([random.integers(1, size, n_rows) for size in SIZES], axis=1)
        numerics = random.normal(size=(n_rows, NUMERIC))
        logit = (ids[:, 0] % 3 - 1) + np.where(ids[:, 1] > 6, 1, -1) * numerics[:, 0] - 0.7
        return Split(
            ids=ids.astype(np.int32),
            numerics=numerics.astype(np.float32),
            labels=(random.random(n_rows) < 1 / (1 + np.exp(-logit))).astype(np.uint8),
        )

    return make


@pytest.fixture(scope="session")
def make_job():
    """A resolved job over the table `t`."""

    def make(backbone="DNN", plugin="dense", *, seed=2021, training=None, **settings):
        widths = {"DNN": "hidden_units", "DCNv2": "parallel_dnn_hidden_units"}[backbone]
        table = {"embedding_dim": 4, widths: [8, 6], **settings}
        small = {"prime": {"bags": 2, "experts_per_bag": 3, "rank": 2}}.get(plugin, {})
        return Job(
            fingerprint="t",
            backbone=backbone,
            backbone_settings=BACKBONES[backbone].settings.parse(table, where="").plain(),
            plugin=plugin,
            plugin_settings=PLUGINS[plugin].settings.parse(small, where="").plain(),
            training=TrainSpec.parse(training or {}, where="training"),
            seed=seed,
        )

    return make


class Tape(TorchDispatchMode):
    """Collects the operations of a function, to repeat them on the same memory as a CUDA graph
    does: numbers are those of the recording, and no Python code of the function runs again.

    All tensors of the recording are kept, so that none of their memory is used for another. What
    CUDA cannot capture is refused: an operation that hands a number to the host, and one that draws
    from a generator other than torch's global one.
    """

    WAITING = {"_local_scalar_dense", "item", "nonzero", "masked_select", "_unique2", "equal"}

    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name = func.overloadpacket.__name__
        if name in self.WAITING or kwargs.get("generator") is not None:
            raise RuntimeError(f"{name}: operation not permitted when stream is capturing")
        out = func(*args, **kwargs)
        # `contiguous` and `reshape`, which are seen as such without gradients, may copy.
        if not func.is_view or self.memory(out).isdisjoint(self.memory([*args, *kwargs.values()])):
            self.calls.append((func, args, kwargs, out))
        return out

    def memory(self, value):
        """Addresses of the memory behind the tensors of a value."""
        if isinstance(value, torch.Tensor):
            return {value.untyped_storage().data_ptr()}
        parts = value if isinstance(value, (tuple, list)) else []
        return set().union(*map(self.memory, parts))

    def repeat(self):
        with torch.no_grad():
            for func, args, kwargs, out in self.calls:
                again = func(*args, **kwargs)
                if func._schema.is_mutable:
                    continue
                outs, agains = (x if isinstance(x, (tuple, list)) else [x] for x in (out, again))
                for old, new in zip(outs, agains, strict=True):
                    if isinstance(old, torch.Tensor):
                        old.copy_(new)


class TapeCapture:
    """A `Capture` on the CPU. `last` is the tape that it has made last."""

    Tape = Tape

    def stream(self, use):  # noqa: ARG002
        return contextlib.nullcontext()

    def __call__(self, function, use):  # noqa: ARG002
        self.last = Tape()
        with self.last:
            function()
        return self.last.repeat


@pytest.fixture
def tape():
    return TapeCapture()

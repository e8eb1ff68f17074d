"""Forward passes as a deployment would run them: evaluation mode, no gradients, and so none of what
a plug-in does in training alone.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from prime_bench.findings import Form
from prime_bench.plugins.attach import ArmModel
from prime_bench.training.batches import Batch
from prime_bench.training.device import compiled

Forward = Callable[[Batch], Tensor]
"""Click probabilities (B,) of a batch; the tensor may be overwritten by the next call."""

_RUNS_BEFORE_CAPTURE = 3


def forms_on(device: torch.device, *, with_compiled: bool) -> tuple[Form, ...]:
    """The forms that a device has, and on request `torch.compile`, which takes minutes."""
    on_device: tuple[Form, ...] = ("eager", "graph") if device.type == "cuda" else ("eager",)
    return (*on_device, "compiled") if with_compiled else on_device


def forward_of(arm: ArmModel, form: Form, *, like: Batch) -> Forward:
    """The arm's forward pass for batches of the size of `like`. Call it in inference mode."""
    if form == "graph":
        return _GraphedForward(arm, like)
    run: Any = compiled(arm, device=like.ids.device) if form == "compiled" else arm
    return lambda batch: run(batch.ids, batch.numerics)


class _GraphedForward:
    """Copies a batch to where the graph reads, and replays the graph: one launch in all."""

    def __init__(self, arm: ArmModel, like: Batch) -> None:
        self._ids, self._numerics = like.ids.clone(), like.numerics.clone()
        # What a first call sets up, such as a library's workspace, must not be part of the graph.
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(_RUNS_BEFORE_CAPTURE):
                arm(self._ids, self._numerics)
        torch.cuda.current_stream().wait_stream(stream)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._out: Tensor = arm(self._ids, self._numerics)

    def __call__(self, batch: Batch) -> Tensor:
        """Said in `Forward`."""
        self._ids.copy_(batch.ids)
        self._numerics.copy_(batch.numerics)
        self._graph.replay()
        return self._out

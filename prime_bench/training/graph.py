"""CUDA graphs of the training step and of the forward pass.

A training step of a small model is hundreds of kernels, each of which the host must launch; a
graph launches all of them at once. It repeats the same kernels on the same memory and runs no
Python code, so whatever changes from step to step must be in a tensor that keeps its memory. That
is not taken on trust: the first steps are done both ways from the same state, and the graph is
used only if all bits agree. A job's result is therefore the same with and without graphs, and they
are no part of its identity.

Nothing but `CudaCapture` depends on CUDA. Tests capture on the CPU, with another `Capture`.
"""

import functools
import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Tensor, nn

from prime_bench.plugins.attach import ArmModel
from prime_bench.plugins.interface import StreamValue
from prime_bench.training.batches import Batch
from prime_bench.training.optimizer import Optimizer

GraphUse = Literal["step", "forward"]


class Capture(Protocol):
    """Makes graphs on one device."""

    def stream(self, use: GraphUse) -> AbstractContextManager[object]:
        """A context in which a function is called before it is captured for this use."""

    def __call__(self, function: Callable[[], None], use: GraphUse) -> Callable[[], None]:
        """Take a function that has been called before, run its Python code once, and return a
        function that repeats its operations on the same memory. Whether the code has had its effect
        is undefined.
        """


# The first calls set up the workspaces of libraries, and compile what is to be compiled.
_TRIED_CALLS = 3


class CudaCapture:
    """The `Capture` of a CUDA device: what it gives is the `replay` of a CUDA graph."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        # Functions that autograd has met on another stream must not end the capture.
        if hasattr(torch.autograd.graph, "set_override_stale_capture_stream"):
            torch.autograd.graph.set_override_stale_capture_stream(True)

    @contextmanager
    def stream(self, use: GraphUse) -> Iterator[None]:
        """The stream of the capture, after the current one and before what follows on it."""
        current, own = torch.cuda.current_stream(self._device), _stream_for(self._device, use)
        own.wait_stream(current)
        try:
            with torch.cuda.stream(own):
                yield
        finally:  # after a failure the state is put back on the current stream
            current.wait_stream(own)

    def __call__(self, function: Callable[[], None], use: GraphUse) -> Callable[[], None]:
        """Capture the function."""
        gc.collect()  # a cycle that is collected during the capture would free memory in it
        graph, current = torch.cuda.CUDAGraph(), torch.cuda.current_stream(self._device)
        try:
            # Other threads may use the device meanwhile: they save a state, or pin a batch.
            with torch.cuda.graph(
                graph, stream=_stream_for(self._device, use), capture_error_mode="thread_local"
            ):
                function()
        finally:
            torch.cuda.set_stream(current)  # torch leaves another one after a failed capture
        return graph.replay


@functools.cache
def _stream_for(device: torch.device, use: GraphUse) -> torch.cuda.Stream:  # noqa: ARG001  # a key
    """The stream of a use. When a graph is destroyed, torch frees the workspaces of its stream,
    which other graphs of that stream still need (pytorch issue 193402). So steps, whose graph is
    replaced during a run, have a stream of their own.
    """
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


def capture_on(device: torch.device) -> Capture | None:
    """How functions are captured on a device; None where they are not."""
    return CudaCapture(device) if device.type == "cuda" else None


class GraphedStep:
    """The steps of an optimizer, as a graph for batches with as many rows as the first one.

    Other batches, such as the last one of an epoch, are stepped eagerly on the same state. After a
    change of the learning rate the graph is captured again. If a step cannot be captured, or the
    graph gives other bits, then all steps are eager.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        *,
        capture: Capture | None,
        log: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`log` is called once with the reason if a graph was wanted and all steps are eager."""
        self._optimizer, self._capture, self._log = optimizer, capture, log
        self._n_rows: int | None = None
        self._graph: _StepGraph | None = None
        self.why = "" if capture is not None else "not captured on this device"
        """Why all steps are eager; empty if they are not."""

    @property
    def active(self) -> bool:
        """Whether there is a graph."""
        return self._graph is not None

    def __call__(self, batch: Batch) -> Tensor:
        """As `Optimizer.step`. The next call may overwrite the returned tensor."""
        self._n_rows = self._n_rows or len(batch.labels)
        if self.why or len(batch.labels) != self._n_rows:
            return self._optimizer.step(batch)
        if self._graph is None or self._graph.version != self._optimizer.version:
            self._graph = None  # frees its memory before the next one takes as much
            try:
                self._graph = self._captured(batch)
            except (NotCaptured, RuntimeError) as error:
                # torch reports a failed capture, like a lack of memory, by a RuntimeError. If the
                # model itself fails, the eager step raises the same error.
                self._is_eager(str(error).partition("\n")[0])
            if self._graph is None:  # after the error, which keeps the copies of the state alive
                return self._optimizer.step(batch)
        if why := self._graph.begin_step():
            self._graph = None
            self._is_eager(why)
            return self._optimizer.step_on_device(batch)
        return self._graph.step_on_device(batch)

    def _is_eager(self, why: str) -> None:
        """All further steps are eager."""
        self.why = why
        self._log(f"training steps are not a CUDA graph: {why}")

    def _captured(self, batch: Batch) -> "_StepGraph":
        """A graph of the next step, compared with eager steps; the state stays as it is.

        Raises NotCaptured where they differ, or where a graph cannot repeat the step.
        """
        assert self._capture is not None  # noqa: S101
        graph, state = _StepGraph(self._optimizer, batch), _State(self._optimizer)
        before, kept = state.copy(), False
        state.restore(before)  # what cannot be put back raises here, before it has changed
        try:
            self._step_eagerly(graph, state, capture=self._capture)
            eager = state.copy()
            state.restore(before)
            graph.prepare()
            graph.watch(but=state.host_numbers)
            graph.repeat = self._capture(graph.on_device, "step")
            state.restore(before)
            for _ in range(_TRIED_CALLS):
                if why := graph.begin_step():
                    raise NotCaptured(why)
                graph.step_on_device(batch)
            if not state.equals(eager):
                raise NotCaptured(f"{_TRIED_CALLS} steps of the graph and eager ones differ")
            kept = True
        finally:
            if not kept:
                state.put_back()
            state.restore(before)
        return graph

    def _step_eagerly(self, graph: "_StepGraph", state: "_State", *, capture: Capture) -> None:
        """Do the tried steps of the graph's batch, and find the numbers that only the host changes.

        Raises NotCaptured where a step changes or reads what a graph does not.
        """
        model = self._optimizer.model
        with capture.stream("step"):
            for call in range(_TRIED_CALLS):
                numbers = _python_numbers(model)
                graph.prepare()
                prepared = _python_numbers(model)
                # A graph has the numbers of its capture, so it may read none of these.
                state.host_numbers = _differing(numbers, prepared)
                hidden = state.host_numbers if call == _TRIED_CALLS - 1 else []
                with _hidden(model, hidden):
                    graph.on_device()
        if changed := _differing(prepared, _python_numbers(model)):
            raise NotCaptured(
                f"{changed[0]} is a Python number that a training step changes, which a graph"
                " does not: keep it in a buffer"
            )
        if replaced := state.replaced():
            raise NotCaptured(
                f"a training step puts another tensor in the place of {replaced}, where a graph"
                " does not find it: change it in place"
            )


class GraphedForward:
    """An arm's forward pass as a graph, for batches with as many rows as `like`. The weights are
    read where they are, so they may change in place, but the arm must stay in the mode that it is
    in.

    Raises NotCaptured if the graph gives other bits, and RuntimeError if the arm cannot be
    captured.
    """

    def __init__(self, arm: ArmModel, like: Batch, *, capture: Capture) -> None:
        self._arm, self._batch = arm, _copied(like)
        with capture.stream("forward"):
            for _ in range(_TRIED_CALLS):
                self._forward()
        eager = self._out.clone()
        self._repeat = capture(self._forward, "forward")
        if not _same_bits(self(like), eager):
            raise NotCaptured("the graph and an eager forward pass differ")

    def __call__(self, batch: Batch) -> Tensor:
        """Click probabilities (B,), which the next call overwrites."""
        _copy_into(self._batch, batch)
        self._repeat()
        return self._out

    def _forward(self) -> None:
        self._out: Tensor = self._arm(self._batch.ids, self._batch.numerics)


class NotCaptured(Exception):
    """Something cannot be a graph; the text says why."""


class _StepGraph:
    """A captured step: the tensors that it reads its batch from, and those that it gives."""

    repeat: Callable[[], None]

    def __init__(self, optimizer: Optimizer, batch: Batch) -> None:
        self._optimizer, self._batch, self.version = optimizer, _copied(batch), optimizer.version
        self._watched: list[tuple[str, Mapping[str, object], str, object]] = []

    def prepare(self) -> None:
        """What the host does before a step of the graph's batch."""
        self._optimizer.begin_step(len(self._batch.labels))

    def on_device(self) -> None:
        """The eager step, on the graph's own batch."""
        self._loss = self._optimizer.step_on_device(self._batch)

    def step_on_device(self, batch: Batch) -> Tensor:
        """As `Optimizer.step_on_device`, by the graph."""
        _copy_into(self._batch, batch)
        self.repeat()
        return self._loss

    def watch(self, *, but: Sequence[str]) -> None:
        """Remember the plug-in's tensors, and its Python numbers other than `but`."""
        for path, module in self._optimizer.model.named_modules():
            if f"{path}.".startswith("plugin."):
                for own in (module.__dict__, module._buffers):
                    for key, value in own.items():
                        if isinstance(value, (Tensor, *_NUMBERS)) and f"{path}.{key}" not in but:
                            self._watched.append((f"{path}.{key}", own, key, value))

    def begin_step(self) -> str:
        """As `Optimizer.begin_step`. Returns why the graph does not do this step; empty if it does.

        A graph has the numbers and the memory of its capture, and host code such as `prepare_batch`
        may have put others in their place.
        """
        before = [own.get(key) for _, own, key, _ in self._watched]
        self.prepare()
        for old, (name, own, key, captured) in zip(before, self._watched, strict=True):
            now = own.get(key)
            if now is captured:
                continue
            if not isinstance(captured, Tensor):
                if now != captured:
                    return f"{name}, a Python number, has changed: keep it in a buffer"
            elif now is not old:  # what `forward` replaces is a result of the step
                return f"{name} is another tensor after `prepare_batch`: change it in place"
        return ""


@dataclass(frozen=True, kw_only=True)
class _StateCopy:
    """A copy of everything that a step reads and writes."""

    tensors: list[Tensor]
    steps: int
    generators: list[Tensor]
    """States of torch's generators, on the CPU and on the device."""
    streams: Mapping[str, StreamValue]
    """State of the plug-in's own random streams."""
    attributes: Mapping[str, Tensor]
    """Tensors that a module has as plain attributes, by path."""
    numbers: Mapping[str, object]
    """`_python_numbers` of the model."""


class _State:
    """Everything that a step reads and writes."""

    host_numbers: Sequence[str] = ()
    """Names of the Python numbers that every `Optimizer.begin_step` changes, and no step reads;
    `restore` puts them back too. `GraphedStep` finds them in its tried steps."""

    def __init__(self, optimizer: Optimizer) -> None:
        model = optimizer.model
        self._optimizer, self._plugin, self._device = optimizer, model.plugin, optimizer.device
        self._modules = dict(model.named_modules())
        self._named = {**dict(model.named_parameters()), **dict(model.named_buffers())}
        self._tables = [
            table
            for module in self._modules.values()
            for table in (module.__dict__, module._parameters, module._buffers)
        ]
        self._held = [dict(table) for table in self._tables]
        # Whoever keeps a tensor as a plain attribute may change it in place.
        own = [
            tensor
            for tensor in self._attributes().values()
            if tensor.is_contiguous() and not tensor.is_inference()
        ]
        tensors = [*self._named.values(), *own, *optimizer.tensors()]
        self._tensors = [tensor.detach() for tensor in tensors]

    def copy(self) -> _StateCopy:
        """Copy everything on its device."""
        streams = {} if self._plugin is None else self._plugin.stream_state()
        return _StateCopy(
            tensors=[tensor.clone() for tensor in self._tensors],
            steps=self._optimizer.steps,
            generators=self._generators(),
            streams=_cloned(streams),
            attributes={name: own.detach().clone() for name, own in self._attributes().items()},
            numbers=_python_numbers(self._optimizer.model),
        )

    def equals(self, saved: _StateCopy) -> bool:
        """Whether all bits are those of `saved`."""
        mine, others = [*self._tensors, *self._generators()], [*saved.tensors, *saved.generators]
        # A step may leave the attribute None where a graph leaves what it was prepared with.
        for name, own in self._attributes().items():
            if name in saved.attributes and own.shape == saved.attributes[name].shape:
                mine.append(own.detach())
                others.append(saved.attributes[name])
        return self._optimizer.steps == saved.steps and all(map(_same_bits, mine, others))

    def replaced(self) -> str:
        """The name of a parameter or buffer that is another tensor now; empty if there is none."""
        model = self._optimizer.model
        now = {**dict(model.named_parameters()), **dict(model.named_buffers())}
        names = [*self._named, *(name for name in now if name not in self._named)]
        return next((name for name in names if now.get(name) is not self._named.get(name)), "")

    def put_back(self) -> None:
        """Give each module the attributes, parameters and buffers that it had, the same objects."""
        for table, held in zip(self._tables, self._held, strict=True):
            table.clear()
            table.update(held)

    def restore(self, saved: _StateCopy) -> None:
        """Put all numbers back, in the same memory."""
        torch._foreach_copy_(self._tensors, saved.tensors)
        for name in self.host_numbers:
            path, _, attribute = name.rpartition(".")
            if name in saved.numbers:
                self._modules[path].__dict__[attribute] = saved.numbers[name]
        self._optimizer.steps = saved.steps
        torch.set_rng_state(saved.generators[0])
        if self._device.type == "cuda":
            torch.cuda.set_rng_state(saved.generators[1], self._device)
        if self._plugin is not None:
            self._plugin.load_stream_state(_cloned(saved.streams))

    def _attributes(self) -> dict[str, Tensor]:
        return {
            f"{path}.{name}": value
            for path, module in self._modules.items()
            for name, value in module.__dict__.items()
            if isinstance(value, Tensor) and value.layout == torch.strided
        }

    def _generators(self) -> list[Tensor]:
        found = [torch.get_rng_state()]
        if self._device.type == "cuda":
            found.append(torch.cuda.get_rng_state(self._device))
        return found


def _cloned(streams: Mapping[str, StreamValue]) -> dict[str, StreamValue]:
    return {
        name: value.clone() if isinstance(value, Tensor) else value
        for name, value in streams.items()
    }


def _same_bits(a: Tensor, b: Tensor) -> bool:
    """Whether all bits of two tensors agree, NaN included."""
    return torch.equal(_as_bytes(a), _as_bytes(b))


def _as_bytes(tensor: Tensor) -> Tensor:
    return tensor.contiguous().view(-1).view(torch.uint8)


_NUMBERS = (bool, int, float, str)


def _python_numbers(model: nn.Module) -> dict[str, object]:
    """Every number and text that a module of the model has as an attribute, by its path."""
    return {
        f"{path}.{name}".lstrip("."): value
        for path, module in model.named_modules()
        for name, value in module.__dict__.items()
        if isinstance(value, _NUMBERS)
    }


def _differing(before: Mapping[str, object], after: Mapping[str, object]) -> list[str]:
    """The names whose values differ."""
    names = [*before, *(name for name in after if name not in before)]
    return [name for name in names if before.get(name) != after.get(name)]


@contextmanager
def _hidden(model: nn.Module, names: Sequence[str]) -> Iterator[None]:
    """Take attributes of modules away. Raises NotCaptured if they are read meanwhile."""
    modules, taken = dict(model.named_modules()), []
    for name in names:
        path, _, attribute = name.rpartition(".")
        own = modules[path].__dict__
        if attribute in own:
            taken.append((own, attribute, own.pop(attribute)))
    try:
        yield
    except AttributeError as error:
        raise NotCaptured(
            f"a training step reads {', '.join(names)}, a Python number that `prepare_batch`"
            " changes: keep it in a buffer"
        ) from error
    finally:
        for own, attribute, value in taken:
            own[attribute] = value


def _copied(batch: Batch) -> Batch:
    return Batch(batch.ids.clone(), batch.numerics.clone(), batch.labels.clone())


def _copy_into(own: Batch, batch: Batch) -> None:
    own.ids.copy_(batch.ids)
    own.numerics.copy_(batch.numerics)
    own.labels.copy_(batch.labels)

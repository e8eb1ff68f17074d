"""Training of one arm by FuxiCTR's protocol: epochs, a validation after each, and the stop rule.

The loop gets the train and the valid split and never sees the test split. After each validation the
state of a run can be saved; a run that continues from it gives bitwise the same results.
"""

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, TypedDict

import torch
from torch import Tensor

from prime_bench.base.errors import UsageError
from prime_bench.base.frozen import JsonTable
from prime_bench.base.streams import derive
from prime_bench.data.table import Split
from prime_bench.findings import Routing, Validation
from prime_bench.plugins.attach import ArmModel
from prime_bench.plugins.interface import StreamValue
from prime_bench.recipe.events import EpochProgress
from prime_bench.settings.training import StopRule, StopState, TrainSpec
from prime_bench.training.batches import Batch, RowOrders, Rows, row_order_digest
from prime_bench.training.evaluation import check_labels, predict, score
from prime_bench.training.graph import Capture, GraphedStep
from prime_bench.training.optimizer import Optimizer, OptimizerState, Penalty
from prime_bench.training.progress import ProgressMeter


@dataclass(frozen=True, kw_only=True)
class TrainingSplits:
    """The splits of a table that training may read."""

    train: Split
    valid: Split


@dataclass(frozen=True, kw_only=True)
class TrainResult:
    """The outcome of training. The model holds the best weights."""

    history: list[Validation]
    best_epoch: int | None
    """None if no validation had an AUC; the model then holds its last weights."""
    stopped: Literal["patience", "max_epochs"]
    row_order: str
    """Digest of the row order of epoch 1."""
    weights: dict[str, Tensor]
    """The weights and buffers that the model holds, on the CPU."""
    earlier_s: float
    """Seconds that earlier processes spent on the epochs that this one did not run."""


class StreamState(TypedDict, total=False):
    """State of the random streams that a run draws from."""

    cpu: Tensor
    """State of torch's global generator, as `torch.get_rng_state` gives it."""
    cuda: Tensor
    """That of the device's generator; only on a CUDA device."""
    plugin: Mapping[str, StreamValue]
    """As `Plugin.stream_state`; empty without a plug-in."""


class TrainingState(TypedDict):
    """State of a run between two epochs: tensors, numbers, texts, lists and dicts of them, as
    `torch.save` writes them.
    """

    model: dict[str, Tensor]
    """Weights and buffers after the last epoch, by name."""
    best: dict[str, Tensor] | None
    """The best weights; None if they are those of `model`, or if there are none yet."""
    optimizer: OptimizerState
    rule: StopState
    streams: StreamState
    history: list[JsonTable]
    """The validations so far, one an epoch."""
    row_order: str
    """SHA-256 of the row order of epoch 1, 64 hex digits."""
    wall_s: float
    """Seconds since the run's first step, those of earlier processes included."""


class StateMisfit(Exception):
    """A saved state that was read does not fit the run: it belongs to another one. The model's
    weights are no longer usable. (`checkpoint.StateUnfit`: the file cannot be used at all.)
    """


def train(
    model: ArmModel,
    splits: TrainingSplits,
    spec: TrainSpec,
    *,
    penalty: Penalty,
    seed: int,
    device: torch.device,
    on_progress: Callable[[EpochProgress], None] = lambda _: None,
    on_validation: Callable[[Validation], None] = lambda _: None,
    state: TrainingState | None = None,
    on_state: Callable[[TrainingState], None] = lambda _: None,
    capture: Capture | None = None,
    log: Callable[[str], None] = lambda _: None,
) -> TrainResult:
    """Train `model` in place, move it to `device`, and leave its best weights in it.

    torch's global generators are seeded here; only dropout draws from them. A validation whose
    predictions are not finite counts as a miss, so such a run ends after `patience` of them.

    Args:
        on_progress: Called with the progress of an epoch, at most twice a second.
        on_validation: Called with each validation.
        state: The state after an earlier validation of the same run, to continue from.
        on_state: Called with the run's state after each validation, to save it.
        capture: How steps and predictions become graphs; None runs them eagerly. It changes no bit.
        log: Called with a line on what is worth knowing about the run and changes no result.

    Raises:
        DataError: A split has no rows, or the rows of one class only.
        StateMisfit: `state` belongs to another run.
    """
    check_labels("train", splits.train.labels)
    check_labels("valid", splits.valid.labels)
    with contextlib.closing(
        Training(
            model,
            splits,
            spec,
            penalty=penalty,
            seed=seed,
            device=device,
            on_progress=on_progress,
            capture=capture,
            log=log,
        )
    ) as training:
        if state is not None:
            training.load_state_dict(state)
        while not training.over:
            on_validation(training.run_epoch())
            on_state(training.state_dict())
        return training.finish()


class Training:
    """A run between two epochs. Whatever its next epoch depends on is either held here or a
    function of the seed and the number of the epoch.
    """

    def __init__(
        self,
        model: ArmModel,
        splits: TrainingSplits,
        spec: TrainSpec,
        *,
        penalty: Penalty,
        seed: int,
        device: torch.device,
        on_progress: Callable[[EpochProgress], None],
        capture: Capture | None = None,
        log: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._model = model.to(device).train()
        self._train, self._valid = (
            Rows(split, device=device) for split in (splits.train, splits.valid)
        )
        self._rule, self._optimizer = StopRule(spec), Optimizer(model, spec, penalty=penalty)
        self._capture = capture
        self._step = GraphedStep(self._optimizer, capture=capture, log=log)
        self._orders = RowOrders(len(self._train), seed=seed)
        self._spec, self._device = spec, device
        self._on_progress = on_progress
        self._history: list[Validation] = []
        self._best: dict[str, Tensor] | None = None
        self._row_order = ""
        self._earlier_s = 0.0
        torch.manual_seed(derive(seed, "dropout"))
        self._start = time.perf_counter()

    @property
    def over(self) -> bool:
        """Whether no epoch is left to run."""
        return self._rule.stop or len(self._history) >= self._spec.max_epochs

    def run_epoch(self) -> Validation:
        """Train an epoch, validate, and apply the stop rule."""
        epoch = len(self._history) + 1
        order = self._orders.of(epoch, last=epoch >= self._spec.max_epochs)
        self._row_order = self._row_order or row_order_digest(order)
        self._optimizer.learning_rate = self._rule.learning_rate
        loss = self._train_batches(
            self._train.shuffled(order, batch_size=self._spec.batch_size),
            meter=ProgressMeter(self._on_progress, rows_total=len(self._train), epoch=epoch),
        )
        probabilities = predict(
            self._model, self._valid, batch_size=self._spec.batch_size, capture=self._capture
        )
        found = score(self._valid.labels, probabilities)
        validation = Validation(
            epoch=epoch,
            step=self._optimizer.steps,
            learning_rate=self._optimizer.learning_rate,
            # The loss leaves out rows that are NaN, so it means nothing if there are any.
            train_loss=None if found.auc is None else loss,
            valid_auc=found.auc,
            valid_logloss=found.logloss,
            improved=self._rule.improves(found.auc),
            wall_s=self._earlier_s + time.perf_counter() - self._start,
            routing=_routing_of(self._model),
        )
        self._history.append(validation)
        if validation.improved:
            self._best = weights_of(self._model)
        return validation

    def close(self) -> None:
        """End the thread that draws row orders."""
        self._orders.close()

    def _train_batches(self, batches: Iterator[Batch], *, meter: ProgressMeter) -> float | None:
        """Mean of the batches' losses, or None if it is not finite. Waits for the device once, at
        the end.
        """
        n_batches = 0
        for batch in batches:
            self._step(batch)
            n_batches += 1
            meter.add(len(batch.labels))
        mean = float(self._optimizer.take_loss()) / n_batches
        return mean if math.isfinite(mean) else None

    def finish(self) -> TrainResult:
        """Put the best weights into the model and return the outcome."""
        weights = self._best or weights_of(self._model)
        self._model.load_state_dict(weights)
        return TrainResult(
            history=self._history,
            best_epoch=max((v.epoch for v in self._history if v.improved), default=None),
            stopped="patience" if self._rule.stop else "max_epochs",
            row_order=self._row_order,
            weights=weights,
            earlier_s=self._earlier_s,
        )

    def state_dict(self) -> TrainingState:
        """Everything that the remaining epochs depend on. Tensors are not copied."""
        plugin = self._model.plugin
        streams: StreamState = {
            "cpu": torch.get_rng_state(),
            "plugin": {} if plugin is None else plugin.stream_state(),
        }
        if self._device.type == "cuda":
            streams["cuda"] = torch.cuda.get_rng_state(self._device)
        return {
            "model": dict(self._model.state_dict()),
            # After an improvement the best weights are the model's own: they are stored once.
            "best": None if self._history and self._history[-1].improved else self._best,
            "optimizer": self._optimizer.state_dict(),
            "rule": self._rule.state_dict(),
            "streams": streams,
            "history": [validation.plain() for validation in self._history],
            "row_order": self._row_order,
            "wall_s": self._earlier_s + time.perf_counter() - self._start,
        }

    def load_state_dict(self, state: TrainingState) -> None:
        """Continue after the epochs of `state`, whose tensors may be on another device: weights,
        optimizer, stop rule, random streams and history become those of the state. Raises
        StateMisfit if it belongs to another run.
        """
        try:
            self._model.load_state_dict(state["model"])
            self._optimizer.load_state_dict(state["optimizer"])
            self._rule.load_state_dict(state["rule"])
            self._history = [Validation.parse(line, where="history") for line in state["history"]]
            self._row_order, self._earlier_s = state["row_order"], state["wall_s"]
            improved = bool(self._history) and self._history[-1].improved
            self._best = weights_of(self._model) if improved else state["best"]
            streams = state["streams"]
            if self._model.plugin is not None:
                self._model.plugin.load_stream_state(streams["plugin"])
            torch.set_rng_state(streams["cpu"])
            if self._device.type == "cuda":
                torch.cuda.set_rng_state(streams["cuda"], self._device)
        except (
            AttributeError,
            IndexError,
            KeyError,
            RuntimeError,
            TypeError,
            UsageError,
            ValueError,
        ) as error:
            raise StateMisfit(f"{type(error).__name__}: {error}".splitlines()[0]) from error


def _routing_of(model: ArmModel) -> Routing | None:
    """Statistics of the epoch's routing, or None without routers. Reads the device once."""
    taken = None if model.plugin is None else model.plugin.take_routing()
    if taken is None or not all(bool(part.isfinite().all()) for part in taken):
        return None
    entropy, load = taken
    return Routing(
        entropy=entropy.tolist(),
        effective_experts=entropy.exp().tolist(),
        largest_load=load.amax(dim=1).tolist(),
    )


def weights_of(model: ArmModel) -> dict[str, Tensor]:
    """A copy of all weights and buffers on the CPU."""
    return {name: value.to("cpu", copy=True) for name, value in model.state_dict().items()}

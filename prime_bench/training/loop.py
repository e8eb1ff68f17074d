"""Training of one arm by FuxiCTR's protocol: an epoch, a validation, the stop rule's word on it.

The loop is given the training and the validation rows and never sees the test split. Between two
epochs a run can be saved, and goes on from there with the same bits.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from prime_bench.base.errors import UsageError
from prime_bench.base.streams import derive
from prime_bench.data.table import Split
from prime_bench.findings import Routing, Validation
from prime_bench.plugins.attach import ArmModel
from prime_bench.recipe.events import EpochProgress
from prime_bench.settings.training import TrainSpec
from prime_bench.training.batches import Batch, Rows, row_order, row_order_digest
from prime_bench.training.evaluation import check_labels, predict, score
from prime_bench.training.optimizer import Optimizer, Penalty
from prime_bench.training.progress import ProgressMeter
from prime_bench.training.stopping import StopRule


@dataclass(frozen=True, kw_only=True)
class TrainingSplits:
    """What training may see of a table."""

    train: Split
    valid: Split


@dataclass(frozen=True, kw_only=True)
class TrainResult:
    """What training found. The model holds the best weights."""

    history: list[Validation]
    best_epoch: int | None
    """None where no validation had an AUC: the model then holds its last weights."""
    stopped: Literal["patience", "max_epochs"]
    row_order: str
    """Digest of epoch 1's permutation."""
    weights: dict[str, Tensor]
    """The weights and buffers that the model holds, on the CPU."""
    earlier_s: float
    """Seconds that other processes spent on the epochs that this one did not have to run."""


class StateMisfit(Exception):
    """A saved state is not one of this run; the model is spoilt."""


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
    state: Mapping[str, Any] | None = None,
    checkpoint: Callable[[dict[str, Any]], None] = lambda _: None,
) -> TrainResult:
    """Train `model` in place, move it to `device`, and leave its best weights in it.

    `checkpoint` is given the run's state after each validation, `state` is one of those, to go on
    from. A validation whose output is not finite is a miss like any other, so such a run ends after
    `patience` of them. torch's global generators are seeded here and feed dropout alone. Raises
    DataError where a split has no rows or the validation split one class, StateMisfit for a `state`
    of something else.
    """
    check_labels("train", splits.train.labels)
    check_labels("valid", splits.valid.labels)
    training = Training(
        model, splits, spec, penalty=penalty, seed=seed, device=device, on_progress=on_progress
    )
    if state is not None:
        training.load_state_dict(state)
    while not training.over:
        on_validation(training.run_epoch())
        checkpoint(training.state_dict())
    return training.finish()


class Training:
    """A run between two epochs: what its next epoch depends on is here or a function of the seed
    and the epoch's number.
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
    ) -> None:
        self._model = model.to(device).train()
        self._train, self._valid = (
            Rows(split, device=device) for split in (splits.train, splits.valid)
        )
        self._rule, self._optimizer = StopRule(spec), Optimizer(model, spec, penalty=penalty)
        self._spec, self._seed, self._device = spec, seed, device
        self._on_progress = on_progress
        self._history: list[Validation] = []
        self._best: dict[str, Tensor] | None = None
        self._row_order = ""
        self._earlier_s = 0.0
        torch.manual_seed(derive(seed, "dropout"))
        self._start = time.perf_counter()

    @property
    def over(self) -> bool:
        """Whether there is no epoch to run."""
        return self._rule.stop or len(self._history) >= self._spec.max_epochs

    def run_epoch(self) -> Validation:
        """Train an epoch, validate, and let the stop rule judge."""
        epoch = len(self._history) + 1
        order = row_order(len(self._train), seed=self._seed, epoch=epoch)
        self._row_order = self._row_order or row_order_digest(order)
        self._optimizer.learning_rate = self._rule.learning_rate
        loss = _train_batches(
            self._optimizer,
            self._train.shuffled(order, batch_size=self._spec.batch_size),
            device=self._device,
            meter=ProgressMeter(self._on_progress, rows_total=len(self._train), epoch=epoch),
        )
        probabilities = predict(self._model, self._valid, batch_size=self._spec.batch_size)
        found = score(self._valid.labels, probabilities)
        validation = Validation(
            epoch=epoch,
            step=self._optimizer.steps,
            learning_rate=self._optimizer.learning_rate,
            # The loss leaves out rows that are NaN: where there are any, it says nothing.
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

    def finish(self) -> TrainResult:
        """Put the best weights into the model."""
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

    def state_dict(self) -> dict[str, Any]:
        """All that the epochs to come depend on: tensors, numbers, texts, lists and tables of
        them, for `torch.save`. The tensors are those of the run, no copies.
        """
        plugin = self._model.plugin
        streams: dict[str, Any] = {
            "cpu": torch.get_rng_state(),
            "plugin": {} if plugin is None else plugin.stream_state(),
        }
        if self._device.type == "cuda":
            streams["cuda"] = torch.cuda.get_rng_state(self._device)
        return {
            "model": dict(self._model.state_dict()),
            # The weights of an epoch that improved are the best ones: no need to have them twice.
            "best": None if self._history and self._history[-1].improved else self._best,
            "optimizer": self._optimizer.state_dict(),
            "rule": self._rule.state_dict(),
            "streams": streams,
            "history": [validation.plain() for validation in self._history],
            "row_order": self._row_order,
            "wall_s": self._earlier_s + time.perf_counter() - self._start,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on as the run that gave `state` would. Raises StateMisfit for a state of another."""
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
        except (KeyError, TypeError, ValueError, RuntimeError, UsageError) as error:
            raise StateMisfit(f"{type(error).__name__}: {error}".splitlines()[0]) from error


def _train_batches(
    optimizer: Optimizer, batches: Iterator[Batch], *, device: torch.device, meter: ProgressMeter
) -> float | None:
    """Mean of the batches' losses, None if not finite; the device is waited for at the end."""
    total, n_batches = torch.zeros((), dtype=torch.float64, device=device), 0
    for batch in batches:
        total += optimizer.step(batch)
        n_batches += 1
        meter.add(len(batch.labels))
    mean = float(total) / n_batches
    return mean if math.isfinite(mean) else None


def _routing_of(model: ArmModel) -> Routing | None:
    """The epoch's routing, read from the device once."""
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

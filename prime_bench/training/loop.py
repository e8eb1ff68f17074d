"""Training of one arm by FuxiCTR's protocol: an epoch, a validation, the stop rule's word on it.

The loop is given the training and the validation rows and never sees the test split.
"""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from prime_bench.base.streams import derive
from prime_bench.data.table import Split
from prime_bench.plugins.attach import Arm
from prime_bench.settings.training import TrainSpec
from prime_bench.store.record import Routing, Validation
from prime_bench.training.batches import Batch, Rows, row_order, row_order_digest
from prime_bench.training.evaluation import check_labels, predict, score
from prime_bench.training.optimizer import Optimizer, Penalty
from prime_bench.training.stopping import StopRule

_PROGRESS_EVERY_S = 0.5


@dataclass(frozen=True, kw_only=True)
class TrainingSplits:
    """What training may see of a table."""

    train: Split
    valid: Split


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How far an epoch is; at most two a second."""

    epoch: int
    rows: int
    """Training rows of the epoch that were handed to the device."""
    rows_total: int
    rows_per_s: float
    """Over the epoch so far."""


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


def train(
    model: Arm,
    splits: TrainingSplits,
    spec: TrainSpec,
    *,
    penalty: Penalty,
    seed: int,
    device: torch.device,
    on_event: Callable[[Progress | Validation], None],
) -> TrainResult:
    """Train `model` in place, move it to `device`, and leave its best weights in it.

    A validation whose output is not finite is a miss like any other, so such a run ends after
    `patience` of them. torch's global generators are seeded here and feed dropout alone. Raises
    DataError where a split has no rows or the validation split one class.
    """
    check_labels("train", splits.train.labels)
    check_labels("valid", splits.valid.labels)
    model.to(device).train()
    train_rows, valid_rows = Rows(splits.train, device=device), Rows(splits.valid, device=device)
    rule, optimizer = StopRule(spec), Optimizer(model, spec, penalty=penalty)
    history: list[Validation] = []
    best: dict[str, Tensor] | None = None
    first_order = ""
    torch.manual_seed(derive(seed, "dropout"))
    start = time.perf_counter()
    while not rule.stop and len(history) < spec.max_epochs:
        epoch = len(history) + 1
        order = row_order(len(train_rows), seed=seed, epoch=epoch)
        first_order = first_order or row_order_digest(order)
        optimizer.learning_rate = rule.learning_rate
        batches = train_rows.shuffled(order, batch_size=spec.batch_size)
        meter = _Meter(epoch, rows_total=len(train_rows), on_event=on_event)
        loss = _run_epoch(optimizer, batches, device=device, meter=meter)
        found = score(valid_rows.labels, predict(model, valid_rows, batch_size=spec.batch_size))
        history.append(
            Validation(
                epoch=epoch,
                step=optimizer.steps,
                learning_rate=optimizer.learning_rate,
                # The loss leaves out rows that are NaN: where there are any, it says nothing.
                train_loss=None if found.auc is None else loss,
                valid_auc=found.auc,
                valid_logloss=found.logloss,
                improved=rule.improves(found.auc),
                wall_s=time.perf_counter() - start,
                routing=_routing_of(model),
            )
        )
        best = weights_of(model) if history[-1].improved else best
        on_event(history[-1])
    best = best or weights_of(model)
    model.load_state_dict(best)
    return TrainResult(
        history=history,
        best_epoch=max((v.epoch for v in history if v.improved), default=None),
        stopped="patience" if rule.stop else "max_epochs",
        row_order=first_order,
        weights=best,
    )


class _Meter:
    """Counts an epoch's rows and reports them, without a look at the device."""

    def __init__(
        self, epoch: int, *, rows_total: int, on_event: Callable[[Progress | Validation], None]
    ) -> None:
        self._epoch, self._rows_total, self._on_event = epoch, rows_total, on_event
        self._rows = 0
        self._start = self._reported = time.perf_counter()

    def add(self, n_rows: int) -> None:
        self._rows += n_rows
        now = time.perf_counter()
        if now - self._reported >= _PROGRESS_EVERY_S or self._rows == self._rows_total:
            self._reported = now
            self._on_event(
                Progress(
                    epoch=self._epoch,
                    rows=self._rows,
                    rows_total=self._rows_total,
                    rows_per_s=self._rows / (now - self._start),
                )
            )


def _run_epoch(
    optimizer: Optimizer, batches: Iterator[Batch], *, device: torch.device, meter: _Meter
) -> float | None:
    """Mean of the batches' losses, None if not finite; the device is waited for at the end."""
    total, n_batches = torch.zeros((), dtype=torch.float64, device=device), 0
    for batch in batches:
        total += optimizer.step(batch)
        n_batches += 1
        meter.add(len(batch.labels))
    mean = float(total) / n_batches
    return mean if math.isfinite(mean) else None


def _routing_of(model: Arm) -> Routing | None:
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


def weights_of(model: Arm) -> dict[str, Tensor]:
    """A copy of all weights and buffers on the CPU."""
    return {name: value.to("cpu", copy=True) for name, value in model.state_dict().items()}

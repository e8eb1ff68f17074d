"""A training run as a job: build the model, train it from epoch 1 or from a saved state, score the
best weights, and make the record.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import torch

from prime_bench.assemble import Assembled, build_arm
from prime_bench.base.errors import UsageError
from prime_bench.base.frozen import JsonTable
from prime_bench.data.table import PreparedTable
from prime_bench.findings import Validation
from prime_bench.recipe.events import (
    EpochEvent,
    EpochProgress,
    ProgressEvent,
    RestartedEvent,
    ResumedEvent,
    WorkerEvent,
)
from prime_bench.recipe.job import JobRequest, ResolvedJob
from prime_bench.settings.interface import Budget
from prime_bench.settings.memory import MemoryNeed
from prime_bench.store.record import (
    Environment,
    Pairing,
    Result,
    RunRecord,
    not_finite,
    notes_on_batches,
)
from prime_bench.store.runs import CHECKPOINT, PREDICTIONS, TEST
from prime_bench.training.batches import Rows
from prime_bench.training.checkpoint import (
    JobFolder,
    StateFile,
    StateUnfit,
    load_state,
    one_line,
    save_weights,
)
from prime_bench.training.device import device_bytes, is_out_of_memory
from prime_bench.training.environment import conditions
from prime_bench.training.evaluation import (
    SCORED_SPLITS,
    check_labels,
    degeneracy,
    full_score,
    predict,
    save_predictions,
)
from prime_bench.training.graph import capture_on
from prime_bench.training.loop import (
    StateMisfit,
    TrainingSplits,
    TrainingState,
    TrainResult,
    train,
)
from prime_bench.training.optimizer import Penalty


class JobInterrupted(Exception):
    """The job was asked to stop; the next process continues from its last validation."""


@dataclass(frozen=True, kw_only=True)
class TrainingJob:
    """A training run with everything that it needs; `run` does it."""

    request: JobRequest
    job: ResolvedJob
    folder: JobFolder
    table: PreparedTable
    device: torch.device
    environment: Environment
    on_event: Callable[[WorkerEvent], None]
    interrupted: Callable[[], bool]
    """Called before the first epoch and after each one; True stops the run there."""

    def run(self) -> RunRecord:
        """Train, score, and return the record, which is not written yet.

        Raises JobInterrupted, DataError, UsageError, and EnvironmentFault, for example if memory
        does not suffice.
        """
        start, job, shape = time.perf_counter(), self.job, self.table.schema.shape
        check_labels("test", self.table.split("test").labels)
        budget = job.budget(shape)
        rows = self.table.manifest.rows
        need = MemoryNeed.of(
            budget,
            shape,
            embedding_dim=job.backbone.embedding_dim,
            batch_size=job.training.batch_size,
            train_rows=rows.train,
            valid_rows=rows.valid,
            test_rows=rows.test,
        )
        name = f"{self.request.dataset}, {job.job.backbone}, {self.request.arm}, seed {job.seed}"
        self.folder.log(f"{name}: {budget}")
        self.folder.log(f"on {self.environment.where}")
        total_bytes = device_bytes(self.device)
        if need.trained_bytes > total_bytes:
            raise need.fault(str(self.device), total_bytes=total_bytes)
        try:
            assembled, trained = self._trained(budget)
            weights = save_weights(self.folder.path / CHECKPOINT, trained.weights)
            result = self._evaluated(assembled, trained)
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            raise need.fault(str(self.device), total_bytes=total_bytes) from error
        self.folder.drop_progress()
        self.folder.write(TEST, {"rows": self.table.manifest.rows.test, **result.test.plain()})
        self.folder.log(f"done: {result}")
        wall_s = trained.earlier_s + time.perf_counter() - start
        return self._record(assembled, budget, trained, result, weights=weights, wall_s=wall_s)

    @property
    def _conditions(self) -> dict[str, str]:
        """What a process must share with this one to continue from its saved state."""
        return {"job": self.job.id, **conditions(self.environment)}

    def _trained(self, budget: Budget) -> tuple[Assembled, TrainResult]:
        """Train, from the saved state if there is one that fits."""
        file = StateFile(
            self.folder.state,
            conditions=self._conditions,
            background=self.device.type == "cuda",
        )
        job_id = self.job.id
        with file:
            try:
                state = load_state(self.folder.state, conditions=self._conditions)
                # What the file holds is checked as it is loaded, by `Training.load_state_dict`.
                return self._train(budget, cast(TrainingState | None, state), file)
            except (StateUnfit, StateMisfit) as unfit:
                self.folder.log(f"from epoch 1 and not from the saved state: {unfit}")
                self.on_event(RestartedEvent(job_id=job_id, reason=str(unfit)))
                self.folder.drop_state()
            return self._train(budget, None, file)

    def _train(
        self, budget: Budget, state: TrainingState | None, file: StateFile
    ) -> tuple[Assembled, TrainResult]:
        job = self.job
        assembled = build_arm(job, self.table.schema)
        _check_budget(job, budget, assembled)
        history = [] if state is None else _history_of(state)
        if state is not None:
            done = len(history)
            self.folder.log(f"from the state after epoch {done}")
            self.on_event(ResumedEvent(job_id=job.id, epoch=done))
        self.folder.write_history(history)
        self._stop_if_asked()

        def keep(newest: TrainingState) -> None:
            # No run continues from what a changed table has left.
            self.table.check_unchanged()
            file.write(newest)
            self._stop_if_asked()

        trained = train(
            assembled.arm,
            TrainingSplits(train=self.table.split("train"), valid=self.table.split("valid")),
            job.training,
            penalty=Penalty.of(job.backbone),
            seed=job.seed,
            device=self.device,
            on_progress=self._report_progress,
            on_validation=self._report_validation,
            state=state,
            on_state=keep,
            capture=capture_on(self.device),
            log=self.folder.log,
        )
        return assembled, trained

    def _report_progress(self, progress: EpochProgress) -> None:
        self.folder.note_progress(progress)
        self.on_event(ProgressEvent(job_id=self.job.id, progress=progress))

    def _report_validation(self, validation: Validation) -> None:
        self.folder.add_validation(validation)
        self.folder.log(f"epoch {validation.epoch}: {validation}")
        self.on_event(EpochEvent(job_id=self.job.id, validation=validation))

    def _stop_if_asked(self) -> None:
        if self.interrupted():
            self.folder.log("stopped as asked")
            raise JobInterrupted(self.job.id)

    def _evaluated(self, assembled: Assembled, trained: TrainResult) -> Result:
        """Score the valid split and, for the only time, the test split with the best weights."""
        batch_size = self.job.training.batch_size
        found, scores, labels = {}, {}, {}
        for name in SCORED_SPLITS:
            split = self.table.split(name)
            rows = Rows(split, device=self.device)
            labels[name] = rows.labels
            found[name] = predict(
                assembled.arm, rows, batch_size=batch_size, capture=capture_on(self.device)
            )
            scores[name] = full_score(
                rows.labels,
                found[name],
                groups=split.groups,
                column=self.table.manifest.gauc_by,
            )
        if self.request.keep_predictions:
            save_predictions(self.folder.path / PREDICTIONS, found, labels)
        faults = [*not_finite(trained.history), degeneracy(found, scores)]
        return Result(
            best_epoch=trained.best_epoch,
            epochs=len(trained.history),
            stopped=trained.stopped,
            valid=scores["valid"],
            test=scores["test"],
            degenerate="; ".join(fault for fault in faults if fault) or None,
            notes=notes_on_batches(self.table.manifest.rows.train, batch_size=batch_size),
        )

    def _record(
        self,
        assembled: Assembled,
        budget: Budget,
        trained: TrainResult,
        result: Result,
        *,
        weights: str,
        wall_s: float,
    ) -> RunRecord:
        return RunRecord(
            job_id=self.job.id,
            job=self.job.job,
            dataset=self.request.dataset,
            arm=self.request.arm,
            data_variant=self.table.manifest.variant,
            data_verified=self.table.manifest.verified,
            data_notes=self.table.manifest.notes,
            data_card=self.table.manifest.own_card,
            pairing=Pairing(initial_weights=assembled.initial_weights, row_order=trained.row_order),
            budget=budget,
            result=result,
            history=trained.history,
            environment=self.environment,
            wall_s=wall_s,
            weights=weights,
        )


def _check_budget(job: ResolvedJob, budget: Budget, assembled: Assembled) -> None:
    """Raise RuntimeError if the formulas of the settings disagree with the model's parameters."""
    built = sum(p.numel() for p in assembled.arm.parameters() if p.requires_grad)
    if built != budget.backbone_parameters + budget.plugin_parameters:
        arm = f"{job.job.backbone}, {job.job.plugin}"
        raise RuntimeError(f"{arm}: {budget}, but {built} parameters built")


def _history_of(state: TrainingState) -> list[JsonTable]:
    """The validations in a saved state. Raises StateMisfit where it has none, or others."""
    try:
        return [Validation.parse(line, where="history").plain() for line in state["history"]]
    except (KeyError, TypeError, ValueError, UsageError) as error:
        raise StateMisfit(f"its history cannot be read: {one_line(error)}") from error

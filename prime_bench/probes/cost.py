"""The cost probe: latency of inference and of training, memory, parameters and multiply-accumulates
of the arms of a backbone.

One job measures all arms of a backbone in one process, where they take turns: latencies are
compared within a repetition, so that a machine whose speed drifts slows all arms alike. Weights are
the initial ones, because the cost of a row does not depend on them. Rows are those of the table,
shuffled, so that embeddings are read as in training.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from prime_bench.base.errors import UsageError
from prime_bench.data.table import PreparedTable
from prime_bench.findings import ArmCost, CostFindings, Form, InferenceCost
from prime_bench.probes.arms import Pool, Trainer, forms_on, forward_of, job_of, trainer_of
from prime_bench.probes.memory import memory_label, peak_training_bytes
from prime_bench.probes.timing import Step, clock_for, latencies_ms
from prime_bench.recipe.events import EpochProgress
from prime_bench.recipe.job import JobRequest, ResolvedJob
from prime_bench.settings.interface import TableShape
from prime_bench.settings.probes import CostProbe
from prime_bench.training.batches import Batch
from prime_bench.training.device import device_name
from prime_bench.training.progress import ProgressMeter

# Enough for a median if single steps are disturbed.
_FEWEST_STEPS = 5


@dataclass(frozen=True, kw_only=True)
class Phase:
    """A part of a repetition: steps or forward passes, in one form at one batch size."""

    training: bool
    """Whether it trains: a form is then `eager`, or `graph` for steps as a run does them."""
    form: Form
    batch_size: int
    """Rows of a batch."""
    steps: int
    """Timed steps of each arm."""
    warm_up_steps: int
    """Steps that each arm does before them."""


Times = dict[Phase, list[list[float]]]
"""Phase -> milliseconds a step of each repetition and, within it, of each arm."""


def run(
    request: JobRequest,
    job: ResolvedJob,
    table: PreparedTable,
    *,
    device: torch.device,
    on_progress: Callable[[EpochProgress], None],
) -> CostFindings:
    """Measure all arms of the job on `device`.

    Raises UsageError if the job names another device or another number of threads.
    """
    probe = job.probe_as(CostProbe)
    _check_device(probe, device)
    jobs = [job, *(job_of(job, arm) for arm in probe.arms)]
    size = job.training.batch_size
    phases = phases_of(
        probe,
        batch_size=size,
        forms=forms_on(device, with_compiled=job.training.compile),
        training_forms=forms_on(device, with_compiled=False),
    )
    most = size * (probe.warm_up_steps + max(probe.inference_steps, probe.training_steps))
    pool = Pool(
        table.split("train"),
        n_rows=max([most, *probe.other_batch_sizes]),
        seed=job.seed,
        device=device,
    )
    trainers = [trainer_of(own, table.schema, device=device) for own in jobs]
    times: Times = {phase: [] for phase in phases}
    for repetition in range(probe.repetitions):
        rows_total = sum(map(_rows, phases))
        progress = ProgressMeter(on_progress, rows_total=rows_total, epoch=repetition + 1)
        for phase in phases:
            times[phase].append(repeat(phase, trainers, pool=pool, device=device, turn=repetition))
            progress.add(_rows(phase))
    del trainers
    distinct_rows = pool.distinct_rows
    del pool
    shape = table.schema.shape
    return CostFindings(
        clock=clock_for(device).name,
        memory=memory_label(device, compiled=job.training.compile),
        distinct_rows=distinct_rows,
        arms=[
            _cost(
                own,
                [(phase, [arms[place] for arms in times[phase]]) for phase in phases],
                shape=shape,
                peak_bytes=peak_training_bytes(
                    request.model_copy(update={"job": own.job}), own, table, device=device
                ),
            )
            for place, own in enumerate(jobs)
        ],
    )


def phases_of(
    probe: CostProbe, *, batch_size: int, forms: Sequence[Form], training_forms: Sequence[Form]
) -> list[Phase]:
    """The phases of a repetition: those at the protocol's batch size, then forward passes at other
    batch sizes. The latter are not compiled, since each size would take a compilation of its own.
    """
    protocol = [
        Phase(
            training=training,
            form=form,
            batch_size=batch_size,
            steps=probe.training_steps if training else probe.inference_steps,
            warm_up_steps=probe.warm_up_steps,
        )
        for training, own in ((False, forms), (True, training_forms))
        for form in own
    ]
    others = []
    for size in probe.other_batch_sizes:
        fitting = probe.inference_steps * batch_size // size
        steps = min(probe.inference_steps, max(_FEWEST_STEPS, fitting))
        others += [
            Phase(
                training=False,
                form=form,
                batch_size=size,
                steps=steps,
                warm_up_steps=min(steps, probe.warm_up_steps),
            )
            for form in forms
            if form != "compiled" and size != batch_size
        ]
    return [*protocol, *others]


def repeat(
    phase: Phase, trainers: Sequence[Trainer], *, pool: Pool, device: torch.device, turn: int
) -> list[float]:
    """Do one repetition of a phase. Returns each arm's milliseconds a step."""
    batches = pool.batches(batch_size=phase.batch_size, n=phase.warm_up_steps + phase.steps)
    for trainer in trainers:
        trainer.arm.train(phase.training)
    with torch.inference_mode(not phase.training):
        return latencies_ms(
            [_step(trainer, phase, batches) for trainer in trainers],
            steps=phase.steps,
            warm_up_steps=phase.warm_up_steps,
            clock=clock_for(device),
            turn=turn,
        )


def _step(trainer: Trainer, phase: Phase, batches: Sequence[Batch]) -> Step:
    if phase.training:
        step = trainer.optimizer.step if phase.form == "eager" else trainer.step
        return lambda number: step(batches[number])
    forward = forward_of(trainer.arm, phase.form, like=batches[0])
    return lambda number: forward(batches[number])


def _cost(
    job: ResolvedJob,
    times: Sequence[tuple[Phase, list[float]]],
    *,
    shape: TableShape,
    peak_bytes: int | None,
) -> ArmCost:
    """An arm's cost; `times` has its milliseconds a step by phase, one a repetition."""
    budget = job.budget(shape)
    training = {phase.form: found for phase, found in times if phase.training}
    return ArmCost(
        plugin=job.job.plugin,
        settings=job.job.plugin_settings,
        parameters=budget.backbone_parameters + budget.plugin_parameters,
        macs=budget.backbone_macs + budget.plugin_macs,
        inference=[
            InferenceCost(form=phase.form, batch_size=phase.batch_size, latencies_ms=found)
            for phase, found in times
            if not phase.training
        ],
        training_ms=training.get("graph", training["eager"]),
        eager_training_ms=training["eager"] if "graph" in training else None,
        peak_memory_bytes=peak_bytes,
    )


def _check_device(probe: CostProbe, device: torch.device) -> None:
    here = (device_name(device), torch.get_num_threads())
    if here != (probe.device, probe.threads):
        raise UsageError(
            f"the job is to be measured on {probe.device} with {probe.threads} threads,"
            f" this is {here[0]} with {here[1]}",
            hint="measure with `prime-bench profile`, which plans jobs for the device it runs on",
        )


def _rows(phase: Phase) -> int:
    """Rows that each arm reads in a phase, as progress counts them; a repetition is an epoch."""
    return phase.batch_size * (phase.warm_up_steps + phase.steps)

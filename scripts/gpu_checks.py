"""The checks of `gpu_check.py`: each gives figures, or raises what is wrong.

Shapes: N rows of a split.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import avazu_shape
import numpy as np
import torch
from gpu_table import FINGERPRINT, write_table

from prime_bench.assemble import build_arm
from prime_bench.catalog import PLUGINS
from prime_bench.cli.costs import tables
from prime_bench.data.manifest import SplitCounts
from prime_bench.data.schema import Schema
from prime_bench.data.table import PreparedTable, Split
from prime_bench.probes.arms import Pool, forms_on, forward_of, trainer_of
from prime_bench.recipe.job import Job, JobRequest
from prime_bench.recipe.recipe import Recipe
from prime_bench.settings.probes import CostArm, CostProbe
from prime_bench.store.costs import MeasuredCosts
from prime_bench.store.record import ProbeRecord, RunRecord
from prime_bench.training.batches import Rows
from prime_bench.training.checkpoint import CHECKPOINT, load_weights
from prime_bench.training.device import device_name
from prime_bench.training.evaluation import predict, score
from prime_bench.worker import run_job

ARMS = ("dense", "prime")
SEED = 2021
FULL_ROWS = SplitCounts(train=28_300_276, valid=4_042_897, test=8_085_794)
FULL_IDS = 1_544_294
SMALL_ROWS = SplitCounts(train=3_011, valid=1_000, test=2_000)
SMALL_IDS = 40_000
AGREEMENT_ROWS = 256
OTHER_BATCH_SIZES = [1, 64, 1024, 16_384, 65_536]
WIDELY_MEASURED = ("DNN", "DCNv2", "FiBiNET")
"""Backbones whose inference is timed at other batch sizes too, and that are compiled."""
COMPILING_S = 90
"""Time left without which no other backbone is compiled."""

# How far equal arithmetic in another order leads apart was measured on a CPU, by permuting the rows
# of each batch: in float64 five steps moved a loss by 1e-15 and a weight, which a step moves by
# 1e-3, by 2e-7. In float32 Adam turns the rounding errors of gradients that are 0 (biases before a
# batch norm) into steps, so there only what comes before counts: 1e-7 of a prediction, 1e-6 of the
# first two losses.
ALLOWED = {
    "float64 prediction": 1e-12,
    "float64 loss": 1e-10,
    "float64 weight": 1e-5,
    "float32 prediction": 1e-5,
    "float32 loss": 1e-5,
    "float32 form": 1e-5,
}
"""Largest absolute difference from the CPU; of `form`, of a CUDA graph from eager."""
METRIC = 1e-12
LEAST_AUC = 0.6
"""After an epoch of the generated rows, in which a few fields tell much."""


class Wrong(Exception):
    """A check found what should not be; the text says what."""


@dataclass(kw_only=True)
class Bench:
    """What the checks share."""

    device: torch.device
    small: bool
    backbones: list[str]
    folder: Path
    deadline: float
    """Of the performance counter: no check starts after it."""
    recipe: Recipe
    trained: dict[str, RunRecord] = field(default_factory=dict)
    """Records of the check `epoch`, by `backbone arm`."""

    @property
    def table(self) -> Path:
        """Folder of the generated table."""
        return self.folder / "table"

    @property
    def on_cuda(self) -> bool:
        """Whether the device is a GPU."""
        return self.device.type == "cuda"

    @property
    def left_s(self) -> float:
        """Seconds until the deadline."""
        return self.deadline - time.perf_counter()

    @property
    def threads(self) -> int:
        """CPU threads of a job."""
        return torch.get_num_threads()

    def job(
        self,
        backbone: str,
        plugin: str,
        *,
        dropout: bool = True,
        probe: CostProbe | None = None,
        training: dict[str, Any] | None = None,
    ) -> Job:
        """A job with the settings of recipes/cost.toml on Avazu."""
        settings = self.recipe.backbones[backbone]["avazu"].plain()
        off = {"net_dropout": 0.0, "attention_dropout": [0.0, 0.0]}
        settings |= {} if dropout else {k: v for k, v in off.items() if k in settings}
        small = {"batch_size": 256} if self.small else {}
        return Job(
            kind="train" if probe is None else "cost",
            fingerprint=FINGERPRINT,
            backbone=backbone,
            backbone_settings=settings,
            plugin=plugin,
            plugin_settings=PLUGINS[plugin].settings().plain(),
            training=self.recipe.training.model_copy(update={**small, **(training or {})}),
            seed=SEED,
            probe={} if probe is None else probe.plain(),
        )

    def run(self, job: Job, *, arm: str) -> RunRecord | ProbeRecord:
        """The job's record, by the worker that every run uses."""
        request = JobRequest(
            job=job,
            dataset="avazu-shaped",
            arm=arm,
            table=str(self.table),
            runs=str(self.folder / "runs"),
            device=str(self.device),
            threads=self.threads,
        )
        return run_job(request, lambda _: None)

    def wait(self) -> None:
        """Until the device has done everything."""
        if self.on_cuda:
            torch.cuda.synchronize()


def agreement(bench: Bench) -> dict[str, Any]:
    """Every arm computes on the device what it computes on the CPU, as a CUDA graph too."""
    schema = avazu_shape.schema(SMALL_IDS)
    rows = avazu_shape.rows(schema, 3 * AGREEMENT_ROWS, seed=SEED)
    worst: dict[str, float] = {}
    for backbone in bench.backbones:
        for plugin in ARMS:
            job = bench.job(backbone, plugin, dropout=False)
            here = _three_steps(job, schema, rows, device=bench.device)
            there = _three_steps(job, schema, rows, device=torch.device("cpu"))
            for name, allowed in ALLOWED.items():
                difference = float((here[name] - there[name]).abs().max())
                worst[name] = max(worst.get(name, 0.0), difference)
                # Not >: a NaN must not pass.
                if not difference <= allowed:
                    raise Wrong(f"{backbone} {plugin}: {name} differs by {difference:.1e}")
    return {"arms": len(ARMS) * len(bench.backbones), **worst}


def _three_steps(
    job: Job, schema: Schema, rows: Split, *, device: torch.device
) -> dict[str, torch.Tensor]:
    """What is compared, by the names of ALLOWED, on the CPU in float64."""
    found = {}
    pool = Pool(rows, n_rows=len(rows), seed=SEED, device=device)
    batches = pool.batches(batch_size=AGREEMENT_ROWS, n=3)
    for dtype, name in ((torch.float64, "float64"), (torch.float32, "float32")):
        trainer = trainer_of(job.resolve(), schema, device=device, dtype=dtype)
        arm = trainer.arm.eval()
        with torch.inference_mode():
            eager = arm(batches[0].ids, batches[0].numerics)
            last = forms_on(device, with_compiled=False)[-1]
            found[f"{name} form"] = forward_of(arm, last, like=batches[0])(batches[0]) - eager
        found[f"{name} prediction"] = eager
        arm.train()
        losses = torch.stack([trainer.optimizer.step(batch) for batch in batches])
        found[f"{name} loss"] = losses if dtype == torch.float64 else losses[:2]
        found[f"{name} weight"] = torch.cat([p.detach().flatten() for p in arm.parameters()])
    return {name: value.double().cpu() for name, value in found.items()}


def determinism(bench: Bench) -> dict[str, Any]:
    """A run repeats itself: two have equal losses and weights, bit by bit, with dropout."""
    schema = avazu_shape.schema(SMALL_IDS)
    rows = avazu_shape.rows(schema, 20 * AGREEMENT_ROWS, seed=SEED)
    n_arms, pool = 0, Pool(rows, n_rows=len(rows), seed=SEED, device=bench.device)
    batches = pool.batches(batch_size=AGREEMENT_ROWS, n=5 if bench.small else 20)
    for backbone in bench.backbones:
        for plugin in ARMS:
            runs = []
            for _ in range(2):
                trainer = trainer_of(
                    bench.job(backbone, plugin).resolve(), schema, device=bench.device
                )
                losses = [trainer.optimizer.step(batch) for batch in batches]
                runs.append([torch.stack(losses), *trainer.arm.state_dict().values()])
            if not all(torch.equal(a, b) for a, b in zip(*runs, strict=True)):
                raise Wrong(f"{backbone} {plugin}: two runs of {len(batches)} steps differ")
            n_arms += 1
    return {"arms": n_arms, "steps": len(batches)}


def generate(bench: Bench) -> dict[str, Any]:
    """The table that the checks below read: the size of Avazu_x1, with the ids of all its splits
    that the paper's parameter counts imply (docs/fidelity.md, 5).
    """
    n_ids, rows = (SMALL_IDS, SMALL_ROWS) if bench.small else (FULL_IDS, FULL_ROWS)
    write_table(bench.table, avazu_shape.schema(n_ids), rows=rows)
    return {"rows": rows.total, "ids": n_ids}


def epoch(bench: Bench) -> dict[str, Any]:
    """One epoch of real jobs, validation and test scores included; they must have learnt."""
    figures: dict[str, Any] = {}
    rows = SMALL_ROWS if bench.small else FULL_ROWS
    for backbone, plugin in (("DNN", "dense"), ("DCNv2", "prime")):
        if bench.on_cuda:
            torch.cuda.reset_peak_memory_stats()
        record = bench.run(bench.job(backbone, plugin, training={"max_epochs": 1}), arm=plugin)
        assert isinstance(record, RunRecord)  # noqa: S101
        name, (validation,) = f"{backbone} {plugin}", record.history
        bench.trained[name] = record
        figures[name] = {
            "epoch_s": validation.wall_s,
            "rows_per_s": (rows.train + rows.valid) / validation.wall_s,
            "job_s": record.wall_s,
            "test_auc": record.result.test.auc,
            "peak_memory_bytes": torch.cuda.max_memory_allocated() if bench.on_cuda else None,
        }
        fault = record.result.degenerate
        if fault or (not bench.small and (record.result.test.auc or 0) < LEAST_AUC):
            raise Wrong(f"{name}: {fault or record.result.test}")
    return figures


def evaluation(bench: Bench) -> dict[str, Any]:
    """The test split scored again: the record's numbers, and those of a plain float64 count."""
    (name, record), *_ = bench.trained.items()
    table = PreparedTable.open(bench.table)
    arm = build_arm(record.job.resolve(), table.schema).arm
    arm.load_state_dict(load_weights(bench.folder / "runs" / record.job_id / CHECKPOINT))
    arm.to(bench.device)
    marks = [time.perf_counter()]

    def mark() -> None:
        bench.wait()
        marks.append(time.perf_counter())

    rows = Rows(table.split("test"), device=bench.device)
    mark()
    probabilities = predict(arm, rows, batch_size=record.job.training.batch_size)
    mark()
    found = score(rows.labels, probabilities)
    mark()
    seconds = dict(zip(("load_s", "predict_s", "score_s"), np.diff(marks).tolist(), strict=True))
    wanted = _plain_scores(rows.labels, probabilities.double().cpu().numpy())
    for what, own, other in (
        ("AUC, counted plainly", found.auc, wanted[0]),
        ("LogLoss, summed plainly", found.logloss, wanted[1]),
        ("AUC in the record", found.auc, record.result.test.auc),
        ("LogLoss in the record", found.logloss, record.result.test.logloss),
    ):
        if own is None or other is None or not abs(own - other) <= METRIC:
            raise Wrong(f"{name}: {what} {other}, here {own}")
    return {"rows": len(rows), "arm": name, **seconds}


def _plain_scores(labels: np.ndarray, p: np.ndarray) -> tuple[float, float]:
    """AUC by ranks, a tie taking the mean rank, and LogLoss as scikit-learn clips it."""
    _, inverse, counts = np.unique(p, return_inverse=True, return_counts=True)
    ranks = np.cumsum(counts) - (counts - 1) / 2
    n_positive = int(labels.sum())
    n_pairs = n_positive * (len(labels) - n_positive)
    positive_ranks = float(ranks[inverse[labels == 1]].sum())
    auc = (positive_ranks - n_positive * (n_positive + 1) / 2) / n_pairs
    eps = np.finfo(np.float64).eps
    right = np.clip(np.where(labels == 1, p, 1 - p), eps, 1 - eps)
    return auc, float(-np.log(right).mean())


def steps(bench: Bench) -> dict[str, Any]:
    """Latency and memory of all backbones with and without PRIME, by the cost probe."""
    return _costs(bench, bench.backbones, compiled=False)


def compiled(bench: Bench) -> dict[str, Any]:
    """The same for some of them under `training.compile`."""
    return _costs(bench, [b for b in bench.backbones if b in WIDELY_MEASURED], compiled=True)


def _costs(bench: Bench, backbones: list[str], *, compiled: bool) -> dict[str, Any]:
    measured, skipped = [], []
    for backbone in backbones:
        if bench.left_s < (COMPILING_S if compiled else 0):
            skipped.append(backbone)
            continue
        widely = backbone in WIDELY_MEASURED and not compiled
        short = {"warm_up_steps": 1, "inference_steps": 2, "training_steps": 2, "repetitions": 1}
        others = [1, 512] if bench.small else OTHER_BATCH_SIZES
        probe = CostProbe(
            **(short if bench.small else {}),
            other_batch_sizes=others if widely else [],
            device=device_name(bench.device),
            threads=bench.threads,
            arms=[CostArm(plugin="prime", settings=PLUGINS["prime"].settings().plain())],
        )
        job = bench.job(backbone, "dense", probe=probe, training={"compile": compiled})
        measured.append(MeasuredCosts.of(bench.run(job, arm="dense+prime"), bench.recipe))
    if measured:
        print(tables(measured), flush=True)
    return {"costs": [item.plain() for item in measured], "no time for": skipped}


CHECKS: dict[str, Callable[[Bench], dict[str, Any]]] = {
    check.__name__: check
    for check in (agreement, determinism, generate, epoch, evaluation, steps, compiled)
}
"""In the order in which they are done."""
NEEDS = {
    "epoch": ("generate",),
    "evaluation": ("generate", "epoch"),
    "steps": ("generate",),
    "compiled": ("generate",),
}
"""Checks that must have passed before another."""

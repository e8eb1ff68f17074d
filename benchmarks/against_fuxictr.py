"""Are our models those of FuxiCTR 2.3.10? Test AUC and LogLoss of both over seeds, on one table.

    python benchmarks/against_fuxictr.py --table data/NAME-1234abcd --recipe RECIPE \
        --zoo FuxiCTR/model_zoo --out FOLDER [--backbones DNN,DCNv2] [--seeds 5]

FuxiCTR's side is its own: the class of its model zoo (`--zoo`, a folder of a checkout, of which
nothing is copied), its loader, `fit` and `evaluate`, on the files that `prime-bench export fuxictr`
writes of the table. Ours trains as a job of the recipe's arm `dense` does. Each run has a file in
`--out`, so that the same command goes on where it was stopped, and with more `--seeds` adds runs.

Both sides are trained with seeds 1 to N, independently: a seed is no pair. For each metric the 90 %
interval of Welch of the difference of the means, ours less FuxiCTR's, is compared with a margin:
0.001, or a third of the pooled standard deviation over seeds if that is larger.

- equivalent: the interval lies inside the margin (two one-sided tests at 5 % each);
- different: it lies outside;
- inconclusive: neither. `seeds` is how many a side would need if differences and deviations stayed.

Seeds differ by more than models do, so the above needs many. `--equal-start N` asks a narrower
question, whose answer needs no statistics: trained for N epochs in float64 from our initial
weights, over our row order and without dropout, do both sides give the same scores? That covers
the model, loss, gradient, L2, clipping, Adam, schedule and metrics, and leaves out the random draws
of either side. The verdict is equal where AUC differs by at most 1e-5 and LogLoss by at most 1e-6;
our predictions are rounded to float32, theirs are not. (In float32 two runs of ours whose initial
weights differ by 1e-7 of themselves part by 1e-3 within an epoch, so there it would say nothing.)

Writes `report.md` and `report.json` into `--out` and prints the former. Exit code 0 if all are
equivalent or equal, 1 if one is different, 5 if none is but one is inconclusive. Seconds are of
training with its validations; `--workers 0` has FuxiCTR load rows in the process that trains, so
that CPU time, which other programs beside it hardly change, counts all of its work.
"""

import argparse
import contextlib
import importlib
import inspect
import json
import math
import multiprocessing
import os
import statistics
import sys
import time
import types
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch
from scipy import stats
from tabulate import tabulate
from torch.utils.data import DataLoader, Sampler

# Ours first: it keeps FuxiCTR's preprocessing, and so ray, out of the import of its layers.
from prime_bench.assemble import build_arm
from prime_bench.base.errors import DataError, UsageError, UserError
from prime_bench.base.files import sha256_of, write_whole
from prime_bench.base.machine import keep_freed_memory
from prime_bench.catalog import DENSE
from prime_bench.data.fuxictr_files import export_table
from prime_bench.data.manifest import SPLIT_NAMES
from prime_bench.data.table import PreparedTable
from prime_bench.integrations.fuxictr import export_checkpoint
from prime_bench.recipe.file import load_recipe
from prime_bench.recipe.job import Job
from prime_bench.recipe.recipe import Recipe
from prime_bench.settings.training import TrainSpec, joins_last_row
from prime_bench.training.batches import Rows, row_order
from prime_bench.training.device import fix_arithmetic
from prime_bench.training.evaluation import predict, score
from prime_bench.training.loop import TrainingSplits, train
from prime_bench.training.optimizer import Penalty

SIDES = ("ours", "FuxiCTR")
METRICS = {"auc": "AUC", "logloss": "LogLoss"}
LEAST_MARGIN = 0.001
CONFIDENCE = 0.90
MOST_SEEDS = 10_000
EXIT_CODES = {"different": 1, "inconclusive": 5, "equivalent": 0, "equal": 0}
"""Verdict -> exit code, the worst first."""
EQUAL = {"auc": 1e-5, "logloss": 1e-6}
"""Greatest difference of two runs of an equal start. AUC jumps where float32 makes ties."""
RENAMED = {"embedding_l2": "embedding_regularizer", "network_l2": "net_regularizer"}
"""Our key -> FuxiCTR's, where they differ."""
PROTOCOL = ("batch_size", "learning_rate", "max_epochs", "patience", "max_gradient_norm")
"""Keys of `TrainSpec` that FuxiCTR has too; its other ones are fixed at our defaults."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """A run of one side; everything that a process needs for it."""

    side: str
    job: Job
    seed: int
    table: str
    exported: str
    """Folder of FuxiCTR's files."""
    model: str
    """File of FuxiCTR's model class."""
    out: str
    loader: str
    workers: int
    threads: int
    equal_start: bool
    """Whether both sides start from our weights, in our row order and float64."""

    @property
    def name(self) -> str:
        """Also the name of its file."""
        start = "-equal-start" * self.equal_start
        return f"{self.job.backbone}-{self.side}-{self.seed}{start}"

    @property
    def file(self) -> Path:
        """What is left of the run once it is finished."""
        return Path(self.out) / f"{self.name}.json"

    @property
    def asked(self) -> dict[str, Any]:
        """What a finished run must have been asked for to count."""
        asked = {"job": self.job.plain(), "seed": self.seed, "threads": self.threads}
        asked["torch"] = torch.__version__
        if self.side == "FuxiCTR":
            asked |= {"model": sha256_of(Path(self.model)), "loader": self.loader}
        return asked


@contextlib.contextmanager
def timed(found: dict[str, Any]) -> Iterator[None]:
    """Wall and CPU seconds of the block."""
    wall, cpu = time.perf_counter(), time.process_time()
    yield
    found |= {"wall_s": time.perf_counter() - wall, "cpu_s": time.process_time() - cpu}


def run_ours(run: Run) -> dict[str, Any]:
    """Train as a worker does, and score the test split."""
    keep_freed_memory()
    fix_arithmetic(threads=run.threads)
    table, job = PreparedTable.open(run.table), run.job.resolve()
    arm, found = build_arm(job, table.schema).arm, dict[str, Any]()
    if run.equal_start:
        arm.double()
    with timed(found):
        trained = train(
            arm,
            TrainingSplits(train=table.split("train"), valid=table.split("valid")),
            job.training,
            penalty=Penalty.of(job.backbone),
            seed=run.seed,
            device=torch.device("cpu"),
        )
    for name in ("valid", "test"):
        rows = Rows(table.split(name), device=torch.device("cpu"))
        scored = score(rows.labels, predict(arm, rows, batch_size=job.training.batch_size))
        found[name] = {"auc": scored.auc, "logloss": scored.logloss}
    return {**found, "epochs": len(trained.history)}


def run_theirs(run: Run) -> dict[str, Any]:
    """Train as FuxiCTR's `run_expid.py` does, and score the test split."""
    from fuxictr.features import FeatureMap
    from fuxictr.pytorch.dataloaders import RankDataLoader
    from fuxictr.pytorch.torch_utils import seed_everything

    torch.set_num_threads(run.threads)
    folder, training = Path(run.exported), run.job.training
    params = their_params(run)
    seed_everything(run.seed)
    fields = FeatureMap(folder.name, str(folder))
    fields.load(str(folder / "feature_map.json"), params)
    weights = Path(params["model_root"]) / folder.name
    weights.mkdir(parents=True, exist_ok=True)
    model = model_class(Path(run.model))(fields, **params)
    loaders = {f"{name}_data": str(folder / f"{name}.{run.loader}") for name in SPLIT_NAMES}
    shared = {"batch_size": training.batch_size, "num_workers": run.workers}
    train_rows, valid_rows, test_rows = RankDataLoader(
        fields, stage="both", data_format=run.loader, **loaders, **shared
    )
    if run.equal_start:
        start_as_ours(model, run)
        train_rows = in_our_order(train_rows, seed=run.seed)
    found: dict[str, Any] = {}
    with timed(found):
        model.fit(
            train_rows,
            epochs=training.max_epochs,
            validation_data=valid_rows,
            max_gradient_norm=training.max_gradient_norm,
        )
    for name, rows in (("valid", valid_rows), ("test", test_rows)):
        scored = model.evaluate(rows)
        found[name] = {"auc": float(scored["AUC"]), "logloss": float(scored["logloss"])}
    Path(model.checkpoint).unlink()
    return {**found, "epochs": model._epoch_index + 1}


def start_as_ours(model: Any, run: Run) -> None:
    """Give FuxiCTR's model our initial weights, in float64."""
    schema = PreparedTable.open(run.table).schema
    ours = build_arm(run.job.resolve(), schema).arm.backbone
    model.load_state_dict(export_checkpoint(ours))
    model.double()
    # FuxiCTR makes labels and values of numeric fields float32.
    labels = model.get_labels
    model.get_labels = lambda batch: labels(batch).double()
    for module in model.modules():
        if isinstance(module, torch.nn.Linear):
            module.register_forward_pre_hook(lambda _, values: tuple(v.double() for v in values))


class OurOrder(Sampler[int]):
    """The row order of each of our epochs, one after the other."""

    def __init__(self, n_rows: int, *, seed: int) -> None:
        self._n_rows, self._seed, self._epoch = n_rows, seed, 0

    def __len__(self) -> int:
        return self._n_rows

    def __iter__(self) -> Iterator[int]:
        self._epoch += 1
        yield from row_order(self._n_rows, seed=self._seed, epoch=self._epoch).tolist()


def in_our_order(loader: Any, *, seed: int) -> Any:
    """A loader of the same rows as FuxiCTR's, in our order."""
    return DataLoader(
        loader.dataset,
        batch_size=loader.batch_size,
        sampler=OurOrder(len(loader.dataset), seed=seed),
        collate_fn=loader.collate_fn,
    )


def without_dropout(job: Job, *, epochs: int) -> Job:
    """The job with every rate of dropout at zero and that number of epochs."""

    def zero(value: Any) -> Any:
        return [0.0 for _ in value] if isinstance(value, (list, tuple)) else 0.0

    settings = {k: zero(v) if "dropout" in k else v for k, v in job.backbone_settings.items()}
    training = job.training.model_copy(update={"max_epochs": epochs, "patience": epochs})
    return job.model_copy(update={"backbone_settings": settings, "training": training})


def their_params(run: Run) -> dict[str, Any]:
    """The arguments of FuxiCTR's class for the job's settings.

    Raises UsageError for a key that neither it nor its base class has: it would swallow the key.
    """
    from fuxictr.pytorch.models import BaseModel

    found = model_class(Path(run.model))
    known = {
        name
        for owner in (found, BaseModel)
        for name, given in inspect.signature(owner).parameters.items()
        if given.kind is not inspect.Parameter.VAR_KEYWORD
    }
    settings = {RENAMED.get(k, k): v for k, v in run.job.backbone_settings.items()}
    if "regularizer" in inspect.signature(found).parameters:  # FM, FwFM: one for all weights
        weights = {settings.pop(name) for name in RENAMED.values()}
        if len(weights) > 1:
            raise UsageError(f"{found.__name__}: FuxiCTR has one regularizer for all weights")
        settings["regularizer"] = weights.pop()
    if strange := sorted(settings.keys() - known):
        raise UsageError(
            f"{run.model}: {found.__name__} has no argument {', '.join(strange)}",
            hint="compare backbones whose settings FuxiCTR has too",
        )
    return {
        **settings,
        "model_id": run.name,
        "model_root": str(Path(run.out) / "weights"),
        "task": "binary_classification",
        "gpu": -1,
        "learning_rate": run.job.training.learning_rate,
        "early_stop_patience": run.job.training.patience,
        "optimizer": "adam",
        "loss": "binary_crossentropy",
        "metrics": ["AUC", "logloss"],
        "monitor": "AUC",
        "verbose": 0,
    }


def model_class(file: Path) -> Any:
    """The class that the file of a model zoo is named for."""
    # In a package without an `__init__.py`, for the files that import others beside them.
    package = f"fuxictr_zoo_{file.stem}"
    if package not in sys.modules:
        sys.modules[package] = types.ModuleType(package)
        sys.modules[package].__path__ = [str(file.parent)]
    return getattr(importlib.import_module(f"{package}.{file.stem}"), file.stem)


def model_file(zoo: Path, backbone: str) -> Path:
    """FuxiCTR's file of the backbone, in PyTorch. Raises UsageError if there is none."""
    places = (f"{backbone}/src", f"{backbone}/{backbone}_torch/src")
    for place in places:
        if (file := zoo / place / f"{backbone}.py").is_file():
            return file
    raise UsageError(
        f"{zoo}: no {' or '.join(f'{place}/{backbone}.py' for place in places)}",
        hint="--zoo names the folder model_zoo of a checkout of FuxiCTR 2.3.10",
    )


def export(table: PreparedTable, folder: Path, *, npz: bool) -> None:
    """FuxiCTR's files of the table, unless they are there."""
    if not folder.is_dir():
        export_table(table, folder)
    for name in SPLIT_NAMES if npz else ():
        if not (folder / f"{name}.npz").is_file():
            frame = pl.read_parquet(folder / f"{name}.parquet")
            part = folder / f"{name}.part.npz"
            np.savez(part, **{column.name: column.to_numpy() for column in frame})
            part.replace(folder / f"{name}.npz")


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """A metric of a backbone on both sides."""

    ours: Sequence[float]
    theirs: Sequence[float]

    @property
    def difference(self) -> float:
        """Mean of ours less mean of FuxiCTR's."""
        return statistics.fmean(self.ours) - statistics.fmean(self.theirs)

    @property
    def margin(self) -> float:
        """Differences below it do not count."""
        return max(LEAST_MARGIN, self.pooled / 3)

    @property
    def pooled(self) -> float:
        """Pooled standard deviation over seeds."""
        sides = [(len(side) - 1, statistics.variance(side)) for side in (self.ours, self.theirs)]
        return math.sqrt(sum(n * v for n, v in sides) / sum(n for n, _ in sides))

    @property
    def interval(self) -> tuple[float, float]:
        """Welch's interval of the difference of the means."""
        parts = [statistics.variance(side) / len(side) for side in (self.ours, self.theirs)]
        if (total := sum(parts)) == 0:
            return self.difference, self.difference
        freedom = total**2 / sum(
            part**2 / (len(side) - 1)
            for part, side in zip(parts, (self.ours, self.theirs), strict=True)
        )
        half = float(stats.t.ppf((1 + CONFIDENCE) / 2, freedom)) * math.sqrt(total)
        return self.difference - half, self.difference + half

    @property
    def verdict(self) -> str:
        """A key of `EXIT_CODES`."""
        low, high = self.interval
        if -self.margin < low and high < self.margin:
            return "equivalent"
        return "different" if low > self.margin or high < -self.margin else "inconclusive"

    @property
    def seeds(self) -> int | None:
        """Seeds of a side for a verdict, if difference and deviation stay as they are; None if more
        than `MOST_SEEDS`.
        """
        room = abs(self.margin - abs(self.difference))

        def enough(n: int) -> bool:
            half = stats.t.ppf((1 + CONFIDENCE) / 2, 2 * n - 2) * self.pooled * math.sqrt(2 / n)
            return bool(half < room)

        return next((n for n in range(2, MOST_SEEDS) if enough(n)), None)


def compare(done: dict[str, dict[str, list[dict[str, Any]]]]) -> list[dict[str, Any]]:
    """A line for each backbone and metric."""
    lines = []
    for backbone, sides in done.items():
        for metric, label in METRICS.items():
            values = [[run["test"][metric] for run in sides[side]] for side in SIDES]
            found = Comparison(ours=values[0], theirs=values[1])
            line: dict[str, Any] = {"backbone": backbone, "metric": label}
            for side, given in zip(SIDES, values, strict=True):
                line[side] = {
                    "mean": statistics.fmean(given),
                    "sd": statistics.stdev(given),
                    "n": len(given),
                }
            line |= {"difference": found.difference, "interval": found.interval}
            line |= {"margin": found.margin, "verdict": found.verdict, "seeds": found.seeds}
            lines.append(line)
    return lines


def compare_equal_starts(
    done: dict[str, dict[str, list[dict[str, Any]]]], *, seeds: int
) -> list[dict[str, Any]]:
    """A line for each backbone and seed: the scores of both sides, and whether they are equal."""
    lines = []
    for backbone, sides in done.items():
        for at in range(seeds):
            ours, theirs = (sides[side][at]["test"] for side in SIDES)
            gaps = {metric: ours[metric] - theirs[metric] for metric in METRICS}
            equal = all(abs(gaps[metric]) <= most for metric, most in EQUAL.items())
            line = {"backbone": backbone, "seed": at + 1, "ours": ours, "FuxiCTR": theirs}
            verdict = "equal" if equal else "different"
            lines.append(line | {"difference": gaps, "verdict": verdict})
    return lines


def speeds(
    done: dict[str, dict[str, list[dict[str, Any]]]], *, train_rows: int
) -> list[dict[str, Any]]:
    """A line for each backbone and side; medians of runs."""
    lines = []
    for backbone, sides in done.items():
        for side, runs in sides.items():
            wall_s, cpu_s = (
                statistics.median(run[clock] / run["epochs"] for run in runs)
                for clock in ("wall_s", "cpu_s")
            )
            epochs = statistics.fmean(run["epochs"] for run in runs)
            line = {"backbone": backbone, "side": side, "epochs": epochs, "epoch_s": wall_s}
            lines.append(line | {"epoch_cpu_s": cpu_s, "rows_per_s": train_rows / wall_s})
    return lines


def equal_starts_document(report: dict[str, Any]) -> str:
    """The report on equal starts in Markdown."""
    heads = ["backbone", "seed", *(f"{of} {side}" for of in METRICS.values() for side in SIDES)]
    heads += [*(f"difference of {label}" for label in METRICS.values()), ""]
    lines = [
        [
            line["backbone"],
            line["seed"],
            *(f"{line[side][metric]:.8f}" for metric in METRICS for side in SIDES),
            *(f"{line['difference'][metric]:.1e}" for metric in METRICS),
            line["verdict"],
        ]
        for line in report["compared"]
    ]
    table = tabulate(lines, headers=heads, tablefmt="github", disable_numparse=True)
    return f"{report['table']}\n\n{table}"


def document(report: dict[str, Any]) -> str:
    """The report in Markdown."""
    compared = [
        [
            line["backbone"],
            line["metric"],
            *(f"{v['mean']:.4f} ± {v['sd']:.4f} ({v['n']})" for v in map(line.get, SIDES)),
            f"{line['difference']:+.4f}",
            "{:+.4f} to {:+.4f}".format(*line["interval"]),
            f"{line['margin']:.4f}",
            line["verdict"],
            "" if line["verdict"] != "inconclusive" else line["seeds"] or f"over {MOST_SEEDS}",
        ]
        for line in report["compared"]
    ]
    heads = ["backbone", "metric", *SIDES, "difference", "90 % interval", "margin", "", "seeds"]
    speed = [
        [
            line["backbone"],
            line["side"],
            f"{line['epochs']:.1f}",
            f"{line['epoch_s']:.2f}",
            f"{line['epoch_cpu_s']:.2f}",
            f"{line['rows_per_s']:,.0f}",
        ]
        for line in report["speeds"]
    ]
    how = ["backbone", "side", "epochs", "s an epoch", "CPU s an epoch", "training rows/s"]
    return "\n\n".join(
        [
            report["table"],
            tabulate(compared, headers=heads, tablefmt="github", disable_numparse=True),
            tabulate(speed, headers=how, tablefmt="github", disable_numparse=True),
        ]
    )


def jobs_of(recipe: Recipe, table: PreparedTable, options: argparse.Namespace) -> list[Job]:
    """A job for each backbone, with the seed 1. Raises UsageError."""
    dataset = options.dataset or table.manifest.dataset
    if dataset not in recipe.datasets:
        if options.dataset or len(recipe.datasets) > 1:
            raise UsageError(
                f"{recipe.name}: no data set `{dataset}`",
                hint=f"--dataset names one of {', '.join(recipe.datasets)}",
            )
        (dataset,) = recipe.datasets
    names = options.backbones.split(",") if options.backbones else list(recipe.backbones)
    default = TrainSpec()
    for key, value in recipe.training.plain().items():
        if key not in PROTOCOL and value != getattr(default, key):
            raise UsageError(
                f"{recipe.name}: training.{key}: FuxiCTR has only {default.plain()[key]}"
            )
    if joins_last_row(table.manifest.rows.train, recipe.training.batch_size):
        raise UsageError(
            f"{recipe.name}: training.batch_size: the last batch has one row, on which FuxiCTR"
            " trains alone, and we with the batch before it",
            hint="name another size with training.batch_size in the recipe",
        )
    jobs = []
    for name in names:
        if name not in recipe.backbones:
            raise UsageError(f"{recipe.name}: no backbone `{name}`")
        jobs.append(
            Job(
                fingerprint=table.manifest.fingerprint,
                backbone=name,
                backbone_settings=recipe.backbones[name][dataset].plain(),
                plugin=DENSE,
                plugin_settings={},
                training=recipe.training,
                seed=1,
            )
        )
    return jobs


def finished(run: Run) -> dict[str, Any] | None:
    """What an earlier process left of the run. Raises UsageError if it was another one."""
    if not run.file.is_file():
        return None
    found: dict[str, Any] = json.loads(run.file.read_text())
    if found["asked"] != json.loads(json.dumps(run.asked)):
        raise UsageError(
            f"{run.file}: is a run with other settings, data or versions",
            hint="name another folder with --out, or delete the file",
        )
    return found


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Run what is missing, seed by seed, and compare."""
    table, recipe = PreparedTable.open(options.table), load_recipe(options.recipe)
    jobs, out = jobs_of(recipe, table, options), options.out.absolute()
    if options.equal_start:
        jobs = [without_dropout(job, epochs=options.equal_start) for job in jobs]
    files = {job.backbone: model_file(options.zoo, job.backbone) for job in jobs}
    export(table, out / "table", npz=options.loader == "npz")
    done: dict[str, dict[str, list[dict[str, Any]]]] = {
        job.backbone: {side: [] for side in SIDES} for job in jobs
    }
    # As the command was typed, so that a process that is started finds its threads.
    os.environ["OMP_NUM_THREADS"] = str(options.threads)
    work: dict[str, Callable[[Run], dict[str, Any]]] = {"ours": run_ours, "FuxiCTR": run_theirs}
    runs = [
        Run(
            side=side,
            job=job.model_copy(update={"seed": seed}),
            seed=seed,
            table=str(options.table),
            exported=str(out / "table"),
            model=str(files[job.backbone]),
            out=str(out),
            loader=options.loader,
            workers=options.workers,
            threads=options.threads,
            equal_start=bool(options.equal_start),
        )
        for seed in range(1, options.seeds + 1)
        for job in jobs
        for side in SIDES
    ]
    for run in runs[: len(jobs) * len(SIDES)]:
        their_params(run)
    with contextlib.ExitStack() as stack:
        pools = {
            side: stack.enter_context(
                ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"))
            )
            for side in SIDES
        }
        for run in runs:
            if (found := finished(run)) is None:
                found = pools[run.side].submit(work[run.side], run).result()
                if not all(math.isfinite(v or math.nan) for v in found["test"].values()):
                    raise DataError(f"{run.name}: diverged: {found['test']}")
                found["asked"] = run.asked
                write_whole(run.file, json.dumps(found, indent=1) + "\n")
                print(f"{run.name}: {found['test']}", file=sys.stderr, flush=True)
            done[run.job.backbone][run.side].append(found)
    rows = table.manifest.rows
    what = (
        f"{table.manifest.dataset}: {rows.train:,} / {rows.valid:,} / {rows.test:,} rows,"
        f" {options.threads} thread(s), loader {options.loader}, torch {torch.__version__}"
    )
    if options.equal_start:
        what += f", {options.equal_start} epoch(s) in float64 from one start, without dropout"
        compared = compare_equal_starts(done, seeds=options.seeds)
        return {"schema": 1, "table": what, "compared": compared}
    return {
        "schema": 1,
        "table": what,
        "compared": compare(done),
        "speeds": speeds(done, train_rows=rows.train),
    }


def main() -> None:
    """Measure, write the report, and end with the exit code of the verdicts."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--table", type=Path, required=True, help="folder of a prepared table")
    parser.add_argument("--recipe", required=True, help="path or name: backbones and protocol")
    parser.add_argument("--dataset", help="of the recipe, if it has several")
    parser.add_argument("--zoo", type=Path, required=True, help="FuxiCTR's model_zoo")
    parser.add_argument("--out", type=Path, required=True, help="folder of finished runs")
    parser.add_argument("--backbones", help="some of the recipe's, with commas")
    parser.add_argument("--seeds", type=int, default=5, help="runs of each side, at least 2")
    parser.add_argument("--loader", choices=["npz", "parquet"], default="npz", help="FuxiCTR's")
    parser.add_argument("--workers", type=int, default=0, help="processes of its loader")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--equal-start", type=int, metavar="N", help="epochs from equal weights")
    options = parser.parse_args()
    if options.equal_start is not None and options.equal_start < 1:
        parser.error("--equal-start: at least 1 epoch")
    if options.equal_start and options.loader != "npz":
        parser.error("--equal-start: goes with --loader npz, whose rows can be put into our order")
    if options.seeds < (1 if options.equal_start else 2):
        parser.error("--seeds: a deviation needs at least 2")
    try:
        report = measure(options)
        text = equal_starts_document(report) if options.equal_start else document(report)
        write_whole(options.out / "report.json", json.dumps(report, indent=1) + "\n")
        write_whole(options.out / "report.md", text + "\n")
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    print(text)
    verdicts = {line["verdict"] for line in report["compared"]}
    sys.exit(next(EXIT_CODES[v] for v in EXIT_CODES if v in verdicts))


if __name__ == "__main__":
    main()

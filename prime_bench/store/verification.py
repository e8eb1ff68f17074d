"""Checks of records: against their own digests, the files beside them, what follows from their own
values, and the tables that they were made from; and which records cannot be compared.
"""

import hashlib
import json
import math
import os
import re
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

import safetensors

from prime_bench.base.errors import UsageError
from prime_bench.base.files import MOST_BYTES, open_file, read_file, sha256_of
from prime_bench.base.frozen import JsonTable
from prime_bench.base.words import counted
from prime_bench.findings import (
    ALL_METRICS,
    Score,
    calibration_error,
    normalised_entropy,
    predicted_over_clicks,
    whole,
)
from prime_bench.recipe.job import Job
from prime_bench.settings.interface import TableShape
from prime_bench.settings.training import StopRule
from prime_bench.store.pairing import ComparisonKey, group_runs, pair_up
from prime_bench.store.record import (
    CONSTANT_AUC,
    Environment,
    Record,
    RunRecord,
    has_lost_digests,
    is_as_written,
    not_finite,
    notes_on_batches,
)
from prime_bench.store.runs import (
    CHECKPOINT,
    CONFIG,
    ENVIRONMENT,
    HISTORY,
    PREDICTIONS,
    RECORD,
    SEALED,
    TEST,
    JobConfig,
    Runs,
)

Topic = Literal["record", "files", "data", "pairing", "metrics", "report"]
"""What a discrepancy is about; `prime-bench verify` prints it first."""
TOLERANCE = 1e-5
"""Largest allowed difference between a metric and the recorded one, relative to the larger of it
and 1, where both need not have the same bits."""
_ROUNDING = 1e-12
"""The same for what follows from numbers of the record: logarithms of another machine may differ in
the last bit."""
_BASELINE = "dense"
"""Name of the plug-in `catalog.DENSE`; this layer does not import the catalogue."""


@dataclass(frozen=True, kw_only=True)
class Discrepancy:
    """One thing that is wrong."""

    topic: Topic
    where: str
    """A file, a job, or the two arms of a comparison."""
    what: str
    """What does not hold, in a line."""

    def plain(self) -> dict[str, str]:
        """Return the fields as JSON values."""
        return {"topic": self.topic, "where": self.where, "what": self.what}


class JobFiles(Protocol):
    """The files of a job: in its folder, or in a bundle."""

    def where(self, name: str) -> str:
        """What messages call the file `name`, such as `history.jsonl`."""

    def unreadable(self, name: str) -> str | None:
        """Why what is there cannot be the file, in a few words; None if it can, or is not there."""

    def read(self, name: str) -> bytes | None:
        """The content of the file; None if it is not there."""

    def digest(self, name: str) -> str | None:
        """The SHA-256 of the file, 64 hex digits; None if it is not there."""

    def must_have(self, name: str) -> bool:
        """Whether it is a fault if the file is not there although the record has its digest."""


@dataclass(frozen=True)
class FolderFiles:
    """The files in the folder of a job."""

    path: Path

    @classmethod
    def of(cls, record: Record, runs: Runs) -> "FolderFiles":
        """The folder of the record's job."""
        return cls(runs.path(record.job_id))

    def where(self, name: str) -> str:
        """The path of the file, in the folder of the job."""
        return str(self.path / name)

    def unreadable(self, name: str) -> str | None:
        """What is no file, cannot be read, or is larger than such a file can be."""
        path = self.path / name
        try:
            with open_file(path) as file:
                n_bytes = os.fstat(file.fileno()).st_size
                if n_bytes <= MOST_BYTES:
                    return None
                # Weights and predictions have no limit of their own, but tell their size.
                if name == CHECKPOINT:
                    with safetensors.safe_open(path, framework="numpy"):
                        return None
                if name == PREDICTIONS and zipfile.is_zipfile(file):
                    return None
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            return f"cannot be read: {error.strerror}"
        except safetensors.SafetensorError:
            pass
        return f"has {n_bytes:,} bytes, which no such file has"

    def read(self, name: str) -> bytes | None:
        """The content; None for what is no file or cannot be read."""
        try:
            return read_file(self.path / name)
        except OSError:
            return None

    def digest(self, name: str) -> str | None:
        """The SHA-256, 64 hex digits; None for what is no file or cannot be read."""
        try:
            return sha256_of(self.path / name)
        except OSError:
            return None

    def must_have(self, name: str) -> bool:
        """All but the predictions, which may be deleted: `predict` makes them again."""
        return name != PREDICTIONS


@dataclass(frozen=True)
class PackedFiles:
    """The files of a job in a bundle."""

    path: Path
    """The folder of the job inside the bundle, for messages."""
    contents: Mapping[str, bytes]
    """Content by name."""

    def where(self, name: str) -> str:
        """The path inside the bundle."""
        return str(self.path / name)

    def unreadable(self, name: str) -> str | None:  # noqa: ARG002
        """None: every member of the bundle was read."""
        return None

    def read(self, name: str) -> bytes | None:
        """The content; None if the bundle has no such file."""
        return self.contents.get(name)

    def digest(self, name: str) -> str | None:
        """The SHA-256, 64 hex digits; None if the bundle has no such file."""
        content = self.contents.get(name)
        return None if content is None else hashlib.sha256(content).hexdigest()

    def must_have(self, name: str) -> bool:
        """The files that `pack` takes; weights, histories and predictions stay where they are."""
        return name in (CONFIG, ENVIRONMENT)


@dataclass(frozen=True, kw_only=True)
class ManifestFacts:
    """What the manifest of a prepared table says, as records repeat it."""

    where: str
    """Folder of the table, for messages."""
    variant: str
    """Digest of the data settings."""
    verified: bool | str
    """As `Manifest.verified`."""
    notes: Sequence[str]
    """Sentences that every report on the table has to print."""
    card: JsonTable | None
    """The content of the user's own card; None for a bundled one."""
    rows: Mapping[str, int]
    """Rows of each split, by its name."""
    shape: TableShape


def check_record(
    record: Record, files: JobFiles, tables: Sequence[ManifestFacts] = ()
) -> Iterator[Discrepancy]:
    """Check a record and yield what does not hold.

    Args:
        record: The record.
        files: The files of its job. Those that are not there are not compared.
        tables: The tables with the record's fingerprint; without one, what depends on it is not
            checked.
    """
    where = files.where(RECORD)
    if is_as_written(record) is False:
        what = "was changed after it was written: its digest is not that of its values"
        yield Discrepancy(topic="record", where=where, what=what)
    if has_lost_digests(record):
        what = "was changed after it was written: its digests (`digests`) were removed"
        yield Discrepancy(topic="record", where=where, what=what)
    for name, what in _faults_of_files(record, files):
        yield Discrepancy(topic="files", where=files.where(name), what=what)
    # Tables of other settings may have the same content.
    own = [table for table in tables if table.variant == record.data_variant] or list(tables)
    table = own[0] if own else None
    if isinstance(record, RunRecord):
        for what in _faults_of_run(record, table):
            yield Discrepancy(topic="record", where=where, what=what)
    if table is not None:
        for what in _differences(
            f"the manifest of {table.where}",
            data_variant=(record.data_variant, table.variant),
            data_verified=(record.data_verified, table.verified),
            data_notes=(list(record.data_notes), list(table.notes)),
            data_card=(record.data_card, table.card),
        ):
            yield Discrepancy(topic="data", where=where, what=what)


def without_digests(records: Iterable[Record]) -> int:
    """Count the records that have no digests because they are of a version that wrote none."""
    return sum(record.digests is None and not has_lost_digests(record) for record in records)


def _differences(source: str, **values: tuple[object, object]) -> Iterator[str]:
    """A sentence for each value of a record that is not what `source` gives."""
    for key, (recorded, found) in values.items():
        if recorded != found:
            name = key.replace("__", ".")
            yield f"{name}: {_short(recorded)} in the record, {_short(found)} by {source}"


def _short(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= _QUOTED else f"{text[:_QUOTED]}..."


_QUOTED = 120
"""Characters of a value that a message quotes."""


def _faults_of_files(record: Record, files: JobFiles) -> Iterator[tuple[str, str]]:
    """Name and fault of each file that does not belong to the record."""
    found = {name: why for name in SEALED if (why := files.unreadable(name)) is not None}
    found.update(_misfits(record, files))
    yield from found.items()
    sealed = {} if record.digests is None else record.digests.files
    if isinstance(record, RunRecord) and record.weights is not None:
        sealed = {**sealed, CHECKPOINT: record.weights}
    for name, expected in sorted(sealed.items()):
        if name in found:
            continue
        digest = files.digest(name)
        if digest is None:
            if files.must_have(name):
                yield name, "missing"
        elif digest != expected and name == CHECKPOINT:
            yield name, "not the weights from which the record's metrics were computed"
        elif digest != expected:
            yield name, "not the file with which the record was written"


def _misfits(record: Record, files: JobFiles) -> Iterator[tuple[str, str]]:
    """Name and fault of each file that says something else than the record."""
    config = _json(files.read(CONFIG))
    if config is not None:
        read, _ = JobConfig.check(config)
        said = None if read is None else (read.job.id, read.dataset, read.arm)
        if (config.get("job_id"), said) != (
            record.job_id,
            (record.job_id, record.dataset, record.arm),
        ):
            yield CONFIG, "not the job and the labels of the record"
    environment = _json(files.read(ENVIRONMENT))
    if environment is not None and Environment.check(environment)[0] != record.environment:
        yield ENVIRONMENT, "not the environment of the record"
    if not isinstance(record, RunRecord):
        return
    history = files.read(HISTORY)
    if history is not None and _lines(history) != [line.plain() for line in record.history]:
        yield HISTORY, "not the validations of the record"
    test = _json(files.read(TEST))
    if test is not None:
        test.pop("rows", None)
        if Score.check(test)[0] != record.result.test:
            yield TEST, "not the test scores of the record"


def _json(content: bytes | None) -> dict[str, object] | None:
    """The object in a JSON file; None without a file, empty for another content."""
    if content is None:
        return None
    try:
        table = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    return table if isinstance(table, dict) else {}


def _lines(content: bytes) -> list[object] | None:
    """The values of a file of JSON lines; None if a line is not JSON."""
    try:
        return [json.loads(line) for line in content.splitlines()]
    except (ValueError, RecursionError):
        return None


def _faults_of_run(record: RunRecord, table: ManifestFacts | None) -> Iterator[str]:
    """Sentences about values of a training run that do not follow from its other values."""
    result, history = record.result, record.history
    yield from _faults_of_history(record)
    yield from _faults_of_stop(record)
    rule = StopRule(record.job.training)
    for line in history:
        rule.improves(line.valid_auc)
    last = history[-1] if history else None
    best = max((v.epoch for v in history if v.improved), default=None)
    yield from _differences(
        "its history",
        result__epochs=(result.epochs, len(history)),
        result__best_epoch=(result.best_epoch, best),
        result__stopped=(result.stopped, "patience" if rule.stop else "max_epochs"),
    )
    scored = next((v for v in history if v.epoch == best), last)
    if scored is not None:
        # Where operations need not be repeated bit by bit, only gross differences are told.
        exact = record.environment.device_kind == "cpu" and not record.job.training.compile
        for metric, then, found in (
            ("auc", result.valid.auc, scored.valid_auc),
            ("logloss", result.valid.logloss, scored.valid_logloss),
        ):
            if not agree(found, then, tolerance=0.0 if exact else TOLERANCE):
                where = f"epoch {scored.epoch} of its history"
                yield f"result.valid.{metric}: {then} in the record, {found} by {where}"
    for name, score in result.scores.items():
        if (score.auc is None) != (score.logloss is None):
            yield f"result.{name}: only one of two metrics is there"
        yield from _faults_of_score(name, score, None if table is None else table.rows)
    if not _is_degeneracy(record, None if table is None else table.rows):
        said = _short(result.degenerate)
        yield f"result.degenerate: {said} does not follow from its scores and history"
    if last is not None and record.wall_s < last.wall_s:
        yield f"wall_s: {record.wall_s} in the record, {last.wall_s} at its last validation"
    if table is not None:
        yield from _faults_by_table(record, table)


def _faults_of_score(name: str, score: Score, rows: Mapping[str, int] | None) -> Iterator[str]:
    """Sentences about metrics of a split that do not follow from its bins and its LogLoss."""
    bins = score.deciles
    if not bins or score.logloss is None:
        for key in (*ALL_METRICS[2:], "deciles", "groups"):
            if getattr(score, key) is not None:
                yield f"result.{name}.{key}: is there without what it is computed from"
        return
    every = whole(bins)
    if any(item.clicks > item.rows for item in bins) or not 0 < every.clicks < every.rows:
        yield f"result.{name}.deciles: clicks that such bins cannot have"
        return
    entropy = normalised_entropy(score.logloss, clicks=every.clicks, rows=every.rows)
    for metric, found in (
        ("ne", entropy),
        ("pcoc", predicted_over_clicks(bins)),
        ("ece", calibration_error(bins)),
        ("ece_all", calibration_error([every])),
    ):
        if not agree(found, recorded := getattr(score, metric), tolerance=_ROUNDING):
            yield f"result.{name}.{metric}: {recorded} in the record, {found} by its deciles"
    if rows is not None and every.rows != rows[name]:
        yield f"result.{name}.deciles: {every.rows} rows, the table has {rows[name]}"
    groups = score.groups
    if (groups is None or not groups.groups) != (score.gauc is None):
        yield f"result.{name}: gauc or the groups that it is of are missing"
    if groups is not None:
        counted = groups.rows + groups.one_class_rows + groups.rows_without_group
        if counted != every.rows:
            yield f"result.{name}.groups: {counted} rows, its deciles have {every.rows}"


def _faults_of_history(record: RunRecord) -> Iterator[str]:
    """Sentences about validations that no run can have left."""
    history, spec = record.history, record.job.training
    before_s = 0.0
    for number, line in enumerate(history, start=1):
        where = f"validation {number}"
        if line.epoch != number:
            yield f"history: {where} has epoch {line.epoch}"
        if line.step != number * history[0].step:
            yield f"history: {where} has step {line.step}, not {number} times {history[0].step}"
        if line.wall_s < before_s:
            yield f"history: {where} ended before the one before it"
        before_s = line.wall_s
        if (line.valid_auc is None) != (line.valid_logloss is None):
            yield f"history: {where} has only one of two metrics"
        if line.valid_auc is None and line.train_loss is not None:
            yield f"history: {where} has a loss, though its predictions were not finite"
        if line.routing is not None and not all(
            math.isclose(effective, math.exp(entropy), rel_tol=TOLERANCE)
            for effective, entropy in zip(
                line.routing.effective_experts, line.routing.entropy, strict=False
            )
        ):
            yield f"history: {where} has effective experts that are not exp of the entropy"
    if len(history) > spec.max_epochs:
        yield f"history: {len(history)} validations, of at most {spec.max_epochs}"


def _faults_of_stop(record: RunRecord) -> Iterator[str]:
    """Sentences about validations that do not agree with the stop rule, which is applied again."""
    history, spec = record.history, record.job.training
    rule = StopRule(spec)
    for line in history:
        if rule.stop:
            yield f"history: epoch {line.epoch} was run after the stop rule had ended the run"
        rate, improves = rule.learning_rate, rule.improves(line.valid_auc)
        yield from _differences(
            "the stop rule",
            **{
                f"history, epoch {line.epoch}, learning_rate": (line.learning_rate, rate),
                f"history, epoch {line.epoch}, improved": (line.improved, improves),
            },
        )
    if history and not rule.stop and len(history) < spec.max_epochs:
        yield (
            f"history: it ends after {counted(len(history), 'epoch')}, and no rule ended the "
            "run there"
        )


def _is_degeneracy(record: RunRecord, rows: Mapping[str, int] | None) -> bool:
    """Whether `result.degenerate` is what a run with these scores and this history says."""
    parts = [re.escape(text) for text in not_finite(record.history)]
    for name, score in record.result.scores.items():
        n_rows = r"\d+" if rows is None else str(rows[name])
        if score.auc is None:
            parts.append(rf"{name}: [1-9]\d* of {n_rows} predictions are not finite")
        elif score.auc == CONSTANT_AUC:
            parts.append(rf"{name}: (every prediction is \S+|the AUC is 0\.5)")
    if not parts:
        return record.result.degenerate is None
    return re.fullmatch("; ".join(parts), record.result.degenerate or "") is not None


def _faults_by_table(record: RunRecord, table: ManifestFacts) -> Iterator[str]:
    """Sentences about values of a training run that do not follow from its table."""
    spec, train_rows = record.job.training, table.rows["train"]
    steps = spec.steps_of_epoch(train_rows)
    notes = notes_on_batches(train_rows, batch_size=spec.batch_size)
    yield from _differences(
        f"the rows of {table.where}",
        **({"history, step of epoch 1": (record.history[0].step, steps)} if record.history else {}),
        result__notes=(list(record.result.notes), notes),
    )
    budget = _budget(record.job, table.shape)
    if budget is not None:
        yield from _differences("the formulas", budget=(record.budget.plain(), budget))


def _budget(job: Job, shape: TableShape) -> Mapping[str, object] | None:
    """The budget by the formulas. None for classes that are not ours, which are not loaded, and for
    settings that this version does not have.
    """
    try:
        return job.resolve().budget(shape).plain() if job.is_ours else None
    except UsageError:
        return None


def agree(found: float | None, recorded: float | None, *, tolerance: float) -> bool:
    """Whether two values of a metric differ by at most `tolerance`, relative to the larger of the
    recorded one and 1.
    """
    if found is None or recorded is None:
        return found is recorded
    return abs(found - recorded) <= tolerance * max(1.0, abs(recorded))


def check_data(records: Iterable[Record]) -> Iterator[Discrepancy]:
    """Yield, once for each table, that its data differ from those of the card."""
    unverified: dict[tuple[str, str], int] = {}
    for record in records:
        if not record.data_verified:
            key = (record.dataset, record.job.fingerprint)
            unverified[key] = unverified.get(key, 0) + 1
    for (dataset, fingerprint), count in sorted(unverified.items()):
        where = f"{dataset} {fingerprint[:8]}"
        what = f"data that differ from those of the card, in {counted(count, 'record')}"
        yield Discrepancy(topic="data", where=where, what=what)


def check_pairs(records: Iterable[RunRecord]) -> Iterator[Discrepancy]:
    """Yield the runs that are in no comparison with `dense`, and why.

    Which seeds an arm should have is for its recipe to say: a run of `dense` needs a partner in one
    arm, not in each.
    """
    grouped, _ = group_runs(records)
    for comparison, arms in sorted(grouped.items()):
        dense = {s: run for key in arms if key.plugin == _BASELINE for s, run in arms[key].items()}
        others = {key: runs for key, runs in sorted(arms.items()) if key.plugin != _BASELINE}
        partners = {seed for runs in others.values() for seed in runs}
        alone = [run for seed, run in sorted(dense.items()) if seed not in partners]
        yield from _unpaired(comparison, alone, "no other arm has run")
        for runs in others.values():
            alone = [run for seed, run in sorted(runs.items()) if seed not in dense]
            yield from _unpaired(comparison, alone, "Dense has not run")
            for item in pair_up(dense, runs)[1]:
                if item.kind == "mismatch":
                    yield from _unpaired(comparison, [runs[item.seed]], item.reason)


def _unpaired(
    comparison: ComparisonKey, runs: Sequence[RunRecord], why: str
) -> Iterator[Discrepancy]:
    """One discrepancy of the runs of an arm, if there are any, under each name that they have."""
    for arm in sorted({run.arm for run in runs}):
        seeds = ", ".join(str(run.job.seed) for run in runs if run.arm == arm)
        where = f"{comparison.dataset} {comparison.backbone} {arm} seed {seeds}"
        yield Discrepancy(topic="pairing", where=where, what=why)

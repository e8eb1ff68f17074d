"""Checks of records against the files beside them, and of which records can be compared."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from prime_bench.base.files import sha256_of
from prime_bench.store.pairing import ComparisonKey, group_runs, pair_up
from prime_bench.store.record import Record, RunRecord
from prime_bench.store.runs import CHECKPOINT, HISTORY, Runs

Topic = Literal["record", "files", "data", "pairing", "metrics", "report"]
_BASELINE = "dense"


@dataclass(frozen=True, kw_only=True)
class Discrepancy:
    """One thing that is wrong."""

    topic: Topic
    where: str
    """A file, a job, or the two arms of a comparison."""
    what: str

    def plain(self) -> dict[str, str]:
        """Return the fields as JSON values."""
        return {"topic": self.topic, "where": self.where, "what": self.what}


def check_records(records: Iterable[Record], runs: Runs) -> Iterator[Discrepancy]:
    """Check records against the files beside them, and whether their data were those of the card.

    Yields what does not hold.
    """
    found = list(records)
    for record in found:
        if isinstance(record, RunRecord):
            yield from check_files(record, runs)
    yield from check_data(found)


def check_files(record: RunRecord, runs: Runs) -> Iterator[Discrepancy]:
    """Compare the files in a job's folder with its record, and yield what differs."""
    folder = runs.path(record.job_id)
    weights, history = folder / CHECKPOINT, folder / HISTORY
    if record.weights is not None:
        if not weights.is_file():
            yield Discrepancy(topic="files", where=str(weights), what="missing")
        elif sha256_of(weights) != record.weights:
            what = "not the weights from which the record's metrics were computed"
            yield Discrepancy(topic="files", where=str(weights), what=what)
    if history.is_file() and _lines(history.read_text(encoding="utf-8", errors="replace")) != [
        validation.plain() for validation in record.history
    ]:
        yield Discrepancy(
            topic="files", where=str(history), what="not the validations of the record"
        )


def check_data(records: Iterable[Record]) -> Iterator[Discrepancy]:
    """Yield, once for each table, that its data differ from those of the card."""
    unverified: dict[tuple[str, str], int] = {}
    for record in records:
        if not record.data_verified:
            key = (record.dataset, record.job.fingerprint)
            unverified[key] = unverified.get(key, 0) + 1
    for (dataset, fingerprint), count in sorted(unverified.items()):
        where = f"{dataset} {fingerprint[:8]}"
        what = f"data that differ from those of the card, in {count} records"
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


def _lines(text: str) -> list[object] | None:
    """The values of a file of JSON lines; None if a line is not JSON."""
    try:
        return [json.loads(line) for line in text.splitlines()]
    except (ValueError, RecursionError):
        return None

"""What `show job` prints of a job, with small charts."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from prime_bench.base.characters import visible
from prime_bench.base.words import counted

if TYPE_CHECKING:
    from prime_bench.findings import Score, Validation
    from prime_bench.schedule.details import JobDetails
    from prime_bench.store.record import Result

_BARS = "▁▂▃▄▅▆▇█"
_GAP = "·"


def text(details: "JobDetails") -> str:
    """The job's state, settings, curves, result, environment and the end of its log."""
    from prime_bench.store.record import ProbeRecord, RunRecord

    parts = [_head(details), "\n".join(_settings(details))]
    if details.history:
        parts.append("\n".join(_charts(details.history)))
    if isinstance(details.record, RunRecord):
        parts.append(_result(details.record.result))
    if isinstance(details.record, ProbeRecord):
        parts.append(f"findings: in {details.folder}/record.json, or with --json")
    if details.environment:
        parts.append("\n".join(_environment(details.environment)))
    if details.failure:
        traceback, error = details.failure.get("traceback"), details.failure.get("error")
        parts.append(str(traceback or f"failed: {error}"))
    if details.log:
        parts.append("\n".join(["end of log.txt:", *(f"  {line}" for line in details.log)]))
    return "\n\n".join(parts)


def _head(details: "JobDetails") -> str:
    job = details.job
    kind = "" if job is None or job.kind == "train" else f", {job.kind}"
    backbone, seed = (None, None) if job is None else (job.backbone, job.seed)
    names = visible(f"{details.dataset} {backbone} {details.arm} seed {seed}")
    lines = [
        f"{details.job_id}: {names}{kind}",
        visible(f"{details.state}: {details.why}"),
        visible(str(details.folder)),
    ]
    if details.record is not None:
        lines.append(f"took {details.record.wall_s:.1f} s")
    return "\n".join(lines)


def _settings(details: "JobDetails") -> Iterator[str]:
    """Every setting with its value and where it is from."""
    from prime_bench.cli.output import table_text

    # As JSON values: a table shows them as a recipe writes them.
    job: Mapping[str, Any] = {} if details.job is None else details.job.plain()
    origins = details.origins
    tables: dict[str, Mapping[str, Any]] = {
        "data": details.data or {},
        "training": job.get("training", {}),
        "backbone": job.get("backbone_settings", {}),
        "arm": job.get("plugin_settings", {}),
        "probe": job.get("probe", {}),
    }
    rows = [["seed", json.dumps(job.get("seed")), origins.get("seed", "-")]]
    for table, settings in tables.items():
        default = "card" if table == "data" else "default"
        # The config of an older version, or of another program, has no origins.
        unknown = default if origins else "-"
        for key, value in settings.items():
            name = f"{table}.{key}"
            rows.append([name, json.dumps(value), origins.get(name, unknown)])
    yield table_text(rows, header=["setting", "value", "from"])
    yield f"numerics {job.get('numerics')}, data {str(job.get('fingerprint'))[:12]}"
    if not details.data:
        yield "its prepared data are not here (--data-dir): their settings are left out"


def _charts(history: "Sequence[Validation]") -> Iterator[str]:
    yield f"{counted(len(history), 'epoch')}:"
    for name, values in {
        "validation AUC": [validation.valid_auc for validation in history],
        "validation LogLoss": [validation.valid_logloss for validation in history],
        "training loss": [validation.train_loss for validation in history],
    }.items():
        ends = " to ".join("-" if v is None else f"{v:.4f}" for v in (values[0], values[-1]))
        yield f"  {name:<19}{sparkline(values)}  {ends}"


def _result(result: "Result") -> str:
    lines = [
        visible(line) for split, score in result.scores.items() for line in _score(split, score)
    ]
    lines.append(f"  best epoch {result.best_epoch}, ended by {result.stopped}")
    if result.degenerate:
        lines.append(visible(f"  degenerate: {result.degenerate}"))
    return "\n".join(["result:", *lines, *(visible(f"  note: {note}") for note in result.notes)])


def _score(split: str, score: "Score") -> Iterator[str]:
    """The metrics of a split; those that its record does not have are left out."""
    from prime_bench.findings import ALL_METRICS, METRIC_LABELS

    first = f"  {split}: AUC {_number(score.auc)}, LogLoss {_number(score.logloss)}"
    values = {METRIC_LABELS[key]: getattr(score, key) for key in ALL_METRICS[2:]}
    shown = [f"{name} {value:.6f}" for name, value in values.items() if value is not None]
    yield ", ".join([first, *shown])
    if (groups := score.groups) is not None:
        yield (
            f"    groups by {groups.column}: {groups.groups:,} of {groups.rows:,} rows; left out:"
            f" {groups.one_class_groups:,} of one class with"
            f" {counted(groups.one_class_rows, 'row')},"
            f" {counted(groups.rows_without_group, 'row')} without a value"
        )


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.6f}"


def _environment(environment: Mapping[str, object]) -> Iterator[str]:
    yield "environment:"
    for key, value in environment.items():
        shown = value
        if key == "versions" and isinstance(value, Mapping):
            shown = ", ".join(f"{package} {version}" for package, version in value.items())
        yield visible(f"  {key:<17}{shown}")


def sparkline(values: Sequence[float | None], *, width: int = 60) -> str:
    """A bar a value, the lowest ▁ and the highest █; `·` where there is no number.

    More values than `width` are cut to the last ones.
    """
    shown = values[-width:]
    numbers = [value for value in shown if value is not None]
    if not numbers:
        return _GAP * len(shown)
    low, high = min(numbers), max(numbers)
    return "".join(_GAP if value is None else _bar(value, low, high) for value in shown)


def _bar(value: float, low: float, high: float) -> str:
    share = (value - low) / (high - low) if high > low else 0.0
    return _BARS[round(share * (len(_BARS) - 1))]

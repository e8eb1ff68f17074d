"""What `show job` prints of a job: JSON, or text with small charts."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from prime_bench.store.runs import Runs

_LOG_LINES = 10
_SERIES = {"validation AUC": "valid_auc", "validation LogLoss": "valid_logloss"}
_SERIES |= {"training loss": "train_loss"}
_BARS = "▁▂▃▄▅▆▇█"
_GAP = "·"


def facts(job_id: str, runs: "Runs", *, data_dir: Path) -> dict[str, Any]:
    """Everything about the job, as JSON values. Raises DataError for a broken record."""
    from prime_bench.recipe.job import Job
    from prime_bench.schedule.plan import job_state
    from prime_bench.store.runs import (
        CONFIG,
        ENVIRONMENT,
        FAILURE,
        HISTORY,
        LOG,
        read_history,
        read_object,
        read_text,
    )

    folder = runs.path(job_id)
    record = runs.find(job_id)
    found = {} if record is None else record.plain()
    config = read_object(folder / CONFIG)
    job: Any = found.get("job") or config.get("job")
    state, why = "unknown", "no config.json"
    if job:
        state, why, _ = job_state(Job.parse(job, where=""), runs)
    request = {**config, **found}
    return {
        "job_id": job_id,
        "path": str(folder),
        "state": state,
        "why": why,
        **{key: request.get(key) for key in ("dataset", "arm", "recipe", "data_verified")},
        "job": job,
        "origins": config.get("origins", {}),
        "data": _data_settings(job, data_dir=data_dir),
        "budget": found.get("budget"),
        "result": found.get("result"),
        "findings": found.get("findings"),
        "history": found.get("history")
        or [validation.plain() for validation in read_history(folder / HISTORY)],
        "environment": found.get("environment") or read_object(folder / ENVIRONMENT) or None,
        "wall_s": found.get("wall_s"),
        "log": read_text(folder / LOG).splitlines()[-_LOG_LINES:],
        "failure": read_object(folder / FAILURE) or None,
    }


def text(job: Mapping[str, Any]) -> str:
    """For people."""
    parts = [_head(job), "\n".join(_settings(job))]
    if job["history"]:
        parts.append("\n".join(_charts(job["history"])))
    if job["result"]:
        parts.append(_result(job["result"]))
    if job["findings"]:
        parts.append(f"findings: in {job['path']}/record.json, or with --json")
    if job["environment"]:
        parts.append("\n".join(_pairs("environment", job["environment"])))
    if job["failure"]:
        parts.append(job["failure"].get("traceback") or f"failed: {job['failure'].get('error')}")
    if job["log"]:
        parts.append("\n".join(["end of log.txt:", *(f"  {line}" for line in job["log"])]))
    return "\n\n".join(parts)


def _head(job: Mapping[str, Any]) -> str:
    what = job["job"] or {}
    kind = f", {what['kind']}" if what.get("kind", "train") != "train" else ""
    names = [job["dataset"], what.get("backbone"), job["arm"], f"seed {what.get('seed')}"]
    lines = [
        f"{job['job_id']}: {' '.join(str(name) for name in names)}{kind}",
        f"{job['state']}: {job['why']}",
        str(job["path"]),
    ]
    if job["wall_s"] is not None:
        lines.append(f"took {job['wall_s']:.1f} s")
    return "\n".join(lines)


def _settings(job: Mapping[str, Any]) -> Iterator[str]:
    """Every setting with its value and where it is from."""
    from prime_bench.cli.output import table_text

    what, origins = job["job"] or {}, job["origins"]
    tables = {
        "data": job["data"] or {},
        "training": what.get("training", {}),
        "backbone": what.get("backbone_settings", {}),
        "arm": what.get("plugin_settings", {}),
        "probe": what.get("probe", {}),
    }
    rows = [["seed", json.dumps(what.get("seed")), origins.get("seed", "-")]]
    for table, settings in tables.items():
        default = "card" if table == "data" else "default"
        # A job of an older version, or of somebody else's program, does not say.
        unknown = default if origins else "-"
        for key, value in settings.items():
            name = f"{table}.{key}"
            rows.append([name, json.dumps(value), origins.get(name, unknown)])
    header = ["setting", "value", "from"]
    yield table_text(rows, header=header)
    yield f"numerics {what.get('numerics')}, data {str(what.get('fingerprint'))[:12]}"
    if not job["data"]:
        yield "its prepared data are not here (--data-dir): their settings are left out"


def _charts(history: list[Mapping[str, Any]]) -> Iterator[str]:
    from prime_bench.cli.output import counted

    yield f"{counted(len(history), 'epoch')}:"
    for name, key in _SERIES.items():
        values = [line.get(key) for line in history]
        ends = " to ".join("-" if v is None else f"{v:.4f}" for v in (values[0], values[-1]))
        yield f"  {name:<19}{sparkline(values)}  {ends}"


def _result(result: Mapping[str, Any]) -> str:
    lines = [
        f"  {split}: AUC {_number(result[split]['auc'])}, "
        f"LogLoss {_number(result[split]['logloss'])}"
        for split in ("valid", "test")
    ]
    lines.append(f"  best epoch {result['best_epoch']}, ended by {result['stopped']}")
    if result["degenerate"]:
        lines.append(f"  degenerate: {result['degenerate']}")
    return "\n".join(["result:", *lines, *(f"  note: {note}" for note in result["notes"])])


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.6f}"


def _pairs(title: str, table: Mapping[str, Any]) -> Iterator[str]:
    yield f"{title}:"
    for key, value in table.items():
        shown = ", ".join(f"{k} {v}" for k, v in value.items()) if key == "versions" else value
        yield f"  {key:<17}{shown}"


def _data_settings(job: Mapping[str, Any] | None, *, data_dir: Path) -> dict[str, Any] | None:
    """The settings of the job's table; None where it is not here."""
    from prime_bench.base.errors import DataError
    from prime_bench.data.manifest import Manifest, table_with

    try:
        folder = table_with(str((job or {}).get("fingerprint")), data_dir=data_dir)
    except DataError:
        return None
    settings: dict[str, Any] = Manifest.read(folder).settings
    return settings


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

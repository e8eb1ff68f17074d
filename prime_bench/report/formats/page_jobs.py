"""The jobs behind the cells of a page: scores, validation curve, settings and environment."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from pydantic import JsonValue

from prime_bench.base.characters import visible
from prime_bench.base.identity import canonical_json
from prime_bench.report.quantities.layout import arm_label
from prime_bench.store.record import ProbeRecord, RunRecord

Settings = dict[str, JsonValue]


@dataclass(frozen=True, kw_only=True)
class PageJob:
    """One job as the page's script reads it; scores are those of a trained run, on test rows."""

    arm: str
    """Printed name."""
    seed: int
    parts: dict[str, int]
    """Title of a group of settings, and its index in `PageJobs.parts`."""
    auc: float | None = None
    logloss: float | None = None
    best: int | None = None
    """The epoch whose weights were kept."""
    flag: str | None = None
    """Why the run is degenerate."""
    curve: tuple[tuple[int, float | None, float | None], ...] = ()
    """Epoch, validation AUC and validation LogLoss."""


@dataclass(frozen=True, kw_only=True)
class PageJobs:
    """All jobs of a page. Settings and environments that jobs share are in `parts` once."""

    baseline: str
    """Printed name of the arm that is drawn first in every chart."""
    jobs: dict[str, PageJob] = field(default_factory=dict)
    """By job id."""
    parts: list[Settings] = field(default_factory=list)


def jobs_json(records: Mapping[str, RunRecord | ProbeRecord], job_ids: Iterable[str]) -> str:
    """Return the jobs as JSON that may stand in a `<script>`; ids without a record are left out."""
    page = PageJobs(baseline=arm_label("dense"))
    indices: dict[str, int] = {}
    for job_id in sorted(job_ids):
        if job_id not in records:
            continue
        parts: dict[str, int] = {}
        for title, settings in _settings_of(records[job_id]).items():
            text = canonical_json(settings)
            if text not in indices:
                indices[text] = len(page.parts)
                page.parts.append(json.loads(text))
            parts[title] = indices[text]
        page.jobs[job_id] = _job_of(records[job_id], parts)
    shown = _visible(asdict(page))
    text = json.dumps(shown, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    # Without `<` no text in it can end the element.
    return text.replace("<", "\\u003c")


def _visible(value: Any) -> Any:
    """The same JSON value, in whose texts and keys every control character is shown."""
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, dict):
        return {visible(key): _visible(item) for key, item in value.items()}
    return [_visible(item) for item in value] if isinstance(value, list | tuple) else value


def _job_of(record: RunRecord | ProbeRecord, parts: dict[str, int]) -> PageJob:
    arm, seed = arm_label(record.arm), record.job.seed
    if isinstance(record, ProbeRecord):
        return PageJob(arm=arm, seed=seed, parts=parts)
    result = record.result
    return PageJob(
        arm=arm,
        seed=seed,
        parts=parts,
        auc=result.test.auc,
        logloss=result.test.logloss,
        best=result.best_epoch,
        flag=record.degenerate,
        curve=tuple(
            (point.epoch, _drawn(point.valid_auc), _drawn(point.valid_logloss))
            for point in record.history
        ),
    )


def _drawn(value: float | None) -> float | None:
    """A value of a curve, in which nobody sees more digits: they are most of a large page."""
    return None if value is None else round(value, 6)


def _settings_of(record: RunRecord | ProbeRecord) -> dict[str, Settings]:
    """Settings and environment under the titles that the page shows."""
    job = record.job
    # No two jobs share the time of their start.
    environment = record.environment.model_dump(mode="json", exclude={"versions", "started"})
    return {
        "Configuration": {
            "kind": job.kind,
            "data set": record.dataset,
            "data fingerprint": job.fingerprint,
            "data verified": record.data_verified,
            "backbone": job.backbone,
            **{f"backbone.{key}": value for key, value in job.backbone_settings.items()},
            **{f"training.{key}": value for key, value in job.training.plain().items()},
            "numerics": job.numerics,
        },
        "Arm": {
            "plug-in": job.plugin,
            **job.plugin_settings,
            **{f"probe.{key}": value for key, value in job.probe.items()},
            **{f"code of {key}": value for key, value in job.code.items()},
        },
        "Environment": {**environment, **record.environment.versions},
    }

"""What stands behind the cells of a page: each job's scores, curve, settings and environment."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from prime_bench.base.identity import canonical_json
from prime_bench.report.quantities.design import arm_label
from prime_bench.store.record import ProbeRecord, RunRecord

Record = RunRecord | ProbeRecord


def jobs_json(records: Mapping[str, Record], job_ids: Iterable[str]) -> str:
    """`{"baseline": ..., "jobs": {id: ...}, "parts": [...]}`, as JSON that a `<script>` may hold.

    Settings and environments that jobs share are written once, in `parts`; a job names theirs by
    index. Ids without a record are left out.
    """
    parts: dict[str, int] = {}
    jobs = {job_id: _job(records[job_id], parts) for job_id in sorted(job_ids) if job_id in records}
    content = {
        "baseline": arm_label("dense"),
        "jobs": jobs,
        "parts": [json.loads(text) for text in parts],
    }
    text = json.dumps(content, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    # No text in it can end the element.
    return text.replace("<", "\\u003c")


def _job(record: Record, parts: dict[str, int]) -> dict[str, Any]:
    """Curves are lists of epoch, validation AUC and LogLoss."""
    job = record.job
    shared = {
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
        "Environment": _environment(record),
    }
    own: dict[str, Any] = {
        "arm": arm_label(record.arm),
        "seed": job.seed,
        "parts": {
            name: parts.setdefault(canonical_json(values), len(parts))
            for name, values in shared.items()
        },
        "curve": [],
    }
    if isinstance(record, RunRecord):
        own |= {
            "auc": record.result.test.auc,
            "logloss": record.result.test.logloss,
            "best": record.result.best_epoch,
            "flag": record.result.degenerate,
            "curve": [
                [point.epoch, point.valid_auc, point.valid_logloss] for point in record.history
            ],
        }
    return own


def _environment(record: Record) -> dict[str, Any]:
    """Without the start, which no two jobs share."""
    values = record.environment.plain()
    versions = values.pop("versions")
    values.pop("started")
    return {**values, **versions}

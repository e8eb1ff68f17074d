"""What `prepare` prints of a table."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from prime_bench.data.manifest import BestPossible, Manifest

PREPARE_SCHEMA = 1


def plain(manifest: "Manifest", folder: Path) -> dict[str, Any]:
    """As JSON values."""
    return {
        "schema": PREPARE_SCHEMA,
        "dataset": manifest.dataset,
        "fingerprint": manifest.fingerprint,
        "path": str(folder),
        "verified": manifest.verified,
        "rows": manifest.rows.plain(),
        "positives": manifest.positives.plain(),
        "fields": manifest.n_fields,
        "vocabulary_total": manifest.vocabulary_total,
        "settings": manifest.settings,
        "notes": manifest.notes,
        "best": None if manifest.best is None else best_plain(manifest.best),
    }


def best_plain(best: Mapping[Any, "BestPossible"]) -> dict[str, Any]:
    """As JSON values."""
    return {split: score.plain() for split, score in best.items()}


def summary(manifest: "Manifest", folder: Path) -> str:
    """A few lines for people."""
    lines = [f"{manifest.dataset}: {folder}"]
    for split, rows in manifest.rows.plain().items():
        share = getattr(manifest.positives, split) / rows
        lines.append(f"  {split:<12}{rows:>12,} rows, {share:.4f} positive")
    lines += [
        f"  fields      {manifest.n_fields:>12}",
        f"  vocabulary  {manifest.vocabulary_total:>12,} ids",
        f"  fingerprint {manifest.fingerprint[:12]:>12}",
        f"  verified    {'yes' if manifest.verified else 'no':>12}",
    ]
    if manifest.best is not None:
        lines.append(f"  {best_line(manifest.best)}")
    return "\n".join([*lines, *(f"  note: {note}" for note in manifest.notes)])


def best_line(splits: Mapping[Any, "BestPossible"]) -> str:
    """One line for people; a single test row orders nothing, so it has no best."""
    best = splits.get("test")
    if best is None:
        return "best possible on test: none, its rows are too few"
    return f"best possible on test: AUC {best.auc:.4f}, LogLoss {best.logloss:.4f}"

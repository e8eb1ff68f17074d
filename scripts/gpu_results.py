"""What the GPU checks have found: one JSON file and the same as Markdown, written after each part.

Every table is made from the figures that are there; what has not been done is named, not guessed.
"""

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Literal

from prime_bench.base.files import write_whole

Figures = dict[str, Any]
Verdict = Literal["ok", "WRONG", "left out", "not reached"]
SCHEMA = 2
_STEP_COLUMNS = {
    "eager_ms": "eager",
    "graph_ms": "graph",
    "tf32_ms": "graph, TF32",
    "compiled_ms": "compiled",
}
_INFERENCE_COLUMNS = {
    "inference_eager_ms": "eager",
    "inference_graph_ms": "graph",
    "inference_compiled_ms": "compiled",
}


@dataclass(frozen=True, kw_only=True)
class PartResult:
    """What became of a part of a check."""

    verdict: Verdict
    why: str = ""
    seconds: float = 0.0
    figures: Figures = field(default_factory=dict)


class Results:
    """The results so far, in `gpu_check.json` and `gpu_check.md` of a folder."""

    def __init__(self, folder: Path | None, *, about: Mapping[str, Any], started: float) -> None:
        """Start without results.

        Args:
            folder: Where the files are written; None to write none.
            about: On what machine, and with what.
            started: What the performance counter showed at the start.
        """
        self.about: dict[str, Any] = {"schema": SCHEMA, **about, "finished": False}
        self.checks: dict[str, dict[str, PartResult]] = {}
        self._folder, self._started = folder, started

    def begin(self, check: str, parts: Sequence[str]) -> None:
        """Note what is to be done."""
        self.checks[check] = {part: PartResult(verdict="not reached") for part in parts}

    def put(self, check: str, part: str, result: PartResult) -> None:
        """Add a result and write the files."""
        self.checks[check][part] = result
        self.write()

    def write(self) -> None:
        """Write both files; each appears whole or stays as it was."""
        if self._folder is not None:
            content = json.dumps(self.plain(), indent=1) + "\n"
            write_whole(self._folder / "gpu_check.json", content)
            write_whole(self._folder / "gpu_check.md", self.markdown())

    def verdict(self, check: str) -> str:
        """`WRONG` if a part is, else `ok` if all are, else what the parts are."""
        found = {result.verdict for result in self.checks.get(check, {}).values()}
        if "WRONG" in found:
            return "WRONG"
        return " and ".join(sorted(found)) or "not reached"

    @property
    def wall_s(self) -> float:
        """Seconds since the start."""
        return time.perf_counter() - self._started

    @property
    def wrong(self) -> bool:
        """Whether a check has found a fault."""
        return any(self.verdict(check) == "WRONG" for check in self.checks)

    def figures(self, check: str) -> dict[str, Figures]:
        """The figures of each part that was done."""
        parts = self.checks.get(check, {})
        return {part: result.figures for part, result in parts.items() if result.verdict == "ok"}

    def plain(self) -> dict[str, Any]:
        """Everything as JSON values."""
        return {
            **self.about,
            "wall_s": self.wall_s,
            "checks": {
                check: {
                    "verdict": self.verdict(check),
                    "seconds": sum(result.seconds for result in parts.values()),
                    "parts": {part: asdict(result) for part, result in parts.items()},
                }
                for check, parts in self.checks.items()
            },
        }

    def markdown(self) -> str:
        """Everything that a reader wants to see, as a section of a document."""
        blocks = [self._head(), self._checks(), *self._steps()]
        return "\n\n".join(block for block in blocks if block) + "\n"

    def _head(self) -> str:
        about = self.about
        name = f"{about['device']}{' (small)' if about['small'] else ''}"
        state = "complete" if about["finished"] else "interrupted, or still running"
        return (
            f"## {name}\n\n`scripts/gpu_check.sh`, {about['date']}: torch {about['torch']}, CUDA"
            f" {about['cuda']}, Python {about['python']}, {about['threads']} CPU threads, commit"
            f" {about['commit']}; {self.wall_s:.0f} s of {about['minutes']:g} minutes, {state}."
        )

    def _checks(self) -> str:
        rows = []
        for check, parts in self.checks.items():
            seconds = sum(result.seconds for result in parts.values())
            rows.append([check, self.verdict(check), f"{seconds:.1f}", _outcome(parts)])
        return table(["check", "verdict", "s", "what was found, or why not"], rows)

    def _steps(self) -> Iterable[str]:
        """A table a data set: training steps and inference, and what memory they take."""
        compiled = self.figures("compiled")
        for check, dataset in (("steps", "Avazu_x1"), ("steps_criteo", "Criteo_x4")):
            rows = []
            for part, arms in self.figures(check).items():
                backbone = part.split()[1]
                more = compiled.get(backbone, {}) if check == "steps" else {}
                for arm, found in arms.items():
                    both = {**found, **more.get(arm, {})}
                    dense = {**arms["dense"], **more.get("dense", {})}
                    rows.append([backbone, arm, *_step_cells(both, dense, is_dense=arm == "dense")])
            if rows:
                columns = [
                    *_STEP_COLUMNS.values(),
                    *map("infer {}".format, _INFERENCE_COLUMNS.values()),
                ]
                header = ["backbone", "arm", *columns, "MB training", "MB inference"]
                yield f"{dataset}, ms a batch, ratio to Dense:\n\n{table(header, rows)}"


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _outcome(parts: Mapping[str, PartResult]) -> str:
    """A check's faults, its figures where they are few, and what was left out."""
    texts = []
    for verdict in ("WRONG", "left out", "not reached"):
        reasons: dict[str, list[str]] = {}
        for part, result in parts.items():
            if result.verdict == verdict:
                reasons.setdefault(result.why, []).append(part)
        texts += [
            f"{verdict}: {', '.join(names)}{f' ({why})' if why else ''}"
            for why, names in reasons.items()
        ]
    done = [result.figures for result in parts.values() if result.verdict == "ok"]
    return "; ".join(text for text in (*texts, _in_words(done)) if text).replace("|", "\\|")


def _in_words(figures: Sequence[Figures]) -> str:
    """The largest of each number over the parts."""
    numbers: dict[str, list[float]] = {}
    for found in figures:
        for key, value in found.items():
            if isinstance(value, int | float):
                numbers.setdefault(key, []).append(value)
    return ", ".join(f"{key} {max(values):.4g}" for key, values in numbers.items())


def _step_cells(found: Figures, dense: Figures, *, is_dense: bool) -> list[str]:
    cells = []
    for key in (*_STEP_COLUMNS, *_INFERENCE_COLUMNS):
        own, base = milliseconds(found, key), milliseconds(dense, key)
        if own is None or base is None:
            cells.append("-")
        else:
            cells.append(f"{own:.3g}" if is_dense else f"{own:.3g} x{own / base:.2f}")
    memory = [found.get(key) for key in ("training_bytes", "inference_bytes")]
    return cells + ["-" if size is None else f"{size / 1e6:.0f}" for size in memory]


def milliseconds(found: Figures, key: str) -> float | None:
    """The median of the repetitions; None if it was not measured."""
    values = found.get(key)
    return median(values) if values else None

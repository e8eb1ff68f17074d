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

from gpu_hours import FORMS, Hours, Plan, hours

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
_HOST_COLUMNS = {
    "host_ms": "launched",
    "alone_ms": "done",
    "device_ms": "kernels, ms",
    "kernels": "kernels",
    "operators": "operators",
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

    def __init__(
        self, folder: Path | None, *, about: Mapping[str, Any], plan: Plan, started: float
    ) -> None:
        """Start without results.

        Args:
            folder: Where the files are written; None to write none.
            about: On what machine, and with what.
            plan: What main13 asks for.
            started: What the performance counter showed at the start.
        """
        self.about: dict[str, Any] = {"schema": SCHEMA, **about, "finished": False}
        self.checks: dict[str, dict[str, PartResult]] = {}
        self._folder, self._plan, self._started = folder, plan, started

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
            "main13": asdict(self._plan),
            "wall_s": self.wall_s,
            "hours": {
                form: asdict(found) if isinstance(found, Hours) else {"not measured": found}
                for form, found in self.hours().items()
            },
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
        blocks = [
            self._head(),
            self._checks(),
            *self._steps(),
            self._hours(),
            self._host(),
            self._at_once(),
            self._sizes(),
        ]
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
        return table(
            ["check", "verdict", "s", "largest figures of its parts, or why there are none"], rows
        )

    def _steps(self) -> Iterable[str]:
        """A table a data set: training steps and inference, and what memory they take."""
        compiled = {**self.figures("compiled"), **self.figures("compiled_more")}
        for check, dataset in (("steps", "Avazu_x1"), ("steps_criteo", "Criteo_x4")):
            rows = []
            for part, arms in self.figures(check).items():
                backbone = part.split()[1]
                more = compiled.get(backbone, {}) if check == "steps" else {}
                for arm in ("dense", "prime"):
                    found = arms[arm]
                    both = {**found, **more.get(arm, {})}
                    dense = {**arms["dense"], **more.get("dense", {})}
                    rows.append([backbone, arm, *_step_cells(both, dense, is_dense=arm == "dense")])
            if rows:
                largest = self._largest_ratios(check)
                columns = [
                    *_STEP_COLUMNS.values(),
                    *map("infer {}".format, _INFERENCE_COLUMNS.values()),
                ]
                header = ["backbone", "arm", *columns, "MB training", "MB inference"]
                yield (
                    f"{dataset}, ms a batch of {self._plan.batch_size:,} rows, ratio to"
                    f" Dense{largest}:\n\n{table(header, rows)}"
                )

    def _largest_ratios(self, check: str) -> str:
        """The largest ratio of PRIME to Dense in each form."""
        found: dict[str, tuple[float, str]] = {}
        for part, arms in self.figures(check).items():
            for key, name in {**_STEP_COLUMNS, **_INFERENCE_COLUMNS}.items():
                own, base = (milliseconds(arms[arm], key) for arm in ("prime", "dense"))
                if own is not None and base:
                    what = "inference" if key in _INFERENCE_COLUMNS else "training"
                    ratio = (own / base, part.split()[1])
                    found[f"{what} {name}"] = max(found.get(f"{what} {name}", ratio), ratio)
        return "".join(f"; largest, {key}: {r:.3f} ({who})" for key, (r, who) in found.items())

    def hours(self) -> dict[str, Hours | list[str]]:
        """By form: the hours of main13, or what has not been measured for them."""
        steps = {
            dataset: {part.split()[1]: arms for part, arms in self.figures(check).items()}
            for check, dataset in (("steps", "avazu"), ("steps_criteo", "criteo"))
        }
        arms = {
            dataset: {
                backbone: {arm: found[arm] for arm in ("dense", "prime")}
                for backbone, found in backbones.items()
            }
            for dataset, backbones in steps.items()
        }
        jobs = {
            name: job
            for name, job in self.figures("job").items()
            if name.split()[0] in arms["avazu"]
        }
        return {form: hours(form, self._plan, steps=arms, jobs=jobs) for form in FORMS}

    def _hours(self) -> str:
        plan = self._plan
        rows, rests, (what, speed_up) = [], "", self._fastest_at_once()
        several = f"{what} do {speed_up:.2f} times the steps of one, which is assumed of all arms:"
        if not what:
            several = "No number of runs at once was measured to be faster than one:"
        for form, found in self.hours().items():
            if isinstance(found, Hours):
                cells = [found.total, found.each_epoch, found.total / speed_up]
                rows.append([form, *(f"{value:.2f}" for value in cells)])
                rests = f"o = {found.epoch_rest_s:.2f} s, r = {found.job_rest_s:.2f} s"
            else:
                rows.append([form, f"not computed: {_shortened(found)}", "", ""])
        n_runs = 2 * len(plan.rows) * len(plan.backbones) * plan.seeds
        return (
            f"Hours of `recipes/main13.toml`, {n_runs} runs one after another, computed from the"
            " figures above: the sum over data sets, backbones and arms of"
            f" {plan.seeds} seeds x (E x (n_train / {plan.batch_size:,} x step + n_valid /"
            f" {plan.batch_size:,} x forward + o) + r). E = {plan.epochs} epochs a run is an"
            " assumption: patience + 2, as `prime-bench plan` assumes where no run has ended. o"
            " (an epoch beside its steps) and r (a job outside its epochs) are what the jobs of the"
            f" check `job` took, scaled by rows{'; ' + rests if rests else ''}. {several}\n\n"
            + table(["form", "hours", "of them each epoch", "hours, several at once"], rows)
        )

    def _fastest_at_once(self) -> tuple[str, float]:
        """How many processes together do the most steps, and how many times those of one."""
        best = ("", 1.0)
        alone = self.figures("at_once").get("1")
        for check, name in (("at_once", ""), ("at_once_mps", " with MPS")):
            for part, found in self.figures(check).items():
                ratio = found["steps_per_s"] / alone["steps_per_s"] if alone else 1.0
                if ratio > best[1]:
                    best = (f"{part} runs of DNN with PRIME at once{name}", ratio)
        return best

    def _host(self) -> str:
        rows = [
            [
                *part.split(),
                form,
                *(f"{found[key]:.3f}" if key in found else "-" for key in _HOST_COLUMNS),
            ]
            for part, forms in self.figures("host").items()
            for form, found in forms.items()
            if form != "note"
        ]
        if not rows:
            return ""
        return (
            "A training step: ms until the host has launched it, ms until it is done, ms of all"
            " kernels, and how many kernels and operators it has:\n\n"
            + table(["backbone", "arm", "form", *_HOST_COLUMNS.values()], rows)
        )

    def _at_once(self) -> str:
        rows = []
        for check, service in (("at_once", "no"), ("at_once_mps", "yes")):
            figures = self.figures(check)
            alone = self.figures("at_once").get("1", {}).get("steps_per_s")
            size = next((f["process_bytes"] for f in figures.values() if "process_bytes" in f), 0)
            for part, found in figures.items():
                speed = found["steps_per_s"]
                rows.append(
                    [
                        part,
                        service,
                        f"{speed:.0f}",
                        f"{speed / alone:.2f}" if alone else "-",
                        f"{size / 1e6:.0f}",
                        f"{found['allocated_bytes'] / 1e6:.0f}",
                    ]
                )
        header = ["processes", "MPS", "steps a second", "over one", "MB a process", "MB of tensors"]
        return (
            f"DNN with PRIME, several processes at once:\n\n{table(header, rows)}" if rows else ""
        )

    def _sizes(self) -> str:
        rows, keys = [], []
        for backbone, arms in self.figures("sizes").items():
            keys = [key for key in arms["dense"] if key.startswith("inference_")]
            for arm in ("dense", "prime"):
                values = (milliseconds(arms[arm], key) for key in keys)
                rows.append([backbone, arm, *(f"{value:.4g}" for value in values)])
        names = [key.removeprefix("inference_").replace("_ms", "") for key in keys]
        header = ["backbone", "arm", *names]
        return (
            f"Inference, ms by form and rows of a batch:\n\n{table(header, rows)}" if rows else ""
        )


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
    notes = dict.fromkeys(f"left out: {found['note']}" for found in done if "note" in found)
    return "; ".join(text for text in (*texts, *notes, _in_words(done)) if text).replace("|", "\\|")


def _shortened(names: Sequence[str], n: int = 4) -> str:
    more = f" and {len(names) - n} more" if len(names) > n else ""
    return f"{', '.join(names[:n])}{more} not measured"


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

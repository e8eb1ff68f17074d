"""Notes below a table: what a reader must know to judge its numbers."""

import itertools
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from prime_bench.base.identity import canonical_json
from prime_bench.base.words import counted
from prime_bench.findings import METRIC_LABELS, Metric, Score
from prime_bench.report.quantities import formulas
from prime_bench.report.quantities.formulas import METRICS, SPLIT_LABELS, Moments
from prime_bench.report.quantities.grid import Grid, GridBlock
from prime_bench.report.quantities.layout import ArmColumn, changed_keys, changes_of_arm
from prime_bench.report.quantities.values import MISSING, Difference, Level
from prime_bench.report.tables.model import Cell, TableNote, note, series, shown
from prime_bench.settings.interface import added_text
from prime_bench.settings.training import TrainSpec
from prime_bench.store.pairing import comparison_key
from prime_bench.store.record import ProbeRecord, RunRecord
from prime_bench.store.source_versions import OtherVersion, exist_text


def collect_notes(
    grid: Grid,
    *,
    sound: Grid,
    outdated: Sequence[RunRecord],
    recipe_notes: Sequence[str] = (),
    decimals: int,
    means: str = "",
) -> tuple[TableNote, ...]:
    """All notes in a fixed order: from the records, but for `recipe_notes`.

    `sound` is the same table without degenerate runs, `outdated` the records that others with
    higher `numerics` replaced, `means` says which backbones the means leave out, `{}`.
    """
    notes: list[TableNote] = []
    for block in grid.blocks:
        notes += _pairs(block, grid)
        notes += _missing(block, grid.arms)
        notes += _unscored(block, grid)
        notes += _unmeasured(block, grid)
        notes += _mismatched(block)
        notes += _mixed(block)
        notes += _means(block, means)
    notes += _degenerate(grid, sound, decimals=decimals)
    for block in grid.blocks:
        notes += _data(block, grid.records)
    notes += (note("recipe", text) for text in recipe_notes)
    notes += _protocol(grid)
    notes += _arms(grid)
    for block in grid.blocks:
        notes += _budgets(block, grid)
    notes += _provenance(grid.records, outdated)
    notes += _chance(grid)
    return tuple(notes)


def _pairs(block: GridBlock, grid: Grid) -> Iterator[TableNote]:
    """How many pairs there are, and how many there should be."""
    if grid.baseline is None:
        return
    first = grid.metrics[0]
    own = [item for (_, _, metric), item in block.comparisons.items() if metric == first]
    n_seeds, n_rows, n_arms = len(block.layout.seeds), len(block.layout.rows), len(grid.others)
    unlike = sum(dropped.unpaired.kind == "mismatch" for dropped in block.dropped)
    asked, found = n_seeds * n_rows * n_arms, sum(len(item.seeds) for item in own)
    missing = asked - found - unlike
    degenerate = sum(len(item.degenerate_seeds) for item in own)
    yield note(
        "pairing",
        f"{block.layout.label}: {found} of {counted(asked, 'pair')} compared (seeds: {n_seeds}, "
        "backbones: "
        f"{n_rows}, arms beside {grid.baseline.label}: {n_arms}); {missing} missing, {unlike} not "
        f"comparable, {degenerate} with a degenerate run",
    )


def _missing(block: GridBlock, arms: Sequence[ArmColumn]) -> Iterator[TableNote]:
    seeds = block.layout.seeds
    labels = [row.label for row in block.layout.rows]
    missing = {
        (label, arm.name): block.scores[label, arm.name, "auc"].missing_seeds
        for label in labels
        for arm in arms
    }
    empty = {key for key, absent in missing.items() if len(absent) == len(seeds)}
    bare = [label for label in labels if all((label, arm.name) in empty for arm in arms)]
    if bare:
        yield note("missing", f"{block.layout.label}: no record for {', '.join(bare)}")
    for arm in arms:
        own = [label for label in labels if (label, arm.name) in empty and label not in bare]
        if own:
            yield note(
                "missing", f"{block.layout.label}, {arm.label}: no record for {', '.join(own)}"
            )
        for label in labels:
            absent = missing[label, arm.name]
            if absent and (label, arm.name) not in empty:
                yield note(
                    "missing",
                    f"{block.layout.label}, {label}, {arm.label}: "
                    f"{len(seeds) - len(absent)} of {counted(len(seeds), 'seed')}; missing "
                    f"{', '.join(map(str, absent))}; Δ covers complete pairs only",
                )


def _unscored(block: GridBlock, grid: Grid) -> Iterator[TableNote]:
    """Runs that lack a score and are sound; why a degenerate one has none is said elsewhere."""
    split = "test" if grid.split == "test" else "validation"
    of_all = [metric for metric in grid.metrics if metric in METRICS]
    for row, arm, metric in itertools.product(block.layout.rows, grid.arms, of_all):
        scores = block.scores[row.label, arm.name, metric]
        without = [seed for seed in scores.unscored_seeds if seed not in scores.degenerate]
        if without:
            yield note(
                "missing",
                f"{block.layout.label}, {row.label}, {arm.label}: no {split} "
                f"{METRIC_LABELS[metric]} for {', '.join(map(str, without))}; Δ covers complete "
                "pairs only",
            )


def _unmeasured(block: GridBlock, grid: Grid) -> Iterator[TableNote]:
    """Sound runs whose records have no such metric, for a reason that most of them share."""
    places = {row.comparison for row in block.layout.rows}
    own = [run for run in grid.records if comparison_key(run) in places and not run.degenerate]
    for metric in grid.metrics:
        if metric in METRICS:
            continue
        scores = [run.result.scores[grid.split] for run in own]
        reasons = Counter(
            _why_unmeasured(score) for score in scores if getattr(score, metric) is None
        )
        for reason, n_runs in sorted(reasons.items()):
            yield note(
                "missing",
                f"{block.layout.label}: no {SPLIT_LABELS[grid.split]} {METRIC_LABELS[metric]} for "
                f"{n_runs} of {counted(len(own), 'run')}: {reason}; Δ covers complete pairs only",
            )


def _why_unmeasured(score: Score) -> str:
    if score.deciles is None:
        return "their records are of a version before it"
    if score.groups is None:
        return "their table was prepared without `gauc_by`"
    return "no group has clicks and rows without one"


def _mismatched(block: GridBlock) -> Iterator[TableNote]:
    for dropped in block.dropped:
        if dropped.unpaired.kind == "mismatch":
            yield note(
                "mismatch",
                f"{block.layout.label}, {dropped.row.label}, {dropped.arm.label}: seed "
                f"{dropped.unpaired.seed} is not compared: {dropped.unpaired.reason}",
            )


def _mixed(block: GridBlock) -> Iterator[TableNote]:
    for pair in block.mixed:
        yield note(
            "mixed",
            f"{block.layout.label}, {pair.row.label}, {pair.arm.label}: seed {pair.seed} is "
            f"compared on request: {pair.reason}",
        )


def _means(block: GridBlock, means: str) -> Iterator[TableNote]:
    left_out = [row.label for row in block.layout.rows if row.label not in block.mean_rows]
    if means and block.mean_rows and left_out:
        yield note("mean", f"{block.layout.label}: {means.format(', '.join(left_out))}")


def _degenerate(grid: Grid, sound: Grid, *, decimals: int) -> Iterator[TableNote]:
    for block, healthy in zip(grid.blocks, sound.blocks, strict=True):
        touched = False
        for row, arm in itertools.product(block.layout.rows, grid.arms):
            for seed, reason in block.scores[row.label, arm.name, "auc"].degenerate.items():
                touched = True
                yield note(
                    "degenerate",
                    f"† {block.layout.label}, {row.label}, {arm.label}: "
                    f"seed {seed} is degenerate: {reason}",
                )
            yield from _cell_without(
                block, healthy, row.label, arm, decimals=decimals, metrics=grid.metrics
            )
        if touched:
            yield from _summary_without(
                healthy, grid.others, decimals=decimals, metrics=grid.metrics
            )


def _cell_without(
    block: GridBlock,
    healthy: GridBlock,
    row: str,
    arm: ArmColumn,
    *,
    decimals: int,
    metrics: Sequence[Metric],
) -> Iterator[TableNote]:
    found: list[tuple[str, Cell]] = []
    for metric in metrics:
        name, key = METRIC_LABELS[metric], (row, arm.name, metric)
        if block.scores[key].degenerate:
            found.append((name, _level(healthy.scores[key].moments, decimals)))
        if key in block.comparisons and block.comparisons[key].degenerate_seeds:
            delta = Difference(value=healthy.comparisons[key].mean)
            found.append((f"Δ {name}", shown(delta, decimals)))
    if found:
        what = f"† {block.layout.label}, {row}, {arm.label} without degenerate runs"
        yield _listed(what, found)


def _summary_without(
    healthy: GridBlock,
    others: Sequence[ArmColumn],
    *,
    decimals: int,
    metrics: Sequence[Metric],
) -> Iterator[TableNote]:
    for arm in others:
        found = [
            (f"{name} Δ {METRIC_LABELS[metric]}", shown(Difference(value=value), decimals))
            for metric in metrics
            for summary in [healthy.summaries[arm.name, metric]]
            for name, value in (("mean", summary.delta), ("median", summary.paired_median))
        ]
        what = f"† {healthy.layout.label}, {arm.label}, all backbones without degenerate runs"
        yield _listed(what, found)


def _listed(what: str, found: Sequence[tuple[str, Cell]]) -> TableNote:
    """`what: name number, name number`."""
    parts: list[str | Cell] = []
    for number, (name, cell) in enumerate(found):
        parts += [f", {name} " if number else f"{what}: {name} ", cell]
    return note("degenerate", *parts)


def _level(moments: Moments | None, decimals: int) -> Cell:
    if moments is None:
        return shown(MISSING, decimals)
    return shown(Level(value=moments.mean, sd=moments.sd), decimals)


def data_notes(records: Sequence[RunRecord | ProbeRecord]) -> list[str]:
    """Return the notes of the records' data, each once."""
    notes = list(dict.fromkeys(text for record in records for text in record.data_notes))
    unverified = not all(record.data_verified for record in records)
    # `prepare` says why; a table must not pass for the published data even where it did not.
    if unverified and not any("unverified" in note for note in notes):
        notes.insert(0, "unverified: the files are not the published ones")
    return notes


def dirty_notes(records: Sequence[RunRecord | ProbeRecord]) -> list[TableNote]:
    """Note the records whose code is in no commit."""
    dirty = sum(bool(record.environment.dirty) for record in records)
    what = f"Made with changes that are in no commit: {dirty} of {counted(len(records), 'record')}"
    return [note("origin", what)] if dirty else []


def version_notes(earlier: Mapping[str, int], accepted: Sequence[OtherVersion]) -> list[TableNote]:
    """Note records of another version of a user's own class: those left out, and those shown.

    `earlier` has the number of those left out by the name of the class.
    """
    left_out = [note("source", text) for text in exist_text(earlier, then="shows them")]
    versions: dict[str, dict[str, list[str]]] = {}
    for other in sorted(accepted, key=lambda other: other.record.job.seed):
        record = other.record
        shorts = [
            f"{name} (source {record.job.code[name][:8]}, now {other.counted.job.code[name][:8]})"
            for name in other.names
        ]
        kind = "" if record.job.kind == "train" else f" {record.job.kind}"
        place = f"{record.dataset} {record.job.backbone} {record.arm}{kind}"
        seeds = versions.setdefault(" and ".join(shorts), {}).setdefault(place, [])
        seeds.append(str(record.job.seed))
    return left_out + [
        note(
            "source",
            f"Of another version of {name}, counted on request: "
            + "; ".join(f"{place}: {', '.join(seeds)}" for place, seeds in places.items()),
        )
        for name, places in sorted(versions.items())
    ]


def _data(block: GridBlock, records: Iterable[RunRecord]) -> Iterator[TableNote]:
    own = [record for record in records if record.job.fingerprint == block.layout.fingerprint]
    yield from (note("data", f"{block.layout.label}: {text}") for text in data_notes(own))


def _protocol(grid: Grid) -> Iterator[TableNote]:
    reference = TrainSpec().plain()
    changes: dict[str, list[str]] = {}
    for block in grid.blocks:
        if text := changed_keys(block.layout.training.plain(), reference):
            changes.setdefault(text, []).append(block.layout.label)
    for text, labels in changes.items():
        yield note("protocol", f"{series(labels)}: not the paper's training protocol: {text}")


def _arms(grid: Grid) -> Iterator[TableNote]:
    found = []
    for arm in grid.arms:
        label, key = arm.label, arm.key
        if arm.point is not None:  # its label has the keys of the grid
            settings = json.loads(key.settings)
            beside = {name: v for name, v in settings.items() if name not in arm.point.values}
            label, key = arm.point.label, replace(key, settings=canonical_json(beside))
        if changes := changes_of_arm(key):
            found.append(f"{label} is {key.plugin} with {changes}")
    yield from (note("arms", text) for text in dict.fromkeys(found))


def _budgets(block: GridBlock, grid: Grid) -> Iterator[TableNote]:
    """What each arm adds, in one note: so a reader sees whether controls are matched."""
    labels = {arm.family: arm.point.label if arm.point else arm.label for arm in grid.others}
    parts = []
    for family, label in labels.items():
        own = [block.run_ids(arm.name) for arm in grid.others if arm.family == family]
        jobs = set().union(*own)
        budgets = [record.budget for record in grid.records if record.job_id in jobs]
        if budgets:
            parts.append(f"{label} {added_text(budgets)}")
    if len(parts) > 1:
        yield note(
            "budget",
            f"{block.layout.label}: parameters, and multiply-accumulates a row, that an arm adds "
            f"to the backbone: {'; '.join(parts)}",
        )


def _provenance(records: Sequence[RunRecord], outdated: Sequence[RunRecord]) -> Iterator[TableNote]:
    environments = [record.environment for record in records]
    facts = {
        "commits": [str(environment.commit)[:12] for environment in environments],
        "devices": [environment.device for environment in environments],
        "torch versions": [
            environment.versions.get("torch", "unknown") for environment in environments
        ],
        "versions of the numerics": [str(record.job.numerics) for record in records],
    }
    for name, values in facts.items():
        counts = Counter(values)
        if len(counts) > 1:
            listed = [
                f"{value} ({counted(number, 'run')})" for value, number in sorted(counts.items())
            ]
            yield note("origin", f"The records come from {len(counts)} {name}: {', '.join(listed)}")
    yield from dirty_notes(records)
    if outdated:
        text = f"Left out: {counted(len(outdated), 'record')} of older numerics, in favour of newer"
        yield note("origin", text)


def _chance(grid: Grid) -> Iterator[TableNote]:
    """How often a backbone is won in all pairs by chance, and the least p of so few pairs."""
    pairs = [
        len(comparison.seeds)
        for block in grid.blocks
        for (_, _, metric), comparison in block.comparisons.items()
        if metric == grid.metrics[0] and comparison.seeds
    ]
    if pairs:
        percent = Level(value=100 * formulas.chance_of_a_clean_sweep(pairs))
        yield note(
            "statistics",
            "If nothing differed, some arm would still win every pair of at least one of "
            f"{len(pairs)} independent cells in ",
            shown(percent, 0),
            f"% of such tables; from {max(pairs)} pair{'s' if max(pairs) > 1 else ''} no exact "
            f"two-sided p is below {2.0 ** (1 - max(pairs)):.4g}, so no p is printed per cell",
        )

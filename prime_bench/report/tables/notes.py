"""What stands under a table: all that a reader must know to trust a number."""

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from prime_bench.report.formats.numbers import series, signed
from prime_bench.report.quantities import stats
from prime_bench.report.quantities.design import ArmColumn, changed_keys, changes_of_arm
from prime_bench.report.quantities.grid import Grid, Panel
from prime_bench.report.quantities.stats import METRIC_LABELS, METRICS
from prime_bench.report.tables.cells import spread
from prime_bench.settings.interface import added_text
from prime_bench.settings.training import TrainSpec
from prime_bench.store.pairing import arm_key
from prime_bench.store.record import ProbeRecord, RunRecord


def collect_notes(
    grid: Grid,
    *,
    sound: Grid,
    outdated: Sequence[RunRecord],
    recipe_notes: Sequence[str] = (),
    decimals: int,
) -> tuple[str, ...]:
    """All notes in a fixed order: from the records, but for `recipe_notes`.

    `sound` is the same table without degenerate runs, `outdated` the records that others with
    higher `numerics` replaced.
    """
    notes: list[str] = []
    for panel in grid.panels:
        notes += _pairs(panel, grid)
        notes += _missing(panel, grid.arms)
        notes += _unlike(panel)
        notes += _mixed(panel)
        notes += _mean_row(panel)
    notes += _degenerate(grid, sound, decimals=decimals)
    for panel in grid.panels:
        notes += _data(panel, grid.records)
    notes += recipe_notes
    notes += _protocol(grid)
    notes += _arms(grid)
    for panel in grid.panels:
        notes += _budgets(panel, grid)
    notes += _provenance(grid.records, outdated)
    notes += _chance(grid)
    return tuple(notes)


def _pairs(panel: Panel, grid: Grid) -> Iterator[str]:
    """How many pairs there are, and how many there should be."""
    if grid.baseline is None:
        return
    own = [item for (_, _, metric), item in panel.comparisons.items() if metric == "auc"]
    n_seeds, n_rows, n_arms = len(panel.design.seeds), len(panel.design.rows), len(grid.others)
    unlike = sum(dropped.unpaired.kind == "mismatch" for dropped in panel.dropped)
    asked, found = n_seeds * n_rows * n_arms, sum(len(item.seeds) for item in own)
    missing = asked - found - unlike
    degenerate = sum(len(item.degenerate_seeds) for item in own)
    yield (
        f"{panel.design.label}: {found} of {asked} pairs compared (seeds: {n_seeds}, backbones: "
        f"{n_rows}, arms beside {grid.baseline.label}: {n_arms}); {missing} missing, {unlike} not "
        f"comparable, {degenerate} with a degenerate run"
    )


def _missing(panel: Panel, arms: Sequence[ArmColumn]) -> Iterator[str]:
    seeds = panel.design.seeds
    labels = [row.label for row in panel.design.rows]
    missing = {
        (label, arm.name): panel.cells[label, arm.name, "auc"].missing_seeds
        for label in labels
        for arm in arms
    }
    empty = {key for key, absent in missing.items() if len(absent) == len(seeds)}
    bare = [label for label in labels if all((label, arm.name) in empty for arm in arms)]
    if bare:
        yield f"{panel.design.label}: no record for {', '.join(bare)}"
    for arm in arms:
        own = [label for label in labels if (label, arm.name) in empty and label not in bare]
        if own:
            yield f"{panel.design.label}, {arm.label}: no record for {', '.join(own)}"
        for label in labels:
            absent = missing[label, arm.name]
            if absent and (label, arm.name) not in empty:
                yield (
                    f"{panel.design.label}, {label}, {arm.label}: "
                    f"{len(seeds) - len(absent)} of {len(seeds)} seeds; missing "
                    f"{', '.join(map(str, absent))}; Δ covers complete pairs only"
                )


def _unlike(panel: Panel) -> Iterator[str]:
    for dropped in panel.dropped:
        if dropped.unpaired.kind == "mismatch":
            yield (
                f"{panel.design.label}, {dropped.row.label}, {dropped.arm.label}: seed "
                f"{dropped.unpaired.seed} is not compared: {dropped.unpaired.reason}"
            )


def _mixed(panel: Panel) -> Iterator[str]:
    for pair in panel.mixed:
        yield (
            f"{panel.design.label}, {pair.row.label}, {pair.arm.label}: seed {pair.seed} is "
            f"compared on request: {pair.reason}"
        )


def _mean_row(panel: Panel) -> Iterator[str]:
    left_out = [row.label for row in panel.design.rows if row.label not in panel.mean_rows]
    if panel.mean_rows and left_out:
        yield (
            f"{panel.design.label}: the Mean row leaves out {', '.join(left_out)}, where an arm "
            "has no pair; the paired median, pairs won and backbones won cover every pair there is"
        )


def _degenerate(grid: Grid, sound: Grid, *, decimals: int) -> Iterator[str]:
    for panel, healthy in zip(grid.panels, sound.panels, strict=True):
        touched = False
        for row, arm in itertools.product(panel.design.rows, grid.arms):
            for seed, reason in panel.cells[row.label, arm.name, "auc"].degenerate.items():
                touched = True
                yield (
                    f"† {panel.design.label}, {row.label}, {arm.label}: "
                    f"seed {seed} is degenerate: {reason}"
                )
            yield from _cell_without(panel, healthy, row.label, arm, decimals=decimals)
        if touched:
            yield from _summary_without(healthy, grid.others, decimals=decimals)


def _cell_without(
    panel: Panel, healthy: Panel, row: str, arm: ArmColumn, *, decimals: int
) -> Iterator[str]:
    parts = []
    for metric in METRICS:
        name, key = METRIC_LABELS[metric], (row, arm.name, metric)
        if panel.cells[key].degenerate:
            parts.append(f"{name} {spread(healthy.cells[key].moments, decimals=decimals)}")
        if key in panel.comparisons and panel.comparisons[key].degenerate_seeds:
            delta = healthy.comparisons[key].mean
            parts.append(f"Δ {name} {'--' if delta is None else signed(delta, decimals)}")
    if parts:
        yield (
            f"† {panel.design.label}, {row}, {arm.label} without degenerate runs: "
            f"{', '.join(parts)}"
        )


def _summary_without(
    healthy: Panel, others: Sequence[ArmColumn], *, decimals: int
) -> Iterator[str]:
    for arm in others:
        parts = []
        for metric in METRICS:
            summary = healthy.summaries[arm.name, metric]
            for name, value in (("mean", summary.delta), ("median", summary.paired_median)):
                text = "--" if value is None else signed(value, decimals)
                parts.append(f"{name} Δ {METRIC_LABELS[metric]} {text}")
        yield (
            f"† {healthy.design.label}, {arm.label}, all backbones without degenerate runs: "
            f"{', '.join(parts)}"
        )


def data_notes(records: Sequence[RunRecord | ProbeRecord]) -> list[str]:
    """What must be said of the records' data, once each."""
    notes = list(dict.fromkeys(note for record in records for note in record.data_notes))
    unverified = not all(record.data_verified for record in records)
    # `prepare` says why; a table must not pass for the published data even where it did not.
    if unverified and not any("unverified" in note for note in notes):
        notes.insert(0, "unverified: the files are not the published ones")
    return notes


def dirty_notes(records: Sequence[RunRecord | ProbeRecord]) -> list[str]:
    """That nobody can have the code of some records; nothing where all have a commit."""
    dirty = sum(bool(record.environment.dirty) for record in records)
    what = f"{dirty} of {len(records)} records were made with changes that are in no commit"
    return [what] if dirty else []


def _data(panel: Panel, records: Iterable[RunRecord]) -> Iterator[str]:
    own = [record for record in records if record.job.fingerprint == panel.design.fingerprint]
    yield from (f"{panel.design.label}: {note}" for note in data_notes(own))


def _protocol(grid: Grid) -> Iterator[str]:
    reference = TrainSpec().plain()
    changes: dict[str, list[str]] = {}
    for panel in grid.panels:
        if text := changed_keys(panel.design.training, reference):
            changes.setdefault(text, []).append(panel.design.label)
    for text, labels in changes.items():
        yield f"{series(labels)}: not the paper's training protocol: {text}"


def _arms(grid: Grid) -> Iterator[str]:
    for arm in grid.arms:
        if changes := changes_of_arm(arm.key):
            yield f"{arm.label} is {arm.key.plugin} with {changes}"


def _budgets(panel: Panel, grid: Grid) -> Iterator[str]:
    """What each arm adds, side by side: only then can a reader see that controls are matched."""
    parts = []
    for arm in grid.others:
        budgets = [
            record.budget
            for record in grid.records
            if record.job.fingerprint == panel.design.fingerprint and arm_key(record) == arm.key
        ]
        if budgets:
            parts.append(f"{arm.label} {added_text(budgets)}")
    if len(parts) > 1:
        yield (
            f"{panel.design.label}: parameters, and multiply-accumulates a row, that an arm adds "
            f"to the backbone: {'; '.join(parts)}"
        )


def _provenance(records: Sequence[RunRecord], outdated: Sequence[RunRecord]) -> Iterator[str]:
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
            listed = [f"{value} ({number} runs)" for value, number in sorted(counts.items())]
            yield f"The records come from {len(counts)} {name}: {', '.join(listed)}"
    yield from dirty_notes(records)
    if outdated:
        yield f"{len(outdated)} records of older numerics are left out, newer ones replace them"


def _chance(grid: Grid) -> Iterator[str]:
    """How often a clean sweep somewhere is luck, and what a p-value could be at best."""
    pairs = [
        len(comparison.seeds)
        for panel in grid.panels
        for (_, _, metric), comparison in panel.comparisons.items()
        if metric == "auc" and comparison.seeds
    ]
    if pairs:
        percent = 100 * stats.chance_of_a_clean_sweep(pairs)
        yield (
            "If nothing differed, some arm would still win every pair of at least one of "
            f"{len(pairs)} independent cells in {percent:.0f}% of such tables; from {max(pairs)} "
            f"pair{'s' if max(pairs) > 1 else ''} no exact two-sided p is below "
            f"{2.0 ** (1 - max(pairs)):.4g}, so no p is printed per cell"
        )

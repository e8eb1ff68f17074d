"""What stands under the table."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from prime_bench.findings import GroupCounts, Score
from prime_bench.recipe.recipe import Arm, JobSpec
from prime_bench.report.document import make_report
from prime_bench.report.formats.cells import note_text
from prime_bench.report.quantities.layout import ReportJob
from prime_bench.report.quantities.records import RecipeJobs, gather
from prime_bench.report.tables.kinds import load_definition
from prime_bench.report.tables.notes import _why_unmeasured
from prime_bench.settings.backbones import DNNSettings
from prime_bench.settings.interface import DenseSettings
from prime_bench.settings.plugins import PrimeConfig
from prime_bench.settings.training import TrainSpec
from prime_bench.store.record import RunRecord

MakeRecord = Callable[..., RunRecord]


def notes_of(records: Sequence[RunRecord], *, recipe: RecipeJobs | None = None) -> str:
    records = gather(records, recipe=recipe)
    report = make_report(records, definitions={"main": load_definition("main")})
    return "\n".join(map(note_text, report.tables[0].notes))


def pair(make_record: MakeRecord, seed: int = 1, **changes: object) -> list[RunRecord]:
    return [make_record(arm=arm, seed=seed, **changes) for arm in ("dense", "prime")]


def test_a_clean_pair_has_its_count_and_the_chance_alone(make_record: MakeRecord) -> None:
    bold, count, note = notes_of(pair(make_record)).splitlines()

    assert bold.startswith("Bold: Δ above zero")
    assert count == (
        "Avazu: 1 of 1 pair compared (seeds: 1, backbones: 1, arms beside Dense: 1); 0 missing, "
        "0 not comparable, 0 with a degenerate run"
    )
    assert "at least one of 1 independent cells in 50% of such tables" in note


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"verified": False}, "Avazu: unverified: the files are not the published ones"),
        (
            {"verified": False, "notes": ("unverified: no digests",)},
            "Avazu: unverified: no digests",
        ),
        ({"notes": ("vocabulary over all splits",)}, "Avazu: vocabulary over all splits"),
        (
            {"training": TrainSpec(max_epochs=1)},
            "Avazu: not the paper's training protocol: max_epochs = 1",
        ),
        ({"dirty": True}, "Made with changes that are in no commit: 2 of 2 records"),
    ],
)
def test_a_fact_of_the_records_is_said(
    make_record: MakeRecord, changes: dict[str, object], words: str
) -> None:
    assert words in notes_of(pair(make_record, **changes))
    assert words not in notes_of(pair(make_record))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"commit": "f" * 40},
            "The records come from 2 commits: 0123456789ab (2 runs), ffffffffffff (2 runs)",
        ),
        (
            {"device": "an H100"},
            "The records come from 2 devices: a CPU (2 runs), an H100 (2 runs)",
        ),
        ({"torch": "2.6.0"}, "The records come from 2 torch versions"),
        ({"numerics": 2}, "The records come from 2 versions of the numerics"),
    ],
)
def test_mixed_origins_are_said(
    make_record: MakeRecord, changes: dict[str, object], words: str
) -> None:
    assert words in notes_of([*pair(make_record), *pair(make_record, seed=2, **changes)])


def test_missing_and_partial_cells_are_said(full_set: list[RunRecord]) -> None:
    gone = {("avazu", "DNN", "prime", 2021), ("avazu", "DNN", "prime", 27011)}
    records = [
        record
        for record in full_set
        if (record.dataset, record.job.backbone, record.arm, record.job.seed) not in gone
    ]
    notes = notes_of(records)

    assert "Criteo, Residual (params): no record for Wide&Deep_x" in notes
    assert "Criteo: no record" not in notes
    assert "Avazu, DNN, PRIME: 3 of 5 seeds; missing 2021, 27011" in notes
    assert "Criteo: the Mean row leaves out Wide&Deep_x" in notes


def test_a_backbone_without_any_record_is_said_once(make_record: MakeRecord) -> None:
    arms = [
        Arm(name=name, label=name, plugin=name, settings=DenseSettings())
        for name in ("dense", "prime")
    ]
    job_specs = [
        JobSpec(
            dataset="avazu",
            backbone=backbone,
            backbone_settings=DNNSettings(),
            arm=arm,
            training=TrainSpec(),
            seed=1,
        )
        for backbone in ("DNN", "AFM", "NFM")
        for arm in arms
    ]
    records = [
        make_record(
            arm=arm,
            seed=1,
            variant="v",
            backbone_settings=DNNSettings().plain(),
            plugin_settings={},
        )
        for arm in ("dense", "prime")
    ]
    jobs = RecipeJobs(title="", jobs=[*map(ReportJob.of, job_specs)], variants={"avazu": "v"})
    notes = notes_of(records, recipe=jobs)

    found = [note for note in notes.splitlines() if "no record" in note]
    assert found == ["Avazu: no record for AFM, NFM"]


def test_the_recipes_own_notes_stand_between_the_data_and_the_chance(
    make_record: MakeRecord,
) -> None:
    arms = [
        Arm(name=name, label=name, plugin=name, settings=DenseSettings())
        for name in ("dense", "prime")
    ]
    dnn = DNNSettings()
    job_specs = [
        JobSpec(
            dataset="avazu",
            backbone="DNN",
            backbone_settings=dnn,
            arm=arm,
            training=TrainSpec(),
            seed=1,
        )
        for arm in arms
    ]
    records = pair(
        make_record,
        variant="v",
        backbone_settings=dnn.plain(),
        plugin_settings={},
        notes=("of the data",),
        seed=1,
    )
    jobs = RecipeJobs(
        title="",
        jobs=[*map(ReportJob.of, job_specs)],
        variants={"avazu": "v"},
        notes=["First", "Next"],
    )
    notes = notes_of(records, recipe=jobs)

    assert notes.splitlines()[2:5] == ["Avazu: of the data", "First", "Next"]
    assert notes.splitlines()[-1].startswith("If nothing differed")


def test_the_budgets_of_several_arms_are_said_side_by_side(make_record: MakeRecord) -> None:
    added = {"dense": (0, 0), "prime": (120_224, 120_192), "residual_macs": (119_669, 119_922)}
    records = []
    for backbone, more in (("DNN", 0), ("DCNv2", 10)):
        for arm, (parameters, macs) in added.items():
            record = make_record(arm=arm, backbone=backbone, seed=1)
            less = more if arm == "residual_macs" else 0
            budget = record.budget.model_copy(
                update={"plugin_parameters": parameters - less, "plugin_macs": macs}
            )
            records.append(record.model_copy(update={"budget": budget}))

    assert (
        "Avazu: parameters, and multiply-accumulates a row, that an arm adds to the backbone: "
        "PRIME 120,224 and 120,192; Residual (MACs) 119,659 to 119,669 and 119,922"
    ) in notes_of(records).splitlines()
    assert "adds to the backbone" not in notes_of([r for r in records if r.arm != "residual_macs"])


def test_a_mispaired_run_is_named_with_what_differs(full_set: list[RunRecord]) -> None:
    assert "Avazu, DCNv2, PRIME: seed 948432 is not compared: different row order: " in notes_of(
        full_set
    )


def test_degenerate_runs_are_shown_with_and_without(make_record: MakeRecord) -> None:
    records = [
        make_record(arm="dense", seed=1, auc=0.70, logloss=0.40),
        make_record(arm="prime", seed=1, auc=0.71, logloss=0.39),
        make_record(arm="dense", seed=2, auc=0.50, logloss=9.00, degenerate="AUC 0.5"),
        make_record(arm="prime", seed=2, auc=0.73, logloss=0.38),
    ]
    grid, notes = gather(records).grid(baseline="dense"), notes_of(records)
    cell = grid.blocks[0].scores["DNN", "dense", "auc"].moments

    assert cell is not None
    assert cell.mean == pytest.approx(0.60)
    assert "† Avazu, DNN, Dense: seed 2 is degenerate: AUC 0.5" in notes
    assert "† Avazu, DNN, Dense without degenerate runs: AUC 0.7000, LogLoss 0.4000" in notes
    assert "† Avazu, DNN, PRIME without degenerate runs: Δ AUC +0.0100, Δ LogLoss +0.0100" in notes
    assert "mean Δ AUC +0.0100, median Δ AUC +0.0100" in notes


def test_a_run_without_score_is_flagged_and_counted_out(make_record: MakeRecord) -> None:
    records = [
        *pair(make_record),
        make_record(arm="dense", seed=2, auc=None, logloss=None, degenerate="NaN"),
        make_record(arm="prime", seed=2),
    ]
    notes = notes_of(records)

    assert "† Avazu, DNN, Dense: seed 2 is degenerate: NaN" in notes
    assert "seed 2 is not compared: the run of dense has no score" in notes


def test_an_arm_off_its_defaults_is_said(make_record: MakeRecord) -> None:
    small = PrimeConfig(rank=8).plain()
    records = [make_record(), make_record(arm="small", plugin="prime", plugin_settings=small)]

    assert "small is prime with rank = 8" in notes_of(records)


def test_replaced_records_are_counted(make_record: MakeRecord) -> None:
    old, new = pair(make_record), pair(make_record, numerics=2)

    assert "Left out: 2 records of older numerics" in notes_of([*old, *new])


def test_chance_of_a_clean_sweep_is_the_papers_design(make_record: MakeRecord) -> None:
    records = [
        make_record(
            dataset=dataset, backbone=f"B{index}", backbone_settings={"k": 1}, arm=arm, seed=seed
        )
        for dataset in ("avazu", "criteo")
        for index in range(13)
        for arm in ("dense", "prime")
        for seed in range(5)
    ]

    notes = notes_of(records)

    assert "every pair of at least one of 26 independent cells in 56% of such tables" in notes
    assert "from 5 pairs no exact two-sided p is below 0.0625" in notes


def test_pairs_are_counted_by_what_became_of_them(full_set: list[RunRecord]) -> None:
    notes = notes_of(full_set)

    assert (
        "Avazu: 29 of 30 pairs compared (seeds: 5, backbones: 3, arms beside Dense: 2); 0 missing, "
        "1 not comparable, 0 with a degenerate run"
    ) in notes
    assert "25 of 30 pairs compared" in notes
    assert "5 missing, 0 not comparable, 2 with a degenerate run" in notes


COUNTS = {"groups": 0, "rows": 9, "one_class_groups": 3, "one_class_rows": 9}


@pytest.mark.parametrize(
    ("known", "reason"),
    [
        ({}, "their records are of a version before it"),
        ({"deciles": []}, "their table was prepared without `gauc_by`"),
        (
            {
                "deciles": [],
                "groups": GroupCounts(column="user", **COUNTS, rows_without_group=0),
            },
            "no group has clicks and rows without one",
        ),
    ],
)
def test_a_grouped_auc_that_there_is_not_has_its_reason(known: dict[str, Any], reason: str) -> None:
    assert _why_unmeasured(Score(auc=0.75, logloss=0.4, **known)) == reason

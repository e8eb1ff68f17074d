"""Every arm on every backbone as numbers: medians, wins, and unequal or missing runs."""

import statistics
from collections.abc import Callable, Sequence

import pytest

from prime_bench.recipe.recipe import Arm, JobSpec
from prime_bench.report.quantities.grid import Grid, GridBlock
from prime_bench.report.quantities.layout import ReportJob, _rows_of, arm_columns
from prime_bench.report.quantities.records import RecipeJobs, gather, narrowed
from prime_bench.settings.backbones import AFMSettings, DNNSettings
from prime_bench.settings.interface import DenseSettings
from prime_bench.settings.plugins import PrimeConfig
from prime_bench.settings.training import TrainSpec
from prime_bench.store.pairing import ArmKey, ComparisonKey
from prime_bench.store.record import RunRecord

SEEDS = (2021, 190034, 27011, 948432, 992817)
MakeRecord = Callable[..., RunRecord]


def grid_of(records: Sequence[RunRecord], *, recipe: RecipeJobs | None = None) -> Grid:
    return gather(records, recipe=recipe).grid(baseline="dense")


def panel_of(grid: Grid, label: str) -> GridBlock:
    return next(block for block in grid.blocks if block.layout.label == label)


def test_paired_median_is_no_difference_of_medians(make_record: MakeRecord) -> None:
    dense, prime = (0.70, 0.72, 0.74), (0.73, 0.721, 0.741)
    records = [
        make_record(arm=arm, seed=seed, auc=auc, logloss=0.4)
        for arm, values in (("dense", dense), ("prime", prime))
        for seed, auc in enumerate(values)
    ]
    block = grid_of(records).blocks[0]

    median = block.summaries["prime", "auc"].paired_median
    assert median == pytest.approx(0.001)
    assert statistics.median(prime) - statistics.median(dense) == pytest.approx(0.010)
    assert block.comparisons["DNN", "prime", "auc"].median == pytest.approx(0.001)


def test_wins_are_counted_before_rounding(make_record: MakeRecord) -> None:
    shifts = (1e-6, -1e-6, 0.0, 2e-6, 3e-6)
    records = [
        make_record(arm=arm, seed=seed, auc=0.75 + shift * (arm == "prime"), logloss=0.4)
        for arm in ("dense", "prime")
        for seed, shift in enumerate(shifts)
    ]
    tally = grid_of(records).blocks[0].comparisons["DNN", "prime", "auc"].tally

    assert (tally.wins, tally.ties, tally.losses) == (3, 1, 1)


def test_full_set_has_every_cell_and_names_what_is_not_compared(full_set: list[RunRecord]) -> None:
    grid = grid_of(full_set)
    avazu, criteo = panel_of(grid, "Avazu"), panel_of(grid, "Criteo")

    assert [arm.name for arm in grid.arms] == ["dense", "prime", "residual_parameters"]
    assert [arm.label for arm in grid.arms] == ["Dense", "PRIME", "Residual (params)"]
    assert len(grid.records) == len(full_set) == 85
    assert [row.label for row in avazu.layout.rows] == ["DNN", "DCNv2", "Wide&Deep_x"]
    assert len(avazu.scores) == len(criteo.scores) == 3 * 3 * 2
    (dropped,) = avazu.dropped
    assert (dropped.row.label, dropped.arm.name, dropped.unpaired.seed) == (
        "DCNv2",
        "prime",
        948432,
    )
    assert dropped.unpaired.reason.startswith("different row order: ")
    assert avazu.comparisons["DCNv2", "prime", "auc"].seeds == (
        2021,
        27011,
        190034,
        992817,
    )
    # The mispaired run stays in its own arm's mean.
    cell = avazu.scores["DCNv2", "prime", "auc"].moments
    assert cell is not None
    assert cell.n == 5
    assert {item.unpaired.kind for item in criteo.dropped} == {"missing"}
    assert len(criteo.dropped) == 5
    assert criteo.scores["Wide&Deep_x", "residual_parameters", "auc"].moments is None


def test_mean_row_covers_the_same_backbones_for_every_arm(full_set: list[RunRecord]) -> None:
    criteo = panel_of(grid_of(full_set), "Criteo")

    assert criteo.mean_rows == ("DNN", "DCNv2")
    for arm in ("dense", "prime", "residual_parameters"):
        mean = criteo.summaries[arm, "auc"].mean
        assert mean is not None
        expected = [criteo.scores[row, arm, "auc"].moments for row in ("DNN", "DCNv2")]
        assert mean.mean == pytest.approx(statistics.mean(cell.mean for cell in expected if cell))
    assert len(criteo.summaries["prime", "auc"].differences) == 15
    assert len(criteo.summaries["residual_parameters", "auc"].differences) == 10


def test_an_arm_without_any_pair_does_not_empty_the_mean_row(make_record: MakeRecord) -> None:
    records = [make_record(arm=arm, seed=1) for arm in ("dense", "prime")]
    records.append(make_record(arm="residual_parameters", seed=2))
    block = grid_of(records).blocks[0]

    assert block.mean_rows == ("DNN",)
    assert block.summaries["prime", "auc"].mean is not None
    assert block.summaries["residual_parameters", "auc"].delta is None


def test_without_baseline_there_are_means_and_no_differences(make_record: MakeRecord) -> None:
    grid = grid_of([make_record(arm="prime", seed=seed) for seed in (1, 2)])

    assert grid.baseline is None
    assert grid.blocks[0].comparisons == {}
    assert grid.blocks[0].summaries["prime", "auc"].mean is not None


def test_two_versions_of_the_data_are_never_mixed(make_record: MakeRecord) -> None:
    records = [
        make_record(arm="dense", fingerprint="12335e61" + "0" * 56),
        make_record(arm="prime", fingerprint="00012345" + "0" * 56),
    ]
    grid = grid_of(records)

    labels = [block.layout.label for block in grid.blocks]
    assert labels == ["Avazu (data 00012345)", "Avazu (data 12335e61)"]
    assert all(not block.pairs for block in grid.blocks)


def test_two_protocols_are_two_panels(make_record: MakeRecord) -> None:
    records = [
        make_record(training=TrainSpec(max_epochs=epochs), arm=arm)
        for epochs in (1, 100)
        for arm in ("dense", "prime")
    ]

    labels = [block.layout.label for block in grid_of(records).blocks]
    assert labels == ["Avazu (max_epochs = 1)", "Avazu (max_epochs = 100)"]


def test_settings_tell_arms_and_backbones_of_one_name_apart(make_record: MakeRecord) -> None:
    small = PrimeConfig(rank=8).plain()
    narrow = DNNSettings(hidden_units=(64,)).plain()
    grid = grid_of(
        [
            make_record(),
            make_record(arm="prime"),
            make_record(arm="prime", plugin_settings=small),
            make_record(backbone_settings=narrow),
        ]
    )

    assert [arm.name for arm in grid.arms] == ["dense", "prime", "prime (rank = 8)"]
    assert [row.label for row in grid.blocks[0].layout.rows] == [
        "DNN (hidden_units = [400, 400, 400])",
        "DNN (hidden_units = [64])",
    ]


@pytest.mark.parametrize(
    ("settings", "suffix"),
    [("{}", "code 12345678"), ('{"rank":8}', "rank = 8, code 12345678")],
)
def test_versions_of_an_own_class_are_told_apart_by_eight_digits(
    settings: str, suffix: str
) -> None:
    names = {
        ArmKey(plugin="own_mod:Gate", settings=settings, code=code): "gate"
        for code in ("12345678" + "a" * 56, "b" * 64)
    }

    labels = [column.label for column in arm_columns(names, baseline="dense")]

    assert labels == [f"gate ({suffix})", f"gate ({suffix.replace('12345678', 'b' * 8)})"]


def job_specs(arms: Sequence[Arm], *, seeds: Sequence[int] = (1, 2)) -> list[JobSpec]:
    return [
        JobSpec(
            dataset="avazu",
            backbone=backbone,
            backbone_settings=settings,
            arm=arm,
            training=TrainSpec(),
            seed=seed,
        )
        for seed in seeds
        for backbone, settings in (("AFM", AFMSettings()), ("DNN", DNNSettings()))
        for arm in arms
    ]


DENSE = Arm(name="dense", label="Dense", plugin="dense", settings=DenseSettings())
PRIME = Arm(name="ours", label="Ours", plugin="prime", settings=PrimeConfig())


def test_a_recipe_shows_exactly_its_cells(make_record: MakeRecord) -> None:
    records = [
        make_record(variant="v", seed=1),
        make_record(variant="v", seed=1, arm="prime"),
        make_record(variant="v", seed=3),
        make_record(variant="another", seed=2),
        make_record(variant="v", seed=2, arm="residual_parameters"),
        make_record(variant="v", seed=2, training=TrainSpec(max_epochs=1)),
        make_record(variant="v", seed=2, backbone="DCNv2"),
        make_record(variant="v", seed=2, arm="prime", plugin_settings={"rank": 8}),
    ]
    jobs = RecipeJobs(
        title="A recipe",
        jobs=[*map(ReportJob.of, job_specs([DENSE, PRIME]))],
        variants={"avazu": "v"},
    )
    grid = grid_of(records, recipe=jobs)
    (block,) = grid.blocks

    assert [record.job_id for record in grid.records] == [
        records[0].job_id,
        records[1].job_id,
    ]
    assert [arm.label for arm in grid.arms] == ["Dense", "Ours"]
    assert [row.label for row in block.layout.rows] == ["AFM", "DNN"]
    assert block.scores["DNN", "dense", "auc"].missing_seeds == (2,)
    assert block.scores["AFM", "dense", "auc"].missing_seeds == (1, 2)
    assert block.mean_rows == ("DNN",)


def test_a_recipe_without_records_is_all_missing(make_record: MakeRecord) -> None:
    jobs = RecipeJobs(
        title="", jobs=[*map(ReportJob.of, job_specs([DENSE, PRIME]))], variants={"avazu": "v"}
    )
    grid = grid_of([make_record(variant="another")], recipe=jobs)
    (block,) = grid.blocks

    assert grid.records == ()
    assert block.mean_rows == ()
    assert all(cell.moments is None for cell in block.scores.values())


def test_narrowed_keeps_alternatives_of_a_key(full_set: list[RunRecord]) -> None:
    found = narrowed(full_set, ["seed=2021", "seed=27011", "backbone=DNN", "dataset=avazu"])

    assert len(found) == 2 * 3
    assert {record.job.seed for record in found} == {2021, 27011}


@pytest.mark.parametrize(
    ("settings", "codes", "names"),
    [
        (['{"a": 1, "b": 2}'], ["1" * 64], ["DNN"]),
        (['{"a": 1, "b": 2}', '{"a": 3, "b": 2}'], ["", ""], ["DNN (a = 1)", "DNN (a = 3)"]),
        (
            ['{"a": 1}', '{"a": 1}'],
            ["1" * 64, "2" * 64],
            ["DNN (code 11111111)", "DNN (code 22222222)"],
        ),
        (
            ['{"a": 1}', '{"a": 2}'],
            ["1" * 64, "2" * 64],
            ["DNN (a = 1, code 11111111)", "DNN (a = 2, code 22222222)"],
        ),
    ],
)
def test_rows_of_one_backbone_say_in_what_they_differ(
    settings: list[str], codes: list[str], names: list[str]
) -> None:
    keys = [
        ComparisonKey(
            dataset="d",
            variant="v",
            fingerprint="f",
            training="{}",
            backbone="DNN",
            backbone_settings=text,
            backbone_code=code,
        )
        for text, code in zip(settings, codes, strict=True)
    ]

    rows = _rows_of(keys)

    assert [(row.key, row.label, row.comparison) for row in rows] == [
        (name, name, key) for name, key in zip(names, keys, strict=True)
    ]

"""Which runs are without a partner, whatever recipes they are of, and what of a record does not
follow from its other values or from its table.
"""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from prime_bench.base.identity import digest
from prime_bench.recipe.job import Job
from prime_bench.settings.interface import TableShape
from prime_bench.settings.training import TrainSpec
from prime_bench.store.record import Pairing, RunRecord
from prime_bench.store.verification import (
    ManifestFacts,
    PackedFiles,
    agree,
    check_data,
    check_pairs,
    check_record,
)

MakeRecord = Callable[..., RunRecord]


def runs(
    plain_record: MakeRecord, arm: str, seeds: Sequence[int], *, plugin: str = "", **settings: Any
) -> list[RunRecord]:
    """Runs of an arm that pair with those of every other by seed."""
    return [
        plain_record(
            Job(
                fingerprint="f" * 64,
                backbone="DNN",
                backbone_settings={},
                plugin=plugin or arm,
                plugin_settings=settings,
                training=TrainSpec(),
                seed=seed,
            ),
            arm=arm,
            pairing={"initial_weights": digest(seed), "row_order": digest(seed)},
        )
        for seed in seeds
    ]


def found(*arms: list[RunRecord]) -> list[tuple[str, str]]:
    return [(item.where, item.what) for item in check_pairs(run for arm in arms for run in arm)]


def test_an_arm_of_another_recipe_needs_its_own_seeds_alone(plain_record: MakeRecord) -> None:
    dense, prime = (runs(plain_record, arm, (1, 2, 3)) for arm in ("dense", "prime"))
    narrow = runs(plain_record, "narrow", (1,), plugin="prime", rank=4)

    assert found(dense, prime, narrow) == []


def test_an_arm_has_its_own_name(plain_record: MakeRecord) -> None:
    dense, prime = (runs(plain_record, arm, (1, 2)) for arm in ("dense", "prime"))
    narrow = runs(plain_record, "narrow", (2, 7, 8), plugin="prime", rank=4)
    other = runs(plain_record, "wide", (1,), plugin="prime", rank=32)
    moved = [
        run.model_copy(update={"pairing": Pairing(initial_weights="0" * 64, row_order="0" * 64)})
        for run in other
    ]

    assert sorted(found(dense, prime, narrow, moved)) == [
        ("avazu DNN narrow seed 7, 8", "Dense has not run"),
        (
            "avazu DNN wide seed 1",
            f"different initial weights: {digest(1)[:8]} against 00000000; "
            f"different row order: {digest(1)[:8]} against 00000000",
        ),
    ]


def test_runs_without_any_partner_are_found(plain_record: MakeRecord) -> None:
    dense, prime = runs(plain_record, "dense", (1, 2, 3)), runs(plain_record, "prime", (1,))

    assert found(dense, prime) == [("avazu DNN dense seed 2, 3", "no other arm has run")]
    assert found(dense) == [("avazu DNN dense seed 1, 2, 3", "no other arm has run")]
    assert found(prime) == [("avazu DNN prime seed 1", "Dense has not run")]


def sound(plain_record: MakeRecord, **given: Any) -> RunRecord:
    """A run of three epochs that patience has ended, whose best one is the first."""
    job = Job(
        fingerprint="f" * 64,
        backbone="a:Net",
        backbone_settings={},
        plugin="dense",
        plugin_settings={},
        training=TrainSpec(batch_size=10, compile=given.pop("compile", False)),
        seed=1,
        code={"a:Net": "0" * 64},
    )
    history = [
        {
            "epoch": epoch,
            "step": 8 * epoch,
            "learning_rate": rate,
            "train_loss": 0.5,
            "valid_auc": auc,
            "valid_logloss": 0.4,
            "improved": improved,
            "wall_s": 2.0 * epoch,
        }
        for epoch, auc, rate, improved in ((1, 0.7, 1e-3, True), (2, 0.6, 1e-3, False))
    ]
    history.append({**history[1], "epoch": 3, "step": 24, "learning_rate": 1e-4, "wall_s": 6.0})
    valid = {"auc": 0.7, "logloss": 0.4, **given.pop("valid", {})}
    result = {"epochs": 3, "valid": valid, **given.pop("result", {})}
    return plain_record(job, history=history, result=result, **{"wall_s": 7.0, **given})


def faults(record: RunRecord, *tables: ManifestFacts) -> list[str]:
    nothing = PackedFiles(Path("job"), {})
    return [item.what for item in check_record(record, nothing, tables)]


@pytest.mark.parametrize(
    ("by", "device_kind", "compiled", "found"),
    [
        (0.0, "cpu", False, False),
        (1e-12, "cpu", False, True),
        # Where operations are not repeated bit by bit, 1e-5 is the tolerance.
        (9e-6, "cpu", True, False),
        (9e-6, "cuda", False, False),
        (2e-5, "cpu", True, True),
        (2e-5, "cuda", False, True),
    ],
)
@pytest.mark.parametrize("metric", ["auc", "logloss"])
def test_the_validation_of_the_best_epoch_is_that_of_the_result_as_exactly_as_it_can_be(
    plain_record: MakeRecord, metric: str, by: float, device_kind: str, compiled: bool, found: bool
) -> None:
    own = {"auc": 0.7, "logloss": 0.4}[metric] + by
    record = sound(
        plain_record,
        valid={metric: own},
        compile=compiled,
        environment={"device_kind": device_kind},
    )
    said = [f"result.valid.{metric}: {own} in the record, {own - by} by epoch 1 of its history"]
    assert len(faults(record)) == int(found)
    assert [line.partition(":")[0] for line in faults(record)] == [
        line.partition(":")[0] for line in said[: int(found)]
    ]


def calibrated(clicks: Sequence[int] = (1, 4)) -> dict[str, Any]:
    """The score of two bins of ten rows, with metrics by hand of one and of four clicks."""
    bins = [
        {"rows": 10, "clicks": n, "predicted": predicted}
        for n, predicted in zip(clicks, (2.0, 3.5), strict=True)
    ]
    entropy = -0.25 * math.log(0.25) - 0.75 * math.log(0.75)
    by_hand = {"ne": 0.4 / entropy, "pcoc": 5.5 / 5, "ece": 1.5 / 20, "ece_all": 0.5 / 20}
    return {**by_hand, "deciles": bins}


@pytest.mark.parametrize("metric", ["ne", "pcoc", "ece", "ece_all"])
def test_what_follows_from_the_bins_is_told_but_for_the_last_bits(
    plain_record: MakeRecord, metric: str
) -> None:
    score = calibrated()
    for by, n_faults in ((0.0, 0), (1e-15, 0), (1e-9, 1)):
        valid = {**score, metric: score[metric] + by}
        said = faults(sound(plain_record, valid=valid))
        keys = [line.partition(":")[0] for line in said if line.startswith("result.")]
        assert keys == [f"result.valid.{metric}"] * n_faults


@pytest.mark.parametrize("clicks", [(0, 0), (10, 10), (11, 2)])
def test_nothing_is_computed_from_bins_with_impossible_clicks(
    plain_record: MakeRecord, clicks: Sequence[int]
) -> None:
    said = faults(sound(plain_record, valid=calibrated(clicks)))
    assert [line for line in said if line.startswith("result.")] == [
        "result.valid.deciles: clicks that such bins cannot have"
    ]


@pytest.mark.parametrize(("wall_s", "n_faults"), [(5.9, 1), (6.0, 0), (7.0, 0)])
def test_a_job_takes_no_less_time_than_its_epochs(
    plain_record: MakeRecord, wall_s: float, n_faults: int
) -> None:
    found = faults(sound(plain_record, wall_s=wall_s))
    assert found == ["wall_s: 5.9 in the record, 6.0 at its last validation"][:n_faults]


def facts(**changes: Any) -> ManifestFacts:
    """Of the table that `sound` was trained on: eight batches of ten rows."""
    own: dict[str, Any] = {
        "where": "data/t",
        "variant": "v",
        "verified": True,
        "notes": [],
        "card": None,
        "rows": {"train": 80, "valid": 9, "test": 9},
        "shape": TableShape(vocabulary_sizes=(3,), n_numeric=0),
    }
    return ManifestFacts(**{**own, **changes})


@pytest.mark.parametrize(
    ("changes", "keys"),
    [
        ({}, []),
        ({"variant": "w"}, ["data_variant"]),
        ({"verified": False}, ["data_verified"]),
        ({"notes": ["made"]}, ["data_notes"]),
        ({"card": {"name": "own"}}, ["data_card"]),
        ({"rows": {"train": 81, "valid": 9, "test": 9}}, ["result.notes"]),
        ({"rows": {"train": 82, "valid": 9, "test": 9}}, ["history, step of epoch 1"]),
        ({"rows": {"train": 80, "valid": 8, "test": 8}}, []),
    ],
)
def test_what_the_table_says_is_what_the_record_says(
    plain_record: MakeRecord, changes: dict[str, Any], keys: list[str]
) -> None:
    found = faults(sound(plain_record), facts(**changes))
    assert [line.partition(":")[0] for line in found] == keys


def test_of_two_tables_with_the_same_content_that_with_the_records_settings_counts(
    plain_record: MakeRecord,
) -> None:
    assert faults(sound(plain_record), facts(variant="w", verified=False), facts()) == []


@pytest.mark.parametrize(
    ("found", "recorded", "tolerance", "same"),
    [
        (0.5, 0.5, 0.0, True),
        (0.5 + 1e-6, 0.5, 1e-5, True),
        (0.5 + 2e-5, 0.5, 1e-5, False),
        # Relative to the recorded one where that is above 1.
        (100.0005, 100.0, 1e-5, True),
        (100.002, 100.0, 1e-5, False),
        (-100.0005, -100.0, 1e-5, True),
        (None, None, 0.0, True),
        (None, 0.5, 1.0, False),
        (0.5, None, 1.0, False),
    ],
)
def test_metrics_agree_within_a_tolerance(
    found: float | None, recorded: float | None, tolerance: float, same: bool
) -> None:
    assert agree(found, recorded, tolerance=tolerance) == same


def test_data_that_differ_from_their_card_are_named_once_a_table(plain_record: MakeRecord) -> None:
    other = {"dataset": "criteo", "data_verified": False}
    records = [
        *(sound(plain_record, data_verified=False) for _ in range(2)),
        *(sound(plain_record, data_verified=verified) for verified in (True, "own")),
        sound(plain_record, **other),
    ]
    assert [(item.where, item.what) for item in check_data(records)] == [
        ("avazu ffffffff", "data that differ from those of the card, in 2 records"),
        ("criteo ffffffff", "data that differ from those of the card, in 1 record"),
    ]

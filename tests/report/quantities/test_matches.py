"""Two sets of runs: which belong together, how they differ, and what in them differs."""

from collections.abc import Callable
from typing import Any

import pytest

from prime_bench.report.quantities.matches import match_arms, match_sets, rows_of
from prime_bench.settings.backbones import DNNSettings
from prime_bench.settings.plugins import PrimeConfig
from prime_bench.settings.training import TrainSpec
from prime_bench.store.record import RunRecord

MakeRecord = Callable[..., RunRecord]
BACKBONE = DNNSettings().plain()


def test_arms_are_paired_by_seed_and_a_seed_of_one_alone_counts_nowhere(
    make_record: MakeRecord,
) -> None:
    scores = {("dense", 1): 0.70, ("dense", 2): 0.71, ("prime", 1): 0.72, ("prime", 2): 0.70}
    records = [make_record(arm=a, seed=s, auc=x, logloss=0.4) for (a, s), x in scores.items()]
    records.append(make_record(arm="dense", seed=3))
    (row,) = rows_of(match_arms(records, "dense", "prime"))
    assert (row.name, row.seeds) == ("Avazu DNN", [1, 2])
    assert row.auc is not None
    assert row.auc.mean == pytest.approx((0.02 - 0.01) / 2)
    assert (row.auc_tally.wins, row.auc_tally.losses) == (1, 1)
    assert row.settings["arm.plugin"] == ("dense", "prime")
    assert row.unpaired == {}


def test_logloss_that_falls_favours_the_right_side(make_record: MakeRecord) -> None:
    records = [
        make_record(arm="dense", auc=0.7, logloss=0.5),
        make_record(arm="prime", auc=0.7, logloss=0.4),
    ]
    (row,) = rows_of(match_arms(records, "dense", "prime"))
    assert row.logloss is not None
    assert row.logloss.mean == pytest.approx(0.1)
    assert row.auc_tally.ties == 1


def test_places_are_called_as_in_a_report(make_record: MakeRecord) -> None:
    """By what tells them apart, where a number said nothing."""
    records = [
        make_record(arm=arm, training=training, fingerprint=fingerprint)
        for arm in ("dense", "prime")
        for training, fingerprint in (
            (TrainSpec(), "a" * 64),
            (TrainSpec(), "b" * 64),
            (TrainSpec(patience=3), "b" * 64),
        )
    ]
    records += [
        make_record(arm=arm, dataset="criteo", backbone_settings=BACKBONE | {"net_dropout": 0.3})
        for arm in ("dense", "prime")
    ]
    records += [make_record(arm=arm, dataset="criteo") for arm in ("dense", "prime")]
    rows = rows_of(match_arms(records, "dense", "prime"))
    assert [row.name for row in rows] == [
        "Avazu (data aaaaaaaa, patience = 2) DNN",
        "Avazu (data bbbbbbbb, patience = 2) DNN",
        "Avazu (data bbbbbbbb, patience = 3) DNN",
        "Criteo DNN (net_dropout = 0.0)",
        "Criteo DNN (net_dropout = 0.3)",
    ]
    assert [row.seeds for row in rows] == [[2021]] * 5


def of_plugin(make_record: MakeRecord, arm: str, **changes: Any) -> list[RunRecord]:
    """Two seeds of an arm of PRIME with settings of its own."""
    settings = {**PrimeConfig().plain(), **changes}
    return [
        make_record(arm=arm, plugin="prime", plugin_settings=settings, seed=seed, auc=0.7)
        for seed in (1, 2)
    ]


def test_an_arm_of_a_recipe_is_not_counted_as_its_plugin(make_record: MakeRecord) -> None:
    dense = [make_record(seed=seed, auc=0.6) for seed in (1, 2)]
    own = of_plugin(make_record, "narrow", rank=4)
    both = [*dense, *own, *of_plugin(make_record, "prime")]

    (row,) = rows_of(match_arms(both, "dense", "prime"))
    assert (row.name, row.seeds) == ("Avazu DNN", [1, 2])
    assert row.settings["arm.rank"] == (None, 16)
    (row,) = rows_of(match_arms(both, "dense", "narrow"))
    assert row.seeds == [1, 2]
    assert row.settings["arm.rank"] == (None, 4)
    # Where no arm has the plug-in's name, it stands for its arms, each for itself.
    (row,) = rows_of(match_arms([*dense, *own], "dense", "prime"))
    assert (row.name, row.seeds) == ("Avazu DNN", [1, 2])


def test_two_arms_of_one_plugin_or_name_are_two_rows(make_record: MakeRecord) -> None:
    dense = [make_record(seed=seed, auc=0.6) for seed in (1, 2)]
    arms = [*of_plugin(make_record, "a", rank=4), *of_plugin(make_record, "b", rank=8)]
    rows = rows_of(match_arms([*dense, *arms], "dense", "prime"))
    assert [(row.name, row.seeds) for row in rows] == [
        ("Avazu DNN, a", [1, 2]),
        ("Avazu DNN, b", [1, 2]),
    ]
    same = [*of_plugin(make_record, "prime", rank=4), *of_plugin(make_record, "prime")]
    rows = rows_of(match_arms([*dense, *same], "dense", "prime"))
    assert [row.name for row in rows] == ["Avazu DNN, prime", "Avazu DNN, prime (rank = 4)"]


def test_sets_keep_training_protocols_of_one_name_apart(make_record: MakeRecord) -> None:
    records = [make_record(training=training) for training in (TrainSpec(), TrainSpec(patience=3))]
    rows = rows_of(match_sets(records, records)[0])
    assert [(row.name, row.seeds) for row in rows] == [
        ("Avazu (patience = 2) DNN dense", [2021]),
        ("Avazu (patience = 3) DNN dense", [2021]),
    ]


def test_sets_are_matched_by_job_and_then_by_names(make_record: MakeRecord) -> None:
    same = make_record(seed=1)
    left = [same, make_record(seed=2, auc=0.7), make_record(seed=3)]
    right = [
        same,
        make_record(seed=2, auc=0.8, training=TrainSpec(patience=3), torch="2.14.0"),
        make_record(seed=4),
    ]
    matches, alone = match_sets(left, right)
    assert [match.left.job.seed for match in matches] == [1, 2]
    assert alone == ["left alone: avazu DNN dense 3", "right alone: avazu DNN dense 4"]
    (row,) = rows_of(matches)
    assert row.settings == {
        "training.patience": (2, 3),
        "environment.versions.torch": ("2.13.0", "2.14.0"),
    }
    assert row.changed


def test_a_name_that_two_runs_of_a_side_have_is_not_guessed(make_record: MakeRecord) -> None:
    left = [make_record(), make_record(training=TrainSpec(patience=4))]
    matches, alone = match_sets(left, [make_record(training=TrainSpec(patience=3))])
    assert matches == []
    assert len(alone) == 3


def test_the_same_on_both_sides_is_unchanged(make_record: MakeRecord) -> None:
    records = [make_record(seed=seed) for seed in (1, 2)]
    (row,) = rows_of(match_sets(records, records)[0])
    assert not row.changed
    assert row.settings == {}


def test_runs_that_are_no_strict_pair_are_compared_and_named(make_record: MakeRecord) -> None:
    records = [
        make_record(arm="dense", auc=0.7),
        make_record(arm="prime", auc=0.8, device_kind="cuda"),
    ]
    (row,) = rows_of(match_arms(records, "dense", "prime"))
    assert row.seeds == [2021]
    assert row.unpaired == {2021: "different device kind: cpu against cuda"}


def test_a_run_without_a_score_is_in_no_number(make_record: MakeRecord) -> None:
    records = [make_record(arm="dense"), make_record(arm="prime", auc=None)]
    (row,) = rows_of(match_arms(records, "dense", "prime"))
    assert (row.seeds, row.left, row.auc, row.logloss) == ([], None, None, None)
    assert "has no score" in row.unpaired[2021]

"""Costs of arms as numbers with the names that a recipe gives them."""

from pathlib import Path

import pytest

from prime_bench.findings import ArmCost, CostFindings, InferenceCost
from prime_bench.recipe.file import load_recipe
from prime_bench.store.costs import MeasuredCosts
from prime_bench.store.record import ProbeRecord
from prime_bench.store.runs import Runs

RECORDS = Path(__file__).parents[1] / "records"
RECIPE = """
schema = 1
title = "Costs"
kind = "cost"
seeds = [1]
arms = ["dense", "prime", "narrow"]
[dataset.avazu]
[backbone.DNN]
[arm.narrow]
plugin = "prime"
rank = 3
"""


@pytest.fixture
def recipe(tmp_path):
    (tmp_path / "costs.toml").write_text(RECIPE)
    return load_recipe(tmp_path / "costs.toml")


@pytest.fixture
def measured(recipe):
    """Costs of Dense, of both arms of the recipe in the other order, and of one that it lacks."""
    dense, prime, narrow = recipe.arms
    settings = [dense.settings, narrow.settings, prime.settings]
    arms = [
        ArmCost(
            plugin=plugin,
            settings=own,
            parameters=10 + number,
            macs=100 + number,
            inference=[
                InferenceCost(
                    form="eager", batch_size=8, latencies_ms=[times * t for t in (2, 4, 9)]
                )
            ],
            training_ms=[times * t for t in (4.0, 8.0, 6.0)],
            eager_training_ms=[ms * times for ms in (3.0, 4.0, 5.0)] if number < 2 else None,
            peak_memory_bytes=1000 * times,
        )
        for number, (plugin, own, times) in enumerate(
            [
                *zip(
                    ("dense", "prime", "prime"),
                    (s.plain() for s in settings),
                    (1, 2, 3),
                    strict=True,
                ),
                ("apg", {"rank": 7}, 4),
            ]
        )
    ]
    findings = CostFindings(
        clock="wall clock", memory="resident growth", distinct_rows=9, arms=arms
    )
    records, _ = Runs(RECORDS).readable()
    record = next(one for one in records if one.job.kind == "cost")
    assert isinstance(record, ProbeRecord)
    return MeasuredCosts.of(record.model_copy(update={"findings": findings}), recipe)


def test_an_arm_has_the_name_of_the_one_with_its_settings(measured):
    names = [measured.arm_name(arm) for arm in measured.findings.arms]
    assert names == ["dense", "narrow", "prime", "apg"]


def test_times_are_medians_and_ratios_to_dense(measured):
    plain, record = measured.plain(), measured.record

    assert {key: value for key, value in plain.items() if key != "arms"} == {
        "job_id": record.job_id,
        "dataset": record.dataset,
        "backbone": record.job.backbone,
        "seed": record.job.seed,
        "device": record.environment.device,
        "threads": record.environment.threads,
        "clock": "wall clock",
        "memory": "resident growth",
        "distinct_rows": 9,
    }
    assert [arm["macs"] for arm in plain["arms"]] == [100, 101, 102, 103]
    assert [arm["peak_memory_bytes"] for arm in plain["arms"]] == [1000, 2000, 3000, 4000]
    assert plain["arms"][1]["training"]["ms"] == [8.0, 16.0, 12.0]
    assert plain["arms"][1]["inference"][0]["ms"] == [4.0, 8.0, 18.0]
    assert [(arm["arm"], arm["plugin"], arm["parameters"]) for arm in plain["arms"]] == [
        ("dense", "dense", 10),
        ("narrow", "prime", 11),
        ("prime", "prime", 12),
        ("apg", "apg", 13),
    ]
    for arm, times in zip(plain["arms"], (1, 2, 3, 4), strict=True):
        (inference,) = arm["inference"]
        assert (inference["median_ms"], inference["ratio"]) == (4 * times, times)
        assert (inference["form"], inference["batch_size"]) == ("eager", 8)
        assert (arm["training"]["median_ms"], arm["training"]["ratio"]) == (6 * times, times)
        assert arm["memory_ratio"] == times
    eager = [arm["eager_training"] for arm in plain["arms"]]
    assert eager == [
        {"ms": [3.0, 4.0, 5.0], "median_ms": 4.0, "ratio": 1.0},
        {"ms": [6.0, 8.0, 10.0], "median_ms": 8.0, "ratio": 2.0},
        None,
        None,
    ]


def test_other_records_have_no_costs(recipe):
    records, _ = Runs(RECORDS).readable()
    for kind in ("train", "routing"):
        record = next(one for one in records if one.job.kind == kind)
        with pytest.raises(TypeError, match=f"{record.job_id}: a record of the kind {kind}"):
            MeasuredCosts.of(record, recipe)

"""Which runs are without a partner, whatever recipes they are of."""

from collections.abc import Callable, Sequence
from typing import Any

from prime_bench.base.identity import digest
from prime_bench.recipe.job import Job
from prime_bench.settings.training import TrainSpec
from prime_bench.store.record import Pairing, RunRecord
from prime_bench.store.verification import check_pairs

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

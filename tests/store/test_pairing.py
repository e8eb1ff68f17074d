"""Which records are paired, and the reasons why others are not."""

from collections.abc import Callable
from typing import Any

import pytest

from prime_bench.base.identity import digest
from prime_bench.recipe.job import Job
from prime_bench.settings.training import TrainSpec
from prime_bench.store.pairing import arm_key, comparison_key, group_runs, mismatches, pair_up
from prime_bench.store.record import RunRecord

MakeRecord = Callable[..., RunRecord]


@pytest.fixture
def record(plain_record: MakeRecord) -> MakeRecord:
    def record(arm: str = "dense", seed: int = 1, **changes: Any) -> RunRecord:
        job = Job(
            fingerprint=changes.pop("fingerprint", "f" * 64),
            backbone=changes.pop("backbone", "DNN"),
            backbone_settings=changes.pop("backbone_settings", {"net_dropout": 0.1}),
            plugin=arm,
            code=changes.pop("code", {}),
            plugin_settings=changes.pop("plugin_settings", {}),
            training=changes.pop("training", TrainSpec()),
            seed=seed,
            numerics=changes.pop("numerics", 1),
        )
        pairing = {"initial_weights": digest(["weights", seed]), "row_order": digest([seed])}
        environment = {key: changes.pop(key) for key in ("commit", "device_kind") if key in changes}
        labels = {key: changes.pop(key) for key in ("dataset", "data_variant") if key in changes}
        score = {"auc": changes.pop("auc", 0.75), "logloss": 0.4}
        return plain_record(
            job,
            pairing={**pairing, **changes},
            result={"test": score},
            environment=environment,
            **labels,
        )

    return record


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"initial_weights": "0" * 64}, "initial weights"),
        ({"row_order": "0" * 64}, "row order"),
        ({"fingerprint": "0" * 64}, "data fingerprint"),
        ({"numerics": 2}, "numerics"),
        ({"device_kind": "cuda"}, "device kind"),
    ],
)
def test_what_differs_is_named_and_not_compared(
    record: MakeRecord, changes: dict[str, Any], name: str
) -> None:
    dense, prime = record(), record("prime", **changes)

    pairs, unpaired = pair_up({1: dense}, {1: prime})

    assert pairs == []
    assert [item.kind for item in unpaired] == ["mismatch"]
    assert unpaired[0].reason.startswith(f"different {name}: ")
    assert len(mismatches(dense, prime)) == 1


def test_every_difference_is_named(record: MakeRecord) -> None:
    assert len(mismatches(record(), record("prime", row_order="0" * 64, numerics=2))) == 2


def test_another_commit_is_no_obstacle(record: MakeRecord) -> None:
    pairs, unpaired = pair_up({1: record()}, {1: record("prime", commit="b" * 40)})

    assert len(pairs) == 1
    assert unpaired == []


def test_a_run_without_score_is_not_compared(record: MakeRecord) -> None:
    pairs, unpaired = pair_up({1: record()}, {1: record("prime", auc=None)})

    assert pairs == []
    assert unpaired[0].reason == "the run of prime has no score"


def test_unequal_seed_sets_leave_the_common_seeds(record: MakeRecord) -> None:
    dense = {seed: record(seed=seed) for seed in (1, 2, 3)}
    prime = {seed: record("prime", seed=seed) for seed in (2, 3, 4)}

    pairs, unpaired = pair_up(dense, prime)

    assert [pair.seed for pair in pairs] == [2, 3]
    assert all(pair.baseline.job.seed == pair.arm.job.seed == pair.seed for pair in pairs)
    assert [(item.seed, item.kind) for item in unpaired] == [(1, "missing"), (4, "missing")]
    assert unpaired[0].reason == "the baseline has a record, the arm has none"
    assert unpaired[1].reason == "the arm has a record, the baseline has none"


@pytest.mark.parametrize(
    "changes",
    [
        {"fingerprint": "0" * 64},
        {"training": TrainSpec(max_epochs=1)},
        {"backbone_settings": {"net_dropout": 0.2}},
        {"backbone": "FM"},
        {"dataset": "criteo"},
        {"data_variant": "w"},
    ],
)
def test_data_protocol_and_backbone_make_the_comparison(
    record: MakeRecord, changes: dict[str, Any]
) -> None:
    assert comparison_key(record("prime", **changes)) != comparison_key(record())


def test_seed_arm_and_commit_do_not_make_the_comparison(record: MakeRecord) -> None:
    other = record("prime", seed=2, commit="b" * 40, numerics=2)

    assert comparison_key(other) == comparison_key(record())
    assert arm_key(other) != arm_key(record())


def test_settings_make_the_arm(record: MakeRecord) -> None:
    ranks = [record("prime", plugin_settings={"rank": rank}) for rank in (2, 2, 4)]
    assert arm_key(ranks[0]) == arm_key(ranks[1]) != arm_key(ranks[2])


@pytest.mark.parametrize(
    ("changes", "pairs"),
    [
        ({}, True),
        ({"initial_weights": "0" * 64}, False),
        ({"initial_weights": "0" * 64, "backbone_settings": {"net_dropout": 0.2}}, True),
        ({"row_order": "0" * 64, "backbone_settings": {"net_dropout": 0.2}}, False),
        ({"device_kind": "cuda", "backbone_settings": {"net_dropout": 0.2}}, False),
    ],
)
def test_tuned_arms_may_start_from_other_weights_where_their_backbones_differ(
    record: MakeRecord, changes: dict[str, Any], pairs: bool
) -> None:
    dense, prime = record(), record("prime", **changes)

    found, unpaired = pair_up({1: dense}, {1: prime}, tuned=True)

    assert (len(found), len(unpaired)) == ((1, 0) if pairs else (0, 1))


def test_mixed_pairs_say_why_they_should_not_be_compared(record: MakeRecord) -> None:
    others = {1: record("prime"), 2: record("prime", 2, device_kind="cuda")}
    others[3] = record("prime", 3, device_kind="cuda", auc=None)
    dense = {seed: record(seed=seed) for seed in others}

    pairs, unpaired = pair_up(dense, others, mixed=True)

    assert [(pair.seed, pair.mismatch) for pair in pairs] == [
        (1, ""),
        (2, "different device kind: cpu against cuda"),
    ]
    assert [(item.seed, item.kind) for item in unpaired] == [(3, "mismatch")]
    assert unpaired[0].reason.endswith("; the run of prime has no score")


def test_newer_numerics_replace_older_in_any_order(record: MakeRecord) -> None:
    old, new, other = record(), record(numerics=2), record("prime")
    for records in ([old, new, other], [other, new, old]):
        grouped, outdated = group_runs(records)

        assert outdated == [old]
        assert grouped == {
            comparison_key(new): {arm_key(new): {1: new}, arm_key(other): {1: other}},
        }


def test_other_code_of_a_foreign_class_is_another_arm_or_comparison(record: MakeRecord) -> None:
    backbone = {"backbone": "a:Net", "code": {"a:Net": "0" * 64}}
    plugin = {"arm": "a:Gate", "code": {"a:Gate": "0" * 64}}
    for names, key_of in ((backbone, comparison_key), (plugin, arm_key)):
        one = record(**names)
        other = record(**{**names, "code": dict.fromkeys(names["code"], "1" * 64)})

        assert key_of(one) != key_of(other)
        assert one.job.id != other.job.id

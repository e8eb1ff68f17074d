"""What a record says of its run: whether it is sound, what an epoch took, what was changed."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from prime_bench.recipe.job import Job
from prime_bench.settings.training import TrainSpec
from prime_bench.store.record import (
    ProbeRecord,
    RunRecord,
    has_lost_digests,
    is_as_written,
    is_generated,
    not_finite,
    notes_on_batches,
    sealed,
)
from prime_bench.store.runs import Runs

MakeRecord = Callable[..., RunRecord]
RECORDS = Path(__file__).parents[1] / "records"
SOUND = {"auc": 0.7, "logloss": 0.4}
CONSTANT = {"auc": 0.5, "logloss": 0.4}
LOST = {"auc": None, "logloss": None}


@pytest.fixture
def record(plain_record: MakeRecord) -> MakeRecord:
    """A record of validations with these (AUC, LogLoss, training loss)."""

    def record(*validations: tuple[object, object, object], **given: Any) -> RunRecord:
        job = Job(
            fingerprint="f" * 64,
            backbone="DNN",
            backbone_settings={},
            plugin="dense",
            plugin_settings={},
            training=TrainSpec(),
            seed=1,
        )
        history = [
            {
                "epoch": epoch,
                "step": epoch,
                "learning_rate": 0.1,
                "train_loss": loss,
                "valid_auc": auc,
                "valid_logloss": logloss,
                "improved": False,
                "wall_s": 3.0 * epoch,
            }
            for epoch, (auc, logloss, loss) in enumerate(validations, start=1)
        ]
        return plain_record(job, history=history, **given)

    return record


@pytest.mark.parametrize(
    ("validations", "result", "expected"),
    [
        ([(0.7, 0.4, 0.5)], {}, None),
        # The record's words count only where they agree, or where nothing else tells.
        ([(0.7, 0.4, 0.5)], {"degenerate": "no reason"}, None),
        ([], {"degenerate": "no reason"}, "no reason"),
        ([], {}, None),
        ([(0.7, 0.4, 0.5)], {"test": CONSTANT}, "test: the AUC is 0.5"),
        ([(0.7, 0.4, 0.5)], {"test": CONSTANT, "degenerate": "own words"}, "own words"),
        ([(0.7, 0.4, 0.5)], {"valid": LOST}, "valid: predictions are not finite"),
        *(([(0.7, 0.4, 0.5)], {"valid": {**SOUND, key: None}}, None) for key in SOUND),
        ([(0.7, 0.4, None)], {}, "the training loss was not finite in epochs 1"),
        # Worse than chance, and yet a measurement.
        ([(0.4, 0.4, 0.5)], {"valid": {"auc": 0.4, "logloss": 0.4}}, None),
        (
            [(0.7, 0.4, 0.5), (None, None, None)],
            {"valid": LOST, "test": CONSTANT},
            "predictions were not finite after epochs 2; valid: predictions are not finite; "
            "test: the AUC is 0.5",
        ),
    ],
)
def test_history_and_scores_say_whether_a_run_is_sound(
    record: MakeRecord,
    validations: list[tuple[object, object, object]],
    result: dict[str, Any],
    expected: str | None,
) -> None:
    result = {"valid": SOUND, "test": SOUND, **result}
    assert record(*validations, result=result).degenerate == expected


def test_the_epochs_of_lost_predictions_are_not_those_of_lost_losses(record: MakeRecord) -> None:
    run = record((0.7, 0.4, None), (None, None, None), (0.7, 0.4, 0.5), (None, None, None))
    assert not_finite(run.history) == [
        "predictions were not finite after epochs 2, 4",
        "the training loss was not finite in epochs 1",
    ]


def test_one_metric_of_two_is_no_sign_of_lost_predictions(record: MakeRecord) -> None:
    assert not_finite(record((None, 0.4, 0.5), (0.7, None, 0.5)).history) == []


def test_an_epoch_takes_the_mean_of_all(record: MakeRecord) -> None:
    assert record((0.7, 0.4, 0.5), (0.7, 0.4, 0.5)).epoch_s == 3.0
    assert record().epoch_s is None


@pytest.mark.parametrize(
    ("n_rows", "batch_size", "joined"),
    [(11, 10, True), (10, 10, False), (12, 10, False), (21, 10, True), (1, 10, False)],
)
def test_a_last_row_that_joins_a_batch_is_noted(n_rows: int, batch_size: int, joined: bool) -> None:
    assert bool(notes_on_batches(n_rows, batch_size=batch_size)) == joined
    steps = TrainSpec(batch_size=batch_size).steps_of_epoch(n_rows)
    assert steps == -(-n_rows // batch_size) - joined


def test_a_seal_is_of_every_value_and_of_the_files(record: MakeRecord) -> None:
    made = sealed(record((0.7, 0.4, 0.5)), {"test.json": "0" * 64})
    assert is_as_written(made)
    assert made.digests is not None
    assert made.digests.files == {"test.json": "0" * 64}
    others = made.digests.model_copy(update={"files": {"test.json": "1" * 64}})
    changes: list[dict[str, Any]] = [{"wall_s": 9.0}, {"arm": "other"}, {"digests": others}]
    for change in changes:
        assert is_as_written(made.model_copy(update=change)) is False
    assert is_as_written(record()) is None


@pytest.mark.parametrize(
    ("environment", "where"),
    [
        ({}, "this machine, a CPU"),
        ({"host": "h"}, "h, a CPU"),
        ({"host": "h", "node": "0123456789"}, "h (node 01234567), a CPU"),
    ],
)
def test_a_place_is_machine_node_and_device(
    record: MakeRecord, environment: dict[str, str], where: str
) -> None:
    assert record(environment=environment).environment.where == where


def test_generated_rows_are_noted_at_the_beginning_of_a_note(record: MakeRecord) -> None:
    assert is_generated(record(data_notes=["a note", "synthetic data, of 9 rows"]))
    assert not is_generated(record(data_notes=["no synthetic data"]))
    assert not is_generated(record())


@pytest.mark.parametrize(
    "newer",
    [
        {"environment": {"host": "h"}},
        {"environment": {"node": "n"}},
        {"result": {"test": {**SOUND, "deciles": []}}},
        {"result": {"valid": {**SOUND, "deciles": []}}},
    ],
)
def test_a_record_of_a_version_with_digests_has_lost_them_where_there_are_none(
    record: MakeRecord, newer: dict[str, Any]
) -> None:
    assert has_lost_digests(record(**newer))
    assert not has_lost_digests(sealed(record(**newer), {}))
    assert not has_lost_digests(record())


def test_a_record_of_a_probe_may_lack_digests_too() -> None:
    records, _ = Runs(RECORDS).readable()
    for probe in (one for one in records if isinstance(one, ProbeRecord)):
        for host in (None, "h"):
            environment = probe.environment.model_copy(update={"host": host, "node": None})
            bare = probe.model_copy(update={"digests": None, "environment": environment})
            assert has_lost_digests(bare) == (host is not None)
            assert not has_lost_digests(sealed(bare, {}))


def test_a_record_without_digests_is_written_without_the_key(record: MakeRecord) -> None:
    assert "digests" not in record().plain()
    assert sealed(record(), {}).plain()["digests"]["files"] == {}

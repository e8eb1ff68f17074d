"""Which runs are without a partner, whatever recipes they are of, and what of a record does not
follow from its other values or from its table.
"""

import hashlib
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from prime_bench.base.identity import digest
from prime_bench.findings import Validation
from prime_bench.recipe.job import Job
from prime_bench.settings.interface import TableShape
from prime_bench.settings.training import TrainSpec
from prime_bench.store import verification
from prime_bench.store.record import Pairing, ProbeRecord, RunRecord, sealed
from prime_bench.store.runs import CHECKPOINT, CONFIG, ENVIRONMENT, HISTORY, PREDICTIONS, TEST, Runs
from prime_bench.store.verification import (
    FolderFiles,
    ManifestFacts,
    PackedFiles,
    agree,
    check_data,
    check_pairs,
    check_record,
    without_digests,
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
    assert [item.plain() for item in check_data(records[:1])] == [
        {
            "topic": "data",
            "where": "avazu ffffffff",
            "what": "data that differ from those of the card, in 1 record",
        }
    ]
    assert [(item.where, item.what) for item in check_data(records)] == [
        ("avazu ffffffff", "data that differ from those of the card, in 2 records"),
        ("criteo ffffffff", "data that differ from those of the card, in 1 record"),
    ]


@pytest.mark.parametrize(
    ("name", "what"),
    [
        (CONFIG, "not the job and the labels of the record"),
        (ENVIRONMENT, "not the environment of the record"),
        (HISTORY, "not the validations of the record"),
        (TEST, "not the test scores of the record"),
    ],
)
@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"null", b"{}", b"[" * 100_000],
    ids=["empty", "cut", "list", "null", "object", "deep"],
)
def test_a_file_that_says_nothing_of_the_kind_is_not_that_of_the_record(
    plain_record: MakeRecord, name: str, what: str, content: bytes
) -> None:
    files = PackedFiles(Path("job"), {name: content})
    said = [(item.where, item.what) for item in check_record(sound(plain_record), files)]
    assert said == [(f"job/{name}", what)]


def lines_of(record: RunRecord, changes: dict[int, dict[str, Any]]) -> list[dict[str, Any]]:
    """The validations of a record; number -> values that are others."""
    lines = [line.plain() for line in record.history]
    return [{**line, **changes.get(number, {})} for number, line in enumerate(lines, start=1)]


def with_history(record: RunRecord, lines: Sequence[dict[str, Any]]) -> RunRecord:
    history = [Validation.model_validate(line) for line in lines]
    return record.model_copy(update={"history": history})


@pytest.mark.parametrize(
    ("number", "change", "said"),
    [
        (2, {"valid_logloss": None}, "history: validation 2 has only one of two metrics"),
        (
            2,
            {"valid_auc": None, "valid_logloss": None},
            "history: validation 2 has a loss, though its predictions were not finite",
        ),
        (2, {"wall_s": 1.9}, "history: validation 2 ended before the one before it"),
        (3, {"step": 23}, "history: validation 3 has step 23, not 3 times 8"),
        (2, {"epoch": 4}, "history: validation 2 has epoch 4"),
        # Of the epoch that has ended, not of the next one, which the rule makes slower.
        (
            2,
            {"learning_rate": 1e-4},
            "history, epoch 2, learning_rate: 0.0001 in the record, 0.001 by the stop rule",
        ),
        (
            3,
            {"improved": True},
            "history, epoch 3, improved: true in the record, false by the stop rule",
        ),
    ],
)
def test_a_validation_that_no_run_can_have_left_is_told(
    plain_record: MakeRecord, number: int, change: dict[str, Any], said: str
) -> None:
    record = sound(plain_record)
    assert faults(record) == []
    assert said in faults(with_history(record, lines_of(record, {number: change})))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"epochs": 4}, "result.epochs: 4 in the record, 3 by its history"),
        ({"best_epoch": 2}, "result.best_epoch: 2 in the record, 1 by its history"),
        (
            {"stopped": "max_epochs"},
            'result.stopped: "max_epochs" in the record, "patience" by its history',
        ),
    ],
)
def test_the_result_is_that_of_the_history(
    plain_record: MakeRecord, change: dict[str, Any], said: str
) -> None:
    record = sound(plain_record)
    changed = record.model_copy(update={"result": record.result.model_copy(update=change)})
    assert said in faults(changed)


def test_a_run_without_a_validation_has_nothing_that_follows_from_one(
    plain_record: MakeRecord,
) -> None:
    record = with_history(sound(plain_record), [])
    result = record.result.model_copy(update={"epochs": 0, "best_epoch": None})
    result = result.model_copy(update={"stopped": "max_epochs"})
    assert faults(record.model_copy(update={"result": result})) == []


@pytest.mark.parametrize(
    ("n_lines", "max_epochs", "said"),
    [
        (3, 2, "history: 3 validations, of at most 2"),
        (4, 100, "history: epoch 4 was run after the stop rule had ended the run"),
        (2, 100, "history: it ends after 2 epochs, and no rule ended the run there"),
    ],
)
def test_a_history_is_as_long_as_the_stop_rule_lets_it_be(
    plain_record: MakeRecord, n_lines: int, max_epochs: int, said: str
) -> None:
    record = sound(plain_record)
    lines = lines_of(record, {})
    lines = [*lines, {**lines[-1], "epoch": 4, "step": 32}][:n_lines]
    training = record.job.training.model_copy(update={"max_epochs": max_epochs})
    job = record.job.model_copy(update={"training": training})
    assert said in faults(with_history(record.model_copy(update={"job": job}), lines))


GROUPS = {
    "column": "user",
    "groups": 1,
    "rows": 10,
    "one_class_groups": 1,
    "one_class_rows": 6,
    "rows_without_group": 4,
}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"gauc": 0.5, "groups": GROUPS}, []),
        (
            {"gauc": 0.5, "groups": {**GROUPS, "one_class_rows": 7}},
            ["result.valid.groups: 21 rows, its deciles have 20"],
        ),
        (
            {"gauc": 0.5, "groups": {**GROUPS, "groups": 0}},
            ["result.valid: gauc or the groups that it is of are missing"],
        ),
        ({"groups": GROUPS}, ["result.valid: gauc or the groups that it is of are missing"]),
        ({"gauc": 0.5}, ["result.valid: gauc or the groups that it is of are missing"]),
    ],
)
def test_a_group_auc_has_the_groups_and_the_rows_that_it_is_of(
    plain_record: MakeRecord, change: dict[str, Any], said: list[str]
) -> None:
    found = faults(sound(plain_record, valid={**calibrated(), **change}))
    # A record with bins has digests, which is a finding of its own that this leaves out.
    assert [line for line in found if "were removed" not in line] == said


@pytest.mark.parametrize(
    ("scores", "degenerate", "follows"),
    [
        ({"auc": None, "logloss": None}, "test: 3 of 9 predictions are not finite", True),
        ({"auc": None, "logloss": None}, "test: 9 of 9 predictions are not finite", True),
        ({"auc": None, "logloss": None}, "test: 0 of 9 predictions are not finite", False),
        ({"auc": None, "logloss": None}, "test: 3 of 8 predictions are not finite", False),
        ({"auc": None, "logloss": None}, "valid: 3 of 9 predictions are not finite", False),
        ({"auc": 0.5, "logloss": 0.4}, "test: every prediction is 0.25", True),
        ({"auc": 0.5, "logloss": 0.4}, "test: the AUC is 0.5", True),
        ({"auc": 0.5, "logloss": 0.4}, None, False),
        ({"auc": 0.49, "logloss": 0.4}, None, True),
        # The worst order that there is, and a sound one.
        ({"auc": 0.0, "logloss": 0.4}, None, True),
        ({"auc": 0.49, "logloss": 0.4}, "test: the AUC is 0.5", False),
    ],
)
def test_a_run_is_degenerate_for_the_reasons_that_its_scores_give(
    plain_record: MakeRecord, scores: dict[str, Any], degenerate: str | None, follows: bool
) -> None:
    record = sound(plain_record, result={"test": scores, "degenerate": degenerate})
    said = [line.partition(":")[0] for line in faults(record, facts())]
    assert said == ([] if follows else ["result.degenerate"])


def test_one_metric_without_the_other_is_told(plain_record: MakeRecord) -> None:
    record = sound(plain_record, result={"test": {"auc": 0.7, "logloss": None}})
    assert faults(record) == ["result.test: only one of two metrics is there"]


def test_of_settings_that_this_version_does_not_have_no_budget_is_computed(
    plain_record: MakeRecord,
) -> None:
    record = sound(plain_record)
    for backbone, n_faults in (({}, 1), ({"of_another_version": 1}, 0)):
        update = {"backbone": "DNN", "backbone_settings": backbone, "code": {}}
        job = record.job.model_copy(update=update)
        found = faults(record.model_copy(update={"job": job}), facts())
        assert [line.partition(":")[0] for line in found] == ["budget"] * n_faults


def test_large_files_are_those_that_may_be_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verification, "MOST_BYTES", 3)
    files, long = FolderFiles(tmp_path), "has 1,000 bytes, which no such file has"
    for name in (CHECKPOINT, PREDICTIONS, HISTORY):
        assert files.unreadable(name) is None, "it is not there"
        (tmp_path / name).write_bytes(b"abc")
        assert files.unreadable(name) is None
        (tmp_path / name).write_bytes(b"x" * 1000)
        assert files.unreadable(name) == long
    save_file({"weight": np.zeros(3)}, tmp_path / CHECKPOINT)
    np.savez(tmp_path / PREDICTIONS, valid=np.zeros(3))
    assert [files.unreadable(name) for name in (CHECKPOINT, PREDICTIONS)] == [None, None]

    (tmp_path / TEST).mkdir()
    assert files.unreadable(TEST) == "cannot be read: a folder, not a file"
    assert (files.read(TEST), files.digest(TEST)) == (None, None)


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@pytest.mark.parametrize(
    ("files", "packed", "in_folder"),
    [
        ({}, [], []),
        ({CONFIG: None}, [(CONFIG, "missing")], [(CONFIG, "missing")]),
        ({ENVIRONMENT: None}, [(ENVIRONMENT, "missing")], [(ENVIRONMENT, "missing")]),
        # Which stay behind when a bundle is packed.
        ({HISTORY: None}, [], [(HISTORY, "missing")]),
        ({CHECKPOINT: None}, [], [(CHECKPOINT, "missing")]),
        # Which can be made again.
        ({PREDICTIONS: None}, [], []),
        *(
            ({name: b"other"}, [(name, what)], [(name, what)])
            for name, what in (
                (PREDICTIONS, "not the file with which the record was written"),
                (CHECKPOINT, "not the weights from which the record's metrics were computed"),
            )
        ),
    ],
)
def test_a_file_that_was_sealed_is_there_and_as_it_was(
    plain_record: MakeRecord,
    tmp_path: Path,
    files: dict[str, bytes | None],
    packed: list[tuple[str, str]],
    in_folder: list[tuple[str, str]],
) -> None:
    record = sound(plain_record, weights=sha256(b"weights"))
    config = {"job_id": record.job_id, "job": record.job.plain(), "dataset": "avazu"}
    config["arm"] = record.arm
    was = {
        CONFIG: json.dumps(config).encode(),
        ENVIRONMENT: json.dumps(record.environment.plain()).encode(),
        HISTORY: "\n".join(json.dumps(line.plain()) for line in record.history).encode(),
        CHECKPOINT: b"weights",
        PREDICTIONS: b"predictions",
        TEST: json.dumps({"rows": 9, **record.result.test.plain()}).encode(),
    }
    whole = sealed(record, {name: sha256(content) for name, content in was.items()})
    now = {name: content for name, content in {**was, **files}.items() if content is not None}
    for name, content in now.items():
        (tmp_path / name).write_bytes(content)

    for jobs_files, expected in (
        (PackedFiles(tmp_path, now), packed),
        (FolderFiles(tmp_path), in_folder),
    ):
        found = [(item.topic, item.where, item.what) for item in check_record(whole, jobs_files)]
        assert found == [("files", str(tmp_path / name), what) for name, what in expected]


def test_a_file_with_the_same_values_and_other_bytes_is_another(plain_record: MakeRecord) -> None:
    record = sound(plain_record)
    lines = "\n".join(json.dumps(line.plain()) for line in record.history).encode()
    whole = sealed(record, {HISTORY: sha256(lines)})
    for content, said in (
        (lines, []),
        (lines + b"\n", ["not the file with which the record was written"]),
        (lines[:-1], ["not the validations of the record"]),
    ):
        files = PackedFiles(Path("job"), {HISTORY: content})
        assert [item.what for item in check_record(whole, files)] == said


def test_a_config_of_another_label_or_job_is_not_that_of_the_record(
    plain_record: MakeRecord,
) -> None:
    record = sound(plain_record)
    own = {"job_id": record.job_id, "job": record.job.plain(), "dataset": "avazu", "arm": "dense"}
    for change, n_faults in (
        ({}, 0),
        ({"extra": 1}, 0),
        ({"arm": "prime"}, 1),
        ({"dataset": "criteo"}, 1),
        ({"job_id": "0" * 16}, 1),
        ({"job": {**record.job.plain(), "seed": 2}}, 1),
    ):
        content = json.dumps({**own, **change}).encode()
        files = PackedFiles(Path("job"), {CONFIG: content})
        said = [item.what for item in check_record(record, files)]
        assert said == ["not the job and the labels of the record"] * n_faults


def test_a_record_that_was_changed_or_robbed_of_its_digests_says_so(
    plain_record: MakeRecord,
) -> None:
    record = sound(plain_record)
    whole = sealed(record, {})
    assert faults(whole) == []
    longer = whole.model_copy(update={"wall_s": 99.0})
    assert faults(longer) == [
        "was changed after it was written: its digest is not that of its values"
    ]
    newer = sound(plain_record, environment={"host": "a"})
    assert faults(newer) == [
        "was changed after it was written: its digests (`digests`) were removed"
    ]
    assert without_digests([record, record, whole, newer]) == 2


def test_a_long_value_is_cut_in_a_message(plain_record: MakeRecord) -> None:
    (said,) = faults(sound(plain_record, data_notes=["x" * 200]), facts())
    assert said == (f'data_notes: ["{"x" * 118}... in the record, [] by the manifest of data/t')


def test_experts_that_are_not_those_of_the_entropy_are_told(plain_record: MakeRecord) -> None:
    record = sound(plain_record)
    for effective, n_faults in ((2.0, 0), (2.0 * (1 + 9e-6), 0), (2.0 * (1 + 2e-5), 1)):
        routing = {
            "entropy": [math.log(2.0)],
            "effective_experts": [effective],
            "largest_load": [0.5],
        }
        found = faults(with_history(record, lines_of(record, {2: {"routing": routing}})))
        said = "history: validation 2 has effective experts that are not exp of the entropy"
        assert found == [said] * n_faults


def test_of_a_probe_only_its_files_and_its_table_are_compared() -> None:
    records, _ = Runs(Path(__file__).parents[1] / "records").readable()
    probe = next(one for one in records if isinstance(one, ProbeRecord))
    bare = probe.model_copy(update={"digests": None})
    nothing = PackedFiles(Path("job"), {})
    own = {"variant": probe.data_variant, "verified": probe.data_verified}
    table = facts(**own, notes=probe.data_notes, card=probe.data_card)
    assert list(check_record(sealed(bare, {}), nothing, [table])) == []
    (found,) = check_record(sealed(bare, {}), nothing, [replace(table, notes=["another"])])
    assert (found.topic, found.where) == ("data", "job/record.json")

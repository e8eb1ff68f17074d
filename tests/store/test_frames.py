"""What stands in each column, and the columns of settings that differ: of one type each."""

import numpy as np
import polars as pl
import pytest

from prime_bench.recipe.job import Job
from prime_bench.settings.training import TrainSpec
from prime_bench.store.frames import histories_frame, predictions_frame, runs_frame


@pytest.fixture
def frame(plain_record):
    """The frame of runs of one backbone with these settings."""

    def frame(*settings):
        return runs_frame(
            [
                plain_record(
                    Job(
                        fingerprint="f" * 64,
                        backbone="DNN",
                        backbone_settings=own,
                        plugin="dense",
                        plugin_settings={},
                        training=TrainSpec(),
                        seed=1,
                    )
                )
                for own in settings
            ]
        )

    return frame


@pytest.mark.parametrize(
    ("values", "kind", "column"),
    [
        ([1, 2, None], pl.Int64, [1, 2, None]),
        ([1, 0.5, None], pl.Float64, [1.0, 0.5, None]),
        ([True, None, False], pl.Boolean, [True, None, False]),
        (["a", None, "b"], pl.String, ["a", None, "b"]),
        (["a", 1, None], pl.String, ['"a"', "1", None]),
        ([True, 2, None], pl.String, ["true", "2", None]),
        ([[8, 4], [8], None], pl.String, ["[8, 4]", "[8]", None]),
    ],
)
def test_a_column_has_one_type_and_no_value_where_a_run_has_none(frame, values, kind, column):
    found = frame(*({} if value is None else {"key": value} for value in values))["backbone.key"]

    assert (found.dtype, found.to_list()) == (kind, column)


def test_settings_that_no_two_runs_differ_in_have_no_column(frame):
    assert "backbone.key" not in frame({"key": 1}, {"key": 1}).columns


VALID = {"auc": 0.71, "logloss": 0.41, "gauc": 0.61, "ne": 0.91, "pcoc": 1.1, "ece": 0.01}
TEST = {"auc": 0.72, "logloss": 0.42, "gauc": 0.62, "ne": 0.92, "pcoc": 1.2, "ece_all": 0.02}
LINES = [
    {
        "epoch": epoch,
        "step": 10 * epoch,
        "learning_rate": 0.1 / epoch,
        "train_loss": 0.5 / epoch,
        "valid_auc": 0.7 + epoch / 100,
        "valid_logloss": 0.4 + epoch / 100,
        "improved": epoch < 3,
        "wall_s": 2.0 * epoch,
    }
    for epoch in (1, 2, 3)
]


@pytest.fixture
def run(plain_record):
    """A run of three epochs, whose second is the best."""

    def run(plugin="prime", *, seed=5, training=None, **given):
        job = Job(
            fingerprint="f" * 64,
            backbone="DNN",
            backbone_settings={},
            plugin=plugin,
            plugin_settings={"rank": 4} if plugin == "prime" else {},
            training=training or TrainSpec(),
            seed=seed,
        )
        result = {"valid": VALID, "test": TEST, "epochs": 3, "best_epoch": 2, "stopped": "patience"}
        budget = {"backbone_parameters": 100, "plugin_parameters": 20}
        own = {"result": result, "budget": budget, "history": LINES, "arm": "mine", "wall_s": 7.5}
        return plain_record(job, **{**own, **given})

    return run


def test_a_row_of_a_run_has_what_its_record_says(run):
    one = run(environment={"device": "a GPU", "started": "2026-02-03T00:00:00Z"})
    (row,) = runs_frame([one]).to_dicts()

    metrics = {
        f"{split}_{metric}": score.get(metric)
        for split, score in (("valid", VALID), ("test", TEST))
        for metric in ("auc", "logloss", "gauc", "ne", "pcoc", "ece", "ece_all")
    }
    assert row == {
        **{"dataset": "avazu", "backbone": "DNN", "arm": "mine", "seed": 5, "job_id": one.job_id},
        **metrics,
        **{"epochs": 3, "best_epoch": 2, "stopped": "patience", "wall_s": 7.5, "epoch_s": 2.0},
        **{"degenerate": None, "parameters": 120, "plugin_parameters": 20, "device": "a GPU"},
        **{"numerics": one.job.numerics, "started": "2026-02-03T00:00:00Z"},
    }


def test_a_history_has_a_row_of_each_validation(run):
    one, other = run(), run("dense", seed=6, history=LINES[:1])
    rows = histories_frame([one, other]).to_dicts()

    labels = {"dataset": "avazu", "backbone": "DNN", "arm": "mine"}
    assert rows == [
        {**labels, "seed": seed, "job_id": job_id, **line, "best": line["epoch"] == 2}
        for seed, job_id, lines in ((5, one.job_id, LINES), (6, other.job_id, LINES[:1]))
        for line in lines
    ]


def test_only_runs_of_one_scope_differ_in_its_settings(run):
    short = TrainSpec(max_epochs=1)
    records = [run(), run("dense"), run(seed=6, training=short), run(data_variant="w")]
    frame = runs_frame(records)

    own = set(frame.columns) - set(runs_frame(records[:1]).columns)
    # Dense has no rank, which is no difference to PRIME's.
    assert own == {"training.max_epochs", "data_variant"}
    assert frame["training.max_epochs"].to_list() == [100, 100, 1, 100]
    assert frame["data_variant"].to_list() == ["v", "v", "v", "w"]
    assert histories_frame(records)["data_variant"].to_list() == ["v"] * 9 + ["w"] * 3
    assert runs_frame([run(), run(dataset="criteo", data_variant="w")]).columns == list(
        runs_frame(records[:1]).columns
    ), "the variants of two data sets are no difference"


def test_without_runs_the_columns_have_their_types():
    assert runs_frame([]).schema["test_auc"] == pl.Float64
    assert runs_frame([]).schema["parameters"] == pl.Int64
    assert histories_frame([]).schema["improved"] == pl.Boolean


def test_predictions_are_rows_of_their_split(tmp_path):
    values, labels = np.float32([0.25, 0.5, 0.75]), np.uint8([0, 1, 1])
    np.savez(
        tmp_path / "predictions.npz",
        valid=values,
        valid_labels=labels,
        test=values[:1],
        test_labels=labels[1:2],
    )
    frame = predictions_frame(tmp_path)

    assert frame.schema == {"split": pl.String, "label": pl.UInt8, "probability": pl.Float32}
    assert frame.rows() == [
        *(("valid", 0, 0.25), ("valid", 1, 0.5), ("valid", 1, 0.75)),
        ("test", 1, 0.25),
    ]

"""Columns of the settings that differ between runs: of one type each."""

import polars as pl
import pytest

from prime_bench.recipe.job import Job
from prime_bench.settings.training import TrainSpec
from prime_bench.store.frames import runs_frame


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

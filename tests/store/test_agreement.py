"""Where two records of one job differ, and where they do not."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from prime_bench.recipe.job import Job
from prime_bench.settings.training import TrainSpec
from prime_bench.store.agreement import differing_results, score_distances
from prime_bench.store.record import ProbeRecord, RunRecord
from prime_bench.store.runs import Runs

MakeRecord = Callable[..., RunRecord]
RECORDS = Path(__file__).parents[1] / "records"
JOB = Job(
    fingerprint="f" * 64,
    backbone="DNN",
    backbone_settings={},
    plugin="dense",
    plugin_settings={},
    training=TrainSpec(),
    seed=1,
)
SCORE = {"auc": 0.75, "logloss": 0.4, "ece": 0.01}
LINE = {
    "epoch": 1,
    "step": 10,
    "learning_rate": 0.1,
    "train_loss": 0.5,
    "valid_auc": 0.7,
    "valid_logloss": 0.4,
    "improved": True,
    "wall_s": 2.0,
}


@pytest.fixture
def record(plain_record: MakeRecord) -> MakeRecord:
    def record(*, line: dict[str, Any] | None = None, **given: Any) -> RunRecord:
        result = {"valid": SCORE, "test": SCORE, "epochs": 1, **given.pop("result", {})}
        history = [{**LINE, **(line or {})}]
        return plain_record(JOB, result=result, history=history, **given)

    return record


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"result": {"test": {**SCORE, "auc": 0.75 + 1e-9}}},
            ["test AUC 0.750000 and 0.750000, 1.0e-09 apart"],
        ),
        (
            {"result": {"valid": {**SCORE, "logloss": 0.5}}},
            ["validation LogLoss 0.400000 and 0.500000, 1.0e-01 apart"],
        ),
        ({"result": {"test": {**SCORE, "auc": None}}}, ["test AUC 0.750000 and none"]),
        ({"result": {"epochs": 2}}, ["1 and 2 epochs"]),
        ({"pairing": {"initial_weights": "x"}}, ["other initial weights or row order"]),
        ({"pairing": {"row_order": "x"}}, ["other initial weights or row order"]),
        *(
            ({"line": {key: value}}, ["another history"])
            for key, value in (
                *(("epoch", 2), ("train_loss", 0.6), ("valid_auc", 0.6)),
                *(("valid_logloss", 0.6), ("improved", False)),
            )
        ),
        # Metrics that older records lack, times, machine and labels.
        ({"result": {"test": {"auc": 0.75, "logloss": 0.4}}}, []),
        ({"line": {"wall_s": 9.0}}, []),
        ({"wall_s": 9.0, "environment": {"device": "another"}, "arm": "base"}, []),
    ],
)
def test_results_that_differ_are_named(
    record: MakeRecord, changes: dict[str, Any], said: list[str]
) -> None:
    assert differing_results(record(), record(**changes)) == said


def test_a_score_that_only_the_other_has_is_named(record: MakeRecord) -> None:
    lost = record(result={"test": {**SCORE, "auc": None}})
    assert differing_results(lost, record()) == ["test AUC none and 0.750000"]


def test_distances_are_those_of_the_test_scores(record: MakeRecord) -> None:
    far = {"valid": {**SCORE, "auc": 0.1}, "test": {**SCORE, "auc": 0.5, "logloss": 0.65}}
    assert score_distances(record(), record(result=far)) == {"AUC": 0.25, "LogLoss": 0.25}
    lost = {"test": {**SCORE, "auc": None}}
    assert score_distances(record(), record(result=lost)) == {"LogLoss": 0.0}


def test_findings_of_probes_are_the_same_or_not() -> None:
    """Of the records of probes in `tests/records`, which are of four kinds."""
    records, _ = Runs(RECORDS).readable()
    probe = next(one for one in records if one.job.kind == "routing")
    assert isinstance(probe, ProbeRecord)
    rows = probe.findings.model_copy(update={"rows": 999})
    for changes, said in (
        ({"wall_s": 9.0, "arm": "another"}, []),
        ({"findings": rows}, ["other findings"]),
    ):
        other = probe.model_copy(update=changes)
        assert differing_results(probe, other) == said
        assert score_distances(probe, other) == {}

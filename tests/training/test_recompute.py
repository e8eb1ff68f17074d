"""A finished job's weights once more: they give its record, and what does not is named."""

import hashlib
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import safetensors.torch
import torch

from prime_bench.api import predictions
from prime_bench.base.errors import DataError, EnvironmentFault, UsageError
from prime_bench.base.identity import NUMERICS
from prime_bench.data.table import PreparedTable
from prime_bench.plugins.attach import ArmModel
from prime_bench.store.record import sealed
from prime_bench.store.runs import Runs
from prime_bench.training import recompute as module
from prime_bench.training.evaluation import save_predictions
from prime_bench.training.metrics import auc, logloss
from prime_bench.training.recompute import (
    Recomputed,
    RowPredictor,
    check_predictions,
    recompute,
)
from prime_bench.worker import run_job

CPU = torch.device("cpu")
ALLOCATION = 1 << 55


@pytest.fixture
def finished(make_request):
    """A done job: record, folder, table."""

    def finish(plugin="prime", *, keep=False, **training):
        request = make_request(plugin, max_epochs=2, **training)
        request = request.model_copy(update={"keep_predictions": keep})
        record = run_job(request, lambda _: None)
        folder = Runs(Path(request.runs)).path(record.job_id)
        return record, folder, PreparedTable.open(request.table)

    return finish


@pytest.mark.parametrize("plugin", ["dense", "prime", "permuted_routing", "hidden_subspace"])
def test_the_weights_give_the_record_to_the_last_bit(finished, plugin):
    record, folder, table = finished(plugin, batch_norm=True)
    seen = []
    found = recompute(record, folder, table, device=CPU, on_rows=seen.append)
    assert (found.differences, found.conditions) == ([], [])
    assert sum(seen) == 150 + 140
    for name, values in found.probabilities.items():
        labels = table.split(name).labels
        assert auc(labels, values) == getattr(record.result, name).auc
        assert logloss(labels, values) == getattr(record.result, name).logloss


def test_what_a_run_keeps_is_what_its_weights_predict(finished):
    record, folder, table = finished(keep=True)
    with np.load(folder / "predictions.npz", allow_pickle=False) as file:
        kept = dict(file)
    found = recompute(record, folder, table, device=CPU)
    assert set(kept) == {"valid", "valid_labels", "test", "test_labels"}
    for name in ("valid", "test"):
        assert kept[name].dtype == np.float32
        assert np.array_equal(kept[name], found.probabilities[name].numpy())
        assert kept[f"{name}_labels"].dtype == np.uint8
        assert np.array_equal(kept[f"{name}_labels"], table.split(name).labels)
    assert auc(kept["test_labels"], kept["test"]) == record.result.test.auc


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"test": np.zeros(3)}, "test has no label and probability of each row"),
        ({"test_labels": np.ones(140, dtype=np.uint8)}, "one class"),
    ],
)
def test_predictions_that_cannot_be_scored_are_told(finished, tmp_path, changes, what):
    record, folder, _ = finished(keep=True)
    path = folder / "predictions.npz"
    with np.load(path) as kept:
        arrays = dict(kept)
    np.savez(path, **(arrays | changes))
    (found,) = check_predictions([record], Runs(folder.parent), data_dir=tmp_path)
    assert (found.topic, found.where) == ("files", str(path))
    assert what in found.what


def test_predictions_are_kept_only_if_asked_for(finished):
    _, folder, _ = finished()
    assert not (folder / "predictions.npz").exists()


def test_other_weights_are_found(finished):
    record, folder, table = finished()
    path = folder / "checkpoint.safetensors"
    weights = safetensors.torch.load_file(path)
    weights["backbone.embedding.table"] *= -0.5
    safetensors.torch.save_file(weights, path)
    found = recompute(record, folder, table, device=CPU)
    assert [line.split(":")[0] for line in found.differences] == [
        f"{split} {metric}"
        for split in ("valid", "test")
        for metric in ("auc", "logloss", "ne", "pcoc", "ece", "ece_all")
    ]
    assert f"{record.result.test.ece_all} in the record" in found.differences[-1]


def test_under_other_conditions_a_tolerance_holds(finished):
    record, folder, table = finished()
    environment = record.environment.model_copy(update={"device": "i486", "threads": 2})
    pairing = record.pairing.model_copy(update={"initial_weights": "0" * 64})

    def altered(by):
        score = record.result.test.model_copy(
            update={"logloss": record.result.test.logloss * (1 + by)}
        )
        result = record.result.model_copy(update={"test": score})
        update = {"environment": environment, "result": result, "pairing": pairing}
        return recompute(record.model_copy(update=update), folder, table, device=CPU)

    near, far = altered(1e-6), altered(1e-4)
    torch.set_num_threads(1)
    assert near.differences == []
    assert near.conditions[0].startswith("device was i486, is ")
    assert len(near.conditions) == 1  # it computes with the threads of the record
    assert [line.split(":")[0] for line in far.differences] == ["test logloss"]


@pytest.mark.parametrize(
    ("key", "line"),
    [
        ("initial_weights", "initial weights: not those of the record"),
        ("row_order", "row order of epoch 1: not that of the record"),
    ],
)
def test_another_beginning_is_found(finished, key, line):
    record, folder, table = finished()
    pairing = record.pairing.model_copy(update={key: "0" * 64})
    found = recompute(record.model_copy(update={"pairing": pairing}), folder, table, device=CPU)
    assert found.differences == [line]


def test_a_run_of_nan_gives_its_record_too(finished, write_table, tmp_path):
    def spoil(name, numerics, labels):  # noqa: ARG001
        if name == "train":
            numerics[5] = np.nan

    record, folder, table = finished(table=write_table(tmp_path / "nan-1", spoil=spoil))
    assert record.result.test.auc is None
    assert recompute(record, folder, table, device=CPU).differences == []
    sound = record.result.model_copy(
        update={"test": record.result.test.model_copy(update={"auc": 0.7})}
    )
    found = recompute(record.model_copy(update={"result": sound}), folder, table, device=CPU)
    assert found.differences == ["test auc: 0.7 in the record, None now"]


def test_a_sound_run_that_is_called_degenerate_is_found(finished):
    record, folder, table = finished()
    called = record.result.model_copy(update={"degenerate": "valid: the AUC is 0.5"})
    found = recompute(record.model_copy(update={"result": called}), folder, table, device=CPU)
    assert found.differences == ["degenerate: valid: the AUC is 0.5 in the record, None now"]


class TestUnfit:
    def test_another_table(self, finished, write_table, tmp_path):
        record, folder, _ = finished()
        other = PreparedTable.open(write_table(tmp_path / "other-1", seed=4))
        with pytest.raises(DataError) as fault:
            recompute(record, folder, other, device=CPU)
        assert fault.value.message == (
            f"{other.path}: the table has the fingerprint {other.manifest.fingerprint}, the job "
            f"{record.job.id} was trained on {record.job.fingerprint}"
        )

    def test_other_numerics(self, finished):
        record, folder, table = finished()
        record = record.model_copy(update={"job": record.job.model_copy(update={"numerics": 0})})
        with pytest.raises(UsageError) as fault:
            recompute(record, folder, table, device=CPU)
        assert fault.value.message == (
            f"the job {record.job.id} was trained with numerics 0, this version has {NUMERICS}"
        )
        version, commit = record.environment.package_version, record.environment.commit
        assert fault.value.hint == f"use the version that trained it: {version}, commit {commit}"

    def test_weights_of_another_job(self, finished):
        record, folder, table = finished()
        _, other, _ = finished("dense")
        weights = (other / "checkpoint.safetensors").read_bytes()
        (folder / "checkpoint.safetensors").write_bytes(weights)
        with pytest.raises(DataError, match=r"checkpoint.safetensors: not the weights of this job"):
            recompute(record, folder, table, device=CPU)

    def test_no_weights(self, finished):
        record, folder, table = finished()
        (folder / "checkpoint.safetensors").unlink()
        with pytest.raises(DataError, match="cannot read the weights"):
            recompute(record, folder, table, device=CPU)

    def test_no_memory(self, finished, monkeypatch):
        record, folder, table = finished()
        monkeypatch.setattr(module, "predict", lambda *_, **__: torch.empty(ALLOCATION))
        with pytest.raises(EnvironmentFault, match="out of memory on cpu while predicting"):
            recompute(record, folder, table, device=CPU)


@pytest.mark.parametrize("content", [None, b"", b"no zip", "cut", "one split"])
def test_broken_predictions_are_named(tmp_path, content):
    job = "0123456789abcdef"
    path = tmp_path / job / "predictions.npz"
    path.parent.mkdir()
    p = {name: torch.tensor([0.25, 0.5]) for name in ("valid", "test")}
    save_predictions(path, p, dict.fromkeys(p, np.array([0, 1])))
    assert predictions(job, runs_dir=tmp_path)["probability"].to_list() == [0.25, 0.5] * 2
    if content is None:
        path.unlink()
    elif content == "cut":
        path.write_bytes(path.read_bytes()[:-30])
    elif content == "one split":
        np.savez(path, valid=np.zeros(2), valid_labels=np.zeros(2))
    else:
        path.write_bytes(content)
    with pytest.raises(DataError, match=r"predictions\.npz: cannot read the predictions"):
        predictions(job, runs_dir=tmp_path)


def test_the_arithmetic_is_that_of_the_run(
    make_request, plain_record, table, tmp_path, monkeypatch
):
    given = []

    def fix(**arithmetic):
        given.append(arithmetic)
        raise RuntimeError("enough")

    monkeypatch.setattr(module, "fix_arithmetic", fix)
    record = plain_record(make_request(matmul="tf32").job, environment={"threads": 3})
    with pytest.raises(RuntimeError, match="enough"):
        recompute(record, tmp_path, PreparedTable.open(table), device=CPU)
    assert given == [{"threads": 3, "matmul": "tf32"}]


@pytest.mark.parametrize(
    ("batch_size", "rows"), [(4096, 131072), (3, 131070), (100_000, 100_000), (200_000, 200_000)]
)
def test_a_block_of_new_rows_is_of_whole_batches(
    make_request, plain_record, tmp_path, batch_size, rows
):
    record = plain_record(make_request(batch_size=batch_size).job)
    predictor = RowPredictor(record=record, folder=tmp_path, table=None, device=CPU)
    assert predictor.block_rows == rows


def test_new_rows_are_predicted_in_the_batches_of_the_run(finished, monkeypatch):
    record, folder, table = finished(batch_size=64)
    forward, n_rows = ArmModel.forward, []

    def counted(arm, ids, numerics):
        n_rows.append(len(ids))
        return forward(arm, ids, numerics)

    monkeypatch.setattr(ArmModel, "forward", counted)
    predictor = RowPredictor(record=record, folder=folder, table=table, device=CPU)
    (found,) = predictor.predict([table.split("test")])
    assert (n_rows, len(found)) == ([64, 64, 12], 140)


def test_predicting_says_which_job_of_how_many_and_how_far_it_is(
    make_request, plain_record, monkeypatch, tmp_path
):
    records = [plain_record(make_request(seed=seed).job) for seed in (1, 2, 3)]
    labels = {"valid": np.zeros(5, np.uint8), "test": np.zeros(7, np.uint8)}
    splits = {name: SimpleNamespace(labels=values) for name, values in labels.items()}
    saved, seen = [], []

    def again(record, _folder, _table, *, device, on_rows):  # noqa: ARG001
        on_rows(5)
        on_rows(7)
        differences = ["test auc"] if record.job.seed == 2 else []
        return Recomputed(probabilities={}, differences=differences, conditions=["device"])

    monkeypatch.setattr(module, "table_with", lambda fingerprint, **_named: fingerprint)
    monkeypatch.setattr(module, "checked_table", lambda _: SimpleNamespace(split=splits.get))
    monkeypatch.setattr(module, "recompute", again)
    monkeypatch.setattr(module, "save_predictions", lambda path, *_: saved.append(path))
    runs = Runs(tmp_path)
    found = list(
        module.write_predictions(
            records, runs, data_dir=tmp_path, device="cpu", on_progress=seen.append
        )
    )

    assert [(p.number, p.n_jobs, p.rows, p.n_rows) for p in seen] == [
        (number, 3, rows, 12) for number in (1, 2, 3) for rows in (5, 12)
    ]
    assert [p.record for p in seen[::2]] == records
    assert [one.written for one in found] == [True, False, True]
    assert saved == [runs.path(records[place].job_id) / "predictions.npz" for place in (0, 2)]


def test_a_file_that_the_run_itself_has_kept_is_left_as_it_is(make_request, plain_record, tmp_path):
    record, path = plain_record(make_request().job), tmp_path / "predictions.npz"
    assert not module._is_kept(record, path), "an old record has no digests"
    kept = sealed(record, {path.name: hashlib.sha256(b"kept").hexdigest()})
    assert not module._is_kept(kept, path), "it is not there"
    path.write_bytes(b"other")
    assert not module._is_kept(kept, path)
    path.write_bytes(b"kept")
    assert module._is_kept(kept, path)
    assert not module._is_kept(sealed(record, {}), path)

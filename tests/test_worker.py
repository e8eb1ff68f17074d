"""The worker: a job in, a record out; its process, its failures, and what a kill leaves behind."""

import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from prime_bench import worker
from prime_bench.assemble import build_arm
from prime_bench.base.errors import DataError, EnvironmentFault, UsageError
from prime_bench.catalog import PLUGINS
from prime_bench.data.manifest import Manifest
from prime_bench.data.table import PreparedTable
from prime_bench.recipe.events import EpochEvent, EpochProgress, ProgressEvent
from prime_bench.recipe.job import MachineCheck
from prime_bench.settings.probes import RoutingSettings
from prime_bench.store.record import Environment
from prime_bench.store.runs import Runs
from prime_bench.training import job as training_job
from prime_bench.training.batches import row_order, row_order_digest
from prime_bench.training.checkpoint import load_weights
from prime_bench.training.device import NoDevice, device_name
from prime_bench.training.job import JobInterrupted
from prime_bench.training.loop import train
from prime_bench.training.metrics import auc
from prime_bench.training.optimizer import Optimizer, Penalty
from prime_bench.worker import JobTaken, TableFault, run_job

FILES = {
    *("config.json", "environment.json", "history.jsonl", "checkpoint.safetensors"),
    *("test.json", "log.txt", "record.json"),
}


def folder_of(request):
    return Path(request.runs) / request.job.id


def result_of(record):
    """All of a record that a repeated run must give again."""
    history = [v.model_copy(update={"wall_s": 0.0}) for v in record.history]
    return record.result, history, record.pairing, record.budget


class TestRunJob:
    def test_a_record_and_its_folder(self, make_request):
        request, events = make_request(), []
        record = run_job(request, events.append)
        folder = folder_of(request)

        assert {path.name for path in folder.iterdir()} == FILES
        assert Runs(Path(request.runs)).find(request.job.id) == record
        assert (record.dataset, record.arm, record.data_variant) == ("tiny", "prime", "variant")
        assert (record.data_verified, record.data_notes) == (False, ["made by a test"])
        assert json.loads((folder / "config.json").read_text()) == {
            "job_id": request.job.id,
            **request.plain(),
        }
        lines = [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()]
        assert lines == [validation.plain() for validation in record.history]
        environment = json.loads((folder / "environment.json").read_text())
        assert Environment.parse(environment, where="") == record.environment
        log = (folder / "log.txt").read_text().splitlines()
        assert [line.split(" ", 2)[2] for line in log] == [
            f"tiny, DNN, prime, seed 2021: {record.budget}",
            f"on {record.environment.where}",
            *(f"epoch {n}: {validation}" for n, validation in enumerate(record.history, start=1)),
            f"done: {record.result}",
        ]
        test = json.loads((folder / "test.json").read_text())
        assert test == {"rows": 140, **record.result.test.plain()}
        assert [e for e in events if isinstance(e, EpochEvent)] == [
            EpochEvent(job_id=request.job.id, validation=validation)
            for validation in record.history
        ]
        assert {e.event for e in events} == {"progress", "epoch"}

    def test_the_scores_are_those_of_the_checkpoint(self, make_request, table):
        request = make_request()
        record = run_job(request, lambda _: None)
        opened = PreparedTable.open(table)
        arm = build_arm(request.job.resolve(), opened.schema).arm
        arm.load_state_dict(load_weights(folder_of(request) / "checkpoint.safetensors"))
        arm.eval()
        for name in ("valid", "test"):
            split = opened.split(name)
            with torch.no_grad():
                p = arm(torch.from_numpy(split.ids.copy()), torch.from_numpy(split.numerics.copy()))
            found = getattr(record.result, name)
            assert found.auc == pytest.approx(auc(split.labels, p.numpy()), abs=1e-9)
        best = record.history[record.result.best_epoch - 1]
        assert record.result.valid.auc == best.valid_auc
        assert record.result.test.auc > 0.6
        assert record.result.degenerate is None

    def test_budget_pairing_and_note(self, make_request):
        record = run_job(make_request(), lambda _: None)
        # 4 (29 + 1) embeddings, MLP 16 -> 16 -> 8 -> 1; PRIME E (q + 1)(d + 1) and Eq. 24.
        assert record.budget.backbone_parameters == 120 + (256 + 16) + (128 + 8) + (8 + 1)
        assert record.budget.plugin_parameters == 6 * 3 * 17
        assert record.budget.backbone_macs == 256 + 128 + 8
        assert record.budget.plugin_macs == 6 * 16 + 6 * 2 * 17
        dense = run_job(make_request("dense"), lambda _: None)
        assert dense.pairing == record.pairing
        assert dense.pairing.row_order == row_order_digest(row_order(321, seed=2021, epoch=1))
        assert record.result.notes == [
            "the last training row of an epoch joined the batch before it"
        ]
        assert run_job(make_request(batch_size=48), lambda _: None).result.notes == []
        assert record.history[0].step == 10

    def test_both_penalties_reach_training(self, make_request, monkeypatch):
        request, seen = make_request(max_epochs=1), []
        settings = request.job.backbone_settings | {"embedding_l2": 0.01, "network_l2": 0.02}
        job = request.job.model_copy(update={"backbone_settings": settings})

        def watched(*arguments, penalty, **named):
            seen.append(penalty)
            return train(*arguments, penalty=penalty, **named)

        monkeypatch.setattr(training_job, "train", watched)
        run_job(request.model_copy(update={"job": job}), lambda _: None)
        assert seen == [Penalty(embedding=0.01, network=0.02)]

    @pytest.mark.parametrize("matmul", ["float32", "tf32"])
    def test_threads_and_precision_are_those_of_the_job(self, make_request, monkeypatch, matmul):
        given = []

        def fix(**arithmetic):
            given.append(arithmetic)
            raise RuntimeError("enough")

        monkeypatch.setattr(worker, "resolve_device", torch.device)
        monkeypatch.setattr(worker, "fix_arithmetic", fix)
        asked = {"device": "cuda", "threads": 3}
        with pytest.raises(RuntimeError, match="enough"):
            run_job(make_request(matmul=matmul).model_copy(update=asked), lambda _: None)
        assert given == [{"threads": 3, "matmul": matmul}]

    def test_two_runs_are_bitwise_equal(self, make_request, tmp_path):
        request = make_request()
        again = request.model_copy(update={"runs": str(tmp_path / "again")})
        assert result_of(run_job(request, lambda _: None)) == result_of(
            run_job(again, lambda _: None)
        )
        one, two = (folder_of(r) / "checkpoint.safetensors" for r in (request, again))
        assert one.read_bytes() == two.read_bytes()

    def test_a_finished_or_taken_job_is_left_alone(self, make_request):
        request = make_request(max_epochs=1)
        run_job(request, lambda _: None)
        written = {p.name: p.stat().st_mtime_ns for p in folder_of(request).iterdir()}
        with pytest.raises(JobTaken):
            run_job(request, lambda _: None)
        assert written == {p.name: p.stat().st_mtime_ns for p in folder_of(request).iterdir()}
        other = make_request(seed=1)
        with Runs(Path(other.runs)).claim(other.job.id), pytest.raises(JobTaken):
            run_job(other, lambda _: None)
        assert not folder_of(other).exists()

    def test_what_a_killed_run_left_is_taken_out(self, make_request):
        request = make_request(max_epochs=1)
        folder = folder_of(request)
        folder.mkdir(parents=True)
        for name in ("history.jsonl", "log.txt", "failure.json", "test.json", ".part-abc"):
            (folder / name).write_text("left behind\n")
        run_job(request, lambda _: None)
        assert {path.name for path in folder.iterdir()} == FILES
        assert "left behind" not in (folder / "history.jsonl").read_text()

    def test_nan_data_gives_a_flagged_record(self, make_request, tmp_path, write_table):
        def spoil(name, numerics, labels):  # noqa: ARG001
            if name == "train":
                numerics[5] = np.nan

        broken = write_table(tmp_path / "nan-1", spoil=spoil)
        record = run_job(make_request(table=broken), lambda _: None)
        assert record.result.test.auc is None
        assert record.result.best_epoch is None
        assert record.result.degenerate.startswith("predictions were not finite after epochs 1, 2;")
        assert "test: 140 of 140 predictions are not finite" in record.result.degenerate
        assert "NaN" not in (folder_of(make_request(table=broken)) / "record.json").read_text()

    def test_a_loss_that_is_not_finite_is_flagged_though_the_predictions_are(
        self, make_request, monkeypatch
    ):
        step, steps = Optimizer.step, iter(range(1000))

        def infinite(self, batch):
            if next(steps) == 13:  # in epoch 2
                self._loss_sum += torch.inf
            return step(self, batch)

        monkeypatch.setattr(Optimizer, "step", infinite)
        record = run_job(make_request(max_epochs=3, patience=9), lambda _: None)
        assert [v.train_loss is None for v in record.history] == [False, True, False]
        assert record.result.degenerate == "the training loss was not finite in epochs 2"

    def test_constant_output_is_flagged(self, make_request, tmp_path, write_table, write_manifest):
        def blind(name, numerics, labels):  # noqa: ARG001
            numerics[:] = 0

        flat = write_table(tmp_path / "flat-1", spoil=blind)
        for name in ("train", "valid", "test"):
            ids = np.load(flat / f"{name}.ids.npy")
            np.save(flat / f"{name}.ids.npy", np.ones_like(ids))
        counts = {"train": 321, "valid": 150, "test": 140}
        write_manifest(flat, rows=counts, positives=counts)
        record = run_job(make_request("dense", table=flat), lambda _: None)
        assert record.result.test.auc == 0.5
        assert record.result.degenerate.startswith("valid: every prediction is 0.")

    def test_a_probe_has_a_record_of_its_findings_and_its_table(
        self, make_request, monkeypatch, tmp_path, write_table, write_manifest
    ):
        path, given, events = write_table(tmp_path / "own-1"), {}, []
        manifest = json.loads((path / "manifest.json").read_text())
        counts = {key: manifest[key] for key in ("rows", "positives")}
        write_manifest(path, **counts, variant="w", verified="own", notes=["of mine"])
        card = {"name": "own"}
        monkeypatch.setattr(Manifest, "own_card", property(lambda _: card))
        records, _ = Runs(Path(__file__).parent / "records").readable()
        findings = next(one for one in records if one.job.kind == "routing").findings
        progress = EpochProgress(epoch=1, rows=1, rows_total=2)

        def run(request, resolved, table, *, device, on_progress):
            given.update(request=request, resolved=resolved, table=table, device=device)
            on_progress(progress)
            return findings

        clock = iter([100.0, 107.5])
        monkeypatch.setattr(worker, "time", SimpleNamespace(perf_counter=lambda: next(clock)))
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr("prime_bench.probes.routing.run", run)
        asked = make_request(table=path)
        job = asked.job.model_copy(update={"kind": "routing", "probe": RoutingSettings().plain()})
        relative = {"job": job, "arm": "mine", "table": "own-1", "runs": "runs"}
        record = run_job(asked.model_copy(update=relative), events.append)

        assert (record.job_id, record.job, record.findings) == (job.id, job, findings)
        assert (record.dataset, record.arm, record.data_variant) == ("tiny", "mine", "w")
        assert (record.data_verified, record.data_notes) == ("own", ["of mine"])
        assert record.data_card == card
        assert record.wall_s == 7.5
        assert events == [ProgressEvent(job_id=job.id, progress=progress)]
        assert given["request"].table == str(path)
        assert given["request"].runs == str(tmp_path / "runs")
        assert (given["resolved"].job, given["device"]) == (job, torch.device("cpu"))
        assert given["table"].manifest.variant == "w"
        done = worker._done(record)
        assert (done.job_id, done.wall_s, done.valid) == (job.id, record.wall_s, None)
        files = {"config.json", "environment.json", "record.json"}
        assert {file.name for file in (tmp_path / "runs" / job.id).iterdir()} >= files


class TestFailures:
    def assert_fails(self, request, kind, match):
        with pytest.raises(kind, match=match):
            run_job(request, lambda _: None)
        folder = folder_of(request)
        assert not (folder / "record.json").exists()
        return json.loads((folder / "failure.json").read_text()), (folder / "log.txt").read_text()

    def test_another_fingerprint(self, make_request):
        request = make_request(fingerprint="0" * 64)
        failure, log = self.assert_fails(request, TableFault, "fingerprint")
        assert failure["error"].startswith(f"{request.table}: the table has the fingerprint ")
        assert f", the job wants {'0' * 64}" in failure["error"]
        assert failure["error"].endswith(": run the recipe again")
        assert "\n" not in failure["error"]
        assert "Traceback" in failure["traceback"]
        assert failure["traceback"] in log

    def test_a_table_prepared_again_is_read_again(self, make_request, tmp_path, write_table, table):
        path = write_table(tmp_path / "fresh-1")
        run_job(make_request(table=path, max_epochs=1), lambda _: None)
        write_table(path, seed=4)
        request = make_request(table=path, max_epochs=1)
        first, second = (make_request(table=t) for t in (table, path))
        assert first.job.fingerprint != second.job.fingerprint
        assert run_job(request, lambda _: None).job.fingerprint == second.job.fingerprint

    def test_a_table_that_changes_under_a_run_ends_it(self, make_request, tmp_path, write_table):
        """The saved state is that of the epoch before, so that the next try goes on from there."""
        path = write_table(tmp_path / "fresh-1")
        file = path / "valid.labels.npy"
        content = file.read_bytes()
        os.utime(file, (1e9, 1e9))

        def change(event):
            if isinstance(event, EpochEvent) and event.validation.epoch == 2:
                with file.open("r+b") as labels:
                    labels.seek(-1, os.SEEK_END)
                    labels.write(bytes([1 - content[-1]]))

        request = make_request(table=path)
        with pytest.raises(DataError, match=r"valid\.labels\.npy: was written to while a job read"):
            run_job(request, change)
        assert not (folder_of(request) / "record.json").exists()
        # Of another process, which did not see the change, as well.
        with pytest.raises(DataError, match="was changed since it was prepared"):
            run_job(request, lambda _: None)
        file.write_bytes(content)
        events = []
        record = run_job(request, events.append)
        assert (events[0].event, events[0].epoch) == ("resumed", 1)
        elsewhere = request.model_copy(update={"runs": str(tmp_path / "elsewhere")})
        assert result_of(run_job(elsewhere, lambda _: None)) == result_of(record)

    def test_no_table(self, make_request, tmp_path):
        self.assert_fails(make_request(table=tmp_path / "nothing"), TableFault, "no prepared table")

    @pytest.mark.parametrize("other", [False, True])
    def test_a_table_that_is_not_the_one_of_the_job_says_what_to_do(
        self, make_request, tmp_path, other
    ):
        """It is a fault of this machine's copy: the job may succeed on another machine."""
        if other:
            request = make_request(fingerprint="0" * 64)
        else:
            request = make_request(table=tmp_path / "nothing")
        with pytest.raises(TableFault) as caught:
            run_job(request, lambda _: None)
        assert caught.value.hint.startswith(
            "the data were prepared again after the plan" if other else "prepare it with"
        )

    def test_a_test_split_of_one_class_is_found_before_training(
        self, make_request, tmp_path, write_table
    ):
        def one_class(name, numerics, labels):  # noqa: ARG001
            if name == "test":
                labels[:] = 0

        path = write_table(tmp_path / "one-1", spoil=one_class)
        self.assert_fails(
            make_request(table=path), DataError, "all 140 labels of the split test are 0"
        )
        assert not (folder_of(make_request(table=path)) / "history.jsonl").exists()

    @pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
    @pytest.mark.parametrize("device", ["cuda", "cuda:3"])
    def test_a_device_that_is_not_there(self, make_request, device):
        """It is no failure of the job, which nobody has touched."""
        request = make_request().model_copy(update={"device": device})
        with pytest.raises(NoDevice, match=f"device {device} is not there"):
            run_job(request, lambda _: None)
        assert not folder_of(request).exists()

    @pytest.mark.parametrize("device", ["gpu", "cpu:0", "cuda:", "cuda:x"])
    def test_a_device_that_is_none(self, make_request, device):
        request = make_request().model_copy(update={"device": device})
        with pytest.raises(UsageError, match=f"no device `{device}`"):
            run_job(request, lambda _: None)

    def test_other_numerics(self, make_request):
        request = make_request()
        job = request.job.model_copy(update={"numerics": 0})
        self.assert_fails(request.model_copy(update={"job": job}), UsageError, "wants numerics 0")

    def test_tf32_on_a_cpu(self, make_request):
        request = make_request()
        training = request.job.training.model_copy(update={"matmul": "tf32"})
        job = request.job.model_copy(update={"training": training})
        self.assert_fails(
            request.model_copy(update={"job": job}), UsageError, "training.matmul: tf32"
        )

    def test_a_formula_that_does_not_count_what_is_built(self, make_request, monkeypatch):
        settings = PLUGINS["prime"].settings
        monkeypatch.setattr(settings, "parameters", lambda *_: 1)
        self.assert_fails(make_request(), RuntimeError, "^DNN, prime: .* parameters built")

    def test_a_failure_is_tried_again(self, make_request, monkeypatch):
        request = make_request(max_epochs=1)

        def broken(*_):
            raise ZeroDivisionError

        with monkeypatch.context() as patch:
            patch.setattr(training_job, "build_arm", broken)
            failure, _ = self.assert_fails(request, ZeroDivisionError, None)
        assert failure["error"] == "ZeroDivisionError"
        run_job(request, lambda _: None)
        assert {path.name for path in folder_of(request).iterdir()} == FILES

    def test_a_plugin_that_exits_has_failed(self, make_request, monkeypatch):
        def leave(*_):
            sys.exit(0)

        monkeypatch.setattr(training_job, "build_arm", leave)
        request = make_request()
        with pytest.raises(RuntimeError, match=r"the code of the job called sys\.exit\(0\)"):
            run_job(request, lambda _: None)
        assert "sys.exit(0)" in Runs(Path(request.runs)).failure(request.job.id)

    @pytest.mark.parametrize("message", ["z" * 5_000_000, "z\n" * 1_000_000])
    def test_a_long_message_leaves_a_small_file(self, make_request, monkeypatch, message):
        def broken(*_):
            raise ValueError(message)

        monkeypatch.setattr(training_job, "build_arm", broken)
        request = make_request()
        with pytest.raises(ValueError, match="z"):
            run_job(request, lambda _: None)
        files = [folder_of(request) / name for name in ("failure.json", "log.txt")]
        assert all(0 < file.stat().st_size < 20_000 for file in files)
        assert "in broken" in files[0].read_text()

    def test_an_interrupt_is_no_failure(self, make_request):
        def interrupt(event):  # noqa: ARG001
            raise KeyboardInterrupt

        request = make_request()
        with pytest.raises(KeyboardInterrupt):
            run_job(request, interrupt)
        assert not (folder_of(request) / "failure.json").exists()

    @pytest.mark.skipif(os.getuid() == 0, reason="root may write anywhere")
    def test_a_folder_that_cannot_be_written(self, make_request, tmp_path):
        (tmp_path / "runs").mkdir(mode=0o500)
        with pytest.raises(EnvironmentFault, match="permission denied"):
            run_job(make_request(), lambda _: None)

    def test_a_file_in_place_of_the_runs_folder(self, make_request, tmp_path):
        (tmp_path / "runs").write_text("")
        with pytest.raises(EnvironmentFault, match="a file"):
            run_job(make_request(), lambda _: None)


COMMAND = [sys.executable, "-m", "prime_bench.worker"]
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1"}


def ask(*requests, command=COMMAND):
    """A worker's events, exit code and stderr; `requests` are requests or lines."""
    lines = [r if isinstance(r, str) else json.dumps(r.plain()) for r in requests]
    done = subprocess.run(
        command,
        input="".join(f"{line}\n" for line in lines),
        capture_output=True,
        text=True,
        env=ENVIRONMENT,
        timeout=120,
        check=False,
    )
    return [json.loads(line) for line in done.stdout.splitlines()], done.returncode, done.stderr


class TestOutOfMemory:
    @pytest.fixture
    def answered(self, make_request, monkeypatch):
        """The last event of a job in which `fail` is raised."""

        def answered(fail):
            def run(*_arguments, **_options):
                raise fail

            events = SimpleNamespace(sent=[])
            events.send = events.sent.append
            monkeypatch.setattr(worker, "run_job", run)
            line = json.dumps(make_request().plain())
            worker._answer(line, events, interrupted=lambda: False)
            (event,) = events.sent
            return event

        return answered

    @pytest.mark.parametrize(
        "error",
        [
            torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"),
            RuntimeError("CUDA error: out of memory"),  # as CUDA makes its context
            RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate"),
            MemoryError(),
        ],
        ids=repr,
    )
    def test_the_engine_is_told(self, answered, error):
        event = answered(error)
        assert event.event == "failed"
        assert event.out_of_memory

    def test_a_long_message_is_cut(self, answered):
        error = answered(ValueError("y" * 10_000_000)).error
        assert len(error) == 2000
        assert error.startswith("ValueError: yyy")
        assert error.endswith("y [... 10,000,012 characters]")

    @pytest.mark.parametrize(
        ("error", "event"), [(JobTaken("x"), "skipped"), (JobInterrupted(), "interrupted")]
    )
    def test_a_job_that_was_left_to_others_has_not_failed(self, answered, error, event):
        assert answered(error).event == event

    def test_without_its_device_the_worker_says_so_and_ends(
        self, answered, make_request, monkeypatch, capsys
    ):
        def leave(code):
            raise SystemExit(code)

        events = []
        monkeypatch.setattr(worker.os, "_exit", leave)
        monkeypatch.setattr(
            worker, "FaultEvent", lambda **keys: events.append(keys) or SimpleNamespace(**keys)
        )
        with pytest.raises(SystemExit) as left:
            answered(NoDevice("no GPU", hint="use cpu"))
        assert left.value.code == 4
        assert events == [
            {
                "job_id": make_request().job.id,
                "error": "no GPU",
                "hint": "use cpu",
                "exit_code": 4,
            }
        ]
        assert capsys.readouterr().err == "no GPU\n"

    def test_other_failures_are_none(self, answered):
        assert not answered(RuntimeError("mat1 and mat2 shapes")).out_of_memory

    @pytest.mark.parametrize(
        ("error", "at_fault"),
        [
            (EnvironmentFault("/x: the disk is full"), True),
            (worker.TableFault("/x: the table has the fingerprint f"), True),
            (OSError(errno.ENOSPC, "No space left on device", "/x"), True),
            (OSError(errno.ENOMEM, "Cannot allocate memory"), False),
            (DataError("one label"), False),
            (UsageError("no key"), False),
            (RuntimeError("mat1 and mat2 shapes"), False),
            (MemoryError(), False),
        ],
        ids=repr,
    )
    def test_another_machine_may_do_what_this_one_is_at_fault_for(self, answered, error, at_fault):
        event = answered(error)
        assert (event.event, event.machine) == ("failed", at_fault)


class TestLostDevice:
    @pytest.fixture
    def left(self, monkeypatch):
        """Codes with which the process would have ended, where CUDA is at work in it."""
        codes = []
        monkeypatch.setattr(worker.os, "_exit", codes.append)
        monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
        return codes

    @pytest.mark.parametrize("lost", [False, True])
    def test_a_worker_whose_gpu_no_longer_computes_ends_with_the_code_of_a_device(
        self, left, monkeypatch, capsys, lost
    ):
        def synchronize():
            if lost:
                raise RuntimeError("CUDA error: an illegal memory access was encountered")

        monkeypatch.setattr(torch.cuda, "synchronize", synchronize)
        worker._end_if_device_is_lost(ValueError("what the job said"))
        assert left == [4] * lost
        assert capsys.readouterr().err == "ValueError: what the job said\n" * lost

    def test_without_a_gpu_nobody_asks(self, left, monkeypatch):
        monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
        monkeypatch.setattr(torch.cuda, "synchronize", lambda: 1 / 0)
        worker._end_if_device_is_lost(ValueError())
        assert left == []

    def test_after_each_job_its_memory_is_free(self, left, monkeypatch):
        freed = []
        monkeypatch.setattr(torch.cuda, "empty_cache", lambda: freed.append("cuda"))
        monkeypatch.setattr(worker, "return_freed_memory", lambda: freed.append("host"))
        monkeypatch.setattr(worker.gc, "collect", lambda: freed.append("objects"))
        worker._free_memory()
        assert freed == ["objects", "host", "cuda"]
        monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
        worker._free_memory()
        assert (freed[3:], left) == (["objects", "host"], [])

    def test_a_sigterm_ends_an_idle_worker_at_once_and_waits_for_a_job(self, left, monkeypatch):
        handlers = {}
        monkeypatch.setattr(worker.signal, "signal", handlers.__setitem__)
        stop = worker._Stop()
        (ask,) = handlers.values()
        assert list(handlers) == [signal.SIGTERM]
        stop.at_work = True
        ask(signal.SIGTERM, None)
        assert (stop.asked, left) == (True, [])
        stop.at_work = False
        ask(signal.SIGTERM, None)
        assert left == [0]


class TestMachineCheck:
    @pytest.fixture
    def check(self, table):
        """A check of this machine, with changes."""
        fingerprint = PreparedTable.open(table).manifest.fingerprint

        def check(**changes):
            asked = {
                "tables": {str(table): fingerprint},
                "backbones": {"DNN": None},
                "plugins": {"dense": None, "prime": None},
                "device": "cpu",
            }
            return worker.check_machine(MachineCheck.parse({**asked, **changes}, where=""))

        return check

    def test_a_machine_with_all_that_is_wanted_has_no_fault(self, check):
        found = check()
        assert (found.faults, found.torch, found.gpu_bytes) == ([], torch.__version__, None)
        assert found.device == device_name(torch.device("cpu"))

    @pytest.mark.parametrize(
        ("changes", "fault", "hint"),
        [
            ({"tables": {"/none": "f"}}, "/none: no prepared table", "rsync"),
            ({"backbones": {"DNN": "0" * 64}}, "DNN: its source files are not those", "install"),
            ({"plugins": {"prime": "0" * 64}}, "prime: its source files are not those", "install"),
            ({"plugins": {"none:Gate": "0" * 64}}, "none", "on that machine"),
        ],
    )
    def test_what_it_lacks_is_named(self, check, changes, fault, hint):
        ((message, advice),) = check(**changes).faults
        assert fault in message
        assert hint in advice

    def test_another_table_in_its_place_is_a_fault(self, check, table):
        ((message, advice),) = check(tables={str(table): "0" * 64}).faults
        assert message.startswith(f"{table}: has the fingerprint ")
        assert message.endswith(f", the caller's has {'0' * 64}")
        assert "rsync" in advice

    def test_every_fault_is_told_and_so_is_a_missing_device(self, check, monkeypatch):
        def missing(_name):
            raise NoDevice("device cuda:1 is not there", hint="use `cpu`")

        monkeypatch.setattr(worker, "resolve_device", missing)
        found = check(tables={"/none": "f"}, backbones={"DNN": "0" * 64}, device="cuda:1")
        assert len(found.faults) == 3
        assert found.faults[-1] == ("device cuda:1 is not there", "use `cpu`")
        assert (found.device, found.gpu_bytes) == ("", None)

    @pytest.mark.parametrize(
        ("name", "error", "fault"),
        [
            ("Manifest.read", EnvironmentFault("no entry", hint="chmod"), ("no entry", "chmod")),
            ("resolve_device", RuntimeError("CUDA\nno"), ("RuntimeError: CUDA", "")),
        ],
    )
    def test_an_error_of_the_machine_is_a_fault_with_its_own_hint(
        self, check, monkeypatch, name, error, fault
    ):
        def broken(*_arguments):
            raise error

        monkeypatch.setattr(f"prime_bench.worker.{name}", broken)
        assert check().faults == [fault]

    def test_a_gpu_has_its_name_and_memory(self, check, monkeypatch):
        monkeypatch.setattr(worker, "resolve_device", torch.device)
        monkeypatch.setattr(worker, "device_name", str)
        monkeypatch.setattr(worker, "device_bytes", lambda device: 80 * device.index)
        found = check(device="cuda:2")
        assert (found.faults, found.device, found.gpu_bytes) == ([], "cuda:2", 160)


class TestProcess:
    def test_many_jobs_one_process(self, make_request):
        """Every outcome in one process: to start one takes seconds."""
        good, wrong = make_request(max_epochs=2), make_request(fingerprint="0" * 64)
        last = make_request("dense", max_epochs=1)
        events, code, stderr = ask(good, wrong, "no json", "[1]", "", good, last)
        ends = [e for e in events if e["event"] not in ("progress", "epoch")]

        assert code == 0, stderr
        assert [e["event"] for e in ends] == [
            *("done", "failed", "failed", "failed", "skipped", "done")
        ]
        assert [e["job_id"] for e in ends] == [
            *(good.job.id, wrong.job.id, None, None, good.job.id, last.job.id)
        ]
        record = Runs(Path(good.runs)).find(good.job.id)
        assert ends[0]["test"] == record.result.test.plain()
        assert ends[0]["valid"] == record.result.valid.plain()
        assert ends[0]["wall_s"] == record.wall_s
        assert "\n" not in ends[1]["error"]
        epochs = [e["validation"]["epoch"] for e in events if e["event"] == "epoch"]
        assert epochs == [1, 2, 1]
        # The same job in this process gives the same bits: what ran before leaves no trace.
        here = good.model_copy(update={"runs": f"{good.runs}-here"})
        assert result_of(run_job(here, lambda _: None)) == result_of(record)

    def test_each_job_starts_in_the_workers_own_folder(self, make_request, tmp_path, monkeypatch):
        """Paths may be relative, and the code of a plug-in may go to another folder."""
        code = (
            "import os\nfrom prime_bench import worker\nrun_job = worker.run_job\n"
            "def run(*arguments, **options):\n"
            "    try: return run_job(*arguments, **options)\n"
            "    finally: os.chdir('/')\n"
            "worker.run_job = run\nworker.main()"
        )
        monkeypatch.chdir(tmp_path)
        jobs = [
            make_request(arm, max_epochs=1).model_copy(update={"runs": "own"})
            for arm in ("dense", "prime")
        ]
        events, _, stderr = ask(*jobs, command=[sys.executable, "-c", code])

        ends = [e["event"] for e in events if e["event"] not in ("progress", "epoch")]
        assert ends == ["done", "done"], (events, stderr)
        assert all((tmp_path / "own" / job.job.id / "record.json").is_file() for job in jobs)

    def test_a_plugin_that_goes_to_another_folder_leaves_its_record_where_it_belongs(
        self, make_request, tmp_path, monkeypatch
    ):
        """`config.json` has the paths as they were given: it goes into bundles."""
        code = (
            "import os\nfrom prime_bench import worker\n"
            "from prime_bench.training import job\n"
            "def leaving(build):\n"
            "    def build_elsewhere(*arguments, **options):\n"
            "        os.chdir('/')\n"
            "        return build(*arguments, **options)\n"
            "    return build_elsewhere\n"
            "job.build_arm = leaving(job.build_arm)\n"
            "worker.main()"
        )
        monkeypatch.chdir(tmp_path)
        job = make_request(max_epochs=1)
        table = os.path.relpath(job.table, tmp_path)
        job = job.model_copy(update={"runs": "own", "table": table})
        events, _, stderr = ask(job, command=[sys.executable, "-c", code])

        assert events[-1]["event"] == "done", (events, stderr)
        folder = tmp_path / "own" / job.job.id
        assert (folder / "record.json").is_file()
        config = json.loads((folder / "config.json").read_text())
        assert (config["runs"], config["table"]) == ("own", table)

    def test_a_job_without_threads_has_torchs_choice_whatever_ran_before(self, make_request):
        first = make_request(max_epochs=1).model_copy(update={"threads": 2})
        second = make_request("dense", max_epochs=1).model_copy(update={"threads": None})
        _, code, stderr = ask(first, second)

        assert code == 0, stderr
        runs = Runs(Path(first.runs))
        found = [runs.find(request.job.id).environment.threads for request in (first, second)]
        assert found == [2, 1]

    def test_nothing_but_events_on_stdout(self, make_request):
        noise = (
            "import os, sys\n"
            "from prime_bench import worker\n"
            "from prime_bench.training import job\n"
            "build = job.build_arm\n"
            "def noisy(*arguments):\n"
            "    print('a stray print')\n"
            "    os.write(1, b'a stray write\\n')\n"
            "    os.system('echo a stray child')\n"
            "    return build(*arguments)\n"
            "job.build_arm = noisy\n"
            "worker.main()\n"
        )
        events, code, stderr = ask(
            make_request(max_epochs=1), command=[sys.executable, "-c", noise]
        )
        assert code == 0
        assert events[-1]["event"] == "done"
        for stray in ("a stray print", "a stray write", "a stray child"):
            assert stray in stderr

    def test_a_forked_copy_that_goes_on_with_the_job_writes_nothing(self, make_request):
        """Neither events nor files, and it takes no request."""
        forks = (
            "import os, sys\n"
            "from prime_bench import worker\n"
            "from prime_bench.training import job\n"
            "build = job.build_arm\n"
            "def forking(*arguments):\n"
            "    if (pid := os.fork()) > 0:\n"
            "        print('copy', os.waitpid(pid, 0)[1], file=sys.stderr)\n"
            "    elif os.path.samefile(sys.stdin.fileno(), os.devnull):\n"
            "        print('no requests here', file=sys.stderr)\n"
            "    return build(*arguments)\n"
            "job.build_arm = forking\n"
            "worker.main()\n"
        )
        first, second = make_request(max_epochs=2), make_request("dense", max_epochs=1)
        events, code, stderr = ask(first, second, command=[sys.executable, "-c", forks])

        assert code == 0, stderr
        assert [e["event"] for e in events if e["event"] != "progress"] == [
            *("epoch", "epoch", "done", "epoch", "done")
        ]
        assert stderr.count("copy 256\n") == 2, "each copy has ended with code 1"
        assert stderr.count("no requests here\n") == 2
        for request, n_epochs in ((first, 2), (second, 1)):
            folder = folder_of(request)
            assert {path.name for path in folder.iterdir()} == FILES
            assert len((folder / "history.jsonl").read_text().splitlines()) == n_epochs

    def test_killed_in_the_middle_then_done_again(self, make_request):
        # Enough epochs that it cannot be over before the kill.
        request = make_request(max_epochs=30, patience=30)
        with subprocess.Popen(
            COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT
        ) as child:
            child.stdin.write(json.dumps(request.plain()) + "\n")
            child.stdin.flush()
            while json.loads(child.stdout.readline())["event"] != "epoch":
                pass
            child.kill()
        folder = folder_of(request)
        assert child.returncode == -signal.SIGKILL
        assert (folder / "history.jsonl").read_text()
        assert not (folder / "record.json").exists()
        assert not (folder / "failure.json").exists()

        record = run_job(request, lambda _: None)
        fresh = request.model_copy(update={"runs": f"{request.runs}-fresh"})
        assert result_of(record) == result_of(run_job(fresh, lambda _: None))
        assert {path.name for path in folder.iterdir()} == FILES
        one, two = (folder_of(r) / "checkpoint.safetensors" for r in (request, fresh))
        assert one.read_bytes() == two.read_bytes()

    def test_it_does_not_outlive_its_parent(self, make_request, tmp_path):
        request = make_request(max_epochs=100_000, patience=100_000)
        line = (json.dumps(request.plain()) + "\n").encode()
        parent_code = (
            "import subprocess, sys, time\n"
            f"events = open({str(tmp_path / 'events')!r}, 'w')\n"
            f"child = subprocess.Popen({COMMAND!r}, stdin=subprocess.PIPE, stdout=events)\n"
            f"child.stdin.write({line!r})\n"
            "child.stdin.flush()\n"
            "time.sleep(100)\n"
        )
        runs = Runs(Path(request.runs))
        with subprocess.Popen([sys.executable, "-c", parent_code], env=ENVIRONMENT) as parent:
            self.wait_until(lambda: (folder_of(request) / "history.jsonl").exists())
            assert runs.claimed(request.job.id)
            parent.kill()
        self.wait_until(lambda: not runs.claimed(request.job.id))
        assert not runs.done(request.job.id)

    def wait_until(self, condition):
        end = time.monotonic() + 60
        while not condition():
            assert time.monotonic() < end
            time.sleep(0.05)

    def test_it_ends_as_soon_as_nobody_reads_its_events(self, tmp_path, monkeypatch):
        """The folder in which it has started is there no more, which it does not need."""
        monkeypatch.chdir(tmp_path)
        code = "import os\nfrom prime_bench import worker\nos.rmdir(os.getcwd())\nworker.main()"
        command = [sys.executable, "-c", code]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT
        ) as child:
            child.stdin.write("no request\n")
            child.stdin.flush()
            assert json.loads(child.stdout.readline())["event"] == "failed"
            child.stdout.close()  # stdin stays open, and there is no event to fail on
            assert child.wait(timeout=20) == 0

    def test_each_line_is_answered_in_its_first_folder_while_that_is_one(
        self, monkeypatch, tmp_path
    ):
        home, elsewhere, seen = tmp_path / "home", tmp_path / "elsewhere", []
        home.mkdir()
        elsewhere.mkdir()
        monkeypatch.chdir(home)

        def answer(line, _events, *, interrupted):  # noqa: ARG001  # as of the worker
            seen.append((line, Path.cwd().name))
            os.chdir(elsewhere)  # as a plug-in may

        def lines():
            yield "1"
            yield "2"
            home.rmdir()
            yield "3"
            home.touch()
            yield "4"

        idle = SimpleNamespace(asked=False, at_work=False, descriptor=0, start=lambda: None)
        for name in ("_EventStream", "_Stop"):
            monkeypatch.setattr(worker, name, lambda: idle)
        monkeypatch.setattr(worker.threading, "Thread", lambda **_: idle)
        monkeypatch.setattr(worker.signal, "signal", lambda *_: None)
        monkeypatch.setattr(worker, "keep_freed_memory", lambda: None)
        monkeypatch.setattr(worker, "_answer", answer)
        monkeypatch.setattr(sys, "stdin", lines())
        worker.main()

        assert seen == [("1", "home"), ("2", "home"), ("3", "elsewhere"), ("4", "elsewhere")]

    @pytest.mark.parametrize(("asked", "n_answers"), [(False, 2), (True, 1)])
    def test_after_a_stop_it_takes_no_other_line(self, monkeypatch, asked, n_answers):
        stop, seen = SimpleNamespace(asked=False, at_work=False), []

        def answer(line, _events, *, interrupted):
            stop.asked = asked
            seen.append((line, stop.at_work, interrupted()))

        events = SimpleNamespace(descriptor=0)
        monkeypatch.setattr(worker, "_EventStream", lambda: events)
        monkeypatch.setattr(worker, "_Stop", lambda: stop)
        monkeypatch.setattr(
            worker.threading, "Thread", lambda **_: SimpleNamespace(start=lambda: None)
        )
        monkeypatch.setattr(worker.signal, "signal", lambda *_: None)
        monkeypatch.setattr(worker, "keep_freed_memory", lambda: None)
        monkeypatch.setattr(worker, "_answer", answer)
        monkeypatch.setattr(sys, "stdin", ["1", "\n", "2"])
        worker.main()

        assert seen == [("1", True, asked), ("2", True, asked)][:n_answers]
        assert not stop.at_work

    def test_ctrl_c_ends_it_quietly(self, make_request):
        request = make_request(max_epochs=100_000, patience=100_000)
        child = subprocess.Popen(
            COMMAND,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=ENVIRONMENT,
        )
        child.stdin.write(json.dumps(request.plain()) + "\n")
        child.stdin.flush()
        while json.loads(child.stdout.readline())["event"] != "epoch":
            pass
        child.send_signal(signal.SIGINT)
        assert child.wait(timeout=20) == -signal.SIGINT
        assert child.stderr.read() == ""
        for pipe in (child.stdin, child.stdout, child.stderr):
            pipe.close()
        assert not (folder_of(request) / "failure.json").exists()

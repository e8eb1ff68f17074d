"""Records survive writing and reading, unfit ones are refused, a claim ends with its process."""

import hashlib
import json
import shutil
import signal
import subprocess
import sys
import time

import pytest

from prime_bench.base.errors import DataError, EnvironmentFault, UsageError
from prime_bench.recipe.job import Job
from prime_bench.settings.training import TrainSpec
from prime_bench.store.record import RunRecord
from prime_bench.store.runs import (
    LISTING_HINT,
    RECORD,
    STATE,
    Runs,
    is_job_id,
    read_end,
    read_history,
    read_object,
    read_progress,
    read_text,
)

JOB = Job(
    fingerprint="f" * 64,
    backbone="DNN",
    backbone_settings={"net_dropout": 0.1, "hidden_units": [8, 8]},
    plugin="dense",
    plugin_settings={},
    training=TrainSpec(),
    seed=2021,
)
HOLDER = """
import sys, time
from pathlib import Path
from prime_bench.store.runs import Runs
with Runs(Path(sys.argv[1])).claim(sys.argv[2]) as mine:
    print(mine, flush=True)
    if mine:
        time.sleep(60)
"""


def _record(job=JOB, **changes):
    table = {
        "job_id": job.id,
        "job": job.plain(),
        "dataset": "avazu",
        "arm": "dense",
        "data_variant": "v" * 64,
        "data_verified": True,
        "data_notes": ["größer als 0,1 %"],
        "pairing": {"initial_weights": "a" * 64, "row_order": "b" * 64},
        "budget": {
            "backbone_parameters": 13_395_811,
            "plugin_parameters": 0,
            "backbone_macs": 1,
            "plugin_macs": 0,
        },
        "result": {
            "best_epoch": 1,
            "epochs": 1,
            "stopped": "max_epochs",
            "valid": {"auc": 0.1 + 0.2, "logloss": 1 / 3},
            "test": {"auc": 0.7612345678901234, "logloss": 5e-324},
        },
        "history": [
            {
                "epoch": 1,
                "step": 10,
                "learning_rate": 1e-3,
                "train_loss": 0.7,
                "valid_auc": 0.1 + 0.2,
                "valid_logloss": 1 / 3,
                "improved": True,
                "wall_s": 2.5,
            }
        ],
        "environment": {
            "commit": None,
            "dirty": None,
            "package_version": "0",
            "python": "3.11.7",
            "platform": "Linux",
            "versions": {"torch": "2.13.0"},
            "device": "a processor",
            "device_kind": "cpu",
            "threads": 2,
            "started": "2026-01-01T00:00:00Z",
        },
        "wall_s": 3.5,
    }
    return RunRecord.parse({**table, **changes}, where="")


@pytest.fixture
def runs(tmp_path):
    return Runs(tmp_path / "runs")


@pytest.fixture
def holder(runs):
    """Another process that holds JOB's claim."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(runs.folder), JOB.id],
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout.readline() == "True\n"
        yield process
        process.kill()


def test_a_record_comes_back_to_the_last_bit(runs):
    record = _record()
    runs.put(record)

    assert runs.find(JOB.id) == record
    assert runs.done(JOB.id)
    assert runs.readable() == ([record], [])


def test_a_record_with_a_number_that_json_does_not_have_is_not_written(runs):
    record = _record().model_copy(update={"wall_s": float("nan")})
    with pytest.raises(ValueError, match="not JSON compliant"):
        runs.put(record)
    assert not runs.done(JOB.id)


def test_a_folder_that_is_not_there_has_no_records(runs):
    assert runs.readable() == ([], [])
    assert runs.find(JOB.id) is None
    assert not runs.done(JOB.id)
    assert not runs.started(JOB.id)
    assert not runs.claimed(JOB.id)
    assert not runs.folder.exists(), "reading made a folder"


def test_records_come_in_order_of_their_ids(runs):
    records = [_record(JOB.model_copy(update={"seed": seed})) for seed in range(5)]
    for record in records:
        runs.put(record)

    assert runs.readable() == (sorted(records, key=lambda record: record.job_id), [])


def _edited(**changes):
    return json.dumps({**_record().plain(), **changes})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "cannot read the record"),
        (_edited()[:-20], "cannot read the record"),
        ("\x00" * 100, "cannot read the record"),
        ("[" * 100_000, "cannot read the record"),
        ("[]", "not a record of schema 1"),
        ("{}", "not a record of schema 1"),
        (_edited(record_schema=2), "not a record of schema 1"),
        (_edited(wall_s="3"), "wall_s: input should be a valid number"),
        (_edited(wal_s=3), "wal_s: unknown key; did you mean `wall_s`?"),
        (_edited(job_id="0" * 16), "the record's job has the id"),
        (_edited(job={**JOB.plain(), "seed": 1}), "the record's job has the id"),
    ],
)
def test_a_broken_record_is_a_data_error_that_names_it(runs, text, message):
    file = runs.path(JOB.id) / RECORD
    file.parent.mkdir(parents=True)
    file.write_text(text)

    with pytest.raises(DataError) as caught:
        runs.find(JOB.id)

    assert caught.value.message.startswith(f"{file}: ")
    assert message in caught.value.message
    assert caught.value.hint == "move the job's folder away and run the recipe again"
    assert runs.readable() == ([], [caught.value.message])


def test_a_probes_record_has_findings_and_no_result(runs):
    probe = JOB.model_copy(update={"kind": "routing", "probe": {"split": "valid"}})
    file = runs.path(probe.id) / RECORD
    file.parent.mkdir(parents=True)
    file.write_text(_edited(job=probe.plain(), job_id=probe.id))
    with pytest.raises(DataError, match="not a record: findings: missing"):
        runs.find(probe.id)


def test_a_record_in_another_jobs_folder_is_refused(runs):
    runs.put(_record())
    shutil.copytree(runs.path(JOB.id), runs.path("0" * 16))

    with pytest.raises(DataError, match=f"has the id {JOB.id}, its folder is 0000000000000000"):
        runs.find("0" * 16)


def test_a_record_below_a_file_is_an_environment_fault(tmp_path):
    (tmp_path / "file").touch()

    assert Runs(tmp_path / "file" / "runs").find(JOB.id) is None
    assert Runs(tmp_path / "file" / "runs").failure(JOB.id) is None
    with pytest.raises(EnvironmentFault, match="file"):
        Runs(tmp_path / "file" / "runs").put(_record())
    with pytest.raises(EnvironmentFault, match="file"), Runs(tmp_path / "file").claim(JOB.id):
        pass


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"error": "RuntimeError: out of memory"}', "RuntimeError: out of memory"),
        ("{}", "not readable"),
        ("[]", "not readable"),
        ("", "not readable"),
    ],
)
def test_a_failure_is_one_line(runs, text, message):
    assert runs.failure(JOB.id) is None
    runs.path(JOB.id).mkdir(parents=True)
    (runs.path(JOB.id) / "failure.json").write_text(text)

    assert message in runs.failure(JOB.id)


def test_a_claim_is_ours_until_it_ends(runs):
    with runs.claim(JOB.id) as mine:
        assert mine
        assert runs.claimed(JOB.id)
        with runs.claim("0" * 16) as other:
            assert other, "another job is free"
    assert not runs.claimed(JOB.id)


@pytest.mark.usefixtures("holder")
def test_a_claim_of_another_process_holds(runs):
    assert runs.claimed(JOB.id)
    with runs.claim(JOB.id) as mine:
        assert not mine
    assert runs.claimed(JOB.id), "a try in vain freed the claim"


def test_a_claim_ends_with_a_process_that_is_killed(runs, holder):
    holder.send_signal(signal.SIGKILL)
    holder.wait()

    assert not runs.claimed(JOB.id)
    with runs.claim(JOB.id) as mine:
        assert mine


def test_a_claim_waits_out_a_short_look_of_another_process(runs, holder):
    """`claimed` of a plan elsewhere holds the lock for a moment, which is no claim."""
    started = time.monotonic()
    timer = subprocess.Popen(["/bin/sh", "-c", f"sleep 0.3; kill -9 {holder.pid}"])
    with timer, runs.claim(JOB.id, wait_s=5) as mine:
        assert mine
    assert time.monotonic() - started >= 0.25


def test_a_done_job_leaves_no_lock_file(runs):
    with runs.claim(JOB.id):
        runs.put(_record())

    assert [path.name for path in runs.folder.rglob("*") if path.is_file()] == [RECORD]
    assert not runs.claimed(JOB.id)


def test_an_error_under_a_claim_frees_it(runs):
    with pytest.raises(RuntimeError), runs.claim(JOB.id):
        raise RuntimeError
    with runs.claim(JOB.id) as mine:
        assert mine


def test_one_of_many_processes_gets_the_claim(runs):
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", HOLDER, str(runs.folder), JOB.id],
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(4)
    ]
    try:
        answers = [process.stdout.readline() for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.communicate()

    assert sorted(answers) == ["False\n"] * 3 + ["True\n"]


def test_a_failure_is_noted_unless_the_worker_did_or_another_works_on_it(runs):
    runs.fail(JOB.id, "killed")
    assert runs.failure(JOB.id) == "killed"
    runs.fail(JOB.id, "killed again")
    assert runs.failure(JOB.id) == "killed"

    with runs.claim("0" * 16):
        runs.fail("0" * 16, "killed")
    assert runs.failure("0" * 16) is None


def test_a_done_job_does_not_fail(runs):
    runs.put(_record())
    runs.fail(JOB.id, "killed")

    assert runs.failure(JOB.id) is None


def test_a_record_that_is_put_aside_is_kept_and_its_job_not_done(runs):
    for number in (1, 2):
        runs.put(_record(wall_s=float(number)))
        runs.put_aside(JOB.id)
        assert not runs.done(JOB.id)
        assert not runs.started(JOB.id)
        kept = json.loads((runs.folder / ".replaced" / f"{JOB.id}-{number}" / RECORD).read_text())
        assert kept["wall_s"] == number

    assert runs.readable() == ([], [])
    runs.put_aside(JOB.id)
    assert len(list((runs.folder / ".replaced").iterdir())) == 2


@pytest.mark.usefixtures("holder")
def test_what_another_process_works_on_is_not_put_aside(runs):
    runs.put(_record())
    runs.put_aside(JOB.id)

    assert runs.done(JOB.id)


def test_a_sweep_takes_lock_files_of_done_jobs_alone(runs):
    other = JOB.model_copy(update={"seed": 1})
    for job in (JOB, other):
        with runs.claim(job.id):
            pass
    runs.put(_record())

    runs.sweep([JOB.id, other.id, "0" * 16])
    assert [path.name for path in (runs.folder / ".claims").iterdir()] == [f"{other.id}.lock"]


def test_of_a_long_log_the_last_64_kib_are_read(tmp_path):
    file = tmp_path / "log.txt"
    assert read_end(file) == ""
    for n_bytes in (10, 65_536, 65_537):
        file.write_bytes(b"a" * (n_bytes - 1) + b"z")
        assert len(read_end(file)) == min(n_bytes, 65_536)
        assert read_end(file).endswith("az")


def test_a_job_is_found_by_the_beginning_of_its_id(runs):
    first, second, whole = "abcd000000000000", "abcd111111111111", "0" * 16
    for job_id in (first, second):
        runs.path(job_id).mkdir(parents=True)

    assert runs.find_job("abcd0") == first
    assert runs.find_job(second) == second
    assert runs.find_job("ffff") is None
    assert runs.find_job("quick") is None
    for name, message, hint in (
        ("abcd", f"`abcd` begins 2 jobs in {runs.folder}", f"jobs: {first}, {second}"),
        ("abc", "abc: at least four digits of a job's id are needed", LISTING_HINT),
    ):
        with pytest.raises(UsageError) as wrong:
            runs.find_job(name)
        assert (wrong.value.message, wrong.value.hint) == (message, hint)
    with pytest.raises(DataError, match=f"no job {whole}") as missing:
        runs.find_job(whole)
    assert missing.value.hint == "name its folder with --runs-dir"


def test_each_record_that_cannot_be_read_is_named_and_the_others_are_read(runs):
    runs.put(_record())
    for job_id in ("0" * 16, "e" * 15 + "f", "f" * 16):
        runs.path(job_id).mkdir()
    (runs.path("0" * 16) / RECORD).write_text("{")
    (runs.path("f" * 16) / RECORD).mkdir()

    records, faults = runs.readable()
    assert [record.job_id for record in records] == [JOB.id]
    assert [fault.partition(": ")[0] for fault in faults] == [
        str(runs.path(job_id) / RECORD) for job_id in ("0" * 16, "f" * 16)
    ]
    assert faults[1].endswith(": cannot read the record: a folder, not a file")


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (None, "it has no config.json"),
        ("", "its config.json cannot be read"),
        ("[]", "its config.json cannot be read"),
        ("[" * 100_000, "its config.json cannot be read"),
        ('{"job": {}}', "its config.json cannot be read"),
        # A number that JSON does not have, so that the job has no id.
        (json.dumps({"job": {**JOB.plain(), "backbone_settings": {"rate": float("nan")}}}), None),
        (json.dumps({"job": JOB.plain()}), f"its config.json is of the job {JOB.id}"),
    ],
    ids=["none", "empty", "list", "deep", "no job", "no id", "another's"],
)
def test_a_config_that_says_nothing_says_why(runs, content, found):
    folder = runs.path("0" * 16)
    folder.mkdir(parents=True)
    if content is not None:
        (folder / "config.json").write_text(content)

    assert runs.config("0" * 16) == (found or "its config.json cannot be read")


def test_a_folder_that_can_hold_no_job_says_what_is_in_the_way(runs, monkeypatch):
    job_id, folder = JOB.id, runs.path(JOB.id)
    assert runs.misfit(job_id) is None
    folder.mkdir(parents=True)
    (folder / "config.json").write_bytes(b"1234")
    (folder / "log.txt").write_bytes(b"12345")
    monkeypatch.setattr("prime_bench.store.runs.MOST_BYTES", 4)
    assert runs.misfit(job_id) is None, "a log may have any length"

    (folder / "history.jsonl").write_bytes(b"12345")
    assert runs.misfit(job_id) == f"{folder / 'history.jsonl'}: has 5 bytes, too many to read"
    (folder / "log.txt").unlink()
    (folder / "history.jsonl").unlink()
    (folder / "log.txt").mkdir()
    assert runs.misfit(job_id) == f"{folder / 'log.txt'}: a folder, not a file"
    (folder / "config.json").unlink()
    (folder / "config.json").symlink_to("config.json")
    assert runs.misfit(job_id).startswith(f"{folder / 'config.json'}: Too many levels")
    shutil.rmtree(folder)
    folder.write_bytes(b"")
    assert runs.misfit(job_id) == f"{folder}: a file, not a folder"


def test_a_config_that_says_its_job_is_read(runs):
    runs.path(JOB.id).mkdir(parents=True)
    table = {"job_id": JOB.id, "job": JOB.plain(), "dataset": "avazu", "arm": "base", "table": "x"}
    (runs.path(JOB.id) / "config.json").write_text(json.dumps(table))
    found = runs.config(JOB.id)

    assert (found.job, found.dataset, found.arm) == (JOB, "avazu", "base")
    assert (found.recipe, found.origins) == (None, {})


def test_what_is_sealed_are_the_files_that_numbers_come_from(runs):
    folder = runs.path(JOB.id)
    folder.mkdir(parents=True)
    names = ["checkpoint.safetensors", "config.json", "environment.json", "history.jsonl"]
    for name in (*names, "predictions.npz", "log.txt", "progress.json", STATE):
        (folder / name).write_bytes(name.encode())
    (folder / "test.json").mkdir()
    record = runs.sealed(_record())

    digests = {n: hashlib.sha256(n.encode()).hexdigest() for n in (*names, "predictions.npz")}
    assert record.digests.files == digests
    runs.put(record)
    file = folder / RECORD
    assert runs.record_digest(JOB.id) == hashlib.sha256(file.read_bytes()).hexdigest()
    assert runs.find(JOB.id) == record


@pytest.mark.parametrize("shown", [None, "runs of mine"])
def test_messages_name_the_folder_as_the_user_does(runs, shown):
    named = Runs(runs.folder, shown=shown)
    with pytest.raises(DataError, match=f"no job {'0' * 16} in {shown or runs.folder}"):
        named.find_job("0" * 16)


def test_a_file_with_a_short_name_of_hex_digits_is_no_job(runs, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "abc").touch()
    assert runs.find_job("abc") is None
    runs.path("abcd" * 4).parent.mkdir()
    runs.path("abcd" * 4).touch()
    assert runs.find_job("abcd") is None, "a file is no job's folder"


def test_ids_are_those_of_folders_in_order(runs):
    assert runs.job_ids() == []
    for name in ("f" * 16, "0" * 16, "0" * 15, "0" * 17, "g" * 16, ".claims"):
        runs.path(name).mkdir(parents=True)
    assert runs.job_ids() == ["0" * 16, "f" * 16]
    assert not is_job_id("F" * 16)


def test_only_the_record_that_was_seen_is_put_aside(runs):
    runs.put(_record(wall_s=1.0))
    runs.put_aside(JOB.id, record=_record(wall_s=2.0))
    assert (runs.done(JOB.id), runs.replaced()) == (True, [])

    runs.put_aside(JOB.id, record=_record(wall_s=1.0))
    assert not runs.done(JOB.id)
    assert runs.replaced() == [runs.folder / ".replaced" / f"{JOB.id}-1"]


def test_a_sweep_takes_saved_states_of_done_jobs_alone(runs):
    other = JOB.model_copy(update={"seed": 1})
    runs.put(_record())
    for job in (JOB, other):
        runs.path(job.id).mkdir(exist_ok=True)
        (runs.path(job.id) / STATE).touch()
        assert runs.saved(job.id)
    runs.sweep([JOB.id, other.id])
    assert (runs.saved(JOB.id), runs.saved(other.id)) == (False, True)


def test_a_look_at_the_claims_leaves_nothing(runs):
    runs.folder.mkdir()
    runs.check_claims()
    assert [path for path in runs.folder.rglob("*") if path.is_file()] == []


def test_files_that_are_not_there_or_not_whole_say_nothing(tmp_path):
    file = tmp_path / "x"
    assert (read_text(file), read_object(file), read_history(file)) == ("", {}, [])
    assert read_progress(file) is None
    file.write_bytes(b"a\xffb")
    assert read_text(file) == "a\N{REPLACEMENT CHARACTER}b"
    for text, found in (('{"a": 1}', {"a": 1}), ("[1]", {}), ("{", {})):
        file.write_text(text)
        assert read_object(file) == found
    for speed, known in ((5.0, True), (None, False)):
        progress = {"epoch": 1, "rows": 2, "rows_total": 3, "rows_per_s": speed}
        file.write_text(json.dumps(progress))
        assert (read_progress(file) is not None) == known


@pytest.mark.parametrize(
    ("name", "may_be_long"),
    [
        *((f"{name}.json", False) for name in ("record", "config", "failure", "progress")),
        *(("environment.json", False), ("history.jsonl", False), ("log.txt", True)),
    ],
)
def test_each_file_that_is_read_has_to_be_one_of_a_size_that_can_be(
    runs, monkeypatch, name, may_be_long
):
    monkeypatch.setattr("prime_bench.store.runs.MOST_BYTES", 4)
    file = runs.path(JOB.id) / name
    file.parent.mkdir(parents=True)
    file.write_bytes(b"12345")
    long = None if may_be_long else f"{file}: has 5 bytes, too many to read"
    assert runs.misfit(JOB.id) == long
    file.unlink()
    file.mkdir()
    assert runs.misfit(JOB.id) == f"{file}: a folder, not a file"

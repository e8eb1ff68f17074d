"""Whatever a worker does, its job alone is lost, and no worker is left over."""

import contextlib
import json
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from queue import SimpleQueue
from types import SimpleNamespace

import pytest

from prime_bench.base.errors import EnvironmentFault
from prime_bench.base.files import write_whole
from prime_bench.recipe.events import RestartedEvent, RetryEvent
from prime_bench.recipe.job import Job, MachineCheck
from prime_bench.schedule import local
from prime_bench.schedule.child import COMMAND, Child
from prime_bench.schedule.devices import Device
from prime_bench.schedule.engine import Outcome
from prime_bench.schedule.local import LocalEngine


def _ignore(_event):
    """Take no note of an event."""


def _place(event):
    """Process, device and visible devices of the worker; None for events that do not name them."""
    return event.reason.split(" ") if isinstance(event, RestartedEvent) else None


def _note_pid(pids):
    """A function that adds the process of each event that names one."""

    def note(event):
        if place := _place(event):
            pids.append(int(place[0]))

    return note


STATE = 0  # the first field of /proc/<pid>/stat after the command's name


def _gone(pid, *, within_s=15.0):
    """Whether the process ends in time; one that nobody has waited for (Z) has ended."""
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            return True
        if fields[STATE] == "Z":
            return True
        time.sleep(0.02)
    return False


@pytest.fixture
def play(worker, request_of, queue_of):
    """Run the jobs 1, 2, ... with these parts: outcomes, and the worker that each job had."""

    def play(*parts):
        command = worker(**{str(number): part for number, part in enumerate(parts, start=1)})
        pids = []
        requests = [request_of(number) for number in range(1, len(parts) + 1)]
        outcomes = list(
            LocalEngine(command=command).run(
                queue_of(*requests),
                on_event=_note_pid(pids),
            )
        )
        assert [outcome.request for outcome in outcomes] == requests
        assert all(_gone(pid) for pid in pids)
        return outcomes, pids

    return play


def test_one_worker_does_all_jobs(play, runs):
    outcomes, pids = play("done", "done", "done")

    assert [outcome.state for outcome in outcomes] == ["done"] * 3
    assert all(runs.done(outcome.request.job.id) for outcome in outcomes)
    assert len(pids) == 3
    assert len(set(pids)) == 1


def test_a_job_that_fails_leaves_the_worker_and_the_others_alone(play):
    outcomes, pids = play("done", "failed", "done")

    assert [outcome.why for outcome in outcomes] == ["", "RuntimeError: out of luck", ""]
    assert len(set(pids)) == 1


def test_a_job_that_lacks_something_of_the_machine_ends_its_worker(play):
    """A plug-in may have used up the open files of its process, or lowered a limit for it."""
    outcomes, pids = play("done", "short", "done")

    assert [outcome.state for outcome in outcomes] == ["done", "failed", "done"]
    assert pids[0] == pids[1] != pids[2]


def test_a_job_with_code_that_is_not_ours_has_a_process_to_itself(play, monkeypatch):
    """It may have changed torch's defaults, from which the next arm would get other numbers."""
    monkeypatch.setattr(Job, "is_ours", property(lambda job: job.seed != 2))
    outcomes, pids = play("done", "done", "done", "done")

    assert [outcome.state for outcome in outcomes] == ["done"] * 4
    assert pids[0] == pids[1] != pids[2] == pids[3]


def test_a_job_that_another_process_has_is_skipped(play):
    outcomes, _ = play("skipped", "done")

    assert [outcome.state for outcome in outcomes] == ["skipped", "done"]


@pytest.mark.parametrize(
    ("part", "error"),
    [
        ("killed", "the worker was killed by SIGKILL (out of memory?): last words"),
        ("by 35", "the worker was killed by signal 35: last words"),  # one without a name
        ("ended", "the worker ended with exit code 3: SystemError: gone"),
    ],
)
def test_a_worker_that_dies_costs_one_job_and_is_replaced(play, part, error):
    outcomes, pids = play("done", part, "done", "done")

    assert [outcome.why for outcome in outcomes] == ["", error, "", ""]
    assert pids[0] == pids[1] != pids[2] == pids[3]


def test_a_job_is_done_only_with_a_record(play):
    outcomes, _ = play("empty", "done")

    assert [outcome.why for outcome in outcomes] == ["the worker left no record", ""]


@pytest.mark.parametrize(
    "line",
    [
        *(b"Loading data ...", b"\xff\xfe", b"", b"3", b"KEY", b"KEY []", b"KEY null"),
        *(b'KEY {"job_id": "x"}', b'KEY {"event":', b'KEY {"event": "over", "job_id": "x"}'),
        b'KEY {"event": "done", "job_id": "x"}',
        b'KEY {"event": "done", "job_id": 3, "wall_s": 1}',
        b"KEY " + b"[" * 5000,
        # Forged by a plug-in, which does not know the key.
        b'{"event": "done", "job_id": "x", "wall_s": 1.0}',
        b'{"event": "failed", "job_id": null, "error": "no"}',
        b'{"event": "fault", "job_id": "x", "error": "no", "hint": "", "exit_code": 4}',
        b'KEY0 {"event": "skipped", "job_id": "x"}',
    ],
    ids=lambda line: repr(line[:40]),
)
def test_garbage_ends_the_job_and_its_worker(play, line):
    outcomes, pids = play(line.hex(), "done")

    why, other = (outcome.why for outcome in outcomes)
    assert why.startswith("the worker wrote a line that is not an event: ")
    quoted = line.decode("utf-8", "replace")[:200]
    assert "KEY" in quoted or why.endswith(f": {quoted}")
    assert (other, pids[0] != pids[1]) == ("", True)


def test_a_long_line_of_garbage_is_cut(play):
    outcomes, _ = play((b"x" * 10_000).hex())

    assert len(outcomes[0].why) < 300


def test_a_line_without_end_is_not_waited_for(request_of, queue_of):
    """Nor kept: a plug-in may write gigabytes."""
    code = "import os\nwhile True: os.write(1, b'x' * 65536)"
    engine = LocalEngine(command=(sys.executable, "-c", code))

    (outcome,) = engine.run(queue_of(request_of(1)), on_event=_ignore)
    assert outcome.why.startswith("the worker wrote a line that is not an event: xxx")


def test_a_worker_that_dies_is_noticed_while_another_process_holds_its_pipe(play):
    start = time.monotonic()
    outcomes, pids = play("dies", "done")

    assert [outcome.state for outcome in outcomes] == ["failed", "done"]
    assert "the worker was killed by SIGSEGV" in outcomes[0].why
    assert time.monotonic() - start < 20, "the other process was waited for"
    worker, child, other = pids
    assert len({worker, child, other}) == 3


def test_a_job_that_leaves_a_process_costs_its_worker_and_nothing_else(play):
    outcomes, (worker, _, other) = play("leaves", "done")

    assert [outcome.state for outcome in outcomes] == ["done", "done"]
    assert worker != other


def test_a_sigterm_that_the_run_did_not_send_is_a_failure(play, runs):
    outcomes, pids = play("stopped", "done")

    assert [outcome.state for outcome in outcomes] == ["failed", "done"]
    assert outcomes[0].why == "the worker was stopped by a SIGTERM that this run did not send"
    assert runs.failure(outcomes[0].request.job.id) == outcomes[0].why
    assert pids[0] != pids[1]


def test_a_sigterm_to_all_may_reach_the_worker_first(worker, request_of, queue_of, monkeypatch):
    # The wait ends when the stop comes, which on a busy machine takes its time.
    monkeypatch.setattr("prime_bench.schedule.child._STOP_COMES_S", 60.0)
    engine = LocalEngine(command=worker(**{"1": "stopped"}))
    timers = []

    def stop_soon(_event):
        timers.append(threading.Timer(0.3, engine.stop))
        timers[-1].start()

    outcomes = engine.run(queue_of(request_of(1)), on_event=stop_soon)
    assert [(o.state, o.why) for o in outcomes] == [("interrupted", "stopped at a checkpoint")]
    for timer in timers:
        timer.join()


def test_a_worker_that_ends_quietly_has_not_done_its_job(play):
    outcomes, _ = play("quiet", "done")

    assert [outcome.state for outcome in outcomes] == ["failed", "done"]
    assert "the worker ended with exit code 0" in outcomes[0].why


def test_a_job_with_a_record_is_done_however_its_worker_ended(play):
    outcomes, _ = play("recorded", "done")

    assert [outcome.state for outcome in outcomes] == ["done", "done"]


def test_a_worker_that_does_not_start_fails_each_job(worker, request_of, queue_of):
    engine = LocalEngine(command=worker(start="exit"))

    outcomes = list(engine.run(queue_of(request_of(1), request_of(2)), on_event=print))

    expected = "the worker ended with exit code 1: no such library"
    assert [outcome.why for outcome in outcomes] == [expected] * 2


def test_a_worker_that_closes_its_output_is_ended(worker, request_of, monkeypatch, queue_of):
    monkeypatch.setattr("prime_bench.schedule.child._PATIENCE_S", 0.2)
    engine = LocalEngine(command=worker(start="close"))

    (outcome,) = engine.run(queue_of(request_of(1)), on_event=print)

    assert "closed its output" in outcome.why


def test_many_deaths_do_not_use_up_the_descriptors(worker, request_of, queue_of):
    numbers = range(1, 9)
    command = worker(**{str(number): "ended" for number in numbers})
    counts = []

    list(
        LocalEngine(command=command).run(
            queue_of(*(request_of(number) for number in numbers)),
            on_event=lambda _event: counts.append(len(list(Path("/proc/self/fd").iterdir()))),
        )
    )

    assert len(counts) == len(numbers)
    # A worker has three or four, and may be gone when its event is counted; eight would have 24.
    assert max(counts) - min(counts) < 12


def test_no_worker_is_started_for_no_job(queue_of):
    engine = LocalEngine(command=("/nowhere/no-such-command",))

    assert list(engine.run(queue_of(), on_event=print)) == []


def _started(worker, request_of, queue_of, pids):
    """An engine in the middle of its second job, whose worker says what it does without end."""
    engine = LocalEngine(command=worker(**{"1": "done", "2": "endless"}))

    def note(event):
        _note_pid(pids)(event)
        if len(pids) == 2:
            raise KeyboardInterrupt

    return engine.run(queue_of(request_of(1), request_of(2)), on_event=note)


def test_an_interrupt_ends_the_worker(worker, request_of, queue_of, monkeypatch):
    monkeypatch.setattr("prime_bench.schedule.child._PATIENCE_S", 1000)
    pids = []
    outcomes = _started(worker, request_of, queue_of, pids)
    assert next(outcomes).state == "done"

    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        next(outcomes)
    assert time.monotonic() - start < 100, "it was waited for and not killed"
    assert _gone(pids[0])


def test_an_engine_that_is_closed_between_jobs_ends_its_worker(worker, request_of, queue_of):
    pids = []
    outcomes = _started(worker, request_of, queue_of, pids)
    next(outcomes)

    outcomes.close()
    assert _gone(pids[0])


def test_slots_share_the_jobs(worker, request_of, queue_of):
    numbers = list(range(1, 9))
    engine = LocalEngine(slots=2, command=worker(**{str(number): "done" for number in numbers}))
    pids = []

    outcomes = list(
        engine.run(
            queue_of(*(request_of(number) for number in numbers)),
            on_event=_note_pid(pids),
        )
    )

    assert sorted(outcome.request.job.seed for outcome in outcomes) == numbers
    assert all(outcome.state == "done" for outcome in outcomes)
    assert len(pids) == len(numbers)
    assert len(set(pids)) <= 2
    assert all(_gone(pid) for pid in pids)


def test_slots_work_at_the_same_time_and_an_interrupt_ends_them_all(
    worker, request_of, queue_of, monkeypatch
):
    monkeypatch.setattr("prime_bench.schedule.child._PATIENCE_S", 1000)
    engine = LocalEngine(slots=2, command=worker(**{"1": "endless", "2": "endless"}))
    pids = []

    def note(event):
        _note_pid(pids)(event)
        if len(set(pids)) == 2:
            raise KeyboardInterrupt

    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        list(engine.run(queue_of(request_of(1), request_of(2)), on_event=note))
    assert time.monotonic() - start < 100, "they were waited for and not killed"
    assert all(_gone(pid) for pid in pids)


def test_a_worker_that_cannot_be_started_at_all_is_an_error(request_of, queue_of):
    engine = LocalEngine(slots=2, command=("/nowhere/no-such-command",))

    with pytest.raises(FileNotFoundError):
        list(engine.run(queue_of(request_of(1)), on_event=print))


def test_a_job_that_hangs_is_ended_and_its_worker_replaced(worker, request_of, queue_of, runs):
    engine = LocalEngine(
        job_timeout_s=2, command=worker(**{"1": "done", "2": "endless", "3": "done"})
    )
    pids = []

    outcomes = list(
        engine.run(
            queue_of(*(request_of(number) for number in (1, 2, 3))),
            on_event=_note_pid(pids),
        )
    )

    assert [outcome.state for outcome in outcomes] == ["done", "failed", "done"]
    assert outcomes[1].why == "not done after 2 s, and killed"
    assert runs.failure(request_of(2).job.id) == "not done after 2 s, and killed"
    assert all(_gone(pid) for pid in pids)


def test_a_timeout_never_hits_the_job_after(worker, request_of, queue_of):
    """Jobs of a second in all, each with a limit that ends just after it."""
    numbers = range(1, 41)
    engine = LocalEngine(
        job_timeout_s=5, command=worker(**{str(number): "done" for number in numbers})
    )

    outcomes = list(
        engine.run(queue_of(*(request_of(number) for number in numbers)), on_event=_ignore)
    )
    assert {outcome.state for outcome in outcomes} == {"done"}
    assert not [t for t in threading.enumerate() if isinstance(t, threading.Timer)]


def test_a_retry_makes_good_what_a_dead_worker_left(worker, request_of, queue_of):
    engine = LocalEngine(command=worker(**{"1": "killed once", "2": "done"}))
    events = []

    outcomes = list(
        engine.run(queue_of(request_of(1), request_of(2), retries=1), on_event=events.append)
    )

    assert [outcome.request.job.seed for outcome in outcomes] == [2, 1], "the retry comes last"
    assert {outcome.state for outcome in outcomes} == {"done"}
    (retry,) = [event for event in events if isinstance(event, RetryEvent)]
    assert retry.job_id == request_of(1).job.id
    assert "SIGKILL" in retry.error


def test_a_failure_that_nobody_else_could_tell_is_written_down(play, runs):
    outcomes, _ = play("killed", "failed")

    assert runs.failure(outcomes[0].request.job.id) == outcomes[0].why
    assert runs.failure(outcomes[1].request.job.id) == "RuntimeError: out of luck"


def test_a_stop_asks_the_workers_and_ends_with_what_they_answer(worker, request_of, queue_of):
    numbers = (1, 2, 3)
    parts = {"1": "gentle", "2": "endless", "3": "done"}
    engine = LocalEngine(slots=2, command=worker(**parts))
    queue, at_work = queue_of(*(request_of(number) for number in numbers)), set()

    def note(event):
        at_work.add(event.job_id)
        if len(at_work) == 2:
            engine.stop()

    outcomes = sorted(engine.run(queue, on_event=note), key=lambda o: o.request.job.seed)
    assert [(o.request.job.seed, o.state, o.why) for o in outcomes] == [
        (1, "interrupted", "stopped at a checkpoint"),
        (2, "interrupted", "stopped"),
    ]
    assert [work.request.job.seed for work in queue.left] == [3]


def test_a_stop_before_anything_has_started_starts_nothing(worker, request_of, queue_of):
    engine = LocalEngine(command=worker(**{"1": "endless"}))
    engine.stop()

    states = [o.state for o in engine.run(queue_of(request_of(1)), on_event=_ignore)]
    assert states in ([], ["interrupted"])


def test_a_worker_without_its_device_ends_the_run(worker, request_of, queue_of):
    engine = LocalEngine(command=worker(**{"1": "fault"}))

    with pytest.raises(EnvironmentFault, match="no device\n\nhint: buy one"):
        list(engine.run(queue_of(request_of(1)), on_event=_ignore))


def test_every_device_has_its_slots_and_its_jobs_run_there(worker, request_of, queue_of):
    numbers = range(1, 9)
    devices = [Device(name="cuda:0", variables={"CUDA_VISIBLE_DEVICES": number}) for number in "57"]
    engine = LocalEngine(
        devices=devices, slots=2, command=worker(**{str(number): "done" for number in numbers})
    )
    places, pids = set(), set()

    def note(event):
        if place := _place(event):
            pids.add(place[0])
            places.add(tuple(place[1:]))

    outcomes = list(
        engine.run(queue_of(*(request_of(number) for number in numbers)), on_event=note)
    )
    assert {outcome.state for outcome in outcomes} == {"done"}
    assert places == {("cuda:0", "5"), ("cuda:0", "7")}
    assert 2 <= len(pids) <= 4


def test_few_jobs_are_spread_over_all_devices_and_a_worker_knows_how_many_share_one(
    monkeypatch, queue_of
):
    made = []

    class Idle(contextlib.nullcontext):
        """A slot that has ended."""

        def __init__(self, _command, *, device, variables, messages, job_timeout_s, **_keys):
            super().__init__()
            made.append((device.label, job_timeout_s, dict(variables)))
            messages.put(None)

    monkeypatch.setattr(local, "Slot", Idle)
    devices = [
        Device(name="cuda:0", label=f"cuda:{n}", variables={"CUDA_VISIBLE_DEVICES": str(n)})
        for n in (0, 1, 2)
    ]
    engine = LocalEngine(devices=devices, slots=2, job_timeout_s=90)
    assert list(engine.run(queue_of(), on_event=_ignore)) == []

    assert [label for label, _, _ in made] == ["cuda:0", "cuda:1", "cuda:2"] * 2
    for label, timeout_s, variables in made:
        assert timeout_s == 90
        assert variables["CUDA_VISIBLE_DEVICES"] == label[-1]
        assert variables["PRIME_BENCH_JOBS_ON_DEVICE"] == "2"


class _Worker(contextlib.nullcontext):
    """Stands in for a child: notes its jobs, and says how each ends."""

    ends = {}
    made = []

    def __init__(self, _command, *, variables):  # noqa: ARG002  # as of a child
        super().__init__()
        self.alive, self.given = True, []
        self.made.append(self)

    def __exit__(self, *_error):
        self.alive = False

    def do(self, request, *, on_event, timeout_s):  # noqa: ARG002  # as of a child
        self.given.append((request.job.seed, request.device, timeout_s))
        how = self.ends.get(request.job.seed, {})
        return Outcome(request=request, state="failed", why="out of luck", **how)


def test_a_worker_that_ran_out_of_memory_gives_it_back_and_others_go_on(
    monkeypatch, request_of, queue_of, runs
):
    monkeypatch.setattr(local, "Child", _Worker)
    monkeypatch.setattr(_Worker, "made", [])
    monkeypatch.setattr(_Worker, "ends", {2: {"out_of_memory": True}})
    events, requests = [], [request_of(number) for number in (1, 2, 3)]
    engine = LocalEngine(devices=[Device(name="cuda:0", label="cuda:1")], job_timeout_s=90)
    outcomes = list(engine.run(queue_of(*requests, retries=1), on_event=events.append))

    assert [outcome.request for outcome in outcomes] == requests, "not as changed for the device"
    assert [[seed for seed, *_ in one.given] for one in _Worker.made] == [[1, 2], [3, 1, 2], [3]]
    assert {given[1:] for one in _Worker.made for given in one.given} == {("cuda:0", 90)}
    assert not any(one.alive for one in _Worker.made)
    assert [event.job_id for event in events] == [request.job.id for request in requests]
    assert {runs.failure(request.job.id) for request in requests} == {"out of luck"}


def test_a_slot_takes_jobs_for_its_own_device():
    messages, asked = SimpleQueue(), []
    device = Device(name="cuda:0", label="cuda:3")
    queue = SimpleNamespace(take=lambda *, device: asked.append(device))
    given = {"variables": {}, "messages": messages, "job_timeout_s": None}
    local.Slot((), device=device, jobs=queue, **given).run()
    assert (asked, messages.get()) == (["cuda:3"], None)


def test_a_stop_while_a_worker_starts_hands_it_no_job(monkeypatch, request_of, queue_of):
    messages, slots = SimpleQueue(), []

    class Starting(_Worker):
        """A worker that is stopped before it can take a job."""

        def __init__(self, command, *, variables):
            super().__init__(command, variables=variables)
            slots[0].stop()

        def terminate(self):
            raise AssertionError("it has no job")

    monkeypatch.setattr(local, "Child", Starting)
    monkeypatch.setattr(_Worker, "made", [])
    given = {"device": Device(name="cpu"), "variables": {}, "job_timeout_s": None}
    slot = local.Slot((), jobs=queue_of(request_of(1)), messages=messages, **given)
    slots.append(slot)
    slot.run()

    outcome, end = messages.get(), messages.get()
    assert (outcome.state, outcome.why, end) == ("interrupted", "not started", None)
    assert _Worker.made[0].given == []


def test_a_job_that_was_done_meanwhile_is_not_handed_to_a_worker(request_of, queue_of, runs):
    request = request_of(1)
    runs.path(request.job.id).mkdir(parents=True)
    (runs.path(request.job.id) / "record.json").touch()
    engine = LocalEngine(command=("/nowhere/no-such-command",))

    (outcome,) = engine.run(queue_of(request), on_event=_ignore)
    assert outcome.state == "skipped"


PARENT = """
import json, sys
from pathlib import Path
from prime_bench.recipe.job import JobRequest
from prime_bench.schedule.local import LocalEngine
from prime_bench.schedule.engine import Queue, Work
from prime_bench.store.runs import Runs

request = JobRequest.parse(json.loads(sys.argv[1]), where="")
queue = Queue([Work(request=request)], runs=Runs(Path(request.runs)))
def note(event):
    if event.event == "restarted":
        print(event.reason.split()[0], flush=True)

list(LocalEngine(command=json.loads(sys.argv[2])).run(queue, on_event=note))
"""


@pytest.mark.parametrize(("part", "n_processes"), [("endless", 1), ("deaf", 2)])
def test_a_worker_ends_with_an_engine_that_is_killed(worker, request_of, part, n_processes):
    """With all that it has started, and also where it does nothing that would make it notice."""
    arguments = [request_of(1).model_dump_json(), json.dumps(worker(**{"1": part}))]
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, *arguments], stdout=subprocess.PIPE, text=True
    )
    with parent:
        pids = [int(parent.stdout.readline()) for _ in range(n_processes)]
        parent.send_signal(signal.SIGKILL)

    assert all(_gone(pid) for pid in pids)


SHARED = """
import json, os, sys, time
from pathlib import Path
from prime_bench.base.identity import digest

folder, room, at_once = Path(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[4])
for line in sys.stdin:
    request = json.loads(line)
    job = {k: v for k, v in request["job"].items() if v or k not in ("code", "probe")}
    if job["training"]["matmul"] == "float32":  # as `Job.plain`
        del job["training"]["matmul"]
    job_id = digest(job)[:16]

    def send(event, **keys):
        key = os.environ["PRIME_BENCH_EVENT_KEY"]
        print(key, json.dumps({"event": event, "job_id": job_id, **keys}), flush=True)

    mine = folder / job_id
    mine.touch()
    # Until the others have started, or will not: so that jobs which could overlap do.
    end = time.monotonic() + 1.0
    while (n_here := len(list(folder.iterdir()))) <= room and n_here < int(at_once.read_text()):
        if time.monotonic() > end:
            break
        time.sleep(0.01)
    full = len(list(folder.iterdir())) > room
    if full and sys.argv[3] == "failed":
        time.sleep(0.3)
        mine.unlink()
        send("failed", error="CUDA error: out of memory", out_of_memory=True)
    elif full:
        time.sleep(0.3)
        mine.unlink()
        if sys.argv[3] == "killed":
            os.kill(os.getpid(), 9)
        sys.exit("RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED")
    else:
        record = Path(request["runs"]) / job_id / "record.json"
        record.parent.mkdir(parents=True, exist_ok=True)
        record.touch()
        mine.unlink()
        send("done", wall_s=1.0)
"""


@pytest.fixture
def crowded(tmp_path, request_of, queue_of):
    """Run jobs on a device that has room for so many at once: outcomes and retries."""
    folder = tmp_path / "at work"
    folder.mkdir()

    at_once = tmp_path / "at once"

    def crowded(end, *, room, slots, n_jobs, **limits):
        command = (sys.executable, "-c", SHARED, str(folder), str(room), end, str(at_once))
        engine, retries = LocalEngine(slots=slots, command=command), []

        def note(event):
            if isinstance(event, RetryEvent):
                write_whole(at_once, str(event.at_once))
                retries.append(event)

        write_whole(at_once, str(slots))
        queue = queue_of(*(request_of(number) for number in range(n_jobs)), **limits)
        return list(engine.run(queue, on_event=note)), retries

    return crowded


@pytest.mark.parametrize("end", ["failed", "killed", "ended"])
def test_jobs_that_do_not_fit_together_run_with_fewer_at_once(end, crowded):
    outcomes, retries = crowded(end, room=1, slots=3, n_jobs=5)

    assert sorted(outcome.request.job.seed for outcome in outcomes) == list(range(5))
    assert {outcome.state for outcome in outcomes} == {"done"}, "without any --retries"
    assert retries
    assert {retry.device for retry in retries} == {"cpu"}
    assert min(retry.at_once for retry in retries) == 1


def test_a_job_that_fits_nowhere_fails_when_it_is_alone(crowded):
    outcomes, retries = crowded("failed", room=0, slots=2, n_jobs=2)

    assert [outcome.state for outcome in outcomes] == ["failed", "failed"]
    assert all(outcome.out_of_memory for outcome in outcomes)
    assert {retry.at_once for retry in retries} == {1}


def test_a_device_with_room_keeps_its_slots(crowded):
    outcomes, retries = crowded("failed", room=3, slots=3, n_jobs=6)

    assert len(outcomes) == 6
    assert retries == []


def test_a_callback_that_raises_leaves_no_failure_behind(worker, request_of, queue_of, runs):
    """The job was killed by the engine itself, and is continued by the next run."""
    engine = LocalEngine(command=worker(**{"1": "endless"}))

    def refuse(_event):
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        list(engine.run(queue_of(request_of(1)), on_event=refuse))
    assert runs.failure(request_of(1).job.id) is None


def test_a_worker_imports_from_where_its_parent_does(tmp_path, monkeypatch):
    """Not from the current folder, where anything may lie; but from a folder of the parent's."""
    for name in ("numpy", "json", "pydantic"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit(99)")
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "found_by_both.py").write_text("")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path / "own")
    *python, option, module = COMMAND
    assert (option, module) == ("-m", "prime_bench.worker")
    code = f"import found_by_both, json, sys, {module}; json.dump(sys.path, sys.stderr)"
    with Child((*python, "-c", code)) as child:
        child._process.wait()
        assert child._process.returncode == 0, child._cause_of_end()
        child._stderr.seek(0)
        found = json.loads(child._stderr.read())
    assert str(tmp_path) not in found
    assert "" not in found


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("input(); print('hello'); input()", "the worker did not answer a check: hello"),
        ("raise SystemExit('no such library')", "ended with exit code 1: no such library"),
    ],
)
def test_a_worker_that_answers_no_check_is_an_error(code, said):
    check = MachineCheck(tables={}, backbones={}, plugins={}, device="cpu")
    with Child((sys.executable, "-u", "-c", code)) as child:
        with pytest.raises(EnvironmentFault, match=said):
            child.check(check)
        assert not child.alive


def test_a_worker_that_has_ended_between_two_jobs_fails_the_next(request_of):
    with Child(("false",)) as child:
        child._process.wait()
        outcome = child.do(request_of(1), on_event=_ignore)
    assert (outcome.state, outcome.why) == ("failed", "the worker ended with exit code 1")

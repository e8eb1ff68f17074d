"""What is handed to an engine, and how its outcomes are counted."""

import functools
import signal
import sys
import threading
from dataclasses import replace
from types import SimpleNamespace

import pytest

from prime_bench import api
from prime_bench.base.errors import DataError, EnvironmentFault, UsageError
from prime_bench.data.manifest import resolve
from prime_bench.recipe.events import EpochProgress, ProgressEvent
from prime_bench.recipe.file import origins
from prime_bench.schedule.devices import Device
from prime_bench.schedule.engine import Limits, Outcome
from prime_bench.schedule.plan import make_plan
from prime_bench.schedule.run import (
    RunSummary,
    measuring_engine,
    open_engine,
    run_plan,
    stopping_gently,
)
from prime_bench.schedule.slots import Slots
from prime_bench.settings.probes import SubgroupsSettings
from prime_bench.store.runs import Runs

KEYS = {"rows": 1000}


class _Engine:
    """Ends jobs as it is told to and keeps what it was handed."""

    device_kind = "cpu"

    def __init__(self, *errors):
        self.errors, self.requests = list(errors), []

    def slots_for(self, needs, *, n_jobs):
        self.asked = len(needs), n_jobs
        return Slots(on_each=3, total=3, threads=2)

    def run(self, queue, *, slots, on_event):
        assert slots.total == 3
        for error in self.errors:
            request = queue.take()
            self.requests.append(request)
            progress = EpochProgress(epoch=1, rows=1, rows_total=2)
            on_event(ProgressEvent(job_id=request.job.id, progress=progress))
            state = {None: "done", "skipped": "skipped"}.get(error, "failed")
            yield from queue.settle(Outcome(request=request, state=state, why=error or ""))
        assert queue.take(wait=False) is None


@pytest.fixture
def run(recipe, data_dir, runs):
    def run(engine, *, runs=runs, may_retry=False, **options):
        plan = make_plan(recipe, data_dir=data_dir, runs=runs)
        events, outcomes = [], []
        tally = run_plan(
            plan,
            engine,
            runs=runs,
            **options,
            on_event=events.append,
            on_outcome=outcomes.append,
        )
        assert len(events) == len(engine.requests)
        assert may_retry or len(outcomes) == len(events)
        return tally

    return run


def test_every_outcome_is_counted(run, prepare):
    prepare("synthetic", KEYS)

    tally = run(_Engine(None, "out of luck", "skipped", None))

    assert (tally.done, tally.skipped) == (2, 1)
    assert [outcome.why for outcome in tally.failed] == ["out of luck"]


def test_a_job_that_the_engine_loses_has_failed(recipe, data_dir, runs, prepare):
    """Neither done nor failed nor skipped: no run may end so in silence."""
    prepare("synthetic", KEYS)

    class Losing(_Engine):
        def run(self, queue, *, slots, on_event):  # noqa: ARG002
            yield from queue.settle(Outcome(request=queue.take(), state="done"))
            queue.take()

    plan, outcomes = make_plan(recipe, data_dir=data_dir, runs=runs), []
    tally = run_plan(plan, Losing(), runs=runs, on_event=print, on_outcome=outcomes.append)

    assert not tally.ok
    assert {o.why for o in tally.failed} == {"the engine ended without an answer for it"}
    assert len(outcomes) == len(tally.failed) + 1 == len(plan.to_run)


def test_a_job_whose_need_another_process_does_is_not_run(recipe, data_dir, runs, prepare):
    """Of a recipe that measures what `recipe` trains, which another process does now."""
    prepare("synthetic", KEYS)
    probe = SubgroupsSettings(fields=("site_category",), min_rows=10)
    measuring = replace(recipe, kind="subgroups", probe=probe, seeds=[3], arms=recipe.arms[:1])
    look = functools.partial(make_plan, measuring, data_dir=data_dir, runs=runs)
    trained, outcomes = look().jobs[0].job_id, []
    with runs.claim(trained):
        plan = look()
        tally = run_plan(plan, _Engine(), runs=runs, on_event=print, on_outcome=outcomes.append)

    assert [planned.state for planned in plan.jobs] == ["running", "pending"]
    assert [(outcome.state, outcome.why) for outcome in outcomes] == [
        ("not run", f"needs the job {trained}, which has no record")
    ]
    assert tally.not_run == tuple(outcomes)
    assert (tally.not_started, tally.ok) == (0, False)


@pytest.mark.parametrize("left", ["interrupted", "not_started", "failed", "not_run"])
def test_a_run_that_leaves_a_job_is_not_ok(left, run, prepare):
    prepare("synthetic", KEYS)
    done = run(_Engine(None, None, None, None))

    assert done.ok
    number = left in ("interrupted", "not_started")
    assert not replace(done, **{left: 1 if number else (Outcome(request=None),)}).ok


def test_a_request_holds_the_job_its_labels_and_folders(run, recipe, prepare, data_dir, runs):
    fingerprint = prepare("synthetic", KEYS)
    engine = _Engine(None, None, None, None)
    run(engine)

    assert [request.job for request in engine.requests] == [
        job_spec.bind(fingerprint) for job_spec in recipe.job_specs()
    ]
    assert [request.arm for request in engine.requests] == ["dense", "prime"] * 2
    for request in engine.requests:
        assert request.dataset == "synthetic"
        assert request.table == str(resolve("synthetic", KEYS).folder(data_dir))
        assert request.runs == str(runs.folder)
        assert request.threads == 2


def test_the_engine_knows_number_and_needs_of_the_jobs_that_are_left(
    run, recipe, prepare, data_dir, schema, finish
):
    fingerprint = prepare("synthetic", KEYS)
    (resolve("synthetic", KEYS).folder(data_dir) / "schema.json").write_text(schema)
    finish(recipe.job_specs()[0].bind(fingerprint))
    engine = _Engine(None, None, None)
    run(engine)

    assert engine.asked == (3, 3)


@pytest.mark.parametrize("keep", [False, True])
def test_limits_and_labels_reach_the_queue_and_the_workers(run, recipe, prepare, keep):
    prepare("synthetic", KEYS)
    engine = _Engine("out of luck", "out of luck", *[None] * 4)
    tally = run(engine, limits=Limits(retries=1), keep_predictions=keep, may_retry=True)

    assert (tally.done, tally.failed) == (4, ())
    assert len(engine.requests) == 6
    assert {request.keep_predictions for request in engine.requests} == {keep}
    assert {request.recipe for request in engine.requests} == {"small"}
    job_spec = recipe.job_specs()[0]
    assert dict(origins(recipe, job_spec)) == engine.requests[0].origins != {}


def test_finished_jobs_are_not_handed_out_again(run, recipe, prepare, finish):
    fingerprint = prepare("synthetic", KEYS)
    first, *others = [job_spec.bind(fingerprint) for job_spec in recipe.job_specs()]
    finish(first)
    engine = _Engine(None, None, None)
    run(engine)

    assert [request.job for request in engine.requests] == others


def test_what_killed_workers_left_of_done_jobs_goes_and_a_broken_one_keeps_its_state(
    run, recipe, prepare, finish, runs
):
    fingerprint = prepare("synthetic", KEYS)
    done, broken, *_ = [job_spec.bind(fingerprint) for job_spec in recipe.job_specs()]
    finish(done)
    runs.path(broken.id).mkdir()
    (runs.path(broken.id) / "record.json").write_text("{")
    for job in (done, broken):
        (runs.path(job.id) / "resume.state").touch()
    tally = run(_Engine(None, None))

    assert [runs.saved(job.id) for job in (done, broken)] == [False, True]
    assert (tally.done, tally.had_record, tally.ok) == (2, 1, False)
    assert str(tally) == "2 jobs done, 1 had a record, 0 failed, 1 broken"


def test_a_stopped_run_counts_what_was_not_started(recipe, data_dir, runs, prepare):
    prepare("synthetic", KEYS)

    class Stopping(_Engine):
        def run(self, queue, *, slots, on_event):  # noqa: ARG002
            request = queue.take()
            queue.stop()
            yield from queue.settle(Outcome(request=request, state="interrupted", why="stopped"))

    plan = make_plan(recipe, data_dir=data_dir, runs=runs)
    tally = run_plan(plan, Stopping(), runs=runs, on_event=print, on_outcome=print)
    assert (tally.interrupted, tally.not_started, tally.failed) == (1, 3, ())
    assert not tally.stopped, "the caller knows who stopped it"


def test_a_stale_record_is_replaced_when_its_job_starts(recipe, data_dir, runs, prepare, finish):
    fingerprint = prepare("synthetic", KEYS)
    first = recipe.job_specs()[0].bind(fingerprint)
    finish(first, device_kind="cuda")
    plan = make_plan(recipe, data_dir=data_dir, runs=runs, retrain_stale=True)
    engine = _Engine(*["out of luck"] * 4)
    run_plan(plan, engine, runs=runs, on_event=print, on_outcome=print)
    assert engine.requests[0].job == first
    assert runs.replaced() == [runs.folder / ".replaced" / f"{first.id}-1"]


def test_without_data_no_engine_is_asked_and_no_folder_is_made(run, runs):
    with pytest.raises(DataError, match="no data set of this recipe is prepared"):
        run(_Engine())

    assert not runs.folder.exists()


def test_a_folder_of_runs_that_cannot_be_made_is_an_environment_fault(run, prepare, tmp_path):
    prepare("synthetic", KEYS)
    (tmp_path / "file").touch()

    with pytest.raises(EnvironmentFault, match="file"):
        run(_Engine(), runs=Runs(tmp_path / "file" / "runs"))


def test_limits_of_a_user_are_in_hours_and_those_of_a_queue_in_seconds(
    recipe, data_dir, runs, prepare, monkeypatch
):
    prepare("synthetic", KEYS)
    plan, given = make_plan(recipe, data_dir=data_dir, runs=runs), {}
    done = run_plan(
        plan,
        _Engine("skipped", "skipped", "skipped", "skipped"),
        runs=runs,
        on_event=id,
        on_outcome=id,
    )

    def run(_plan, _engine, **options):
        given.update(options)
        return done

    monkeypatch.setattr("prime_bench.api.execution.run_plan", run)
    limits = {"max_hours": 1.5, "retries": 2, "fail_fast": True}
    api.run(plan, engine=_Engine(), keep_predictions=True, **limits)
    assert given["limits"] == Limits(retries=2, fail_fast=True, max_s=5400.0)
    assert given["keep_predictions"] is True
    assert given["runs"].folder == runs.folder

    api.run(plan, engine=_Engine())
    assert given["limits"] == Limits(retries=0, fail_fast=False, max_s=None)
    assert given["keep_predictions"] is False


@pytest.mark.parametrize("flag", ["mixed_devices", "sync_data"])
def test_every_option_reaches_the_engine_of_a_cluster(monkeypatch, flag):
    class Seen:
        def __init__(self, **options):
            self.options = options

    monkeypatch.setitem(
        sys.modules, "prime_bench.schedule.cluster", SimpleNamespace(RayEngine=Seen)
    )
    defaults = {
        **{"address": "auto", "device": "auto", "slots": None, "threads": 1, "nodes": None},
        **{"job_timeout_s": None, "node_timeout_s": 0, "mixed_devices": False, "sync_data": False},
    }
    options = {
        **{"address": "host:6379", "device": "cuda", "slots": 3, "threads": 2, "nodes": "a=b"},
        **{"job_timeout_s": 90.0, "node_timeout_s": 7.0, flag: True},
    }
    assert open_engine("ray", **options).options == defaults | options
    assert open_engine("ray").options == defaults


def test_what_measures_has_every_core_and_one_device_to_itself(monkeypatch):
    two = [Device(name="cuda:0", label=f"cuda:{n}") for n in (0, 1)]
    monkeypatch.setattr("prime_bench.schedule.devices.find_devices", lambda _text: two)
    monkeypatch.setattr("prime_bench.base.machine.cores", lambda: 12)
    engine = measuring_engine("auto")

    assert engine.devices == two[:1]
    slots = engine.slots_for([], n_jobs=9)
    assert (slots.on_each, slots.total, slots.threads) == (1, 1, 12)


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("slurm", {}, "no engine `slurm`"),
        ("local", {"slots": 0}, "slots: at least 1 is wanted, got 0"),
        ("local", {"slots": 1.5}, "slots: at least 1 is wanted, got 1.5"),
        ("local", {"threads": -1}, "threads: at least 1 is wanted, got -1"),
        ("local", {"job_timeout_s": 0}, "job_timeout_s: more than 0 is wanted, got 0"),
        (
            "ray",
            {"job_timeout_s": float("nan")},
            "job_timeout_s: more than 0 is wanted, got nan",
        ),
    ],
)
def test_an_engine_that_cannot_be_is_a_usage_error(name, options, said):
    with pytest.raises(UsageError) as caught:
        open_engine(name, device="cpu", **options)
    assert caught.value.message == said
    assert caught.value.hint == ("engines: local, ray" if name == "slurm" else "")


class _Stoppable:
    """Counts how often it was stopped."""

    stops = 0

    def stop(self):
        self.stops += 1


@pytest.fixture
def handler():
    """The caller's own handler of the signals that stop a run. Runs of earlier tests have put back
    what they found or not, which a comparison with what is there now would not show.
    """

    def handler(_number, _frame): ...

    found = {number: signal.signal(number, handler) for number in (signal.SIGINT, signal.SIGTERM)}
    yield handler
    for number, earlier in found.items():
        signal.signal(number, earlier)


@pytest.mark.parametrize("first", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_stops_the_engine_and_the_second_interrupts(first, handler):
    engine, told = _Stoppable(), []
    with stopping_gently(engine, lambda: told.append(engine.stops)) as received:
        assert received == []
        signal.raise_signal(first)
        assert (received, engine.stops, told) == ([first], 1, [0])
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
    assert (received, engine.stops, told) == ([first], 1, [0])
    assert {signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)} == {handler}


def test_without_an_engine_or_in_another_thread_signals_are_left_alone():
    before, seen = signal.getsignal(signal.SIGINT), []

    def look(engine):
        with stopping_gently(engine, None) as received:
            seen.append((received, signal.getsignal(signal.SIGINT)))

    look(None)
    other = threading.Thread(target=look, args=(_Stoppable(),))
    other.start()
    other.join()
    assert seen == [([], before)] * 2


def test_a_summary_counts_what_there_was_and_names_nothing_else(recipe):
    plan = SimpleNamespace(counts={}, broken=[], unfit=[], recipe=recipe)
    none = dict.fromkeys(("done", "skipped", "interrupted", "not_started"), 0)
    empty = RunSummary(plan=plan, **none, failed=(), not_run=(), stopped=False)
    assert str(empty) == "0 jobs done, 0 had a record, 0 failed"
    assert repr(empty) == f"RunSummary(small: {empty})"
    assert empty.ok

    plan.counts = {"done": 2, "unfit": 3}
    plan.broken, plan.unfit = ["x"] * 4, ["y"]
    one = Outcome(request=None)
    counts = {"done": 1, "failed": (one,) * 5, "not_run": (one,) * 6, "skipped": 7}
    full = replace(empty, **counts, interrupted=8, not_started=9)
    assert str(full) == (
        "1 job done, 2 had a record, 5 failed, 4 broken, 3 unfit, 6 not run, "
        "7 left to another process, 8 interrupted, 9 not started"
    )


@pytest.mark.parametrize("left", ["broken", "unfit"])
def test_a_plan_with_jobs_that_cannot_run_is_not_ok(recipe, left):
    plan = SimpleNamespace(**{"counts": {}, "broken": [], "unfit": [], left: ["x"]}, recipe=recipe)
    none = dict.fromkeys(("done", "skipped", "interrupted", "not_started"), 0)
    assert not RunSummary(plan=plan, **none, failed=(), not_run=(), stopped=False).ok
    # Jobs of other processes are theirs.
    plan.broken = plan.unfit = []
    assert RunSummary(plan=plan, **none | {"skipped": 1}, failed=(), not_run=(), stopped=True).ok

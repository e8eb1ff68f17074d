"""What a queue hands out, when, and what it gives back as final."""

import threading

import pytest

from prime_bench.schedule.engine import Limits, Outcome, Queue, Work, by_record


@pytest.fixture
def record(runs):
    """Let a request's job have a record."""

    def record(request):
        folder = runs.path(request.job.id)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "record.json").touch()

    return record


@pytest.fixture
def chain(request_of, runs):
    """Requests 1, 2 and 3, of which 2 needs 1, in a queue."""

    def chain(**limits):
        first, second, third = (request_of(number) for number in (1, 2, 3))
        works = [
            Work(request=first),
            Work(request=second, needs=(first.job.id,)),
            Work(request=third),
        ]
        return Queue(works, runs=runs, limits=Limits(**limits)), [first, second, third]

    return chain


def _fail(queue, request, why="out of luck"):
    return queue.settle(Outcome(request=request, state="failed", why=why))


def test_requests_come_in_order_and_then_none(request_of, queue_of):
    requests = [request_of(number) for number in (3, 1, 2)]
    queue = queue_of(*requests)

    assert [queue.take() for _ in range(4)] == [*requests, None]
    assert not queue.open
    assert queue.left == []


def test_a_job_waits_for_what_it_needs(chain, record):
    queue, (first, second, third) = chain()

    assert queue.take() == first
    assert queue.take() == third, "the second waits, and holds up nobody"
    assert queue.take(wait=False) is None
    assert queue.open
    record(first)
    assert queue.take(wait=False) is None, "a record that its worker has just written"
    queue.settle(Outcome(request=first))
    assert queue.take(wait=False) == second
    assert not queue.open


def test_a_thread_that_waits_is_woken_by_the_end_of_what_it_waits_for(chain, record):
    queue, (first, second, _) = chain()
    queue.take(), queue.take()
    taken = []
    thread = threading.Thread(target=lambda: taken.append(queue.take()))
    thread.start()

    record(first)
    queue.settle(Outcome(request=first))
    thread.join(timeout=10)
    assert taken == [second]


def test_what_needs_a_failed_job_is_not_run_and_says_why(chain):
    queue, (first, second, _) = chain()
    queue.take()

    failed, stranded = _fail(queue, first)
    assert (failed.state, failed.why) == ("failed", "out of luck")
    assert stranded.request == second
    assert stranded.state == "not run"
    assert stranded.why == f"needs the job {first.job.id}, which failed"
    assert queue.take() is not None
    assert queue.take() is None


def test_what_another_process_has_strands_its_dependents_unless_it_is_done(chain, record):
    queue, (first, second, _) = chain()
    queue.take()
    _, stranded = queue.settle(Outcome(request=first, state="skipped", why="another has it"))
    assert stranded.why.endswith("is with another process")

    record(first)
    queue, (first, second, _) = chain()
    queue.take()
    assert len(queue.settle(Outcome(request=first, state="skipped"))) == 1
    assert queue.take() == second


def test_a_need_that_nobody_does_keeps_nobody_waiting(request_of, runs):
    queue = Queue([Work(request=request_of(1), needs=("0" * 16,))], runs=runs)

    assert not queue.open
    assert queue.take() is None
    assert len(queue.left) == 1


def test_a_failed_job_is_tried_again_after_the_others(request_of, queue_of):
    one, two = request_of(1), request_of(2)
    queue = queue_of(one, two, retries=1)

    queue.take()
    assert _fail(queue, one) == []
    assert queue.take() == two
    assert queue.take() == one
    assert [outcome.state for outcome in _fail(queue, one)] == ["failed"]
    assert queue.take() is None


def test_every_retry_is_given_before_fail_fast_stops_the_queue(request_of, queue_of):
    one, two, three = (request_of(number) for number in (1, 2, 3))
    queue = queue_of(one, two, three, retries=2, fail_fast=True)
    assert (queue.take(), queue.take(), queue.take()) == (one, two, three)

    for _ in range(2):
        assert _fail(queue, one) == []
        assert not queue.stopped
        assert queue.take() == one
    assert [outcome.state for outcome in _fail(queue, one)] == ["failed"]
    assert queue.stopped
    assert [outcome.state for outcome in _fail(queue, two)] == ["failed"], "its retries are lost"


def test_a_caller_gets_the_first_job_that_it_can_do(request_of, queue_of):
    one, two = request_of(1), request_of(2)
    queue = queue_of(one, two)

    assert queue.take(wait=False, fits=lambda request: request == two) == two
    assert queue.take(wait=False, fits=lambda _request: False) is None
    assert queue.open
    assert queue.take() == one


def test_what_needs_an_interrupted_job_is_left_for_the_next_run(chain):
    queue, (first, second, third) = chain()
    queue.take()
    stopped = Outcome(request=first, state="interrupted", why="stopped at a checkpoint")

    assert queue.settle(stopped) == [stopped]
    assert [work.request for work in queue.left] == [second, third]


@pytest.mark.parametrize(
    ("state", "has_record", "expected", "why"),
    [
        ("done", True, "done", "as told"),
        ("done", False, "failed", "the worker left no record"),
        ("failed", True, "done", ""),
        ("failed", False, "failed", "as told"),
        ("interrupted", True, "done", ""),
        ("interrupted", False, "interrupted", "as told"),
        ("skipped", True, "skipped", "as told"),
        ("skipped", False, "skipped", "as told"),
    ],
)
def test_a_record_decides_over_what_a_worker_says(
    request_of, runs, record, state, has_record, expected, why
):
    request = request_of(1)
    if has_record:
        record(request)
    told = Outcome(request=request_of(2), state=state, why="as told", out_of_memory=True)
    outcome = by_record(told, request, runs)

    assert (outcome.request, outcome.state, outcome.why) == (request, expected, why)
    assert outcome.out_of_memory == (why != "")


def test_a_retry_that_does_well_lets_its_dependents_run(chain, record):
    queue, (first, second, third) = chain(retries=1)
    assert (queue.take(), queue.take()) == (first, third)

    assert _fail(queue, first) == []
    assert queue.take() == first
    record(first)
    queue.settle(Outcome(request=first))
    assert queue.take() == second


def test_fail_fast_hands_out_no_more(request_of, queue_of):
    one, two, three = (request_of(number) for number in (1, 2, 3))
    queue = queue_of(one, two, three, fail_fast=True)
    queue.take(), queue.take()

    _fail(queue, one)
    assert queue.stopped
    assert queue.take() is None
    assert [outcome.state for outcome in queue.settle(Outcome(request=two))] == ["done"]
    assert [work.request for work in queue.left] == [three]


def test_no_time_left_hands_out_no_more(request_of, queue_of, monkeypatch):
    now = [100.0]
    monkeypatch.setattr("prime_bench.schedule.engine.time.monotonic", lambda: now[0])
    queue = queue_of(*(request_of(number) for number in (1, 2, 3)), max_s=60)

    assert queue.take() is not None
    now[0] += 59
    assert queue.take() is not None
    now[0] += 1
    assert queue.take() is None
    assert len(queue.left) == 1


def test_a_stop_hands_out_no_more_and_wakes_who_waits(chain):
    queue, _ = chain()
    queue.take(), queue.take()
    taken = []
    thread = threading.Thread(target=lambda: taken.append(queue.take()))
    thread.start()

    queue.stop()
    thread.join(timeout=10)
    assert taken == [None]
    assert len(queue.left) == 1


def test_a_stopped_queue_tries_nothing_again(request_of, queue_of):
    one, two = request_of(1), request_of(2)
    queue = queue_of(one, two, retries=5)
    queue.take()
    queue.stop()

    assert [outcome.state for outcome in _fail(queue, one)] == ["failed"]
    assert queue.take() is None, "a failure without `fail_fast` does not undo the stop"


def test_what_is_put_back_is_the_next_one(request_of, queue_of):
    one, two = request_of(1), request_of(2)
    queue = queue_of(one, two)

    queue.take()
    queue.put_back(one)
    assert [queue.take(), queue.take(), queue.take()] == [one, two, None]


def test_a_record_that_is_done_again_is_put_aside_when_its_job_starts(request_of, runs, finish):
    request = request_of(1)
    finish(request.job)
    needs_it = Work(request=request_of(2), needs=(request.job.id,))
    replaces = runs.find(request.job.id)
    queue = Queue([Work(request=request, replaces=replaces), needs_it], runs=runs)

    assert queue.take() == request
    assert not runs.done(request.job.id)
    assert (runs.folder / ".replaced" / f"{request.job.id}-1" / "record.json").is_file()
    assert queue.take(wait=False) is None, "the old record is not what the other job needs"


@pytest.mark.parametrize("now", ["done again", "broken"])
def test_a_record_that_is_not_the_planned_one_stays(request_of, runs, finish, now):
    """Another process has done the job again since this one planned to."""
    request = request_of(1)
    finish(request.job, device_kind="cuda")
    planned = runs.find(request.job.id)
    file = runs.path(request.job.id) / "record.json"
    if now == "broken":
        file.write_text("{")
    else:
        finish(request.job, device_kind="cpu")
    found = file.read_bytes()
    queue = Queue([Work(request=request, replaces=planned)], runs=runs)

    assert queue.take() == request, "the engine skips a job that has a record"
    assert file.read_bytes() == found
    assert runs.replaced() == []


def _lack_memory(queue, request):
    return queue.settle(
        Outcome(request=request, state="failed", why="out of memory", out_of_memory=True)
    )


def test_after_a_lack_of_memory_a_device_gets_fewer_jobs_at_once(request_of, queue_of):
    requests = [request_of(number) for number in range(4)]
    queue = queue_of(*requests)
    taken = [queue.take(device="cuda:0") for _ in range(3)]

    assert _lack_memory(queue, taken[0]) == [], "it is tried again, whatever the retries"
    assert queue.at_once("cuda:0") == 2
    assert queue.take(device="cuda:0") is None, "two are at work there"
    assert queue.take(device="cuda:1") == requests[0], "another device takes it, first of all"
    assert queue.at_once("cuda:1") is None


def test_jobs_that_failed_together_cost_one_slot_and_not_one_each(request_of, queue_of):
    queue = queue_of(*(request_of(number) for number in range(8)))
    taken = [queue.take(device="cuda:0") for _ in range(8)]
    for request in taken:
        assert _lack_memory(queue, request) == []

    assert queue.at_once("cuda:0") == 7
    assert sum(queue.take(device="cuda:0") is not None for _ in range(9)) == 7


def test_a_job_that_had_the_device_to_itself_has_failed(request_of, queue_of):
    queue = queue_of(request_of(1), request_of(2))
    alone = queue.take(device="cuda:0")
    queue.take(device="cuda:1")

    (outcome,) = _lack_memory(queue, alone)
    assert outcome.state == "failed"


def test_a_job_that_others_have_left_meanwhile_is_tried_alone(request_of, queue_of):
    queue = queue_of(request_of(1), request_of(2))
    first, second = (queue.take(device="cuda:0") for _ in range(2))
    queue.settle(Outcome(request=second))

    assert _lack_memory(queue, first) == []
    assert queue.take(device="cuda:0") == first
    (outcome,) = _lack_memory(queue, first)
    assert outcome.state == "failed"


def test_a_lack_of_memory_does_not_count_as_a_retry(request_of, queue_of):
    queue = queue_of(request_of(1), request_of(2), retries=1)
    first, second = (queue.take(device="cuda:0") for _ in range(2))
    assert _lack_memory(queue, first) == []
    assert _fail(queue, second) == [], "its one retry"
    assert queue.take(device="cuda:0") == first
    assert _fail(queue, first) == [], "its one retry"


def test_the_number_at_once_follows_from_what_a_job_has_shared_and_only_falls(request_of, queue_of):
    queue = queue_of(*(request_of(number) for number in range(6)))
    *ended, fourth, fifth = (queue.take(device="cuda:0") for _ in range(5))
    for request in ended:
        queue.settle(Outcome(request=request))
    late = queue.take(device="cuda:0")

    assert _lack_memory(queue, fourth) == []
    assert queue.at_once("cuda:0") == 4, "it was there with four others, who may not have fitted"
    assert _lack_memory(queue, late) == []
    assert queue.at_once("cuda:0") == 2, "it was there with two others"
    assert _lack_memory(queue, fifth) == []
    assert queue.at_once("cuda:0") == 2


def test_jobs_on_another_device_take_no_place_on_this_one(request_of, queue_of):
    queue = queue_of(*(request_of(number) for number in range(6)))
    first, second, _ = (queue.take(device="cuda:0") for _ in range(3))
    _lack_memory(queue, first)
    queue.settle(Outcome(request=second))
    assert queue.at_once("cuda:0") == 2

    assert all(queue.take(device="cuda:1") is not None for _ in range(2))
    assert queue.take(device="cuda:0") is not None, "one of two is at work there"
    assert queue.take(device="cuda:0") is None


def test_a_stopped_queue_tries_no_job_with_fewer_at_once(request_of, queue_of):
    queue = queue_of(request_of(1), request_of(2))
    first, _ = (queue.take(device="cuda:0") for _ in range(2))
    queue.stop()

    assert [outcome.state for outcome in _lack_memory(queue, first)] == ["failed"]
    assert queue.at_once("cuda:0") is None


def test_the_retry_of_a_job_that_had_the_device_to_itself_names_no_device(request_of, queue_of):
    """There are no fewer jobs at once than one: `at most None jobs` was said."""
    queue = queue_of(request_of(1), retries=1)
    request = queue.take(device="cuda:0")
    assert _lack_memory(queue, request) == [], "its retry"
    lacking = Outcome(request=request, state="failed", why="why", out_of_memory=True)
    event = queue.retry_event(lacking, device="cuda:0")

    assert (event.device, event.at_once) == (None, None)


def test_a_retry_names_a_device_only_where_its_memory_did_not_suffice(request_of, queue_of):
    queue = queue_of(*(request_of(number) for number in range(3)))
    request, *_ = (queue.take(device="cuda:0") for _ in range(3))
    _lack_memory(queue, request)

    for lacking, expected in ((True, ("cuda:0", 2)), (False, (None, None))):
        outcome = Outcome(request=request, state="failed", why="why", out_of_memory=lacking)
        event = queue.retry_event(outcome, device="cuda:0")
        assert (event.device, event.at_once) == expected
        assert (event.job_id, event.error) == (request.job.id, "why")

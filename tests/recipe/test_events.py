"""Events of a worker: each comes back from its line as it was, and no other line is an event."""

import os
import re
import typing

import pydantic
import pytest

from prime_bench.findings import Score, Validation
from prime_bench.recipe import events

VALIDATION = Validation(
    epoch=3,
    step=30,
    learning_rate=1e-3,
    train_loss=None,
    valid_auc=0.1 + 0.2,
    valid_logloss=0.45,
    improved=True,
    wall_s=12.5,
)
PROGRESS = events.EpochProgress(epoch=1, rows=10, rows_total=20, rows_per_s=1234.5)
SCORE = Score(auc=0.75, logloss=0.4)
EVENTS = [
    events.ResumedEvent(job_id="j", epoch=2),
    events.RestartedEvent(job_id="j", reason="torch was 2.6.0, is 2.7.0"),
    events.ProgressEvent(job_id="j", progress=PROGRESS),
    events.EpochEvent(job_id="j", validation=VALIDATION),
    events.DoneEvent(job_id="j", wall_s=1.5),
    events.DoneEvent(job_id="j", wall_s=1.5, valid=SCORE, test=SCORE, degenerate="AUC 0.5"),
    events.SkippedEvent(job_id="j"),
    events.FailedEvent(job_id=None, error="a line\nand \x85 another"),
    events.InterruptedEvent(job_id="j"),
    events.FaultEvent(job_id="j", error="no device", hint="use cpu", exit_code=4),
    events.CheckedEvent(faults=[("no table", "copy it")], torch="2.13.0+cpu", device="a CPU"),
    events.StartedEvent(job_id="j", where="host (node 1234abcd)"),
    events.MachineEvent(where="host (node 1234abcd)", state="set aside", why="no table"),
    events.RetryEvent(job_id="j", error="out of memory"),
]


def test_every_event_is_in_the_list():
    union, _ = typing.get_args(events.WorkerEvent)
    assert {type(event) for event in EVENTS} == set(typing.get_args(union))
    assert len({event.event for event in EVENTS}) == len(EVENTS) - 1


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.event)
def test_an_event_is_one_line_and_comes_back_as_it_was(event):
    line = events.write_event(event)

    assert line.endswith("\n")
    assert line.count("\n") == 1
    assert events.read_event(line) == event


@pytest.mark.parametrize(
    "line",
    [
        *("", "\n", "Loading data ...", "3", "[]", "null", "{}", '{"job_id": "j"}'),
        '{"event": "over", "job_id": "j"}',
        '{"event": "done", "job_id": "j"}',
        '{"event": "skipped", "job_id": 3}',
        '{"event": "skipped", "job_id": "j", "more": 1}',
        '{"event": "skipped", "job_id": "j"',
    ],
)
def test_other_lines_are_no_events(line):
    assert events.read_event(line) is None


def test_a_message_may_quote_the_name_of_a_file_that_is_no_unicode():
    event = events.FailedEvent(job_id="j", error=f"{os.fsdecode(bytes([255]))}: no such file")

    assert event.error == "\\udcff: no such file"
    assert events.read_event(events.write_event(event)) == event


def test_numbers_that_are_not_finite_cannot_be_sent():
    with pytest.raises(pydantic.ValidationError):
        events.DoneEvent(job_id="j", wall_s=float("nan"))


def test_a_line_with_a_key_is_an_event_with_that_key_alone():
    event = events.SkippedEvent(job_id="j")
    line = events.write_event(event, key="k1")

    assert events.read_event(line, key="k1") == event
    assert events.read_event(line) is None
    assert events.read_event(line, key="k") is None
    assert events.read_event(events.write_event(event), key="k1") is None


@pytest.mark.parametrize("letter", ["x", "Δ", "\udc80"])
def test_a_long_message_is_cut_once_and_says_how_long_it_was(letter):
    error = events.FailedEvent(job_id="j", error=letter * 10_000_000).error

    assert len(error) == events.MESSAGE_CHARACTERS
    assert error.startswith(letter.encode(errors="backslashreplace").decode())
    assert re.search(r" \[\.\.\. 10,\d\d\d,\d\d\d characters\]$", error)
    assert events.FailedEvent(job_id="j", error=error).error == error

"""Which records of another source stand in for a job, and what is said of them."""

import pytest

from prime_bench.recipe.job import Job
from prime_bench.settings.training import TrainSpec
from prime_bench.store.source_versions import (
    counted_by_class,
    exist_text,
    latest_codes,
    other_versions,
)


@pytest.fixture
def record(plain_record):
    """A record of Gate on Net, of these versions of their sources."""

    def record(gate, net="1", *, day=1, seed=1, plugin="a:Gate"):
        code = {"a:Net": net * 64} | ({plugin: gate * 64} if plugin != "dense" else {})
        job = Job(
            fingerprint="f" * 64,
            backbone="a:Net",
            backbone_settings={},
            plugin=plugin,
            plugin_settings={},
            training=TrainSpec(),
            seed=seed,
            code=code,
        )
        return plain_record(job, environment={"started": f"2026-01-0{day}T00:00:00Z"})

    return record


WANTED = {"a:Gate": "3" * 64, "a:Net": "1" * 64}


def test_a_record_counts_as_the_job_of_the_wanted_source(record):
    old = record("2")
    (other,) = other_versions([old], WANTED)

    assert (other.record, other.names) == (old, ("a:Gate",))
    assert other.counted.job.code == WANTED
    assert other.counted.job.id == record("3").job.id
    assert other.counted.job_id == old.job_id


def test_a_record_of_the_wanted_source_leaves_no_room_for_others(record):
    assert other_versions([record("3"), record("2")], WANTED) == []
    assert other_versions([record("3", seed=2)], WANTED) == []


@pytest.mark.parametrize("order", [1, -1])
def test_of_several_that_could_stand_in_the_last_one_does(record, order):
    records = [record("1", day=2), record("2", day=1)]
    (other,) = other_versions(records[::order], WANTED)
    assert other.record == records[0]
    assert latest_codes(records[::order]) == {"a:Gate": "1" * 64, "a:Net": "1" * 64}


def test_of_classes_that_nobody_asks_for_the_source_stays(record):
    other = record("2", plugin="a:Other")
    assert other_versions([other], {"a:Gate": "3" * 64}) == []
    (found,) = other_versions([other], {"a:Net": "5" * 64})
    assert found.counted.job.code == {"a:Net": "5" * 64, "a:Other": "2" * 64}
    assert found.names == ("a:Net",)


def test_records_are_counted_by_the_classes_that_differ(record):
    others = other_versions(
        [
            record("2", "9"),
            record("2", seed=2),
            record("1", seed=3),
            record("", seed=4, plugin="dense"),
        ],
        WANTED,
    )
    counts = counted_by_class(others)
    assert counts == {"a:Gate` and `a:Net": 1, "a:Gate": 2}
    assert exist_text(counts, then="shows them") == [
        "2 records of an earlier version of `a:Gate` exist; `--accept-source` shows them",
        "1 record of an earlier version of `a:Gate` and `a:Net` exists; `--accept-source` "
        "shows them",
    ]

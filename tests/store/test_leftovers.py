from pathlib import Path

import pytest

from prime_bench.store.leftovers import leftovers, remove
from prime_bench.store.runs import FAILURE, RECORD, STATE, Runs

DONE, BUSY, FAILED, STOPPED = ("d" * 16, "b" * 16, "f" * 16, "5" * 16)


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    """A job of each state, with a saved state and an incomplete file."""
    for job_id in (DONE, BUSY, FAILED, STOPPED):
        folder = tmp_path / job_id
        folder.mkdir()
        (folder / STATE).write_bytes(b"1234")
        (folder / ".part-x").write_bytes(b"12")
    (tmp_path / DONE / RECORD).write_text("{}")
    (tmp_path / FAILED / FAILURE).write_text('{"error": "no reason"}')
    old = tmp_path / ".replaced" / f"{DONE}-1"
    old.mkdir(parents=True)
    (old / RECORD).write_bytes(b"123456")
    (tmp_path / "notes").mkdir()  # the user's own
    return Runs(tmp_path)


def named(runs: Runs, *, unfinished: bool) -> dict[str, int]:
    found = leftovers(runs, unfinished=unfinished)
    return {str(item.path.relative_to(runs.folder)): item.n_bytes for item in found}


def test_what_goes_leaves_everything_that_a_job_may_need(runs: Runs) -> None:
    with Runs(runs.folder).claim(BUSY):
        assert named(runs, unfinished=False) == {
            f".replaced/{DONE}-1": 6,
            f"{DONE}/{STATE}": 4,
            f"{DONE}/.part-x": 2,
            f"{FAILED}/.part-x": 2,
            f"{STOPPED}/.part-x": 2,
        }


def test_unfinished_jobs_are_removed_except_running_ones(runs: Runs) -> None:
    with Runs(runs.folder).claim(BUSY):
        found = named(runs, unfinished=True)
    assert found[FAILED] > 0
    assert found[STOPPED] == 6
    assert BUSY not in found


def test_removing_takes_what_was_listed_and_nothing_else(runs: Runs) -> None:
    for leftover in list(leftovers(runs, unfinished=True)):
        assert remove(leftover, runs)
    left = {
        str(path.relative_to(runs.folder))
        for path in runs.folder.rglob("*")
        if ".claims" not in path.parts
    }
    assert left == {"notes", ".replaced", DONE, f"{DONE}/{RECORD}"}
    assert list(leftovers(runs, unfinished=True)) == []


def test_a_job_that_was_claimed_meanwhile_keeps_its_files(runs: Runs) -> None:
    found = [item for item in leftovers(runs, unfinished=True) if item.job_id == STOPPED]
    with Runs(runs.folder).claim(STOPPED):
        assert not remove(found[0], runs)
    assert (runs.path(STOPPED) / STATE).is_file()


def test_a_folder_that_is_not_there_has_no_leftovers(tmp_path: Path) -> None:
    assert list(leftovers(Runs(tmp_path / "none"), unfinished=True)) == []


def test_a_job_of_which_nobody_can_tell_whether_it_runs_keeps_its_files(runs: Runs) -> None:
    (runs.folder / ".claims" / f"{STOPPED}.lock").mkdir(parents=True)
    assert not [name for name in named(runs, unfinished=True) if name.startswith(STOPPED)]


def test_each_leftover_says_what_it_is_and_which_job_to_claim_first(runs: Runs) -> None:
    found = {
        str(item.path.relative_to(runs.folder)): (item.why, item.job_id)
        for item in leftovers(runs, unfinished=True)
    }
    part = "an incomplete file of a process that was killed"
    assert found == {
        f".replaced/{DONE}-1": ("a record that was replaced by a newer one", None),
        f"{DONE}/{STATE}": ("saved state of a job that is done", DONE),
        f"{DONE}/.part-x": (part, DONE),
        FAILED: ("failed", FAILED),
        STOPPED: ("interrupted", STOPPED),
        BUSY: ("interrupted", BUSY),
    }


def test_a_folder_with_what_is_no_file_of_a_job_stays(runs: Runs) -> None:
    (runs.path(STOPPED) / "config.json").mkdir()
    assert {name for name in named(runs, unfinished=True) if name.startswith(STOPPED)} == {
        f"{STOPPED}/.part-x"
    }


def test_of_a_folder_the_bytes_of_all_files_count(runs: Runs) -> None:
    (runs.path(STOPPED) / "more").mkdir()
    (runs.path(STOPPED) / "more" / "x").write_bytes(b"123")
    assert named(runs, unfinished=True)[STOPPED] == 4 + 2 + 3

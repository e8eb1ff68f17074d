import json
from pathlib import Path

import pytest

from prime_bench.cli.main import exit_code
from prime_bench.store.runs import RECORD, STATE


@pytest.fixture
def runs_dir(tmp_path: Path) -> Path:
    """A done job with a saved state that is no longer needed."""
    folder = tmp_path / "runs" / ("d" * 16)
    folder.mkdir(parents=True)
    (folder / RECORD).write_text("{}")
    (folder / STATE).write_bytes(b"1234")
    return tmp_path / "runs"


def test_without_yes_nothing_is_deleted(runs_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(["clean", "--runs-dir", str(runs_dir)]) == 0
    printed = capsys.readouterr()
    assert f"{STATE}: 1 kB, saved state of a job that is done" in printed.out
    assert "nothing was removed: add --yes" in printed.err
    assert list(runs_dir.rglob(STATE)) != []


def test_with_yes_it_is_deleted_and_the_record_stays(
    runs_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(["clean", "--runs-dir", str(runs_dir), "--yes", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(item["bytes"], item["removed"]) for item in found["leftovers"]] == [(4, True)]
    assert list(runs_dir.rglob(STATE)) == []
    assert len(list(runs_dir.rglob(RECORD))) == 1


def test_with_nothing_but_unfinished_jobs_the_option_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / ("e" * 16)).mkdir()
    assert exit_code(["clean", "--runs-dir", str(tmp_path)]) == 0
    printed = capsys.readouterr()
    assert printed.out == "0 to remove, 0 MB\n"
    assert printed.err == "1 folder of failed or interrupted jobs: --unfinished names them\n"


def test_a_clean_folder_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(["clean", "--runs-dir", str(tmp_path)]) == 0
    assert capsys.readouterr().out == "0 to remove, 0 MB\n"

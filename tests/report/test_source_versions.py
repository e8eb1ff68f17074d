"""Reports after an edit of a user's own class: never a silent gap, and a choice to show them."""

import random
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from prime_bench import api
from prime_bench.base.errors import DataError
from prime_bench.cli.main import exit_code
from prime_bench.data.manifest import resolve
from prime_bench.recipe.file import load_recipe
from prime_bench.report.view import ReportView
from prime_bench.store.record import RunRecord
from prime_bench.store.runs import Runs

RECIPE = """
schema = 1
title = "Own"
seeds = [1, 2, 3]
arms = ["dense", "gate"]
[arm.gate]
plugin = "own_mod:Gate"
label = "Our gate"
[dataset.synthetic]
[backbone.DNN]
"""
EXIST = "records of an earlier version of `own_mod:Gate` exist; `--accept-source` shows them"

Edit = Callable[[int], None]
Put = Callable[..., dict[tuple[str, int], str]]


@pytest.fixture
def put(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    own_class: Edit,
    plain_record: Callable[..., RunRecord],
) -> Put:
    """Put records of the recipe's jobs under the source as it is now; their ids by arm and seed."""
    monkeypatch.chdir(tmp_path)
    Path("own.toml").write_text(RECIPE)
    scores = random.Random(3)
    own_class(1)

    def put(*seeds: int, day: int = 1) -> dict[tuple[str, int], str]:
        made = {}
        for job_spec in load_recipe("own.toml").job_specs():
            if job_spec.seed in seeds:
                record = plain_record(
                    job_spec.bind("f" * 64),
                    dataset="synthetic",
                    arm=job_spec.arm.name,
                    data_variant=resolve("synthetic", {}).digest,
                    pairing={"initial_weights": f"{job_spec.seed}"},
                    result={"test": {"auc": scores.uniform(0.7, 0.8), "logloss": 0.4}},
                    environment={"started": f"2026-01-{day:02}T00:00:00Z"},
                )
                if not Runs(Path("runs")).done(record.job_id):
                    Runs(Path("runs")).put(record)
                made[job_spec.arm.name, job_spec.seed] = record.job_id
        return made

    return put


def source_notes(view: ReportView) -> list[str]:
    return [str(note.parts[0]) for note in view.report.tables[0].notes if note.kind == "source"]


def jobs_of(view: ReportView) -> set[str]:
    return set(view.report.tables[0].jobs)


def test_hidden_records_are_named_and_shown_on_request(put: Put, own_class: Edit) -> None:
    first = put(1, 2, 3)
    whole = api.report("own.toml")
    assert source_notes(whole) == []
    own_class(2)

    hidden = api.report("own.toml")
    shown = api.report("own.toml", accept_source=True)

    assert source_notes(hidden) == [f"3 {EXIST}"]
    assert jobs_of(hidden) == {job for (arm, _), job in first.items() if arm == "dense"}
    # The same numbers, and the jobs behind them are those that were run.
    assert shown.tables["main"].equals(whole.tables["main"])
    assert jobs_of(shown) == set(first.values())
    assert shown.report.record_digests == whole.report.record_digests
    assert source_notes(shown) == [
        "Of another version of own_mod:Gate (source 11111111, now 22222222), counted on request:"
        " synthetic DNN gate: 1, 2, 3"
    ]
    assert "records of another version of the source (3)" in shown.report.tables[0].caption
    assert "on request" not in hidden.report.tables[0].caption
    # The page shows each job as it was run.
    codes = {r.job_id: r.job.code for r in shown.report.records if r.job.code}
    assert codes == {first["gate", s]: {"own_mod:Gate": "1" * 64} for s in (1, 2, 3)}


def test_records_of_the_present_source_come_first(put: Put, own_class: Edit) -> None:
    first = put(1, 2, 3)
    own_class(2)
    second = put(2, day=2)

    shown = api.report("own.toml", accept_source=True)

    gates = {job for job in jobs_of(shown) if job not in {first["dense", s] for s in (1, 2, 3)}}
    assert gates == {first["gate", 1], second["gate", 2], first["gate", 3]}
    assert source_notes(shown)[0].endswith("synthetic DNN gate: 1, 3")
    assert source_notes(api.report("own.toml")) == [f"2 {EXIST}"]


def test_a_recipe_whose_every_record_is_hidden_says_so(put: Put, own_class: Edit) -> None:
    text = RECIPE.replace("[backbone.DNN]", '[backbone."own_mod:Net"]')
    put()  # changes into the folder
    Path("own.toml").write_text(text)
    put(1, 2, 3)
    own_class(2)

    with pytest.raises(DataError) as caught:
        api.report("own.toml")
    assert caught.value.hint == (
        "3 records of an earlier version of `own_mod:Gate` and `own_mod:Net` exist; "
        "`--accept-source` shows them; "
        "3 records of an earlier version of `own_mod:Net` exist; `--accept-source` shows them"
    )
    assert len(jobs_of(api.report("own.toml", accept_source=True))) == 6


def test_without_a_recipe_versions_are_arms_until_they_count_as_the_last(
    put: Put, own_class: Edit
) -> None:
    first = put(1, 2, 3)
    own_class(2)
    second = put(1, day=2)

    apart = api.report()
    together = api.report(accept_source=True)

    assert source_notes(apart) == []
    assert len(apart.report.blocks[0].layout.rows) == 1
    columns = [column for column in apart.tables["main"].columns if "code" in column]
    assert len({column.split("code ")[1][:8] for column in columns}) == 2
    assert {second["gate", 1], first["gate", 2], first["gate", 3]} <= jobs_of(together)
    assert source_notes(together)[0].endswith("synthetic DNN gate: 2, 3")


def test_frames_and_bundles_take_them_too(
    put: Put, own_class: Edit, capsys: pytest.CaptureFixture[str]
) -> None:
    first = put(1, 2, 3)
    own_class(2)

    with pytest.warns(UserWarning, match="3 records of an earlier version of `own_mod:Gate`"):
        assert len(api.records("own.toml")) == 3
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = api.records("own.toml", accept_source=True)
    assert set(found["job_id"]) == set(first.values())

    assert exit_code(["pack", "own.toml", "-o", "a.zip"]) == 0
    assert exit_code(["pack", "own.toml", "-o", "b.zip", "--accept-source"]) == 0
    with zipfile.ZipFile("a.zip") as few, zipfile.ZipFile("b.zip") as all_of_them:
        assert len(all_of_them.namelist()) == len(few.namelist()) + 3
        name = f"runs/{first['gate', 1]}/record.json"
        assert all_of_them.read(name) == Path(name).read_bytes()
    capsys.readouterr()
    assert exit_code(["report", "b.zip"]) == 0
    assert f"3 {EXIST}" in " ".join(capsys.readouterr().out.split())
    assert exit_code(["report", "b.zip", "--accept-source"]) == 0
    assert "counted on request" in " ".join(capsys.readouterr().out.split())

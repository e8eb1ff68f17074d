"""Records of several people in one report: what counts once, what is a conflict, whose is shown."""

import json
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from prime_bench import api
from prime_bench.base.errors import DataError, UsageError
from prime_bench.cli.main import exit_code
from prime_bench.data.manifest import resolve
from prime_bench.recipe.file import load_recipe
from prime_bench.report.request import ReportRequest
from prime_bench.report.sources import Conflict, conflict_text, read_sources
from prime_bench.report.view import ReportView
from prime_bench.store.record import RunRecord
from prime_bench.store.runs import Runs

RECIPE = """
schema = 1
title = "Two"
seeds = [1, 2]
arms = ["dense", "prime"]
[dataset.synthetic]
[backbone.DNN]
[backbone.DCNv2]
"""
Put = Callable[..., None]


@pytest.fixture
def put(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plain_record: Callable[..., RunRecord]
) -> Put:
    """Put records of the recipe's jobs, as one person made them, into a folder."""
    monkeypatch.chdir(tmp_path)
    Path("two.toml").write_text(RECIPE)

    def put(
        folder: str,
        *,
        only: tuple[str, ...] = (),
        changes: tuple[str, ...] = (),
        better: float = 0.0,
        more: Mapping[str, float] | None = None,
        wall_s: float = 1.0,
        **environment: str,
    ) -> None:
        recipe = load_recipe("two.toml", changes=changes)
        for job_spec in recipe.job_specs(only=only):
            auc = 0.7 + 0.01 * job_spec.seed + 0.002 * (job_spec.arm.name == "prime")
            record = plain_record(
                job_spec.bind("f" * 64),
                dataset="synthetic",
                arm=job_spec.arm.name,
                data_variant=resolve("synthetic", {}).digest,
                pairing={"initial_weights": f"{job_spec.backbone} {job_spec.seed}"},
                result={"test": {"auc": auc + better, "logloss": 0.4, **(more or {})}},
                environment={"host": folder, **environment},
                wall_s=wall_s,
            )
            Runs(Path(folder)).put(record)

    return put


def pack(folder: str, *more: str) -> str:
    path = f"{folder}.zip"
    arguments = ["pack", "two.toml", "-o", path, "--runs-dir", folder, *more]
    assert exit_code(arguments) == 0
    return path


def texts(view: ReportView, kind: str) -> list[str]:
    return [str(note.parts[0]) for note in view.report.tables[0].notes if note.kind == kind]


def main_of(view: ReportView) -> list[dict[str, object]]:
    return view.tables["main"].to_dicts()


def test_two_halves_are_the_whole_and_the_notes_say_whose(put: Put) -> None:
    put("whole")
    whole = api.report("two.toml", runs_dir="whole")
    put("ann", only=("backbone=DNN",))
    put("bob", only=("backbone=DCNv2",))

    for view in (
        api.report("two.toml", runs_dir=["ann", "bob"]),
        api.report(runs_dir=[pack("ann"), pack("bob")]),
        api.report(runs_dir=["ann.zip", "bob"]),
        api.report("two.toml", runs_dir=["bob.zip", "ann"]),
    ):
        assert main_of(view) == main_of(whole)
        assert texts(view, "conflict") == []
        (origin,) = (text for text in texts(view, "origin") if text.startswith("Records by"))
        for name in ("ann", "bob"):
            assert f"{name}" in origin
            assert f": 4 by {name}, a CPU" in origin
    assert not any(text.startswith("Records by") for text in texts(whole, "origin"))


def test_the_same_results_count_once_whatever_the_times(put: Put) -> None:
    put("ann")
    put("bob", wall_s=99.0, device="another CPU", only=("seed=1",))

    view = api.report(runs_dir=[pack("ann"), pack("bob")])

    assert main_of(view) == main_of(api.report("two.toml", runs_dir="ann"))
    assert texts(view, "conflict") == []
    assert any("4 in more than one, with the same results" in t for t in texts(view, "origin"))


def test_of_other_numbers_the_first_source_counts_and_the_note_says_how_far(put: Put) -> None:
    put("ann")
    put("bob", better=0.003, device="a GPU", only=("backbone=DNN", "seed=1", "arm=prime"))
    pack("ann"), pack("bob")
    job_id = next(path.name for path in Path("bob").iterdir())

    first = api.report(runs_dir=["ann.zip", "bob.zip"])
    other = api.report(runs_dir=["bob.zip", "ann.zip"])

    assert main_of(first) == main_of(api.report("two.toml", runs_dir="ann"))
    assert main_of(other) != main_of(first)
    assert texts(first, "conflict") == [
        f"synthetic DNN prime seed 1 ({job_id}): bob.zip (bob, a GPU) has other numbers than "
        "ann.zip (ann, a CPU), which counts since it is named first: "
        "test AUC 0.712000 and 0.715000, 3.0e-03 apart"
    ]
    assert "ann.zip (ann, a CPU) has other numbers than bob.zip" in texts(other, "conflict")[0]
    # The digests of a written report are those of the records that are shown.
    for view, folder in ((first, "ann"), (other, "bob")):
        assert view.report.record_digests[job_id] == Runs(Path(folder)).record_digest(job_id)
    with pytest.warns(UserWarning, match=r"bob.zip .* has other numbers than ann.zip"):
        assert len(api.records(runs_dir=["ann.zip", "bob.zip"])) == 8


def test_a_conflict_of_a_measurement_names_its_kind() -> None:
    probe = read_sources([Path(__file__).parents[1] / "records"]).probes[0]
    places = {"place": Path("a.zip"), "other_place": Path("b.zip")}

    said = conflict_text(Conflict(shown=probe, other=probe, differing=["one", "two"], **places))

    head = f" seed {probe.job.seed} {probe.job.kind} ({probe.job_id}): b.zip ("
    assert said.partition(head)[1]
    assert said.endswith("named first: one; two")


def test_many_conflicts_are_counted_with_the_largest(put: Put) -> None:
    put("ann")
    put("bob", better=-0.004)

    notes = texts(api.report("two.toml", runs_dir=["ann", "bob"]), "conflict")

    assert len(notes) == 9
    assert notes[-1] == (
        "8 jobs have other numbers in another source, on test rows at most AUC 4.0e-03 and "
        "LogLoss 0.0e+00 apart"
    )


def test_a_job_that_differs_in_two_sources_is_one_job(put: Put) -> None:
    one = ("arm=prime", "seed=1", "backbone=DNN")
    put("ann", only=one)
    put("bob", only=one, better=-0.004)
    put("cat", only=one, better=0.004)

    notes = texts(api.report("two.toml", runs_dir=["ann", "bob", "cat"]), "conflict")

    assert ["bob (" in notes[0], "cat (" in notes[1], len(notes)] == [True, True, 2]


def test_every_metric_that_both_have_is_compared(put: Put) -> None:
    one = ("arm=prime", "seed=1", "backbone=DNN")
    put("ann", only=one, more={"ne": 0.75, "pcoc": 1.0})
    put("bob", only=one, more={"ne": 0.5, "pcoc": 1.0})
    put("old", only=one)

    (note,) = texts(api.report("two.toml", runs_dir=["ann", "bob", "old"]), "conflict")

    assert note.endswith("named first: test NE 0.750000 and 0.500000, 2.5e-01 apart")


def test_records_of_two_kinds_of_device_are_put_together_and_not_paired(put: Put) -> None:
    put("ann", only=("arm=dense",))
    put("bob", only=("arm=prime",), device_kind="cuda")

    view = api.report("two.toml", runs_dir=["ann", "bob"])

    assert len(texts(view, "mismatch")) == 4
    assert all("different device kind: cpu against cuda" in t for t in texts(view, "mismatch"))


def test_bundles_of_parts_of_a_recipe_make_the_whole(put: Put) -> None:
    put("whole")
    whole = api.report("two.toml", runs_dir="whole")
    pack("whole", "--only", "backbone=DNN")
    Path("whole.zip").rename("dnn.zip")
    pack("whole", "--only", "backbone=DCNv2", "--only", "seed=2")
    Path("whole.zip").rename("dcn.zip")

    alone = api.report("dnn.zip")
    assert [row["row"] for row in main_of(alone)][:2] == ["DNN", "mean"]
    assert texts(alone, "missing") == []
    with zipfile.ZipFile("dnn.zip") as archive:
        contents = json.loads(archive.read("bundle.json"))
    assert contents["recipe"]["name"] == "two --only backbone=DNN"
    assert len(contents["records"]) == len(contents["recipe"]["jobs"]) == 4

    both = api.report(runs_dir=["dnn.zip", "dcn.zip"])
    assert both.report.title == "Two"
    assert [row["row"] for row in main_of(both)][:2] == ["DNN", "DCNv2"]
    assert both.report.tables[0].provenance.recipe == (
        "two --only backbone=DNN and two --only backbone=DCNv2 --only seed=2"
    )
    (missing,) = texts(both, "missing")[:1]
    assert "1 of 2 seeds; missing 1" in missing
    assert main_of(api.report("two.toml", runs_dir=["dnn.zip", "dcn.zip", "whole"])) == main_of(
        whole
    )


def test_recipes_that_do_not_fit_into_one_table_are_shown_as_records(put: Put) -> None:
    put("ann")
    put("bob", changes=("training.max_epochs=3",))
    pack("ann"), pack("bob", "--set", "training.max_epochs=3")

    view = api.report(runs_dir=["ann.zip", "bob.zip"])

    assert len(view.report.blocks) == 2
    assert texts(view, "origin")[0] == (
        "The bundles are of recipes that do not fit into one table (two, two --set "
        "training.max_epochs=3), so every record is shown"
    )
    assert main_of(api.report("two.toml", runs_dir=["ann.zip", "bob.zip"])) == main_of(
        api.report("ann.zip")
    )
    with pytest.raises(UsageError, match="do not fit into one table"):
        api.pack(None, "c.zip", runs_dir=["ann.zip", "bob.zip"])


def test_bundles_are_packed_together(put: Put) -> None:
    put("ann", only=("backbone=DNN",))
    put("bob", better=0.003)
    pack("ann"), pack("bob")

    assert exit_code(["pack", "ann.zip", "bob", "-o", "c.zip"]) == 0

    together = api.report(runs_dir=["ann.zip", "bob"])
    assert main_of(api.report("c.zip")) == main_of(together)
    with zipfile.ZipFile("c.zip") as archive:
        names = archive.namelist()
        for job_id in (path.name for path in Path("ann").iterdir()):
            name = f"runs/{job_id}/record.json"
            assert archive.read(name) == Path("ann", job_id, "record.json").read_bytes()
        assert archive.read("recipe.toml") == Path("two.toml").read_bytes()
    assert sum(name.endswith("record.json") for name in names) == 8
    with pytest.raises(UsageError, match="no bundle, so its recipe is not known"):
        api.pack(None, "d.zip", runs_dir=["ann", "bob"])
    assert not Path("d.zip").exists()


def test_bundles_together_have_the_recipe_of_the_first(put: Put) -> None:
    put("ann", only=("backbone=DNN",))
    put("bob", only=("backbone=DCNv2",))
    pack("ann")
    Path("two.toml").write_text(f"# of Bob{RECIPE}")
    pack("bob")

    for first, second in (("ann.zip", "bob.zip"), ("bob.zip", "ann.zip")):
        api.pack(None, "c.zip", runs_dir=[first, second])
        with zipfile.ZipFile("c.zip") as made, zipfile.ZipFile(first) as own:
            assert made.read("recipe.toml") == own.read("recipe.toml")


def test_a_full_report_of_measurements_has_no_tables_of_training() -> None:
    source = read_sources([Path(__file__).parents[1] / "records"])
    kinds = {probe.job.kind for probe in source.probes}

    _, tables = ReportRequest(level="full").select(replace(source, records=[]))
    _, with_runs = ReportRequest(level="full").select(source)

    assert set(tables) == kinds
    assert set(with_runs) == kinds | {"main", "family", "cells", "pairs"}


def test_faulty_and_empty_sources(put: Put, capsys: pytest.CaptureFixture[str]) -> None:
    put("ann")
    pack("ann")
    Path("empty").mkdir()
    Path("broken.zip").write_bytes(Path("ann.zip").read_bytes()[:-99])

    assert exit_code(["report", "ann.zip", "broken.zip"]) == 3
    assert "broken.zip: not a bundle" in capsys.readouterr().err
    with pytest.raises(DataError, match="none: no such folder of records"):
        api.report(runs_dir=["ann.zip", "none"])
    with pytest.raises(UsageError, match="the list is empty"):
        api.report(runs_dir=[])
    view = api.report(runs_dir=["ann.zip", "empty"])
    assert "Records by source: ann.zip: 8 by ann, a CPU; empty: 0" in texts(view, "origin")
    with pytest.raises(DataError, match=r"empty, ann.zip: no record of frappe13 here"):
        api.report("frappe13", runs_dir=["empty", "ann.zip"])
    # A record that only one of them can read is shown; the other is named.
    put("bob")
    (job_id, *_) = (path.name for path in sorted(Path("bob").iterdir()))
    Path("bob", job_id, "record.json").write_text("{")
    view = api.report("two.toml", runs_dir=["bob", "ann"])
    assert main_of(view) == main_of(api.report("ann.zip"))
    assert job_id in texts(view, "unreadable")[0]


def test_a_source_that_is_named_twice_is_one(put: Put) -> None:
    put("ann")
    assert read_sources([Path("ann"), Path("./ann")]).origins == {}


@pytest.mark.parametrize(
    ("given", "code"),
    [
        (["ann.zip"], 0),
        (["ann.zip", "bob/"], 0),
        (["two.toml", "ann.zip", "bob"], 0),
        (["ann", "two.toml"], 0),
        (["ann", "bob"], 0),
        (["two.toml", "--runs-dir", "ann", "--runs-dir", "bob.zip"], 0),
        (["ann.zip", "--runs-dir", "bob"], 0),
        (["two.toml", "frappe13", "ann"], 2),
        (["ann.zip", "--set", "training.max_epochs=3"], 2),
        (["two.toml"], 3),
    ],
)
def test_a_recipe_and_sources_may_stand_beside_each_other(
    put: Put,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    given: list[str],
    code: int,
) -> None:
    put("ann", only=("arm=dense",))
    put("bob", only=("arm=prime",))
    pack("ann"), pack("bob")
    capsys.readouterr()
    # Its folder is read where none is named, and not beside a bundle.
    monkeypatch.setenv("PRIME_BENCH_RUNS", "none")

    assert exit_code(["report", *given, "--json"]) == code
    if code == 0:
        two = any(text.rstrip("/") in ("bob", "bob.zip") for text in given)
        (table,) = json.loads(capsys.readouterr().out)["tables"]
        cells = [c for b in table["blocks"] for r in b["rows"] for c in r["cells"].values()]
        assert len({job for cell in cells for job in cell["jobs"]}) == (8 if two else 4)


def test_bundles_are_compared(put: Put, capsys: pytest.CaptureFixture[str]) -> None:
    put("ann")
    put("bob", better=0.003)
    pack("ann"), pack("bob")

    found = api.compare("ann.zip", "bob.zip")

    assert {round(row.auc.mean, 6) for row in found.rows if row.auc} == {0.003}
    assert found.alone == []
    assert api.compare("ann", "bob.zip").rows == found.rows
    assert exit_code(["compare", "ann.zip", "two.toml"]) == 2
    assert "folders or bundles" in capsys.readouterr().err
    assert exit_code(["compare", "ann.zip", "none.zip"]) == 3


def test_show_reads_a_bundle(put: Put, capsys: pytest.CaptureFixture[str]) -> None:
    put("ann", only=("seed=1",))
    pack("ann")
    job_id = min(path.name for path in Path("ann").iterdir())
    capsys.readouterr()

    assert exit_code(["show", "job", job_id[:6], "--runs-dir", "ann.zip", "--json"]) == 0
    packed = json.loads(capsys.readouterr().out)
    assert exit_code(["show", "job", job_id, "--runs-dir", "ann", "--json"]) == 0
    there = json.loads(capsys.readouterr().out)
    assert packed == there | {"path": f"ann.zip/runs/{job_id}"}
    assert exit_code(["show", "job", "ffff", "--runs-dir", "ann.zip"]) == 2
    assert "ffff: no job in ann.zip has an id that begins so" in capsys.readouterr().err
    assert exit_code(["show", "job", "f" * 16, "--runs-dir", "ann.zip"]) == 3
    assert f"no job {'f' * 16} in ann.zip\n" in capsys.readouterr().err

    assert exit_code(["show", "recipe", "ann.zip"]) == 0
    assert capsys.readouterr().out == Path("two.toml").read_text()
    assert exit_code(["show", "recipe", "ann.zip", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["title"], facts["arms"], facts["seeds"]) == ("Two", ["dense", "prime"], [1, 2])
    assert exit_code(["show", "dataset", "ann.zip"]) == 3
    assert "a bundle has records and no data" in capsys.readouterr().err

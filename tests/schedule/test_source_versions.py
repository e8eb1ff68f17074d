"""Plans after an edit of a user's own class: earlier records are named, and count on request."""

import json
from pathlib import Path
from textwrap import dedent

import pytest

from prime_bench.cli.main import exit_code
from prime_bench.recipe.file import load_recipe
from prime_bench.schedule.plan import make_plan
from prime_bench.schedule.status import status_of_plan
from prime_bench.store.record import ProbeRecord
from prime_bench.store.runs import Runs

RECIPE = """\
    schema = 1
    title = "Own"
    {probe}
    seeds = [7, 3]
    arms = ["dense", "own_mod:Gate"]

    [dataset.synthetic]
    rows = 1000

    [backbone.DNN]
    [backbone."own_mod:Net"]
"""
PROBE = 'kind = "subgroups"\n    [probe]\n    fields = ["hour"]\n'


@pytest.fixture
def look(tmp_path, data_dir, runs, prepare, own_class):  # noqa: ARG001
    """The plan of the recipe, as it is when this is called."""
    prepare("synthetic", {"rows": 1000})

    def look(*, probe="", **keys):
        path = tmp_path / "own.toml"
        head, rest = dedent(RECIPE).split("{probe}\n")
        kind, _, table = dedent(probe).partition("\n")
        path.write_text(head + kind + "\n" + rest + "\n" + dedent(table))
        return make_plan(load_recipe(path), data_dir=data_dir, runs=runs, **keys)

    return look


@pytest.fixture
def finish(runs, record_of):
    """Give jobs of a plan a record."""

    def finish(jobs, **environment):
        for planned in jobs:
            runs.put(record_of(planned.job, **environment))

    return finish


def of(plan, state):
    """Backbone, arm and seed of the jobs in a state."""
    return {
        (p.job_spec.backbone, p.job_spec.arm.name, p.job_spec.seed)
        for p in plan.jobs
        if p.state == state
    }


def test_an_edit_names_the_records_that_it_hides(look, finish, own_class):
    finish(look().jobs)
    assert look().earlier == []

    own_class(2)
    plan = look()

    assert of(plan, "done") == {("DNN", "dense", 7), ("DNN", "dense", 3)}
    assert len(plan.to_run) == 6
    # The class, or the two, whose source is another: DNN with Gate, Net, and Net with Gate.
    assert plan.earlier == [
        "2 records of an earlier version of `own_mod:Gate` exist; "
        "`--accept-source` counts them as done",
        "2 records of an earlier version of `own_mod:Gate` and `own_mod:Net` exist; "
        "`--accept-source` counts them as done",
        "2 records of an earlier version of `own_mod:Net` exist; "
        "`--accept-source` counts them as done",
    ]


def test_accepted_they_are_done_and_the_plan_says_by_what(look, finish, own_class, runs):
    finish(look().jobs)
    own_class(2)

    plan = look(accept_source=True)

    assert plan.counts == {"done": 8}
    assert plan.to_run == []
    assert len(plan.earlier) == 3
    assert plan.earlier[0] == (
        "2 jobs done by records of an earlier version of `own_mod:Gate`, as asked"
    )
    whys = {p.why for p in plan.jobs if p.job_spec.backbone == "DNN"}
    assert whys == {"has a record", "has a record of an earlier version of `own_mod:Gate`"}
    # Nothing was written: the jobs of the new source have no folder.
    assert not any(runs.started(p.job_id) for p in plan.jobs if p.other is not None)
    assert status_of_plan(plan, runs).earlier == plan.earlier


def test_a_record_of_the_present_source_is_preferred(look, finish, own_class):
    finish(look().jobs)
    own_class(2)
    finish([p for p in look().jobs if p.job_spec.seed == 7])

    plan = look()

    assert len(plan.to_run) == 3
    assert {p.job_spec.seed for p in plan.jobs if p.other is not None} == {3}


def test_of_several_versions_the_one_that_started_last_counts(look, finish, own_class):
    for version, started in ((1, "2026-01-02T00:00:00Z"), (2, "2026-01-01T00:00:00Z")):
        own_class(version)
        finish(look().jobs, started=started)
    own_class(3)

    plan = look(accept_source=True)

    codes = {p.other.record.job.code.get("own_mod:Gate") for p in plan.jobs if p.other}
    assert codes == {None, "1" * 64}


@pytest.mark.parametrize("changed", ["seed", "numerics", "settings"])
def test_what_differs_in_more_than_the_source_never_counts(
    look, own_class, runs, record_of, changed
):
    for planned in look().jobs:
        job = planned.job
        other = {
            "seed": {"seed": job.seed + 1},
            "numerics": {"numerics": job.numerics + 1},
            "settings": {"backbone_settings": {**job.backbone_settings, "embedding_dim": 3}},
        }[changed]
        runs.put(record_of(job.model_copy(update=other)))
    own_class(2)

    plan = look(accept_source=True)

    assert plan.earlier == []
    assert len(plan.to_run) == 8


def test_a_probe_that_is_to_run_needs_weights_of_its_own_source(look, finish, own_class):
    finish(look().jobs)
    own_class(2)

    plan = look(probe=PROBE, accept_source=True)

    trained = [p for p in plan.jobs if p.job_spec.kind == "train"]
    assert {p.state for p in trained if p.job.code} == {"pending"}
    assert {p.state for p in trained if not p.job.code} == {"done"}
    assert all(p.state == "pending" for p in plan.jobs if p.job_spec.kind == "subgroups")


def test_what_a_done_probe_has_read_may_be_of_an_earlier_source(
    look, finish, own_class, runs, record_of
):
    finish(look().jobs)
    own_class(2)
    records, _ = Runs(Path(__file__).parents[1] / "records").readable()
    findings = next(one for one in records if one.job.kind == "subgroups").findings
    for planned in look(probe=PROBE).jobs:
        if planned.job_spec.kind == "subgroups" and planned.job_spec.seed == 7:
            plain = record_of(planned.job.training_run).plain()
            kept = {key: plain[key] for key in ProbeRecord.model_fields if key in plain}
            own = {"job_id": planned.job.id, "job": planned.job.plain()}
            record = {**kept, **own, "findings": findings.plain()}
            runs.put(ProbeRecord.parse(record, where=""))
    plan = look(probe=PROBE, accept_source=True)

    trained = [p for p in plan.jobs if p.job_spec.kind == "train" and p.job.code]
    assert {(p.job_spec.seed, p.state) for p in trained} == {(7, "done"), (3, "pending")}


def test_accepted_records_of_another_device_are_stale_as_others_are(look, finish, own_class):
    finish(look().jobs, device_kind="cuda")
    own_class(2)
    assert look(accept_source=True, device_kind="cuda").counts == {"done": 8}

    # On a CPU nothing is to run, so nothing there would pair with them.
    assert look(accept_source=True).counts == {"done": 8}
    finish([p for p in look().jobs if p.job_spec.arm.name != "dense"], device_kind="cpu")
    plan = look(accept_source=True)
    assert of(plan, "stale") == {(b, "dense", s) for b in ("DNN", "own_mod:Net") for s in (7, 3)}


def test_the_commands_say_it(look, finish, own_class, tmp_path, capsys):
    finish(look().jobs)
    own_class(2)
    folders = ["--data-dir", str(tmp_path / "data"), "--runs-dir", str(tmp_path / "runs")]
    own = [str(tmp_path / "own.toml"), "--device", "cpu", *folders]
    said = "source: 2 records of an earlier version of `own_mod:Gate` exist; `--accept-source`"

    assert exit_code(["plan", *own]) == 0
    assert said in capsys.readouterr().out
    assert exit_code(["status", *own]) == 0
    assert said in capsys.readouterr().out
    assert exit_code(["run", *own, "--accept-source"]) == 0
    captured = capsys.readouterr()
    assert "own.toml: 0 jobs done, 8 had a record, 0 failed" in captured.out
    assert "2 jobs done by records of an earlier version of `own_mod:Gate`" in captured.err
    assert exit_code(["plan", *own, "--accept-source", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["earlier"]) == 3
    assert exit_code(["status", "--accept-source", *folders]) == 2
    assert "goes with a recipe" in capsys.readouterr().err

"""Estimates: from like records first, from a measurement else, and sizes from counts."""

import pytest

from prime_bench.base.errors import DataError
from prime_bench.data.manifest import resolve
from prime_bench.recipe.file import load_recipe
from prime_bench.schedule.estimate import Pace, budgets_of, estimates_of, total_of
from prime_bench.schedule.plan import make_plan

KEYS = {"rows": 1000}


@pytest.fixture
def plan(recipe_file, data_dir, runs, prepare, schema):
    """The plan of the recipe, with changes, on data of three small fields."""
    prepare("synthetic", KEYS)
    (resolve("synthetic", KEYS).folder(data_dir) / "schema.json").write_text(schema)

    def plan(*changes):
        return make_plan(load_recipe(recipe_file, changes=changes), data_dir=data_dir, runs=runs)

    return plan


def _walls(plan, runs, **keys):
    found = estimates_of(plan, runs=runs, device_kind="cpu", **keys)
    return [found[planned.job_id].wall_s for planned in plan.to_run]


def test_nothing_is_known_without_records(plan, runs):
    made = plan()
    found = estimates_of(made, runs=runs, device_kind="cpu")

    assert set(found) == {planned.job_id for planned in made.jobs}
    assert _walls(made, runs) == [None] * 4
    assert {estimate.source for estimate in found.values()} == {"no similar job has run"}


@pytest.mark.parametrize("text", ["", "null", "{}", '{"fields": [1]}', "[" * 100_000])
def test_a_broken_schema_is_a_data_error(plan, data_dir, text):
    made = plan()
    (resolve("synthetic", KEYS).folder(data_dir) / "schema.json").write_text(text)
    with pytest.raises(DataError, match=r"schema\.json: cannot be read: "):
        budgets_of(made)


def test_a_like_record_tells_and_other_arms_are_scaled_by_their_work(plan, runs, finish):
    finish(plan().jobs[0].job)  # dense: two epochs of 10 s, 5 s for the rest
    made = plan()
    budgets = budgets_of(made)
    dense, prime = budgets["synthetic", "dense", "DNN"], budgets["synthetic", "prime", "DNN"]

    prime_7, dense_3, prime_3 = _walls(made, runs)
    assert dense_3 == pytest.approx(25)
    # The record says that dense costs 1,000 multiply-accumulates a row.
    assert (
        prime_7
        == prime_3
        == pytest.approx(2 * 10 * (prime.backbone_macs + prime.plugin_macs) / 1000 + 5)
    )
    assert dense.plugin_macs == 0


def test_fewer_epochs_take_less_time_and_cut_runs_do_not_tell_their_number(plan, runs, finish):
    finish(plan().jobs[0].job, epochs=4)
    assert _walls(plan("training.max_epochs=1"), runs)[0] == pytest.approx(10 + 5)

    finish(plan().jobs[0].job, epochs=4, stopped="max_epochs")
    patience = plan().jobs[0].job.training.patience
    assert _walls(plan(), runs)[1] == pytest.approx(10 * (patience + 2) + 5)


def test_records_of_another_device_or_data_do_not_tell(plan, runs, finish):
    finish(plan().jobs[0].job.model_copy(update={"fingerprint": "e" * 64}))
    assert _walls(plan(), runs) == [None] * 4

    finish(plan().jobs[0].job, device_kind="cuda")
    assert _walls(plan(), runs) == [None] * 3, "the fourth is stale"


def test_a_measurement_serves_where_no_record_does(plan, runs, finish):
    job = plan().jobs[0].job
    pace = Pace(epoch_s=1.0, macs=1000, source="measured")
    measured = {(job.fingerprint, "DNN", "dense"): pace}
    assert _walls(plan(), runs, measured=measured)[0] == pytest.approx(job.training.patience + 2)

    finish(job)
    assert _walls(plan(), runs, measured=measured)[1] == pytest.approx(25), "a record goes before"


def test_memory_and_disk_are_counted(plan, runs):
    made = plan()
    budget = budgets_of(made)["synthetic", "prime", "DNN"]
    parameters = budget.backbone_parameters + budget.plugin_parameters
    estimate = estimates_of(made, runs=runs, device_kind="cpu")[made.jobs[1].job_id]

    assert estimate.disk_bytes == 4 * parameters
    assert estimate.memory_bytes > 16 * parameters, "weights, two moments, the best weights"
    larger = plan("training.batch_size=8192")
    again = estimates_of(larger, runs=runs, device_kind="cpu")[larger.jobs[1].job_id]
    assert again.memory_bytes > estimate.memory_bytes


def test_a_total_adds_up_what_is_known(plan, runs, finish, tmp_path):
    job = plan().jobs[0].job
    finish(job)
    found = estimates_of(plan(), runs=runs, device_kind="cpu")
    total = total_of(found.values(), folder=tmp_path / "not" / "there")

    assert (total.jobs, total.known_jobs) == (3, 3)
    assert total.wall_s == pytest.approx(sum(e.wall_s for e in found.values()))
    assert total.disk_bytes == sum(e.disk_bytes for e in found.values())
    assert total.memory_bytes == max(e.memory_bytes for e in found.values())
    assert total.disk_free_bytes > 0
    assert total.sources == (
        "records of similar jobs, scaled from another arm",
        "records of similar jobs",
    )


def test_a_plan_without_jobs_to_run_has_no_estimates(plan, runs, finish):
    for planned in plan().jobs:
        finish(planned.job)

    assert estimates_of(plan(), runs=runs, device_kind="cpu") == {}


@pytest.mark.usefixtures("plan")
def test_jobs_that_measure_have_no_checkpoint(runs, recipe_file, data_dir):
    text = recipe_file.read_text().replace("seeds", 'kind = "subgroups"\nseeds')
    recipe_file.write_text(text)
    made = make_plan(load_recipe(recipe_file), data_dir=data_dir, runs=runs)
    found = estimates_of(made, runs=runs, device_kind="cpu")

    measured = [p for p in made.jobs if p.job_spec.kind == "subgroups"]
    assert len(measured) == 4
    assert all(found[planned.job_id].wall_s is None for planned in measured)
    assert all(found[planned.job_id].disk_bytes == 0 for planned in measured)

"""Estimates: from like records first, then by measured ratios, and sizes from counts."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from prime_bench.base.errors import DataError
from prime_bench.data.manifest import resolve
from prime_bench.findings import ArmCost, CostFindings
from prime_bench.recipe.file import load_recipe
from prime_bench.schedule.devices import Device
from prime_bench.schedule.estimate import (
    MEMORY_NOTE,
    RANGE_NOTE,
    Estimate,
    Experience,
    Pace,
    Spread,
    added_budgets,
    budgets_of,
    elapsed,
    estimates_of,
    needs_of,
    total_of,
)
from prime_bench.schedule.plan import joined, make_plan
from prime_bench.schedule.slots import Slots
from prime_bench.store.record import ProbeRecord
from prime_bench.store.runs import Runs

KEYS = {"rows": 1000}
HERE = Device(name="cpu", title="a CPU")
GPU = Device(name="cuda:0", label="cuda:0", title="a GPU", memory_bytes=80 << 30)
ONE = Slots(on_each=1, total=1, threads=1)
TWO = Slots(on_each=2, total=2, threads=1)
SIMILAR = "records of similar jobs"
ELSEWHERE = f"{SIMILAR} on another device, with other threads or another number at once"


@pytest.fixture
def plan(recipe_file, data_dir, runs, prepare, schema):
    """The plan of the recipe, with changes, on data of three small fields."""
    prepare("synthetic", KEYS)
    (resolve("synthetic", KEYS).folder(data_dir) / "schema.json").write_text(schema)

    def plan(*changes):
        return make_plan(load_recipe(recipe_file, changes=changes), data_dir=data_dir, runs=runs)

    return plan


@pytest.fixture
def found(runs):
    """What is estimated for a plan, and what is known before."""

    def found(plan, *, device=HERE, slots=ONE, measured=()):
        records, _ = runs.readable()
        experience = Experience(records, device=device, slots=slots)
        for key, pace in measured:
            experience.learn(key, pace)
        return estimates_of(
            plan, experience=experience, device=device, slots=slots, folder=runs.folder
        )

    return found


@pytest.fixture
def walls(found):
    """Estimated seconds of the jobs that are to run, in order."""

    def walls(plan, **keys):
        jobs = found(plan, **keys).jobs
        return [jobs[planned.job_id].wall_s for planned in plan.to_run]

    return walls


@pytest.fixture
def costs(plain_record, runs):
    """Write the record of a `cost` job, in which PRIME takes that many times as long as Dense."""

    def costs(job, ratio, *, wall_s=1.0, **environment):
        def arm(plugin, times):
            return ArmCost(
                plugin=plugin,
                settings={},
                parameters=1,
                macs=1,
                inference=[],
                training_ms=times,
                peak_memory_bytes=None,
            )

        measured = job.model_copy(update={"kind": "cost", "probe": {"ratio": ratio}})
        plain = plain_record(job, environment=environment, wall_s=wall_s).plain()
        kept = {key: plain[key] for key in ProbeRecord.model_fields if key in plain}
        findings = CostFindings(
            clock="wall clock",
            memory="not measured",
            distinct_rows=1,
            arms=[arm("dense", [2.0, 4.0, 6.0]), arm("prime", [2 * ratio, 4 * ratio, 6 * ratio])],
        )
        table = {**kept, "job_id": measured.id, "job": measured.plain()}
        runs.put(ProbeRecord.parse({**table, "findings": findings.plain()}, where=""))
        return measured

    return costs


def test_nothing_is_known_without_records(plan, found, walls):
    made = plan()
    jobs = found(made).jobs

    assert set(jobs) == {planned.job_id for planned in made.jobs}
    assert walls(made) == [None] * 4
    assert {estimate.source for estimate in jobs.values()} == {"no similar job has run"}


@pytest.mark.parametrize("text", ["", "null", "{}", '{"fields": [1]}', "[" * 100_000])
def test_a_broken_schema_is_a_data_error(plan, data_dir, text):
    made = plan()
    (resolve("synthetic", KEYS).folder(data_dir) / "schema.json").write_text(text)
    with pytest.raises(DataError, match=r"schema\.json: cannot be read: "):
        budgets_of(made)


def test_without_a_measured_ratio_arms_are_scaled_by_their_work(plan, found, walls, finish):
    finish(plan().jobs[0].job)  # dense: two epochs of 10 s, 5 s for the rest
    made = plan()
    prime = budgets_of(made)["synthetic", "prime", "DNN"]

    prime_7, dense_3, prime_3 = walls(made)
    assert dense_3 == pytest.approx(25)
    # The record says that dense costs 1,000 multiply-accumulates a row.
    macs = prime.backbone_macs + prime.plugin_macs
    assert prime_7 == prime_3 == pytest.approx(2 * 10 * macs / 1000 + 5)
    assert found(made).total.sources == (
        f"{SIMILAR} of dense, scaled by multiply-accumulates",
        SIMILAR,
    )


def test_measured_costs_tell_the_ratio_of_an_arm(plan, found, walls, finish, costs):
    jobs = [planned.job for planned in plan().jobs]
    finish(jobs[0])
    costs(jobs[0].model_copy(update={"fingerprint": "e" * 64}), 1.25)

    assert walls(plan())[0] == pytest.approx(2 * 10 * 1.25 + 5)
    assert (
        found(plan()).total.sources[0] == f"{SIMILAR} of dense, times the ratio of measured costs"
    )


def test_a_ratio_is_the_median_of_those_of_the_backbone_and_its_source_is_named(
    plan, found, walls, finish, costs
):
    dense, prime = (planned.job for planned in plan().jobs[:2])
    finish(prime)
    costs(dense.model_copy(update={"backbone": "FM"}), 9.0)
    assert "multiply-accumulates" in found(plan()).total.sources[0], "of another backbone"

    for seed, ratio in enumerate((1.0, 4.0, 1.25)):
        costs(dense.model_copy(update={"seed": seed}), ratio)
    assert walls(plan())[0] == pytest.approx(2 * 10 / 1.25 + 5)
    assert (
        found(plan()).total.sources[0] == f"{SIMILAR} of prime, times the ratio of measured costs"
    )


def test_of_several_arms_dense_is_scaled(plan, found):
    made = plan()
    dense, prime = (planned.job for planned in made.jobs[:2])
    measured = [
        ((dense.fingerprint, "DNN", plugin), Pace(epoch_s=Spread.of([1.0]), macs=1, source=plugin))
        for plugin in ("apg", "dense", "wide")
    ]
    estimate = found(made, measured=measured).jobs[prime.id]

    assert estimate.source == "dense of dense, scaled by multiply-accumulates"


def test_a_probe_takes_as_long_as_those_like_it(plan, runs, costs):
    job = plan().jobs[0].job
    measured = costs(job, 1.25, wall_s=7.0)
    costs(job.model_copy(update={"seed": 1}), 1.25, wall_s=99.0, device="another CPU")
    costs(job.model_copy(update={"backbone": "FM"}), 1.25, wall_s=98.0)
    costs(job.model_copy(update={"fingerprint": "e" * 64}), 1.25, wall_s=97.0)
    known = Experience(runs.readable()[0], device=HERE, slots=ONE)

    assert known.estimate(measured, macs=0) == (Spread.of([7.0]), SIMILAR)
    routing = measured.model_copy(update={"kind": "routing"})
    assert known.estimate(routing, macs=0) == (None, "no similar job has run")
    elsewhere = Experience(runs.readable()[0], device=HERE, slots=replace(ONE, threads=3))
    assert elsewhere.estimate(measured, macs=0) == (Spread.of([7.0, 99.0]), ELSEWHERE)


def test_records_on_other_data_tell_the_ratio_too(plan, found, walls, finish):
    dense, prime = (planned.job for planned in plan().jobs[:2])
    elsewhere = {"fingerprint": "e" * 64}
    finish(dense.model_copy(update=elsewhere), epoch_s=100.0)
    finish(prime.model_copy(update=elsewhere), epoch_s=120.0)
    finish(dense)

    assert walls(plan())[0] == pytest.approx(2 * 10 * 1.2 + 5)
    assert "records on other data" in found(plan()).total.sources[0]


def test_a_ratio_that_was_measured_on_another_kind_of_device_does_not_count(
    plan, found, finish, costs
):
    jobs = [planned.job for planned in plan().jobs]
    finish(jobs[0])
    costs(jobs[0], 1.25, device_kind="cuda")

    assert "multiply-accumulates" in found(plan()).total.sources[0]


def test_dense_is_estimated_from_an_arm_by_the_ratio(plan, walls, finish, costs):
    jobs = [planned.job for planned in plan().jobs]
    finish(jobs[1])
    costs(jobs[0], 1.25)

    assert walls(plan())[0] == pytest.approx(2 * 10 / 1.25 + 5)


def test_a_pace_of_the_same_layout_goes_before_others(plan, found, walls, finish):
    jobs = [planned.job for planned in plan().jobs]
    finish(jobs[0], epoch_s=10.0, threads=2)
    finish(jobs[2], epoch_s=30.0, threads=1, at_once=2)
    again = [jobs[0].model_copy(update={"seed": seed}) for seed in (10, 11)]
    finish(again[0], epoch_s=99.0, device="another CPU")
    finish(again[1], epoch_s=77.0, threads=1, at_once=16)

    made = plan("seeds=[5]")
    assert walls(made, slots=TWO)[0] == pytest.approx(65)
    assert found(made, slots=TWO).jobs[made.jobs[0].job_id].source == SIMILAR
    four = Slots(on_each=4, total=4, threads=4)
    assert found(made, slots=four).jobs[made.jobs[0].job_id].source == ELSEWHERE


def test_threads_of_the_cpu_do_not_matter_on_a_gpu(plan, found, finish):
    finish(plan().jobs[0].job, device_kind="cuda", device="a GPU", threads=7, at_once=2)
    made = plan("seeds=[5]")

    assert found(made, device=GPU, slots=TWO).jobs[made.jobs[0].job_id].source == SIMILAR
    assert found(made, device=GPU, slots=ONE).jobs[made.jobs[0].job_id].source == ELSEWHERE


def test_fewer_epochs_take_less_time_and_cut_runs_do_not_tell_their_number(plan, walls, finish):
    finish(plan().jobs[0].job, epochs=4)
    assert walls(plan("training.max_epochs=1"))[0] == pytest.approx(10 + 5)

    finish(plan().jobs[0].job, epochs=4, stopped="max_epochs")
    patience = plan().jobs[0].job.training.patience
    assert walls(plan())[1] == pytest.approx(10 * (patience + 2) + 5)


def test_epochs_of_other_arms_and_backbones_tell_before_a_guess(plan, walls, finish):
    job = plan().jobs[1].job
    finish(job.model_copy(update={"backbone": "FM", "seed": 1}), epochs=9)
    finish(plan().jobs[0].job, epochs=2, stopped="max_epochs")
    dense_3 = walls(plan())[1]
    assert dense_3 == pytest.approx(10 * 9 + 5), "of another backbone on the data"

    finish(job, epochs=6)
    assert walls(plan())[0] == pytest.approx(10 * 6 + 5), "of another arm of the backbone"


def test_records_of_another_device_or_data_do_not_tell(plan, walls, finish):
    finish(plan().jobs[0].job.model_copy(update={"fingerprint": "e" * 64}))
    assert walls(plan()) == [None] * 4

    finish(plan().jobs[0].job, device_kind="cuda")
    assert walls(plan()) == [None] * 3, "the fourth is stale"


def test_a_measurement_serves_where_no_record_does(plan, walls, finish):
    job = plan().jobs[0].job
    pace = Pace(epoch_s=Spread.of([1.0]), macs=1000, source="measured")
    measured = [((job.fingerprint, "DNN", "dense"), pace)]
    assert walls(plan(), measured=measured)[0] == pytest.approx(job.training.patience + 2)

    finish(job)
    assert walls(plan(), measured=measured)[1] == pytest.approx(25), "a record goes before"


def test_without_any_run_that_ended_by_itself_the_epochs_follow_from_the_patience(plan, found):
    made = plan("training.patience=5")
    job = made.jobs[0].job
    pace = Pace(epoch_s=Spread.of([1.0]), macs=1000, source="measured")
    measured = [((job.fingerprint, "DNN", "dense"), pace)]
    estimate = found(made, measured=measured).jobs[job.id]

    assert (estimate.low_s, estimate.wall_s, estimate.high_s) == (6.0, 7.0, 14.0)


def test_jobs_at_once_are_those_on_a_device_and_states_those_of_all_devices(
    plan, found, finish, tmp_path
):
    two_of_two = Slots(on_each=2, total=4, threads=1)
    finish(plan().jobs[0].job, at_once=2)
    made = plan("seeds=[5]")
    assert found(made, slots=two_of_two).jobs[made.jobs[0].job_id].source == SIMILAR

    estimates = [Estimate(disk_bytes=10**power) for power in (0, 3, 1, 4, 2)]
    total = total_of(estimates, slots=two_of_two, folder=tmp_path)
    assert (total.disk_bytes, total.disk_at_work_bytes) == (11111, 4 * 11110)


def test_the_range_is_from_the_shortest_to_the_longest(plan, found, finish):
    jobs = [plan().jobs[0].job.model_copy(update={"seed": seed}) for seed in (11, 12, 13)]
    for job, epochs, epoch_s in zip(jobs, (2, 3, 7), (10.0, 20.0, 12.0), strict=True):
        finish(job, epochs=epochs, epoch_s=epoch_s)
    made = plan()
    estimate = found(made).jobs[made.jobs[0].job_id]

    assert estimate.low_s == pytest.approx(2 * 10 + 5)
    assert estimate.wall_s == pytest.approx(3 * 12 + 5)
    assert estimate.high_s == pytest.approx(7 * 20 + 5)


def test_memory_and_disk_are_counted(plan, found):
    made = plan()
    budget = budgets_of(made)["synthetic", "prime", "DNN"]
    parameters = budget.backbone_parameters + budget.plugin_parameters
    job_id = made.jobs[1].job_id
    estimate, need = found(made).jobs[job_id], needs_of(made)[job_id]

    assert estimate.disk_bytes == 4 * parameters
    assert (need.parameters, need.row_bytes) == (parameters, 3 * 4 + 1)
    assert (need.train_rows, need.valid_rows, need.test_rows) == (800, 120, 80)
    assert estimate.memory_bytes == need.host_bytes
    assert found(made, device=GPU).jobs[job_id].memory_bytes == need.gpu_bytes(80 << 30)
    larger = plan("training.batch_size=8192")
    assert found(larger).jobs[larger.jobs[1].job_id].memory_bytes > estimate.memory_bytes


def test_a_total_adds_up_what_is_known(plan, found, finish):
    finish(plan().jobs[0].job)
    jobs, total = found(plan(), slots=TWO).jobs, found(plan(), slots=TWO).total

    assert (total.jobs, total.known_jobs) == (3, 3)
    assert total.wall_s == pytest.approx(sum(e.wall_s for e in jobs.values()))
    assert total.elapsed_low_s <= total.elapsed_s < total.wall_s
    assert total.disk_bytes == sum(e.disk_bytes for e in jobs.values())
    assert total.disk_at_work_bytes == 4 * sum(sorted(e.disk_bytes for e in jobs.values())[1:])
    assert total.memory_bytes == max(e.memory_bytes for e in jobs.values())
    assert total.disk_free_bytes > 0


def test_the_time_of_all_jobs_depends_on_how_many_run_at_once(tmp_path):
    times = [3.0, 1.0, 1.0, 4.0]
    assert [elapsed(times, at_once=n) for n in (1, 2, 4, 9)] == [9.0, 6.0, 4.0, 4.0]
    assert elapsed([], at_once=2) == 0.0
    nothing = total_of([], slots=TWO, folder=tmp_path)
    assert (nothing.memory_bytes, nothing.disk_bytes, nothing.wall_s) == (0, 0, 0)
    known = [Estimate(wall_s=t, low_s=t / 2, high_s=2 * t) for t in times]
    total = total_of([*known, Estimate()], slots=TWO, folder=tmp_path / "not" / "there")
    assert (total.jobs, total.known_jobs, total.wall_s) == (5, 4, 9.0)
    assert (total.elapsed_low_s, total.elapsed_s, total.elapsed_high_s) == (3.0, 6.0, 12.0)


def test_a_plan_without_jobs_to_run_has_no_estimates(plan, found, finish):
    for planned in plan().jobs:
        finish(planned.job)

    assert found(plan()).jobs == {}


@pytest.mark.usefixtures("plan")
def test_jobs_that_measure_have_no_checkpoint(runs, recipe_file, data_dir, found):
    text = recipe_file.read_text().replace("seeds", 'kind = "subgroups"\nseeds')
    recipe_file.write_text(text)
    made = make_plan(load_recipe(recipe_file), data_dir=data_dir, runs=runs)
    jobs = found(made).jobs

    measured = [p for p in made.jobs if p.job_spec.kind == "subgroups"]
    assert len(measured) == 4
    assert all(jobs[planned.job_id].wall_s is None for planned in measured)
    assert all(jobs[planned.job_id].disk_bytes == 0 for planned in measured)


def test_the_jobs_of_several_recipes_are_all_estimated(plan, found, finish):
    plans = [plan(), plan("seeds=[5]")]
    finish(plans[0].jobs[0].job)
    plans = [plan(), plan("seeds=[5]")]
    both = found(joined(plans, name="both", title="Both"))

    apart = [found(one) for one in plans]
    assert both.jobs == apart[0].jobs | apart[1].jobs
    assert (both.total.jobs, both.total.known_jobs) == (5, 5)
    assert both.total.wall_s == pytest.approx(sum(one.total.wall_s for one in apart))
    assert both.added == {}, "arms of two recipes may have one name"


def test_every_kind_of_probe_tells_its_own_time():
    records, _ = Runs(Path(__file__).parents[1] / "records").readable()
    probes = [record for record in records if isinstance(record, ProbeRecord)]
    assert {record.job.kind for record in probes} >= {"cost", "gradients", "routing", "subgroups"}
    for record in probes:
        here = Device(name="cpu", title=record.environment.device)
        slots = Slots(on_each=1, total=1, threads=record.environment.threads)
        time, _ = Experience([record], device=here, slots=slots).estimate(record.job, macs=0)
        assert time == Spread.of([record.wall_s])


def test_an_arm_of_no_work_is_as_fast_as_the_other(plan, found):
    made = plan()
    dense, prime = (planned.job for planned in made.jobs[:2])
    pace = Pace(epoch_s=Spread.of([2.0]), macs=0, source="measured")
    measured = [((dense.fingerprint, "DNN", "dense"), pace)]
    jobs = found(made, measured=measured).jobs
    assert jobs[prime.id].wall_s == jobs[dense.id].wall_s


def test_a_job_whose_clock_was_set_back_has_no_time_below_that_of_its_epochs(
    plan, walls, record_of, runs
):
    record = record_of(plan().jobs[0].job)  # two epochs of 10 s
    runs.put(record.model_copy(update={"wall_s": 3.0}))
    assert walls(plan())[1] == pytest.approx(2 * 10)


def test_what_the_arms_add_is_by_data_set_arm_and_backbone(plan):
    made = plan()
    assert added_budgets(made) == {
        "synthetic": {"prime": {"DNN": budgets_of(made)["synthetic", "prime", "DNN"]}}
    }


def test_estimates_are_plain_values(tmp_path):
    own = {"wall_s": 2.0, "low_s": 1.0, "high_s": 3.0, "source": "x"}
    estimate = Estimate(**own, memory_bytes=7, disk_bytes=5)
    assert estimate.plain() == {
        **{"estimate_s": 2.0, "estimate_low_s": 1.0, "estimate_high_s": 3.0},
        **{"estimate_from": "x", "memory_bytes": 7, "disk_bytes": 5},
    }
    free = shutil.disk_usage(tmp_path).free
    plain = total_of([estimate, replace(estimate, memory_bytes=9)], slots=ONE, folder=tmp_path)
    assert {**plain.plain(), "disk_free_bytes": free} == {
        **{"jobs": 2, "known_jobs": 2, "wall_s": 4.0, "elapsed_s": 4.0, "elapsed_low_s": 2.0},
        **{"elapsed_high_s": 6.0, "sources": ["x"], "memory_bytes": 9, "disk_bytes": 10},
        **{"disk_at_work_bytes": 20, "disk_free_bytes": free},
        "slots": {"on_each": 1, "total": 1, "threads": 1, "bound": "as asked for"},
        "memory_note": MEMORY_NOTE,
        "range_note": RANGE_NOTE,
    }

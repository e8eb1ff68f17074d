"""Each state of a job, what is to be prepared, and that a shared job stands once."""

import functools
import json
from dataclasses import replace
from textwrap import dedent

import pytest

from prime_bench.base.errors import DataError, UsageError
from prime_bench.base.identity import NUMERICS
from prime_bench.data.manifest import resolve
from prime_bench.recipe.file import load_recipe
from prime_bench.recipe.job import Job
from prime_bench.schedule.estimate import needs_of
from prime_bench.schedule.plan import (
    check_runnable,
    joined,
    make_plan,
    measured_again,
    on_device,
    recipe_diff,
    table_specs_of,
)
from prime_bench.settings.probes import CostSettings

KEYS = {"rows": 1000}


@pytest.fixture
def plan(recipe, data_dir, runs):
    """Look at the recipe's jobs as they are now."""
    return lambda **keys: make_plan(recipe, data_dir=data_dir, runs=runs, **keys)


def _states(plan):
    return [planned.state for planned in plan.jobs]


def test_without_data_every_job_waits_with_the_exact_command(plan):
    made = plan()

    command = "prime-bench prepare synthetic --rows 1000"
    assert _states(made) == ["needs data"] * 4
    assert {planned.why for planned in made.jobs} == {command}
    assert made.prepare_commands == [command]
    assert made.to_run == []
    assert all(planned.job is None for planned in made.jobs)


def test_with_data_every_job_is_pending_and_in_the_recipes_order(plan, recipe, prepare):
    fingerprint = prepare("synthetic", KEYS)

    made = plan()

    assert _states(made) == ["pending"] * 4
    assert [planned.job_spec for planned in made.jobs] == recipe.job_specs()
    assert [planned.job for planned in made.jobs] == [
        t.bind(fingerprint) for t in recipe.job_specs()
    ]
    assert made.to_run == made.jobs
    assert made.prepare_commands == []


def test_data_of_other_settings_do_not_serve(plan, prepare):
    prepare("synthetic", {"rows": 2000})

    assert _states(plan()) == ["needs data"] * 4


def test_a_folder_without_a_manifest_does_not_serve(plan, prepare, data_dir):
    prepare("synthetic", KEYS)
    (resolve("synthetic", KEYS).folder(data_dir) / "manifest.json").unlink()

    assert _states(plan()) == ["needs data"] * 4


def test_other_data_make_other_jobs(plan, prepare, finish):
    prepare("synthetic", KEYS)
    finish(plan().jobs[0].job)
    assert plan().counts == {"done": 1, "pending": 3}

    prepare("synthetic", KEYS, fingerprint="e" * 64)
    assert plan().counts == {"pending": 4}


def test_each_state_is_told_from_what_the_folder_holds(plan, prepare, finish, runs):
    prepare("synthetic", KEYS)
    first, second, third, fourth = [planned.job for planned in plan().jobs]

    finish(first)
    runs.path(second.id).mkdir(parents=True)
    (runs.path(second.id) / "failure.json").write_text(json.dumps({"error": "out of luck"}))
    runs.path(third.id).mkdir(parents=True)
    with runs.claim(fourth.id):
        made = plan()
        assert _states(made) == ["done", "failed", "interrupted", "running"]
        assert [planned.job for planned in made.to_run] == [second, third]
        assert made.jobs[1].why == "out of luck"
        assert made.jobs[3].why == f"{runs.claimant(fourth.id)} has claimed it"
    assert _states(plan())[3] == "pending"


def test_an_interrupted_job_says_where_it_begins(plan, prepare, runs):
    prepare("synthetic", KEYS)
    job_id = plan().jobs[0].job_id
    runs.path(job_id).mkdir(parents=True)
    assert plan().jobs[0].why == "was started and has no record; it starts from the beginning"

    (runs.path(job_id) / "resume.state").touch()
    assert plan().jobs[0].why == "was started and has no record; it continues from its saved state"


def test_a_failed_job_that_runs_again_is_running(plan, prepare, runs):
    prepare("synthetic", KEYS)
    job = plan().jobs[0].job
    runs.path(job.id).mkdir(parents=True)
    (runs.path(job.id) / "failure.json").write_text(json.dumps({"error": "x"}))

    with runs.claim(job.id):
        assert plan().jobs[0].state == "running"


@pytest.mark.parametrize("content", ["{", "{}", '{"record_schema": 1}'])
def test_a_broken_record_is_neither_done_nor_done_over(plan, prepare, runs, content):
    prepare("synthetic", KEYS)
    job = plan().jobs[0].job
    runs.path(job.id).mkdir(parents=True)
    file = runs.path(job.id) / "record.json"
    file.write_text(content)

    made = plan(retrain_stale=True)
    assert _states(made) == ["broken", "pending", "pending", "pending"]
    assert made.to_run == made.jobs[1:]
    (why,) = made.broken
    assert why.startswith(f"{file}: ")
    assert why.endswith("; move the job's folder away")
    assert "\n" not in why


def test_a_broken_manifest_is_a_data_error(plan, prepare, data_dir):
    prepare("synthetic", KEYS)
    file = resolve("synthetic", KEYS).folder(data_dir) / "manifest.json"
    file.write_text(file.read_text()[:-10])

    with pytest.raises(DataError, match=r"manifest\.json[^\n]*\n\nhint: prepare the table again"):
        plan()


def test_only_narrows_the_plan(plan, prepare):
    prepare("synthetic", KEYS)

    made = plan(only=["seed=3", "arm=prime"])
    assert [str(planned.job_spec) for planned in made.jobs] == ["synthetic DNN prime seed 3"]


def test_jobs_that_wait_for_data_are_left_out_and_keep_none_from_running(
    recipe_file, prepare, data_dir, runs
):
    recipe_file.write_text(recipe_file.read_text() + "[dataset.criteo]\nnumeric = 'raw'\n")
    prepare("synthetic", KEYS)
    made = make_plan(load_recipe(recipe_file), data_dir=data_dir, runs=runs)

    assert made.counts == {"pending": 4, "needs data": 4}
    assert {planned.job_spec.dataset for planned in made.to_run} == {"synthetic"}
    check_runnable(made)


def test_a_job_that_two_arms_share_stands_once(recipe_file, prepare, data_dir, runs):
    text = recipe_file.read_text().replace('"prime"]', '"prime", "again"]')
    recipe_file.write_text(text + '[arm.again]\nplugin = "prime"\nrank = 16\n')
    prepare("synthetic", KEYS)

    made = make_plan(load_recipe(recipe_file), data_dir=data_dir, runs=runs)

    ids = [planned.job.id for planned in made.jobs]
    assert len(load_recipe(recipe_file).job_specs()) == 6
    assert len(ids) == len(set(ids)) == 4


def test_a_half_on_another_device_is_stale_and_done_again_on_demand(plan, prepare, finish):
    prepare("synthetic", KEYS)
    dense, prime = [planned.job for planned in plan().jobs[:2]]
    finish(dense, device_kind="cuda")
    assert plan(device_kind="cuda").counts == {"done": 1, "pending": 3}

    made = plan()
    assert _states(made) == ["stale", "pending", "pending", "pending"]
    assert made.jobs[0].why == "its record is on cuda, its pair would be done on cpu"
    assert made.to_run == made.jobs[1:]
    assert plan(retrain_stale=True).to_run == made.jobs

    finish(prime)
    assert plan().jobs[0].why == "its record is on cuda, its pair is on cpu"
    assert _states(plan(device_kind="cuda"))[:2] == ["done", "stale"]


def test_a_job_with_an_older_versions_record_is_stale_and_runs(plan, prepare, finish, monkeypatch):
    prepare("synthetic", KEYS)
    finish(plan().jobs[0].job)
    now = NUMERICS + 1
    monkeypatch.setattr("prime_bench.recipe.recipe.Job", functools.partial(Job, numerics=now))

    made = plan()
    assert _states(made) == ["stale", "pending", "pending", "pending"]
    assert made.jobs[0].why == f"its record has numerics {NUMERICS}, this version has {now}"
    assert made.to_run == made.jobs


MEASURING = """
    schema = 1
    title = "Small"
    kind = "subgroups"
    seeds = [7, 3]
    arms = ["dense", "prime"]
    [probe]
    min_rows = 10
    [dataset.synthetic]
    rows = 1000
    [backbone.DNN]
    hidden_units = [8]
"""


@pytest.fixture
def measuring(tmp_path, data_dir, runs):
    """Look at the jobs of a recipe that measures what `recipe` trains."""
    path = tmp_path / "measuring.toml"
    path.write_text(dedent(MEASURING))
    return lambda: make_plan(load_recipe(path), data_dir=data_dir, runs=runs)


def test_before_a_job_that_measures_stands_the_one_it_needs(plan, measuring, prepare, finish):
    prepare("synthetic", KEYS)
    made = measuring()

    assert [planned.job.kind for planned in made.jobs] == ["train", "subgroups"] * 4
    assert [planned.job for planned in made.jobs[::2]] == [planned.job for planned in plan().jobs]
    for trained, measured in zip(made.jobs[::2], made.jobs[1::2], strict=True):
        assert trained.needs == ()
        assert measured.needs == (trained.job.id,)
        assert measured.plain()["needs"] == [trained.job.id]
        assert measured.why == f"has no record, and the job {trained.job.id} comes before it"
    assert made.to_run == made.jobs

    finish(made.jobs[0].job)
    made = measuring()
    assert _states(made)[:2] == ["done", "pending"]
    assert made.jobs[1].why == "has no record"
    assert made.to_run == made.jobs[1:]


def test_what_a_job_without_data_needs_is_listed_too(measuring):
    made = measuring()

    assert [planned.job_spec.kind for planned in made.jobs] == ["train", "subgroups"] * 4
    assert _states(made) == ["needs data"] * 8


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("[dataset.crieto]", "no data set `crieto`; did you mean `criteo`?"),
        (
            "[dataset.criteo]\nnumerics = 'raw'",
            "dataset.criteo.numerics: unknown key; did you mean `numeric`?",
        ),
        ("[dataset.avazu]\nnumeric = 'raw'", "dataset.avazu.numeric: avazu has no numeric"),
        ("[dataset.criteo]\nmin_count = 0", "dataset.criteo.min_count: input should be"),
    ],
)
def test_faults_of_data_sets_come_in_one_message(recipe_file, data_dir, runs, table, said):
    text = recipe_file.read_text().replace("rows = 1000", "row = 1000") + f"\n{table}\n"
    recipe_file.write_text(text)
    places = [
        f"{recipe_file}:{text.splitlines().index(line) + 1}: "
        for line in ("[dataset.synthetic]", table.splitlines()[0])
    ]

    with pytest.raises(UsageError) as caught:
        make_plan(load_recipe(recipe_file), data_dir=data_dir, runs=runs)

    first, second = caught.value.message.splitlines()
    assert first == f"{places[0]}dataset.synthetic.row: unknown key; did you mean `rows`?"
    assert second.startswith(places[1] + said)
    hints = caught.value.hint.splitlines()
    assert len(hints) == len(set(hints) - {""})
    assert bool(hints) == ("no data set" in said), "which there are"


def test_a_fault_of_a_change_is_not_blamed_on_the_file(recipe_file, data_dir, runs):
    recipe = load_recipe(recipe_file, changes=["dataset.synthetic.rows=-5"])
    with pytest.raises(UsageError, match=r"\A--set dataset\.synthetic\.rows: input should be "):
        make_plan(recipe, data_dir=data_dir, runs=runs)


def test_nothing_to_run_for_want_of_data_is_an_error_with_all_commands(plan, prepare):
    with pytest.raises(DataError) as caught:
        check_runnable(plan())
    assert caught.value.hint.endswith("\n  prime-bench prepare synthetic --rows 1000")

    prepare("synthetic", KEYS)
    check_runnable(plan())


def test_a_plan_says_in_json_what_it_says_in_words(plan, prepare):
    prepare("synthetic", KEYS)
    planned = plan().jobs[0]

    assert planned.plain() == {
        "job_id": planned.job.id,
        "kind": "train",
        "dataset": "synthetic",
        "backbone": "DNN",
        "arm": "dense",
        "seed": 7,
        "state": "pending",
        "why": "has no record",
        "needs": [],
    }


def test_plans_of_several_recipes_are_one_list_in_which_a_shared_job_stands_once(
    recipe, recipe_file, data_dir, runs, prepare
):
    prepare("synthetic", KEYS)
    other = recipe_file.with_name("other.toml")
    # Of the two arms of the first recipe it has one, and under PRIME's name another arm.
    changed = recipe_file.read_text() + "[arm.prime]\nrank = 3\n"
    other.write_text(changed.replace("seeds = [7, 3]", "seeds = [3, 5]"))
    plans = [make_plan(one, data_dir=data_dir, runs=runs) for one in (recipe, load_recipe(other))]

    made = joined(plans, name="both", title="Both")

    ids = [[planned.job_id for planned in plan.jobs] for plan in plans]
    assert [len(set(own)) for own in ids] == [4, 4]
    assert set(ids[0]) & set(ids[1]) == {plans[0].jobs[2].job_id}  # dense, seed 3
    assert [planned.job_id for planned in made.jobs] == list(dict.fromkeys([*ids[0], *ids[1]]))
    assert [len(part.jobs) for part in made.by_recipe] == [4, 3]
    assert (made.recipe.name, made.recipe.kind) == ("both", "train")
    assert made.to_run == made.jobs
    needs = needs_of(made)
    assert needs == needs_of(plans[0]) | needs_of(plans[1])


def test_a_job_without_data_is_shared_by_what_it_would_be(recipe, data_dir, runs):
    plan = make_plan(recipe, data_dir=data_dir, runs=runs)

    made = joined([plan, plan], name="twice", title="")

    assert [len(part.jobs) for part in made.by_recipe] == [4, 0]
    assert made.counts == {"needs data": 4}


def test_a_lock_that_is_none_is_named_with_what_to_do(plan, prepare, runs):
    prepare("synthetic", KEYS)
    file = runs.folder / ".claims" / f"{plan().jobs[0].job_id}.lock"
    file.mkdir(parents=True)

    made = plan()
    assert _states(made) == ["broken", "pending", "pending", "pending"]
    assert made.broken[0].startswith(f"{file}: ")
    assert "; " in made.broken[0], "what to do"


def test_what_is_measured_again_is_done_alone(plan, prepare, finish):
    prepare("synthetic", KEYS)
    finish(plan().jobs[1].job)

    made = measured_again(plan())
    assert _states(made) == ["pending", "stale", "pending", "pending"]
    assert made.to_run == made.jobs
    assert made.jobs[1].record is not None, "which is moved away"


def test_a_plan_of_several_recipes_has_the_folders_and_remarks_of_its_parts(
    recipe, data_dir, runs, prepare
):
    prepare("synthetic", KEYS)
    options = {"data_dir": data_dir, "runs": runs}
    first = make_plan(recipe, **options, retrain_stale=True)
    plans = [
        replace(first, skipped=("one",)),
        replace(make_plan(recipe, **options), skipped=("two",)),
    ]
    made = joined(plans, name="both", title="Both")

    assert (made.data_dir, made.runs_dir, made.retrain_stale) == (data_dir, runs.folder, True)
    assert (made.recipe.title, made.recipe.probe) == ("Both", None)
    assert made.skipped == ("one", "two")
    assert joined(plans[1:], name="one", title="").retrain_stale is False


def test_costs_are_those_of_a_device_and_its_threads(recipe):
    probe = CostSettings(repetitions=5)
    made = on_device(replace(recipe, kind="cost", probe=probe), device="a CPU", threads=3)

    assert made.probe.plain() == {**probe.plain(), "device": "a CPU", "threads": 3}
    with pytest.raises(UsageError, match=r"small: .* `train`, not of the kind `cost`") as caught:
        on_device(recipe, device="a CPU", threads=3)
    assert caught.value.hint.startswith("measure recipes/cost.toml, or write one with")


def test_two_recipes_differ_in_their_keys_and_share_the_jobs_of_both(recipe, recipe_file):
    found = recipe_diff(recipe, load_recipe(recipe_file, changes=["seeds=[3,5,9]"]))

    assert [(key.key, key.left, key.right) for key in found.keys] == [("seeds", [7, 3], [3, 5, 9])]
    assert (found.n_left, found.n_right, found.n_both) == (2, 4, 2)


def test_jobs_on_data_of_other_settings_are_others(recipe, recipe_file):
    other = load_recipe(recipe_file, changes=["dataset.synthetic.rows=2000", "seeds=[7]"])
    found = recipe_diff(recipe, other)

    assert (found.n_left, found.n_right, found.n_both) == (4, 2, 0)
    keys = {key.key: (key.left, key.right) for key in found.keys}
    assert keys["dataset.synthetic.rows"] == (1000, 2000)
    assert "dataset.synthetic.card" not in keys


def test_a_card_that_is_gone_is_looked_for_below_the_folder_of_tables(
    recipe_file, data_dir, monkeypatch
):
    text = recipe_file.read_text().replace("synthetic", '"./mine.toml"')
    card = recipe_file.with_name("mine.toml")
    card.touch()
    recipe_file.write_text(text.replace("rows = 1000\n", ""))
    recipe, seen = load_recipe(recipe_file), []
    card.unlink()
    monkeypatch.setattr(
        "prime_bench.schedule.plan.carried_cards", lambda folder: seen.append(folder) or ()
    )
    for folder in (None, data_dir):
        with pytest.raises(UsageError, match="mine"):
            table_specs_of(recipe, data_dir=folder)
    assert seen == [data_dir]

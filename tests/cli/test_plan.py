"""`prime-bench plan`: what it prints, and how it fails."""

import json
from dataclasses import replace

import pytest

from prime_bench import api
from prime_bench.api.studies import StudyEstimate
from prime_bench.cli.main import exit_code
from prime_bench.cli.output import duration, size
from prime_bench.cli.plan import outlook, print_plan, summary
from prime_bench.recipe.file import load_recipe
from prime_bench.schedule.estimate import MEMORY_NOTE, RANGE_NOTE, Estimate, PlanEstimate, Total
from prime_bench.schedule.measure import measure
from prime_bench.schedule.slots import Slots
from prime_bench.settings.interface import Budget

COMMAND = "prime-bench prepare synthetic"


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def _plan(*arguments):
    return exit_code(["plan", *arguments])


def test_the_table_has_a_line_a_job_and_ends_with_what_to_do(capsys):
    assert _plan("quick") == 0

    out, err = capsys.readouterr()
    assert err == ""
    lines = out.splitlines()
    assert lines[0].split() == [
        "job",
        "dataset",
        "backbone",
        "arm",
        "seed",
        "state",
        "time",
        "memory",
        "why",
    ]
    job_specs = load_recipe("quick").job_specs()
    assert len(job_specs) == 18
    for line, job_spec in zip(lines[1:19], job_specs, strict=True):
        expected = ["-", job_spec.dataset, job_spec.backbone, job_spec.arm.name, str(job_spec.seed)]
        assert line.split()[:5] == expected
        assert line.split(maxsplit=9)[5:] == ["needs", "data", "-", "-", COMMAND]
    assert lines[19:] == [
        "",
        load_recipe("quick").title,
        "18 jobs: 18 needs data",
        f"to prepare: {COMMAND}",
    ]


def test_a_sweep_has_its_candidates_counted(capsys):
    assert _plan("sweep") == 0

    lines = capsys.readouterr().out.splitlines()
    names = load_recipe("sweep").job_specs()
    assert "60 jobs: 60 needs data" in lines
    for backbone in ("DNN", "DCNv2"):
        assert f"candidates on {backbone}: dense 1, prime 9; not a common budget" in lines
    assert any(" prime[rank=16,experts_per_bag=4] " in line for line in lines[1:61])
    assert len({spec.arm.name for spec in names}) == 10

    only = ["--only", "backbone=DNN", "--only", "arm=prime[rank=4,experts_per_bag=2]"]
    assert _plan("sweep", "--json", *only) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["candidates"] == {"DNN": {"prime": 1}}
    assert {job["arm"] for job in content["jobs"]} == {"prime[rank=4,experts_per_bag=2]"}
    assert _plan("quick") == 0
    assert "candidates" not in capsys.readouterr().out


def test_jobs_of_two_kinds_are_distinguished(capsys):
    assert _plan("subgroups") == 0

    header, first, second, *rest = capsys.readouterr().out.splitlines()
    assert header.split()[:3] == ["job", "kind", "dataset"]
    assert (first.split()[1], second.split()[1]) == ("train", "subgroups")
    assert first.split()[2:6] == second.split()[2:6]
    job_specs = len(load_recipe("subgroups").job_specs())
    kinds = [f"{job_specs} {kind} ({job_specs} needs data)" for kind in ("train", "subgroups")]
    assert f"{2 * job_specs} jobs: {', '.join(kinds)}" in rest


def test_json_is_one_object_with_the_jobs(quick_and_criteo, capsys):
    only = ["--only", "backbone=DNN", "--only", "arm=prime"]
    assert _plan(quick_and_criteo, "--json", *only) == 0

    content = json.loads(capsys.readouterr().out)
    assert content["schema"] == 1
    assert content["recipe"] == "quick"
    assert content["title"] == load_recipe("quick").title
    assert content["counts"] == {"needs data": 6}
    assert content["prepare"] == [
        "prime-bench prepare synthetic",
        "prime-bench prepare criteo --numeric log1p",
    ]
    assert len(content["jobs"]) == 6
    assert content["jobs"][1] == {
        "job_id": None,
        "kind": "train",
        "dataset": "criteo",
        "backbone": "DNN",
        "arm": "prime",
        "seed": 2021,
        "state": "needs data",
        "why": "prime-bench prepare criteo --numeric log1p",
        "needs": [],
    }


def test_what_the_arms_add_is_printed_where_the_data_are_prepared(capsys):
    """At d = 220: a matched control stands beside what it is matched to."""
    assert exit_code(["prepare", "synthetic", "--rows", "200"]) == 0
    capsys.readouterr()
    changes = ["dataset.synthetic.rows=200", "arms=['dense', 'prime', 'residual_macs']"]
    sets = [word for change in [*changes, "report.family=[]"] for word in ("--set", change)]
    assert _plan("quick", *sets) == 0

    assert capsys.readouterr().out.splitlines()[-1] == (
        "synthetic: parameters, and multiply-accumulates a row, added: "
        "prime 120,224 and 120,192; residual_macs 120,429 and 119,922"
    )


def test_json_has_sizes_budgets_and_totals_where_the_data_are_prepared(capsys):
    assert exit_code(["prepare", "synthetic", "--rows", "200"]) == 0
    capsys.readouterr()
    narrow = ["--only", "backbone=DNN", "--only", "seed=2021"]
    assert _plan("quick", "--json", "--set", "dataset.synthetic.rows=200", *narrow) == 0

    content = json.loads(capsys.readouterr().out)
    assert content["added"]["synthetic"]["prime"] == {
        "DNN": {"parameters": 120_224, "macs_per_row": 120_192}
    }
    assert set(content["added"]["synthetic"]) == {"prime", "residual_parameters"}
    jobs, total = content["jobs"], content["total"]
    assert [job["estimate_s"] for job in jobs] == [None] * 3
    assert total["jobs"] == 3
    assert total["known_jobs"] == 0
    assert total["disk_bytes"] == sum(job["disk_bytes"] for job in jobs) > 3 * 4 * 120_224
    assert total["memory_bytes"] == max(job["memory_bytes"] for job in jobs)
    assert jobs[1]["disk_bytes"] - jobs[0]["disk_bytes"] == 4 * 120_224


def test_a_measurement_tells_the_time_and_leaves_nothing(tmp_path, capsys, monkeypatch):
    assert measure.__kwdefaults__["seconds"] == 10  # as the help says
    monkeypatch.setitem(measure.__kwdefaults__, "seconds", 0.5)
    assert exit_code(["prepare", "synthetic", "--rows", "1000"]) == 0
    capsys.readouterr()
    narrow = ["--only", "backbone=DNN", "--only", "seed=2021", "--only", "arm=dense"]
    narrow += ["--device", "cpu", "--slots", "2", "--threads-per-job", "1"]
    assert _plan("quick", "--measure", "--set", "dataset.synthetic.rows=1000", *narrow) == 0

    out, err = capsys.readouterr()
    assert err == "measuring synthetic DNN dense seed 2021\n"
    (line,) = [line for line in out.splitlines() if line.startswith("time: ")]
    assert line.startswith("time: about ")
    assert " for 1 job, " in line
    assert "\nslots: 2 jobs at once, 1 CPU thread each (as asked for)\n" in out
    assert line.endswith(" one after another (measured for 0.5 s on cpu)")
    assert "\nrange: every job as fast and as short as " in out
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0 s"), (89, "89 s"), (90, "2 min"), (5399, "90 min"), (5400, "1.5 h")],
)
def test_durations_have_the_unit_that_suits(seconds, text):
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("n_bytes", "text"),
    [
        *((0, "0 MB"), (4, "1 kB"), (37_400, "37 kB"), (999_400, "999 kB"), (1e6, "1 MB")),
        *((4e8, "400 MB"), (999_400_000, "999 MB"), (1e9, "1.0 GB"), (2.34e9, "2.3 GB")),
    ],
)
def test_sizes_have_the_unit_that_suits(n_bytes, text):
    assert size(n_bytes) == text


def test_the_whole_of_main13_is_260_jobs(capsys):
    assert _plan("recipes/main13.toml") == 0

    assert "\n260 jobs: " in capsys.readouterr().out


def test_ids_survive_the_table(capsys, monkeypatch):
    """tabulate takes `12335e61` and the like for a number unless its number parsing is off."""
    from prime_bench.recipe.job import Job

    assert exit_code(["prepare", "synthetic", "--rows", "100"]) == 0
    capsys.readouterr()
    monkeypatch.setattr(Job, "id", "0012335000000e61")

    assert _plan("quick", "--set", "dataset.synthetic.rows=100") == 0
    out = capsys.readouterr().out
    assert out.splitlines()[1].startswith("0012335000000e61  ")
    assert "has no record" in out


def test_the_command_that_a_plan_gives_makes_the_data_it_wants(capsys):
    changes = ["--set", "dataset.synthetic.rows=100", "--set", "dataset.synthetic.strength=0.5"]
    changes += [
        "--set",
        "dataset.synthetic.shape=criteo",
        "--set",
        "dataset.synthetic.numeric=log1p",
    ]
    assert _plan("quick", "--json", *changes) == 0
    (command,) = json.loads(capsys.readouterr().out)["prepare"]

    assert exit_code(command.split()[1:]) == 0
    capsys.readouterr()
    assert _plan("quick", "--json", *changes) == 0
    assert json.loads(capsys.readouterr().out)["counts"] == {"pending": 18}


def test_planning_writes_nothing(tmp_path, capsys):
    assert _plan("quick") == 0

    assert capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["qiuck"], 2, "error: qiuck: no such recipe; did you mean `quick`?\n\nhint: "),
        (["quick", "--only", "backbone=DNM"], 2, "did you mean `DNN`?"),
        (["quick", "--set", "training.max_epoch=1"], 2, "did you mean `max_epochs`?"),
        (["quick", "--set", "backbone.DNM.batch_norm=true"], 2, "no backbone `DNM`; did you mean"),
        (
            ["quick", "--set", "arms=['dense', 'prmie']"],
            2,
            "unknown arm `prmie`; did you mean `prime`?",
        ),
        (
            ["quick", "--set", "dataset.criteo.numeric=raw"],
            2,
            "the recipe has no data set `criteo`\n\nhint: it has: synthetic",
        ),
        (["quick", "--set", "dataset.synthetic.row=1"], 2, "did you mean `rows`?"),
    ],
    ids=lambda part: " ".join(part) if isinstance(part, list) else None,
)
def test_mistakes_are_one_message_and_a_code(tmp_path, capsys, arguments, code, message):
    assert _plan(*arguments) == code

    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert message in err
    assert "Traceback" not in err
    assert list(tmp_path.iterdir()) == []


NOTHING = Total(
    jobs=0,
    known_jobs=0,
    slots=Slots(on_each=1, total=1, threads=1),
    wall_s=0.0,
    elapsed_s=0.0,
    elapsed_low_s=0.0,
    elapsed_high_s=0.0,
    sources=(),
    memory_bytes=0,
    disk_bytes=0,
    disk_at_work_bytes=0,
    disk_free_bytes=0,
)


@pytest.mark.parametrize(("free", "says"), [(6_000_000, "free"), (5_999_999, "not suffice")])
def test_a_disk_on_which_the_jobs_do_not_fit_is_told(free, says):
    disk = {"disk_bytes": 5_000_000, "disk_at_work_bytes": 1_000_000, "disk_free_bytes": free}

    *_, line = outlook(replace(NOTHING, jobs=1, **disk))

    assert line.startswith("disk: 5 MB of checkpoints, up to 1 MB more while ")
    assert line.endswith(says)


TIMES = {"elapsed_s": 600.0, "elapsed_low_s": 60.0, "elapsed_high_s": 7200.0, "wall_s": 1800.0}
KNOWN = "time: about 10 min (60 s to 2.0 h) for {}, 30 min one after another (a; b)"
UNKNOWN = (
    "time: unknown for {}, since nothing like them has run; `plan --measure` trains ten seconds "
    "for each backbone and arm"
)


@pytest.mark.parametrize(
    ("amounts", "lines"),
    [
        ({"jobs": 0, "known_jobs": 0, "memory_bytes": 9_000_000}, []),
        ({"jobs": 3, "known_jobs": 3}, [KNOWN.format("3 jobs"), RANGE_NOTE]),
        (
            {"jobs": 3, "known_jobs": 1},
            [KNOWN.format("1 job"), RANGE_NOTE, UNKNOWN.format("2 jobs")],
        ),
        (
            {"jobs": 1, "known_jobs": 0, "memory_bytes": 9_000_000},
            [UNKNOWN.format("1 job"), f"{MEMORY_NOTE}: at most 9 MB a job"],
        ),
    ],
)
def test_what_is_known_of_time_and_memory_is_told(amounts, lines):
    total = replace(NOTHING, **TIMES, sources=("a", "b"), **amounts)

    slots = ["slots: 1 job at once, 1 CPU thread each (as asked for)"] if total.jobs else []
    assert list(outlook(total)) == [*slots, *lines]


def _with_states(*states):
    """The plan of `quick` with jobs in these states, of which each tells why by its number."""
    made = api.plan("quick")
    jobs = [
        replace(planned, state=state, why=f"why {n}", job=planned.job_spec.bind("f" * 64))
        for n, (planned, state) in enumerate(zip(made.jobs, states, strict=False))
    ]
    return replace(made, jobs=jobs)


def test_each_job_has_its_own_time_memory_and_reason(capsys):
    made = _with_states("pending", "unfit", "done")
    first, second, _ = made.jobs
    estimates = {
        first.job_id: Estimate(wall_s=100.0, memory_bytes=3_000_000, disk_bytes=7),
        second.job_id: Estimate(wall_s=20.0),
    }
    found = PlanEstimate(jobs=estimates, total=NOTHING, added={})

    print_plan(made, found)
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [line[:1] + line[5:] for line in lines[1:4]] == [
        [first.job_id, "pending", "2", "min", "3", "MB", "why", "0"],
        [second.job_id, "unfit", "20", "s", "-", "too", "few", "rows,", "see", "below"],
        [made.jobs[2].job_id, "done", "-", "-", "why", "2"],
    ]

    print_plan(replace(made, skipped=("a: left out",)), found, as_json=True)
    content = json.loads(capsys.readouterr().out)
    assert content["jobs"] == [
        first.plain() | estimates[first.job_id].plain(),
        second.plain() | estimates[second.job_id].plain(),
        made.jobs[2].plain(),
    ]
    assert content["unfit"] == ["synthetic: why 1"]
    assert content["skipped"] == ["a: left out"]
    assert content["total"] == NOTHING.plain()


def test_what_the_points_of_a_grid_add_is_told_together(capsys):
    arms = {spec.arm.name: spec.arm for spec in load_recipe("sweep").job_specs()}
    first, second = [name for name, arm in arms.items() if arm.family == "prime"][:2]
    budget = {"backbone_parameters": 1, "backbone_macs": 1}
    added = {
        "synthetic": {
            first: {"DNN": Budget(**budget, plugin_parameters=1000, plugin_macs=20)},
            second: {"DNN": Budget(**budget, plugin_parameters=3000, plugin_macs=40)},
        }
    }

    print_plan(api.plan("sweep"), PlanEstimate(jobs={}, total=NOTHING, added=added))

    assert capsys.readouterr().out.splitlines()[-1] == (
        "synthetic: parameters, and multiply-accumulates a row, added: "
        "prime 1,000 to 3,000 and 20 to 40"
    )


def test_the_summary_says_what_is_not_as_it_should_be():
    made = _with_states("stale", "broken", "stale", "unfit", "done", "unfit", "stale")
    # A stale job whose record is of an older version runs in any case.
    made.jobs[2:3] = [replace(made.jobs[2], record=None)]
    made.jobs[0:1] = [replace(made.jobs[0], record="a record")]
    made.jobs[6:7] = [replace(made.jobs[6], record="a record")]
    made = replace(made, skipped=("synthetic: left out",))

    assert summary(made).splitlines() == [
        "7 jobs: 3 stale, 1 broken, 2 unfit, 1 done",
        "stale: `--retrain stale` does 2 jobs again",
        "broken: why 1",
        "unfit: synthetic: why 3",
        "unfit: synthetic: why 5",
        "synthetic: left out",
    ]
    assert "--retrain" not in summary(replace(made, retrain_stale=True))


def test_a_command_that_was_told_is_not_told_again():
    made = api.plan("quick")

    assert summary(made).splitlines()[-1] == f"to prepare: {COMMAND}"
    assert summary(made, told=[COMMAND]).splitlines() == ["18 jobs: 18 needs data"]


@pytest.mark.parametrize(
    ("line", "name"),
    [("plan quick --measure", "estimate"), ("study miniature --plan --measure", "estimate_study")],
)
def test_what_is_measured_and_what_could_not_be_is_told(monkeypatch, capsys, line, name):
    def estimate(made, *, log, **_):
        log("measuring\nit")
        found = PlanEstimate(jobs={}, total=NOTHING, added={}, not_measured=("no luck",))
        if name == "estimate":
            return found
        costs = tuple(replace(found, not_measured=("none",)) for _ in made.costs)
        return StudyEstimate(queue=found, costs=costs, by_recipe=(NOTHING,) * len(made.plans))

    monkeypatch.setattr(api, name, estimate)

    assert exit_code([*line.split(), "--device", "cpu"]) == 0
    first, *faults = capsys.readouterr().err.splitlines()
    assert first.startswith("measuring")
    assert faults[-2:] == (["no luck"] if name == "estimate" else ["no luck", "none"])

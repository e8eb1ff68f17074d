"""What a study's runs share, its hours and the end after a failure; what its plan tells of them."""

import contextlib
from types import SimpleNamespace

import pytest

from prime_bench.cli import study


def _plan(name, kind="train"):
    return SimpleNamespace(recipe=SimpleNamespace(name=name, kind=kind))


@pytest.fixture
def ran(monkeypatch, tmp_path):
    """Run a queue and two plans of costs, which take 30 minutes, 2 hours and no time at all; what
    each was given.
    """

    def ran(*failed, stopped=(), **options):
        now, given = [100.0], []
        ends = {"queue": 1800.0, "cost": 7200.0, "more": 0.0}

        def run(plan, **arguments):
            given.append((plan.recipe.name, arguments))
            now[0] += ends[plan.recipe.name]
            name = plan.recipe.name
            return SimpleNamespace(stopped=name in stopped, failed=("it",) * (name in failed))

        class Silent(contextlib.nullcontext):
            event = outcome = staticmethod(print)

        monkeypatch.setattr(study.time, "monotonic", lambda: now[0])
        monkeypatch.setattr("prime_bench.api.run", run)
        monkeypatch.setattr("prime_bench.cli.progress.RunProgress", lambda _plan: Silent(Silent()))
        monkeypatch.setattr(
            "prime_bench.cli.run.print_failures",
            lambda summary, *, runs_dir: given[-1][1].update(told=(summary.failed, runs_dir)),
        )
        plans = SimpleNamespace(
            queue=_plan("queue"), costs=[_plan("cost", "cost"), _plan("more", "cost")]
        )
        study._run(plans, engine="its engine", device="cuda:1", runs_dir=tmp_path, **options)
        return given

    return ran


def test_the_hours_of_a_study_are_those_of_all_its_runs(ran):
    given = ran(max_hours=2.0, retries=3, fail_fast=False)

    assert [name for name, _ in given] == ["queue", "cost", "more"]
    assert [arguments["max_hours"] for _, arguments in given] == [2.0, 1.5, 0.0]
    assert [arguments["engine"] for _, arguments in given] == ["its engine", "local", "local"]
    for _, arguments in given:
        assert (arguments["device"], arguments["retries"]) == ("cuda:1", 3)
        assert arguments["fail_fast"] is False
    assert {
        arguments["max_hours"] for _, arguments in ran(max_hours=None, retries=0, fail_fast=False)
    } == {None}


@pytest.mark.parametrize(
    ("failed", "stopped", "fail_fast", "names"),
    [
        (["queue"], [], True, ["queue"]),
        (["queue"], [], False, ["queue", "cost", "more"]),
        (["cost"], [], True, ["queue", "cost"]),
        ([], ["queue"], False, ["queue"]),
    ],
)
def test_a_failure_or_a_stop_ends_the_study(ran, failed, stopped, fail_fast, names):
    given = ran(*failed, stopped=stopped, max_hours=None, retries=0, fail_fast=fail_fast)

    assert [name for name, _ in given] == names
    # Of each run at once, and not of all at the end.
    told = [(("it",) * (name in failed), arguments["runs_dir"]) for name, arguments in given]
    assert [arguments["told"] for _, arguments in given] == told
    assert {arguments["fail_fast"] for _, arguments in given} == {fail_fast}


@pytest.mark.parametrize(
    ("jobs", "known", "n_bytes", "amounts"),
    [
        (0, 0, 0, ["-", "-", "-"]),
        (3, 3, 4_000_000, ["2 min", "4 MB", "8 MB"]),
        (3, 1, 4_000_000, ["2 min + 2 unknown", "4 MB", "8 MB"]),
        (3, 0, 0, ["unknown", "-", "-"]),
    ],
)
def test_a_plan_tells_what_is_known_of_the_jobs_left(jobs, known, n_bytes, amounts):
    total = SimpleNamespace(
        jobs=jobs,
        known_jobs=known,
        elapsed_s=120.0,
        wall_s=400.0,
        memory_bytes=n_bytes,
        disk_bytes=2 * n_bytes,
    )

    assert study._amounts(total) == amounts

"""What a command makes of an answer: its exit code, and what it says on stdout and on stderr. The
answers are made up, so that each code is that of one of them.
"""

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from prime_bench import api
from prime_bench.base.errors import UsageError
from prime_bench.cli import study as study_module
from prime_bench.cli.main import exit_code
from prime_bench.contract.result import RuleResult
from prime_bench.report.quantities.formulas import Moments, Tally
from prime_bench.report.quantities.matches import MatchRow
from prime_bench.schedule.run import RunSummary
from prime_bench.schedule.status import Status
from prime_bench.store.verification import Discrepancy

Answer = Callable[..., None]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("C").touch()


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch) -> Answer:
    """Let functions of `api` give these results, or call them where they are functions."""

    def give(**results: Any) -> None:
        for name, result in results.items():
            found = result if callable(result) else lambda *_given, _it=result, **_named: _it
            monkeypatch.setattr(api, name, found)

    return give


def rule(fault: str | None) -> RuleResult:
    return RuleResult(rule="pairing", fault=fault)


def health(state: str) -> SimpleNamespace:
    return SimpleNamespace(state=state, topic="disk", found="3 GB", advice="", plain=dict)


def leftover(name: str) -> SimpleNamespace:
    return SimpleNamespace(path=Path(name), n_bytes=2_000, why="replaced")


def draft(*, has_label: bool) -> SimpleNamespace:
    return SimpleNamespace(
        columns=[],
        rows={"a.csv": 7},
        has_label=has_label,
        could_be_label=["c: two values"],
        name="a",
    )


def source(name: str) -> SimpleNamespace:
    return SimpleNamespace(name=name, title="", by="", page="", records=[])


SUM = "the sum of it"


class Checked(SimpleNamespace):
    def __str__(self) -> str:
        return SUM


def view(*, agrees: bool) -> SimpleNamespace:
    check = Checked(faults=[f"cell {n}: outside" for n in range(22)] if not agrees else [])
    return SimpleNamespace(
        agrees=agrees, check=check, write=lambda *_, **__: [], render=lambda _format: "text\n"
    )


def summary(**changed: Any) -> RunSummary:
    plan = MagicMock(counts={"done": 0}, broken=[], unfit=[], prepare_commands=[], to_run=[])
    plan.recipe.kind = "cost"
    nothing = dict.fromkeys(("done", "skipped", "interrupted", "not_started"), 0)
    none = {"failed": (), "not_run": (), "stopped": False}
    return RunSummary(plan=plan, **{**nothing, **none, **changed})


FAILED = SimpleNamespace(
    state="failed",
    why="out of luck",
    request=SimpleNamespace(
        dataset="avazu", arm="prime", job=SimpleNamespace(backbone="DNN", seed=7, id="abcd")
    ),
)
NOTHING_TO_MEASURE = SimpleNamespace(to_run=[], jobs=[], prepare_commands=[], broken=[])
COSTS = {"cost_plan": NOTHING_TO_MEASURE, "costs": []}


@pytest.mark.parametrize(
    ("line", "answers", "code", "out", "err"),
    [
        ("check m:C", {"check": [rule(None)] * 2}, 0, "m:C: 2 of 2 rules kept\n", ""),
        (
            "check m:C",
            {"check": [rule(None), rule("order"), rule(None)]},
            1,
            "FAIL  pairing: order\npass  pairing\nm:C: 2 of 3 rules kept\n",
            "",
        ),
        ("doctor --json", {"doctor": [health("ok"), health("note")]}, 0, '"findings"', ""),
        ("doctor --json", {"doctor": [health("fault"), health("ok")]}, 4, '"findings"', ""),
        ("card a.csv", {"draft_card": (draft(has_label=True), "a.toml")}, 0, "7 rows", ""),
        (
            "card a.csv",
            {"draft_card": (draft(has_label=False), "a.toml")},
            1,
            "a.toml: 7 rows; read and edit it, then: prime-bench prepare a.toml --from a.csv\n",
            "no label was found; it could be:\nc: two values\n",
        ),
        (
            "clean --yes",
            {"leftovers": [leftover("a"), leftover("b")], "clean": [leftover("a")]},
            0,
            "a: 2 kB, replaced\nb: 2 kB, replaced\n2 to remove, 4 kB\n"
            "1 removed, 1 in use meanwhile\n",
            "",
        ),
        (
            "report --check C --format csv",
            {"report": view(agrees=True)},
            0,
            "text\n",
            "the sum of it\n",
        ),
        (
            "report --check C --output O",
            {"report": view(agrees=False)},
            1,
            "",
            "cell 19: outside\n... and 2 more: see the table `check`\n",
        ),
        (
            "report --check C --format csv",
            {"report": view(agrees=False)},
            1,
            "text\n",
            "the sum of it\n",
        ),
        ("report --check C --json", {"report": view(agrees=False)}, 1, "text\n", SUM),
        ("predict quick", {"predict": [SimpleNamespace(written=True)] * 2}, 0, "", ""),
        (
            "predict quick",
            {"predict": [SimpleNamespace(written=written) for written in (True, False, True)]},
            1,
            "",
            "",
        ),
        (
            "browse a b --output C",
            {"browse": SimpleNamespace(rows=[7], sources=[1, 2], left_out=["x.zip: no bundle"])},
            0,
            "",
            "left out: x.zip: no bundle\nwrote C: 1 row of 2 sources, 0 MB\n",
        ),
        (
            "browse a b --json",
            {"browse": SimpleNamespace(rows=[], sources=[source("A"), source("B")], left_out=())},
            0,
            '"number": 2,\n      "name": "B"',
            "",
        ),
        ("profile cost", {**COSTS, "run": summary(done=1)}, 0, "", ""),
        (
            "profile cost --runs-dir R",
            {**COSTS, "run": summary(failed=(FAILED,))},
            1,
            "",
            "failed: avazu DNN: out of luck (R/abcd)\n",
        ),
        ("profile cost", {**COSTS, "run": summary(stopped=True)}, 130, "", ""),
        # Stopped by the user: not the failure that some jobs also had.
        (
            "profile cost",
            {**COSTS, "run": summary(failed=(FAILED,), stopped=True)},
            130,
            "",
            "failed: avazu DNN: out of luck (runs/abcd)\n",
        ),
    ],
)
def test_an_answer_has_its_code_and_its_words(
    answer: Answer,
    capsys: pytest.CaptureFixture[str],
    line: str,
    answers: dict[str, Any],
    code: int,
    out: str,
    err: str,
) -> None:
    answer(**answers)

    assert exit_code(line.split()) == code
    said = capsys.readouterr()
    assert out in said.out
    assert err in said.err
    assert out or not said.out
    assert err or not said.err


def discrepancy(topic: str) -> Discrepancy:
    return Discrepancy(topic=topic, where=f"{topic}.json", what="is\ngone")  # type: ignore[arg-type]


def moments(mean: float) -> Moments:
    return Moments(n=2, mean=mean, sd=0.25)


def match_row(name: str, **facts: Any) -> MatchRow:
    """Two seeds, of which the right side has won both."""
    plain = {
        "left": moments(0.5),
        "right": moments(0.75),
        "auc": moments(0.25),
        "auc_tally": Tally(wins=2, ties=0, losses=1),
        "logloss": moments(-0.125),
        "seeds": [3, 4],
        "unpaired": {4: "its data differ"},
        "settings": {"training.seed": (1, None), "arm.plugin": ("dense", "prime")},
    }
    return MatchRow(name=name, **{**plain, **facts})


UNSCORED = match_row(
    "avazu FM",
    **dict.fromkeys(("left", "right", "auc", "logloss")),
    **{"auc_tally": Tally(wins=0, ties=0, losses=0), "seeds": [], "unpaired": {}},
)
SAME = match_row(
    "avazu DCN",
    **{"auc_tally": Tally(wins=0, ties=2, losses=0), "settings": {}, "unpaired": {}},
    **{"auc": moments(0.0), "logloss": moments(0.0)},
)
COMPARED = SimpleNamespace(rows=[match_row("avazu DNN"), SAME, UNSCORED], alone=["a: alone", "b"])
CHECKED = SimpleNamespace(
    records=["r"] * 3, findings=[discrepancy("files"), discrepancy("data")], without_digests=2
)
LISTED = SimpleNamespace(
    rows=[SimpleNamespace(plain=lambda: {"arm": "prime"})],
    sources=[
        SimpleNamespace(name="n1", title="t1", by="b1", page="p1", records=["r"] * 5),
        SimpleNamespace(name="n2", title="t2", by="b2", page="p2", records=[]),
    ],
    left_out=["x.zip: no bundle"],
)


def plain_row(row: MatchRow) -> dict[str, Any]:
    return {
        "name": row.name,
        "seeds": row.seeds,
        "auc": [side and vars(side) for side in (row.left, row.right)],
        "auc_difference": row.auc and vars(row.auc),
        "auc_wins": row.auc_tally.wins,
        "auc_losses": row.auc_tally.losses,
        "logloss_difference": row.logloss and vars(row.logloss),
        "settings": {key: list(values) for key, values in row.settings.items()},
        "unpaired": {str(seed): why for seed, why in row.unpaired.items()},
    }


@pytest.mark.parametrize(
    ("line", "answers", "code", "content", "err"),
    [
        (
            "verify --json",
            {"verify": CHECKED},
            1,
            {
                "records": 3,
                "without_digests": 2,
                "findings": [one.plain() for one in CHECKED.findings],
            },
            "",
        ),
        (
            "clean --yes --json",
            {"leftovers": [leftover("a"), leftover("b")], "clean": [leftover("b")]},
            0,
            {
                "leftovers": [
                    {"path": name, "bytes": 2000, "why": "replaced", "removed": name == "b"}
                    for name in ("a", "b")
                ]
            },
            "",
        ),
        (
            "browse a b --json",
            {"browse": LISTED},
            0,
            {
                "sources": [
                    {"number": n, "name": f"n{n}", "title": f"t{n}", "by": f"b{n}"}
                    | {"page": f"p{n}", "records": records}
                    for n, records in ((1, 5), (2, 0))
                ],
                "rows": [{"arm": "prime"}],
                "left_out": ["x.zip: no bundle"],
            },
            "left out: x.zip: no bundle\n",
        ),
        (
            "compare A B --json",
            {"compare": COMPARED},
            0,
            {
                "sides": ["A", "B"],
                "rows": [plain_row(row) for row in COMPARED.rows],
                "alone": COMPARED.alone,
            },
            "",
        ),
        (
            "compare A B --json --changed",
            {"compare": COMPARED},
            0,
            {
                "sides": ["A", "B"],
                "rows": [plain_row(COMPARED.rows[0]), plain_row(UNSCORED)],
                "alone": COMPARED.alone,
            },
            "",
        ),
        (
            "status --json",
            {"status": Status(jobs=[], earlier=["another version"])},
            0,
            {"counts": {}, "earlier": ["another version"], "jobs": []},
            "",
        ),
    ],
    ids=lambda part: part if isinstance(part, str) else "",
)
def test_json_has_all_of_an_answer(
    answer: Answer,
    capsys: pytest.CaptureFixture[str],
    line: str,
    answers: dict[str, Any],
    code: int,
    content: dict[str, Any],
    err: str,
) -> None:
    answer(**answers)

    assert exit_code(line.split()) == code
    said = capsys.readouterr()
    assert json.loads(said.out) == {"schema": 1, **content}
    assert said.err == err


@pytest.mark.parametrize(
    ("line", "function"),
    [
        ("verify", "verify"),
        ("compare A B", "compare"),
        ("export fuxictr T --to O", "export_fuxictr"),
        ("prepare avazu --json", "prepare"),
        ("prepare --recipe quick --json", "prepare_recipe"),
        ("predict abcd --from a", "predict_rows"),
        ("study miniature --device cpu", "prepare_study"),
    ],
)
def test_what_the_library_says_meanwhile_is_on_stderr(
    answer: Answer, capsys: pytest.CaptureFixture[str], line: str, function: str
) -> None:
    def said(*_given: object, log: Callable[[str], None], **_named: object) -> None:
        log("a message")
        raise UsageError("enough of it")

    answer(**{function: said})

    assert exit_code(line.split()) == 2
    assert capsys.readouterr() == ("", "a message\nerror: enough of it\n")


@pytest.mark.parametrize(
    ("flags", "written_as"),
    [
        ("", {"format": "markdown", "figures": False}),
        ("--format latex --figures", {"format": "latex", "figures": True}),
        ("--json", {"format": "json", "figures": False}),
    ],
)
def test_a_report_that_is_written_tells_its_files_and_prints_no_table(
    answer: Answer, capsys: pytest.CaptureFixture[str], flags: str, written_as: dict[str, Any]
) -> None:
    given = []

    def write(folder: Path, *, log: Callable[[str], None], **how: Any) -> list[Path]:
        given.append((folder, how))
        log("drawing\nfigures")
        return [folder / "main.csv", folder / "report.md"]

    answer(report=SimpleNamespace(write=write, check=None, agrees=True))

    assert exit_code(["report", "--output", "O", *flags.split()]) == 0
    assert given == [(Path("O"), written_as)]
    assert capsys.readouterr() == (
        "",
        "drawing\\nfigures\nwrote O/main.csv\nwrote O/report.md\n",
    )


@pytest.mark.parametrize(
    ("n_faults", "more"), [(20, []), (21, ["... and 1 more: see the table `check`"])]
)
def test_the_first_faults_of_a_check_are_named(
    answer: Answer, capsys: pytest.CaptureFixture[str], n_faults: int, more: list[str]
) -> None:
    check = Checked(faults=[f"cell {n}" for n in range(n_faults)])
    made = SimpleNamespace(check=check, agrees=False, render=lambda name: f"as {name}")
    answer(report=made)

    assert exit_code(["report", "--check", "C", "--format", "csv"]) == 1
    out, err = capsys.readouterr()
    assert out == "as csv"
    lines = err.splitlines()
    assert lines[:20] == [f"cell {n}" for n in range(20)]
    assert lines[20:-1] == more
    assert lines[-1] == SUM


def test_verify_names_each_finding_and_counts_them(
    answer: Answer, capsys: pytest.CaptureFixture[str]
) -> None:
    answer(verify=CHECKED)

    assert exit_code(["verify"]) == 1
    assert capsys.readouterr().out.splitlines() == [
        r"files: files.json: is\ngone",
        r"data: data.json: is\ngone",
        "3 records, 2 findings",
    ]


def test_compare_has_a_line_a_name_and_then_what_differs(
    answer: Answer, capsys: pytest.CaptureFixture[str]
) -> None:
    """Settings once for all names in which they differ alike."""
    answer(compare=COMPARED)

    assert exit_code(["compare", "A", "B"]) == 0
    table, *blocks = capsys.readouterr().out.split("\n\n")
    assert [re.split(r" {2,}", line.strip()) for line in table.splitlines()] == [
        ["seeds", "AUC A", "AUC B", "Δ AUC", "won", "Δ LogLoss"],
        ["avazu DNN", "2", "0.5000±0.2500", "0.7500±0.2500", "+0.2500", "2/2", "-0.1250"],
        ["avazu DCN", "2", "0.5000±0.2500", "0.7500±0.2500", "0.0000", "0/2", "0.0000"],
        ["avazu FM", "0", "--", "--", "--", "0/0", "--"],
    ]
    assert "\n\n".join(blocks).splitlines() == [
        "avazu DNN, avazu FM: what differs",
        "  training.seed: 1 -> -",
        '  arm.plugin: "dense" -> "prime"',
        "",
        "avazu DNN, seed 4: not a pair: its data differ",
        "a: alone",
        "b",
    ]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("report --figures", "--figures writes files: name their folder with --output"),
        ("predict abcd --from a --only seed=1", "--from: takes a job, and neither --only nor"),
        ("predict abcd --from a --set seeds=[1]", "--from: takes a job, and neither --only nor"),
        ("predict quick --output O", "--output: is for the rows of --from"),
        ("study miniature --plan --only-report", "--plan and --only-report exclude each other"),
        ("ls --json figures", "put --json behind: ls figures --json"),
        ("show dataset T --html p.html --json", "--html and --json: one of them"),
        ("prepare", "Missing argument 'NAME', or --recipe RECIPE"),
        ("prepare avazu --raw O", "--raw: avazu is not generated; only synthetic data is"),
        ("prepare avazu --raw-format criteo", "--raw: avazu is not generated"),
        ("card a/train.csv a/valid.csv b/test.csv", "several files are train, valid and test of"),
        ("card a/train.csv a/valid.csv a/tes.csv", "several files are train, valid and test of"),
        ("run quick --retries -1", "-1 is not in the range x>=0"),
        ("run quick --threads-per-job 0", "0 is not in the range x>=1"),
        ("run quick --max-hours -0.1", "-0.1 is not in the range x>=0"),
        ("run quick --job-timeout 0", "0.0 is not in the range x>0"),
        ("run quick --node-timeout -1", "-1.0 is not in the range x>=0"),
    ],
)
def test_what_does_not_go_together_is_a_usage_error(
    capsys: pytest.CaptureFixture[str], line: str, message: str
) -> None:
    assert exit_code(line.split()) == 2
    assert message in capsys.readouterr().err


def test_three_files_of_one_folder_stand_for_it(answer: Answer) -> None:
    given = []

    def draft_card(source: Path, *_rest: object, **_named: object) -> tuple[SimpleNamespace, str]:
        given.append(source)
        return draft(has_label=True), "a.toml"

    answer(draft_card=draft_card)
    assert exit_code(["card", "a/test.csv", "a/train.csv.gz", "a/VALID.csv"]) == 0
    assert given == [Path("a")]


@pytest.mark.parametrize("agrees", [True, False])
def test_a_terminal_is_asked_before_anything_is_removed(
    answer: Answer,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    agrees: bool,
) -> None:
    found, removed = [leftover("a")], []
    answer(leftovers=found, clean=lambda given, **_: removed.extend(given) or given)
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr("click.confirm", lambda *_given, **_named: agrees)

    assert exit_code(["clean"]) == 0
    assert removed == (found if agrees else [])
    assert ("1 removed\n" in capsys.readouterr().out) is agrees

    # --yes is the answer.
    monkeypatch.setattr("click.confirm", lambda *_given, **_named: pytest.fail("asked"))
    removed.clear()
    assert exit_code(["clean", "--yes"]) == 0
    assert removed == found


class TestStudy:
    """Its parts are run one after another, within one time limit."""

    @pytest.fixture
    def study(self, answer: Answer, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
        """Runs a study of a queue and two recipes of costs, each of which takes half an hour;
        returns its code, and the arguments with which each was run.
        """

        def run_study(*options: str, limit: float | None = None, **summaries: Any) -> Any:
            given: list[dict[str, Any]] = []
            now_s = [0.0]
            kinds = {"queue": "train", "first": "cost", "second": "cost"}
            plans = {name: MagicMock(to_run=[], jobs=[]) for name in kinds}
            for name, kind in kinds.items():
                plans[name].recipe = SimpleNamespace(name=name, kind=kind)

            def run(plan: Any, **named: Any) -> RunSummary:
                given.append({"name": plan.recipe.name, **named})
                now_s[0] += 1800
                return summaries.get(plan.recipe.name, summary(done=1))

            loaded = SimpleNamespace(name="s", max_hours=limit, label="", recipes=())
            made = SimpleNamespace(queue=plans["queue"], costs=(plans["first"], plans["second"]))
            answer(
                load_study=loaded, open_engine="opened", prepare_study=[], plan_study=made, run=run
            )
            reports: list[object] = []
            monkeypatch.setattr(study_module, "_report", lambda *_g, **named: reports.append(named))
            monkeypatch.setattr(study_module.time, "monotonic", lambda: now_s[0])
            return exit_code(["study", "s", *options]), given, reports

        return run_study

    def test_all_done_is_0_and_costs_are_measured_here(self, study: Callable[..., Any]) -> None:
        code, given, reports = study()
        assert (code, len(reports)) == (0, 1)
        assert [(one["name"], one["engine"]) for one in given] == [
            ("queue", "opened"),
            ("first", "local"),
            ("second", "local"),
        ]
        assert [one["max_hours"] for one in given] == [None, None, None]

    @pytest.mark.parametrize(
        ("options", "limit", "hours"),
        [
            (["--max-hours", "1.25"], None, [1.25, 0.75, 0.25]),
            ([], 0.75, [0.75, 0.25, 0.0]),
            (["--max-hours", "0"], 0.75, [0.0, 0.0, 0.0]),
            (["--max-hours", "2"], 0.75, [2.0, 1.5, 1.0]),
        ],
    )
    def test_what_is_left_of_the_time_is_for_the_next(
        self,
        study: Callable[..., Any],
        options: list[str],
        limit: float | None,
        hours: list[float],
    ) -> None:
        _, given, _ = study(*options, limit=limit)
        assert [one["max_hours"] for one in given] == hours

    @pytest.mark.parametrize(
        ("options", "queue", "code", "n_run", "n_reports"),
        [
            ([], summary(done=2, failed=(FAILED,)), 1, 3, 1),
            (["--fail-fast"], summary(done=2, failed=(FAILED,)), 1, 1, 1),
            (["--fail-fast"], summary(done=2), 0, 3, 1),
            ([], summary(done=2, stopped=True), 130, 1, 0),
            (["--fail-fast"], summary(failed=(FAILED,)), 1, 1, 0),
            (["--fail-fast"], summary(skipped=1, failed=(FAILED,)), 1, 1, 1),
        ],
    )
    def test_a_failure_a_stop_and_nothing_done(
        self,
        study: Callable[..., Any],
        options: list[str],
        queue: RunSummary,
        code: int,
        n_run: int,
        n_reports: int,
    ) -> None:
        found, given, reports = study(*options, queue=queue)
        assert (found, len(given), len(reports)) == (code, n_run, n_reports)

    def test_a_stop_while_costs_are_measured_is_130(self, study: Callable[..., Any]) -> None:
        found, given, reports = study(first=summary(stopped=True))
        assert (found, len(given), len(reports)) == (130, 2, 0)

"""Every option of every command reaches the function that it is for, with the value that it was
given. The values are no defaults, and no two of a line are alike, so that none can be left out or
stand in another's place.
"""

import functools
import importlib
import inspect
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import click
import pytest

from prime_bench import api
from prime_bench.cli.main import COMMANDS, cli

Calls = dict[str, dict[str, Any]]

WHERE = "--data-dir D --runs-dir R"
FOLDERS = {"data_dir": Path("D"), "runs_dir": Path("R")}
RUNS = {"runs_dir": Path("R")}
JOBS = "--only seed=7 --only arm=prime --set training.max_epochs=1"
CHOSEN = {"only": ("seed=7", "arm=prime"), "changes": ("training.max_epochs=1",)}
SLOTS = "--device cuda:1 --slots 3 --threads-per-job 5"
HELD = {"device": "cuda:1", "slots": 3, "threads": 5}
LIMITS = "--retries 2 --max-hours 1.5"
LIMITED = {"retries": 2, "max_hours": pytest.approx(1.5, abs=0.05), "fail_fast": False}
CLUSTER = (
    "--engine ray --address h:1 --nodes big --node-timeout 60 --job-timeout 90 --device cuda:1"
)
ON_CLUSTER = {
    "name": "ray",
    "address": "h:1",
    "nodes": "big",
    "node_timeout_s": 60,
    "job_timeout_s": 90,
    "mixed_devices": False,
    "sync_data": False,
}
PREPARED = {"allow_unverified": False, "keep_download": False}

CASES: list[tuple[str, Calls]] = [
    (
        f"plan quick {JOBS} {SLOTS} {WHERE}",
        {
            "open_engine": {"name": "local", **HELD},
            "plan": {**CHOSEN, **FOLDERS, "retrain_stale": False, "accept_source": False},
            "estimate": {"measure": False, **RUNS},
        },
    ),
    ("plan quick --retrain stale", {"plan": {"retrain_stale": True, "accept_source": False}}),
    ("plan quick --accept-source", {"plan": {"retrain_stale": False, "accept_source": True}}),
    ("plan quick --measure", {"estimate": {"measure": True}}),
    (
        f"run quick {JOBS} --slots 3 --threads-per-job 5 {CLUSTER} {LIMITS} {WHERE}",
        {
            "open_engine": {**HELD, **ON_CLUSTER},
            "plan": {**CHOSEN, **FOLDERS, "retrain_stale": False, "accept_source": False},
            "run": {**LIMITED, **RUNS, "keep_predictions": False, "log_to": None},
        },
    ),
    (
        "run quick --allow-mixed-devices",
        {
            "open_engine": {
                **ON_CLUSTER,
                "name": "local",
                "address": "auto",
                "nodes": None,
                "node_timeout_s": 0,
                "job_timeout_s": None,
                "mixed_devices": True,
            }
        },
    ),
    ("run quick --sync-data", {"open_engine": {"mixed_devices": False, "sync_data": True}}),
    ("run quick --retrain stale", {"plan": {"retrain_stale": True, "accept_source": False}}),
    ("run quick --accept-source", {"plan": {"retrain_stale": False, "accept_source": True}}),
    (
        "run quick --set seeds=[1] --compile",
        {"plan": {"changes": ("seeds=[1]", "training.compile=true")}},
    ),
    ("run quick --fail-fast", {"run": {"fail_fast": True, "keep_predictions": False}}),
    ("run quick --keep-predictions", {"run": {"fail_fast": False, "keep_predictions": True}}),
    ("run quick --log tensorboard", {"run": {"log_to": "tensorboard"}}),
    (f"run quick --dry-run {WHERE}", {"plan": FOLDERS, "estimate": RUNS}),
    (
        f"study miniature --slots 3 --threads-per-job 5 {CLUSTER} {LIMITS} {WHERE} --output O",
        {
            "open_engine": {**HELD, **ON_CLUSTER},
            "prepare_study": {"sources": {}, "data_dir": Path("D"), "allow_unverified": False},
            "plan_study": {**FOLDERS, "device": "cuda:1", "retrain_stale": False},
            "run": {**LIMITED, **RUNS, "device": "cuda:1"},
        },
    ),
    ("study miniature --output O --from a=b", {"prepare_study": {"sources": {"a": "b"}}}),
    (
        "study miniature --output O --allow-unverified",
        {"prepare_study": {"allow_unverified": True}},
    ),
    (
        "study miniature --output O --allow-mixed-devices",
        {"open_engine": {"mixed_devices": True, "sync_data": False}},
    ),
    (
        "study miniature --output O --sync-data",
        {"open_engine": {"mixed_devices": False, "sync_data": True}},
    ),
    ("study miniature --output O --retrain stale", {"plan_study": {"retrain_stale": True}}),
    ("study miniature --output O --fail-fast", {"run": {"fail_fast": True}}),
    (
        f"study miniature --plan {SLOTS} {WHERE}",
        {
            "open_engine": {"name": "local", **HELD},
            "plan_study": {**FOLDERS, "device": "cuda:1", "retrain_stale": False},
            "estimate_study": {"device": "cuda:1", "measure": False, **RUNS},
        },
    ),
    ("study miniature --plan --measure", {"estimate_study": {"measure": True}}),
    (f"study miniature --only-report {WHERE}", {"report_study": RUNS}),
    (
        f"status quick {JOBS} --device cuda:1 {WHERE}",
        {"status": {**CHOSEN, **FOLDERS, "device": "cuda:1", "accept_source": False}},
    ),
    ("status quick --accept-source", {"status": {"accept_source": True}}),
    (
        f"report quick {JOBS} --table cost --table main --level full --against paper --check C "
        "--metric gauc --metric ne --runs-dir R --runs-dir S.zip --format html --arms a,b",
        {
            "report": {
                **CHOSEN,
                "recipe": "quick",
                "tables": ("cost", "main"),
                "level": "full",
                "against": "paper",
                "check": Path("C"),
                "metrics": ("gauc", "ne"),
                "runs_dir": [Path("R"), Path("S.zip")],
                "arms": ["a", "b"],
                "allow_missing": False,
                "mixed": False,
                "accept_source": False,
            }
        },
    ),
    (
        "report --check C --allow-missing",
        {"report": {"allow_missing": True, "mixed": False, "accept_source": False}},
    ),
    (
        "report --allow-mixed",
        {"report": {"allow_missing": False, "mixed": True, "accept_source": False}},
    ),
    (
        "report --accept-source",
        {"report": {"allow_missing": False, "mixed": False, "accept_source": True}},
    ),
    (
        f"pack quick {JOBS} --output b.zip --runs-dir R --runs-dir S.zip",
        {
            "read_sources": {"places": [Path("R"), Path("S.zip")]},
            "pack": {**CHOSEN, "recipe": "quick", "output": Path("b.zip"), "accept_source": False},
        },
    ),
    ("pack quick --output b.zip --accept-source", {"pack": {"accept_source": True}}),
    (
        "publish quick --set seeds=[1] --to P --by A --message M --runs-dir R",
        {
            "target_of": {"name": "P", "private": False},
            "publish": {
                "what": "quick",
                "changes": ("seeds=[1]",),
                "by": "A",
                "message": "M",
                "runs.folder": Path("R"),
                "anonymous": False,
                "replace": False,
            },
        },
    ),
    (
        "publish quick --to P --private",
        {"target_of": {"private": True}, "publish": {"anonymous": False, "replace": False}},
    ),
    (
        "publish quick --to P --anonymous",
        {"target_of": {"private": False}, "publish": {"anonymous": True, "replace": False}},
    ),
    (
        "publish quick --to P --replace",
        {"target_of": {"private": False}, "publish": {"anonymous": False, "replace": True}},
    ),
    ("browse a b --output p.html", {"browse": {"sources": ("a", "b"), "output": Path("p.html")}}),
    ("browse a", {"browse": {"output": Path("reports/browse.html")}}),
    ("browse a --json", {"browse": {"output": None}}),
    ("browse a --json --output p.html", {"browse": {"output": Path("p.html")}}),
    (
        f"profile cost {JOBS} --device cuda:1 {WHERE}",
        {
            "cost_plan": {**CHOSEN, **FOLDERS, "device": "cuda:1", "again": False},
            "run": {**RUNS, "device": "cuda:1"},
        },
    ),
    ("profile cost --again", {"cost_plan": {"again": True}}),
    (
        "profile cost --set seeds=[1] --compile",
        {"cost_plan": {"changes": ("seeds=[1]", "training.compile=true"), "again": False}},
    ),
    (
        f"profile cost --dry-run --device cuda:1 {WHERE}",
        {"estimate": {**RUNS, "device": "cuda:1"}},
    ),
    (
        f"predict quick {JOBS} --device cuda:1 {WHERE}",
        {"predict": {**CHOSEN, **FOLDERS, "what": "quick", "device": "cuda:1"}},
    ),
    (
        f"predict abcd --from a --from b --output O.csv --device cuda:1 {WHERE}",
        {
            "predict_rows": {
                **FOLDERS,
                "job": "abcd",
                "source": (Path("a"), Path("b")),
                "device": "cuda:1",
            }
        },
    ),
    (
        f"verify quick {JOBS} --device cuda:1 --report F {WHERE}",
        {
            "verify": {
                **CHOSEN,
                **FOLDERS,
                "what": "quick",
                "device": "cuda:1",
                "report_folder": Path("F"),
                "recompute": False,
            }
        },
    ),
    ("verify --recompute", {"verify": {"recompute": True, "report_folder": None}}),
    (f"compare a b {WHERE}", {"compare": {**FOLDERS, "left": "a", "right": "b"}}),
    ("diff a b", {"diff": {"left": "a", "right": "b"}}),
    ("clean --runs-dir R", {"leftovers": {**RUNS, "unfinished": False}}),
    ("clean --unfinished", {"leftovers": {"unfinished": True}}),
    ("clean --yes --runs-dir R", {"clean": RUNS}),
    (f"doctor {WHERE}", {"doctor": FOLDERS}),
    ("check mine:Gate", {"check": {"name": "mine:Gate"}}),
    ("ls datasets --data-dir D", {"listing": {"kind": "datasets", "data_dir": Path("D")}}),
    (
        "show backbone DNN --data T --data-dir D",
        {"backbone_facts": {"name": "DNN", "table": "T", "data_dir": Path("D")}},
    ),
    ("show arm prime", {"arm_facts": {"name": "prime"}}),
    ("show dataset T --data-dir D", {"table_facts": {"table": "T", "data_dir": Path("D")}}),
    (f"show job abcd {WHERE}", {"job": {**FOLDERS, "job": "abcd"}}),
    (
        "export fuxictr T --to O --data-dir D",
        {"export_fuxictr": {"table": "T", "to": Path("O"), "data_dir": Path("D")}},
    ),
    (
        "card a.csv --output c.toml",
        {"draft_card": {"source": Path("a.csv"), "output": Path("c.toml"), "replace": False}},
    ),
    ("card a.csv --force", {"draft_card": {"output": None, "replace": True}}),
    (
        "prepare criteo --vocabulary train --numeric quantile --bins 9 --min-count 7 --from a "
        "--from b --data-dir D",
        {
            "prepare": {
                "dataset.name": "criteo",
                "dataset.settings.vocabulary": "train",
                "dataset.settings.numeric": "quantile",
                "dataset.settings.bins": 9,
                "dataset.settings.min_count": 7,
                "source": ("a", "b"),
                "data_dir": Path("D"),
                **PREPARED,
            }
        },
    ),
    (
        "prepare criteo --numeric log_bucket --zero-is-missing no",
        {"prepare": {"dataset.settings.zero_is_missing": False}},
    ),
    (
        "prepare avazu-raw --split hash --split-fractions 0.7,0.2,0.1 --split-seed 7 "
        "--gauc-by site_id",
        {
            "prepare": {
                "dataset.settings.split": "hash",
                "dataset.settings.split_fractions": (0.7, 0.2, 0.1),
                "dataset.settings.split_seed": 7,
                "dataset.settings.gauc_by": "site_id",
            }
        },
    ),
    (
        "prepare synthetic --shape criteo --rows 300 --strength 0.5 --seed 7",
        {
            "prepare": {
                "dataset.settings.shape": "criteo",
                "dataset.settings.rows": 300,
                "dataset.settings.strength": 0.5,
                "dataset.settings.seed": 7,
            }
        },
    ),
    (
        "prepare synthetic --raw O --raw-format avazu --rows 300",
        {"write_raw": {"folder": Path("O"), "raw_format": "avazu", "settings": {"rows": 300}}},
    ),
    (
        "prepare --recipe quick --data-dir D --from a=b",
        {"prepare_recipe": {"sources": {"a": "b"}, "data_dir": Path("D"), **PREPARED}},
    ),
    (
        "prepare --recipe quick --allow-unverified",
        {"prepare_recipe": {**PREPARED, "allow_unverified": True}},
    ),
    (
        "prepare --recipe quick --keep-download",
        {"prepare_recipe": {**PREPARED, "keep_download": True}},
    ),
    ("prepare avazu --allow-unverified", {"prepare": {**PREPARED, "allow_unverified": True}}),
    ("prepare avazu --keep-download", {"prepare": {**PREPARED, "keep_download": True}}),
]

OF_THE_COMMAND = {
    # What is printed or written, and not what is asked for: tests/cli and tests/report show it.
    "--json",
    *("report --format", "report --figures", "report --output"),
    *("compare --changed", "show dataset --html", "status --watch"),
}


class Reached(Exception):
    """The last function of a line was called."""


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    """Runs a line up to a function; returns the arguments of each function that was called."""
    monkeypatch.chdir(tmp_path)
    Path("C").touch()
    Path("F").mkdir()

    def run(line: str, *, until: str) -> Calls:
        calls: Calls = {}

        def put(place: str, real: Any) -> None:
            name = place.rpartition(".")[2]

            def stub(*given: Any, **named: Any) -> Any:
                bound = inspect.signature(real).bind(*given, **named)
                bound.apply_defaults()
                calls[name] = bound.arguments
                if name == until:
                    raise Reached
                return real(*given, **named) if name.startswith("load_") else MagicMock()

            monkeypatch.setattr(place, stub)

        for name in api.__all__:
            if inspect.isfunction(getattr(api, name)):
                put(f"prime_bench.api.{name}", getattr(api, name))
        for module, name in (
            ("prime_bench.report.sources", "read_sources"),
            ("prime_bench.report.request", "pack"),
            ("prime_bench.report.publish", "target_of"),
            ("prime_bench.report.publish", "publish"),
        ):
            put(f"{module}.{name}", getattr(importlib.import_module(module), name))
        with pytest.raises(Reached):
            cli.main(shlex.split(line), standalone_mode=False)
        return calls

    return run


def value_of(arguments: dict[str, Any], key: str) -> Any:
    """An argument, or with dots an attribute of it."""
    name, *rest = key.split(".")
    return functools.reduce(getattr, rest, arguments[name])


@pytest.mark.parametrize(
    ("line", "expected"), CASES, ids=lambda part: part if isinstance(part, str) else ""
)
def test_what_an_option_is_given_reaches_what_it_is_for(
    called: Any, line: str, expected: Calls
) -> None:
    calls = called(line, until=list(expected)[-1])

    for function, arguments in expected.items():
        found = {key: value_of(calls[function], key) for key in arguments}
        assert found == arguments, function


def options_of(name: str, command: click.Command) -> Iterator[tuple[str, list[str]]]:
    if isinstance(command, click.Group):
        for word, below in command.commands.items():
            yield from options_of(f"{name} {word}", below)
    for param in command.params:
        if isinstance(param, click.Option):
            yield name, [*param.opts]


def test_no_option_is_left_out() -> None:
    """An option without a line above would be one that no test sees ignored."""
    lines = [line.split() for line, _ in CASES]
    left = []
    for command, target in COMMANDS.items():
        module, _, attribute = target.partition(":")
        for name, flags in options_of(command, getattr(importlib.import_module(module), attribute)):
            words = name.replace("paper", "study").split()
            given = any(line[: len(words)] == words and set(flags) & set(line) for line in lines)
            own = {flags[-1], f"{name} {flags[-1]}"} & OF_THE_COMMAND
            if not given and not own:
                left.append(f"{name} {flags[-1]}")
    assert left == []

"""Shell completion: the names it gives, in click and in a real bash, and what it must not load."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import EntryPoint
from pathlib import Path

import click
import pytest
from click.shell_completion import ShellComplete

from prime_bench.base.files import bundled_folder
from prime_bench.catalog import BACKBONES, PLUGINS
from prime_bench.cli import complete
from prime_bench.cli.main import COMMANDS, cli
from prime_bench.data.card import card_names
from prime_bench.report.tables.definition import shipped_tables
from prime_bench.store.runs import is_job_id

RECIPES = [path.stem for path in sorted(bundled_folder("recipes").glob("*.toml"))]
JOBS = ("0123456789abcdef", "01ff456789abcdef", "fedcba9876543210")
OWN = ("mine/first.toml", "mine/second.toml", "own.toml")
Completed = Callable[[str], list[str]]


@pytest.fixture
def completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Completed:
    """What TAB gives behind a command line, in a folder with jobs and recipes of its own."""
    monkeypatch.chdir(tmp_path)
    for job_id in JOBS:
        folder = tmp_path / "runs" / job_id
        folder.mkdir(parents=True)
        config = {"dataset": "avazu", "arm": "prime", "job": {"backbone": "DNN", "seed": 1}}
        (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    (tmp_path / "runs" / ".claims").mkdir()
    more = ("mine/packed.zip", "cards/mylog.toml", ".hidden.toml", "odd\n.toml")
    for name in (*OWN, *more, "prepared/avazu-1/manifest.json", "prepared/half/schema.json"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("", encoding="utf-8")
    monkeypatch.setenv("PRIME_BENCH_CARDS", "cards")

    def complete(line: str) -> list[str]:
        *words, incomplete = line.split(" ")
        completion = ShellComplete(cli, {}, "prime-bench", "_PRIME_BENCH_COMPLETE")
        return [item.value for item in completion.get_completions(words, incomplete)]

    return complete


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("", list(COMMANDS)),
        ("pr", ["prepare", "profile", "predict"]),
        ("ls ", ["arms", "backbones", "datasets", "figures", "recipes", "studies", "tables"]),
        ("prepare ", [*card_names(), "mylog"]),
        ("run main13_b", ["main13_by_validation"]),
        ("run ", [*RECIPES, "cards/mylog.toml", *OWN]),
        ("plan mi", ["mine/first.toml", "mine/second.toml"]),
        ("status mine/f", ["mine/first.toml"]),
        ("diff quick o", ["own.toml"]),
        ("pack nothing/", []),
        ("prepare --recipe ow", ["own.toml"]),
        ("report mine/", ["mine/first.toml", "mine/second.toml", "mine/packed.zip"]),
        ("report --table ", shipped_tables()),
        ("report quick --format la", ["latex"]),
        ("show backbone d", ["DNN", "DCN", "DeepFM", "DCNv2"]),
        ("show arm p", ["prime", "permuted_routing"]),
        ("check ", [*PLUGINS, *BACKBONES]),
        ("show dataset av", ["avazu", "avazu-raw"]),
        ("show job 01", list(JOBS[:2])),
        ("show job --runs-dir elsewhere 01", []),
        ("predict fe", [JOBS[2]]),
        ("verify 0", list(JOBS[:2])),
        ("verify q", ["quick"]),
        ("compare de", ["dense", "dense_layernorm", "dense_weight"]),
        ("compare ru", ["runs"]),
        ("compare mine", ["mine/first.toml", "mine/second.toml", "mine/packed.zip", "mine"]),
        ("study ", ["miniature", "paper"]),
        ("study o", ["own.toml"]),
        ("study mi", ["miniature", "mine/first.toml", "mine/second.toml"]),
        ("browse ", ["cards", "mine", "prepared", "runs", "mine/packed.zip"]),
        ("pack ", [*RECIPES, "cards/mylog.toml", *OWN, "mine/packed.zip"]),
        ("pack r", ["routing", "runs"]),
        ("prepare OW", []),
        ("prepare ow", ["own.toml"]),
        ("prepare MY", ["mylog"]),
        ("run .hid", [".hidden.toml"]),
        ("run odd", []),
        ("show dataset --data-dir prepared pre", ["prepared/avazu-1"]),
        ("export fuxictr --data-dir prepared S", ["synthetic"]),
    ],
)
def test_names(completed: Completed, line: str, expected: list[str]) -> None:
    assert completed(line) == expected


def test_a_job_is_described(completed: Completed, monkeypatch: pytest.MonkeyPatch) -> None:
    assert completed("show job fe") == [JOBS[2]]
    context = click.Context(click.Command("job"))
    parameter = click.Argument(["job"])
    (item,) = complete.jobs(context, parameter, "fe")
    assert item.help == "avazu DNN prime seed 1"
    Path("runs", JOBS[2], "config.json").write_text("{", encoding="utf-8")
    (item,) = complete.jobs(context, parameter, "fe")
    assert item.help is None
    monkeypatch.setattr(complete, "_DESCRIBED", 0)
    assert all(item.help is None for item in complete.jobs(context, parameter, "0"))


def test_the_names_are_those_of_the_catalog(monkeypatch: pytest.MonkeyPatch) -> None:
    assert complete.backbone_names() == list(BACKBONES)
    assert complete.arm_names() == list(PLUGINS)
    own = EntryPoint("mine", "my_models:Net", "prime_bench.backbones")
    monkeypatch.setattr(complete, "entry_points", lambda group: [own] if group == own.group else [])
    assert complete.backbone_names() == [*BACKBONES, "mine"]
    assert complete.arm_names() == list(PLUGINS)


def test_the_ids_are_those_of_jobs() -> None:
    assert all(is_job_id(job_id) for job_id in JOBS)
    assert len(JOBS[0]) == complete.JOB_ID_DIGITS


@pytest.mark.parametrize("line", ["prime-bench ", "prime-bench show backbone ", "prime-bench run "])
def test_nothing_heavy_is_loaded(line: str) -> None:
    """What keeps a TAB at 0.1 s, without a clock in a test."""
    code = (
        "import sys\n"
        "from prime_bench.cli.main import main\n"
        "try: main([])\n"
        "except SystemExit: pass\n"
        "heavy = ('torch', 'polars', 'pydantic', 'rich', 'numpy', 'scipy', 'jinja2', 'tabulate')\n"
        "print([name for name in heavy if name in sys.modules], file=sys.stderr)\n"
    )
    variables = {
        **os.environ,
        "_PRIME_BENCH_COMPLETE": "bash_complete",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(line.split())),
    }
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=variables
    )
    assert done.stderr == "[]\n"
    assert "plain," in done.stdout


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")
def test_bash_asks_and_gets_the_names(tmp_path: Path) -> None:
    program = tmp_path / "prime-bench"
    program.write_text(
        f"#!{sys.executable}\nfrom prime_bench.cli.main import main\nmain()\n", encoding="utf-8"
    )
    program.chmod(0o755)
    script = """
eval "$(_PRIME_BENCH_COMPLETE=bash_source prime-bench)"
complete -p prime-bench
COMP_WORDS=(prime-bench show backbone DCN) COMP_CWORD=3
_prime_bench_completion prime-bench
echo "${COMPREPLY[@]}"
"""
    variables = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "--norc", "-c", script], capture_output=True, text=True, check=True, env=variables
    )
    registered, names = done.stdout.splitlines()
    assert registered.endswith("_prime_bench_completion prime-bench")
    assert names.split() == ["DCN", "DCNv2"]

"""Every command that a document, a recipe's comment, a script or a message names is one and runs.

Commands of prime-bench run in this process, in a folder that has what the documents talk of. What
takes minutes or a network is replaced there: the engine, devices, and the raw data of others.
"""

import argparse
import ast
import functools
import json
import re
import shlex
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest

from prime_bench.base.files import bundled_folder
from prime_bench.cli.main import COMMANDS, cli, exit_code

ROOT = Path(__file__).parents[2]
PAGES = [
    *(ROOT / "README.md", ROOT / "CONTRIBUTING.md"),
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "reports").rglob("*.md")),
]
SCRIPTS = sorted(
    path for folder in ("scripts", "benchmarks") for path in ROOT.glob(f"{folder}/*.py")
)
RECIPES = sorted((ROOT / "recipes").rglob("*.toml"))
NOT_RUN = {
    "prime-bench check NAME": "the name stands for one's own",
    "prime-bench check module:Class": "a name that stands for the user's class",
    "prime-bench check my_gate:Gate": "takes seconds; tests/contract/test_foreign.py does it",
    "prime-bench check my_models:Net": "the guide has no such class",
    "prime-bench doctor": "trains in a child process; tests/schedule/test_doctor.py does it",
    "prime-bench prepare criteo --from train.txt": "needs Kaggle's own file",
    "prime-bench paper": "takes seconds; tests/test_study.py does a study, and `--plan` runs here",
    "prime-bench report gate.toml --output gate --figures --arms gate": (
        "draws for three seconds; tests/report/test_cli.py does it"
    ),
    "prime-bench run gradients": "a probe of more rows than are here",
    "prime-bench verify": "records are made up here; tests/cli/test_verify.py does it",
    "prime-bench verify --recompute": "as `verify`; with a recipe it runs here",
    "prime-bench verify bundle.zip": "as `verify`",
    "prime-bench study miniature": "as `paper`; tests/recipe/test_study.py loads it",
    "prime-bench prepare": "the name of the command alone",
    "prime-bench prepare --gauc-by user_id": "one option of the command",
    'prime-bench publish main13 --to hf:our-lab/prime-on-avazu --by "Our lab"': "needs the hub",
    "prime-bench browse runs/ a.zip /shared/results hf:our-lab/prime-on-avazu": "needs the hub",
}
"""Commands that are parsed and not run, and why."""
STANDS_FOR = {
    **{"RECIPE": "mylog_recipe.toml", "TABLE": "mylog", "BUNDLE": "own.zip", "DIR": "folder"},
    "NAME": "synthetic",
    **{"N": "3000", "X": "0.5", "S": "1", "avazu|criteo": "criteo", "FORMAT": "markdown"},
    **{"card DIR": "splits", "prepare DIR": "splits", "export DIR": "exported"},
    **{"publish DIR": "shared/results/mine", "browse DIR": "shared/results"},
    **{"prepare FILE": "kaggle/train.csv", "report FILE": "numbers.toml"},
    "FILE.toml": "numbers.toml",
}
"""A word of any command, or of the one before it -> what stands there when it runs."""
N_RECORDS = 4
"""Records that a run leaves here; its other jobs only count as done."""


@dataclass(frozen=True)
class Command:
    """A command as a text has it."""

    place: str
    text: str

    @functools.cached_property
    def words(self) -> list[str]:
        """Its words, without what a shell does with its output."""
        plain = re.sub(r"\[(--[^\]]*)\]", r"\1", self.text)  # `[--rows N]`: may be left out
        words = shlex.split(plain)
        return words[: words.index(">")] if ">" in words else words


def in_page(path: Path) -> Iterator[Command]:
    """Commands of a document: of its blocks for a shell, and of the texts in backticks."""
    text, name = path.read_text(encoding="utf-8"), path.relative_to(ROOT).as_posix()
    blocks = re.compile(r"^ *```(\w*)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
    for block in blocks.finditer(text):
        if block[1] not in ("console", "sh", "bash"):
            continue
        first = text.count("\n", 0, block.start(2)) + 1
        for line in re.finditer(r"^(?:.*\\\n)*.*", block[2], re.MULTILINE):
            typed = line[0].replace("\\\n", " ").partition("  #")[0]
            if block[1] == "console" and not typed.startswith("$ "):
                continue  # what a command prints
            if found := re.search(r"(?:^\$ |^| -- )((?:prime-bench|make|python) .*)", typed):
                place = f"{name}:{first + block[2].count(chr(10), 0, line.start())}"
                yield Command(place, found[1].partition(" #")[0].strip())
    outside = blocks.sub(lambda found: "\n" * found[0].count("\n"), text)
    for match in re.finditer(r"`([^`]+)`", outside):
        typed = " ".join(match[1].split())
        first_word, _, rest = typed.partition(" ")
        place = f"{name}:{outside.count(chr(10), 0, match.start()) + 1}"
        if first_word in ("prime-bench", "make", "python") and rest:
            yield Command(place, typed)
        elif first_word in COMMANDS and rest and not rest.startswith(("=", "&&")):
            yield Command(place, f"prime-bench {typed}")


def in_comments(path: Path) -> Iterator[Command]:
    """Commands of a recipe's comments, of a script's docstring: indented lines, or in backticks."""
    text, name = path.read_text(encoding="utf-8"), path.relative_to(ROOT).as_posix()
    if path.suffix == ".py":
        text = ast.get_docstring(ast.parse(text), clean=False) or ""
    text = re.sub(r"\\\n#? *", "", text)
    for match in re.finditer(r"(?m)^#?   +((?:prime-bench|python) .*)|`(prime-bench [^`]+)`", text):
        typed = re.split(r" +[#(]", match[1] or match[2])[0]  # without an explanation
        yield Command(f"{name}:{text.count(chr(10), 0, match.start()) + 1}", typed.strip())


COLLECTED = [
    *(command for path in PAGES for command in in_page(path)),
    *(command for path in [*RECIPES, *SCRIPTS] for command in in_comments(path)),
]
OURS: dict[str, Command] = {}
"""Each command of prime-bench once, in the order of the texts."""
for found in COLLECTED:
    if found.words[0] == "prime-bench":
        OURS.setdefault(found.text, found)


def parsed(words: list[str]) -> click.Context | None:
    """What click makes of the words after `prime-bench`; None where they only name a command, and
    perhaps options, without what it needs. Raises click's UsageError for an unknown name or option,
    or a value that is none.
    """
    context = click.Context(cli)
    _, left, _ = cli.make_parser(context).parse_args(list(words))
    command: click.Command = cli
    while isinstance(command, click.Group):
        if not left or left[0] == "...":
            return None
        name, *left = left
        found = command.get_command(context, name)
        if found is None:
            raise click.UsageError(f"no command {name}")
        command, context = found, click.Context(found, info_name=name, parent=context)
    try:
        return command.make_context(str(context.info_name), left, parent=context.parent)
    except click.MissingParameter:
        return None
    except click.BadOptionUsage as error:
        if "requires an argument" not in error.message:
            raise
        return None


def as_typed(command: Command, *, job: str) -> list[str]:
    """The words after `prime-bench`, with names of the folder for those that stand for others."""
    known = {**STANDS_FOR, "JOB": job, "3f2a": job[:8]}
    _, verb, *_ = command.words
    words = [known.get(f"{verb} {word}", known.get(word, word)) for word in command.words[1:]]
    return [word.removeprefix("/") if word.startswith("/shared/") else word for word in words]


def call(*words: str) -> None:
    assert exit_code(list(words)) == 0, words


@pytest.fixture(scope="module")
def world(
    tmp_path_factory: pytest.TempPathFactory,
    write_manifest: Callable[..., None],
    plain_record: Callable[..., Any],
) -> Iterator[str]:
    """The working folder; the id of a job that was trained."""
    from prime_bench.schedule import devices, local, measure

    def only_the_cpu(text: str) -> list[devices.Device]:
        devices.check_devices(text)
        return [devices.CPU]

    folder = tmp_path_factory.mktemp("world")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.syspath_prepend(folder)
        patch.setattr(devices, "find_devices", only_the_cpu)
        patch.setattr(measure, "measure", lambda *_, **__: [])
        patch.setattr(local.LocalEngine, "run", run_that_makes_up(plain_record))
        patch.setattr(
            "prime_bench.schedule.cluster.RayEngine",
            lambda *, slots, threads, **_: local.LocalEngine(slots=slots, threads=threads),
        )
        (folder / "recipes").symlink_to(bundled_folder("recipes"))
        make_tables(write_manifest)
        job = make_own_log()
        make_guide()
        make_shared()
        yield job


def run_that_makes_up(plain_record: Callable[..., Any]) -> Callable[..., Any]:
    """The `run` of an engine that trains nothing: the first jobs get a made-up record."""
    from prime_bench.schedule.engine import Outcome
    from prime_bench.store.runs import Runs

    def run(_engine: Any, queue: Any, **_: Any) -> Iterator[Outcome]:
        n_left = N_RECORDS
        while (request := queue.take(wait=False)) is not None:
            if n_left and request.job.kind == "train":
                n_left -= 1
                manifest = json.loads((Path(request.table) / "manifest.json").read_text())
                auc = 0.7 + int(request.job.id[:4], 16) / 2**22
                record = plain_record(
                    request.job,
                    dataset=request.dataset,
                    arm=request.arm,
                    data_variant=manifest["variant"],
                    result={"test": {"auc": auc, "logloss": 0.4}},
                )
                runs = Runs(Path(request.runs))
                runs.put(runs.sealed(record))
            yield from queue.settle(Outcome(request=request))

    return run


def make_tables(write_manifest: Callable[..., None]) -> None:
    """What `prepare` leaves of each data set of a bundled recipe, here always the same rows."""
    from prime_bench.recipe.file import load_recipe
    from prime_bench.schedule.plan import table_specs_of

    call("prepare", "synthetic", "--rows", "3000", "--data-dir", "small")
    (small,) = Path("small").iterdir()
    counts = json.loads((small / "manifest.json").read_text())
    for recipe in (load_recipe(path) for path in Path("recipes").glob("*.toml")):
        for spec in table_specs_of(recipe).values():
            folder = spec.folder(Path("data"))
            if not folder.exists():
                shutil.copytree(small, folder)
                write_manifest(
                    folder,
                    rows=counts["rows"],
                    positives=counts["positives"],
                    dataset=spec.name,
                    settings=spec.settings.plain(),
                    variant=spec.digest,
                    verified=True,
                    notes=[],
                )
    # As Kaggle's log of Criteo: a label, 13 numbers, 26 texts.
    rows = ((row % 4 // 3, *range(row, row + 13), *["68fd1e64"] * 26) for row in range(100))
    Path("train.txt").write_text("".join("\t".join(map(str, row)) + "\n" for row in rows))


def write_log(path: Path, *, n_rows: int, seed: int = 0) -> None:
    random = np.random.default_rng(seed)
    lines = ["click,user_id,hour,slot,price"]
    for row in range(n_rows):
        values = (int(random.random() < 0.3), f"u{row % 40}", row % 24, row % 4, row % 70 / 10)
        lines.append(",".join(map(str, values)))
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join(lines) + "\n")


def make_own_log() -> str:
    """A log, its card, table and recipe; the id of one of its jobs, which are trained."""
    from prime_bench.recipe.file import load_recipe
    from prime_bench.recipe.job import JobRequest
    from prime_bench.schedule.plan import make_plan
    from prime_bench.store.runs import Runs
    from prime_bench.worker import run_job

    write_log(Path("mylog.csv"), n_rows=600)
    write_log(Path("new.csv"), n_rows=40)
    for seed, name in enumerate(("train", "valid", "test")):
        write_log(Path(f"splits/{name}.csv"), n_rows=200, seed=seed)
    call("card", "mylog.csv")
    call("card", "splits", "-o", "ourlog.toml")
    call("prepare", "mylog.toml", "--from", "mylog.csv")
    for folder, form in (("raw", "avazu"), ("kaggle", "avazu-raw")):
        call("prepare", "synthetic", "--rows", "900", "--raw", folder, "--raw-format", form)
    Path("mylog_recipe.toml").write_text(
        'schema = 1\ntitle = "Own"\nseeds = [1]\narms = ["dense", "prime"]\n'
        '[dataset.mylog]\ncard = "mylog.toml"\n[training]\nmax_epochs = 1\nbatch_size = 256\n'
        "[backbone.DNN]\nhidden_units = [8]\n"
    )
    plan = make_plan(
        load_recipe("mylog_recipe.toml"), data_dir=Path("data"), runs=Runs(Path("runs"))
    )
    (table,) = Path("data").glob("mylog-*")
    for planned in plan.jobs:
        request = JobRequest(
            job=planned.job,
            dataset="mylog",
            arm=planned.job_spec.arm.name,
            table=str(table),
            runs="runs",
            device="cpu",
        )
        record = run_job(request, lambda _: None)
    Path("numbers.toml").write_text(
        'schema = 1\ntitle = "CI"\ntolerance = 1e-6\n'
        f'[values.main.mylog.DNN]\n"auc.{record.arm}" = {record.result.test.auc}\n'
    )
    return record.job_id


def make_guide() -> None:
    """Class and recipe of docs/your-own-plugin.md."""
    guide = (ROOT / "docs" / "your-own-plugin.md").read_text(encoding="utf-8")
    (code,) = re.findall(r'```python\n("""Gate.*?)```', guide, flags=re.DOTALL)
    (recipe,) = re.findall(r"```toml\n(schema = 1.*?)```", guide, flags=re.DOTALL)
    Path("my_gate.py").write_text(code, encoding="utf-8")
    Path("gate.toml").write_text(recipe, encoding="utf-8")
    call("prepare", "--recipe", "gate.toml")


def make_shared() -> None:
    """Records of others, as bundles and folders."""
    for recipe in ("main13", "quick", "gate.toml"):
        call("run", recipe)
    call("pack", "main13", "-o", "bundle.zip")
    call("pack", "mylog_recipe.toml", "-o", "own.zip")
    for name in ("a.zip", "ann.zip", "b.zip", "bob.zip"):
        shutil.copy("bundle.zip", name)
    shutil.copytree("runs", "bob/runs")
    Path("shared/results").mkdir(parents=True)
    Path("shared/data").symlink_to(Path("data").resolve())
    shutil.copy("recipes/main13.toml", "shared/main13.toml")


def test_commands_were_found() -> None:
    """Of every kind of place."""
    places = {command.place.partition(":")[0] for command in COLLECTED}

    assert len(OURS) > 120
    assert {"README.md", "docs/cards.md", "recipes/criteo_anchor.toml"} <= places
    assert "scripts/gap_null.py" in places


def test_no_command_stands_in_the_table_for_nothing() -> None:
    assert NOT_RUN.keys() - OURS.keys() == set()


@pytest.mark.long
def test_every_command_runs(world: str, capfd: pytest.CaptureFixture[str]) -> None:
    """Or is parsed: those in `NOT_RUN`, and names of commands without what they need."""
    faults, n_run = [], 0
    for command in OURS.values():
        words = as_typed(command, job=world)
        if words[0] == "card":
            Path("mylog.toml").unlink(missing_ok=True)
            Path("splits.toml").unlink(missing_ok=True)
        try:
            code, said = 0, ""
            if parsed(words) is not None and command.text not in NOT_RUN:
                code, n_run = exit_code(words), n_run + 1
                said = capfd.readouterr().err[-1000:]
        except click.ClickException as error:
            code, said = 2, error.format_message()
        if code:
            faults.append(f"{command.place}: {command.text}\nexit code {code}: {said}")

    assert faults == [], "\n\n".join(faults)
    assert n_run > 80


@functools.cache
def parser_of(script: Path) -> argparse.ArgumentParser:
    """The script's own options, from its source: to import it takes seconds."""
    parser = argparse.ArgumentParser(script.name)
    for node in ast.walk(ast.parse(script.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(".add_argument"):
            kept = {}
            for keyword in node.keywords:
                if keyword.arg == "type" and ast.unparse(keyword.value) in ("int", "float"):
                    kept["type"] = {"int": int, "float": float}[ast.unparse(keyword.value)]
                elif keyword.arg in ("action", "choices", "nargs", "required", "default", "dest"):
                    try:
                        kept[keyword.arg] = ast.literal_eval(keyword.value)
                    except ValueError:  # a name; a default that is none will do here
                        continue
            parser.add_argument(*(ast.literal_eval(word) for word in node.args), **kept)
    return parser


def test_scripts_have_the_options_that_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    faults, n_found = [], 0
    for command in COLLECTED:
        if command.words[0] != "python" or not command.words[1].endswith(".py"):
            continue
        n_found += 1
        script = ROOT / command.words[1]
        try:
            assert script.is_file(), "no such file"
            if script.name != "write_docs.py":  # looks for `--check` itself
                parser_of(script).parse_args(["3" if w == "N" else w for w in command.words[2:]])
        except (AssertionError, SystemExit) as error:
            faults.append(f"{command.place}: {command.text}: {capsys.readouterr().err or error}")

    assert faults == []
    assert n_found > 40


def test_make_has_the_targets_that_are_named() -> None:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    named = {command.words[1] for command in COLLECTED if command.words[0] == "make"}

    assert named >= {"demo", "test", "lowest", "docs"}
    assert named <= set(re.findall(r"^(\w+):", text, re.MULTILINE))


def test_commands_in_messages_and_docstrings_are_known() -> None:
    """`prime-bench VERB --option` of the package's own texts; a value may be filled in later."""
    faults, n_found = [], 0
    for path in sorted((ROOT / "prime_bench").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        for match in re.finditer(r"prime-bench((?: -{0,2}[a-z][\w-]*| [A-Z]+)+)", text):
            words = match[1].split()
            if words[0] not in COMMANDS:
                if text[match.start() - 1] == "`" and words[0] != "--debug":
                    faults.append(f"{path.name}: {match[0]}")
                continue
            n_found += 1
            command = cli.get_command(click.Context(cli), words[0])
            commands = [command, *getattr(command, "commands", {}).values()]
            options = {o for each in commands for p in each.params for o in p.opts}
            unknown = [word for word in words if word[0] == "-" and word not in options]
            faults += [f"{path.name}: {match[0]}"] if unknown else []

    assert faults == []
    assert n_found > 50

"""Write the parts of the documentation that are made from the code.

A page marks such a part with `<!-- made: NAME -->` and `<!-- end of NAME -->`; the functions in
`PARTS` give the text between. Run it after a change of a command, a setting, a record or a file:
`python scripts/write_docs.py`. With `--check` it changes nothing, names every page that would
change, and ends with exit code 1 if there is one.
"""

import ast
import re
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pydantic

from prime_bench import findings
from prime_bench.catalog import BACKBONES, PLUGINS
from prime_bench.cli.main import cli
from prime_bench.data.card import SETTINGS as DATA_SETTINGS
from prime_bench.data.card import CardArchive, CardColumn, CardFile, CardFormat, DatasetCard
from prime_bench.data.manifest import Manifest
from prime_bench.recipe.file import RecipeKeys, TrainingKeys
from prime_bench.recipe.job import Job
from prime_bench.recipe.recipe import ReportKeys
from prime_bench.recipe.study import StudyKeys, StudyRecipeKeys
from prime_bench.settings.interface import Budget
from prime_bench.settings.keys import SettingKey, keys_of
from prime_bench.settings.probes import PROBES
from prime_bench.store import record

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "reports" / "examples"
"""Reports that were made, which are no files to read in."""
WIDTH = 96
FOLDERS = {
    "recipes": "**/*.toml",
    "datasets": "*.toml",
    "reports": "**/*.*",
    "docs": "*.md",
    "scripts": "*.*",
    "benchmarks": "*.py",
}


def cli_reference() -> str:
    """The help of each command, as a terminal of 96 columns shows it."""
    top = click.Context(cli, info_name="prime-bench", terminal_width=WIDTH, **cli.context_settings)
    parts = [f"```text\n{cli.get_help(top)}\n```\n"]
    for name in cli.list_commands(top):
        command = cli.get_command(top, name)
        if command is None:
            raise RuntimeError(name)
        context = click.Context(command, info_name=name, parent=top, terminal_width=WIDTH)
        parts += [f"## prime-bench {name}\n", f"```text\n{command.get_help(context)}\n```\n"]
        for inner, sub in command.commands.items() if isinstance(command, click.Group) else ():
            below = click.Context(sub, info_name=inner, parent=context, terminal_width=WIDTH)
            parts += [f"### prime-bench {name} {inner}\n", f"```text\n{sub.get_help(below)}\n```\n"]
    return "\n".join(parts)


def file_list() -> str:
    """Every file that a reader may look for, with the first sentence of what it says of itself."""
    groups: dict[str, list[tuple[str, str]]] = {}
    for path in sorted((ROOT / "prime_bench").rglob("*.py"), key=_package_order):
        folder = path.parent.relative_to(ROOT).as_posix()
        if path.name != "__init__.py":
            groups.setdefault(folder, []).append((path.name, _title(path)))
    for folder, pattern in FOLDERS.items():
        for path in sorted((ROOT / folder).glob(pattern)):
            if path.is_file() and EXAMPLES not in path.parents:
                name = path.relative_to(ROOT / folder).as_posix()
                groups.setdefault(folder, []).append((name, _title(path)))
    parts = []
    for folder, rows in groups.items():
        package = ROOT / folder / "__init__.py"
        about = f"{_title(package)}.\n\n" if package.exists() else ""
        table = "\n".join(f"| `{name}` | {_cell(text)} |" for name, text in rows)
        parts.append(f"## {folder}/\n\n{about}| file | what |\n|---|---|\n{table}\n")
    return "\n".join(parts)


def recipe_keys() -> str:
    """The top level of a recipe, `[training]` and `[report]`."""
    return "\n".join(
        [
            _keys("Top level", RecipeKeys),
            _keys("`[training]`", TrainingKeys),
            _keys("`[report]`", ReportKeys),
        ]
    )


def study_keys() -> str:
    """The top level of a study, and its recipes."""
    return "\n".join([_keys("Top level", StudyKeys), _keys("`[[recipes]]`", StudyRecipeKeys)])


def probe_keys() -> str:
    """`[probe]` of each kind of probe."""
    return "\n".join(
        _keys(f'`[probe]` of `kind = "{kind}"`', settings) for kind, settings in PROBES.items()
    )


def backbone_keys() -> str:
    """What `[backbone.NAME]` may have: the keys of all backbones, then those of each."""
    return _family(
        "Every backbone",
        {
            f"`[backbone.{name}]`": (entry.settings, f"{entry.cite}.")
            for name, entry in BACKBONES.items()
        },
    )


def arm_keys() -> str:
    """The keys of each plug-in of the catalogue; plug-ins with the same keys stand together."""
    tables: dict[str, list[str]] = {}
    for name, entry in PLUGINS.items():
        tables.setdefault(_table(_rows(entry.settings)), []).append(name)
    return "\n".join(
        f"### {', '.join(f'`{name}`' for name in names)}\n\n{table}\n"
        for table, names in tables.items()
    )


def data_keys() -> str:
    """What `[dataset.NAME]`, and `[defaults]` of a card, may have, by the card's kind."""
    return _family(
        "Every data set",
        {f'`kind = "{kind}"`': (settings, "") for kind, settings in DATA_SETTINGS.items()},
    )


def card_keys() -> str:
    """Every table of a card."""
    return "\n".join(
        [
            _keys("Top level", DatasetCard),
            _keys("An entry of `columns`", CardColumn),
            _keys("`[[archives]]`", CardArchive),
            _keys("`[format]`", CardFormat),
            _keys("`[files.SPLIT]`", CardFile),
        ]
    )


RECORD_MODELS: dict[str, type[pydantic.BaseModel]] = {
    "record.json of a training run": record.RunRecord,
    "record.json of a probe": record.ProbeRecord,
    "`job`": Job,
    "`pairing`": record.Pairing,
    "`budget`": Budget,
    "`digests`": record.Digests,
    "`result`": record.Result,
    "`result.valid`, `result.test`": findings.Score,
    "`deciles` of a split": findings.CalibrationBin,
    "`groups` of a split": findings.GroupCounts,
    "`environment`, environment.json": record.Environment,
    "`history`, a line of history.jsonl": findings.Validation,
    "`routing` of a validation": findings.Routing,
}


def record_keys() -> str:
    """record.json of a training run and of a probe, and everything inside them."""
    return "\n".join(_keys(title, model) for title, model in RECORD_MODELS.items())


def findings_keys() -> str:
    """`findings` of a probe's record, model by model."""
    return "\n".join(_keys(f"{model.__name__}", model) for model in _finding_models())


def manifest_keys() -> str:
    """manifest.json of a prepared table."""
    return _keys("manifest.json of a prepared table", Manifest)


def models() -> list[type[pydantic.BaseModel]]:
    """Every model whose keys stand on a page."""
    groups = [
        [RecipeKeys, TrainingKeys, ReportKeys, StudyKeys, StudyRecipeKeys],
        [*PROBES.values(), *DATA_SETTINGS.values()],
        [entry.settings for entry in (*BACKBONES.values(), *PLUGINS.values())],
        [
            DatasetCard,
            CardColumn,
            CardArchive,
            CardFormat,
            CardFile,
            Manifest,
            *RECORD_MODELS.values(),
        ],
        _finding_models(),
    ]
    return list(dict.fromkeys(model for group in groups for model in group))


def _finding_models() -> list[type[pydantic.BaseModel]]:
    return [
        value
        for value in vars(findings).values()
        if isinstance(value, type)
        and issubclass(value, pydantic.BaseModel)
        and value.__module__ == findings.__name__
        and value not in RECORD_MODELS.values()
    ]


def _family(title: str, members: dict[str, tuple[type[pydantic.BaseModel], str]]) -> str:
    """Sections of models that share keys: the rows that all have, then those of each alone."""
    rows = {name: _rows(model) for name, (model, _) in members.items()}
    first, *others = rows.values()
    shared = [row for row in first if all(row in other for other in others)]
    parts = [f"### {title}\n\n{_table(shared)}\n"]
    for name, (model, about) in members.items():
        own = [row for row in rows[name] if row not in shared]
        parts.append(f"### {name}\n\n{about or _about(model)}\n")
        parts.append(f"{_table(own)}\n" if own else "There are no others.\n")
    return "\n".join(parts)


def _keys(title: str, model: type[pydantic.BaseModel]) -> str:
    return f"### {title}\n\n{_about(model)}\n\n{_table(_rows(model))}\n"


def _about(model: type[pydantic.BaseModel]) -> str:
    return " ".join((model.__doc__ or "").split("\n\n")[0].split())


def _rows(model: type[pydantic.BaseModel]) -> list[str]:
    return [
        f"| `{key.name}` | {_cell(key.type)} | {_cell(_default(key))} "
        f"| {_cell(key.doc or key.name)} |"
        for key in keys_of(model)
    ]


def _table(rows: list[str]) -> str:
    return "\n".join(["| key | value | default | meaning |", "|---|---|---|---|", *rows])


def _default(key: SettingKey) -> str:
    if key.required:
        return "required"
    value = key.default
    if isinstance(value, pydantic.BaseModel):
        return "the defaults below"
    if value is None:
        return "none"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, str):
        return f'`"{value}"`'
    return f"`{list(value) if isinstance(value, tuple) else value}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _package_order(path: Path) -> tuple[str, bool, str]:
    return (path.parent.as_posix(), path.name != "__init__.py", path.name)


def _first_sentence(text: str) -> str:
    paragraph = " ".join(text.split("\n\n")[0].split())
    return paragraph.removesuffix(".")


def _title(path: Path) -> str:
    """What a file says first: a docstring, a title, a heading or a comment."""
    if path.suffix == ".png":
        return "picture"
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        return _first_sentence(ast.get_docstring(ast.parse(text)) or "")
    if path.suffix == ".toml" and (title := tomllib.loads(text).get("title")):
        return str(title)
    if path.suffix == ".md":
        return text.splitlines()[0].lstrip("# ")
    comments = [line.strip("#{}%*/ ") for line in text.splitlines() if not line.startswith("#!")]
    return comments[0].removesuffix(".") if comments else ""


PARTS: dict[str, Callable[[], str]] = {
    "cli": cli_reference,
    "files": file_list,
    "recipe keys": recipe_keys,
    "study keys": study_keys,
    "backbone keys": backbone_keys,
    "arm keys": arm_keys,
    "probe keys": probe_keys,
    "data keys": data_keys,
    "card keys": card_keys,
    "record keys": record_keys,
    "findings keys": findings_keys,
    "manifest keys": manifest_keys,
}


def pages() -> Iterator[tuple[Path, str, str]]:
    """Each page with a made part: its path, its text, and the text that it should have."""
    used = set()
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        text = wanted = path.read_text(encoding="utf-8")
        for name in re.findall(r"^<!-- made: (.+) -->$", text, flags=re.MULTILINE):
            begin, end = f"<!-- made: {name} -->\n", f"<!-- end of {name} -->"
            before, _, rest = wanted.partition(begin)
            wanted = f"{before}{begin}\n{PARTS[name]().strip()}\n\n{end}{rest.partition(end)[2]}"
            used.add(name)
        if text != wanted or "<!-- made" in text:
            yield path, text, wanted
    if missing := PARTS.keys() - used:
        raise RuntimeError(f"no page has these parts: {', '.join(sorted(missing))}")


def main() -> int:
    """Write the pages that are not as the code says, or with `--check` name them."""
    stale = [(path, wanted) for path, text, wanted in pages() if text != wanted]
    if "--check" in sys.argv[1:]:
        for path, _ in stale:
            print(f"{path.relative_to(ROOT)} is stale: run python scripts/write_docs.py")
        return 1 if stale else 0
    for path, wanted in stale:
        path.write_text(wanted, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

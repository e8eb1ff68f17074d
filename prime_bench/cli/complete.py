"""Shell completion: the names that an argument or option may have.

A shell waits for the answer at each TAB, so nothing here loads pydantic, polars or torch.
"""

import ast
import os
from collections.abc import Iterable, Iterator
from importlib.metadata import entry_points
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from prime_bench.base.characters import has_unseen, visible
from prime_bench.base.files import bundled_folder, read_json
from prime_bench.base.identity import JOB_ID_DIGITS
from prime_bench.base.words import job_name

_DESCRIBED = 50
"""Jobs up to which each is shown with what it is; more are ids alone."""


def recipes(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Bundled recipes by name, and files `*.toml`."""
    return _items(_recipe_names(incomplete))


def studies(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Bundled studies by name, and files `*.toml`."""
    files = sorted((bundled_folder("recipes") / "studies").glob("*.toml"))
    names = [file.stem for file in files if file.stem.startswith(incomplete)]
    return _items([*names, *(_files(incomplete, ".toml") if incomplete else ())])


def recipes_and_sources(
    _ctx: click.Context, _param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Recipes, files `*.zip`, and folders once a name has begun."""
    folders = [path for path in _paths(incomplete) if path.is_dir()] if incomplete else []
    return _items([*_recipe_names(incomplete), *_files(incomplete, ".zip"), *map(str, folders)])


def folders_and_bundles(
    _ctx: click.Context, _param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Folders, and files `*.zip`."""
    folders = [str(path) for path in _paths(incomplete) if path.is_dir()]
    return _items([*folders, *_files(incomplete, ".zip")])


def jobs_and_recipes(
    ctx: click.Context, _param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Jobs that have a folder, and recipes."""
    return [*_jobs(ctx, incomplete), *_items(_recipe_names(incomplete))]


def jobs(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Jobs that have a folder in `--runs-dir`."""
    return _jobs(ctx, incomplete)


def backbones(
    _ctx: click.Context, _param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Backbones, those of installed packages too."""
    return _matching(backbone_names(), incomplete)


def arms(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Arms, those of installed packages too."""
    return _matching(arm_names(), incomplete)


def backbones_and_arms(
    _ctx: click.Context, _param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Backbones and arms, which `check` takes."""
    return _matching([*arm_names(), *backbone_names()], incomplete)


def sides(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """What `compare` takes: arms, recipes, bundles, folders."""
    names = [name for name in arm_names() if name.startswith(incomplete)]
    folders = [path for path in _paths(incomplete) if path.is_dir()]
    bundles = _files(incomplete, ".zip")
    return _items([*names, *_recipe_names(incomplete), *bundles, *map(str, folders)])


def datasets(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Data sets, by the names of their cards, and files `*.toml` that begin so."""
    names = [name for name in _dataset_names() if name.lower().startswith(incomplete.lower())]
    return _items([*names, *(_files(incomplete, ".toml") if incomplete else ())])


def prepared_tables(
    ctx: click.Context, _param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Data sets, and the folders of their prepared tables."""
    folder = Path(ctx.params.get("data_dir") or "data")
    folders = [str(path.parent) for path in sorted(folder.glob("*/manifest.json"))]
    return _matching([*_dataset_names(), *folders], incomplete)


def report_tables(
    _ctx: click.Context, _param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Tables of a report."""
    return _matching(_stems("reports"), incomplete)


def backbone_names() -> list[str]:
    """Names of `catalog.BACKBONES` and of entry points."""
    return [*_keys_of("BACKBONES"), *_entry_points("prime_bench.backbones")]


def arm_names() -> list[str]:
    """Names of `catalog.PLUGINS` and of entry points."""
    return [*_keys_of("PLUGINS"), *_entry_points("prime_bench.plugins")]


def _keys_of(table: str) -> list[str]:
    """The keys of a literal table in `catalog`, read as text: to import it takes too long."""
    source = (Path(__file__).parents[1] / "catalog.py").read_text(encoding="utf-8")
    for node in ast.parse(source).body:
        if (
            isinstance(node, ast.AnnAssign)
            and isinstance(node.target, ast.Name)
            and node.target.id == table
            and isinstance(node.value, ast.Dict)
        ):
            return [str(key.value) for key in node.value.keys if isinstance(key, ast.Constant)]
    return []


def _entry_points(group: str) -> list[str]:
    return sorted(point.name for point in entry_points(group=group))


def _stems(folder: str) -> list[str]:
    return sorted(path.stem for path in bundled_folder(folder).glob("*.toml"))


def _dataset_names() -> list[str]:
    folder = os.environ.get("PRIME_BENCH_CARDS")
    own = sorted(path.stem for path in Path(folder).glob("*.toml")) if folder else []
    return [*(name.replace("_", "-") for name in _stems("datasets")), *own]


def _recipe_names(incomplete: str) -> list[str]:
    names = [name for name in _stems("recipes") if name.startswith(incomplete)]
    return [*names, *_files(incomplete, ".toml")]


def _files(incomplete: str, suffix: str) -> Iterator[str]:
    """Files that begin so, and those in folders that begin so."""
    for path in _paths(incomplete):
        if path.is_dir():
            yield from map(str, sorted(path.glob(f"*{suffix}")))
        elif path.suffix == suffix:
            yield str(path)


def _paths(incomplete: str) -> list[Path]:
    typed = Path(incomplete)
    folder, begins = (
        (typed, "") if not incomplete or incomplete.endswith("/") else (typed.parent, typed.name)
    )
    try:
        return sorted(
            path
            for path in folder.iterdir()
            if path.name.startswith(begins) and (begins or not path.name.startswith("."))
        )
    except OSError:  # No such folder, or one that may not be read: nothing to offer.
        return []


def _jobs(ctx: click.Context, incomplete: str) -> list[CompletionItem]:
    folder = Path(ctx.params.get("runs_dir") or "runs")
    found = [
        path
        for path in (sorted(folder.iterdir()) if folder.is_dir() else ())
        if path.name.startswith(incomplete)
        and len(path.name) == JOB_ID_DIGITS
        and not path.name.startswith(".")
    ]
    describe = len(found) <= _DESCRIBED
    return [CompletionItem(path.name, help=_job(path) if describe else None) for path in found]


def _job(folder: Path) -> str | None:
    """Data set, backbone, arm and seed; zsh and fish show it beside the id."""
    try:
        config = read_json(folder / "config.json")
        job = config["job"]
        name = job_name(config["dataset"], job["backbone"], config["arm"], job["seed"])
        return visible(name)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _matching(names: Iterable[str], incomplete: str) -> list[CompletionItem]:
    """Names that begin so, in upper or lower case."""
    typed = incomplete.lower()
    return _items(name for name in names if name.lower().startswith(typed))


def _items(names: Iterable[str]) -> list[CompletionItem]:
    # A shell reads one candidate a line, so a file name with a line break would add another.
    return [CompletionItem(name) for name in dict.fromkeys(names) if not has_unseen(name)]

"""Recipe files: their keys, checking them with every fault at its file, line and key, and
loading.
"""

import contextlib
import math
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import pydantic

from prime_bench.base.errors import UsageError, did_you_mean
from prime_bench.base.files import NotReadable, bundled_folder, read_file
from prime_bench.base.frozen import MOST_FAULTS, Fault, Frozen, JsonTable
from prime_bench.base.identity import canonical_json
from prime_bench.base.toml import excess, line_of, place, read_toml
from prime_bench.catalog import (
    BACKBONES,
    DENSE,
    PLUGINS,
    BackboneEntry,
    find_backbone,
    find_plugin,
    is_foreign,
)
from prime_bench.recipe.recipe import Arm, JobSpec, Origin, Recipe, ReportKeys
from prime_bench.recipe.sweep import DRAW, CandidateBudget, GridPoint, Sweep, read_sweep
from prime_bench.settings.interface import BackboneSettings
from prime_bench.settings.probes import PROBES, Kind, ProbeSettings
from prime_bench.settings.training import TrainSpec

MOST_BYTES = 256 << 10
"""Bytes of a recipe file. The largest bundled one has about 4 KiB."""
MOST_JOBS = 200_000
"""Jobs of a recipe."""


class TrainingKeys(TrainSpec):
    """`[training]`: the training protocol, and the embedding width of all backbones."""

    embedding_dim: int = pydantic.Field(10, ge=1)
    """Width of a field's embedding; a backbone's own table may set another."""

    def spec(self) -> TrainSpec:
        """The training protocol, without the embedding width."""
        return TrainSpec(**self.model_dump(exclude={"embedding_dim"}))


class RecipeKeys(Frozen):
    """The top level of a recipe file."""

    recipe_schema: Literal[1] = pydantic.Field(alias="schema")
    """Version of this format."""
    title: str
    """Title of the report."""
    kind: Kind = "train"
    """`train`, or the probe that measures arms which such a recipe trains."""
    seeds: list[int] = pydantic.Field(min_length=1)
    """Seeds; each one trains every arm on every backbone and data set."""
    arms: list[str] = pydantic.Field(min_length=1)
    """Arms to compare, in the order of a report's columns: names of plug-ins, or of `[arm]` tables.
    """
    arm: dict[str, JsonTable] = {}
    """Arms that the recipe defines: `plugin`, optionally `label`, keys of the plug-in, and `grid`,
    a list of values for each key that varies."""
    dataset: dict[str, JsonTable] = pydantic.Field(min_length=1)
    """Data sets: keys that differ from the card's defaults, and `card`, the card's name, where the
    table has another name."""
    training: TrainingKeys = TrainingKeys()
    """The training protocol."""
    backbone: dict[str, JsonTable] = pydantic.Field(min_length=1)
    """Keys of each backbone; `[backbone.<name>.on.<dataset>]` has keys for one data set alone, and
    `[backbone.<name>.grid]` a list of values for each key that varies."""
    probe: JsonTable = {}
    """Keys of the probe, if `kind` is one."""
    budget: CandidateBudget | None = None
    """How many candidates each arm has, where grids of several sizes are compared."""
    report: ReportKeys = ReportKeys()
    """What the report of the recipe shows."""


def given(
    table: Mapping[str, Any], changed: Sequence[tuple[str, ...]]
) -> dict[tuple[str, ...], Origin]:
    """The path of every key that a recipe's raw table sets; `changed` has the paths of `--set`."""
    found: dict[tuple[str, ...], Origin] = {}
    for key, value in table.items():
        below = [path[1:] for path in changed if path[0] == key]
        if isinstance(value, Mapping) and () not in below:
            found |= {(key, *path): origin for path, origin in given(value, below).items()}
        else:
            found[key,] = "--set" if () in below else "recipe"
    return found


def origins(recipe: Recipe, job_spec: JobSpec) -> dict[str, Origin]:
    """What has set each of the job's settings, by dotted key: `training.batch_size`,
    `backbone.net_dropout`, `arm.rank`, `data.min_count`, `probe.blocks`, `seed`.

    A key that is missing has its default, which for data settings is that of the card.
    """
    backbone, arm = ("backbone", job_spec.backbone), ("arm", job_spec.arm.family)
    found = {
        "seed": _first(recipe, [("seeds",)]),
        **_below("training", job_spec.training.plain(), recipe, [("training",)]),
        **_below(
            "backbone",
            job_spec.backbone_settings.plain(),
            recipe,
            [(*backbone, "on", job_spec.dataset), backbone, (*backbone, "grid")],
        ),
        **_below("arm", job_spec.arm.settings.plain(), recipe, [arm, (*arm, "grid")]),
        **_below(
            "data", _keys_in(recipe, job_spec.dataset), recipe, [("dataset", job_spec.dataset)]
        ),
        **_below("probe", job_spec.probe.plain() if job_spec.probe else {}, recipe, [("probe",)]),
    }
    # The `training` table sets this key of all backbones.
    width = ("training", "embedding_dim")
    if found.get("backbone.embedding_dim") is None:
        found["backbone.embedding_dim"] = _first(recipe, [width])
    return {key: origin for key, origin in found.items() if origin is not None}


def _below(
    name: str,
    settings: Mapping[str, Any],
    recipe: Recipe,
    tables: Sequence[tuple[str, ...]],
) -> dict[str, Origin | None]:
    """What has set each setting, by the first of `tables` that has it."""
    return {
        f"{name}.{key}": _first(recipe, [(*table, key) for table in tables]) for key in settings
    }


def _first(recipe: Recipe, paths: Sequence[tuple[str, ...]]) -> Origin | None:
    """What has set the first of the paths that the recipe sets, or a key below it."""
    for path in paths:
        for key, origin in recipe.given.items():
            if key[: len(path)] == path:
                return origin
    return None


def _keys_in(recipe: Recipe, dataset: str) -> Mapping[str, Any]:
    return {key: value for key, value in recipe.datasets[dataset].items() if key != "card"}


BackboneTables = dict[str, dict[str, BackboneSettings]]
"""Backbone, or point of its grid -> data set -> settings."""


def read_recipe(table: Mapping[str, object], *, name: str) -> tuple[Recipe | None, list[Fault]]:
    """Check a recipe's raw table. Returns the recipe, or None and all faults."""
    parsed, file_faults = RecipeKeys.check(table)
    if parsed is None:
        # The rest of the file is checked too, so that one message names every fault.
        parsed, _ = RecipeKeys.check(_mended(table, file_faults))
    if parsed is None:
        return None, file_faults
    n_arms = sum(_n_points(parsed.arm.get(name, {})) for name in parsed.arms)
    n_backbones = sum(map(_n_points, parsed.backbone.values()))
    sizes = (len(parsed.seeds), n_arms, n_backbones, len(parsed.dataset))
    if (n_jobs := math.prod(sizes)) > MOST_JOBS:
        why = f"seeds x arms x backbones x data sets are {n_jobs:,} jobs, at most {MOST_JOBS:,}"
        return None, [*file_faults, Fault((), why)]
    arms, arm_faults = _arms(parsed)
    backbones, points, backbone_faults = _backbones(parsed)
    probe, probe_faults = _probe(parsed.kind, parsed.probe)
    faults = [
        *file_faults,
        *_repeats(parsed, arms),
        *arm_faults,
        *backbone_faults,
        *probe_faults,
        *islice(_family_faults(parsed, arms), MOST_FAULTS),
        *_report_faults(parsed),
        *islice(_misfits(arms, backbones, probe), MOST_FAULTS),
    ]
    if faults:
        return None, faults
    recipe = Recipe(
        name=name,
        title=parsed.title,
        seeds=parsed.seeds,
        arms=arms,
        datasets=parsed.dataset,
        training=parsed.training.spec(),
        backbones=backbones,
        kind=parsed.kind,
        probe=probe,
        report=parsed.report,
        backbone_points=points,
        budget=parsed.budget,
    )
    return recipe, []


def _n_points(table: JsonTable) -> int:
    """How many arms or backbones a table stands for."""
    sweep, _ = read_sweep(table["grid"], also_set=()) if "grid" in table else (None, [])
    return sweep.n_points if sweep else 1


def _mended(table: Mapping[str, object], faults: list[Fault]) -> dict[str, object]:
    """A copy in which faulty values are replaced by valid ones, which cause no further faults."""
    mended = deepcopy(dict(table))
    for fault in faults:
        if not fault.path:
            continue
        section, *rest = fault.path
        here = mended.get(section)
        if rest and isinstance(here, dict) and section == "training":
            here.pop(rest[0], None)
        elif rest and isinstance(here, dict) and section in ("arm", "dataset", "backbone"):
            here[rest[0]] = {"plugin": DENSE} if section == "arm" else {}
        else:
            mended.pop(section, None)
    if "arms" not in mended:
        mended["arms"] = _arms_meant(table.get("arms"), arm=mended.get("arm")) or [DENSE]
        mended.pop("report", None)
    backbones = mended.setdefault("backbone", {"DNN": {}})
    if "dataset" not in mended:
        mended["dataset"] = _datasets_meant(backbones) or {"any": {}}
    return {"schema": 1, "title": "", "seeds": [0], **mended}


def _arms_meant(arms: object, *, arm: object) -> list[str]:
    """The names in a faulty `arms`, and those of all arm tables."""
    named = [name for name in arms if isinstance(name, str)] if isinstance(arms, list) else []
    return list(dict.fromkeys([*named, *(arm if isinstance(arm, dict) else ())]))


def _datasets_meant(backbones: object) -> dict[str, JsonTable]:
    """The data sets of all `on` tables, without keys."""
    tables = backbones.values() if isinstance(backbones, dict) else ()
    on = [table["on"] for table in tables if isinstance(table, dict) and "on" in table]
    return {name: {} for names in on if isinstance(names, dict) for name in names}


def _repeats(parsed: RecipeKeys, arms: Sequence[Arm]) -> Iterator[Fault]:
    lists: dict[str, list[Any]] = {"seeds": parsed.seeds, "arms": parsed.arms}
    for key, values in lists.items():
        for value, times in Counter(values).items():
            if times > 1:
                yield Fault((key,), f"{value} is listed {times} times")
    for arm in arms:
        if arm.point and arm.name in parsed.arms:
            yield Fault(("arms",), f"`{arm.name}` is the name of a point of a grid, too")


def _family_faults(parsed: RecipeKeys, arms: Sequence[Arm]) -> Iterator[Fault]:
    points, choose = {arm.name: arm.family for arm in arms if arm.point}, parsed.report.choose
    for pair in parsed.report.family:
        for arm in pair:
            if choose and arm in points:
                why = f"`{arm}` is a point of a grid: with `choose`, name `{points[arm]}`"
            elif not choose and arm in points.values():
                example = next(name for name, family in points.items() if family == arm)
                why = f"`{arm}` has a grid: name a point, such as `{example}`, or set `choose`"
            elif arm not in parsed.arms and arm not in points:
                why = f"`{arm}` is not in `arms`{did_you_mean(arm, [*parsed.arms, *points])}"
            else:
                continue
            yield Fault(("report", "family"), why)


def _report_faults(parsed: RecipeKeys) -> Iterator[Fault]:
    """Faults of the keys of `[report]` that need a grid."""
    arms = [parsed.arm[name] for name in parsed.arms if name in parsed.arm]
    grids = [table.get("grid") for table in (*arms, *parsed.backbone.values())]
    swept = [key for grid in grids if isinstance(grid, dict) for key in grid if key not in DRAW]
    if parsed.report.choose and not swept:
        why = "no arm and no backbone has a `grid` to choose from"
        yield Fault(("report", "choose"), why)
    if parsed.budget and not parsed.report.choose:
        why = "needs `choose` in [report]: points that are drawn for each arm do not pair"
        yield Fault(("budget",), why)
    if parsed.report.choose and parsed.kind != "train":
        why = "only a recipe that trains has validation scores to choose by"
        yield Fault(("report", "choose"), why)
    for number, key in enumerate(parsed.report.sensitivity):
        if key not in swept:
            why = f"no `grid` has the key `{key}`{did_you_mean(key, swept)}"
            yield Fault(("report", "sensitivity", str(number)), why)


def _probe(kind: Kind, table: Mapping[str, Any]) -> tuple[ProbeSettings | None, list[Fault]]:
    """The settings of a probe; None for training."""
    if kind == "train":
        stray = [Fault(("probe",), "only a recipe whose `kind` is a probe has this table")]
        return None, stray if table else []
    settings, faults = PROBES[kind].check(table)
    return settings, [fault.below("probe") for fault in faults]


def _misfits(
    arms: list[Arm], backbones: BackboneTables, probe: ProbeSettings | None
) -> Iterator[Fault]:
    """Faults of arms that do not fit a backbone, or cannot be measured on it, so that their jobs
    need not fail one by one. A job of several arms leaves out those that do not fit.
    """
    for arm in arms:
        faults, n_places = [], 0
        for name, per_dataset in backbones.items():
            for backbone in per_dataset.values():
                n_places += 1
                if (why := arm.settings.misfit(backbone)) is not None:
                    faults.append(Fault(("arms",), f"`{arm.name}` does not fit {name}: {why}"))
                elif (
                    probe is not None and (why := probe.misfit(backbone, arm.settings)) is not None
                ):
                    message = f"`{arm.name}` on {name} cannot be measured: {why}"
                    faults.append(Fault(("arms",), message))
        if probe is None or probe.unit == "arm" or len(faults) == n_places:
            yield from faults


def _arms(parsed: RecipeKeys) -> tuple[list[Arm], list[Fault]]:
    arms: list[Arm] = []
    faults: list[Fault] = []
    for name in parsed.arms:
        if len(faults) > MOST_FAULTS:
            break
        if name not in parsed.arm and (why := _unknown_arm(name, list(parsed.arm))):
            faults.append(Fault(("arms",), why))
            continue
        own, found = _arm(name, parsed.arm.get(name, {"plugin": name}))
        faults += [fault.below("arm", name) for fault in found]
        arms += own
    unused = [name for name in parsed.arm if name not in parsed.arms]
    faults += [Fault(("arm", name), "not in `arms`, so it would never run") for name in unused]
    return arms, faults


def _unknown_arm(name: str, tables: list[str]) -> str | None:
    """The reason for which an arm without a table is no plug-in, or None if it is one."""
    try:
        find_plugin(name)
    except UsageError as error:
        if is_foreign(name):
            return _in_a_line(error)
        return f"unknown arm `{name}`{did_you_mean(name, [*tables, *PLUGINS])}"
    return None


def _in_a_line(error: UsageError) -> str:
    """An error as one of several faults, with what to do."""
    return f"{error.message}; {error.hint}" if error.hint else error.message


def _arm(name: str, table: Mapping[str, Any]) -> tuple[list[Arm], list[Fault]]:
    """The arm of a table, or an arm for each point of its grid."""
    keys = dict(table)
    plugin = keys.pop("plugin", name)
    if "plugin" not in table and _unknown_arm(name, []):
        return [], [Fault((), "`plugin` is missing: the plug-in that this arm refines")]
    try:
        entry = find_plugin(str(plugin))
    except UsageError as error:
        return [], [Fault(("plugin",), _in_a_line(error))]
    label = keys.pop("label", entry.label if name == plugin else name)
    if not isinstance(label, str):
        return [], [Fault(("label",), "must be a text")]
    if "grid" not in keys:
        settings, faults = entry.settings.check(keys)
        if settings is None:
            return [], faults
        return [Arm(name=name, label=label, plugin=str(plugin), settings=settings)], []
    sweep, faults = read_sweep(keys.pop("grid"), also_set=keys)
    if sweep is None:
        return [], [fault.below("grid") for fault in faults]
    arms = []
    for point in _points(sweep, name=name, label=label):
        settings, found = entry.settings.check({**keys, **point.values})
        faults += _in_grid(found, point, sweep=sweep, known=entry.settings)
        if settings is not None:
            arms.append(
                Arm(
                    name=point.name,
                    label=point.full_label,
                    plugin=str(plugin),
                    settings=settings,
                    point=point,
                )
            )
    faults += _same_settings({arm.name: arm.settings for arm in arms})
    return arms, list(dict.fromkeys(faults))[:MOST_FAULTS]


def _points(sweep: Sweep, *, name: str, label: str) -> list[GridPoint]:
    return [GridPoint(of=name, label=label, values=values) for values in sweep.points()]


def _in_grid(
    faults: Sequence[Fault], point: GridPoint, *, sweep: Sweep, known: type[Frozen]
) -> list[Fault]:
    """Faults of a point's settings: those of a key of the grid at its value there."""
    keys = {field.alias or name for name, field in known.model_fields.items()}
    placed = []
    for fault in faults:
        key, *rest = fault.path or ("",)
        if key in sweep.values:
            at = [str(sweep.place(key, point.values[key]))] if key in keys else []
            placed.append(Fault(("grid", key, *at, *rest), fault.message))
        elif fault.path:
            placed.append(fault)
        else:
            placed.append(Fault(("grid",), f"`{point.name}`: {fault.message}"))
    return placed


def _same_settings(settings: Mapping[str, Frozen]) -> Iterator[Fault]:
    """Points of a grid that are one job, such as 1 and 1.0 of a number."""
    seen: dict[str, str] = {}
    for name, own in settings.items():
        if (first := seen.setdefault(canonical_json(own.plain()), name)) != name:
            yield Fault(("grid",), f"`{name}` has the same settings as `{first}`")


def _backbones(
    parsed: RecipeKeys,
) -> tuple[BackboneTables, dict[str, GridPoint], list[Fault]]:
    """The settings of each backbone, or of each point of its grid, and these points by name."""
    resolved: BackboneTables = {}
    points: dict[str, GridPoint] = {}
    faults: list[Fault] = []
    for name, table in parsed.backbone.items():
        if len(faults) > MOST_FAULTS:
            break
        try:
            entry = find_backbone(name)
        except UsageError as error:
            near = did_you_mean(name, BACKBONES)
            why = _in_a_line(error) if is_foreign(name) else f"unknown backbone{near}"
            faults.append(Fault(("backbone", name), why))
            continue
        everywhere = {"embedding_dim": parsed.training.embedding_dim, **table}
        on, found = _on_tables(everywhere.pop("on", {}), datasets=list(parsed.dataset))
        grid = everywhere.pop("grid", None)
        if found:
            pass
        elif grid is None:
            resolved[name], found = _on_each(name, everywhere, on=on, parsed=parsed)
        else:
            set_keys = {key for own in (table, *on.values()) for key in own}
            sweep, found = read_sweep(grid, also_set=set_keys - {"grid"})
            found = [fault.below("grid") for fault in found]
            if sweep is not None:
                own, found = _backbone_points(
                    name, everywhere, on=on, parsed=parsed, sweep=sweep, entry=entry
                )
                points |= {point.name: point for point, _ in own}
                resolved |= {point.name: settings for point, settings in own}
        faults += [fault.below("backbone", name) for fault in found]
    return resolved, points, faults


def _backbone_points(
    name: str,
    everywhere: JsonTable,
    *,
    on: Mapping[str, JsonTable],
    parsed: RecipeKeys,
    sweep: Sweep,
    entry: BackboneEntry,
) -> tuple[list[tuple[GridPoint, dict[str, BackboneSettings]]], list[Fault]]:
    """Each point of a backbone's grid with its settings on each data set."""
    found, faults = [], list[Fault]()
    for point in _points(sweep, name=name, label=entry.label):
        settings, own = _on_each(name, {**everywhere, **point.values}, on=on, parsed=parsed)
        faults += _in_grid(own, point, sweep=sweep, known=entry.settings)
        found.append((point, settings))
    for dataset in parsed.dataset:
        faults += _same_settings({p.name: own[dataset] for p, own in found if dataset in own})
    return found, list(dict.fromkeys(faults))[:MOST_FAULTS]


def _on_each(
    name: str, everywhere: JsonTable, *, on: Mapping[str, JsonTable], parsed: RecipeKeys
) -> tuple[dict[str, BackboneSettings], list[Fault]]:
    """The settings of a backbone on each data set, without those that have a fault."""
    found, faults = {}, list[Fault]()
    for dataset in parsed.dataset:
        settings, own = _backbone(name, everywhere, own=on.get(dataset, {}), on=dataset)
        faults += own
        if settings is not None:
            found[dataset] = settings
    return found, faults


def _on_tables(
    on: pydantic.JsonValue, *, datasets: list[str]
) -> tuple[dict[str, JsonTable], list[Fault]]:
    """The tables of a backbone that hold on one data set each, by its name."""
    tables = {
        name: own
        for name, own in (on.items() if isinstance(on, dict) else ())
        if isinstance(own, dict)
    }
    if not isinstance(on, dict) or len(tables) < len(on):
        return {}, [Fault(("on",), "must hold tables, one for each data set")]
    strangers = [name for name in tables if name not in datasets]
    return tables, [
        Fault(("on", name), f"the recipe has no such data set{did_you_mean(name, datasets)}")
        for name in strangers[:MOST_FAULTS]
    ]


def _backbone(
    name: str, everywhere: JsonTable, *, own: JsonTable, on: str
) -> tuple[BackboneSettings | None, list[Fault]]:
    """The settings on one data set, or faults whose paths lead to the table that set the key."""
    settings, faults = find_backbone(name).settings.check({**everywhere, **own})
    if settings is not None:
        return settings, []
    return None, [
        fault.below("on", on) if fault.path and fault.path[0] in own else fault for fault in faults
    ]


def load_recipe(argument: str | Path, *, changes: Sequence[str] = ()) -> Recipe:
    """Read the recipe at a path, or the bundled one of that name, with `--set` changes applied.

    `changes` are `key.key=value` texts with the value in TOML; a bare word is a text. Raises
    UsageError.
    """
    path = find_recipe(argument)
    return parse_recipe(recipe_content(path), path=path, changes=changes)


def recipe_content(path: Path) -> bytes:
    """The bytes of a recipe's file. Raises UsageError where it cannot be read."""
    try:
        return read_file(path, most_bytes=MOST_BYTES)
    except (FileNotFoundError, NotReadable, PermissionError) as error:
        raise UsageError(
            f"{path}: cannot read the recipe: {error.strerror}",
            hint="a recipe is a file in TOML; `prime-bench show recipe quick` prints one to copy",
        ) from error


def parse_recipe(
    content: bytes, *, path: Path, changes: Sequence[str] = (), catalogue_alone: bool = False
) -> Recipe:
    """Read the content of a recipe file, which messages call `path`, as `load_recipe` does.

    With `catalogue_alone` a name that is not in the catalogue is refused, so that nothing which the
    recipe names is imported. Raises UsageError.
    """
    text, table = read_toml(content, path=path, noun="recipe", most_bytes=MOST_BYTES)
    changed = [_apply(table, change) for change in changes]
    if why := excess(table):
        raise UsageError(f"{path}: {why}")
    if catalogue_alone:
        _refuse_foreign(table, path=path)
    recipe, faults = read_recipe(table, name=path.stem)
    if recipe is None:
        places = [_place(fault, path=path, text=text, changed=changed) for fault in faults]
        raise UsageError("\n".join(dict.fromkeys(places)))
    lines = {name: line_of(text, ("dataset", name)) for name in recipe.datasets}
    return replace(
        recipe,
        folder=path.parent,
        places={name: f"{path}:{line}" if line else str(path) for name, line in lines.items()},
        given=given(table, changed),
    )


def find_recipe(argument: str | Path) -> Path:
    """The recipe's file: that path, or the bundled recipe of the name `NAME` or
    `recipes/NAME.toml`. Raises UsageError.
    """
    path = Path(argument)
    if path.is_file():
        return path
    folder = bundled_folder("recipes")
    bundled = {file.stem: file for file in sorted(folder.glob("*.toml"))}
    names_bundled = path.parent in (Path(), Path("recipes")) and path.suffix in ("", ".toml")
    if names_bundled and path.stem in bundled:
        return bundled[path.stem]
    if path.is_dir():
        raise UsageError(f"{path}: a folder, not a recipe")
    beside = [str(path.with_name(file.name)) for file in path.parent.glob("*.toml")]
    guess = did_you_mean(str(path), beside) or did_you_mean(path.stem, bundled)
    raise UsageError(
        f"{path}: no such recipe{guess}",
        hint=f"give a file, or one of the bundled recipes: {', '.join(bundled)}",
    )


def recipe_files() -> list[tuple[str, str, str, Path]]:
    """The bundled recipes, and those in the working folder and its folder `recipes`.

    Returns what names each as an argument, its kind and title, and its path. A file that is not a
    recipe is left out; one with faults is not.
    """
    found = toml_files(bundled_folder("recipes"), own=(Path(), Path("recipes")))
    return [
        (name, str(table.get("kind", "train")), str(table.get("title", "")), file)
        for name, table, file in found
        if {"seeds", "arms"} <= table.keys()
    ]


def toml_files(bundled: Path, *, own: Sequence[Path]) -> Iterator[tuple[str, JsonTable, Path]]:
    """The TOML files of a bundled folder, then those of the folders `own`, if they are others.

    Yields what names each as an argument, its table, and its path. What is not TOML is left out.
    """
    files = [(file.stem, file) for file in sorted(bundled.glob("*.toml"))]
    for folder in own:
        if not _is_same(folder, bundled):
            files += [(str(file), file) for file in sorted(folder.glob("*.toml"))]
    for name, file in files:
        with contextlib.suppress(OSError, ValueError, RecursionError):
            text = read_file(file, most_bytes=MOST_BYTES).decode("utf-8-sig")
            yield name, tomllib.loads(text), file


def _is_same(folder: Path, other: Path) -> bool:
    """Whether two paths are one folder; False where one of them is not there."""
    try:
        return folder.samefile(other)
    except OSError:
        return False


def _apply(table: dict[str, object], change: str) -> tuple[str, ...]:
    """Set one `key.key=value` in the raw table. Returns the key's path."""
    try:
        change.encode()
    except UnicodeEncodeError:
        raise UsageError(f"--set {change!a}: not valid UTF-8") from None
    dotted, equals, value = change.partition("=")
    path = tuple(part.strip() for part in dotted.split("."))
    if not equals or not all(path):
        raise UsageError(f"--set {change}: expected KEY=VALUE, such as training.max_epochs=1")
    _refuse_new_names(table, path, change=change)
    here = table
    for part in path[:-1]:
        inner = here.setdefault(part, {})
        if not isinstance(inner, dict):
            raise UsageError(f"--set {change}: `{part}` is a value, not a table")
        here = inner
    here[path[-1]] = _toml_value(value.strip())
    return path


def _refuse_new_names(table: Mapping[str, object], path: tuple[str, ...], *, change: str) -> None:
    """Raise UsageError if a change of one key would add a data set or backbone to the grid."""
    names = {"dataset": "data set", "backbone": "backbone"}
    there = table.get(path[0])
    if path[0] in names and len(path) > 2 and isinstance(there, dict) and path[1] not in there:
        raise UsageError(
            f"--set {change}: the recipe has no {names[path[0]]} `{path[1]}`"
            f"{did_you_mean(path[1], there)}",
            hint=f"it has: {', '.join(there)}",
        )


def _toml_value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        return text


def _refuse_foreign(table: Mapping[str, object], *, path: Path) -> None:
    """Raise UsageError if a name in the raw table could be that of a class of another package."""
    arms, own, backbones = table.get("arms"), table.get("arm"), table.get("backbone")
    tables = own if isinstance(own, dict) else {}
    plugins = [
        keys.get("plugin", name) if isinstance(keys, dict) else name
        for name, keys in tables.items()
    ]
    named = [name for name in arms if isinstance(name, str)] if isinstance(arms, list) else []
    plugins += [name for name in named if name not in tables]
    for noun, names, known in (
        ("plug-in", plugins, PLUGINS),
        ("backbone", list(backbones) if isinstance(backbones, dict) else [], BACKBONES),
    ):
        if foreign := [name for name in names if isinstance(name, str) and name not in known]:
            raise UsageError(
                f"{path}: the {noun} `{foreign[0]}` is not one of this package, and is not loaded",
                hint="pack the records again: bundles of this version need no class",
            )


def _place(fault: Fault, *, path: Path, text: str, changed: Sequence[tuple[str, ...]]) -> str:
    if any(fault.path[: len(change)] == change for change in changed):
        return f"--set {fault}"
    line = line_of(text, fault.path)
    if line is None and any(change[: len(fault.path)] == fault.path for change in changed):
        return f"--set {fault}"  # the change has made the faulty table
    return place(fault, path=path, text=text)

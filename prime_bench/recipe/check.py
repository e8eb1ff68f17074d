"""From a recipe's raw table to a checked recipe: every fault of the whole file is found at once."""

from collections import Counter
from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any

from prime_bench.base.errors import UsageError, did_you_mean
from prime_bench.catalog import BACKBONES, PLUGINS, find_backbone, find_plugin, is_foreign
from prime_bench.recipe.expand import Arm, Recipe
from prime_bench.recipe.schema import RecipeTable
from prime_bench.settings.kinds import PROBES, Kind
from prime_bench.settings.model import Fault
from prime_bench.settings.probe import ProbeSettings

Resolved = dict[str, dict[str, dict[str, Any]]]


def read_recipe(table: Mapping[str, Any], *, name: str) -> tuple[Recipe | None, list[Fault]]:
    """Check a recipe's table as a whole: the recipe, or None and all its faults."""
    parsed, file_faults = RecipeTable.check(table)
    if parsed is None:
        # The rest of the file is checked all the same, so that one message names every fault.
        parsed, _ = RecipeTable.check(_mended(table, file_faults))
    if parsed is None:
        return None, file_faults
    arms, arm_faults = _arms(parsed)
    backbones, backbone_faults = _backbones(parsed)
    probe, probe_faults = _probe(parsed.kind, parsed.probe)
    faults = [
        *file_faults,
        *_repeats(parsed),
        *arm_faults,
        *backbone_faults,
        *probe_faults,
        *_family_faults(parsed),
        *_misfits(arms, backbones, probe),
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
        probe={} if probe is None else probe.plain(),
        report=parsed.report,
    )
    return recipe, []


def _mended(table: Mapping[str, Any], faults: list[Fault]) -> dict[str, Any]:
    """A copy with something sound in place of what is at fault, which causes no further faults."""
    mended = deepcopy(dict(table))
    for fault in faults:
        section, *rest = fault.path
        here = mended.get(section)
        if rest and isinstance(here, dict) and section == "training":
            here.pop(rest[0], None)
        elif rest and isinstance(here, dict) and section in ("arm", "dataset", "backbone"):
            here[rest[0]] = {"plugin": "dense"} if section == "arm" else {}
        else:
            mended.pop(section, None)
    if "arms" not in mended:
        mended["arms"] = _arms_meant(table.get("arms"), arm=mended.get("arm")) or ["dense"]
        mended.pop("report", None)
    backbones = mended.setdefault("backbone", {"DNN": {}})
    if "dataset" not in mended:
        mended["dataset"] = _datasets_meant(backbones) or {"any": {}}
    return {"schema": 1, "title": "", "seeds": [0], **mended}


def _arms_meant(arms: object, *, arm: object) -> list[str]:
    """Names that a faulty `arms` holds, and those of all arm tables."""
    named = [name for name in arms if isinstance(name, str)] if isinstance(arms, list) else []
    return list(dict.fromkeys([*named, *(arm if isinstance(arm, dict) else ())]))


def _datasets_meant(backbones: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The data sets of all `on` tables."""
    on = [table["on"] for table in backbones.values() if isinstance(table.get("on"), dict)]
    return {name: {} for names in on for name in names}


def _repeats(parsed: RecipeTable) -> Iterator[Fault]:
    lists: dict[str, list[Any]] = {"seeds": parsed.seeds, "arms": parsed.arms}
    for key, values in lists.items():
        for value, times in Counter(values).items():
            if times > 1:
                yield Fault((key,), f"{value} stands {times} times")


def _family_faults(parsed: RecipeTable) -> Iterator[Fault]:
    for pair in parsed.report.family:
        for arm in pair:
            if arm not in parsed.arms:
                near = did_you_mean(arm, parsed.arms)
                yield Fault(("report", "family"), f"`{arm}` is not in `arms`{near}")


def _probe(kind: Kind, table: Mapping[str, Any]) -> tuple[ProbeSettings | None, list[Fault]]:
    """The settings of a kind that measures; None for training, which has none."""
    if kind == "train":
        stray = [Fault(("probe",), "only a recipe of a `kind` that measures has such a table")]
        return None, stray if table else []
    settings, faults = PROBES[kind].check(table)
    return settings, [fault.below("probe") for fault in faults]


def _misfits(arms: list[Arm], backbones: Resolved, probe: ProbeSettings | None) -> Iterator[Fault]:
    """Arms that cannot stand on a backbone, or cannot be measured there: better said now than by
    each of their jobs. A job of all arms leaves out those that do not fit its backbone.
    """
    for arm in arms:
        faults, settings, n_places = [], arm.parsed(), 0
        for name, per_dataset in backbones.items():
            for plain in per_dataset.values():
                n_places += 1
                backbone = find_backbone(name).settings.parse(plain, where=name)
                if (why := settings.misfit(backbone)) is not None:
                    faults.append(Fault(("arms",), f"`{arm.name}` does not fit {name}: {why}"))
                elif probe is not None and (why := probe.misfit(backbone, settings)) is not None:
                    said = f"`{arm.name}` on {name} cannot be measured: {why}"
                    faults.append(Fault(("arms",), said))
        if probe is None or probe.unit == "arm" or len(faults) == n_places:
            yield from faults


def _arms(parsed: RecipeTable) -> tuple[list[Arm], list[Fault]]:
    arms, faults = [], []
    for name in parsed.arms:
        if name not in parsed.arm and (why := _unknown_arm(name, list(parsed.arm))):
            faults.append(Fault(("arms",), why))
            continue
        arm, found = _arm(name, parsed.arm.get(name, {"plugin": name}))
        faults += [fault.below("arm", name) for fault in found]
        if arm is not None:
            arms.append(arm)
    unused = [name for name in parsed.arm if name not in parsed.arms]
    faults += [Fault(("arm", name), "not in `arms`, so it would never run") for name in unused]
    return arms, faults


def _unknown_arm(name: str, tables: list[str]) -> str | None:
    """Why an arm without a table of its own is no plug-in's name."""
    try:
        find_plugin(name)
    except UsageError as error:
        if is_foreign(name):
            return error.message
        return f"unknown arm `{name}`{did_you_mean(name, [*tables, *PLUGINS])}"
    return None


def _arm(name: str, table: Mapping[str, Any]) -> tuple[Arm | None, list[Fault]]:
    keys = dict(table)
    plugin = keys.pop("plugin", None if _unknown_arm(name, []) else name)
    if plugin is None:
        return None, [Fault((), "`plugin` is missing: the plug-in that this arm refines")]
    try:
        entry = find_plugin(str(plugin))
    except UsageError as error:
        return None, [Fault(("plugin",), error.message)]
    label = keys.pop("label", entry.label if name == plugin else name)
    if not isinstance(label, str):
        return None, [Fault(("label",), "a text is wanted")]
    settings, faults = entry.settings.check(keys)
    if settings is None:
        return None, faults
    return Arm(name=name, label=label, plugin=str(plugin), settings=settings.plain()), []


def _backbones(parsed: RecipeTable) -> tuple[Resolved, list[Fault]]:
    resolved: Resolved = {}
    faults: list[Fault] = []
    for name, table in parsed.backbone.items():
        try:
            find_backbone(name)
        except UsageError as error:
            near = did_you_mean(name, BACKBONES)
            why = error.message if is_foreign(name) else f"unknown backbone{near}"
            faults.append(Fault(("backbone", name), why))
            continue
        everywhere = {"embedding_dim": parsed.training.embedding_dim, **table}
        on = everywhere.pop("on", {})
        found = _on_faults(on, datasets=list(parsed.dataset))
        if not found:
            resolved[name] = {}
            for dataset in parsed.dataset:
                settings, more = _backbone(name, everywhere, own=on.get(dataset, {}), on=dataset)
                found += more
                if settings is not None:
                    resolved[name][dataset] = settings
        faults += [fault.below("backbone", name) for fault in found]
    return resolved, faults


def _on_faults(on: object, *, datasets: list[str]) -> list[Fault]:
    if not isinstance(on, dict) or not all(isinstance(own, dict) for own in on.values()):
        return [Fault(("on",), "tables are wanted, one for each data set")]
    return [
        Fault(("on", name), f"the recipe has no such data set{did_you_mean(name, datasets)}")
        for name in on
        if name not in datasets
    ]


def _backbone(
    name: str, everywhere: Mapping[str, Any], *, own: Mapping[str, Any], on: str
) -> tuple[dict[str, Any] | None, list[Fault]]:
    """The settings on one data set; a fault's path leads to the table that set the key."""
    settings, faults = find_backbone(name).settings.check({**everywhere, **own})
    if settings is not None:
        return settings.plain(), []
    return None, [
        fault.below("on", on) if fault.path and fault.path[0] in own else fault for fault in faults
    ]

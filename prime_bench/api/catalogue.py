"""What a recipe can name, and facts of a backbone, an arm or a prepared table."""

from __future__ import annotations

import contextlib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from prime_bench.api.recipes import StrPath
from prime_bench.base.errors import DataError, UsageError
from prime_bench.base.frozen import Frozen
from prime_bench.catalog import (
    BACKBONES,
    PLUGINS,
    entry_point_targets,
    find_backbone,
    find_plugin,
)
from prime_bench.settings.keys import keys_of

if TYPE_CHECKING:
    from prime_bench.data.describe import TableFacts
    from prime_bench.data.manifest import Manifest

ListedKind = Literal["backbones", "arms", "recipes", "studies", "datasets", "tables", "figures"]
"""What `names` and `listing` list: `tables` and `figures` are those of a report."""

_BYTES_A_PARAMETER = 4 * (1 + 2)
"""A float32 weight and the two moments that Adam keeps of it."""


def names(kind: ListedKind) -> list[str]:
    """List what a recipe or a report can name.

    Backbones and plug-ins of installed packages (entry points) are listed too, recipes in the
    working folder and in `./recipes`, and studies in the working folder and in `./recipes/studies`.

    Args:
        kind: `backbones`, `arms`, `recipes`, `studies`, `datasets`, or `tables` and `figures` of a
            report.
    """
    return [str(row["name"]) for row in listing(kind)]


def listing(kind: ListedKind, *, data_dir: StrPath = "data") -> list[dict[str, Any]]:
    """List what `names` lists, each with what `prime-bench ls KIND --json` prints of it.

    Args:
        kind: As in `names`.
        data_dir: Folder of the prepared tables, which `datasets` names.

    Returns:
        A dictionary for each, with its `name` and, by kind, its label, title, source, sites or
        path.
    """
    match kind:
        case "backbones":
            return _backbones()
        case "arms":
            return _arms()
        case "recipes":
            return _recipes()
        case "studies":
            return _studies()
        case "datasets":
            return _datasets(Path(data_dir))
        case "tables":
            return _tables()
        case "figures":
            return _figures()


@dataclass(frozen=True, kw_only=True)
class KeyFacts:
    """A setting that a recipe can set."""

    name: str
    default: object
    """As a JSON value."""
    choices: list[object] | None
    """The values it may have, where they are few."""
    doc: str


@dataclass(frozen=True, kw_only=True)
class BackboneCounts:
    """Parameters and multiply-accumulates of a backbone on a prepared table."""

    path: str
    """Folder of the table."""
    dataset: str
    fingerprint: str
    """SHA-256 of the table's content."""
    fields: int
    """Number of fields."""
    input_width: int
    """Numbers of a row's embeddings together."""
    embedding_rows: int
    """Rows of all embedding tables."""
    parameters: int
    """Trainable parameters."""
    macs: int
    """Multiply-accumulates of a row's forward pass."""


@dataclass(frozen=True, kw_only=True)
class BackboneFacts:
    """A backbone with its default settings."""

    name: str
    label: str
    cite: str
    top_nn: list[str]
    """Paths of the layers of the Top-NN."""
    sites: list[str]
    """Places where a plug-in may sit."""
    keys: list[KeyFacts]
    tables: list[BackboneCounts]
    """Its counts, one for each prepared table that was asked for."""


@dataclass(frozen=True, kw_only=True)
class ArmFacts:
    """An arm with its default settings."""

    name: str
    label: str
    cite: str
    keys: list[KeyFacts]


@dataclass(frozen=True, kw_only=True)
class BackboneMemory:
    """The memory that a backbone needs for its weights on a table."""

    name: str
    parameters: int
    bytes: int
    """Bytes of the weights and of the two moments that Adam keeps of each."""


@dataclass(frozen=True, kw_only=True)
class PreparedTableFacts:
    """What a prepared table holds."""

    path: Path
    manifest: Manifest
    statistics: TableFacts
    """Statistics of its splits and fields."""
    backbones: list[BackboneMemory]
    """What each backbone of the catalogue needs under its default settings, by name."""

    def plain(self) -> dict[str, Any]:
        """Return the facts as JSON values."""
        return {
            "path": str(self.path),
            "dataset": self.manifest.dataset,
            "fingerprint": self.manifest.fingerprint,
            "verified": self.manifest.verified,
            "settings": self.manifest.settings,
            "notes": self.manifest.notes,
            "warnings": self.manifest.warnings,
            "vocabulary_total": self.manifest.vocabulary_total,
            **asdict(self.statistics),
            "backbones": [asdict(backbone) for backbone in self.backbones],
        }


def backbone_facts(
    name: str, *, table: StrPath | None = None, data_dir: StrPath = "data"
) -> BackboneFacts:
    """Read what a backbone is: its settings with their defaults, sites and Top-NN.

    Args:
        name: One that `names("backbones")` lists, or `module:Class`.
        table: A prepared table to count parameters for: its folder, or the name of a data set for
            all of its tables.
        data_dir: Folder of the prepared tables.

    Raises:
        UsageError: There is no such backbone.
        DataError: There is no such table.
    """
    entry = find_backbone(name)
    settings = entry.settings()
    counts = []
    if table is not None:
        from prime_bench.data.manifest import find_tables
        from prime_bench.data.table import PreparedTable

        for folder in find_tables(Path(table).as_posix(), data_dir=Path(data_dir)):
            prepared = PreparedTable.open(folder)
            shape = prepared.schema.shape
            counts.append(
                BackboneCounts(
                    path=str(folder),
                    dataset=prepared.manifest.dataset,
                    fingerprint=prepared.manifest.fingerprint,
                    fields=shape.n_fields,
                    input_width=settings.input_width(shape),
                    embedding_rows=shape.embedding_rows,
                    parameters=settings.parameters(shape),
                    macs=settings.macs(shape),
                )
            )
    return BackboneFacts(
        name=name,
        label=entry.label,
        cite=entry.cite,
        top_nn=list(settings.top_nn),
        sites=list(settings.sites),
        keys=_keys(settings),
        tables=counts,
    )


def arm_facts(name: str) -> ArmFacts:
    """Read what an arm is: its settings with their defaults.

    Args:
        name: One that `names("arms")` lists, or `module:Class`.

    Raises:
        UsageError: There is no such arm.
    """
    entry = find_plugin(name)
    return ArmFacts(name=name, label=entry.label, cite=entry.cite, keys=_keys(entry.settings()))


def table_facts(table: StrPath, *, data_dir: StrPath = "data") -> list[PreparedTableFacts]:
    """Read what a prepared table holds: rows and click rates, ids, missing values, memory.

    Args:
        table: Its folder, or the name of a data set for all of its tables.
        data_dir: Folder of the prepared tables.

    Raises:
        DataError: There is no such table, or it is a bundle.
    """
    from prime_bench.data.describe import describe
    from prime_bench.data.manifest import find_tables
    from prime_bench.data.table import PreparedTable

    if Path(table).suffix == ".zip":
        raise DataError(
            f"{table}: a bundle has records and no data",
            hint="`prime-bench show job JOB --runs-dir BUNDLE` has what a job knows of its data",
        )
    facts = []
    for folder in find_tables(Path(table).as_posix(), data_dir=Path(data_dir)):
        prepared = PreparedTable.open(folder)
        sizes = {
            name: entry.settings().parameters(prepared.schema.shape)
            for name, entry in sorted(BACKBONES.items())
        }
        facts.append(
            PreparedTableFacts(
                path=folder,
                manifest=prepared.manifest,
                statistics=describe(prepared),
                backbones=[
                    BackboneMemory(name=name, parameters=n, bytes=n * _BYTES_A_PARAMETER)
                    for name, n in sizes.items()
                ],
            )
        )
    return facts


def _backbones() -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for name, entry in sorted(BACKBONES.items()):
        settings = entry.settings()
        rows.append(
            {
                "name": name,
                "label": entry.label,
                "top_nn": list(settings.top_nn),
                "sites": list(settings.sites),
                "cite": entry.cite,
            }
        )
    # Their classes are not loaded, which may take seconds or fail.
    for name, target in sorted(entry_point_targets("backbone").items()):
        rows.append({"name": name, "label": None, "top_nn": None, "sites": None, "cite": target})
    return rows


def _arms() -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = [
        {"name": name, "label": entry.label, "cite": entry.cite} for name, entry in PLUGINS.items()
    ]
    for name, target in sorted(entry_point_targets("plug-in").items()):
        rows.append({"name": name, "label": None, "cite": target})
    return rows


def _recipes() -> list[dict[str, Any]]:
    from prime_bench.recipe.file import recipe_files

    return [
        {"name": name, "kind": kind, "title": title, "path": str(path)}
        for name, kind, title, path in recipe_files()
    ]


def _studies() -> list[dict[str, Any]]:
    from prime_bench.recipe.study import study_files

    return [
        {"name": name, "title": title, "recipes": n_recipes, "path": str(path)}
        for name, title, n_recipes, path in study_files()
    ]


def _datasets(data_dir: Path) -> list[dict[str, Any]]:
    from prime_bench.data.card import card_names, load_card, own_cards, read_card
    from prime_bench.data.manifest import carried_cards, prepared_tables

    cards = {name: load_card(name) for name in card_names()}
    # Cards of one's own: of prepared tables, and in a folder of cards, where they are sound.
    cards |= {card.name: card for card in carried_cards(data_dir)}
    for name, file in own_cards().items():
        with contextlib.suppress(UsageError):
            cards[name] = read_card(file)
    prepared: dict[str, list[str]] = {}
    for dataset, folder in prepared_tables(data_dir):
        prepared.setdefault(dataset, []).append(str(folder))
    return [
        {
            "name": name,
            "title": card.title,
            "kind": card.kind,
            "licence": card.licence,
            "homepage": card.homepage,
            "tables": prepared.get(card.name, []),
        }
        for name, card in cards.items()
    ]


def _tables() -> list[dict[str, Any]]:
    from prime_bench.report.tables.definition import shipped_tables
    from prime_bench.report.tables.kinds import load_definition

    return [{"name": name, "title": load_definition(name).title} for name in shipped_tables()]


def _figures() -> list[dict[str, Any]]:
    from prime_bench.report.figures import FIGURES

    return [{"name": name, "title": title} for name, title in FIGURES.items()]


def _keys(settings: Frozen) -> list[KeyFacts]:
    """Each key with its default, its choices and its docstring."""
    defaults = settings.model_dump(mode="json")  # `plain` leaves out what a job's id leaves out
    return [
        KeyFacts(
            name=key.name,
            default=defaults[key.name],
            choices=None if key.choices is None else list(key.choices),
            doc=key.doc,
        )
        for key in keys_of(type(settings))
    ]

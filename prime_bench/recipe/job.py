"""A job: all that can change a result and nothing else, the id made from it, and its settings as
typed values.

`Job` is the document: plain tables that anyone can read without the classes that they configure,
as records and bundles are read. `Job.resolve` gives what the code works with.
"""

import re
from dataclasses import dataclass
from typing import TypeVar

from prime_bench.base.errors import UsageError
from prime_bench.base.frozen import Frozen, JsonTable
from prime_bench.base.identity import JOB_ID_DIGITS, NUMERICS, digest
from prime_bench.catalog import (
    BACKBONES,
    PLUGINS,
    BackboneEntry,
    PluginEntry,
    find_backbone,
    find_plugin,
)
from prime_bench.settings.interface import (
    ArmSettings,
    BackboneSettings,
    Budget,
    TableShape,
    budget_of,
)
from prime_bench.settings.probes import PROBES, CostProbe, Kind, ProbeSettings
from prime_bench.settings.training import TrainSpec

_DEVICE = re.compile(r"auto|cpu|cuda(:[0-9]+)?")
_Probe = TypeVar("_Probe", bound=ProbeSettings)


class Job(Frozen):
    """One training run, or one probe. Every default is written out; labels and file names are not
    here.
    """

    kind: Kind = "train"
    """`train`, or the kind of the probe."""
    fingerprint: str
    """Digest of the prepared data: schema, vocabularies and arrays."""
    backbone: str
    """A name in `catalog.BACKBONES`, or one that `catalog.find_backbone` knows."""
    backbone_settings: JsonTable
    """All keys of the backbone's settings."""
    plugin: str
    """A name in `catalog.PLUGINS`, or one that `catalog.find_plugin` knows."""
    plugin_settings: JsonTable
    """All keys of the plug-in's settings."""
    training: TrainSpec
    """The training protocol; a probe has that of the run which it measures."""
    seed: int
    """The number from which all random streams are derived."""
    numerics: int = NUMERICS
    """Version of everything that can change a number (docs/numerics.md)."""
    code: dict[str, str] = {}
    """Digest of the source files of each backbone or plug-in that is not ours, by its name: of the
    module of its class and of what this imports from its own package."""
    probe: JsonTable = {}
    """Settings of a probe; a training run has none."""

    def plain(self) -> JsonTable:
        """The job as JSON values. `code` and `probe` are left out where they are empty and
        `training.matmul` where it is the default, so that jobs without them keep the ids that they
        had before these keys existed.
        """
        absent = [key for key in ("code", "probe") if not getattr(self, key)]
        plain = {key: value for key, value in super().plain().items() if key not in absent}
        if self.training.matmul == "float32":
            training = dict(self.training.plain())
            del training["matmul"]
            plain["training"] = training
        return plain

    @property
    def training_run(self) -> "Job":
        """The training run of the same arm; of a training run, itself."""
        return self.model_copy(update={"kind": "train", "probe": {}})

    @property
    def id(self) -> str:
        """First 16 hex digits of SHA-256 over the job's canonical JSON."""
        return digest(self.plain())[:JOB_ID_DIGITS]

    @property
    def is_ours(self) -> bool:
        """Whether the backbone and the plug-in are of this package, so that to resolve the job
        imports nobody's code.
        """
        return self.backbone in BACKBONES and self.plugin in PLUGINS

    def resolve(self) -> "ResolvedJob":
        """Find the job's classes in the catalogue and read its tables with them.

        Raises UsageError for an unknown name, a key or value that the settings do not allow, an
        arm that does not fit the backbone, and for source files of a class that is not ours which
        are not those that the job was planned with.
        """
        backbone_entry, plugin_entry = find_backbone(self.backbone), find_plugin(self.plugin)
        for name, entry in ((self.backbone, backbone_entry), (self.plugin, plugin_entry)):
            if self.code.get(name) != entry.code:
                raise UsageError(
                    f"{name}: its source files are not those that the job was planned with",
                    hint="run the recipe again: it makes the job that belongs to the new code",
                )
        backbone = backbone_entry.settings.parse(
            self.backbone_settings, where=f"backbone.{self.backbone}"
        )
        arm = plugin_entry.settings.parse(self.plugin_settings, where=f"arm.{self.plugin}")
        if (fault := arm.misfit(backbone)) is not None:
            raise UsageError(f"arm {self.plugin} on {self.backbone}: {fault}")
        probe = None
        if self.kind != "train":
            probe_class = CostProbe if self.kind == "cost" else PROBES[self.kind]
            probe = probe_class.parse(self.probe, where="probe")
        return ResolvedJob(
            job=self,
            backbone=backbone,
            backbone_entry=backbone_entry,
            arm=arm,
            plugin_entry=plugin_entry,
            probe=probe,
        )


@dataclass(frozen=True, kw_only=True)
class ResolvedJob:
    """A job with its settings as typed values, and its classes as the catalogue names them."""

    job: Job
    backbone: BackboneSettings
    backbone_entry: BackboneEntry
    arm: ArmSettings
    plugin_entry: PluginEntry
    probe: ProbeSettings | None
    """None for a training run."""

    @property
    def id(self) -> str:
        """The id of the job, 16 hex digits, as `Job.id`."""
        return self.job.id

    @property
    def training(self) -> TrainSpec:
        """The training protocol; a probe has that of the run which it measures."""
        return self.job.training

    @property
    def seed(self) -> int:
        """The number from which all random streams of the job are derived."""
        return self.job.seed

    def budget(self, shape: TableShape) -> Budget:
        """Parameters and multiply-accumulates of the arm on data of that shape."""
        return budget_of(self.backbone, self.arm, shape=shape)

    def probe_as(self, settings: type[_Probe]) -> _Probe:
        """The settings of a probe of a known kind. Raises TypeError for a job of another kind."""
        if not isinstance(self.probe, settings):
            raise TypeError(f"a job of the kind {self.job.kind} has no {settings.__name__}")
        return self.probe


class JobRequest(Frozen):
    """What an engine hands to a worker: a job, its folders, and the names that reports use."""

    job: Job
    dataset: str
    """Name of the card, a label."""
    arm: str
    """Name of the arm in the recipe, a label."""
    table: str
    """Folder of the prepared table."""
    runs: str
    """Folder that holds one folder a job."""
    device: str = "auto"
    """`auto`, `cpu`, `cuda` or `cuda:<index>`."""
    threads: int | None = None
    """Threads of one operation on the CPU; None leaves torch's own choice."""
    keep_predictions: bool = False
    """Whether the job leaves its predictions in its folder."""
    recipe: str = ""
    """Name of the recipe that planned the job, a label."""
    origins: dict[str, str] = {}
    """Where each setting that is not a default comes from, by dotted key (`recipe.file.origins`).
    """


class MachineCheck(Frozen):
    """What an engine asks a worker before its first job on a machine: all that jobs will need."""

    tables: dict[str, str]
    """Folder of a prepared table -> its fingerprint."""
    backbones: dict[str, str | None]
    """Name of a backbone -> digest of its sources, as in `Job.code`; None for the catalogue's own.
    """
    plugins: dict[str, str | None]
    """The same for plug-ins."""
    device: str
    """As in `JobRequest`."""


def check_device(name: str) -> None:
    """Raise UsageError for a name that no device can have. The device need not exist here."""
    if not _DEVICE.fullmatch(name):
        raise UsageError(f"no device `{name}`", hint="devices: auto, cpu, cuda, cuda:<index>")

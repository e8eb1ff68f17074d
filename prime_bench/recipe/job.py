"""A job: all that can change a result and nothing else, and the id made from it."""

import re
from typing import Any

from prime_bench.base.errors import UsageError
from prime_bench.base.frozen import Frozen
from prime_bench.base.identity import NUMERICS, digest
from prime_bench.settings.probes import Kind
from prime_bench.settings.training import TrainSpec

JOB_ID_DIGITS = 16
_DEVICE = re.compile(r"auto|cpu|cuda(:[0-9]+)?")


class Job(Frozen):
    """One training run, or one measurement. Every default is written out; labels and file names
    are not here.
    """

    kind: Kind = "train"
    fingerprint: str
    """Digest of the prepared data: schema, vocabularies and arrays."""
    backbone: str
    """A name in `catalog.BACKBONES`, or one that `catalog.find_backbone` knows."""
    backbone_settings: dict[str, Any]
    plugin: str
    """A name in `catalog.PLUGINS`, or one that `catalog.find_plugin` knows."""
    plugin_settings: dict[str, Any]
    training: TrainSpec
    seed: int
    numerics: int = NUMERICS
    code: dict[str, str] = {}
    """Digest of the source files of a backbone or plug-in that is not ours, by its name."""
    probe: dict[str, Any] = {}
    """Resolved settings of a kind that measures (`settings.kinds`); a training run has none."""

    def plain(self) -> dict[str, Any]:
        """As JSON values; `code` and `probe` only where there is any, so that other ids are as they
        were without them.
        """
        absent = [key for key in ("code", "probe") if not getattr(self, key)]
        return {key: value for key, value in super().plain().items() if key not in absent}

    @property
    def trained(self) -> "Job":
        """The training run whose record and weights the job reads; for a training run itself."""
        return self.model_copy(update={"kind": "train", "probe": {}})

    @property
    def id(self) -> str:
        """First 16 hex digits of SHA-256 over the job's canonical JSON."""
        return digest(self.plain())[:JOB_ID_DIGITS]


class JobRequest(Frozen):
    """What an engine hands to a worker: a job, its folders, and what reports call it."""

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
    """Name of the recipe that planned it, a label."""
    origins: dict[str, str] = {}
    """Where settings that are no defaults come from, as `recipe.origins` has them."""


def check_device(name: str) -> None:
    """Raise UsageError where `name` is not how a device is called; it need not be there."""
    if not _DEVICE.fullmatch(name):
        raise UsageError(f"no device `{name}`", hint="devices: auto, cpu, cuda, cuda:<index>")

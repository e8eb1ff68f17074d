"""Job and schema -> model: the backbone, its plug-in, and one random stream for the initial values
of each.
"""

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from prime_bench.backbones.interface import Backbone
from prime_bench.base.errors import UsageError
from prime_bench.base.sources import load_class
from prime_bench.base.streams import derive
from prime_bench.catalog import find_backbone, find_plugin
from prime_bench.data.schema import Schema
from prime_bench.plugins.attach import ArmModel
from prime_bench.plugins.interface import Attachment, Plugin
from prime_bench.recipe.job import Job
from prime_bench.settings.interface import BackboneSettings, PluginSettings


@dataclass(frozen=True, kw_only=True)
class Assembled:
    """A model that is ready to train, on the CPU."""

    arm: ArmModel
    initial_weights: str
    """SHA-256 of the backbone's weights before the plug-in was attached: equal in all arms of a
    pair.
    """


def build_backbone(
    name: str, schema: Schema, hyperparameters: Mapping[str, Any], *, seed: int
) -> Backbone:
    """The backbone `name` of the catalogue, initialised from the stream "backbone-init" of `seed`,
    on the CPU.

    torch's global generators stay as they are. Raises UsageError for an unknown name, an unknown
    key or a bad value.
    """
    entry = find_backbone(name)
    settings = entry.settings.parse(hyperparameters, where=f"backbone.{name}")
    build: Any = load_class(entry.target)
    with _global_stream(derive(seed, "backbone-init")):
        backbone: Backbone = build(schema, settings)
    return backbone


def build_arm(job: Job, schema: Schema) -> Assembled:
    """The arm that `job` names, in train mode, on the CPU. Raises UsageError as `build_backbone`
    does.
    """
    backbone = build_backbone(job.backbone, schema, job.backbone_settings, seed=job.seed)
    initial_weights = weights_digest(backbone)
    backbone_entry, entry = find_backbone(job.backbone), find_plugin(job.plugin)
    _check_code(job, {job.backbone: backbone_entry.code, job.plugin: entry.code})
    settings = backbone_entry.settings.parse(job.backbone_settings, where="backbone")
    arm_settings = entry.settings.parse(job.plugin_settings, where=f"arm.{job.plugin}")
    fault = arm_settings.misfit(settings)
    if fault is not None:
        raise UsageError(f"arm {job.plugin} on {job.backbone}: {fault}")
    if isinstance(arm_settings, PluginSettings):
        arm = _with_plugin(job, schema, backbone, settings, arm_settings)
    else:
        build: Any = load_class(entry.target or "")
        attachment: Attachment = build(
            backbone,
            arm_settings,
            backbone_settings=settings,
            shape=schema.shape,
            generator=_plugin_stream(job.seed),
        )
        arm = ArmModel(backbone, attachment)
    return Assembled(arm=arm, initial_weights=initial_weights)


def _with_plugin(
    job: Job,
    schema: Schema,
    backbone: Backbone,
    backbone_settings: BackboneSettings,
    settings: PluginSettings,
) -> ArmModel:
    site, router_site = settings.input_site, settings.router_site
    plugin = build_plugin(
        job.plugin,
        backbone_settings.site_width(site, schema.shape),
        job.plugin_settings,
        seed=job.seed,
        router_width=None
        if router_site is None
        else backbone_settings.site_width(router_site, schema.shape),
    )
    return ArmModel(backbone, plugin, input_site=site, router_site=router_site)


def build_plugin(
    name: str,
    input_width: int,
    hyperparameters: Mapping[str, Any],
    *,
    seed: int,
    router_width: int | None = None,
) -> Plugin | None:
    """The plug-in `name` of the catalogue at width d = `input_width`, from the stream "plugin-
    init"; None for Dense. `router_width` is for one whose router reads another site.

    Raises UsageError for an unknown name, an unknown key or a bad value, and for an arm that
    changes the backbone itself.
    """
    entry = find_plugin(name)
    settings = entry.settings.parse(hyperparameters, where=f"arm.{name}")
    if entry.target is None:
        return None
    if not isinstance(settings, PluginSettings):
        raise UsageError(f"arm {name}: it changes the backbone, and cannot be built without one")
    widths = {} if router_width is None else {"router_width": router_width}
    build: Any = load_class(entry.target)
    plugin: Plugin = build(input_width, settings, generator=_plugin_stream(seed), **widths)
    plugin.use_seed(seed)
    return plugin


def _plugin_stream(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(derive(seed, "plugin-init"))


def weights_digest(module: torch.nn.Module) -> str:
    """SHA-256 over names, dtypes, shapes and bytes of the module's state dict, as 64 hex digits."""
    running = hashlib.sha256()
    for name, tensor in module.state_dict().items():
        running.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        running.update(tensor.detach().cpu().contiguous().numpy().data)
    return running.hexdigest()


def _check_code(job: Job, found: Mapping[str, str | None]) -> None:
    """Raise UsageError where the source files of somebody else's class are not those of the job."""
    for name, code in found.items():
        if job.code.get(name) != code:
            raise UsageError(
                f"{name}: its source files are not those that the job was planned with",
                hint="run the recipe again: it makes the job that belongs to the new code",
            )


@contextmanager
def _global_stream(seed: int) -> Iterator[None]:
    """Inside, torch's global CPU generator is a stream of its own; afterwards it is as it was."""
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        # Not torch.manual_seed: that one seeds the accelerators' generators too, which fork_rng
        # does not put back here.
        torch.default_generator.manual_seed(seed)
        yield

"""Building models: a job and a schema -> a backbone with its plug-in, each initialised from a
random stream of its own.
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
from prime_bench.catalog import BackboneEntry, PluginEntry, find_backbone, find_plugin
from prime_bench.data.schema import Schema
from prime_bench.plugins.attach import ArmModel
from prime_bench.plugins.interface import Attachment, Plugin
from prime_bench.recipe.job import ResolvedJob
from prime_bench.settings.interface import BackboneSettings, PluginSettings


@dataclass(frozen=True, kw_only=True)
class Assembled:
    """A model with its initial weights, on the CPU."""

    arm: ArmModel
    initial_weights: str
    """SHA-256 of the backbone's weights before the plug-in was attached: equal in all arms of a
    pair."""


def build_backbone(
    name: str, schema: Schema, hyperparameters: Mapping[str, object], *, seed: int
) -> Backbone:
    """Build a backbone of the catalogue on the CPU, initialised from the stream "backbone-init" of
    `seed`. torch's global generators stay as they are.

    Raises UsageError for an unknown name, an unknown key or a value that is not allowed.
    """
    entry = find_backbone(name)
    settings = entry.settings.parse(hyperparameters, where=f"backbone.{name}")
    return _new_backbone(entry, settings, schema, seed=seed)


def build_plugin(
    name: str,
    input_width: int,
    hyperparameters: Mapping[str, object],
    *,
    seed: int,
    router_width: int | None = None,
) -> Plugin | None:
    """Build a plug-in of the catalogue alone, for notebooks and tests; `build_arm` builds whole
    arms. It takes inputs of width d = `input_width` and is initialised from the stream
    "plugin-init" of `seed`. `dense` has no plug-in: None.

    `router_width` is the width of the router's input where that is another site's activation.
    Raises UsageError for an unknown name, an unknown key or a value that is not allowed, and for an
    arm that changes the backbone itself, which cannot be built without one.
    """
    entry = find_plugin(name)
    settings = entry.settings.parse(hyperparameters, where=f"arm.{name}")
    if not isinstance(settings, PluginSettings):
        raise UsageError(f"arm {name}: it changes the backbone, and cannot be built without one")
    return _new_plugin(entry, settings, input_width, seed=seed, router_width=router_width)


def build_arm(job: ResolvedJob, schema: Schema) -> Assembled:
    """Build the arm of a job, in train mode, on the CPU."""
    backbone = _new_backbone(job.backbone_entry, job.backbone, schema, seed=job.seed)
    initial_weights = weights_digest(backbone)
    if isinstance(job.arm, PluginSettings):
        arm = _with_plugin(job, job.arm, backbone, schema)
    else:
        build: Any = load_class(job.plugin_entry.target or "")
        attachment: Attachment = build(
            backbone,
            job.arm,
            backbone_settings=job.backbone,
            shape=schema.shape,
            generator=_plugin_stream(job.seed),
        )
        arm = ArmModel(backbone, attachment)
    return Assembled(arm=arm, initial_weights=initial_weights)


def _new_backbone(
    entry: BackboneEntry, settings: BackboneSettings, schema: Schema, *, seed: int
) -> Backbone:
    build: Any = load_class(entry.target)
    with _global_stream(derive(seed, "backbone-init")):
        backbone: Backbone = build(schema, settings)
    return backbone


def _new_plugin(
    entry: PluginEntry,
    settings: PluginSettings,
    input_width: int,
    *,
    seed: int,
    router_width: int | None,
) -> Plugin | None:
    if entry.target is None:
        return None
    widths = {} if router_width is None else {"router_width": router_width}
    build: Any = load_class(entry.target)
    plugin: Plugin = build(input_width, settings, generator=_plugin_stream(seed), **widths)
    plugin.use_seed(seed)
    return plugin


def _with_plugin(
    job: ResolvedJob, settings: PluginSettings, backbone: Backbone, schema: Schema
) -> ArmModel:
    site, router_site = settings.input_site, settings.router_site
    plugin = _new_plugin(
        job.plugin_entry,
        settings,
        job.backbone.site_width(site, schema.shape),
        seed=job.seed,
        router_width=None
        if router_site is None
        else job.backbone.site_width(router_site, schema.shape),
    )
    return ArmModel(backbone, plugin, input_site=site, router_site=router_site)


def _plugin_stream(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(derive(seed, "plugin-init"))


def weights_digest(module: torch.nn.Module) -> str:
    """SHA-256 over names, dtypes, shapes and bytes of the module's state dict, as 64 hex digits."""
    running = hashlib.sha256()
    for name, tensor in module.state_dict().items():
        running.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        running.update(tensor.detach().cpu().contiguous().numpy().data)
    return running.hexdigest()


@contextmanager
def _global_stream(seed: int) -> Iterator[None]:
    """Inside the context, torch's global CPU generator is the stream `seed`; afterwards it is
    restored.
    """
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        # torch.manual_seed would also seed the accelerators' generators, which fork_rng does not
        # restore here.
        torch.default_generator.manual_seed(seed)
        yield

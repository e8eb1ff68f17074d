"""The rules for arms and backbones; `contract.__main__` says which rule applies to which.

A rule is a function of a candidate. It returns if the candidate keeps the rule, and raises
RuleBroken, or whatever the model raises, if it does not.
"""

from copy import deepcopy
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from prime_bench.assemble import weights_digest
from prime_bench.backbones.interface import Backbone
from prime_bench.base.sources import load_class
from prime_bench.base.words import counted
from prime_bench.catalog import DENSE
from prime_bench.contract.candidate import (
    ROWS,
    SCHEMAS,
    SEED,
    STEPS,
    Candidate,
    batch,
    need,
    streams_untouched,
    train,
)
from prime_bench.contract.counter import count
from prime_bench.plugins.interface import Attachment, Plugin
from prime_bench.settings.interface import PluginSettings


def derived(candidate: Candidate) -> None:
    """The class derives from `Backbone`, `Plugin` or `Attachment`."""
    entry = candidate.backbone_entry if candidate.is_backbone else candidate.plugin_entry
    if entry.target is None:
        return
    base: type = Attachment
    if candidate.is_backbone:
        base = Backbone
    elif issubclass(candidate.plugin_entry.settings, PluginSettings):
        base = Plugin
    need(issubclass(load_class(entry.target), base), f"it is not derived from {base.__name__}")


def building(candidate: Candidate) -> None:
    """Building draws from the given generator alone and leaves the backbone unchanged."""
    with streams_untouched("building"):
        arm = candidate.build()
    again = candidate.build()
    need(weights_digest(arm) == weights_digest(again), "two builds of one seed differ")
    dense, kept = candidate.build(plugin=DENSE).backbone, arm.detach()
    same = weights_digest(dense) == weights_digest(kept)
    need(same, "attaching and detaching it does not give the backbone back as it was")


def probabilities(candidate: Candidate) -> None:
    """The model returns a float32 probability for each row, also for a single row."""
    for schema in SCHEMAS:
        arm = candidate.build(schema=schema).eval()
        for n_rows in (1, ROWS):
            with torch.no_grad():
                p = arm(*batch(schema, n_rows))
            need(
                p.shape == (n_rows,) and p.dtype == torch.float32,
                f"a batch of {counted(n_rows, 'row')} gives {p.dtype} {tuple(p.shape)}, not "
                f"torch.float32 ({n_rows},)",
            )
            need(bool(((p >= 0) & (p <= 1)).all()), "a probability is not in [0, 1]")


def logarithms(candidate: Candidate) -> None:
    """`log_probabilities` agrees with `forward`."""
    arm = candidate.build()
    train(arm)
    inputs = batch(SCHEMAS[0], ROWS)
    arm.eval()
    with torch.no_grad():
        p, (log_p, log_not_p) = arm(*inputs), arm.log_probabilities(*inputs)
    for name, logarithm, wanted in (("log p", log_p, p), ("log(1 - p)", log_not_p, 1 - p)):
        gap = float((logarithm.exp() - wanted).abs().max())
        need(gap < 1e-5, f"exp of {name} is off by {gap:.2g}")


def evaluation(candidate: Candidate) -> None:
    """Evaluation is deterministic, draws no random numbers and changes no weight or buffer."""
    arm = candidate.build().eval()
    inputs, before = batch(SCHEMAS[0], ROWS), weights_digest(arm)
    with torch.no_grad(), streams_untouched("evaluation"):
        first, second = arm(*inputs), arm(*inputs)
    need(torch.equal(first, second), "two evaluations of the same rows differ")
    need(weights_digest(arm) == before, "an evaluation changes a weight or a buffer")


def random_streams(candidate: Candidate) -> None:
    """A training step draws as much from the global generator as that of the dense arm."""
    states = []
    for plugin in (DENSE, candidate.plugin):
        arm = candidate.build(plugin=plugin)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(SEED)
            arm(*batch(SCHEMAS[0], ROWS)).sum().backward()
            states.append(torch.get_rng_state())
    need(
        torch.equal(states[0], states[1]),
        "a training step draws from torch's global generator, so the dropout masks of the next "
        "step are not those of the Dense arm; draw from a generator of your own",
    )


def start(candidate: Candidate) -> None:
    """The first predictions with default settings are bitwise those of the dense arm, if
    `starts_neutral`.
    """
    target = candidate.plugin_entry.target
    if target is not None and not getattr(load_class(target), "starts_neutral", True):
        return
    inputs = batch(SCHEMAS[0], ROWS)
    for mode in (False, True):
        found = []
        for plugin in (DENSE, candidate.plugin):
            arm = candidate.build(plugin=plugin).train(mode)
            with torch.no_grad(), torch.random.fork_rng(devices=[]):
                torch.manual_seed(SEED)
                found.append(arm(*inputs))
        gap = float((found[0] - found[1]).abs().max())
        need(
            torch.equal(found[0], found[1]),
            f"not neutral: the first predictions differ from the Dense arm's by up to {gap:.2g}; "
            "if this is intended, set starts_neutral = False in the class",
        )


def gradients(candidate: Candidate) -> None:
    """Every trainable parameter gets a gradient and changes in training."""
    arm = candidate.build()
    before = {name: p.detach().clone() for name, p in arm.named_parameters()}
    train(arm)
    for name, parameter in arm.named_parameters():
        if parameter.requires_grad:
            need(parameter.grad is not None, f"`{name}` gets no gradient")
            need(bool(parameter.isfinite().all()), f"`{name}` is not finite after {STEPS} steps")
            moved = not torch.equal(parameter, before[name])
            need(moved, f"`{name}` has not moved after {STEPS} steps")


def budget(candidate: Candidate) -> None:
    """The formulas of the settings give the parameters and MACs of the model."""
    backbone, plugin = candidate.backbone_settings, candidate.plugin_entry.settings()
    for schema in SCHEMAS:
        counted = count(candidate.build(schema=schema), partial(batch, schema))
        shape = schema.shape
        formulas = {
            "parameters": backbone.parameters(shape) + plugin.added_parameters(backbone, shape),
            "macs": backbone.macs(shape) + plugin.added_macs(backbone, shape),
        }
        for key, wanted in formulas.items():
            built = getattr(counted, key)
            need(
                built == wanted,
                f"with {shape.n_fields} fields the formula of {key} is off by {wanted - built:+,}: "
                f"{wanted:,} in all, the model has {built:,}",
            )


def state_dict(candidate: Candidate) -> None:
    """A model that loads the state dict of a trained model gives the same predictions."""
    arm = candidate.build()
    train(arm)
    other = candidate.build(seed=SEED + 1)
    if other.plugin is not None:
        # Random streams of an evaluation depend on the seed of the run.
        other.plugin.use_seed(SEED)
    other.load_state_dict(deepcopy(arm.state_dict()))
    inputs = batch(SCHEMAS[0], ROWS)
    with torch.no_grad():
        same = torch.equal(arm.eval()(*inputs), other.eval()(*inputs))
    need(same, "a model that loads the state dict of another gives other predictions")


class _Shape:
    """A forward hook that records the shape of its module's output."""

    def __init__(self, name: str, seen: dict[str, tuple[int, ...]]) -> None:
        self._name, self._seen = name, seen

    def __call__(self, module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:  # noqa: ARG002
        self._seen[self._name] = tuple(output.shape)


def sites(candidate: Candidate) -> None:
    """The sites and their widths are those of the settings, and `embedding` sees all fields."""
    settings = candidate.backbone_settings
    for schema in SCHEMAS:
        backbone = candidate.build(schema=schema).eval().backbone
        sites = getattr(backbone, "sites", None)
        need(isinstance(sites, nn.ModuleDict), "the model has no `sites`, an nn.ModuleDict")
        need("embedding" in backbone.sites, "there is no site `embedding`")
        need(set(backbone.sites) == set(settings.sites), "`sites` of settings and model differ")
        seen: dict[str, tuple[int, ...]] = {}
        for name, site in backbone.sites.items():
            site.register_forward_hook(_Shape(name, seen))
        with torch.no_grad():
            backbone(*batch(schema, ROWS))
        embedding = (ROWS, schema.shape.n_fields, settings.embedding_dim)
        need(
            seen.get("embedding") == embedding,
            f"the site `embedding` sees {seen.get('embedding')}, not (B, F, k) = {embedding}",
        )
        for name in settings.sites:
            shape, wanted = seen.get(name), settings.site_width(name, schema.shape)
            need(shape is not None, f"the site `{name}` is not passed")
            width = int(np.prod(shape[1:])) if shape else 0
            need(width == wanted, f"the site `{name}` has width {width}, the settings {wanted}")


def top_nn(candidate: Candidate) -> None:
    """`top_layers`, `top_parameters` and `embedding_parameters` agree with model and settings."""
    schema = SCHEMAS[0]
    backbone = candidate.build().backbone
    layers: list[Any] = [backbone.get_submodule(path) for path in backbone.top_layers]
    need(all(isinstance(layer, nn.Linear) for layer in layers), "a top layer is not an nn.Linear")
    found = [(layer.in_features, layer.out_features) for layer in layers]
    settings = candidate.backbone_settings.hidden_layers(schema.shape)
    wanted = [(layer.width_in, layer.width_out) for layer in settings]
    need(found == wanted, f"top_layers are {found}, hidden_layers of the settings {wanted}")
    names = dict(backbone.named_parameters())
    for name in backbone.top_parameters:
        need(name in names, f"top_parameters has `{name}`, the model has no such parameter")
    own = {id(parameter) for parameter in names.values()}
    tables = backbone.embedding_parameters()
    need(bool(tables) and all(id(p) in own for p in tables), "embedding_parameters are not its own")


def only_dropout(candidate: Candidate) -> None:
    """In a training step, only dropout draws from a global generator."""
    arm = candidate.build()
    for module in arm.modules():
        if isinstance(module, nn.modules.dropout._DropoutNd):
            module.p = 0.0
    with streams_untouched("a training step without dropout"):
        arm(*batch(SCHEMAS[0], ROWS)).sum().backward()


def prime_fits(candidate: Candidate) -> None:
    """PRIME can be attached, and the first predictions stay bitwise the same."""
    inputs, found = batch(SCHEMAS[0], ROWS), []
    for plugin in (DENSE, "prime"):
        with torch.no_grad():
            found.append(candidate.build(plugin=plugin).eval()(*inputs))
    need(torch.equal(found[0], found[1]), "with PRIME around it the first predictions differ")

"""The rules of backbones alone."""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from prime_bench.contract.subject import ROWS, SCHEMAS, Subject, batch, need, streams_untouched


class _Shape:
    """A forward hook that notes the shape of its module's output."""

    def __init__(self, name: str, seen: dict[str, tuple[int, ...]]) -> None:
        self._name, self._seen = name, seen

    def __call__(self, module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:  # noqa: ARG002
        self._seen[self._name] = tuple(output.shape)


def sites(subject: Subject) -> None:
    """Sites are those of the settings, of their widths, and `embedding` sees every field."""
    settings = subject.backbone_settings
    for schema in SCHEMAS:
        backbone = subject.build(schema=schema).eval().backbone
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


def top_nn(subject: Subject) -> None:
    """The Top-NN and the tables are what the settings and the L2 terms take them for."""
    schema = SCHEMAS[0]
    backbone = subject.build().backbone
    layers: list[Any] = [backbone.get_submodule(path) for path in backbone.top_layers]
    need(all(isinstance(layer, nn.Linear) for layer in layers), "a top layer is no nn.Linear")
    found = [(layer.in_features, layer.out_features) for layer in layers]
    settings = subject.backbone_settings.hidden_layers(schema.shape)
    wanted = [(layer.width_in, layer.width_out) for layer in settings]
    need(found == wanted, f"top_layers are {found}, hidden_layers of the settings {wanted}")
    names = dict(backbone.named_parameters())
    for name in backbone.top_parameters:
        need(name in names, f"top_parameters has `{name}`, the model has no such parameter")
    own = {id(parameter) for parameter in names.values()}
    tables = backbone.embedding_parameters()
    need(bool(tables) and all(id(p) in own for p in tables), "embedding_parameters are not its own")


def only_dropout(subject: Subject) -> None:
    """Nothing but dropout draws from a global generator in a training step."""
    arm = subject.build()
    for module in arm.modules():
        if isinstance(module, nn.modules.dropout._DropoutNd):
            module.p = 0.0
    with streams_untouched("a training step without dropout"):
        arm(*batch(SCHEMAS[0], ROWS)).sum().backward()


def prime_fits(subject: Subject) -> None:
    """PRIME attaches, and starts neutral."""
    inputs, found = batch(SCHEMAS[0], ROWS), []
    for plugin in ("dense", "prime"):
        with torch.no_grad():
            found.append(subject.build(plugin=plugin).eval()(*inputs))
    need(torch.equal(found[0], found[1]), "with PRIME around it the first predictions differ")

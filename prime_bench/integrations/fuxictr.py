"""For users of FuxiCTR 2.3.10: `attach_prime`, and import and export of checkpoints.

A FuxiCTR checkpoint is a model's `state_dict()`. It differs from the state dict of a backbone here
in three ways: it has a table for each categorical field and a Linear(1, k) for each numeric field,
where a backbone has one table and one matrix; it has a LayerNorm for each field, where MaskNet has
one module; and it has constant indices of pairs. All other tensors have the same shapes. They have
the same names too, except those of APG_DCNv2, which is DCNv2 with APG attached here.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from prime_bench.backbones.embedding import FieldEmbedding
from prime_bench.backbones.fibinet import Bilinear
from prime_bench.backbones.interface import Backbone
from prime_bench.backbones.masknet import FieldNorm
from prime_bench.base.errors import UsageError
from prime_bench.integrations.attach import NAME as PRIME
from prime_bench.integrations.attach import attach_prime as attach_prime
from prime_bench.plugins.apg import APGLinear


def _pair_index(n_fields: int) -> Tensor:
    """The fields i < j of all pairs, (2, P)."""
    return torch.triu_indices(n_fields, n_fields, offset=1)


def _pair_mask(n_fields: int) -> Tensor:
    """Whether (i, j) is a pair i < j, (F, F)."""
    return torch.ones(n_fields, n_fields, dtype=torch.bool).triu(diagonal=1)


_FROZEN: dict[str, tuple[str, Callable[[int], Tensor]]] = {
    "AFM": ("product_layer.triu_index", _pair_index),
    "FwFM": ("inner_product_layer.triu_mask", _pair_mask),
    "PNN": ("inner_product_layer.triu_mask", _pair_mask),
}
"""Backbone -> name of the index of pairs in its FuxiCTR checkpoint, and its value for F fields."""


@dataclass(frozen=True)
class _CheckpointTensor:
    """A tensor of a FuxiCTR checkpoint, and the tensor of the backbone with the same values."""

    name: str
    values: Tensor
    """A view of the parameter or buffer of the backbone, in FuxiCTR's shape."""
    constant: bool = False
    """Whether it follows from the number of fields, so that there is nothing to load."""


def load_checkpoint(backbone: Backbone, state_dict: Mapping[str, Tensor]) -> None:
    """Load the weights and buffers of a FuxiCTR checkpoint of the same model into `backbone`.

    `state_dict` is what `torch.load(path, weights_only=True)` returns. If the architecture or a
    vocabulary differs, raises UsageError that names the first tensor that does not fit, and changes
    nothing.
    """
    tensors = list(_tensors(backbone))
    for tensor in tensors:
        expected = tuple(tensor.values.shape)
        if tensor.name not in state_dict:
            raise _misfit(
                tensor.name, f"the model has {expected}, the checkpoint has no such tensor"
            )
        found = tuple(state_dict[tensor.name].shape)
        if found != expected:
            raise _misfit(tensor.name, f"the model has {expected}, the checkpoint {found}")
    names = {tensor.name for tensor in tensors}
    for name, found_tensor in state_dict.items():
        if name.startswith(f"{PRIME}."):
            raise UsageError(
                f"{name}: is a tensor of PRIME, which attach_prime has put into the checkpoint; a "
                "backbone has none",
                hint=f"without PRIME: {{k: v for k, v in state_dict.items() if not "
                f'k.startswith("{PRIME}.")}} has the weights of the backbone alone',
            )
        if name not in names:
            found = tuple(found_tensor.shape)
            raise _misfit(name, f"the checkpoint has {found}, the model has no such tensor")
    with torch.no_grad():
        for tensor in tensors:
            if not tensor.constant:
                tensor.values.copy_(state_dict[tensor.name])


def export_checkpoint(backbone: Backbone) -> dict[str, Tensor]:
    """Copies of all weights and buffers on the CPU, for FuxiCTR's `load_state_dict`."""
    return {
        tensor.name: tensor.values.detach().cpu().clone(memory_format=torch.contiguous_format)
        for tensor in _tensors(backbone)
    }


def _misfit(name: str, what: str) -> UsageError:
    return UsageError(
        f"{name}: {what}",
        hint="backbone, its settings, fields and vocabularies must be those of the checkpoint",
    )


def _tensors(backbone: Backbone) -> Iterator[_CheckpointTensor]:
    """Yield every tensor of the FuxiCTR checkpoint."""
    n_fields = next(
        len(module.schema.fields)
        for module in backbone.modules()
        if isinstance(module, FieldEmbedding)
    )
    apg = _apg_names(backbone)
    for path, module in backbone.named_modules():
        if isinstance(module, FieldEmbedding):
            yield from _tables(module, prefix=_tables_prefix(path, apg=bool(apg)))
        elif isinstance(module, Bilinear):
            yield _CheckpointTensor(f"{path}.triu_index", _pair_index(n_fields), constant=True)
    if type(backbone).__name__ in _FROZEN:
        name, frozen = _FROZEN[type(backbone).__name__]
        yield _CheckpointTensor(name, frozen(n_fields), constant=True)
    for name, values in backbone.state_dict(keep_vars=True).items():
        path, _, leaf = name.rpartition(".")
        owner = backbone.get_submodule(path)
        if isinstance(owner, FieldNorm):
            for number, row in enumerate(values.detach()):
                yield _CheckpointTensor(f"{path}.{number}.{leaf}", row)
        elif path.startswith("sites."):
            raise UsageError(f"FuxiCTR has no model with something at the {path.replace('.', ' ')}")
        elif not isinstance(owner, FieldEmbedding):
            old, new = next((pair for pair in apg if name.startswith(pair[0])), ("", ""))
            yield _CheckpointTensor(new + name.removeprefix(old), values.detach())


def _tables(embedding: FieldEmbedding, *, prefix: str) -> Iterator[_CheckpointTensor]:
    """A table (V, k) for each categorical field, a weight (k, 1) for each numeric field."""
    sizes = list(embedding.schema.shape.vocabulary_sizes)
    tables = iter(() if embedding.table is None else torch.split(embedding.table.detach(), sizes))
    weights = iter(() if embedding.numeric_weight is None else embedding.numeric_weight.detach())
    for field in embedding.schema.fields:
        rows = next(tables) if field.kind == "categorical" else next(weights).unsqueeze(1)
        yield _CheckpointTensor(f"{prefix}.{field.name}.weight", rows)


def _tables_prefix(path: str, *, apg: bool) -> str:
    """The prefix of the tables in FuxiCTR of the embedding at `path` here.

    FuxiCTR's FeatureEmbedding contains a FeatureEmbeddingDict; its APG models have only the latter.
    """
    layer = f"{path}_layer" if path.endswith("embedding") else path
    return f"{layer}.embedding_layers" if apg else f"{layer}.embedding_layer.embedding_layers"


def _apg_names(backbone: Backbone) -> list[tuple[str, str]]:
    """Pairs of prefixes, here and in FuxiCTR, for an MLP of APG layers; empty if there is none.

    FuxiCTR numbers the layers of an APG MLP by kind, from 1, and those of a plain MLP in sequence.
    """
    names: list[tuple[str, str]] = []
    for path, module in backbone.named_modules():
        if not isinstance(module, nn.Sequential) or not any(
            isinstance(layer, APGLinear) for layer in module
        ):
            continue
        number, owner = 0, path.rpartition(".")[0]
        for index, layer in enumerate(module):
            if isinstance(layer, APGLinear):
                number += 1
                new = f"{owner}.dense_layers.linear_{number}."
                names.append((f"{path}.{index}.hypernet.", f"{new}hypernet.mlp."))
                names.append((f"{path}.{index}.", new))
            elif isinstance(layer, nn.BatchNorm1d):
                names.append((f"{path}.{index}.", f"{owner}.dense_layers.bn_{number}."))
    return names

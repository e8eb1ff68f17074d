"""For users of FuxiCTR 2.3.10: `attach_prime`, and checkpoints in and out, the same numbers under
FuxiCTR's names and shapes.

FuxiCTR saves a model's `state_dict()`. It has a table for each categorical field and a Linear (1,
k) for each numeric one, where ours has one table and one matrix; a LayerNorm for each field, where
ours is one; and frozen indices of pairs, which ours does without. All other tensors have the same
shape in both, and the same name but for APG_DCNv2, which is our DCNv2 with APG attached.
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
from prime_bench.integrations.attach import attach_prime as attach_prime
from prime_bench.plugins.apg import APGLinear


def _pair_index(n_fields: int) -> Tensor:
    """The fields i < j of each pair, (2, P)."""
    return torch.triu_indices(n_fields, n_fields, offset=1)


def _pair_mask(n_fields: int) -> Tensor:
    """Which (i, j) are a pair i < j, (F, F)."""
    return torch.ones(n_fields, n_fields, dtype=torch.bool).triu(diagonal=1)


_FROZEN: dict[str, tuple[str, Callable[[int], Tensor]]] = {
    "AFM": ("product_layer.triu_index", _pair_index),
    "FwFM": ("inner_product_layer.triu_mask", _pair_mask),
    "PNN": ("inner_product_layer.triu_mask", _pair_mask),
}
"""Backbone -> the index of pairs in its FuxiCTR checkpoint, and its value for F fields."""


@dataclass(frozen=True)
class _Slot:
    """A tensor of a FuxiCTR checkpoint and where its numbers are in our backbone."""

    name: str
    values: Tensor
    """A view of our parameter or buffer, in FuxiCTR's shape."""
    constant: bool = False
    """Computed from the number of fields: nothing to load."""


def load_checkpoint(backbone: Backbone, state_dict: Mapping[str, Tensor]) -> None:
    """Give `backbone` the weights and buffers of a FuxiCTR checkpoint of the same model.

    `state_dict` is what `torch.load(path, weights_only=True)` returns. Raises UsageError, and
    changes nothing, where the architecture or a vocabulary differs: the message names the first
    tensor that does not fit.
    """
    slots = list(_slots(backbone))
    for slot in slots:
        expected = tuple(slot.values.shape)
        if slot.name not in state_dict:
            raise _misfit(slot.name, f"the model has {expected}, the checkpoint has no such tensor")
        found = tuple(state_dict[slot.name].shape)
        if found != expected:
            raise _misfit(slot.name, f"the model has {expected}, the checkpoint {found}")
    names = {slot.name for slot in slots}
    for name, tensor in state_dict.items():
        if name not in names:
            found = tuple(tensor.shape)
            raise _misfit(name, f"the checkpoint has {found}, the model has no such tensor")
    with torch.no_grad():
        for slot in slots:
            if not slot.constant:
                slot.values.copy_(state_dict[slot.name])


def export_checkpoint(backbone: Backbone) -> dict[str, Tensor]:
    """Copies of all weights and buffers, on the CPU, as FuxiCTR's `load_state_dict` takes them."""
    return {
        slot.name: slot.values.detach().cpu().clone(memory_format=torch.contiguous_format)
        for slot in _slots(backbone)
    }


def _misfit(name: str, what: str) -> UsageError:
    return UsageError(
        f"{name}: {what}",
        hint="backbone, its settings, fields and vocabularies must be those of the checkpoint",
    )


def _slots(backbone: Backbone) -> Iterator[_Slot]:
    """Every tensor of the FuxiCTR checkpoint."""
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
            yield _Slot(f"{path}.triu_index", _pair_index(n_fields), constant=True)
    if type(backbone).__name__ in _FROZEN:
        name, frozen = _FROZEN[type(backbone).__name__]
        yield _Slot(name, frozen(n_fields), constant=True)
    for name, values in backbone.state_dict(keep_vars=True).items():
        path, _, leaf = name.rpartition(".")
        owner = backbone.get_submodule(path)
        if isinstance(owner, FieldNorm):
            for number, row in enumerate(values.detach()):
                yield _Slot(f"{path}.{number}.{leaf}", row)
        elif path.startswith("sites."):
            raise UsageError(f"FuxiCTR has no model with something at the {path.replace('.', ' ')}")
        elif not isinstance(owner, FieldEmbedding):
            old, new = next((pair for pair in apg if name.startswith(pair[0])), ("", ""))
            yield _Slot(new + name.removeprefix(old), values.detach())


def _tables(embedding: FieldEmbedding, *, prefix: str) -> Iterator[_Slot]:
    """A table (n, k) for each categorical field, a Linear's weight (k, 1) for each numeric one."""
    sizes = list(embedding.schema.shape.vocabulary_sizes)
    tables = iter(() if embedding.table is None else torch.split(embedding.table.detach(), sizes))
    weights = iter(() if embedding.numeric_weight is None else embedding.numeric_weight.detach())
    for field in embedding.schema.fields:
        rows = next(tables) if field.kind == "categorical" else next(weights).unsqueeze(1)
        yield _Slot(f"{prefix}.{field.name}.weight", rows)


def _tables_prefix(path: str, *, apg: bool) -> str:
    """Where FuxiCTR has the tables of our embedding at `path`: its FeatureEmbedding wraps a
    FeatureEmbeddingDict; the APG models have the latter alone.
    """
    layer = f"{path}_layer" if path.endswith("embedding") else path
    return f"{layer}.embedding_layers" if apg else f"{layer}.embedding_layer.embedding_layers"


def _apg_names(backbone: Backbone) -> list[tuple[str, str]]:
    """Prefixes of our names and of FuxiCTR's for an MLP of APG layers; empty where there is none.

    FuxiCTR numbers an APG MLP's layers by kind, from 1; a plain MLP's in its sequence.
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

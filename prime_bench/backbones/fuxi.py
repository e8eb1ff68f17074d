"""Layers of FuxiCTR. This is the only module that imports fuxictr.

`import fuxictr.pytorch.layers` imports fuxictr's preprocessing, and with it ray and pandas (seconds
and hundreds of megabytes), for one function that reads embeddings from a file. During that import,
placeholders replace the two preprocessing modules. They are removed afterwards, so that a user's
own `import fuxictr.preprocess` gets the real modules.
"""

import contextlib
import importlib
import itertools
import sys
import types
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

from torch import nn

from prime_bench.backbones.dropout import DroppedReLU
from prime_bench.base.errors import EnvironmentFault

_PREPROCESS = "fuxictr.preprocess"
_TOKENIZER = "fuxictr.preprocess.tokenizer"


def _load_pretrain_emb(pretrain_path: str, keys: Sequence[str] = ("key", "value")) -> Any:
    """Stands for fuxictr's function of this name, which is imported when this one is called."""
    return importlib.import_module(_TOKENIZER).load_pretrain_emb(pretrain_path, list(keys))


@contextlib.contextmanager
def _without_preprocessing() -> Iterator[None]:
    """Replace the two preprocessing modules by placeholders, unless they are imported already."""
    if _PREPROCESS in sys.modules:
        yield
        return
    package, tokenizer = types.ModuleType(_PREPROCESS), types.ModuleType(_TOKENIZER)
    tokenizer.load_pretrain_emb = _load_pretrain_emb  # type: ignore[attr-defined]
    sys.modules.update({_PREPROCESS: package, _TOKENIZER: tokenizer})
    try:
        yield
    finally:
        del sys.modules[_PREPROCESS], sys.modules[_TOKENIZER]


def _import_layers() -> types.ModuleType:
    try:
        # Users cannot act on the warnings of fuxictr's own code (invalid escapes, deprecations).
        with _without_preprocessing(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return importlib.import_module("fuxictr.pytorch.layers")
    except ImportError as error:
        raise EnvironmentFault(
            f"FuxiCTR's layers cannot be imported: {error}",
            hint="pip install fuxictr==2.3.10",
        ) from error


_layers = _import_layers()


def mlp(
    width_in: int,
    widths: Sequence[int],
    *,
    width_out: int | None = None,
    dropout: float = 0.0,
    batch_norm: bool = False,
) -> nn.Module:
    """FuxiCTR's MLP, (B, width_in) -> (B, width_out), or (B, widths[-1]) without an output layer.

    Each hidden layer is Linear, BatchNorm1d if `batch_norm`, ReLU, and dropout if `dropout` > 0,
    where ReLU and dropout are one `DroppedReLU`. The output layer is a Linear. All of them are in
    the nn.Sequential `mlp` of the returned module.
    """
    block: nn.Module = _layers.MLP_Block(
        input_dim=width_in,
        hidden_units=list(widths),
        output_dim=width_out,
        dropout_rates=float(dropout),
        batch_norm=batch_norm,
    )
    layers = block.get_submodule("mlp")
    for (name, layer), (after, follower) in itertools.pairwise(list(layers.named_children())):
        if type(layer) is nn.ReLU and type(follower) is nn.Dropout:
            setattr(layers, name, DroppedReLU(follower.p))
            setattr(layers, after, nn.Identity())  # keeps the names of the layers after it
    return block


def cross_net_v2(width: int, n_layers: int) -> nn.Module:
    """FuxiCTR's CrossNetV2, (B, width) -> (B, width).

    Its L Linears are in the nn.ModuleList `cross_layers`.
    """
    net: nn.Module = _layers.CrossNetV2(width, n_layers)
    return net


def cross_net(width: int, n_layers: int) -> nn.Module:
    """FuxiCTR's CrossNet, (B, width) -> (B, width).

    The L layers in its nn.ModuleList `cross_net` have a Linear(width, 1) `weight` without bias and
    a vector `bias`, initially zero.
    """
    net: nn.Module = _layers.CrossNet(width, n_layers)
    return net


def squeeze_excitation(n_fields: int, reduction_ratio: float) -> nn.Module:
    """FuxiCTR's SENET, (B, F, k) -> (B, F, k).

    Each field is multiplied by its element of ReLU(W2 ReLU(W1 m)), where m (B, F) are the means of
    the embeddings and W1 is (max(1, int(F / reduction_ratio)), F). There are no biases.
    """
    net: nn.Module = _layers.SqueezeExcitation(n_fields, reduction_ratio=reduction_ratio)
    return net

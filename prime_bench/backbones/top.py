"""The Top-NN of a backbone whose settings are TopSettings: one MLP with its output layer."""

from torch import nn

from prime_bench.backbones import fuxi
from prime_bench.settings.top import TopSettings


def top_mlp(width: int, settings: TopSettings) -> nn.Module:
    """(B, width) -> (B, 1)."""
    return fuxi.mlp(
        width,
        settings.hidden_units,
        width_out=1,
        dropout=settings.net_dropout,
        batch_norm=settings.batch_norm,
    )

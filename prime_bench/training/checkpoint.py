"""Weights in a file: plain tensors in safetensors format, whole or absent."""

from collections.abc import Mapping
from pathlib import Path

import safetensors
import safetensors.torch
from torch import Tensor

from prime_bench.base.errors import DataError
from prime_bench.base.files import write_whole


def save_weights(path: Path, weights: Mapping[str, Tensor]) -> None:
    """Write weights and buffers by name. Raises EnvironmentFault where `path` cannot be written."""
    write_whole(path, safetensors.torch.save(dict(weights)))


def load_weights(path: Path) -> dict[str, Tensor]:
    """What `save_weights` wrote, on the CPU. Raises DataError for a missing or broken file."""
    try:
        return safetensors.torch.load_file(path)
    except (OSError, safetensors.SafetensorError) as error:
        raise DataError(f"{path}: cannot read the weights: {error}") from error

"""What a run leaves on the disk to be used again: weights, and the state that it goes on from."""

import hashlib
import io
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from prime_bench.base.errors import DataError
from prime_bench.base.files import write_whole
from prime_bench.training.provenance import unlike

# Raised whenever `Training.state_dict` has other keys.
_FORMAT = 1
_DIGEST_DIGITS = 64
_HEAD_BYTES = len(b"prime-bench state ") + _DIGEST_DIGITS + len(b"\n")


def save_weights(path: Path, weights: Mapping[str, Tensor]) -> None:
    """Write weights and buffers by name. Raises EnvironmentFault where `path` cannot be written."""
    write_whole(path, safetensors.torch.save(dict(weights)))


def load_weights(path: Path) -> dict[str, Tensor]:
    """What `save_weights` wrote, on the CPU. Raises DataError for a missing or broken file."""
    try:
        return safetensors.torch.load_file(path)
    except (OSError, safetensors.SafetensorError) as error:
        raise DataError(f"{path}: cannot read the weights: {error}") from error


class StateUnfit(Exception):
    """A saved state that no run may go on from; the text says why, in a line."""


def save_state(path: Path, state: Mapping[str, Any], *, conditions: Mapping[str, str]) -> None:
    """Write a run's state, whole, with the conditions under which it may go on.

    A line with a digest of the rest, then what `torch.save` writes. Raises EnvironmentFault where
    `path` cannot be written.
    """
    buffer = io.BytesIO()
    buffer.write(bytes(_HEAD_BYTES))
    whole = {"format": _FORMAT, "conditions": dict(conditions), "state": dict(state)}
    torch.save(whole, buffer)
    content = buffer.getbuffer()
    content[:_HEAD_BYTES] = _head(content[_HEAD_BYTES:])
    write_whole(path, content)


def load_state(path: Path, *, conditions: Mapping[str, str]) -> dict[str, Any] | None:
    """The state in `path`, on the CPU; None where there is no file.

    Raises StateUnfit for a broken file and for one that was written under other conditions.
    """
    try:
        content = memoryview(path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StateUnfit(f"{path.name} cannot be read: {error}") from error
    # torch's own format has no check sum, and a flipped bit would train on without a word.
    if content[:_HEAD_BYTES] != _head(content[_HEAD_BYTES:]):
        raise StateUnfit(f"{path.name} is not whole")
    try:
        whole = torch.load(io.BytesIO(content[_HEAD_BYTES:]), map_location="cpu", weights_only=True)
        found, kept = whole["format"], whole["conditions"]
    except (pickle.UnpicklingError, RuntimeError, KeyError, TypeError) as error:
        raise StateUnfit(f"{path.name} cannot be read: {error}".splitlines()[0]) from error
    if found != _FORMAT:
        raise StateUnfit(f"{path.name} has the format {found}, this version writes {_FORMAT}")
    if differences := unlike(kept, conditions):
        raise StateUnfit("; ".join(differences))
    state: dict[str, Any] = whole["state"]
    return state


def _head(rest: memoryview) -> bytes:
    return b"prime-bench state %s\n" % hashlib.sha256(rest).hexdigest().encode()

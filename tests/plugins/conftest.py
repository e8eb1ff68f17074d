"""Oracles' shared parts, written from the paper's equations in float64 NumPy."""

from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch

Loss = Callable[[dict[str, np.ndarray]], float]


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def layer_norm() -> Callable[[np.ndarray], np.ndarray]:
    def normalise(x: np.ndarray) -> np.ndarray:
        centred = x - x.mean(axis=1, keepdims=True)
        return centred / np.sqrt((centred**2).mean(axis=1, keepdims=True) + 1e-5)

    return normalise


@pytest.fixture
def finite_differences() -> Callable[[Loss, dict[str, np.ndarray]], dict[str, np.ndarray]]:
    """Central differences of a loss in every entry of every array."""

    def differentiate(loss: Loss, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        gradients = {}
        for name, array in arrays.items():
            gradient = np.zeros_like(array)
            for index in np.ndindex(array.shape):
                at = array[index]
                values = []
                for step in (1e-5, -1e-5):
                    array[index] = at + step
                    values.append(loss(arrays))
                array[index] = at
                gradient[index] = (values[0] - values[1]) / 2e-5
            gradients[name] = gradient
        return gradients

    return differentiate

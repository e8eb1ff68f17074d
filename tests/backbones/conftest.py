"""A schema with interleaved kinds, and random rows of it."""

from collections.abc import Callable

import pytest
import torch

from prime_bench.data.schema import Field, Schema


@pytest.fixture
def schema() -> Schema:
    return Schema(
        fields=[
            Field(name="c0", kind="categorical", vocabulary_size=7),
            Field(name="n0", kind="numeric"),
            Field(name="c1", kind="categorical", vocabulary_size=4),
            Field(name="c2", kind="categorical", vocabulary_size=9),
            Field(name="n1", kind="numeric"),
        ]
    )


@pytest.fixture
def rows(schema: Schema) -> Callable[[int], tuple[torch.Tensor, torch.Tensor]]:
    """n -> ids (n, C) int64 and numerics (n, K), the same for the same n."""

    def draw(n_rows: int) -> tuple[torch.Tensor, torch.Tensor]:
        generator = torch.Generator().manual_seed(n_rows)
        columns = [
            torch.randint(size, (n_rows,), generator=generator)
            for size in schema.shape.vocabulary_sizes
        ]
        return torch.stack(columns, 1), torch.randn(
            n_rows, schema.shape.n_numeric, generator=generator
        )

    return draw

"""Random rows in the shape of Avazu_x1, or of a smaller log, for the benchmarks of training: field
sizes as published, ids as unevenly distributed as a click log's, labels that a model can learn.
"""

import numpy as np

from prime_bench.data.schema import Field, Schema
from prime_bench.data.table import Split

# Distinct values of the training rows, field by field, with those of padding and "unknown".
_SMALL = (9, 9, 3480, 4271, 26, 4864, 305, 33, 6515, 6, 6, 1940, 10, 11, 349, 6, 61, 171, 52, 26)
_LARGE = (228_186, 1_048_285)  # device_id and device_ip: what is scaled for another number of ids
_LARGE_AT = 8
CLICK_RATE = 0.17
_OTHERS = {
    "frappe": (957, 4082, 7, 7, 2, 3, 2, 9, 80, 233),
    "movielens": (17_045, 23_743, 49_657),
}
"""Distinct values of each field of Frappe_x1 and of MovielensLatest_x1, as published."""


def schema(n_ids: int) -> Schema:
    """22 categorical fields with `n_ids` ids together."""
    share = (n_ids - sum(_SMALL)) / sum(_LARGE)
    first = round(_LARGE[0] * share)
    large = [first, n_ids - sum(_SMALL) - first]
    sizes = [*_SMALL[:_LARGE_AT], *large, *_SMALL[_LARGE_AT:]]
    return Schema(
        fields=[
            Field(name=f"feat_{number}", kind="categorical", vocabulary_size=size)
            for number, size in enumerate(sizes, start=1)
        ]
    )


def schema_of(name: str) -> Schema:
    """The schema of a number of ids, or of one of the words `frappe` (ten fields, 5,382 ids) and
    `movielens` (three fields, 90,445 ids).
    """
    if name not in _OTHERS:
        return schema(int(name))
    return Schema(
        fields=[
            Field(name=f"feat_{number}", kind="categorical", vocabulary_size=size)
            for number, size in enumerate(_OTHERS[name], start=1)
        ]
    )


def rows(of: Schema, n_rows: int, *, seed: int) -> Split:
    """Ids whose rank has a logarithm that is uniform (Zipf's law), clicks that depend on three
    fields.
    """
    random = np.random.default_rng(seed)
    sizes = of.shape.vocabulary_sizes
    ids = np.empty((n_rows, len(sizes)), dtype=np.int32)
    for column, size in enumerate(sizes):
        ids[:, column] = np.minimum((size - 1) ** random.random(n_rows), size - 1)
    score = sum(
        np.sin(ids[:, column] * (1 + column)) for column in {2, 5 % len(sizes), 13 % len(sizes)}
    )
    p = 1 / (1 + np.exp(-(score + np.log(CLICK_RATE / (1 - CLICK_RATE)))))
    return Split(
        ids=ids,
        numerics=np.empty((n_rows, 0), dtype=np.float32),
        labels=(random.random(n_rows) < p).astype(np.uint8),
    )

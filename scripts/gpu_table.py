"""A prepared table in the shape of Avazu_x1, generated in place: for a machine without the data."""

import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import avazu_shape
import numpy as np

from prime_bench.data.manifest import Manifest, SplitCounts
from prime_bench.data.schema import Schema

FINGERPRINT = "generated"
"""What stands for the digest of a table that nobody keeps."""
_BLOCK_ROWS = 1 << 20


def write_table(folder: Path, schema: Schema, *, rows: SplitCounts) -> None:
    """Write the table into the new folder `folder`, blocks of rows in parallel."""
    folder.mkdir(parents=True)
    positives, seed = {}, 0
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for name, n_rows in rows.plain().items():
            positives[name] = _write_split(folder, schema, name, n_rows, seed=seed, pool=pool)
            seed += n_rows
    (folder / "schema.json").write_text(json.dumps(schema.plain()), encoding="utf-8")
    Manifest(
        dataset="avazu-shaped",
        settings={},
        variant=FINGERPRINT,
        fingerprint=FINGERPRINT,
        verified=True,
        notes=["generated: figures say nothing about real click logs"],
        rows=rows,
        positives=SplitCounts(**positives),
        n_fields=len(schema.fields),
        vocabulary_total=sum(schema.shape.vocabulary_sizes),
        inputs=[],
        outputs={},
        versions={},
    ).write(folder)


def _write_split(
    folder: Path, schema: Schema, name: str, n_rows: int, *, seed: int, pool: ThreadPoolExecutor
) -> int:
    """The number of clicks; block i has the seed `seed` + i, which no other block has."""
    np.save(folder / f"{name}.numerics.npy", np.empty((n_rows, 0), np.float32))
    ids, labels = (
        np.lib.format.open_memmap(folder / f"{name}.{part}.npy", "w+", dtype=dtype, shape=shape)
        for part, dtype, shape in (
            ("ids", np.int32, (n_rows, len(schema.fields))),
            ("labels", np.uint8, (n_rows,)),
        )
    )

    def write(block: int) -> int:
        start = block * _BLOCK_ROWS
        stop = min(start + _BLOCK_ROWS, n_rows)
        made = avazu_shape.rows(schema, stop - start, seed=seed + block)
        ids[start:stop], labels[start:stop] = made.ids, made.labels
        return int(made.labels.sum())

    return sum(pool.map(write, range(-(-n_rows // _BLOCK_ROWS))))

"""Generated rows in the shape of Avazu_x1 and of Criteo_x4, drawn on the device, and a prepared
table of them: for a machine without the data.

Shapes: N rows of a split, C categorical and K numeric fields.
"""

import json
import math
from dataclasses import dataclass
from pathlib import Path

import avazu_shape
import numpy as np
import torch

from prime_bench.base.files import sha256_of, write_whole
from prime_bench.data.manifest import (
    SPLIT_NAMES,
    VOCABULARY_FOLDER,
    Manifest,
    SplitCounts,
    fingerprint_of,
)
from prime_bench.data.schema import Field, Schema
from prime_bench.data.table import Split, files_of

FINGERPRINT = "generated"
"""What stands for the digest of data that no file holds."""
SMALL_IDS = 40_000
"""Ids of all fields together with `--small`, and wherever a check also trains on the CPU."""
SMALL_ROWS = SplitCounts(train=3_011, valid=1_000, test=2_000)
_BLOCK_ROWS = 1 << 20
_ROWS = {  # as published (recipes/main13.toml)
    "avazu": SplitCounts(train=28_300_276, valid=4_042_897, test=8_085_794),
    "criteo": SplitCounts(train=36_672_493, valid=4_584_062, test=4_584_062),
}
_IDS = {
    "avazu": 1_544_294,  # what the paper's parameter counts imply (docs/fidelity.md, 5)
    # From AutoInt (Song et al. 2019), table 1: all rows and a minimum count of 10.
    # The paper of PRIME has no number.
    "criteo": 998_960,
}
# Distinct values of C1 to C26 in the whole log of Criteo. Fields with many values have fewer under
# a minimum count: they are scaled so that the sum is that of _IDS.
_CRITEO_VALUES = (
    *(1_460, 583, 10_131_227, 2_202_608, 305, 24, 12_517, 633, 3, 93_145, 5_683, 8_351_593, 3_194),
    *(27, 14_992, 5_461_306, 10, 5_652, 2_173, 4, 7_046_547, 18, 15, 286_181, 105, 142_572),
)
_CRITEO_MANY = 5_000
_TELLING = range(100, 5_000)
"""Numbers of ids of the fields on which a click depends: a model learns them in one epoch."""
_N_TELLING = 3


@dataclass(frozen=True, kw_only=True)
class Shape:
    """A data set's fields and numbers of rows."""

    dataset: str
    schema: Schema
    rows: SplitCounts


def shape_of(dataset: str, *, small: bool = False) -> Shape:
    """The shape of `avazu` or `criteo`; with few ids and rows if `small`."""
    n_ids = SMALL_IDS if small else _IDS[dataset]
    schema = avazu_shape.schema(n_ids) if dataset == "avazu" else _criteo(n_ids)
    return Shape(dataset=dataset, schema=schema, rows=SMALL_ROWS if small else _ROWS[dataset])


def _criteo(n_ids: int) -> Schema:
    """13 numeric and 26 categorical fields; the embedding rows of the former count as ids."""
    n_ids -= 13
    few = sum(size for size in _CRITEO_VALUES if size < _CRITEO_MANY)
    share = (n_ids - few) / (sum(_CRITEO_VALUES) - few)
    sizes = [size if size < _CRITEO_MANY else round(size * share) for size in _CRITEO_VALUES]
    sizes[sizes.index(max(sizes))] += n_ids - sum(sizes)
    numeric = [Field(name=f"I{number}", kind="numeric") for number in range(1, 14)]
    categorical = [
        Field(name=f"C{number}", kind="categorical", vocabulary_size=size)
        for number, size in enumerate(sizes, start=1)
    ]
    return Schema(fields=[*numeric, *categorical])


def draw(schema: Schema, n_rows: int, *, seed: int, device: torch.device) -> Split:
    """Draw N = `n_rows` rows and copy them to the host: ids whose rank has a logarithm that is
    uniform (Zipf's law), small numeric values, and clicks that depend on three fields.
    """
    random = torch.Generator(device).manual_seed(seed)
    sizes = torch.tensor(schema.shape.vocabulary_sizes, device=device)
    most = sizes - 1
    uniform = torch.rand(n_rows, len(sizes), generator=random, device=device)
    ids = torch.minimum((uniform * most.log()).exp().int(), most).int()  # (N, C), 0 is PAD
    telling = [place for place, size in enumerate(sizes.tolist()) if size in _TELLING]
    score = sum((ids[:, place] * (1 + place)).sin() for place in telling[:_N_TELLING])
    offset = math.log(avazu_shape.CLICK_RATE / (1 - avazu_shape.CLICK_RATE))
    clicked = torch.rand(n_rows, generator=random, device=device) < torch.sigmoid(score + offset)
    numerics = torch.randn(n_rows, schema.shape.n_numeric, generator=random, device=device)
    return Split(
        ids=ids.cpu().numpy(),
        numerics=numerics.exp().floor().cpu().numpy(),
        labels=clicked.to(torch.uint8).cpu().numpy(),
    )


def write_table(folder: Path, shape: Shape, *, device: torch.device) -> None:
    """Write a prepared table of the shape into the new folder `folder`."""
    folder.mkdir(parents=True)
    positives, seed = {}, 0
    for name in SPLIT_NAMES:
        n_rows: int = getattr(shape.rows, name)
        positives[name] = _write_split(folder, shape.schema, name, n_rows, seed=seed, device=device)
        seed += n_rows
    (folder / "schema.json").write_text(json.dumps(shape.schema.plain()), encoding="utf-8")
    for field in shape.schema.categorical:
        write_whole(folder / VOCABULARY_FOLDER / f"{field.name}.txt", "")
    names = sorted(files_of(shape.schema, grouped=False))
    outputs = {name: sha256_of(folder / name) for name in names}
    Manifest(
        dataset=f"{shape.dataset}-shaped",
        settings={},
        variant=FINGERPRINT,
        fingerprint=fingerprint_of(outputs),
        verified=True,
        notes=["generated: figures say nothing about real click logs"],
        rows=shape.rows,
        positives=SplitCounts(**positives),
        n_fields=len(shape.schema.fields),
        vocabulary_total=sum(shape.schema.shape.vocabulary_sizes),
        inputs=[],
        outputs=outputs,
        versions={},
    ).write(folder)


def _write_split(
    folder: Path, schema: Schema, name: str, n_rows: int, *, seed: int, device: torch.device
) -> int:
    """The number of clicks; block i has the seed `seed` + i, which no other block has."""
    widths = {"ids": len(schema.categorical), "numerics": len(schema.numeric)}
    kinds = {"ids": np.int32, "numerics": np.float32, "labels": np.uint8}
    files = {part: folder / f"{name}.{part}.npy" for part in kinds}
    shapes = {part: (n_rows, widths[part]) if part in widths else (n_rows,) for part in kinds}
    arrays = {}
    for part, kind in kinds.items():
        if 0 in shapes[part]:  # cannot be mapped
            np.save(files[part], np.empty(shapes[part], kind))
        else:
            arrays[part] = np.lib.format.open_memmap(
                files[part], "w+", dtype=kind, shape=shapes[part]
            )
    clicks = 0
    for block, start in enumerate(range(0, n_rows, _BLOCK_ROWS)):
        stop = min(start + _BLOCK_ROWS, n_rows)
        drawn = draw(schema, stop - start, seed=seed + block, device=device)
        for part, array in arrays.items():
            array[start:stop] = getattr(drawn, part)
        clicks += int(drawn.labels.sum())
    return clicks

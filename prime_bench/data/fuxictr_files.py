"""Export a prepared table as the files that FuxiCTR 2.3.10 reads, with the same ids.

`feature_map.json` is loaded by FuxiCTR's `FeatureMap`, `feature_vocab.json` has the values of the
ids, and `<split>.parquet` is opened by its `ParquetDataLoader`. The name of the folder is FuxiCTR's
`dataset_id`, its parent `data_root`.
"""

import functools
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from prime_bench.base.errors import UsageError
from prime_bench.base.files import write_whole
from prime_bench.data.manifest import SPLIT_NAMES
from prime_bench.data.publish import replacing, sole_writer
from prime_bench.data.schema import Field, Schema
from prime_bench.data.stages import no_log
from prime_bench.data.table import PreparedTable, Split

_GROUP_ROWS = 1 << 18
LABEL = "label"


def export_table(
    table: PreparedTable, folder: Path, *, log: Callable[[str], None] = no_log
) -> None:
    """Write all files into the new or empty `folder`, or none after an error, in bounded memory.

    Raises UsageError if the folder is not empty or a field is named as the label, DataError if the
    table is incomplete, EnvironmentFault if the files cannot be written.
    """
    if folder.is_file() or (folder.is_dir() and any(folder.iterdir())):
        raise UsageError(f"{folder}: is in use", hint="name a new or an empty folder")
    schema = table.schema
    if any(field.name == LABEL for field in schema.fields):
        raise UsageError(f"{table.path}: a field is named `{LABEL}`, as the label is in FuxiCTR")
    folder = folder.absolute()
    with sole_writer(folder, log=log), replacing(folder) as hidden:
        for name in SPLIT_NAMES:
            _write_split(table.split(name), schema, hidden / f"{name}.parquet")
        vocabulary = {field.name: _vocabulary(table, field) for field in schema.categorical}
        write_whole(hidden / "feature_vocab.json", json.dumps(vocabulary, indent=1))
        write_whole(
            hidden / "feature_map.json",
            json.dumps(feature_map(schema, dataset_id=folder.name), indent=4),
        )


def feature_map(schema: Schema, *, dataset_id: str) -> dict[str, Any]:
    """The content of `feature_map.json`, as JSON values."""
    shape = schema.shape
    return {
        "dataset_id": dataset_id,
        "num_fields": shape.n_fields,
        "total_features": shape.embedding_rows,
        "input_length": shape.n_fields,
        "labels": [LABEL],
        "features": [
            {
                field.name: {"source": "", "type": "numeric"}
                if field.kind == "numeric"
                else {
                    "source": "",
                    "type": "categorical",
                    "padding_idx": 0,
                    "vocab_size": field.vocabulary_size,
                }
            }
            for field in schema.fields
        ],
    }


def _vocabulary(table: PreparedTable, field: Field) -> dict[str, int]:
    """Value -> id, where the first and the last id have FuxiCTR's names."""
    _, *values, _ = table.values(field)
    ids = {value: i for i, value in enumerate(values, start=1)}
    # A value with one of these two names is overwritten, as in FuxiCTR.
    return {"__PAD__": 0} | ids | {"__PAD__": 0, "__OOV__": len(values) + 1}


def _write_split(split: Split, schema: Schema, path: Path) -> None:
    """Write a parquet file in row groups, with the column types that FuxiCTR itself writes."""
    types: dict[str, pl.DataType] = {LABEL: pl.Float64()}
    for field in schema.fields:
        types[field.name] = pl.Float64() if field.kind == "numeric" else pl.Int64()
    names = {"ids": schema.categorical, "numerics": schema.numeric}

    def rows(start: int) -> pl.DataFrame:
        columns = {LABEL: split.labels[start : start + _GROUP_ROWS]}
        for kind, fields in names.items():
            part = np.asarray(getattr(split, kind)[start : start + _GROUP_ROWS])
            columns |= {field.name: column for field, column in zip(fields, part.T, strict=True)}
        return pl.DataFrame(
            [pl.Series(name, columns[name]).cast(dtype) for name, dtype in types.items()]
        )

    groups = [
        pl.defer(functools.partial(rows, start), schema=types)
        for start in range(0, len(split), _GROUP_ROWS)
    ]
    with path.open("wb") as file:
        pl.concat(groups).sink_parquet(file, row_group_size=_GROUP_ROWS, maintain_order=True)
        file.flush()
        os.fsync(file.fileno())

"""Our reader and encoder of click logs against polars alone, on the same generated files.

    python benchmarks/encoder_against_polars.py --work DIR --shape avazu --rows 40000000
    python benchmarks/encoder_against_polars.py --work DIR --shape criteo --rows 10000000 --repeat 3

Makes train.csv, valid.csv and test.csv of that shape below DIR (or takes those that are there),
and turns them into arrays of ids and vocabulary files in these ways, each in a process of its own:

    ours        `prepare` as it is
    codes       polars reads the files into Categoricals, our encoder counts and writes: what is
                left of ours if reader and hash table are replaced
    lazy        polars alone: a streaming group_by of every column, then a second scan that casts
                each column to an Enum of the vocabulary, in batches
    memory      polars alone, read once and whole into memory: Categoricals, their counts, gathers
    replace     as `lazy`, with `replace_strict` in place of the Enum; by request only

Prints for each way the median of its runs' seconds (imports do not count), rows a second, the CPU
seconds of the process, its peak memory (`ru_maxrss`) and the peak of its anonymous memory alone,
the median ratios to ours within a round, of time and of CPU seconds (which other programs on the
machine disturb less), and whether ids, labels and vocabularies are the same. Each run is told on
stderr as it ends. `ours` takes MD5 and SHA-256 of the input and SHA-256 of the output on the way,
`codes` SHA-256 of the output, the others none.

A second table has what polars' reader and ours make of lines that are not as they must be.
"""

import argparse
import contextlib
import io
import json
import os
import platform
import resource
import shutil
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import prepare as files
from numpy.lib import format as npy
from tabulate import tabulate

from prime_bench.base.errors import DataError
from prime_bench.data.card import DatasetCard, load_card
from prime_bench.data.encode.encoder import encode
from prime_bench.data.manifest import SPLIT_NAMES, resolve
from prime_bench.data.prepare import prepare
from prime_bench.data.raw.text import read_lines
from prime_bench.data.stages import Chunk

BATCH_ROWS = 100_000
SAMPLED_EVERY_S = 0.05
DEFAULT_WAYS = ("ours", "codes", "lazy", "memory")


def main() -> None:
    """Make files, measure every way, print both tables."""
    parser = argparse.ArgumentParser(description="Our reader and encoder against polars.")
    parser.add_argument("--work", type=Path, help="folder for files and tables")
    parser.add_argument("--shape", choices=list(files.SETTINGS), default="avazu")
    parser.add_argument("--rows", type=int, default=1_000_000, help="of all splits together")
    parser.add_argument("--repeat", type=int, default=1, help="runs of each way, interleaved")
    parser.add_argument("--ways", default=",".join(DEFAULT_WAYS), help="with commas")
    parser.add_argument("--keep", action="store_true", help="keep the csv files")
    parser.add_argument("--one", help=argparse.SUPPRESS)  # a way, in a child
    options = parser.parse_args()
    if options.one:
        print(json.dumps(one(options.one, options.shape, options.work)))
        return
    if options.work:
        compare(options)
    print(tabulate(awkward(), headers="keys"))


def compare(options: argparse.Namespace) -> None:
    """Print the table of times."""
    folder = options.work / f"{options.shape}-{options.rows}"
    if not (folder / "raw" / "train.csv").exists():
        files.make_files(options.shape, str(options.rows), folder / "raw", copies=1)
    ways = options.ways.split(",")
    runs: dict[str, list[dict[str, float]]] = {way: [] for way in ways}
    same = dict.fromkeys(ways, True)
    for _ in range(options.repeat):
        for way in ways:
            script = [__file__, "--one", way, "--shape", options.shape, "--work", str(folder)]
            shutil.rmtree(folder / way, ignore_errors=True)
            child = subprocess.run([sys.executable, *script], capture_output=True, text=True)
            if child.returncode:
                raise SystemExit(f"{way}: exit code {child.returncode}\n{child.stderr}")
            runs[way].append(json.loads(child.stdout.splitlines()[-1]))
            print(way, json.dumps(runs[way][-1]), file=sys.stderr, flush=True)
            if way != ways[0]:
                same[way] &= equal(folder / ways[0], folder / way)
        for way in ways:
            shutil.rmtree(folder / way)
    raw_gb = sum(path.stat().st_size for path in (folder / "raw").iterdir()) / 1e9
    if not options.keep:
        shutil.rmtree(folder)
    print(
        f"{options.shape}, {options.rows:,} rows, {raw_gb:.2f} GB, {os.cpu_count()} cores,"
        f" Python {platform.python_version()}, polars {pl.__version__},"
        f" median of {options.repeat} runs"
    )
    table = []
    for way, done in runs.items():
        ratios = [one["s"] / ours["s"] for one, ours in zip(done, runs[ways[0]], strict=True)]
        cpu_ratios = [
            one["cpu_s"] / ours["cpu_s"] for one, ours in zip(done, runs[ways[0]], strict=True)
        ]
        seconds = statistics.median(one["s"] for one in done)
        table.append(
            {
                "way": way,
                "s": seconds,
                "rows/s": round(options.rows / seconds),
                "CPU s": statistics.median(one["cpu_s"] for one in done),
                f"CPU over {ways[0]}": statistics.median(cpu_ratios),
                "peak GB": max(one["peak_gb"] for one in done),
                "anonymous GB": max(one["anonymous_gb"] for one in done),
                f"time over {ways[0]}": statistics.median(ratios),
                "ids": "same" if same[way] else "DIFFERENT",
            }
        )
    print(tabulate(table, headers="keys", floatfmt=",.2f", intfmt=","))


def one(way: str, shape: str, folder: Path) -> dict[str, float]:
    """Run one way in this process; what it took."""
    do = {"ours": ours, "codes": codes, "lazy": lazy, "memory": memory, "replace": replace}[way]
    with anonymous_peak() as anonymous:
        start = time.perf_counter()
        do(shape, folder / "raw", folder / way)
        seconds = time.perf_counter() - start
    used = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "s": seconds,
        "cpu_s": used.ru_utime + used.ru_stime,
        "peak_gb": used.ru_maxrss * 1024 / 1e9,
        "anonymous_gb": max(anonymous) / 1e9,
    }


@contextlib.contextmanager
def anonymous_peak() -> Iterator[list[int]]:
    """A list that grows by this process's anonymous memory, in bytes, while the block runs."""
    sizes, ended = [0], threading.Event()

    def look() -> None:
        while not ended.wait(SAMPLED_EVERY_S):
            lines = Path("/proc/self/status").read_text().splitlines()
            sizes.extend(1024 * int(ln.split()[1]) for ln in lines if ln.startswith("RssAnon"))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield sizes
    finally:
        ended.set()
        thread.join()


def equal(first: Path, second: Path) -> bool:
    """Whether two ways wrote the same ids, labels, numbers and vocabularies."""
    # Only ours has a folder named by the settings in between.
    first, second = (next(path.rglob("train.ids.npy")).parent for path in (first, second))
    for split in SPLIT_NAMES:
        for kind in ("ids", "labels"):
            name = f"{split}.{kind}.npy"
            found = [np.load(path / name, mmap_mode="r") for path in (first, second)]
            if not np.array_equal(*found):
                print(f"{name} differs")
                return False
    for path in sorted(first.glob("vocabulary/*.txt")):
        other = second / path.relative_to(first)
        if path.read_bytes() != other.read_bytes():
            print(f"{path.name} differs")
            return False
    return True


def ours(shape: str, source: Path, target: Path) -> None:
    """The product's own way."""
    prepare(
        resolve(shape, files.SETTINGS[shape]),
        data_dir=target,
        source=source,
        allow_unverified=True,
    )


def codes(shape: str, source: Path, target: Path) -> None:
    """Polars reads and codes, our encoder does the rest."""
    card, settings = load_card(shape), resolve(shape, files.SETTINGS[shape]).settings
    types = category_types(card)
    label = label_of(card)
    texts = [field.name for field in card.fields if field.role != "numeric"]
    numbers = [field.name for field in card.fields if field.role == "numeric"]

    def chunks() -> Iterator[Chunk]:
        for index, split in enumerate(SPLIT_NAMES):
            scan = pl.scan_csv(
                source / f"{split}.csv", schema=types, quote_char=None, empty_string_is_null=False
            )
            for batch in scan.collect_batches(chunk_size=BATCH_ROWS, engine="streaming"):
                yield Chunk(
                    categories=batch.select(pl.col(texts).fill_null("")),
                    numerics=numerics(batch, numbers),
                    labels=batch[label].to_numpy(),
                    split=np.full(batch.height, index, dtype=np.uint8),
                )

    target.mkdir()
    encode(chunks(), fields=card.fields, settings=settings, folder=target)


def category_types(card: DatasetCard) -> dict[str, pl.DataType]:
    """A type for each column; every categorical field has codes of its own."""
    types: dict[str, pl.DataType] = {}
    for column in card.columns:
        if column.role == "label":
            types[column.name] = pl.UInt8()
        elif column.role == "numeric":
            types[column.name] = pl.Float64()
        else:
            types[column.name] = pl.Categorical(pl.Categories.random())
    return types


def label_of(card: DatasetCard) -> str:
    """Name of the label's column."""
    return next(column.name for column in card.columns if column.role == "label")


def numerics(batch: pl.DataFrame, names: list[str]) -> np.ndarray:
    """(n, K) float64, NaN where missing."""
    if not names:
        return np.empty((batch.height, 0))
    return batch.select(names).to_numpy(order="fortran").astype(np.float64, copy=False)


Ids = Callable[[pl.Expr, list[Any]], pl.Expr]
"""An expression of values, and those that own an id, in order of their ids -> the ids."""


def lazy(shape: str, source: Path, target: Path) -> None:
    """Polars alone, ids by an Enum."""

    def ids(values: pl.Expr, vocabulary: list[Any]) -> pl.Expr:
        kind = pl.Enum([str(value) for value in vocabulary])
        codes = values.cast(pl.String).cast(kind, strict=False).to_physical().cast(pl.Int32) + 1
        return codes.fill_null(len(vocabulary) + 1)

    polars_alone(shape, source, target, ids)


def replace(shape: str, source: Path, target: Path) -> None:
    """Polars alone, ids by `replace_strict`."""

    def ids(values: pl.Expr, vocabulary: list[Any]) -> pl.Expr:
        numbers = np.arange(1, len(vocabulary) + 1, dtype=np.int32)
        if not vocabulary:
            return pl.lit(1, dtype=pl.Int32)
        return values.replace_strict(
            vocabulary, numbers, default=len(vocabulary) + 1, return_dtype=pl.Int32
        )

    polars_alone(shape, source, target, ids)


def memory(shape: str, source: Path, target: Path) -> None:
    """Polars and NumPy alone, all rows in memory."""
    card, settings = load_card(shape), resolve(shape, files.SETTINGS[shape]).settings
    types, label = category_types(card), label_of(card)
    frames = [
        pl.read_csv(source / f"{split}.csv", schema=types, quote_char=None) for split in SPLIT_NAMES
    ]
    scope = frames[:1] if settings.vocabulary == "train" else frames
    ids = [np.empty((frame.height, len(card.fields)), dtype=np.int32) for frame in frames]
    (target / "vocabulary").mkdir(parents=True)
    for position, field in enumerate(card.fields):
        value = pl.col(field.name)
        if field.role == "numeric":
            value = bucket(field.name).cast(pl.String).cast(pl.Categorical(pl.Categories.random()))
        columns = [frame.select(value).to_series() for frame in frames]
        counts = (
            pl.concat(columns[: len(scope)])
            .alias("value")
            .drop_nulls()
            .value_counts(name="count")
            .filter(pl.col("count") >= settings.min_count)
            .with_columns(pl.col("value").to_physical().alias("code"), pl.col("value").cast(str))
        )
        if field.role == "numeric":
            number = pl.col("value").cast(pl.Int64)
            counts = counts.filter(number != 0).sort(number)
        else:
            counts = counts.sort("count", "value", descending=[True, False])
        counts.select("value").write_csv(
            target / "vocabulary" / f"{field.name}.txt", include_header=False, quote_style="never"
        )
        codes = [column.to_physical() for column in columns]
        n_codes = 1 + max(int(column.max() or 0) for column in codes)
        # The last place is for missing values.
        id_of = np.full(n_codes + 1, counts.height + 1, dtype=np.int32)
        id_of[counts["code"].to_numpy()] = np.arange(1, counts.height + 1)
        for array, column in zip(ids, codes, strict=True):
            array[:, position] = id_of[column.fill_null(n_codes).to_numpy()]
    for split, frame, array in zip(SPLIT_NAMES, frames, ids, strict=True):
        np.save(target / f"{split}.ids.npy", array)
        np.save(target / f"{split}.labels.npy", frame[label].to_numpy())


def polars_alone(shape: str, source: Path, target: Path, ids: Ids) -> None:
    """Two scans: counts, from which the vocabularies follow; then ids, a batch at a time."""
    card, settings = load_card(shape), resolve(shape, files.SETTINGS[shape]).settings
    scans = [scan_as_text(card, source / f"{split}.csv") for split in SPLIT_NAMES]
    scope = scans[0] if settings.vocabulary == "train" else pl.concat(scans)
    values = {
        field.name: bucket(field.name) if field.role == "numeric" else pl.col(field.name)
        for field in card.fields
    }
    counted = [
        scope.select(value.alias("value"))
        .group_by("value")
        .len("count")
        .filter((pl.col("count") >= settings.min_count) & pl.col("value").is_not_null())
        for value in values.values()
    ]
    counted = [
        frame.filter(pl.col("value") != 0).sort("value")
        if field.role == "numeric"
        else frame.filter(pl.col("value") != "").sort("count", "value", descending=[True, False])
        for field, frame in zip(card.fields, counted, strict=True)
    ]
    lengths = [scan.select(pl.len()) for scan in scans]
    *found, train, valid, test = pl.collect_all([*counted, *lengths], engine="streaming")
    vocabularies = {name: frame["value"] for name, frame in zip(values, found, strict=True)}
    (target / "vocabulary").mkdir(parents=True)
    for name, vocabulary in vocabularies.items():
        vocabulary.to_frame().write_csv(
            target / "vocabulary" / f"{name}.txt", include_header=False, quote_style="never"
        )
    label = label_of(card)
    columns = [
        ids(values[name], vocabulary.to_list()).alias(name)
        for name, vocabulary in vocabularies.items()
    ]
    for split, scan, length in zip(SPLIT_NAMES, scans, (train, valid, test), strict=True):
        batches = scan.select(*columns, pl.col(label).cast(pl.UInt8)).collect_batches(
            chunk_size=BATCH_ROWS, engine="streaming"
        )
        write_arrays(batches, target, split, rows=length.item(), label=label)


def scan_as_text(card: DatasetCard, path: Path) -> pl.LazyFrame:
    """A file whose categorical values stay the text that they are."""
    types = {
        column.name: pl.Float64() if column.role == "numeric" else pl.String()
        for column in card.columns
    }
    return pl.scan_csv(path, schema=types, quote_char=None, empty_string_is_null=False)


def bucket(name: str) -> pl.Expr:
    """The rule `log_bucket` of a numeric column."""
    value = pl.col(name)
    return pl.when(value > 2).then((value.log() ** 2).floor()).otherwise(value).cast(pl.Int64)


def write_arrays(
    batches: Iterator[pl.DataFrame], target: Path, split: str, *, rows: int, label: str
) -> None:
    """The ids and labels of a split, each as one .npy."""
    with contextlib.ExitStack() as stack:
        ids = stack.enter_context((target / f"{split}.ids.npy").open("wb"))
        labels = stack.enter_context((target / f"{split}.labels.npy").open("wb"))
        header = {"fortran_order": False}
        for number, batch in enumerate(batches):
            values = batch.drop(label)
            if number == 0:
                for file, kind, shape in (
                    (ids, "<i4", (rows, values.width)),
                    (labels, "|u1", (rows,)),
                ):
                    npy.write_array_header_1_0(file, header | {"descr": kind, "shape": shape})
            ids.write(values.to_numpy(order="c").data)
            labels.write(batch[label].to_numpy().data)


@dataclass(frozen=True, kw_only=True)
class Awkward:
    """A file that a log's tools could write."""

    what: str
    content: bytes


AWKWARD = (
    Awkward(what="leading zeros, exponent", content=b"y,a,b\n1,0012,1e5\n0,12,100000\n"),
    Awkward(what="a field too few", content=b"y,a,b\n1,x,y\n0,x\n1,x,y\n"),
    Awkward(what="a field too many", content=b"y,a,b\n1,x,y\n0,x,y,z\n"),
    Awkward(what="another header", content=b"y,b,a\n1,x,y\n"),
    Awkward(what="no line feed at the end", content=b"y,a,b\n1,x,y\n0,x,z"),
    Awkward(what="an empty line inside", content=b"y,a,b\n1,x,y\n\n0,x,z\n"),
    Awkward(what="carriage returns", content=b"y,a,b\r\n1,x,y\r\n0,x,z\r\n"),
    Awkward(what="a quotation mark", content=b'y,a,b\n1,"x,y\n0,x,z\n'),
    Awkward(what="a NUL byte", content=b"y,a,b\n1,x\0,y\n"),
    Awkward(what="bytes that are no UTF-8", content=b"y,a,b\n1,\xff,y\n"),
)


def awkward() -> list[dict[str, str]]:
    """What the two readers make of each: rows, or the message of the error."""
    found = []
    for case in AWKWARD:
        row = {"file": case.what}
        for name, read in (
            ("ours", our_rows),
            ("polars, types guessed", guessed_rows),
            ("polars, all text, no quotes", text_rows),
        ):
            try:
                said = str(read(case.content))
            except (DataError, pl.exceptions.PolarsError) as error:
                said = f"error: {str(error).strip().splitlines()[0]}"
            row[name] = said[:100]
        found.append(row)
    return found


def our_rows(content: bytes) -> list[tuple[str, ...]]:
    """The rows as our reader has them."""
    return [
        tuple(lines.field(row, column) for column in range(3))
        for lines in read_lines(io.BytesIO(content).read, where="file", header=["y", "a", "b"])
        for row in range(len(lines.ends))
    ]


def guessed_rows(content: bytes) -> list[tuple[Any, ...]]:
    """The rows as polars has them by default."""
    return pl.read_csv(io.BytesIO(content)).rows()


def text_rows(content: bytes) -> list[tuple[Any, ...]]:
    """The rows as polars has them with the options that a click log needs."""
    schema = dict.fromkeys(("y", "a", "b"), pl.String())
    return pl.read_csv(
        io.BytesIO(content), schema=schema, quote_char=None, empty_string_is_null=False
    ).rows()


if __name__ == "__main__":
    main()

"""`prepare` against FuxiCTR 2.3.10's `build_dataset` on the same files: time, memory, equal ids.

    python benchmarks/prepare.py --work /tmp/bench --rows 2800000
    python benchmarks/prepare.py --work /tmp/bench --rows published --shapes avazu --without-fuxictr

Makes synthetic files of Avazu_x1's shape (22 columns of integers, minimum count 1) and of
Criteo_x4's (13 numbers in buckets, 26 hex columns, minimum count 10), ids from training rows, below
WORK; `published` gives each split the rows of the published file. FuxiCTR needs an environment of
its own, with polars below 2: `--fuxictr-python` names its interpreter, else it is made in WORK.
Both sides read csv and write ids; ours takes MD5 and SHA-256 of what it reads, and the SHA-256 of
what it writes, as well. Runs alternate; seconds are the median of a side's runs, from after the
imports to the end of the work; CPU seconds are of all processes of a run, imports included; memory
is the largest sum of their proportional set sizes.
"""

import argparse
import contextlib
import itertools
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import time
import venv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from tabulate import tabulate

from prime_bench.data.card import load_card
from prime_bench.data.synthetic.raw_files import write_raw
from prime_bench.data.table import PreparedTable
from prime_bench.settings.data import SyntheticSettings

FUXICTR = ["fuxictr==2.3.10", "polars<2", "pydantic", "torch"]
SETTINGS: dict[str, dict[str, Any]] = {
    "avazu": {"vocabulary": "train", "min_count": 1},
    "criteo": {"vocabulary": "train", "min_count": 10, "numeric": "log_bucket"},
}
SAMPLED_EVERY_S = 0.2
# Run as a child, so that nothing of the parent counts; the last line is what is measured.
OURS = """
import json, sys, time
from pathlib import Path
from prime_bench.data.prepare import prepare
from prime_bench.data.manifest import resolve
spec = json.loads(sys.argv[1])
start = time.perf_counter()
prepare(
    resolve(spec["shape"], spec["settings"]),
    data_dir=Path(spec["target"]),
    source=Path(spec["source"]),
    allow_unverified=True,
)
print(time.perf_counter() - start)
"""


def main() -> None:
    """Print a row of the table for each shape and number of rows."""
    parser = argparse.ArgumentParser(description="prepare against FuxiCTR's build_dataset.")
    parser.add_argument("--work", type=Path, required=True, help="folder for everything")
    parser.add_argument(
        "--rows", default="1300000,2800000", help="of all splits, with commas, or `published`"
    )
    parser.add_argument("--shapes", default="avazu,criteo", help="with commas")
    parser.add_argument("--copies", type=int, default=1, help="of all rows: no more values")
    parser.add_argument("--repeat", type=int, default=1, help="runs of each side")
    parser.add_argument("--fuxictr-python", type=Path, help="of an environment with FuxiCTR")
    parser.add_argument("--without-fuxictr", action="store_true", help="ours alone")
    parser.add_argument(
        "--only", choices=["make", "measure"], help="make files and keep them, or use those kept"
    )
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    python = None if options.without_fuxictr else options.fuxictr_python or make(options.work)
    rows = []
    for shape in options.shapes.split(","):
        for n_rows in options.rows.split(","):
            folder = options.work / f"{shape}-{n_rows}"
            if options.only != "measure":
                shutil.rmtree(folder, ignore_errors=True)
                make_files(shape, n_rows, folder / "raw", copies=options.copies)
            if options.only != "make":
                rows.append(compare(shape, folder, python, repeat=options.repeat))
                shutil.rmtree(folder)
    if options.only == "make":
        return
    print(f"{os.cpu_count()} cores, Python {platform.python_version()}, polars {pl.__version__}")
    print(tabulate(rows, headers="keys", floatfmt=",.2f", intfmt=","))


def make(work: Path) -> Path:
    """The interpreter of a new environment with FuxiCTR."""
    python = work / "fuxictr" / "bin" / "python"
    if not python.exists():
        venv.create(work / "fuxictr", with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *FUXICTR], check=True)
    return python


def make_files(shape: str, rows: str, folder: Path, *, copies: int) -> None:
    """train.csv, valid.csv and test.csv in a new folder."""
    files = load_card(shape).files
    n_rows = sum(file.rows for file in files.values()) if rows == "published" else int(rows)
    settings = SyntheticSettings.model_validate({"shape": shape, "rows": n_rows})
    write_raw(settings, folder, raw_format=shape)
    if rows == "published":
        recut(folder, {split: file.rows for split, file in files.items()})
    multiply(folder, copies)


def recut(folder: Path, rows: dict[str, int]) -> None:
    """Distribute the rows of all three files again, `rows[split]` to each split, in order."""
    with contextlib.ExitStack() as stack:
        read = [stack.enter_context((folder / f"{split}.csv").open("rb")) for split in rows]
        header, *_ = [file.readline() for file in read]
        lines = itertools.chain.from_iterable(read)
        for split, n_rows in rows.items():
            with (folder / f"{split}.new").open("wb") as file:
                file.write(header)
                file.writelines(itertools.islice(lines, n_rows))
    for split in rows:
        (folder / f"{split}.new").replace(folder / f"{split}.csv")


def multiply(folder: Path, copies: int) -> None:
    """Put the rows of each csv so many times behind its header."""
    for path in folder.iterdir():
        size = path.stat().st_size
        with path.open("rb") as read, path.open("ab") as write:
            header_bytes = len(read.readline())
            for _ in range(copies - 1):
                read.seek(header_bytes)
                while left := size - read.tell():
                    write.write(read.read(min(left, 1 << 24)))


def compare(shape: str, folder: Path, python: Path | None, *, repeat: int) -> dict[str, Any]:
    """Both sides on the files in `folder`/raw."""
    raw_bytes = sum(path.stat().st_size for path in (folder / "raw").iterdir())
    runs: dict[str, list[Run]] = {"ours": [], "fuxictr": []}
    settings = SETTINGS[shape]
    spec = {"shape": shape, "source": str(folder / "raw"), "settings": settings}
    for _ in range(repeat):
        for side in ("ours", "fuxictr") if python else ("ours",):
            target = folder / side
            shutil.rmtree(target, ignore_errors=True)
            spec |= {"target": str(target), "min_count": settings["min_count"]}
            script = ["-c", OURS]
            if side == "fuxictr":
                script = [str(Path(__file__).with_name("fuxictr_build.py"))]
            own = sys.executable if side == "ours" else str(python)
            log = folder / f"{side}.log"
            runs[side].append(measured([own, *script, json.dumps(spec)], log))
    seconds, cpu_seconds, peak_gb = (
        {
            side: over([getattr(run, name) for run in done]) * unit
            for side, done in runs.items()
            if done
        }
        for name, over, unit in (
            ("seconds", statistics.median, 1.0),
            ("cpu_seconds", statistics.median, 1.0),
            ("peak_bytes", max, 1e-9),
        )
    )
    (table,) = (folder / "ours").iterdir()
    n_rows = PreparedTable.open(table).manifest.rows.total
    found = {
        "shape": shape,
        "rows": n_rows,
        "GB": raw_bytes / 1e9,
        "ours s": seconds["ours"],
        "CPU s": cpu_seconds["ours"],
        "rows/s": round(n_rows / seconds["ours"]),
        "peak GB": peak_gb["ours"],
    }
    if python:
        found |= {
            "FuxiCTR s": seconds["fuxictr"],
            "its CPU s": cpu_seconds["fuxictr"],
            "its peak GB": peak_gb["fuxictr"],
            "ratio": seconds["fuxictr"] / seconds["ours"],
            "ids": "equal" if equal(folder) else "DIFFERENT",
        }
    return found


@dataclass(frozen=True, kw_only=True)
class Run:
    """What one run took, with all processes that it started."""

    seconds: float
    cpu_seconds: float
    peak_bytes: int


def measured(command: list[str], log: Path) -> Run:
    """Run a child, which prints its seconds, and watch it and all that it starts."""
    peak, cpu_seconds = 0, dict[int, float]()
    with (
        log.open("w") as output,
        subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT) as child,
    ):
        while child.poll() is None:
            pids = list(family(child.pid))
            peak = max(peak, sum(set_size_bytes(pid) for pid in pids))
            cpu_seconds |= {pid: used for pid in pids if (used := used_s(pid)) is not None}
            time.sleep(SAMPLED_EVERY_S)
    last = log.read_text().strip().split("\n")[-1]
    if child.returncode:
        raise SystemExit(f"{log}: {last}")
    return Run(seconds=float(last), cpu_seconds=sum(cpu_seconds.values()), peak_bytes=peak)


def family(pid: int) -> Iterator[int]:
    """A process and all that descend from it."""
    yield pid
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = task.read_text().split()
        except OSError:  # it has ended
            continue
        for child in children:
            yield from family(int(child))


def set_size_bytes(pid: int) -> int:
    """Proportional set size; 0 when the process has ended."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))


def used_s(pid: int) -> float | None:
    """CPU seconds so far; None when the process has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def equal(folder: Path) -> bool:
    """Whether labels and ids of all rows are the same on both sides."""
    (path,) = (folder / "ours").iterdir()
    table = PreparedTable.open(path)
    for split in ("train", "valid", "test"):
        theirs, ours = folder / "fuxictr" / f"{split}.parquet", table.split(split)
        (label,) = set(pl.read_parquet_schema(theirs)) - {f.name for f in table.schema.fields}
        columns = {label: ours.labels}
        columns |= {f.name: ours.ids[:, i] for i, f in enumerate(table.schema.categorical)}
        for name, column in columns.items():
            found = pl.read_parquet(theirs, columns=[name])[name].to_numpy()
            if not np.array_equal(found, column):
                print(f"{split}: {name} differs in {np.mean(found != column):.2%} of the rows")
                return False
    return True


if __name__ == "__main__":
    main()

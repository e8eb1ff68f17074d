"""CPU time of `prepare` on files with the line ends of Windows (CRLF), against the same with LF.

    python benchmarks/line_ends.py --work /tmp/bench [--rows 2000000] [--repeat 3]

Generated files of Avazu_x1's shape, on a card with the digests of those with LF: what published
files with CRLF are whose digests were taken in text mode. Each run is a process of its own, in
turns; its user time is that of all its threads, without imports, and both must make the same
table. A busy machine changes user times too, so the ratio is that of the runs of one turn.
"""

import argparse
import hashlib
import resource
import shutil
import statistics
from multiprocessing import get_context
from pathlib import Path

from tabulate import tabulate

from prime_bench.data.card import CardFile
from prime_bench.data.manifest import TableSpec, resolve
from prime_bench.data.prepare import prepare
from prime_bench.data.synthetic.raw_files import write_raw
from prime_bench.settings.data import SyntheticSettings


def card_of(folder: Path) -> TableSpec:
    """Avazu_x1's, with the digests and counts of the files of `folder`."""
    spec, files = resolve("avazu", {}), {}
    for split in ("train", "valid", "test"):
        content = (folder / f"{split}.csv").read_bytes()
        labels = [line[:1] for line in content.split(b"\n")[1:-1]]
        files[split] = CardFile(
            md5=hashlib.md5(content).hexdigest(), rows=len(labels), positives=labels.count(b"1")
        )
    columns = [column.model_copy(update={"train_values": None}) for column in spec.card.columns]
    card = spec.card.model_copy(update={"files": files, "columns": columns})
    return TableSpec(card=card, settings=spec.settings)


def user_s(spec: TableSpec, source: Path, data: Path) -> tuple[float, str]:
    """User seconds of `prepare` in this process, and the table's fingerprint."""
    before_s = resource.getrusage(resource.RUSAGE_SELF).ru_utime
    made = prepare(spec, data_dir=data, source=source)
    shutil.rmtree(data)
    return resource.getrusage(resource.RUSAGE_SELF).ru_utime - before_s, made.fingerprint


def main() -> None:
    """Print a row for each turn, and the median of their ratios."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--work", type=Path, required=True, help="folder for the files")
    parser.add_argument("--rows", type=int, default=2_000_000, help="of all splits")
    parser.add_argument("--repeat", type=int, default=3, help="turns")
    options = parser.parse_args()
    lf, crlf = options.work / "lf", options.work / "crlf"
    for folder in (lf, crlf):
        shutil.rmtree(folder, ignore_errors=True)
    settings = SyntheticSettings.model_validate({"shape": "avazu", "rows": options.rows})
    write_raw(settings, lf, raw_format="avazu")
    crlf.mkdir()
    for path in lf.iterdir():
        (crlf / path.name).write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    spec, rows, prints = card_of(lf), [], set()
    for turn in range(options.repeat):
        found = {}
        for folder in (lf, crlf) if turn % 2 == 0 else (crlf, lf):
            with get_context("spawn").Pool(1) as pool:
                data = options.work / "data"
                found[folder.name], made = pool.apply(user_s, (spec, folder, data))
                prints.add(made)
        rows.append({**found, "crlf / lf": found["crlf"] / found["lf"]})
    print(tabulate(rows, headers="keys", tablefmt="github", floatfmt=".3f"))
    print(f"{options.rows:,} rows; median {statistics.median(r['crlf / lf'] for r in rows):.3f}")
    if len(prints) > 1:
        raise SystemExit("the tables differ")


if __name__ == "__main__":
    main()

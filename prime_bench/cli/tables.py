"""Prepared tables as a command names them."""

from pathlib import Path


def folders(table: str, *, data_dir: Path) -> list[Path]:
    """The folder `table`, or those of the data set `table` below `data_dir`, sorted.

    Raises DataError where there is none.
    """
    from prime_bench.base.errors import DataError, did_you_mean
    from prime_bench.data.card import card_names
    from prime_bench.data.manifest import MANIFEST_NAME, Manifest

    if Path(table).is_dir():
        return [Path(table)]
    found = [
        path.parent
        for path in sorted(data_dir.glob(f"*/{MANIFEST_NAME}"))
        if Manifest.read(path.parent).dataset == table
    ]
    if not found:
        known = card_names()
        raise DataError(
            f"{table}: neither a folder nor a data set with a prepared table in {data_dir}"
            + ("" if table in known else did_you_mean(table, known)),
            hint=f"prime-bench prepare {table}"
            if table in known
            else f"datasets: {', '.join(known)}",
        )
    return found


def table_of(fingerprint: str, *, data_dir: Path) -> Path:
    """The folder below `data_dir` of the table with that fingerprint.

    Raises DataError where there is none.
    """
    from prime_bench.base.errors import DataError
    from prime_bench.data.manifest import MANIFEST_NAME, Manifest

    for path in sorted(data_dir.glob(f"*/{MANIFEST_NAME}")):
        if Manifest.read(path.parent).fingerprint == fingerprint:
            return path.parent
    raise DataError(
        f"no table in {data_dir} has the fingerprint {fingerprint}",
        hint="prepare the job's data again, with `prime-bench prepare`, or name another --data-dir",
    )

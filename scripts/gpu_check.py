"""Everything that needs a GPU, in one go: agreement with the CPU, equal bits, speed, memory.

    scripts/gpu_check.sh [--device cpu --small] [--only CHECK ...] [--output DIR]

The results so far are in gpu_check.json and gpu_check.md after each part of a check, most telling
checks first; what no longer fits into `--minutes` is left out and named there. `--small` does the
same with few rows, to try the script where there is no GPU. Exit code 1 if a check found a fault, 4
if the script cannot start here.
"""

import argparse
import os
import platform
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import gpu_packages

if TYPE_CHECKING:
    import torch

_EXIT_LACKING = 4
_ENDING_S = 3.0
"""For what comes after the last part: the process has ended before the minutes are over."""


def main() -> int:
    """Do the checks; 1 if one found a fault."""
    started = time.perf_counter()
    given = _arguments()
    if given.pack:
        gpu_packages.pack()
        print(f"{gpu_packages.PACKED}: {len(list(gpu_packages.PACKED.iterdir()))} wheels")
        return 0
    with tempfile.TemporaryDirectory(dir=given.work, prefix="gpu-check-") as folder:
        signal.signal(signal.SIGTERM, lambda number, _: _end(number, Path(folder)))
        try:
            gpu_packages.provide(Path(folder) / "packages")
        except gpu_packages.Lacking as error:
            print(f"gpu_check: {error}", file=sys.stderr)
            return _EXIT_LACKING
        from prime_bench.base.errors import UserError

        try:
            return _check(given, Path(folder), started=started)
        except UserError as error:
            print(f"gpu_check: {error.message}\nhint: {error.hint}", file=sys.stderr)
            return error.exit_code


def _check(given: argparse.Namespace, folder: Path, *, started: float) -> int:
    # Only here, since these modules import the packages that `provide` has made importable.
    from gpu_checks import CHECKS
    from gpu_results import Results
    from gpu_session import Bench, run_checks

    from prime_bench.catalog import BACKBONES
    from prime_bench.training.device import fix_arithmetic, resolve_device

    names = [check.name for check in CHECKS]
    _know(given.only, names, "check")
    _know(given.backbones, BACKBONES, "backbone")
    device = resolve_device(given.device)
    threads = given.threads or os.cpu_count() or 1
    fix_arithmetic(threads=threads)
    bench = Bench(
        device=device,
        small=given.small,
        threads=threads,
        backbones=given.backbones or list(BACKBONES),
        folder=folder,
        deadline=started + 60 * given.minutes - _ENDING_S,
    )
    about = _about(given, device, threads)
    results = Results(given.output, about=about, plan=bench.plan(), started=started)
    wanted = set(given.only or names)
    for check in reversed(CHECKS):  # what a check needs stands before it
        if check.name in wanted:
            wanted |= set(check.needs)
    try:
        run_checks([check for check in CHECKS if check.name in wanted], bench, results)
    finally:
        bench.end_check()
    results.about["finished"] = True
    results.write()
    print(f"\n{results.markdown()}", flush=True)
    return int(results.wrong)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    out = os.environ.get("OUT")
    parser.add_argument(
        "--pack", action="store_true", help="download the packages that checks need, and stop"
    )
    parser.add_argument("--device", default="cuda", help="cuda, cuda:INDEX or cpu")
    parser.add_argument("--small", action="store_true", help="few rows, to try the script")
    parser.add_argument("--only", nargs="+", metavar="CHECK", help="checks; all by default")
    parser.add_argument("--backbones", nargs="+", metavar="BACKBONE", help="all by default")
    parser.add_argument("--minutes", type=float, default=9.0, help="for everything; 9 by default")
    parser.add_argument("--threads", type=int, help="CPU threads; all cores by default")
    parser.add_argument("--work", type=Path, help="folder for 4 GB of generated rows; the system's")
    parser.add_argument(
        "--output", type=Path, default=out and Path(out), help="folder for the results; $OUT"
    )
    return parser.parse_args()


def _know(given: Iterable[str] | None, known: Iterable[str], what: str) -> None:
    from prime_bench.base.errors import UsageError

    if unknown := sorted({*(given or ())} - {*known}):
        raise UsageError(f"no {what} {', '.join(unknown)}", hint=f"choose from {', '.join(known)}")


def _about(given: argparse.Namespace, device: "torch.device", threads: int) -> dict[str, object]:
    """On what machine, with what, how long."""
    import torch

    from prime_bench.training.device import device_name
    from prime_bench.training.environment import checkout

    commit, dirty = checkout(gpu_packages.ROOT / "prime_bench")
    return {
        "device": device_name(device),
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "commit": f"{commit[:12]}{', changed' if dirty else ''}" if commit else "unknown",
        "torch": torch.__version__,
        "cuda": torch.version.cuda or "none",
        "python": platform.python_version(),
        "threads": threads,
        "small": given.small,
        "minutes": given.minutes,
    }


def _end(number: int, folder: Path) -> NoReturn:
    """Delete the temporary files and end. An exception might be lost on its way: the signal may
    come in a destructor, or in a call from torch.
    """
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(128 + number)


if __name__ == "__main__":
    sys.exit(main())

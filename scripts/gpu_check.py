"""Everything that needs a GPU, in one go: agreement with the CPU, equal repetitions, speed, memory.

    scripts/gpu_check.sh [--device cpu --small] [--only CHECK ...] [--output DIR]

The shell script brings what a machine lacks that has torch and little else. On an H100 it is meant
to take under 8 minutes; what has no time left is skipped and says so. `--small` does the same with
few rows, to try the script where there is no GPU. Exit code 1 where a check failed.
"""

import argparse
import json
import os
import platform
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

import torch
from gpu_checks import CHECKS, NEEDS, Bench
from tabulate import tabulate

from prime_bench.catalog import BACKBONES
from prime_bench.recipe.file import load_recipe
from prime_bench.training.checkpoint import one_line
from prime_bench.training.device import device_name, fix_arithmetic, resolve_device


def main() -> int:
    """Do the checks; 1 if one found a fault."""
    given = _arguments()
    started = time.perf_counter()
    device = resolve_device(given.device)
    fix_arithmetic(threads=given.threads or os.cpu_count() or 1)
    results: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory(dir=given.work, prefix="gpu-check-") as folder:
        bench = Bench(
            device=device,
            small=given.small,
            backbones=given.backbones,
            folder=Path(folder),
            deadline=started + 60 * given.minutes,
            recipe=load_recipe("cost"),
        )
        wanted = {*given.only, *(need for name in given.only for need in NEEDS.get(name, ()))}
        for name in CHECKS:
            if name in wanted:
                results[name] = _done(bench, name, results)
                print(f"{name}: {results[name]['verdict']}", flush=True)
    content = {
        "schema": 1,
        "device": device_name(device),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "threads": torch.get_num_threads(),
        "small": given.small,
        "wall_s": time.perf_counter() - started,
        "checks": results,
    }
    if given.output is not None:
        given.output.mkdir(parents=True, exist_ok=True)
        (given.output / "gpu_check.json").write_text(json.dumps(content, indent=2) + "\n")
    _print(content)
    return any(result["verdict"] == "WRONG" for result in results.values())


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cuda", help="cuda, cuda:INDEX or cpu")
    parser.add_argument(
        "--small", action="store_true", help="few rows and steps, to try the script"
    )
    parser.add_argument("--only", nargs="+", choices=CHECKS, default=list(CHECKS), metavar="CHECK")
    parser.add_argument(
        "--backbones", nargs="+", choices=BACKBONES, default=list(BACKBONES), metavar="BACKBONE"
    )
    parser.add_argument("--minutes", type=float, default=7.0, help="after which no check starts")
    parser.add_argument("--threads", type=int, help="CPU threads; all cores by default")
    parser.add_argument("--work", type=Path, help="folder for 4 GB of generated rows; the system's")
    out = os.environ.get("OUT")
    parser.add_argument(
        "--output", type=Path, default=out and Path(out), help="folder for gpu_check.json; $OUT"
    )
    return parser.parse_args()


def _done(bench: Bench, name: str, results: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """What became of a check: verdict, why, seconds, figures."""
    lacking = [need for need in NEEDS.get(name, ()) if results[need]["verdict"] != "ok"]
    start = time.perf_counter()
    if lacking or bench.left_s < 0:
        why = f"without {', '.join(lacking)}" if lacking else "no time left"
        return {"verdict": "skipped", "why": why, "seconds": 0.0, "figures": {}}
    try:
        verdict, why, figures = "ok", "", CHECKS[name](bench)
    except Exception as error:  # noqa: BLE001  # whatever it is, the other checks are worth doing
        traceback.print_exc()
        verdict, why, figures = "WRONG", one_line(error), {}
    seconds = time.perf_counter() - start
    return {"verdict": verdict, "why": why, "seconds": seconds, "figures": figures}


def _print(content: dict[str, Any]) -> None:
    """The verdicts, and those figures that no table above has."""
    rows = [
        [name, result["verdict"], f"{result['seconds']:.1f}", result["why"] or _figures(result)]
        for name, result in content["checks"].items()
    ]
    print()
    print(tabulate(rows, headers=["check", "verdict", "s", "found"], disable_numparse=True))
    where = f"{content['device']}, torch {content['torch']}, Python {content['python']}"
    print(f"\n{where}: {content['wall_s']:.0f} s{', small' if content['small'] else ''}")


def _figures(result: dict[str, Any]) -> str:
    """In a few words; costs have a table of their own."""
    lines = []
    for key, value in result["figures"].items():
        if isinstance(value, dict):
            lines.append(f"{key}: {_figures({'figures': value})}")
        elif key != "costs" and value not in ([], None):
            lines.append(f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}")
    return ", ".join(lines)


if __name__ == "__main__":
    sys.exit(main())

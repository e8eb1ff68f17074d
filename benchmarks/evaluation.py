"""AUC and LogLoss of many rows against scikit-learn: time and difference.

    python benchmarks/evaluation.py --rows 4000000 --repeat 5

Scores are float32 probabilities as a model gives them, once all distinct but for chance, once
rounded to three digits, so that ties abound. Both sides see the same arrays and take turns; seconds
are medians over the turns. scikit-learn gets the scores as float64, the conversion not timed: in
float32 its LogLoss takes the logarithm in float32. With `--device cuda` ours counts on the GPU.
"""

import argparse
import functools
import os
import platform
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import sklearn
import torch
from sklearn.metrics import log_loss, roc_auc_score
from tabulate import tabulate

from prime_bench.training.device import device_name
from prime_bench.training.metrics import auc, logloss

CLICK_LOGIT = -1.6
"""About Avazu's click rate, 17 %."""


def main() -> None:
    """Print a row for each metric and kind of scores."""
    parser = argparse.ArgumentParser(description="AUC and LogLoss against scikit-learn.")
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--device", default="cpu", help="where ours has its scores")
    given = parser.parse_args()
    device = torch.device(given.device)
    labels, scores = rows_of(given.rows)
    rows = []
    for kind, values in (("distinct", scores), ("three digits", np.round(scores, 3))):
        wide = values.astype(np.float64)
        ours = torch.from_numpy(values).to(device)
        for name, own, theirs in (("AUC", auc, roc_auc_score), ("LogLoss", logloss, log_loss)):
            rows.append(
                {"metric": name, "scores": kind}
                | compare(
                    functools.partial(own, labels, ours),
                    functools.partial(theirs, labels, wide),
                    repeat=given.repeat,
                )
            )
    print(
        f"{given.rows:,} rows, {device_name(device)}, {os.cpu_count()} cores, "
        f"Python {platform.python_version()}, numpy {np.__version__}, torch {torch.__version__}, "
        f"scikit-learn {sklearn.__version__}"
    )
    print(tabulate(rows, headers="keys", floatfmt=("", "", ".4f", ".4f", ".1f", ".1e")))


def rows_of(n_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Labels (N,) uint8 and probabilities (N,) float32 that know something of them."""
    random = np.random.default_rng(0)
    logits = random.normal(CLICK_LOGIT, 1.0, n_rows)
    labels = (random.random(n_rows) < 1 / (1 + np.exp(-logits))).astype(np.uint8)
    seen = logits + random.normal(0.0, 1.0, n_rows)
    return labels, (1 / (1 + np.exp(-seen))).astype(np.float32)


def compare(
    ours: Callable[[], float], theirs: Callable[[], float], *, repeat: int
) -> dict[str, Any]:
    """Medians of both sides, which take turns after one turn that does not count."""
    seconds: dict[str, list[float]] = {"ours": [], "theirs": []}
    found: dict[str, float] = {}
    for turn in range(repeat + 1):
        for name, metric in (("ours", ours), ("theirs", theirs)):
            start = time.perf_counter()
            found[name] = float(metric())
            if turn:
                seconds[name].append(time.perf_counter() - start)
    own, other = (statistics.median(seconds[name]) for name in ("ours", "theirs"))
    return {
        "ours s": own,
        "scikit-learn s": other,
        "ratio": other / own,
        "difference": abs(found["ours"] - found["theirs"]),
    }


if __name__ == "__main__":
    main()

"""What of a lower LogLoss under `anchor = "probability"` is the clamp alone (fidelity 40).

    prime-bench run criteo_anchor --keep-predictions
    python benchmarks/criteo_anchor.py [--runs-dir runs] [--eps 1e-7]

For each data set, backbone and arm of `recipes/criteo_anchor.toml`: test AUC, test LogLoss, and
the LogLoss of the same predictions clamped to [eps, 1 - eps], each as mean and sample standard
deviation over seeds; and the share of test rows that cost 15 nats or more. The clamped LogLoss of
Dense and of `anchor = "logit"` is the control: it is what the clamp gives without any learning.
Probabilities are read in float32, as models give them, and clamped in float64.
"""

import argparse
import itertools

import numpy as np
import polars as pl
from tabulate import tabulate

from prime_bench import api

COSTLY_NATS = 15.0


def logloss(probability: np.ndarray, label: np.ndarray, eps: float) -> np.ndarray:
    """Cross-entropy of each row, (N,) nats, of probabilities clamped to [eps, 1 - eps]."""
    p = np.clip(probability.astype(np.float64), eps, 1 - eps)
    return -np.log(np.where(label == 1, p, 1 - p))


def spread(values: pl.Series) -> str:
    """Mean and sample standard deviation."""
    return f"{values.mean():.4f} ± {values.std():.4f}" if len(values) > 1 else f"{values[0]:.4f}"


def main() -> None:
    """Print one table in Markdown."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--recipe", default="criteo_anchor")
    parser.add_argument("--runs-dir", default="runs")
    parser.add_argument("--eps", type=float, default=1e-7)
    options = parser.parse_args()

    recipe = api.load_recipe(options.recipe)
    runs = api.records(options.recipe, runs_dir=options.runs_dir)
    groups = {
        tuple(map(str, keys)): group for keys, group in runs.group_by("dataset", "backbone", "arm")
    }
    arms = [arm.name for arm in recipe.arms]
    rows = []
    for keys in itertools.product(recipe.datasets, recipe.backbones, arms):
        if (group := groups.get(keys)) is None:
            continue
        clamped, costly = [], []
        for job in group["job_id"]:
            test = api.predictions(job, runs_dir=options.runs_dir).filter(split="test")
            p, y = test["probability"].to_numpy(), test["label"].to_numpy()
            clamped.append(logloss(p, y, options.eps).mean())
            costly.append((logloss(p, y, np.finfo(np.float64).eps) >= COSTLY_NATS).mean())
        rows.append(
            [
                *keys,
                len(group),
                spread(group["test_auc"]),
                spread(group["test_logloss"]),
                spread(pl.Series(clamped)),
                f"{100 * np.mean(costly):.1f} %",
            ]
        )
    heads = ["data", "backbone", "arm", "n", "AUC", "LogLoss", "LogLoss, clamped", "costly rows"]
    print(tabulate(rows, headers=heads, tablefmt="github", disable_numparse=True))


if __name__ == "__main__":
    main()

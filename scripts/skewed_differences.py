"""How often the tests over architectures reject where nothing differs, by the shape of differences.

    python scripts/skewed_differences.py

Draws 13 differences of median zero, one an architecture, from symmetric and from skewed
distributions: a lognormal one is exp(sigma z) - 1 with z standard normal. For each, the share of
samples in which a test of the reports has p <= 0.05. Prints Markdown.
"""

import argparse
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from tabulate import tabulate

from prime_bench.report.quantities.formulas import guarded_p, is_skewed, sign_test, wilcoxon

ARCHITECTURES, LEVEL = 13, 0.05
Sample = NDArray[np.float64]
"""(samples, architectures)"""
Draw = Callable[[np.random.Generator, tuple[int, int]], Sample]


def lognormal(sigma: float) -> Draw:
    """Lognormal values less their median."""
    return lambda random, shape: np.exp(sigma * random.standard_normal(shape)) - 1


DISTRIBUTIONS: dict[str, Draw] = {
    "normal": lambda random, shape: random.standard_normal(shape),
    "Laplace": lambda random, shape: random.laplace(size=shape),
    "Student, 3 degrees of freedom": lambda random, shape: random.standard_t(3, size=shape),
    "lognormal, sigma 0.5": lognormal(0.5),
    "lognormal, sigma 1": lognormal(1),
    "lognormal, sigma 1.5": lognormal(1.5),
}


def rates(sample: Sample) -> dict[str, float]:
    """Shares of the samples that each test rejects, and that count as skewed."""
    return {
        "Wilcoxon": float(np.mean([wilcoxon(row) <= LEVEL for row in sample])),
        "sign test": float(np.mean([sign_test(row) <= LEVEL for row in sample])),
        "counted as skewed": float(np.mean([is_skewed(row) for row in sample])),
        "as reported": float(np.mean([guarded_p(row) <= LEVEL for row in sample])),
    }


def main() -> None:
    """Print a row a distribution."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    rows = []
    for name, draw in DISTRIBUTIONS.items():
        random = np.random.default_rng(asked.seed)
        found = rates(draw(random, (asked.samples, ARCHITECTURES)))
        rows.append({"differences": name, **{key: f"{x:.1%}" for key, x in found.items()}})
    print(tabulate(rows, headers="keys", tablefmt="github", disable_numparse=True))


if __name__ == "__main__":
    main()

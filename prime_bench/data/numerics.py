"""What becomes of a numeric field: the four rules of fidelity 4."""

from dataclasses import dataclass

import numpy as np

from prime_bench.settings.dataset import NumericRule


def log_buckets(values: np.ndarray) -> np.ndarray:
    """Buckets of `values` (n,) float64 as whole float64 numbers; NaN stays NaN.

    BARS's rule for Criteo: floor(ln(x)^2) where x > 2, else int(x), which drops the fraction.
    """
    large = values > 2
    buckets: np.ndarray = np.trunc(values)
    buckets[large] = np.floor(np.log(values[large]) ** 2)
    return buckets


def signed_log(values: np.ndarray) -> np.ndarray:
    """sign(x) ln(1 + |x|), missing 0, as float32."""
    return plain(np.sign(values) * np.log1p(np.abs(values)))


def plain(values: np.ndarray) -> np.ndarray:
    """The values as float32, missing 0."""
    filled: np.ndarray = np.nan_to_num(values, nan=0.0).astype(np.float32)
    return filled


@dataclass
class Ranges:
    """Minimum and maximum of K columns over the training rows; missing values do not count."""

    low: np.ndarray
    """(K,) float64; infinity where nothing was seen."""
    high: np.ndarray
    """(K,) float64; minus infinity where nothing was seen."""

    @classmethod
    def empty(cls, n_columns: int) -> "Ranges":
        """Nothing seen."""
        return cls(low=np.full(n_columns, np.inf), high=np.full(n_columns, -np.inf))

    def see(self, values: np.ndarray) -> None:
        """Widen the ranges by (n, K) training values."""
        self.low = np.fmin(self.low, np.fmin.reduce(values, axis=0, initial=np.inf))
        self.high = np.fmax(self.high, np.fmax.reduce(values, axis=0, initial=-np.inf))

    def scale(self, values: np.ndarray) -> np.ndarray:
        """(n, K) float32: (x - low) / (high - low) cut to [0, 1]; 0 where missing or constant."""
        seen = self.high >= self.low
        low, high = np.where(seen, self.low, 0.0), np.where(seen, self.high, 0.0)
        # Halves, so that the width of a range over nearly all of float64 stays finite; cut first,
        # so that a far value over a tiny width does too.
        width = high / 2 - low / 2
        scaled = (np.clip(values, low, high) / 2 - low / 2) / np.where(width > 0, width, np.inf)
        return plain(np.clip(scaled, 0.0, 1.0))


def spooled(values: np.ndarray, rule: NumericRule) -> np.ndarray:
    """(n, K) values as they wait for the end of the first pass: minmax alone needs the raw ones."""
    if rule == "minmax":
        return values.astype(np.float64)
    return signed_log(values) if rule == "log1p" else plain(values)

"""The fields of the synthetic click logs: how often each value comes, and how it is written.

Everything random is made from the raw 64-bit words of PCG64, which NumPy keeps the same for ever,
and values are drawn by integer arithmetic: one seed gives one log on all machines and versions.
"""

import functools
from dataclasses import dataclass

import numpy as np
import polars as pl
from scipy.special import ndtri

from prime_bench.base.streams import derive

QUANTILE_BINS = 1 << 16
"""Bins of equal probability in a field's quantile table; the values of a bin are equally likely."""
_LOW_HALF = np.uint32(0xFFFF)
_GOLDEN = np.uint32(0x9E3779B1)  # odd, so that the product modulo 2^32 is a bijection
# Four hex digits of each 16-bit number; in fields with more values, a value is two of them.
_FOUR_DIGITS = pl.Series([f"{number:04x}" for number in range(QUANTILE_BINS)])


def random_words(seed: int, name: str, n: int) -> np.ndarray:
    """n uint64 words of the stream `name`; the first k of them do not depend on n."""
    return np.random.PCG64(derive(seed, name)).random_raw(n)


def uniforms(words: np.ndarray) -> np.ndarray:
    """float64 in (0, 1), one a word."""
    return ((words >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53


def normals(words: np.ndarray) -> np.ndarray:
    """float64 from the standard normal distribution, one a word."""
    drawn: np.ndarray = ndtri(uniforms(words))
    return drawn


@dataclass(frozen=True, kw_only=True)
class CategoricalField:
    """A field with `size` values, codes 0 to size - 1 by falling frequency."""

    name: str
    size: int
    exponent: float = 1.05
    """s of the Zipf law: the r-th of the values that are not `common` is as frequent as r^-s."""
    common: tuple[float, ...] = ()
    """Shares of the first codes, which the Zipf law does not rule."""
    missing: bool = False
    """Code 0 is the empty text."""
    style: str = "hex"
    """How a value is written: "hex" (8 digits), "integer" or "hour" (two digits)."""
    first: int = 0
    """The integer of code 0."""
    semantic: str | None = None

    def quantiles(self) -> np.ndarray:
        """(QUANTILE_BINS + 1,) uint32: bin b holds the codes from entry b to below entry b + 1."""
        level = np.arange(QUANTILE_BINS + 1) / QUANTILE_BINS
        start = float(sum(self.common))
        tail_level = np.clip((level - start) / (1 - start), 0.0, 1.0)
        n_tail = self.size - len(self.common)
        power = 1 - self.exponent  # not 0 in any field
        # Inverse of the continuous law of density ~ x^-s on [1, n + 1]; its floor is r.
        rank = (1 + tail_level * ((n_tail + 1.0) ** power - 1)) ** (1 / power)
        code = np.minimum(rank.astype(np.int64) - 1, n_tail) + len(self.common)
        for position, upper in reversed(list(enumerate(np.cumsum(self.common)))):
            code[level < upper] = position
        code[-1] = self.size
        borders: np.ndarray = code.astype(np.uint32)
        return borders

    def write(self, codes: np.ndarray) -> pl.Series:
        """The texts (n,) of uint32 codes (n,)."""
        if self.size <= QUANTILE_BINS:
            return self.texts.gather(pl.Series(codes)).alias(self.name)
        mixed = self._mixed(codes)
        halves = pl.DataFrame(
            {
                "high": _FOUR_DIGITS.gather(pl.Series(mixed >> np.uint32(16))),
                "low": _FOUR_DIGITS.gather(pl.Series(mixed & _LOW_HALF)),
            }
        )
        written = halves.select(pl.concat_str("high", "low").alias(self.name)).to_series()
        if self.missing:
            written = written.zip_with(pl.Series(codes != 0), pl.Series([""]))
        return written

    @functools.cached_property
    def texts(self) -> pl.Series:
        """The texts of all codes, (size,)."""
        codes = np.arange(self.size, dtype=np.uint32)
        if self.style == "hex":
            texts = [f"{number:08x}" for number in self._mixed(codes).tolist()]
        elif self.style == "hour":
            texts = [f"{code:02d}" for code in codes.tolist()]
        else:
            texts = [str(self.first + code) for code in codes.tolist()]
        if self.missing:
            texts[0] = ""
        return pl.Series(self.name, texts)

    def _mixed(self, codes: np.ndarray) -> np.ndarray:
        """A bijection of uint32 codes that looks like a hash."""
        salt = np.uint32(derive(0, f"synthetic/text/{self.name}") & 0xFFFFFFFF)
        mixed = (codes ^ salt) * _GOLDEN
        mixed ^= mixed >> np.uint32(15)
        return mixed * _GOLDEN


@dataclass(frozen=True, kw_only=True)
class NumericField:
    """A count: log-normal, rounded down, moved by `minimum`, cut at `maximum`."""

    name: str
    median: float
    """Of the values that are there, before rounding."""
    sigma: float
    """Standard deviation of ln(value - minimum)."""
    maximum: int
    minimum: int = 0
    missing_share: float = 0.0

    def quantiles(self) -> np.ndarray:
        """(QUANTILE_BINS + 1,) uint32: value - minimum at the borders of the bins."""
        level = np.arange(QUANTILE_BINS + 1) / QUANTILE_BINS
        level[-1] = 1 - 0.1 / QUANTILE_BINS  # the normal's quantile at 1 is infinite
        value = np.exp(np.log(self.median - self.minimum) + self.sigma * ndtri(level))
        borders: np.ndarray = np.minimum(value, self.maximum - self.minimum).astype(np.uint32)
        return borders


class Sampler:
    """Draws from a quantile table: uint32 words (n,) -> codes (n,) uint32."""

    def __init__(self, quantiles: np.ndarray) -> None:
        self._low = quantiles[:-1].astype(np.uint64)
        # Equal borders stand for a bin with that one code.
        self._width = np.maximum(np.diff(quantiles.astype(np.int64)), 1).astype(np.uint64)

    def draw(self, words: np.ndarray) -> np.ndarray:
        """The high 16 bits choose the bin, the low 16 bits the place in it."""
        bins = words >> np.uint32(16)
        # 64 bits, because the last bin of a heavy-tailed count is wider than 2^16.
        step = (words & _LOW_HALF) * self._width[bins] >> np.uint64(16)
        codes: np.ndarray = (self._low[bins] + step).astype(np.uint32)
        return codes

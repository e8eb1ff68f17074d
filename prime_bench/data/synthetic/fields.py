"""The fields of the synthetic click logs: the frequency of each value, and how it is written.

All random numbers are made from raw 64-bit words of PCG64, whose stream NumPy guarantees, and
values are drawn by integer arithmetic. So a seed gives the same log on all machines and versions.
"""

import functools
from dataclasses import dataclass

import numpy as np
import polars as pl
from scipy.special import ndtri

from prime_bench.base.streams import derive

QUANTILE_BINS = 1 << 16
"""Bins of equal probability in a field's quantile table. Values within a bin are equally likely."""
_LOW_HALF = np.uint32(0xFFFF)
_GOLDEN = np.uint32(0x9E3779B1)  # odd, so that the product modulo 2^32 is a bijection
# The four hex digits of each 16-bit number; values of larger fields are two of them.
_FOUR_DIGITS = pl.Series([f"{number:04x}" for number in range(QUANTILE_BINS)])


def random_words(seed: int, name: str, n: int) -> np.ndarray:
    """The first n words (uint64) of the random stream `name`."""
    return np.random.PCG64(derive(seed, name)).random_raw(n)


def uniforms(words: np.ndarray) -> np.ndarray:
    """Uniform float64 in (0, 1), one for each word."""
    return ((words >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53


def normals(words: np.ndarray) -> np.ndarray:
    """Standard normal float64, one for each word."""
    drawn: np.ndarray = ndtri(uniforms(words))
    return drawn


@dataclass(frozen=True, kw_only=True)
class CategoricalField:
    """A categorical field with `size` values; codes 0 to size - 1 are by falling frequency."""

    name: str
    size: int
    exponent: float = 1.05
    """s in Zipf's law: the frequency of the r-th value after the `common` ones is like r^-s."""
    common: tuple[float, ...] = ()
    """Shares of the first codes, which do not follow Zipf's law."""
    missing: bool = False
    """Whether code 0 is the missing value, written as the empty text."""
    style: str = "hex"
    """How values are written: "hex" (8 digits), "integer" or "hour" (2 digits)."""
    first: int = 0
    """The integer that is written for code 0, for the style "integer"."""
    semantic: str | None = None

    def quantiles(self) -> np.ndarray:
        """(QUANTILE_BINS + 1,) uint32: bin b has the codes from entry b to before entry b + 1."""
        level = np.arange(QUANTILE_BINS + 1) / QUANTILE_BINS
        start = float(sum(self.common))
        tail_level = np.clip((level - start) / (1 - start), 0.0, 1.0)
        n_tail = self.size - len(self.common)
        power = 1 - self.exponent  # no field has exponent 1
        # The inverse distribution function of the density ~ x^-s on [1, n + 1]; r is its floor.
        rank = (1 + tail_level * ((n_tail + 1.0) ** power - 1)) ** (1 / power)
        code = np.minimum(rank.astype(np.int64) - 1, n_tail) + len(self.common)
        for position, upper in reversed(list(enumerate(np.cumsum(self.common)))):
            code[level < upper] = position
        code[-1] = self.size
        borders: np.ndarray = code.astype(np.uint32)
        return borders

    def write(self, codes: np.ndarray) -> pl.Series:
        """The texts of codes (n,) uint32, as a series of n."""
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
        """The texts of all `size` codes."""
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
        """A bijection on uint32 whose values look like hashes."""
        salt = np.uint32(derive(0, f"synthetic/text/{self.name}") & 0xFFFFFFFF)
        mixed = (codes ^ salt) * _GOLDEN
        mixed ^= mixed >> np.uint32(15)
        return mixed * _GOLDEN


@dataclass(frozen=True, kw_only=True)
class NumericField:
    """A numeric field: log-normal, rounded down, shifted by `minimum`, cut at `maximum`."""

    name: str
    median: float
    """Median of the values that are not missing, before rounding."""
    sigma: float
    """Standard deviation of ln(value - minimum)."""
    maximum: int
    minimum: int = 0
    missing_share: float = 0.0

    def quantiles(self) -> np.ndarray:
        """(QUANTILE_BINS + 1,) uint32: value - minimum at the borders of the bins."""
        level = np.arange(QUANTILE_BINS + 1) / QUANTILE_BINS
        level[-1] = 1 - 0.1 / QUANTILE_BINS  # the normal quantile at 1 is infinite
        value = np.exp(np.log(self.median - self.minimum) + self.sigma * ndtri(level))
        borders: np.ndarray = np.minimum(value, self.maximum - self.minimum).astype(np.uint32)
        return borders


class Sampler:
    """Draws codes from a quantile table."""

    def __init__(self, quantiles: np.ndarray) -> None:
        self._low = quantiles[:-1].astype(np.uint64)
        # A bin with equal borders has that one code.
        self._width = np.maximum(np.diff(quantiles.astype(np.int64)), 1).astype(np.uint64)

    def draw(self, words: np.ndarray) -> np.ndarray:
        """Draw codes (n,) uint32 from random words (n,) uint32.

        The high 16 bits of a word choose the bin, the low 16 bits the place in it.
        """
        bins = words >> np.uint32(16)
        # 64 bits, since the last bin of a heavy-tailed count is wider than 2^16.
        step = (words & _LOW_HALF) * self._width[bins] >> np.uint64(16)
        codes: np.ndarray = (self._low[bins] + step).astype(np.uint32)
        return codes


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The fields of a log, and which of them have group-specific and joint effects."""

    numeric: tuple[NumericField, ...]
    categorical: tuple[CategoricalField, ...]
    click_rate: float
    group_fields: tuple[str, str]
    """The fields whose values determine the subgroup of a row."""
    group_classes: int
    """Number of classes of each group field; every combination of classes is a subgroup."""
    pairs: tuple[tuple[str, str], ...]
    """Pairs of categorical fields with a joint effect, which is the same in all subgroups."""


def _integers(name: str, size: int, *, first: int, common: tuple[float, ...]) -> CategoricalField:
    return CategoricalField(name=name, size=size, style="integer", first=first, common=common)


AVAZU = Shape(
    numeric=(),
    categorical=(
        _integers("C1", 7, first=1005, common=(0.88, 0.06, 0.03)),
        _integers("banner_pos", 7, first=0, common=(0.72, 0.27)),
        CategoricalField(name="site_id", size=4737, exponent=1.2, common=(0.36, 0.16)),
        CategoricalField(name="site_domain", size=7745, exponent=1.3, common=(0.37, 0.15)),
        CategoricalField(
            name="site_category", size=26, common=(0.40, 0.31, 0.18), semantic="site_category"
        ),
        CategoricalField(name="app_id", size=8552, exponent=1.3, common=(0.62,)),
        CategoricalField(name="app_domain", size=559, exponent=1.5, common=(0.66, 0.13)),
        CategoricalField(
            name="app_category", size=36, common=(0.58, 0.22, 0.12), semantic="app_category"
        ),
        CategoricalField(name="device_id", size=2_686_408, exponent=0.8, common=(0.82,)),
        CategoricalField(name="device_ip", size=6_729_486, exponent=0.85),
        CategoricalField(name="device_model", size=8251, exponent=0.95),
        CategoricalField(
            name="device_type",
            size=5,
            style="integer",
            common=(0.85, 0.07, 0.05),
            semantic="device_type",
        ),
        _integers("device_conn_type", 4, first=0, common=(0.80, 0.10)),
        CategoricalField(name="C14", size=2626, exponent=0.9, style="integer", first=375),
        _integers("C15", 8, first=300, common=(0.90, 0.06)),
        _integers("C16", 9, first=50, common=(0.88, 0.07)),
        CategoricalField(name="C17", size=435, exponent=0.9, style="integer", first=112),
        _integers("C18", 4, first=0, common=(0.42, 0.33)),
        CategoricalField(name="C19", size=68, style="integer", first=33),
        # -1 stands for "unknown" in the real log.
        _integers("C20", 172, first=-1, common=(0.47,)),
        CategoricalField(name="C21", size=60, style="integer", first=13),
        CategoricalField(name="hour", size=24, style="hour", semantic="hour"),
    ),
    click_rate=0.17,
    group_fields=("site_category", "app_category"),
    group_classes=3,
    pairs=(("banner_pos", "C18"), ("C19", "C21"), ("hour", "app_domain")),
)

# Name, number of distinct values (a missing one included), share of missing values.
_CRITEO_CATEGORIES = (
    ("C1", 1460, 0.0),
    ("C2", 583, 0.0),
    ("C3", 10_131_227, 0.034),
    ("C4", 2_202_608, 0.034),
    ("C5", 305, 0.0),
    ("C6", 24, 0.12),
    ("C7", 12_517, 0.0),
    ("C8", 633, 0.0),
    ("C9", 3, 0.0),
    ("C10", 93_145, 0.0),
    ("C11", 5683, 0.0),
    ("C12", 8_351_593, 0.034),
    ("C13", 3194, 0.0),
    ("C14", 27, 0.0),
    ("C15", 14_992, 0.0),
    ("C16", 5_461_306, 0.034),
    ("C17", 10, 0.0),
    ("C18", 5652, 0.0),
    ("C19", 2173, 0.44),
    ("C20", 4, 0.44),
    ("C21", 7_046_547, 0.034),
    ("C22", 18, 0.76),
    ("C23", 15, 0.0),
    ("C24", 286_181, 0.034),
    ("C25", 105, 0.44),
    ("C26", 142_572, 0.44),
)


def _criteo_category(name: str, size: int, missing: float) -> CategoricalField:
    # Under a steeper law, most of the millions of values of the largest fields would never occur.
    exponent = 0.85 if size > 1_000_000 else 1.1
    common = (missing,) if missing else ()
    return CategoricalField(
        name=name, size=size, exponent=exponent, common=common, missing=missing > 0
    )


CRITEO = Shape(
    numeric=(
        NumericField(name="I1", median=1.5, sigma=1.4, maximum=5775, missing_share=0.45),
        NumericField(name="I2", median=3.5, sigma=2.0, maximum=257_675, minimum=-3),
        NumericField(name="I3", median=6.5, sigma=1.4, maximum=65_535, missing_share=0.21),
        NumericField(name="I4", median=4.5, sigma=1.0, maximum=969, missing_share=0.22),
        NumericField(name="I5", median=2813.0, sigma=2.2, maximum=23_159_456, missing_share=0.026),
        NumericField(name="I6", median=32.0, sigma=1.7, maximum=431_037, missing_share=0.22),
        NumericField(name="I7", median=3.5, sigma=1.6, maximum=56_311, missing_share=0.043),
        NumericField(name="I8", median=8.0, sigma=1.1, maximum=6047, missing_share=0.0005),
        NumericField(name="I9", median=38.0, sigma=1.5, maximum=29_019, missing_share=0.043),
        NumericField(name="I10", median=0.8, sigma=0.7, maximum=11, missing_share=0.45),
        NumericField(name="I11", median=1.6, sigma=0.9, maximum=231, missing_share=0.043),
        NumericField(name="I12", median=0.8, sigma=1.4, maximum=4008, missing_share=0.76),
        NumericField(name="I13", median=4.5, sigma=1.2, maximum=7393, missing_share=0.22),
    ),
    categorical=tuple(_criteo_category(*row) for row in _CRITEO_CATEGORIES),
    click_rate=0.256,
    group_fields=("C17", "C23"),
    group_classes=3,
    pairs=(("C6", "C9"), ("C14", "C20"), ("C5", "C25")),
)

SHAPES = {"avazu": AVAZU, "criteo": CRITEO}

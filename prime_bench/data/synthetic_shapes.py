"""The two shapes of the synthetic click log, as literal tables.

Sizes are the distinct values of the whole published logs (Avazu: Kaggle's train.csv, 40,428,967
rows; Criteo: Kaggle's train.txt, 45,840,617 rows), so a log of fewer rows shows fewer of them, as a
sample of the real one does. Shares of common and missing values follow the real ones roughly.
"""

from dataclasses import dataclass

from prime_bench.data.synthetic_fields import CategoricalField, NumericField


@dataclass(frozen=True, kw_only=True)
class Shape:
    """What one log looks like."""

    numeric: tuple[NumericField, ...]
    categorical: tuple[CategoricalField, ...]
    click_rate: float
    group_fields: tuple[str, str]
    """The fields whose values make a row's subgroup."""
    group_classes: int
    """Classes into which the values of each of them fall; all combinations are subgroups."""
    pairs: tuple[tuple[str, str], ...]
    """Categorical fields that have a joint effect, the same in all subgroups."""


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

# Name, distinct values with the missing one, share of missing values.
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
    # The millions of values of the largest fields show only under a flatter law.
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

"""Made-up numbers to draw figures from."""

import re
from collections.abc import Callable, Sequence

import pytest
from matplotlib.figure import Figure

from prime_bench.findings import Metric
from prime_bench.report.figures.gradients import GapFinding
from prime_bench.report.figures.pairs import PairedScores
from prime_bench.report.figures.save import figure_bytes

SEEDS = (2021, 190034, 27011, 948432, 992817)
FIELDS = ("site_category", "hour")


def svg_of(figure: Figure) -> str:
    text = figure_bytes(figure, "svg", name="test").decode("utf-8")
    # A line of a wrapped text is an element of its own: all words once more in a row.
    return text + " ".join(re.findall(r"<text[^>]*>([^<]*)<", text))


@pytest.fixture
def svg() -> Callable[[Figure], str]:
    """The figure as SVG: its texts are texts there."""
    return svg_of


@pytest.fixture
def make_scores() -> Callable[..., PairedScores]:
    def made(
        backbone: str = "DNN",
        differences: Sequence[float] = (0.001, 0.002, -0.001, 0.0, 0.003),
        metric: Metric = "auc",
    ) -> PairedScores:
        sign = 1 if metric == "auc" else -1
        return PairedScores(
            backbone=backbone,
            metric=metric,
            seeds=SEEDS[: len(differences)],
            baseline=tuple(0.75 for _ in differences),
            arm=tuple(0.75 + sign * difference for difference in differences),
        )

    return made


@pytest.fixture
def findings() -> list[GapFinding]:
    """Two backbones, three arms, two seeds, two fields; gaps 0.4, 0.3 and 0.2 by arm."""
    return [
        GapFinding(
            backbone=backbone, arm=arm, seed=seed, field=field, semantic=0.9 - gap, matched=0.9
        )
        for backbone in ("DNN", "DCNv2")
        for arm, gap in (("Dense", 0.4), ("Residual", 0.3), ("PRIME", 0.2))
        for seed in (1, 2)
        for field in FIELDS
    ]

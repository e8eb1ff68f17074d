from types import SimpleNamespace

import pytest

from prime_bench.cli.show_job import _charts, _score, sparkline
from prime_bench.findings import METRIC_LABELS, GroupCounts, Score


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ([], ""),
        ([0.5], "▁"),
        ([0.5, 0.5], "▁▁"),
        ([0.0, 0.5, 1.0], "▁▅█"),
        ([1.0, None, 0.0], "█·▁"),
        ([None, None], "··"),
    ],
)
def test_bars_go_from_the_lowest_to_the_highest(values: list[float | None], line: str) -> None:
    assert sparkline(values) == line


def test_the_last_values_are_kept() -> None:
    assert sparkline([5.0, 0.0, 1.0], width=2) == "▁█"


def test_curves_go_from_the_first_epoch_to_the_last() -> None:
    scores = [(0.7, 0.5, 0.6), (0.9, None, 0.4), (0.8, 0.25, 0.3)]
    names = ("valid_auc", "valid_logloss", "train_loss")
    history = [SimpleNamespace(**dict(zip(names, each, strict=True))) for each in scores]

    assert list(_charts(history)) == [  # type: ignore[arg-type]
        "3 epochs:",
        "  validation AUC     ▁█▅  0.7000 to 0.8000",
        "  validation LogLoss █·▁  0.5000 to 0.2500",
        "  training loss      █▃▁  0.6000 to 0.3000",
    ]


def test_a_score_has_the_metrics_that_there_are_and_what_its_groups_leave_out() -> None:
    counts = {"groups": 1200, "rows": 5000, "one_class_groups": 30, "one_class_rows": 400}
    groups = GroupCounts(column="user", **counts, rows_without_group=7)
    score = Score(auc=0.75, logloss=None, gauc=0.625, pcoc=1.5, groups=groups)

    assert list(_score("test", score)) == [
        f"  test: AUC 0.750000, LogLoss -, {METRIC_LABELS['gauc']} 0.625000, "
        f"{METRIC_LABELS['pcoc']} 1.500000",
        "    groups by user: 1,200 of 5,000 rows; left out: 30 of one class with 400 rows, 7 rows"
        " without a value",
    ]

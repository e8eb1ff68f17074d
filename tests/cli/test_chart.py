import pytest

from prime_bench.cli.show_job import sparkline


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

"""A series of numbers as one line of text."""

from collections.abc import Sequence

_BARS = "▁▂▃▄▅▆▇█"
_GAP = "·"


def sparkline(values: Sequence[float | None], *, width: int = 60) -> str:
    """A bar a value, the lowest ▁ and the highest █; `·` where there is no number.

    More values than `width` are cut to the last ones.
    """
    shown = values[-width:]
    numbers = [value for value in shown if value is not None]
    if not numbers:
        return _GAP * len(shown)
    low, high = min(numbers), max(numbers)
    return "".join(_GAP if value is None else _bar(value, low, high) for value in shown)


def _bar(value: float, low: float, high: float) -> str:
    share = (value - low) / (high - low) if high > low else 0.0
    return _BARS[round(share * (len(_BARS) - 1))]

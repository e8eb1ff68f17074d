"""Text of numbers. It is made last: nothing reads a number out of it again."""


def fixed(value: float, decimals: int) -> str:
    """Return a number with a fixed number of decimals, `0.8140`; zero has no sign."""
    text = f"{value:.{decimals}f}"
    return text.removeprefix("-") if float(text) == 0 else text


def signed(value: float, decimals: int) -> str:
    """Return a difference with its sign, `+0.0010` or `-0.0006`.

    A value that rounds to zero has a sign only where it is positive: `+0.0000`, `0.0000`.
    """
    text = fixed(value, decimals)
    return f"+{text}" if value > 0 else text

"""Numbers as text. The last thing that happens to a number: nothing computes with the result."""


def fixed(value: float, decimals: int) -> str:
    """`0.8140`; never `-0.0000`."""
    text = f"{value:.{decimals}f}"
    return text.removeprefix("-") if float(text) == 0 else text


def signed(value: float, decimals: int) -> str:
    """`+0.0010`, `-0.0006`; what rounds to zero has a sign only where it is above it."""
    text = fixed(value, decimals)
    return f"+{text}" if value > 0 else text

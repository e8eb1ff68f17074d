"""Words that messages have in common: numbers with their nouns, and what a job is called."""


def counted(number: int, noun: str, *, most: int | None = None) -> str:
    """Return `1 epoch`, `2 epochs`, `0 epochs`; with `most`, `1 to 2 epochs`.

    Args:
        number: How many, or at least how many.
        noun: One of them, whose plural ends in s.
        most: At most how many.
    """
    high = number if most is None else most
    shown = f"{number:,}" if number == high else f"{number:,} to {high:,}"
    return f"{shown} {noun}" if high == 1 else f"{shown} {noun}s"


def job_name(
    dataset: str | None, backbone: str, arm: str | None, seed: int, *, kind: str = "train"
) -> str:
    """Return `avazu DNN prime seed 2021`; of a probe its kind comes last. A name that is not known
    is `None`.
    """
    name = f"{dataset} {backbone} {arm} seed {seed}"
    return name if kind == "train" else f"{name} {kind}"

"""Notes on settings that were chosen by validation: of how many, which, and what is left out."""

from collections.abc import Iterator, Sequence

from prime_bench.base.words import counted
from prime_bench.report.quantities.choice import Choice, Tried
from prime_bench.report.quantities.grid import Grid
from prime_bench.report.tables.model import TableNote, note, series

_MOST_NAMED = 10
"""Settings that one note names."""


def choice_notes(choices: Sequence[Choice], grid: Grid) -> Iterator[TableNote]:
    """Every note on the choices behind a grid."""
    for block in dict.fromkeys(choice.block.label for choice in choices):
        own = [choice for choice in choices if choice.block.label == block]
        yield _budget(block, own)
        for backbone in dict.fromkeys(choice.backbone.label for choice in own):
            there = [choice for choice in own if choice.backbone.label == backbone]
            yield from _chosen(f"{block}, {backbone}", there)
            yield from _tuned(f"{block}, {backbone}", there, grid)
            for choice in there:
                place = f"{block}, {backbone}, {choice.arm.label}"
                if len(choice.tried) > 1:
                    yield from left_out(place, choice.tried)


def left_out(place: str, tried: Sequence[Tried]) -> Iterator[TableNote]:
    """The settings that could not be chosen, with the seeds that they lack."""
    lacking = [item for item in tried if item.score is None]
    if len(lacking) == len(tried):
        what = (
            f"{place}: none of {counted(len(tried), 'candidate')} has a validation AUC of "
            "every seed, so "
        )
        yield note("choice", f"{what}none is chosen")
    elif lacking:
        named = [
            f"{item.label} (without {', '.join(map(str, item.missing))})"
            for item in lacking[:_MOST_NAMED]
        ]
        more = len(lacking) - _MOST_NAMED
        rest = f"; and {more} more" if more > 0 else ""
        yield note(
            "choice",
            f"{place}: chosen from {len(tried) - len(lacking)} of {len(tried)} candidates, those "
            f"with a validation AUC of every seed; not {'; '.join(named)}{rest}",
        )


def _budget(block: str, choices: Sequence[Choice]) -> TableNote:
    """How many candidates each arm had on each backbone."""
    counts: dict[tuple[tuple[str, int], ...], list[str]] = {}
    for backbone in dict.fromkeys(choice.backbone.label for choice in choices):
        own = [choice for choice in choices if choice.backbone.label == backbone]
        key = tuple((choice.arm.label, len(choice.tried)) for choice in own)
        counts.setdefault(key, []).append(backbone)
    seeds = len(choices[0].block.seeds)
    text = (
        f"{block}: chosen for each backbone and arm by mean validation AUC over "
        f"{counted(seeds, 'seed')}; test scores have no part in it"
    )
    if all(len({number for _, number in key}) == 1 for key in counts):
        numbers = [(key[0][1], series(names)) for key, names in counts.items()]
        if len(numbers) == 1:
            return note(
                "choice", f"{text}. A common budget: {counted(numbers[0][0], 'candidate')} an arm"
            )
        each = "; ".join(
            f"{counted(number, 'candidate')} an arm on {names}" for number, names in numbers
        )
        return note("choice", f"{text}. A common budget: {each}")
    each = "; ".join(
        f"{series([f'{label} {number}' for label, number in key])} on {series(names)}"
        for key, names in counts.items()
    )
    return note(
        "choice",
        f"{text}. Not a common budget, which favours arms with more candidates: {each}",
    )


def _chosen(place: str, choices: Sequence[Choice]) -> Iterator[TableNote]:
    parts = [
        f"{choice.arm.label} {choice.chosen.label}"
        for choice in choices
        if choice.chosen is not None and choice.chosen.values
    ]
    if parts:
        yield note("choice", f"{place}: chosen: {'; '.join(parts)}")


def _tuned(place: str, choices: Sequence[Choice], grid: Grid) -> Iterator[TableNote]:
    """The arms whose backbone has other settings than the baseline's."""
    chosen = {choice.arm.name: choice.chosen for choice in choices}
    first = chosen.get(grid.baseline.name) if grid.baseline else None
    if grid.baseline is None or first is None:
        return
    other = [
        choice.arm.label
        for choice in choices
        if choice.chosen is not None and choice.chosen.row.key != first.row.key
    ]
    if other:
        yield note(
            "choice",
            f"{place}: Δ of {series(other)} compares tuned arms: the backbone has other settings "
            f"than {grid.baseline.label}'s, so Δ is not what the plug-in alone changes; pairs have "
            "the seed and the row order in common, and not all initial weights",
        )

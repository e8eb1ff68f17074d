"""Whether files are the published ones, and why they may not be."""

from collections.abc import Mapping, Sequence

from prime_bench.data.card import DatasetCard
from prime_bench.data.manifest import InputFile


def differences(
    card: DatasetCard, inputs: Sequence[InputFile], positives: Sequence[int]
) -> list[str]:
    """A line for each digest or number of rows that is not the card's; inputs in SPLITS' order."""
    lines = []
    for (split, expected), file, positive in zip(
        card.files.items(), inputs, positives, strict=True
    ):
        for what, wanted, found in (
            ("md5", expected.md5, file.md5),
            ("rows", f"{expected.rows:,}", f"{file.rows:,}"),
            ("positives", f"{expected.positives:,}", f"{positive:,}"),
        ):
            if wanted != found:
                lines.append(f"{split}.csv: expected {what} {wanted}, found {found}")
    return lines


def likely_cause(card: DatasetCard, inputs: Sequence[InputFile], positives: Sequence[int]) -> str:
    """Why the files differ from the published ones."""
    expected = list(card.files.values())
    known = {file.md5: split for split, file in card.files.items()}
    moved = [
        f"{split}.csv holds the published {known[file.md5]}.csv"
        for split, file in zip(card.files, inputs, strict=True)
        if known.get(file.md5, split) != split
    ]
    if moved:
        return f"{'; '.join(moved)}: the files were renamed"
    rows = [file.rows for file in inputs]
    wanted_rows = [file.rows for file in expected]
    if rows == wanted_rows:
        if list(positives) == [file.positives for file in expected]:
            return "the same rows, written otherwise (number format, order, or line ends)"
        return "another split of the same log, such as one drawn again by another library version"
    if sum(rows) == sum(wanted_rows):
        return "the same log, split otherwise"
    more = [
        f"{split}.csv"
        for split, found, wanted in zip(card.files, rows, wanted_rows, strict=True)
        if found == wanted + 1
    ]
    if len(more) == 1 and sum(rows) == sum(wanted_rows) + 1:
        return f"one row too many in {more[0]}, such as one that another program added at its end"
    if all(found <= wanted for found, wanted in zip(rows, wanted_rows, strict=True)):
        return "a part of the data: a sample, or a download that broke off"
    return "files of another data set or version"


def cardinality_differences(card: DatasetCard, found: Mapping[str, int]) -> list[str]:
    """A line for each field whose number of training values is not the card's."""
    return [
        f"{column.name}: expected {column.train_values:,} training values, found"
        f" {found[column.name]:,}"
        for column in card.fields
        if column.train_values is not None and column.train_values != found[column.name]
    ]

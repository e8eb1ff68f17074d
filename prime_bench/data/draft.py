"""Draft a card from the values of a log: each role and rule is a guess with its reason.

All rows are read and checked as `prepare` reads them; the guesses are made from a sample of them.
"""

import codecs
import csv
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
import polars as pl

from prime_bench.base.characters import visible
from prime_bench.base.errors import DataError
from prime_bench.base.words import counted
from prime_bench.data.card import CardColumn, CardFormat, DatasetCard, own_name
from prime_bench.data.raw.find import find_sources
from prime_bench.data.raw.frames import ColumnFile, columnar_kind
from prime_bench.data.raw.lines import LONGEST_LINE, SEPARATORS, Lines, check_first_line
from prime_bench.data.raw.source import PACKED, SourceFile, Stream, open_source
from prime_bench.data.raw.text import read_lines
from prime_bench.data.stages import OnProgress, StageProgress, no_progress

MOST_SAMPLED_ROWS = 200_000
"""Rows from which roles and rules are guessed."""
_FIRST_ROWS = 50_000
"""Of the sampled rows, those that are the first of the log, without a gap."""
_A_BLOCK_ROWS = 2_000
"""Rows of each later block from which some are taken."""
# Thresholds of the guesses, which are choices: each draft names the reason, to be corrected.
_FEW_VALUES = 20
"""Number of distinct values up to which whole numbers are taken for categories."""
_A_VALUE_A_ROW = 0.95
"""Distinct values a row from which a column is taken for a number of the row, and dropped."""
_LABELS = frozenset({"0", "1", "0.0", "1.0"})
_MISSING = (
    *("NULL", "Null", "null", "NA", "N/A", "n/a", "#N/A", "NaN", "NAN", "nan"),
    *("None", "none", "\\N", "?", "-"),
)
"""Texts that in a column of numbers stand for a missing value."""
_LABEL_NAME = re.compile(
    r"^(is_?)?(label|clicks?|clicked|target|y|conversion|converted|purchased?|bought|response)$",
    re.IGNORECASE,
)
_ID_NAME = re.compile(
    r"(^|_)(ids?|uid|guid|uuid|code|zip|type|cat|category|class|kind|group|slot|pos|position|"
    r"hour|weekday|dow|month|version|channel|user|member|customer|visitor|household|account|cookie|"
    r"item|product|sku|brand|shop|seller|ad|advert|advertiser|campaign|creative|banner|placement|"
    r"publisher|site|app|domain|device|os|browser|carrier|country|region|city|language)$"
    r"|Id$|ID$|_?c\d+$",
    re.IGNORECASE,
)
_USER_NAME = re.compile(
    r"(^|_)(user|member|customer|visitor|uid|household|account|cookie)(_?id)?$", re.IGNORECASE
)
_TIME_NAME = re.compile(r"time|date|(^|_)(ts|at|day)$", re.IGNORECASE)
_SPLIT_TEXTS = frozenset({"train", "training", "valid", "validation", "val", "dev", "test"})
_ISO = re.compile(r"^\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d)?)?$")
_HOUR = re.compile(r"^\d\d(0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01])([01]\d|2[0-3])$")
_SKEWED = 8.0
"""Interquartile ranges beyond a quartile from which the largest values are far outliers; half as
many between median and 99th percentile are a long tail."""


@dataclass(frozen=True, kw_only=True)
class DraftColumn:
    """What is guessed of one column."""

    name: str
    role: str
    why: str
    """The reason for the role and the rule, in a line."""
    numeric: str | None = None
    """The rule of a numeric column."""
    bins: int | None = None

    @property
    def entry(self) -> str:
        """The column as an entry of `columns` on a card, with its reason as a comment."""
        keys = [f"name = {json.dumps(self.name, ensure_ascii=False)}", f'role = "{self.role}"']
        keys += [f'numeric = "{self.numeric}"'] if self.numeric else []
        keys += [f"bins = {self.bins}"] if self.bins else []
        return f"  {{ {', '.join(keys)} }},  # {visible(self.why)}"


@dataclass(frozen=True, kw_only=True)
class CardDraft:
    """A card that was guessed from a log."""

    name: str
    kind: str
    rows: dict[str, int]
    """Rows of each file, by its name."""
    sampled_rows: int
    columns: list[DraftColumn]
    missing: list[str]
    """Texts that stand for a missing value."""
    left_out: dict[str, str] = field(default_factory=dict)
    """Columns of a Parquet or Arrow file that are not read -> their type."""
    could_be_label: list[str] = field(default_factory=list)
    """What could be the label, with the reason, where none was found."""

    @property
    def has_label(self) -> bool:
        """Whether a label was found; without one the card is not valid yet."""
        return any(column.role == "label" for column in self.columns)

    @property
    def text(self) -> str:
        """The card as a TOML file with comments."""
        total = sum(self.rows.values())
        files = ", ".join(f"{visible(name)} {rows:,}" for name, rows in self.rows.items())
        lines = [
            f"# A draft from {counted(total, 'row')} ({files}) of "
            f"{counted(len(self.columns), 'column')}.",
            f"# Roles and rules are guesses from {self.sampled_rows:,} of them. Read each reason,",
            "# and edit what you know better; docs/cards.md has all keys.",
        ]
        lines += [
            f"# `{visible(name)}` is left out: a column of type {visible(kind)} is not read."
            for name, kind in self.left_out.items()
        ]
        if not self.has_label:
            lines += [
                "#",
                '# No label was found. Give the column of clicks (0 or 1) role = "label":',
            ]
            lines += [f"#   {visible(why)}" for why in self.could_be_label]
        lines += [
            f'name = "{self.name}"',
            f'title = "{self.name}"  # what reports call it',
            f'kind = "{self.kind}"',
            "",
            "columns = [",
            *(column.entry for column in self.columns),
            "]",
        ]
        if self.missing:
            texts = ", ".join(json.dumps(text) for text in self.missing)
            lines += ["", "[format]", f"missing = [{texts}]  # texts for a missing value"]
        lines += ["", "[defaults]"]
        if self.kind == "log":
            lines.append('split = "hash"  # by a hash of each row: 80, 10 and 10 % of them')
            if any(column.role == "hour" for column in self.columns):
                lines.append(
                    '# split = "time"  # the earliest hours for training, the last for test'
                )
        lines += [
            'vocabulary = "train"  # ids for values of training rows; "all" for those of all rows',
            f"min_count = {2 if total >= 10_000 else 1}  # rows that a value needs to get an id",
        ]
        return "\n".join(lines) + "\n"


def draft_card(path: Path, *, on_progress: OnProgress = no_progress) -> CardDraft:
    """Read a log, or a folder with train, valid and test files, and guess its card.

    Raises DataError, with file and line, for a file that `prepare` could not read.
    """
    kind: Literal["splits", "log"] = "splits" if path.is_dir() else "log"
    columns = [CardColumn(name="y", role="label"), CardColumn(name="x", role="categorical")]
    any_card = DatasetCard(name="any", title="any", kind=kind, columns=columns)
    sources = find_sources(any_card, path)
    sample = _Sample()
    rows = {}
    left_out: dict[str, str] = {}
    for source in sources:
        before = sample.rows
        if (columnar := columnar_kind(source)) is not None:
            left_out |= ColumnFile(source, kind=columnar).unread
        for frame, done in _frames(source, columns=sample.names):
            sample.add(frame)
            on_progress(
                StageProgress(
                    stage="reading", done=done, total=source.stored_bytes, rows=sample.rows
                )
            )
        rows[Path(source.name).name] = sample.rows - before
    frame = sample.frame()
    guesses, missing = _columns(frame)
    return CardDraft(
        name=own_name(card_path(path).stem),
        kind=kind,
        rows=rows,
        sampled_rows=frame.height,
        columns=guesses,
        missing=missing,
        left_out=left_out,
        could_be_label=_could_be_label(frame),
    )


def card_path(log: Path) -> Path:
    """Where the card of a log or folder lies by default: beside it, under its name."""
    if log.is_dir():
        folder = log if log.name not in ("", "..") else log.resolve()
        return folder.parent / f"{folder.name or 'log'}.toml"
    ending = log.suffix if log.suffix.lower() in PACKED else ""
    return log.with_name(f"{Path(log.name.removesuffix(ending)).stem}.toml")


class _Sample:
    """Rows of all blocks, at most about `MOST_SAMPLED_ROWS`: the first ones and some of each."""

    def __init__(self) -> None:
        self.rows = 0
        self.names: list[str] | None = None
        self._first: list[pl.DataFrame] = []
        self._later: list[pl.DataFrame] = []
        self._step = 1

    def add(self, frame: pl.DataFrame) -> None:
        self.names = frame.columns
        if self.rows < _FIRST_ROWS:
            self._first.append(frame.head(_FIRST_ROWS - self.rows))
        else:
            self._later.append(frame.head(_A_BLOCK_ROWS).gather_every(self._step))
        self.rows += frame.height
        if sum(part.height for part in self._later) > MOST_SAMPLED_ROWS - _FIRST_ROWS:
            self._later = [part.gather_every(2) for part in self._later]
            self._step *= 2

    def frame(self) -> pl.DataFrame:
        return pl.concat([*self._first, *self._later])


def _frames(
    source: SourceFile, *, columns: Sequence[str] | None
) -> Iterator[tuple[pl.DataFrame, int]]:
    """Blocks of rows as texts, with the bytes that were read; `columns` if they are known."""
    if (kind := columnar_kind(source)) is not None:
        file = ColumnFile(source, kind=kind)
        unread = file.unread
        names = list(columns or (name for name in file.names if name not in unread))
        # As for a label, so that true and false are 1 and 0.
        for lines in file.lines(dict.fromkeys(names, True), missing=()):
            yield _frame(lines, names), file.done_bytes
        return
    names, separator = _header(source)
    names = list(columns or names)
    with open_source(source) as stream:
        form = CardFormat.parse({"separator": separator}, where=source.name)
        for lines in read_lines(stream.read, where=source.name, header=names, form=form):
            yield _frame(lines, names), stream.done_bytes


def _frame(lines: Lines, names: Sequence[str]) -> pl.DataFrame:
    """The fields of a block as columns of texts, the missing ones empty."""
    frame = lines.frame
    if frame is None:
        frame = pl.read_csv(
            lines.content,
            has_header=False,
            quote_char=None,
            schema={str(i): pl.String() for i in range(len(names))},
        ).fill_null("")
    return frame.rename(dict(zip(frame.columns, names, strict=True)))


def _header(source: SourceFile) -> tuple[list[str], str]:
    """The names of the columns, and the separator between them."""
    with open_source(source) as stream:
        first = _first_line(stream)
    if not first:
        raise DataError(f"{source.name}: line 1 is blank, or the file is empty")
    check_first_line(first, where=source.name, quote='"')
    try:
        text = first.decode()
    except UnicodeDecodeError as error:
        raise DataError(f"{source.name}: line 1 is not UTF-8") from error
    split = {one: next(csv.reader([text], delimiter=one), []) for one in SEPARATORS}
    separator = max(split, key=lambda one: len(split[one]))
    names = split[separator]
    where = f"{source.name}: line 1"
    if len(names) < 2:
        raise DataError(f"{where}: one column, expected a label and fields")
    twice = next((name for name in names if names.count(name) > 1), "")
    if "" in names or twice:
        which = f"two columns are named `{twice}`" if twice else "a column has no name"
        raise DataError(f"{where}: {which}", hint="the first line has to name the columns")
    if sum(_is_number(name) for name in names) > len(names) / 2:
        raise DataError(
            f"{where}: looks like a row, not like the names of columns",
            hint="add a first line with a name for each column",
        )
    return names, separator


def _first_line(stream: Stream) -> bytes:
    """The first line without its end, or as much of it as a line may have."""
    found = b""
    while b"\n" not in found and len(found) < LONGEST_LINE and (piece := stream.read(1 << 16)):
        found += piece
    return found.partition(b"\n")[0].removeprefix(codecs.BOM_UTF8).removesuffix(b"\r")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


@dataclass(frozen=True, kw_only=True)
class _Column:
    """The sampled values of a column."""

    name: str
    rows: int
    present: pl.Series
    """(n,) texts without the missing ones."""
    distinct: pl.Series
    """(V,) texts."""
    missing_texts: list[str]
    """Texts for a missing value among numbers."""
    numbers: np.ndarray | None
    """(n,) float64, if all texts are numbers."""
    no_numbers: list[str]
    """The few texts that are no numbers in a column that has numbers but for them."""

    @classmethod
    def of(cls, texts: pl.Series) -> "_Column":
        present = texts.filter(texts != "")
        distinct = present.unique()
        marks = [mark for mark in _MISSING if mark in distinct.implode().item()]
        rest = distinct.filter(~distinct.is_in(marks))
        numbers, used = None, []
        is_number = rest.cast(pl.Float64, strict=False).is_finite().fill_null(False)
        others = rest.filter(~is_number)
        no_numbers = sorted(others) if len(others) <= min(5, len(rest) // 20) else []
        if len(rest) and is_number.all():
            used = marks
            present, distinct = present.filter(~present.is_in(marks)), rest
            numbers = present.cast(pl.Float64).to_numpy()
        return cls(
            name=texts.name,
            rows=len(texts),
            present=present,
            distinct=distinct,
            missing_texts=used,
            numbers=numbers,
            no_numbers=no_numbers,
        )

    @property
    def is_binary(self) -> bool:
        values = set(self.distinct.head(10).to_list())
        both = {text[0] for text in values} == {"0", "1"}
        return both and values <= _LABELS and len(self.present) == self.rows

    @property
    def gaps(self) -> str:
        """`, 3.1 % missing`; empty without missing values."""
        share = 1 - len(self.present) / self.rows
        return f", {100 * share:.2g} % missing" if share else ""


def _columns(frame: pl.DataFrame) -> tuple[list[DraftColumn], list[str]]:
    """The guess for each column of the sample, and the texts that stand for a missing value.

    The label is the only column of 0 and 1, or of several the only one that is named as one.
    """
    columns = [_Column.of(frame[name]) for name in frame.columns]
    binary = [column for column in columns if column.is_binary]
    named = [column for column in binary if _LABEL_NAME.match(column.name)]
    label = (named or binary)[0] if len(named) == 1 or (not named and len(binary) == 1) else None
    drafts: list[DraftColumn] = []
    marks: dict[str, None] = {}
    for column in columns:
        if column is label:
            share = float(np.mean(label.numbers)) if label.numbers is not None else 0.0
            why = "by its name and values" if named else "the only column of 0 and 1"
            drafts.append(
                DraftColumn(
                    name=column.name,
                    role="label",
                    why=f"{why}: 1 in {100 * share:.2f} % of the rows",
                )
            )
            continue
        draft = _guess(column, has_hour=any(one.role == "hour" for one in drafts))
        if draft.role == "numeric":
            marks |= dict.fromkeys(column.missing_texts)
        drafts.append(draft)
    return drafts, list(marks)


def _could_be_label(frame: pl.DataFrame) -> list[str]:
    """Columns that could be the label, or could be made one."""
    found = []
    for column in (_Column.of(frame[name]) for name in frame.columns):
        n = len(column.distinct)
        shown = ", ".join(sorted(column.distinct.to_list())) if n <= 5 else f"{n:,} values"
        if column.is_binary:
            found.append(f"`{column.name}`: its values are 0 and 1")
        elif n == 2 and len(column.present) == column.rows:
            found.append(f"`{column.name}`: two values ({shown}), to be written as 0 and 1")
        elif _LABEL_NAME.match(column.name):
            found.append(f"`{column.name}`: by its name, but it has {shown}{column.gaps}")
    return found or ["no column has the values 0 and 1: add one to the file"]


def _guess(column: _Column, *, has_hour: bool) -> DraftColumn:
    """The role, rule and reason of a column that is not the label."""

    def draft(role: str, why: str, *, numeric: str | None = None) -> DraftColumn:
        return DraftColumn(name=column.name, role=role, why=why, numeric=numeric)

    n, present = len(column.distinct), len(column.present)
    if n == 0:
        return draft("dropped", "no value in any row")
    if n == 1 and present == column.rows:
        return draft("dropped", f"constant: `{column.distinct[0]}` in every row")
    if set(column.distinct.head(10).str.to_lowercase().to_list()) <= _SPLIT_TEXTS and n >= 2:
        how = 'role = "split" and split = "column" in [defaults] use it'
        return draft("dropped", f"seems to say each row's split: {how}")
    if not has_hour and _all_match(column, _HOUR):
        return draft("hour", "8 digits, YYMMDDHH: the hour of day becomes a field")
    if why := _time(column):
        return draft(
            "dropped", f'{why}: role = "time", and split = "time" in [defaults], split by it'
        )
    whole = column.numbers is not None and bool((column.numbers % 1 == 0).all())
    # Names such as c1 and slot are those of ids, unless the values measure something.
    named = bool(_ID_NAME.search(column.name)) and (whole or n <= _FEW_VALUES)
    is_id = named or column.numbers is None
    if present >= 50 and n >= _A_VALUE_A_ROW * present and (is_id or whole):
        return draft("dropped", f"a value a row: {n:,} values in {present:,} rows{column.gaps}")
    if column.numbers is not None and not is_id and not _has_zeros_in_front(column):
        if not whole or n > _FEW_VALUES:
            return _numeric(column)
        return draft(
            "categorical",
            f"whole numbers, few values: {n}{column.gaps}; or numeric, if they measure",
        )
    what = "texts" if column.numbers is None else "numbers that are names"
    why = f"{what}: {counted(n, 'value')}{column.gaps}"
    if column.no_numbers:
        marks = ", ".join(json.dumps(text, ensure_ascii=False) for text in column.no_numbers)
        why += f"; numbers but for these: missing = [{marks}] in [format] makes them missing"
    if _USER_NAME.search(column.name):
        by = f"gauc_by = {json.dumps(column.name, ensure_ascii=False)}"
        why += (
            f"; seems a user: in [defaults] {by} gives a group AUC, and "
            'split = "group" with role = "group", also = "categorical" keeps a user in one split'
        )
    return draft("categorical", why)


def _numeric(column: _Column) -> DraftColumn:
    """The rule of a numeric column, by the range and the tails of its values."""
    numbers = column.numbers
    assert numbers is not None  # noqa: S101
    low, middle, most, high = np.quantile(numbers, [0, 0.5, 0.99, 1], method="inverted_cdf")
    quarter, three = np.quantile(numbers, [0.25, 0.75], method="inverted_cdf")
    spread = three - quarter
    found = f"{low:g} to {high:g}, median {middle:g}{column.gaps}"
    if np.abs(numbers).max() <= 1:
        rule, why = "raw", "small as they are"
    elif low >= 0 and most - middle > _SKEWED / 2 * max(spread, 1e-12):
        rule, why = "log1p", "a long tail"
    elif high - three > _SKEWED * spread or quarter - low > _SKEWED * spread:
        rule, why = "quantile", "far outliers; bins become ids"
    else:
        rule, why = "standard", "no long tail"
    bins = 20 if rule == "quantile" else None
    return DraftColumn(
        name=column.name, role="numeric", numeric=rule, bins=bins, why=f"{found}: {why}"
    )


def _all_match(column: _Column, pattern: re.Pattern[str]) -> bool:
    return all(pattern.match(text) for text in column.distinct.head(1_000)) and (
        len(column.present) == column.rows
    )


def _has_zeros_in_front(column: _Column) -> bool:
    """Whether a number is written as `007`, which as a number would be 7."""
    return bool(column.distinct.str.contains(r"^-?0\d").any())


def _time(column: _Column) -> str:
    """Why a column seems to be a time; empty if it does not."""
    if all(_ISO.match(text) for text in column.distinct.head(1_000)):
        return "a date or time"
    numbers = column.numbers
    if numbers is None or not _TIME_NAME.search(column.name) or len(column.distinct) < 20:
        return ""
    low, high = float(numbers.min()), float(numbers.max())
    # From 1995 to 2100, in seconds or milliseconds since 1970.
    for unit, seconds in (("seconds", 1.0), ("milliseconds", 1e3)):
        if 7.9e8 * seconds <= low and high <= 4.1e9 * seconds:
            return f"{unit} since 1970"
    return ""

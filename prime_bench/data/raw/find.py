"""Find the raw files of a card, and compare them with the published ones."""

import fnmatch
import itertools
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from prime_bench.base.archives import zip_members
from prime_bench.base.errors import DataError
from prime_bench.data.card import DatasetCard
from prime_bench.data.manifest import SPLIT_NAMES, InputFile
from prime_bench.data.raw.kaggle_criteo import KaggleFile
from prime_bench.data.raw.libsvm import LibsvmFile
from prime_bench.data.raw.source import PACKED, SourceFile, reading, unpacked_name

# Name patterns by which AFN's own program finds its files.
_LIBSVM = {"train": "tr*.libsvm", "valid": "va*.libsvm", "test": "te*.libsvm"}
_STEMS = {"train": "train", "valid": "valid", "test": "test"}
_DATA = (".csv", ".tsv", ".txt", ".parquet", ".pq", ".arrow", ".ipc", ".feather", ".zip")
_TARS = (*(f".tar{ending}" for ending in PACKED), ".tgz")
_KAGGLE = ("train.txt", *(f"train.txt{ending}" for ending in PACKED), "dac.tar.gz")
_KAGGLE_MEMBER = "train.txt"
_ALSO = {
    "libsvm": "the three .libsvm files of the AFN paper, in a folder or .zip",
    "kaggle": "Kaggle's train.txt (or .gz, or dac.tar.gz)",
}


def find_sources(card: DatasetCard, where: Path | Sequence[Path]) -> Sequence[SourceFile]:
    """Find the files of `card` at one or more paths: files, folders, archives or patterns (`*`).

    Returns the files of a log in the order of `where`, those of a folder or pattern by name; one
    KaggleFile for Kaggle's log of Criteo; otherwise three files in the order of SPLIT_NAMES. Raises
    DataError if files are missing or ambiguous.
    """
    paths = [found for path in _listed_paths(where) for found in _matching(path)]
    if card.kind != "log" and len(paths) == 1:
        return _published(card, paths[0])
    if card.kind != "log":
        chosen = _three(paths[0].parent, [str(path) for path in paths], _STEMS, base=_stem)
        return [_plain(Path(name), split=i) for i, name in enumerate(chosen)]
    sources = [source for path in paths for source in _of_log(path)]
    twice = [a.name for a, b in itertools.combinations(sources, 2) if a.name == b.name]
    if twice:
        raise DataError(f"{twice[0]}: is given twice", hint="name each file once")
    return sources


def _listed_paths(where: Path | Sequence[Path]) -> Sequence[Path]:
    return [where] if isinstance(where, Path) else where


def _matching(path: Path) -> list[Path]:
    """The files that match a pattern, by name; `path` itself if it is there or is no pattern."""
    if not any(mark in path.name for mark in "*?[") or path.exists():
        return [path]
    with reading(path.parent):
        found = sorted(one for one in path.parent.iterdir() if fnmatch.fnmatch(one.name, path.name))
    if not found:
        raise DataError(f"{path}: no file has such a name")
    return found


def _of_log(path: Path) -> list[SourceFile]:
    with reading(path):
        path.stat()
        is_folder = path.is_dir()
    if is_folder:
        return _logs_in_folder(path)
    return [_log_in_zip(path) if path.name.lower().endswith(".zip") else _plain(path, split=None)]


def _logs_in_folder(folder: Path) -> list[SourceFile]:
    """All files of data in a folder, by name; others, such as a README, are left out."""
    with reading(folder):
        files = sorted(path for path in folder.iterdir() if path.is_file())
    chosen = [path for path in files if _is_data(path.name)]
    for one, other in itertools.combinations(chosen, 2):
        if _stem(one.name) == _stem(other.name):
            raise DataError(
                f"{folder}: has both {one.name} and {other.name}", hint="remove one of them"
            )
    if not chosen:
        found = ", ".join(path.name for path in files[:10]) or "nothing"
        raise DataError(
            f"{folder}: has no file of data ({found})", hint=f"endings: {', '.join(_DATA)}"
        )
    return [source for path in chosen for source in _of_log(path)]


def _is_data(name: str) -> bool:
    ending = PurePosixPath(unpacked_name(name)).suffix
    return not name.startswith(".") and (ending in _DATA or unpacked_name(name) != name.lower())


def _stem(name: str) -> str:
    """A file's name in small letters without folders and endings such as `.csv.gz`."""
    base = PurePosixPath(unpacked_name(name))
    return base.stem if base.suffix in _DATA else base.name


def _published(card: DatasetCard, path: Path) -> Sequence[SourceFile]:
    """The splits that a card has as files."""
    with reading(path):
        path.stat()
        is_folder, is_file = path.is_dir(), path.is_file()
    kind = path.name.lower()
    if is_folder:
        return _in_folder(card, path)
    if is_file and kind.endswith(".zip"):
        return _in_zip(card, path)
    if is_file and card.raw_form == "libsvm" and path.suffix == ".libsvm":
        return _libsvm(card, path.absolute().parent)
    if is_file and card.raw_form == "kaggle" and kind.endswith(_TARS):
        return [_kaggle(path, member=_KAGGLE_MEMBER)]
    if is_file and card.raw_form == "kaggle" and unpacked_name(kind).endswith(".txt"):
        return [_kaggle(path, member=None)]
    raise DataError(
        f"{path}: expected a folder with {_listed(SPLIT_NAMES)}, or the published .zip,"
        " found a file",
        hint=_also(card),
    )


def _also(card: DatasetCard) -> str:
    return f"{card.name} can also be read from {_ALSO[card.raw_form]}" if card.raw_form else ""


def _listed(splits: Sequence[str]) -> str:
    return ", ".join(f"{split}.csv" for split in splits) + " (each may be .csv.gz, .bz2 or .xz)"


class _Stored(NamedTuple):
    """Facts about a file on disk."""

    path: Path
    size: int
    mtime_ns: int


def _stored(path: Path) -> _Stored:
    with reading(path):
        status = path.stat()
        if not path.is_file():
            raise DataError(f"{path}: is not a regular file")
    return _Stored(path.absolute(), status.st_size, status.st_mtime_ns)


def _plain(path: Path, *, split: int | None) -> SourceFile:
    return SourceFile(**_stored(path)._asdict(), split=split, stored_bytes=_stored(path).size)


def _kaggle(path: Path, *, member: str | None) -> KaggleFile:
    return KaggleFile(**_stored(path)._asdict(), member=member, stored_bytes=_stored(path).size)


def _in_folder(card: DatasetCard, folder: Path) -> Sequence[SourceFile]:
    with reading(folder):
        names = sorted(path.name for path in folder.iterdir())
    data = [name for name in names if _is_data(name)]
    if card.raw_form == "kaggle":
        # Kaggle's train.txt is the log of all splits, and its test.txt has no labels.
        data = [name for name in data if not unpacked_name(name).endswith(".txt")]
    csv = {split: [name for name in data if _stem(name) == split] for split in SPLIT_NAMES}
    for there in csv.values():
        if len(there) > 1:
            raise DataError(
                f"{folder}: has both {there[0]} and {there[1]}", hint="remove one of them"
            )
    missing = [split for split, there in csv.items() if not there]
    if not missing:
        return [_plain(folder / csv[split][0], split=i) for i, split in enumerate(SPLIT_NAMES)]
    if card.raw_form == "libsvm" and any(name.endswith(".libsvm") for name in names):
        return _libsvm(card, folder)
    kaggle = [name for name in names if card.raw_form == "kaggle" and name.lower() in _KAGGLE]
    if kaggle and len(missing) == len(SPLIT_NAMES):
        return find_sources(card, folder / kaggle[0])
    archives = [name for name in names if name.lower().endswith(".zip")]
    raise DataError(
        f"{folder}: missing {_listed(missing)}",
        hint=f"to read an archive, name it: --from {folder / archives[0]}"
        if archives
        else _also(card),
    )


def _libsvm(card: DatasetCard, folder: Path) -> list[LibsvmFile]:
    names = sorted(path.name for path in folder.iterdir())
    return [
        LibsvmFile(
            **_stored(folder / name)._asdict(),
            split=i,
            stored_bytes=_stored(folder / name).size,
            card=card,
        )
        for i, name in enumerate(_three(folder, names, _LIBSVM, base=str))
    ]


def _sizes(path: Path) -> dict[str, int]:
    """Bytes of each file in a zip."""
    with reading(path), zipfile.ZipFile(path) as archive:
        members = zip_members(archive, where=path)
    return {name: entry.file_size for name, entry in members.items()}


def _log_in_zip(path: Path) -> SourceFile:
    """The log in a zip, such as Kaggle's of Avazu: `train`, or the only file."""
    sizes = _sizes(path)
    logs = [name for name in sizes if unpacked_name(name) in ("train", "train.csv")]
    logs = logs or list(sizes)
    if len(logs) != 1:
        found = ", ".join(list(sizes)[:10]) or "nothing"
        raise DataError(
            f"{path}: expected one csv inside, found {len(logs)} ({found})",
            hint="unpack it, and name the file",
        )
    return SourceFile(**_stored(path)._asdict(), member=logs[0], stored_bytes=sizes[logs[0]])


def _in_zip(card: DatasetCard, path: Path) -> Sequence[SourceFile]:
    sizes = _sizes(path)
    stored, names = _stored(path)._asdict(), list(sizes)
    base = {name: unpacked_name(name) for name in names}
    if card.raw_form == "libsvm" and any(end.endswith(".libsvm") for end in base.values()):
        return [
            LibsvmFile(
                **stored,
                member=name,
                split=i,
                stored_bytes=sizes[name],
                card=card,
            )
            for i, name in enumerate(_three(path, names, _LIBSVM, base=base.__getitem__))
        ]
    kaggle = [name for name in names if card.raw_form == "kaggle" and base[name] == _KAGGLE_MEMBER]
    if len(kaggle) == 1:
        return [KaggleFile(**stored, member=kaggle[0], stored_bytes=sizes[kaggle[0]])]
    patterns = {split: f"{split}.csv" for split in SPLIT_NAMES}
    return [
        SourceFile(**stored, member=name, split=i, stored_bytes=sizes[name])
        for i, name in enumerate(_three(path, names, patterns, base=base.__getitem__))
    ]


def _three(
    where: Path, names: Sequence[str], patterns: dict[str, str], *, base: Callable[[str], str]
) -> list[str]:
    """For each pattern the one name whose `base` matches it.

    Raises DataError if there is none or more than one.
    """
    chosen = []
    for pattern in patterns.values():
        fitting = [name for name in names if fnmatch.fnmatch(base(name), pattern)]
        if len(fitting) != 1:
            found = ", ".join(names[:10]) or "nothing"
            raise DataError(
                f"{where}: expected one {pattern} inside, found {len(fitting)} ({found})"
            )
        chosen += fitting
    return chosen


def differences(
    card: DatasetCard, inputs: Sequence[InputFile], positives: Sequence[int]
) -> list[str]:
    """Lines for a message: each MD5, row count or count of positives that differs from the card.

    `inputs` and `positives` are in the order of SPLIT_NAMES.
    """
    lines = []
    for (split, expected), file, positive in zip(
        card.files.items(), inputs, positives, strict=True
    ):
        if expected.md5 not in _forms(file):
            found = " or, with its CRLF, ".join(_forms(file))
            lines.append(f"{split}.csv: expected md5 {expected.md5}, found {found}")
        for what, wanted, counted in (
            ("rows", expected.rows, file.rows),
            ("positives", expected.positives, positive),
        ):
            if wanted != counted:
                lines.append(f"{split}.csv: expected {what} {wanted:,}, found {counted:,}")
    return lines


def _forms(file: InputFile) -> list[str]:
    """The MD5 of a file with line feeds alone, and with CRLF where that was taken."""
    return [md5 for md5 in (file.md5, file.md5_as_stored, file.md5_with_crlf) if md5 is not None]


def likely_cause(card: DatasetCard, inputs: Sequence[InputFile], positives: Sequence[int]) -> str:
    """A guess, for a message, why the files differ from the published ones."""
    expected = list(card.files.values())
    known = {file.md5: split for split, file in card.files.items()}
    moved = [
        f"{split}.csv holds the published {known[md5]}.csv"
        for split, file in zip(card.files, inputs, strict=True)
        for md5 in _forms(file)
        if known.get(md5, split) != split
    ]
    if moved:
        return f"{'; '.join(moved)}: the files were renamed"
    rows = [file.rows for file in inputs]
    wanted_rows = [file.rows for file in expected]
    if rows == wanted_rows:
        if list(positives) == [file.positives for file in expected]:
            return "the same rows, written differently (number format, order, or line ends)"
        return "another split of the same log, such as one drawn again by another library version"
    if sum(rows) == sum(wanted_rows):
        return "the same log, split differently"
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
    """Lines for a message: each field whose number of train values differs from the card."""
    return [
        f"{column.name}: expected {column.train_values:,} train values, found"
        f" {found[column.name]:,}"
        for column in card.fields
        if column.train_values is not None and column.train_values != found[column.name]
    ]

"""Raw files that are compressed, and zips that somebody else has packed."""

import bz2
import gzip
import lzma
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from prime_bench.base.errors import DataError
from prime_bench.data.manifest import resolve
from prime_bench.data.prepare import prepare

PACK: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "GZ": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
}
ZSTD = b"\x28\xb5\x2f\xfd"
WriteCsv = Callable[[Path, Sequence[str | bytes]], Path]


@pytest.fixture
def log(tmp_path: Path, csv: WriteCsv, raw_log: list[str]) -> Path:
    return csv(tmp_path / "train.csv", raw_log)


def fingerprint(tmp_path: Path, source: Path, *, name: str = "avazu-raw") -> str:
    folder = tmp_path / f"data of {source.name}"
    spec = resolve(name, {})
    return prepare(spec, data_dir=folder, source=source, allow_unverified=True).fingerprint


def zipped(path: Path, members: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


@pytest.mark.parametrize("ending", PACK)
def test_a_compressed_log_is_read(tmp_path: Path, log: Path, ending: str) -> None:
    file = tmp_path / f"a.csv.{ending}"
    file.write_bytes(PACK[ending](log.read_bytes()))
    assert fingerprint(tmp_path, file) == fingerprint(tmp_path, log)


@pytest.mark.parametrize("ending", ["bz2", "xz"])
@pytest.mark.parametrize("fault", ["cut", "flipped"])
def test_a_damaged_one_is_bad_data(tmp_path: Path, log: Path, ending: str, fault: str) -> None:
    file = tmp_path / f"a.csv.{ending}"
    content = bytearray(PACK[ending](log.read_bytes()))
    middle = len(content) // 2
    if fault == "cut":
        del content[middle:]
    else:
        content[middle : middle + 8] = bytes(8)
    file.write_bytes(content)
    with pytest.raises(DataError, match="is cut short" if fault == "cut" else "is damaged"):
        fingerprint(tmp_path, file)


@pytest.mark.parametrize(
    ("pack", "kind", "program"),
    [
        (lambda content: gzip.compress(gzip.compress(content)), "gzip", "gunzip"),
        (lambda content: gzip.compress(bz2.compress(content)), "bzip2", "bunzip2"),
        (lambda content: gzip.compress(ZSTD + content), "zstd", "unzstd"),
    ],
)
def test_what_is_not_unpacked_is_named(
    tmp_path: Path, log: Path, pack: Callable[[bytes], bytes], kind: str, program: str
) -> None:
    """Advice about line ends would be followed, and destroy the file."""
    file = tmp_path / "a.csv.gz"
    file.write_bytes(pack(log.read_bytes()))
    with pytest.raises(DataError, match=rf"is compressed \({kind}\)") as error:
        fingerprint(tmp_path, file)
    assert f"`{program}`" in error.value.hint
    assert "dos2unix" not in error.value.hint


@pytest.mark.parametrize(
    "names",
    [("train.gz", "test.gz"), ("avazu/train.csv.gz", "x"), ("a\\train.csv", "b"), ("only.csv",)],
)
def test_the_log_in_a_zip_is_found(tmp_path: Path, log: Path, names: tuple[str, ...]) -> None:
    content = log.read_bytes()
    first = gzip.compress(content) if names[0].endswith(".gz") else content
    members = {"__MACOSX/._x": b"x", names[0]: first, **dict.fromkeys(names[1:], b"x")}
    file = zipped(tmp_path / "a.ZIP", members)
    assert fingerprint(tmp_path, file) == fingerprint(tmp_path, log)


def test_a_zip_without_a_log_that_is_the_one_says_what_it_has(tmp_path: Path) -> None:
    file = zipped(tmp_path / "a.zip", {"one.csv": b"", "two.csv": b""})
    with pytest.raises(DataError, match=r"expected one csv inside, found 2 \(one.csv, two.csv\)"):
        fingerprint(tmp_path, file)


@pytest.mark.parametrize("ending", ["gz", "xz"])
def test_splits_are_read_from_a_folder_and_a_zip(
    tmp_path: Path, avazu_folder: Path, ending: str
) -> None:
    expected = fingerprint(tmp_path, avazu_folder, name="avazu")
    packed = tmp_path / "packed"
    packed.mkdir()
    for split in ("train", "valid", "test"):
        content = (avazu_folder / f"{split}.csv").read_bytes()
        (packed / f"{split}.csv.{ending}").write_bytes(PACK[ending](content))
    file = zipped(
        tmp_path / "a.zip", {f"x\\{path.name}": path.read_bytes() for path in packed.iterdir()}
    )
    assert fingerprint(tmp_path, packed, name="avazu") == expected
    assert fingerprint(tmp_path, file, name="avazu") == expected


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_two_members_of_one_name_are_refused(tmp_path: Path, avazu_folder: Path) -> None:
    """The second one would replace the first, and other rows be read."""
    file = tmp_path / "a.zip"
    with zipfile.ZipFile(file, "w") as archive:
        for split in ("train", "valid", "test"):
            archive.write(avazu_folder / f"{split}.csv", f"{split}.csv")
        archive.write(avazu_folder / "valid.csv", "train.csv")
    with pytest.raises(DataError, match=r"has two members called 'train\.csv'"):
        fingerprint(tmp_path, file, name="avazu")

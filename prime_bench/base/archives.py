"""Members of zip archives that somebody else has made."""

import lzma
import struct
import zipfile
import zlib
from pathlib import Path, PurePosixPath

from prime_bench.base.errors import DataError

UNREADABLE = (
    ValueError,
    EOFError,
    RuntimeError,
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    struct.error,
)
"""What zipfile raises, beside OSError, for content that is damaged, encrypted or packed by a method
that it lacks."""
_OF_SYSTEMS = (".DS_Store", "Thumbs.db", "desktop.ini")
_CHUNK_BYTES = 4096
_NAME_LETTERS = 100
"""Letters of a member's name that a message repeats."""


def zip_members(archive: zipfile.ZipFile, *, where: Path) -> dict[str, zipfile.ZipInfo]:
    """The files in an archive by name, with `/` between folders.

    Folders are left out, as is what macOS and Windows add to the files of a folder. Raises
    DataError where two members have one name: which of them counts would be chance.
    """
    found: dict[str, zipfile.ZipInfo] = {}
    for entry in archive.infolist():
        # Some programs on Windows write the separator of Windows into the archive.
        name = entry.filename.replace("\\", "/")
        parts = PurePosixPath(name).parts
        if name.endswith("/") or not parts or "__MACOSX" in parts:
            continue
        if parts[-1] in _OF_SYSTEMS or parts[-1].startswith("._"):
            continue
        if name in found:
            raise DataError(
                f"{where}: has two members called {shown(name)}",
                hint="unpack it, and pack it again with one of them",
            )
        found[name] = entry
    return found


def read_member(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, *, most_bytes: int) -> bytes:
    """The content of a member of at most `most_bytes`; little more than these are unpacked.

    Raises OSError and those in `UNREADABLE`; ValueError where the member is longer.
    """
    content = bytearray()
    with archive.open(entry) as file:
        # In small pieces: bzip2 and LZMA unpack all of a piece at once, some 20,000 times its size.
        while piece := file.read(_CHUNK_BYTES):
            content += piece
            if len(content) > most_bytes:
                raise ValueError(f"{shown(entry.filename)} has more than {most_bytes:,} bytes")
    return bytes(content)


def shown(name: str) -> str:
    """A member's name as a message repeats it: quoted, and not longer than a line."""
    return repr(name[:_NAME_LETTERS])

"""Download archives of raw files from the Hugging Face hub or a mirror; broken downloads resume.

`huggingface_hub` looks up size and digest and provides the HTTP session, which honours the user's
proxy and the variables of the hub (HF_ENDPOINT names another hub, HF_HUB_OFFLINE=1 forbids
requests). Its `hf_hub_download` is not used: since version 2 it deletes a partial file when it is
interrupted, and downloads of gigabytes must be able to resume.
"""

import contextlib
import email.utils
import hashlib
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

from prime_bench.base.errors import DataError, EnvironmentFault
from prime_bench.base.files import environment_fault, sha256_of, sync_folder
from prime_bench.base.hub import (
    check_variables,
    http_library,
    hub_address,
    proxy_variable,
    reason_of,
    status_of,
)
from prime_bench.data.card import CardArchive
from prime_bench.data.manifest import TableSpec
from prime_bench.data.publish import check_space, gigabytes, sole_writer, table_bytes
from prime_bench.data.stages import OnProgress, StageProgress, no_log, no_progress

WAITS_S = (1, 2, 4, 8, 16)
"""Seconds to wait before each further attempt if a server is busy or the connection breaks."""
_DIGEST = re.compile("[0-9a-f]{64}")
_NO_HEAD = (405, 501)
_WHOLE, _NO_SUCH_RANGE = 200, 416
_PARTIAL = 206
_PART = ".part"
_LONGEST_WAIT_S = 300
"""A server that asks for a longer wait (Retry-After) is not waited for."""
_SLOW_BYTES, _SLOW_S = 1 << 16, 60
"""A connection that brings fewer bytes in these seconds counts as broken."""
_GAIN_BYTES, _GAIN_PERCENT = 1 << 20, 1
"""What further attempts must have brought, one or the other, before waits are short again."""


@contextlib.contextmanager
def downloaded(
    spec: TableSpec,
    data_dir: Path,
    *,
    keep: bool = False,
    log: Callable[[str], None] = no_log,
    on_progress: OnProgress = no_progress,
) -> Iterator[Path]:
    """Download the first available archive of the card below `data_dir`, and yield its path.

    An archive that is there already is used, a partial one is resumed; both stay after an error or
    a kill. If the block raises DataError, because the content is wrong, the archive is deleted
    unless `keep`. Other processes wait until the block ends.

    Raises EnvironmentFault if no archive is available or the disk is too small, DataError if a
    server sent other bytes than it announced.
    """
    folder = data_dir / ".downloads" / spec.name
    with _removing_empty(folder), sole_writer(folder, log=log):
        folder.mkdir(exist_ok=True)
        path = _Fetcher(spec, folder, log=log, on_progress=on_progress).fetch()
        try:
            yield path
        except DataError as error:
            if keep:
                raise
            shutil.rmtree(folder)
            deleted = (
                "the download was deleted; the next run downloads again (--keep-download keeps it)"
            )
            hint = f"{error.hint}\n{deleted}" if error.hint else deleted
            raise DataError(error.message, hint=hint) from error


def files_needed(spec: TableSpec) -> list[str]:
    """Lines for a message that list the raw files of the card: name, MD5, rows."""
    card = spec.card
    if card.kind == "log":
        return [f"  a csv (or .csv.gz) file with header {','.join(card.header)}"]
    if not card.files:
        return [f"  train.csv, valid.csv and test.csv with header {','.join(card.header)}"]
    lines = [
        f"  {split}.csv  md5 {file.md5}  {file.rows:,} rows" for split, file in card.files.items()
    ]
    return [*lines, "each may be .csv.gz, or all three in the published .zip"]


def how_to_get(spec: TableSpec) -> str:
    """A hint that says where to get the raw files by hand and what to run then."""
    command = spec.prepare_command(source="PATH")
    if spec.file is not None and not spec.card.archives:
        return f"run `{command}`, with the path of the data"
    where = ", ".join([spec.card.homepage, *(address(a) for a in spec.card.archives)])
    return f"get it from {where} and run `{command}`"


def address(archive: CardArchive) -> str:
    """The URL of an archive; HF_ENDPOINT names another host of the hub."""
    if archive.url is not None:
        return archive.url
    return f"{hub_address()}/datasets/{archive.repository}/resolve/main/{archive.file}"


@contextlib.contextmanager
def _removing_empty(folder: Path) -> Iterator[None]:
    try:
        yield
    finally:
        for path in (folder, folder.parent):
            with contextlib.suppress(OSError):
                path.rmdir()


@dataclass(frozen=True, kw_only=True)
class _Remote:
    """Size and digest of a file, as the server announces them."""

    etag: str = ""
    size: int | None = None


class _Wrong(Exception):
    """A server sent other bytes than it announced."""


class _Unavailable(Exception):
    """The file cannot be had from a server."""


class _BrokenOff(OSError):
    """Fewer or more bytes arrived than the server announced."""


@dataclass
class _Fetcher:
    """Downloads an archive of a card into `folder`, from whichever server has it."""

    spec: TableSpec
    folder: Path
    log: Callable[[str], None] = field(kw_only=True)
    on_progress: OnProgress = field(kw_only=True)
    checked: set[str] = field(default_factory=set)
    """Archives for which the free disk space was checked."""

    def fetch(self) -> Path:
        """The path of the first archive of the card that can be downloaded completely."""
        archives = self.spec.card.archives
        for archive in archives:
            if (self.folder / archive.file).is_file():
                self.log(f"using the earlier download {self.folder / archive.file}")
                return self.folder / archive.file
        check_variables()
        faults: list[str] = []
        wrong = False
        for archive in archives:
            if faults:
                self.log(f"{faults[-1].strip()}; trying {address(archive)}")
            try:
                return self._try(archive)
            except (_Unavailable, _Wrong) as error:
                wrong |= isinstance(error, _Wrong)
                faults.append(f"  {address(archive)}: {error}")
        proxy = proxy_variable()
        message = "\n".join(
            [
                f"{self.spec.name}: could not be downloaded",
                *faults,
                *([f"the network was reached through the proxy of {proxy}"] if proxy else []),
                "these files are needed:",
                *files_needed(self.spec),
            ]
        )
        kind = DataError if wrong else EnvironmentFault
        raise kind(message, hint=how_to_get(self.spec))

    def _try(self, archive: CardArchive) -> Path:
        """Download one archive, with several attempts. Raises _Unavailable or _Wrong."""
        http = http_library()
        waits_s, reached = iter(WAITS_S), self._bytes_there()
        while True:
            try:
                return self._fetch(archive)
            except (http.HTTPError, OSError) as error:
                if not isinstance(error, http.HTTPError) and environment_fault(error) is not None:
                    raise
                # Of all attempts: one may have started over.
                gain = self._bytes_there() - reached
                if gain >= _GAIN_BYTES or 100 * gain >= _GAIN_PERCENT * archive.size:
                    waits_s, reached = iter(WAITS_S), reached + gain
                wait_s: float | None = next(waits_s, None)
                if wait_s is None or not _is_transient(error):
                    raise _Unavailable(reason_of(error)) from error
                asked_s = _retry_after_s(error)
                if asked_s > _LONGEST_WAIT_S:
                    asks = f"it asks for {asked_s:,.0f} s until the next attempt"
                    raise _Unavailable(f"{reason_of(error)}, and {asks}") from error
                asks = ", as it asks for" if asked_s > wait_s else ""
                wait_s = max(wait_s, asked_s)
                self.log(
                    f"{address(archive)}: {reason_of(error)}; next attempt in {wait_s:g} s{asks}"
                )
                time.sleep(wait_s)

    def _bytes_there(self) -> int:
        return sum(part.stat().st_size for part in self.folder.glob(f"*{_PART}"))

    def _fetch(self, archive: CardArchive) -> Path:
        """One attempt. Raises HTTPError, OSError or _Wrong."""
        url = address(archive)
        remote = _look_at(url)
        part = self._part_of(archive, remote)
        there = part.stat().st_size if part.exists() else 0
        size = archive.size if remote.size is None else remote.size
        self._check_space(archive, size - there)
        resumed = f", from {gigabytes(there)} on" if there else ""
        self.log(f"downloading {url} ({gigabytes(size)}{resumed})")
        with part.open("ab") as file:
            if there == 0 or there != remote.size:
                self._receive(url, file, total=size, announced=remote.size)
            os.fsync(file.fileno())
            done = file.tell()
        if remote.size is not None and done != remote.size:
            if done > remote.size:
                part.unlink()
            raise _BrokenOff(f"got {done:,} of {remote.size:,} bytes")
        if _DIGEST.fullmatch(remote.etag) and (found := sha256_of(part)) != remote.etag:
            part.unlink()
            raise _Wrong(f"expected sha256 {remote.etag}, got {found}")
        part.rename(self.folder / archive.file)
        sync_folder(self.folder)
        return self.folder / archive.file

    def _receive(self, url: str, file: IO[bytes], *, total: int, announced: int | None) -> None:
        """Append the rest of the content; start over if the server cannot resume.

        Raises HTTPError, and _BrokenOff if the server sends another part or hardly anything.
        """
        from huggingface_hub import constants, get_session

        there = file.tell()
        # The offsets of a compressed response would not be those of the file.
        headers = {"Accept-Encoding": "identity"}
        if there:
            headers["Range"] = f"bytes={there}-"
        timeout_s = constants.HF_HUB_DOWNLOAD_TIMEOUT
        with get_session().stream("GET", url, headers=headers, timeout=timeout_s) as answer:
            if answer.status_code == _NO_SUCH_RANGE or (there and answer.status_code == _WHOLE):
                file.seek(file.truncate(0))
            answer.raise_for_status()
            if answer.status_code == _PARTIAL:
                sent = answer.headers.get("Content-Range", "no Content-Range")
                if not _continues(sent, there, announced):
                    file.truncate(0)
                    raise _BrokenOff(f"asked for the bytes from {there:,} on, got {sent}")
            since_s, since_bytes = time.monotonic(), file.tell()
            for piece in answer.iter_raw():
                left = len(piece) if announced is None else announced - file.tell()
                file.write(piece[:left])
                done = file.tell()
                # The card's estimate can be too small.
                now = StageProgress(stage="downloading", done=done, total=max(done, total), rows=0)
                self.on_progress(now)
                if len(piece) > left:
                    self.log(f"{url}: sends more than the {announced:,} bytes that it announced")
                    return
                if time.monotonic() - since_s > _SLOW_S:
                    if done - since_bytes < _SLOW_BYTES:
                        raise _BrokenOff(f"{done - since_bytes:,} bytes in {_SLOW_S} s")
                    since_s, since_bytes = time.monotonic(), done

    def _part_of(self, archive: CardArchive, remote: _Remote) -> Path:
        """The partial file. Its name depends on size and digest, so that contents never mix."""
        content = hashlib.sha256(f"{remote.etag} {remote.size}".encode()).hexdigest()[:8]
        part = self.folder / f"{archive.file}.{content}{_PART}"
        for other in self.folder.glob(f"{archive.file}.*{_PART}"):
            if other != part:
                other.unlink()
        return part

    def _check_space(self, archive: CardArchive, download_bytes: int) -> None:
        if archive.file in self.checked:
            return
        self.checked.add(archive.file)
        rows = sum(file.rows for file in self.spec.card.files.values())
        parts = {"download": download_bytes}
        parts |= table_bytes(rows=rows, n_fields=len(self.spec.card.fields))
        check_space(self.folder.parent.parent, parts, log=self.log)


def _look_at(url: str) -> _Remote:
    """Ask the server for the size and the digest of a file."""
    from huggingface_hub import get_hf_file_metadata

    try:
        metadata = get_hf_file_metadata(url, token=False)
    except OSError as error:
        if status_of(error) in _NO_HEAD:
            return _Remote()
        raise
    return _Remote(etag=metadata.etag or "", size=metadata.size)


def _continues(content_range: str, there: int, announced: int | None) -> bool:
    """Whether a Content-Range (RFC 9110, 14.4) begins at `there`, in a file of the known size."""
    found = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", content_range.strip())
    if found is None or int(found[1]) != there:
        return False
    return announced is None or found[2] in ("*", str(announced))


def _retry_after_s(error: Exception) -> float:
    """Seconds for which the server asks, as a number or a date (RFC 9110, 10.2.3); 0 if it does
    not.
    """
    headers = getattr(getattr(error, "response", None), "headers", {})
    text = headers.get("Retry-After", "").strip()
    if text.isascii() and text.isdigit():
        return float(text)
    try:
        until = email.utils.parsedate_to_datetime(text)
    except ValueError:
        return 0
    if until.tzinfo is None:
        until = until.replace(tzinfo=UTC)
    return max(0.0, (until - datetime.now(UTC)).total_seconds())


def _is_transient(error: Exception) -> bool:
    """Whether another attempt may succeed: not if the file is missing or there is no network."""
    from huggingface_hub.errors import OfflineModeIsEnabled

    status = status_of(error)
    if status is not None:
        return status in (408, _NO_SUCH_RANGE, 429) or status >= 500
    http = http_library()
    never = (http.ConnectError, http.ConnectTimeout, OfflineModeIsEnabled)
    return not isinstance(error, (*never, http.TooManyRedirects, http.UnsupportedProtocol))

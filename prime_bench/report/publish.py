"""Put a publication into a folder or a repository of the Hugging Face hub, as one step.

Whoever reads, and whenever this process is killed, finds the old publication or the new one: on a
hub all files are one commit; in a folder, files of new names are written first, publication.json,
which says which of them count, is replaced then, and what it does not name is deleted last.
"""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from prime_bench.base.characters import visible
from prime_bench.base.errors import DataError, EnvironmentFault, UsageError
from prime_bench.base.files import (
    MOST_BYTES,
    PART_FILES,
    NotReadable,
    making,
    read_file,
    remove,
    sha256_of,
    write_whole,
    writing,
)
from prime_bench.base.locks import Busy, locked
from prime_bench.base.temporary import temporary_folder
from prime_bench.report.hub import EMPTY, SCHEME, Head, HubRepository
from prime_bench.report.publication import (
    MANIFEST,
    README,
    Publication,
    PublicationManifest,
    is_ours,
    make_publication,
    parse_manifest,
)
from prime_bench.report.request import pack
from prime_bench.store.runs import Runs

_LOCK = ".publish.lock"
_WORDS = ("title", "recipe", "by", "anonymous")
"""Keys of a manifest that differ where somebody says something else of the same records."""
Change = Literal["published", "replaced", "completed", "unchanged"]
"""What has happened: nothing was there; another publication was there; this one was, with a file
missing or damaged; this one was."""


@dataclass(frozen=True, kw_only=True)
class Published:
    """Where a publication is, and what was done for that."""

    place: str
    """The folder, or the address of the repository."""
    change: Change
    manifest: PublicationManifest
    commit: str | None = None
    """The commit of a hub that has the publication."""
    left_out: Sequence[str] = ()
    """A message for each record of the folder that cannot be read."""


class Target(Protocol):
    """Where a publication goes."""

    def check(self) -> None:
        """Raise what can be told before anything is made."""

    def put(self, made: Publication, *, replace: bool, message: str) -> Published:
        """Write the publication, unless it is there.

        Raises UsageError where something else is there, and `replace` is not given.
        """


def target_of(name: str, *, private: bool = False) -> Target:
    """Return the target that `--to` names: `hf:org/name`, or a folder.

    Raises UsageError for a name that no repository can have, and for a private folder.
    """
    if name.startswith(SCHEME):
        return HubTarget(HubRepository(name.removeprefix(SCHEME)), private=private)
    if private:
        raise UsageError(
            "--private goes with a repository of a hub", hint="permissions of a folder are yours"
        )
    return FolderTarget(Path(name))


def publish(
    what: str | Path,
    target: Target,
    *,
    changes: Sequence[str] = (),
    by: str = "",
    anonymous: bool = False,
    replace: bool = False,
    message: str = "",
    runs: Runs,
) -> Published:
    """Publish a recipe's records, or a bundle.

    Raises:
        UsageError: The recipe is faulty, or something else is published there.
        DataError: There is no record, or the bundle cannot be read.
        EnvironmentFault: Disk, permission, network.
    """
    if message and isinstance(target, FolderTarget):
        raise UsageError("--message is that of a commit: it goes with a repository of a hub")
    target.check()
    with temporary_folder() as folder:
        path = Path(what)
        left_out: list[str] = []
        if path.suffix != ".zip":
            path = folder / "bundle.zip"
            _, left_out = pack(what, path, changes=changes, runs=runs)
        elif changes:
            raise UsageError(
                f"--set {changes[0]}: a bundle has the settings under which it was packed"
            )
        made = make_publication(path, where=str(what), by=by, anonymous=anonymous)
    done = target.put(made, replace=replace, message=message or made.manifest.title)
    return Published(
        place=done.place,
        change=done.change,
        manifest=done.manifest,
        commit=done.commit,
        left_out=left_out,
    )


@dataclass(frozen=True)
class FolderTarget:
    """A folder that has a publication, or is empty, or is not there."""

    folder: Path

    def check(self) -> None:
        """Raise UsageError where the folder has other files, EnvironmentFault for no folder."""
        if self.folder.exists() and not self.folder.is_dir():
            raise EnvironmentFault(f"{self.folder}: a file is in the way", hint="name a folder")
        if self._has(MANIFEST):
            return
        others = sorted(path.name for path in self._files() if not is_ours(path.name))
        if others or self._has(README):
            raise UsageError(
                f"{self.folder}: has other files, such as {(others or [README])[0]}, and no "
                "publication",
                hint="name an empty folder, or one that does not exist",
            )

    def put(self, made: Publication, *, replace: bool, message: str) -> Published:  # noqa: ARG002
        """Write the publication, unless it is there."""
        # Which files a failure removes is found under the lock: those that were there before may be
        # another process's. Folders are removed without the lock, and only where they are empty.
        with _no_new_folders(self.folder), self._alone(), _all_or_nothing(self.folder, made):
            change = self._change(made, replace=replace)
            if change != "unchanged":
                for name, content in made.contents.items():
                    write_whole(self.folder / name, content)
                write_whole(self.folder / MANIFEST, made.manifest_text)
                write_whole(self.folder / README, made.readme)
            for path in self._left(made):
                remove(path)
        return Published(place=str(self.folder), change=change, manifest=made.manifest)

    def _change(self, made: Publication, *, replace: bool) -> Change:
        if not self._has(MANIFEST):
            return "published"
        there, fault = _manifest_in(self.folder, lenient=replace)
        if fault or there != made.manifest:
            _check_replace(there, made, where=str(self.folder), replace=replace)
            return "replaced"
        whole = all(
            (self.folder / name).is_file() and sha256_of(self.folder / name) == file.sha256
            for name, file in made.manifest.files.items()
        )
        return "unchanged" if whole and self._readme() == made.readme else "completed"

    def _readme(self) -> str | None:
        try:
            return read_file(self.folder / README).decode(errors="replace")
        except (FileNotFoundError, NotReadable):
            return None

    def _left(self, made: Publication) -> list[Path]:
        """Files of another version, and those of a process that was killed."""
        keep = {MANIFEST, README, *made.contents}
        return [path for path in self._files() if is_ours(path.name) and path.name not in keep] + [
            *self.folder.glob(PART_FILES)
        ]

    def _files(self) -> list[Path]:
        if not self.folder.is_dir():
            return []
        with writing(self.folder):
            return [path for path in self.folder.iterdir() if not path.name.startswith(".")]

    def _has(self, name: str) -> bool:
        return (self.folder / name).exists()

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Hold the lock of the folder, whose file is deleted at the end."""
        lock = self.folder / _LOCK
        try:
            with making(self.folder), locked(lock):
                try:
                    yield
                finally:
                    lock.unlink(missing_ok=True)
        except Busy as whose:
            raise EnvironmentFault(
                f"{self.folder}: {whose} publishes there", hint="try again when it has ended"
            ) from None


@contextlib.contextmanager
def _no_new_folders(folder: Path) -> Iterator[None]:
    """Remove the folders that the block has made, where it fails and leaves them empty."""
    absent = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        yield
    except BaseException:
        for path in absent:
            with contextlib.suppress(OSError):
                path.rmdir()
        raise


@contextlib.contextmanager
def _all_or_nothing(folder: Path, made: Publication) -> Iterator[None]:
    """Remove the files that the block has made, where it fails before the manifest."""
    new = [folder / name for name in made.contents if not (folder / name).exists()]
    try:
        yield
    except BaseException:
        with contextlib.suppress(OSError, DataError):
            if (folder / MANIFEST).exists() and manifest_of(folder) == made.manifest:
                new = []
        for path in new:
            with contextlib.suppress(OSError):
                path.unlink()
        raise


@dataclass(frozen=True)
class HubTarget:
    """A data set repository of a hub, which need not exist."""

    repository: HubRepository
    private: bool = False

    def check(self) -> None:
        """Raise EnvironmentFault without a token."""
        self.repository.check_token()

    def put(self, made: Publication, *, replace: bool, message: str) -> Published:
        """Write the publication by one commit, unless it is there."""
        head = self.repository.head()
        change: Change = "published"
        if head is not None:
            change = self._change(head, made, replace=replace)
        commit = head.commit if head else None
        if change != "unchanged":
            texts = {MANIFEST: made.manifest_text.encode(), README: made.readme.encode()}
            old = head.files if head else ()
            files = {**made.contents, **texts}
            commit = self.repository.commit(
                files,
                delete=sorted(name for name in old if is_ours(name) and name not in files),
                head=head,
                private=self.private,
                message=message,
            )
        return Published(
            place=self.repository.address, change=change, manifest=made.manifest, commit=commit
        )

    def _change(self, head: Head, made: Publication, *, replace: bool) -> Change:
        where = str(self.repository)
        if self.private and not head.private:
            raise UsageError(
                f"{where}: is public, and --private makes a new repository private alone",
                hint=f"change it at {self.repository.address}/settings, or name another one",
            )
        if MANIFEST not in head.files:
            others = sorted(head.files - EMPTY)
            if others:
                raise UsageError(
                    f"{where}: has other files, such as {others[0]}, and no publication",
                    hint="name an empty repository, or one that does not exist",
                )
            return "published"
        there, fault = manifest_on(self.repository, head, lenient=replace)
        if fault or there != made.manifest:
            _check_replace(there, made, where=where, replace=replace)
            return "replaced"
        return "unchanged" if head.files >= {README, *made.contents} else "completed"


def manifest_on(
    repository: HubRepository, head: Head, *, lenient: bool = False
) -> tuple[PublicationManifest | None, str]:
    """Return the manifest of a publication on a hub.

    With `lenient`, None and a message in place of a DataError where it cannot be read.
    """
    content = repository.read(MANIFEST, commit=head.commit, most_bytes=MOST_BYTES)
    return _parsed(content, where=f"{repository}: {MANIFEST}", lenient=lenient)


def manifest_of(folder: Path) -> PublicationManifest:
    """Return the manifest of a publication in a folder. Raises DataError."""
    found, _ = _manifest_in(folder)
    assert found is not None  # noqa: S101  # else it has raised
    return found


def _manifest_in(folder: Path, *, lenient: bool = False) -> tuple[PublicationManifest | None, str]:
    path = folder / MANIFEST
    try:
        content = read_file(path)
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from error
    return _parsed(content, where=str(path), lenient=lenient)


def _parsed(content: bytes, *, where: str, lenient: bool) -> tuple[PublicationManifest | None, str]:
    try:
        return parse_manifest(content, where=where), ""
    except DataError as error:
        if not lenient:
            raise
        return None, error.message


def _check_replace(
    there: PublicationManifest | None, made: Publication, *, where: str, replace: bool
) -> None:
    if replace:
        return
    assert there is not None  # noqa: S101  # without `replace` a faulty one has raised
    raise UsageError(
        f"{where}: has another publication, {_named(there)}: {_difference(there, made.manifest)}",
        hint="--replace puts this one in its place",
    )


def _named(manifest: PublicationManifest) -> str:
    told = f"`{manifest.title}`" + (f" by {manifest.by}" if manifest.by else "")
    return visible(told)  # Somebody else has written it, perhaps in several lines.


def _difference(there: PublicationManifest, here: PublicationManifest) -> str:
    """The numbers of records in which two publications differ; if there are none, what differs."""
    old, new = there.records, here.records
    counts = {
        "new": len(new.keys() - old.keys()),
        "changed": sum(old[job] != new[job] for job in old.keys() & new.keys()),
        "gone": len(old.keys() - new.keys()),
    }
    told = ", ".join(f"{number} {what}" for what, number in counts.items() if number)
    if told:
        return f"of its records {told}"
    old_words, new_words = there.plain(), here.plain()
    words = [key for key in _WORDS if old_words[key] != new_words[key]]
    return f"its records are the same, but not: {', '.join(words or ['bundle, page'])}"

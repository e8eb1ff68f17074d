"""A publication: a bundle, the page of its report, and a manifest, where others find them.

    publication.json          what it is, with the digest of each other file but README.md
    bundle-<8 digits>.zip     the records; the digits are the first of its digest
    report-<8 digits>.html    the page of the report, which needs no other file
    README.md                 publication.json for people, and for the page of a hub

The same records and words give the same bytes. Files whose names follow from their content are
never written to: another version is written beside them, and publication.json, which names those
that count, is replaced by one step.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pydantic

from prime_bench.base.errors import DataError, UsageError
from prime_bench.base.frozen import Frozen
from prime_bench.data.manifest import read_cards, resolve
from prime_bench.report.bundle import Bundle, bundle_of, read_bundle
from prime_bench.report.formats.markdown import escaped
from prime_bench.report.formats.templates import text_templates
from prime_bench.report.provenance import provenance_of
from prime_bench.report.quantities.layout import arm_label, backbone_label, catalogue_rank
from prime_bench.report.request import ReportRequest
from prime_bench.report.sources import source_of
from prime_bench.report.tables.model import Provenance
from prime_bench.report.view import ReportView
from prime_bench.store.record import Record, RunRecord, sealed
from prime_bench.store.runs import CONFIG, ENVIRONMENT, RECORD

MANIFEST, README = "publication.json", "README.md"
_OURS = re.compile(r"bundle-[0-9a-f]{8}\.zip|report-[0-9a-f]{8}\.html")
_FOLDERS = ("table", "runs")
"""Keys of config.json with the folders of the table and of the records."""
_MACHINE = ("host", "node")
"""Keys of an environment that name the machine."""


class PublishedFile(Frozen):
    """A file of a publication."""

    sha256: str
    bytes: int


class PublishedData(Frozen):
    """A data set behind the records. No row of it is in a publication."""

    name: str
    """Name of its card."""
    title: str
    licence: str = ""
    """Under which terms the data may be used, as its card says; empty: it does not say."""
    homepage: str = ""
    fingerprints: list[str]
    """Digests of the prepared tables."""
    verified: bool | Literal["own"]
    """Whether all tables matched the digests of the card; `own`: own data, without published
    digests."""


class PublicationManifest(Frozen):
    """publication.json: what a publication has, who made it, and where."""

    publication_schema: Literal[1] = pydantic.Field(1, alias="schema")
    title: str
    recipe: str
    """The recipe as it was asked for, with the keys that `--set` changed."""
    by: str = ""
    """Who publishes, as they call themselves; empty: they do not say."""
    anonymous: bool = False
    """Whether names of machines and folders were left out of the records."""
    sealed_again: list[str] = []
    """Jobs whose record has new digests, because names of folders or machines were left out of
    it or of the files beside it."""
    hosts: list[str]
    """Machines on which the jobs ran, as far as records say."""
    datasets: list[PublishedData]
    backbones: list[str]
    arms: list[str]
    seeds: list[int]
    kinds: dict[str, int]
    """Kind of job -> number of records."""
    provenance: Provenance
    """Commits, versions, devices and dates of the jobs."""
    bundle: str
    """Name of the bundle among `files`."""
    page: str
    """Name of the report's page among `files`."""
    files: dict[str, PublishedFile]
    """Every file but README.md and this one, by name."""
    records: dict[str, str]
    """SHA-256 of each record.json in the bundle, by job id."""


@dataclass(frozen=True, kw_only=True)
class Publication:
    """A publication in memory."""

    manifest: PublicationManifest
    contents: Mapping[str, bytes]
    """Content of each file in `manifest.files`, by name."""

    @property
    def manifest_text(self) -> str:
        """The manifest as publication.json has it: indented JSON that ends in a line feed."""
        return json.dumps(self.manifest.plain(), indent=1, ensure_ascii=False) + "\n"

    @property
    def readme(self) -> str:
        """Content of README.md, which follows from the manifest."""
        return (
            text_templates()
            .get_template("publication.md.j2")
            .render(
                made=self.manifest,
                escaped=escaped,
                quoted=lambda text: json.dumps(text, ensure_ascii=False),
                backbones=[backbone_label(name) for name in self.manifest.backbones],
                arms=[arm_label(name) for name in self.manifest.arms],
            )
        )


def is_ours(name: str) -> bool:
    """Whether a file of this name belongs to a publication."""
    return name in (MANIFEST, README) or _OURS.fullmatch(name) is not None


def parse_manifest(content: bytes, *, where: str) -> PublicationManifest:
    """Return the manifest in the content of a publication.json.

    Raises DataError where it is none; `where` is its name in the message.
    """
    try:
        table = json.loads(content)
        if not isinstance(table, dict):
            raise TypeError("not a JSON object")
        manifest = PublicationManifest.parse(table, where="")
        # Readers open these by name, and somebody else has written it.
        names = {manifest.bundle, manifest.page}
        if names - manifest.files.keys() or not all(map(_OURS.fullmatch, names)):
            raise ValueError("it names no bundle or page of its own")
        return manifest
    except (ValueError, TypeError, RecursionError, UsageError) as error:
        raise DataError(
            f"{where}: not the manifest of a publication: {error}",
            hint="prime-bench publish RECIPE --to DIR makes one",
        ) from error


def packed_in(manifest: PublicationManifest, content: bytes, *, where: Path) -> Bundle:
    """Return the bundle of a publication from its content.

    Raises DataError where that is not the bundle that was published.
    """
    if hashlib.sha256(content).hexdigest() != manifest.files[manifest.bundle].sha256:
        raise DataError(f"{where}: not the bundle that was published", hint="publish it again")
    return read_bundle(where, content)


def make_publication(
    path: Path, *, where: str = "", by: str = "", anonymous: bool = False
) -> Publication:
    """Make a publication of a bundle.

    Args:
        path: The bundle.
        where: What messages call it; by default its path.
        by: Who publishes, in their own words.
        anonymous: Whether to leave out the names of machines and folders.

    Raises:
        DataError: The file is no bundle, has a record that cannot be read, or names the user's
            home where it cannot be left out.
    """
    where = where or str(path)
    bundle = read_bundle(path)
    if bundle.unreadable:
        raise DataError(
            f"{where}: a record cannot be read: {bundle.unreadable[0]}", hint="pack it again"
        )
    content = path.read_bytes()
    cleaned, changed = _cleaned(bundle, anonymous=anonymous)
    if changed:
        _, content = bundle_of(cleaned, recipe=bundle.recipe, jobs=bundle.jobs, where=path)
        bundle = read_bundle(path, content)
    page = _page(bundle)
    _check_home(bundle, page, where=where)
    named = {_named("bundle", content, "zip"): content, _named("report", page, "html"): page}
    bundle_name, page_name = named
    manifest = _manifest(
        bundle,
        by=by,
        anonymous=anonymous,
        sealed_again=changed,
        bundle_name=bundle_name,
        page_name=page_name,
        files={
            name: PublishedFile(sha256=hashlib.sha256(own).hexdigest(), bytes=len(own))
            for name, own in named.items()
        },
    )
    return Publication(manifest=manifest, contents=named)


def _named(stem: str, content: bytes, ending: str) -> str:
    return f"{stem}-{hashlib.sha256(content).hexdigest()[:8]}.{ending}"


def _page(bundle: Bundle) -> bytes:
    """The page of the bundle's report."""
    report, records = ReportRequest(recipe=bundle.path).report(source_of(bundle))
    return ReportView(report=report, _records=records).render("html").encode()


def _cleaned(bundle: Bundle, *, anonymous: bool) -> tuple[dict[str, dict[str, bytes]], list[str]]:
    """The files of each job without what is not to be published, and the jobs that have changed.

    Of the path of a folder outside the working folder the last name stays, and nothing with
    `anonymous`. A record whose own content, or whose files, have changed has new digests.
    """
    cleaned: dict[str, dict[str, bytes]] = {}
    changed = []
    for record in bundle.records:
        job_id = record.job_id
        files = dict(bundle.files[job_id])
        for name in files:
            files[name] = _without(name, files[name], anonymous=anonymous)
        others = {name: files[name] for name in files if files[name] != bundle.files[job_id][name]}
        bare = _nameless(record) if anonymous else record
        content = bundle.contents[job_id]
        if bare != record or others:
            content = _sealed(bare, others)
            changed.append(job_id)
        cleaned[job_id] = {RECORD: content, **files}
    return cleaned, changed


def _sealed(record: Record, changed: Mapping[str, bytes]) -> bytes:
    """The record with digests of itself and of the files that have changed beside it.

    A record of a version before digests stays without.
    """
    if record.digests is not None:
        new = {name: hashlib.sha256(content).hexdigest() for name, content in changed.items()}
        record = sealed(record, {**record.digests.files, **new})
    return (json.dumps(record.plain(), indent=2, allow_nan=False) + "\n").encode()


def _nameless(record: Record) -> Record:
    environment = record.environment.model_copy(update=dict.fromkeys(_MACHINE))
    return record.model_copy(update={"environment": environment})


def _without(name: str, content: bytes, *, anonymous: bool) -> bytes:
    """The content of a config.json or environment.json without what is not to be published."""
    try:
        table = json.loads(content)
    except (ValueError, RecursionError):
        return content
    if not isinstance(table, dict):
        return content
    new = dict(table)
    if name == CONFIG:
        for key in _FOLDERS:
            if isinstance(path := table.get(key), str):
                outside = Path(path).is_absolute() or ".." in Path(path).parts
                new[key] = "" if anonymous else Path(path).name if outside else path
    if name == ENVIRONMENT and anonymous:
        new |= {key: None for key in _MACHINE if key in table}
    return content if new == table else (json.dumps(new, indent=2) + "\n").encode()


def _check_home(bundle: Bundle, page: bytes, *, where: str) -> None:
    """Raise DataError where the user's home is named in what would be published."""
    home = str(Path.home())
    if len(Path(home).parts) < 2:
        return
    spelt = {home.encode(), json.dumps(home)[1:-1].encode()}
    for name, content in _texts(bundle, page):
        for number, line in enumerate(content.splitlines(), start=1):
            if any(text in line for text in spelt):
                raise DataError(
                    f"{where}: {name}, line {number} names your home, {home}",
                    hint="write the path relative to the recipe, or take the name out of notes and "
                    "labels, and run or pack again",
                )


def _texts(bundle: Bundle, page: bytes) -> Iterator[tuple[str, bytes]]:
    yield "recipe.toml", bundle.recipe
    for job_id, content in bundle.contents.items():
        yield f"{RECORD} of {job_id}", content
        for name, own in bundle.files[job_id].items():
            yield f"{name} of {job_id}", own
    yield "the report's page", page


def _manifest(
    bundle: Bundle, *, bundle_name: str, page_name: str, **given: Any
) -> PublicationManifest:
    records = bundle.records
    environments = [record.environment for record in records]
    kinds: dict[str, int] = {}
    for record in records:
        kinds[record.job.kind] = kinds.get(record.job.kind, 0) + 1
    trained = [record for record in records if isinstance(record, RunRecord)] or records
    # The order of the recipe, which names are read in.
    arms = dict.fromkeys(arm for asked in bundle.jobs.jobs for arm in asked.arms)
    own_arms = {record.arm for record in trained}
    provenance = provenance_of(records, recipe=bundle.jobs.name)
    return PublicationManifest(
        schema=1,
        title=bundle.jobs.title,
        recipe=bundle.jobs.name,
        hosts=sorted({host for environment in environments if (host := environment.host)}),
        datasets=_datasets(records, provenance),
        backbones=sorted({record.job.backbone for record in records}, key=catalogue_rank),
        arms=[
            *(arm for arm in arms if arm in own_arms),
            *sorted(own_arms - arms.keys()),
        ],
        seeds=sorted({record.job.seed for record in records}),
        kinds=dict(sorted(kinds.items())),
        provenance=provenance,
        bundle=bundle_name,
        page=page_name,
        records=dict(sorted(bundle.digests.items())),
        **given,
    )


def _datasets(records: list[Record], provenance: Provenance) -> list[PublishedData]:
    found = []
    for name, fingerprints in provenance.fingerprints.items():
        own = [record for record in records if record.dataset == name]
        cards = read_cards(record.data_card for record in own)
        card = cards[0] if cards else None
        if card is None and not any(record.data_card for record in own):
            try:
                card = resolve(name, {}).card
            except UsageError:  # the card of another version of this package
                card = None
        verified = {record.data_verified for record in own}
        found.append(
            PublishedData(
                name=name,
                title=card.title if card else name,
                licence=card.licence if card else "",
                homepage=card.homepage if card else "",
                fingerprints=list(fingerprints),
                verified=verified.pop() if len(verified) == 1 else False,
            )
        )
    return found

"""`prime-bench publish` into a folder: what is in it, the same again, another, kills, faults."""

import contextlib
import errno
import hashlib
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from prime_bench.base.errors import DataError
from prime_bench.base.files import writing
from prime_bench.base.locks import Busy, locked
from prime_bench.cli.main import exit_code
from prime_bench.data.card import load_card
from prime_bench.report import publish as publishing
from prime_bench.report.bundle import read_bundle
from prime_bench.report.publication import (
    Publication,
    PublicationManifest,
    PublishedData,
    _without,
    make_publication,
    parse_manifest,
)
from prime_bench.report.tables.model import Provenance
from prime_bench.store.record import is_as_written
from prime_bench.store.runs import Runs

PutRuns = Callable[..., Runs]


def call(*arguments: object) -> int:
    return exit_code(["publish", *map(str, arguments)])


def manifest_in(folder: Path) -> PublicationManifest:
    return parse_manifest((folder / "publication.json").read_bytes(), where="")


def content_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def assert_whole(folder: Path) -> PublicationManifest:
    """The manifest names files that are there, with its digests, and the bundle can be read."""
    manifest = manifest_in(folder)
    for name, file in manifest.files.items():
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == file.sha256
    assert read_bundle(folder / manifest.bundle).digests == manifest.records
    return manifest


@pytest.fixture
def runs(tmp_path: Path, put_runs: PutRuns) -> Path:
    return put_runs(tmp_path / "runs", host="node-of-alice", node="a" * 32).folder


@pytest.fixture(autouse=True)
def no_page() -> Iterator[pytest.MonkeyPatch]:
    """Pages without figures, which take seconds to draw."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("prime_bench.report.figures.gallery.figures_of", lambda *_, **__: [])
        yield patched


def test_a_publication_has_bundle_page_manifest_and_readme(
    tmp_path: Path, recipe: Path, runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "new" / "out"

    assert call(recipe, "--runs-dir", runs, "--to", folder, "--by", "A. Author") == 0

    manifest = assert_whole(folder)
    assert sorted(content_of(folder)) == sorted(
        [manifest.bundle, manifest.page, "publication.json", "README.md"]
    )
    assert manifest.bundle == f"bundle-{manifest.files[manifest.bundle].sha256[:8]}.zip"
    assert (manifest.title, manifest.recipe, manifest.by) == ("Two | seeds", "two", "A. Author")
    assert (manifest.backbones, manifest.arms) == (["DNN"], ["dense", "prime"])
    assert (manifest.seeds, manifest.kinds) == ([1, 2], {"train": 4})
    assert manifest.hosts == ["node-of-alice"]
    (data,) = manifest.datasets
    assert (data.name, data.licence) == ("synthetic", "Apache-2.0")
    assert manifest.sealed_again == []
    page = (folder / manifest.page).read_text(encoding="utf-8")
    assert "<title>Two | seeds</title>" in page
    readme = (folder / "README.md").read_text(encoding="utf-8")
    assert readme.startswith('---\npretty_name: "Two | seeds"\n')
    assert "# Two \\| seeds" in readme
    assert "Published by A. Author." in readme
    n_kilobytes = sum(len(content_of(folder)[name]) for name in manifest.files) / 1e3
    assert capsys.readouterr().err == f"published {folder}: 4 records, {n_kilobytes:.0f} kB\n"


@pytest.mark.parametrize(
    ("verified", "words"), [(True, ""), (False, " (not verified)"), ("own", " (own data)")]
)
def test_the_readme_says_whether_data_were_verified(
    tmp_path: Path, recipe: Path, put_runs: PutRuns, verified: bool | str, words: str
) -> None:
    runs = put_runs(tmp_path / "runs", verified=verified).folder

    assert call(recipe, "--runs-dir", runs, "--to", tmp_path / "out") == 0

    (data,) = manifest_in(tmp_path / "out").datasets
    assert data.verified == verified
    readme = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert f"| {data.title}{words} | Apache-2.0 |" in readme


def test_the_bundle_is_that_of_pack(tmp_path: Path, recipe: Path, runs: Path) -> None:
    bundle, folder = tmp_path / "b.zip", tmp_path / "out"
    assert exit_code(["pack", str(recipe), "-o", str(bundle), "--runs-dir", str(runs)]) == 0

    assert call(bundle, "--to", folder) == 0

    packed = (folder / manifest_in(folder).bundle).read_bytes()
    assert packed == bundle.read_bytes()
    assert call(recipe, "--runs-dir", runs, "--to", folder) == 0  # the same, so not refused


def test_the_same_again_changes_nothing(
    tmp_path: Path, recipe: Path, runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "out"
    assert call(recipe, "--runs-dir", runs, "--to", folder) == 0
    before = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    capsys.readouterr()

    assert call(recipe, "--runs-dir", runs, "--to", folder) == 0

    assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == before
    assert capsys.readouterr().err.startswith("unchanged ")


def test_another_is_refused_without_replace(
    tmp_path: Path, recipe: Path, runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "out"
    assert call(recipe, "--runs-dir", runs, "--to", folder) == 0
    old = content_of(folder)
    # The same bundle and page under another manifest.
    assert call(recipe, "--runs-dir", runs, "--to", folder, "--by", "B") == 2
    assert content_of(folder) == old
    next(runs.iterdir()).joinpath("record.json").unlink()
    capsys.readouterr()

    assert call(recipe, "--runs-dir", runs, "--to", folder) == 2
    assert content_of(folder) == old
    err = capsys.readouterr().err
    assert "has another publication, `Two | seeds`: of its records 1 gone" in err
    assert "--replace" in err

    assert call(recipe, "--runs-dir", runs, "--to", folder, "--replace") == 0
    assert len(assert_whole(folder).records) == 3
    assert len(content_of(folder)) == 4
    assert content_of(folder).keys() & old.keys() == {"publication.json", "README.md"}


def test_other_words_of_the_same_records_are_another_publication(
    tmp_path: Path, recipe: Path, runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "out"
    assert call(recipe, "--runs-dir", runs, "--to", folder, "--by", "A") == 0

    assert call(recipe, "--runs-dir", runs, "--to", folder, "--by", "B") == 2
    assert "its records are the same, but not: by" in capsys.readouterr().err


def test_a_file_of_somebody_else_stays_beside_a_publication(
    tmp_path: Path, recipe: Path, runs: Path
) -> None:
    folder = tmp_path / "out"
    assert call(recipe, "--runs-dir", runs, "--to", folder) == 0
    (folder / "notes.txt").write_text("mine")
    (folder / "bundle-of-mine.zip").write_text("mine")

    assert call(recipe, "--runs-dir", runs, "--to", folder, "--by", "B", "--replace") == 0

    assert len(content_of(folder)) == 4 + 2
    assert (folder / "notes.txt").read_text() == "mine"
    assert assert_whole(folder).by == "B"


def test_in_how_many_records_another_publication_differs_is_said(
    tmp_path: Path, recipe: Path, put_runs: PutRuns, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, old = tmp_path / "out", put_runs(tmp_path / "old", only=("seed=1",)).folder
    new = put_runs(tmp_path / "new", only=("arm=dense", "seed=1"), auc=0.6).folder
    put_runs(new, only=("seed=2",))
    assert call(recipe, "--runs-dir", old, "--to", folder) == 0

    assert call(recipe, "--runs-dir", new, "--to", folder) == 2

    assert "of its records 2 new, 1 changed, 1 gone" in capsys.readouterr().err


@pytest.mark.parametrize("damage", ["report", "README", "bundle"])
def test_a_damaged_file_is_written_again(
    damage: str, tmp_path: Path, recipe: Path, runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "out"
    assert call(recipe, "--runs-dir", runs, "--to", folder) == 0
    whole = content_of(folder)
    next(folder.glob(f"{damage}*")).write_bytes(b"\xff")

    assert call(recipe, "--runs-dir", runs, "--to", folder) == 0

    assert content_of(folder) == whole
    assert "completed " in capsys.readouterr().err


def test_a_folder_with_other_files_is_left_alone(
    tmp_path: Path, recipe: Path, runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "README.md").write_text("mine")

    assert call(recipe, "--runs-dir", runs, "--to", folder, "--replace") == 2

    assert content_of(folder) == {"README.md": b"mine"}
    assert "has other files, such as README.md" in capsys.readouterr().err


def test_a_manifest_that_is_none_needs_replace(tmp_path: Path, recipe: Path, runs: Path) -> None:
    folder = tmp_path / "out"
    assert call(recipe, "--runs-dir", runs, "--to", folder) == 0
    (folder / "publication.json").write_text('{"schema": 9}')

    assert call(recipe, "--runs-dir", runs, "--to", folder) == 3
    assert call(recipe, "--runs-dir", runs, "--to", folder, "--replace") == 0
    assert_whole(folder)


class Killed(BaseException):
    """The end of the process, which nothing tidies up after."""


def test_wherever_it_is_killed_the_old_or_the_new_can_be_read(
    tmp_path: Path, recipe: Path, runs: Path, put_runs: PutRuns
) -> None:
    other = put_runs(tmp_path / "other", auc=0.6).folder
    folder = tmp_path / "out"
    assert call(recipe, "--runs-dir", runs, "--to", folder) == 0
    old, before = manifest_in(folder), content_of(folder)
    is_old = []
    for step in range(6):
        left = iter([False] * step + [True])

        def dying(function: Callable[..., None], left: Iterator[bool]) -> Callable[..., None]:
            def act(*arguments: object) -> None:
                if next(left):
                    raise Killed
                function(*arguments)

            return act

        with pytest.MonkeyPatch.context() as patched:
            for name in ("write_whole", "remove"):
                patched.setattr(publishing, name, dying(getattr(publishing, name), left))
            patched.setattr(publishing, "_all_or_nothing", lambda *_: contextlib.nullcontext())
            with pytest.raises(Killed):
                call(recipe, "--runs-dir", other, "--to", folder, "--replace")

        is_old.append(assert_whole(folder).records == old.records)
        assert call(recipe, "--runs-dir", other, "--to", folder, "--replace") == 0
        assert len(content_of(folder)) == 4
        for path in folder.iterdir():
            path.unlink()
        for name, content in before.items():
            (folder / name).write_bytes(content)
    # Bundle, page and manifest are written; then README.md, and two files are deleted.
    assert is_old == [True, True, True, False, False, False]


def test_a_killed_process_is_no_obstacle(tmp_path: Path, recipe: Path, runs: Path) -> None:
    folder = tmp_path / "out"
    code = (
        "import os, sys\n"
        "from prime_bench.cli.main import exit_code\n"
        "from prime_bench.report.figures import gallery\n"
        "gallery.figures_of = lambda *_, **__: []\n"
        "os.fsync = lambda _: os._exit(9)\n"
        "sys.exit(exit_code(sys.argv[1:]))\n"
    )
    bundle = tmp_path / "b.zip"
    assert exit_code(["pack", str(recipe), "-o", str(bundle), "--runs-dir", str(runs)]) == 0
    arguments = ["publish", str(bundle), "--to", str(folder)]
    done = subprocess.run([sys.executable, "-c", code, *arguments], check=False)
    assert done.returncode == 9
    left = {path.name[:6] for path in folder.iterdir()}
    assert left == {".part-", ".publi"}

    assert exit_code(arguments) == 0

    assert_whole(folder)
    assert len(content_of(folder)) == 4


@pytest.mark.parametrize("n_written", [0, 1, 2])
def test_a_full_disk_leaves_nothing_new(
    n_written: int,
    tmp_path: Path,
    recipe: Path,
    runs: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    write_whole, left = publishing.write_whole, [n_written]

    def full(path: Path, content: str | bytes) -> None:
        left[0] -= 1
        if left[0] < 0:
            with writing(path):
                raise OSError(errno.ENOSPC, "no space", str(path))
        write_whole(path, content)

    monkeypatch.setattr(publishing, "write_whole", full)

    assert call(recipe, "--runs-dir", runs, "--to", tmp_path / "new" / "out") == 4

    assert "the disk is full" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_a_failure_after_the_manifest_keeps_what_it_names(
    tmp_path: Path, recipe: Path, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_whole = publishing.write_whole

    def full(path: Path, content: str | bytes) -> None:
        if path.name == "README.md":
            with writing(path):
                raise OSError(errno.ENOSPC, "no space", str(path))
        write_whole(path, content)

    monkeypatch.setattr(publishing, "write_whole", full)

    assert call(recipe, "--runs-dir", runs, "--to", tmp_path / "out") == 4

    assert len(assert_whole(tmp_path / "out").records) == 4


def test_two_at_once_do_not_mix(
    tmp_path: Path, recipe: Path, runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "out"
    with locked(folder / ".publish.lock"):
        assert call(recipe, "--runs-dir", runs, "--to", folder) == 4
    err = capsys.readouterr().err
    assert err.startswith(f"error: {folder}: process {os.getpid()} on ")
    assert " publishes there\n\nhint: try again when it has ended" in err


def test_a_lock_that_somebody_has_cleared_away_is_no_fault(
    tmp_path: Path, recipe: Path, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_whole = publishing.write_whole

    def clear(path: Path, content: str | bytes) -> None:
        (path.parent / ".publish.lock").unlink(missing_ok=True)
        write_whole(path, content)

    monkeypatch.setattr(publishing, "write_whole", clear)

    assert call(recipe, "--runs-dir", runs, "--to", tmp_path / "out") == 0


def test_whoever_comes_second_removes_nothing_of_the_first(
    tmp_path: Path, recipe: Path, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one, with the same records, writes while the second one waits for its turn."""
    whole, folder = tmp_path / "whole", tmp_path / "out"
    assert call(recipe, "--runs-dir", runs, "--to", whole) == 0
    files = [name for name in content_of(whole) if name.startswith(("bundle-", "report-"))]

    @contextlib.contextmanager
    def busy(path: Path) -> Iterator[None]:
        path.parent.mkdir(parents=True, exist_ok=True)
        for name in files:
            (folder / name).write_bytes((whole / name).read_bytes())
        raise Busy("process 1 on another")
        yield

    monkeypatch.setattr(publishing, "locked", busy)

    assert call(recipe, "--runs-dir", runs, "--to", folder) == 4

    assert sorted(content_of(folder)) == sorted(files)


def test_who_has_published_is_told_in_one_line(
    tmp_path: Path, recipe: Path, runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "out"
    assert call(recipe, "--runs-dir", runs, "--to", folder, "--by", "A\n\nerror: \x1b[2J") == 0

    assert call(recipe, "--runs-dir", runs, "--to", folder) == 2

    assert r"by A\n\nerror: \x1b[2J: its records" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("place", "code", "said"),
    [("recipe", 4, "a file is in the way"), ("/proc/none", 4, "nothing can be made here")],
)
def test_places_where_nothing_can_be_put(
    place: str,
    code: int,
    said: str,
    recipe: Path,
    runs: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    to = recipe if place == "recipe" else place

    assert call(recipe, "--runs-dir", runs, "--to", to) == code

    assert said in capsys.readouterr().err


def test_options_of_a_hub_are_refused_for_a_folder(
    tmp_path: Path, recipe: Path, runs: Path
) -> None:
    for option in (["--private"], ["--message", "m"]):
        assert call(recipe, "--runs-dir", runs, "--to", tmp_path / "out", *option) == 2
    assert not (tmp_path / "out").exists()


def members(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_folders_outside_are_named_by_their_last_part(
    tmp_path: Path,
    recipe: Path,
    put_runs: PutRuns,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("HOME", "/home/alice")
    runs = put_runs(tmp_path / "runs", home="/home/alice/work/", host="node-7").folder
    folder = tmp_path / "out"

    assert call(recipe, "--runs-dir", runs, "--to", folder) == 0

    manifest = assert_whole(folder)
    assert "names of folders or machines left out: 4 records with new digests" in (
        capsys.readouterr().err
    )
    assert sorted(manifest.sealed_again) == sorted(manifest.records)
    packed = members(folder / manifest.bundle)
    assert not any(b"alice" in content for content in packed.values())
    configs = [json.loads(packed[name]) for name in packed if name.endswith("config.json")]
    assert {(c["table"], c["runs"]) for c in configs} == {("synthetic-12345678", "runs")}
    assert all(is_as_written(r) for r in read_bundle(folder / manifest.bundle).records)
    assert exit_code(["verify", str(folder / manifest.bundle)]) in (0, 1)
    assert "config.json" not in capsys.readouterr().out


def test_anonymous_names_no_machine_and_no_folder(
    tmp_path: Path, recipe: Path, runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "out"

    assert call(recipe, "--runs-dir", runs, "--to", folder, "--anonymous") == 0

    manifest = assert_whole(folder)
    assert manifest.anonymous
    assert manifest.hosts == []
    assert sorted(manifest.sealed_again) == sorted(manifest.records)
    texts = [*members(folder / manifest.bundle).values(), *content_of(folder).values()]
    for name in (b"node-of-alice", b"a" * 32, b"synthetic-12345678"):
        assert not any(name in text for text in texts)
    originals = {record.job_id: record for record in Runs(runs).readable()[0]}
    for record in read_bundle(folder / manifest.bundle).records:
        own = originals[record.job_id]
        assert is_as_written(record)
        assert record.result == own.result
        assert record.environment.device == own.environment.device
    capsys.readouterr()
    exit_code(["verify", str(folder / manifest.bundle)])
    out = capsys.readouterr().out
    assert "environment.json" not in out
    assert "config.json" not in out


@pytest.mark.parametrize("home", ["/home/alice", "/alice"])
def test_a_home_that_cannot_be_left_out_is_told_with_file_and_line(
    home: str,
    tmp_path: Path,
    recipe: Path,
    runs: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("HOME", home)
    recipe.write_text(f"# see {home}/notes.txt\n{recipe.read_text()}")

    assert call(recipe, "--runs-dir", runs, "--to", tmp_path / "out") == 3

    assert f"recipe.toml, line 1 names your home, {home}" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("file", ["record.json", "config.json", "the report's page"])
def test_a_home_is_found_wherever_it_is_named(
    file: str, tmp_path: Path, recipe: Path, put_runs: PutRuns, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the escapes of JSON, too; the page alone has the text of the recipe's title in letters."""
    monkeypatch.setenv("HOME", "/home/zoë")
    runs = put_runs(tmp_path / "runs", device="a /home/zoë" if file == "record.json" else "a CPU")
    if file == "config.json":
        for path in runs.folder.glob("*/config.json"):
            table = json.loads(path.read_text())
            path.write_text(json.dumps({**table, "arm": "/home/zoë"}))
    if file.endswith("page"):
        text = recipe.read_text(encoding="utf-8")
        recipe.write_text(text.replace("Two | seeds", "/home/zo\\U000000eb"), encoding="utf-8")
    bundle = tmp_path / "b.zip"
    pack = ["pack", str(recipe), "-o", str(bundle), "--runs-dir", str(runs.folder)]
    assert exit_code(pack) == 0

    with pytest.raises(DataError, match=f"{file}.*, line [0-9]+ names your home, /home/zoë"):
        make_publication(bundle)


def test_a_home_that_is_the_root_is_in_every_path(
    tmp_path: Path, recipe: Path, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/")

    assert call(recipe, "--runs-dir", runs, "--to", tmp_path / "out") == 0


def test_a_record_that_cannot_be_read_is_named_and_left_out(
    tmp_path: Path, recipe: Path, runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (sorted(runs.iterdir())[0] / "record.json").write_text("{")

    assert call(recipe, "--runs-dir", runs, "--to", tmp_path / "out") == 0

    assert len(assert_whole(tmp_path / "out").records) == 3
    assert "left out: " in capsys.readouterr().err


def test_the_figures_of_the_page_have_the_same_bytes_again(
    tmp_path: Path, recipe: Path, runs: Path, no_page: pytest.MonkeyPatch
) -> None:
    bundle = tmp_path / "b.zip"
    assert exit_code(["pack", str(recipe), "-o", str(bundle), "--runs-dir", str(runs)]) == 0
    no_page.undo()

    first, second = make_publication(bundle), make_publication(bundle)

    assert first == second
    assert b"<svg" in first.contents[first.manifest.page]


def test_a_broken_bundle_is_refused(tmp_path: Path) -> None:
    (tmp_path / "b.zip").write_bytes(b"no zip")

    with pytest.raises(DataError, match="not a bundle"):
        make_publication(tmp_path / "b.zip")


def test_a_bundle_with_a_record_that_cannot_be_read_is_refused(
    tmp_path: Path, recipe: Path, runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle = tmp_path / "b.zip"
    assert exit_code(["pack", str(recipe), "-o", str(bundle), "--runs-dir", str(runs)]) == 0
    packed = members(bundle)
    contents = json.loads(packed["bundle.json"])
    job_id = next(iter(contents["records"]))
    packed[f"runs/{job_id}/record.json"] = b"{}"
    contents["records"][job_id] = hashlib.sha256(b"{}").hexdigest()
    packed["bundle.json"] = json.dumps(contents).encode()
    with zipfile.ZipFile(bundle, "w") as archive:
        for name, content in packed.items():
            archive.writestr(name, content)

    assert call(bundle, "--to", tmp_path / "out") == 3

    err = capsys.readouterr().err
    assert f"{bundle}: a record cannot be read: " in err
    assert job_id in err
    assert not (tmp_path / "out").exists()


def test_settings_of_a_bundle_are_those_of_its_records(
    tmp_path: Path, recipe: Path, runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle = tmp_path / "b.zip"
    assert exit_code(["pack", str(recipe), "-o", str(bundle), "--runs-dir", str(runs)]) == 0

    assert call(bundle, "--to", tmp_path / "out", "--set", "training.patience=3") == 2

    assert "--set training.patience=3: a bundle has the settings" in capsys.readouterr().err


def test_data_are_verified_where_those_of_all_records_are(
    tmp_path: Path, recipe: Path, put_runs: PutRuns
) -> None:
    runs = put_runs(tmp_path / "runs", only=("seed=1",), verified=True)
    put_runs(runs.folder, only=("seed=2",), verified="own")

    assert call(recipe, "--runs-dir", runs.folder, "--to", tmp_path / "out") == 0

    (data,) = manifest_in(tmp_path / "out").datasets
    assert data.verified is False


def test_arms_are_in_the_recipes_order_and_backbones_in_the_catalogues(
    tmp_path: Path, recipe: Path, put_runs: PutRuns
) -> None:
    text = recipe.read_text(encoding="utf-8").replace('"dense", "prime"', '"prime", "dense"')
    text = text.replace("[backbone.DNN]", "[backbone.DCNv2]\n[backbone.DNN]")
    recipe.write_text(text, encoding="utf-8")
    runs = put_runs(tmp_path / "runs")

    assert call(recipe, "--runs-dir", runs.folder, "--to", tmp_path / "out") == 0

    manifest = manifest_in(tmp_path / "out")
    assert manifest.arms == ["prime", "dense"]
    assert manifest.backbones == ["DNN", "DCNv2"]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"title": "Mine", "licence": "CC0"}, ("Mine", "CC0", "https://mine.org")),
        # A card of another version of this package, whatever the bundled one says today.
        ({"kind": "nothing that we know"}, ("synthetic", "", "")),
    ],
)
def test_data_are_called_as_the_card_in_their_records_says(
    tmp_path: Path,
    recipe: Path,
    put_runs: PutRuns,
    change: dict[str, str],
    expected: tuple[str, str, str],
) -> None:
    runs = put_runs(tmp_path / "runs")
    card = load_card("synthetic").plain() | {"homepage": "https://mine.org"} | change
    for record in runs.readable()[0]:
        runs.put(runs.sealed(record.model_copy(update={"data_card": card, "digests": None})))

    assert call(recipe, "--runs-dir", runs.folder, "--to", tmp_path / "out") == 0

    (data,) = manifest_in(tmp_path / "out").datasets
    assert (data.name, data.title, data.licence, data.homepage) == ("synthetic", *expected)


README = """---
pretty_name: "Ours \\"x\\""
tags:
- click-through-rate
- prime-bench
viewer: false
---

# Ours "x"

Published by A \\| B.

| file | content |
|---|---|
| [report-1.html](report-1.html) | the report: tables, figures, and the jobs behind each number |
| [bundle-1.zip](bundle-1.zip) | the records, from which `prime-bench report bundle-1.zip` makes \
the tables again, without data |
| [publication.json](publication.json) | what is here, with the digests of all files and records |

| | |
|---|---|
| recipe | ours, training.patience=3 |
| records | 1 cost, 4 train |
| backbones | DNN, FwFM |
| arms | Dense, PRIME |
| seeds | 1, 2 |
| run | 2026-01-01 to 2026-01-03 |
| on | a CPU, a GPU (node-1, node-2) |
| with | polars 1.0, torch 2.13.0, 2.14.0 |

Names of machines and folders were left out of the records.

The digests of 2 of the records were taken anew after that.

## Data

No row of any data set is in this publication.

| data set | licence | described at |
|---|---|---|
| Ours (own data) | -- | -- |
| Avazu | CC0 | https\\://example.org |
| Criteo (not verified) | -- | -- |
"""


def test_the_readme_says_what_the_manifest_says() -> None:
    made = PublicationManifest(
        schema=1,
        title='Ours "x"',
        recipe="ours, training.patience=3",
        by="A | B",
        anonymous=True,
        sealed_again=["1", "2"],
        hosts=["node-1", "node-2"],
        datasets=[
            PublishedData(name="ours", title="Ours", fingerprints=[], verified="own"),
            PublishedData(
                name="avazu",
                title="Avazu",
                licence="CC0",
                homepage="https://example.org",
                fingerprints=[],
                verified=True,
            ),
            PublishedData(name="criteo", title="Criteo", fingerprints=[], verified=False),
        ],
        backbones=["DNN", "FwFM"],
        arms=["dense", "prime"],
        seeds=[1, 2],
        kinds={"cost": 1, "train": 4},
        provenance=Provenance(
            recipe="ours",
            commits=(),
            fingerprints={},
            versions={"polars": ("1.0",), "torch": ("2.13.0", "2.14.0")},
            devices=("a CPU", "a GPU"),
            numerics=(2,),
            started=("2026-01-01", "2026-01-03"),
            package_version="1",
        ),
        bundle="bundle-1.zip",
        page="report-1.html",
        files={},
        records={},
    )

    assert Publication(manifest=made, contents={}).readme == README


@pytest.mark.parametrize(
    ("name", "content", "anonymous", "kept"),
    [
        ("config.json", b"{", True, b"{"),
        ("config.json", b'["/a/runs"]', True, b'["/a/runs"]'),
        ("config.json", {"table": "data/t", "runs": "runs"}, False, None),
        (
            "config.json",
            {"table": "/home/me/t", "runs": "../runs", "arm": "/a"},
            False,
            {"table": "t", "runs": "runs", "arm": "/a"},
        ),
        ("config.json", {"table": "data/t", "runs": 1}, True, {"table": "", "runs": 1}),
        ("environment.json", {"host": "me", "device": "cpu"}, False, None),
        (
            "environment.json",
            {"host": "me", "device": "cpu"},
            True,
            {"host": None, "device": "cpu"},
        ),
        ("other.json", {"table": "/home/me/t", "host": "me"}, True, None),
    ],
)
def test_what_is_published_of_a_jobs_files_names_no_folder_or_machine(
    name: str, content: object, anonymous: bool, kept: object
) -> None:
    """None: byte by byte as it is."""
    given = content if isinstance(content, bytes) else json.dumps(content).encode()

    made = _without(name, given, anonymous=anonymous)

    if kept is None or isinstance(kept, bytes):
        assert made == given
    else:
        assert json.loads(made) == kept

"""Bundles: read without what their records were made with, and refused where they are not sound."""

import contextlib
import hashlib
import io
import json
import random
import resource
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from prime_bench import __version__
from prime_bench.base.errors import DataError, EnvironmentFault
from prime_bench.cli.main import exit_code
from prime_bench.data import card
from prime_bench.data.manifest import resolve
from prime_bench.recipe.file import load_recipe
from prime_bench.recipe.recipe import JobSpec
from prime_bench.report import bundle as bundles
from prime_bench.report.quantities import layout
from prime_bench.store.record import ProbeRecord, RunRecord
from prime_bench.store.runs import Runs

MakePlain = Callable[..., RunRecord]
MADE_UP = Path(__file__).parents[1] / "records"

OURS = """
schema = 1
title = "Ours"
seeds = [1, 2, 3]
arms = ["dense", "mine", "ours_at:Gate"]
[arm.mine]
plugin = "ours_at:Gate"
label = "Mine"
rank = 3
[dataset.clicks]
[backbone.DNN]
hidden_units = [8]
[backbone."ours_at:Net"]
[backbone."ours_at:Net".on.clicks]
width = 7
[report]
notes = ["A note of the recipe"]
family = [["mine", "dense"]]
"""
PROBE = """
schema = 1
title = "Probe"
kind = "{kind}"
seeds = [2021]
arms = ["dense", "prime", "apg"]
[dataset.clicks]
[backbone.DCNv2]
"""
CLASSES = """
from prime_bench.settings.backbones import DNNSettings
from prime_bench.settings.plugins import PrimeConfig


class Gate:
    label = "A gate"

    class Settings(PrimeConfig):
        height: int = 2


class Net:
    class Settings(DNNSettings):
        width: int = 5
"""


@pytest.fixture
def own_card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """A data set `clicks` with a printed name; what is returned removes it."""
    bundled = card.bundled_folder
    own = tmp_path / "own"
    for name in ("datasets", "reports"):
        (own / name / "labels").mkdir(parents=True)
    text = (bundled("datasets") / "synthetic.toml").read_text(encoding="utf-8")
    (own / "datasets" / "clicks.toml").write_text(text.replace("synthetic", "clicks", 1))
    (own / "reports" / "labels" / "datasets.toml").write_text('clicks = "Our clicks"\n')
    with monkeypatch.context() as patched:
        for module in (card, layout):
            patched.setattr(module, "bundled_folder", lambda name: own / name)
        yield lambda: (patched.undo(), card.load_card.cache_clear())[1]
    card.load_card.cache_clear()


@pytest.fixture
def nothing_is_loaded(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From when it is called, loading a class, an entry point or a card fails the test."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("loaded what a bundle names")

    def start() -> None:
        for target in (
            "prime_bench.catalog.load_class",
            "prime_bench.catalog.entry_points",
            "prime_bench.data.manifest.load_card",
        ):
            monkeypatch.setattr(target, refuse)

    return start


def put_trained(recipe: Path, runs: Runs, plain_record: MakePlain, *, changes: list[str]) -> None:
    """Records of a recipe's jobs with scores from a seeded generator."""
    loaded, scores = load_recipe(recipe, changes=changes), random.Random(5)
    for job_spec in loaded.job_specs():
        if (job_spec.backbone, job_spec.seed, job_spec.arm.name) == ("DNN", 3, "mine"):
            continue
        test = {"auc": scores.uniform(0.7, 0.8), "logloss": scores.uniform(0.3, 0.4)}
        job = job_spec.bind("f" * 64)
        variant = resolve(job_spec.dataset, loaded.datasets[job_spec.dataset]).digest
        runs.put(
            plain_record(
                job,
                dataset=job_spec.dataset,
                arm=job_spec.arm.name,
                data_variant=variant,
                result={"test": test},
                pairing={"initial_weights": f"{job_spec.backbone} {job_spec.seed}"},
            )
        )


def put_probes(recipe: Path, runs: Runs, kind: str) -> None:
    """Records of a probe's jobs, with the findings of the records in `tests/records`."""
    known = [json.loads(path.read_text("utf-8")) for path in MADE_UP.glob("*/record.json")]
    loaded = load_recipe(recipe)
    for job_spec in loaded.job_specs():
        (table, *_) = [table for table in known if table["job"].get("kind") == kind]
        plain = bound(job_spec).plain()
        table |= {
            "job": plain,
            "job_id": bound(job_spec).id,
            "dataset": job_spec.dataset,
            "arm": "dense" if kind == "cost" else job_spec.arm.name,
            "data_variant": resolve("clicks", {}).digest,
        }
        runs.put(ProbeRecord.parse(table, where=""))


def bound(job_spec: JobSpec) -> Any:
    job = job_spec.bind("f" * 64)
    if job.kind != "cost":
        return job
    return job.model_copy(update={"probe": {**job.probe, "device": "a CPU", "threads": 1}})


def written(folder: Path, source: Path, *arguments: object) -> dict[str, bytes]:
    """The CSV and the Markdown of each table that `report` writes, where the recipe is a name."""
    report = ["report", str(source), *map(str, arguments), "--output", str(folder)]
    assert exit_code(report) == 0
    files = [path for path in folder.iterdir() if path.suffix in (".csv", ".md")]
    name, stem = str(source).encode(), source.stem.encode()
    return {path.name: path.read_bytes().replace(name, stem) for path in files}


@pytest.mark.parametrize("more", [[], ["--only", "arm=mine", "--only", "arm=dense"]])
def test_a_bundle_needs_neither_card_nor_classes(
    tmp_path: Path,
    own_card: Callable[[], None],
    nothing_is_loaded: Callable[[], None],
    plain_record: MakePlain,
    monkeypatch: pytest.MonkeyPatch,
    more: list[str],
) -> None:
    recipe, runs, packed = tmp_path / "ours.toml", tmp_path / "runs", tmp_path / "ours.zip"
    recipe.write_text(OURS, encoding="utf-8")
    (tmp_path / "classes").mkdir()
    (tmp_path / "classes" / "ours_at.py").write_text(CLASSES, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path / "classes")
    changes = ["--set", "training.max_epochs=4"]
    put_trained(recipe, Runs(runs), plain_record, changes=changes[1:])
    arguments = ["--level", "full", *more]
    there = written(tmp_path / "a", recipe, *changes, "--runs-dir", runs, *arguments)
    pack = ["pack", str(recipe), *changes, "-o", str(packed), "--runs-dir", str(runs)]
    assert exit_code(pack) == 0

    own_card()
    (tmp_path / "classes" / "ours_at.py").unlink()
    monkeypatch.delitem(sys.modules, "ours_at")
    nothing_is_loaded()
    here = written(tmp_path / "b", packed, *arguments)
    assert {"main.csv", "family.csv", "cells.csv", "pairs.csv"} < there.keys()
    assert here == there
    for name in ("Our clicks", "Mine", "Net", "A note of the recipe"):
        assert name.encode() in here["main.md"]
    assert "ours_at" not in sys.modules


@pytest.mark.parametrize("kind", ["subgroups", "gradients", "routing", "cost"])
def test_a_bundle_of_probes_needs_no_card(
    tmp_path: Path,
    own_card: Callable[[], None],
    nothing_is_loaded: Callable[[], None],
    kind: str,
) -> None:
    recipe, runs, packed = tmp_path / "ours.toml", tmp_path / "runs", tmp_path / "ours.zip"
    arms = '["prime"]' if kind == "routing" else '["dense", "prime", "apg"]'
    text = PROBE.format(kind=kind).replace('["dense", "prime", "apg"]', arms)
    recipe.write_text(text, encoding="utf-8")
    put_probes(recipe, Runs(runs), kind)
    there = written(tmp_path / "a", recipe, "--runs-dir", runs)
    assert exit_code(["pack", str(recipe), "-o", str(packed), "--runs-dir", str(runs)]) == 0

    own_card()
    nothing_is_loaded()
    assert written(tmp_path / "b", packed) == there
    assert b"Our clicks" in there[f"{kind}.md"]
    # One of the arms that one job measures together is a choice too.
    assert exit_code(["report", str(packed), "--only", "arm=prime"]) == 0


@pytest.fixture
def packed(tmp_path: Path, plain_record: MakePlain) -> dict[str, bytes]:
    """The members of a bundle of a recipe with names of the catalogue alone."""
    recipe = tmp_path / "two.toml"
    text = OURS.replace("clicks", "synthetic").replace(', "ours_at:Gate"]', "]")
    text = text.replace("ours_at:Gate", "prime").replace("ours_at:Net", "DCNv2")
    recipe.write_text(text.replace("width = 7", "num_cross_layers = 2"), encoding="utf-8")
    put_trained(recipe, Runs(tmp_path / "runs"), plain_record, changes=[])
    file = tmp_path / "two.zip"
    pack = ["pack", str(recipe), "-o", str(file), "--runs-dir", str(tmp_path / "runs")]
    assert exit_code(pack) == 0
    with zipfile.ZipFile(file) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def zipped(
    path: Path,
    members: list[tuple[str, bytes]] | dict[str, bytes],
    *,
    method: int = zipfile.ZIP_DEFLATED,
) -> Path:
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, content in members.items() if isinstance(members, dict) else members:
            archive.writestr(name, content)
    return path


def old(members: dict[str, bytes], **keys: object) -> dict[str, bytes]:
    """The same bundle as version 0.1.0 wrote it."""
    contents = json.loads(members["bundle.json"])
    recipe = contents["recipe"]
    table = {
        "schema": 1,
        "recipe": recipe["name"],
        "changes": [],
        "variants": recipe["variants"],
        "package_version": "0.1.0",
        "records": contents["records"],
    }
    return {**members, "bundle.json": json.dumps({**table, **keys}).encode()}


def test_bundles_of_the_first_version_stay_valid(packed: dict[str, bytes], tmp_path: Path) -> None:
    before = written(tmp_path / "a", zipped(tmp_path / "new.zip", packed))
    assert written(tmp_path / "b", zipped(tmp_path / "old.zip", old(packed))) == before


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (b'plugin = "prime"', b'plugin = "harmful_at:X"', "plug-in `harmful_at:X`"),
        (b"[backbone.DNN]", b'[backbone."harmful_at:X"]', "backbone `harmful_at:X`"),
        (b'"dense", "mine"', b'"dense", "mine", "harmful_at:X"', "plug-in `harmful_at:X`"),
        (b"[arm.mine]", b'[arm."harmful_at:X"]\n[arm.mine]', "plug-in `harmful_at:X`"),
        (b"[dataset", b"= =\n[dataset", "recipe.toml: not valid TOML"),
        (b"[dataset.synthetic]", b"[dataset.another]", "has no such data set"),
    ],
)
def test_an_old_bundle_imports_nothing_that_it_names(
    packed: dict[str, bytes],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    before: bytes,
    after: bytes,
    said: str,
) -> None:
    (tmp_path / "harmful_at.py").write_text("raise SystemExit(99)", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    members = old(packed)
    assert before in members["recipe.toml"]
    members["recipe.toml"] = members["recipe.toml"].replace(before, after)
    file = zipped(tmp_path / "a.zip", members)

    capsys.readouterr()
    assert exit_code(["report", str(file)]) == 3
    errors = capsys.readouterr().err
    assert errors.startswith(f"error: {file}: ")
    assert said in errors
    assert "harmful_at" not in sys.modules


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"changes": ["nonsense"]}, "--set nonsense"),
        ({"changes": ['arm.mine.plugin="harmful_at:X"']}, "plug-in `harmful_at:X`"),
        ({"variants": {}}, "different data sets"),
    ],
)
def test_the_contents_of_an_old_bundle_are_checked(
    packed: dict[str, bytes],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    keys: dict[str, object],
    said: str,
) -> None:
    file = zipped(tmp_path / "a.zip", old(packed, **keys))
    capsys.readouterr()
    assert exit_code(["report", str(file)]) == 3
    assert said in capsys.readouterr().err


def by_hand(members: dict[str, bytes]) -> dict[str, list[tuple[str, bytes]]]:
    """The same bundle as file managers pack it."""
    files = list(members.items())
    folders = [("a bundle/", b""), ("a bundle/runs/", b"")]
    deeper = [(f"a bundle/{name}", content) for name, content in files]
    mac = [("__MACOSX/._a bundle", b"x"), ("a bundle/.DS_Store", b"x"), ("a bundle/._x", b"x")]
    return {
        "folders": [("runs/", b""), *files],
        "deeper": [*folders, *deeper],
        "macOS": [*folders, *deeper, *mac],
        "Windows": [(name.replace("/", "\\"), content) for name, content in deeper],
    }


@pytest.mark.parametrize("how", ["folders", "deeper", "macOS", "Windows"])
@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_bundle_packed_again_by_hand_is_read(
    packed: dict[str, bytes], tmp_path: Path, how: str, method: int
) -> None:
    before = written(tmp_path / "a", zipped(tmp_path / "new.zip", packed))
    file = zipped(tmp_path / "hand.zip", by_hand(packed)[how], method=method)
    assert written(tmp_path / "b", file) == before


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("fault", ["two names", "two folders", "outside", "lzma", "encrypted"])
def test_a_zip_that_is_not_sound_is_bad_data(
    packed: dict[str, bytes], tmp_path: Path, capsys: pytest.CaptureFixture[str], fault: str
) -> None:
    files = list(packed.items())
    file, said = (
        tmp_path / "a.zip",
        {
            "two names": "two members called 'bundle.json'",
            "two folders": "2 times bundle.json",
            "outside": "unexpected entry 'recipe.toml'",
            "lzma": "not a bundle",
            "encrypted": "encrypted",
        },
    )
    deeper = [(f"x/{name}", content) for name, content in files]
    match fault:
        case "two names":
            zipped(file, [*files, ("bundle.json", b"{}")])
        case "two folders":
            zipped(file, [*deeper, ("y/bundle.json", b"{}")])
        case "outside":
            zipped(file, [*deeper, ("recipe.toml", b"")])
        case "lzma":
            content = bytearray(zipped(file, packed, method=zipfile.ZIP_LZMA).read_bytes())
            start = content.index(b"bundle.json") + len("bundle.json") + 30
            content[start : start + 20] = bytes(20)
            file.write_bytes(content)
        case "encrypted":
            content = bytearray(zipped(file, packed).read_bytes())
            for signature, flags in ((b"PK\1\2", 8), (b"PK\3\4", 6)):
                place = -1
                while (place := content.find(signature, place + 1)) >= 0:
                    content[place + flags] |= 1
            file.write_bytes(content)
    capsys.readouterr()
    assert exit_code(["report", str(file)]) == 3
    assert said[fault] in capsys.readouterr().err


@pytest.mark.parametrize("what", ["members", "declared", "together", "unpacked", "zip"])
def test_a_bundle_has_limits(
    packed: dict[str, bytes],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    what: str,
) -> None:
    if what == "members":
        monkeypatch.setattr(bundles, "MOST_MEMBERS", len(packed) - 1)
    total = sum(map(len, packed.values()))
    # Each member is short, and all of them are too long by a byte.
    monkeypatch.setattr(bundles, "MOST_BYTES", total - (what == "together"))
    longer = {**packed, "bundle.json": packed["bundle.json"] + b" " * total}
    content = zipped(
        tmp_path / "a.zip", packed if what in ("members", "together") else longer
    ).read_bytes()
    if what == "unpacked":
        # The sizes that a zip gives for its members are what its maker says.
        size, lie = len(longer["bundle.json"]).to_bytes(4, "little"), bytes([1, 0, 0, 0])
        content = content.replace(size, lie)
    if what == "zip":
        content = bytes(total) + content
    (tmp_path / "a.zip").write_bytes(content)
    capsys.readouterr()
    assert exit_code(["report", str(tmp_path / "a.zip")]) == 3
    errors = capsys.readouterr().err
    assert ("at most" in errors) or (what == "unpacked" and "not a bundle" in errors)


def test_pack_names_a_record_that_cannot_be_read_and_leaves_it_out(
    packed: dict[str, bytes], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    n_records = sum(name.endswith("/record.json") for name in packed)
    broken = sorted((tmp_path / "runs").glob("*/record.json"))[0]
    broken.write_text("{", encoding="utf-8")
    pack = ["pack", str(tmp_path / "two.toml"), "-o", str(tmp_path / "b.zip")]
    capsys.readouterr()

    assert exit_code([*pack, "--runs-dir", str(tmp_path / "runs")]) == 0

    left_out, wrote = capsys.readouterr().err.splitlines()
    assert left_out.startswith(f"left out: {broken}")
    assert f"b.zip: {n_records - 1} records, " in wrote


def test_pack_refuses_what_report_would_refuse(
    packed: dict[str, bytes],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(bundles, "MOST_MEMBERS", len(packed) - 1)
    pack = ["pack", str(tmp_path / "two.toml"), "-o", str(tmp_path / "b.zip")]
    assert exit_code([*pack, "--runs-dir", str(tmp_path / "runs")]) == 3
    assert "at most" in capsys.readouterr().err
    assert not (tmp_path / "b.zip").exists()


def test_the_settings_of_a_bundle_are_fixed(
    packed: dict[str, bytes], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = zipped(tmp_path / "a.zip", packed)
    capsys.readouterr()
    assert exit_code(["report", str(file), "--set", "training.max_epochs=1"]) == 2
    assert "--set training.max_epochs=1: a bundle has the settings" in capsys.readouterr().err


def test_a_bundle_is_read_without_a_disk_and_packed_with_room_alone(
    packed: dict[str, bytes], tmp_path: Path
) -> None:
    """No process may write a byte into a file: reading needs none, and packing says so."""
    file = zipped(tmp_path / "a.zip", packed)
    runs, recipe = tmp_path / "runs", tmp_path / "two.toml"
    code = (
        "import signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "from prime_bench.cli.main import exit_code\n"
        "sys.exit(exit_code(sys.argv[1:]))"
    )

    def call(*arguments: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", code, *map(str, arguments)],
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)),
            capture_output=True,
            text=True,
            check=False,
        )

    assert call("report", file).returncode == 0
    full = call("pack", recipe, "--runs-dir", runs, "-o", tmp_path / "b.zip")
    assert full.returncode == EnvironmentFault.exit_code, full.stderr
    assert full.stderr.startswith("error: ")
    assert not (tmp_path / "b.zip").exists()
    assert not list(tmp_path.glob(".part-*"))


def spoilt(chance: random.Random, members: dict[str, bytes]) -> bytes:
    """The bytes of a bundle after a few faults: in values, in members, in names, in the zip."""
    files = dict(members)
    for _ in range(chance.randint(1, 3)):
        name = chance.choice(list(files))
        content = files[name]
        match chance.randrange(7):
            case 0:
                del files[name]
            case 1:
                files[chance.choice(["../x", "/x", "x/" + name, "\\", ".", "runs"])] = content
            case 2:
                place = chance.randrange(len(content) + 1)
                files[name] = content[:place] + chance.randbytes(3) + content[place:]
            case 3 | 4 | 5:
                files[name] = other_value(chance, content)
            case 6:
                files[name] = chance.choice([b"", b"null", b"[" * 3000, b"[]", b"\xff", b"1e999"])
        if not files:
            break
    if chance.random() < 0.5:
        resealed(files)
    buffer = io.BytesIO()
    methods = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)
    with zipfile.ZipFile(buffer, "w", chance.choice(methods)) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    whole = bytearray(buffer.getvalue())
    if chance.random() < 0.4:
        for _ in range(chance.randint(1, 4)):
            whole[chance.randrange(len(whole))] = chance.randrange(256)
    if chance.random() < 0.1:
        del whole[chance.randrange(len(whole)) :]
    return bytes(whole)


def resealed(files: dict[str, bytes]) -> None:
    """Make the digests in `bundle.json` those of the records, so that these are read."""
    with contextlib.suppress(ValueError, KeyError, TypeError, RecursionError):
        contents = json.loads(files["bundle.json"])
        for job_id in contents["records"]:
            record = files[f"runs/{job_id}/record.json"]
            contents["records"][job_id] = hashlib.sha256(record).hexdigest()
        files["bundle.json"] = json.dumps(contents).encode()


def other_value(chance: random.Random, content: bytes) -> bytes:
    """A JSON text in which one value, somewhere, is another; others get a byte changed."""
    try:
        table = json.loads(content)
    except (ValueError, RecursionError):
        place = chance.randrange(len(content))
        return content[:place] + bytes([chance.randrange(256)]) + content[place + 1 :]
    here, key = None, None
    inside = table
    while isinstance(inside, dict | list) and inside and (here is None or chance.random() < 0.9):
        key = chance.choice(list(inside) if isinstance(inside, dict) else range(len(inside)))
        here, inside = inside, inside[key]
    if here is not None:
        values = [None, True, -1, 10**30, 0.5, "", "os:x", "\ud800", [], {}, [[]], {"a": {}}]
        here[key] = chance.choice(values)
    return json.dumps(table).encode()


def test_no_bundle_is_a_bug_of_ours(
    packed: dict[str, bytes],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    nothing_is_loaded: Callable[[], None],
) -> None:
    """200 spoilt bundles, the same every time: each is read, or refused with a message."""
    nothing_is_loaded()
    codes = []
    for number in range(200):
        chance = random.Random(number)
        file = tmp_path / "fuzz.zip"
        members = packed if number % 2 else old(packed)
        file.write_bytes(spoilt(chance, members))
        codes.append(exit_code(["report", str(file), "--format", "csv"]))
        errors = capsys.readouterr().err
        assert codes[-1] in (0, 3), (number, errors)
        assert len(errors) < 3000, number
        assert not codes[-1] or errors.startswith("error: "), number
    assert {0, 3} == set(codes)


def test_the_recipe_of_a_bundle_can_be_read(packed: dict[str, bytes]) -> None:
    assert tomllib.loads(packed["recipe.toml"].decode())["arms"] == ["dense", "mine"]


def test_members_are_sorted_and_of_no_time(tmp_path: Path, packed: dict[str, bytes]) -> None:
    with zipfile.ZipFile(tmp_path / "two.zip") as archive:
        entries = archive.infolist()

    assert [entry.filename for entry in entries] == sorted(packed)
    assert {entry.date_time for entry in entries} == {(1980, 1, 1, 0, 0, 0)}
    assert {entry.external_attr >> 16 for entry in entries} == {0o644}
    assert {entry.create_system for entry in entries} == {3}
    assert {entry.compress_type for entry in entries} == {zipfile.ZIP_DEFLATED}
    contents = json.loads(packed["bundle.json"])
    assert contents["schema"] == 2
    assert contents["package_version"] == __version__
    records = {name: own for name, own in packed.items() if name.endswith("/record.json")}
    assert contents["records"] == {
        name.split("/")[1]: hashlib.sha256(own).hexdigest() for name, own in records.items()
    }
    assert len(records) == 11  # of 2 arms, 2 backbones and 3 seeds; one was not run


def test_a_bundle_has_the_files_beside_its_records(
    tmp_path: Path, packed: dict[str, bytes]
) -> None:
    """Those of its own that a run leaves, and of each job its own."""
    names = sorted(name for name in packed if name.endswith("/record.json"))
    first, second = (name.split("/")[1] for name in names[:2])
    beside = {
        f"runs/{first}/config.json": b"one",
        f"runs/{first}/environment.json": b"two",
        f"runs/{second}/config.json": b"three",
    }

    bundle = bundles.read_bundle(zipped(tmp_path / "a.zip", {**packed, **beside}))

    assert bundle.unreadable == []
    assert [record.job_id for record in bundle.records] == list(bundle.digests)
    own = {job_id: dict(files) for job_id, files in bundle.files.items() if files}
    assert own == {
        first: {"config.json": b"one", "environment.json": b"two"},
        second: {"config.json": b"three"},
    }
    assert bundle.contents[first] == packed[names[0]]
    assert bundle.recipe == packed["recipe.toml"]
    with bundles.unpacked(tmp_path / "a.zip") as runs:
        folder = runs.path(first)
        found = {path.name: path.read_bytes() for path in folder.iterdir()}
        assert found == {**own[first], "record.json": packed[names[0]]}
        assert runs.shown == tmp_path / "a.zip"
    assert not folder.exists()


@pytest.mark.parametrize("how", ["changed", "gone"])
def test_a_record_that_is_not_the_packed_one_is_named(
    how: str, tmp_path: Path, packed: dict[str, bytes]
) -> None:
    name = next(name for name in packed if name.endswith("/record.json"))
    if how == "changed":
        packed[name] += b" "
    else:
        del packed[name]
    file = zipped(tmp_path / "a.zip", packed)

    with pytest.raises(DataError, match="is not the one that was packed") as caught:
        bundles.read_bundle(file)

    assert name in caught.value.message
    assert name.split("/")[1] in caught.value.message
    assert caught.value.message.startswith(f"{file}: ")
    assert "get it again from whoever made it" in caught.value.hint


def test_a_bundle_deeper_than_one_folder_is_none(tmp_path: Path, packed: dict[str, bytes]) -> None:
    members = {f"a/b/{name}": content for name, content in packed.items()}

    with pytest.raises(DataError, match=r"not a bundle: it has no bundle\.json"):
        bundles.read_bundle(zipped(tmp_path / "a.zip", members))

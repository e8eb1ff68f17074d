"""Bundles with something wrong in them: a report of what is sound, or a message, nothing else."""

import io
import random
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from prime_bench.recipe.file import find_recipe, load_recipe, recipe_content
from prime_bench.report.bundle import FILES, bundle_of
from prime_bench.report.quantities.records import jobs_of
from prime_bench.store.runs import Runs

Call = Callable[..., tuple[int, str, str]]
Mangle = Callable[[bytes, random.Random], bytes]
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)
NAMES = ("bundle.json", "x", "../x", "/x", "runs/x/record.json", "a\\b", ".DS_Store", "é")


def packed_again(content: bytes, chance: random.Random, mangle: Mangle, tear: Mangle) -> bytes:
    """The bundle with members changed, deleted, renamed or doubled, under any method."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(buffer, "w") as new:
        names = old.namelist()
        chosen = set(chance.sample(names, chance.choice((0, 1, 1, 2))))
        for name in names:
            member, as_name = old.read(name), name
            if name in chosen or (name == "bundle.json" and chance.random() < 0.4):
                match chance.randrange(4):
                    case 0:
                        continue
                    case 1:
                        as_name = chance.choice(NAMES)
                    case 2 if name.endswith(".json"):
                        member = mangle(member, chance)
                    case _:
                        member = tear(member, chance)
            new.writestr(as_name, member, compress_type=chance.choice(METHODS))
    return buffer.getvalue()


def flipped(content: bytes, chance: random.Random) -> bytes:
    """The content with some bytes changed: in members, headers or the directory."""
    made = bytearray(content)
    low = chance.choice((0, 0, len(made) - 2000))
    for _ in range(chance.choice((1, 3, 20))):
        made[chance.randrange(max(0, low), len(made))] = chance.randrange(256)
    return bytes(made)


@pytest.fixture(scope="session")
def sound() -> bytes:
    """A bundle of the made-up records."""
    runs = Runs(Path(__file__).parents[1] / "records")
    records, _ = runs.readable()
    variants = {record.dataset: record.data_variant for record in records}
    jobs = jobs_of(load_recipe("apg"), name="apg", variants=variants)
    job_ids = [record.job_id for record in records if record.job.kind == "train"]
    files = {
        job_id: {
            name: (runs.path(job_id) / name).read_bytes()
            for name in FILES
            if (runs.path(job_id) / name).is_file()
        }
        for job_id in job_ids
    }
    recipe = recipe_content(find_recipe("apg"))
    _, content = bundle_of(files, recipe=recipe, jobs=jobs, where=runs.folder)
    return content


@pytest.mark.filterwarnings("ignore:Duplicate name:UserWarning")
@pytest.mark.parametrize("seed", range(40))
def test_a_mangled_bundle_is_read_or_refused(
    sound: bytes,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    call: Call,
    mangle: Mangle,
    tear: Mangle,
    seed: int,
) -> None:
    monkeypatch.chdir(tmp_path)
    chance = random.Random(seed)
    match chance.randrange(3):
        case 0:
            content = packed_again(sound, chance, mangle, tear)
        case 1:
            content = flipped(packed_again(sound, chance, mangle, tear), chance)
        case _:
            content = chance.choice((flipped, tear))(sound, chance)
    Path("b.zip").write_bytes(content)

    call(["report", "b.zip"], allowed=(0, 1, 3), what=f"seed {seed}, {len(content)} bytes")
    assert [path.name for path in tmp_path.iterdir()] == ["b.zip"]

"""`prepare` as a whole: one content gives one fingerprint, and a table is whole or absent."""

import hashlib
import os
import random
import shutil
import subprocess
import sys
import zipfile

import numpy as np
import pytest

from prime_bench.base.errors import DataError
from prime_bench.data.manifest import Manifest, resolve
from prime_bench.data.prepare import NO_DIGESTS_NOTE, VOCABULARY_NOTE, prepare
from prime_bench.data.table import PreparedTable


def gzipped(folder, csv):
    other = folder.with_name("gz")
    for path in folder.glob("*.csv"):
        csv(other / f"{path.name}.gz", path.read_text().splitlines())
    return other


def zipped(folder, *, prefix=""):
    path = folder.with_suffix(".zip")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in folder.glob("*.csv"):
            archive.write(file, f"{prefix}{file.name}")
    return path


def test_raw_log_becomes_fields_in_the_order_of_avazu_x1(tmp_path, raw_log, csv):
    spec = resolve("avazu-raw", {})
    manifest = prepare(spec, data_dir=tmp_path / "data", source=csv(tmp_path / "log", raw_log))
    table = PreparedTable.open(spec.folder(tmp_path / "data"))
    names = [field.name for field in table.schema.fields]
    assert names == [
        name for name in raw_log[0].split(",") if name not in ("id", "click", "hour")
    ] + ["hour"]
    semantics = {field.semantic: i for i, field in enumerate(table.schema.fields)}
    assert (semantics["site_category"], semantics["app_category"], semantics["hour"]) == (4, 7, 21)
    # Decoded rows are the raw ones, each in one of the splits, in file order.
    words = {
        name: (table.path / "vocabulary" / f"{name}.txt").read_text().split("\n") for name in names
    }
    decoded = []
    for split in ("train", "valid", "test"):
        part = table.split(split)
        decoded.append(
            [
                (label, *(words[name][i - 1] for name, i in zip(names, row, strict=True)))
                for label, row in zip(part.labels.tolist(), part.ids.tolist(), strict=True)
            ]
        )
    raw = []
    for line in raw_log[1:]:
        _, click, hour, *rest = line.split(",")
        raw.append((int(click), *rest, hour[6:]))
    assert sorted(decoded[0] + decoded[1] + decoded[2]) == sorted(raw)
    for rows in decoded:
        kept = iter(raw)
        assert all(row in kept for row in rows)
    assert manifest.rows.total == 400
    assert not manifest.verified
    assert manifest.notes == [*spec.card.notes, NO_DIGESTS_NOTE, VOCABULARY_NOTE]


TRAPS = [
    *("0012", "12", "12.0", "1e5", "100000", "0x1f", "007", "nan", "NULL", "null", "inf", "-1"),
    *("__OOV__", "__PAD__", " ", " a", "a ", "a", "A", "é", "e\u0301", "日本", "\u2028", "#", "'"),
    *("68e10000", "True", "2014-10-21", "\t", "\\N", "a;b", "\u00a0"),
]


def test_text_stays_text_from_the_file_to_the_vocabulary(tmp_path, raw_log, csv):
    lines = [raw_log[0]]
    for row, line in enumerate(raw_log[1:]):
        fields = line.split(",")
        # The first column after the label, one in the middle and the last.
        fields[3] = fields[12] = fields[23] = TRAPS[row % len(TRAPS)]
        fields[4] = "" if row % 3 else "x"
        lines.append(",".join(fields))
    spec = resolve("avazu-raw", {})
    prepare(spec, data_dir=tmp_path / "data", source=csv(tmp_path / "log", lines))
    folder = spec.folder(tmp_path / "data")
    for name in ("C1", "device_ip", "C21"):
        words = (folder / "vocabulary" / f"{name}.txt").read_text(encoding="utf-8").split("\n")
        assert sorted(words[:-1]) == sorted(TRAPS)
    table = PreparedTable.open(folder)
    position = [field.name for field in table.schema.fields].index("banner_pos")
    assert table.schema.fields[position].vocabulary_size == 3
    assert set(np.unique(table.split("train").ids[:, position]).tolist()) == {1, 2}


def test_time_split_is_in_order_of_time(tmp_path, raw_log, csv):
    spec = resolve("avazu-raw", {"split": "time", "vocabulary": "train"})
    shuffled = [raw_log[0], *random.Random(1).sample(raw_log[1:], 400)]
    manifest = prepare(spec, data_dir=tmp_path / "data", source=csv(tmp_path / "log", shuffled))
    assert manifest.rows.plain() == {"train": 320, "valid": 40, "test": 40}
    assert VOCABULARY_NOTE not in manifest.notes
    table = PreparedTable.open(spec.folder(tmp_path / "data"))
    hours = (table.path / "vocabulary" / "hour.txt").read_text().split()
    # Rows of ten hours, 00-05 on the first day and 06-09 on the second; training has eight of them.
    assert sorted(hours) == ["00", "01", "02", "03", "04", "05", "06", "07"]
    oov = len(hours) + 1
    assert (table.split("valid").ids[:, -1] == oov).all()


def test_equal_rows_fall_into_one_split(tmp_path, raw_log, csv):
    spec = resolve("avazu-raw", {})
    lines = [raw_log[0], *raw_log[1:], *raw_log[1:]]
    manifest = prepare(spec, data_dir=tmp_path / "a", source=csv(tmp_path / "log", lines))
    once = prepare(spec, data_dir=tmp_path / "b", source=csv(tmp_path / "log", raw_log))
    assert manifest.rows.plain() == {k: 2 * v for k, v in once.rows.plain().items()}


def test_kinds_of_storage_give_one_fingerprint(tmp_path, avazu_folder, csv):
    spec = resolve("avazu", {})
    sources = [
        avazu_folder,
        gzipped(avazu_folder, csv),
        zipped(avazu_folder),
        zipped(avazu_folder, prefix="Avazu_x1/"),
    ]
    found = set()
    for i, source in enumerate(sources):
        manifest = prepare(
            spec, data_dir=tmp_path / f"data{i}", source=source, allow_unverified=True
        )
        inputs = tuple((file.md5, file.sha256, file.rows) for file in manifest.inputs)
        found.add((manifest.fingerprint, inputs))
        for file in manifest.inputs:
            assert (
                file.size
                == (source if source.suffix else source / file.path.split("/")[-1]).stat().st_size
            )
    ((fingerprint, inputs),) = found
    content = (avazu_folder / "valid.csv").read_bytes()
    assert inputs[1] == (hashlib.md5(content).hexdigest(), hashlib.sha256(content).hexdigest(), 40)
    assert len(fingerprint) == 64


def test_a_missing_last_line_feed_is_accepted(tmp_path, avazu_folder):
    spec = resolve("avazu", {})
    first = prepare(spec, data_dir=tmp_path / "a", source=avazu_folder, allow_unverified=True)
    path = avazu_folder / "test.csv"
    path.write_bytes(path.read_bytes()[:-1])
    second = prepare(spec, data_dir=tmp_path / "b", source=avazu_folder, allow_unverified=True)
    assert second.fingerprint == first.fingerprint


@pytest.mark.parametrize("old", ["0", "1"])
def test_labels_written_as_floats_are_the_same(tmp_path, avazu_folder, old):
    spec = resolve("avazu", {})
    first = prepare(spec, data_dir=tmp_path / "a", source=avazu_folder, allow_unverified=True)
    path = avazu_folder / "valid.csv"
    path.write_text(path.read_text().replace(f"\n{old},", f"\n{old}.0,"))
    second = prepare(spec, data_dir=tmp_path / "b", source=avazu_folder, allow_unverified=True)
    assert second.fingerprint == first.fingerprint


@pytest.mark.parametrize("change", ["value", "label", "order", "split"])
def test_another_content_gives_another_fingerprint(tmp_path, avazu_folder, change):
    spec = resolve("avazu", {})
    first = prepare(spec, data_dir=tmp_path / "a", source=avazu_folder, allow_unverified=True)
    lines = (avazu_folder / "train.csv").read_text().splitlines()
    if change == "value":
        lines[5] = lines[5][:-1] + "x"
    elif change == "label":
        lines[5] = str(1 - int(lines[5][0])) + lines[5][1:]
    elif change == "order":
        lines[5], lines[6] = lines[6], lines[5]
    else:
        with (avazu_folder / "valid.csv").open("a") as valid:
            valid.write(lines.pop() + "\n")
    (avazu_folder / "train.csv").write_text("\n".join(lines))
    second = prepare(spec, data_dir=tmp_path / "b", source=avazu_folder, allow_unverified=True)
    assert second.fingerprint != first.fingerprint


THREADS = """
import sys
from pathlib import Path
from prime_bench.data.prepare import prepare
from prime_bench.data.manifest import resolve
import polars
name, source, data_dir = sys.argv[1:]
manifest = prepare(
    resolve(name, {}), data_dir=Path(data_dir), source=Path(source), allow_unverified=True
)
print(polars.thread_pool_size(), manifest.fingerprint)
"""


@pytest.mark.parametrize("name", ["avazu", "criteo"])
def test_threads_do_not_matter(tmp_path, request, name):
    source = request.getfixturevalue(f"{name}_folder")
    found = {}
    for threads in ("1", "8"):
        output = subprocess.run(
            [sys.executable, "-c", THREADS, name, str(source), str(tmp_path / threads)],
            env={**os.environ, "POLARS_MAX_THREADS": threads},
            check=True,
            capture_output=True,
            text=True,
        )
        used, found[threads] = output.stdout.split()
        assert used == threads
    assert found["1"] == found["8"]


def test_a_rerun_answers_at_once_and_changes_nothing(tmp_path, avazu_folder, monkeypatch):
    spec = resolve("avazu", {})
    arguments = {"data_dir": tmp_path / "data", "source": avazu_folder, "allow_unverified": True}
    first = prepare(spec, **arguments)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "data").rglob("*")}

    def refuse(*_, **__):
        raise AssertionError("nothing has to be read")

    monkeypatch.setattr("prime_bench.data.prepare.encode", refuse)
    monkeypatch.setattr("prime_bench.data.prepare.digest_source", refuse)
    assert prepare(spec, **arguments) == first
    assert prepare(spec, data_dir=tmp_path / "data") == first
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "data").rglob("*")} == before


def test_a_killed_runs_lock_beside_a_complete_table(tmp_path, avazu_folder, names_in):
    spec = resolve("avazu", {})
    data_dir = tmp_path / "data"
    manifest = prepare(spec, data_dir=data_dir, source=avazu_folder, allow_unverified=True)
    folder = spec.folder(data_dir)
    (data_dir / f".lock-{folder.name}").touch()
    (data_dir / f".replaced-{folder.name}").mkdir()
    assert prepare(spec, data_dir=data_dir) == manifest
    assert names_in(data_dir) == [folder.name]


def test_the_same_content_elsewhere_is_not_read_into_a_new_table(
    tmp_path, avazu_folder, csv, monkeypatch
):
    spec = resolve("avazu", {})
    first = prepare(spec, data_dir=tmp_path / "data", source=avazu_folder, allow_unverified=True)

    def refuse(*_, **__):
        raise AssertionError("the table is there")

    monkeypatch.setattr("prime_bench.data.prepare.encode", refuse)
    for source in (gzipped(avazu_folder, csv), shutil.copytree(avazu_folder, tmp_path / "copy")):
        found = prepare(spec, data_dir=tmp_path / "data", source=source, allow_unverified=True)
        assert found == first


def test_a_rebuilt_table_has_the_same_bytes(tmp_path, criteo_folder, tree):
    spec = resolve("criteo", {"numeric": "log_bucket"})
    arguments = {"data_dir": tmp_path / "data", "source": criteo_folder, "allow_unverified": True}
    prepare(spec, **arguments)
    before = tree(tmp_path / "data")
    shutil.rmtree(tmp_path / "data")
    prepare(spec, **arguments)
    assert tree(tmp_path / "data") == before


def test_other_inputs_replace_the_table_and_say_so(tmp_path, avazu_folder, names_in):
    spec = resolve("avazu", {})
    arguments = {"data_dir": tmp_path / "data", "source": avazu_folder, "allow_unverified": True}
    first = prepare(spec, **arguments)
    # Of the same length, and with the same time: only the size tells, then the digest.
    path = avazu_folder / "train.csv"
    path.write_text(path.read_text().replace("\n0,", "\n1,", 1))
    messages = []
    second = prepare(spec, **arguments, log=messages.append)
    assert second.fingerprint != first.fingerprint
    assert messages == [
        f"{spec.folder(tmp_path / 'data')}: was prepared from other files; preparing it again"
    ]
    assert names_in(tmp_path / "data") == [spec.folder(tmp_path / "data").name]


@pytest.mark.parametrize("damage", ["array", "vocabulary", "manifest"])
def test_a_damaged_table_is_prepared_again(tmp_path, avazu_folder, damage, tree):
    spec = resolve("avazu", {})
    folder = spec.folder(tmp_path / "data")
    arguments = {"data_dir": tmp_path / "data", "source": avazu_folder, "allow_unverified": True}
    prepare(spec, **arguments)
    before = tree(tmp_path / "data")
    if damage == "array":
        (folder / "test.ids.npy").write_bytes(b"")
    elif damage == "vocabulary":
        (folder / "vocabulary" / "feat_3.txt").unlink()
    else:
        (folder / "manifest.json").unlink()
    messages = []
    prepare(spec, **arguments, log=messages.append)
    assert tree(tmp_path / "data") == before
    assert "preparing the table again" in messages[0]


def test_after_an_error_the_old_table_stays(tmp_path, avazu_folder, tree):
    spec = resolve("avazu", {})
    arguments = {"data_dir": tmp_path / "data", "source": avazu_folder, "allow_unverified": True}
    prepare(spec, **arguments)
    before = tree(tmp_path / "data")
    with (avazu_folder / "test.csv").open("a") as file:
        file.write("0,1\n")
    with pytest.raises(DataError, match=r"test.csv: expected 23 .* line 62 has 2"):
        prepare(spec, **arguments)
    assert tree(tmp_path / "data") == before


def test_generated_data(tmp_path, tree):
    spec = resolve("synthetic", {"rows": 3_000})
    manifest = prepare(spec, data_dir=tmp_path / "data")
    assert manifest.rows.total == 3_000
    assert manifest.verified
    assert manifest.inputs == []
    assert set(manifest.best) == {"train", "valid", "test"}
    assert 0.5 < manifest.best["test"].auc < 1
    before = tree(tmp_path / "data")
    assert prepare(spec, data_dir=tmp_path / "data") == manifest
    shutil.rmtree(tmp_path / "data")
    prepare(spec, data_dir=tmp_path / "data")
    assert tree(tmp_path / "data") == before


def reorder(folder):
    path = folder / "train.csv"
    header, *rows = path.read_text().splitlines()
    path.write_text("\n".join([header, *rows[::-1]]) + "\n")


def test_memory_maps_of_a_replaced_table_stay_readable(tmp_path, avazu_folder):
    spec = resolve("avazu", {})
    arguments = {"data_dir": tmp_path / "data", "source": avazu_folder, "allow_unverified": True}
    prepare(spec, **arguments)
    ids = PreparedTable.open(spec.folder(tmp_path / "data")).split("train").ids
    before = np.array(ids)
    reorder(avazu_folder)
    prepare(spec, **arguments)
    assert (np.array(ids) == before).all()


def test_progress_is_reported_in_order(tmp_path, criteo_folder):
    told = []
    prepare(
        resolve("criteo", {}),
        data_dir=tmp_path / "data",
        source=criteo_folder,
        allow_unverified=True,
        on_progress=told.append,
    )
    stages = list(dict.fromkeys(progress.stage for progress in told))
    assert stages == ["reading", "counting", "writing"]
    for stage in stages:
        of_stage = [progress for progress in told if progress.stage == stage]
        assert of_stage[-1].done == of_stage[-1].total
        assert of_stage[-1].rows == 400
        assert [p.done for p in of_stage] == sorted(p.done for p in of_stage)


def test_the_manifest_says_from_what_and_with_what(tmp_path, avazu_folder, tree):
    spec = resolve("avazu", {})
    prepare(spec, data_dir=tmp_path / "data", source=avazu_folder, allow_unverified=True)
    folder = spec.folder(tmp_path / "data")
    manifest = Manifest.read(folder)
    on_disk = tree(folder)
    del on_disk["manifest.json"]
    assert manifest.outputs == on_disk
    assert [file.path for file in manifest.inputs] == [
        str(avazu_folder / f"{split}.csv") for split in ("train", "valid", "test")
    ]
    assert manifest.vocabulary_total == 22 * 32
    assert set(manifest.versions) == {"python", "prime-bench", "numpy", "polars"}

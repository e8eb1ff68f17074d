"""Files with the line ends of Windows: the same table as with line feeds, and the same digests."""

import gzip
import hashlib
import io
import zipfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prime_bench.base.errors import DataError
from prime_bench.base.streams import derive
from prime_bench.data.manifest import resolve
from prime_bench.data.prepare import prepare
from prime_bench.data.raw.lines import with_line_feeds
from prime_bench.data.raw.source import SourceFile, digests_as_stored, open_source
from prime_bench.data.split import mix


def windows(content):
    return content.replace(b"\n", b"\r\n")


def mixed(content):
    lines = content.split(b"\n")
    return b"".join(
        line + (b"\r\n" if number % 3 else b"\n") for number, line in enumerate(lines[:-1])
    )


def unfinished(content):
    return windows(content).removesuffix(b"\r\n")


ENDS = {end.__name__: end for end in (windows, mixed, unfinished)}


@pytest.fixture(params=ENDS)
def rewrite(request):
    """Gives all files of a folder other line ends; returns the folder."""

    def all_of(folder):
        for path in folder.iterdir():
            path.write_bytes(ENDS[request.param](path.read_bytes()))
        return folder

    return all_of


@given(st.lists(st.sampled_from([b"\r", b"\n", b"a", b"bc"])), st.integers(1, 9))
def test_pieces_are_those_of_the_whole(parts, n_bytes):
    content = b"".join(parts)
    file = io.BytesIO(content)
    pieces = list(iter(lambda: with_line_feeds(file.read, n_bytes), (b"", b"")))
    assert b"".join(stored for stored, _ in pieces) == content
    assert b"".join(text for _, text in pieces) == content.replace(b"\r\n", b"\n")
    # Nobody takes a piece for the end of the file.
    assert all(text for _, text in pieces)


@given(st.lists(st.sampled_from([b"1,2", b"\r\n", b"\n", b"x"]), min_size=1), st.integers(1, 9))
def test_digests_are_of_both_forms(tmp_path_factory, parts, n_bytes):
    content = b"".join(parts)
    path = tmp_path_factory.mktemp("in") / "a.csv"
    path.write_bytes(content)
    source = SourceFile(path=path, size=len(content), mtime_ns=0, stored_bytes=len(content))
    with open_source(source) as stream:
        while stream.read(n_bytes):
            pass
    text = content.replace(b"\r\n", b"\n")
    assert stream.content_bytes == len(content)
    assert stream.md5 == hashlib.md5(text).hexdigest()
    assert stream.sha256 == hashlib.sha256(content).hexdigest()
    assert stream.has_crlf == (text != content)
    assert digests_as_stored(source)[0] == hashlib.md5(content).hexdigest()


@pytest.mark.parametrize("published", ["line feeds", "as stored"])
def test_published_splits(tmp_path, avazu_folder, published_as, rewrite, published):
    """The digest on the card is of either form; the manifest says which."""
    expected = prepare(published_as(avazu_folder), data_dir=tmp_path / "a", source=avazu_folder)
    assert [file.published for file in expected.inputs] == ["as stored"] * 3
    in_lf = published_as(avazu_folder)
    folder = rewrite(avazu_folder)
    files = {
        split: file.model_copy(
            update={"md5": hashlib.md5((folder / f"{split}.csv").read_bytes()).hexdigest()}
        )
        for split, file in in_lf.card.files.items()
    }
    spec = (
        in_lf if published == "line feeds" else published_as(avazu_folder, wrong={"files": files})
    )
    if published == "line feeds" and not (folder / "test.csv").read_bytes().endswith(b"\n"):
        # Without its last line end, a file has the published bytes in neither form.
        with pytest.raises(DataError, match=r"found .* or, with its CRLF, "):
            prepare(spec, data_dir=tmp_path / "b", source=folder)
        return
    manifest = prepare(spec, data_dir=tmp_path / "b", source=folder)
    assert manifest.verified
    assert manifest.fingerprint == expected.fingerprint
    assert [file.published for file in manifest.inputs] == [published] * 3
    for file in manifest.inputs:
        content = (folder / file.path).read_bytes()
        assert file.content_bytes == len(content)
        assert file.sha256 == hashlib.sha256(content).hexdigest()
        assert file.md5 == hashlib.md5(content.replace(b"\r\n", b"\n")).hexdigest()
        taken = hashlib.md5(content).hexdigest() if published == "as stored" else None
        assert file.md5_as_stored == taken
    # Accepted again without being read, and read again at another place.
    assert prepare(spec, data_dir=tmp_path / "b", source=folder) == manifest
    assert prepare(spec, data_dir=tmp_path / "b", source=in_zip(folder)) == manifest


def in_zip(folder):
    path = folder.with_suffix(".zip")
    with zipfile.ZipFile(path, "w") as archive:
        for file in folder.iterdir():
            archive.write(file, file.name)
    return path


def test_one_file_of_three_is_another(tmp_path, avazu_folder, published_as):
    """A difference is named for the file that has it, in both forms."""
    spec = published_as(avazu_folder)
    for path in avazu_folder.iterdir():
        path.write_bytes(windows(path.read_bytes()))
    path = avazu_folder / "valid.csv"
    path.write_bytes(path.read_bytes().replace(b"\r\n0,", b"\r\n1,", 1))
    with pytest.raises(DataError) as error:
        prepare(spec, data_dir=tmp_path / "data", source=avazu_folder)
    stored = path.read_bytes()
    md5, md5_lf = (
        hashlib.md5(content).hexdigest() for content in (stored, stored.replace(b"\r\n", b"\n"))
    )
    _, *lines = error.value.message.split("\n")
    assert lines[0] == (
        f"valid.csv: expected md5 {spec.card.files['valid'].md5}, found {md5_lf}"
        f" or, with its CRLF, {md5}"
    )
    assert [line.partition(",")[0] for line in lines[1:]] == [
        f"valid.csv: expected positives {spec.card.files['valid'].positives}"
    ]


@pytest.mark.parametrize("split", ["hash", "time"])
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_log_that_is_split_here(tmp_path, raw_log, csv, rewrite, split, pack):
    """Rows are in the same split: the hash is that of the line without its carriage return."""
    spec = resolve("avazu-raw", {"split": split})
    lf = csv(tmp_path / "lf" / "log.csv", raw_log)
    expected = prepare(spec, data_dir=tmp_path / "a", source=lf)
    (path,) = rewrite(lf.parent).iterdir()
    other = path.with_name("log.csv.gz" if pack is gzip.compress else "log.csv")
    other.write_bytes(pack(path.read_bytes()))
    found = prepare(spec, data_dir=tmp_path / "b", source=other)
    assert found.fingerprint == expected.fingerprint
    text = path.read_bytes().replace(b"\r\n", b"\n")
    assert found.inputs[0].md5 == hashlib.md5(text).hexdigest()
    assert found.inputs[0].sha256 != expected.inputs[0].sha256


@pytest.mark.usefixtures("small_blocks")
def test_kaggles_log(tmp_path, kaggle_log, rewrite):
    spec = resolve("criteo", {})
    both = []
    for name in "ab":
        both.append(
            prepare(spec, data_dir=tmp_path / name, source=kaggle_log, allow_unverified=True)
        )
        rewrite(kaggle_log.parent)
    assert both[0].fingerprint == both[1].fingerprint
    # The three files made of the log are those of Criteo_x4, digests included.
    assert [file.md5 for file in both[0].inputs] == [file.md5 for file in both[1].inputs]


def test_libsvm(tmp_path, avazu_folder, published_as, rewrite):
    spec = published_as(avazu_folder)
    other = avazu_folder.with_name("afn")
    other.mkdir()
    for path in avazu_folder.iterdir():
        rows = [line.split(",") for line in path.read_text().splitlines()[1:]]
        lines = [" ".join([label, *(f"{id_}:1" for id_ in ids)]) for label, *ids in rows]
        (other / f"{path.stem}.libsvm").write_text("\n".join(lines) + "\n")
    manifest = prepare(spec, data_dir=tmp_path / "data", source=rewrite(other))
    assert manifest.verified
    assert [file.published for file in manifest.inputs] == ["as stored"] * 3


@pytest.mark.parametrize("line", [1, 2, 200])
@pytest.mark.parametrize(
    "fault", [lambda line: line + "\r\r", lambda line: line[:-2] + "\r" + line[-2:]]
)
def test_a_carriage_return_elsewhere_is_named(tmp_path, raw_log, csv, line, fault):
    lines = [f"{text}\r" for text in raw_log]
    lines[line - 1] = fault(raw_log[line - 1])
    path = csv(tmp_path / "log.csv", lines)
    with pytest.raises(DataError) as error:
        prepare(resolve("avazu-raw", {}), data_dir=tmp_path / "data", source=path)
    assert f"line {line}" in error.value.message
    assert "carriage return" in error.value.message


def test_carriage_returns_alone(tmp_path, raw_log):
    path = tmp_path / "log.csv"
    path.write_bytes("\r".join(raw_log).encode())
    with pytest.raises(DataError, match="line 1: lines end in a carriage return alone") as error:
        prepare(resolve("avazu-raw", {}), data_dir=tmp_path / "data", source=path)
    assert error.value.hint


def test_the_hash_of_a_line_is_that_of_its_text(tmp_path, raw_log, csv):
    """Splits by hash of LF files stay where they were: rows of each split, by the definition."""
    start = np.uint64(derive(2021, "split"))
    even = 0x9E3779B97F4A7C15
    rows = [0, 0, 0]
    for line in raw_log[1:]:
        total = 0
        for j, byte in enumerate(f"{line}\n".encode()):
            word = np.array([(int(start) + (j + 1) * even) % 2**64], dtype=np.uint64)
            total = (total + byte * int(mix(word)[0])) % 2**64
        share = (int(mix(np.array([total], dtype=np.uint64))[0]) >> 11) / 2**53
        rows[0 if share < 0.8 else 1 if share < 0.9 else 2] += 1
    path = csv(tmp_path / "log.csv", [f"{line}\r" for line in raw_log])
    manifest = prepare(resolve("avazu-raw", {}), data_dir=tmp_path / "data", source=path)
    assert list(manifest.rows.plain().values()) == rows

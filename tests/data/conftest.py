"""Raw files and chunks to try the data layer with."""

import gzip
import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from prime_bench.data.card import CardFile, load_card
from prime_bench.data.manifest import TableSpec, resolve
from prime_bench.data.raw.lines import blocks
from prime_bench.data.stages import Chunk

RAW_HEADER = (
    "id,click,hour,C1,banner_pos,site_id,site_domain,site_category,app_id,app_domain,app_category,"
    "device_id,device_ip,device_model,device_type,device_conn_type,C14,C15,C16,C17,C18,C19,C20,C21"
)


@pytest.fixture
def tree() -> Callable[[Path], dict[str, str]]:
    """SHA-256 of every file below a folder, hidden ones included."""

    def digests(folder: Path) -> dict[str, str]:
        return {
            str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted(folder.rglob("*"))
            if path.is_file()
        }

    return digests


@pytest.fixture
def names_in() -> Callable[[Path], list[str]]:
    """Sorted names in a folder."""
    return lambda folder: sorted(path.name for path in folder.iterdir())


@pytest.fixture
def raw_log() -> list[str]:
    """The lines of a raw Avazu log of 400 rows over 10 hours, header first."""
    random = np.random.default_rng(7)
    lines = [RAW_HEADER]
    for row in range(400):
        values = [f"{random.integers(0, 5 + 3 * field):08x}" for field in range(21)]
        hour = f"1410{21 + row // 240:02}{row // 40 % 24:02}"
        lines.append(",".join([str(10**19 + row), str(random.integers(0, 2)), hour, *values]))
    return lines


def write_csv(path: Path, lines: Sequence[str | bytes]) -> Path:
    """Lines to a csv, gzipped if its name says so."""
    content = b"".join((line.encode() if isinstance(line, str) else line) + b"\n" for line in lines)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(content, mtime=0) if path.suffix == ".gz" else content)
    return path


@pytest.fixture
def csv() -> Callable[[Path, Sequence[str | bytes]], Path]:
    """`write_csv`, as a fixture."""
    return write_csv


@pytest.fixture
def avazu_folder(tmp_path: Path) -> Path:
    """A folder in Avazu_x1's format: 300, 40 and 60 rows."""
    header = ",".join(["label", *(f"feat_{i}" for i in range(1, 23))])
    random = np.random.default_rng(3)
    for split, n_rows in (("train", 300), ("valid", 40), ("test", 60)):
        rows = [
            ",".join(map(str, [random.integers(0, 2), *random.integers(0, 30, size=22)]))
            for _ in range(n_rows)
        ]
        write_csv(tmp_path / "avazu" / f"{split}.csv", [header, *rows])
    return tmp_path / "avazu"


@pytest.fixture
def criteo_folder(tmp_path: Path) -> Path:
    """A folder in Criteo_x4's format, with missing values: 300, 40 and 60 rows."""
    header = ["Label", *(f"I{i}" for i in range(1, 14)), *(f"C{i}" for i in range(1, 27))]
    random = np.random.default_rng(4)
    for split, n_rows in (("train", 300), ("valid", 40), ("test", 60)):
        lines = [",".join(header)]
        for _ in range(n_rows):
            numbers = [
                "" if random.random() < 0.2 else str(int(random.lognormal(2, 2)) - 2)
                for _ in range(13)
            ]
            words = [
                "" if random.random() < 0.1 else f"{random.integers(0, 4):08x}" for _ in range(26)
            ]
            lines.append(",".join([str(random.integers(0, 2)), *numbers, *words]))
        write_csv(tmp_path / "criteo" / f"{split}.csv", lines)
    return tmp_path / "criteo"


@pytest.fixture
def kaggle_log(tmp_path: Path) -> Path:
    """Kaggle's train.txt of Criteo: 400 rows of 40 fields between tabs, with missing values."""
    random = np.random.default_rng(5)
    lines = []
    for _ in range(400):
        numbers = [
            "" if random.random() < 0.2 else str(int(random.lognormal(2, 2)) - 2) for _ in range(13)
        ]
        words = ["" if random.random() < 0.1 else f"{random.integers(0, 4):08x}" for _ in range(26)]
        lines.append("\t".join([str(int(random.random() < 0.26)), *numbers, *words]))
    return write_csv(tmp_path / "dac" / "train.txt", lines)


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are read in blocks of a few lines."""
    monkeypatch.setitem(blocks.__kwdefaults__, "block_bytes", 777)
    monkeypatch.setattr("prime_bench.data.raw.kaggle_criteo.BLOCK_BYTES", 777)


@pytest.fixture
def published_as() -> Callable[..., TableSpec]:
    """`as_if_published`, as a fixture."""
    return as_if_published


def as_if_published(
    folder: Path,
    *,
    name: str = "avazu",
    wrong: Mapping[str, object] | None = None,
) -> TableSpec:
    """A spec of card `name` as if `folder` held the published files; `wrong` replaces facts."""
    card = load_card(name)
    files = {}
    for split in ("train", "valid", "test"):
        content = (folder / f"{split}.csv").read_bytes()
        labels = [line[:1] for line in content.split(b"\n")[1:-1]]
        files[split] = CardFile(
            md5=hashlib.md5(content).hexdigest(), rows=len(labels), positives=labels.count(b"1")
        )
    values = 30 if name == "avazu" else None
    columns = [column.model_copy(update={"train_values": values}) for column in card.columns[1:]]
    facts = {"files": files, "columns": [card.columns[0], *columns], **(wrong or {})}
    return TableSpec(card=card.model_copy(update=facts), settings=resolve(name, {}).settings)


@pytest.fixture
def chunks_of() -> Callable[..., list[Chunk]]:
    """Rows to chunks of `size` rows: text `columns` by name, `numerics` (n, K), splits."""

    def make(
        columns: dict[str, list[str]],
        *,
        numerics: Sequence[Sequence[float]] | None = None,
        split: Sequence[int],
        size: int = 1_000,
        split_type: type = np.uint8,
    ) -> list[Chunk]:
        n_rows = len(split)
        table = pl.DataFrame(columns, schema=dict.fromkeys(columns, pl.String))
        values = np.empty((n_rows, 0)) if numerics is None else np.array(numerics, dtype=float)
        labels = (np.arange(n_rows) % 2).astype(np.uint8)
        return [
            Chunk(
                categories=table.slice(start, size),
                numerics=values[start : start + size],
                labels=labels[start : start + size],
                split=np.array(split[start : start + size], dtype=split_type),
            )
            for start in range(0, n_rows, size)
        ]

    return make

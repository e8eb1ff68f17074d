"""Settings that hold for every test."""

import gc
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

# Nothing that is imported and collected can be freed, and walking it again and again takes a third
# of the time. On again in `pytest_collection_finish`.
gc.disable()
# Before anything imports torch. Two threads of one small operation wait for each other in each
# step, and while other programs run for twenty times as long as one thread takes.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# torch's compiler keeps its results, and a process that was killed while it wrote one leaves a
# library that no later process can load. The processes of pytest-xdist share what they compile.
if "PYTEST_XDIST_WORKER" not in os.environ:
    _COMPILED = tempfile.TemporaryDirectory(prefix="prime-bench-compiled-")
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = _COMPILED.name
# Otherwise it compiles a program for each set of instructions that the processor says it has.
os.environ["TORCHINDUCTOR_VEC_ISA_OK"] = "1"
# More would be processes that each import torch, for what takes a second.
os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"

# No test fails because a machine is slow; in CI the examples are the same every time.
settings.register_profile(
    "suite",
    deadline=None,
    derandomize=bool(os.environ.get("CI")),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("suite")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="run the tests marked slow, too")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    items[:] = _long_first(items, getattr(config, "workerinput", {}).get("workercount", 1))
    if config.getoption("--slow"):
        return
    skip = pytest.mark.skip(reason="slow; run with --slow")
    for item in items:
        if item.get_closest_marker("slow"):
            item.add_marker(skip)


def _long_first(items: list[pytest.Item], n_workers: int) -> list[pytest.Item]:
    """Long tests first in the part of the list with which each process of pytest-xdist begins.

    Those of a file, which may share what takes long to make, stay together.
    """
    long: dict[Path, list[pytest.Item]] = {}
    rest = []
    for item in items:
        if item.get_closest_marker("long"):
            long.setdefault(item.path, []).append(item)
        else:
            rest.append(item)
    files, left, parts = list(long.values()), len(items), []
    for n in range(n_workers):
        first = [item for file in files[n::n_workers] for item in file]
        size = left // (n_workers - n)
        left -= size
        n_rest = max(0, size - len(first))
        parts += first + rest[:n_rest]
        del rest[:n_rest]
    return parts + rest


@pytest.fixture(autouse=True)
def _seed_torch() -> None:
    """What a test draws and how it rounds does not depend on the tests before it."""
    # Looked up, not imported: layers without torch are tested without it.
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)
        # A job of an earlier test may have asked for it, and Hypothesis refuses to work with it.
        sys.modules["torch"].set_flush_denormal(False)


@pytest.fixture(autouse=True, scope="session")
def _no_waiting_for_the_disk() -> Iterator[None]:
    """No test cuts the power, and waiting for the disk is most of what small files cost."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.fsync", lambda _: None)
        yield


SIZES = (9, 14, 6)
ROWS = {"train": 321, "valid": 150, "test": 140}


@pytest.fixture(scope="session")
def write_manifest():
    """Write the manifest of a table, by default with the values of the tiny one."""
    from prime_bench.base.files import sha256_of
    from prime_bench.data.manifest import Manifest, SplitCounts, fingerprint_of

    def write(folder, *, rows, positives, **facts):
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        outputs = {
            path.relative_to(folder).as_posix(): sha256_of(path)
            for path in files
            if path.name != "manifest.json"
        }
        tiny = {
            "dataset": "tiny",
            "settings": {},
            "variant": "variant",
            "fingerprint": fingerprint_of(outputs),
            "verified": False,
            "notes": ["made by a test"],
            "n_fields": len(SIZES) + 1,
            "vocabulary_total": sum(SIZES),
            "inputs": [],
            "outputs": outputs,
            "versions": {},
        }
        counts = {"rows": SplitCounts(**rows), "positives": SplitCounts(**positives)}
        Manifest(**{**tiny, **counts, **facts}).write(folder)

    return write


@pytest.fixture(scope="session")
def write_table(write_manifest):
    """Write a prepared table, file by file as `prepare` leaves it."""
    from prime_bench.data.schema import Field, Schema

    def write(folder, *, seed=3, rows=ROWS, spoil=None):
        random = np.random.default_rng(seed)
        (folder / "vocabulary").mkdir(parents=True, exist_ok=True)
        positives = {}
        for name, n in rows.items():
            ids = np.stack([random.integers(1, size, n) for size in SIZES], axis=1).astype(np.int32)
            numerics = random.normal(size=(n, 1)).astype(np.float32)
            logit = 1.5 * (ids[:, 0] % 3 - 1) + (2 * (ids[:, 1] % 2) - 1) * numerics[:, 0] - 0.5
            labels = (random.random(n) < 1 / (1 + np.exp(-logit))).astype(np.uint8)
            if spoil is not None:
                spoil(name, numerics, labels)
            for part, array in (("ids", ids), ("numerics", numerics), ("labels", labels)):
                np.save(folder / f"{name}.{part}.npy", array)
            positives[name] = int(labels.sum())
        fields = [
            Field(name=f"c{i}", kind="categorical", vocabulary_size=v) for i, v in enumerate(SIZES)
        ]
        schema = Schema(fields=[*fields, Field(name="n0", kind="numeric")])
        (folder / "schema.json").write_text(json.dumps(schema.plain()))
        for field, size in zip(schema.categorical, SIZES, strict=True):
            values = "".join(f"{field.name}={i}\n" for i in range(1, size - 1))
            (folder / "vocabulary" / f"{field.name}.txt").write_text(values)
        write_manifest(folder, rows=rows, positives=positives)
        return folder

    return write


@pytest.fixture(scope="session")
def table(tmp_path_factory, write_table):
    """A prepared table of a few hundred rows."""
    return write_table(tmp_path_factory.mktemp("data") / "tiny-12345678")


@pytest.fixture
def make_request(table, tmp_path):
    """A request for a small training run on `table`."""
    from prime_bench.catalog import BACKBONES, PLUGINS
    from prime_bench.data.manifest import MANIFEST_NAME, Manifest
    from prime_bench.recipe.job import Job, JobRequest
    from prime_bench.settings.training import TrainSpec

    def make(
        plugin="prime",
        *,
        seed=2021,
        fingerprint=None,
        table=table,
        batch_norm=False,
        **training,
    ):
        backbone = {"embedding_dim": 4, "hidden_units": [16, 8], "net_dropout": 0.1}
        backbone["batch_norm"] = batch_norm
        small = {"bags": 2, "experts_per_bag": 3, "rank": 2}
        arm = small if plugin in ("prime", "permuted_routing") else {}
        spec = {"batch_size": 32, "learning_rate": 0.02, "max_epochs": 4, **training}
        if fingerprint is None and (table / MANIFEST_NAME).is_file():
            fingerprint = Manifest.read(table).fingerprint
        job = Job(
            fingerprint=fingerprint or "f" * 64,
            backbone="DNN",
            backbone_settings=BACKBONES["DNN"].settings.parse(backbone, where="").plain(),
            plugin=plugin,
            plugin_settings=PLUGINS[plugin].settings.parse(arm, where="").plain(),
            training=TrainSpec.parse(spec, where=""),
            seed=seed,
        )
        return JobRequest(
            job=job,
            dataset="tiny",
            arm=plugin,
            table=str(table),
            runs=str(tmp_path / "runs"),
            device="cpu",
            threads=1,
        )

    return make


@pytest.fixture(scope="session")
def plain_record():
    """The record of a training job; what is given goes into it, key by key in its tables."""
    from prime_bench.store.record import RunRecord

    def make(job, **given):
        score = {"auc": 0.75, "logloss": 0.4}
        table = {
            "job_id": job.id,
            "job": job.plain(),
            "dataset": "avazu",
            "arm": job.plugin,
            "data_variant": "v",
            "data_verified": True,
            "pairing": {"initial_weights": "w", "row_order": "r"},
            "budget": dict.fromkeys(
                ("backbone_parameters", "plugin_parameters", "backbone_macs", "plugin_macs"), 1
            ),
            "result": {
                "best_epoch": 1,
                "epochs": 2,
                "stopped": "patience",
                "valid": score,
                "test": score,
            },
            "history": [],
            "environment": {
                "commit": "0123456789abcdef",
                "dirty": False,
                "package_version": "0.1.0",
                "python": "3.11.9",
                "platform": "Linux",
                "versions": {"torch": "2.13.0"},
                "device": "a CPU",
                "device_kind": "cpu",
                "threads": 1,
                "started": "2026-01-01T00:00:00Z",
            },
            "wall_s": 1.0,
        }
        for key, value in given.items():
            within = isinstance(table.get(key), dict) and key != "job"
            table[key] = {**table[key], **value} if within else value
        return RunRecord.parse(table, where="")

    return make


@pytest.fixture
def own_class(tmp_path, monkeypatch):
    """A plug-in `own_mod:Gate` and a backbone `own_mod:Net`; what is returned sets the digest of
    their source, as an edit does.
    """
    (tmp_path / "classes").mkdir()
    (tmp_path / "classes" / "own_mod.py").write_text(
        "from prime_bench.settings.backbones import DNNSettings\n"
        "from prime_bench.settings.plugins import PrimeConfig\n\n\n"
        "class Gate:\n    label = 'Gate'\n    Settings = PrimeConfig\n\n\n"
        "class Net:\n    Settings = DNNSettings\n"
    )
    monkeypatch.syspath_prepend(tmp_path / "classes")
    monkeypatch.delitem(sys.modules, "own_mod", raising=False)

    def edit(version):
        digest = str(version) * 64
        monkeypatch.setattr("prime_bench.catalog.sources_digest", lambda *_modules: digest)

    edit(1)
    return edit


def pytest_collection_finish() -> None:
    """What was imported and collected stays to the end: the garbage collector need not walk it. It
    runs more rarely, too. Together this saves a fifth of the processor time or more.
    """
    gc.collect()
    gc.freeze()
    gc.enable()
    gc.set_threshold(20_000, 20, 50)

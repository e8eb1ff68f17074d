"""Small arms and rows that the tests of measurements share."""

import json

import numpy as np
import pytest
import torch

from prime_bench.assemble import build_arm
from prime_bench.catalog import BACKBONES, PLUGINS
from prime_bench.data.schema import Field, Schema
from prime_bench.data.table import PreparedTable, Split
from prime_bench.recipe.job import Job, JobRequest
from prime_bench.settings.probes import PROBES
from prime_bench.settings.training import TrainSpec
from prime_bench.worker import run_job

SIZES = (6, 12, 9)


@pytest.fixture(scope="session")
def schema():
    """Three categorical fields, the first of which means something, and a numeric one."""
    categorical = [
        Field(
            name=f"c{i}",
            kind="categorical",
            vocabulary_size=size,
            semantic="hour" if i == 0 else None,
        )
        for i, size in enumerate(SIZES)
    ]
    return Schema(fields=[*categorical, Field(name="n0", kind="numeric")])


@pytest.fixture(scope="session")
def make_split():
    """Rows whose labels depend on the fields, in another way for each value of the first."""

    def make(n_rows, *, seed=0):
        random = np.random.default_rng(seed)
        ids = np.stack([random.integers(1, size - 1, n_rows) for size in SIZES], axis=1)
        numerics = random.normal(size=(n_rows, 1))
        logit = (2 * (ids[:, 0] % 2) - 1) * (ids[:, 1] - 5.5) / 3 + 0.5 * numerics[:, 0] - 0.5
        return Split(
            ids=ids.astype(np.int32),
            numerics=numerics.astype(np.float32),
            labels=(random.random(n_rows) < 1 / (1 + np.exp(-logit))).astype(np.uint8),
        )

    return make


SMALL = {
    "DNN": {"hidden_units": [7, 5], "batch_norm": True},
    "DCN": {"dnn_hidden_units": [7, 5]},
    "DCNv2": {"parallel_dnn_hidden_units": [7, 5], "batch_norm": True},
    "MaskNet": {"dnn_hidden_units": [7, 5], "model_type": "SerialMaskNet"},
    "FiBiNET": {"hidden_units": [7, 5]},
    "AutoInt": {"dnn_hidden_units": [7, 5], "attention_dim": 8, "num_heads": 2},
}


@pytest.fixture(scope="session")
def make_job(prepared):
    """A resolved training job over the table `prepared`."""

    def make(backbone="DNN", plugin="dense", *, seed=2021, training=None, **settings):
        small = {"embedding_dim": 4, **SMALL[backbone], **settings}
        prime = {"bags": 2, "experts_per_bag": 3, "rank": 2} if plugin == "prime" else {}
        return Job(
            fingerprint=prepared.manifest.fingerprint,
            backbone=backbone,
            backbone_settings=BACKBONES[backbone].settings.parse(small, where="").plain(),
            plugin=plugin,
            plugin_settings=PLUGINS[plugin].settings.parse(prime, where="").plain(),
            training=TrainSpec.parse(training or {}, where="training"),
            seed=seed,
        )

    return make


@pytest.fixture
def make_arm(make_job, schema):
    """An arm in evaluation mode that asks for no gradient; experts and batch norms are not as they
    start, so that every part of it matters.
    """

    def make(backbone="DNN", plugin="dense", **settings):
        arm = build_arm(make_job(backbone, plugin, **settings).resolve(), schema).arm
        generator = torch.Generator().manual_seed(1)
        with torch.no_grad():
            for name, value in arm.state_dict().items():
                if value.is_floating_point() and not name.endswith("running_var"):
                    value.add_(torch.randn(value.shape, generator=generator), alpha=0.2)
        return arm.eval().requires_grad_(False)

    return make


@pytest.fixture(scope="session")
def prepared(tmp_path_factory, schema, make_split, write_manifest):
    """A prepared table, written file by file as `prepare` leaves it."""
    folder = tmp_path_factory.mktemp("data") / "tiny-12345678"
    (folder / "vocabulary").mkdir(parents=True)
    rows = {"train": 1500, "valid": 1200, "test": 900}
    splits = {name: make_split(n, seed=i) for i, (name, n) in enumerate(rows.items())}
    for name, split in splits.items():
        for part in ("ids", "numerics", "labels"):
            np.save(folder / f"{name}.{part}.npy", getattr(split, part))
    for field in schema.categorical:
        values = "".join(f"{field.name}={i}\n" for i in range(1, field.vocabulary_size - 1))
        (folder / "vocabulary" / f"{field.name}.txt").write_text(values)
    (folder / "schema.json").write_text(json.dumps(schema.plain()))
    positives = {name: int(split.labels.sum()) for name, split in splits.items()}
    write_manifest(folder, rows=rows, positives=positives, vocabulary_total=sum(SIZES))
    return PreparedTable.open(folder)


@pytest.fixture(scope="session")
def table(prepared):
    """The table that probes read, unless a module has its own."""
    return prepared


@pytest.fixture
def request_for(table, tmp_path):
    """What an engine would hand over for a job, with records below the test's own folder."""

    def request_for(job):
        return JobRequest(
            job=job.model_copy(update={"fingerprint": table.manifest.fingerprint}),
            dataset="tiny",
            arm="an arm",
            table=str(table.path),
            runs=str(tmp_path / "runs"),
            device="cpu",
            threads=1,
        )

    return request_for


@pytest.fixture
def measure(request_for):
    """Train a job, then do a job of another kind on what it has left; the latter's record."""

    def measure(job, kind, **probe):
        run_job(request_for(job), lambda _: None)
        settings = PROBES[kind].parse(probe, where="probe").plain()
        probing = job.model_copy(update={"kind": kind, "probe": settings})
        events = []
        record = run_job(request_for(probing), events.append)
        assert {event.event for event in events} <= {"progress"}
        last = events[-1].progress
        assert last.rows == last.rows_total
        return record

    return measure

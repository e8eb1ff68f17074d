"""Small tables and jobs that the training tests share."""

import numpy as np
import pytest

from prime_bench.catalog import BACKBONES, PLUGINS
from prime_bench.data.schema import Field, Schema
from prime_bench.data.table import Split
from prime_bench.recipe.job import Job
from prime_bench.settings.training import TrainSpec

SIZES = (7, 12, 5)
NUMERIC = 2


@pytest.fixture(scope="session")
def schema():
    """Three categorical fields with two numeric ones between them."""
    categorical = [
        Field(name=f"c{i}", kind="categorical", vocabulary_size=size)
        for i, size in enumerate(SIZES)
    ]
    numeric = [Field(name=f"n{i}", kind="numeric") for i in range(NUMERIC)]
    return Schema(fields=[categorical[0], numeric[0], *categorical[1:], numeric[1]])


@pytest.fixture(scope="session")
def make_split():
    """Rows whose labels depend on the fields, so that there is something to learn."""

    def make(n_rows, *, seed=0):
        random = np.random.default_rng(seed)
        ids = np.stack([random.integers(1, size, n_rows) for size in SIZES], axis=1)
        numerics = random.normal(size=(n_rows, NUMERIC))
        logit = (ids[:, 0] % 3 - 1) + np.where(ids[:, 1] > 6, 1, -1) * numerics[:, 0] - 0.7
        return Split(
            ids=ids.astype(np.int32),
            numerics=numerics.astype(np.float32),
            labels=(random.random(n_rows) < 1 / (1 + np.exp(-logit))).astype(np.uint8),
        )

    return make


@pytest.fixture(scope="session")
def make_job():
    """A resolved job over the table `t`."""

    def make(backbone="DNN", plugin="dense", *, seed=2021, training=None, **settings):
        widths = {"DNN": "hidden_units", "DCNv2": "parallel_dnn_hidden_units"}[backbone]
        table = {"embedding_dim": 4, widths: [8, 6], **settings}
        small = {"prime": {"bags": 2, "experts_per_bag": 3, "rank": 2}}.get(plugin, {})
        return Job(
            fingerprint="t",
            backbone=backbone,
            backbone_settings=BACKBONES[backbone].settings.parse(table, where="").plain(),
            plugin=plugin,
            plugin_settings=PLUGINS[plugin].settings.parse(small, where="").plain(),
            training=TrainSpec.parse(training or {}, where="training"),
            seed=seed,
        )

    return make

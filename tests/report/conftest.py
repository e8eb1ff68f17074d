"""Records made up for the report: values from names and seeds, nothing was trained."""

from collections.abc import Callable
from typing import Any, Literal

import pytest

from prime_bench.base.identity import digest
from prime_bench.base.streams import derive
from prime_bench.recipe.job import Job
from prime_bench.settings.backbones import DCNv2Settings, DNNSettings
from prime_bench.settings.interface import DenseSettings
from prime_bench.settings.plugins import PrimeConfig, ResidualParametersSettings
from prime_bench.settings.training import TrainSpec
from prime_bench.store.record import RunRecord

SEEDS = (2021, 190034, 27011, 948432, 992817)
FINGERPRINTS = {"avazu": "12335e61" + "0" * 56, "criteo": "c0ffee" + "1" * 58}
BACKBONES: dict[str, dict[str, Any]] = {
    "DNN": DNNSettings().plain(),
    "DCNv2": DCNv2Settings().plain(),
    "Wide&Deep_x": {"embedding_dim": 10},
}
ARMS: dict[str, dict[str, Any]] = {
    "dense": DenseSettings().plain(),
    "prime": PrimeConfig().plain(),
    "residual_parameters": ResidualParametersSettings().plain(),
}

MakeRecord = Callable[..., RunRecord]


@pytest.fixture(scope="session")
def make_record(plain_record: MakeRecord) -> MakeRecord:
    """A record; scores of -1 are made up from names and seed."""

    def make(
        *,
        dataset: str = "avazu",
        backbone: str = "DNN",
        arm: str = "dense",
        seed: int = 2021,
        plugin: str | None = None,
        plugin_settings: dict[str, Any] | None = None,
        backbone_settings: dict[str, Any] | None = None,
        training: TrainSpec | None = None,
        fingerprint: str | None = None,
        variant: str | None = None,
        auc: float | None = -1.0,
        logloss: float | None = -1.0,
        degenerate: str | None = None,
        initial_weights: str | None = None,
        row_order: str | None = None,
        numerics: int = 1,
        torch: str = "2.13.0",
        verified: bool | Literal["own"] = True,
        notes: tuple[str, ...] = (),
        **environment: Any,
    ) -> RunRecord:
        fingerprint = fingerprint or FINGERPRINTS.get(dataset, digest(dataset))
        job = Job(
            fingerprint=fingerprint,
            backbone=backbone,
            backbone_settings=backbone_settings or BACKBONES.get(backbone, {}),
            plugin=plugin or arm,
            plugin_settings=ARMS.get(arm, {}) if plugin_settings is None else plugin_settings,
            training=training or TrainSpec(),
            seed=seed,
            numerics=numerics,
        )
        test = {
            "auc": _auc(dataset, backbone, arm, seed) if auc == -1.0 else auc,
            "logloss": _logloss(dataset, backbone, arm, seed) if logloss == -1.0 else logloss,
        }
        return plain_record(
            job,
            dataset=dataset,
            arm=arm,
            data_variant=variant or digest(["variant", dataset]),
            data_verified=verified,
            data_notes=list(notes),
            pairing={
                "initial_weights": initial_weights or digest([backbone, seed]),
                "row_order": row_order or digest(["row order", seed]),
            },
            result={"epochs": 3, "test": test, "degenerate": degenerate},
            environment={"versions": {"torch": torch}, **environment},
        )

    return make


@pytest.fixture
def full_set(_full_set: tuple[RunRecord, ...]) -> list[RunRecord]:
    """2 x 3 x 3 x 5 records: but for a missing arm, with a degenerate and a mispaired run."""
    return list(_full_set)


@pytest.fixture(scope="session")
def _full_set(make_record: MakeRecord) -> tuple[RunRecord, ...]:
    records = []
    for dataset in FINGERPRINTS:
        for backbone in BACKBONES:
            for arm in ARMS:
                for seed in SEEDS:
                    if (dataset, backbone, arm) == ("criteo", "Wide&Deep_x", "residual_parameters"):
                        continue
                    changes: dict[str, Any] = {}
                    if (dataset, backbone, arm, seed) == ("criteo", "DNN", "dense", 27011):
                        changes = {"auc": 0.5, "logloss": 9.25, "degenerate": "constant output"}
                    if (dataset, backbone, arm, seed) == ("avazu", "DCNv2", "prime", 948432):
                        changes = {"row_order": digest("another order")}
                    records.append(
                        make_record(
                            dataset=dataset, backbone=backbone, arm=arm, seed=seed, **changes
                        )
                    )
    return tuple(records)


def _noise(*names: object) -> float:
    """In [-1, 1), from the names alone."""
    return derive(0, "/".join(map(str, names))) / 2**62 - 1


def _auc(dataset: str, backbone: str, arm: str, seed: int) -> float:
    base = {"avazu": 0.76, "criteo": 0.814}.get(dataset, 0.7) + 0.004 * _noise(dataset, backbone)
    effect = {"dense": 0.0, "prime": 0.0012}.get(arm, 0.0002) + 0.0008 * _noise(backbone, arm)
    return base + effect + 0.001 * _noise(dataset, backbone, seed) + 0.0004 * _noise(arm, seed)


def _logloss(dataset: str, backbone: str, arm: str, seed: int) -> float:
    return 0.375 - 0.5 * (_auc(dataset, backbone, arm, seed) - 0.76) + 0.0002 * _noise(seed, arm)

"""Write the records in this folder: `python tests/records/make.py`. Nothing was trained.

Scores are whole steps of 2**-13, which floats hold and subtract exactly, so that every statistic
of the tables can be worked out by hand, ties included.
"""

import shutil
from pathlib import Path
from typing import Any

from prime_bench.base.identity import digest
from prime_bench.recipe.job import Job
from prime_bench.settings.backbones import DCNv2Settings, FiBiNETSettings
from prime_bench.settings.interface import DenseSettings
from prime_bench.settings.plugins import APGSettings, PrimeConfig
from prime_bench.settings.probes import (
    CostProbe,
    GradientsSettings,
    RoutingSettings,
    SubgroupsSettings,
)
from prime_bench.settings.training import TrainSpec
from prime_bench.store.record import ProbeRecord, RunRecord
from prime_bench.store.runs import Runs

HERE = Path(__file__).parent
SEEDS = (2021, 190034, 27011, 948432, 992817)
FINGERPRINT = "12335e61" + "0" * 56
STEP = 2**-13
BACKBONES: dict[str, dict[str, Any]] = {
    "FiBiNET": FiBiNETSettings().plain(),
    "DCNv2": DCNv2Settings().plain(),
}
ARMS: dict[str, dict[str, Any]] = {
    "dense": DenseSettings().plain(),
    "apg": APGSettings().plain(),
    "prime": PrimeConfig().plain(),
}
DENSE = {"FiBiNET": (6226, 3027), "DCNv2": (6247, 3015)}
"""Test AUC and LogLoss of Dense in steps, before the seed's own."""
OF_SEED = (0, 2, -2, 4, -4)
GAINS: dict[tuple[str, str], tuple[tuple[int, ...], tuple[int, ...]]] = {
    ("FiBiNET", "dense"): ((0, 0, 0, 0, 0), (0, 0, 0, 0, 0)),
    ("FiBiNET", "apg"): ((5, 5, 5, 5, 5), (2, 2, 2, 2, 2)),
    ("FiBiNET", "prime"): ((10, 20, 30, -10, 40), (4, 8, 12, -4, 16)),
    ("DCNv2", "dense"): ((0, 0, 0, 0, 0), (0, 0, 0, 0, 0)),
    ("DCNv2", "apg"): ((-5, -5, -5, -5, -5), (-1, -1, -1, -1, -1)),
    ("DCNv2", "prime"): ((5, 5, -5, 15, 30), (0, 2, -2, 6, 9)),
}
"""What an arm gains over Dense in steps, AUC and LogLoss, seed by seed; a 0 is a tie."""
PARAMETERS = {"FiBiNET": 19_158_200, "DCNv2": 16_000_000}
ADDED = {
    ("FiBiNET", "apg"): 265_802,
    ("DCNv2", "apg"): 1_011_456,
    ("FiBiNET", "prime"): 120_224,
    ("DCNv2", "prime"): 120_224,
}
LATENCIES_MS = {"dense": (2.0, 2.1, 2.2), "apg": (2.4, 2.5, 2.6), "prime": (2.2, 2.3, 2.4)}
TRAINING_MS = {"dense": (14.0, 15.0, 16.0), "apg": (15.0, 16.0, 17.0), "prime": (16.0, 17.0, 18.0)}
MEMORY = {"dense": 1_000_000, "apg": 1_500_000, "prime": 1_010_000}


def main() -> None:
    """Write all of them."""
    for folder in HERE.iterdir():
        if folder.is_dir():
            shutil.rmtree(folder)
    runs = Runs(HERE)
    for backbone in BACKBONES:
        for arm in ARMS:
            for index in range(len(SEEDS)):
                runs.put(trained(backbone, arm, index))
        runs.put(measured("cost", backbone, "dense", cost(), cost_probe()))
        for arm, gap in (("dense", 0.30), ("residual_parameters", 0.24), ("prime", 0.21)):
            runs.put(measured("gradients", backbone, arm, gradients(gap), gradient_probe()))
        runs.put(measured("routing", backbone, "prime", routing(), RoutingSettings().plain()))
        for arm, gain in (("dense", 0), ("prime", 10)):
            found = subgroups(gain)
            runs.put(measured("subgroups", backbone, arm, found, SubgroupsSettings().plain()))


def job_of(backbone: str, arm: str, seed: int, **more: Any) -> Job:
    settings = ARMS.get(arm, {"width": 544, "layer_norm": True, "dense_weight": 0.5})
    return Job(
        fingerprint=FINGERPRINT,
        backbone=backbone,
        backbone_settings=BACKBONES[backbone],
        plugin=arm,
        plugin_settings=settings,
        training=TrainSpec(),
        seed=seed,
        numerics=1,
        **more,
    )


def around(job: Job, arm: str) -> dict[str, Any]:
    """What a record of any kind has."""
    return {
        "job_id": job.id,
        "job": job.plain(),
        "dataset": "avazu",
        "arm": arm,
        "data_variant": digest("avazu"),
        "data_verified": True,
        "data_notes": [],
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


def trained(backbone: str, arm: str, index: int) -> RunRecord:
    job = job_of(backbone, arm, SEEDS[index])
    auc, logloss = DENSE[backbone]
    gains = GAINS[backbone, arm]
    test = {
        "auc": STEP * (auc + OF_SEED[index] + gains[0][index]),
        "logloss": STEP * (logloss - OF_SEED[index] - gains[1][index]),
    }
    table = {
        **around(job, arm),
        "pairing": {
            "initial_weights": digest([backbone, index]),
            "row_order": digest(["row order", index]),
        },
        "budget": {
            "backbone_parameters": PARAMETERS[backbone],
            "plugin_parameters": ADDED.get((backbone, arm), 0),
            "backbone_macs": 1_000_000,
            "plugin_macs": 0 if arm == "dense" else 100_000,
        },
        "result": {
            "best_epoch": 2,
            "epochs": 4,
            "stopped": "patience",
            "valid": test,
            "test": test,
        },
        "history": [
            {
                "epoch": epoch,
                "step": 100 * epoch,
                "learning_rate": 0.001,
                "train_loss": 0.4,
                "valid_auc": test["auc"] - STEP * abs(epoch - 2),
                "valid_logloss": test["logloss"],
                "improved": epoch <= 2,
                "wall_s": float(epoch),
                "routing": {
                    "entropy": [0.9, 1.1],
                    "effective_experts": [2.46, 3.0],
                    "largest_load": [0.4, 0.5],
                }
                if arm == "prime"
                else None,
            }
            for epoch in (1, 2, 3, 4)
        ],
    }
    return RunRecord.parse(table, where="")


def measured(
    kind: str, backbone: str, arm: str, findings: dict[str, Any], probe: dict[str, Any]
) -> ProbeRecord:
    job = job_of(backbone, arm, SEEDS[0], kind=kind, probe=probe)
    return ProbeRecord.parse({**around(job, arm), "findings": findings}, where="")


def cost_probe() -> dict[str, Any]:
    arms = [{"plugin": arm, "settings": ARMS[arm]} for arm in ("apg", "prime")]
    return CostProbe.parse({"device": "a CPU", "threads": 1, "arms": arms}, where="").plain()


def cost() -> dict[str, Any]:
    return {
        "kind": "cost",
        "clock": "wall clock",
        "memory": "resident growth",
        "distinct_rows": 100_000,
        "arms": [
            {
                "plugin": arm,
                "settings": settings,
                "parameters": 1_000_000 + 10_000 * number,
                "macs": 1000,
                "inference": [
                    {"form": "eager", "batch_size": 4096, "latencies_ms": LATENCIES_MS[arm]}
                ],
                "training_ms": TRAINING_MS[arm],
                "peak_memory_bytes": MEMORY[arm],
            }
            for number, (arm, settings) in enumerate(ARMS.items())
        ],
    }


def gradient_probe() -> dict[str, Any]:
    return GradientsSettings(fields=("hour",)).plain()


def gradients(gap: float) -> dict[str, Any]:
    size = {"name": "00", "rows": 4096, "positives": 2048}

    def measure(permutations: int) -> dict[str, Any]:
        return {
            "permutations": permutations,
            "random": 0.9,
            "random_deviation": 0.01,
            "gap": gap,
            "monte_carlo_error": 0.001,
            "p_value": 0.001,
        }

    return {
        "kind": "gradients",
        "rows": digest("rows"),
        "fields": [
            {
                "field": "hour",
                "groups": [size, {**size, "name": "12"}],
                "too_small": [],
                "measures": [
                    {
                        "parameters": "top",
                        "n_parameters": 1000,
                        "semantic": round(0.9 - gap, 4),
                        "cosines": [[1.0, 0.5], [0.5, 1.0]],
                        "block": measure(2000),
                        "example": measure(100),
                    }
                ],
            }
        ],
    }


def routing() -> dict[str, Any]:
    bag = {
        "entropy": 1.0,
        "normalised_entropy": 0.48,
        "effective_experts": 2.718,
        "load": [0.125] * 8,
        "largest_load": 0.425,
    }
    return {
        "kind": "routing",
        "split": "valid",
        "rows": 1000,
        "entropy": 1.0,
        "normalised_entropy": 0.48,
        "effective_experts": 2.718,
        "largest_load": 0.425,
        "bags": [bag],
        "fields": [],
    }


def subgroups(gain: int) -> dict[str, Any]:
    def group(name: str, rows: int, auc: int) -> dict[str, Any]:
        return {
            "size": {"name": name, "rows": rows, "positives": rows // 4},
            "click_rate": 0.25,
            "mean_prediction": 0.25,
            "auc": STEP * (auc + gain),
            "logloss": STEP * (4000 - gain),
            "calibration_error": STEP * (80 - gain),
        }

    return {
        "kind": "subgroups",
        "split": "test",
        "overall": group("all", 4000, 6144),
        "fields": [
            {
                "field": "hour",
                "groups": [group("00", 1000, 6060), group("12", 3000, 6230)],
                "too_small": [],
            }
        ],
    }


if __name__ == "__main__":
    main()

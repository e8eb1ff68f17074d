"""What the competition gap measures, on rows whose groups are known: a null and a planted signal.

    python scripts/gap_null.py --part null
    python scripts/gap_null.py --part strength

Rows have eight fields of twelve values and belong to one of four groups, which no field names. The
logit is a sum over fields of a value's two latent numbers times (common + strength own_g) /
sqrt(1 + strength^2), unit vectors of which own_g is the group's: responses have the same size at
any strength. With independent covariates all groups draw their values alike; with dependent ones
each has its own frequencies. The model is a DNN, trained on 40,000 rows; gaps are taken on rows
of 100,000 others, in eight blocks of 256 + 256 a group.

`null` measures random labels of groups, which nothing depends on: gaps must be 0 but for noise and
p-values uniform. `strength` measures the true groups. Prints Markdown.
"""

import argparse
import itertools

import numpy as np
import torch
from scipy.stats import kstest
from tabulate import tabulate

from prime_bench.assemble import build_arm
from prime_bench.base.streams import derive
from prime_bench.catalog import BACKBONES
from prime_bench.data.schema import Field, Schema
from prime_bench.data.table import Split
from prime_bench.findings import Measure
from prime_bench.plugins.attach import ArmModel
from prime_bench.probes.gradients import Diagnosis, large_groups
from prime_bench.probes.groups import Grouping, null_grouping
from prime_bench.recipe.job import Job
from prime_bench.settings.probes import GradientsSettings
from prime_bench.settings.training import TrainSpec
from prime_bench.training.loop import TrainingSplits, train
from prime_bench.training.optimizer import Penalty

FIELDS, VALUES, GROUPS = 8, 12, 4
TRAIN_ROWS, VALID_ROWS = 40_000, 100_000
LOGIT_DEVIATION, CLICK_RATE = 1.5, 0.35
STRENGTHS = (0.0, 0.5, 1.0, 2.0, 4.0)
SPEC = TrainSpec(batch_size=512, max_epochs=4)
SETTINGS = GradientsSettings(fields=(), example_permutations=100)


class Log:
    """Rows of one seed; their fields, and the group that no field names."""

    def __init__(self, *, strength: float, dependent: bool, seed: int) -> None:
        self._random = np.random.default_rng(derive(seed, "gap-null/log"))
        latents = self._random.normal(size=(FIELDS, VALUES, 2))
        common, own = (_unit(self._random.normal(size=(n, FIELDS, 2))) for n in (1, GROUPS))
        directions = (common + strength * own) / np.hypot(1, strength)
        self._effects = np.einsum("gfr,fvr->gfv", directions, latents)
        tilt = self._random.normal(size=(GROUPS, FIELDS, VALUES)) * dependent
        self._shares = np.exp(tilt) / np.exp(tilt).sum(axis=2, keepdims=True)
        self._scale, self._shift = 1.0, 0.0
        _, _, logits = self.rows(TRAIN_ROWS)
        self._scale = LOGIT_DEVIATION / logits.std()
        self._shift = _shift(self._scale * logits)

    def rows(self, n: int) -> tuple[Split, np.ndarray, np.ndarray]:
        """n further rows, their groups (n,) and logits (n,)."""
        groups = self._random.integers(0, GROUPS, n)
        levels = np.cumsum(self._shares, axis=2)[groups]  # (n, FIELDS, VALUES)
        codes = (self._random.random((n, FIELDS, 1)) > levels).sum(axis=2).clip(max=VALUES - 1)
        effects = self._effects[groups[:, np.newaxis], np.arange(FIELDS), codes]
        logits = self._scale * effects.sum(axis=1) + self._shift
        clicks = self._random.random(n) < 1 / (1 + np.exp(-logits))
        split = Split(
            ids=(codes + 1).astype(np.int32),
            numerics=np.empty((n, 0), np.float32),
            labels=clicks.astype(np.uint8),
        )
        return split, groups, logits


def _unit(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


def _shift(logits: np.ndarray) -> float:
    """What the logits need for the mean probability to be the click rate."""
    low, high = -20.0, 20.0
    for _ in range(40):
        middle = (low + high) / 2
        if (1 / (1 + np.exp(-logits - middle))).mean() < CLICK_RATE:
            low = middle
        else:
            high = middle
    return low


def trained(split: Split, valid: Split, *, seed: int) -> ArmModel:
    """A DNN with the weights of its best epoch, as a measurement reads it."""
    schema = Schema(
        fields=[
            Field(name=f"f{i}", kind="categorical", vocabulary_size=VALUES + 2)
            for i in range(FIELDS)
        ]
    )
    settings = {"embedding_dim": 8, "hidden_units": [64, 64]}
    job = Job(
        fingerprint="gap-null",
        backbone="DNN",
        backbone_settings=BACKBONES["DNN"].settings.parse(settings, where="").plain(),
        plugin="dense",
        plugin_settings={},
        training=SPEC,
        seed=seed,
    )
    arm = build_arm(job.resolve(), schema).arm
    train(
        arm,
        TrainingSplits(train=split, valid=valid),
        SPEC,
        penalty=Penalty(embedding=0.0, network=0.0),
        seed=seed,
        device=torch.device("cpu"),
    )
    return arm.eval().requires_grad_(False)


def measure(arm: ArmModel, split: Split, grouping: Grouping, *, seed: int) -> Measure:
    """The gap of one grouping of the rows."""
    choice = large_groups(grouping, split.labels, settings=SETTINGS)
    if len(choice.codes) != GROUPS:
        raise RuntimeError(f"too few rows of {choice.too_small}")
    diagnosis = Diagnosis(arm, split, grouping, choice, settings=SETTINGS, spec=SPEC, seed=seed)
    return diagnosis.measures()[0]


def null(seeds: int) -> None:
    """Random labels on one model a seed, trained on groups of strength 1."""
    rows, found = [], {"block": [], "example": []}
    for seed in range(seeds):
        log = Log(strength=1.0, dependent=False, seed=seed)
        (learnt, _, _), (valid, _, _) = log.rows(TRAIN_ROWS), log.rows(VALID_ROWS)
        arm = trained(learnt, valid, seed=seed)
        grouping = null_grouping(VALID_ROWS, name="null_1", n_groups=GROUPS, seed=seed)
        measured = measure(arm, valid, grouping, seed=seed)
        for unit, gaps in found.items():
            gaps.append(getattr(measured, unit))
    for unit, gaps in found.items():
        values = np.array([gap.gap for gap in gaps])
        p_values = [gap.p_value for gap in gaps]
        rows.append(
            [
                unit,
                len(values),
                f"{values.mean():+.4f}",
                f"{values.std(ddof=1) / np.sqrt(len(values)):.4f}",
                f"{np.mean([gap.random_deviation for gap in gaps]):.4f}",
                f"{min(p_values):.3f} to {max(p_values):.3f}",
                f"{kstest(p_values, 'uniform').pvalue:.2f}",
            ]
        )
    header = ["unit", "seeds", "mean gap", "standard error", "deviation of random groupings"]
    header += ["p-values", "p of a KS test for uniform p-values"]
    print(tabulate(rows, headers=header, tablefmt="github", disable_numparse=True))


def strength(seeds: int) -> None:
    """True groups at several strengths, mean and range over seeds."""
    rows = []
    for dependent, planted in itertools.product((False, True), STRENGTHS):
        measures = []
        for seed in range(seeds):
            log = Log(strength=planted, dependent=dependent, seed=seed)
            (learnt, _, _), (valid, groups, _) = log.rows(TRAIN_ROWS), log.rows(VALID_ROWS)
            arm = trained(learnt, valid, seed=seed)
            grouping = Grouping(field="group", names=list("0123"), codes=groups)
            measures.append(measure(arm, valid, grouping, seed=seed))
        cells = ["dependent" if dependent else "independent", f"{planted:g}"]
        for unit in ("block", "example"):
            gaps = [getattr(one, unit).gap for one in measures]
            cells.append(f"{np.mean(gaps):+.3f} ({min(gaps):+.3f} to {max(gaps):+.3f})")
        cells.append(f"{np.mean([one.semantic for one in measures]):.3f}")
        cells.append(f"{max(one.block.p_value for one in measures):.4f}")
        rows.append(cells)
    header = ["covariates", "strength", "gap, blocks", "gap, rows", "cosine of the groups"]
    header += ["largest p (blocks)"]
    print(tabulate(rows, headers=header, tablefmt="github", disable_numparse=True))


def main() -> None:
    """Do one part and print its table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--part", choices=("null", "strength"), required=True)
    parser.add_argument("--seeds", type=int)
    given = parser.parse_args()
    if given.part == "null":
        null(given.seeds or 20)
    else:
        strength(given.seeds or 5)


if __name__ == "__main__":
    main()

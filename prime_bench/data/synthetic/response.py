"""The planted click probability of the synthetic log (equations in docs/synthetic.md).

Shapes: n rows, C categorical and K numeric fields, G subgroups, V frequent values, R latents.
"""

import math

import numpy as np

from prime_bench.data.synthetic.fields import Shape, normals, random_words

FREQUENT_VALUES = 32
"""V: only the V most frequent values of a field have an effect. V is small, so that about 50,000
rows are enough to learn much of it."""
LATENT_WIDTH = 2
"""R: a value has R latent numbers; the response of a subgroup is a direction in R dimensions."""
PAIR_VALUES = 8
"""The number of most frequent values of each of two fields with a joint effect."""
LOGIT_DEVIATION = 1.5
"""Standard deviation of the logit over rows, at any strength: how predictable clicks are."""
LOG_BUCKETS_PER_UNIT = 4
NUMERIC_BUCKETS = 64
"""Bucket 0 is the missing value; log1p of the largest count is below 63 / LOG_BUCKETS_PER_UNIT."""


def numeric_buckets(numerics: np.ndarray) -> np.ndarray:
    """(n, K) values -> (n, K) uint32: 0 for NaN, else 1 + floor(4 ln(1 + max(x, 0))) up to 63."""
    steps = LOG_BUCKETS_PER_UNIT * np.log1p(np.maximum(numerics, 0.0))
    buckets = 1 + np.minimum(steps, NUMERIC_BUCKETS - 2)
    return np.where(np.isnan(numerics), 0.0, buckets).astype(np.uint32)


class PlantedResponse:
    """Click probability = sigmoid(intercept + scale * score).

    The score is a sum of effects of fields and of pairs of fields.
    """

    def __init__(self, shape: Shape, *, strength: float, seed: int) -> None:
        self._shape = shape
        self._n_groups = shape.group_classes ** len(shape.group_fields)
        self._names = [field.name for field in shape.categorical]
        self.intercept = 0.0
        self.scale = 1.0
        self.numeric_effects = [
            self._effects(_smooth_latents(seed, field.name), field.name, seed, strength)
            for field in shape.numeric
        ]
        """K tables (G, NUMERIC_BUCKETS)."""
        self.value_effects = [
            self._effects(
                _value_latents(seed, field.name, min(field.size, FREQUENT_VALUES)),
                field.name,
                seed,
                # Group fields hardly vary within a subgroup: all subgroups share a response.
                0.0 if field.name in shape.group_fields else strength,
            )
            for field in shape.categorical
        ]
        """C tables (G, min(size, V) + 1); the last column is for all other values."""
        self._pair_effects = [
            (
                self._names.index(first),
                self._names.index(second),
                normals(random_words(seed, f"synthetic/pair/{first}-{second}", PAIR_VALUES**2)),
            )
            for first, second in shape.pairs
        ]

    def groups(self, codes: np.ndarray) -> np.ndarray:
        """The subgroup (n,) int64, in [0, G), of rows with codes (C, n)."""
        group = np.zeros(codes.shape[1], np.int64)
        for name in self._shape.group_fields:
            group *= self._shape.group_classes
            group += codes[self._names.index(name)] % np.uint32(self._shape.group_classes)
        return group

    def scores(self, codes: np.ndarray, numerics: np.ndarray) -> np.ndarray:
        """The score (n,) float64 of rows with codes (C, n) and numerics (n, K)."""
        group = self.groups(codes)
        total = np.zeros(len(group))
        for effects, row in zip(self.value_effects, codes, strict=True):
            width = effects.shape[1]
            total += effects.ravel()[group * width + np.minimum(row, np.uint32(width - 1))]
        buckets = numeric_buckets(numerics)
        for effects, bucket in zip(self.numeric_effects, buckets.T, strict=True):
            total += effects.ravel()[group * NUMERIC_BUCKETS + bucket]
        for first, second, effects in self._pair_effects:
            matters = (codes[first] < PAIR_VALUES) & (codes[second] < PAIR_VALUES)
            cell = np.where(matters, codes[first] * np.uint32(PAIR_VALUES) + codes[second], 0)
            total += np.where(matters, effects[cell], 0.0)
        return total

    def probabilities(self, codes: np.ndarray, numerics: np.ndarray) -> np.ndarray:
        """The click probability (n,) float64 of rows with codes (C, n) and numerics (n, K)."""
        return _sigmoid(self.intercept + self.scale * self.scores(codes, numerics))

    def calibrate(self, scores: np.ndarray) -> None:
        """Set scale and intercept so that rows with these scores have the logit deviation
        LOGIT_DEVIATION and the click rate of the shape.
        """
        self.scale = LOGIT_DEVIATION / float(scores.std())
        low, high = -30.0, 30.0
        for _ in range(60):
            self.intercept = (low + high) / 2 - self.scale * float(scores.mean())
            rate = float(_sigmoid(self.intercept + self.scale * scores).mean())
            if rate < self._shape.click_rate:
                low = (low + high) / 2
            else:
                high = (low + high) / 2

    def _effects(
        self, latents: np.ndarray, name: str, seed: int, strength: float
    ) -> np.ndarray:  # (V, R) -> (G, V)
        common = _directions(seed, f"synthetic/response/{name}", 1)
        own = _directions(seed, f"synthetic/group-response/{name}", self._n_groups)
        # Divided so that responses have the same norm at every strength.
        effects: np.ndarray = (common + strength * own) @ latents.T / math.hypot(1, strength)
        return effects


def _smooth_latents(seed: int, name: str) -> np.ndarray:  # (NUMERIC_BUCKETS, R)
    words = random_words(seed, f"synthetic/numeric/{name}", 3 * LATENT_WIDTH)
    missing, phase, speed = normals(words).reshape(3, LATENT_WIDTH)
    # A slow sine of ln(1 + x): a smooth non-linear effect.
    level = np.arange(NUMERIC_BUCKETS)[:, np.newaxis] / LOG_BUCKETS_PER_UNIT
    latents: np.ndarray = np.sqrt(2) * np.sin(0.5 * speed * level + 3 * phase)
    latents[0] = missing
    return latents


def _value_latents(seed: int, name: str, n_values: int) -> np.ndarray:  # (n_values + 1, R)
    latents = np.zeros((n_values + 1, LATENT_WIDTH))
    words = random_words(seed, f"synthetic/values/{name}", n_values * LATENT_WIDTH)
    latents[:-1] = normals(words).reshape(n_values, LATENT_WIDTH)
    return latents


def _directions(seed: int, name: str, n: int) -> np.ndarray:  # (n, R), unit rows
    rows = normals(random_words(seed, name, n * LATENT_WIDTH)).reshape(n, LATENT_WIDTH)
    unit: np.ndarray = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return unit


def _sigmoid(logits: np.ndarray) -> np.ndarray:
    probabilities: np.ndarray = 1 / (1 + np.exp(-logits))
    return probabilities

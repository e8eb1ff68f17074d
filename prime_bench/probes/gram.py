"""Cosines and gaps from inner products of gradients (Eq. 28).

Shapes: n blocks, k groups, R random groupings. The gradient of a group is the mean of its blocks',
so with G (n, n) the blocks' inner products and A (k, n) the indicator of who is in which group, the
groups' are A G A^T up to a factor that cosines do not see.
"""

import math

import numpy as np

from prime_bench.settings.gradients import Gap

# Numbers in the largest array of a batch of groupings: a few MB, which stay in a CPU's cache.
_BATCH_NUMBERS = 1 << 20


def cosines(gram: np.ndarray) -> np.ndarray:
    """Inner products (..., k, k) -> cosines (..., k, k); NaN for a gradient of 0."""
    norms = np.sqrt(np.diagonal(gram, axis1=-2, axis2=-1))
    with np.errstate(invalid="ignore", divide="ignore"):
        found: np.ndarray = gram / (norms[..., :, np.newaxis] * norms[..., np.newaxis, :])
    return found


def mean_cosine(gram: np.ndarray) -> np.ndarray:
    """Inner products (..., k, k) -> mean cosine (...) over the pairs of two groups."""
    first, second = np.triu_indices(gram.shape[-1], k=1)
    mean: np.ndarray = cosines(gram)[..., first, second].mean(axis=-1)
    return mean


def regrouped(gram: np.ndarray, groupings: np.ndarray, *, n_groups: int) -> np.ndarray:
    """Blocks' inner products (n, n), groups of the blocks (R, n) -> groups' products (R, k, k)."""
    step = max(1, _BATCH_NUMBERS // (n_groups * len(gram)))
    found, numbers = [], np.arange(n_groups)[:, np.newaxis]
    for start in range(0, len(groupings), step):
        members = groupings[start : start + step, np.newaxis, :] == numbers
        indicators = members.astype(np.float64)  # (R, k, n)
        half = (indicators.reshape(-1, len(gram)) @ gram).reshape(indicators.shape)
        found.append(half @ indicators.transpose(0, 2, 1))
    return np.concatenate(found)


def gap_of(semantic: float, random: np.ndarray) -> Gap:
    """The semantic groups' mean cosine against those of random groupings (R,)."""
    n, mean = len(random), float(random.mean())
    deviation = float(random.std(ddof=1)) if n > 1 else 0.0
    return Gap(
        permutations=n,
        random=mean,
        random_deviation=deviation,
        gap=mean - semantic,
        monte_carlo_error=deviation / math.sqrt(n),
        p_value=(1 + int((random <= semantic).sum())) / (1 + n),
    )

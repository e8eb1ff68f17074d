"""The identity of jobs: canonical JSON, digests, and the version of the numerics."""

import hashlib
import json

NUMERICS = 2
"""Version of everything that can change a number; it is part of a job's identity."""

JOB_ID_DIGITS = 16
"""Number of hex digits of a job's id."""


def canonical_json(value: object) -> str:
    """Return JSON with sorted keys and no spaces. Raises ValueError for NaN and infinity."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def digest(value: object) -> str:
    """Return the SHA-256 of the canonical JSON of `value`, as 64 hex digits."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()

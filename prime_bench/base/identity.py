"""What makes two jobs the same: canonical JSON, digests, and the version of the numerics."""

import hashlib
import json

NUMERICS = 2


def canonical_json(value: object) -> str:
    """One text for one value: sorted keys, no spaces. Raises ValueError for NaN and infinity."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def digest(value: object) -> str:
    """SHA-256 over the canonical JSON of `value`, as 64 hex digits."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()

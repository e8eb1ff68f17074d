"""Named random streams, one for each use of randomness: a new plug-in changes no other stream."""

import hashlib


def derive(seed: int, name: str) -> int:
    """Return a seed in [0, 2**63) that depends only on `seed` and `name`.

    Names in use: "backbone-init", "plugin-init", "row-order/<epoch>", "dropout", "permute",
    and those of `data.synthetic`, `data.split`, `probes.groups` and `recipe.sweep`.
    """
    digest = hashlib.sha256(f"{seed}:{name}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1

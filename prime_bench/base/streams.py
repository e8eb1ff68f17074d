"""Named random streams: each use of randomness has its own, so adding a plug-in moves no other."""

import hashlib


def derive(seed: int, name: str) -> int:
    """A seed in [0, 2**63) that depends on `seed` and `name` alone, whatever ran before.

    Names in use: "backbone-init", "plugin-init", "row-order/<epoch>", "dropout", "permute",
    and those of `data.synthetic`, `data.split` and `probes.groups`.
    """
    digest = hashlib.sha256(f"{seed}:{name}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1

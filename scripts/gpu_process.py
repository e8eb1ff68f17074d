"""A second process on the device, for checks that need several: `gpu_session.Peer` starts it.

It reads the settings of the check from the first line of stdin and a request from each further one,
and writes an answer a line, all as JSON. It ends when stdin does.
"""

import json
import os
import sys
from pathlib import Path

import gpu_bits
import gpu_speed
import torch
from gpu_session import Bench

from prime_bench.training.device import fix_arithmetic

_REQUESTS = {
    "compiled": gpu_speed.compiled_here,
    "digests": gpu_bits.digests,
    "throughput": gpu_speed.throughput,
}


def main() -> None:
    """Answer requests until stdin ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever else is printed
    settings = json.loads(sys.stdin.readline())
    bench = Bench(
        device=torch.device(settings["device"]),
        small=settings["small"],
        threads=settings["threads"],
        backbones=[],
        folder=Path(settings["folder"]),
    )
    fix_arithmetic(threads=bench.threads)
    for line in sys.stdin:
        request = json.loads(line)
        answer = _REQUESTS[request.pop("do")](bench, **request)
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()

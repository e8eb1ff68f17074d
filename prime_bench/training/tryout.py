"""A second of training on each device of this machine, which `prime-bench doctor` runs as a
process.

`python -m prime_bench.training.tryout` prints one JSON object: torch's version, the CUDA version
that it was built for (null without CUDA), what torch warns of when it looks for GPUs, and a list of
devices, each with its name and the milliseconds of a training step of a DNN (400 x 3) on 4,096 rows
of 22 fields, or the error.
"""

import json
import statistics
import time

import torch

from prime_bench.assemble import build_backbone
from prime_bench.data.schema import Field, Schema
from prime_bench.plugins.attach import ArmModel
from prime_bench.settings.training import TrainSpec
from prime_bench.training.batches import Batch
from prime_bench.training.device import cuda_devices, device_name, fix_arithmetic
from prime_bench.training.graph import GraphedStep, capture_on
from prime_bench.training.optimizer import Optimizer, Penalty

_N_FIELDS, _IDS_A_FIELD, _ROWS = 22, 1000, 4096
_WARM_UP_STEPS = 2
_SECONDS = 1.0


def step_ms(device: torch.device, *, seconds: float = _SECONDS) -> float:
    """Median milliseconds of a training step on `device`, over about `seconds`."""
    names = [f"field_{number}" for number in range(_N_FIELDS)]
    fields = [Field(name=name, kind="categorical", vocabulary_size=_IDS_A_FIELD) for name in names]
    model = ArmModel(build_backbone("DNN", Schema(fields=fields), {}, seed=0)).to(device)
    optimizer = Optimizer(
        model, TrainSpec(batch_size=_ROWS), penalty=Penalty(embedding=0.05, network=0.0)
    )
    step = GraphedStep(optimizer, capture=capture_on(device))
    ids = torch.randint(1, _IDS_A_FIELD, (_ROWS, _N_FIELDS), dtype=torch.int32)
    batch = Batch(
        ids=ids.to(device),
        numerics=torch.empty(_ROWS, 0, device=device),
        labels=(ids.sum(dim=1) % 2).to(device, torch.uint8),
    )
    times_ms: list[float] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times_ms) <= _WARM_UP_STEPS:
        start = time.perf_counter()
        step(batch)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        times_ms.append(1000 * (time.perf_counter() - start))
    return statistics.median(times_ms[_WARM_UP_STEPS:])


def tried(device: torch.device) -> dict[str, str | float]:
    """Try one device: its `device`, `name` and `step_ms`, or `device` and `fault`."""
    try:
        return {
            "device": str(device),
            "name": device_name(device),
            "step_ms": step_ms(device),
        }
    except Exception as error:  # noqa: BLE001  # any error is the result of the try
        fault = str(error).splitlines()[0] if str(error) else repr(error)
        return {"device": str(device), "fault": fault}


def main() -> None:
    """Try the CPU and every CUDA device that torch finds."""
    fix_arithmetic(threads=torch.get_num_threads())
    n_cuda, warning = cuda_devices()
    devices = [torch.device("cpu"), *(torch.device("cuda", number) for number in range(n_cuda))]
    answer = {
        "torch": str(torch.__version__),
        "cuda": torch.version.cuda,
        "warning": warning,
        "devices": [tried(device) for device in devices],
    }
    print(json.dumps(answer))


if __name__ == "__main__":
    main()

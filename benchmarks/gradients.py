"""The probe `gradients` at full size, by extrapolation from a measured part on this machine.

    python benchmarks/gradients.py [--blocks 16] [--repeat 3]

Arms of `recipes/gradients.toml` with their initial weights, on random rows in the shape of
Avazu_x1. Measured for each backbone and arm: seconds of a block's forward and backward pass
(512 rows), and the products of the gradients of 192 blocks (24 groups); once: 2,000 random
groupings of the blocks at each field's number of groups. Extrapolated to three checkpoints and four
fields with every value of the published training rows a group (24, 31, 4 and 24), which is more
than have the 2,048 clicks that a group needs. Gradients count once for each pass that the memory of
`probes.blocks` takes. Random groupings of rows, 100 a field, are beside the sum: a grouping costs
what the weights' part of a backward pass over all rows costs, and the recipe may do without.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from unittest import mock

import avazu_shape
import numpy as np
import torch
from tabulate import tabulate

from prime_bench.assemble import build_arm
from prime_bench.data.schema import Schema
from prime_bench.probes import inner_products
from prime_bench.probes.arms import batch_of
from prime_bench.probes.gradients import mean_cosine, parameter_sets, regrouped
from prime_bench.probes.groups import block_groupings
from prime_bench.probes.inner_products import example_grams
from prime_bench.recipe.file import load_recipe
from prime_bench.recipe.recipe import JobSpec

GROUPS = {"site_category": 24, "app_category": 31, "device_type": 4, "hour": 24}
BLOCKS, BLOCK_ROWS, GROUPINGS, CHECKPOINTS = 8, 512, 2000, 3
MEASURED_BLOCKS = 192
IDS = 1_300_000
CPU = torch.device("cpu")


def seconds(work: Callable[[], object], *, repeat: int) -> float:
    """Median of `repeat` runs after one that is not counted."""
    work()
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def measure_arm(job_spec: JobSpec, schema: Schema, options: argparse.Namespace) -> dict[str, float]:
    """Seconds of one block's gradient, of the products of 192 blocks and of a grouping of rows, by
    the row; parameters.
    """
    job = job_spec.bind("").training_run.resolve()
    arm = build_arm(job, schema).arm.eval().requires_grad_(False)
    sets = list(parameter_sets(arm, include_head=False).values())
    split = avazu_shape.rows(schema, options.blocks * BLOCK_ROWS, seed=1)
    rows = np.arange(len(split)).reshape(options.blocks, BLOCK_ROWS)
    batches = [batch_of(split, block, device=CPU) for block in rows]

    def gradients() -> None:
        with mock.patch.object(inner_products, "_add_products"):
            inner_products.block_grams(
                arm, lambda: iter(batches), sets, n_blocks=options.blocks, spec=job_spec.training
            )

    n_parameters = sum(parameter.numel() for parameter in sets[0])
    # The products of a stretch of parameters cost the same wherever the stretch lies.
    stretch = torch.randn(MEASURED_BLOCKS, min(n_parameters, 1 << 19))
    gram = torch.zeros(MEASURED_BLOCKS, MEASURED_BLOCKS, dtype=torch.float64)
    products = seconds(lambda: inner_products._add_products(gram, stretch), repeat=options.repeat)

    def regroup_rows(n: int) -> None:
        groupings = np.stack([rows.reshape(8, -1)] * n)
        example_grams(arm, lambda: iter(batches), sets, groupings, spec=job_spec.training)

    times = [seconds(lambda n=n: regroup_rows(n), repeat=1) for n in (1, 21)]
    return {
        "row_grouping_s": (times[1] - times[0]) / 20 / len(split),
        "block_s": seconds(gradients, repeat=options.repeat) / options.blocks,
        "products_s": products * n_parameters / stretch.shape[1],
        "parameters": n_parameters,
    }


def regroup_s(n_groups: int, *, repeat: int) -> float:
    """Seconds of drawing 2,000 groupings of a field's blocks and taking their cosines."""
    rows = np.random.default_rng(0).normal(size=(n_groups * BLOCKS, 500))
    gram = rows @ rows.T

    def work() -> None:
        groupings = block_groupings(n_groups, BLOCKS, n=GROUPINGS, seed=1, field="f")
        mean_cosine(regrouped(gram, groupings, n_groups=n_groups))

    return seconds(work, repeat=repeat)


def main() -> None:
    """Print the measured part and the whole."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--blocks", type=int, default=16, help="blocks that are measured")
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    schema = avazu_shape.schema(IDS)
    regroup = {name: regroup_s(k, repeat=options.repeat) for name, k in GROUPS.items()}
    table, whole = [], {"gradients": 0.0, "products": 0.0, "groupings": 0.0}
    for job_spec in load_recipe("gradients").job_specs(only=["seed=2021"]):
        found = measure_arm(job_spec, schema, options)
        parts = dict.fromkeys(whole, 0.0)
        for name, k in GROUPS.items():
            n = k * BLOCKS
            passes = -(-4 * n * int(found["parameters"]) // inner_products.BUFFER_BYTES)
            parts["gradients"] += found["block_s"] * n * passes
            parts["products"] += found["products_s"] * (n / MEASURED_BLOCKS) ** 2
            parts["groupings"] += regroup[name]
        for name, value in parts.items():
            whole[name] += CHECKPOINTS * value
        table.append(
            [
                job_spec.backbone,
                job_spec.arm.name,
                f"{int(found['parameters']):,}",
                f"{1000 * found['block_s']:.1f}",
                f"{found['products_s']:.2f}",
                *(f"{value:.1f}" for value in parts.values()),
                f"{100 * found['row_grouping_s'] * sum(GROUPS.values()) * BLOCKS * BLOCK_ROWS:.0f}",
            ]
        )
    header = ["backbone", "arm", "parameters", "ms a block", "products of 192 blocks, s"]
    header += [f"{name} of four fields, s" for name in whole]
    header += ["100 groupings of rows, four fields, s"]
    print(tabulate(table, headers=header, tablefmt="github", disable_numparse=True))
    beside = whole["products"] + whole["groupings"]
    print(
        f"\n{3 * len(table)} checkpoints: {sum(whole.values()) / 60:.1f} minutes; gradients "
        f"{whole['gradients'] / 60:.1f}, products and groupings {beside / 60:.1f} "
        f"({100 * beside / whole['gradients']:.0f} % of the gradients); "
        f"{torch.get_num_threads()} threads"
    )


if __name__ == "__main__":
    main()

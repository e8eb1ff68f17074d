"""CPU seconds an epoch of each backbone of a recipe, on generated rows in the shape of its data.

    python benchmarks/recipe_epochs.py frappe13 [--plugin prime] [--steps 8] [--repeat 3]
    python benchmarks/recipe_epochs.py movielens13

An epoch as a worker runs it on one thread: steps of the recipe's batch size, a prediction of the
validation rows, their AUC. Run are epochs of `--steps` steps with validation rows in the proportion
of the published splits; the fastest but the first is multiplied to the rows of the published
training split, since steps do not depend on how many there are. The clock is the process's own time
on the CPU: what to use on a machine that others use. The last column has every epoch that was
measured, from the fastest to the slowest.
"""

import argparse
import time

import avazu_shape
import torch
from tabulate import tabulate

from prime_bench.assemble import build_backbone, build_plugin
from prime_bench.base.machine import keep_freed_memory
from prime_bench.data.card import CardFile, load_card
from prime_bench.data.schema import Schema
from prime_bench.plugins.attach import ArmModel
from prime_bench.recipe.file import load_recipe
from prime_bench.recipe.recipe import Recipe
from prime_bench.settings.interface import BackboneSettings
from prime_bench.training.device import fix_arithmetic
from prime_bench.training.loop import Training, TrainingSplits
from prime_bench.training.optimizer import Penalty


def model_of(
    name: str, settings: BackboneSettings, schema: Schema, *, recipe: Recipe, plugin: str
) -> ArmModel:
    """The backbone, with the plug-in of the recipe's arm of that name."""
    backbone = build_backbone(name, schema, settings.plain(), seed=2021)
    (arm,) = [arm for arm in recipe.arms if arm.name == plugin]
    width = settings.input_width(schema.shape)
    return ArmModel(backbone, build_plugin(arm.plugin, width, arm.settings.plain(), seed=2021))


def epochs_s(
    model: ArmModel, splits: TrainingSplits, *, recipe: Recipe, penalty: Penalty, repeat: int
) -> list[float]:
    """CPU seconds of `repeat` epochs after the first, sorted."""
    training = Training(
        model,
        splits,
        recipe.training,
        penalty=penalty,
        seed=2021,
        device=torch.device("cpu"),
        on_progress=lambda _: None,
    )
    training.run_epoch()
    found = []
    for _ in range(repeat):
        start = time.process_time()
        training.run_epoch()
        found.append(time.process_time() - start)
    return sorted(found)


def main() -> None:
    """Print a line for each backbone as soon as it is measured, then the table."""
    parser = argparse.ArgumentParser(description="CPU seconds an epoch of a recipe's backbones.")
    parser.add_argument("recipe", choices=["frappe13", "movielens13"])
    parser.add_argument("--plugin", default="dense", help="an arm of the recipe")
    parser.add_argument("--steps", type=int, default=8, help="of an epoch that is run")
    parser.add_argument("--repeat", type=int, default=3, help="epochs after the first")
    options = parser.parse_args()
    fix_arithmetic(threads=1)
    keep_freed_memory()  # as a worker does
    recipe = load_recipe(options.recipe)
    (dataset,) = recipe.datasets
    files: dict[str, CardFile] = dict(load_card(dataset).files)
    rows = options.steps * recipe.training.batch_size
    factor = files["train"].rows / rows
    schema = avazu_shape.schema_of(dataset)
    splits = TrainingSplits(
        train=avazu_shape.rows(schema, rows, seed=1),
        valid=avazu_shape.rows(schema, round(files["valid"].rows / factor), seed=2),
    )
    lines = []
    for name, on in recipe.backbones.items():
        settings = on[dataset]
        model = model_of(name, settings, schema, recipe=recipe, plugin=options.plugin)
        times = epochs_s(
            model,
            splits,
            recipe=recipe,
            penalty=Penalty.of(settings),
            repeat=options.repeat,
        )
        scaled = [factor * seconds for seconds in times]
        others = ", ".join(f"{seconds:.1f}" for seconds in scaled)
        lines.append((name, settings.parameters(schema.shape), scaled[0], others))
        print(name, others, flush=True)
    print(f"{dataset}: {files['train'].rows:,} rows, {options.plugin}, torch {torch.__version__}")
    head = ["backbone", "parameters", "CPU s an epoch", "each epoch"]
    print(tabulate(lines, headers=head, intfmt=",", floatfmt=".1f", tablefmt="github"))


if __name__ == "__main__":
    main()

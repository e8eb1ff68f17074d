"""PRIME around a model of FuxiCTR's zoo, on data that FuxiCTR's own `build_dataset` reads from CSV.

    python scripts/attach_to_csv.py --zoo FuxiCTR/model_zoo [--model DeepFM] [--work DIR]

Writes a small click log as train.csv, valid.csv and test.csv, lets FuxiCTR make its data set of it,
and trains the model with PRIME by FuxiCTR's own loaders and `fit`. The predictions must be equal
bit for bit before the first update; then each of PRIME's tensors must move, and the test AUC be
above 0.7: exit code 1 otherwise. FuxiCTR 2.3.10 reads CSV with polars below 2 alone (`pip install
'polars<2'`).

Its reading starts ray, whose workers ask for a niceness of 15 beside the driver's: next to programs
that keep every core busy, it stands still for minutes. RAY_worker_niceness=0 in the environment
gives them the driver's priority; it is set here unless it is set already.
"""

import argparse
import os
import random
import sys
import tempfile
import warnings
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

# Ours first: it keeps FuxiCTR's preprocessing, and so ray, out of the import of its layers.
from prime_bench.base.errors import EnvironmentFault, UserError
from prime_bench.integrations.fuxictr import attach_prime

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
# isort: split
from against_fuxictr import model_class, model_file
from fuxictr.features import FeatureMap

FIELDS = {"site": 9, "app": 7, "device": 3}
ROWS = {"train": 600, "valid": 200, "test": 200}
EPOCHS, LOWEST_AUC = 8, 0.7


def write_log(folder: Path) -> dict[str, str]:
    """A csv for each split, with labels that depend on two fields: argument of FuxiCTR -> path."""
    stream, paths = random.Random(1), {}
    for split, n_rows in ROWS.items():
        lines = [",".join(["label", *FIELDS])]
        for _ in range(n_rows):
            site, app, device = (stream.randrange(n) for n in FIELDS.values())
            label = (site + app) % 3 == 0 if stream.random() < 0.9 else stream.random() < 0.5
            lines.append(f"{label:d},s{site},a{app},d{device}")
        path = folder / f"{split}.csv"
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        paths[f"{split}_data"] = str(path)
    return paths


def build(folder: Path) -> tuple[FeatureMap, Any]:
    """FuxiCTR's feature map of the log, and its loaders of train, valid and test rows."""
    from fuxictr.preprocess import FeatureProcessor, build_dataset
    from fuxictr.pytorch.dataloaders import RankDataLoader

    fields = {"name": list(FIELDS), "active": True, "dtype": "str", "type": "categorical"}
    processor = FeatureProcessor(
        feature_cols=[fields],
        label_col={"name": "label", "dtype": "float"},
        dataset_id="log",
        data_root=str(folder),
    )
    paths = build_dataset(processor, **write_log(folder))
    found = FeatureMap("log", processor.data_dir)
    found.load(processor.json_file, {"embedding_dim": 4})
    rows = RankDataLoader(
        found,
        stage="both",
        **dict(zip(("train_data", "valid_data", "test_data"), paths, strict=True)),
        batch_size=50,
        data_format="parquet",
        num_workers=0,
    )
    return found, rows


def train(file: Path, folder: Path) -> float:
    """The test AUC of the model of `file` with PRIME. Raises SystemExit for what does not hold."""
    fields, (train_rows, valid_rows, test_rows) = build(folder)
    torch.manual_seed(1)
    model = model_class(file)(
        fields,
        embedding_dim=4,
        hidden_units=[16],
        learning_rate=1e-2,
        task="binary_classification",
        optimizer="adam",
        loss="binary_crossentropy",
        metrics=["AUC"],
        model_root=str(folder),
        verbose=0,
    )
    model.eval()
    batch = next(iter(test_rows))
    with torch.no_grad():
        before = model.forward(batch)["y_pred"]
        prime = attach_prime(model, seed=1)
        if not torch.equal(model.forward(batch)["y_pred"], before):
            raise SystemExit("other bits at the start")
    start = {name: value.clone() for name, value in prime.state_dict().items()}
    model.fit(train_rows, validation_data=valid_rows, epochs=EPOCHS)
    still = [name for name, value in prime.state_dict().items() if torch.equal(value, start[name])]
    if still:
        raise SystemExit(f"does not move: {', '.join(still)}")
    auc: float = model.evaluate(test_rows)["AUC"]
    return auc


def run(options: argparse.Namespace) -> float:
    """Print the versions. Returns the test AUC; raises UserError for a fault of the user."""
    found = {name: version(name) for name in ("fuxictr", "polars", "ray", "pandas", "torch")}
    print(", ".join(f"{name} {number}" for name, number in found.items()), flush=True)
    if int(found["polars"].partition(".")[0]) >= 2:
        raise EnvironmentFault(
            f"FuxiCTR 2.3.10 cannot read csv files with polars {found['polars']}",
            hint="pip install 'polars<2'",
        )
    file = model_file(options.zoo, options.model)
    os.environ.setdefault("RAY_worker_niceness", "0")
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as made:
        return train(file, options.work or Path(made))


def main() -> None:
    """Print the versions and the AUC."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--zoo", type=Path, required=True, help="FuxiCTR's model_zoo")
    parser.add_argument("--model", default="DeepFM", help="a model with `hidden_units`")
    parser.add_argument("--work", type=Path, help="an empty folder for the files, which stay")
    options = parser.parse_args()
    try:
        auc = run(options)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    print(f"{options.model} with PRIME: test AUC {auc:.4f}")
    if auc < LOWEST_AUC:
        sys.exit("does not learn")


if __name__ == "__main__":
    main()

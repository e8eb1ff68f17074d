"""`attach_prime` on every model of FuxiCTR's model zoo: which start with equal bits, and learn?

    python scripts/attach_to_zoo.py --zoo FuxiCTR/model_zoo [--only FinalNet,FFM] [--json FILE]

Each class is built with its defaults over eight categorical fields with one value a row, of the
sources user, item and context. Two copies of equal weights get the same batches in training and in
evaluation mode, one of them with PRIME: their predictions must be equal bit for bit. Then the one
with PRIME trains with FuxiCTR's own `train_step`: it `learns` if each of PRIME's tensors moves and
the loss falls; it `moves` if the loss does not fall without PRIME either, and is `spoilt` if it
does. The learning rate is 0.003, so that 40 steps tell, where a model has none of its own below.
A model that FuxiCTR itself cannot run on such fields (sequences, several tasks) is left out, with
its reason. A model that `attach_prime` refuses is tried again with the `embedding=` that the hint
of the refusal names. Exit code 1 for any other result.
"""

import argparse
import json
import sys
import tempfile
import warnings
from collections import Counter, OrderedDict
from pathlib import Path
from typing import Any

import torch
from tabulate import tabulate

# Ours first: it keeps FuxiCTR's preprocessing, and so ray, out of the import of its layers.
from prime_bench.base.errors import UsageError
from prime_bench.integrations.fuxictr import attach_prime

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
# isort: split
from against_fuxictr import model_class
from fuxictr.features import FeatureMap

FIELDS, VALUES, ROWS, STEPS = 8, 50, 256, 40
RATE = 3e-3
SOURCES = ("user", "item", "context")
# Classes that cannot be built with their defaults.
NEEDED: dict[str, dict[str, Any]] = {
    "APG_DCNv2": {"parallel_dnn_hidden_units": [32]},
    "DCNv2": {"parallel_dnn_hidden_units": [32]},
    "GDCN": {"dnn_hidden_units": [32]},
}
RATES = {"APG_DeepFM": 1e-3}
"""Model -> its learning rate, where not `RATE`. APG_DeepFM's factors of 1,024 columns make its loss
rise at 0.003, with PRIME for two of three initial states (torch seeds 3, 4, 5) and without for one,
at 0.01 for all three without; at 0.001, FuxiCTR's default, it falls for all, with and without.
"""


def feature_map(folder: Path) -> FeatureMap:
    """Categorical fields of all sources."""
    found = FeatureMap("zoo", str(folder))
    found.features = OrderedDict(
        (
            f"C{i}",
            {
                "type": "categorical",
                "source": SOURCES[i % len(SOURCES)],
                "padding_idx": 0,
                "vocab_size": VALUES,
            },
        )
        for i in range(FIELDS)
    )
    found.labels, found.default_emb_dim = ["label"], 10
    found.num_fields = FIELDS
    found.set_column_index()
    return found


def batches(n: int) -> list[dict[str, torch.Tensor]]:
    """Rows whose label depends on two fields."""
    random = torch.Generator().manual_seed(1)
    found = []
    for _ in range(n):
        batch = {
            f"C{i}": torch.randint(1, VALUES, (ROWS,), generator=random) for i in range(FIELDS)
        }
        batch["label"] = (batch["C0"] % 2 + batch["C1"] % 3 > 1).double()
        found.append(batch)
    return found


def build(file: Path, folder: Path) -> Any:
    """The model of a file, with its defaults. Raises whatever the class does on these fields."""
    torch.manual_seed(3)
    model = model_class(file)(
        feature_map(folder),
        embedding_dim=10,
        task="binary_classification",
        optimizer="adam",
        loss="binary_crossentropy",
        metrics=["AUC"],
        model_root=str(folder),
        verbose=0,
        learning_rate=RATES.get(file.stem, RATE),
        **NEEDED.get(file.stem, {}),
    )
    model._max_gradient_norm = 10.0
    for training in (False, True):
        model.train(training)
        seeded(model, batches(1)[0])
    model.train_step(batches(1)[0])
    return model


def seeded(model: Any, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    """The prediction with equal dropout masks."""
    torch.manual_seed(9)
    found: torch.Tensor = model.forward(dict(batch))["y_pred"]
    return found


def look(file: Path, folder: Path, *, embedding: str | None = None) -> str:
    """`learns`, `moves`, or what does not hold. Raises UsageError if `attach_prime` refuses it."""
    plain, model, given = build(file, folder), build(file, folder), batches(STEPS)
    prime = attach_prime(model, seed=1, embedding=embedding)
    for training in (False, True):
        for each in (plain, model):
            each.train(training)
        for batch in given[:4]:
            if not torch.equal(seeded(plain, batch), seeded(model, batch)):
                return f"other bits at the start ({'training' if training else 'evaluation'})"
    before = {name: value.clone() for name, value in prime.state_dict().items()}
    fell = falls(model, given)
    still = [n for n, value in prime.state_dict().items() if torch.equal(value, before[n])]
    if still:
        return f"does not move {', '.join(still)}"
    if fell:
        return "learns"
    return "spoilt" if falls(plain, given) else "moves"


def falls(model: Any, given: list[dict[str, torch.Tensor]]) -> bool:
    """Whether the loss falls in a step a batch."""
    model.train()
    losses = [float(model.train_step(batch)) for batch in given]
    return sum(losses[-10:]) < sum(losses[:10])


def tried(file: Path, folder: Path) -> dict[str, str]:
    """A row of the table."""
    row = {"model": file.stem, "result": "", "embedding": "", "why": ""}
    try:
        build(file, folder)
    except Exception as error:  # noqa: BLE001
        return row | {"result": "left out", "why": f"{type(error).__name__}: {error}"[:90]}
    try:
        return row | {"result": look(file, folder)}
    except UsageError as error:
        why, named = error.message, error.hint.split('"')
    if named[0] == "embedding=":
        row["embedding"] = named[1]
        try:
            return row | {"result": look(file, folder, embedding=named[1])}
        except UsageError as error:
            why = error.message
    return row | {"result": "refused", "why": why}


def main() -> None:
    """Print the table and the counts."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--zoo", type=Path, required=True, help="FuxiCTR's model_zoo")
    parser.add_argument("--only", help="names of models, with commas")
    parser.add_argument("--json", type=Path, help="write the table here as well")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    only = options.only.split(",") if options.only else None
    files = sorted(
        file
        for pattern in ("*/src/*.py", "*/*_torch/src/*.py")
        for file in options.zoo.glob(pattern)
        if file.stem != "__init__" and (only is None or file.stem in only)
    )
    with tempfile.TemporaryDirectory() as folder:
        rows = []
        for file in files:
            rows.append(tried(file, Path(folder)))
            print(*rows[-1].values(), file=sys.stderr, flush=True)
    print(tabulate(rows, headers="keys", tablefmt="github"))
    counts = Counter(row["result"] for row in rows)
    print("\n" + ", ".join(f"{n} {result}" for result, n in counts.most_common()))
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")
    sys.exit(any(row["result"] not in ("learns", "moves", "refused", "left out") for row in rows))


if __name__ == "__main__":
    main()

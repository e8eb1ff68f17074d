"""FuxiCTR 2.3.10's own preprocessing of one folder, for `prepare.py`, which runs it elsewhere.

Runs in an environment with FuxiCTR and polars below 2 and imports nothing of ours. Argument: JSON
with `shape`, `source` (folder of train.csv, valid.csv, test.csv) and `target` (a new folder).
Prints, as the last line, the seconds of the work; importing and starting ray do not count.
"""

import json
import sys
import time
from pathlib import Path

from fuxictr.datasets.criteo import CustomizedFeatureProcessor
from fuxictr.preprocess.build_dataset import build_dataset, init_ray


def columns(shape: str) -> dict:
    """Columns as BARS declares them; Avazu's as text, so that ids are in order of count."""
    names = [f"feat_{i}" for i in range(1, 23)]
    if shape == "avazu":
        return {
            "feature_cols": [
                {"name": names, "active": True, "dtype": "str", "type": "categorical"},
            ],
            "label_col": {"name": "label", "dtype": "float"},
        }
    numeric, text = [f"I{i}" for i in range(1, 14)], [f"C{i}" for i in range(1, 27)]
    bucketed = {"dtype": "float", "preprocess": "convert_to_bucket", "fill_na": 0}
    kept = {"active": True, "type": "categorical"}
    return {
        "feature_cols": [
            {"name": numeric} | kept | bucketed,
            {"name": text, "dtype": "str", "fill_na": ""} | kept,
        ],
        "label_col": {"name": "Label", "dtype": "float"},
    }


def main() -> None:
    """Build the data set."""
    spec = json.loads(sys.argv[1])
    source, target = Path(spec["source"]), Path(spec["target"])
    init_ray()
    start = time.perf_counter()
    processor = CustomizedFeatureProcessor(
        dataset_id=target.name, data_root=str(target.parent), **columns(spec["shape"])
    )
    paths = {f"{split}_data": str(source / f"{split}.csv") for split in ("train", "valid", "test")}
    build_dataset(processor, **paths, min_categr_count=spec["min_count"])
    print(time.perf_counter() - start)


if __name__ == "__main__":
    main()

"""What a predictions.npz has to hold; whatever else is there is a data error."""

import numpy as np
import pytest

from prime_bench.base.errors import DataError
from prime_bench.store.predictions import read_predictions

LABELS = np.array([0, 1, 1], dtype=np.uint8)
VALUES = np.array([0.25, 0.5, 0.75], dtype=np.float32)
SOUND = {"valid": VALUES, "valid_labels": LABELS, "test": VALUES[1:], "test_labels": LABELS[1:]}


def test_what_is_written_is_read(tmp_path):
    np.savez(tmp_path / "predictions.npz", **SOUND)
    found = read_predictions(tmp_path)

    assert list(found) == ["valid", "test"]
    for split, arrays in found.items():
        for array, wanted in zip(arrays, (SOUND[f"{split}_labels"], SOUND[split]), strict=True):
            assert array.dtype == wanted.dtype
            assert array.tolist() == wanted.tolist()


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"valid": None}, "valid"),
        ({"test_labels": None}, "test_labels"),
        ({"valid": VALUES[1:]}, "valid has no label and probability of each row"),
        ({"test": VALUES}, "test has no label and probability of each row"),
        ({"valid": VALUES.astype(float)}, "valid has no label and probability of each row"),
        ({"valid_labels": LABELS.astype(int)}, "valid has no label and probability of each row"),
        (
            {"valid": VALUES[None], "valid_labels": LABELS[None]},
            "valid has no label and probability of each row",
        ),
        ({"valid": np.array([None] * 3)}, "Object arrays cannot be loaded"),
    ],
)
def test_arrays_that_are_no_predictions_are_a_data_error(tmp_path, changes, why):
    arrays = {key: value for key, value in {**SOUND, **changes}.items() if value is not None}
    np.savez(tmp_path / "predictions.npz", **arrays)
    with pytest.raises(DataError, match=why) as caught:
        read_predictions(tmp_path)
    assert caught.value.hint == f"make them with `prime-bench predict {tmp_path.name}`"


@pytest.mark.parametrize("content", [None, b"", b"PK\x03\x04", b"no zip archive"])
def test_a_file_that_is_no_archive_is_a_data_error(tmp_path, content):
    if content is not None:
        (tmp_path / "predictions.npz").write_bytes(content)
    with pytest.raises(DataError, match=r"predictions\.npz: cannot read the predictions: "):
        read_predictions(tmp_path)

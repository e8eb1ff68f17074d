"""Row order, batch bounds, and what a gather returns."""

import hashlib

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
import torch

from prime_bench.base.streams import derive
from prime_bench.data.table import Split
from prime_bench.training import batches as batches_module
from prime_bench.training.batches import Rows, batch_bounds, row_order, row_order_digest

CPU = torch.device("cpu")


def split_of(n, n_categorical=3, n_numeric=2):
    random = np.random.default_rng(0)
    return Split(
        ids=random.integers(0, 9, (n, n_categorical), dtype=np.int32),
        numerics=random.normal(size=(n, n_numeric)).astype(np.float32),
        labels=random.integers(0, 2, n, dtype=np.uint8),
    )


def test_the_order_is_torch_randperm_of_its_own_stream():
    generator = torch.Generator().manual_seed(derive(2021, "row-order/3"))
    expected = torch.randperm(1000, generator=generator)
    torch.manual_seed(1)
    before = torch.get_rng_state()
    assert torch.equal(row_order(1000, seed=2021, epoch=3), expected)
    assert torch.equal(torch.get_rng_state(), before)


def test_orders_differ_by_seed_and_epoch_and_repeat():
    digests = {
        row_order_digest(row_order(100, seed=seed, epoch=epoch))
        for seed in (1, 2)
        for epoch in (1, 2)
    }
    assert len(digests) == 4
    assert row_order_digest(row_order(100, seed=1, epoch=1)) in digests


def test_the_digest_is_of_little_endian_int64():
    raw = b"".join(int(i).to_bytes(8, "little") for i in (2, 0, 1))
    assert row_order_digest(torch.tensor([2, 0, 1])) == hashlib.sha256(raw).hexdigest()


@hypothesis.given(n=st.integers(0, 300), size=st.integers(2, 40))
def test_batches_cover_the_rows_and_none_has_one_row(n, size):
    bounds = batch_bounds(n, size)
    assert [i for start, stop in bounds for i in range(start, stop)] == list(range(n))
    lengths = [stop - start for start, stop in bounds]
    assert all(length in (size, size + 1) for length in lengths[:-1] or [size])
    assert all(length == size for length in lengths[:-1])
    assert n == 1 or 1 not in lengths


@pytest.mark.parametrize(
    ("n", "lengths"), [(8, [4, 4]), (9, [4, 5]), (10, [4, 4, 2]), (5, [5]), (4, [4]), (1, [1])]
)
def test_a_single_last_row_joins_the_batch_before(n, lengths):
    assert [stop - start for start, stop in batch_bounds(n, 4)] == lengths


@pytest.mark.parametrize("n_numeric", [0, 2])
@pytest.mark.parametrize("n_categorical", [0, 3])
def test_a_shuffled_pass_is_a_gather(n_numeric, n_categorical):
    split = split_of(11, n_categorical, n_numeric)
    order = row_order(11, seed=7, epoch=1)
    batches = list(Rows(split, device=CPU).shuffled(order, batch_size=5))
    assert [len(batch.labels) for batch in batches] == [5, 6]
    for name in ("ids", "numerics", "labels"):
        seen = torch.cat([getattr(batch, name) for batch in batches])
        expected = torch.from_numpy(getattr(split, name)[order.numpy()])
        assert seen.dtype == expected.dtype
        assert torch.equal(seen, expected)


def test_a_pass_in_order_reads_memory_maps_without_touching_them(tmp_path):
    split = split_of(11)
    names = ("ids", "numerics", "labels")
    for name in names:
        np.save(tmp_path / f"{name}.npy", getattr(split, name))
    mapped = Split(**{name: np.load(tmp_path / f"{name}.npy", mmap_mode="r") for name in names})
    batches = list(Rows(mapped, device=CPU).in_order(batch_size=5))
    assert [len(batch.labels) for batch in batches] == [5, 5, 1]
    batches[0].numerics.zero_()
    assert np.array_equal(mapped.numerics, split.numerics)
    assert torch.equal(torch.cat([b.ids for b in batches]), torch.from_numpy(split.ids))


@pytest.mark.parametrize(("jobs", "fits"), [(None, True), ("4", True), ("5", False)])
def test_whether_rows_are_copied_to_a_gpu_depends_on_the_jobs_that_share_it(
    jobs, fits, monkeypatch
):
    """Of its whole memory: what is free there when a worker starts decides nothing."""
    split = split_of(11)
    arrays = (split.ids, split.numerics, split.labels)
    size = sum(array.nbytes for array in arrays)
    monkeypatch.setattr(batches_module, "device_bytes", lambda _: 7 * size)
    monkeypatch.setattr(torch.cuda, "mem_get_info", None)
    if jobs is not None:
        monkeypatch.setenv("PRIME_BENCH_JOBS_ON_DEVICE", jobs)
    assert batches_module._fits(arrays, torch.device("cuda")) == fits
    assert not batches_module._fits(arrays, CPU)


def test_rows_on_the_device_are_in_the_batches_of_rows_on_the_host(monkeypatch):
    """As on a GPU, to which a split goes in blocks."""
    split, order = split_of(11), row_order(11, seed=7, epoch=1)
    host = Rows(split, device=CPU)
    monkeypatch.setattr(batches_module, "_fits", lambda *_: True)
    monkeypatch.setattr(batches_module, "_COPY_ROWS", 4)
    there = Rows(split, device=CPU)
    assert there._resident is not None
    for a_pass in (
        lambda rows: rows.shuffled(order, batch_size=5),
        lambda rows: rows.in_order(batch_size=5),
    ):
        for one, other in zip(a_pass(host), a_pass(there), strict=True):
            for name in ("ids", "numerics", "labels"):
                assert torch.equal(getattr(one, name), getattr(other, name))
                assert getattr(one, name).dtype == getattr(other, name).dtype

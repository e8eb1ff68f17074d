"""What a training run needs, counted, and whether rows fit on a GPU that several jobs share."""

from dataclasses import replace

import pytest

from prime_bench.settings.interface import Budget, TableShape
from prime_bench.settings.memory import MemoryNeed, rows_fit, says_out_of_memory

BUDGET = Budget(
    backbone_parameters=10_000_000 + 600_000,
    plugin_parameters=0,
    backbone_macs=600_000,
    plugin_macs=0,
)
SHAPE = TableShape(vocabulary_sizes=(400_000, 599_998), n_numeric=2)
GIB = 1 << 30


def need_of(*, train_rows=0, batch_size=4096):
    return MemoryNeed.of(
        BUDGET,
        SHAPE,
        embedding_dim=10,
        batch_size=batch_size,
        train_rows=train_rows,
        valid_rows=train_rows // 8,
        test_rows=train_rows // 4,
    )


def message_of(total_bytes):
    return need_of().fault("cpu", total_bytes=total_bytes).message


def test_the_sizes_are_those_of_the_table_with_its_gradient_and_moments():
    message = message_of(GIB)
    assert need_of().trained_bytes == 16 * 10_600_000
    assert "out of memory on cpu (1.0 GiB)" in message
    assert "1,000,000 rows x 10 x 4 bytes takes 0.15 GiB" in message
    assert "all 10,600,000 parameters 0.16 GiB; a batch of 4,096 rows comes on top" in message
    assert "\n" not in message


def test_what_would_fit():
    assert message_of(16 * 5_600_000).endswith(  # room for half of the table
        "at this width at most 500,000 rows fit, with these rows a width of at most 5"
    )
    assert message_of(16 * 600_000).endswith("no table fits beside the other parameters")
    assert "without the batch that fits" in message_of(16 * 10_600_000)


def test_on_a_gpu_rows_order_context_and_copies_count():
    total = 80 * GIB
    small, large = need_of().gpu_bytes(total), need_of(train_rows=40_000_000).gpu_bytes(total)
    assert small > 3 * need_of().trained_bytes, "the step before and after it was verified"
    # An order of int64; two ids, two numeric values and a label of the train and valid rows.
    assert large - small == 8 * 40_000_000 + (4 * 4 + 1) * 45_000_000


def test_rows_that_are_not_copied_to_the_gpu_do_not_count():
    total = 2 * GIB
    rows = 100_000_000  # 1.7 GB of ids alone
    assert need_of(train_rows=rows).gpu_bytes(total) == need_of().gpu_bytes(total) + 8 * rows


@pytest.mark.parametrize("train_rows", [1_000_000, 30_000_000, 300_000_000])
@pytest.mark.parametrize("total", [10 * GIB, 80 * GIB, 140 * GIB])
def test_as_many_jobs_as_fit_all_keep_their_rows_on_the_gpu(train_rows, total):
    need = need_of(train_rows=train_rows)
    if not rows_fit(need.row_bytes * train_rows, total_bytes=total, jobs=1):
        return
    jobs = total // need.gpu_bytes(total)
    assert jobs >= 1
    assert rows_fit(need.row_bytes * train_rows, total_bytes=total, jobs=jobs)


NOTHING = MemoryNeed(
    **dict.fromkeys(("table_rows", "width", "parameters", "macs", "batch_size"), 0),
    row_bytes=9,
    **dict.fromkeys(("train_rows", "valid_rows", "test_rows"), 0),
)


@pytest.mark.parametrize(
    ("sizes", "host", "gpu"),
    [
        # The process with torch; CUDA's context.
        ({}, 700_000_000, 800_000_000),
        # float32: weight, gradient, moments; best weights and the copy that is saved. On a GPU
        # weights and moments before and after the steps that a graph is compared with.
        ({"parameters": 1000}, 4 * 8 * 1000, 4 * (4 + 6) * 1000),
        # A float32 for each hundredth multiply-accumulate, on a GPU twice: eagerly and in a graph.
        ({"macs": 500, "batch_size": 200}, 4 * 1000, 2 * 4 * 1000),
        # int64 orders, two on the host; the rows of two splits at a time on the GPU.
        ({"train_rows": 1000}, 2 * 8 * 1000, 8 * 1000 + 9 * 1000),
        ({"valid_rows": 1000}, 0, 9 * 1000),
        ({"test_rows": 1000}, 0, 9 * 1000),
        ({"train_rows": 10, "valid_rows": 1000, "test_rows": 500}, 160, 80 + 9 * 1500),
    ],
)
def test_the_bytes_of_every_part(sizes, host, gpu):
    need = replace(NOTHING, **sizes)
    others = (0, 0) if not sizes else (NOTHING.host_bytes, NOTHING.gpu_bytes(80 * GIB))
    assert (need.host_bytes, need.gpu_bytes(80 * GIB)) == (others[0] + host, others[1] + gpu)


def test_the_largest_split_decides_whether_any_is_on_the_gpu():
    for name in ("train_rows", "valid_rows", "test_rows"):
        rows = 2 * GIB  # 18 GiB
        order = 8 * rows if name == "train_rows" else 0
        assert replace(NOTHING, **{name: rows}).gpu_bytes(20 * GIB) == 800_000_000 + order


def test_a_need_is_made_of_backbone_plug_in_table_and_protocol():
    budget = Budget(backbone_parameters=70, plugin_parameters=7, backbone_macs=50, plugin_macs=5)
    found = MemoryNeed.of(
        budget,
        TableShape(vocabulary_sizes=(30, 70), n_numeric=1),
        embedding_dim=4,
        batch_size=32,
        train_rows=800,
        valid_rows=120,
        test_rows=80,
    )
    assert found == MemoryNeed(
        table_rows=101,
        width=4,
        parameters=77,
        macs=55,
        batch_size=32,
        row_bytes=3 * 4 + 1,
        train_rows=800,
        valid_rows=120,
        test_rows=80,
    )


def test_the_last_words_of_a_process_tell_of_memory():
    assert says_out_of_memory("RuntimeError: CUDA error: out of memory")
    assert not says_out_of_memory("RuntimeError: CUDA error: no kernel image is available")

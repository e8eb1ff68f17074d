"""What a training run needs, counted, and whether rows fit on a GPU that several jobs share."""

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


def test_more_rows_and_larger_batches_need_more_on_the_host():
    assert need_of(train_rows=1000).host_bytes > need_of().host_bytes
    assert need_of(batch_size=8192).host_bytes > need_of().host_bytes


def test_the_last_words_of_a_process_tell_of_memory():
    assert says_out_of_memory("RuntimeError: CUDA error: out of memory")
    assert not says_out_of_memory("RuntimeError: CUDA error: no kernel image is available")

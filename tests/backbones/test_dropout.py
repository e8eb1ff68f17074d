"""The masks: rate, independence of rows and columns, shapes, gradient, stream."""

import pytest
import torch
from torch import nn

from prime_bench.backbones import fuxi
from prime_bench.backbones.dropout import DroppedReLU, dropout

N_ROWS, WIDTH = 1024, 257


def mask(p, n_rows=N_ROWS, width=WIDTH, *, seed=0):
    torch.manual_seed(seed)
    return dropout(torch.ones(n_rows, width), p, training=True)


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_each_number_stays_with_its_probability_and_is_scaled(p):
    kept = mask(p) != 0
    assert torch.unique(mask(p)).tolist() == pytest.approx([0, 1 / (1 - p)])
    deviation = (p * (1 - p)) ** 0.5
    assert abs(kept.double().mean() - (1 - p)) < 4 * deviation / (N_ROWS * WIDTH) ** 0.5
    # Each row and column alone: the spread of their means is that of independent draws.
    for dim, n in ((0, N_ROWS), (1, WIDTH)):
        spread = kept.double().mean(dim=dim).std() / (deviation / n**0.5)
        assert 0.85 < spread < 1.15


@pytest.mark.parametrize("p", [0.1, 0.5])
def test_rows_and_columns_are_as_little_correlated_as_independent_draws(p):
    """The masks of a rectangle's corners are related; the mean square of all correlations of pairs
    of rows, or of columns, is a sum over rectangles and would show it.
    """
    found = []
    for seed in range(20):
        centred = ((mask(p, seed=seed) != 0).double() - (1 - p)) / (p * (1 - p)) ** 0.5
        by_column = (centred.T @ centred).fill_diagonal_(0) / N_ROWS**0.5
        by_row = (centred @ centred.T).fill_diagonal_(0) / WIDTH**0.5
        n_pairs = (WIDTH * (WIDTH - 1), N_ROWS * (N_ROWS - 1))
        squares = (by_column.square().sum(), by_row.square().sum())
        found.append([total / n for total, n in zip(squares, n_pairs, strict=True)])
    means = torch.tensor(found)
    error = means.std(dim=0) / len(found) ** 0.5
    assert bool((error < 0.01).all())
    assert bool(((means.mean(dim=0) - 1).abs() < 4 * error + 1e-3).all())


def test_masks_follow_the_global_generator_and_nothing_else():
    assert torch.equal(mask(0.3, seed=5), mask(0.3, seed=5))
    assert not torch.equal(mask(0.3, seed=5), mask(0.3, seed=6))
    torch.manual_seed(5)
    torch.rand(N_ROWS)
    assert not torch.equal(dropout(torch.ones(4, 9), 0.5, training=True), mask(0.5, 4, 9, seed=5))
    state = torch.get_rng_state()
    for p, training in ((0.5, False), (0.0, True)):
        assert bool((dropout(torch.ones(4, 9), p, training=training) == 1).all())
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("shape", [(6,), (6, 5), (6, 2, 3, 4)])
def test_any_shape_with_rows_first(shape):
    x = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    y = dropout(x, 0.5, training=True)
    assert y.shape == x.shape
    assert y.dtype == x.dtype
    (gradient,) = torch.autograd.grad(y.sum(), x)
    torch.testing.assert_close(gradient, torch.where(y == 0, 0.0, 2.0).double())


def test_dropped_relu_is_dropout_of_relu():
    layer, x = DroppedReLU(0.3), torch.randn(40, 31, dtype=torch.float64, requires_grad=True)
    direction = torch.randn(40, 31, dtype=torch.float64)
    found = []
    for forward in (layer, lambda x: dropout(torch.relu(x), 0.3, training=True)):
        torch.manual_seed(2)
        y = forward(x)
        found.append((y, *torch.autograd.grad(y, x, direction)))
    assert torch.equal(found[0][0], found[1][0])
    torch.testing.assert_close(found[0][1], found[1][1])
    for silent in (DroppedReLU(0.3).eval(), DroppedReLU(0.0)):
        assert torch.equal(silent(x), torch.relu(x))


def test_fuxictrs_mlp_has_ours_in_the_place_of_torchs():
    mlp = fuxi.mlp(5, [4, 3], dropout=0.2, batch_norm=True, width_out=1)
    kinds = [type(layer) for layer in mlp.mlp]
    hidden = [nn.Linear, nn.BatchNorm1d, DroppedReLU, nn.Identity]
    assert kinds == [*hidden, *hidden, nn.Linear]
    assert [layer.p for layer in mlp.modules() if type(layer) is DroppedReLU] == [0.2, 0.2]
    assert [type(layer) for layer in fuxi.mlp(5, [4]).mlp] == [nn.Linear, nn.ReLU]


@pytest.mark.parametrize("p", [0.1, 0.5])
@pytest.mark.parametrize("shape", [(3000, 100), (2, 200_000), (5, 3, 7)])  # blocks; a row is more
def test_masks_are_the_products_of_the_words_that_were_drawn(shape, p):
    """In Python's integers, whatever the blocks and the strides of the input."""
    n_rows, width = shape[0], torch.Size(shape[1:]).numel()
    torch.manual_seed(3)
    words = torch.randint(-(1 << 31), 1 << 31, (n_rows + width,), dtype=torch.int32)
    u, v = (part.numpy().astype("int64") | 1 for part in words.split([n_rows, width]))
    product = (u[:, None] * v + (1 << 31)) % (1 << 32)  # as an unsigned distance from -2^31
    expected = torch.from_numpy((product >= round(p * (1 << 32))) / (1 - p)).float()
    x = torch.randn(shape).abs().transpose(0, -1).contiguous().transpose(0, -1)
    assert not x.is_contiguous()
    for layer in (DroppedReLU(p), lambda x: dropout(x, p, training=True)):
        torch.manual_seed(3)
        assert torch.equal(layer(x), x * expected.view(shape))

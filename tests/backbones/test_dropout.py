"""The masks: rate, independence of rows and columns, shapes, gradient, stream."""

import pytest
import torch
from torch import nn

from prime_bench.backbones import fuxi
from prime_bench.backbones.dropout import Dropout, dropout

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
def test_pairs_triples_and_squares_are_independent(p):
    """The words of a mask are sums over rows and columns before they are hashed: what a bad hash
    would leave are relations among the corners of rectangles.
    """
    centred = (mask(p) != 0).double() - (1 - p)
    centred /= (p * (1 - p)) ** 0.5
    one, two = centred[: N_ROWS // 2], centred[N_ROWS // 2 :]
    left, right = one[:, : WIDTH // 2], one[:, WIDTH // 2 : 2 * (WIDTH // 2)]
    below = two[:, : WIDTH // 2]
    corner = two[:, WIDTH // 2 : 2 * (WIDTH // 2)]
    for product in (one * two, left * right, left * right * below, left * right * below * corner):
        assert abs(product.mean()) < 4 / product.numel() ** 0.5
    # Every pair of columns: no correlation far outside what chance gives 33,000 of them.
    correlations = (centred.T @ centred / N_ROWS).fill_diagonal_(0)
    assert correlations.abs().max() < 6 / N_ROWS**0.5


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


def test_fuxictrs_mlp_has_it_in_the_place_of_torchs():
    plain = [type(m) for m in fuxi.mlp(5, [4, 3], dropout=0.2).modules()]
    assert plain.count(Dropout) == 2
    assert nn.Dropout not in plain
    assert [m.p for m in fuxi.mlp(5, [4], dropout=0.2).modules() if type(m) is Dropout] == [0.2]

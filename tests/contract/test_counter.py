"""The counter against counts by hand: the formulas of the settings are tested with it."""

import torch
import torch.nn.functional as F
from torch import nn

from prime_bench.contract.counter import Counts, count


class Everything(nn.Module):
    """Each kind of product once, and work that does not count."""

    def __init__(self):
        super().__init__()
        self.linear, self.bare = nn.Linear(5, 7), nn.Linear(7, 3, bias=False)
        self.left, self.right = (nn.Parameter(torch.ones(s)) for s in ((4, 6), (6, 2)))
        self.vector, self.out = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(2, 3))
        self.frozen = nn.Parameter(torch.ones(9), requires_grad=False)
        self.dropout = nn.Dropout(0.5)

    def forward(self, x):
        assert not self.training
        hidden = self.dropout(F.silu(self.linear(x)))  # 5 x 7
        small = self.bare(hidden)  # 7 x 3
        once = (self.left @ self.right).sum()  # once a batch
        scores = small @ self.vector  # 3
        pairs = torch.bmm(small.unsqueeze(2), small.unsqueeze(1))  # 3 x 3
        weighed = (small.unsqueeze(1) * self.out).sum(dim=2)  # 2 x 3, with a weight
        mixed = (small * hidden[:, :3]).sum(dim=1)  # of activations: element-wise work
        return scores + once + pairs.sum(dim=(1, 2)) + weighed.sum(dim=1) + mixed


def test_each_kind_of_product_by_hand():
    model = Everything().train()
    found = count(model, lambda n_rows: (torch.ones(n_rows, 5),))
    parameters = 5 * 7 + 7 + 7 * 3 + 4 * 6 + 6 * 2 + 3 + 2 * 3
    assert found == Counts(parameters=parameters, macs=35 + 21 + 3 + 9 + 6)
    assert model.training


def test_a_model_without_products():
    model = nn.Sequential(nn.ReLU(), nn.LayerNorm(4))
    assert count(model, lambda n_rows: (torch.ones(n_rows, 4),)) == Counts(parameters=8, macs=0)

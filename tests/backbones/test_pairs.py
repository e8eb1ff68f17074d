"""Linear terms and products of pairs, alone and in WideDeep, DeepFM, NFM, PNN, AFM and FwFM,
against their equations in float64 NumPy: pair by pair.
"""

import itertools

import numpy as np
import pytest
import torch

from prime_bench.assemble import build_backbone
from prime_bench.backbones import afm
from prime_bench.backbones.afm import pair_scores
from prime_bench.backbones.dropout import dropout
from prime_bench.backbones.layers import (
    LinearTerm,
    inner_products,
    pair_matrix,
    pooled_products,
    upper_triangle,
)

N, K, FIELDS = 11, 3, 5
PAIRS = list(itertools.combinations(range(FIELDS), 2))
TOP = {"hidden_units": [6, 4], "embedding_dim": K}
CASES = {
    "WideDeep": ("WideDeep", TOP),
    "DeepFM": ("DeepFM", TOP),
    "NFM": ("NFM", TOP),
    "PNN": ("PNN", TOP),
    "AFM": ("AFM", {"embedding_dim": K, "attention_dim": 4, "attention_dropout": [0.3, 0.4]}),
    "AFM-sum": ("AFM", {"embedding_dim": K, "use_attention": False}),
    "FwFM-LW": ("FwFM", {"embedding_dim": K, "linear_type": "LW"}),
    "FwFM-FeLV": ("FwFM", {"embedding_dim": K, "linear_type": "FeLV"}),
    "FwFM-FiLV": ("FwFM", {"embedding_dim": K, "linear_type": "FiLV"}),
}


@pytest.fixture
def embeddings():
    return torch.randn(N, FIELDS, K, dtype=torch.float64, requires_grad=True)


def products(e):
    """(B, F, k) -> (B, P, k)."""
    return np.stack([e[:, i] * e[:, j] for i, j in PAIRS], axis=1)


def test_products_of_pairs(embeddings):
    e = embeddings.detach().numpy()
    upper = upper_triangle(FIELDS)
    np.testing.assert_allclose(pooled_products(embeddings).detach(), products(e).sum(1), atol=1e-14)
    found = inner_products(embeddings, upper).detach()
    np.testing.assert_allclose(found, products(e).sum(2), atol=1e-14)
    values = torch.randn(N, len(PAIRS))
    matrix = pair_matrix(values, upper, FIELDS)
    assert matrix.shape == (N, FIELDS, FIELDS)
    for number, (i, j) in enumerate(PAIRS):
        assert torch.equal(matrix[:, i, j], values[:, number])
    assert torch.equal(matrix.tril(), torch.zeros_like(matrix))


# ---- Attention scores, block by block


@pytest.fixture
def scorer(embeddings):
    shapes = ((4, K), (4,), (1, 4))
    return (embeddings, *(torch.randn(s, dtype=torch.float64, requires_grad=True) for s in shapes))


def set_block_rows(monkeypatch, rows):
    monkeypatch.setattr(afm, "CPU_BLOCK", rows * len(PAIRS) * 4)


@pytest.mark.parametrize("rows", [0, 1, 4, 11, 100])
def test_scores_and_their_gradient_in_blocks_of_any_size(scorer, rows, monkeypatch):
    set_block_rows(monkeypatch, rows)
    e, weight, bias, head = (tensor.detach().numpy() for tensor in scorer)
    hidden = np.maximum(products(e) @ weight.T + bias, 0)
    assert (hidden == 0).any()
    np.testing.assert_allclose(pair_scores(*scorer).detach(), (hidden @ head.T)[..., 0], rtol=1e-12)
    assert torch.autograd.gradcheck(pair_scores, scorer)


def test_scores_keep_no_tensor_of_pairs_for_backward(scorer, monkeypatch):
    set_block_rows(monkeypatch, 2)
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        pair_scores(*scorer)
    assert sum(tensor.numel() for tensor in kept) == sum(tensor.numel() for tensor in scorer)


def test_afm_keeps_no_tensor_of_pairs_and_coordinates(schema, rows):
    model = build_backbone("AFM", schema, {"attention_dim": 32, "embedding_dim": 16}, seed=0)
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        model(*rows(64))
    assert kept
    assert max(tensor.numel() for tensor in kept) <= 64 * FIELDS * 16 < 64 * len(PAIRS) * 16


# ---- The linear term


def test_the_linear_term_adds_a_weight_a_field_and_a_bias(schema, rows):
    term = LinearTerm(schema, bias=True).double()
    with torch.no_grad():
        for parameter in term.parameters():
            parameter.normal_()
    ids, numerics = rows(N)
    assert [name for name, _ in LinearTerm(schema).named_parameters()] == [
        "embedding.table",
        "embedding.numeric_weight",
    ]
    table = term.embedding.table.detach().numpy()[:, 0]
    expected = sum(table[ids[:, c] + start] for c, start in enumerate([0, 7, 11]))
    expected = expected + (numerics.double() @ term.embedding.numeric_weight).detach().numpy()[:, 0]
    found = term(ids, numerics.double())
    np.testing.assert_allclose(found.detach(), expected + term.bias.item(), rtol=1e-12)


def test_the_linear_term_starts_as_fuxictrs(schema):
    term = LinearTerm(schema, bias=True)
    table = term.embedding.table.detach()
    assert not table[[0, 7, 11]].any()
    assert 0 < table.abs().max() < 1e-3
    assert term.embedding.numeric_weight.abs().max() > 0.01  # Xavier normal of a 1 x 1 weight
    assert not term.bias.any()


# ---- Models


def softmax(x):
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


class Oracle:
    """The equations, from a model's weights as float64 arrays and its embeddings."""

    def __init__(self, state, embeddings, linear):
        self.state = {name: value.numpy() for name, value in state.items()}
        self.e, self.linear, self.masks = embeddings, linear, (1.0, 1.0)
        self.z = embeddings.reshape(N, -1)
        self.pairs = products(embeddings)
        self.dots = self.pairs.sum(axis=2)

    def top(self, x, name):
        for layer in (0, 2, 4):
            x = np.maximum(x, 0) if layer else x
            x = x @ self.state[f"{name}.mlp.{layer}.weight"].T
            x = x + self.state[f"{name}.mlp.{layer}.bias"]
        return x[:, 0]

    def logits(self, case):
        match case:
            case "WideDeep":
                return self.linear + self.top(self.z, "dnn")
            case "DeepFM":
                return self.linear + self.dots.sum(axis=1) + self.top(self.z, "mlp")
            case "NFM":
                return self.linear + self.top(self.pairs.sum(axis=1), "dnn")
            case "PNN":
                return self.top(np.concatenate([self.z, self.dots], axis=1), "dnn")
            case "AFM":
                return self.linear + self.attended()
            case "AFM-sum":
                return self.linear + self.dots.sum(axis=1)
        pairs = self.dots @ self.state["interaction_weight.weight"][0]
        return pairs + self.state["interaction_weight.bias"] + self.field_weighted_linear(case)

    def attended(self):
        hidden = self.pairs @ self.state["attention.0.weight"].T + self.state["attention.0.bias"]
        scores = np.maximum(hidden, 0) @ self.state["attention.2.weight"][0]
        weights = self.masks[0] * softmax(scores)
        pooled = self.masks[1] * (weights[:, :, None] * self.pairs).sum(axis=1)
        return pooled @ self.state["weight_p.weight"][0]

    def field_weighted_linear(self, case):
        if case == "FwFM-FiLV":
            return self.z @ self.state["linear_weight_layer.weight"][0]
        return (self.linear * (1 if case == "FwFM-LW" else self.e)).sum(axis=(1, 2))


def model_and_oracle(case, schema, batch):
    model = build_backbone(CASES[case][0], schema, CASES[case][1], seed=0).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_()
    terms = {"DeepFM": "fm.lr_layer", "FwFM-LW": "linear_weight_layer"}
    terms |= {"FwFM-FeLV": "linear_weight_layer", "PNN": None, "FwFM-FiLV": None}
    term = terms.get(case, "lr_layer")
    linear = model.get_submodule(term)(*batch).detach().numpy() if term else None
    return model, Oracle(model.state_dict(), model.embedding(*batch).detach().numpy(), linear)


@pytest.fixture
def batch(rows):
    ids, numerics = rows(N)
    return ids, numerics.double()


@pytest.mark.parametrize("case", CASES)
def test_models_follow_their_equations(case, schema, batch):
    model, oracle = model_and_oracle(case, schema, batch)
    np.testing.assert_allclose(model(*batch).detach(), oracle.logits(case), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(
    ("case", "read"),
    [
        ("WideDeep", lambda oracle: oracle.z),
        ("DeepFM", lambda oracle: oracle.z),
        ("NFM", lambda oracle: oracle.pairs.sum(axis=1)),
        ("PNN", lambda oracle: np.concatenate([oracle.z, oracle.dots], axis=1)),
    ],
)
def test_the_top_nn_reads_its_site(case, read, schema, batch):
    model, oracle = model_and_oracle(case, schema, batch)
    seen = []
    model.sites["top_input"].register_forward_hook(lambda _m, _i, out: seen.append(out.detach()))
    model(*batch)
    np.testing.assert_allclose(seen[0], read(oracle), rtol=1e-10, atol=1e-12)


def test_afm_drops_weights_after_the_softmax_and_the_weighted_sum(schema, batch):
    model, oracle = model_and_oracle("AFM", schema, batch)
    torch.manual_seed(3)
    found = model.train()(*batch).detach()
    torch.manual_seed(3)
    masks = [
        dropout(torch.ones(N, n).double(), p, training=True)
        for n, p in ((len(PAIRS), 0.3), (K, 0.4))
    ]
    assert all(0 < (mask == 0).double().mean() < 0.7 for mask in masks)
    oracle.masks = tuple(mask.numpy() for mask in masks)
    np.testing.assert_allclose(found, oracle.logits("AFM"), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("case", CASES)
def test_the_embeddings_l2_covers_every_table_and_nothing_else(case, schema):
    """FuxiCTR's embedding_regularizer: tables and the numeric fields' Linears, of any width."""
    model = build_backbone(CASES[case][0], schema, CASES[case][1], seed=0)
    covered = {id(parameter) for parameter in model.embedding_parameters()}
    assert len(covered) == len(model.embedding_parameters())
    names = {name for name, parameter in model.named_parameters() if id(parameter) in covered}
    assert names == {
        name
        for name, _ in model.named_parameters()
        if name.rpartition(".")[2] in ("table", "numeric_weight")
    }
    assert len(names) == (2 if case in ("PNN", "FwFM-FiLV") else 4)

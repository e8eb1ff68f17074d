import copy
import pickle

import numpy as np
import pytest
import torch

from prime_bench.backbones.embedding import FieldEmbedding
from prime_bench.data.schema import Field, Schema

WIDTH = 3
PAD_ROWS = [0, 7, 11]  # the first row of each categorical field of the schema fixture


def by_field(schema, embedding, ids, numerics):
    """The same embeddings, one field and one row at a time."""
    table = embedding.table.detach().numpy()
    weight = embedding.numeric_weight.detach().numpy()
    fields, category, number, start = [], 0, 0, 0
    for field in schema.fields:
        if field.kind == "categorical":
            fields.append(np.stack([table[start + int(i)] for i in ids[:, category]]))
            category, start = category + 1, start + field.vocabulary_size
        else:
            fields.append(np.stack([float(x) * weight[number] for x in numerics[:, number]]))
            number += 1
    return np.stack(fields, axis=1)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_fields_come_in_schema_order(schema, rows, dtype):
    embedding = FieldEmbedding(schema, WIDTH)
    ids, numerics = rows(13)
    found = embedding(ids.to(dtype), numerics)
    assert found.shape == (13, 5, WIDTH)
    expected = by_field(schema, embedding, ids, numerics)
    np.testing.assert_allclose(found.detach(), expected, rtol=1e-6)


@pytest.mark.parametrize("kind", ["categorical", "numeric"])
def test_a_schema_of_one_kind_has_no_weights_of_the_other(schema, rows, kind):
    only = Schema(fields=[field for field in schema.fields if field.kind == kind])
    embedding = FieldEmbedding(only, WIDTH)
    ids, numerics = rows(4)
    if kind == "categorical":
        numerics = numerics[:, :0]
        assert embedding.numeric_weight is None
    else:
        ids = ids[:, :0]
        assert embedding.table is None
    assert embedding(ids, numerics).shape == (4, len(only.fields), WIDTH)
    assert sum(p.numel() for p in embedding.parameters()) == only.shape.embedding_rows * WIDTH


def test_initial_values_are_fuxictrs():
    fields = [Field(name="c", kind="categorical", vocabulary_size=5000)] * 2
    fields += [Field(name="n", kind="numeric")] * 2000
    embedding = FieldEmbedding(Schema(fields=fields), 10)
    table, weight = embedding.table.detach(), embedding.numeric_weight.detach()
    assert not table[[0, 5000]].any()
    for start in (0, 5000):
        assert table[start + 1 : start + 5000].std().item() == pytest.approx(1e-4, rel=0.03)
    assert weight.std().item() == pytest.approx((2 / 11) ** 0.5, rel=0.03)
    assert abs(weight.mean().item()) < 0.01


def unchanged(embedding):
    return embedding


@pytest.mark.parametrize(
    "carry",
    [unchanged, copy.deepcopy, lambda e: pickle.loads(pickle.dumps(e)), lambda e: e.double()],
    ids=["itself", "deepcopy", "pickle", "double"],
)
def test_padding_stays_exactly_zero_and_all_else_gets_its_gradient(schema, rows, carry):
    embedding = carry(FieldEmbedding(schema, WIDTH))
    ids, numerics = rows(50)
    assert (ids == 0).any(0).all(), "each field's PAD must be among the rows"
    optimizer = torch.optim.Adam(embedding.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        weight = torch.randn(50, 5, WIDTH, dtype=embedding.table.dtype)
        for part in (weight, weight):  # accumulated from two backward passes
            (embedding(ids, numerics) * part).sum().backward()
        expected = torch.zeros_like(embedding.table)
        for column, (field, start) in enumerate([(0, 0), (2, 7), (3, 11)]):
            expected.index_add_(0, ids[:, column] + start, 2 * weight[:, field])
        expected[PAD_ROWS] = 0
        torch.testing.assert_close(embedding.table.grad, expected)
        embedding.table.grad.add_(embedding.table.detach(), alpha=0.1)  # the L2 term
        optimizer.step()
    assert not embedding.table.detach()[PAD_ROWS].any()
    assert embedding.table.detach().any(1).sum() == len(embedding.table) - len(PAD_ROWS)


def test_clearing_padding_makes_no_other_gradient_tensor(schema, rows):
    embedding = FieldEmbedding(schema, WIDTH)
    embedding.table.grad = torch.zeros_like(embedding.table)
    before = embedding.table.grad.data_ptr()
    embedding(*rows(5)).sum().backward()
    assert embedding.table.grad.data_ptr() == before

"""The routing diagnosis: against a NumPy oracle and hand-made loads, and as a job."""

import numpy as np
import pytest
import torch

from prime_bench.base.errors import DataError, UsageError
from prime_bench.findings import RoutingFindings
from prime_bench.probes import routing
from prime_bench.probes.arms import batch_of
from prime_bench.probes.groups import Grouping
from prime_bench.probes.routing import RoutingSums, entropies, overlap, routing_of
from prime_bench.settings.probes import RoutingSettings

CPU = torch.device("cpu")


def _bags(weights):
    """The findings on all rows of weights (B, G, M)."""
    sums = RoutingSums([])
    sums.add(np.asarray(weights, dtype=np.float64))
    return sums.overall()


def test_uniform_weights_use_all_experts():
    (bag,) = _bags(np.full((5, 1, 8), 1 / 8))

    assert bag.entropy == pytest.approx(np.log(8))
    assert bag.normalised_entropy == pytest.approx(1)
    assert bag.effective_experts == pytest.approx(8)
    assert bag.load == pytest.approx([1 / 8] * 8)
    assert bag.largest_load == pytest.approx(1 / 8)


def test_one_hot_weights_use_one_expert_a_row_whatever_the_load():
    weights = np.zeros((4, 2, 4))
    weights[:, 0, 2] = 1  # the same for all rows
    weights[np.arange(4), 1, np.arange(4)] = 1  # each row another

    same, each = _bags(weights)

    for bag in (same, each):
        assert (bag.entropy, bag.normalised_entropy, bag.effective_experts) == (0, 0, 1)
    assert (same.load, same.largest_load) == ([0, 0, 1, 0], 1)
    assert (each.load, each.largest_load) == ([0.25] * 4, 0.25)


def test_a_single_expert_has_no_entropy_to_normalise():
    (bag,) = _bags(np.ones((3, 1, 1)))

    assert (bag.entropy, bag.normalised_entropy, bag.largest_load) == (0, 0, 1)


def test_groups_share_experts_as_far_as_their_loads_overlap():
    even, first, last = [[0.5, 0.5, 0]], [[1, 0, 0]], [[0, 0, 1]]

    found = overlap([np.array(load) for load in (even, first, last)])

    assert found == [[1, 0.5, 0], [0.5, 1, 0], [0, 0, 1]]
    both = overlap([np.array([[1, 0], [0.5, 0.5]]), np.array([[0, 1], [0.5, 0.5]])])
    assert both[0][1] == 0.5  # 0 in one bag, 1 in the other


def test_sums_over_batches_and_groups_equal_an_oracle():
    random = np.random.default_rng(4)
    weights = random.dirichlet(np.ones(3), size=(50, 2))
    codes = random.integers(0, 3, 50)
    labels = random.integers(0, 2, 50)
    sums = RoutingSums([Grouping(field="f", names=["a", "b", "c"], codes=codes), None])
    for start, stop in ((0, 20), (20, 21), (21, 50)):
        sums.add(weights[start:stop])

    def oracle(rows):
        part = weights[rows]
        entropy = -np.array([[sum(p * np.log(p) for p in bag) for bag in row] for row in part])
        return np.concatenate([entropy.mean(axis=0)[:, np.newaxis], part.mean(axis=0)], axis=1)

    for bag, mean in zip(sums.overall(), oracle(np.arange(50)), strict=True):
        assert bag.entropy == pytest.approx(mean[0])
        assert bag.effective_experts == pytest.approx(np.exp(mean[0]))
        assert bag.normalised_entropy == pytest.approx(mean[0] / np.log(3))
        assert bag.load == pytest.approx(mean[1:])
        assert bag.largest_load == pytest.approx(mean[1:].max())
    least = int(np.sort(np.bincount(codes))[1])
    field = sums.field(0, "f", labels, min_rows=least)
    named = {group.size.name: group for group in field.groups}
    assert len(named) == 2
    assert [size.name for size in field.too_small] == [n for n in "abc" if n not in named]
    for name, group in named.items():
        rows = np.flatnonzero(codes == "abc".index(name))
        assert group.size.positives == labels[rows].sum()
        for bag, mean in zip(group.bags, oracle(rows), strict=True):
            assert bag.entropy == pytest.approx(mean[0])
            assert bag.load == pytest.approx(mean[1:])
    # The sum of the smaller loads; those of a group sum to 1.
    first, second = (np.array([bag.load for bag in group.bags]) for group in field.groups)
    shared = np.minimum(first, second).sum(axis=1).mean()
    assert field.overlap == [pytest.approx([1, shared]), pytest.approx([shared, 1])]
    assert sums.field(1, "g", labels, min_rows=1).skipped == "no field of the table means g"


def test_zero_weights_have_no_entropy():
    assert entropies(np.array([[[0.0, 1.0]]])).tolist() == [[0.0]]


def test_the_arms_routing_is_what_its_evaluation_uses(make_arm, make_split):
    split = make_split(40)
    arm = make_arm("DNN", "prime")
    batch = batch_of(split, np.arange(40), device=CPU)
    before = {name: value.clone() for name, value in arm.state_dict().items()}

    weights = routing_of(arm, batch.ids, batch.numerics)

    assert weights.shape == (40, 2, 3)
    np.testing.assert_allclose(weights.sum(axis=2), 1, rtol=1e-6)
    # By hand: softmax of LN(z) times the routers, plus the load bias.
    z = arm.backbone.embedding(batch.ids, batch.numerics).flatten(1)
    normal = torch.nn.functional.layer_norm(z, z.shape[-1:])
    scores = (normal @ arm.plugin.router.T).view(40, 2, 3) + arm.plugin.load_bias
    np.testing.assert_allclose(weights, torch.softmax(scores, 2).double().numpy(), atol=1e-6)
    assert all(torch.equal(value, before[name]) for name, value in arm.state_dict().items())


def test_an_arm_without_routers_is_refused(make_arm, make_split):
    batch = batch_of(make_split(4), np.arange(4), device=CPU)

    for plugin in ("dense", "residual_parameters"):
        with pytest.raises(UsageError, match="no routers"):
            routing_of(make_arm("DNN", plugin), batch.ids, batch.numerics)


def test_the_routing_of_a_diverged_run_cannot_be_measured(make_arm, make_split):
    batch = batch_of(make_split(4), np.arange(4), device=CPU)
    arm = make_arm("DNN", "prime")
    with torch.no_grad():
        arm.plugin.router.fill_(torch.nan)

    with pytest.raises(DataError, match="weights of experts are not numbers: the routing of a run"):
        routing_of(arm, batch.ids, batch.numerics)


def test_a_job_reports_all_rows_and_each_large_group(make_job, measure, request_for, prepared):
    """On the split and with the minimum that it asks for: neither is the default."""
    job = make_job("DNN", "prime", training={"max_epochs": 1, "batch_size": 70})
    codes = prepared.split("test").ids[:, 0]
    smallest, second = np.sort(np.bincount(codes, minlength=5)[1:5])[:2]
    assert smallest < second
    keys = {"split": "test", "fields": ["hour", "site_category"]}

    record = measure(job, "routing", **keys, min_rows=int(second))

    found = record.findings
    assert isinstance(found, RoutingFindings)
    assert (found.rows, found.split, len(found.bags)) == (900, "test", 2)
    first, last = found.bags
    assert first.entropy != last.entropy
    for name in ("entropy", "normalised_entropy", "effective_experts"):
        mean = (getattr(first, name) + getattr(last, name)) / 2
        assert getattr(found, name) == pytest.approx(mean)
    assert (
        found.largest_load
        == max(first.largest_load, last.largest_load)
        > min(first.largest_load, last.largest_load)
    )
    hour, missing = found.fields
    assert [size.rows for size in hour.too_small] == [smallest]
    assert np.array(hour.overlap).shape == (3, 3)
    assert missing.skipped == "no field of the table means site_category"

    def again(min_rows):
        probe = RoutingSettings(**keys, min_rows=min_rows).plain()
        own = job.model_copy(update={"kind": "routing", "probe": probe})
        request = request_for(own)
        return routing.run(request, own.resolve(), prepared, device=CPU, on_progress=lambda _: None)

    every = again(1).fields[0]
    assert sum(group.size.rows for group in every.groups) == 900
    shares = [group.size.rows / 900 for group in every.groups]
    mean = np.average([group.bags[0].load for group in every.groups], axis=0, weights=shares)
    assert first.load == pytest.approx(mean)
    assert again(901).fields[0].skipped == "no group has enough rows"


def test_uniform_routing_reports_equal_weights(make_job, measure):
    job = make_job("DNN", "uniform_routing", training={"max_epochs": 1, "batch_size": 70})

    found = measure(job, "routing", fields=[]).findings

    assert found.normalised_entropy == pytest.approx(1)
    assert found.largest_load == pytest.approx(1 / 8)

"""Both readings of Eq. 13's logit(p_d), for every arm with an anchor (fidelity 40)."""

import numpy as np
import pytest
import torch
from torch.nn.functional import binary_cross_entropy

from prime_bench.assemble import build_plugin
from prime_bench.base.errors import UsageError
from prime_bench.catalog import PLUGINS
from prime_bench.plugins.prime import Prime
from prime_bench.settings.plugins import AnchoredSettings, PrimeConfig

D = 6
EPS = 1e-7
ANCHORED = [name for name, entry in PLUGINS.items() if issubclass(entry.settings, AnchoredSettings)]
LOGITS = np.array([30.0, -30.0, 16.2, -16.2, 14.0, -14.0, 3.0, 0.2, -40.0, 40.0])
LABELS = np.array([0.0, 1.0, 0.0, 1.0, 1.0, 0.0, 0.0, 1.0, 1.0, 0.0])


def test_which_arms_have_an_anchor():
    assert sorted(ANCHORED) == [
        *("auxiliary_loss", "no_anchor", "permuted_routing", "prime", "residual_macs"),
        *("residual_no_layernorm", "residual_parameters", "single_bag", "uniform_routing"),
    ]


def sigmoid(x):
    return np.where(x < 0, np.exp(-abs(x)), 1) / (1 + np.exp(-abs(x)))


def inputs(dtype):
    z = torch.randn(len(LOGITS), D, generator=torch.Generator().manual_seed(3), dtype=dtype)
    logit = torch.tensor(LOGITS, dtype=dtype, requires_grad=True)
    return z, logit


def plugin_with(name, settings, *, deltas=None):
    """In float64 and evaluation, with residual logits that do not depend on the row, one for each
    expert; returns them too, (E,).
    """
    plugin = build_plugin(name, D, settings, seed=1).double().eval()
    bias = plugin.expert_bias if isinstance(plugin, Prime) else plugin.bias
    with torch.no_grad():
        if deltas is None:
            bias.normal_(generator=torch.Generator().manual_seed(2))
        else:
            bias.fill_(deltas)
    return plugin, bias


def weights(plugin, z):
    """Weights of the experts in p_s, (B, E): r / G, and 1 for a residual."""
    routing = plugin.routing(z)
    if routing is None:
        return np.ones((len(z), 1))
    return routing.detach().numpy().reshape(len(z), -1) / routing.shape[1]


@pytest.mark.parametrize("anchor", ["logit", "probability"])
@pytest.mark.parametrize("name", ANCHORED)
def test_probabilities_losses_and_gradients_follow_equations_13_to_17(name, anchor):
    plugin, bias = plugin_with(name, {"anchor": anchor})
    z, logit = inputs(torch.float64)
    alpha = 0.0 if name == "no_anchor" else 0.5
    # The probability that each row does not have, so that no 1 - p is rounded away.
    sign = np.where(LABELS == 1, 1, -1)
    bound = np.log((1 - EPS) / EPS)
    inside = (abs(LOGITS) < bound) | (anchor == "logit")
    clamped = np.clip(LOGITS, -bound, bound) if anchor == "probability" else LOGITS
    r, delta = weights(plugin, z), bias.detach().numpy().reshape(1, -1)
    p_d, each = sigmoid(sign * LOGITS), sigmoid(sign[:, None] * (clamped[:, None] + delta))
    likelihood = alpha * p_d + (1 - alpha) * (r * each).sum(axis=1)
    slopes = (1 - alpha) * r * each * (1 - each) / likelihood[:, None]  # of log p in each delta
    of_bias = -(sign[:, None] * slopes).sum(axis=0)
    of_logit = -sign * (alpha * p_d * (1 - p_d) / likelihood + inside * slopes.sum(axis=1))

    log_p, log_not_p = plugin.log_probabilities(z, logit)
    losses = -torch.where(torch.from_numpy(LABELS).bool(), log_p, log_not_p)
    np.testing.assert_allclose(losses.detach(), -np.log(likelihood), rtol=1e-12, atol=1e-14)
    found = torch.autograd.grad(losses.sum(), [bias, logit])
    np.testing.assert_allclose(found[0].reshape(-1), of_bias, rtol=1e-10, atol=1e-14)
    np.testing.assert_allclose(found[1], of_logit, rtol=1e-10, atol=1e-14)

    probability = plugin(z, logit)
    expected = np.where(LABELS == 1, likelihood, 1 - likelihood)
    np.testing.assert_allclose(probability.detach(), expected, rtol=0, atol=1e-15)
    # torch's loss divides by p (1 - p), or by 1e-12 where that is less; so only this far out.
    rows = likelihood > 1e-8
    kept = torch.from_numpy(rows)
    by_probability = binary_cross_entropy(
        probability[kept], torch.from_numpy(LABELS)[kept], reduction="sum"
    )
    slope = torch.autograd.grad(by_probability, bias)[0].reshape(-1)
    np.testing.assert_allclose(
        slope, -(sign[:, None] * slopes)[rows].sum(axis=0), rtol=1e-6, atol=1e-9
    )


@pytest.mark.parametrize("name", ANCHORED)
@pytest.mark.parametrize(("l_d", "label"), [(30.0, 0.0), (-30.0, 1.0)])
def test_a_row_that_dense_saturates_on_the_wrong_side_still_has_a_gradient(name, l_d, label):
    """In float32, at the start, as in training: nearly 0 with the raw logit, 1 by Eq. 13's text."""
    found = {}
    for anchor in ("logit", "probability"):
        plugin = build_plugin(name, D, {"anchor": anchor}, seed=1).train()
        bias = plugin.expert_bias if isinstance(plugin, Prime) else plugin.bias
        p = plugin(torch.randn(1, D), torch.tensor([l_d]))
        loss = binary_cross_entropy(p, torch.tensor([label]))
        found[anchor] = loss.item(), abs(torch.autograd.grad(loss, bias)[0].sum().item())

    assert found["logit"][0] >= 29.9
    assert found["logit"][1] < 0.1
    if l_d > 0:
        assert found["logit"] == (100.0, 0.0), "the float32 sigmoid is 1"
    assert found["probability"][0] == pytest.approx(16.5, abs=0.6)
    assert found["probability"][1] == pytest.approx(1.0, abs=0.2)


def test_the_clamp_of_the_logit_is_the_clamp_of_the_probability():
    """By the text: the logit of the clamped sigmoid."""
    prime, _ = plugin_with("prime", {"anchor": "probability", "anchor_epsilon": 1e-3})
    z, logit = inputs(torch.float64)
    text = torch.logit(torch.sigmoid(logit).clamp(1e-3, 1 - 1e-3))
    delta = prime.expert_bias
    r = torch.from_numpy(weights(prime, z))
    expected = 0.5 * torch.sigmoid(logit) + 0.5 * (r * torch.sigmoid(text[:, None] + delta)).sum(1)

    torch.testing.assert_close(prime(z, logit), expected, rtol=0, atol=1e-14)


def test_the_logit_as_output_starts_from_the_clamped_logit_too():
    prime, _ = plugin_with("prime", {"anchor": "probability", "output": "logit"}, deltas=0.25)
    z, logit = inputs(torch.float64)
    bound = np.log((1 - EPS) / EPS)
    expected = sigmoid(np.clip(LOGITS, -bound, bound) + 0.25)

    np.testing.assert_allclose(prime(z, logit).detach(), expected, atol=1e-14)
    np.testing.assert_allclose(
        prime.log_probabilities(z, logit)[0].detach(), np.log(expected), atol=1e-12
    )


# ---- settings


def test_jobs_with_the_raw_logit_keep_their_ids():
    assert not {"anchor", "anchor_epsilon"} & set(PrimeConfig().plain())
    assert PrimeConfig(anchor="logit").plain() == PrimeConfig().plain()
    probability = PrimeConfig(anchor="probability").plain()
    assert probability["anchor"] == "probability"
    assert probability["anchor_epsilon"] == EPS
    assert PrimeConfig.parse(probability, where="") == PrimeConfig(anchor="probability")


@pytest.mark.parametrize("keys", [{}, {"anchor": "logit"}])
def test_an_epsilon_that_nothing_would_read_is_refused(keys):
    with pytest.raises(UsageError, match="anchor_epsilon"):
        PrimeConfig.parse({**keys, "anchor_epsilon": 1e-6}, where="arm.prime")


@pytest.mark.parametrize("eps", [0.0, 1e-9, 0.5])
def test_the_range_of_epsilon(eps):
    with pytest.raises(UsageError, match="anchor_epsilon"):
        PrimeConfig.parse({"anchor": "probability", "anchor_epsilon": eps}, where="arm.prime")

"""Steps against a float64 NumPy oracle with gradients worked out by hand; the guards of the loss.

The oracle is FuxiCTR's formula: mean BCE of the probability with logs clamped at -100, plus
(l2/2)||W||^2 of every parameter, the gradient of that sum clipped by its global norm, then Adam.
"""

import dataclasses

import numpy as np
import pytest
import torch

from prime_bench.assemble import build_arm
from prime_bench.settings.training import TrainSpec
from prime_bench.training import embedding_adam
from prime_bench.training.batches import Batch, Rows
from prime_bench.training.metrics import auc
from prime_bench.training.optimizer import Optimizer, Penalty, batch_loss

RATE, MAX_NORM = 1e-2, 0.05
PENALTY = Penalty(embedding=0.3, network=0.07)


class Oracle:
    penalty = PENALTY

    """DNN or DCNv2 (parallel) in NumPy: `weights` by FuxiCTR's names, one step at a time."""

    def __init__(self, state, schema):
        self.weights = {name: value.copy() for name, value in state.items()}
        self.first = {name: np.zeros_like(value) for name, value in state.items()}
        self.second = {name: np.zeros_like(value) for name, value in state.items()}
        self.sizes = schema.shape.vocabulary_sizes
        self.kinds = [field.kind for field in schema.fields]
        self.steps = 0

    def embed(self, ids, numerics):
        offsets = np.cumsum([0, *self.sizes[:-1]])
        self.rows = ids + offsets
        table, weight = self.weights["embedding.table"], self.weights["embedding.numeric_weight"]
        columns = {
            "categorical": iter([table[self.rows[:, c]] for c in range(ids.shape[1])]),
            "numeric": iter([numerics[:, [j]] * weight[j] for j in range(numerics.shape[1])]),
        }
        return np.concatenate([next(columns[kind]) for kind in self.kinds], axis=1)

    def embed_backward(self, gradient, numerics, gradients):
        table = np.zeros_like(self.weights["embedding.table"])
        weight = np.zeros_like(self.weights["embedding.numeric_weight"])
        parts = np.split(gradient, len(self.kinds), axis=1)
        categorical = [p for p, kind in zip(parts, self.kinds, strict=True) if kind[0] == "c"]
        numeric = [p for p, kind in zip(parts, self.kinds, strict=True) if kind[0] == "n"]
        for c, part in enumerate(categorical):
            np.add.at(table, self.rows[:, c], part)
        for j, part in enumerate(numeric):
            weight[j] = (numerics[:, [j]] * part).sum(axis=0)
        table[np.cumsum([0, *self.sizes[:-1]])] = 0  # PAD gets no gradient
        gradients["embedding.table"], gradients["embedding.numeric_weight"] = table, weight

    def mlp(self, x, names):
        """Linear and ReLU for each name but the last, which is bare where it has one output."""
        self.inputs = []
        for name in names:
            self.inputs.append(x)
            x = x @ self.weights[f"{name}.weight"].T + self.weights[f"{name}.bias"]
            if x.shape[1] > 1:
                x = np.maximum(x, 0)
        return x

    def mlp_backward(self, out, gradient, names, gradients):
        for name, x in zip(reversed(names), reversed(self.inputs), strict=True):
            if out.shape[1] > 1:
                gradient = gradient * (out > 0)
            gradients[f"{name}.weight"] = gradient.T @ x
            gradients[f"{name}.bias"] = gradient.sum(axis=0)
            gradient, out = gradient @ self.weights[f"{name}.weight"], x
        return gradient

    def update(self, loss_gradients):
        """L2, clip, Adam. Returns the gradient's norm before the clip."""
        total = {
            name: gradient
            + (self.penalty.embedding if name.startswith("embedding.") else self.penalty.network)
            * self.weights[name]
            for name, gradient in loss_gradients.items()
        }
        assert total.keys() == self.weights.keys()
        norm = np.sqrt(sum((g**2).sum() for g in total.values()))
        self.steps += 1
        for name, gradient in total.items():
            clipped = gradient * min(1.0, MAX_NORM / (norm + 1e-6))
            self.first[name] = 0.9 * self.first[name] + 0.1 * clipped
            self.second[name] = 0.999 * self.second[name] + 0.001 * clipped**2
            m = self.first[name] / (1 - 0.9**self.steps)
            v = self.second[name] / (1 - 0.999**self.steps)
            self.weights[name] -= RATE * m / (np.sqrt(v) + 1e-8)
        return norm

    def step(self, ids, numerics, labels):
        """Mean BCE before the step, and the norm."""
        gradients = {}
        z = self.embed(ids, numerics)
        logit, backward = self.head(z)
        p = 1 / (1 + np.exp(-logit))
        loss = -(
            labels * np.maximum(np.log(p), -100) + (1 - labels) * np.maximum(np.log(1 - p), -100)
        ).mean()
        d_z = backward(((p - labels) / len(labels))[:, None], gradients)
        self.embed_backward(d_z, numerics, gradients)
        return loss, self.update(gradients)


class DNNOracle(Oracle):
    def head(self, z):
        names = ["mlp.mlp.0", "mlp.mlp.2", "mlp.mlp.4"]
        out = self.mlp(z, names)
        return out[:, 0], lambda d, gradients: self.mlp_backward(out, d, names, gradients)


class DCNv2Oracle(Oracle):
    def head(self, z):
        weights, names = self.weights, ["parallel_dnn.mlp.0", "parallel_dnn.mlp.2"]
        crosses = [f"crossnet.cross_layers.{i}" for i in range(2)]
        xs, products = [z], []
        for name in crosses:
            products.append(xs[-1] @ weights[f"{name}.weight"].T + weights[f"{name}.bias"])
            xs.append(xs[-1] + z * products[-1])
        deep = self.mlp(z, names)
        joined = np.concatenate([xs[-1], deep], axis=1)
        logit = joined @ weights["fc.weight"].T + weights["fc.bias"]

        def backward(d, gradients):
            gradients["fc.weight"], gradients["fc.bias"] = d.T @ joined, d.sum(axis=0)
            d_joined = d @ weights["fc.weight"]
            d_x, d_deep = d_joined[:, : z.shape[1]], d_joined[:, z.shape[1] :]
            d_z = self.mlp_backward(deep, d_deep, names, gradients)
            for layer in (1, 0):
                d_product = d_x * z
                gradients[f"{crosses[layer]}.weight"] = d_product.T @ xs[layer]
                gradients[f"{crosses[layer]}.bias"] = d_product.sum(axis=0)
                d_z = d_z + d_x * products[layer]
                d_x = d_x + d_product @ weights[f"{crosses[layer]}.weight"]
            return d_z + d_x

        return logit[:, 0], backward


def batch_of(split, rows):
    return Batch(
        ids=torch.from_numpy(split.ids[rows]),
        numerics=torch.from_numpy(split.numerics[rows].astype(np.float64)),
        labels=torch.from_numpy(split.labels[rows]),
    )


DNN = ("DNN", DNNOracle, {})
DCNV2 = ("DCNv2", DCNv2Oracle, {"num_cross_layers": 2})


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, of its compiler
@pytest.mark.parametrize(
    ("backbone", "oracle_class", "settings", "loss", "compile_"),
    [
        *(
            pytest.param(*model, loss, False, id=f"{model[0]}-{loss}")
            for model in (DNN, DCNV2)
            for loss in ("probability", "logit")
        ),
        pytest.param(*DNN, "probability", True, id="DNN-compiled", marks=pytest.mark.long),
        # What `test_assemble.py` has for every backbone, without the C++ compiler's time.
        pytest.param(*DCNV2, "probability", True, id="DCNv2-compiled", marks=pytest.mark.slow),
    ],
)
def test_ten_steps_equal_fuxictr_formula(
    backbone, oracle_class, settings, loss, compile_, schema, make_split, make_job
):
    arm = build_arm(make_job(backbone, **settings).resolve(), schema).arm.double()
    with torch.no_grad():
        # Embeddings of FuxiCTR's size (1e-4) would hide a wrong gradient below the tolerance.
        arm.backbone.embedding.table.mul_(5000)
    state = {name: p.detach().numpy() for name, p in arm.backbone.named_parameters()}
    oracle = oracle_class(state, schema)
    spec = TrainSpec(learning_rate=RATE, max_gradient_norm=MAX_NORM, loss=loss, compile=compile_)
    torch._dynamo.reset()
    optimizer = Optimizer(arm, spec, penalty=PENALTY)
    # Batches of the size in the test of two hundred steps: torch keeps what it has compiled.
    split = make_split(300)
    for number in range(10):
        rows = slice(30 * number, 30 * number + 30)
        batch = batch_of(split, rows)
        mean_loss, norm = oracle.step(
            split.ids[rows], batch.numerics.numpy(), split.labels[rows].astype(np.float64)
        )
        assert norm > MAX_NORM  # the clip is at work
        assert optimizer.step(batch).item() == pytest.approx(mean_loss, abs=1e-12)
        for name, parameter in arm.backbone.named_parameters():
            np.testing.assert_allclose(
                parameter.detach().numpy(), oracle.weights[name], rtol=0, atol=1e-12, err_msg=name
            )


def test_a_gradient_below_the_norm_is_not_clipped(schema, make_split, make_job):
    """Adam hides a common factor of all gradients, so its first moments are looked at."""
    job, batch = make_job(), batch_of(make_split(20), slice(0, 20))
    norms = {}
    for limit in (10.0, 1e-3):
        arm = build_arm(job.resolve(), schema).arm.double()
        spec = TrainSpec(max_gradient_norm=limit)
        optimizer = Optimizer(arm, spec, penalty=Penalty(embedding=0.0, network=0.0))
        optimizer.step(batch)
        state = optimizer.state_dict()
        moments = [table["first"] for table in state["tables"]]
        moments += state["first"]
        assert sum(m.numel() for m in moments) == sum(p.numel() for p in arm.parameters())
        norms[limit] = torch.cat([m.flatten() for m in moments]).norm().item() / (1 - 0.9)
    assert 1e-2 < norms[10.0] < 10
    assert norms[1e-3] == pytest.approx(1e-3 * norms[10.0] / (norms[10.0] + 1e-6), rel=1e-9)


def test_the_penalty_reaches_rows_and_parameters_that_the_batch_does_not(
    schema, make_split, make_job
):
    arm = build_arm(make_job(plugin="prime").resolve(), schema).arm
    before = arm.backbone.embedding.table.detach().clone()
    split = make_split(4)
    batch = next(iter(Rows(split, device=torch.device("cpu")).in_order(batch_size=4)))
    Optimizer(arm, TrainSpec(), penalty=Penalty(embedding=0.1, network=0.0)).step(batch)
    moved = (arm.backbone.embedding.table != before).all(dim=1)
    pad = before.eq(0).all(dim=1)
    assert pad.sum() == 3
    assert torch.equal(moved, ~pad)


def test_the_network_penalty_covers_the_plugin(schema, make_split, make_job):
    arm = build_arm(make_job(plugin="prime").resolve(), schema).arm
    router = arm.plugin.router.detach().clone()
    batch = batch_of(make_split(20), slice(0, 20))
    batch = dataclasses.replace(batch, numerics=batch.numerics.float())
    # At the start all experts agree, so the router's own gradient is zero.
    Optimizer(arm, TrainSpec(), penalty=Penalty(embedding=0.0, network=0.1)).step(batch)
    assert not torch.equal(arm.plugin.router, router)


def test_an_auxiliary_loss_joins_the_step_and_not_the_loss_that_is_reported(
    schema, make_split, make_job
):
    # At the start all experts agree, so nothing but the loss on the load reaches the router.
    batch = batch_of(make_split(20), slice(0, 20))
    arm, twin = (
        build_arm(make_job(plugin="auxiliary_loss").resolve(), schema).arm.double() for _ in "ab"
    )
    cross_entropy = batch_loss(twin, batch, kind="probability")
    auxiliary = twin.auxiliary_loss()
    expected = torch.autograd.grad(auxiliary, twin.plugin.router)[0]
    found = Optimizer(arm, TrainSpec(), penalty=Penalty(embedding=0.0, network=0.0)).step(batch)
    assert found.item() == cross_entropy.item()
    assert auxiliary.item() >= 1e-2
    assert expected.norm().item() > 1e-9
    torch.testing.assert_close(arm.plugin.router.grad, expected)
    assert not arm.plugin.load_bias.any()


class Fixed(torch.nn.Module):
    """Stands in for an arm whose probability is its parameter, and which has one without use."""

    def __init__(self, p):
        super().__init__()
        self.p = torch.nn.Parameter(torch.tensor(p))
        self.idle = torch.nn.Parameter(torch.tensor([2.0]))
        self.plugin = None

    def embedding_parameters(self):
        return []

    def network_parameters(self):
        return [self.p, self.idle]

    def auxiliary_loss(self):
        return None

    def forward(self, ids, numerics):  # noqa: ARG002
        return self.p


def test_logs_are_clamped_at_100_as_torch_does():
    batch = Batch(torch.zeros(2, 1), torch.zeros(2, 1), torch.tensor([1, 0], dtype=torch.uint8))
    model = Fixed([0.0, 1.0])
    loss = batch_loss(model, batch, kind="probability")
    loss.backward()
    assert loss.item() == 100.0
    assert torch.isfinite(model.p.grad).all()


def test_the_penalty_moves_a_parameter_that_the_loss_does_not_use():
    model = Fixed([0.3, 0.6])
    batch = Batch(torch.zeros(2, 1), torch.zeros(2, 1), torch.tensor([1, 0], dtype=torch.uint8))
    Optimizer(model, TrainSpec(), penalty=Penalty(embedding=0.0, network=0.1)).step(batch)
    assert model.idle.grad.item() == pytest.approx(0.2)
    assert model.idle.item() == pytest.approx(2.0 - 1e-3)


@pytest.mark.parametrize("plugin", ["dense", "prime", "residual_parameters"])
def test_nan_spreads_to_the_weights_and_nothing_is_raised(plugin, schema, make_split, make_job):
    arm = build_arm(make_job(plugin=plugin).resolve(), schema).arm
    batch = batch_of(make_split(20), slice(0, 20))
    numerics = batch.numerics.float()
    numerics[3, 1] = torch.nan
    optimizer = Optimizer(arm, TrainSpec(), penalty=Penalty(embedding=0.0, network=0.0))
    optimizer.step(dataclasses.replace(batch, numerics=numerics))
    assert all(p.isnan().any() for p in arm.parameters())
    optimizer.step(dataclasses.replace(batch, numerics=numerics))


@pytest.mark.parametrize(("loss", "expected"), [("probability", 100.0), ("logit", 40.0)])
def test_the_loss_of_the_protocol_is_that_of_the_steps(
    loss, expected, schema, make_split, make_job
):
    """Where the float32 probability is 1 they differ: its log is clamped, and it has no slope."""
    arm = build_arm(make_job().resolve(), schema).arm
    bias = arm.backbone.mlp.mlp[-1].bias
    torch.nn.init.constant_(bias, 40.0)
    optimizer = Optimizer(arm, TrainSpec(loss=loss), penalty=Penalty(embedding=0.0, network=0.0))
    batch = batch_of(make_split(20), slice(0, 20))
    none = torch.zeros_like(batch.labels)
    batch = dataclasses.replace(batch, numerics=batch.numerics.float(), labels=none)

    assert optimizer.step(batch).item() == pytest.approx(expected, abs=1)
    assert (bias.item() < 40.0) == (loss == "logit")


def test_the_learning_rate_can_be_set(schema, make_split, make_job):
    arm = build_arm(make_job().resolve(), schema).arm.double()
    spec = TrainSpec(learning_rate=RATE)
    optimizer = Optimizer(arm, spec, penalty=Penalty(embedding=0.0, network=0.0))
    optimizer.learning_rate = 1e-7
    before = [p.detach().clone() for p in arm.parameters()]
    optimizer.step(batch_of(make_split(20), slice(0, 20)))
    step = max((p - b).abs().max().item() for p, b in zip(arm.parameters(), before, strict=True))
    assert optimizer.learning_rate == 1e-7
    assert 0.9e-7 < step < 1.1e-7


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, of its compiler
# Much of the step is compiled in `test_compile.py` as well: torch keeps what it has compiled.
@pytest.mark.parametrize(
    ("plugin", "compile_"), [("prime", False), ("dense", True)], ids=["plain", "compiled"]
)
def test_a_restored_optimizer_continues_bit_by_bit(
    plugin, compile_, tmp_path, schema, make_split, make_job
):
    """Model and optimizer after four steps, through a file, against those that never stopped."""
    job = make_job("DNN", plugin, hidden_units=[8], net_dropout=0.3, batch_norm=True)
    split, penalty = make_split(120), Penalty(embedding=0.1, network=0.01)

    def steps(optimizer, numbers):
        for number in numbers:
            rows = slice(20 * number, 20 * number + 20)
            batch = batch_of(split, rows)
            optimizer.step(dataclasses.replace(batch, numerics=batch.numerics.float()))

    def fresh():
        arm = build_arm(job.resolve(), schema).arm
        return arm, Optimizer(arm, TrainSpec(compile=compile_), penalty=penalty)

    torch._dynamo.reset()
    torch.manual_seed(3)
    arm, optimizer = fresh()
    steps(optimizer, range(4))
    optimizer.learning_rate = 1e-4
    saved = {"weights": arm.state_dict(), "optimizer": optimizer.state_dict()}
    torch.save(saved | {"stream": torch.get_rng_state()}, tmp_path / "state.pt")
    steps(optimizer, range(4, 6))

    loaded = torch.load(tmp_path / "state.pt", weights_only=True)
    again, resumed = fresh()
    again.load_state_dict(loaded["weights"])
    resumed.load_state_dict(loaded["optimizer"])
    torch.set_rng_state(loaded["stream"])
    assert (resumed.steps, resumed.learning_rate) == (4, 1e-4)
    steps(resumed, range(4, 6))
    for (name, one), two in zip(arm.state_dict().items(), again.state_dict().values(), strict=True):
        assert torch.equal(one, two), name


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, of its compiler
@pytest.mark.parametrize(
    "compile_",
    # Ten compiled steps are compared above; two hundred take no other code.
    [False, pytest.param(True, marks=pytest.mark.slow)],
    ids=["plain", "compiled"],
)
@pytest.mark.parametrize(
    ("backbone", "oracle_class", "settings"),
    [("DNN", DNNOracle, {}), ("DCNv2", DCNv2Oracle, {"num_cross_layers": 2})],
)
def test_two_hundred_steps_and_their_aucs_equal_the_oracles(
    backbone, oracle_class, settings, compile_, schema, make_split, make_job
):
    arm = build_arm(make_job(backbone, **settings).resolve(), schema).arm.double()
    state = {name: p.detach().numpy() for name, p in arm.backbone.named_parameters()}
    oracle = oracle_class(state, schema)
    # Weak enough for the model to learn: units that are dead for all rows make equal predictions,
    # and among these a last bit decides over an AUC.
    oracle.penalty = Penalty(embedding=1e-2, network=1e-3)
    spec = TrainSpec(learning_rate=RATE, max_gradient_norm=MAX_NORM, compile=compile_)
    optimizer = Optimizer(arm, spec, penalty=oracle.penalty)
    split, valid = make_split(600), make_split(300, seed=9)
    everything = batch_of(valid, slice(None))
    clipped = 0
    for number in range(200):
        rows = np.random.default_rng(number).integers(0, 600, 30)
        batch = batch_of(split, rows)
        mean_loss, norm = oracle.step(
            split.ids[rows], batch.numerics.numpy(), split.labels[rows].astype(np.float64)
        )
        clipped += norm > MAX_NORM
        assert optimizer.step(batch).item() == pytest.approx(mean_loss, abs=1e-9)
        if number % 50 == 49:
            with torch.no_grad():
                found = arm.eval()(everything.ids, everything.numerics)
            arm.train()
            logit, _ = oracle.head(oracle.embed(valid.ids, everything.numerics.numpy()))
            np.testing.assert_allclose(found, 1 / (1 + np.exp(-logit)), rtol=0, atol=1e-9)
            assert auc(valid.labels, found) == pytest.approx(auc(valid.labels, logit), abs=1e-9)
    assert clipped > 150
    for name, parameter in arm.backbone.named_parameters():
        np.testing.assert_allclose(
            parameter.detach().numpy(), oracle.weights[name], rtol=0, atol=1e-9, err_msg=name
        )


@pytest.mark.parametrize("again", [False, True], ids=["once", "twice"])
def test_rows_that_a_backbone_looks_up_by_itself_count_as_well(again, schema, make_split, make_job):
    """A copy of the ids is not the batch's tensor: its rows' gradient comes as a dense one, beside
    that of the batch's own rows where the backbone looks up both.
    """
    split, weights = make_split(80), []
    for copies in (False, True):
        arm = build_arm(make_job().resolve(), schema).arm.double()
        embedding = arm.backbone.embedding
        if again:
            _look_up_again(arm.backbone, embedding)
        if copies:
            embedding.register_forward_pre_hook(lambda _, inputs: (inputs[0].long(), inputs[1]))
        spec = TrainSpec(learning_rate=RATE, max_gradient_norm=MAX_NORM)
        optimizer = Optimizer(arm, spec, penalty=PENALTY)
        for start in range(0, 80, 20):
            batch = batch_of(split, slice(start, start + 20))
            batch.ids[0, 0] = 0  # padding
            optimizer.step(batch)
        assert embedding.table.grad is None
        weights.append(embedding.table.detach().numpy())
    np.testing.assert_allclose(weights[1], weights[0], rtol=0, atol=1e-12)
    assert not weights[0][0].any()


def _look_up_again(backbone, embedding):
    """Let a backbone add to its logit from a second look-up, of ids of its own."""

    def more(_module, inputs, logit):
        ids, numerics = inputs
        return logit + 2 * embedding(ids.long().flip(0), numerics).flatten(1).sum(dim=1)

    backbone.register_forward_hook(more)


def test_a_table_is_updated_in_blocks_with_the_numbers_of_the_whole(
    schema, make_split, make_job, monkeypatch
):
    """|W|^2, too, is that of all blocks: it is a part of the next step's norm."""
    found = []
    for block in (embedding_adam._CPU_BLOCK, 7):
        monkeypatch.setattr(embedding_adam, "_CPU_BLOCK", block)
        arm = build_arm(make_job().resolve(), schema).arm.double()
        spec = TrainSpec(learning_rate=RATE, max_gradient_norm=MAX_NORM)
        optimizer = Optimizer(arm, spec, penalty=PENALTY)
        for start in range(0, 60, 20):
            optimizer.step(batch_of(make_split(60), slice(start, start + 20)))
        (table,) = optimizer.state_dict()["tables"]
        assert table["squares"].item() == pytest.approx(
            arm.backbone.embedding.table.square().sum().item(), rel=1e-12
        )
        found.append(arm.backbone.embedding.table.detach())
    torch.testing.assert_close(found[1], found[0], rtol=0, atol=1e-14)


def test_a_gradient_that_a_failed_step_has_left_does_not_count(schema, make_split, make_job):
    tables = []
    for left in (False, True):
        arm = build_arm(make_job().resolve(), schema).arm.double()
        table = arm.backbone.embedding.table
        if left:
            table.grad = torch.ones_like(table)
        Optimizer(arm, TrainSpec(), penalty=PENALTY).step(batch_of(make_split(20), slice(0, 20)))
        tables.append(table.detach())
    assert torch.equal(*tables)


def test_what_a_plug_in_does_not_want_compiled_is_left_out_before(make_job, schema, monkeypatch):
    """What would compile stands still here; tests/training/test_compile.py compiles."""
    calls = []
    module = "prime_bench.training.optimizer"
    monkeypatch.setattr(f"{module}.require_compiler", lambda device: calls.append(device.type))
    monkeypatch.setattr(f"{module}.leave_out", calls.append)
    monkeypatch.setattr(f"{module}.compiled", lambda losses: calls.append("losses") or losses)
    monkeypatch.setattr(f"{module}.compiled_pass", lambda _: calls.append("pass"))
    arm = build_arm(make_job("DNN", "prime").resolve(), schema).arm

    for compiles in (True, False):
        Optimizer(arm, TrainSpec(compile=compiles), penalty=PENALTY)

    assert calls == ["cpu", arm.plugin, "losses", "pass"]

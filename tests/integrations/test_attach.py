"""PRIME around FuxiCTR models: an MLP, one of FuxiCTR's dict embeddings, and one nobody knows."""

import copy
import warnings

import numpy as np
import pytest
import torch
from torch import nn

from prime_bench.base.errors import UsageError
from prime_bench.integrations.fuxictr import attach_prime
from prime_bench.settings.plugins import AuxiliaryLoss, PrimeConfig

SIZES = {"C1": 7, "C2": 5, "C3": 11}
K = 4
WIDTH = K * (len(SIZES) + 1)
SMALL = PrimeConfig(bags=2, experts_per_bag=3, rank=2)


@pytest.fixture(scope="module")
def fuxi():
    """FuxiCTR's own modules; importing them is all that warns."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from fuxictr.features import FeatureMap
        from fuxictr.pytorch import layers
        from fuxictr.pytorch.models import BaseModel
    return FeatureMap, layers, BaseModel


@pytest.fixture
def make(fuxi, tmp_path):
    """A model of FuxiCTR: `kind` is how it comes to its y_pred."""
    feature_map_class, layers, base = fuxi

    class Model(base):
        def __init__(self, feature_map, *, kind, task="binary_classification"):
            (tmp_path / feature_map.dataset_id).mkdir(exist_ok=True)
            super().__init__(
                feature_map,
                model_id=kind,
                task=task,
                verbose=0,
                model_root=str(tmp_path),
                metrics=["AUC", "logloss"],
                net_regularizer=1e-6,
                embedding_regularizer=1e-4,
            )
            self.kind = kind
            embedding = layers.FeatureEmbeddingDict if kind == "dict" else layers.FeatureEmbedding
            name = "vectors" if kind == "renamed" else "embedding_layer"
            if kind == "several":  # as FFM, HOFM and ONN have them
                self.fields = nn.ModuleList(embedding(feature_map, K) for _ in range(2))
            elif kind != "blind":
                self.add_module(name, embedding(feature_map, K))
            self.linear = layers.LogisticRegression(feature_map) if kind == "wide" else None
            self.mlp = layers.MLP_Block(
                input_dim=WIDTH,
                hidden_units=[8],
                output_dim=1,
                output_activation=self.output_activation if kind == "mlp" else None,
                dropout_rates=0.1,
                batch_norm=True,
            )
            self.compile("adam", "binary_crossentropy", 1e-2)
            self.reset_parameters()
            self.model_to_device()

        def forward(self, inputs):
            x = self.get_inputs(inputs)
            if self.kind == "blind":
                z = torch.stack([v.float() for v in x.values()], dim=1).repeat(1, K)
            elif self.kind == "dict":
                z = self.embedding_layer.dict2tensor(self.embedding_layer(x), flatten_emb=True)
            elif self.kind == "renamed":
                z = self.vectors(x, flatten_emb=True)
            elif self.kind == "several":
                z = self.fields[0](x).flatten(1) * (1 + self.fields[1](x).flatten(1))
            else:
                z = self.embedding_layer(x).flatten(1)
            y = self.mlp(z)
            if self.linear is not None:
                y = y + self.linear(x)
            if self.kind == "function":
                y = torch.sigmoid(y)
            elif self.kind == "gate":
                y = self.output_activation(y * self.output_activation(y))
            elif self.kind == "late" and self.training:
                first = self.output_activation(2 * y)
                y = self.output_activation(y + first)
            elif self.kind != "mlp":
                logit, y = y, self.output_activation(y)
                if self.kind == "deep_supervision" and self.training:
                    self.output_activation(2 * logit)
                if self.kind == "two_blocks":
                    return {"y_pred": y, "y1": 0.7 * logit, "y2": 1.3 * logit}
            return {"y_pred": y}

        def add_loss(self, return_dict, y_true):
            loss = super().add_loss(return_dict, y_true)
            for block in ("y1", "y2"):  # as FinalNet's two blocks learn from their mean
                if block in return_dict:
                    y = self.output_activation(return_dict[block])
                    loss = loss + self.loss_fn(y, return_dict["y_pred"].detach())
            return loss

    feature_map = feature_map_class("toy", str(tmp_path))
    feature_map.features = {
        "I1": {"type": "numeric", "source": ""},
        **{
            name: {"type": "categorical", "source": "", "padding_idx": 0, "vocab_size": size}
            for name, size in SIZES.items()
        },
    }
    feature_map.labels = ["click"]
    feature_map.num_fields = len(feature_map.features)

    def build(kind, **options):
        torch.manual_seed(5)
        return Model(feature_map, kind=kind, **options)

    return build


@pytest.fixture
def loader():
    """Twelve batches of 32 rows in memory, as FuxiCTR's loaders give them."""
    rng = np.random.default_rng(3)

    def batch():
        fields = {name: torch.from_numpy(rng.integers(1, n, 32)) for name, n in SIZES.items()}
        label = (fields["C3"] + fields["C1"] > 9) ^ torch.from_numpy(rng.random(32) < 0.2)
        numbers = torch.from_numpy(rng.normal(size=32).astype(np.float32))
        return {"I1": numbers, **fields, "click": label.double()}

    return [batch() for _ in range(12)]


KINDS = ["mlp", "wide", "dict", "renamed", "gate", "deep_supervision", "two_blocks", "several"]
NAMED = {"several": {"embedding": "fields.0"}}
ONE_LOGIT = ["mlp", "wide", "dict", "renamed", "deep_supervision", "two_blocks"]
"""Kinds whose logit is the MLP's output, and whose z is its input."""


@pytest.mark.parametrize("kind", KINDS)
def test_the_start_is_bitwise_the_models_own(make, loader, kind):
    plain, model = make(kind), make(kind)
    state = torch.get_rng_state()

    prime = attach_prime(model, SMALL, seed=1, **NAMED.get(kind, {}))

    assert torch.equal(torch.get_rng_state(), state)
    assert prime.expert_in.shape == (6, 2, WIDTH)
    for training in (False, True):
        plain.train(training), model.train(training)
        for batch in loader:
            torch.manual_seed(9)
            expected = plain.forward(batch)["y_pred"]
            torch.manual_seed(9)
            assert torch.equal(model.forward(batch)["y_pred"], expected)


@pytest.mark.parametrize("kind", ONE_LOGIT)
def test_y_pred_is_primes_of_the_flattened_embedding_and_the_logit(make, loader, kind):
    model = make(kind).eval()
    prime = attach_prime(model, SMALL, seed=1)
    torch.nn.init.normal_(prime.expert_out, std=3.0)
    tables = model.get_submodule("vectors" if kind == "renamed" else "embedding_layer")
    tables = tables if kind == "dict" else tables.embedding_layer

    with torch.no_grad():
        y_pred = model.forward(loader[0])["y_pred"]
        inputs = {name: loader[0][name] for name in ["I1", *SIZES]}
        weights = tables.embedding_layers
        z = torch.cat(
            [
                inputs["I1"].view(-1, 1) @ weights["I1"].weight.T,
                *(weights[name].weight[inputs[name]] for name in SIZES),
            ],
            dim=1,
        )
        logit = model.mlp.mlp[:-1](z) if kind == "mlp" else model.mlp(z)
        if kind == "wide":
            logit = logit + model.linear(inputs)
        expected = prime(z, logit.squeeze(1))

    torch.testing.assert_close(y_pred.squeeze(1), expected)
    assert (y_pred.squeeze(1) - torch.sigmoid(logit.squeeze(1))).abs().max() > 1e-3


@pytest.mark.parametrize("kind", KINDS)
def test_fit_evaluate_predict_and_checkpoints_go_on_as_they_are(make, loader, kind):
    model = make(kind)
    prime = attach_prime(model, SMALL, seed=1, **NAMED.get(kind, {}))
    before = copy.deepcopy(prime.state_dict())

    model.fit(loader, epochs=2, validation_data=loader)
    metrics = model.evaluate(loader)
    predicted = model.predict(loader)

    for name, values in prime.state_dict().items():
        assert not torch.equal(values, before[name]), name
    assert metrics["AUC"] > 0.6
    stored = torch.load(model.checkpoint, weights_only=True)
    assert {name for name in stored if name.startswith("prime.")} == {
        f"prime.{name}" for name in before
    }
    other = make(kind)
    attach_prime(other, SMALL, seed=2, **NAMED.get(kind, {}))
    other.load_weights(model.checkpoint)
    np.testing.assert_array_equal(other.predict(loader), predicted)


def test_prime_trains_as_if_it_had_been_there_at_compile(make, loader):
    joined, compiled = make("mlp"), make("mlp")
    joined_prime = attach_prime(joined, SMALL, seed=1)
    compiled_prime = attach_prime(compiled, SMALL, seed=1)
    compiled.compile("adam", "binary_crossentropy", 1e-2)

    for model in (joined, compiled):
        torch.manual_seed(4)
        model.fit(loader, epochs=1, validation_data=loader)

    assert torch.equal(joined_prime.expert_in, compiled_prime.expert_in)


def test_a_copy_has_hooks_of_its_own(make, loader):
    model = make("mlp").eval()
    attach_prime(model, SMALL, seed=1)
    with torch.no_grad():
        before = model.forward(loader[0])["y_pred"]
        twin = copy.deepcopy(model)
        nn.init.constant_(twin.prime.expert_bias, 2.0)

        assert torch.equal(model.forward(loader[0])["y_pred"], before)
        assert (twin.forward(loader[0])["y_pred"] > before).all()


def test_a_second_pass_gives_its_own_gradients(make, loader):
    """No graph, routing or input of the first one is left for it."""

    def gradients(*batches):
        model = make("mlp").eval()
        prime = attach_prime(model, SMALL, seed=1)
        nn.init.constant_(prime.expert_bias, 0.1)
        for batch in batches:
            model.zero_grad()
            model.forward(batch)["y_pred"].sum().backward()
        return {name: value.grad for name, value in model.named_parameters()}

    torch.manual_seed(1)
    alone = gradients(loader[1])
    torch.manual_seed(1)
    second = gradients(loader[0], loader[1])
    assert any(name.startswith("prime.") for name in alone)
    for name, value in alone.items():
        assert torch.equal(second[name], value), name


def test_modes_buffers_and_optimizer_state_survive_the_look(make, loader):
    model = make("mlp")
    model.fit(loader, epochs=1, validation_data=loader)
    model.train()
    model.mlp.eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    moments = {id(p): s["exp_avg"].clone() for p, s in model.optimizer.state.items()}

    prime = attach_prime(model, SMALL, seed=1)

    assert (model.training, model.mlp.training, prime.training) == (True, False, True)
    for name, value in before.items():
        assert torch.equal(model.state_dict()[name], value), name
    assert {id(p) for p in model.optimizer.state} == set(moments)


@pytest.mark.parametrize(
    ("kind", "options", "arguments", "message"),
    [
        ("blind", {}, {}, "no FeatureEmbedding"),
        ("function", {}, {}, "y_pred is not the output of an nn.Sigmoid"),
        ("mlp", {"task": "regression"}, {}, "y_pred is not the output of an nn.Sigmoid"),
        ("late", {}, {}, "call 1 of `output_activation` in evaluation, call 2 of .* in training"),
        (
            "several",
            {},
            {},
            r"The model uses \['fields.0', 'fields.1'\](.|\n)*\"fields.0\" names one",
        ),
        ("mlp", {}, {"embedding": "tables"}, "no layer `tables`"),
        ("mlp", {}, {"config": AuxiliaryLoss()}, "auxiliary_weight cannot be added"),
        ("mlp", {}, {"config": PrimeConfig(router_input="cross_1")}, "router_input = `cross_1`"),
        ("mlp", {}, {"batch": {"C1": torch.zeros(2, dtype=torch.int64)}}, "does not take a batch"),
    ],
)
def test_impossible_attachments_are_reported(make, kind, options, arguments, message):
    model = make(kind, **options)
    names = list(model.state_dict())

    with pytest.raises(UsageError, match=message) as error:
        attach_prime(model, **arguments)

    assert error.value.hint  # every refusal names a way out
    assert list(model.state_dict()) == names


def test_only_the_call_of_y_pred_is_primes(make, loader):
    model = make("two_blocks").eval()
    prime = attach_prime(model, SMALL, seed=1)
    torch.nn.init.normal_(prime.expert_out, std=3.0)

    with torch.no_grad():
        for batch in loader[:2]:
            found = model.forward(batch)
            own = model.output_activation(found["y1"])
            assert torch.equal(own, torch.sigmoid(found["y1"])), "a call in the loss is the model's"
            assert not torch.equal(found["y_pred"], torch.sigmoid(found["y1"] / 0.7))


def test_a_y_pred_without_the_embedding_layer_is_reported(make):
    model = make("mlp")
    attach_prime(model, SMALL, seed=1)

    with pytest.raises(UsageError, match=r"without its embedding layer(.|\n)*names a layer"):
        model.output_activation(torch.zeros(2, 1))


def test_twice_is_once_too_often(make):
    model = make("mlp")
    attach_prime(model)

    with pytest.raises(UsageError, match=r"has a `prime` already(.|\n)*build the model again"):
        attach_prime(model)


def test_any_module_is_no_model_of_fuxictr():
    with pytest.raises(UsageError, match=r"Linear is not a BaseModel(.|\n)*derive"):
        attach_prime(nn.Linear(2, 1))

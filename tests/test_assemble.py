"""What every pair of backbone and plug-in keeps: the contract over the whole catalogue."""

import copy
from collections.abc import Iterator

import pytest
import torch
from torch import nn

from prime_bench.assemble import build_arm, build_backbone, build_plugin, weights_digest
from prime_bench.backbones.interface import Backbone, replace
from prime_bench.base.errors import UsageError
from prime_bench.catalog import BACKBONES, PLUGINS
from prime_bench.contract.counter import count
from prime_bench.data.schema import Field, Schema
from prime_bench.recipe.job import Job
from prime_bench.settings.interface import ArmSettings, BackboneSettings
from prime_bench.settings.training import TrainSpec

SCHEMA = Schema(
    fields=[
        Field(name="n0", kind="numeric"),
        Field(name="c0", kind="categorical", vocabulary_size=7),
        Field(name="c1", kind="categorical", vocabulary_size=4),
        Field(name="n1", kind="numeric"),
        Field(name="c2", kind="categorical", vocabulary_size=9),
    ]
)
# Every backbone of the catalogue, small, and with all that its settings can switch on.
TOP = {"hidden_units": [8, 6]}
TOP_BN = {**TOP, "batch_norm": True, "net_dropout": 0.2}
BACKBONE_CASES = {
    "DNN": ("DNN", {"hidden_units": [8, 6]}),
    "DNN-bn": ("DNN", {"hidden_units": [8, 6], "batch_norm": True, "net_dropout": 0.2}),
    "WideDeep": ("WideDeep", TOP),
    "WideDeep-bn": ("WideDeep", TOP_BN),
    "DeepFM": ("DeepFM", TOP),
    "DeepFM-bn": ("DeepFM", TOP_BN),
    "NFM": ("NFM", TOP),
    "NFM-bn": ("NFM", TOP_BN),
    "PNN": ("PNN", TOP),
    "PNN-bn": ("PNN", TOP_BN),
    "AFM": ("AFM", {"attention_dim": 5}),
    "AFM-dropout": ("AFM", {"attention_dim": 5, "attention_dropout": [0.2, 0.3]}),
    "AFM-sum": ("AFM", {"use_attention": False}),
    "FwFM-LW": ("FwFM", {"linear_type": "LW"}),
    "FwFM-FeLV": ("FwFM", {"linear_type": "FeLV"}),
    "FwFM-FiLV": ("FwFM", {"linear_type": "FiLV"}),
    "DCNv2": ("DCNv2", {"parallel_dnn_hidden_units": [8, 6], "num_cross_layers": 2}),
    "DCNv2-bn": (
        "DCNv2",
        {"parallel_dnn_hidden_units": [8, 6], "batch_norm": True, "net_dropout": 0.2},
    ),
    "DCNv2-cross": ("DCNv2", {"model_structure": "crossnet_only"}),
    "DCNv2-stacked": ("DCNv2", {"model_structure": "stacked", "stacked_dnn_hidden_units": [8, 6]}),
    "DCNv2-both": (
        "DCNv2",
        {
            "model_structure": "stacked_parallel",
            "stacked_dnn_hidden_units": [8],
            "parallel_dnn_hidden_units": [6, 5],
        },
    ),
    "DCN": ("DCN", {"dnn_hidden_units": [8, 6], "num_cross_layers": 2}),
    "DCN-bn": ("DCN", {"dnn_hidden_units": [8, 6], "batch_norm": True, "net_dropout": 0.2}),
    "DCN-cross": ("DCN", {"dnn_hidden_units": []}),
    "GDCN": ("GDCN", {"dnn_hidden_units": [8, 6], "num_cross_layers": 2}),
    "GDCN-bn": ("GDCN", {"dnn_hidden_units": [8, 6], "batch_norm": True, "net_dropout": 0.2}),
    "FiBiNET": ("FiBiNET", {"hidden_units": [8, 6], "reduction_ratio": 1}),
    "FiBiNET-all-bn": (
        "FiBiNET",
        {"hidden_units": [8], "bilinear_type": "field_all", "batch_norm": True, "net_dropout": 0.2},
    ),
    "FiBiNET-each": (
        "FiBiNET",
        {"hidden_units": [8], "bilinear_type": "field_each", "reduction_ratio": 9},
    ),
    "MaskNet": ("MaskNet", {"dnn_hidden_units": [8, 6], "net_dropout": 0.2}),
    "MaskNet-bare": (
        "MaskNet",
        {
            **{"dnn_hidden_units": [8, 6], "reduction_ratio": 0.3},
            **{"emb_layernorm": False, "net_layernorm": False},
        },
    ),
    "MaskNet-parallel": (
        "MaskNet",
        {
            **{"dnn_hidden_units": [8, 6], "model_type": "ParallelMaskNet"},
            **{"parallel_num_blocks": 2, "parallel_block_dim": 5},
        },
    ),
    "AutoInt": ("AutoInt", {"dnn_hidden_units": [8, 6], "attention_dim": 6}),
    "AutoInt-all-bn": (
        "AutoInt",
        {
            **{"dnn_hidden_units": [8], "batch_norm": True, "net_dropout": 0.2},
            **{"attention_layers": 3, "num_heads": 2, "attention_dim": 10, "layer_norm": True},
            **{"use_scale": True, "use_wide": True},
        },
    ),
    "AutoInt-plain": ("AutoInt", {"dnn_hidden_units": [], "use_residual": False}),
}
FIRST_CASES = {name: c for c, (name, _) in reversed(BACKBONE_CASES.items())}.values()
EVERY_ARM = {"DNN", "GDCN-bn"}  # a plug-in's start does not depend on the backbone: two will do
WITHOUT_TOP = {
    *("DCNv2-cross", "DCN-cross", "AutoInt-plain"),
    *("AFM", "AFM-dropout", "AFM-sum", "FwFM-LW", "FwFM-FeLV", "FwFM-FiLV"),
}
# Where the defaults are too large for backbones as small as these.
PLUGIN_SETTINGS = {"apg": {"rank_k": 3, "overparam_p": 4, "hypernet_hidden_units": [5]}}
# Change the backbone itself, so they do not start as Dense does.
RIVALS = {"hidden_subspace", "multilayer_bagged"}
REWIRING = {"apg", "dense_layernorm", *RIVALS}
ACROSS_ROWS = {"permuted_routing"}  # by definition a row's prediction depends on its batch


def backbone_settings(case: str) -> BackboneSettings:
    name, hyperparameters = BACKBONE_CASES[case]
    return BACKBONES[name].settings.parse(hyperparameters, where="")


def plugin_settings(plugin: str) -> ArmSettings:
    return PLUGINS[plugin].settings.parse(PLUGIN_SETTINGS.get(plugin, {}), where="")


def arms_of(case: str) -> list[str]:
    """The arms that are defined on the backbone."""
    settings = backbone_settings(case)
    return [plugin for plugin in PLUGINS if plugin_settings(plugin).misfit(settings) is None]


# Every arm on every backbone; on a backbone's other forms those that could notice the difference.
ARMS = [
    pytest.param(b, p, id=f"{b}-{p}")
    for b in BACKBONE_CASES
    for p in arms_of(b)
    if b in FIRST_CASES or p in {"dense", "prime", "apg", *RIVALS}
]


def job(case: str, plugin: str = "dense", *, seed: int = 3) -> Job:
    name, hyperparameters = BACKBONE_CASES[case]
    return Job(
        fingerprint="0",
        backbone=name,
        backbone_settings=hyperparameters,
        plugin=plugin,
        plugin_settings=PLUGIN_SETTINGS.get(plugin, {}),
        training=TrainSpec(),
        seed=seed,
    )


def rows(n_rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(n_rows)
    ids = [torch.randint(n, (n_rows,), generator=generator) for n in (7, 4, 9)]
    return torch.stack(ids, dim=1).int(), torch.randn(n_rows, 2, generator=generator)


@pytest.fixture(params=[1, 2])
def threads(request) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def test_the_contract_covers_the_whole_catalogue():
    covered = {name for name, _ in BACKBONE_CASES.values()}
    assert covered == set(BACKBONES), "BACKBONE_CASES above has a small case of each backbone"
    everywhere = set(PLUGINS) - {"apg", *RIVALS}
    for case in BACKBONE_CASES:
        assert everywhere <= set(arms_of(case))
        assert (set(arms_of(case)) >= RIVALS) == (case not in WITHOUT_TOP)
    assert {BACKBONE_CASES[b.values[0]][0] for b in ARMS if b.values[1] == "apg"} == {
        "DCNv2",
        "FiBiNET",
    }


@pytest.mark.parametrize(("case", "plugin"), ARMS)
def test_shapes_determinism_and_independence_of_rows(case, plugin):
    arm = build_arm(job(case, plugin).resolve(), SCHEMA).arm.eval()
    _train_a_little(arm, n_steps=1)  # more of them drive APG's sigmoid to exactly 0
    ids, numerics = rows(12)
    probability = arm(ids, numerics)
    assert probability.shape == (12,)
    assert probability.dtype == torch.float32
    assert bool(((probability > 0) & (probability < 1)).all())
    assert torch.equal(arm(ids, numerics), probability)
    assert torch.equal(arm(ids.long(), numerics), probability)
    log_p, log_not_p = arm.log_probabilities(ids, numerics)
    torch.testing.assert_close(log_p.exp(), probability)
    torch.testing.assert_close(log_not_p.exp(), 1 - probability)

    if plugin in ACROSS_ROWS:
        return
    neighbours_ids, neighbours_numerics = ids.clone(), numerics.clone()
    neighbours_ids[1:], neighbours_numerics[1:] = 0, 7.0
    assert torch.equal(arm(neighbours_ids, neighbours_numerics)[0], probability[0])
    alone = torch.cat([arm(ids[i : i + 1], numerics[i : i + 1]) for i in range(12)])
    torch.testing.assert_close(alone, probability)
    order = torch.tensor([3, 0, 2, 1, *range(4, 12)])
    torch.testing.assert_close(arm(ids[order], numerics[order]), probability[order])


@pytest.mark.parametrize(("case", "plugin"), ARMS)
def test_every_parameter_learns(case, plugin):
    # A unit can be dead for every row: SENET's only one in a start of five, and any behind APG. So
    # a parameter may have no gradient in some starts, but must have one in some other.
    learned: set[str] = set()
    for seed in range(3, 13):
        arm = build_arm(job(case, plugin, seed=seed).resolve(), SCHEMA).arm
        _train_a_little(arm, n_steps=1)  # u = 0 keeps the gradient of what is before it at 0
        arm(*rows(64)).square().sum().backward()
        gradients = {name: parameter.grad for name, parameter in arm.named_parameters()}
        assert [name for name, gradient in gradients.items() if gradient is None] == []
        assert [name for name, gradient in gradients.items() if not gradient.isfinite().all()] == []
        table = arm.backbone.embedding.table.detach()
        assert not table[[0, 7, 11]].any(), "PAD rows stay zero"
        learned |= {name for name, gradient in gradients.items() if gradient.any()}
        if learned == set(gradients):
            break
    assert learned == set(gradients)


@pytest.mark.parametrize("case", BACKBONE_CASES)
def test_first_and_last_ids_have_rows_of_their_own(case):
    backbone = _backbone(case)
    seen = []
    backbone.sites["embedding"].register_forward_hook(lambda _m, _i, out: seen.append(out))
    ids = torch.tensor([[0, 0, 0], [6, 3, 8]], dtype=torch.int32)
    backbone.eval()(ids, torch.zeros(2, 2))
    embeddings = seen[0].detach()
    assert embeddings.shape == (2, 5, 10)
    assert not embeddings[0].any()
    table = backbone.embedding.table.detach()
    assert torch.equal(embeddings[1, [1, 2, 4]], table[[6, 10, 19]])


@pytest.mark.parametrize(("case", "plugin"), ARMS)
def test_state_dict_round_trip(case, plugin):
    arm = build_arm(job(case, plugin).resolve(), SCHEMA).arm
    _train_a_little(arm)
    seed = 3 if plugin in ACROSS_ROWS else 4  # the permutations are the seed's
    other = build_arm(job(case, plugin, seed=seed).resolve(), SCHEMA).arm
    other.load_state_dict(arm.state_dict())
    assert torch.equal(other.eval()(*rows(9)), arm.eval()(*rows(9)))


@pytest.mark.parametrize(("case", "plugin"), ARMS)
def test_parameters_and_macs_follow_their_formulas(case, plugin):
    settings, added = backbone_settings(case), plugin_settings(plugin)
    arm = build_arm(job(case, plugin).resolve(), SCHEMA).arm.eval()
    parameters = sum(p.numel() for p in arm.parameters() if p.requires_grad)
    expected = added.added_parameters(settings, SCHEMA.shape)
    assert parameters == settings.parameters(SCHEMA.shape) + expected
    assert parameters == sum(p.numel() for p in arm.embedding_parameters()) + sum(
        p.numel() for p in arm.network_parameters()
    )
    counts = count(arm, rows)
    assert counts.parameters == parameters
    assert counts.macs == settings.macs(SCHEMA.shape) + added.added_macs(settings, SCHEMA.shape)


@pytest.mark.parametrize(
    ("case", "keys"),
    [
        ("NFM", {"router_input": "top_input"}),
        ("FiBiNET", {"expert_input": "bilinear", "router_input": "top_input"}),
        ("GDCN", {"router_input": "cross_1", "detach_router": True, "output": "logit"}),
        ("MaskNet-parallel", {"expert_input": "top_input", "layer_norm": False}),
        ("DCNv2", {"routing": "uniform", "bags": 1, "expert_input": "cross_1"}),
    ],
)
def test_so_do_those_of_attachments(case, keys):
    config = PLUGINS["prime"].settings.parse(keys, where="")
    arm = build_arm(
        job(case, "prime").model_copy(update={"plugin_settings": keys}).resolve(), SCHEMA
    ).arm
    settings, counts = backbone_settings(case), count(arm, rows)
    added = config.added_parameters(settings, SCHEMA.shape)
    assert counts.parameters == settings.parameters(SCHEMA.shape) + added
    assert counts.macs == settings.macs(SCHEMA.shape) + config.added_macs(settings, SCHEMA.shape)


@pytest.mark.parametrize("case", BACKBONE_CASES)
def test_the_top_nn_can_be_found_and_replaced(case):
    backbone = _backbone(case)
    settings = backbone_settings(case)
    assert tuple(backbone.sites) == settings.sites
    assert backbone.top_parameters == [
        f"{path}.{name}"
        for path in settings.top_nn
        for name, _ in backbone.get_submodule(path).named_parameters()
    ]
    assert bool(backbone.top_layers) == bool(settings.top_nn) == (case not in WITHOUT_TOP)
    assert ("top_input" in backbone.sites) == bool(backbone.top_layers)
    top_parameters = list(backbone.top_parameters)
    batch = rows(6)
    before = backbone.eval()(*batch)
    for path in backbone.top_layers:
        layer = backbone.get_submodule(path)
        assert type(layer) is nn.Linear
        assert f"{path}.weight" in backbone.top_parameters
        other = nn.Linear(layer.in_features, layer.out_features)
        assert replace(backbone, path, other) is layer
        assert backbone.get_submodule(path) is other
        assert not torch.equal(backbone(*batch), before)
        assert set(backbone.top_parameters) <= set(dict(backbone.named_parameters()))
        replace(backbone, path, layer)
        assert backbone.top_parameters == top_parameters
        assert torch.equal(backbone(*batch), before)
    with pytest.raises(KeyError, match="neither a hidden layer"):
        replace(backbone, "embedding", nn.Identity())


@pytest.mark.parametrize("case", BACKBONE_CASES)
def test_all_arms_of_a_seed_start_from_the_same_backbone(case):
    built = {plugin: build_arm(job(case, plugin).resolve(), SCHEMA) for plugin in arms_of(case)}
    dense = built["dense"]
    for plugin, assembled in built.items():
        assert assembled.initial_weights == dense.initial_weights
        rewired = weights_digest(assembled.arm.backbone) != assembled.initial_weights
        assert rewired == (plugin in REWIRING - {"dense_layernorm"})  # which has no weights
        backbone = assembled.arm.detach()
        for name, value in dense.arm.backbone.state_dict().items():
            assert torch.equal(backbone.state_dict()[name], value), name
        assert weights_digest(backbone) == assembled.initial_weights
    assert build_arm(job(case, seed=4).resolve(), SCHEMA).initial_weights != dense.initial_weights


@pytest.mark.parametrize("train", [False, True])
@pytest.mark.parametrize("case", BACKBONE_CASES)
def test_all_arms_start_from_the_same_predictions(case, train, threads):
    """Bit by bit, before the first update, whatever the batch (fidelity 14)."""
    neutral = [plugin for plugin in PLUGINS if plugin not in REWIRING]
    if case not in EVERY_ARM:
        neutral = ["dense", "prime", "residual_parameters"]
    arms = [build_arm(job(case, plugin).resolve(), SCHEMA).arm.train(train) for plugin in neutral]
    assert threads == torch.get_num_threads()
    # Two threads share the rows of a large batch alone.
    for n_rows in (1, 7, 1005, 1012) if threads == 1 else (1, 7, 4096):
        if n_rows == 1 and train and "bn" in case:
            continue  # BatchNorm has no variance of one row; the training loop makes no such batch
        batch = rows(n_rows)
        found = []
        for arm in arms:
            torch.default_generator.manual_seed(5)  # the same dropout masks
            found.append(arm(*batch))
        assert len(found) == len(neutral) >= (10 if case in EVERY_ARM else 3)
        assert all(torch.equal(other, found[0]) for other in found[1:]), n_rows


@pytest.mark.parametrize("plugin", sorted(REWIRING))
def test_an_arm_that_changes_the_backbone_does_not_start_as_dense(plugin):
    for case in FIRST_CASES:
        if plugin not in arms_of(case):
            continue
        arm, dense = (
            build_arm(job(case, name).resolve(), SCHEMA).arm.eval() for name in (plugin, "dense")
        )
        for each in (arm, dense):
            with torch.no_grad():  # initial embeddings are so small that their products vanish
                generator = torch.Generator().manual_seed(1)
                each.backbone.embedding.table.normal_(generator=generator)
        batch = rows(9)
        assert not torch.allclose(arm(*batch), dense(*batch), rtol=1e-4)


@pytest.mark.parametrize("case", BACKBONE_CASES)
def test_sites_and_hidden_layers_have_the_widths_of_their_formulas(case):
    backbone, settings = _backbone(case), backbone_settings(case)
    hidden = [backbone.get_submodule(path) for path in backbone.top_layers]
    assert [(x.width_in, x.width_out, x.bias) for x in settings.hidden_layers(SCHEMA.shape)] == [
        (x.in_features, x.out_features, x.bias is not None) for x in hidden
    ]
    seen = {}
    for site, module in backbone.sites.items():
        module.register_forward_hook(
            lambda _m, _i, out, site=site: seen.update({site: out.flatten(1).shape[1]})
        )
    backbone.eval()(*rows(3))
    assert seen == {site: settings.site_width(site, SCHEMA.shape) for site in settings.sites}


@pytest.mark.parametrize(("case", "plugin"), ARMS)
def test_building_leaves_the_global_generator_alone_and_does_not_read_it(case, plugin):
    built = []
    for seed in (1, 2):
        torch.default_generator.manual_seed(seed)
        before = torch.get_rng_state()
        built.append(build_arm(job(case, plugin).resolve(), SCHEMA))
        assert torch.equal(torch.get_rng_state(), before)
    first, second = (weights_digest(assembled.arm) for assembled in built)
    assert first == second


# Of torch's own making, while it traces an autograd.Function and while it loads inductor.
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:.*torch.jit.*is deprecated:DeprecationWarning")
@pytest.mark.parametrize(
    ("case", "backend"),
    [
        *((case, "aot_eager") for case in FIRST_CASES),
        *(pytest.param(case, "inductor", marks=pytest.mark.slow) for case in BACKBONE_CASES),
    ],
)
def test_compiling_changes_no_logit_and_no_gradient(case, backend):
    torch._dynamo.reset()
    backbone, other = _backbone(case).eval(), _backbone(case).eval()
    batch = rows(64)
    expected, found = backbone(*batch), torch.compile(other, backend=backend)(*batch)
    if backend == "aot_eager":
        assert torch.equal(found, expected)
    torch.testing.assert_close(found, expected)
    for logits in (found, expected):
        logits.square().sum().backward()
    for name, parameter in backbone.named_parameters():
        torch.testing.assert_close(other.get_parameter(name).grad, parameter.grad)


def test_a_plugins_start_depends_on_the_seed_and_not_on_the_backbone():
    seeds = [build_plugin("prime", 20, {}, seed=seed) for seed in (1, 1, 2)]
    first, again, other = (weights_digest(plugin) for plugin in seeds)
    assert first == again != other
    assert build_plugin("dense", 20, {}, seed=1) is None


@pytest.mark.parametrize(
    ("keys", "expert_site", "router_site"),
    [
        ({"router_input": "cross_out"}, "embedding", "cross_out"),
        ({"router_input": "cross_1", "detach_router": True}, "embedding", "cross_1"),
        ({"expert_input": "cross_out"}, "cross_out", "embedding"),
        ({"expert_input": "top_input", "router_input": "top_input"}, "top_input", None),
    ],
)
def test_experts_and_routers_read_the_sites_that_they_are_given(keys, expert_site, router_site):
    table = job("GDCN", "prime").model_copy(update={"plugin_settings": keys})
    arm = build_arm(table.resolve(), SCHEMA).arm
    assert torch.equal(
        arm.eval()(*rows(9)), build_arm(job("GDCN").resolve(), SCHEMA).arm.eval()(*rows(9))
    )
    _train_a_little(arm)
    seen = {}
    for site, module in arm.backbone.sites.items():
        module.register_forward_hook(
            lambda _m, _i, out, site=site: seen.update({site: out.flatten(1)})
        )
    probability, logit = arm.eval()(*rows(9)), arm.backbone(*rows(9))
    read = None if router_site is None else seen[router_site]
    assert torch.equal(probability, arm.plugin(seen[expert_site], logit, read))
    assert probability.shape == (9,)
    hooks = [len(module._forward_hooks) for module in arm.backbone.sites.values()]
    taps = 1 if router_site is None else 2
    assert sum(hooks) == len(hooks) + taps
    assert sum(len(m._forward_hooks) for m in arm.detach().sites.values()) == len(hooks)


@pytest.mark.parametrize("key", ["router_input", "expert_input"])
def test_a_site_that_is_not_there_is_the_users_mistake(key):
    table = job("DNN", "prime").model_copy(update={"plugin_settings": {key: "cross_1"}})
    with pytest.raises(UsageError, match=r"arm prime on DNN: there is no site `cross_1`, only emb"):
        build_arm(table.resolve(), SCHEMA)


def test_the_digest_sees_values_names_types_and_shapes():
    backbone = _backbone("DNN")
    before = weights_digest(backbone)
    with torch.no_grad():
        backbone.embedding.table[1, 0] += 1e-7
    assert weights_digest(backbone) != before
    plain = nn.Linear(4, 1, bias=False)
    reshaped = nn.Linear(2, 2, bias=False)
    reshaped.weight = nn.Parameter(plain.weight.detach().view(2, 2))
    named = nn.Module()
    named.other = plain.weight
    wide = copy.deepcopy(plain).double()
    digests = {weights_digest(module) for module in (plain, reshaped, named, wide)}
    assert len(digests) == 4


@pytest.mark.parametrize(
    ("name", "hyperparameters", "words"),
    [
        ("DCNV", {}, ["unknown backbone `DCNV`", "did you mean `DCNv2`?", "known: "]),
        ("DNN", {"hiden_units": [4]}, ["backbone.DNN.hiden_units", "did you mean `hidden_units`"]),
        ("DNN", {"hidden_units": []}, ["backbone.DNN.hidden_units"]),
        ("DNN", {"net_dropout": 1.0}, ["backbone.DNN.net_dropout"]),
        ("DCNv2", {"model_structure": "stack"}, ["backbone.DCNv2.model_structure"]),
    ],
)
def test_a_wrong_backbone_is_the_users_mistake(name, hyperparameters, words):
    with pytest.raises(UsageError) as raised:
        build_backbone(name, SCHEMA, hyperparameters, seed=0)
    assert all(word in str(raised.value) for word in words), str(raised.value)


def test_a_wrong_plugin_is_the_users_mistake():
    with pytest.raises(UsageError, match="unknown plug-in `prim`; did you mean `prime`"):
        build_arm(job("DNN", "prim").resolve(), SCHEMA)
    with pytest.raises(UsageError, match=r"arm\.prime\.bag: unknown key; did you mean `bags`"):
        build_plugin("prime", 20, {"bag": 1}, seed=0)


def _backbone(case: str) -> Backbone:
    name, hyperparameters = BACKBONE_CASES[case]
    return build_backbone(name, SCHEMA, hyperparameters, seed=0)


def _train_a_little(arm: nn.Module, *, n_steps: int = 3) -> None:
    """Away from the start, where plug-ins are neutral; the mode stays."""
    was_training = arm.training
    arm.train()
    optimizer = torch.optim.Adam(arm.parameters(), lr=0.05)
    for _ in range(n_steps):
        optimizer.zero_grad()
        arm(*rows(64)).square().sum().backward()
        optimizer.step()
    optimizer.zero_grad()
    arm.train(was_training)

"""Parameter and MAC formulas against sums worked out by hand or over a list of matrices."""

import pytest

from prime_bench.base.errors import UsageError
from prime_bench.settings.backbones import (
    AutoIntSettings,
    DCNv2Settings,
    DNNSettings,
    FiBiNETSettings,
    NFMSettings,
)
from prime_bench.settings.interface import DenseSettings, TableShape
from prime_bench.settings.plugins import (
    HiddenSubspaceSettings,
    MultilayerBaggedSettings,
    PrimeConfig,
    ResidualMacsSettings,
    ResidualParametersSettings,
    UniformRouting,
)

# Avazu_x1 with the training rows' vocabulary: 1,298,577 values, PAD and OOV of 22 fields.
AVAZU = TableShape(vocabulary_sizes=(*([2] * 21), 1_298_621 - 42), n_numeric=0)
# Criteo_x4 with bucketed numerics, minimum count 10.
CRITEO = TableShape(vocabulary_sizes=(*([2] * 38), 910_747 - 76), n_numeric=0)
RAW = TableShape(vocabulary_sizes=(5, 7), n_numeric=3)


def test_shape_counts_fields_and_rows_of_embeddings():
    assert (AVAZU.n_fields, AVAZU.embedding_rows) == (22, 1_298_621)
    assert (CRITEO.n_fields, CRITEO.embedding_rows) == (39, 910_747)
    assert (RAW.n_fields, RAW.embedding_rows) == (5, 15)  # a numeric field has one weight vector


@pytest.mark.parametrize(("d", "expected"), [(220, 120_224), (390, 212_704)])
def test_prime_has_the_papers_parameters(d, expected):
    """Eq. 25: V (E, q, d), u (E, q), b (E,), router (E, d)."""
    assert PrimeConfig().parameters(d) == expected
    assert 32 * 16 * d + 32 * 16 + 32 + 32 * d == expected


@pytest.mark.parametrize(("d", "expected"), [(220, 120_192), (390, 212_672)])
def test_prime_has_the_papers_macs(d, expected):
    """Eq. 24."""
    assert PrimeConfig().macs(d) == expected


def test_prime_counts_follow_its_keys():
    config = PrimeConfig(bags=2, experts_per_bag=3, rank=5)

    assert config.experts == 6
    assert config.parameters(7) == 6 * 5 * 7 + 6 * 5 + 6 + 6 * 7
    assert config.macs(7) == 6 * 7 + 6 * 5 * 7 + 6 * 5


@pytest.mark.parametrize(("d", "expected"), [(220, 120_225), (390, 212_705)])
def test_the_residual_has_primes_budget_to_one_parameter(d, expected):
    residual = ResidualParametersSettings()

    assert residual.width == 544
    assert residual.parameters(d) == expected == PrimeConfig().parameters(d) + 1
    assert residual.macs(d) == 544 * d + 544


@pytest.mark.parametrize(
    ("d", "width", "macs"), [(220, 253, 119_922), (390, 305, 212_280), (1, 31, 1023)]
)
def test_the_mac_matched_residual_is_the_widest_within_primes_macs(d, width, macs):
    residual = ResidualMacsSettings()

    assert residual.width(d) == width
    assert residual.macs(d) == macs == d * width + width * width + width
    assert residual.macs(d) <= residual.target(d) == PrimeConfig().macs(d)
    assert (width + 1) * (d + width + 2) > residual.target(d)
    assert residual.parameters(d) == _linear(d, width) + _linear(width, width) + width + 1


def test_uniform_routing_has_no_router():
    uniform, prime = UniformRouting(), PrimeConfig()

    assert prime.parameters(220) - uniform.parameters(220) == 32 * 220
    assert prime.macs(220) - uniform.macs(220) == 32 * 220


def test_a_router_of_another_width():
    prime = PrimeConfig(bags=2, experts_per_bag=3, rank=5)

    assert prime.parameters(7, 11) == 6 * (5 * 7 + 5 + 1 + 11)
    assert prime.macs(7, 11) == 6 * (5 * 7 + 5 + 11)


def test_attachments_count_the_widths_of_their_sites():
    nfm = NFMSettings()  # its Top-NN reads k = 10, z has 50
    at_top = PrimeConfig(router_input="top_input")

    assert at_top.added_parameters(nfm, RAW) == PrimeConfig().parameters(50, 10)
    assert at_top.added_macs(nfm, RAW) == PrimeConfig().macs(50, 10)
    assert PrimeConfig(expert_input="top_input").misfit(nfm) is None
    assert "only embedding, top_input" in str(PrimeConfig(router_input="cross_1").misfit(nfm))


def test_structural_rivals_by_hand():
    """d = 50, one hidden Linear of 6 and one of 4; E = 6 experts of rank 3."""
    dnn, small = DNNSettings(hidden_units=(6, 4)), {"bags": 2, "experts_per_bag": 3, "rank": 3}
    routed = 6 * (50 + 3 * (50 + 6)) + 6 * (6 + 3 * (6 + 4))
    subspace, bagged = HiddenSubspaceSettings(**small), MultilayerBaggedSettings(**small)

    assert subspace.added_parameters(dnn, RAW) == subspace.added_macs(dnn, RAW) == routed
    assert bagged.added_parameters(dnn, RAW) == routed - 50 * 6 - 6 * 4
    assert bagged.added_macs(dnn, RAW) == routed - 50 * 6 - 6 * 4


def test_dense_adds_nothing():
    assert (DenseSettings().parameters(220), DenseSettings().macs(220)) == (0, 0)


@pytest.mark.parametrize(("shape", "expected"), [(AVAZU, 13_395_811), (CRITEO, 9_585_071)])
def test_dnn_has_the_published_parameters(shape, expected):
    assert DNNSettings().parameters(shape) == expected


@pytest.mark.parametrize(
    ("shape", "layers", "batch_norm", "expected"),
    [
        (AVAZU, 3, True, 13_544_291),
        (AVAZU, 5, True, 13_641_531),  # the published trial
        (CRITEO, 3, False, 10_042_931),
    ],
)
def test_dcnv2_has_the_published_parameters(shape, layers, batch_norm, expected):
    settings = DCNv2Settings(num_cross_layers=layers, batch_norm=batch_norm)

    assert settings.parameters(shape) == expected


def test_dcnv2_needs_three_cross_layers_for_the_papers_sixteen_million():
    """Over the vocabulary of all splits, whose size the paper's FiBiNET implies (fidelity 5, 7)."""
    everything = TableShape(vocabulary_sizes=(*([2] * 21), 1_544_294 - 42), n_numeric=0)
    millions = {
        layers: DCNv2Settings(num_cross_layers=layers, batch_norm=True).parameters(everything) / 1e6
        for layers in range(1, 7)
    }

    assert [layers for layers, count in millions.items() if round(count, 2) == 16.0] == [3]


def _linear(width_in, width_out):
    return width_in * width_out + width_out


@pytest.mark.parametrize("batch_norm", [False, True])
def test_dnn_by_hand_with_numeric_fields(batch_norm):
    settings = DNNSettings(embedding_dim=4, hidden_units=(6, 3), batch_norm=batch_norm)
    d = 5 * 4

    norm = 2 * (6 + 3) if batch_norm else 0
    expected = 15 * 4 + _linear(d, 6) + _linear(6, 3) + _linear(3, 1) + norm
    assert settings.parameters(RAW) == expected
    assert settings.macs(RAW) == d * 6 + 6 * 3 + 3


D = 20
CROSS = 2 * _linear(D, D)
HAND = {  # widths: stacked (6, 3), parallel (5,); 2 cross layers on d = 20
    "crossnet_only": (CROSS + _linear(D, 1), 2 * D * D + D),
    "stacked": (
        CROSS + _linear(D, 6) + _linear(6, 3) + _linear(3, 1),
        2 * D * D + D * 6 + 6 * 3 + 3,
    ),
    "parallel": (CROSS + _linear(D, 5) + _linear(D + 5, 1), 2 * D * D + D * 5 + D + 5),
    "stacked_parallel": (
        CROSS + _linear(D, 6) + _linear(6, 3) + _linear(D, 5) + _linear(3 + 5, 1),
        2 * D * D + D * 6 + 6 * 3 + D * 5 + 3 + 5,
    ),
}
WIDTHS = {"stacked_dnn_hidden_units": (6, 3), "parallel_dnn_hidden_units": (5,)}
HAS = {
    "crossnet_only": [],
    "stacked": ["stacked_dnn_hidden_units"],
    "parallel": ["parallel_dnn_hidden_units"],
    "stacked_parallel": list(WIDTHS),
}


@pytest.mark.parametrize("structure", HAND)
def test_dcnv2_by_hand_in_every_structure(structure):
    widths = {key: list(WIDTHS[key]) for key in HAS[structure]}
    table = {"model_structure": structure, "embedding_dim": 4, "num_cross_layers": 2, **widths}
    settings = DCNv2Settings.parse(table, where="")

    parameters, macs = HAND[structure]
    assert settings.parameters(RAW) == 15 * 4 + parameters
    assert settings.macs(RAW) == macs


@pytest.mark.parametrize("structure", HAND)
def test_dcnv2_gives_each_mlp_that_it_has_the_default_widths(structure):
    settings = DCNv2Settings.parse({"model_structure": structure}, where="")

    for key in WIDTHS:
        assert getattr(settings, key) == ((400, 400, 400) if key in HAS[structure] else ())


@pytest.mark.parametrize("structure", HAND)
def test_dcnv2_refuses_widths_that_its_structure_has_no_place_for_or_lacks(structure):
    for key, widths in WIDTHS.items():
        wrong = [] if key in HAS[structure] else list(widths)
        with pytest.raises(UsageError, match=f"{structure}.*{key}"):
            DCNv2Settings.parse({"model_structure": structure, key: wrong}, where="")


def test_autoints_heads_share_its_width():
    with pytest.raises(UsageError, match="attention_dim = 9 is no multiple of num_heads = 2"):
        AutoIntSettings.parse({"attention_dim": 9, "num_heads": 2}, where="backbone")


@pytest.mark.parametrize(
    ("ratio", "width"), [(0.3, 16), (0.5, 10), (1, 5), (2.5, 2), (4, 1), (9, 1)]
)
def test_senets_hidden_layer_may_be_wider_than_the_fields(ratio, width):
    """F = 5: two matrices of 5 and int(5 / ratio), at least 1."""
    counts = {
        r: FiBiNETSettings(reduction_ratio=r).parameters(RAW)
        for r in (ratio, 5)  # 5: a width of 1
    }

    assert counts[ratio] - counts[5] == 2 * 5 * (width - 1)


def test_a_whole_ratio_is_one_setting_however_it_is_written():
    """Job ids digest these values."""
    assert FiBiNETSettings(reduction_ratio=3.0).plain() == FiBiNETSettings().plain()
    assert isinstance(FiBiNETSettings(reduction_ratio=3.0).plain()["reduction_ratio"], int)


@pytest.mark.parametrize("ratio", [0, -1, float("inf"), float("nan"), True, "3"])
def test_a_ratio_that_is_none_is_refused(ratio):
    with pytest.raises(UsageError, match="reduction_ratio"):
        FiBiNETSettings.parse({"reduction_ratio": ratio}, where="")

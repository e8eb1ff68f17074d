"""Parameter counts of all backbones, and of APG's two places, against published figures.

FuxiCTR's count at the values of `main13`: on Avazu_x1 with the training rows' vocabulary, on
Criteo_x4 with bucketed numerics and minimum count 10.
"""

import pytest

from prime_bench.recipe.file import load_recipe
from prime_bench.settings.interface import TableShape
from prime_bench.settings.plugins import APGSettings

SHAPES = {
    "avazu": TableShape(vocabulary_sizes=(*([2] * 21), 1_298_621 - 42), n_numeric=0),
    "criteo": TableShape(vocabulary_sizes=(*([2] * 38), 910_747 - 76), n_numeric=0),
}
PUBLISHED = {
    "AFM": (14_285_034, 10_018_612),
    "AutoInt": (14_203_076, 10_913_195),
    "DCN": (13_397_351, 9_587_801),
    "DNN": (13_395_811, 9_585_071),
    "DeepFM": (14_696_833, 10_498_219),
    "FiBiNET": (16_457_340, 16_416_252),
    "FwFM": (25_972_652, 18_215_682),
    "GDCN": (13_689_271, 10_498_841),
    "MaskNet": (14_586_111, 9_774_939),
    "NFM": (14_610_432, 10_343_818),
    "PNN": (13_488_211, 9_883_871),
    "WideDeep": (14_696_832, 10_498_218),
    "DCNv2": (13_544_291, 10_042_931),
}
# FuxiCTR's count at the values of `criteo_x1_13` with training rows' values: 2,086,277,
# PAD and OOV of 26 fields; a numeric field has one row. Without GDCN, which has no published trial.
CRITEO_X1 = TableShape(vocabulary_sizes=(*([2] * 25), 2_086_277 + 52 - 50), n_numeric=13)
PUBLISHED_CRITEO_X1 = {
    "AFM": 22_950_157,
    "AutoInt": 23_844_740,
    "DCN": 21_343_751,
    "DNN": 21_341_021,
    "DeepFM": 23_429_764,
    "FiBiNET": 29_347_797,
    "FwFM": 41_727_582,
    "MaskNet": 21_530_889,
    "NFM": 23_275_363,
    "PNN": 21_639_821,
    "WideDeep": 23_429_763,
    "DCNv2": 22_018_281,
}
# What BARS's logs of the DNN count: an id a field fewer than here, and the MLP twice.
BARS_DNN = {
    "frappe13": (("frappe", 10, 5_379), 781_892),
    "movielens13": (("movielens", 3, 90_236), 1_574_392),
    "criteo_x1_13": (("criteo-x1", 26, 2_086_277), 21_818_362),
}
APG_ADDS = {"FiBiNET": (265_802, 352_842), "DCNv2": (1_011_456, 1_041_376)}


def _settings(backbone, dataset):
    return load_recipe("main13").backbones[backbone][dataset]


def test_every_backbone_of_the_paper_is_here():
    assert set(PUBLISHED) == set(load_recipe("main13").backbones)


@pytest.mark.parametrize("dataset", SHAPES)
@pytest.mark.parametrize("backbone", PUBLISHED)
def test_a_backbone_has_its_published_parameters(backbone, dataset):
    count = _settings(backbone, dataset).parameters(SHAPES[dataset])

    assert count == PUBLISHED[backbone][list(SHAPES).index(dataset)]


@pytest.mark.parametrize("backbone", PUBLISHED_CRITEO_X1)
def test_a_backbone_has_its_published_parameters_on_criteo_x1(backbone):
    settings = load_recipe("criteo_x1_13").backbones[backbone]["criteo-x1"]

    assert settings.parameters(CRITEO_X1) == PUBLISHED_CRITEO_X1[backbone]


@pytest.mark.parametrize("name", BARS_DNN)
def test_the_dnn_has_the_parameters_of_bars_log(name):
    """Each log's count is a number of values in the training rows that is whole: a wrong width of
    the MLP, or a wrong batch norm, leaves a remainder.
    """
    (dataset, n_categorical, n_values), logged = BARS_DNN[name]
    n_numeric = 13 if dataset == "criteo-x1" else 0
    rows = n_values + n_categorical
    sizes = (*([1] * (n_categorical - 1)), rows - n_categorical + 1)
    shape = TableShape(vocabulary_sizes=sizes, n_numeric=n_numeric)

    count = load_recipe(name).backbones["DNN"][dataset].parameters(shape)

    mlp = count - 10 * shape.embedding_rows
    assert count + mlp == logged


@pytest.mark.parametrize("dataset", SHAPES)
@pytest.mark.parametrize("backbone", APG_ADDS)
def test_apg_adds_the_papers_parameters(backbone, dataset):
    """The paper's +0.2658M and +1.01M on Avazu (fidelity 24, 25)."""
    shape = SHAPES[dataset]
    added = APGSettings().added_parameters(_settings(backbone, dataset), shape)

    assert added == APG_ADDS[backbone][list(SHAPES).index(dataset)]

"""`ls backbones` and `show backbone`: what they print is what the code has."""

import json
from dataclasses import asdict

import pytest

from prime_bench.api.catalogue import ArmFacts, BackboneCounts, BackboneFacts, KeyFacts
from prime_bench.catalog import BACKBONES, PLUGINS, find_plugin
from prime_bench.cli.main import exit_code
from prime_bench.data.table import PreparedTable
from prime_bench.recipe.file import find_recipe, load_recipe
from prime_bench.settings.backbones import DCNv2Settings


@pytest.fixture
def answer(capsys):
    def answer(*arguments):
        assert exit_code([*arguments]) == 0
        return capsys.readouterr().out

    return answer


def test_every_backbone_is_listed(answer):
    lines = answer("ls", "backbones").splitlines()
    assert [line.split()[0] for line in lines[1:]] == sorted(BACKBONES)
    listed = json.loads(answer("ls", "backbones", "--json"))
    assert listed["schema"] == 1
    assert {row["name"] for row in listed["backbones"]} == set(BACKBONES)
    of = {row["name"]: row for row in listed["backbones"]}
    assert of["GDCN"]["sites"] == ["embedding", "cross_1", "cross_2", "cross_out", "top_input"]
    assert of["AFM"]["top_nn"] == []
    assert all(row["cite"] in answer("ls", "backbones") for row in listed["backbones"])


@pytest.mark.parametrize("name", sorted(BACKBONES))
def test_every_key_has_its_default_and_a_description(answer, name):
    shown = json.loads(answer("show", "backbone", name, "--json"))
    defaults = BACKBONES[name].settings().plain()
    assert {key["name"]: key["default"] for key in shown["keys"]} == defaults
    assert all(key["doc"].endswith(".") for key in shown["keys"]), shown["keys"]
    text = answer("show", "backbone", name)
    words = " ".join(text.split())
    for key in shown["keys"]:
        assert key["doc"] in words
        assert all(choice in text for choice in key["choices"] or [])
    assert f"sites: {', '.join(shown['sites'])}" in text
    assert BACKBONES[name].cite in text


@pytest.mark.parametrize("name", PLUGINS)
def test_the_keys_of_an_arm_fit_80_columns(answer, name):
    shown = json.loads(answer("show", "arm", name, "--json"))
    settings = find_plugin(name).settings()
    assert {key["name"]: key["default"] for key in shown["keys"]} == settings.model_dump(
        mode="json"
    )
    # A job's id leaves out the keys of the anchor at their defaults, a reader wants to see them.
    assert settings.plain().items() <= settings.model_dump(mode="json").items()
    text = answer("show", "arm", name)
    assert all(key["doc"] in " ".join(text.split()) for key in shown["keys"])
    assert max(map(len, text.splitlines()[2:])) <= 80


def test_parameters_for_a_prepared_table_by_folder_or_by_name(answer, tables):
    folders = sorted(tables.iterdir())
    assert len(folders) == 2
    for folder in folders:
        shown = json.loads(answer("show", "backbone", "DCNv2", "--data", str(folder), "--json"))
        (counts,) = shown["tables"]
        shape = PreparedTable.open(folder).schema.shape
        settings = DCNv2Settings.parse({}, where="")
        assert counts["parameters"] == settings.parameters(shape)
        assert counts["macs"] == settings.macs(shape)
        assert counts["input_width"] == 10 * counts["fields"] in (220, 390)
    by_name = ("show", "backbone", "DCNv2", "--data", "synthetic", "--data-dir", str(tables))
    found = json.loads(answer(*by_name, "--json"))["tables"]
    assert sorted(row["path"] for row in found) == [str(folder) for folder in folders]
    text = answer(*by_name)
    assert all(f"{row['parameters']:,}" in text for row in found)


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["DCNV"], 2, ["unknown backbone `DCNV`", "did you mean `DCNv2`?"]),
        (["DNN", "--data", "avazuu"], 3, ["avazuu: neither", "did you mean `avazu`?"]),
    ],
)
def test_a_wrong_name_is_one_message(capsys, tmp_path, arguments, code, words):
    assert exit_code(["show", "backbone", *arguments, "--data-dir", str(tmp_path)]) == code
    printed = capsys.readouterr()
    assert printed.out == ""
    assert all(word in printed.err for word in words), printed.err


def test_a_folder_without_a_table(capsys, tmp_path):
    assert exit_code(["show", "backbone", "DNN", "--data", str(tmp_path)]) == 3
    assert "no prepared table here" in capsys.readouterr().err


KEYS = [
    KeyFacts(name="rank", default=16, choices=None, doc="Its rank."),
    KeyFacts(name="site", default="a", choices=["a", "b"], doc="Its place."),
]
KEY_LINES = """\
key   default  meaning
rank  16       Its rank.
site  "a"      Its place. One of a, b.
"""


@pytest.mark.parametrize(
    ("top_nn", "tables", "last"),
    [
        ([], [], "Top-NN: none\nsites: embedding, top_input\n"),
        (
            ["mlp.0", "mlp.1"],
            [
                BackboneCounts(
                    **{"path": "data/t", "dataset": "t", "fingerprint": "f", "fields": 1001},
                    **{"input_width": 2002, "embedding_rows": 3003, "parameters": 4004},
                    macs=5005,
                )
            ],
            "Top-NN: mlp.0, mlp.1\nsites: embedding, top_input\n\n"
            "table   fields  d      parameters  multiply-accumulates a row\n"
            "data/t  1,001   2,002  4,004       5,005\n",
        ),
    ],
)
def test_a_backbone_is_shown_in_full(answer, monkeypatch, top_nn, tables, last):
    facts = BackboneFacts(
        **{"name": "Net", "label": "a label", "cite": "Me, 2026", "keys": KEYS},
        **{"top_nn": top_nn, "sites": ["embedding", "top_input"], "tables": tables},
    )
    monkeypatch.setattr("prime_bench.api.backbone_facts", lambda *_, **__: facts)

    assert answer("show", "backbone", "m:Net") == f"m:Net: Me, 2026\n\n{KEY_LINES}\n{last}"
    assert json.loads(answer("show", "backbone", "m:Net", "--json")) == {
        "schema": 1,
        **asdict(facts),
    }


@pytest.mark.parametrize(("keys", "last"), [(KEYS, KEY_LINES), ([], "no settings\n")])
def test_an_arm_is_shown_in_full(answer, monkeypatch, keys, last):
    facts = ArmFacts(name="Gate", label="a label", cite="Me, 2026", keys=keys)
    monkeypatch.setattr("prime_bench.api.arm_facts", lambda *_, **__: facts)

    assert answer("show", "arm", "m:Gate") == f"m:Gate: a label (Me, 2026)\n\n{last}"
    assert json.loads(answer("show", "arm", "m:Gate", "--json")) == {"schema": 1, **asdict(facts)}


def test_a_recipe_is_shown_as_json(answer):
    shown = json.loads(answer("show", "recipe", "gdcn_routing", "--json"))
    recipe = load_recipe("gdcn_routing")
    assert shown == {
        "schema": 1,
        "name": "gdcn_routing",
        "title": recipe.title,
        "kind": "routing",
        "path": str(find_recipe("gdcn_routing")),
        "datasets": list(recipe.datasets),
        "backbones": ["GDCN"],
        "arms": [arm.name for arm in recipe.arms],
        "seeds": recipe.seeds,
        "text": find_recipe("gdcn_routing").read_text(encoding="utf-8"),
    }

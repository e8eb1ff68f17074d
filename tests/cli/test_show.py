"""`ls backbones` and `show backbone`: what they print is what the code has."""

import json

import pytest

from prime_bench.catalog import BACKBONES, PLUGINS, find_plugin
from prime_bench.cli.main import exit_code
from prime_bench.data.table import PreparedTable
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

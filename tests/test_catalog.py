"""What a name in a recipe stands for: a row of the catalogue, an entry point, or `module:Class`."""

import re
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from prime_bench import catalog
from prime_bench.base.errors import UsageError
from prime_bench.catalog import (
    BACKBONES,
    PLUGINS,
    entry_point_targets,
    find_backbone,
    find_plugin,
    is_foreign,
)
from prime_bench.settings.backbones import DNNSettings
from prime_bench.settings.plugins import PrimeConfig

FIDELITY = Path(__file__).parents[1] / "docs" / "fidelity.md"


def test_each_backbone_has_its_own_class_settings_and_names():
    for name, entry in BACKBONES.items():
        assert entry.target == f"prime_bench.backbones.{name.lower()}:{name}"
        assert entry.settings.__name__ == f"{name}Settings"
        assert entry.label == {"WideDeep": "Wide&Deep"}.get(name, name)
        assert find_backbone(name) is entry
    assert len({entry.cite for entry in BACKBONES.values()}) == len(BACKBONES)


def test_a_control_names_the_section_that_describes_it():
    headings = dict(re.findall(r"^## (\d+)\. (.*)$", FIDELITY.read_text(), re.MULTILINE))
    for entry in PLUGINS.values():
        _, named, number = entry.cite.partition("docs/fidelity.md, ")
        if named and number != "38":  # which is of several
            beginnings = [word[:3].lower() for word in re.findall(r"\w+", entry.label)]
            assert all(word in headings[number].lower() for word in beginnings), entry


def test_plugins_of_the_catalogue_are_found_by_their_names():
    assert all(find_plugin(name) is entry for name, entry in PLUGINS.items())
    assert len({entry.settings for entry in PLUGINS.values()}) == len(PLUGINS)
    assert [name for name, entry in PLUGINS.items() if entry.target is None] == [catalog.DENSE]


def test_a_class_of_ones_own_describes_itself(own_class):
    own_class(3)
    gate, net = find_plugin("own_mod:Gate"), find_backbone("own_mod:Net")

    assert (gate.target, gate.settings) == ("own_mod:Gate", PrimeConfig)
    assert (gate.label, gate.cite, gate.code) == ("Gate", "own_mod:Gate", "3" * 64)
    assert (net.target, net.settings) == ("own_mod:Net", DNNSettings)
    assert (net.label, net.cite, net.code) == ("Net", "own_mod:Net", "3" * 64)
    for find, name, base in (
        (find_backbone, "own_mod:Gate", "BackboneSettings"),
        (find_plugin, "own_mod:Net", "ArmSettings"),
    ):
        with pytest.raises(UsageError, match=f"`{name}` has no `Settings`, .* from {base}"):
            find(name)


@pytest.mark.usefixtures("own_class")
def test_an_entry_point_is_another_name_for_a_class(monkeypatch):
    points = [
        EntryPoint("gate", "own_mod:Gate", "prime_bench.plugins"),
        EntryPoint("net", "own_mod:Net", "prime_bench.backbones"),
    ]
    monkeypatch.setattr(
        catalog, "entry_points", lambda *, group: [one for one in points if one.group == group]
    )
    assert entry_point_targets("plug-in") == {"gate": "own_mod:Gate"}
    assert entry_point_targets("backbone") == {"net": "own_mod:Net"}
    assert find_plugin("gate").target == "own_mod:Gate"
    assert find_backbone("net").target == "own_mod:Net"
    for find, noun, own, other in (
        (find_plugin, "plug-in", "gate", "prime"),
        (find_backbone, "backbone", "net", "DNN"),
    ):
        with pytest.raises(UsageError, match=f"unknown {noun} `{own}s`; did you mean `{own}`") as c:
            find(f"{own}s")
        known = c.value.hint.partition(";")[0].removeprefix("known: ").split(", ")
        assert known == sorted(known)
        assert {own, other} <= set(known)


@pytest.mark.parametrize(
    ("name", "foreign"),
    [
        ("a:B", True),
        ("a.b:C", True),
        ("a", False),
        ("a:b:c", False),
        ("a-b:C", False),
        ("a:", False),
    ],
)
def test_a_class_of_ones_own_is_told_by_its_colon(name, foreign):
    assert is_foreign(name) == foreign

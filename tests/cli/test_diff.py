import json

import pytest

from prime_bench.cli.main import exit_code


def test_two_recipes_differ_in_keys_and_share_jobs(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(["diff", "main13", "main13_by_validation"]) == 0
    out = capsys.readouterr().out
    assert "backbone.DCNv2.on.avazu.num_cross_layers\n  - 3\n  + 2\n" in out
    # 13 backbones x 5 seeds x 2 arms on two data sets; nine cells have other hyperparameters
    assert out.endswith("jobs: 170 of both, 90 of main13 alone, 90 of main13_by_validation alone\n")


def test_json_has_every_key(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(["diff", "quick", "quick", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "schema": 1,
        "recipes": ["quick", "quick"],
        "keys": [],
        "jobs": {"left": 0, "right": 0, "both": 18},
    }


def test_other_data_make_other_jobs(
    quick_and_criteo: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_code(["diff", "quick", quick_and_criteo, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["jobs"] == {"left": 0, "right": 18, "both": 18}
    card = {"key": "dataset.criteo.card", "left": None, "right": "criteo"}
    assert card in found["keys"]


def test_an_unknown_recipe_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(["diff", "quick", "quik"]) == 2
    assert "quik: no such recipe; did you mean `quick`?" in capsys.readouterr().err

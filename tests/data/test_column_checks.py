"""Warnings about columns of one's own data, with counts."""

import numpy as np
import pytest

from prime_bench.cli.main import exit_code
from prime_bench.data.manifest import resolve
from prime_bench.data.prepare import prepare

ROWS = 2_000


@pytest.fixture
def made(tmp_path):
    """Prepares a log of a label, a sound column and one more; returns the manifest and the log."""

    def warnings(values, keys, labels=None):
        random = np.random.default_rng(2)
        labels = random.integers(0, 2, ROWS) if labels is None else labels
        lines = [
            f"{y},{random.integers(500)},{x}" for y, x in zip(labels, values(labels), strict=True)
        ]
        (tmp_path / "log.csv").write_text("\n".join(["click,user,x", *lines]) + "\n")
        (tmp_path / "log.toml").write_text(
            'name = "log"\ntitle = "log"\nkind = "log"\n'
            'columns = [{ name = "click", role = "label" },'
            f' {{ name = "user", role = "categorical" }}, {{ name = "x", {keys} }}]\n'
        )
        said = []
        manifest = prepare(
            resolve(str(tmp_path / "log.toml"), {}),
            data_dir=tmp_path / "data",
            source=tmp_path / "log.csv",
            log=said.append,
        )
        assert said == [f"warning: {text}" for text in manifest.warnings]
        assert all(text.startswith("`x`: ") for text in manifest.warnings)
        return [text.removeprefix("`x`: ") for text in manifest.warnings], manifest

    return warnings


def shares(_):
    return np.random.default_rng(1).random(ROWS).round(3)


def numeric(rule):
    return f'role = "numeric", numeric = "{rule}"'


SOUND = [
    (shares, numeric("raw")),
    (shares, numeric("quantile")),
    (shares, numeric("standard")),
    (lambda y: 5 * y + 7 * shares(y), numeric("log1p")),
    (lambda _: np.random.default_rng(1).integers(0, 400, ROWS), 'role = "categorical"'),
]


@pytest.mark.parametrize(("values", "keys"), SOUND)
def test_no_warning_without_a_reason(made, values, keys):
    assert made(values, keys)[0] == []


def test_a_rule_that_loses_a_column(made):
    """Numbers below 1 are all in bucket 0, which counts as missing."""
    (text,), manifest = made(shares, numeric("log_bucket"))
    n = manifest.rows.train
    assert text == f"the rule log_bucket leaves no id in all {n:,} training rows"


def test_a_rule_that_loses_most_of_a_column(made):
    (text,), manifest = made(
        lambda _: np.where(np.arange(ROWS) % 4 == 0, 40, 0.5), numeric("log_bucket")
    )
    assert "of which 0 have no value" in text
    lost = int(text.split()[4].replace(",", ""))
    assert 0.7 < lost / manifest.rows.train < 0.8


@pytest.mark.parametrize(
    ("values", "keys", "expected"),
    [
        (lambda y: y * 0 + 7, 'role = "categorical"', "one value in all {n:,} training rows"),
        (lambda y: [""] * len(y), 'role = "categorical"', "no value in all {n:,} training rows"),
        (lambda y: [""] * len(y), numeric("raw"), "no value in all {n:,} training rows"),
        (lambda y: y * 0 + 7, numeric("raw"), "the rule raw leaves one value, 7, in all {n:,} tra"),
        (lambda y: y * 0 + 7, numeric("minmax"), "the rule minmax leaves one value, 0, in all"),
        (lambda y: y * 0 + 7, numeric("quantile"), "the rule quantile leaves one id in all {n:,}"),
        # The cuts all fall on the highest value, and no training row lies above it.
        (
            lambda y: np.where(np.arange(len(y)) % 50 == 0, 0, 3),
            numeric("quantile"),
            "the rule quantile leaves one id in all {n:,} training rows",
        ),
        (
            lambda y: np.arange(len(y)),
            'role = "categorical"',
            "{n:,} values in {n:,} training rows with a value, nearly one a row",
        ),
        (
            lambda y: [i % 9 if i % 3 == 0 else "" for i in range(len(y))],
            'role = "categorical"',
            "missing in ",
        ),
        (lambda y: 2.5 * y - 7, numeric("raw"), "alone has AUC 1.0000 on {n:,} training rows"),
        (lambda y: -3.0 * y, numeric("minmax"), "alone has AUC 0.0000 on {n:,} training rows"),
        # Whether there is a value at all tells the label.
        (lambda y: [4 if one else "" for one in y], numeric("log1p"), "alone has AUC 1.0000"),
        (
            lambda y: [f"v{i % 7}{one}" for i, one in enumerate(y)],
            'role = "categorical"',
            "its 14 values that repeat tell the label in {n:,} of {n:,} training rows",
        ),
    ],
)
def test_a_column_of_no_use_or_too_much(made, values, keys, expected):
    (text,), manifest = made(values, keys)
    assert expected.format(n=manifest.rows.train) in text


def test_ids_of_two_rows_each_tell_nothing_of_others(made):
    """One value in two rows: half of the values have two clicks or two rows without, by chance."""
    assert made(lambda y: np.arange(len(y)) // 6, 'role = "categorical"')[0] == []


def test_warnings_are_kept_and_shown(made, tmp_path, capsys):
    (text,), _ = made(shares, numeric("log_bucket"))
    assert exit_code(["show", "dataset", "log", "--data-dir", str(tmp_path / "data")]) == 0
    assert f"warning: `x`: {text}" in capsys.readouterr().out
    page = tmp_path / "page.html"
    arguments = ["show", "dataset", "log", "--data-dir", str(tmp_path / "data")]
    assert exit_code([*arguments, "--html", str(page)]) == 0
    assert "the rule log_bucket leaves no id" in page.read_text()

"""Cards of one's own: by path or name, faults at their lines, and tables that carry them."""

import json
from pathlib import Path

import numpy as np
import pytest

from prime_bench.base.errors import UsageError
from prime_bench.cli import complete
from prime_bench.cli.main import exit_code
from prime_bench.data.card import CARDS_VARIABLE, read_card
from prime_bench.data.manifest import Manifest, carried_cards, resolve
from prime_bench.data.prepare import prepare
from prime_bench.data.table import PreparedTable
from prime_bench.recipe.file import load_recipe
from prime_bench.schedule.plan import table_specs_of

CARD = """\
name = "mylog"
title = "A log of ours"
kind = "log"
columns = [
  { name = "click", role = "label" },
  { name = "user", role = "categorical" },
  { name = "price", role = "numeric" },
]

[defaults]
numeric = "log1p"
"""
RECIPE = """\
schema = 1
title = "ours"
seeds = [1]
arms = ["dense"]
[dataset.mylog]
card = "cards/mylog.toml"
min_count = 2
[backbone.DNN]
"""


@pytest.fixture
def log(tmp_path):
    random = np.random.default_rng(3)
    rows = [f"{random.integers(2)},u{random.integers(9)},{random.random():.3f}" for _ in range(300)]
    path = tmp_path / "mylog.csv"
    path.write_text("\n".join(["click,user,price", *rows]) + "\n")
    return path


@pytest.fixture
def card(tmp_path):
    path = tmp_path / "cards" / "mylog.toml"
    path.parent.mkdir()
    path.write_text(CARD)
    return path


@pytest.mark.parametrize(
    ("name", "settings", "digest"),
    [
        ("avazu", {}, "97af566c15bc2acf"),
        ("criteo", {}, "12a90bd7e0cc0c0d"),
        ("criteo", {"numeric": "minmax"}, "f8a09994cf9a2b6d"),
        ("avazu-raw", {"split": "time"}, "301e33946a036d9c"),
        ("synthetic", {}, "dd71c8fc97fc32e8"),
        ("synthetic", {"shape": "criteo", "numeric": "log1p"}, "5c07efe4e0106d14"),
    ],
)
def test_digests_of_bundled_tables_stay(name, settings, digest):
    assert resolve(name, settings).digest.startswith(digest)


def test_a_card_by_its_path(tmp_path, card, log, monkeypatch):
    spec = resolve(str(card), {"min_count": 2})

    manifest = prepare(spec, data_dir=tmp_path / "data", source=log)

    assert spec.settings.numeric == "log1p"
    assert (manifest.dataset, manifest.verified, manifest.card) == ("mylog", "own", spec.card)
    assert manifest.notes[0] == "own data"
    assert Manifest.read(spec.folder(tmp_path / "data")) == manifest
    assert resolve("mylog.toml", {"min_count": 2}, folder=card.parent).digest == spec.digest
    monkeypatch.setenv(CARDS_VARIABLE, str(card.parent))
    assert resolve("mylog", {"min_count": 2}).digest == spec.digest


def test_a_recipe_names_a_card_relative_to_itself(tmp_path, card, log, monkeypatch):
    (tmp_path / "ours.toml").write_text(RECIPE)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    data = tmp_path / "data"

    spec = table_specs_of(load_recipe("../ours.toml"))["mylog"]
    assert spec.file == Path("../cards/mylog.toml")
    prepare(spec, data_dir=data, source=log)

    # Without the file, the card of the table stands in for it.
    card.unlink()
    assert table_specs_of(load_recipe("../ours.toml"), data_dir=data)["mylog"].digest == spec.digest
    with pytest.raises(UsageError, match=r"ours.toml:5: .*mylog.toml: there is no such card"):
        table_specs_of(load_recipe("../ours.toml"))
    # Two cards of its name could both be meant.
    other = card.parent / "mylog.toml"
    other.write_text(CARD.replace("log1p", "raw"))
    prepare(resolve(str(other), {}), data_dir=data, source=log)
    other.unlink()
    assert len(carried_cards(data)) == 2
    with pytest.raises(UsageError, match="2 different ones of that name"):
        table_specs_of(load_recipe("../ours.toml"), data_dir=data)


@pytest.mark.parametrize(
    ("old", "new", "faults"),
    [
        (
            '"user", role',
            '"user", rol',
            ["6: columns.1.role: missing", "6: columns.1.rol: unknown key; did you mean `role`?"],
        ),
        ('kind = "log"', 'kind = "logs"', ["3: kind: input should be 'splits', 'log' or"]),
        ('kind = "log"', 'kind = "generated"', ["3: kind: only the bundled card"]),
        ('name = "mylog"', 'name = "criteo"', ["1: name: `criteo` is a bundled data set"]),
        ('name = "mylog"', 'name = "../x"', ["1: name: string should match pattern"]),
        ('"numeric" },', '"numbers" },', ["7: columns.2.role: input should be 'label'"]),
        ('numeric = "log1p"', 'numerik = "raw"', ["11: defaults.numerik: unknown key; did you me"]),
        ('numeric = "log1p"', 'split = "mine"', ["11: defaults.split: input should be"]),
        (
            '"label"',
            '"dropped"',
            ["one label column, here are none: give the column of clicks (0 "],
        ),
        ('"price"', '"user"', ["two columns have one name"]),
        ('kind = "log"', "kind = log", ["not valid TOML"]),
        (
            '"categorical"',
            '"categorical", numeric = "raw"',
            ["6: columns.1: `numeric` is a key of"],
        ),
        ('"numeric" }', '"numeric", numeric = "raw", bins = 4 }', ["7: columns.2: `bins` has an"]),
    ],
)
def test_a_fault_has_its_line(card, old, new, faults):
    card.write_text(CARD.replace(old, new))
    with pytest.raises(UsageError) as caught:
        read_card(card)
    lines = caught.value.message.splitlines()
    assert len(lines) == len(faults)
    for line, fault in zip(lines, faults, strict=True):
        assert line.startswith(str(card))
        assert fault in line


def test_a_rule_of_a_column_shapes_the_table(card):
    own = {resolve(str(card), {}).digest}
    for keys in ('numeric = "minmax"', 'numeric = "quantile"', 'numeric = "quantile", bins = 5'):
        card.write_text(CARD.replace('"numeric" }', f'"numeric", {keys} }}'))
        own.add(resolve(str(card), {}).digest)
        with pytest.raises(UsageError, match="numeric: every numeric column of mylog has a rule"):
            resolve(str(card), {"numeric": "raw"})
    assert len(own) == 4
    with pytest.raises(UsageError, match="bins: has an effect with"):
        resolve(str(card), {"bins": 7})
    card.write_text(CARD)
    assert resolve(str(card), {"numeric": "quantile", "bins": 7}).settings.bins == 7


@pytest.mark.usefixtures("log")
def test_what_is_no_card(tmp_path, card, monkeypatch):
    monkeypatch.chdir(card.parent)
    with pytest.raises(UsageError, match=r"no data set `mylog`") as caught:
        resolve("mylog", {})
    assert caught.value.hint == "for the card mylog.toml say `mylog.toml`"
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="is no card") as caught:
        resolve("mylog.csv", {})
    assert "`prime-bench card mylog.csv`" in caught.value.hint
    monkeypatch.setenv(CARDS_VARIABLE, str(card.parent))
    with pytest.raises(UsageError, match="no data set `mylok`; did you mean `mylog`"):
        resolve("mylok", {})


@pytest.mark.usefixtures("card")
def test_prepare_says_that_the_file_has_changed(tmp_path, log, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    arguments = ["prepare", "cards/mylog.toml", "--from", "mylog.csv"]
    assert exit_code(arguments) == 0
    out, _ = capsys.readouterr()
    assert "own data" in out
    assert "unverified" not in out
    with log.open("a") as file:
        file.write("1,u1,0.5\n")

    assert exit_code([*arguments, "--json"]) == 0
    out, err = capsys.readouterr()
    assert "was prepared from other" in err
    content = json.loads(out)
    assert (content["verified"], sum(content["rows"].values())) == ("own", 301)
    # Nothing to read, nothing to say: the table is used as it was prepared.
    log.unlink()
    assert exit_code(arguments[:2]) == 0
    assert capsys.readouterr().err == ""
    assert exit_code(["show", "dataset", "cards/mylog.toml"]) == 0
    assert "own data" in capsys.readouterr().out


def test_own_cards_are_listed_and_completed(tmp_path, card, log, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    prepare(resolve(str(card), {}), data_dir=tmp_path / "data", source=log)
    folder = tmp_path / "further"
    folder.mkdir()
    (folder / "other.toml").write_text(CARD.replace("mylog", "another").replace("A log", "More"))
    (folder / "broken.toml").write_text("name = 3")
    monkeypatch.setenv(CARDS_VARIABLE, str(folder))

    assert exit_code(["ls", "datasets", "--json"]) == 0

    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)["datasets"]}
    assert rows["mylog"]["title"] == "A log of ours"
    assert len(rows["mylog"]["tables"]) == 1
    assert rows["other"]["title"] == "More of ours"
    assert "broken" not in rows
    names = {item.value for item in complete.datasets(None, None, "")}
    assert names >= {"avazu", "other"}
    assert [item.value for item in complete.datasets(None, None, "cards/m")] == ["cards/mylog.toml"]


def test_columns_may_have_names_that_files_may_not(tmp_path, card, log):
    names = ["a/b", "../up", "50%", "C:*?", "caf\u00e9 au lait"]
    text = "".join(f"  {{ name = {json.dumps(name)}, role = 'categorical' }},\n" for name in names)
    card.write_text(CARD.replace("]\n", f"{text}]\n", 1))
    lines = log.read_text().splitlines()
    values = ",".join("xyzvw")
    log.write_text(
        "\n".join([f"{lines[0]},{','.join(names)}", *(f"{x},{values}" for x in lines[1:])])
    )
    spec = resolve(str(card), {})

    prepare(spec, data_dir=tmp_path / "data", source=log)

    table = PreparedTable.open(spec.folder(tmp_path / "data"))
    table.check_contents()
    read = [table.values(field)[1] for field in table.schema.categorical if field.name in names]
    assert read == list("xyzvw")
    made = [path.name for path in (table.path / "vocabulary").iterdir()]
    stems = ["user", "a%2Fb", "..%2Fup", "50%25", "C%3A%2A%3F", "caf\u00e9 au lait"]
    assert sorted(made) == sorted(f"{stem}.txt" for stem in stems)

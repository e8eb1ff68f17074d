import time
from pathlib import Path

import pytest

from prime_bench.base.errors import UsageError
from prime_bench.base.files import bundled_folder
from prime_bench.data.card import read_card
from prime_bench.recipe.file import find_recipe, load_recipe
from prime_bench.recipe.study import load_study

FAULTY = """\
schema = 1
title = "Faulty"
sedes = [1]
seeds = [1, 2, 1]
arms = ["dense", "prmie", "narrow", "lost"]

[dataset.synthetic]

[training]
batch_size = "4096"
max_epoch = 3

[backbone.DNN]
hidden_units = [400, 400.5]
net_dropout = 0.1

[backbone.DNN.on.synthetic]
net_dropout = 2

[backbone.DNN.on.syntetic]
net_dropout = 0.2

[backbone.DCNv3]

[arm.narrow]
plugin = "prime"
ranks = 2

[arm.lost]
plugin = "apgg"

[arm.spare]
plugin = "prime"

[report]
family = [
  ["prime", "dense"]
]
"""
EXPECTED = [  # line, and the message on it
    (3, "sedes: unknown key; did you mean `seeds`?"),
    (4, "seeds: 1 is listed 2 times"),
    (5, "arms: unknown arm `prmie`; did you mean `prime`?"),
    (10, "training.batch_size: input should be a valid integer"),
    (11, "training.max_epoch: unknown key; did you mean `max_epochs`?"),
    (20, "backbone.DNN.on.syntetic: the recipe has no such data set; did you mean `synthetic`?"),
    (23, "backbone.DCNv3: unknown backbone; did you mean `DCNv2`?"),
    (27, "arm.narrow.ranks: unknown key; did you mean `rank`?"),
    (30, "arm.lost.plugin: unknown plug-in `apgg`"),
    (32, "arm.spare: not in `arms`, so it would never run"),
    (36, "report.family: `prime` is not in `arms`"),
]


def _message(path, changes=()):
    with pytest.raises(UsageError) as caught:
        load_recipe(path, changes=changes)
    return caught.value.message


def test_all_faults_of_a_file_come_in_one_message_with_line_and_key(write):
    path = write(FAULTY)

    lines = _message(path).splitlines()

    assert len(lines) == len(EXPECTED)
    for number, text in EXPECTED:
        assert any(line.startswith(f"{path}:{number}: {text}") for line in lines), (number, lines)


def test_a_backbones_fault_is_where_its_key_was_set(write, sound):
    on = "\n[backbone.DNN.on.synthetic]\nnet_dropout = 2\n"
    path = write(sound.replace("hidden_units = [8]", "hidden_units = [8, 0.5]", 1) + on)

    lines = _message(path).splitlines()

    assert len(lines) == 2
    assert lines[0].startswith(f"{path}:14: backbone.DNN.hidden_units.1: ")
    assert lines[1].startswith(f"{path}:20: backbone.DNN.on.synthetic.net_dropout: ")


BROKEN = {  # a fault of the file's frame must not hide that of DNN's key, nor bring others along
    "schema": ("schema = 1", "schema = 2"),
    "no schema": ("schema = 1", ""),
    "title": ('title = "Small"', "title = 3"),
    "no title": ('title = "Small"', ""),
    "seed": ("[7, 3]", "[7, true]"),
    "seeds": ("[7, 3]", "7"),
    "no seeds": ("seeds = [7, 3]", ""),
    "arm": ('"prime"]', "3]"),
    "arms": ('["dense", "prime"]', '"dense"'),
    "empty arms": ('["dense", "prime"]', "[]"),
    "training": ("max_epochs = 1", "max_epochs = 0"),
    "dataset": ("[dataset.synthetic]\nrows = 1000", "[dataset]\nsynthetic = 1"),
    "no dataset": ("[dataset.synthetic]\nrows = 1000", ""),
    "backbone": ("[backbone.DCNv2]\nparallel_dnn_hidden_units = [8]", "[backbone]\nDCNv2 = 1"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_one_fault_hides_no_other(write, sound, case):
    old, new = BROKEN[case]
    assert old in sound
    text = sound.replace(old, new).replace("hidden_units = [8]", "hidden_units = [0]", 1)
    on = '\n[backbone.DNN.on.synthetic]\nnet_dropout = 0.1\n[arm.prime]\nplugin = "prime"\n'
    own = '\n[report]\nfamily = [["prime", "dense"]]\n'

    lines = _message(write(text + on + own)).splitlines()

    assert len(lines) == 2, lines
    assert sum("backbone.DNN.hidden_units.0: " in line for line in lines) == 1


def test_notes_of_a_report_are_texts(write, sound):
    path = write(sound + '[report]\nnotes = ["Read this", " ", 3]\n')

    first, second = _message(path).splitlines()
    assert "report.notes.1: string should have at least 1 character" in first
    assert "report.notes.2: input should be a valid string" in second


def test_no_backbone_is_one_fault(write, sound):
    assert _message(write(sound.partition("[backbone.DNN]")[0])).endswith("backbone: missing")


@pytest.mark.parametrize(
    "plugin", ["3", "true", '["prime"]', '{ name = "prime" }', '"primes"'], ids=str
)
def test_a_plugin_that_is_no_name_is_a_fault(write, sound, plugin):
    path = write(sound.replace('"prime"', '"mine"') + f"\n[arm.mine]\nplugin = {plugin}\n")

    assert f"{path}:20: arm.mine.plugin: unknown plug-in" in _message(path)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("schema = ", "not valid TOML"),
        ("a = 1\na = 2", "not valid TOML"),
        ("a = " + "9" * 5000, "not valid TOML"),
        ("a = " + "[" * 5000, "not valid TOML"),
        (b"title = '\xff'", "cannot read the recipe"),
        (b"\x00", "not valid TOML"),
        ("", "schema: missing"),
    ],
)
def test_a_file_that_is_no_recipe_is_named(tmp_path, text, wanted):
    path = tmp_path / "x.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())

    message = _message(path)

    assert message.startswith(f"{path}: ")
    assert wanted in message


@pytest.mark.parametrize(
    ("text", "wanted", "hint"),
    [
        ("columns = []", "x.toml: is a card, not a recipe", "`prime-bench prepare {x} --from LOG`"),
        ("recipes = []", "x.toml: is a study, not a recipe", "`prime-bench study {x}`"),
    ],
)
def test_a_file_of_another_noun_is_told_with_its_command(tmp_path, text, wanted, hint):
    path = tmp_path / "x.toml"
    path.write_text(text)
    with pytest.raises(UsageError) as error:
        load_recipe(path)
    assert error.value.message.endswith(wanted)
    assert hint.format(x=path) in error.value.hint


@pytest.mark.parametrize(("read", "noun"), [(read_card, "card"), (load_study, "study")])
def test_a_recipe_is_no_card_and_no_study(write, sound, read, noun):
    path = write(sound)
    with pytest.raises(UsageError, match=f"is a recipe, not a {noun}") as error:
        read(path)
    assert f"`prime-bench run {path}`" in error.value.hint


def test_a_log_in_place_of_a_recipe_is_told_what_a_recipe_is(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("click,user\n1,2\n")
    with pytest.raises(UsageError, match="not valid TOML") as error:
        load_recipe(path)
    assert error.value.hint == "a recipe is a file in TOML, whose name ends in .toml"


def test_the_mark_of_a_windows_editor_is_read_over(tmp_path, sound):
    path = tmp_path / "marked.toml"
    path.write_bytes(b"\xef\xbb\xbf" + sound.replace("\n", "\r\n").encode())

    assert len(load_recipe(path).job_specs()) == 8


# ---- finding


@pytest.mark.parametrize(
    "argument", ["main13", "main13.toml", "recipes/main13.toml", "recipes/main13"]
)
def test_bundled_recipes_are_found_from_any_folder(tmp_path, monkeypatch, argument):
    monkeypatch.chdir(tmp_path)

    assert find_recipe(argument) == bundled_folder("recipes") / "main13.toml"


def test_a_file_of_the_user_comes_before_a_bundled_one(tmp_path, monkeypatch, sound):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "recipes").mkdir()
    (tmp_path / "recipes" / "main13.toml").write_text(sound)
    (tmp_path / "quick").mkdir()

    assert load_recipe("recipes/main13.toml").title == "Small"
    assert find_recipe("quick") == bundled_folder("recipes") / "quick.toml"


@pytest.mark.parametrize(
    ("argument", "wanted"),
    [
        ("main31", "main31: no such recipe; did you mean `main13`?"),
        ("elsewhere/main13.toml", "elsewhere/main13.toml: no such recipe; did you mean `main13`?"),
        ("own.tom", "own.tom: no such recipe; did you mean `own.toml`?"),
        ("folder/owm.toml", "folder/owm.toml: no such recipe; did you mean `folder/own.toml`?"),
        ("folder", "folder: a folder, not a recipe"),
        ("", ".: a folder, not a recipe"),
    ],
)
def test_a_recipe_that_is_not_there(tmp_path, monkeypatch, argument, wanted):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    for folder in (tmp_path, tmp_path / "folder"):
        (folder / "own.toml").write_text("")

    assert _message(argument) == wanted


# ---- --set


@pytest.mark.parametrize(
    ("change", "get", "value"),
    [
        ("training.max_epochs=5", lambda r: r.training.max_epochs, 5),
        ("training.learning_rate = 1e-4", lambda r: r.training.learning_rate, 1e-4),
        ("training.loss=logit", lambda r: r.training.loss, "logit"),
        ('training.loss="logit"', lambda r: r.training.loss, "logit"),
        ("title=a = b", lambda r: r.title, "a = b"),
        ("seeds=[5]", lambda r: r.seeds, [5]),
        ("arms=['dense']", lambda r: [arm.name for arm in r.arms], ["dense"]),
        ("arm.prime.rank=2", lambda r: r.arms[1].settings.rank, 2),
        ("dataset.synthetic.rows=5000", lambda r: r.datasets["synthetic"]["rows"], 5000),
        (
            "backbone.DNN.batch_norm=true",
            lambda r: r.backbones["DNN"]["synthetic"].batch_norm,
            True,
        ),
        (
            "backbone.DNN.on.synthetic.hidden_units=[3]",
            lambda r: r.backbones["DNN"]["synthetic"].hidden_units,
            (3,),
        ),
        (
            "training.embedding_dim=6",
            lambda r: r.backbones["DCNv2"]["synthetic"].embedding_dim,
            6,
        ),
    ],
)
def test_set_changes_one_key_with_the_type_that_was_written(write, sound, change, get, value):
    path = write(sound)

    assert get(load_recipe(path)) != value
    assert get(load_recipe(path, changes=[change])) == value


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        ("training.max_epochs", "--set training.max_epochs: expected KEY=VALUE"),
        ("=3", "--set =3: expected KEY=VALUE"),
        ("training..x=3", "--set training..x=3: expected KEY=VALUE"),
        ("title.x=3", "--set title.x=3: `title` is a value, not a table"),
        ("seeds.0=3", "--set seeds.0=3: `seeds` is a value, not a table"),
        ("training=3", "--set training: "),
        (
            "training.max_epoch=3",
            "--set training.max_epoch: unknown key; did you mean `max_epochs`?",
        ),
        ("training.max_epochs=three", "--set training.max_epochs: input should be a valid integer"),
        ("training.learning_rate=nan", "--set training.learning_rate: input should be a finite"),
        (
            "backbone.DNN.hidden_unit=[3]",
            "--set backbone.DNN.hidden_unit: unknown key; did you mean",
        ),
        (
            "backbone.DNM.batch_norm=true",
            "--set backbone.DNM.batch_norm=true: the recipe has no backbone `DNM`; did you mean",
        ),
        (
            "dataset.avazu.vocabulary=train",
            "--set dataset.avazu.vocabulary=train: the recipe has no data set `avazu`",
        ),
        (
            f"training.max_epochs={'9' * 5000}",
            "--set training.max_epochs: input should be a valid integer",
        ),
        (
            f"training.max_epochs={'[' * 5000}",
            "--set training.max_epochs: input should be a valid integer",
        ),
        ("training.loss=\udcff", "--set 'training.loss=\\udcff': not valid UTF-8"),
    ],
)
def test_an_error_names_the_faulty_change_and_not_the_file(write, sound, change, wanted):
    path = write(sound)

    message = _message(path, [change])

    assert message.startswith(wanted)
    assert str(path) not in message


def test_faults_of_changes_and_file_come_together(write, sound):
    path = write(sound.replace("max_epochs = 1", "max_epochs = 0"))

    lines = _message(path, ["training.batch_size=1", "seeds=[]"]).splitlines()

    assert [line.partition(": ")[0] for line in sorted(lines)] == [
        "--set seeds",
        "--set training.batch_size",
        f"{path}:11",
    ]


@pytest.mark.parametrize(
    ("old", "new", "key"),
    [
        ("[dataset.synthetic]\nrows = 1000", "[dataset]", "dataset"),
        ("[dataset.synthetic]\nrows = 1000", "[[dataset]]", "dataset"),
        ("[training]", "[[training]]", "training"),
        ("[training]", "[arm]\n[training]", None),
    ],
)
def test_a_table_that_is_wrong_as_a_whole_is_one_fault(write, sound, old, new, key):
    assert old in sound
    path = write(sound.replace(old, new))
    if key is None:
        assert load_recipe(path).arms
        return

    with pytest.raises(UsageError) as caught:
        load_recipe(path)

    (only,) = caught.value.message.splitlines()
    assert only.partition(f": {key}: ")[1]


# ---- limits


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"[{'.'.join('a' * 3000)}]", "nested more than 20 deep"),
        (f"a = {'[' * 300}{']' * 300}", "nested more than 20 deep"),
        ("\n".join(f"key{i} = 1" for i in range(9000)), "faults more"),
        ("\n".join(f"key{i} = 1" for i in range(11_000)), "more than 10,000 keys"),
        (f"[{'.'.join('a' * 100_000)}]", "at most 262,144 bytes, and a line 10,000"),
        ("# x\n" * 100_000, "at most 262,144 bytes"),
        ("\n".join(f"[arm.a{i}]" for i in range(3000)), "plugin` is missing"),
        ("\n".join(f"[dataset.a{i}]" for i in range(3000)), None),
        ("\n".join(f"[backbone.a{i}]" for i in range(3000)), "unknown backbone"),
        (f"[backbone.AFM.on]\n{chr(10).join(f'a{i} = {{}}' for i in range(3000))}", "no such data"),
    ],
    ids=[
        *("deep table", "deep list", "wide", "wider", "long line", "long file"),
        *("arms", "data sets", "backbones", "on"),
    ],
)
def test_a_deep_or_wide_file_is_refused_at_once(
    tmp_path: Path, text: str, said: str | None
) -> None:
    """What costs more than its length is bounded: seconds of the processor, not minutes."""
    seeds = "[1]" if said else "[1, 2, 3, 4, 5, 6, 7, 8, 9]"
    arms = [f"a{i}" for i in range(3000)] if "arm.a" in text else ["dense", "prime"]
    start = time.process_time()
    head = f'schema = 1\ntitle = ""\nseeds = {seeds}\narms = ['
    path = tmp_path / "a.toml"
    path.write_text("\n".join([head, *(f'"{arm}",' for arm in arms), "]", text, ""]))
    if "dataset." not in text:
        path.write_text(path.read_text() + "[dataset.avazu]\n[backbone.DNN]\n")
    else:
        backbones = "\n".join(f"[backbone.{name}]" for name in ("DNN", "AFM", "NFM", "DCNv2"))
        path.write_text(path.read_text() + backbones)
    with pytest.raises(UsageError) as error:
        load_recipe(path)
    assert (said or "216,000 jobs, at most 200,000") in str(error.value)
    assert len(str(error.value)) < 30_000
    assert time.process_time() - start < 20

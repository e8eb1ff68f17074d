"""The group AUC by a column of the log: tables that have groups, and what a record says of them."""

import json
from fractions import Fraction

import numpy as np
import pytest

from prime_bench.base.errors import UsageError
from prime_bench.catalog import BACKBONES
from prime_bench.data.manifest import Manifest, resolve
from prime_bench.data.prepare import prepare
from prime_bench.data.table import PreparedTable
from prime_bench.recipe.job import Job, JobRequest
from prime_bench.settings.training import TrainSpec
from prime_bench.store.predictions import read_predictions
from prime_bench.store.record import RunRecord
from prime_bench.store.runs import Runs
from prime_bench.training.recompute import check_metrics, check_predictions
from prime_bench.worker import run_job

CARD = """\
name = "mylog"
title = "A log of ours"
kind = "log"
columns = [
  {{ name = "click", role = "label" }},
  {{ name = "item", role = "categorical" }},
  {{ name = "user", {role} }},
  {{ name = "price", role = "numeric" }},
  {{ name = "fold", role = "split" }},
]

[defaults]
split = "column"
min_count = 30
"""
ROWS = 600
FOLDS = ("train", "valid", "test")


@pytest.fixture
def rows():
    """Item, user, price, fold and label of each row; some rows have no user."""
    random = np.random.default_rng(5)
    users = [f"a-user-with-a-long-name-{i}" if i % 4 else f"u{i}" for i in range(40)]
    return [
        (
            f"i{random.integers(9)}",
            str(random.choice([*users, "", ""])),
            f"{random.random():.3f}",
            FOLDS[int(np.searchsorted([0.5, 0.8], random.random()))],
            int(random.random() < 0.4),
        )
        for _ in range(ROWS)
    ]


@pytest.fixture
def log(tmp_path, rows):
    lines = [f"{label},{item},{user},{price},{fold}" for item, user, price, fold, label in rows]
    path = tmp_path / "mylog.csv"
    path.write_text("\n".join(["click,item,user,price,fold", *lines]) + "\n")
    return path


def table_of(tmp_path, log, *, role='role = "dropped"', **settings):
    card = tmp_path / "mylog.toml"
    card.write_text(CARD.format(role=role))
    spec = resolve(str(card), settings)
    prepare(spec, data_dir=tmp_path / "data", source=log)
    return spec.folder(tmp_path / "data")


@pytest.mark.parametrize(
    "role",
    [
        'role = "dropped"',
        'role = "categorical"',
        'role = "group"',
        'role = "group", also = "categorical"',
    ],
)
def test_each_value_is_a_group_whatever_the_vocabulary(tmp_path, log, rows, role):
    # No user has the 30 rows that an id needs.
    folder = table_of(tmp_path, log, role=role, gauc_by="user")
    table = PreparedTable.open(folder)
    table.check_contents()
    found = {}
    for fold in FOLDS:
        groups = table.split(fold).groups
        users = [user for _, user, _, name, _ in rows if name == fold]
        assert len(groups) == len(users)
        for user, group in zip(users, groups.tolist(), strict=True):
            assert found.setdefault(user, group) == group
    assert found[""] == 0
    assert sorted(found.values()) == list(range(len(found)))
    fields = [field.name for field in table.schema.fields]
    assert ("user" in fields) == ("categorical" in role)
    assert set(table.manifest.missing) == set(fields)
    # Neither labels nor ids depend on it.
    plain = PreparedTable.open(table_of(tmp_path, log, role=role))
    assert plain.split("test").groups is None
    assert plain.path != folder
    for fold in FOLDS:
        assert np.array_equal(plain.split(fold).ids, table.split(fold).ids)
        assert np.array_equal(plain.split(fold).numerics, table.split(fold).numerics)
    for name, digest in plain.manifest.outputs.items():
        assert table.manifest.outputs[name] == digest


def test_groups_are_the_same_however_the_file_is_read(tmp_path, log, monkeypatch):
    folder = table_of(tmp_path, log, gauc_by="user")
    monkeypatch.setattr("prime_bench.data.prepare.Reader", _reading_little)
    other = table_of(tmp_path / "other", log, gauc_by="user")
    assert Manifest.read(other).fingerprint == Manifest.read(folder).fingerprint


def _reading_little(*args, **options):
    from prime_bench.data.raw.reader import Reader

    return Reader(*args, **options, block_bytes=700)


@pytest.fixture(autouse=True)
def _folders(tmp_path):
    (tmp_path / "other").mkdir()


@pytest.mark.parametrize(
    ("column", "fault"),
    [
        ("usr", "mylog has no column `usr`; did you mean `user`"),
        ("click", "`click` is the label"),
        ("price", "`price` is numeric"),
    ],
)
def test_columns_that_have_no_groups(tmp_path, log, column, fault):
    with pytest.raises(UsageError, match=f"gauc_by: {fault}"):
        table_of(tmp_path, log, gauc_by=column)


def test_an_empty_name_switches_the_default_of_a_card_off(tmp_path):
    card = tmp_path / "mylog.toml"
    card.write_text(CARD.format(role='role = "dropped"'))
    plain = resolve(str(card), {})
    card.write_text(card.read_text() + 'gauc_by = "user"\n')
    assert resolve(str(card), {}).settings.gauc_by == "user"
    assert resolve(str(card), {}).digest != plain.digest
    off = resolve(str(card), {"gauc_by": ""})
    assert off.digest == plain.digest
    assert "--gauc-by ''" in off.prepare_command()


def test_synthetic_logs_have_groups_too(tmp_path):
    spec = resolve("synthetic", {"rows": 500, "gauc_by": "device_model"})
    prepare(spec, data_dir=tmp_path)
    table = PreparedTable.open(spec.folder(tmp_path))
    column = [field.name for field in table.schema.categorical].index("device_model")
    for fold in FOLDS:
        split = table.split(fold)
        # The vocabulary has every value of this log, so each id is a group.
        pairs = set(zip(split.ids[:, column].tolist(), split.groups.tolist(), strict=True))
        assert len(pairs) == len({a for a, _ in pairs}) == len({b for _, b in pairs})
    with pytest.raises(UsageError, match="no column `device_modle`; did you mean"):
        resolve("synthetic", {"gauc_by": "device_modle"})


def oracle(rows, probabilities, fold):
    """Group AUC, and groups and rows of one class, pair by pair from the rows of the log."""
    own = [(user, label) for _, user, _, name, label in rows if name == fold]
    total, used, left_out, left_rows = Fraction(0), 0, 0, 0
    for user in sorted({user for user, _ in own if user}):
        mine = [
            (label, p)
            for (name, label), p in zip(own, probabilities.tolist(), strict=True)
            if name == user
        ]
        ones, zeros = ([p for label, p in mine if label == y] for y in (1, 0))
        if not ones or not zeros:
            left_out, left_rows = left_out + 1, left_rows + len(mine)
            continue
        halves = sum(2 * (a > b) + (a == b) for a in ones for b in zeros)
        total += len(mine) * Fraction(halves, 2 * len(ones) * len(zeros))
        used += len(mine)
    return float(total / used), left_out, left_rows


def request_on(folder, runs, **changes):
    job = Job(
        fingerprint=Manifest.read(folder).fingerprint,
        backbone="DNN",
        backbone_settings=BACKBONES["DNN"].settings.parse({"hidden_units": [4]}, where="").plain(),
        plugin="dense",
        plugin_settings={},
        training=TrainSpec.parse({"batch_size": 64, "max_epochs": 1}, where=""),
        seed=1,
    )
    return JobRequest(
        job=job,
        dataset="mylog",
        arm="dense",
        table=str(folder),
        runs=str(runs),
        device="cpu",
        threads=1,
        keep_predictions=True,
        **changes,
    )


def test_a_record_has_the_group_auc_of_the_raw_rows(tmp_path, log, rows):
    folder, runs = table_of(tmp_path, log, gauc_by="user"), tmp_path / "runs"
    record = run_job(request_on(folder, runs), lambda _: None)
    kept = read_predictions(runs / record.job_id)
    for fold in ("valid", "test"):
        score = record.result.scores[fold]
        gauc, left_out, left_rows = oracle(rows, kept[fold][1], fold)
        assert score.gauc == pytest.approx(gauc, abs=1e-12)
        assert score.groups.column == "user"
        assert (score.groups.one_class_groups, score.groups.one_class_rows) == (left_out, left_rows)
        without = sum(name == fold and not user for _, user, _, name, _ in rows)
        assert score.groups.rows_without_group == without
    written = json.loads((runs / record.job_id / "test.json").read_text())
    assert written["gauc"] == record.result.test.gauc
    (again,) = Runs(runs).readable()[0]
    assert again == record
    data = tmp_path / "data"
    assert not list(check_predictions([record], Runs(runs), data_dir=data))
    assert not list(check_metrics([record], Runs(runs), data_dir=data, device="cpu"))
    # Twice what predictions of another device may differ by.
    lower = record.result.test.model_copy(update={"gauc": record.result.test.gauc - 2e-5})
    forged = record.model_copy(update={"result": record.result.model_copy(update={"test": lower})})
    for found in (
        check_metrics([forged], Runs(runs), data_dir=data, device="cpu"),
        check_predictions([forged], Runs(runs), data_dir=data),
    ):
        assert [item.what[:11] for item in found] == ["test gauc: "]
    # Without the table the groups of the rows are not known.
    assert not list(check_predictions([forged], Runs(runs), data_dir=tmp_path))


def test_groups_change_no_other_number(tmp_path, log):
    folders = [table_of(tmp_path, log), table_of(tmp_path, log, gauc_by="user")]
    plain, grouped = (
        run_job(request_on(folder, tmp_path / f"runs-{i}"), lambda _: None)
        for i, folder in enumerate(folders)
    )
    assert plain.result.test.gauc is None
    assert plain.result.test.groups is None
    for split in ("valid", "test"):
        fields = {"gauc": None, "groups": None}
        assert grouped.result.scores[split].model_copy(update=fields) == plain.result.scores[split]
    assert isinstance(plain, RunRecord)
    assert plain.weights == grouped.weights

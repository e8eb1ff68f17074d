"""One's own log from a card to a bundle, with the example of the documents."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from prime_bench.cli.main import exit_code
from prime_bench.recipe.file import load_recipe
from prime_bench.recipe.job import JobRequest
from prime_bench.report.bundle import read_bundle
from prime_bench.schedule.plan import make_plan
from prime_bench.store.runs import Runs
from prime_bench.worker import run_job

DOCUMENT = Path(__file__).parents[1] / "docs" / "cards.md"
RECIPE = """\
schema = 1
title = "ours"
seeds = [1]
arms = ["dense", "prime"]
[dataset.mylog]
card = "mylog.toml"
[training]
max_epochs = 1
batch_size = 1024
[backbone.DNN]
hidden_units = [8]
"""
ROWS = 900


def write_log(path: Path) -> None:
    random = np.random.default_rng(4)
    columns = {
        "click": random.integers(0, 2, ROWS),
        "user_id": [f"u{i}" for i in random.integers(0, 60, ROWS)],
        "item_id": random.integers(0, 40, ROWS),
        "category": random.integers(0, 9, ROWS),
        "device": random.choice(["phone", "pc"], ROWS),
        "os": random.choice(["a", "b", "c"], ROWS),
        "country": random.choice(["de", "fr", ""], ROWS),
        "slot": random.integers(0, 4, ROWS),
        "weekday": random.integers(0, 7, ROWS),
        "campaign": random.integers(100, 130, ROWS),
        "price": random.lognormal(3, 1, ROWS).round(2),
        "age": [str(age) if age else "" for age in random.integers(0, 80, ROWS)],
        "seller_ctr": random.beta(2, 30, ROWS).round(5),
        "session": [f"s{i}" for i in range(ROWS)],
    }
    lines = [
        ",".join(columns),
        *(",".join(map(str, row)) for row in zip(*columns.values(), strict=True)),
    ]
    path.write_text("\n".join(lines) + "\n")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    text = DOCUMENT.read_text(encoding="utf-8")
    (card,) = re.findall(r"^```toml\n(name = .*?)^```$", text, flags=re.MULTILINE | re.DOTALL)
    (tmp_path / "mylog.toml").write_text(card)
    (tmp_path / "ours.toml").write_text(RECIPE)
    write_log(tmp_path / "mylog.csv")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_example_of_the_documents(folder, capsys):
    assert exit_code(["prepare", "mylog.toml", "--from", "mylog.csv", "--json"]) == 0
    out, err = capsys.readouterr()
    made = json.loads(out)
    assert err == ""
    assert (made["fields"], made["verified"], sum(made["rows"].values())) == (12, "own", ROWS)

    # From here on neither the log nor its card is there.
    for file in ("mylog.csv", "mylog.toml"):
        (folder / file).unlink()
    plan = make_plan(load_recipe("ours.toml"), data_dir=Path("data"), runs=Runs(Path("runs")))
    assert plan.counts == {"pending": 2}
    for planned in plan.jobs:
        record = run_job(
            JobRequest(
                job=planned.job,
                dataset="mylog",
                arm=planned.job_spec.arm.name,
                table=made["path"],
                runs="runs",
                device="cpu",
            ),
            lambda _: None,
        )
        assert record.data_verified == "own"
        assert record.data_card["title"] == "Our click log"
    assert exit_code(["plan", "ours.toml", "--json"]) == 0
    assert set(json.loads(capsys.readouterr().out)["counts"]) == {"done"}
    assert exit_code(["show", "dataset", "mylog"]) == 0
    assert exit_code(["verify", "ours.toml"]) == 0
    capsys.readouterr()

    # Neither are the data for a report, and a bundle needs nothing at all.
    shutil.rmtree("data")
    assert exit_code(["report", "ours.toml"]) == 0
    report = capsys.readouterr().out
    assert "Our click log: own data" in report
    assert "unverified" not in report
    assert exit_code(["pack", "ours.toml", "-o", "ours.zip"]) == 0
    for name in ("runs", "ours.toml"):
        path = folder / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    capsys.readouterr()
    assert exit_code(["report", "ours.zip"]) == 0
    assert capsys.readouterr().out == report.replace("ecipe ours.toml", "ecipe ours")
    cards = [record.data_card for record in read_bundle(Path("ours.zip")).records]
    assert [card["name"] for card in cards] == ["mylog", "mylog"]

"""`prime-bench browse`: what is a source, a row, a difference; what is left out."""

import json
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from prime_bench import api
from prime_bench.base.errors import DataError, UsageError
from prime_bench.cli.main import exit_code
from prime_bench.store.runs import Runs

PutRuns = Callable[..., Runs]
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")


@pytest.fixture(autouse=True)
def _no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Published pages without figures, which take seconds to draw."""
    monkeypatch.setattr("prime_bench.report.figures.gallery.figures_of", lambda *_, **__: [])


@pytest.fixture
def runs(tmp_path: Path, put_runs: PutRuns) -> Path:
    return put_runs(tmp_path / "runs").folder


@pytest.fixture
def bundle(tmp_path: Path, recipe: Path, runs: Path) -> Path:
    path = tmp_path / "all" / "a.zip"
    assert exit_code(["pack", str(recipe), "-o", str(path), "--runs-dir", str(runs)]) == 0
    return path


def test_a_row_is_an_arm_with_its_scores_and_pairs(runs: Path) -> None:
    found = api.browse(runs)

    dense, prime = found.rows
    assert [(row.dataset, row.backbone, row.arm) for row in found.rows] == [
        ("synthetic", "DNN", "dense"),
        ("synthetic", "DNN", "prime"),
    ]
    own = {record.arm: {} for record in found.sources[0].runs}
    for record in found.sources[0].runs:
        own[record.arm][record.job.seed] = record.result.test
    assert prime.seeds == (1, 2)
    aucs = [own["prime"][seed].auc for seed in (1, 2)]
    assert prime.test["auc"].mean == pytest.approx(statistics.fmean(aucs), abs=1e-15)
    assert prime.test["auc"].sd == pytest.approx(statistics.stdev(aucs), abs=1e-15)
    gained = [own["prime"][seed].auc - own["dense"][seed].auc for seed in (1, 2)]
    lost = [own["prime"][seed].logloss - own["dense"][seed].logloss for seed in (1, 2)]
    assert prime.changes["auc"].mean.mean == pytest.approx(statistics.fmean(gained), abs=1e-15)
    assert prime.changes["auc"].tally.wins == sum(value > 0 for value in gained)
    # Positive is better, in LogLoss too.
    assert prime.changes["logloss"].mean.mean == pytest.approx(-statistics.fmean(lost), abs=1e-15)
    assert dense.changes == {}
    assert dense.differs == prime.differs == {}
    assert (prime.parameters, prime.macs, prime.wall_s, prime.epochs) == (2, 2, 1.0, 3.0)


def test_the_same_records_in_several_sources_are_one_row(
    tmp_path: Path, recipe: Path, runs: Path, bundle: Path
) -> None:
    published = tmp_path / "all" / "published"
    api.publish(recipe, published, by="A. Author", runs_dir=runs)

    found = api.browse(runs, tmp_path / "all")

    assert [source.name for source in found.sources] == [
        str(runs),
        str(bundle),
        str(published),
    ]
    assert [source.by for source in found.sources] == ["", "", "A. Author"]
    assert Path(found.sources[2].page).is_file()
    assert [row.sources for row in found.rows] == [(1, 2, 3), (1, 2, 3)]


def test_a_source_that_is_named_twice_counts_once(
    tmp_path: Path, recipe: Path, runs: Path, bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    published = tmp_path / "all" / "published"
    api.publish(recipe, published, runs_dir=runs)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link.zip").symlink_to(bundle)

    found = api.browse(runs, "all", f"./{runs.name}", runs, published, bundle, "link.zip", "all/")

    assert [source.name for source in found.sources] == [
        str(runs),
        f"all/{bundle.name}",
        "all/published",
    ]
    assert [row.sources for row in found.rows] == [(1, 2, 3), (1, 2, 3)]


def test_other_numbers_of_the_same_jobs_are_a_row_of_their_own(
    tmp_path: Path, put_runs: PutRuns, runs: Path
) -> None:
    other = put_runs(tmp_path / "other", auc=0.6).folder

    found = api.browse(runs, other)

    assert [(row.arm, row.sources) for row in found.rows] == [
        ("dense", (1,)),
        ("dense", (2,)),
        ("prime", (1,)),
        ("prime", (2,)),
    ]
    # Differences are of runs of one source: all AUCs of the other one are equal.
    assert found.rows[3].changes["auc"].mean.mean == 0
    assert found.rows[3].changes["auc"].tally.ties == 2


def test_a_row_names_the_settings_that_comparable_rows_do_not_share(
    tmp_path: Path, make_record: Callable[..., Any]
) -> None:
    from prime_bench.settings.plugins import PrimeConfig
    from prime_bench.settings.training import TrainSpec

    runs = Runs(tmp_path / "runs")
    for rank in (4, 8):
        settings = PrimeConfig(rank=rank).plain()
        runs.put(make_record(arm="prime", plugin="prime", plugin_settings=settings))
    runs.put(make_record(arm="dense"))
    runs.put(make_record(backbone="DCNv2", arm="prime", training=TrainSpec(batch_size=64)))

    found = api.browse(runs.folder)

    told = [(row.backbone, row.arm, dict(row.differs)) for row in found.rows]
    assert told == [
        ("DNN", "dense", {}),
        ("DNN", "prime", {"arm.rank": 4}),
        ("DNN", "prime", {"arm.rank": 8}),
        ("DCNv2", "prime", {}),  # nothing else is on that backbone
    ]


def test_a_hub_is_a_source(hub: Any, recipe: Path, runs: Path) -> None:
    api.publish(recipe, "hf:lab/two", by="Lab", private=True, runs_dir=runs)

    found = api.browse("hf:lab/two")

    (source,) = found.sources
    assert (source.name, source.by, source.title) == ("hf:lab/two", "Lab", "Two | seeds")
    assert source.page == f"{hub.url}/datasets/lab/two"
    assert len(found.rows) == 2


def test_what_cannot_be_read_is_named_and_left_out(
    hub: Any, tmp_path: Path, recipe: Path, runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = tmp_path / "broken.zip"
    broken.write_bytes(b"no zip")
    published, empty = tmp_path / "published", tmp_path / "empty"
    api.publish(recipe, published, runs_dir=runs)
    next(published.glob("bundle-*")).write_bytes(b"no zip")
    empty.mkdir()
    hub.create("lab/none")
    (sorted(runs.iterdir())[0] / "record.json").write_text("{")
    names = [runs, broken, published, empty, tmp_path / "nowhere", "hf:lab/none", "hf:lab/nobody"]

    page = tmp_path / "page.html"
    assert exit_code(["browse", *map(str, names), "--output", str(page)]) == 0

    err = capsys.readouterr().err
    left_out = [line for line in err.splitlines() if line.startswith("left out: ")]
    assert len(left_out) == 7
    for name in ("record.json", *map(str, names[1:])):
        assert sum(name in line for line in left_out) == 1, name
    text = page.read_text(encoding="utf-8")
    assert "Left out" in text
    assert "broken.zip: not a bundle" in text


def test_nothing_at_all_is_a_fault(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no training run in .*\n.*no such file"):
        api.browse(tmp_path / "nothing.zip")
    with pytest.raises(UsageError, match="hf:x: not the name of a repository"):
        api.browse("hf:x")


def test_a_manifest_names_no_file_elsewhere(tmp_path: Path, recipe: Path, runs: Path) -> None:
    published = tmp_path / "published"
    api.publish(recipe, published, runs_dir=runs)
    path = published / "publication.json"
    table = json.loads(path.read_text())
    table["files"]["../../secret"] = table["files"].pop(table["bundle"])
    path.write_text(json.dumps({**table, "bundle": "../../secret"}))

    with pytest.raises(DataError, match="names no bundle or page of its own"):
        api.browse(published)


def test_json_has_the_rows_and_writes_no_page(
    tmp_path: Path,
    runs: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)

    assert exit_code(["browse", str(runs), "--json"]) == 0

    told = json.loads(capsys.readouterr().out)
    assert told["schema"] == 1
    assert [source["name"] for source in told["sources"]] == [str(runs)]
    prime = told["rows"][1]
    assert (prime["arm"], prime["seeds"], len(prime["jobs"])) == ("prime", [1, 2], 2)
    assert prime["changes"]["auc"].keys() == {"n", "mean", "sd", "wins", "ties", "losses"}
    assert not (tmp_path / "reports").exists()

    assert exit_code(["browse", str(runs)]) == 0
    assert (tmp_path / "reports" / "browse.html").is_file()


def test_names_of_others_are_text(
    tmp_path: Path, put_runs: PutRuns, recipe: Path, runs: Path
) -> None:
    hostile = "</script><img src=x onerror=alert(1)>"
    api.publish(recipe, tmp_path / "p", by=hostile, runs_dir=runs)
    page = tmp_path / "page.html"

    api.browse(tmp_path / "p", put_runs(tmp_path / "o", device=hostile).folder, output=page)

    assert "<img src=x" not in page.read_text(encoding="utf-8")

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
from prime_bench.store.record import RunRecord
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


@pytest.fixture
def uneven(tmp_path: Path, make_record: Callable[..., RunRecord]) -> Path:
    """Records of one arm and of Dense whose facts differ from run to run."""
    runs = Runs(tmp_path / "uneven")
    budget = {"backbone_parameters": 100, "plugin_parameters": 20} | {
        "backbone_macs": 3000,
        "plugin_macs": 400,
    }
    made = [
        # seed, seconds, epochs, device, verified, why it is degenerate
        (3, 1.0, 2, "B", True, None),
        (1, 2.0, 3, "A", "own", "constant output"),
        (2, 6.0, 7, "B", True, None),
    ]
    for seed, wall_s, epochs, device, verified, degenerate in made:
        record = make_record(
            arm="prime", seed=seed, device=device, verified=verified, degenerate=degenerate
        )
        update = {
            "wall_s": wall_s,
            "budget": record.budget.model_copy(update=budget),
            "result": record.result.model_copy(update={"epochs": epochs}),
        }
        runs.put(record.model_copy(update=update))
    for seed, auc, logloss in ((1, 0.6, 0.3), (2, 0.9, 0.3), (4, 0.6, None)):
        runs.put(make_record(arm="dense", seed=seed, auc=auc, logloss=logloss))
    return runs.folder


def test_a_row_has_the_costs_and_the_devices_of_its_runs(uneven: Path) -> None:
    dense, prime = api.browse(uneven).rows

    assert prime.seeds == (1, 2, 3)
    assert [run.job.seed for run in prime.runs] == [1, 2, 3]
    assert (prime.parameters, prime.macs) == (120, 3400)
    assert (prime.wall_s, prime.epochs) == (3.0, 4.0)
    assert prime.devices == ("A", "B")
    # Own data are not verified.
    assert (prime.verified, dense.verified) == (False, True)
    assert (prime.degenerate, dense.degenerate) == (1, 0)


def test_a_metric_counts_where_runs_have_it(uneven: Path) -> None:
    found = api.browse(uneven)

    dense, prime = found.rows
    assert found.metrics == ("auc", "logloss")
    assert (dense.test["auc"].n, dense.test["logloss"].n) == (3, 2)
    assert prime.test.keys() == {"auc", "logloss"}
    assert prime.changes["auc"].mean.n == prime.changes["logloss"].mean.n == 2
    tally = prime.changes["auc"].tally
    assert (tally.wins, tally.ties, tally.losses) == (1, 0, 1)


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
    for rank in (16, 8):
        settings = PrimeConfig(rank=rank).plain()
        runs.put(make_record(arm="prime", plugin="prime", plugin_settings=settings))
    # Its settings are not compared with those of another plug-in.
    runs.put(make_record(arm="residual_parameters"))
    runs.put(make_record(arm="dense"))
    # Nothing else is on that backbone, and nothing else of that data set.
    runs.put(make_record(backbone="DCNv2", arm="prime", training=TrainSpec(batch_size=64)))
    runs.put(
        make_record(dataset="a", backbone="DCNv2", arm="prime", training=TrainSpec(batch_size=128))
    )

    found = api.browse(runs.folder)

    told = [(row.dataset, row.backbone, row.arm, dict(row.differs)) for row in found.rows]
    assert told == [
        ("a", "DCNv2", "prime", {}),
        ("avazu", "DNN", "dense", {}),
        ("avazu", "DNN", "prime", {"arm.rank": 8}),
        ("avazu", "DNN", "prime", {"arm.rank": 16}),
        ("avazu", "DNN", "residual_parameters", {}),
        ("avazu", "DCNv2", "prime", {}),
    ]


def test_all_but_an_arms_settings_are_compared_with_every_row_of_the_backbone(
    tmp_path: Path, make_record: Callable[..., Any]
) -> None:
    from prime_bench.settings.training import TrainSpec

    runs = [Runs(tmp_path / name) for name in "ab"]
    runs[0].put(make_record(arm="dense", training=TrainSpec(patience=2)))
    runs[1].put(
        make_record(
            arm="prime",
            training=TrainSpec(patience=10),
            device_kind="cuda",
            device="a GPU",
            commit="f" * 16,
        )
    )

    dense, prime = api.browse(*(each.folder for each in runs)).rows

    # Of the machine the kind of its device alone.
    assert dense.differs == {"training.patience": 2, "device": "cpu"}
    assert prime.differs == {"training.patience": 10, "device": "cuda"}


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
    for said in (
        f"{published}/bundle-",
        ": not the bundle that was published",
        f"{empty}: neither records, nor bundles, nor a publication in it",
        f"{tmp_path}/nowhere: not a bundle: no such file",
        "hf:lab/none: has no publication",
        "hf:lab/nobody: no such repository",
    ):
        assert said in err
    assert f"wrote {page}: 2 rows of 1 source, " in err
    text = page.read_text(encoding="utf-8")
    assert "Left out" in text
    assert "broken.zip: not a bundle" in text


def test_a_folder_of_records_may_have_bundles_too(runs: Path, bundle: Path) -> None:
    other = runs / "b.zip"
    other.write_bytes(bundle.read_bytes())
    (runs / "notes.txt").write_text("mine")

    found = api.browse(runs)

    assert [source.name for source in found.sources] == [str(runs), str(other)]
    assert [source.title for source in found.sources] == [f"records in {runs}", "Two | seeds"]
    assert found.left_out == []


def test_a_publication_without_its_bundle_is_named(
    tmp_path: Path, recipe: Path, runs: Path
) -> None:
    published = tmp_path / "published"
    api.publish(recipe, published, runs_dir=runs)
    next(published.glob("bundle-*")).unlink()

    (told,) = api.browse(runs, published).left_out

    assert told.startswith(f"{published}/bundle-")
    assert "cannot be read: No such file" in told


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
    assert prime["test"]["auc"].keys() == {"n", "mean", "sd"}
    assert not (tmp_path / "reports").exists()

    assert exit_code(["browse", str(runs)]) == 0
    assert (tmp_path / "reports" / "browse.html").is_file()


def test_a_row_in_json_has_what_the_row_has(uneven: Path) -> None:
    row = api.browse(uneven).rows[1]

    told = row.plain()

    for key in ("dataset", "backbone", "arm", "parameters", "macs", "wall_s", "epochs"):
        assert told[key] == getattr(row, key), key
    assert (told["verified"], told["degenerate"], told["devices"]) == (False, 1, ["A", "B"])
    assert (told["sources"], told["seeds"], told["differs"]) == ([1], [1, 2, 3], {})
    assert told["jobs"] == [run.job_id for run in row.runs]
    assert told["test"]["auc"] == {"n": 3, "mean": row.test["auc"].mean, "sd": row.test["auc"].sd}
    changed = told["changes"]["auc"]
    assert (changed["n"], changed["wins"], changed["ties"], changed["losses"]) == (2, 1, 0, 1)


def test_names_of_others_are_text(
    tmp_path: Path, put_runs: PutRuns, recipe: Path, runs: Path
) -> None:
    hostile = "</script><img src=x onerror=alert(1)>"
    api.publish(recipe, tmp_path / "p", by=hostile, runs_dir=runs)
    page = tmp_path / "page.html"

    api.browse(tmp_path / "p", put_runs(tmp_path / "o", device=hostile).folder, output=page)

    assert "<img src=x" not in page.read_text(encoding="utf-8")

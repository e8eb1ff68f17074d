"""The Python interface: docs/python.md runs as it stands, and each function keeps its promise."""

import inspect
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import matplotlib as mpl
import polars as pl
import pytest

from prime_bench import api
from prime_bench.api.recipes import only_texts
from prime_bench.base.errors import DataError, UsageError, UserError
from prime_bench.data.manifest import resolve
from prime_bench.recipe.file import load_recipe
from prime_bench.report.view import ReportView
from prime_bench.schedule.doctor import HealthCheck
from prime_bench.schedule.run import stopping_gently
from prime_bench.settings.plugins import PrimeConfig
from prime_bench.store.record import RunRecord
from prime_bench.store.runs import STATE, Runs

ROOT = Path(__file__).parents[1]
MakeRecord = Callable[..., RunRecord]
RECIPE = """
schema = 1
title = "Ranks"
seeds = [1, 2]
arms = ["dense", "low", "high"]
[arm.low]
plugin = "prime"
rank = 4
[arm.high]
plugin = "prime"
rank = 8
[dataset.synthetic]
[backbone.DNN]
hidden_units = [8]
[backbone.DCNv2]
"""


def validation(epoch: int) -> dict[str, object]:
    return {
        "epoch": epoch,
        "step": 10 * epoch,
        "learning_rate": 0.001,
        "train_loss": 0.6 / epoch,
        "valid_auc": None if epoch == 2 else 0.7,
        "valid_logloss": 0.4,
        "improved": epoch == 1,
        "wall_s": 1.5 * epoch,
    }


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "ranks.toml"
    path.write_text(RECIPE, encoding="utf-8")
    return path


@pytest.fixture
def runs(tmp_path: Path, recipe: Path, plain_record: MakeRecord) -> Path:
    """A record for each job of the recipe, and two with other settings of the protocol."""
    folder = Runs(tmp_path / "runs")
    variant = resolve("synthetic", {}).digest
    for changes, only in (([], []), (["training.max_epochs=1"], ["seed=1", "arm=dense"])):
        for job_spec in load_recipe(recipe, changes=changes).job_specs(only=only):
            folder.put(
                plain_record(
                    job_spec.bind("f" * 64),
                    dataset="synthetic",
                    arm=job_spec.arm.name,
                    data_variant=variant,
                    history=[validation(epoch) for epoch in (1, 2)],
                    result={"test": {"auc": 0.7 + 0.01 * job_spec.seed, "logloss": 0.4}},
                )
            )
    return folder.folder


@pytest.mark.long
def test_the_page_runs_as_it_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    assert len(blocks) >= 10
    monkeypatch.chdir(tmp_path)
    mpl.use("Agg")

    names: dict[str, object] = {}
    for number, block in enumerate(blocks):
        exec(compile(block, f"docs/python.md, block {number}", "exec"), names)

    assert (tmp_path / "curves.png").stat().st_size > 10_000
    assert {path.suffix for path in (tmp_path / "report").iterdir()} >= {".html", ".csv", ".svg"}
    records = names["records"]
    assert isinstance(records, pl.DataFrame)
    assert records.height == 4
    view = names["report"]
    assert isinstance(view, ReportView)
    assert view._repr_html_().count("<table") >= 1
    assert "| DNN" in view._repr_markdown_()
    assert "training.max_epochs=3" in str(view)


def test_the_module_loads_without_heavy_packages() -> None:
    code = (
        "import sys; from prime_bench import api\n"
        "print([n for n in ('torch', 'polars', 'numpy', 'matplotlib', 'ray') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("name", api.__all__)
def test_every_name_has_a_docstring_with_its_parts(name: str) -> None:
    found = getattr(api, name)
    text = inspect.getdoc(found) or ""
    assert text
    assert text.partition("\n")[0].endswith(".")
    if inspect.isfunction(found):
        parameters = list(inspect.signature(found).parameters)
        if len(parameters) > 1:
            described = re.findall(r"^    (\w+): ", text.partition("Args:")[2], flags=re.MULTILINE)
            assert described[: len(parameters)] == parameters


def test_records_have_a_row_a_run_and_a_column_for_each_setting_that_differs(
    runs: Path, recipe: Path
) -> None:
    own = api.records(recipe, runs_dir=runs)
    assert own.height == 2 * 3 * 2
    assert own.columns[:6] == ["dataset", "backbone", "arm", "seed", "job_id", "arm.rank"]
    ranks = dict(own.select("arm", "arm.rank").unique().iter_rows())
    assert ranks == {"dense": None, "low": 4, "high": 8}
    for column in ("valid_auc", "valid_logloss", "test_auc", "test_logloss", "wall_s"):
        assert own[column].dtype == pl.Float64
    assert {"epochs", "best_epoch", "degenerate", "parameters", "numerics"} <= set(own.columns)

    every = api.records(runs_dir=runs)
    assert every.height == own.height + 2
    assert set(every["training.max_epochs"]) == {1, 100}
    # A setting that only differs between backbones is not a difference of comparable runs.
    assert not [column for column in every.columns if column.startswith("backbone.")]
    changed = api.records(recipe, changes={"training.max_epochs": 1}, runs_dir=runs)
    assert set(changed["arm"]) == {"dense"}


def test_only_narrows_records_by_mapping_or_text(runs: Path, recipe: Path) -> None:
    asked = {"backbone": "DNN", "seed": [1, 2], "arm": {"low"}}
    by_mapping = api.records(recipe, only=asked, runs_dir=runs)
    texts = ["backbone=DNN", "seed=1", "seed=2", "arm=low"]
    assert by_mapping.equals(api.records(recipe, only=texts, runs_dir=runs))
    assert by_mapping.height == 2
    with pytest.raises(UsageError, match="a list of texts or a mapping"):
        api.records(recipe, only="seed=1", runs_dir=runs)
    with pytest.raises(UsageError, match="no such seed"):
        api.records(only={"seed": 7}, runs_dir=runs)


def test_a_folder_without_records_gives_an_empty_frame(tmp_path: Path, recipe: Path) -> None:
    for frame in (api.records(runs_dir=tmp_path), api.records(recipe, runs_dir=tmp_path)):
        assert frame.height == 0
        assert "test_auc" in frame.columns
    assert api.histories(runs_dir=tmp_path).height == 0
    with pytest.raises(DataError, match="no records here"):
        api.report(runs_dir=tmp_path)


def test_histories_have_a_row_a_validation(runs: Path, recipe: Path) -> None:
    curves = api.histories(recipe, runs_dir=runs)
    records = {record.job_id: record for record in Runs(runs).readable()[0]}
    own = api.records(recipe, runs_dir=runs)["job_id"]
    assert curves.height == sum(len(records[job_id].history) for job_id in own)
    one = curves.filter(pl.col("job_id") == own[0])
    assert one["epoch"].to_list() == [point.epoch for point in records[own[0]].history]
    assert one.filter("best")["epoch"].to_list() == [records[own[0]].result.best_epoch]


def test_a_record_that_cannot_be_read_is_warned_about(runs: Path) -> None:
    broken = next(runs.glob("*/record.json"))
    broken.write_text("{", encoding="utf-8")
    for call in (api.records, api.histories):
        with pytest.warns(UserWarning, match=f"left out: .*{broken.parent.name}") as warned:
            frame = call(runs_dir=runs)
        assert broken.parent.name not in frame["job_id"]
        # It points to the call, and not into the package.
        assert warned[0].filename == __file__


def test_what_is_left_out_of_a_bundle_is_warned_about(
    runs: Path, recipe: Path, tmp_path: Path
) -> None:
    job_id = api.records(recipe, runs_dir=runs)["job_id"][0]
    (Runs(runs).path(job_id) / "record.json").write_text("{", encoding="utf-8")
    with pytest.warns(UserWarning, match=f"left out: .*{job_id}") as warned:
        packed = api.pack(recipe, tmp_path / "ranks.zip", runs_dir=runs)
    assert len(packed) == 11
    assert warned[0].filename == __file__


def test_a_bundle_reads_as_its_folder_does(runs: Path, recipe: Path, tmp_path: Path) -> None:
    bundle = tmp_path / "ranks.zip"
    packed = api.pack(recipe, bundle, runs_dir=runs)
    assert len(packed) == 12
    assert api.records(bundle).equals(api.records(recipe, runs_dir=runs))
    from_bundle, from_folder = api.report(bundle), api.report(recipe, runs_dir=runs)
    # Only the recipe's name in the provenance may differ.
    assert from_bundle.tables["main"].equals(from_folder.tables["main"])
    files = from_bundle.write(tmp_path / "out", format="latex")
    assert {path.name for path in files} >= {"main.tex", "main.csv", "manifest.json"}


def test_a_report_has_its_tables_as_frames(runs: Path, recipe: Path) -> None:
    view = api.report(recipe, runs_dir=runs)
    main = view.tables["main"]
    assert main.columns[:2] == ["block", "row"]
    assert {"DNN", "DCNv2"} <= set(main["row"])
    values = dict(zip(view.cells()["row"], view.cells()["value"], strict=True))
    assert "DNN" in values
    numbers = [column for column in main.columns if main[column].dtype == pl.Float64]
    assert numbers
    mean = api.records(recipe, only={"arm": "dense", "backbone": "DNN"}, runs_dir=runs)["test_auc"]
    row = main.filter(pl.col("row") == "DNN")
    assert any(row[column][0] == pytest.approx(mean.mean()) for column in numbers)


def test_a_cost_recipe_is_planned_for_a_device(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="depends on the device"):
        api.plan("cost", device="cpu", data_dir=tmp_path)
    made = api.cost_plan("cost", device="cpu", data_dir=tmp_path, runs_dir=tmp_path)
    assert set(made.counts) == {"needs data"}
    with pytest.raises(DataError, match="no data set of this recipe is prepared"):
        api.run(made, device="cpu", runs_dir=tmp_path)


def test_a_plan_is_run_as_it_is(tmp_path: Path) -> None:
    made = api.plan("quick", device="cpu", data_dir=tmp_path, runs_dir=tmp_path)
    assert api.jobs(made).height == 18
    with pytest.raises(UsageError, match="arguments of `plan`"):
        api.run(made, changes={"training.max_epochs": 1})
    with pytest.raises(UsageError, match="go with a recipe"):
        api.status(only={"seed": 1})


@pytest.mark.parametrize("named", [None, "others"])
def test_a_plan_is_run_in_its_own_folder_unless_another_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str | None
) -> None:
    folders = []

    def run_plan(*_arguments: object, runs: Runs, **_keys: object) -> None:
        folders.append(runs.folder)
        raise KeyboardInterrupt

    monkeypatch.setattr("prime_bench.api.execution.run_plan", run_plan)
    made = api.plan("quick", device="cpu", data_dir=tmp_path, runs_dir=tmp_path / "own")
    with pytest.raises(KeyboardInterrupt):
        api.run(made, device="cpu", runs_dir=named)
    assert folders == [Path(named or tmp_path / "own")]


def test_a_loaded_recipe_takes_no_changes(tmp_path: Path) -> None:
    loaded = api.load_recipe("quick", changes={"seeds": [5], "training.max_epochs": 2})
    assert (loaded.seeds, loaded.training.max_epochs) == ([5], 2)
    made = api.plan(loaded, device="cpu", data_dir=tmp_path, runs_dir=tmp_path)
    assert {planned.job_spec.seed for planned in made.jobs} == {5}
    with pytest.raises(UsageError, match="already read"):
        api.plan(loaded, changes={"seeds": [6]}, device="cpu")


def test_a_recipe_is_prepared_and_errors_of_one_data_set_do_not_stop_the_others(
    tmp_path: Path,
) -> None:
    path = tmp_path / "two.toml"
    text = RECIPE.replace("[dataset.synthetic]", "[dataset.synthetic]\nrows = 400\n[dataset.avazu]")
    path.write_text(text, encoding="utf-8")
    sources = {"avazu": tmp_path / "nothing"}
    with pytest.raises(UserError):
        api.prepare_recipe(path, sources=sources, data_dir=tmp_path / "a")
    failed: list[str] = []
    stages: set[tuple[str, str]] = set()
    tables: list[api.Preparation] = []
    (made,) = api.prepare_recipe(
        path,
        sources=sources,
        data_dir=tmp_path / "a",
        on_error=lambda name, _error: failed.append(name),
        on_progress=lambda name, progress: stages.add((name, progress.stage)),
        on_table=tables.append,
    )
    assert tables == [made]
    assert (made.dataset, made.made, failed) == ("synthetic", False, ["avazu"])
    assert made.folder.is_dir()
    with pytest.raises(UsageError, match="no data set `avasu`; did you mean `avazu`"):
        api.prepare_recipe(path, sources={"avasu": tmp_path}, data_dir=tmp_path)


def test_arguments_without_effect_are_refused(tmp_path: Path) -> None:
    for arguments, said in (
        ({"source": tmp_path}, "is generated"),
        ({"allow_unverified": True}, "no digests are published"),
        ({"keep_download": True}, "nothing is downloaded"),
        ({"settings": {"rowz": 5}}, "did you mean `rows`"),
    ):
        with pytest.raises(UsageError, match=said):
            api.prepare("synthetic", data_dir=tmp_path, **arguments)


class StoppableEngine:
    """An engine that notes a request to stop."""

    def __init__(self) -> None:
        self.stopped = 0

    def stop(self) -> None:
        self.stopped += 1


def test_the_first_interrupt_stops_gently_and_the_second_at_once() -> None:
    engine, asked = StoppableEngine(), []
    before = signal.getsignal(signal.SIGINT)

    def work() -> None:
        with stopping_gently(engine, lambda: asked.append(1)) as received:  # type: ignore[arg-type]
            signal.raise_signal(signal.SIGINT)
            assert (engine.stopped, asked, received) == (1, [1], [signal.SIGINT])
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        work()
    assert signal.getsignal(signal.SIGINT) is before


def test_in_another_thread_signals_are_left_alone() -> None:
    found = []

    def work() -> None:
        with stopping_gently(StoppableEngine(), None) as received:  # type: ignore[arg-type]
            found.append(received)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [[]]


def test_names_are_those_that_a_recipe_can_have() -> None:
    assert {"DNN", "DCNv2"} <= set(api.names("backbones"))
    assert {"dense", "prime"} <= set(api.names("arms"))
    assert {"quick", "cost"} <= set(api.names("recipes"))
    assert {"avazu", "criteo", "synthetic"} <= set(api.names("datasets"))
    assert "main" in api.names("tables")
    assert [row["name"] for row in api.listing("figures")] == api.names("figures")


def test_facts_of_an_arm_a_backbone_and_a_table(tmp_path: Path) -> None:
    made = api.prepare("synthetic", settings={"rows": 400}, data_dir=tmp_path)
    again = api.prepare("synthetic", settings={"rows": 400}, data_dir=tmp_path)
    assert (made.made, again.made, again.folder) == (True, False, made.folder)

    arm = api.arm_facts("prime")
    assert (arm.name, arm.label) == ("prime", "PRIME")
    keys = {key.name: key for key in arm.keys}
    assert keys["rank"].default == PrimeConfig().rank
    assert keys["anchor"].choices == ["logit", "probability"]
    assert keys["rank"].choices is None
    assert keys["rank"].doc != keys["anchor"].doc != ""
    with pytest.raises(UsageError, match="did you mean `prime`"):
        api.arm_facts("primee")
    backbone = api.backbone_facts("DNN", table="synthetic", data_dir=tmp_path)
    assert (backbone.name, backbone.label) == ("DNN", "DNN")
    (counts,) = backbone.tables
    assert (counts.path, counts.dataset) == (str(made.folder), "synthetic")
    assert (counts.fingerprint, counts.fields) == (made.manifest.fingerprint, 22)
    assert counts.input_width == 22 * 10
    # Each row of embeddings has ten weights; the net's weights are all that is multiplied.
    assert counts.embedding_rows * 10 < counts.parameters
    assert 220 * 400 + 2 * 400 * 400 <= counts.macs < counts.parameters - counts.embedding_rows
    (table,) = api.table_facts(made.folder)
    assert table.manifest == made.manifest
    assert sum(split.rows for split in table.statistics.splits.values()) == 400
    (memory,) = [each for each in table.backbones if each.name == "DNN"]
    assert memory.parameters == backbone.tables[0].parameters
    assert memory.bytes == 12 * memory.parameters


def test_a_table_is_exported_and_raw_files_are_written(tmp_path: Path) -> None:
    api.prepare("synthetic", settings={"rows": 400}, data_dir=tmp_path)
    folder = api.export_fuxictr("synthetic", tmp_path / "exported", data_dir=tmp_path)
    assert (folder / "feature_map.json").is_file()

    raw = api.write_raw(tmp_path / "raw", settings={"rows": 400})
    assert (raw.rows, raw.raw_format) == (400, "avazu-raw")
    assert any(raw.folder.iterdir())
    with pytest.raises(UsageError, match="is in use"):
        api.write_raw(tmp_path / "raw", settings={"rows": 400})


def test_a_plan_is_estimated(tmp_path: Path, recipe: Path) -> None:
    changes = {"dataset.synthetic.rows": 400}
    folders = {"data_dir": tmp_path / "data", "runs_dir": tmp_path / "none"}
    api.prepare("synthetic", settings={"rows": 400}, data_dir=tmp_path / "data")
    made = api.plan(recipe, changes=changes, device="cpu", **folders)

    found = api.estimate(made, device="cpu", runs_dir=tmp_path / "none")
    assert set(found.jobs) == {planned.job_id for planned in made.to_run}
    assert (found.total.jobs, found.total.known_jobs) == (12, 0)
    assert found.total.disk_bytes == sum(job.disk_bytes for job in found.jobs.values()) > 0
    assert set(found.added["synthetic"]) == {"low", "high"}


STUDY = """
schema = 1
title = "Two recipes and a cost"
[[recipes]]
recipe = "ranks.toml"
[[recipes]]
recipe = "cost.toml"
[[recipes]]
recipe = "ranks.toml"
name = "more"
set = {seeds = [2, 3]}
only = ["backbone=DNN"]
"""


def test_the_jobs_of_a_study_are_counted_and_estimated_once(tmp_path: Path, recipe: Path) -> None:
    """Two seeds and three arms of two backbones; then a seed more of one, and what it costs."""
    text = recipe.read_text(encoding="utf-8").replace("synthetic]", "synthetic]\nrows = 400")
    recipe.write_text(text, encoding="utf-8")
    cost = text.replace('"Ranks"', '"Cost"\nkind = "cost"').replace("[1, 2]", "[1]")
    (tmp_path / "cost.toml").write_text(cost, encoding="utf-8")
    (tmp_path / "all.toml").write_text(STUDY, encoding="utf-8")
    folders = {"data_dir": tmp_path / "data", "runs_dir": tmp_path / "none"}
    (table,) = api.prepare_study(tmp_path / "all.toml", data_dir=folders["data_dir"])
    assert table.dataset == "synthetic"

    made = api.plan_study(tmp_path / "all.toml", device="cpu", **folders)

    assert [len(each.jobs) for each in made.plans] == [12, 2, 6]
    assert [len(each.jobs) for each in made.parts] == [12, 2, 3]
    assert (made.n_jobs, made.n_shared) == (17, 3)
    assert made.queue is not None
    assert (len(made.queue.jobs), made.queue.recipe.title) == (15, "Two recipes and a cost")
    assert [each.recipe.kind for each in made.costs] == ["cost"]

    found = api.estimate_study(made, device="cpu", runs_dir=tmp_path / "none")

    assert found.queue is not None
    assert (found.queue.total.jobs, [each.total.jobs for each in found.costs]) == (15, [2])
    assert [total.jobs for total in found.by_recipe] == [12, 2, 3]
    disk = [total.disk_bytes for total in found.by_recipe]
    assert disk[0] + disk[2] == found.queue.total.disk_bytes > disk[0] > disk[2] > 0
    assert disk[1] == found.costs[0].total.disk_bytes
    assert found.not_measured == ()
    faults = [
        replace(each, not_measured=(name,))
        for each, name in ((found.queue, "queue"), (found.costs[0], "cost"))
    ]
    assert replace(found, queue=faults[0], costs=(faults[1],)).not_measured == ("queue", "cost")


def test_a_table_is_named_by_its_folder_where_there_are_several(tmp_path: Path) -> None:
    for rows in (400, 401):
        made = api.prepare("synthetic", settings={"rows": rows}, data_dir=tmp_path)
    said = "synthetic: has 2 prepared tables; name one by its folder in place of `synthetic`"
    with pytest.raises(UsageError, match=said) as caught:
        api.export_fuxictr("synthetic", tmp_path / "exported", data_dir=tmp_path)
    assert made.folder.name in caught.value.hint
    assert len(api.table_facts("synthetic", data_dir=tmp_path)) == 2


def test_records_of_a_version_without_digests_are_counted(runs: Path) -> None:
    said: list[str] = []
    found = api.verify(runs_dir=runs, log=said.append)
    assert (len(found.records), found.without_digests) == (14, 14)
    assert said[-1].startswith("14 of 14 records of a version that wrote no digests into them")


def test_a_verification_tells_which_runs_have_no_partner(runs: Path) -> None:
    """Those with other settings of the protocol are of Dense alone."""
    found = api.verify(runs_dir=runs)

    alone = [each for each in found.findings if each.topic == "pairing"]
    assert sorted((each.where, each.what) for each in alone) == [
        (f"synthetic {backbone} dense seed 1", "no other arm has run")
        for backbone in ("DCNv2", "DNN")
    ]


def test_costs_of_a_plan_without_records_are_none(tmp_path: Path) -> None:
    made = api.cost_plan("cost", device="cpu", data_dir=tmp_path, runs_dir=tmp_path)
    assert api.costs(made, runs_dir=tmp_path) == []


def test_leftovers_are_listed_then_deleted(runs: Path) -> None:
    job_id = api.records(runs_dir=runs)["job_id"][0]
    state = Runs(runs).path(job_id) / STATE
    state.write_bytes(b"1234")

    found = api.leftovers(runs_dir=runs)
    assert [(leftover.path, leftover.n_bytes) for leftover in found] == [(state, 4)]
    assert state.exists()
    assert api.clean(found, runs_dir=runs) == found
    assert not state.exists()
    assert api.leftovers(runs_dir=runs) == []


@pytest.mark.long
def test_a_plug_in_is_checked_in_a_process_of_its_own() -> None:
    results = api.check("prime")
    assert "neutral start" in {result.rule for result in results}
    assert [result for result in results if result.fault] == []
    with pytest.raises(UsageError, match="nothing_like_it"):
        api.check("nothing_like_it")


def test_doctor_reports_each_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("prime_bench.schedule.doctor._devices", lambda *_, **__: iter(()))
    seen: list[HealthCheck] = []

    results = api.doctor(data_dir=tmp_path, runs_dir=tmp_path, on_check=seen.append)
    assert results == seen
    assert {"python", "torch", "memory", "tables"} <= {result.topic for result in results}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: api.load_recipe("quick", changes={"title": None}), "changes: title: a number"),
        (lambda: api.load_recipe("quick", changes={"training": {"a": 1}}), "changes: training"),
        (
            lambda: api.load_recipe("quick", changes={"training.learning_rate": float("nan")}),
            "changes: training.learning_rate",
        ),
        (lambda: api.plan("quick", only={"seed": []}), "only: seed: the list is empty"),
        (lambda: api.run("quick", engine="cloud"), "no engine `cloud`"),
        (lambda: api.run("quick", slots=0), "slots: at least 1"),
        (lambda: api.run("quick", threads=-1), "threads: at least 1"),
        (lambda: api.run("quick", job_timeout_s=0), "job_timeout_s: more than 0"),
        (lambda: api.report("quick", level="medium"), "level: one of"),
        (lambda: api.report("quick", against="rumour"), "against: one of"),
        (lambda: api.report("quick", tables="main"), "tables: a list of names"),
        (lambda: api.report("quick", arms="prime"), "arms: a list of names"),
        (lambda: api.report("quick", metrics="gauc"), "metrics: a list of names"),
        (lambda: api.report("quick", allow_missing=True), "allow_missing goes with check"),
        (
            lambda: api.report("quick", against="bars", metrics=["gauc"]),
            "--metric goes with records alone: bars has AUC and LogLoss",
        ),
        (lambda: api.records("quick", runs_dir=[]), "runs_dir: the list is empty"),
        (lambda: api.plan("quick", changes="seeds=[1]"), "changes: a list of texts or a mapping"),
        (lambda: api.run("quick", log_to="paper"), "log_to: `paper` is not known"),
        (
            lambda: api.status(accept_source=True),
            "accept_source (--accept-source) goes with a recipe: name one",
        ),
        (lambda: api.verify(changes=["seeds=[1]"]), "(--only, --set) go with a recipe: name one"),
        (lambda: api.draft_card("log.csv", "card.csv"), "card.csv: a card's name ends in .toml"),
        (
            lambda: api.compare("dense", "prime", runs_dir="R"),
            "dense: no folder or bundle, no recipe, and no arm of a record in R",
        ),
        (lambda: api.job("abcd", runs_dir="R"), "abcd: no job in R has an id that begins so"),
        (lambda: api.predict("abcd", runs_dir="R"), "abcd: no job in R has an id that begins so"),
        (lambda: api.predictions("abcd", runs_dir="R"), "abcd: no job in R has an id that begins"),
    ],
)
def test_a_wrong_argument_is_refused(call, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=re.escape(message)):
        call()
    assert list(tmp_path.iterdir()) == []


def test_changes_and_only_take_what_python_has():
    recipe = api.load_recipe("quick", changes={"title": "caf\u00e9 \U0001f600 \x7f"})
    assert recipe.title == "caf\u00e9 \U0001f600 \x7f"
    seeds = frozenset({2021})
    assert only_texts({"seed": seeds, "arm": (name for name in ("dense", "prime"))}) == [
        "seed=2021",
        "arm=dense",
        "arm=prime",
    ]

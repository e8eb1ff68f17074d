"""What `study` does with its report: whole or marked as not whole, and what it says without one."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from prime_bench import api
from prime_bench.base.errors import EXIT_FAILED, DataError, EnvironmentFault
from prime_bench.cli.main import exit_code
from prime_bench.report import study as study_module
from prime_bench.report.figures.save import NamedFigure
from prime_bench.report.manifest import MANIFEST, earlier_files, report_faults
from prime_bench.report.study import StudyReport
from prime_bench.report.tables.kinds import load_definition
from prime_bench.schedule.plan import table_specs_of
from prime_bench.store.record import RunRecord
from prime_bench.store.runs import RECORD, Runs

RECIPE = """\
schema = 1
title = "One backbone"
seeds = [1, 2]
arms = ["dense", "prime"]
[dataset.avazu]
[backbone.DNN]
"""
STUDY = """\
schema = 1
title = "A study"
[[recipes]]
recipe = "one.toml"
figures = []
"""


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A study of one recipe, in the current folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "one.toml").write_text(RECIPE, encoding="utf-8")
    path = tmp_path / "small.toml"
    path.write_text(STUDY, encoding="utf-8")
    return path


@pytest.fixture
def runs(study: Path, make_record: Callable[..., RunRecord]) -> Runs:
    """Records of every job of the study."""
    folder = Runs(study.parent / "runs")
    (item,) = api.load_study(study).recipes
    specs = table_specs_of(item.recipe)
    for spec in item.recipe.job_specs():
        record = make_record(
            variant=specs[spec.dataset].digest,
            backbone_settings=spec.backbone_settings.plain(),
            arm=spec.arm.name,
            plugin_settings=spec.arm.settings.plain(),
            training=spec.training,
            seed=spec.seed,
        )
        folder.put(record)
    return folder


def test_an_earlier_index_does_not_stand_over_half_of_a_new_report(
    study: Path, runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "report"
    made = api.report_study(study, runs_dir=runs.folder)
    made.write(folder)
    index = (folder / "index.md").read_bytes()

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(study_module, "write_figures", die)
        with pytest.raises(KeyboardInterrupt):
            made.write(folder)
    assert (folder / "main.csv").exists()
    assert not (folder / "index.md").exists()

    made.write(folder)
    assert (folder / "index.md").read_bytes() == index


def test_tables_of_an_earlier_report_are_deleted_and_other_files_stay(
    study: Path, runs: Runs, tmp_path: Path
) -> None:
    study.write_text(STUDY + 'tables = ["main", "cells", "pairs"]\n', encoding="utf-8")
    folder = tmp_path / "report"
    api.report_study(study, runs_dir=runs.folder).write(folder)
    assert (folder / "cells.tex").exists()
    for name in ("pairs.csv", "notes.txt"):
        (folder / name).write_text("mine", encoding="utf-8")

    study.write_text(STUDY, encoding="utf-8")
    api.report_study(study, runs_dir=runs.folder).write(folder)

    left = {path.name for path in folder.iterdir()}
    assert {name for name in left if name.startswith(("cells", "pairs"))} == {"pairs.csv"}
    assert {"main.tex", "notes.txt", "index.md"} < left


@pytest.mark.parametrize(
    ("of_study", "of_recipe", "names"),
    [
        ("", "", ["main"]),
        ("", 'tables = ["pairs", "main"]', ["pairs", "main"]),
        ('tables = ["cells"]', 'tables = ["pairs", "main"]', ["cells"]),
    ],
)
def test_tables_are_those_of_the_study_else_of_the_recipe(
    study: Path, runs: Runs, of_study: str, of_recipe: str, names: list[str]
) -> None:
    study.write_text(f"{STUDY}{of_study}\n", encoding="utf-8")
    text = f"{RECIPE}[report]\n{of_recipe}\n" if of_recipe else RECIPE
    (study.parent / "one.toml").write_text(text, encoding="utf-8")

    report = api.report_study(study, runs_dir=runs.folder).view.report

    assert [table.name for table in report.tables] == names


@pytest.mark.parametrize(
    "manifest", [None, b"", b"{", b"[]", b"\xff", b'{"schema": 2}', b'{"schema": 1, "tables": 1}']
)
def test_a_manifest_that_cannot_be_read_names_no_earlier_files(
    tmp_path: Path, manifest: bytes | None
) -> None:
    (tmp_path / "main.csv").write_text("", encoding="utf-8")
    if manifest is not None:
        (tmp_path / MANIFEST).write_bytes(manifest)

    assert earlier_files(tmp_path, written=[]) == []


def test_the_figures_of_a_second_recipe_have_its_name_in_file_and_title(
    study: Path, runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    second = STUDY.partition("[[recipes]]")[2].replace("figures = []", 'name = "again"')
    study.write_text(f"{STUDY.replace('figures = []', '')}[[recipes]]{second}", encoding="utf-8")
    drawn = NamedFigure(name="pairs-avazu", title="Pairs", data="Avazu", figure=Figure())
    monkeypatch.setattr(study_module, "figures_of", lambda *_, **__: [drawn])

    figures = api.report_study(study, runs_dir=runs.folder).figures

    assert [(item.name, item.title) for item in figures] == [
        ("pairs-avazu", "Pairs"),
        ("again-pairs-avazu", "Pairs (again)"),
    ]


def test_records_that_cannot_be_read_are_named_where_there_are_no_others(
    study: Path, runs: Runs
) -> None:
    files = sorted(runs.folder.glob(f"*/{RECORD}"))
    for file in files:
        file.write_text("{", encoding="utf-8")

    with pytest.raises(DataError) as caught:
        api.report_study(study, runs_dir=runs.folder)
    assert len(files) == 4
    assert all(str(file) in caught.value.message for file in files)


def test_a_folder_that_cannot_be_written_is_told_before_any_work(
    study: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("taken").write_text("", encoding="utf-8")

    assert exit_code(["study", str(study), "--output", "taken/below"]) == EnvironmentFault.exit_code
    assert "taken" in capsys.readouterr().err
    # Avazu is not there: without the check, the error would be that of its preparation.
    assert sorted(path.name for path in study.parent.iterdir()) == [
        "one.toml",
        "small.toml",
        "taken",
    ]


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        (("--plan", "--from", "avazu=x"), "--from has no effect with --plan"),
        (("--only-report", "--from", "avazu=x"), "--from has no effect with --only-report"),
        (("--only-report", "--allow-unverified"), "--allow-unverified has no effect with"),
        (("--plan", "--output", "x"), "--output has no effect with --plan"),
        (("--only-report", "--measure"), "--measure goes with --plan"),
    ],
)
def test_options_without_effect_are_refused(
    study: Path, capsys: pytest.CaptureFixture[str], options: tuple[str, ...], fault: str
) -> None:
    assert exit_code(["study", str(study), *options]) == 2
    assert fault in capsys.readouterr().err


def test_without_any_record_there_is_no_report_and_jobs_have_failed(
    study: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = RECIPE.replace("[dataset.avazu]", "[dataset.synthetic]\nrows = 300")
    (study.parent / "one.toml").write_text(text, encoding="utf-8")

    # So little time that no job is started.
    assert exit_code(["study", str(study), "--max-hours", "1e-12"]) == EXIT_FAILED
    said = capsys.readouterr()
    assert "4 not started" in said.err
    assert "no report: no job of the study has a record" in said.err
    assert said.out == ""
    assert not (study.parent / "report").exists()


THREE = """\
schema = 1
title = "A | study"
label = "Not <real>"
[[recipes]]
recipe = "one.toml"
figures = ["wins"]
[[recipes]]
recipe = "one.toml"
name = "again"
only = ["seed=1"]
figures = []
[[recipes]]
recipe = "one.toml"
name = "none"
set = {training = {max_epochs = 3}}
"""
INDEX = """\
# A \\| study

**Not \\<real>.**

Made by `prime-bench study small.toml`. All tables and figures with
the jobs behind: [report.html](report.html); as LaTeX: [study.tex](study.tex).

## Tables

| table | files |
|---|---|
| Main results | [main.tex](main.tex), [main.csv](main.csv) |
| Main results (again) | [again_main.tex](again_main.tex), [again_main.csv](again_main.csv) |

## Figures

| figure | files |
|---|---|
| Wins, Avazu | [wins-avazu.pdf](wins-avazu.pdf), [wins-avazu.svg](wins-avazu.svg), \
[wins-avazu.png](wins-avazu.png) |

Without a record: none.
"""


@pytest.fixture
def three(study: Path, runs: Runs, monkeypatch: pytest.MonkeyPatch) -> StudyReport:
    """A study whose recipe is there three times: whole, one seed of it, and without a record."""
    study.write_text(THREE, encoding="utf-8")

    def drawn(*_: object, **__: object) -> list[NamedFigure]:
        return [
            NamedFigure(
                name=f"{name}-avazu",
                title=name.title(),
                data="Avazu",
                figure=Figure(figsize=(3, 2)),
            )
            for name in ("pairs", "wins")
        ]

    monkeypatch.setattr(study_module, "figures_of", drawn)
    return api.report_study(study, runs_dir=runs.folder)


def test_the_index_says_what_is_where_and_what_is_missing(
    three: StudyReport, tmp_path: Path
) -> None:
    paths = three.write(tmp_path / "report")

    text = (tmp_path / "report" / "index.md").read_text(encoding="utf-8")
    assert text == INDEX
    assert three.missing == ["none"]
    assert three.verdicts == []
    assert {path.name for path in paths} == {path.name for path in (tmp_path / "report").iterdir()}
    assert {path.name for path in paths} == {
        *("index.md", "study.tex", "report.html", "manifest.json"),
        *(f"{name}.{kind}" for name in ("main", "again_main") for kind in ("tex", "csv")),
        *(f"wins-avazu.{kind}" for kind in ("pdf", "svg", "png")),
    }
    assert report_faults(tmp_path / "report", Runs(tmp_path / "runs")) == []


def test_tables_of_a_study_carry_its_label_and_the_recipes_name(three: StudyReport) -> None:
    report = three.view.report

    first, second = report.tables
    label = load_definition("main").latex_label
    assert report.title == "A | study. Not <real>"
    assert (first.name, second.name) == ("main", "again_main")
    assert (first.label, second.label) == (label, f"{label}-again")
    assert second.title == f"{first.title} (again)"
    assert first.caption.startswith("Not <real>. ")
    assert second.caption.startswith("Not <real>. ")
    assert (len(first.jobs), len(second.jobs)) == (4, 2)
    assert first.provenance.recipe == "small: one"
    assert second.provenance.recipe == "small: again"
    assert three.tables_of == {"one": ["main"], "again": ["again_main"], "none": []}
    assert len(report.records) == 4
    assert report.record_digests.keys() == {record.job_id for record in report.records}
    # It is on every page of the LaTeX that is compiled alone, and above each figure.
    (head,) = re.findall(r"\\def\\@oddhead\{(.*?)\}\\def", three._document())
    assert head.startswith(r"\footnotesize\hfil Not ")
    assert "real" in head
    assert r"\@oddhead" not in three.view.render("latex")
    (figure,) = three.figures
    assert figure.above_in > 0
    assert list(three.view.figures) == ["wins-avazu"]


def test_a_study_against_the_paper_judges_its_claims(study: Path, runs: Runs) -> None:
    study.write_text(STUDY.replace("[[", 'against = "paper"\n[[', 1), encoding="utf-8")

    made = api.report_study(study, runs_dir=runs.folder)

    assert [table.name for table in made.view.report.tables][:2] == ["claims", "paper"]
    assert len(made.verdicts) == 15
    assert {verdict for _, verdict, _ in made.verdicts} == {"not enough runs"}
    claim, _, numbers = made.verdicts[1]
    assert claim.startswith("PRIME improves mean AUC for 11 of 13 architectures (Avazu)")
    assert numbers.endswith(" pairs")
    index = "\n".join(made._index())
    assert "## Claims" in index
    assert "| not enough runs |" in index


def test_no_record_of_a_study_names_the_command_that_makes_some(study: Path) -> None:
    with pytest.raises(DataError, match="no record of the recipes of small here") as caught:
        api.report_study(study, runs_dir="nowhere")

    assert caught.value.hint == "make some: prime-bench study small.toml"

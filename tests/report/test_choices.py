"""Settings that validation chooses: which, from how many, and what tables and figures show."""

import json
from collections.abc import Callable
from pathlib import Path
from statistics import mean, stdev
from typing import get_args

import numpy as np
import pytest
from matplotlib.text import Text

from prime_bench.base.identity import digest
from prime_bench.recipe.file import load_recipe
from prime_bench.recipe.recipe import JobSpec
from prime_bench.recipe.sweep import GridPoint
from prime_bench.report.document import make_report
from prime_bench.report.figures.gallery import figures_of
from prime_bench.report.figures.sensitivity import in_order, sensitivity_of, shown_keys
from prime_bench.report.formats.cells import printed
from prime_bench.report.formats.notes import all_notes
from prime_bench.report.formats.render import Format, render
from prime_bench.report.quantities.choice import _shared, best, choices_of, tried
from prime_bench.report.quantities.records import RecipeJobs, ReportRecords, gather, jobs_of
from prime_bench.report.tables.kinds import load_definition
from prime_bench.report.tables.model import Table, words
from prime_bench.store.record import RunRecord

MakeRecord = Callable[..., RunRecord]

RECIPE = """\
schema = 1
title = "A sweep"
seeds = [1, 2, 3]
arms = ["dense", "p", "prime"]
[dataset.avazu]
[backbone.DNN.grid]
hidden_units = [[8], [16]]
[backbone.DCNv2]
[arm.p]
plugin = "prime"
label = "Mine"
temperature = 0.5
[arm.p.grid]
rank = [4, 8]
bags = [1, 2]
[report]
choose = "validation"
sensitivity = ["bags", "rank"]
"""
VALID = {
    # (hidden units of the DNN or None for DCNv2, rank, bags) -> mean validation AUC of `p`
    (8, 4, 1): 0.71,
    (8, 4, 2): 0.72,
    (8, 8, 1): 0.73,
    (8, 8, 2): 0.74,
    (16, 4, 1): 0.70,
    (16, 4, 2): 0.79,
    (16, 8, 1): 0.75,
    (16, 8, 2): 0.76,
    (None, 4, 1): 0.66,
    (None, 4, 2): 0.62,
    (None, 8, 1): 0.64,
    (None, 8, 2): 0.65,
}
DENSE = {8: 0.69, 16: 0.68, None: 0.6}
SPREAD = {1: -0.001, 2: 0.003, 3: 0.001}
"""What a seed adds to a validation AUC."""


def hidden_of(job_spec: JobSpec) -> int | None:
    units = job_spec.backbone_settings.plain().get("hidden_units")
    return units[0] if isinstance(units, list) and job_spec.backbone == "DNN" else None  # type: ignore[return-value]


def valid_of(job_spec: JobSpec) -> float:
    """The validation AUC that is made up for a job."""
    settings = job_spec.arm.settings.plain()
    if job_spec.arm.family == "p":
        level = VALID[hidden_of(job_spec), int(str(settings["rank"])), int(str(settings["bags"]))]
    else:
        level = DENSE[hidden_of(job_spec)] + (0.005 if job_spec.arm.name == "prime" else 0)
    return level + SPREAD[job_spec.seed]


def score_of_test(valid: float) -> float:
    """Falls as validation rises: who picks by test scores picks another point."""
    return 1.4 - valid


@pytest.fixture
def chosen(make_record: MakeRecord, tmp_path: Path) -> Callable[..., ReportRecords]:
    """The records of the recipe but for those that `leave_out` names, as a report selects them."""

    def gathered(
        text: str = RECIPE,
        *,
        leave_out: Callable[[JobSpec], bool] = lambda _: False,
        only: tuple[str, ...] = (),
        other_device: Callable[[JobSpec], bool] = lambda _: False,
        collapsed: Callable[[JobSpec], bool] = lambda _: False,
    ) -> ReportRecords:
        path = tmp_path / "sweep.toml"
        path.write_text(text, encoding="utf-8")
        recipe = load_recipe(path)
        records = []
        for job_spec in recipe.job_specs():
            if leave_out(job_spec):
                continue
            valid = valid_of(job_spec)
            record = make_record(
                variant="v",
                backbone=job_spec.backbone,
                backbone_settings=job_spec.backbone_settings.plain(),
                arm=job_spec.arm.name,
                plugin=job_spec.arm.plugin,
                plugin_settings=job_spec.arm.settings.plain(),
                training=job_spec.training,
                seed=job_spec.seed,
                auc=score_of_test(valid),
                logloss=0.4,
                initial_weights=digest([hidden_of(job_spec), job_spec.backbone, job_spec.seed]),
                device_kind="cuda" if other_device(job_spec) else "cpu",
                degenerate="constant output" if collapsed(job_spec) else None,
            )
            scores = record.result.valid.model_copy(update={"auc": valid, "logloss": 1 - valid})
            result = record.result.model_copy(update={"valid": scores})
            records.append(record.model_copy(update={"result": result}))
        jobs = jobs_of(recipe, name="sweep", variants={"avazu": "v"})
        return gather(records, recipe=jobs.narrowed(only))

    return gathered


def table_of(records: ReportRecords, name: str = "main") -> Table:
    return make_report(records, definitions={name: load_definition(name)}).tables[0]


def notes_of(records: ReportRecords, name: str = "main") -> str:
    return "\n".join(all_notes(table_of(records, name)))


Chosen = Callable[..., ReportRecords]


def test_the_main_table_has_the_point_with_the_highest_validation_auc(chosen: Chosen) -> None:
    (block,) = table_of(chosen()).blocks

    expected = {
        ("DNN", "p"): 0.79,  # hidden 16, rank 4, bags 2
        ("DNN", "dense"): 0.69,  # hidden 8
        ("DNN", "prime"): 0.695,
        ("DCNv2", "p"): 0.66,  # rank 4, bags 1
        ("DCNv2", "dense"): 0.6,
        ("DCNv2", "prime"): 0.605,
    }
    for (row, arm), level in expected.items():
        cell = block.cell(row, f"auc.{arm}")
        scores = [1.4 - level - SPREAD[seed] for seed in (1, 2, 3)]
        assert cell.value == pytest.approx(mean(scores), abs=1e-12)
        assert cell.quantity.sd == pytest.approx(stdev(scores), abs=1e-12)
        assert len(cell.jobs) == 3
    assert [row.key for row in block.rows][:2] == ["DNN", "DCNv2"]
    assert block.cell("DNN", "auc.p.delta").value == pytest.approx(0.69 - 0.79, abs=1e-12)


def test_notes_name_the_budget_the_choice_and_tuned_arms(chosen: Chosen) -> None:
    notes = notes_of(chosen())

    assert (
        "chosen for each backbone and arm by mean validation AUC over 3 seeds; test scores have no "
        "part in it. Not a common budget, which favours arms with more candidates: Dense 2, Mine 8 "
        "and PRIME 2 on DNN; Dense 1, Mine 4 and PRIME 1 on DCNv2" in notes
    )
    assert (
        "DNN: chosen: Dense hidden_units = 8; Mine rank = 4, bags = 2, hidden_units = 16; PRIME "
        "hidden_units = 8" in notes
    )
    assert "DCNv2: chosen: Mine rank = 4, bags = 1" in notes
    assert "DNN: Δ of Mine compares tuned arms: the backbone has other settings than" in notes
    assert "DCNv2: Δ of" not in notes
    assert "Mine is prime with temperature = 0.5" in notes


def test_arms_with_as_many_candidates_have_a_common_budget(chosen: Chosen) -> None:
    records = chosen(only=("arm=p", "backbone=DCNv2"))

    assert "A common budget: 4 candidates an arm" in notes_of(records)


def test_a_budget_of_candidates_is_common(chosen: Chosen) -> None:
    records = chosen(RECIPE.replace("[report]", "[budget]\ncandidates = 2\n[report]"))
    notes = notes_of(records, "sensitivity")

    assert [arm.name for arm in records.layout.arms] == ["dense", "p", "prime"]
    assert "Dense 2, Mine 2 and PRIME 2 on DNN; Dense 1, Mine 2 and PRIME 1" in notes_of(records)
    assert "Mine is prime with temperature = 0.5" in notes_of(records)
    assert "no record" not in notes
    rows = [len(block.rows) for block in table_of(records, "sensitivity").blocks]
    assert rows == [2, 2, 2, 2]  # Dense, Mine and PRIME on DNN, Mine on DCNv2
    one = chosen(
        RECIPE.replace("[report]", "[budget]\ncandidates = 2\n[report]"), only=("backbone=DNN",)
    )
    assert "A common budget: 2 candidates an arm" in notes_of(one)


def test_what_lacks_a_seed_is_not_chosen_and_named(chosen: Chosen) -> None:
    def lacks(job_spec: JobSpec) -> bool:
        return job_spec.seed == 2 and job_spec.arm.name == "p[rank=4,bags=2]"

    records = chosen(leave_out=lacks)
    cell = table_of(records).blocks[0].cell("DNN", "auc.p")

    assert cell.value == pytest.approx(1.4 - 0.76 - 0.001, abs=1e-12)
    assert (
        "DNN, Mine: chosen from 6 of 8 candidates, those with a validation AUC of every seed; not "
        "rank = 4, bags = 2, hidden_units = 8 (without 2); rank = 4, bags = 2, hidden_units = 16 "
        "(without 2)" in notes_of(records)
    )


def test_without_every_seed_of_any_nothing_is_chosen(chosen: Chosen) -> None:
    records = chosen(leave_out=lambda job_spec: job_spec.seed == 3 and job_spec.arm.family == "p")

    table = table_of(records)

    assert table.blocks[0].cell("DNN", "auc.p").value is None
    assert "DNN, Mine: none of 8 candidates has a validation AUC of every seed" in notes_of(records)


def test_what_has_no_alternative_is_shown_as_it_is(chosen: Chosen) -> None:
    records = chosen(leave_out=lambda spec: spec.seed == 3 and spec.backbone == "DCNv2")
    cell = table_of(records).blocks[0].cell("DCNv2", "auc.dense")

    assert cell.value == pytest.approx(1.4 - 0.6 - 0.001, abs=1e-12)
    assert cell.quantity.n == 2


def test_tuned_arms_are_compared_by_seed_and_on_one_device(chosen: Chosen) -> None:
    """Other initial weights are what other settings mean; another device is not."""
    grid = chosen().grid(baseline="dense")
    comparison = grid.blocks[0].comparisons["DNN", "p", "auc"]
    assert comparison.seeds == (1, 2, 3)
    assert comparison.differences == pytest.approx([0.69 - 0.79] * 3, abs=1e-12)

    def moved(job_spec: JobSpec) -> bool:
        return job_spec.arm.family == "p" and job_spec.seed == 2

    other = chosen(other_device=moved).grid(baseline="dense").blocks[0]
    assert other.comparisons["DNN", "p", "auc"].seeds == (1, 3)
    assert "different device kind" in other.dropped[0].unpaired.reason


def test_without_choose_every_point_is_an_arm_and_a_row(chosen: Chosen) -> None:
    text = RECIPE.replace('choose = "validation"\n', "")
    (block,) = table_of(chosen(text)).blocks

    rows = [row.key for row in block.rows][:3]
    assert rows == ["DNN[hidden_units=8]", "DNN[hidden_units=16]", "DCNv2"]
    cell = block.cell("DNN[hidden_units=16]", "auc.p[rank=8,bags=2]")
    assert cell.value == pytest.approx(1.4 - 0.76 - 0.001, abs=1e-12)
    assert any(column.label == "Mine (rank = 8, bags = 2)" for column in block.columns)


@pytest.mark.parametrize("choose", [True, False])
def test_the_sensitivity_table_has_every_point(chosen: Chosen, choose: bool) -> None:
    text = RECIPE if choose else RECIPE.replace('choose = "validation"\n', "")
    table = table_of(chosen(text), "sensitivity")

    notes = notes_of(chosen(text), "sensitivity")
    assert "Mine is prime with temperature = 0.5" in notes
    assert "that an arm adds to the backbone: Dense 1 and 1; Mine 1 and 1; PRIME 1 and 1" in notes
    blocks = {block.key: block for block in table.blocks}
    assert list(blocks) == ["avazu.DNN.dense", "avazu.DNN.p", "avazu.DNN.prime", "avazu.DCNv2.p"]
    block = blocks["avazu.DNN.p"]
    assert [column.key for column in block.columns] == [
        *("rank", "bags", "hidden_units"),
        *("valid.auc", "valid.logloss", "test.auc", "test.logloss", "chosen"),
    ]
    assert len(block.rows) == 8
    for hidden, rank, bags in VALID:
        if hidden is not None:
            row = f"rank={rank},bags={bags},hidden_units={hidden}"
            valid = VALID[hidden, rank, bags] + 0.001
            cell = block.cell(row, "valid.auc")
            assert cell.value == pytest.approx(valid, abs=1e-12)
            picked = block.cell(row, "chosen").quantity == words("yes").quantity
            assert picked == (valid == pytest.approx(0.791))
            assert block.cell(row, "test.auc").value == pytest.approx(1.4 - valid, abs=1e-12)
            assert block.cell(row, "valid.logloss").value == pytest.approx(1 - valid, abs=1e-12)


def test_a_point_says_how_many_runs_it_has_and_whether_one_is_degenerate(chosen: Chosen) -> None:
    def is_at(job_spec: JobSpec, *, seed: int, rank: int) -> bool:
        own = (job_spec.backbone, job_spec.arm.family, job_spec.seed) == ("DCNv2", "p", seed)
        return own and job_spec.arm.name == f"p[rank={rank},bags=1]"

    records = chosen(
        leave_out=lambda job_spec: is_at(job_spec, seed=2, rank=4),
        collapsed=lambda job_spec: is_at(job_spec, seed=3, rank=8),
    )
    (block,) = (b for b in table_of(records, "sensitivity").blocks if b.key == "avazu.DCNv2.p")

    found = [printed(block.cell(f"rank={rank},bags=1", "test.auc")) for rank in (4, 8)]
    assert [(cell.remark, cell.dagger) for cell in found] == [("n=2", False), ("", True)]
    better = [column.better for column in block.columns if column.kind == "number"]
    assert better == ["higher", "lower", "higher", "lower"]


def test_a_recipe_without_a_grid_has_no_sensitivity(chosen: Chosen) -> None:
    text = RECIPE.partition("[backbone.DNN.grid]")[0].replace('"p", ', "") + "[backbone.DCNv2]\n"
    table = table_of(chosen(text), "sensitivity")

    assert table.blocks == ()
    assert "None of these jobs is a point of a grid" in notes_of(chosen(text), "sensitivity")


@pytest.mark.parametrize("form", get_args(Format))
def test_names_of_points_survive_every_format(chosen: Chosen, form: str) -> None:
    text = RECIPE.replace('choose = "validation"\n', "")
    names = ("main", "pairs", "sensitivity")
    report = make_report(chosen(text), definitions={name: load_definition(name) for name in names})

    shown = render(report, form)  # type: ignore[arg-type]

    name = "Mine (rank = 8, bags = 2)"
    wanted = {
        "csv": "p[rank=8,bags=2]",
        "json": "p[rank=8,bags=2]",
        "text": "(rank = 8",
    }.get(form, name)
    assert wanted in shown


def test_all_records_are_those_of_every_point(chosen: Chosen) -> None:
    assert len(chosen().all_records()) == 3 * (2 * (1 + 4 + 1) + (1 + 4 + 1))


def test_a_bundle_keeps_points_and_the_choice(chosen: Chosen) -> None:
    jobs = chosen().recipe
    assert jobs is not None

    assert RecipeJobs.parse(jobs.plain(), where="") == jobs
    assert jobs.plain()["choose"] == "validation"
    assert jobs.jobs[1].arm_point is not None


def test_bundles_without_a_grid_have_no_new_keys() -> None:
    """The same records give the bytes that they gave before there were grids."""
    recipe = load_recipe("quick")
    jobs = jobs_of(recipe, name="quick", variants={"synthetic": "v"})
    plain, job = jobs.plain(), jobs.jobs[0].plain()

    assert set(plain) == {
        *("name", "title", "kind", "tables", "notes", "family", "jobs", "variants", "labels")
    }
    assert set(job) == {"dataset", "arms", "job"}


@pytest.mark.parametrize(
    ("only", "jobs"),
    [
        (("arm=p",), 3 * (2 * 4 + 4)),
        (("arm=p[rank=4,bags=2]",), 3 * 3),
        (("backbone=DNN[hidden_units=8]", "arm=dense"), 3),
        (("backbone=DNN", "arm=dense"), 6),
    ],
)
def test_only_takes_points_and_arms_of_a_report(
    chosen: Chosen, only: tuple[str, ...], jobs: int
) -> None:
    recipe = chosen(only=only).recipe

    assert recipe is not None
    assert len(recipe.jobs) == jobs


# ---- choosing


def test_the_first_of_equals_is_chosen(chosen: Chosen) -> None:
    records = chosen()
    every = records.unchosen
    assert every is not None
    (block,) = every.layout.blocks
    arm = next(arm for arm in every.layout.arms if arm.name == "p[rank=4,bags=1]")
    one = tried(every.grouped, arm=arm, rows=block.rows[:1], seeds=block.seeds)

    assert best([one, one, one]) is one
    assert one.score == pytest.approx(0.711)
    over_both = tried(every.grouped, arm=arm, rows=block.rows[1:], seeds=block.seeds)
    assert over_both.score == pytest.approx((0.701 + 0.661) / 2)
    assert tried(every.grouped, arm=arm, rows=block.rows[:1], seeds=(1, 9)).missing == (9,)
    assert tried(every.grouped, arm=arm, rows=block.rows[:1], seeds=()).score is None


def test_the_settings_of_an_arm_with_a_grid_are_those_that_its_points_share() -> None:
    point = GridPoint(of="p", label="Mine", values={"rank": 4})
    points = [
        {"rank": 4, "bags": 2, "width": 16, "gate": None},
        {"rank": 8, "bags": 2, "width": 32},
    ]

    assert json.loads(_shared([json.dumps(own) for own in points], point=point)) == {"bags": 2}


# ---- figures


def test_a_figure_shows_the_keys_asked_for_and_rings_the_choice(chosen: Chosen) -> None:
    every = chosen().unchosen
    assert every is not None
    choice = next(
        c
        for c in choices_of(every.grouped, every.layout)
        if (c.backbone.key, c.arm.name) == ("DNN", "p")
    )

    keys = shown_keys(choice, ["bags", "rank"])
    shown = sensitivity_of(choice, keys)

    assert keys == ["bags", "rank"]
    assert shown.x_values == ("1", "2")
    assert {(p.x, p.line): mean(p.scores["valid"]) for p in shown.points} == {
        ("1", "4"): pytest.approx(0.711),  # the better of both hidden_units
        ("2", "4"): pytest.approx(0.791),
        ("1", "8"): pytest.approx(0.751),
        ("2", "8"): pytest.approx(0.761),
    }
    assert [(p.x, p.line) for p in shown.points if p.chosen] == [("2", "4")]
    assert shown.lines == ("4", "8")
    assert shown_keys(choice, []) == ["rank", "bags"]
    assert shown_keys(choice, ["hidden_units"]) == ["hidden_units"]


def test_values_along_an_axis_are_in_order_however_they_were_drawn() -> None:
    assert in_order([16, 4, 8, 4]) == ("4", "8", "16")
    assert in_order([1e-5, 0.1, 0]) == ("0", "1e-05", "0.1")
    assert in_order([[400, 400], [64], [128, 8]]) == ("64", "128-8", "400-400")
    assert in_order(["logit", "embedding", "logit"]) == ("logit", "embedding")
    assert in_order([True, False]) == ("true", "false")


def test_figures_of_a_sweep_are_named_after_data_and_arm(chosen: Chosen) -> None:
    figures = {item.name: item for item in figures_of(chosen(), baseline="dense")}

    own = [name for name in figures if name.startswith("sensitivity")]
    assert own == ["sensitivity-avazu-dense", "sensitivity-avazu-p", "sensitivity-avazu-prime"]
    found = figures["sensitivity-avazu-p"]
    assert (found.title, found.data) == ("Sensitivity of Mine to bags and rank", "Avazu")
    figure = found.figure
    titles = [axes.get_title() for axes in figure.axes]
    assert titles == ["DNN: validation", "DNN: test", "DCNv2: validation", "DCNv2: test"]
    line = figure.axes[0].get_lines()[0]
    assert np.asarray(line.get_ydata()) == pytest.approx([0.711, 0.791])
    said = " ".join(text.get_text() for text in figure.findobj(Text)).split()
    assert "Of hidden_units each point has the value" in " ".join(said)
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["rank = 4", "rank = 8"]
    narrowed = figures_of(chosen(), baseline="dense", arms=["prime"])
    assert "sensitivity-avazu-p" not in {item.name for item in narrowed}

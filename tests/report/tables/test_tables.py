"""Every table of a bundled recipe, from made-up records of its jobs."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any, Literal

import pytest
from scipy.stats import skew

from prime_bench.base.identity import digest
from prime_bench.findings import GroupSize, Routing, SubgroupScore
from prime_bench.recipe.file import load_recipe
from prime_bench.recipe.recipe import JobSpec, TableName
from prime_bench.report.document import make_report
from prime_bench.report.formats.cells import note_text, printed
from prime_bench.report.quantities.layout import ArmColumn, ReportJob
from prime_bench.report.quantities.records import RecipeJobs, gather
from prime_bench.report.quantities.values import Difference, Level
from prime_bench.report.tables import claims, cost, subgroups
from prime_bench.report.tables.definition import (
    PivotDefinition,
    TableDefinition,
    shipped_tables,
)
from prime_bench.report.tables.kinds import KINDS, load_definition
from prime_bench.report.tables.model import Cell, Table, shown
from prime_bench.store.pairing import ArmKey
from prime_bench.store.record import ProbeRecord, RunRecord
from prime_bench.store.runs import Runs

RECORDS = Path(__file__).parents[2] / "records"
MakeRecord = Callable[..., RunRecord]
Scores = Callable[[JobSpec], tuple[float, float]]
GAINS = {
    "dense": 0,
    "prime": 8,
    "residual_parameters": 5,
    "residual_macs": 6,
    "dense_weight_25": 9,
    "dense_weight_75": 7,
    "hidden_subspace": -3,
    "multilayer_bagged_4": 1,
    "multilayer_bagged_8": 3,
    "multilayer_bagged_16": 2,
}
STEP = 2**-13


def flat(job_spec: JobSpec) -> tuple[float, float]:
    """Every backbone and seed alike; what an arm gains in AUC it gains in LogLoss."""
    gain = GAINS.get(job_spec.arm.name, 4)
    return STEP * (6144 + gain), STEP * (3072 - gain)


@pytest.fixture
def table_of(make_record: MakeRecord) -> Callable[..., Table]:
    def make(
        name: str,
        *,
        scores: Scores = flat,
        valid_scores: Callable[[JobSpec], tuple[float | None, float]] | None = None,
        leave_out: Callable[[JobSpec], bool] = lambda _: False,
        only: Sequence[str] = (),
        definition: TableDefinition | None = None,
    ) -> Table:
        definition = definition or load_definition(name)
        recipe = load_recipe(definition.recipe or "main13")
        variants = {dataset: digest(dataset) for dataset in recipe.datasets}
        job_specs = recipe.job_specs(only=only)
        records = []
        for job_spec in job_specs:
            if leave_out(job_spec):
                continue
            auc, logloss = scores(job_spec)
            record = make_record(
                dataset=job_spec.dataset,
                variant=variants[job_spec.dataset],
                backbone=job_spec.backbone,
                backbone_settings=job_spec.backbone_settings.plain(),
                arm=job_spec.arm.name,
                plugin=job_spec.arm.plugin,
                plugin_settings=job_spec.arm.settings.plain(),
                training=job_spec.training,
                seed=job_spec.seed,
                auc=auc,
                logloss=logloss,
            )
            record = with_validation(record)
            if valid_scores is not None:
                auc, logloss = valid_scores(job_spec)
                scored = record.result.valid.model_copy(update={"auc": auc, "logloss": logloss})
                result = record.result.model_copy(update={"valid": scored})
                record = record.model_copy(update={"result": result})
            records.append(record)
        jobs = RecipeJobs(
            name=recipe.name,
            title=recipe.title,
            jobs=[*map(ReportJob.of, job_specs)],
            variants=variants,
            family=recipe.report.family,
        )
        report = make_report(gather(records, recipe=jobs), definitions={name: definition})
        return report.tables[0]

    return make


def with_validation(record: RunRecord) -> RunRecord:
    """The same scores on validation rows, and routing in the best epoch."""
    result = record.result.model_copy(update={"valid": record.result.test})
    routing = Routing(entropy=[0.8, 1.0], effective_experts=[2.2, 2.7], largest_load=[0.4, 0.6])
    history = [
        {
            "epoch": epoch,
            "step": epoch,
            "learning_rate": 0.001,
            "train_loss": 0.4,
            "valid_auc": 0.7,
            "valid_logloss": 0.4,
            "improved": epoch == 1,
            "wall_s": 1.0,
            "routing": routing.plain() if epoch == 1 and record.job.plugin == "prime" else None,
        }
        for epoch in (1, 2)
    ]
    return RunRecord.parse(
        {**record.plain(), "result": result.plain(), "history": history}, where=""
    )


def cells_of(table: Table) -> Mapping[str, Cell]:
    return {address.partition(".")[2]: cell for address, cell in table.cells()}


def steps(cell: Cell) -> float:
    assert cell.value is not None
    return cell.value / STEP


def test_every_kind_has_its_name_and_every_table_one_that_recipes_may_use() -> None:
    for name, kind in KINDS.items():
        assert kind.definition.model_fields["kind"].annotation == Literal[name]
    assert set(TableName.__args__) == set(shipped_tables()), (
        "TableName of prime_bench/recipe/recipe.py has the name of each file in reports/"
    )


def test_claims_find_each_of_their_cells_in_a_report_of_all_runs(
    table_of: Callable[..., Table], monkeypatch: pytest.MonkeyPatch
) -> None:
    records, _ = Runs(RECORDS).readable()
    measured = gather([], probes=[record for record in records if isinstance(record, ProbeRecord)])
    gradients = make_report(measured, definitions={"gradients": load_definition("gradients")})
    tables = [*map(table_of, ("main", "apg", "controls")), *gradients.tables]
    quantities = {address: cell.quantity for table in tables for address, cell in table.cells()}
    monkeypatch.setattr(claims, "_find", lambda quantities, address: quantities[address])
    measured_on = [row.key for row in gradients.tables[0].blocks[0].rows if row.key != "mean"]
    assert measured_on
    monkeypatch.setattr(claims, "DIAGNOSED", measured_on)

    assert claims.judge_claims(quantities)


def test_controls_are_the_numbers_of_figure_4(table_of: Callable[..., Table]) -> None:
    cells = cells_of(table_of("controls"))

    assert steps(cells["avazu.parameter_matched.auc"]) == 8 - 5
    assert steps(cells["avazu.mac_matched.logloss"]) == 8 - 6
    assert steps(cells["avazu.parameter_matched_over_dense.auc"]) == 5
    assert printed(cells["avazu.parameter_matched.auc.won"]).text == "20/20"
    assert steps(cells["avazu.no_anchor.auc.AutoInt"]) == 4


def test_controls_count_complete_pairs(table_of: Callable[..., Table]) -> None:
    table = table_of(
        "controls",
        leave_out=lambda t: (t.arm.name, t.backbone, t.seed) == ("residual_macs", "DNN", 2021),
    )
    cells = cells_of(table)

    assert printed(cells["avazu.mac_matched.auc"]).remark == "n=19"
    assert printed(cells["avazu.mac_matched.auc.won"]).text == "19/19"
    assert printed(cells["avazu.mac_matched.auc.DNN"]).remark == "n=4"
    assert any("missing 2021" in note_text(note) for note in table.notes)

    cells = cells_of(table_of("controls", leave_out=without("residual_macs", "DNN")))
    pooled = cells["avazu.mac_matched.auc"].quantity
    assert isinstance(pooled, Difference)
    assert (pooled.n, pooled.noise is None) == (15, False)


def test_a_group_has_the_pairs_of_seeds_with_both_scores() -> None:
    size = GroupSize(name="a", rows=10, positives=5)

    def score(auc: float | None) -> SubgroupScore:
        keys = {"mean_prediction": 0.5, "logloss": 0.6, "calibration_error": 0.1}
        return SubgroupScore(size=size, click_rate=0.5, auc=auc, **keys)

    seeds = {1: (score(0.7), score(0.75), ("a", "b")), 2: (score(0.9), score(None), ("c", "d"))}
    found = [cell.quantity for cell in subgroups._row("a", seeds, 4).cells[3:5]]

    assert [one.value for one in found] == pytest.approx([0.7, 0.05])
    assert isinstance(found[1], Difference)
    assert (found[1].n, found[1].sd) == (1, None)


def test_an_arm_that_these_jobs_do_not_have_is_named(table_of: Callable[..., Table]) -> None:
    table = table_of("controls", only=["arm=dense", "arm=prime", "arm=residual_parameters"])

    assert [row.key for row in table.blocks[0].rows] == [
        "parameter_matched",
        "parameter_matched_over_dense",
    ]
    assert any(
        note_text(each).startswith("Not among these jobs: residual_macs, uniform_routing")
        for each in table.notes
    )


def test_dense_weight_has_one_seed_and_all_on_validation(table_of: Callable[..., Table]) -> None:
    def scores(job_spec: JobSpec) -> tuple[float, float]:
        auc, logloss = flat(job_spec)
        return auc + STEP * 16 * (job_spec.seed == 190034), logloss

    cells = cells_of(table_of("dense_weight", scores=scores))

    assert steps(cells["avazu.dense_weight_25.auc.190034"]) == 6144 + 9 + 16
    assert steps(cells["avazu.dense_weight_25.auc"]) == pytest.approx(6144 + 9 + 16 / 5)
    assert steps(cells["avazu.prime.auc.DCNv2"]) == pytest.approx(6144 + 8 + 16 / 5)
    assert printed(cells["avazu.prime.arm"]).text == "\N{GREEK SMALL LETTER ALPHA} = 0.5 (PRIME)"


def test_gdcn_attachment_says_what_is_read_and_how_it_routes(
    table_of: Callable[..., Table],
) -> None:
    cells = cells_of(table_of("gdcn_attachment"))

    assert [
        printed(cells[f"criteo.pre_post.{key}"]).text for key in ("router_input", "expert_input")
    ] == [
        "Pre",
        "Post",
    ]
    assert printed(cells["criteo.dense.router_input"]).text == "--"
    assert cells["criteo.cross_1_pre.entropy"].value == pytest.approx(mean((0.8, 1.0)))
    assert cells["criteo.cross_1_pre.largest_load"].value == 0.6
    assert cells["criteo.dense.entropy"].value is None


def test_gdcn_seeds_are_rows(table_of: Callable[..., Table]) -> None:
    table = table_of("gdcn_seeds", leave_out=lambda t: t.seed == 2021)
    cells = cells_of(table)

    # In the recipe's order.
    heads = [printed(row.cells[0]).text for row in table.blocks[0].rows]
    assert heads == ["2021", "190034", "27011", "948432", "992817", "Mean"]
    assert printed(cells["criteo.GDCN.2021.prime"]).text == "--"
    assert steps(cells["criteo.GDCN.190034.prime"]) == 6144 + 8
    assert printed(cells["criteo.GDCN.mean.prime"]).remark == "n=4"


def test_a_structural_win_needs_both_metrics(table_of: Callable[..., Table]) -> None:
    def scores(job_spec: JobSpec) -> tuple[float, float]:
        auc, logloss = flat(job_spec)
        worse = job_spec.arm.name == "prime" and job_spec.backbone == "DNN"
        return auc, logloss + STEP * 20 * worse

    cells = cells_of(table_of("structural", scores=scores))

    assert printed(cells["avazu.prime.both"]).text == "15/20"
    assert printed(cells["avazu.prime.auc"]).text == "20/20"
    assert printed(cells["avazu.prime.logloss"]).text == "15/20"
    assert printed(cells["avazu.prime.both.DNN"]).text == "0/5"
    assert printed(cells["avazu.hidden_subspace.both"]).text == "0/20"
    best = printed(cells["avazu.best.Best multi-layer bagged.arm"]).text
    assert best == "Best multi-layer bagged (Multi-layer bagged, rank 8)"


def test_apgs_candidate_is_chosen_by_validation(table_of: Callable[..., Table]) -> None:
    """On each backbone by itself; a candidate that test rows alone favour is not chosen."""

    def on_validation(job_spec: JobSpec) -> tuple[float, float]:
        auc, logloss = flat(job_spec)
        best = {"FiBiNET": "apg_inner_32", "DCNv2": "apg_rank_4"}[job_spec.backbone]
        return auc + STEP * 40 * (job_spec.arm.name == best), logloss

    def on_test(job_spec: JobSpec) -> tuple[float, float]:
        auc, logloss = flat(job_spec)
        return auc + STEP * 60 * (job_spec.arm.name == "apg_hypernet_256"), logloss

    cells = cells_of(table_of("apg_selected", scores=on_test, valid_scores=on_validation))

    for backbone, chosen in (("FiBiNET", "APG, p = 32"), ("DCNv2", "APG, k' = 4")):
        best = f"avazu.{backbone}.best.APG, selected"
        assert printed(cells[f"{best}.arm"]).text == f"APG, selected ({chosen})"
        found, test = cells[f"{best}.valid_auc"].value, cells[f"{best}.auc"].value
        assert found is not None
        assert test is not None
        assert found - test == pytest.approx(STEP * 40)


def test_a_structural_pair_without_a_validation_auc_counts_nowhere(
    table_of: Callable[..., Table],
) -> None:
    def on_validation(job_spec: JobSpec) -> tuple[float | None, float]:
        auc, logloss = flat(job_spec)
        one_label = (job_spec.arm.name, job_spec.backbone) == ("prime", "DNN")
        return None if one_label and job_spec.seed == 2021 else auc, logloss

    table = table_of("structural", valid_scores=on_validation)
    cells = cells_of(table)

    assert printed(cells["avazu.prime.both"]).text == "19/19"
    assert printed(cells["avazu.prime.auc"]).text == "19/19"
    assert printed(cells["avazu.prime.logloss"]).text == "20/20"
    assert len(cells["avazu.prime.both.DNN"].jobs) == 2 * 4
    assert ("Avazu, DNN, PRIME: no validation AUC for 2021; Δ covers complete pairs only") in map(
        note_text, table.notes
    )


def without(arm: str, backbone: str) -> Callable[[JobSpec], bool]:
    return lambda job_spec: (job_spec.arm.name, job_spec.backbone) == (arm, backbone)


@pytest.mark.parametrize(
    ("name", "gone", "row", "column", "text"),
    [
        (
            "controls",
            ("auxiliary_loss", "DNN"),
            "avazu.auxiliary_loss",
            "comparison",
            "PRIME \N{MINUS SIGN} auxiliary loss (3 of 4 backbones)",
        ),
        (
            "dense_weight",
            ("dense_weight_75", "DNN"),
            "avazu.dense_weight_75",
            "arm",
            "\N{GREEK SMALL LETTER ALPHA} = 0.75 (3 of 4 backbones)",
        ),
        (
            "structural",
            ("hidden_subspace", "DNN"),
            "avazu.hidden_subspace",
            "arm",
            "Hidden subspace (3 of 4 backbones)",
        ),
        (
            "criteo_numeric",
            ("prime", "DNN"),
            "means.criteo",
            "data",
            "Criteo (4 of 5 backbones)",
        ),
        ("main", ("prime", "DNN"), "avazu.mean", "backbone", "Mean (12 of 13 backbones)"),
        (
            "family",
            ("prime", "DNN"),
            "avazu.prime.dense.auc",
            "comparison",
            "PRIME \N{MINUS SIGN} Dense (12 of 13 backbones)",
        ),
    ],
)
def test_a_row_over_fewer_backbones_says_so(
    table_of: Callable[..., Table],
    name: str,
    gone: tuple[str, str],
    row: str,
    column: str,
    text: str,
) -> None:
    whole, partial = table_of(name), table_of(name, leave_out=without(*gone))

    assert printed(cells_of(partial)[f"{row}.{column}"]).text == text
    heads = [printed(row.cells[0]).text for block in whole.blocks for row in block.rows]
    assert not any("backbones)" in head for head in heads)


def test_a_mean_is_made_of_the_runs_of_its_own_backbones(table_of: Callable[..., Table]) -> None:
    cells = cells_of(table_of("main", leave_out=without("prime", "DNN"), only=["dataset=avazu"]))
    own, left_out = (set(cells[f"avazu.{row}.auc.dense"].jobs) for row in ("mean", "DNN"))

    assert len(own) == 12 * 5
    assert len(left_out) == 5
    assert not own & left_out


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (
            "main",
            "Avazu: the Mean row leaves out DNN, where an arm has no pair; Paired median Δ, Pairs "
            "won and Backbones won cover every pair there is",
        ),
        ("criteo_numeric", "Criteo: the means leave out DNN, where an arm has no pair"),
        *((name, None) for name in ("controls", "structural", "apg", "family", "cells", "pairs")),
    ],
)
def test_a_table_speaks_of_means_only_where_it_has_some(
    table_of: Callable[..., Table], name: str, words: str | None
) -> None:
    gone = "DNN" if name != "apg" else "DCNv2"
    texts = [note_text(n) for n in table_of(name, leave_out=without("prime", gone)).notes]
    found = [text for text in texts if "leaves out" in text or "leave out" in text]

    assert (words in found) if words else not found


def test_a_paired_median_says_how_many_pairs_it_has(table_of: Callable[..., Table]) -> None:
    cells = cells_of(table_of("main", leave_out=without("prime", "DNN")))

    assert printed(cells["avazu.paired_median.auc.prime.delta"]).remark == "n=60"


def test_a_familys_mean_is_over_its_own_architectures(table_of: Callable[..., Table]) -> None:
    """Another arm without a backbone takes it from the Mean row, not from this comparison."""

    def scores(job_spec: JobSpec) -> tuple[float, float]:
        auc, logloss = flat(job_spec)
        extra = job_spec.arm.name == "prime" and job_spec.backbone == "DNN"
        return auc + STEP * 40 * extra, logloss

    leave_out = without("multilayer_bagged_4", "DNN")
    recipe = "structural"
    definition = load_definition("family").model_copy(update={"recipe": recipe})
    table = table_of("family", definition=definition, scores=scores, leave_out=leave_out)
    cells = cells_of(table)

    assert steps(cells["avazu.prime.dense.auc.delta"]) == pytest.approx(8 + 40 / 4)
    assert printed(cells["avazu.prime.dense.auc.won"]).text == "4/4"
    assert steps(cells["avazu.multilayer_bagged_4.dense.auc.delta"]) == pytest.approx(1)


def test_runs_that_collapsed_do_not_widen_the_margin(table_of: Callable[..., Table]) -> None:
    """Two of 13 Dense backbones have LogLosses of 4 ± 4, as in the paper."""

    def scores(job_spec: JobSpec) -> tuple[float, float]:
        auc, logloss = flat(job_spec)
        order = (2021, 190034, 27011, 948432, 992817).index(job_spec.seed)
        logloss += STEP * 2 * order
        collapsed = job_spec.arm.name == "dense" and job_spec.backbone in ("DeepFM", "AutoInt")
        return auc, logloss + collapsed * 2.0 * order

    cells = cells_of(table_of("family", scores=scores))
    margin = cells["avazu.prime.dense.logloss.by_sd"].quantity.margin

    assert margin == pytest.approx(STEP * 2 * (2.5**0.5))
    assert printed(cells["avazu.prime.dense.logloss.by_sd"]).text.startswith("better")


def test_a_family_names_symmetry_and_has_the_sign_test_beside(
    table_of: Callable[..., Table],
) -> None:
    gains = [4000, 300, 20, 11, 9, 8, 7, 6, 5, -1, -2, -3, -4]

    def scores(job_spec: JobSpec) -> tuple[float, float]:
        auc, logloss = 0.5, 0.4
        own = list(load_recipe("main13").backbones).index(job_spec.backbone)
        if job_spec.dataset == "criteo" and job_spec.arm.name == "prime":
            logloss -= gains[own] * 2**-14
        return auc, logloss

    table = table_of("family", scores=scores)
    cells = cells_of(table)
    found = {k: cells[f"criteo.prime.dense.logloss.{k}"] for k in ("wilcoxon", "sign", "holm")}

    assert found["wilcoxon"].value < 0.05 < found["sign"].value
    assert found["holm"].value == pytest.approx(2 * found["sign"].value)
    assert cells["criteo.prime.dense.logloss.skewness"].value == pytest.approx(skew(gains))
    assert printed(cells["criteo.prime.dense.logloss.sign_interval"]).text.endswith("(97.8%)")
    assert any("take the medians as symmetric" in note_text(n) for n in table.notes)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        *(
            (name, "Δ above zero before rounding, which favours the arm; not the best of a row")
            for name in ("main", "controls", "criteo_numeric", "family", "cells", "pairs")
        ),
        ("apg", "values of PRIME that are better than APG's, and Δ where they are"),
        *((name, None) for name in ("structural", "dense_weight", "gdcn_seeds")),
    ],
)
def test_bold_is_explained_where_there_is_some(
    table_of: Callable[..., Table], name: str, words: str | None
) -> None:
    table = table_of(name)
    notes = [note_text(each) for each in table.notes if each.kind == "bold"]

    assert notes == ([f"Bold: {words}"] if words else [])
    assert any(cell.emphasised for _, cell in table.cells()) == bool(words)
    assert "bold" not in table.caption.lower()


def test_backbones_have_the_papers_names(table_of: Callable[..., Table]) -> None:
    """Those of its Table 2, sorted; addresses of cells have the recipe's names."""
    names = "AFM AutoInt DCN DCNv2 DNN DeepFM FiBiNET FwFM GDCN MaskNet NFM PNN Wide&Deep"
    rows = [row for row in table_of("main").blocks[0].rows if row.key[0].isupper()]

    assert " ".join(sorted(printed(row.cells[0]).text for row in rows)) == names
    assert " ".join(sorted(row.key for row in rows)) == names.replace("&", "")


def test_criteo_numerics_are_mean_rows_below_each_other(table_of: Callable[..., Table]) -> None:
    def scores(job_spec: JobSpec) -> tuple[float, float]:
        auc, logloss = flat(job_spec)
        return auc - STEP * 100 * (
            job_spec.dataset == "criteo" and job_spec.arm.name == "dense"
        ), logloss

    cells = cells_of(table_of("criteo_numeric", scores=scores))

    assert steps(cells["means.criteo.auc.prime.delta"]) == pytest.approx(108)
    assert steps(cells["means.criteo_log_bucket.auc.prime.delta"]) == pytest.approx(8)


def test_a_family_is_corrected_over_all_data_sets(table_of: Callable[..., Table]) -> None:
    cells = cells_of(table_of("family"))

    # 13 backbones all won: p = 2 / 2^13 on each of two data sets, so Holm doubles both.
    for dataset in ("avazu", "criteo"):
        found = {k: cells[f"{dataset}.prime.dense.auc.{k}"] for k in ("wilcoxon", "holm", "won")}
        assert found["wilcoxon"].value == 2 / 2**13
        assert found["holm"].value == 2 * found["wilcoxon"].value
        assert printed(found["won"]).text == "13/13"
    assert (
        printed(cells["avazu.prime.dense.auc.by_margin"]).text == "equivalent"
    )  # 8 steps: 0.00098
    assert "(95.2%)" in printed(cells["avazu.prime.dense.auc.interval"]).text


def test_a_family_counts_the_comparisons_that_have_pairs(table_of: Callable[..., Table]) -> None:
    table = table_of("family", leave_out=lambda job_spec: job_spec.dataset == "criteo")

    said = [note_text(item) for item in table.notes if "Holm p counts" in note_text(item)]
    assert [text.partition(",")[0] for text in said] == ["Holm p counts 1 comparison"]


def test_the_lowest_cost_is_bold_among_the_arms_compared_alone() -> None:
    def line(plugin: str, *values: float) -> tuple[ArmColumn, list[Cell]]:
        arm = ArmColumn(name=plugin, label=plugin, key=ArmKey(plugin=plugin, settings="{}"))
        return arm, [shown(Level(value=value), 2) for value in values]

    definition = load_definition("cost").model_copy(update={"compared": ["prime", "apg"]})
    lines = [line("dense", 1.0, 2.0), line("prime", 1.0, 3.0), line("apg", 2.0, 2.0)]

    found = cost._with_bold(lines, definition)

    assert [[cell.emphasised for cell in cells] for _, cells in found] == [
        [False, False],
        [True, False],
        [False, True],
    ]


@pytest.mark.parametrize("name", sorted(set(shipped_tables()) - {"cost"}))
def test_nothing_done_is_dashes_and_words(table_of: Callable[..., Table], name: str) -> None:
    definition = load_definition(name)
    if load_recipe(definition.recipe or "main13").kind != "train":
        return
    table = table_of(name, leave_out=lambda _: True)

    assert all(c.value is None or printed(c).text in ("0", "0/0") for c in cells_of(table).values())
    assert any("no record for" in note_text(note) for note in table.notes)
    assert table.provenance.started is None


DELTA = "{metric}.{arm}.delta"
SMALL = ["dataset=avazu", "backbone=DNN", "backbone=DCNv2", "seed=2021", "seed=190034"]


def seeded(job_spec: JobSpec) -> tuple[float, float]:
    """Two seeds 16 steps apart in AUC; PRIME ties one pair of four."""
    auc, logloss = flat(job_spec)
    tied = (job_spec.backbone, job_spec.arm.name, job_spec.seed) == ("DCNv2", "prime", 2021)
    return auc - STEP * 8 * tied + STEP * 16 * (job_spec.seed == 190034), logloss


def on_valid(job_spec: JobSpec) -> tuple[float, float]:
    """PRIME gains 32 steps more than on test rows."""
    auc, logloss = seeded(job_spec)
    return auc + STEP * 32 * (job_spec.arm.name == "prime"), logloss


Read = Callable[[Table], object]


def text_at(address: str) -> Read:
    return lambda table: printed(cells_of(table)[address]).text


def remark_at(address: str) -> Read:
    return lambda table: printed(cells_of(table)[address]).remark


def keys_of_columns(table: Table) -> list[str]:
    return [column.key for column in table.blocks[0].columns[1:5]]


def column_of(key: str, attribute: str) -> Read:
    return lambda table: next(
        getattr(column, attribute) for column in table.blocks[0].columns if column.key == key
    )


DNN = "avazu.DNN.auc.prime"
WON = "avazu.pairs_won.auc.prime.delta"
PIVOT_KEYS: list[tuple[str, dict[str, Any], Read, object, object]] = [
    # Of a column: which, its keys, what is read, and its value before and after.
    ("{metric}.{arm}", {"spread": False}, text_at(DNN), "0.7520±0.0014", "0.7520"),
    ("{metric}.{arm}", {"decimals": 2}, text_at(DNN), "0.7520±0.0014", "0.75±0.00"),
    ("{metric}.{arm}", {"seed": 190034}, text_at(DNN), "0.7520±0.0014", "0.7529"),
    (
        "{metric}.{arm}",
        {"shows": "average_level", "split": "valid"},
        text_at(DNN),
        "0.7520±0.0014",
        "0.7559±0.0014",
    ),
    (
        "{metric}.{arm}",
        {"better": "lower"},
        column_of("auc.prime", "better"),
        "higher",
        "lower",
    ),
    # What an improvement is follows from the metric only where the column shows its level.
    (DELTA, {"better": None}, column_of("logloss.prime.delta", "better"), "higher", None),
    (
        DELTA,
        {"better": None, "shows": "average_level"},
        column_of("logloss.prime.delta", "better"),
        "higher",
        "lower",
    ),
    (DELTA, {"ties": False}, remark_at(WON), "1 tied", ""),
    (DELTA, {"ties": False}, text_at(WON), "3/4", "3/4"),
    # Of the table.
    ("", {"decimals": 2}, text_at(DNN), "0.7520±0.0014", "0.75±0.00"),
    ("", {"split": "valid"}, text_at(DNN), "0.7520±0.0014", "0.7559±0.0014"),
    ("", {"split": "valid"}, text_at(f"{DNN}.delta"), "+0.0010", "+0.0049"),
    ("", {"head": "Model"}, column_of("backbone", "label"), "Backbone", "Model"),
    (
        "",
        {"labels": {"prime": "Ours"}},
        column_of("auc.prime", "label"),
        "PRIME",
        "Ours",
    ),
    (
        "",
        {"arms": ["prime", "dense"]},
        keys_of_columns,
        ["auc.dense", "auc.prime", "auc.prime.delta", "logloss.dense"],
        ["auc.prime", "auc.prime.delta", "auc.dense", "logloss.prime"],
    ),
    (
        "",
        {"arms": ["dense"]},
        keys_of_columns,
        ["auc.dense", "auc.prime", "auc.prime.delta", "logloss.dense"],
        ["auc.dense", "logloss.dense"],
    ),
    (
        "",
        {"blocks": "backbone"},
        lambda table: [(block.key, block.label) for block in table.blocks],
        [("avazu", "Avazu")],
        [("avazu.DNN", "DNN, Avazu"), ("avazu.DCNv2", "DCNv2, Avazu")],
    ),
    (
        "",
        {"rows": ["backbone", "mean"]},
        lambda table: [row.key for row in table.blocks[0].rows],
        ["DNN", "DCNv2", "mean", "paired_median", "pairs_won", "backbones_won"],
        ["DNN", "DCNv2", "mean"],
    ),
    ("", {"compared_by": "block"}, lambda table: table.compared_by, "column", "block"),
    ("", {"columns_side_by_side": 3}, lambda table: table.side_by_side, 12, 3),
]


@pytest.mark.parametrize(("column", "keys", "read", "before", "after"), PIVOT_KEYS)
def test_a_key_of_a_pivot_changes_what_it_says(
    table_of: Callable[..., Table],
    column: str,
    keys: dict[str, Any],
    read: Read,
    before: object,
    after: object,
) -> None:
    given = {"scores": seeded, "valid_scores": on_valid, "only": SMALL}
    definition = load_definition("main")
    assert isinstance(definition, PivotDefinition)
    if column:
        assert column in [each.key for each in definition.columns]
        keys = {
            "columns": [
                each.model_copy(update=keys) if each.key == column else each
                for each in definition.columns
            ]
        }

    assert read(table_of("main", **given)) == before
    changed = definition.model_copy(update=keys)
    assert read(table_of("main", definition=changed, **given)) == after


def test_a_column_of_one_metric_shows_it(table_of: Callable[..., Table]) -> None:
    cells = cells_of(table_of("dense_weight", scores=seeded, valid_scores=on_valid))

    assert steps(cells["avazu.prime.auc"]) == pytest.approx(6144 + 8 + 16 / 5 + 32 - 8 / 20)
    assert steps(cells["avazu.prime.logloss"]) == 3072 - 8
    assert steps(cells["avazu.prime.logloss.190034"]) == 3072 - 8


def test_another_arm_may_be_the_baseline(table_of: Callable[..., Table]) -> None:
    definition = load_definition("main").model_copy(update={"baseline": "prime"})
    cells = cells_of(table_of("main", definition=definition, scores=seeded, only=SMALL))

    assert printed(cells["avazu.DNN.auc.dense.delta"]).text == "-0.0010"
    assert "avazu.DNN.auc.prime.delta" not in cells


def test_comparisons_are_on_the_tables_split(table_of: Callable[..., Table]) -> None:
    definition = load_definition("controls").model_copy(update={"split": "valid"})
    cells = cells_of(table_of("controls", definition=definition, valid_scores=on_valid))

    assert steps(cells["avazu.parameter_matched.auc.DNN"]) == 8 - 5 + 32


def test_seeds_in_rows_have_no_spread_and_neither_has_their_mean(
    table_of: Callable[..., Table],
) -> None:
    cells = cells_of(table_of("gdcn_seeds", scores=seeded))

    assert printed(cells["criteo.GDCN.mean.prime"]).text == "0.7514"
    assert printed(cells["criteo.GDCN.190034.prime"]).text == "0.7529"


def test_a_smaller_margin_is_passed(table_of: Callable[..., Table]) -> None:
    """8 steps are 0.00098: within the bundled margin, beyond one of half of it."""
    definition = load_definition("family").model_copy(update={"margin": 0.0005})
    cells = cells_of(table_of("family", definition=definition))

    assert printed(cells["avazu.prime.dense.auc.by_margin"]).text == "better"


@pytest.mark.parametrize(
    ("name", "keys", "read", "before", "after"),
    [
        (
            "cost",
            {"arms": ["dense", "prime"]},
            lambda table: [row.key for row in table.blocks[0].rows][:3],
            ["FiBiNET.dense", "FiBiNET.prime", "FiBiNET.apg"],
            ["FiBiNET.dense", "FiBiNET.prime", "DCNv2.dense"],
        ),
        (
            "cost",
            {"compared": ["prime"]},
            lambda table: any(cell.emphasised for _, cell in table.cells()),
            True,
            False,
        ),
        (
            "gradients",
            {"arms": ["dense", "prime"]},
            lambda table: [c.label for c in table.blocks[0].columns if c.group == "Gap, blocks"],
            ["Dense", "Residual (params)", "Smaller by (%)", "PRIME", "Smaller by (%)"],
            ["Dense", "PRIME", "Smaller by (%)"],
        ),
        (
            "gradients",
            {"baseline": "prime"},
            column_of("semantic", "group"),
            "Cosine, Dense",
            "Cosine, PRIME",
        ),
        (
            "subgroups",
            {"arm": "dense", "baseline": "prime"},
            lambda table: [column.key for column in table.blocks[0].columns][3:5],
            ["auc.dense", "auc.delta"],
            ["auc.prime", "auc.delta"],
        ),
        (
            "apg",
            {"arms": ["prime", "apg"]},
            lambda table: [row.key for row in table.blocks[0].rows][:2],
            ["FiBiNET.dense", "FiBiNET.apg"],
            ["FiBiNET.prime", "FiBiNET.apg"],
        ),
        (
            "apg",
            {"directions": {"logloss": "lower", "auc": "higher"}},
            lambda table: [column.key for column in table.blocks[0].columns][2:4],
            ["auc", "logloss"],
            ["logloss", "auc"],
        ),
    ],
)
def test_a_key_of_another_table_changes_what_it_says(
    name: str, keys: dict[str, Any], read: Read, before: object, after: object
) -> None:
    found, _ = Runs(RECORDS).readable()
    probes = [record for record in found if isinstance(record, ProbeRecord)]
    trained = [record for record in found if isinstance(record, RunRecord)]
    records = gather(trained, probes=probes)
    definition = load_definition(name)

    def table(own: TableDefinition) -> Table:
        return make_report(records, definitions={name: own}).tables[0]

    assert read(table(definition)) == before
    assert read(table(definition.model_copy(update=keys))) == after

"""Every table of a bundled recipe, from made-up records of its jobs."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Literal

import pytest

from prime_bench.base.identity import digest
from prime_bench.findings import Routing
from prime_bench.recipe.file import load_recipe
from prime_bench.recipe.recipe import JobSpec, TableName
from prime_bench.report.document import make_report
from prime_bench.report.formats.cells import note_text, printed
from prime_bench.report.quantities.records import RecipeJobs, gather
from prime_bench.report.tables import claims
from prime_bench.report.tables.definition import shipped_tables
from prime_bench.report.tables.kinds import KINDS, load_definition
from prime_bench.report.tables.model import Cell, Table
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
        valid_scores: Scores | None = None,
        leave_out: Callable[[JobSpec], bool] = lambda _: False,
        only: Sequence[str] = (),
    ) -> Table:
        definition = load_definition(name)
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
            job_specs=job_specs,
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
            "train_loss": None,
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
    assert set(TableName.__args__) == set(shipped_tables())


def test_claims_find_each_of_their_cells_in_a_report_of_all_runs(
    table_of: Callable[..., Table], monkeypatch: pytest.MonkeyPatch
) -> None:
    records, _ = Runs(RECORDS).readable()
    measured = gather([], probes=[record for record in records if isinstance(record, ProbeRecord)])
    gradients = make_report(measured, definitions={"gradients": load_definition("gradients")})
    tables = [*map(table_of, ("main", "apg", "controls")), *gradients.tables]
    quantities = {address: cell.quantity for table in tables for address, cell in table.cells()}
    monkeypatch.setattr(claims, "_find", lambda quantities, address: quantities[address])

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


def test_an_arm_that_these_jobs_do_not_have_is_named(table_of: Callable[..., Table]) -> None:
    table = table_of("controls", only=["arm=dense", "arm=prime", "arm=residual_parameters"])

    assert [row.key for row in table.blocks[0].rows] == [
        "parameter_matched",
        "parameter_matched_over_dense",
    ]
    assert note_text(table.notes[0]).startswith(
        "Not among these jobs: residual_macs, uniform_routing"
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
    cells = cells_of(table_of("gdcn_seeds", leave_out=lambda t: t.seed == 2021))

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


@pytest.mark.parametrize("name", sorted(set(shipped_tables()) - {"cost"}))
def test_nothing_done_is_dashes_and_words(table_of: Callable[..., Table], name: str) -> None:
    definition = load_definition(name)
    if load_recipe(definition.recipe or "main13").kind != "train":
        return
    table = table_of(name, leave_out=lambda _: True)

    assert all(c.value is None or printed(c).text in ("0", "0/0") for c in cells_of(table).values())
    assert any("no record for" in note_text(note) for note in table.notes)
    assert table.provenance.started is None

"""Gaps by seed, and what is said of random labels."""

import pytest

from prime_bench.findings import FieldGradients, Gap, GradientFindings, Measure
from prime_bench.recipe.job import Job
from prime_bench.report.document import make_report
from prime_bench.report.formats.cells import note_text
from prime_bench.report.quantities.gaps import by_seed, field_gaps, null_gaps, reduction
from prime_bench.report.quantities.records import gather
from prime_bench.report.tables.gradients import null_note
from prime_bench.report.tables.kinds import load_definition
from prime_bench.report.tables.model import Table
from prime_bench.settings.training import TrainSpec
from prime_bench.store.record import Environment, ProbeRecord

ENVIRONMENT = Environment(
    commit=None,
    dirty=None,
    package_version="0",
    python="3.11",
    platform="Linux",
    versions={},
    device="a processor",
    device_kind="cpu",
    threads=1,
    started="2026-01-01T00:00:00Z",
)


def _record(seed, backbone="DNN", arm="dense", **gaps):
    """A record with one field for each keyword, of that gap."""
    job = Job(
        kind="gradients",
        fingerprint="f",
        backbone=backbone,
        backbone_settings={},
        plugin=arm,
        plugin_settings={},
        training=TrainSpec(),
        seed=seed,
        probe={"blocks": 8},
    )
    fields = []
    for name, value in gaps.items():
        gap = Gap(
            permutations=9,
            random=0.9,
            random_deviation=0.1,
            gap=value,
            monte_carlo_error=0.0,
            p_value=0.5,
        )
        measure = Measure(
            parameters="top", n_parameters=1, semantic=0.9 - value, cosines=[], block=gap
        )
        fields.append(FieldGradients(field=name, groups=[], too_small=[], measures=[measure]))
    return ProbeRecord(
        job_id=job.id,
        job=job,
        dataset="avazu",
        arm=arm,
        data_variant="v",
        data_verified=True,
        findings=GradientFindings(fields=fields, rows="r"),
        environment=ENVIRONMENT,
        wall_s=1.0,
    )


RECORDS = [_record(2, hour=0.5, site=0.1, null_1=-0.01), _record(1, hour=0.2, null_1=0.03)]


def test_a_seeds_fields_count_together():
    gaps = field_gaps(RECORDS)

    assert len(gaps) == 3
    assert by_seed(gaps) == [pytest.approx(0.2), pytest.approx(0.3)]
    assert by_seed(gaps, "semantic") == [pytest.approx(0.7), pytest.approx(0.6)]
    assert by_seed(gaps, "example_gap") == []


def test_a_gap_of_rounding_has_no_share() -> None:
    assert reduction(2e-16, 1e-16) is None
    assert reduction(0.1, 0.4) == pytest.approx(75)


def _gaps_table(records: list[ProbeRecord]) -> Table:
    definitions = {"gradients": load_definition("gradients")}
    return make_report(gather([], probes=records), definitions=definitions).tables[0]


def _unequal() -> list[ProbeRecord]:
    """DNN has seeds 1 to 3, AutoInt lacks seed 2, and of seed 3 one field; PRIME's are half."""
    gaps = {("DNN", 1): 0.50, ("DNN", 2): 0.10, ("DNN", 3): 0.38, ("AutoInt", 1): 0.44}
    records = []
    for arm, share in (("dense", 1.0), ("prime", 0.5)):
        for (backbone, seed), gap in gaps.items():
            found = {"hour": gap * share, "site": (gap + 0.06) * share}
            records.append(_record(seed, backbone=backbone, arm=arm, **found))
        records.append(_record(3, backbone="AutoInt", arm=arm, hour=0.46 * share))
    return records


def test_every_column_of_the_mean_is_over_the_same_checkpoints() -> None:
    cells = {a.partition(".")[2]: c for a, c in _gaps_table(_unequal()).cells()}
    row = {key: cells[f"avazu.mean.{key}"] for key in ("n", "semantic", "random", "block.dense")}

    # Seed 1, both fields: (0.50 + 0.56 + 0.44 + 0.50) / 4; seed 3, the hour: (0.38 + 0.46) / 2.
    gap = row["block.dense"]
    assert gap.value == pytest.approx((0.50 + 0.42) / 2)
    assert row["n"].value == 6
    assert row["random"].value - row["semantic"].value == pytest.approx(gap.value)
    interval = gap.quantity.interval
    assert (interval.n, interval.mean) == (2, pytest.approx(gap.value))
    assert cells["avazu.mean.block.prime.reduction"].value == pytest.approx(50)
    alone = cells["avazu.DNN.block.dense"]
    assert alone.value == pytest.approx((0.53 + 0.13 + 0.41) / 3)
    assert alone.quantity.interval.mean == pytest.approx(alone.value)


def test_missing_checkpoints_are_named() -> None:
    texts = [note_text(each) for each in _gaps_table(_unequal()).notes]

    assert (
        "Avazu: the Mean row covers seeds and fields that every backbone has; missing: AutoInt, "
        "seed 2; AutoInt, seed 3 (site)"
    ) in texts
    assert not any("missing" in t for t in map(note_text, _gaps_table(_unequal()[:1]).notes))


def test_checkpoints_of_one_arm_alone_are_named() -> None:
    texts = [note_text(each) for each in _gaps_table(_unequal()[:-1]).notes]

    assert (
        "Avazu: left out, since not every arm has it on the same rows: AutoInt, seed 3 (hour)"
    ) in texts


def test_fields_are_named_where_arms_share_no_checkpoint() -> None:
    records = [
        _record(1, hour=0.2),
        _record(1, arm="prime", backbone="AutoInt", hour=0.3, site=0.4),
        _record(1, arm="prime", backbone="DCNv2", site=0.4),
    ]

    texts = [note_text(each) for each in _gaps_table(records).notes]

    assert (
        "Avazu: left out, since not every arm has it on the same rows: DNN, seed 1 (hour); "
        "AutoInt, seed 1; DCNv2, seed 1 (site)"
    ) in texts


def test_backbones_without_a_common_checkpoint_have_no_mean() -> None:
    records = [_record(1, hour=0.2), _record(2, backbone="AutoInt", hour=0.3)]
    cells = {a.partition(".")[2]: c for a, c in _gaps_table(records).cells()}

    assert cells["avazu.DNN.block.dense"].value == pytest.approx(0.2)
    assert cells["avazu.mean.block.dense"].value is None
    assert cells["avazu.mean.random"].value is None


def test_devices_are_counted_and_named() -> None:
    first, second = _record(1, hour=0.2), _record(2, hour=0.3)
    elsewhere = ENVIRONMENT.model_copy(update={"device": "an H100"})

    table = _gaps_table([first, second.model_copy(update={"environment": elsewhere})])

    said = "The records come from 2 devices: a processor, an H100"
    assert said in [note_text(each) for each in table.notes]


def test_random_labels_are_said_once():
    assert [note_text(note) for note in null_note(null_gaps(RECORDS), decimals=2)] == [
        "A random label that no model sees has a gap of +0.01 on average (-0.01 to +0.03 in 2 "
        "measurements, p from 0.500 to 0.500): what is noise"
    ]
    assert list(null_note(null_gaps([_record(1, hour=0.2)]), decimals=2)) == []

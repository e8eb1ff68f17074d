"""Gaps by seed, and what is said of random labels."""

import pytest

from prime_bench.findings import FieldGradients, Gap, GradientFindings, Measure
from prime_bench.recipe.job import Job
from prime_bench.report.formats.cells import note_text
from prime_bench.report.quantities.gaps import field_gaps, gaps_by_seed, null_gaps
from prime_bench.report.tables.gradients import null_note
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


def _record(seed, **gaps):
    """A Dense record with one field for each keyword, of that gap."""
    job = Job(
        kind="gradients",
        fingerprint="f",
        backbone="DNN",
        backbone_settings={},
        plugin="dense",
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
        arm="dense",
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
    assert gaps_by_seed(gaps) == [pytest.approx(0.2), pytest.approx(0.3)]
    assert gaps_by_seed(gaps, unit="example") == []


def test_random_labels_are_said_once():
    assert [note_text(note) for note in null_note(null_gaps(RECORDS), decimals=2)] == [
        "A random label that no model sees has a gap of +0.01 on average (-0.01 to +0.03 in 2 "
        "measurements, p from 0.500 to 0.500): what is noise"
    ]
    assert list(null_note(null_gaps([_record(1, hour=0.2)]), decimals=2)) == []

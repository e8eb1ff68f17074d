"""Jobs of the kind `gradients`: findings, the same rows for all arms, what cannot be measured."""

from pathlib import Path

import pytest
import torch

from prime_bench.base.errors import DataError
from prime_bench.findings import GradientFindings
from prime_bench.probes.groups import Grouping, choose
from prime_bench.probes.sharing import sharing_of
from prime_bench.settings.probes import GradientsSettings
from prime_bench.settings.training import TrainSpec
from prime_bench.store.record import ProbeRecord, RunRecord
from prime_bench.store.runs import Runs
from prime_bench.worker import run_job

SMALL = {"fields": ["hour"], "blocks": 2, "positives_per_block": 20, "negatives_per_block": 20}
FEW = {**SMALL, "permutations": 30, "example_permutations": 5}
QUICK = {"max_epochs": 2, "batch_size": 100}


def test_a_record_of_its_own_kind_is_written_and_read(make_job, measure, request_for):
    job = make_job("DNN", "prime", training=QUICK)

    record = measure(job, "gradients", **FEW, null_labels=1)

    runs = Runs(Path(request_for(job).runs))
    assert isinstance(record, ProbeRecord)
    assert record.job.training_run == job
    assert runs.find(record.job_id) == record
    records, faults = runs.readable()
    assert faults == []
    assert {type(one): one.job_id for one in records} == {
        RunRecord: job.id,
        ProbeRecord: record.job_id,
    }
    findings = record.findings
    assert isinstance(findings, GradientFindings)
    assert [field.field for field in findings.fields] == ["hour", "null_1"]
    hour, null = findings.fields
    assert [group.name for group in hour.groups] == ["c0=1", "c0=2", "c0=3", "c0=4"]
    assert sum(group.rows for group in hour.groups) == 1200
    assert [group.name for group in null.groups] == ["0", "1", "2", "3"]
    assert hour.measures[0].block.permutations == 30
    assert hour.measures[0].example.permutations == 5


def test_arms_of_a_pair_are_measured_on_the_same_rows_and_seeds_on_their_own(make_job, measure):
    def rows(plugin, seed):
        job = make_job("DNN", plugin, seed=seed, training={**QUICK, "max_epochs": 1})
        return measure(job, "gradients", **FEW, null_labels=1).findings.rows

    found = {rows(plugin, 1) for plugin in ("dense", "prime", "residual_parameters")}
    assert len(found) == 1
    assert rows("dense", 2) not in found


def test_what_cannot_be_measured_is_named(make_job, measure):
    job = make_job(training=QUICK)
    fields = {"fields": ["hour", "app_category"]}

    found = measure(job, "gradients", **{**FEW, **fields}).findings.fields[1]
    assert (found.groups, found.skipped) == ([], "no field of the table means app_category")

    with pytest.raises(DataError, match="hour: 0 groups have enough rows, two are needed"):
        measure(
            make_job(seed=1, training=QUICK), "gradients", **{**FEW, "positives_per_block": 400}
        )


def test_without_its_training_a_measurement_says_what_to_do(make_job, request_for):
    probing = make_job().model_copy(update={"kind": "gradients", "probe": FEW})

    with pytest.raises(DataError, match="run that trains this arm has no record") as caught:
        run_job(request_for(probing), lambda _: None)

    assert caught.value.hint == "run the recipe again: it trains the arms that it measures"


def test_the_loss_of_sharing_is_counted_by_group(make_job, measure):
    job = make_job("DNN", "prime", training=QUICK)

    (field,) = measure(
        job, "gradients", **FEW, sharing_steps=12, sharing_learning_rate=0.01
    ).findings.fields

    sharing = field.sharing
    assert sharing.steps == 12
    assert [group.name for group in sharing.groups] == [group.name for group in field.groups]
    assert sum(group.share for group in sharing.groups) == pytest.approx(1)
    assert sharing.expected == pytest.approx(
        sum(group.share * (group.shared - group.own) for group in sharing.groups)
    )
    # Labels depend on the other fields in opposite ways in half of the groups: much to gain.
    assert sharing.expected > 0.005


def test_fine_tuning_leaves_the_arm_as_it_was(make_arm, make_split):
    split = make_split(2000)
    grouping = Grouping(field="hour", names=[str(i) for i in range(6)], codes=split.ids[:, 0])
    settings = GradientsSettings(sharing_steps=3, sharing_learning_rate=0.1)
    choice = choose(grouping, split.labels)
    arm = make_arm("DCNv2", "prime")
    before = {name: value.clone() for name, value in arm.state_dict().items()}

    found = sharing_of(
        arm, split, grouping, choice, settings=settings, spec=TrainSpec(batch_size=100), seed=1
    )

    assert all(torch.equal(value, before[name]) for name, value in arm.state_dict().items())
    assert all(group.own != group.shared for group in found.groups)


def test_a_checkpoint_that_was_cut_off_is_a_failure_with_its_reason(make_job, request_for):
    job = make_job(training={**QUICK, "max_epochs": 1})
    run_job(request_for(job), lambda _: None)
    runs = Runs(Path(request_for(job).runs))
    file = runs.path(job.id) / "checkpoint.safetensors"
    file.write_bytes(file.read_bytes()[:-9])
    probing = job.model_copy(update={"kind": "gradients", "probe": FEW})

    with pytest.raises(DataError, match="cannot read the weights"):
        run_job(request_for(probing), lambda _: None)

    assert "cannot read the weights" in runs.failure(probing.id)
    assert not runs.done(probing.id)

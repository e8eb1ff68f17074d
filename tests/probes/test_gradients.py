"""Jobs of the kind `gradients`: findings, the same rows for all arms, what cannot be measured."""

import hashlib
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn.functional import binary_cross_entropy

from prime_bench.base.errors import DataError
from prime_bench.findings import GradientFindings
from prime_bench.probes import sharing
from prime_bench.probes.arms import batch_of
from prime_bench.probes.gradients import Diagnosis, NoDirection, large_groups
from prime_bench.probes.groups import (
    Grouping,
    choose,
    draw_blocks,
    draw_rows,
    grouping_of,
    null_grouping,
)
from prime_bench.probes.sharing import sharing_of
from prime_bench.settings.probes import GradientsSettings
from prime_bench.settings.training import TrainSpec
from prime_bench.store.record import ProbeRecord, RunRecord
from prime_bench.store.runs import Runs
from prime_bench.worker import run_job

SMALL = {"fields": ["hour"], "blocks": 2, "positives_per_block": 20, "negatives_per_block": 20}
FEW = {**SMALL, "permutations": 30, "example_permutations": 5}
QUICK = {"max_epochs": 2, "batch_size": 100}


def test_a_record_of_its_own_kind_is_written_and_read(make_job, measure, request_for, prepared):
    job = make_job("DNN", "prime", training=QUICK)

    record = measure(job, "gradients", **FEW, null_labels=2, null_groups=3)

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
    assert [field.field for field in findings.fields] == ["hour", "null_1", "null_2"]
    hour, null, other = findings.fields
    assert [group.name for group in hour.groups] == ["c0=1", "c0=2", "c0=3", "c0=4"]
    assert sum(group.rows for group in hour.groups) == 1200
    assert [group.name for group in null.groups] == ["0", "1", "2"]
    assert null.groups != other.groups
    # The rows behind the numbers, of all fields in their order: a digest of their indices.
    valid, digest = prepared.split("valid"), hashlib.sha256()
    for grouping in (
        grouping_of(prepared, valid, "hour"),
        null_grouping(1200, name="null_1", n_groups=3, seed=2021),
        null_grouping(1200, name="null_2", n_groups=3, seed=2021),
    ):
        codes = choose(grouping, valid.labels, positives=40, negatives=40).codes
        size = {"blocks": 2, "positives": 20, "negatives": 20}
        blocks = draw_blocks(grouping, valid.labels, codes, seed=2021, **size)
        digest.update(blocks.astype("<i8").tobytes())
    assert findings.rows == digest.hexdigest()
    assert hour.sharing is None
    assert hour.measures[0].block.permutations == 30
    assert hour.measures[0].example.permutations == 5


def test_arms_of_a_pair_are_measured_on_the_same_rows_and_seeds_on_their_own(make_job, measure):
    def rows(plugin, seed):
        job = make_job("DNN", plugin, seed=seed, training={**QUICK, "max_epochs": 1})
        return measure(job, "gradients", **FEW, null_labels=1).findings.rows

    found = {rows(plugin, 1) for plugin in ("dense", "prime", "residual_parameters")}
    assert len(found) == 1
    assert rows("dense", 2) not in found


def test_what_cannot_be_measured_is_named(make_job, measure, prepared):
    job = make_job(training=QUICK)
    fields = {"fields": ["hour", "app_category"]}

    hour, found = measure(job, "gradients", **FEW | fields, sharing_steps=1).findings.fields
    assert hour.sharing.steps == 1
    assert (found.groups, found.skipped) == ([], "no field of the table means app_category")

    valid = prepared.split("valid")
    positives = np.bincount(valid.ids[valid.labels == 1, 0])
    assert np.sum(positives == positives.max()) == 1
    one = {**FEW, "blocks": 1, "positives_per_block": int(positives.max())}
    with pytest.raises(DataError, match="hour: 1 groups have enough rows, two are needed"):
        measure(make_job(seed=1, training=QUICK), "gradients", **one)


def test_a_field_without_a_direction_is_left_out_beside_others(make_job, measure, monkeypatch):
    measures = Diagnosis.measures

    def measured(diagnosis):
        if diagnosis._field == "hour":
            raise NoDirection("the gradient of a group is 0 or not a number")
        return measures(diagnosis)

    monkeypatch.setattr(Diagnosis, "measures", measured)

    hour, null = measure(
        make_job(training=QUICK), "gradients", **FEW, null_labels=1, sharing_steps=1
    ).findings.fields

    assert hour.skipped == "the gradient of a group is 0 or not a number"
    assert (hour.measures, hour.sharing, len(hour.groups)) == ([], None, 4)
    assert null.skipped is None
    assert len(null.measures) == 1


@pytest.mark.parametrize(
    ("changed", "enough"),
    [
        ({}, True),
        ({"blocks": 4}, False),
        ({"positives_per_block": 5}, False),
        ({"negatives_per_block": 7}, False),
    ],
)
def test_a_group_has_the_rows_of_all_its_blocks_or_is_left_out(changed, enough):
    grouping = Grouping(field="f", names=["a"], codes=np.zeros(30, dtype=np.int32))
    labels = np.repeat([1, 0], [12, 18])
    keys = {"blocks": 3, "positives_per_block": 4, "negatives_per_block": 6}

    choice = large_groups(grouping, labels, settings=GradientsSettings(**keys | changed))

    assert choice.codes == ([0] if enough else [])
    assert len(choice.too_small) == (not enough)


def test_without_its_training_a_measurement_says_what_to_do(make_job, request_for):
    probing = make_job().model_copy(update={"kind": "gradients", "probe": FEW})

    with pytest.raises(DataError, match="run that trains this arm has no record") as caught:
        run_job(request_for(probing), lambda _: None)

    assert caught.value.hint == "run the recipe again: it trains the arms that it measures"


def test_the_loss_of_sharing_is_counted_by_group(make_job, measure, monkeypatch):
    job = make_job("DNN", "prime", training=QUICK)
    seeds = []
    monkeypatch.setattr(
        sharing, "draw_rows", lambda *of, seed: seeds.append(seed) or draw_rows(*of, seed=seed)
    )

    (field,) = measure(
        job, "gradients", **FEW, sharing_steps=12, sharing_learning_rate=0.01
    ).findings.fields

    found = field.sharing
    assert found.steps == 12
    assert seeds == [2021] * len(field.groups)
    assert [group.name for group in found.groups] == [group.name for group in field.groups]
    assert sum(group.share for group in found.groups) == pytest.approx(1)
    assert found.expected == pytest.approx(
        sum(group.share * (group.shared - group.own) for group in found.groups)
    )
    # Labels depend on the other fields in opposite ways in half of the groups: much to gain.
    assert found.expected > 0.005


def test_fine_tuning_is_adam_on_one_half_of_a_group_and_leaves_the_arm_as_it_was(
    make_arm, make_split, monkeypatch
):
    """Against steps by hand: on batches of the first half, which start over at its end; the losses
    are those of the first rows of the other half.
    """
    monkeypatch.setattr(sharing, "EVALUATION_ROWS", 130)
    split, spec = make_split(2000), TrainSpec(batch_size=100)
    grouping = Grouping(field="hour", names=[str(i) for i in range(6)], codes=split.ids[:, 0])
    settings = GradientsSettings(sharing_steps=3, sharing_learning_rate=0.1)
    choice = choose(grouping, split.labels)
    arm = make_arm("DCNv2", "prime")
    before = {name: value.clone() for name, value in arm.state_dict().items()}

    found = sharing_of(arm, split, grouping, choice, settings=settings, spec=spec, seed=1)

    assert all(torch.equal(value, before[name]) for name, value in arm.state_dict().items())
    learnt, judged = np.array_split(draw_rows(grouping, choice.codes[0], seed=1), 2)
    assert 2 * 100 < len(learnt) < 3 * 100
    assert len(judged) > 130

    def loss(rows):
        batch = batch_of(split, rows, device=torch.device("cpu"))
        return binary_cross_entropy(arm(batch.ids, batch.numerics), batch.labels.float())

    group = found.groups[0]
    assert group.share == choice.groups[0].rows / 2000
    assert group.shared == pytest.approx(loss(judged[:130]).item(), rel=1e-5)
    top = [arm.backbone.get_parameter(name) for name in arm.backbone.top_parameters]
    adam = torch.optim.Adam(top, lr=0.1)
    endless = np.concatenate([learnt, learnt])
    for step in range(3):
        adam.zero_grad()
        loss(endless[100 * step : 100 * (step + 1)]).backward()
        adam.step()
    assert group.own == pytest.approx(loss(judged[:130]).item(), rel=1e-4)
    assert group.own != pytest.approx(group.shared, rel=1e-3)


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

"""What a table lacks for a probe is told from its rows, as the probe itself would find it."""

import functools
import json

import numpy as np
import pytest

from prime_bench.api import prepare
from prime_bench.base.errors import DataError
from prime_bench.cli.plan import _print_table, summary
from prime_bench.data.table import PreparedTable
from prime_bench.probes.gradients import large_groups
from prime_bench.probes.groups import choose, grouping_of
from prime_bench.recipe.file import load_recipe
from prime_bench.schedule import fitness
from prime_bench.schedule.fitness import fitness_of
from prime_bench.schedule.plan import check_runnable, make_plan
from prime_bench.settings.probes import (
    CostSettings,
    GradientsSettings,
    RoutingSettings,
    SubgroupsSettings,
)

FIELDS = ("site_category", "hour")


@pytest.fixture(scope="module")
def folder(tmp_path_factory, write_table, write_manifest):
    """A table of which two fields have a meaning, with several groups each."""
    folder = write_table(tmp_path_factory.mktemp("data") / "tiny-12345678")
    schema = json.loads((folder / "schema.json").read_text())
    for field, meaning in zip(schema["fields"], FIELDS, strict=False):
        field["semantic"] = meaning
    (folder / "schema.json").write_text(json.dumps(schema))
    manifest = json.loads((folder / "manifest.json").read_text())
    write_manifest(folder, rows=manifest["rows"], positives=manifest["positives"])
    return folder


def _sizes(folder, split, column):
    """(rows, clicks) of each group, counted one by one."""
    ids = np.load(folder / f"{split}.ids.npy")[:, column]
    labels = np.load(folder / f"{split}.labels.npy")
    return sorted(
        (int((ids == code).sum()), int(labels[ids == code].sum())) for code in np.unique(ids)
    )


@pytest.mark.parametrize("positives", [1, 3, 5, 6, 7, 8, 9, 12, 30])
@pytest.mark.parametrize("negatives", [1, 12, 40])
def test_gradients_are_unfit_where_the_probe_finds_no_two_groups(folder, positives, negatives):
    settings = GradientsSettings(
        fields=FIELDS, blocks=1, positives_per_block=positives, negatives_per_block=negatives
    )
    table = PreparedTable.open(folder)
    valid = table.split("valid")
    enough = {
        name: len(
            large_groups(grouping_of(table, valid, name), valid.labels, settings=settings).codes
        )
        >= 2
        for name in FIELDS
    }

    found = fitness_of(settings, folder=folder)

    assert bool(found.unfit) == (not any(enough.values()))
    if any(enough.values()):
        left_out = [text.partition(":")[0] for text in found.skipped]
        assert left_out == [name for name in FIELDS if not enough[name]]


@pytest.mark.parametrize("min_rows", [1, 8, 9, 10, 20, 21, 24, 25, 30, 500])
@pytest.mark.parametrize("split_name", ["valid", "test"])
@pytest.mark.parametrize("kind", [SubgroupsSettings, RoutingSettings])
def test_groups_of_rows_are_counted_in_the_split_that_the_probe_reads(
    folder, min_rows, split_name, kind, monkeypatch
):
    monkeypatch.setattr(fitness, "_CHUNK_ROWS", 16)
    settings = kind(fields=FIELDS, min_rows=min_rows, split=split_name)
    table = PreparedTable.open(folder)
    split = table.split(settings.split)
    groups = [grouping_of(table, split, name) for name in FIELDS]
    enough = [bool(choose(g, split.labels, rows=min_rows).codes) for g in groups]

    found = fitness_of(settings, folder=folder)

    if kind is RoutingSettings:  # measures all rows in any case
        assert (found.unfit, len(found.skipped)) == ("", enough.count(False))
    else:
        assert bool(found.unfit) == (not any(enough))


def test_what_is_there_what_is_needed_and_what_suffices_are_named(folder):
    settings = GradientsSettings(
        fields=FIELDS, blocks=4, positives_per_block=9, negatives_per_block=2
    )

    found = fitness_of(settings, folder=folder)

    assert found.unfit.startswith(
        "needs, in one field, two groups of valid rows with 36 clicks (`probe.blocks` x "
        "`positives_per_block`) and 8 other rows (x `negatives_per_block`) each; site_category: "
    )
    sizes = _sizes(folder, "valid", 0)
    most = max(clicks for _, clicks in sizes)
    assert f"site_category: {len(sizes)} groups, the largest with {most} clicks" in found.unfit
    # The advice is followed to its limit, and no further.
    blocks = int(found.unfit.partition("probe.blocks=")[2].partition("`")[0])
    for number, fits in ((blocks, True), (blocks + 1, False)):
        changed = settings.model_copy(update={"blocks": number})
        assert bool(fitness_of(changed, folder=folder).unfit) != fits


def test_the_advice_for_rows_is_the_size_of_the_largest_group(folder):
    settings = SubgroupsSettings(fields=("hour",), min_rows=500)
    largest = max(rows for rows, _ in _sizes(folder, "test", 1))

    text = fitness_of(settings, folder=folder).unfit

    n_groups = len(_sizes(folder, "test", 1))
    assert text == (
        f"needs a group of 500 test rows (`probe.min_rows`) in one field; hour: {n_groups} groups, "
        f"the largest with {largest} rows; `--set probe.min_rows={largest}` suffices for hour"
    )
    assert not fitness_of(settings.model_copy(update={"min_rows": largest}), folder=folder).unfit


def test_a_meaning_that_no_field_has_is_named(folder):
    found = fitness_of(SubgroupsSettings(fields=("app_category",)), folder=folder)

    assert "app_category: no field of the table has this meaning" in found.unfit
    assert "probe.fields" in found.unfit


def test_a_table_that_cannot_be_read_is_left_to_the_job(tmp_path):
    assert not fitness_of(SubgroupsSettings(fields=FIELDS, min_rows=500), folder=tmp_path).unfit


@pytest.fixture(scope="module")
def small_log(tmp_path_factory):
    """The folder of a prepared synthetic log."""
    folder = tmp_path_factory.mktemp("prepared")
    prepare("synthetic", settings={"rows": 2000}, data_dir=folder)
    return folder


@pytest.fixture
def gradients(tmp_path):
    """A recipe of this kind, of two arms on that log."""

    def load(probe):
        lines = ("schema = 1", 'title = "Gaps"', 'kind = "gradients"', "seeds = [7]")
        tables = ('arms = ["dense", "prime"]', "dataset.synthetic.rows = 2000", "backbone.DNN = {}")
        (tmp_path / "gaps.toml").write_text("\n".join([*lines, *tables, "[probe]", probe]))
        return load_recipe(tmp_path / "gaps.toml")

    return load


def test_no_arm_is_trained_for_a_probe_that_would_fail(runs, small_log, gradients, capsys):
    made = make_plan(gradients(""), data_dir=small_log, runs=runs)

    assert made.counts == {"unfit": 2}  # and no training run
    assert made.to_run == []
    assert made.unfit == [f"synthetic: {made.jobs[0].why}"]
    with pytest.raises(DataError, match="synthetic: gradients needs, in one field") as caught:
        check_runnable(made)
    assert caught.value.message == made.unfit[0]
    assert caught.value.hint == (
        "a change of the recipe's [probe] makes other jobs: give the same to `report`"
    )
    _print_table(made, {})
    lines = capsys.readouterr().out.splitlines()
    # Long reasons stand below the table.
    assert [line.endswith(" too few rows, see below") for line in lines] == [False, True, True]
    assert f"unfit: {made.unfit[0]}" in summary(made).splitlines()


def test_a_probe_that_runs_already_is_not_called_unfit(runs, small_log, gradients):
    look = functools.partial(make_plan, gradients(""), data_dir=small_log, runs=runs)
    job_id = look().jobs[0].job_id
    with runs.claim(job_id):
        states = {planned.job_id: planned.state for planned in look().jobs}
    assert states[job_id] == "running"


def test_with_fewer_rows_a_block_the_arms_are_trained(runs, small_log, gradients):
    probe = gradients("blocks = 1\npositives_per_block = 4\nnegatives_per_block = 4")

    made = make_plan(probe, data_dir=small_log, runs=runs)

    assert made.counts == {"pending": 4}
    assert made.unfit == []


def test_what_a_probe_leaves_out_is_said_in_the_plan(runs, small_log, gradients):
    probe = "blocks = 1\npositives_per_block = 4\nnegatives_per_block = 4\n"
    recipe = gradients(f'{probe}fields = ["hour", "colour"]')
    made = make_plan(recipe, data_dir=small_log, runs=runs)

    assert made.counts == {"pending": 4}
    why = "colour: no field of the table has this meaning"
    assert made.skipped == (f"synthetic: gradients leaves out {why}",)


def test_of_two_columns_of_one_meaning_the_groups_are_those_that_the_probe_reads(
    tmp_path, write_table, write_manifest
):
    folder = write_table(tmp_path / "tiny-12345678")
    schema = json.loads((folder / "schema.json").read_text())
    for field in schema["fields"][:2]:
        field["semantic"] = "hour"
    (folder / "schema.json").write_text(json.dumps(schema))
    manifest = json.loads((folder / "manifest.json").read_text())
    write_manifest(folder, rows=manifest["rows"], positives=manifest["positives"])
    most = [max(rows for rows, _ in _sizes(folder, "test", column)) for column in (0, 1)]
    assert most[0] > most[1]

    # The first column, which the probe reads, has a group so large, and the second has none.
    settings = SubgroupsSettings(fields=("hour",), min_rows=most[0])
    table = PreparedTable.open(folder)
    split = table.split(settings.split)
    grouping = grouping_of(table, split, "hour")
    assert grouping is not None
    assert choose(grouping, split.labels, rows=settings.min_rows).codes
    assert fitness_of(settings, folder=folder).unfit == ""


def test_what_costs_needs_no_group(folder):
    assert fitness_of(CostSettings(), folder=folder) == fitness.Fitness()


def test_where_no_block_suffices_smaller_ones_are_advised_or_more_rows(folder):
    settings = GradientsSettings(
        fields=("hour",), blocks=2, positives_per_block=30, negatives_per_block=20
    )
    assert max(clicks for _, clicks in _sizes(folder, "valid", 1)) < 30, "not even one block"
    text = fitness_of(settings, folder=folder).unfit
    advised = [int(part.split("`")[0].split()[0]) for part in text.split("per_block=")[1:]]
    assert "`--set probe.blocks=1 --set probe.positives_per_block=" in text
    assert text.endswith("suffices for hour")
    changed = {"blocks": 1, "positives_per_block": advised[0], "negatives_per_block": advised[1]}
    assert fitness_of(settings.model_copy(update=changed), folder=folder) == fitness.Fitness()

    for large in ((1, 100_000), (100_000, 1)):
        sizes = dict(zip(("positives_per_block", "negatives_per_block"), large, strict=True))
        text = fitness_of(settings.model_copy(update={"blocks": 1, **sizes}), folder=folder).unfit
        assert text.endswith("; prepare more rows")

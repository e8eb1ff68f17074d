"""`verify` finds every edit of a record, and every file beside it that was replaced.

Each edit is made in a folder of real runs: of Dense and PRIME with two seeds each, of an arm whose
output is constant, and of a probe. `ALONE` has the edits that are found in records without digests
too, as those of older versions are; `AGAIN` those that `--recompute` finds there.
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from prime_bench import api
from prime_bench.catalog import BACKBONES, PLUGINS
from prime_bench.recipe.job import Job, JobRequest
from prime_bench.settings.probes import RoutingSettings
from prime_bench.settings.training import TrainSpec
from prime_bench.worker import run_job

BACKBONE = {"embedding_dim": 4, "hidden_units": [16, 8], "net_dropout": 0.1, "batch_norm": False}
PRIME = {"bags": 2, "experts_per_bag": 3, "rank": 2}
TRAINING = {"batch_size": 32, "learning_rate": 0.05, "max_epochs": 6, "patience": 1}


@pytest.fixture(scope="module")
def finished(tmp_path_factory, table, write_table):
    """A folder with `data`, `runs`, and the ids of the jobs by name."""

    def blind(name, numerics, labels):  # noqa: ARG001
        numerics[:] = np.nan if name != "train" else 0.0

    folder = tmp_path_factory.mktemp("verified")
    shutil.copytree(table, folder / "data" / "tiny-12345678")
    lost = write_table(folder / "data" / "lost-12345678", spoil=blind)
    names = {}
    for name, plugin, seed, data in (
        ("dense", "dense", 1, table),
        ("dense 2", "dense", 2, table),
        ("prime", "prime", 1, table),
        ("prime 2", "prime", 2, table),
        ("lost", "dense", 1, lost),
    ):
        job = Job(
            fingerprint=json.loads((data / "manifest.json").read_text())["fingerprint"],
            backbone="DNN",
            backbone_settings=BACKBONES["DNN"].settings.parse(BACKBONE, where="").plain(),
            plugin=plugin,
            plugin_settings=PLUGINS[plugin]
            .settings.parse(PRIME if plugin == "prime" else {}, where="")
            .plain(),
            training=TrainSpec.parse(TRAINING, where=""),
            seed=seed,
        )
        request = JobRequest(
            job=job,
            dataset="tiny",
            arm=plugin,
            table=str(data),
            runs=str(folder / "runs"),
            device="cpu",
            threads=1,
            keep_predictions=name == "prime",
        )
        names[name] = run_job(request, lambda _: None).job_id
        if name == "prime":
            probe = job.model_copy(update={"kind": "routing", "probe": RoutingSettings().plain()})
            asked = request.model_copy(update={"job": probe, "keep_predictions": False})
            names["probe"] = run_job(asked, lambda _: None).job_id
    return folder, names


class Folder:
    """The runs of `finished` in a folder of a test's own."""

    def __init__(self, path: Path, names: dict[str, str]) -> None:
        self.path, self.names = path, names

    def file(self, job: str, name: str) -> Path:
        return self.path / "runs" / self.names[job] / name

    def read(self, job: str, name: str = "record.json") -> dict:
        return json.loads(self.file(job, name).read_text())

    def change(self, job: str, change: Callable, name: str = "record.json") -> None:
        table = self.read(job, name)
        change(table)
        self.file(job, name).write_text(json.dumps(table, indent=2))

    def lines(self, job: str, change: Callable) -> None:
        """Change the validations in the record, and write history.jsonl anew from them."""
        self.change(job, lambda record: change(record["history"]))
        text = "".join(json.dumps(line) + "\n" for line in self.read(job)["history"])
        self.file(job, "history.jsonl").write_text(text)

    def swap(self, name: str, *, jobs: tuple[str, str] = ("dense", "dense 2")) -> None:
        """Exchange a file of two jobs."""
        first, second = (self.file(job, name) for job in jobs)
        content = first.read_bytes()
        first.write_bytes(second.read_bytes())
        second.write_bytes(content)

    def swap_values(self, *keys: str, jobs: tuple[str, str] = ("dense", "dense 2")) -> None:
        """Exchange a value of two records."""
        values = []
        for job in jobs:
            value = self.read(job)
            for key in keys:
                value = value[key]
            values.append(value)
        for job, value in zip(jobs, reversed(values), strict=True):
            self.change(job, setting(*keys, to=value))

    def strip(self) -> None:
        """Remove the digests, which is a finding of its own that `verify` here leaves out."""
        for job in self.names:
            self.change(job, lambda record: record.pop("digests", None))

    def verify(self, *, recompute: bool = False) -> list[tuple[str, str]]:
        found = api.verify(
            runs_dir=self.path / "runs",
            data_dir=self.path / "data",
            recompute=recompute,
            device="cpu",
        )
        # `finished` has data that no card describes, which is a finding of its own.
        return [
            (item.topic, item.what)
            for item in found.findings
            if "differ from those of the card" not in item.what
            and "no other arm has run" not in item.what
            and "were removed" not in item.what
        ]


def setting(*keys: str, to: object) -> Callable[[dict], None]:
    """A change that puts a value, or what a function makes of the old one, at a place."""

    def change(table: dict) -> None:
        *above, last = keys
        for key in above:
            table = table[key]
        table[last] = to(table[last]) if callable(to) else to

    return change


def record(*keys: str, to: object, job: str = "dense") -> Callable[[Folder], None]:
    return lambda folder: folder.change(job, setting(*keys, to=to))


def beside(name: str, *keys: str, to: object, job: str = "dense") -> Callable[[Folder], None]:
    return lambda folder: folder.change(job, setting(*keys, to=to), name)


def lines(change: Callable[[list], object], job: str = "dense") -> Callable[[Folder], None]:
    return lambda folder: folder.lines(job, change)


def swap(name: str) -> Callable[[Folder], None]:
    return lambda folder: folder.swap(name)


def swap_values(*keys: str) -> Callable[[Folder], None]:
    return lambda folder: folder.swap_values(*keys)


def remove(name: str) -> Callable[[Folder], None]:
    return lambda folder: folder.file("dense", name).unlink()


def all_of(*edits: Callable[[Folder], None]) -> Callable[[Folder], None]:
    def edit(folder: Folder) -> None:
        for one in edits:
            one(folder)

    return edit


def more(value: float) -> float:
    return value + 1e-9


def other_predictions(folder: Folder) -> None:
    path = folder.file("prime", "predictions.npz")
    with np.load(path) as file:
        arrays = dict(file)
    arrays["test"] = arrays["test"][::-1].copy()
    np.savez(path, **arrays)


def a_prediction(folder: Folder) -> None:
    path = folder.file("prime", "predictions.npz")
    with np.load(path) as file:
        arrays = dict(file)
    arrays["test"][3] = np.nextafter(arrays["test"][3], np.float32(1))
    np.savez(path, **arrays)


def blank(folder: Folder) -> None:
    path = folder.file("dense", "config.json")
    path.write_text(path.read_text() + "\n")


def drop_last(history: list) -> None:
    del history[-1]


EDITS: dict[str, Callable[[Folder], None]] = {
    "test AUC": record("result", "test", "auc", to=more),
    "test LogLoss": record("result", "test", "logloss", to=more),
    "test AUC, and in test.json": all_of(
        record("result", "test", "auc", to=more), beside("test.json", "auc", to=more)
    ),
    "validation AUC": record("result", "valid", "auc", to=more),
    "validation LogLoss": record("result", "valid", "logloss", to=more),
    **{
        f"test {key}": record("result", "test", key, to=more)
        for key in ("ne", "pcoc", "ece", "ece_all")
    },
    "validation NE taken out": record("result", "valid", "ne", to=None),
    "a group AUC without groups": record("result", "valid", "gauc", to=0.5),
    "predicted clicks of a decile": record("result", "test", "deciles", 0, "predicted", to=more),
    "clicks of a decile": record("result", "valid", "deciles", 3, "clicks", to=lambda n: n + 1),
    "deciles of other rows": record("result", "valid", "deciles", to=lambda bins: bins[1:]),
    "metrics of predictions that are not finite": record(
        "result", "test", "ne", to=0.9, job="lost"
    ),
    "test scores swapped between seeds": swap_values("result", "test"),
    "test scores swapped, and test.json": all_of(swap_values("result", "test"), swap("test.json")),
    "validation scores swapped between seeds": swap_values("result", "valid"),
    "both scores swapped between arms": lambda folder: [
        folder.swap_values("result", split, jobs=("dense", "prime")) for split in ("valid", "test")
    ],
    "all results and files swapped between seeds": all_of(
        *(swap_values(key) for key in ("result", "history", "weights", "wall_s")),
        *(swap(name) for name in ("test.json", "history.jsonl", "checkpoint.safetensors")),
    ),
    "weights null": record("weights", to=None),
    "weights null and swapped": all_of(
        *(record("weights", to=None, job=job) for job in ("dense", "dense 2")),
        swap("checkpoint.safetensors"),
    ),
    "weights and their digests swapped": all_of(
        swap_values("weights"), swap("checkpoint.safetensors")
    ),
    "called degenerate": record("result", "degenerate", to="valid: the AUC is 0.5"),
    "no longer degenerate": record("result", "degenerate", to=None, job="lost"),
    "degenerate for another reason": record(
        "result", "degenerate", to="test: the AUC is 0.5", job="lost"
    ),
    "best epoch": record("result", "best_epoch", to=lambda epoch: epoch + 1),
    "no best epoch": record("result", "best_epoch", to=None),
    "epochs": record("result", "epochs", to=lambda epochs: epochs + 1),
    "why it stopped": record(
        "result",
        "stopped",
        to=lambda why: {"patience": "max_epochs", "max_epochs": "patience"}[why],
    ),
    "a note of the result": record("result", "notes", to=["nothing of note"]),
    "parameters of the plug-in": record("budget", "plugin_parameters", to=1, job="prime"),
    "parameters of the backbone": record("budget", "backbone_parameters", to=lambda n: n - 1),
    "MACs of the backbone": record("budget", "backbone_macs", to=lambda n: n + 1),
    "MACs of the plug-in": record("budget", "plugin_macs", to=0, job="prime"),
    "notes on the data": record("data_notes", to=[]),
    "data called verified": record("data_verified", to=True),
    "digest of the data settings": record("data_variant", to="another"),
    "name of the arm": record("arm", to="prime"),
    "name of the data set": record("dataset", to="avazu"),
    "learning rate": lines(lambda history: history[-1].update(learning_rate=0.5)),
    "an improvement": lines(lambda history: history[-1].update(improved=True)),
    "validation AUC of an epoch": lines(lambda history: history[0].update(valid_auc=0.99)),
    "training loss of an epoch": lines(lambda history: history[0].update(train_loss=0.1)),
    "steps of an epoch": lines(lambda history: history[0].update(step=1)),
    "number of an epoch": lines(lambda history: history[0].update(epoch=7)),
    "the last epoch dropped": all_of(
        lines(drop_last), record("result", "epochs", to=lambda epochs: epochs - 1)
    ),
    "time of an epoch": lines(lambda history: history[0].update(wall_s=1e6)),
    "effective experts of an epoch": lines(
        lambda history: history[0]["routing"].update(effective_experts=[1.0, 1.0]), job="prime"
    ),
    "initial weights": record("pairing", "initial_weights", to="0" * 64, job="prime"),
    "order of rows": record("pairing", "row_order", to="0" * 64, job="prime"),
    "threads": record("environment", "threads", to=64),
    "kind of device": record("environment", "device", to="NVIDIA H100"),
    "commit, and in environment.json": all_of(
        record("environment", "commit", to="f" * 40),
        beside("environment.json", "commit", to="f" * 40),
    ),
    "shorter": record("wall_s", to=0.0),
    "longer": record("wall_s", to=1e6),
    "seed": record("job", "seed", to=3),
    "a digest of a file": record("digests", "files", "test.json", to="0" * 64),
    "findings of a probe": record("findings", "rows", to=1, job="probe"),
    "config.json swapped": swap("config.json"),
    "environment.json edited": beside("environment.json", "platform", to="Windows"),
    "test.json swapped": swap("test.json"),
    "test.json edited": beside("test.json", "rows", to=1),
    "history.jsonl swapped": swap("history.jsonl"),
    "checkpoint swapped": swap("checkpoint.safetensors"),
    "predictions of other rows": other_predictions,
    "a prediction's last bit": a_prediction,
    "a blank line in config.json": blank,
    "config.json removed": remove("config.json"),
    "test.json removed": remove("test.json"),
    "history.jsonl removed": remove("history.jsonl"),
}

DIGEST_ALONE = {
    "test AUC, and in test.json",
    "test scores swapped, and test.json",
    "all results and files swapped between seeds",
    "weights null",
    "weights null and swapped",
    "weights and their digests swapped",
    "training loss of an epoch",
    "commit, and in environment.json",
    "longer",
    "findings of a probe",
    "test.json edited",
    "a prediction's last bit",
    "a blank line in config.json",
    "config.json removed",
    "test.json removed",
    "history.jsonl removed",
}
"""Nothing else in the folder tells these."""
RECOMPUTED = {
    "test AUC, and in test.json",
    "test scores swapped, and test.json",
    "weights null and swapped",
    "weights and their digests swapped",
}
"""What of them predicting again finds. That whole results were exchanged, with weights and side
files, only training again would tell."""


@pytest.fixture
def folder(finished, tmp_path) -> Folder:
    path, names = finished
    for part in ("runs", "data"):
        shutil.copytree(path / part, tmp_path / part)
    return Folder(tmp_path, names)


def test_there_are_forty_edits() -> None:
    assert len(EDITS) >= 40
    assert RECOMPUTED < DIGEST_ALONE < EDITS.keys()


@pytest.mark.parametrize("recompute", [False, True])
def test_what_nobody_edited_is_sound(folder: Folder, recompute: bool) -> None:
    assert folder.verify(recompute=recompute) == []
    folder.strip()
    assert folder.verify(recompute=recompute) == []


@pytest.mark.parametrize("name", EDITS)
def test_an_edit_is_found(folder: Folder, name: str) -> None:
    EDITS[name](folder)
    assert folder.verify() != []


@pytest.mark.parametrize("name", [name for name in EDITS if name != "a digest of a file"])
def test_in_a_record_without_digests_what_follows_from_other_values_is_found(
    folder: Folder, name: str
) -> None:
    folder.strip()
    EDITS[name](folder)
    assert (folder.verify() == []) == (name in DIGEST_ALONE)


@pytest.mark.parametrize("name", sorted(DIGEST_ALONE))
def test_predicting_again_needs_no_digest(folder: Folder, name: str) -> None:
    folder.strip()
    EDITS[name](folder)
    assert (folder.verify(recompute=True) != []) == (name in RECOMPUTED)

"""A study from an empty folder to its report, killed on the way: nothing finished is repeated, and
every table and figure is there.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from prime_bench.cli.main import exit_code
from prime_bench.recipe.study import find_study, load_study
from prime_bench.report.figures import FIGURES

# Both seeds where each costs least, which most of the figures show.
ONLY = {
    "main13": ["backbone=DNN", "dataset=avazu"],
    "controls": ["backbone=DNN", "arm=dense", "arm=prime", "arm=permuted_routing", "seed=2021"],
    "apg": ["backbone=DCNv2", "seed=2021"],
    "apg_selected": [
        "backbone=DCNv2",
        "arm=dense",
        "arm=apg",
        "arm=prime",
        "arm=apg_rank_4",
        "seed=2021",
    ],
    "gdcn_attachment": ["arm=dense", "arm=prime", "arm=post_post", "seed=2021"],
    "dense_weight": ["backbone=DNN", "arm=dense", "arm=dense_weight_25", "seed=2021"],
    "structural": ["backbone=DNN", "arm=dense", "arm=prime", "arm=hidden_subspace", "seed=2021"],
    "gradients": ["backbone=DNN", "arm=dense", "arm=prime", "seed=2021"],
    "routing": ["backbone=DNN", "seed=2021"],
    "gdcn_routing": ["arm=prime", "arm=post_post", "seed=2021"],
    "subgroups": ["backbone=DNN", "arm=dense", "arm=prime", "seed=2021"],
    # APG's steps take ten times as long as the others' together.
    "cost": ["backbone=DCNv2", "dataset=avazu", "arm=dense", "arm=prime"],
}
SMALLER = {
    "rows = 16_000": "rows = 5_000",
    "rows = 10_000": "rows = 2_500",
    # Of unscaled numbers GDCN makes huge ones, of which LayerNorm of torch 2.8 makes NaN.
    "min_count = 2\n": 'min_count = 2\nnumeric = "log_bucket"\n',
    "max_epochs = 2": "max_epochs = 1",
    "min_rows = 100": "min_rows = 20",
    "blocks = 2": "blocks = 1",
    "positives_per_block = 4": "positives_per_block = 4",
    "negatives_per_block = 8": "negatives_per_block = 4",
    "inference_steps = 10": "inference_steps = 2",
    "training_steps = 5": "training_steps = 2",
    "repetitions = 2": "repetitions = 1",
    "set.seeds = [2021]": "set.seeds = [2021]\nset.training.batch_size = 64",
}
MOST_S = 1200
"""Seconds for which a command may run here: other programs may have the machine's cores."""


@pytest.fixture
def smaller(tmp_path):
    """The bundled miniature with few backbones and rows."""
    text = find_study("miniature").read_text(encoding="utf-8")
    text = re.sub("(?m)^only = .*\n", "", text)
    for old, new in SMALLER.items():
        assert old in text
        text = text.replace(old, new)
    for name, only in ONLY.items():
        line = f'recipe = "{name}"'
        assert text.count(f"{line}\n") + text.count(f"{line} ") == 1
        text = re.sub(f"(?m)^{line}.*$", f"{line}\nonly = {json.dumps(only)}", text)
    file = tmp_path / "smaller.toml"
    file.write_text(text, encoding="utf-8")
    return file


def _start(study, *options, folder):
    command = [sys.executable, "-m", "prime_bench", "study", str(study), *options]
    return subprocess.Popen(
        command,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Threads that measure costs would keep all cores busy where they wait for each other.
        env=os.environ
        | {"PYTHONPATH": str(Path(__file__).parents[1]), "OMP_WAIT_POLICY": "PASSIVE"},
    )


def _records(folder):
    """Job id -> time and content of its record."""
    files = sorted((folder / "runs").glob("*/record.json"))
    return {file.parent.name: (file.stat().st_mtime_ns, file.read_bytes()) for file in files}


def _kill_after_records(study, n, *options, folder):
    """Start the study, and kill its process once `n` more jobs have a record."""
    before = len(_records(folder))
    with _start(study, *options, folder=folder) as process:
        end = time.monotonic() + MOST_S
        while len(list((folder / "runs").glob("*/record.json"))) < before + n:
            assert process.poll() is None, process.stderr.read()
            assert time.monotonic() < end
            time.sleep(0.2)
        process.kill()
        process.communicate()
    assert process.returncode == -signal.SIGKILL


def _kill_in_report(study, *options, folder):
    """Start the study, and kill its process when it begins to write the report."""
    with _start(study, *options, folder=folder) as process:
        for line in process.stderr:
            if line == "writing the report\n":
                process.kill()
        process.communicate()
    assert process.returncode == -signal.SIGKILL


def _finish(study, *, folder):
    with _start(study, "--json", folder=folder) as process:
        out, errors = process.communicate(timeout=3 * MOST_S)
    assert process.returncode == 0, errors
    return json.loads(out)


def _check_report(study, said, *, folder):
    """Every table and figure of the study is there, filled and labelled."""
    loaded = load_study(study)
    kinds = {kind for item in loaded.recipes for kind in item.figures}
    assert kinds == set(FIGURES) - {"sensitivity"}, (  # which a recipe with a grid has
        "each figure is in `figures` of a recipe of recipes/studies/"
    )
    assert {name.partition("-")[0] for name in said["figures"]} == kinds
    wanted = {table for item in loaded.recipes for table in item.tables}
    wanted |= {"main", "gradients", "routing", "gdcn_routing_routing", "subgroups", "cost"}
    assert set(said["tables"]) == wanted | {"claims", "paper", "bars"}
    assert said["missing"] == []
    assert said["label"] == loaded.label != ""
    for name in said["tables"]:
        rows = (folder / f"{name}.csv").read_text(encoding="utf-8").splitlines()
        assert len(rows) > 1, name
        assert loaded.label in " ".join((folder / f"{name}.tex").read_text("utf-8").split())
    for name in said["figures"]:
        assert all((folder / f"{name}.{kind}").stat().st_size for kind in ("pdf", "svg", "png"))
        words = re.sub(r"<[^>]*>|\s+", " ", (folder / f"{name}.svg").read_text("utf-8"))
        assert loaded.label[:30] in " ".join(words.split())
    page = (folder / "report.html").read_text(encoding="utf-8")
    n_labels = page.count(loaded.label)
    assert n_labels >= 1 + len(said["tables"])
    assert "Synthetic Avazu" in page
    assert ">Avazu<" not in page
    index = (folder / "index.md").read_text(encoding="utf-8")
    assert loaded.label in index.replace("\\", "")
    links = re.findall(r"\]\(([^)]+)\)", index)
    assert len(links) == 2 + 2 * len(said["tables"]) + 3 * len(said["figures"])
    assert all((folder / link).is_file() for link in links)


@pytest.mark.long
def test_a_study_goes_on_after_kills_and_repeats_nothing(smaller, tmp_path, monkeypatch):
    one = ("--slots", "1")  # a worker less imports torch
    _kill_after_records(smaller, 5, *one, folder=tmp_path)
    first = _records(tmp_path)
    _kill_in_report(smaller, *one, folder=tmp_path)
    second = _records(tmp_path)
    assert first.items() <= second.items()

    said = _finish(smaller, folder=tmp_path)

    assert (said["jobs_done"], said["jobs_failed"], said["jobs_left"]) == (0, 0, 0)
    assert _records(tmp_path) == second
    report = tmp_path / "report" / "smaller"
    assert said["output"] == "report/smaller"
    _check_report(smaller, said, folder=report)
    # The manifest's promise, and the same bytes again.
    from prime_bench.report.manifest import report_faults
    from prime_bench.store.runs import Runs

    assert report_faults(report, Runs(tmp_path / "runs")) == []
    before = {file.name: file.read_bytes() for file in report.iterdir()}
    monkeypatch.chdir(tmp_path)
    assert exit_code(["study", str(smaller), "--only-report"]) == 0
    assert {file.name: file.read_bytes() for file in report.iterdir()} == before


@pytest.mark.slow
def test_the_miniature_from_an_empty_folder(tmp_path):
    study = find_study("miniature")
    _kill_after_records(study, 60, folder=tmp_path)
    first = _records(tmp_path)
    _kill_after_records(study, 60, folder=tmp_path)

    said = _finish(study, folder=tmp_path)

    assert first.items() <= _records(tmp_path).items()
    report = tmp_path / "report" / "miniature"
    _check_report(study, said, folder=report)
    if shutil.which("pdflatex"):
        command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "study.tex"]
        subprocess.run(command, cwd=report, check=True, capture_output=True)

"""Real workers with a plug-in that raises, needs more memory than there is, or hangs: the rest is
done, the codes and states say what happened, and a retry makes good what was in passing.
"""

import json
import os
import subprocess
import sys

import pytest

PLUGIN = """
import time
from pathlib import Path
from typing import Literal

import torch
from torch import nn

from prime_bench.plugins.interface import Plugin
from prime_bench.settings.interface import PluginSettings


class TroubleSettings(PluginSettings):
    does: Literal["raise", "hang", "eat"] = "raise"

    def parameters(self, input_width):
        return 1

    def macs(self, input_width):
        return 0


class Trouble(Plugin):
    Settings = TroubleSettings
    label = "Trouble"

    def __init__(self, input_width, settings, *, generator):
        super().__init__()
        self.does = settings.does
        self.scale = nn.Parameter(torch.zeros(()))

    def forward(self, z, dense_logit, router_input=None):
        over = Path("over")  # where it is, the trouble has passed
        if self.training and not over.exists():
            if self.does == "raise":
                raise RuntimeError("out of luck")
            if self.does == "hang":
                time.sleep(600)
            torch.ones(60_000_000_000, dtype=torch.uint8)
        return torch.sigmoid(dense_logit * (1 + self.scale))

    def log_probabilities(self, z, dense_logit, router_input=None):
        logit = dense_logit * (1 + self.scale)
        return nn.functional.logsigmoid(logit), nn.functional.logsigmoid(-logit)
"""
RECIPE = """
schema = 1
title = "Trouble"
seeds = [1]
arms = ["dense", "raise", "eat", "hang", "prime"]
[arm.raise]
plugin = "trouble:Trouble"
[arm.eat]
plugin = "trouble:Trouble"
does = "eat"
[arm.hang]
plugin = "trouble:Trouble"
does = "hang"
[dataset.synthetic]
rows = 1000
[training]
batch_size = 256
max_epochs = 1
[backbone.DNN]
hidden_units = [8]
"""
RUN = ("run", "recipe.toml", "--device", "cpu", "--job-timeout", "30")


@pytest.fixture
def prime_bench(tmp_path):
    """The command line in a process that finds the plug-in and may have 20 GB of addresses."""
    (tmp_path / "trouble.py").write_text(PLUGIN)
    (tmp_path / "recipe.toml").write_text(RECIPE)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
    limited = ["/bin/sh", "-c", 'ulimit -v 20000000; exec "$@"', "sh", sys.executable, "-m"]

    def call(*arguments):
        return subprocess.run(
            [*limited, "prime_bench", *arguments],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )

    assert call("prepare", "synthetic", "--rows", "1000").returncode == 0
    return call


@pytest.mark.slow
def test_trouble_of_every_kind_leaves_the_rest_done_and_passes(prime_bench, tmp_path):
    ran = prime_bench(*RUN)

    assert ran.returncode == 1
    assert ran.stdout == "recipe.toml: 2 jobs done, 0 had a record, 3 failed\n"
    failed = dict(line.split(": ", 2)[1:] for line in ran.stderr.splitlines())
    assert set(failed) == {f"synthetic DNN {arm} seed 1" for arm in ("raise", "eat", "hang")}
    plan = json.loads(prime_bench("plan", "recipe.toml", "--json").stdout)
    states = {job["arm"]: (job["state"], job["why"]) for job in plan["jobs"]}
    assert states["dense"] == states["prime"] == ("done", "has a record")
    assert states["raise"] == ("failed", "RuntimeError: out of luck")
    assert states["hang"] == ("failed", "not done after 30 s, and killed")
    state, why = states["eat"]
    assert state == "failed"
    assert "memory" in why

    (tmp_path / "over").touch()
    again = prime_bench(*RUN)
    assert again.returncode == 0
    assert again.stdout == "recipe.toml: 3 jobs done, 2 had a record, 0 failed\n"


@pytest.mark.slow
def test_a_retry_does_a_failed_job_again_in_the_same_run(prime_bench, tmp_path):
    """The job that raises comes again after the others, the last of which lets it pass."""
    plugin = tmp_path / "trouble.py"
    waits = "time.sleep(600)\n"
    passes = "over.touch()\n                return torch.sigmoid(dense_logit * (1 + self.scale))\n"
    assert waits in plugin.read_text()
    plugin.write_text(plugin.read_text().replace(waits, passes))
    narrow = ["--only", "arm=raise", "--only", "arm=hang"]

    ran = prime_bench(*RUN, *narrow, "--retries", "1")
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == "recipe.toml: 2 jobs done, 0 had a record, 0 failed\n"

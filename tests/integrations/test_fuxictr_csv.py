"""PRIME on the data set that FuxiCTR's own `build_dataset` makes of CSV files."""

import os
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
STAND_IN = """
from fuxictr.pytorch.layers import FeatureEmbedding, MLP_Block
from fuxictr.pytorch.models import BaseModel


class DNN(BaseModel):
    def __init__(self, feature_map, embedding_dim, hidden_units, learning_rate, **kwargs):
        super().__init__(feature_map, **kwargs)
        self.embedding_layer = FeatureEmbedding(feature_map, embedding_dim)
        self.mlp = MLP_Block(
            input_dim=feature_map.sum_emb_out_dim(), output_dim=1, hidden_units=hidden_units,
            output_activation=self.output_activation,
        )
        self.compile(kwargs["optimizer"], kwargs["loss"], learning_rate)
        self.reset_parameters()

    def forward(self, inputs):
        return {"y_pred": self.mlp(self.embedding_layer(self.get_inputs(inputs), flatten_emb=True))}
"""


@pytest.fixture
def attach(tmp_path):
    """Run scripts/attach_to_csv.py on a model zoo of one model."""
    source = tmp_path / "zoo" / "DNN" / "src" / "DNN.py"
    source.parent.mkdir(parents=True)
    source.write_text(STAND_IN)

    def run(model):
        command = [sys.executable, ROOT / "scripts" / "attach_to_csv.py"]
        return subprocess.run(
            [*command, "--zoo", tmp_path / "zoo", "--model", model],
            # Its Ray is one of this machine, whatever the environment names.
            env={k: v for k, v in os.environ.items() if not k.startswith("RAY_")},
            capture_output=True,
            text=True,
            check=False,
        )

    return run


two = int(version("polars").partition(".")[0]) >= 2


@pytest.mark.slow
@pytest.mark.skipif(two, reason="FuxiCTR 2.3.10 reads CSV with polars below 2")
def test_prime_learns_on_what_fuxictr_builds_of_csv(attach):
    done = attach("DNN")

    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^DNN with PRIME: test AUC 0\.[789]", done.stdout, flags=re.MULTILINE)


@pytest.mark.skipif(two, reason="FuxiCTR 2.3.10 reads CSV with polars below 2")
def test_a_model_that_the_zoo_lacks(attach):
    done = attach("DeepFM")

    assert done.returncode == 2
    assert "no DeepFM/src/DeepFM.py" in done.stderr


@pytest.mark.skipif(not two, reason="this polars is the one that FuxiCTR needs")
def test_polars_2_is_refused_before_anything_is_read(attach):
    done = attach("DNN")

    assert done.returncode == 4
    assert "pip install 'polars<2'" in done.stderr

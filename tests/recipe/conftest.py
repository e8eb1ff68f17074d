from textwrap import dedent

import pytest

SOUND = """\
    schema = 1
    title = "Small"
    seeds = [7, 3]
    arms = ["dense", "prime"]

    [dataset.synthetic]
    rows = 1000

    [training]
    embedding_dim = 4
    max_epochs = 1

    [backbone.DNN]
    hidden_units = [8]

    [backbone.DCNv2]
    parallel_dnn_hidden_units = [8]
"""


@pytest.fixture
def sound():
    """A recipe without a fault: 8 jobs."""
    return dedent(SOUND)


@pytest.fixture
def write(tmp_path):
    """Write a recipe, `small.toml` unless told otherwise, and return its path."""

    def write(text, name="small.toml"):
        path = tmp_path / name
        path.write_text(dedent(text), encoding="utf-8")
        return path

    return write

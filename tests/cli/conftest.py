"""What tests of several commands start from."""

from pathlib import Path

import pytest

from prime_bench.base.bundled import bundled_folder
from prime_bench.cli.main import exit_code


@pytest.fixture(scope="session")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with two tables of one data set."""
    folder = tmp_path_factory.mktemp("data")
    for shape in ("avazu", "criteo"):
        arguments = ["prepare", "synthetic", "--rows", "400", "--shape", shape]
        assert exit_code([*arguments, "--data-dir", str(folder)]) == 0
    return folder


@pytest.fixture
def quick_and_criteo(tmp_path: Path) -> str:
    """The recipe `quick` on Criteo as well."""
    text = (bundled_folder("recipes") / "quick.toml").read_text(encoding="utf-8")
    path = tmp_path / "recipe" / "quick.toml"
    path.parent.mkdir()
    path.write_text(f'{text}\n[dataset.criteo]\nnumeric = "log1p"\n', encoding="utf-8")
    return str(path)

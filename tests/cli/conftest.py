"""What tests of several commands start from."""

import json
import shutil
from pathlib import Path

import pytest

from prime_bench.base.files import bundled_folder
from prime_bench.cli.main import exit_code

SETTINGS = ["--set", "dataset.synthetic.rows=1000", "--set", "training.max_epochs=1"]
ONLY = ["--only", "backbone=DNN", "--only", "seed=2021"]


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


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder where two jobs of `quick` are done; the second one kept its predictions."""
    folder = tmp_path_factory.mktemp("finished")
    patch = pytest.MonkeyPatch()
    with patch.context() as inside:
        inside.chdir(folder)
        assert exit_code(["prepare", "synthetic", "--rows", "1000"]) == 0
        run = ["run", "quick", *SETTINGS, *ONLY, "--device", "cpu", "--threads-per-job", "1"]
        assert exit_code([*run, "--only", "arm=dense"]) == 0
        assert exit_code([*run, "--only", "arm=prime", "--keep-predictions"]) == 0
    return folder


@pytest.fixture
def jobs(
    finished: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> dict[str, Path]:
    """The same in a folder of the test's own: the records' folders by arm."""
    shutil.copytree(finished, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    capsys.readouterr()
    return {json.loads(p.read_text())["arm"]: p.parent for p in Path("runs").glob("*/record.json")}

"""The wheel holds the package, the recipes, the cards and the templates, and no strays."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    return zipfile.ZipFile(wheel).namelist()


def test_top_level_has_no_strays(names: list[str]) -> None:
    tops = {name.split("/")[0] for name in names}

    assert {top for top in tops if not top.endswith(".dist-info")} == {"prime_bench"}


@pytest.mark.parametrize("folder", ["recipes", "datasets", "reports"])
def test_bundled_files_are_complete(names: list[str], folder: str) -> None:
    wanted = {
        path.relative_to(ROOT).as_posix() for path in (ROOT / folder).rglob("*") if path.is_file()
    }
    wanted = {name for name in wanted if not name.startswith("reports/examples/")}
    found = {
        name.removeprefix("prime_bench/bundled/")
        for name in names
        if name.startswith(f"prime_bench/bundled/{folder}/")
    }

    assert wanted
    assert found == wanted


def test_typed(names: list[str]) -> None:
    assert "prime_bench/py.typed" in names

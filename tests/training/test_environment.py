"""Which commit a record names, what else it says, and checkpoints on disk."""

import subprocess
from pathlib import Path

import pytest
import torch

from prime_bench.base.errors import DataError, EnvironmentFault
from prime_bench.training import environment as environment_module
from prime_bench.training.checkpoint import load_weights, save_weights
from prime_bench.training.environment import checkout, conditions, environment, unlike

CPU = torch.device("cpu")


def git(folder, *arguments):
    identity = ["-c", "user.name=n", "-c", "user.email=e@example.org"]
    done = subprocess.run(
        ["git", *identity, *arguments], cwd=folder, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.fixture
def package(tmp_path):
    """A package in a repository, committed, with an ignored cache beside it."""
    checkout.cache_clear()
    folder = tmp_path / "repository" / "package"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("")
    (folder.parent / ".gitignore").write_text("__pycache__/\n/runs/\n")
    git(folder.parent, "init", "-q")
    git(folder.parent, "add", ".")
    git(folder.parent, "commit", "-qm", "first")
    return folder


def test_a_clean_checkout(package):
    (package / "__pycache__").mkdir()
    (package / "__pycache__" / "x.pyc").write_text("")
    (package.parent / "notes.txt").write_text("not the package's")
    assert checkout(package) == (git(package, "rev-parse", "HEAD"), False)


@pytest.mark.parametrize("name", ["__init__.py", "new.py"])
def test_a_change_or_a_new_file_is_dirty(package, name):
    (package / name).write_text("x = 1\n")
    assert checkout(package) == (git(package, "rev-parse", "HEAD"), True)


@pytest.mark.parametrize("name", ["recipes/own.toml", "datasets/own.toml"])
def test_a_recipe_or_card_beside_the_package_that_no_commit_has_is_dirty(package, name):
    (package.parent / name).parent.mkdir()
    (package.parent / name).write_text("schema = 1\n")
    assert checkout(package) == (git(package, "rev-parse", "HEAD"), True)


def test_recipes_beside_a_package_that_is_the_repository_are_not_asked(package):
    checkout.cache_clear()
    (package.parent / "recipes").mkdir()
    git(package, "init", "-q")
    git(package, "add", "__init__.py")
    git(package, "commit", "-qm", "own")
    assert checkout(package) == (git(package, "rev-parse", "HEAD"), False)


def test_an_unrelated_repository_around_the_package_is_not_named(package):
    installed = package.parent / ".venv" / "lib" / "site-packages" / "prime_bench"
    installed.mkdir(parents=True)
    (installed / "__init__.py").write_text("")
    assert checkout(installed) == (None, None)


def test_another_repository_in_the_environment_is_not_asked(package, tmp_path, monkeypatch):
    other = tmp_path / "other"
    other.mkdir()
    git(other, "init", "-q")
    git(other, "commit", "-qm", "other", "--allow-empty")
    expected = git(package, "rev-parse", "HEAD")
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    assert checkout(package) == (expected, False)


def test_no_repository_no_commit_and_no_git(tmp_path, monkeypatch):
    checkout.cache_clear()
    bare = tmp_path / "bare"
    bare.mkdir()
    (bare / "__init__.py").write_text("")
    assert checkout(bare) == (None, None)
    git(bare, "init", "-q")
    git(bare, "add", ".")
    checkout.cache_clear()
    assert checkout(bare) == (None, None)  # tracked, but no commit yet
    checkout.cache_clear()
    monkeypatch.setenv("PATH", "")
    assert checkout(bare) == (None, None)


def test_the_environment_names_what_can_change_a_number(monkeypatch):
    monkeypatch.setattr(environment_module, "checkout", lambda _: ("c" * 40, True))
    torch.set_num_threads(1)
    found = environment(CPU)
    assert (found.commit, found.dirty) == ("c" * 40, True)
    assert found.versions["torch"] == torch.__version__
    assert found.versions["fuxictr"] == "2.3.10"
    assert {"numpy", "polars", "pydantic", "safetensors"} <= set(found.versions)
    assert (found.device_kind, found.threads) == ("cpu", 1)
    assert found.device
    assert found.started.endswith("+00:00")


def test_the_environment_says_how_many_jobs_shared_the_device(monkeypatch):
    monkeypatch.delenv("PRIME_BENCH_JOBS_ON_DEVICE", raising=False)
    assert environment(CPU).at_once is None
    monkeypatch.setenv("PRIME_BENCH_JOBS_ON_DEVICE", "3")
    assert environment(CPU).at_once == 3


def test_threads_are_a_condition_on_the_cpu_alone():
    found = environment(CPU)
    assert conditions(found)["number of threads"] == str(found.threads)
    on_gpu = found.model_copy(update={"device_kind": "cuda"})
    assert "number of threads" not in conditions(on_gpu)
    assert conditions(on_gpu).keys() < conditions(found).keys()


def test_the_conditions_are_device_threads_and_versions_alone():
    found = environment(CPU).model_copy(
        update={
            **{"device": "i486", "threads": 3, "python": "3.11.9", "package_version": "0.2"},
            **{"versions": {"torch": "2.13", "numpy": "2.1"}, "host": "a", "commit": "c" * 40},
            **{"at_once": 4, "platform": "Linux", "started": "now", "node": "n"},
        }
    )
    assert conditions(found) == {
        **{"device": "i486", "number of threads": "3", "Python": "3.11.9", "prime-bench": "0.2"},
        **{"torch": "2.13", "numpy": "2.1"},
    }


def test_what_differs_is_said_as_it_was_and_as_it_is():
    then, now = {"a": "1", "b": "2", "d": "4"}, {"a": "1", "b": "3", "c": "5"}
    assert unlike(then, now) == ["b was 2, is 3", "c was None, is 5", "d was 4, is None"]


def test_the_environment_names_its_machine_and_its_node(monkeypatch):
    monkeypatch.setattr(environment_module.platform, "node", lambda: "a-host")
    monkeypatch.delenv("PRIME_BENCH_NODE", raising=False)
    assert (environment(CPU).host, environment(CPU).node) == ("a-host", None)
    monkeypatch.setenv("PRIME_BENCH_NODE", "n" * 56)
    assert environment(CPU).node == "n" * 56


def test_a_checkpoint_keeps_names_types_and_bits(tmp_path):
    weights = {
        "table": torch.randn(3, 2, generator=torch.Generator().manual_seed(0)),
        "norm.num_batches_tracked": torch.tensor(7),
        "plugin.bias": torch.tensor(0.5, dtype=torch.float64),
    }
    path = tmp_path / "checkpoint.safetensors"
    save_weights(path, weights)
    read = load_weights(path)
    assert read.keys() == weights.keys()
    for name, value in weights.items():
        assert read[name].dtype == value.dtype
        assert torch.equal(read[name], value)
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("content", [None, b"", b"not safetensors at all"])
def test_a_broken_checkpoint_is_named(tmp_path, content):
    path = Path(tmp_path / "checkpoint.safetensors")
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(DataError, match=r"checkpoint\.safetensors: cannot read the weights"):
        load_weights(path)


def test_a_checkpoint_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(EnvironmentFault, match="a file"):
        save_weights(tmp_path / "file" / "checkpoint.safetensors", {"x": torch.zeros(1)})

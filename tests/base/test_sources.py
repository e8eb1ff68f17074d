"""The digest of somebody's source files: every byte and name counts, nothing else does."""

import os
import sys
from pathlib import Path

import pytest

import prime_bench
from prime_bench.base.errors import UsageError
from prime_bench.base.sources import load_class, search_path, sources_digest


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package with a module in a folder of its own, beside another module."""
    files = {"outer_pkg/__init__.py": "", "outer_pkg/inner/gate.py": "A = 1\n", "single_mod.py": ""}
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    sources_digest.cache_clear()
    yield tmp_path
    sources_digest.cache_clear()


def again(module):
    sources_digest.cache_clear()
    return sources_digest(module)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("outer_pkg/inner/gate.py", "A = 2\n"),
        ("outer_pkg/__init__.py", "#"),
        ("outer_pkg/inner/other.py", ""),
        ("outer_pkg/new.py", "A = 1\n"),
    ],
)
def test_every_python_file_of_the_package_counts(package, name, text):
    before = sources_digest("outer_pkg.inner.gate")

    (package / name).write_text(text)

    assert again("outer_pkg.inner.gate") != before
    assert again("outer_pkg") == again("outer_pkg.inner.gate")


def test_moving_text_from_one_file_to_the_next_counts(package):
    (package / "outer_pkg" / "a.py").write_text("x = 1\ny = 2\n")
    (package / "outer_pkg" / "b.py").write_text("")
    before = again("outer_pkg")

    (package / "outer_pkg" / "a.py").write_text("x = 1\n")
    (package / "outer_pkg" / "b.py").write_text("y = 2\n")

    assert again("outer_pkg") != before


@pytest.mark.parametrize("name", ["single_mod.py", "outer_pkg/notes.txt", "outer_pkg/a.pyc"])
def test_nothing_beside_them_counts(package, name):
    before = sources_digest("outer_pkg")

    (package / name).write_text("other")

    assert again("outer_pkg") == before


def test_a_single_module_is_its_own_file(package):
    before = sources_digest("single_mod")

    (package / "outer_pkg" / "__init__.py").write_text("B = 1")
    assert again("single_mod") == before
    (package / "single_mod.py").write_text("B = 1")
    assert again("single_mod") != before


def test_code_without_files_is_an_error():
    with pytest.raises(UsageError, match="sys: no Python files"):
        sources_digest("sys")


def test_a_class_is_found_and_other_names_are_reported(package):
    (package / "outer_pkg" / "broken.py").write_text("raise ValueError('no licence')")

    assert load_class("fractions:Fraction").__name__ == "Fraction"
    with pytest.raises(
        UsageError, match=r"`outer_pkg\.broken:X` cannot be imported: ValueError: no"
    ):
        load_class("outer_pkg.broken:X")


@pytest.mark.parametrize(
    "module", ["prime_bench.worker", "prime_bench.training.tryout", "prime_bench.probes.memory"]
)
def test_a_process_that_is_started_imports_nothing_of_the_current_folder(module):
    """Each place that starts a module of ours does so with -P, and with our own search path."""
    places = []
    for path in Path(prime_bench.__file__).parent.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if f'"-m", "{module}"' in text:
            places.append(path)
            assert f'"-P", "-m", "{module}"' in text
            assert '"PYTHONPATH": search_path()' in text
    assert len(places) == 1


def test_the_search_path_names_the_current_folder_only_where_this_process_does(
    monkeypatch, tmp_path
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["a", "/b"])
    assert search_path() == os.pathsep.join([str(tmp_path / "a"), "/b"])
    monkeypatch.setattr(sys, "path", ["", "/b"])
    assert search_path() == os.pathsep.join([str(tmp_path), "/b"])


@pytest.mark.parametrize("code", ["0", "1", "'bye'"])
def test_a_module_that_exits_cannot_be_imported(package, monkeypatch, code):
    monkeypatch.delitem(sys.modules, "leaving_mod", raising=False)
    (package / "leaving_mod.py").write_text(f"import sys\nsys.exit({code})\n")
    with pytest.raises(UsageError, match="`leaving_mod:G` cannot be imported: SystemExit"):
        load_class("leaving_mod:G")


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("class Odd(BaseException): pass\nraise Odd('no')", r"Odd: no"),
        (
            "class Odd(Exception):\n    def __str__(self): raise ValueError\nraise Odd",
            r"Odd: \(its message cannot be made: ValueError\)",
        ),
        (r"raise ValueError('\udc80')", r"ValueError: \\udc80"),
    ],
)
def test_a_module_may_raise_anything(package, monkeypatch, code, why):
    monkeypatch.delitem(sys.modules, "odd_mod", raising=False)
    (package / "odd_mod.py").write_text(code)
    with pytest.raises(UsageError, match=f"`odd_mod:G` cannot be imported: {why}"):
        load_class("odd_mod:G")


def test_what_a_module_prints_is_no_data(package, monkeypatch, capsys):
    monkeypatch.delitem(sys.modules, "loud_mod", raising=False)
    (package / "loud_mod.py").write_text("print('hello')\nclass G: pass\n")
    load_class("loud_mod:G")
    assert capsys.readouterr() == ("", "hello\n")

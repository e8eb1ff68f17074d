"""Digests of somebody's source files: what counts, and that nothing else does."""

import os
import sys
from pathlib import Path

import pytest

import prime_bench
from prime_bench.base.errors import UsageError
from prime_bench.base.sources import (
    load_class,
    own_sources,
    package_digest,
    search_path,
    sources_digest,
)


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package with a module in a folder of its own, beside another module."""
    files = {"outer_pkg/__init__.py": "", "outer_pkg/inner/gate.py": "A = 1\n", "single_mod.py": ""}
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for digest in (package_digest, sources_digest):
        digest.cache_clear()


def again(*modules, digest=package_digest):
    digest.cache_clear()
    return digest(*modules)


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
    before = again("outer_pkg.inner.gate")

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
    before = again("outer_pkg")

    (package / name).write_text("other")

    assert again("outer_pkg") == before


def test_a_single_module_is_its_own_file(package):
    before = again("single_mod")

    (package / "outer_pkg" / "__init__.py").write_text("B = 1")
    assert again("single_mod") == before
    (package / "single_mod.py").write_text("B = 1")
    assert again("single_mod") != before


USED = {
    "pkg/__init__.py": "from . import always",
    "pkg/always.py": "",
    "pkg/other.py": "raise RuntimeError('is never imported')",
    "pkg/sub/__init__.py": "",
    "pkg/sub/deep.py": "",
    "pkg/sub/other.py": "",
    "pkg/far.py": "from pkg.sub import deep",
    "pkg/pkg.py": "",
}
NEVER = {"pkg/other.py", "pkg/sub/other.py", "pkg/pkg.py"}
ALL = {*USED, "pkg/gate.py"}
HERE = {"pkg/gate.py", "pkg/__init__.py", "pkg/always.py"}
DEEP = {"pkg/sub/__init__.py", "pkg/sub/deep.py"}


def files_that_count(folder, module="pkg.gate"):
    """The files whose edit changes the digest: each is edited in turn."""
    before = again(module, digest=sources_digest)
    counting = set()
    for path in folder.rglob("*.py"):
        content = path.read_bytes()
        path.write_bytes(content + b"#")
        if again(module, digest=sources_digest) != before:
            counting.add(path.relative_to(folder).as_posix())
        path.write_bytes(content)
    assert again(module, digest=sources_digest) == before
    return counting


@pytest.mark.parametrize(
    ("text", "counting"),
    [
        ("A = 1", HERE),
        ("import torch, pkg_of_others, os.path", HERE),
        ("import pkg.sub.deep", HERE | DEEP),
        ("import pkg.sub.deep as d", HERE | DEEP),
        ("from pkg.sub.deep import x", HERE | DEEP),
        ("from pkg.sub import deep", HERE | DEEP),
        ("from .sub.deep import x", HERE | DEEP),
        ("from .sub import deep as d", HERE | DEEP),
        ("from . import far", HERE | DEEP | {"pkg/far.py"}),
        ("from .. import far", HERE),
        ("def f():\n    from . import sub", HERE | {"pkg/sub/__init__.py"}),
        ("if A:\n    try:\n        import pkg.far\n    except: pass", HERE | DEEP | {"pkg/far.py"}),
        ("from .far import *", HERE | DEEP | {"pkg/far.py"}),
        ("from .sub import *", HERE | DEEP | {"pkg/sub/other.py"}),
        ("import pkg\npkg.sub.deep.x", HERE | DEEP),
        ("from . import sub\nsub.deep", HERE | DEEP),
        ("from importlib.metadata import version", HERE),
        ("import importlib.resources as r", HERE),
        ("class A:\n    def __getattr__(self, name): return super().__getattr__(name)", HERE),
        ("model.eval(); torch.compile", HERE),
        ("import sys\nsys.path, sys.stderr, model.modules(), sys.modules_of", HERE),
        ("def f():\n    def __getattr__(name): ...", HERE),
        ("import sys as s\ns.modules[__name__] = Lazy()", ALL),
        ("from sys import modules as m", ALL),
        ("from pydoc import locate", ALL),
        ("import builtins", ALL),
        ("from importlib.metadata import entry_points", ALL),
        ("import importlib.metadata as m\nm.entry_points(group='gates')", ALL),
        ("import pkg_resources", ALL),
        ("if A:\n    def __getattr__(name): ...", ALL),
        ("try:\n    import x\nexcept ImportError:\n    def __getattr__(name): ...", ALL),
        ("from lazy import __getattr__", ALL),
        ("from lazy import make as __getattr__", ALL),
        ("import pkg\npkg.__path__.append('elsewhere')", ALL),
        ("import importlib", ALL),
        ("from importlib import import_module as m", ALL),
        ("import importlib.util", ALL),
        ("def f(): __import__('pkg.' + x)", ALL),
        ("exec(text)", ALL),
        ("import pkgutil", ALL),
        ("def __getattr__(name): ...", ALL),
        ("__getattr__, __all__ = lazy.attach(__name__)", ALL),
        ("__path__.append('elsewhere')", ALL),
        ("this is no Python", ALL),
        ("a = '\0'", ALL),
    ],
)
def test_what_a_module_uses_of_its_package_counts(tmp_path, monkeypatch, text, counting):
    for name, content in (USED | {"pkg/gate.py": text, "beside.py": ""}).items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    monkeypatch.syspath_prepend(tmp_path)

    assert files_that_count(tmp_path) == counting


def test_a_class_that_a_module_makes_by_a_call_is_of_both_modules(tmp_path, monkeypatch):
    (tmp_path / "made_pkg").mkdir()
    (tmp_path / "made_pkg" / "__init__.py").write_text("")
    (tmp_path / "made_pkg" / "factory.py").write_text(
        "def make(n):\n    class Gate:\n        rank = n\n    return Gate\n"
    )
    (tmp_path / "made_pkg" / "gates.py").write_text(
        "from made_pkg.factory import make\nGate = make(4)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert load_class("made_pkg.gates:Gate").__module__ == "made_pkg.factory"

    both = ("made_pkg.factory", "made_pkg.gates")
    before = again(*both, digest=sources_digest)
    assert again("made_pkg.factory", digest=sources_digest) != before
    (tmp_path / "made_pkg" / "gates.py").write_text("")
    assert again(*both, digest=sources_digest) != before


@pytest.mark.usefixtures("package")
def test_a_module_without_a_python_file_stands_for_its_package():
    assert again("outer_pkg.compiled", digest=sources_digest) == again("outer_pkg")


def test_a_package_that_is_used_whole_has_the_digest_of_the_package(package):
    (package / "outer_pkg" / "__init__.py").write_text("from outer_pkg.inner import gate")
    used = again("outer_pkg.inner.gate", digest=sources_digest)
    assert used == again("outer_pkg")


@pytest.mark.usefixtures("package")
def test_a_module_outside_a_package_keeps_its_digest():
    assert again("single_mod", digest=sources_digest) == again("single_mod")


def test_code_without_files_is_an_error():
    for digest in (package_digest, sources_digest):
        with pytest.raises(UsageError, match="sys: no Python files"):
            digest("sys")


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


def test_a_module_that_ends_the_process_cannot_be_imported(package, monkeypatch):
    """And not: the command ends in silence, with exit code 0."""
    monkeypatch.delitem(sys.modules, "ending_mod", raising=False)
    (package / "ending_mod.py").write_text("import os\nos._exit(0)\n")
    end = os._exit
    with pytest.raises(UsageError, match=r"cannot be imported: SystemExit: os\._exit\(0\)"):
        load_class("ending_mod:G")
    assert os._exit is end


def test_what_a_module_forks_may_end_while_it_is_imported(package, monkeypatch):
    monkeypatch.delitem(sys.modules, "forking_mod", raising=False)
    code = "import os\nif not (child := os.fork()): os._exit(7)\n"
    code += "class G: code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])\n"
    (package / "forking_mod.py").write_text(code)
    assert load_class("forking_mod:G").code == 7


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


def test_the_files_that_another_machine_needs_are_those_of_the_package(tmp_path, monkeypatch):
    """By paths below a folder of sys.path; what pip has installed is not sent."""
    files = {"sent_pkg/__init__.py": b"", "sent_pkg/inner/gate.py": b"A = 1\n"}
    alone = {"sent_mod.py": b"B = 1\n"}
    installed = [f"{kind}-packages/{kind}_pkg/__init__.py" for kind in ("site", "dist")]
    for name, content in (files | alone | dict.fromkeys(installed, b"")).items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    for folder in ("", "site-packages", "dist-packages"):
        monkeypatch.syspath_prepend(tmp_path / folder)

    assert own_sources("sent_pkg.inner.gate") == files
    assert own_sources("sent_mod") == alone
    for name in ("site_pkg", "dist_pkg", "no_such_pkg"):
        assert own_sources(name) == {}

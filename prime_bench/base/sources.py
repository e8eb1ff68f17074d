"""Classes of other packages that a recipe names, and digests of their source files.

The bytes of the files count, comments and line ends too: a syntax tree prints differently from one
version of Python to the next, and a docstring may be read by the code. Records of an earlier
version are shown with `--accept-source`, for whoever knows that nothing but a comment was edited.
"""

import contextlib
import functools
import hashlib
import importlib
import importlib.util
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

from prime_bench.base.characters import said
from prime_bench.base.errors import UsageError
from prime_bench.base.imports import used_modules

_MOST_NAMED = 20
"""Classes of a module that a message names."""
_INIT = "__init__.py"
_INSTALLED = {"site-packages", "dist-packages"}
"""Folders of packages that pip has installed."""


def search_path() -> str:
    """The folders from which this process imports, for the PYTHONPATH of a process that it starts.

    With `python -P -m` that process imports from these alone, else from the current folder first.
    """
    return os.pathsep.join(os.path.abspath(folder) for folder in sys.path)  # noqa: PTH100


def load_class(target: str) -> type:
    """Import the class that `module:Class` names. Raises UsageError if there is none.

    What its module prints goes to stderr: a command's stdout is for its data.
    """
    module_name, _, name = target.partition(":")
    try:
        with contextlib.redirect_stdout(sys.stderr), _no_silent_end():
            found = getattr(importlib.import_module(module_name), name)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # A foreign module may raise anything.
        raise UsageError(
            f"`{target}` cannot be imported: {type(error).__name__}: {said(error)}",
            hint=_way_out(error, module_name),
        ) from error
    if not isinstance(found, type):
        raise UsageError(f"`{target}` is not a class but {type(found).__name__}")
    return found


def _way_out(error: BaseException, module_name: str) -> str:
    """What to do about a class that cannot be imported."""
    missing = error.name if isinstance(error, ModuleNotFoundError) and error.name else ""
    if missing and f"{module_name}.".startswith(f"{missing}."):
        return (
            "run `pip install -e .` in the folder of its pyproject.toml, in the environment of "
            "prime-bench (docs/your-own-plugin.md)"
        )
    if missing:
        return f"install {missing.partition('.')[0]} into the environment of prime-bench"
    loaded = sys.modules.get(module_name)
    if isinstance(error, AttributeError) and loaded is not None:
        classes = [key for key, value in vars(loaded).items() if isinstance(value, type)]
        own = [key for key in classes if vars(loaded)[key].__module__ == module_name]
        return f"classes of {module_name}: {', '.join(own[:_MOST_NAMED]) or 'none'}"
    return f"`python -c 'import {module_name}'` shows where"


@contextlib.contextmanager
def _no_silent_end() -> Iterator[None]:
    """Have `os._exit` raise SystemExit in the block, where it would end a command in the middle, at
    once and perhaps with exit code 0. Other threads, and processes that are forked, still may end.
    """
    end, caller = os._exit, (os.getpid(), threading.get_ident())

    def refuse(status: int) -> NoReturn:
        if (os.getpid(), threading.get_ident()) != caller:
            end(status)
        raise SystemExit(f"os._exit({status})")

    os._exit = refuse
    try:
        yield
    finally:
        os._exit = end


@functools.cache
def sources_digest(*modules: str) -> str:
    """Return a SHA-256 over the files of these modules and all that they import of their packages:
    the code of a user's own class, as a job's identity has it.

    What counts as imported: `imports.used_modules`. For a module outside a package it is its file
    alone. Other packages, and files that are not Python, do not count.

    Raises UsageError where a module's package has no Python file.
    """
    used: list[tuple[Path, Path]] = []
    for top in sorted({module.partition(".")[0] for module in modules}):
        files = _python_files(top)
        if not files:
            raise _without_files(top)
        own = {module for module in modules if module.partition(".")[0] == top}
        if _is_package(top):
            named = [(_module_of(top, name), name, path) for name, path in files]
            found = used_modules(
                own,
                {module: path for module, _, path in reversed(named)},
                packages={module for module, name, _ in named if name.name == _INIT},
            )
            # Two files may have one name: a module and a package, or in two folders of a package.
            files = [(name, path) for module, name, path in named if module in found]
        used += sorted(files)
    return _digest_of(used)


@functools.cache
def package_digest(module: str) -> str:
    """Return a SHA-256 over the names and contents of all Python files of a module's package,
    whether they are imported or not: whether two machines have the same version of it.

    For a module outside a package, over its own file. Raises UsageError if there are no files.
    """
    files = _python_files(module)
    if not files:
        raise _without_files(module)
    return _digest_of(sorted(files))


def _digest_of(files: list[tuple[Path, Path]]) -> str:
    running = hashlib.sha256()
    for name, path in files:
        running.update(f"{name.as_posix()} {path.stat().st_size}\n".encode())
        running.update(path.read_bytes())
    return running.hexdigest()


def _is_package(top: str) -> bool:
    spec = importlib.util.find_spec(top)
    return spec is not None and spec.submodule_search_locations is not None


def _module_of(package: str, name: Path) -> str:
    """The dotted name of the module in a file of a package."""
    parts = name.with_suffix("").parts
    return ".".join([package, *(parts[:-1] if name.name == _INIT else parts)])


def _without_files(module: str) -> UsageError:
    return UsageError(f"{module}: no Python files, so its code cannot be identified")


def own_sources(module: str) -> dict[str, bytes]:
    """Return the Python files of a module's package, by their paths below a folder of `sys.path`.

    For a module outside a package, its own file. Empty for a package that pip has installed, which
    another machine has to install too, since it may bring more than Python files.
    """
    top = module.partition(".")[0]
    inside = Path(top) if _is_package(top) else Path()
    return {
        (inside / name).as_posix(): path.read_bytes()
        for name, path in _python_files(module)
        if not _INSTALLED & set(path.parts)
    }


def _python_files(module: str) -> list[tuple[Path, Path]]:
    """Name in its package, and path, of each Python file of a module's package."""
    spec = importlib.util.find_spec(module.partition(".")[0])
    folders = [Path(folder) for folder in (spec.submodule_search_locations or ())] if spec else []
    files = [(path.relative_to(f), path) for f in folders for path in f.rglob("*.py")]
    if spec is not None and not folders and spec.origin is not None:
        files = [(Path(Path(spec.origin).name), Path(spec.origin))]
    return [(name, path) for name, path in files if path.is_file()]

"""The source files behind a class that somebody else wrote, and one digest of them."""

import functools
import hashlib
import importlib
import importlib.util
from pathlib import Path

from prime_bench.base.errors import UsageError


def load_class(target: str) -> type:
    """The class that `module:Class` names. Raises UsageError where there is none."""
    module_name, _, name = target.partition(":")
    try:
        found = getattr(importlib.import_module(module_name), name)
    except Exception as error:  # Somebody's module may raise anything.
        raise UsageError(
            f"`{target}` cannot be imported: {type(error).__name__}: {error}",
            hint="install its package into the environment of prime-bench (pip install -e .)",
        ) from error
    if not isinstance(found, type):
        raise UsageError(f"`{target}` is {type(found).__name__}, a class is wanted")
    return found


@functools.cache
def sources_digest(module: str) -> str:
    """SHA-256, as 64 hex digits, over names and bytes of every Python file of the package that
    `module` is in, or of its own file where it is in none.

    Raises UsageError for a module without source files.
    """
    top = module.partition(".")[0]
    spec = importlib.util.find_spec(top)
    folders = [Path(folder) for folder in (spec.submodule_search_locations or ())] if spec else []
    files = [(path.relative_to(f), path) for f in folders for path in f.rglob("*.py")]
    if spec is not None and not folders and spec.origin is not None:
        files = [(Path(Path(spec.origin).name), Path(spec.origin))]
    files = [(name, path) for name, path in files if path.is_file()]
    if not files:
        raise UsageError(f"{module}: no Python files, so its code cannot be told from other code")
    running = hashlib.sha256()
    for name, path in sorted(files):
        running.update(f"{name.as_posix()} {path.stat().st_size}\n".encode())
        running.update(path.read_bytes())
    return running.hexdigest()

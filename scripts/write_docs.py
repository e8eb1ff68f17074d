"""Write what is made from the code: docs/cli.md from the commands' help, README's file tree.

Run it after a change of a command or a file: `python scripts/write_docs.py` (`--check`: only say
whether anything would change, exit code 1 if so).
"""

import ast
import sys
import tomllib
from pathlib import Path

import click

from prime_bench.cli.main import cli

ROOT = Path(__file__).resolve().parents[1]
WIDTH = 96
BEGIN, END = "<!-- file tree: made by scripts/write_docs.py -->", "<!-- end of the file tree -->"
CLI_END = "<!-- end of what scripts/write_docs.py makes -->"
FOLDERS = {
    "recipes": "*.toml",
    "datasets": "*.toml",
    "reports": "**/*.*",
    "docs": "*.md",
    "scripts": "*.*",
    "benchmarks": "*.py",
}


def cli_reference() -> str:
    """docs/cli.md up to its last section: the help of each command, as a terminal shows it."""
    parts = [
        "# Command line\n",
        "Made from `--help` by `scripts/write_docs.py`. Exit codes: 0 ok, 1 some jobs failed,",
        "2 usage, 3 bad or missing data, 4 environment (disk, permission, device, network),",
        "70 a bug of ours, 130 interrupted. `predict`, `check`, `verify` and `report --check` end",
        "with 1 where something does not hold. [What `--json` prints](#json) is told at the end.\n",
    ]
    top = click.Context(cli, info_name="prime-bench", terminal_width=WIDTH)
    parts += [f"```text\n{cli.get_help(top)}\n```\n"]
    for name in cli.list_commands(top):
        command = cli.get_command(top, name)
        if command is None:
            raise RuntimeError(name)
        context = click.Context(command, info_name=name, parent=top, terminal_width=WIDTH)
        parts += [f"## prime-bench {name}\n", f"```text\n{command.get_help(context)}\n```\n"]
        for inner, sub in command.commands.items() if isinstance(command, click.Group) else ():
            below = click.Context(sub, info_name=inner, parent=context, terminal_width=WIDTH)
            parts += [f"### prime-bench {name} {inner}\n", f"```text\n{sub.get_help(below)}\n```\n"]
    return "\n".join([*parts, CLI_END])


def file_tree() -> str:
    """The files that a reader may look for, each with the first line of what it says of itself."""
    rows: list[tuple[str, str]] = []
    for path in sorted((ROOT / "prime_bench").rglob("*.py"), key=_package_order):
        if path.name == "__init__.py":
            rows.append((f"{path.parent.relative_to(ROOT).as_posix()}/", _docstring(path)))
        else:
            rows.append((path.relative_to(ROOT).as_posix(), _docstring(path)))
    for folder, pattern in FOLDERS.items():
        files = [path for path in sorted((ROOT / folder).glob(pattern)) if path.is_file()]
        rows += [(path.relative_to(ROOT).as_posix(), _title(path)) for path in files]
    rows.append(
        ("tests/", "mirrors the package, plus tests of the project itself in tests/project")
    )
    width = max(len(name) for name, _ in rows)
    lines = [f"{name:<{width}}  {about}".rstrip() for name, about in rows]
    return "\n".join([BEGIN, "```text", *lines, "```", END])


def _package_order(path: Path) -> tuple[str, bool, str]:
    return (path.parent.as_posix(), path.name != "__init__.py", path.name)


def _docstring(path: Path) -> str:
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return _first_sentence(text)


def _first_sentence(text: str) -> str:
    paragraph = " ".join(text.split("\n\n")[0].split())
    return paragraph.removesuffix(".")


def _title(path: Path) -> str:
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        return _docstring(path)
    if path.suffix == ".toml" and (title := tomllib.loads(text).get("title")):
        return str(title)
    if path.suffix == ".md":
        return text.splitlines()[0].lstrip("# ")
    comments = [line.strip("#{}%* ") for line in text.splitlines() if not line.startswith("#!")]
    return comments[0].removesuffix(".") if comments else ""


def main() -> int:
    """Write both, or with `--check` compare."""
    readme = ROOT / "README.md"
    text = readme.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    reference = ROOT / "docs" / "cli.md"
    wanted = {
        readme: before + file_tree() + after,
        reference: cli_reference() + reference.read_text(encoding="utf-8").partition(CLI_END)[2],
    }
    stale = [path for path, content in wanted.items() if path.read_text("utf-8") != content]
    if "--check" in sys.argv[1:]:
        for path in stale:
            print(f"{path.relative_to(ROOT)} is stale: run python scripts/write_docs.py")
        return 1 if stale else 0
    for path in stale:
        path.write_text(wanted[path], encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

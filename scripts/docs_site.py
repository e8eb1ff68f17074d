"""Pages of the documentation site that are not in docs/: a hook of MkDocs, named in mkdocs.yml.

Four things are made while the site is built, so that no page is written twice and no link
leaves the site:

- pages from README.md (the home page), CHANGELOG.md and CONTRIBUTING.md;
- a page of the Python reference for each package, `prime_bench.api` first;
- a page that shows a file, for each file of the repository that a page links to;
- formulas as MathML, which browsers show without a script.
"""

import html
import os
import re
from collections.abc import Callable
from pathlib import Path, PurePosixPath

from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "prime_bench"
ROOT_PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
}
# The package that users call comes first in the reference, then the others by name.
FIRST = "prime_bench.api"
LEXERS = {".toml": "toml", ".py": "python", ".sh": "bash", ".yml": "yaml", ".md": "markdown"}

LINK = re.compile(r"(?<=\]\()([^()\s#]+)(?=[#)])")
FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})", flags=re.MULTILINE)
FORMULA = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', flags=re.DOTALL)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the pages of the Python reference at the end of the navigation."""
    pages = [{name: uri} for name, uri, _ in _reference()]
    config.nav = [*(config.nav or []), {"Python reference": pages}]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add all pages that are made."""
    for name, uri in ROOT_PAGES.items():
        text = (ROOT / name).read_text(encoding="utf-8")
        files.append(File.generated(config, uri, content=text))
    for _, uri, text in _reference():
        files.append(File.generated(config, uri, content=text))
    for path in _linked_files(files):
        file = File.generated(config, _source_uri(path), content=_source_page(path))
        file.inclusion = file.inclusion.NOT_IN_NAV
        files.append(file)
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Turn links to files of the repository into links to their pages."""
    origin = _origin(page.file.src_uri)
    if origin is None:
        return markdown
    here = PurePosixPath(page.file.src_uri).parent

    def target(match: re.Match[str]) -> str:
        path = _resolve(origin, match[1])
        return match[1] if path is None else os.path.relpath(_site_uri(path), here)

    return _outside_fences(markdown, lambda text: LINK.sub(target, text))


def on_page_content(text: str, **_: object) -> str:
    """Turn formulas into MathML."""

    def formula(match: re.Match[str]) -> str:
        block = match[1] == "div"
        mathml = convert(html.unescape(match[2]), "block" if block else "inline")
        return f'<div class="formula">{mathml}</div>' if block else mathml

    return FORMULA.sub(formula, text)


def _reference() -> list[tuple[str, str, str]]:
    """The pages of the Python reference: title, place in the site, text."""
    packages: dict[str, list[str]] = {}
    for path in sorted((ROOT / PACKAGE).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        if parts[-1].startswith("_") and parts[-1] != "__init__":
            continue
        module = ".".join(parts).removesuffix(".__init__")
        own_page = path.name == "__init__.py"
        packages.setdefault(module if own_page else ".".join(parts[:-1]), []).append(module)
    return [
        (
            package.removeprefix(f"{PACKAGE}."),
            f"reference/{package}.md",
            "\n\n".join(
                # The first module is the package itself: its name is the title of the page.
                [f"::: {package}\n    options:\n      heading_level: 1"]
                + [f"::: {module}" for module in modules if module != package]
            ),
        )
        for package, modules in sorted(packages.items(), key=lambda item: item[0] != FIRST)
    ]


def _linked_files(files: Files) -> list[Path]:
    """Files and folders of the repository that pages link to and that are no pages themselves.

    A linked folder brings the files directly in it.
    """
    linked: set[Path] = set()
    for file in files.documentation_pages():
        origin = _origin(file.src_uri)
        if origin is None:
            continue
        for match in LINK.finditer(file.content_string):
            path = _resolve(origin, match[1])
            if path is None or _site_uri(path) != _source_uri(path):
                continue
            linked.add(path)
            if path.is_dir():
                linked.update(below for below in path.iterdir() if below.is_file())
    return sorted(linked)


def _source_page(path: Path) -> str:
    """A page that shows a text file, or lists the files of a folder."""
    name = path.relative_to(ROOT).as_posix()
    head = f"---\nsearch:\n  exclude: true\n---\n# `{name}`\n\n"
    if path.is_dir():
        names = sorted(below.name for below in path.iterdir() if below.is_file())
        return head + "\n".join(f"- [{each}]({path.name}/{each}.md)" for each in names)
    text = path.read_text(encoding="utf-8")
    fence = "`" * max(4, *(len(run) + 1 for run in re.findall("`+", text)), 4)
    return f"{head}{fence}{LEXERS.get(path.suffix, 'text')}\n{text}\n{fence}\n"


def _origin(uri: str) -> Path | None:
    """The file of the repository that a page of the site is made from; None for a made page."""
    for name, made in ROOT_PAGES.items():
        if uri == made:
            return ROOT / name
    path = ROOT / "docs" / uri
    return path if path.exists() else None


def _resolve(origin: Path, link: str) -> Path | None:
    """The file of the repository that a link leads to; None for an address or a dead link."""
    if ":" in link:
        return None
    path = Path(os.path.normpath(origin.parent / link))
    return path if path.exists() and path.is_relative_to(ROOT) else None


def _site_uri(path: Path) -> str:
    """Where the site has a file of the repository."""
    name = path.relative_to(ROOT).as_posix()
    if name in ROOT_PAGES:
        return ROOT_PAGES[name]
    if name.startswith("docs/") and path.is_file():
        return name.removeprefix("docs/")
    return _source_uri(path)


def _source_uri(path: Path) -> str:
    return f"source/{path.relative_to(ROOT).as_posix()}.md"


def _outside_fences(markdown: str, change: Callable[[str], str]) -> str:
    """Apply `change` to the text of a page that is in no fenced block of code."""
    parts: list[str] = []
    fence, text = "", ""
    for line in markdown.splitlines(keepends=True):
        match = FENCE.match(line)
        if match and not fence:
            parts.append(change(text))
            fence, text = match[1], line
        elif match and match[1].startswith(fence):
            parts.append(text + line)
            fence, text = "", ""
        else:
            text += line
    return "".join([*parts, text if fence else change(text)])

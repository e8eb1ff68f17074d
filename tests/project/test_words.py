"""No text has a word that docs/glossary.md lists under "Words that are not used"."""

import io
import re
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"
GLOSSARY = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
_, _, TABLE = GLOSSARY.partition("## Words that are not used")
ROWS = re.findall(r"^\| ([a-z][\w, -]+) \| ([^|]+) \|$", TABLE, re.MULTILINE)
INSTEAD = {word: said for words, said in ROWS if words != "not" for word in words.split(", ")}
FOLDERS = ("prime_bench", "docs", "recipes", "datasets", "reports", "scripts", "benchmarks")
FILES = sorted(
    path
    for folder in (*FOLDERS, "tests")
    for path in (ROOT / folder).rglob("*")
    if path.suffix in (".py", ".md", ".toml")
    and not {"examples", "assets", "golden", "__pycache__"} & set(path.parts)
)
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
# Not as part of a name, of a path, or of a key and its value.
WORDS = re.compile(
    rf"(?<![\w.\[\"'/=-])({'|'.join(INSTEAD)})(?![\w\]\"'/=:(-]|\.\w|\s*=)",
    re.IGNORECASE,
)


def words_in(text: str) -> list[str]:
    """Each word that is not used, with the number of its line. Texts in backticks are names."""
    plain = re.sub(r"`[^`]*`", lambda found: "\n" * found[0].count("\n") + "`", text)
    return [
        f"{number}: {found[1]}, say {INSTEAD[found[1].lower()]}"
        for number, line in enumerate(plain.splitlines(), start=1)
        for found in WORDS.finditer(line)
    ]


def prose(path: Path) -> str:
    """The sentences of a file, each in its line: of Python comments and strings of several words,
    in tests the docstrings alone; of TOML comments and values; of Markdown all but blocks,
    addresses and the table itself.
    """
    text = path.read_text(encoding="utf-8")
    if not WORDS.search(text):  # most files, and to take Python apart takes long
        return ""
    if path.suffix == ".md":
        text = re.sub(r"^ *```.*?^ *```", _lines, text.replace(TABLE, ""), flags=re.M | re.S)
        return re.sub(r"\]\([^)]*\)|^#+ prime-bench .*", "]", text, flags=re.MULTILINE)
    if path.suffix == ".toml":
        return re.sub(r"^[\w.\[\]\" ]+(=|$)|{{.*?}}", "", text, flags=re.MULTILINE)
    lines = [""] * (text.count("\n") + 2)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        sentence = " " in token.string.partition("\n")[0]
        if path.is_relative_to(TESTS):  # recipes and sources are strings there, too
            sentence = re.match(r'"""[A-Z`]', token.string) is not None
        if token.type == tokenize.COMMENT or (token.type == tokenize.STRING and sentence):
            for offset, line in enumerate(token.string.split("\n")):
                lines[token.start[0] - 1 + offset] += f" {re.sub('{[^}]*}', '_', line)}"
    return "\n".join(lines)


def _lines(found: re.Match[str]) -> str:
    return "\n" * found[0].count("\n")


def test_the_table_was_read() -> None:
    assert {"dataset", "plugin", "base model", "training set"} <= INSTEAD.keys()
    assert len(FILES) > 500
    assert words_in("a dataset and `dataset`") == ["1: dataset, say data set"]
    assert words_in("Of a\nDataset. No dataset.csv") == ["2: Dataset, say data set"]


@pytest.mark.parametrize("folder", [*FOLDERS, "tests", "."])
def test_no_word_that_is_not_used(folder: str) -> None:
    paths = PAGES if folder == "." else [p for p in FILES if p.is_relative_to(ROOT / folder)]
    found = {path.relative_to(ROOT).as_posix(): words_in(prose(path)) for path in paths}

    assert paths
    assert [f"{name}:{word}" for name, words in found.items() for word in words] == []

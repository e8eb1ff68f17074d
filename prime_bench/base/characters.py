r"""Characters that cannot be seen, and the columns that a text takes in a terminal.

Names, notes and messages may come from the records of other people, or from file names. A control
character in them can move the cursor, set the clipboard or reverse the order of what follows, so
whatever is printed shows them as escapes: ESC as `\x1b`, U+202E as `\u202e`.
"""

import re

# Control characters (C0, DEL, C1), marks and overrides of the direction of writing (Unicode
# Standard Annex 9), separators of lines and paragraphs, the byte order mark, and surrogates, which
# stand for bytes of a file name that are not UTF-8.
_UNSEEN = r"\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff"
_IN_A_LINE = re.compile(f"[{_UNSEEN}]")
_IN_LINES = re.compile(rf"(?![\n\t])[{_UNSEEN}]")
_NAMED = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}


def visible(text: str) -> str:
    r"""Return a text for one line: each character that cannot be seen as an escape, `\n` too."""
    return _IN_A_LINE.sub(_escape, text)


def visible_lines(text: str) -> str:
    """Return a text of several lines, as `visible` does but with its line breaks and tabs."""
    return _IN_LINES.sub(_escape, text)


def visible_json(text: str) -> str:
    """Return the same JSON value, with characters that cannot be seen as JSON's own escapes.

    json.dumps leaves C1, overrides of direction and surrogates as they are.
    """
    return _IN_LINES.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def said(error: BaseException) -> str:
    """Return the message of an error of any class: a class can have one that cannot be made, or
    that holds surrogates, which no file takes.
    """
    try:
        text = str(error)
    except Exception as other:  # noqa: BLE001  # the code of a plug-in
        return f"(its message cannot be made: {type(other).__name__})"
    return text.encode(errors="backslashreplace").decode()


def shortened(text: str, limit: int) -> str:
    """Return a text of at most `limit` characters: its beginning, and how long it was."""
    if len(text) <= limit:
        return text
    tail = f" [... {len(text):,} characters]"
    return text[: limit - len(tail)] + tail


def has_unseen(text: str) -> bool:
    """Whether `visible` would change the text."""
    return _IN_A_LINE.search(text) is not None


def display_width(text: str) -> int:
    """Return the columns that a line takes in a terminal: 2 for 中, none for a combining accent."""
    if text.isascii():
        return len(text)
    # tabulate measures by the same package.
    from wcwidth import wcswidth

    return wcswidth(text)


def wrapped(text: str, width: int, *, first: str = "", rest: str = "") -> list[str]:
    """Return the lines of a paragraph, of at most `width` columns, broken at spaces alone.

    A word that is wider has a line of its own. `first` and `rest` begin the first line and the
    others.
    """
    lines, line, is_new = [], first, True
    for word in text.split():
        if is_new:
            line += word
        elif display_width(line) + 1 + display_width(word) <= width:
            line += f" {word}"
        else:
            lines.append(line)
            line = rest + word
        is_new = False
    return lines if is_new else [*lines, line]


def _escape(found: re.Match[str]) -> str:
    letter = found[0]
    code = ord(letter)
    return _NAMED.get(letter) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")

"""Pages of help, as plain text of a terminal's width: lines are folded, and nothing is cut."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TextIO

__all__ = ["Row", "Section", "columns", "folded", "page", "styled", "usage"]

#: What stands to the left, and what it is.
Row = tuple[str, str]
#: A heading, and the rows below it.
Section = tuple[str, Sequence[Row]]

#: Beyond this, lines are hard to read; where there is no terminal, they have 80 columns.
_MOST, _NO_TERMINAL = 100, 80
#: Rows whose left side is longer have the text on the next line.
_LEFT = 26


def columns() -> int | None:
    """Columns of the terminal that standard output is; None of a pipe. ``COLUMNS`` wins."""
    given = os.environ.get("COLUMNS", "")
    if given.isdecimal() and int(given) > 0:
        return int(given)
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or None
    except (OSError, ValueError):
        return None


def usage(path: str, pieces: Iterable[str]) -> str:
    """How a command is called, in one line."""
    return " ".join(("Usage:", path, *pieces))


def page(
    usage: str,
    text: str,
    sections: Iterable[Section],
    examples: Sequence[str] = (),
    *,
    after_sections: str = "",
) -> str:
    """A page of help: paragraphs, sections of rows, a paragraph about more of them, examples."""
    width = min(columns() or _NO_TERMINAL, _MOST)
    blocks = [folded(usage, width, indent="    ")]
    blocks += [folded(part, width) for part in text.split("\n\n") if part.strip()]
    for heading, rows in sections:
        if rows:
            blocks.append([_bold(f"{heading}:"), *_rows(rows, width)])
    if after_sections:
        blocks.append(folded(after_sections, width))
    if examples:
        shown = [line for example in examples for line in _continued(example, width)]
        blocks.append([_bold("Examples:"), *shown])
    return "\n\n".join("\n".join(block) for block in blocks)


def styled(text: str, style: str, stream: TextIO) -> str:
    """``text`` in a style, ``1`` for bold, ``2`` for dim, on a terminal that shows such things."""
    is_plain = "NO_COLOR" in os.environ or os.environ.get("TERM") == "dumb" or not stream.isatty()
    return text if is_plain else f"\x1b[{style}m{text}\x1b[0m"


def _bold(text: str) -> str:
    return styled(text, "1", sys.stdout)


def folded(text: str, width: int, *, indent: str = "") -> list[str]:
    """Lines of whole words, none longer than ``width`` but a word; all but the first indented."""
    lines: list[str] = []
    line = ""
    for word in text.split():
        longer = f"{line} {word}" if line.strip() else f"{line}{word}"
        if len(longer) > width and line.strip():
            lines.append(line)
            longer = f"{indent}{word}"
        line = longer
    return [*lines, line]


def _rows(rows: Sequence[Row], width: int) -> Iterator[str]:
    widest = max(len(left) for left, _ in rows)
    left_width = min(widest, _LEFT if width >= 80 else _LEFT * width // 80)
    indent = " " * (left_width + 4)
    for left, right in rows:
        lines = folded(right, width - len(indent)) if right else []
        if len(left) <= left_width and lines:
            yield f"  {left:<{left_width}}  {lines.pop(0)}"
        else:
            yield f"  {left}"
        yield from (f"{indent}{line}" for line in lines)


def _continued(example: str, width: int) -> Iterator[str]:
    """A command line as it may be pasted: folded between words, with a backslash."""
    line = "  $"
    for word in _words(example):
        if len(line) + len(word) + 3 > width and line.strip() not in ("$", ""):
            yield f"{line} \\"
            line = f"     {word}"
        else:
            line = f"{line} {word}"
    yield line


def _words(text: str) -> Iterator[str]:
    """Words of a command line, where what stands in quotes is one."""
    word = ""
    for piece in text.split():
        word = f"{word} {piece}" if word else piece
        if word.count("'") % 2 == 0 and word.count('"') % 2 == 0:
            yield word
            word = ""
    if word:
        yield word

"""Tables of a terminal's width: what does not fit beside goes below, and no cell is cut."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence

from ._help import folded

__all__ = ["table_lines"]


def table_lines(
    columns: Sequence[str], rows: Sequence[Sequence[str]], width: int | None, *, gap: int = 2
) -> Iterator[str]:
    """The lines of a table: the first column to the left, figures to the right.

    Columns that do not fit in ``width`` (None: all do) are a table of their own below, after the
    first column again. A name that takes more than half of it has a line of its own, and text that
    takes more than the rest is folded between words.
    """
    widths = [max(map(_width, cells)) for cells in zip(columns, *rows, strict=True)]
    if width is None:
        width = sum(widths) + gap * len(widths)
    first = min(widths[0], width // 2) if len(widths) > 1 else widths[0]
    is_later = False
    for shown in _groups(widths, first, width, gap):
        if is_later:
            yield ""
        is_later = True
        for row in (columns, *rows):
            name, cells = row[0], [row[index] for index in shown]
            if _width(name) > first:
                yield name
                name = ""
            name += " " * (first - _width(name))
            room = width - first - gap
            if len(cells) == 1 and widths[shown[0]] > room:
                for line in folded(cells[0], max(room, 1)):
                    yield f"{name}{' ' * gap}{line}".rstrip()
                    name = " " * first
                continue
            padded = (
                " " * (gap + widths[index] - _width(cell)) + cell
                for index, cell in zip(shown, cells, strict=True)
            )
            yield "".join((name, *padded)).rstrip()


def _groups(widths: Sequence[int], first: int, width: int, gap: int) -> Iterator[list[int]]:
    """Which columns beside the first stand in one table."""
    group: list[int] = []
    taken = first
    for index, cells in enumerate(widths[1:], 1):
        if group and taken + gap + cells > width:
            yield group
            group, taken = [], first
        group.append(index)
        taken += gap + cells
    yield group


def _width(text: str) -> int:
    """Columns that a text takes in a terminal."""
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(letter) in "WF" for letter in text)
    return len(text) + wide - sum(map(bool, map(unicodedata.combining, text)))

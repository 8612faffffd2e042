"""What commands print has the terminal's width, and cuts nothing."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import Any

import pytest
import typer

from hushtable.cli import app
from hushtable.cli._help import folded, page
from hushtable.cli._tables import table_lines

HEADS = ["table", "rows", "dim", "dtype", "bytes", "layout"]
ROWS = [
    ["items", "1,048,576", "64", "f32", "268,435,456", "2 parts"],
    ["a-name-that-is-longer-than-half-a-terminal", "7", "4", "int8", "28", "none"],
]


def test_a_table_that_fits_is_one() -> None:
    assert list(table_lines(HEADS[:3], [row[:3] for row in ROWS[:1]], 80)) == [
        "table       rows  dim",
        "items  1,048,576   64",
    ]


@pytest.mark.parametrize("width", [30, 40, 60, 80])
def test_what_does_not_fit_beside_goes_below(width: int) -> None:
    lines = list(table_lines(HEADS, ROWS, width))
    assert max(len(line) for line in lines if not line.startswith("a-name")) <= width
    words = " ".join(lines).split()
    for cell in (*HEADS, *itertools.chain(*ROWS)):
        assert set(cell.split()) <= set(words)
    # Every part of it says whose the figures are.
    parts = [list(part) for blank, part in itertools.groupby(lines, bool) if blank]
    assert len(parts) > 1
    for part in parts:
        assert part[0].startswith("table ")
        assert [line.split()[0] for line in part if re.match(r"items|a-name", line)] == [
            row[0] for row in ROWS
        ]


def test_a_pipe_has_no_width() -> None:
    lines = list(table_lines(HEADS, ROWS, None))
    assert len(lines) == 3
    assert lines[2].split() == ROWS[1]


def test_long_text_beside_a_name_is_folded_between_words() -> None:
    text = "the quick brown fox jumps over the lazy dog " * 3
    lines = list(table_lines(["name", "what"], [["a", text.strip()]], 40))
    assert max(map(len, lines)) <= 40
    assert " ".join(lines[1:]).split() == ["a", *text.split()]


def test_letters_of_two_columns_are_counted_so() -> None:
    lines = list(table_lines(["n", "v"], [["表", "1"], ["ab", "2"]], 80))
    assert lines == ["n   v", "表  1", "ab  2"]


def commands(path: str, command: Any) -> Iterator[tuple[str, Any]]:
    yield path, command
    for name, below in getattr(command, "commands", {}).items():
        yield from commands(f"{path} {name}", below)


EVERY = list(commands("hushtable", typer.main.get_command(app)))


@pytest.mark.parametrize("width", [60, 80])
def test_help_cuts_no_name_and_has_the_terminals_width(
    monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    for path, command in EVERY:
        text = command.get_help(typer.Context(command, info_name=path))
        assert "…" not in text
        for line in text.splitlines():
            # A word, or a command line's, may be longer.
            assert len(line) <= width or len(line.split()) <= 2 + line.startswith("  $"), line
        assert text.startswith(f"Usage: {path}")


def test_command_lines_are_folded_so_that_they_may_be_pasted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    example = "hushtable lookup 3 14 159 --left 'https://a b:4000' --ca ca.pem"
    text = page("Usage: x", "", [], [example])
    shown = text.split("Examples:\n")[1]
    assert max(map(len, shown.splitlines())) <= 40
    pasted = shown.replace("\\\n", " ").replace("$", "", 1)
    assert " ".join(pasted.split()) == example


def test_paragraphs_are_folded_between_words() -> None:
    assert folded("one two three", 7) == ["one two", "three"]
    assert folded("one-very-long-word two", 7, indent="  ") == ["one-very-long-word", "  two"]
    assert folded("", 7) == [""]

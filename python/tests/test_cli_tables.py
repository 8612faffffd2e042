"""What commands print has the terminal's width, and cuts nothing."""

from __future__ import annotations

import inspect
import itertools
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import typer

from hushtable import _native
from hushtable._settings import settings
from hushtable.cli import app, main
from hushtable.cli._help import folded, page
from hushtable.cli._settings import _COMMON, _HEADINGS
from hushtable.cli._tables import table_lines
from hushtable.cli.output import SHOWN

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


def pages(path: str, command: Any) -> Iterator[str]:
    context = typer.Context(command, info_name=path)
    yield command.get_help(context)
    if hasattr(command, "page"):
        yield command.page(context, is_whole=True)


@pytest.mark.parametrize("width", [60, 80])
def test_help_cuts_no_name_and_has_the_terminals_width(
    monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    for path, command in EVERY:
        *_, whole = pages(path, command)
        words = set(whole.replace(",", " ").split())
        for parameter in command.params:
            if parameter.param_type_name == "option":
                assert {*parameter.opts, *parameter.secondary_opts} <= words, path
        for text in pages(path, command):
            assert text.startswith(f"Usage: {path}")
            for line in text.splitlines():
                # A word, or a command line's, may be longer.
                assert len(line) <= width or len(line.split()) <= 2 + line.startswith("  $"), line


def shown(text: str, heading: str) -> int:
    """How many options a page has under a heading."""
    section = text.split(f"{heading}:\n")[1].split("\n\n")[0]
    return sum(line.startswith("  -") for line in section.splitlines())


def test_a_server_shows_what_operators_set_and_names_the_rest() -> None:
    path = "hushtable serve"
    command = dict(EVERY)[path]
    first, whole = pages(path, command)
    # The ten, and --json, --help-all and --help.
    assert shown(first, "Options") == 13
    assert "--queue-bags-max" not in first
    assert "--queue-bags-max" in whole
    named = re.findall(r"([A-Z][^,(]*) \((\d+)\)", " ".join(first.split()).split(" too: ")[1])
    assert ("Limits", "14") in named
    assert [(heading, str(shown(whole, heading))) for heading, _ in named] == named
    # Beside the argument, which is no option, and --help, which is no parameter.
    assert 13 + sum(int(count) for _, count in named) == len(command.params)


def test_no_command_shows_more_than_twenty_options_of_its_own_at_once() -> None:
    for path, command in EVERY:
        text = next(pages(path, command))
        assert "Options:\n" in text
        assert shown(text, "Options") <= 20, path


def test_options_under_more_headings_are_there() -> None:
    for function, said in SHOWN.items():
        names = [name for group in said.more.values() for name in group]
        assert len(set(names)) == len(names)
        assert set(names) <= set(inspect.signature(function).parameters), function


def test_what_settings_are_about_is_said_of_all_that_several_servers_have() -> None:
    kinds = {kind.name: {one.name for one in settings(kind.name)} for kind in _native.schemes()}
    listed = [*_COMMON, *itertools.chain(*_HEADINGS.values())]
    assert len(set(listed)) == len(listed)
    assert set(listed) <= set().union(*kinds.values())
    counts = Counter(itertools.chain(*kinds.values()))
    # Arguments are no options.
    several = {name for name, count in counts.items() if count > 1} - {"table", "model"}
    # What is missing goes into _HEADINGS of hushtable/cli/_settings.py.
    assert several - set(listed) <= {"plan"}


def test_help_all_is_printed_and_ends(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["serve", "--help-all", "--side", "left"])
    assert not ended.value.code
    assert "--inflight-bytes-per-peer-max" in capsys.readouterr().out


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

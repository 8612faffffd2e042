"""What pages and help texts show is what the command takes."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from hushtable.cli import app

ROOT = Path(__file__).resolve().parents[2]


def load() -> Any:
    spec = importlib.util.spec_from_file_location("docs_commands", ROOT / "docs" / "commands.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


commands = load()


def help_examples(command: Any) -> Iterator[str]:
    for line in (command.epilog or "").split("\n\n"):
        if (found := re.match(r"\s*\$ (.*)", line)) is not None:
            yield found[1].replace("\\[", "[")
    for below in getattr(command, "commands", {}).values():
        yield from help_examples(below)


EXAMPLES = list(help_examples(typer.main.get_command(app)))


@pytest.mark.parametrize("line", EXAMPLES)
def test_every_example_of_a_help_page_is_taken(line: str) -> None:
    found = list(commands.simple_commands(line))
    assert found
    assert [commands.defect(words) for words in found] == [None] * len(found)


@pytest.mark.parametrize(
    "page", ["README.md", *(str(p.relative_to(ROOT)) for p in (ROOT / "docs").glob("*.md"))]
)
def test_every_command_that_a_page_shows_is_taken(page: str) -> None:
    assert commands.defects((ROOT / page).read_text()) == []


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("hushtable serve items --side left --thread 3", "--thread"),
        ("A=1 hushtable serve items --keys-dir keys", "--keys-dir"),
        ("cd x && hushtable frobnicate", "frobnicate"),
        ("hushtable table info", "BUNDLE"),
        ("cat ids | hushtable lookup - --max-ids many > rows", "many"),
        ("make nonsense SCHEME=pair", "nonsense"),
    ],
)
def test_a_command_that_would_not_be_taken_is_found(line: str, says: str) -> None:
    page = f"Text.\n\n```console\n$ {line}\nprinted\n```\n"
    found = commands.defects(page)
    assert len(found) == 1
    assert says in found[0]


def test_what_is_shown_is_read_as_a_shell_would() -> None:
    page = (
        "```console\nalice$ hushtable table \\\n    verify b   # all of it\nok\n$ make test\n```\n"
    )
    lines = list(commands.shown(page))
    assert [list(commands.simple_commands(line)) for line in lines] == [
        [["hushtable", "table", "verify", "b"]],
        [["make", "test"]],
    ]
    assert commands.defects(page) == []

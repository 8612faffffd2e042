"""Commands that pages show and nothing runs: whether `hushtable` would take them.

A block marked `console` has command lines after a prompt (`$`, `alice$`) and what they print. Each
`hushtable` command line is parsed by the command itself, without running it, and each `make` target
looked up: an option that was renamed fails here.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import io
import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from hushtable.cli import app
from hushtable.cli.output import USAGE_ERROR, usage_text

ROOT = Path(__file__).resolve().parents[1]
_BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_PROMPT = re.compile(r"^\w*\$ +(.*)$")
#: What ends a simple command within a line.
_ENDS = {"&&", "||", ";", "|", "&", ">", "<", ">>", "2>"}


def shown(text: str) -> Iterator[str]:
    """Command lines of a page's console blocks, continued ones in one piece."""
    for block in _BLOCK.findall(text):
        lines = iter(block.splitlines())
        for line in lines:
            if found := _PROMPT.match(line):
                command = found[1]
                while command.endswith("\\"):
                    command = command[:-1] + next(lines, "")
                yield command


def simple_commands(line: str) -> Iterator[list[str]]:
    """The simple commands of a line, without variables set for them and comments."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
    lexer.whitespace_split = True
    words: list[str] = []
    for word in [*lexer, ";"]:
        if word in _ENDS:
            while words and re.fullmatch(r"[A-Z_]+=.*", words[0], re.DOTALL):
                words.pop(0)
            if words:
                yield words
            words = []
        else:
            words.append(word)


def defect(words: list[str]) -> str | None:
    """Why a command would not be taken; None for one that would, or is none of ours."""
    if words[0] == "make":
        targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
        unknown = [word for word in words[1:] if "=" not in word and word not in targets]
        return f"there is no target {unknown[0]}" if unknown else None
    if words[0] != "hushtable":
        return None
    return _parsed(_whole(), words[1:])


@functools.cache
def _whole() -> Any:
    """The command with all below it: a tenth of a second to make."""
    return typer.main.get_command(app)


def _parsed(command: Any, arguments: list[str]) -> str | None:
    exits = (typer.Exit, SystemExit, importlib.import_module("click").exceptions.Exit)
    context = None
    try:
        with _without_variables(), contextlib.redirect_stdout(io.StringIO()):
            while True:
                context = command.make_context(command.name, list(arguments), parent=context)
                if not hasattr(command, "commands"):
                    return None
                rest = [*context._protected_args, *context.args]
                _, command, arguments = command.resolve_command(context, rest)
    except exits:
        return None  # --help and --version say what they say, and end
    except USAGE_ERROR as error:
        return usage_text(error)


@contextlib.contextmanager
def _without_variables() -> Iterator[None]:
    kept = {name: value for name, value in os.environ.items() if name.startswith("HUSHTABLE_")}
    for name in kept:
        del os.environ[name]
    try:
        yield
    finally:
        os.environ.update(kept)


def defects(text: str) -> list[str]:
    """What is wrong with the commands of a page, one line each."""
    found = []
    for line in shown(text):
        for words in simple_commands(line):
            if (reason := defect(words)) is not None:
                found.append(f"{' '.join(words)}: {reason}")
    return found

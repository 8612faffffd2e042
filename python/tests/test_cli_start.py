"""The command's start: what it imports, and that its help agrees with what was not imported."""

from __future__ import annotations

import importlib
import inspect
import json
import subprocess
import sys
from typing import Any

import pytest
import typer

import hushtable
from hushtable.cli import _commands, app
from hushtable.cli.output import unfold

ROOT = typer.main.get_command(app)
#: What takes time to import.
HEAVY = ("asyncio", "click", "hushtable._native", "numpy", "rich", "subprocess", "typer")


def modules_of(*arguments: str) -> set[str]:
    """The modules that a command has imported at its end."""
    code = (
        "import json, sys\nfrom hushtable.cli import main\n"
        "try:\n    main(sys.argv[1:])\n"
        "finally:\n    print(json.dumps(sorted(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True)
    return set(json.loads(done.stderr.splitlines()[-1]))


@pytest.mark.parametrize("group", [[], ["table"], ["train", "model"], ["bench"], ["sim"]])
def test_help_of_groups_imports_none_of_what_runs_commands(group: list[str]) -> None:
    plain = subprocess.run(
        [sys.executable, "-c", "import json, sys; print(json.dumps(sorted(sys.modules)))"],
        capture_output=True,
        text=True,
    )
    bare = set(json.loads(plain.stdout))
    found = modules_of(*group, "--help")
    assert not found & set(HEAVY)
    own = {name for name in found if name.startswith("hushtable")}
    assert own <= {
        "hushtable",
        "hushtable.cli",
        "hushtable.cli._commands",
        "hushtable.cli._help",
        "hushtable.cli._variables",
        "hushtable_lab",
        "hushtable_lab.cli",
    }
    assert len(found - bare - own) < 40


def commands_below(path: str, command: Any) -> list[tuple[str, Any]]:
    found = [(path, command)]
    for name, below in getattr(command, "commands", {}).items():
        found += commands_below(f"{path} {name}".strip(), below)
    return found


EVERY = dict(commands_below("", ROOT))


def test_each_line_of_the_table_is_of_its_command() -> None:
    assert len(EVERY) > 60
    for path, command in EVERY.items():
        found = _commands.entry(path)
        if found is None or not found[0]:
            assert (hasattr(command, "commands"), command.help) == (True, _commands.line(path))
            continue
        where, line = found
        module, _, attribute = where.partition(":")
        function = getattr(importlib.import_module(module, _commands.package(path)), attribute)
        assert unfold(inspect.getdoc(function)).split("\n\n")[0] == line, path


@pytest.mark.parametrize("path", ["", "table", "train model", "bench"])
def test_help_without_imports_is_the_help_with_them(path: str) -> None:
    command = EVERY[path]
    context = typer.Context(
        command, info_name=f"hushtable {path}".strip(), help_option_names=["-h", "--help"]
    )
    page = command.get_help(context)
    assert page == _commands.page(path)
    for parameter in command.get_params(context):
        for name in parameter.opts:
            assert name in page.replace(",", " ").split()


def test_every_public_name_is_there() -> None:
    for name in hushtable.__all__:
        if name != "nn":  # imports torch where it is installed
            assert getattr(hushtable, name) is getattr(hushtable, name)
            assert name in dir(hushtable)
    assert hushtable.errors.Error is hushtable.Error
    assert isinstance(hushtable.table.Table, type)
    with pytest.raises(AttributeError, match="no attribute 'tabel'"):
        _ = hushtable.tabel  # type: ignore[attr-defined]


def test_importing_the_package_imports_no_numpy() -> None:
    is_there = "print('numpy' in sys.modules)"
    code = f"import hushtable, sys; {is_there}; hushtable.Table; {is_there}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.split() == ["False", "True"]


@pytest.mark.parametrize(
    ("words", "offered"), [("hushtable ser", {"serve"}), ("hushtable table b", {"build"})]
)
def test_a_shell_completes_names(words: str, offered: set[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "hushtable"],
        env={
            "_HUSHTABLE_COMPLETE": "complete_bash",
            "COMP_WORDS": words,
            "COMP_CWORD": str(len(words.split()) - 1),
            "PYTHONPATH": ":".join(sys.path),
        },
        capture_output=True,
        text=True,
    )
    assert set(done.stdout.split()) == offered, done.stderr


@pytest.mark.parametrize(
    ("command", "unused"),
    [
        (["--version"], {"typer", "numpy", "asyncio"}),
        (["table", "info", "/nowhere"], {"rich", "asyncio", "hushtable.client", "hushtable.fl"}),
        (["certificates", "--help"], {"rich", "asyncio", "numpy"}),
        (["serve", "--help-all"], {"rich", "asyncio", "numpy", "hushtable.infer"}),
    ],
    ids=["version", "info", "certificates", "serve"],
)
def test_a_short_command_imports_little(command: list[str], unused: set[str]) -> None:
    assert not modules_of(*command) & unused


@pytest.mark.parametrize("words", [["lookpu"], ["table", "bild"], ["lookup", "--tiemout", "3"]])
def test_what_was_meant_is_guessed_once(words: list[str]) -> None:
    command = [sys.executable, "-m", "hushtable", *words]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.count("Did you mean") == 1, done.stderr

"""The laboratory is a package of its own: the product goes without it, and says so."""

from __future__ import annotations

import ast
import json
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

from hushtable.cli import _commands, main

ROOT = Path(__file__).resolve().parents[2]
LAB = tomllib.loads((ROOT / "lab" / "pyproject.toml").read_text(encoding="utf-8"))["project"]


@pytest.fixture
def without_lab(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_commands, "has_lab", lambda: False)
    # What was made before has the commands.
    monkeypatch.setattr(_commands, "_made", _commands._made.__wrapped__)


def test_both_packages_are_of_one_version() -> None:
    assert LAB["version"] == metadata.version("hushtable")
    assert LAB["dependencies"] == [f"hushtable=={LAB['version']}"]
    assert metadata.version("hushtable-lab") == LAB["version"]
    assert metadata.requires("hushtable-lab") == LAB["dependencies"]


def test_the_product_imports_nothing_of_it() -> None:
    for path in (ROOT / "python" / "hushtable").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_bytes())):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            assert not any(name.startswith("hushtable_lab") for name in names), path


@pytest.mark.parametrize("group", ["bench", "sim"])
@pytest.mark.parametrize("arguments", [[], ["--help"], ["fl", "--json"]])
def test_a_command_of_it_says_what_to_install(
    group: str, arguments: list[str], without_lab: None, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([group, *arguments])
    assert ended.value.code == 2
    printed = capsys.readouterr()
    said = json.loads(printed.out)["error"]["message"] if "--json" in arguments else printed.err
    assert f"`hushtable {group}` is a command of hushtable-lab" in said
    assert "pip install hushtable-lab" in said


def test_help_names_its_commands_where_it_is_installed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    assert {"bench", "sim", "serve"} <= set(capsys.readouterr().out.split())


def test_help_leaves_its_commands_out_where_it_is_not(
    without_lab: None, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    words = set(capsys.readouterr().out.split())
    assert "serve" in words
    assert not {"bench", "sim"} & words

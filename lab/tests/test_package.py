"""The laboratory is a package of its own: the product goes without it, and says so."""

from __future__ import annotations

import ast
import json
import tomllib
from importlib import metadata
from itertools import pairwise
from pathlib import Path

import pytest

from hushtable.cli import _commands, _groups, _run, main

ROOT = Path(__file__).resolve().parents[2]
LAB = tomllib.loads((ROOT / "lab" / "pyproject.toml").read_text(encoding="utf-8"))["project"]


@pytest.fixture
def without_lab(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_commands, "has_lab", lambda: False)
    # What was made before has the commands.
    monkeypatch.setattr(_run, "app", _groups.root())
    monkeypatch.setattr(_run, "_command", _run._command.__wrapped__)


def test_both_packages_are_of_one_version() -> None:
    assert LAB["version"] == metadata.version("hushtable")
    assert LAB["dependencies"] == [f"hushtable=={LAB['version']}"]
    assert metadata.version("hushtable-lab") == LAB["version"]
    assert metadata.requires("hushtable-lab") == LAB["dependencies"]


def test_its_wheel_has_the_licence() -> None:
    # flit takes none from the folder above.
    assert LAB["license-files"] == ["LICENSE"]
    assert (ROOT / "lab" / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()


def taken(path: Path) -> set[str]:
    """Modules that a file of Python imports, and attributes of the native one that it names."""
    found = set()
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            found |= {module, *(f"{module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Attribute):
            found.add(ast.unparse(node))
    return found


def is_of_the_lab(name: str) -> bool:
    """Whether a name is the laboratory's, or one of the measurements that only it calls."""
    parts = name.split(".")
    return parts[0] == "hushtable_lab" or ("_native", "bench") in pairwise(parts)


def test_the_product_takes_nothing_of_it() -> None:
    for path in (ROOT / "python" / "hushtable").rglob("*.py"):
        assert not {name for name in taken(path) if is_of_the_lab(name)}, path


@pytest.mark.parametrize(
    "line",
    [
        "import hushtable_lab",
        "from hushtable_lab.sim import fl",
        "import hushtable._native.bench",
        "from hushtable._native import bench",
        "from ._native.bench import Bench",
        "from .. import _native; _native.bench.Bench(1, 2)",
        "import hushtable; hushtable._native.bench.Bench(1, 2)",
    ],
)
def test_what_the_product_would_take_of_it_is_found(line: str, tmp_path: Path) -> None:
    path = tmp_path / "planted.py"
    path.write_text(line)
    assert {name for name in taken(path) if is_of_the_lab(name)}


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

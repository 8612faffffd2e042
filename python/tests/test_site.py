"""The site of the documentation: the reference has every command and every public name."""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def docs() -> Any:
    """docs/pages.py, as MkDocs loads it."""
    spec = importlib.util.spec_from_file_location("docs_pages", ROOT / "docs" / "pages.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def commands_below(name: str, command: Any) -> list[tuple[str, Any]]:
    found = [(name, command)]
    for below, child in getattr(command, "commands", {}).items():
        found += commands_below(f"{name} {below}", child)
    return found


def test_the_page_of_the_command_has_every_command_and_option(docs: Any) -> None:
    import typer

    from hushtable.cli import app

    page = docs.api_pages.command_page()
    sections = dict(re.findall(r"^##+ `([a-z0-9 -]+)` .*?\n(.*?)(?=^##|\Z)", page, re.M | re.S))
    found = commands_below("hushtable", typer.main.get_command(app))
    assert len(found) > 40
    assert {name for name, command in found if not command.hidden} == set(sections)
    for name, command in found:
        for parameter in command.params:
            shown = parameter.name != "help" and not getattr(parameter, "hidden", False)
            if shown and parameter.param_type_name == "option" and hasattr(command, "callback"):
                missing = [
                    option for option in parameter.opts if f"`{option}`" not in sections[name]
                ]
                assert not missing or hasattr(command, "commands"), (name, missing)


def test_every_public_module_has_a_page(docs: Any) -> None:
    folder = ROOT / "python" / "hushtable"
    names = {path.stem for path in folder.glob("*.py")} | {
        path.parent.name for path in folder.glob("*/__init__.py")
    }
    public = {f"hushtable.{name}" for name in names if not name.startswith("_")}
    # The command has a page of its own.
    assert public - {"hushtable.cli"} <= set(docs.api_pages.MODULES)
    for module in docs.api_pages.MODULES:
        page = docs.api_pages.module_page(module)
        for name in docs.api_pages.exported(module):
            assert f'"{name}"' in page or f"`{name}`" in page, (module, name)


def test_links_into_the_repository_lead_to_what_the_site_has(docs: Any) -> None:
    place = docs._place
    assert place("docs/operate.md", "../SECURITY.md") == "project/security.md"
    assert place("README.md", "docs/tune.md") == "tune.md"
    assert place("docs/plan.md", "../examples/fedrec") == "examples/fedrec.md"
    assert place("docs/key-format.md", "../vectors/dpf.json") == "source/vectors/dpf.json.txt"
    assert place("README.md", "bench/results") == "source/bench/results/index.md"
    assert place("docs/operate.md", "no-such-page.md") is None
    assert place("docs/operate.md", "../../etc/passwd") is None


def test_references_of_docstrings_become_links() -> None:
    griffe = pytest.importorskip("griffe")
    sys.path.insert(0, str(ROOT / "docs"))
    try:
        docstrings = importlib.import_module("docstrings")
    finally:
        sys.path.remove(str(ROOT / "docs"))
    module = griffe.Module("hushtable")
    module["Table"] = griffe.Class("Table", parent=module)
    text = docstrings._markdown("As :class:`Table`, ~ :meth:`~hushtable.Table.rows`::\n", module)
    assert 'identifier="hushtable.Table" optional><code>Table</code>' in text
    assert 'identifier="hushtable.Table.rows" optional><code>rows</code>' in text
    assert text.endswith("</autoref>:\n")

"""The stub of the native module is the native module."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path
from typing import Any

import pytest

import hushtable
from hushtable import _native

FOLDER = Path(hushtable.__file__).parent / "_native"
MODULES = {"": _native, "bench": _native.bench}
STUBS = {
    name: ast.parse((FOLDER / f"{name or '__init__'}.pyi").read_text()).body for name in MODULES
}


def declared(kind: type[Any]) -> dict[tuple[str, str], Any]:
    return {
        (module, node.name): node
        for module, body in STUBS.items()
        for node in body
        if isinstance(node, kind)
    }


FUNCTIONS = declared(ast.FunctionDef)
CLASSES = declared(ast.ClassDef)


def parameters(node: ast.FunctionDef) -> list[str]:
    arguments = node.args
    named = [*arguments.posonlyargs, *arguments.args]
    return [a.arg for a in named if a.arg not in ("self", "cls")] + [
        f"*{a.arg}" for a in arguments.kwonlyargs
    ]


def native_parameters(function: object) -> list[str]:
    signature = inspect.signature(function)  # type: ignore[arg-type]
    return [
        f"*{p.name}" if p.kind is p.KEYWORD_ONLY else p.name
        for p in signature.parameters.values()
        if p.name != "self"
    ]


@pytest.mark.parametrize("module", MODULES)
def test_every_native_name_is_in_the_stub(module: str) -> None:
    native = {name for name in vars(MODULES[module]) if not name.startswith("__")}
    stub = {name for home, name in (*FUNCTIONS, *CLASSES) if home == module}
    assert native == stub | ({"bench"} if module == "" else set())
    listed = next(
        node.value
        for node in STUBS[module]
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    )
    assert set(ast.literal_eval(listed)) == native | ({"__version__"} if module == "" else set())


@pytest.mark.parametrize(("module", "name"), sorted(FUNCTIONS))
def test_functions_have_the_stubs_parameters(module: str, name: str) -> None:
    function = getattr(MODULES[module], name)
    assert native_parameters(function) == parameters(FUNCTIONS[module, name])


@pytest.mark.parametrize(("module", "name"), sorted(CLASSES))
def test_classes_have_the_stubs_members(module: str, name: str) -> None:
    native, stub = getattr(MODULES[module], name), CLASSES[module, name]
    members = {n.name: n for n in stub.body if isinstance(n, ast.FunctionDef)}
    assert [base.__name__ for base in native.__bases__] == (
        [ast.unparse(base) for base in stub.bases] or ["object"]
    )
    public = {member for member in vars(native) if not member.startswith("_")}
    assert public == members.keys() - {"__new__"}
    for member, node in members.items():
        is_property = any(ast.unparse(d) == "property" for d in node.decorator_list)
        assert is_property == inspect.isdatadescriptor(vars(native).get(member)), member
        if not is_property:
            function = native if member == "__new__" else getattr(native, member)
            assert native_parameters(function) == parameters(node), member


def test_every_error_is_exported() -> None:
    from hushtable import errors

    for name in errors.__all__:
        assert getattr(hushtable, name) is getattr(errors, name)
        assert issubclass(getattr(errors, name), hushtable.Error)


def test_importing_the_package_imports_neither_torch_nor_the_command() -> None:
    import subprocess
    import sys

    code = (
        "import sys, hushtable; print([m for m in ('torch', 'typer', 'rich') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"

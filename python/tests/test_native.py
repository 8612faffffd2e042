"""The stub of the native module is the native module."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import pytest

import hushtable
from hushtable import _native

STUB = ast.parse((Path(hushtable.__file__).parent / "_native.pyi").read_text())
FUNCTIONS = {node.name: node for node in STUB.body if isinstance(node, ast.FunctionDef)}
CLASSES = {node.name: node for node in STUB.body if isinstance(node, ast.ClassDef)}


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


def test_every_native_name_is_in_the_stub() -> None:
    native = {name for name in vars(_native) if not name.startswith("__")} | {"__version__"}
    assert native == {*FUNCTIONS, *CLASSES, "__version__"}
    listed = next(
        node.value
        for node in STUB.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    )
    assert set(ast.literal_eval(listed)) == native


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_functions_have_the_stubs_parameters(name: str) -> None:
    assert native_parameters(getattr(_native, name)) == parameters(FUNCTIONS[name])


@pytest.mark.parametrize("name", sorted(CLASSES))
def test_classes_have_the_stubs_members(name: str) -> None:
    native = getattr(_native, name)
    members = {n.name: n for n in CLASSES[name].body if isinstance(n, ast.FunctionDef)}
    public = {member for member in vars(native) if not member.startswith("_")}
    assert public == members.keys() - {"__new__"}
    for member, node in members.items():
        is_property = any(ast.unparse(d) == "property" for d in node.decorator_list)
        if member != "__new__" and not is_property:
            assert native_parameters(getattr(native, member)) == parameters(node), member


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

"""The stub of the native module is the native module; `make lint` holds its types (.ci/stub)."""

from __future__ import annotations

from pathlib import Path

import pytest
from native_stubs import Stub

import hushtable
from hushtable import _native

STUB = Stub(Path(hushtable.__file__).parent / "_native" / "__init__.pyi")


def test_every_native_name_is_in_the_stub() -> None:
    # Builds of a checkout have the laboratory's measurements too: its stub is there.
    native = {name for name in vars(_native) if not name.startswith("__")} - {"bench"}
    assert native == STUB.functions.keys() | STUB.classes.keys()
    assert STUB.listed() == native | {"__version__"}


@pytest.mark.parametrize("name", sorted(STUB.functions))
def test_functions_have_the_stubs_parameters(name: str) -> None:
    STUB.check_function(name, getattr(_native, name))


@pytest.mark.parametrize("name", sorted(STUB.classes))
def test_classes_have_the_stubs_members(name: str) -> None:
    STUB.check_class(name, getattr(_native, name))


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

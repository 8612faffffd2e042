"""The native module's measurements are what their stub says; builds without them say what to do."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from native_stubs import Stub

import hushtable_lab
from hushtable import _native
from hushtable.cli import main
from hushtable_lab import native

STUB = Stub(Path(hushtable_lab.__file__).parent / "native.pyi")
#: The module's own, whatever the build.
OWN = {"require"}


@pytest.fixture
def without_measurements(monkeypatch: pytest.MonkeyPatch) -> None:
    """A build as wheels are."""
    monkeypatch.delattr(_native, "bench")


def test_every_measurement_is_in_the_stub() -> None:
    measured = {name for name in vars(_native.bench) if not name.startswith("__")}
    assert STUB.functions.keys() | STUB.classes.keys() == measured | OWN
    assert STUB.listed() == measured | OWN


@pytest.mark.parametrize("name", sorted(STUB.functions))
def test_functions_have_the_stubs_parameters(name: str) -> None:
    STUB.check_function(name, getattr(native, name))


@pytest.mark.parametrize("name", sorted(STUB.classes))
def test_classes_have_the_stubs_members(name: str) -> None:
    STUB.check_class(name, getattr(native, name))


def test_a_name_that_is_none_is_an_error_of_pythons() -> None:
    with pytest.raises(AttributeError):
        _ = native.nothing


@pytest.mark.parametrize(
    "arguments",
    [
        ["bench", "dpf", "--rows", "512"],
        ["bench", "serve", "--rows", "512"],
        ["bench", "serve", "--rows", "512", "--rate", "5"],
        ["bench", "shards", "--rows", "1024", "--shards", "1", "--stubs", "0"],
        ["bench", "oram", "--rows", "1024", "--requests", "100"],
        ["bench", "onion"],
        ["bench", "hybrid"],
        ["sim", "accelerator", "--machine", "this", "--table-gb", "0.001"],
        ["sim", "serve", "--machine", "this", "--rows", "1024", "--row-bytes", "64", "--rate", "9"],
        ["bench", "dpf", "--rows", "512", "--json"],
    ],
    ids=" ".join,
)
def test_what_measures_says_what_is_missing_and_what_to_do(
    arguments: list[str], without_measurements: None, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    printed = capsys.readouterr()
    said = json.loads(printed.out)["error"]["message"] if "--json" in arguments else printed.err
    said = " ".join(said.split())
    assert "this build of hushtable measures nothing" in said
    assert "make setup" in said
    assert "--config-settings=build-args='--features bench'" in said
    assert "Traceback" not in said


@pytest.mark.parametrize(
    "arguments",
    [
        ["sim", "accelerator"],
        ["sim", "accelerator", "--machine", "sapphire-rapids", "--table-gb", "0.125"],
        ["sim", "serve", "--rows", "1000000", "--row-bytes", "128", "--rate", "100"],
        ["sim", "fl", "--rows", "100000", "--row-bytes", "64", "--requests", "1000"],
        ["bench", "paper", "key"],
    ],
    ids=" ".join,
)
def test_what_only_predicts_or_counts_goes_without(
    arguments: list[str], without_measurements: None, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*arguments, "--json"])
    assert ended.value.code == 0
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert all(records) and records


def test_every_module_of_it_is_imported_without() -> None:
    folder = Path(hushtable_lab.__file__).parent
    modules = [
        ".".join(path.relative_to(folder.parent).with_suffix("").parts)
        for path in sorted(folder.rglob("*.py"))
    ]
    code = (
        "import importlib, sys; from hushtable import _native; del _native.bench; "
        "[importlib.import_module(name.removesuffix('.__init__')) for name in sys.argv[1:]]"
    )
    subprocess.run([sys.executable, "-c", code, *modules], check=True)

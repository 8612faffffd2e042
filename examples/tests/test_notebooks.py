"""The notebooks run, and have kept what they print."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import nbformat
import pytest

with warnings.catch_warnings():
    # Of the kernel's own parts, not of ours.
    warnings.simplefilter("ignore")
    from examples.notebooks.run import imports, missing, run

pytestmark = pytest.mark.rest
FOLDER = Path(__file__).resolve().parents[1] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path: Path) -> None:
    if missing(path) == {"torch"}:
        pytest.skip("torch is not installed: `make test-torch` runs it")
    kept = nbformat.read(path, as_version=4)
    ran = run(path)
    code = [cell for cell in ran.cells if cell.cell_type == "code"]
    assert any(cell.outputs for cell in code)
    # What is kept is of this notebook: as many outputs of the same kinds, cell by cell.
    kinds = [[output.output_type for output in cell.outputs] for cell in code]
    kept_code = [cell for cell in kept.cells if cell.cell_type == "code"]
    assert kinds == [[output.output_type for output in cell.outputs] for cell in kept_code]
    assert path.stat().st_size < 100_000


def test_there_are_notebooks() -> None:
    assert [path.stem for path in NOTEBOOKS] == [
        "private-layers",
        "train-and-serve",
        "tune-a-layout",
    ]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_takes_nothing_of_the_repository(path: Path) -> None:
    # Of other packages, those that an extra brings, and what shows pictures in notebooks.
    installed = {"hushtable", "numpy", "torch", "matplotlib", "IPython"}
    assert set(imports(path)) <= installed | set(sys.stdlib_module_names)

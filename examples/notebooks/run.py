"""Runs notebooks, and keeps what they print in them.

python -m examples.notebooks.run [NOTEBOOK ...]
"""

from __future__ import annotations

import ast
import sys
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).parent
SECONDS_MAX = 300


def run(path: Path) -> nbformat.NotebookNode:
    """The notebook, run in a kernel of its own and in an empty folder, as from an install."""
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        client = NotebookClient(
            notebook,
            timeout=SECONDS_MAX,
            kernel_name="python3",
            resources={"metadata": {"path": folder}},
            record_timing=False,
        )
        return client.execute()


def imports(path: Path) -> Iterator[str]:
    """The packages that a notebook imports, some more than once."""
    for cell in nbformat.read(path, as_version=4).cells:
        if cell.cell_type == "code":
            for node in ast.walk(ast.parse(cell.source)):
                if isinstance(node, ast.Import):
                    yield from (alias.name.partition(".")[0] for alias in node.names)
                elif isinstance(node, ast.ImportFrom) and node.module:
                    yield node.module.partition(".")[0]


def missing(path: Path) -> set[str]:
    """The packages that a notebook imports and that are not installed here."""
    return {name for name in imports(path) if find_spec(name) is None}


def main() -> int:
    """Runs those named, or all that can run here, and writes them."""
    for path in map(Path, sys.argv[1:]) if sys.argv[1:] else sorted(FOLDER.glob("*.ipynb")):
        if not sys.argv[1:] and (names := missing(path)):
            print(f"{path.name}: not run, for {', '.join(sorted(names))} is not installed")
            continue
        notebook = run(path)
        notebook.metadata.pop("language_info", None)
        nbformat.write(notebook, path)
        print(f"{path.name}: ran")
    return 0


if __name__ == "__main__":
    sys.exit(main())

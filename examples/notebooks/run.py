"""Runs notebooks, and keeps what they print in them.

python -m examples.notebooks.run [NOTEBOOK ...]
"""

from __future__ import annotations

import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).parent
ROOT = FOLDER.parents[1]
SECONDS_MAX = 300


def run(path: Path) -> nbformat.NotebookNode:
    """The notebook, run from the repository's root in a kernel of its own."""
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(
        notebook,
        timeout=SECONDS_MAX,
        kernel_name="python3",
        resources={"metadata": {"path": str(ROOT)}},
        record_timing=False,
    )
    return client.execute()


def main() -> int:
    """Runs those named, or all, and writes them."""
    for path in map(Path, sys.argv[1:]) if sys.argv[1:] else sorted(FOLDER.glob("*.ipynb")):
        notebook = run(path)
        notebook.metadata.pop("language_info", None)
        nbformat.write(notebook, path)
        print(f"{path.name}: ran")
    return 0


if __name__ == "__main__":
    sys.exit(main())

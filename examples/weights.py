"""Trained weights in a file, so that a second run does not train again."""

from __future__ import annotations

import tempfile
import zipfile
from pathlib import Path
from typing import TypeVar

import jax
import numpy as np

Tree = TypeVar("Tree")


def write_weights(path: Path, weights: object) -> None:
    """Keeps a tree of arrays at ``path``; whoever reads meanwhile sees all of it or nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, suffix=".npz", delete=False) as file:
        np.savez(file, *map(np.asarray, jax.tree.leaves(weights)))
    Path(file.name).replace(path)


def read_weights(path: Path, like: Tree) -> Tree | None:
    """The tree at ``path``; None where there is none of the shapes of ``like``."""
    leaves, tree = jax.tree.flatten(like)
    try:
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            found = [file[f"arr_{place}"] for place in range(len(leaves))]
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None
    if [one.shape for one in found] != [leaf.shape for leaf in leaves]:
        return None
    read: Tree = jax.tree.unflatten(tree, found)
    return read

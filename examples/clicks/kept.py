"""Trained weights in the cache, so that a second run does not train again."""

from __future__ import annotations

import hashlib
import json
import tempfile
import zipfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import jax
import numpy as np

from hushtable import data

from .judging import Judge
from .training import Decays, Lessons, Recipe, Say, Weights, train

#: Changes where the same recipe and data no longer give the same weights.
_VERSION = 1


def train_once(
    name: str,
    score: Any,
    start: Weights,
    decays: Decays,
    lessons: Lessons,
    validation: Judge,
    recipe: Recipe,
    *,
    say: Say,
) -> Weights:
    """The weights out of the cache, or trained as :func:`.training.train` does and kept there."""
    digest = fingerprint(lessons, validation, recipe)
    path = data.cache_folder() / "models" / f"{name}-{digest}.npz"
    weights = read_weights(path, start)
    if weights is not None:
        say(f"trained model, from the cache: {path}")
        return weights
    say(
        f"training on {len(lessons.pages):,} inferences that read"
        f" {len(lessons.seen):,} of {len(lessons.parts):,} items"
    )
    weights = train(score, start, decays, lessons, validation, recipe, say=say)
    write_weights(path, weights)
    say(f"  kept in {path}")
    return weights


def fingerprint(lessons: Lessons, validation: Judge, recipe: Recipe) -> str:
    """Of all that trained weights depend on."""
    digest = hashlib.sha256(json.dumps([_VERSION, asdict(recipe)]).encode())
    for pages in (lessons.pages, validation.pages):
        for array in (pages.bags, pages.candidates, pages.clicked, pages.features):
            digest.update(f"{array.dtype}{array.shape}".encode())
            digest.update(array.tobytes())
    digest.update(lessons.parts[lessons.seen].tobytes())
    return digest.hexdigest()[:16]


def write_weights(path: Path, weights: Weights) -> None:
    """Keeps ``weights`` at ``path``; whoever reads meanwhile sees all of them or none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, suffix=".npz", delete=False) as file:
        np.savez(file, *map(np.asarray, jax.tree.leaves(weights)))
    Path(file.name).replace(path)


def read_weights(path: Path, like: Weights) -> Weights | None:
    """The weights at ``path``; None where there are none of the shapes of ``like``."""
    leaves, tree = jax.tree.flatten(like)
    try:
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            found = [file[f"arr_{place}"] for place in range(len(leaves))]
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None
    if [one.shape for one in found] != [leaf.shape for leaf in leaves]:
        return None
    weights: Weights = jax.tree.unflatten(tree, found)
    return weights

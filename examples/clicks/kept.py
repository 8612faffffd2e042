"""Trained weights in the cache, so that a second run does not train again."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from typing import Any

from examples.weights import read_weights, write_weights

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

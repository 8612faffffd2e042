"""A recommendation model over a pooled history, of nothing but what servers compute on shares.

The form is Naumov et al.'s (arXiv 1906.00091): a number for the history's length goes through the
bottom layers to a vector as long as a row; it, the candidate's row, the *sum* of the history's rows
and the rows of three of the user's features are multiplied with each other, pair by pair; the
products and the vector go through the top layers. Between layers are ReLUs. A sum and not a mean,
since servers that hold shares of rows add them up and do not know by what to divide; the model sees
how long the history is, and learns with the same sum.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from examples.clicks.scoring import Dropout, Inputs, Layer, run_layers, start_layers
from examples.clicks.table import start_summands, start_vectors
from examples.clicks.training import Recipe, Weights
from examples.histories.journeys import BAG_LENGTH

RECIPE = Recipe(dim=16, hidden=(64,), lookup_dropout=0.5, hidden_dropout=0.1, rate=3e-3, epochs=16)
#: Outputs of the bottom's first layer.
_BOTTOM = 16
#: Features of a user beside her history, and how many values each has.
FEATURES = {"age": 7, "gender": 2, "occupation": 21}
#: Where each one's values begin among the numbers of all.
FIRST = (0, 7, 9)
#: The bottom's vector, candidate, history, and the user's features.
_VECTORS = 3 + len(FEATURES)
#: Each pair of them, in the order (1, 0), (2, 0), (2, 1), ...
_PAIRS = np.tril_indices(_VECTORS, -1)


class Device(NamedTuple):
    """All but the history's table. None of it is on a device here: both servers have it.

    Attributes:
        candidates: float32 [candidates, dim].
        features: float32 [values of all features, dim].
        bottom: from the history's length to a vector.
        top: from the products to the odds.
    """

    candidates: jax.Array
    features: jax.Array
    bottom: tuple[Layer, ...]
    top: tuple[Layer, ...]


def start(recipe: Recipe, *, parts: int, seen: int, candidates: int) -> Weights:
    """Where learning begins.

    Args:
        recipe: sizes and seed.
        parts: numbers of parts of items.
        seen: items seen in training.
        candidates: that may be on a page.
    """
    random = np.random.default_rng(recipe.seed)
    joined = recipe.dim + len(_PAIRS[0])
    return Weights(
        table=start_summands(random, parts, seen, recipe.dim),
        device=Device(
            candidates=start_vectors(random, candidates, recipe.dim),
            features=start_vectors(random, sum(FEATURES.values()), recipe.dim),
            bottom=start_layers(random, (1, _BOTTOM, recipe.dim)),
            top=start_layers(random, (joined, *recipe.hidden, 1)),
        ),
    )


def decays(weights: Weights) -> Weights:
    """Embeddings decay; layers do not."""
    nothing: Device = jax.tree.map(lambda _array: False, weights.device)
    return Weights(
        table=jax.tree.map(lambda _array: True, weights.table),
        device=nothing._replace(candidates=True, features=True),  # type: ignore[arg-type]
    )


def score(device: Device, inputs: Inputs, dropout: Dropout | None) -> jax.Array:
    """The log-odds of each candidate, float32 [inferences, page length]."""
    history = (inputs.rows * inputs.kept[..., None]).sum(axis=1)
    length = inputs.kept.sum(axis=1, keepdims=True) / BAG_LENGTH
    bottom = run_layers(device.bottom, length, None)
    own = jnp.concatenate(
        [bottom[:, None], history[:, None], device.features[inputs.features]], axis=1
    )
    shown = device.candidates[inputs.candidates]
    count, page = shown.shape[:2]
    own = jnp.broadcast_to(own[:, None], (count, page, *own.shape[1:]))
    # The bottom's vector, the candidate, the history, the features.
    vectors = jnp.concatenate([own[:, :, :1], shown[:, :, None], own[:, :, 1:]], axis=2)
    products = jnp.einsum("icad,icbd->icab", vectors, vectors)[:, :, _PAIRS[0], _PAIRS[1]]
    joined = jnp.concatenate([own[:, :, 0], products], axis=-1)
    return run_layers(device.top, joined, dropout)[..., 0]


def score_without(device: Device, inputs: Inputs, dropout: Dropout | None) -> jax.Array:
    """:func:`score` of a user of whom nothing is known but her features."""
    return score(device, inputs._replace(kept=jnp.zeros_like(inputs.kept)), dropout)

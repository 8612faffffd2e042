"""The click model: attention of each candidate over the history, and two linear layers.

As in the Taobao model of Lam et al., "GPU-based Private Information Retrieval for On-Device
Machine Learning Inference" (ASPLOS 2024), it reads click history and user features through a
two-layer fully connected network with rows of 16. The history is pooled by attention from the
candidate, as in Zhou et al., "Deep Interest Network for Click-Through Rate Prediction" (KDD
2018), here with a scaled dot product. A row that is missing gets no attention.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from examples.clicks.scoring import Dropout, Inputs, Layer, run_layers, start_layers
from examples.clicks.table import start_summands, start_vectors
from examples.clicks.training import Recipe, Weights

RECIPE = Recipe(dim=16, hidden=(64,), rate=3e-3, hidden_dropout=0.1, epochs=16)
#: Numbers that stand for one feature of the user.
FEATURE_DIM = 8
#: Where a candidate's own liking for its like starts; it is learned.
_FOCUS = 3.0


class Device(NamedTuple):
    """What is on the device.

    Attributes:
        candidates: float32 [candidates, dim]: those of a page come along with it.
        popularity: float32 [candidates], what a candidate's score starts from; comes along too.
        focus: float32 [dim, dim], makes of a candidate what it looks for in a history.
        features: float32 [feature values, FEATURE_DIM].
        layers: two.
    """

    candidates: jax.Array
    popularity: jax.Array
    focus: jax.Array
    features: jax.Array
    layers: tuple[Layer, ...]


def start(
    recipe: Recipe,
    *,
    parts: int,
    seen: int,
    candidates: int,
    feature_values: int,
    features: int,
) -> Weights:
    """Where learning begins.

    Args:
        recipe: sizes and seed.
        parts: numbers of parts of items.
        seen: items seen in training.
        candidates: that may be on a page.
        feature_values: numbers that features have.
        features: of a user.
    """
    random = np.random.default_rng(recipe.seed)
    inputs = 3 * recipe.dim + features * FEATURE_DIM
    return Weights(
        table=start_summands(random, parts, seen, recipe.dim),
        device=Device(
            candidates=start_vectors(random, candidates, recipe.dim),
            popularity=jnp.zeros(candidates, jnp.float32),
            focus=_FOCUS * jnp.eye(recipe.dim, dtype=jnp.float32),
            features=start_vectors(random, feature_values, FEATURE_DIM),
            layers=start_layers(random, (inputs, *recipe.hidden, 1)),
        ),
    )


def decays(weights: Weights) -> Weights:
    """Embeddings decay; what works on them does not."""
    nothing: Device = jax.tree.map(lambda _array: False, weights.device)
    return Weights(
        table=jax.tree.map(lambda _array: True, weights.table),
        device=nothing._replace(
            **dict.fromkeys(("candidates", "popularity", "features"), True)  # type: ignore[arg-type]
        ),
    )


def score(device: Device, inputs: Inputs, dropout: Dropout | None) -> jax.Array:
    """The log-odds of each candidate, float32 [inferences, page length]."""
    shown = device.candidates[inputs.candidates]
    pooled = attend(shown @ device.focus, inputs.rows, inputs.kept)
    user = device.features[inputs.features].reshape(len(shown), 1, -1)
    user = jnp.broadcast_to(user, (*shown.shape[:2], user.shape[-1]))
    known = jnp.concatenate([pooled, shown, pooled * shown, user], axis=-1)
    outputs = run_layers(device.layers, known, dropout)
    return outputs[..., 0] + device.popularity[inputs.candidates]


def attend(wanted: jax.Array, rows: jax.Array, kept: jax.Array) -> jax.Array:
    """The history as each candidate sees it, float32 [inferences, page length, dim].

    Args:
        wanted: float32 [inferences, page length, dim], what each candidate looks for.
        rows: float32 [inferences, bag length, dim].
        kept: bool [inferences, bag length]; where none is, the answer is zero.
    """
    likeness = jnp.einsum("icd,ibd->icb", wanted, rows)
    # Finite, so that a bag of which nothing is left has no NaN in its slope.
    likeness = jnp.where(kept[:, None], likeness, -1e9)
    attention = jax.nn.softmax(likeness, axis=-1) * kept[:, None]
    return jnp.einsum("icb,ibd->icd", attention, rows)

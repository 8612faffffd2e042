"""The click model: the mean of the rows looked up, and two hidden layers over it.

The sizes are those of the code published with Lam et al., "GPU-based Private Information
Retrieval for On-Device Machine Learning Inference" (ASPLOS 2024): rows of 32, and layers of
64-200-80-2. The two outputs are of a softmax; their difference is the score.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .scoring import Dropout, Inputs, Layer, masked_mean, run_layers, start_layers
from .table import start_summands, start_vectors
from .training import Recipe, Weights

RECIPE = Recipe(dim=32, hidden=(200, 80))
#: Rows learned by small steps are short. The layers see their mean times this.
_POOL_SCALE = 4.0


class Device(NamedTuple):
    """What is on the device.

    Attributes:
        candidates: float32 [films, dim]: those of a page come along with it.
        layers: from a history and a candidate to the two outputs.
    """

    candidates: jax.Array
    layers: tuple[Layer, ...]


def start(recipe: Recipe, *, parts: int, seen: int, films: int) -> Weights:
    """Where learning begins."""
    random = np.random.default_rng(recipe.seed)
    return Weights(
        table=start_summands(random, parts, seen, recipe.dim),
        device=Device(
            candidates=start_vectors(random, films, recipe.dim),
            layers=start_layers(random, (2 * recipe.dim, *recipe.hidden, 2)),
        ),
    )


def decays(weights: Weights) -> Weights:
    """Everything decays but the biases."""
    return jax.tree.map(lambda array: array.ndim > 1, weights)  # type: ignore[no-any-return]


def score(device: Device, inputs: Inputs, dropout: Dropout | None) -> jax.Array:
    """The log-odds of each candidate, float32 [inferences, page length]."""
    shown = device.candidates[inputs.candidates]
    history = _POOL_SCALE * masked_mean(inputs.rows, inputs.kept)
    history = jnp.broadcast_to(history[:, None], (*shown.shape[:2], history.shape[1]))
    outputs = run_layers(device.layers, jnp.concatenate([history, shown], axis=-1), dropout)
    return outputs[..., 1] - outputs[..., 0]

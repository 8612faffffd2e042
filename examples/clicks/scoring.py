"""What a click model is to those that train it and judge it: a function from rows to scores."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np


class Inputs(NamedTuple):
    """Some inferences.

    Attributes:
        rows: float32 [inferences, bag length, dim], as looked up.
        kept: bool [inferences, bag length], False where a row is missing.
        candidates: int32 [inferences, page length]; 0 where there is none.
        features: int32 [inferences, features].
    """

    rows: jax.Array
    kept: jax.Array
    candidates: jax.Array
    features: jax.Array


class Dropout(NamedTuple):
    """What to drop of the hidden numbers while learning.

    Attributes:
        key: draws them.
        share: to drop.
    """

    key: jax.Array
    share: float


#: Weights of the device, inputs, and dropout where the model learns, to scores
#: [inferences, page length]: the log of the odds that a candidate is clicked.
Score = Callable[[Any, Inputs, Dropout | None], jax.Array]


class Layer(NamedTuple):
    """A linear layer.

    Attributes:
        weight: float32 [in, out].
        bias: float32 [out].
    """

    weight: jax.Array
    bias: jax.Array


def start_layers(random: np.random.Generator, sizes: tuple[int, ...]) -> tuple[Layer, ...]:
    """Layers between ``sizes``, as He et al. (ICCV 2015) start them."""
    return tuple(
        Layer(
            weight=jnp.asarray(random.normal(0, (2 / before) ** 0.5, (before, after)), jnp.float32),
            bias=jnp.zeros(after, jnp.float32),
        )
        for before, after in pairwise(sizes)
    )


def run_layers(layers: tuple[Layer, ...], values: jax.Array, dropout: Dropout | None) -> jax.Array:
    """``values`` [..., in] through the layers, with a ReLU between each two."""
    keys = jax.random.split(dropout.key, len(layers)) if dropout else None
    for number, layer in enumerate(layers):
        values = values @ layer.weight + layer.bias
        if number < len(layers) - 1:
            values = jax.nn.relu(values)
            if dropout is not None and keys is not None and dropout.share:
                kept = jax.random.bernoulli(keys[number], 1 - dropout.share, values.shape)
                values = values * kept / (1 - dropout.share)
    return values


def masked_mean(rows: jax.Array, kept: jax.Array) -> jax.Array:
    """The mean of the rows that are kept, float32 [inferences, dim]; zero where none is."""
    weight = kept.astype(rows.dtype)
    return (rows * weight[..., None]).sum(axis=1) / jnp.maximum(weight.sum(axis=1), 1)[:, None]

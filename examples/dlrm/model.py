"""A deep learning recommendation model: Naumov et al. (arXiv 1906.00091), in its usual small form.

Thirteen counts go through the bottom layers to a vector as long as a row; it and the 26 rows looked
up are multiplied with each other, pair by pair; the products and the vector go through the top
layers to the odds of a click. Names of tensors are those of the code published with the paper.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .criteo import DENSE, FEATURES, Floats, Ints, Log

#: Values of a row.
DIM = 16
BOTTOM = (len(DENSE), 64, DIM)
#: In the order of the published code, which hushtable takes too: (1, 0), (2, 0), (2, 1), ...
_PAIRS = np.tril_indices(len(FEATURES) + 1, -1)
TOP = (DIM + len(_PAIRS[0]), 64, 1)
#: Impressions that are scored at once, always: the same sums in the same order.
BATCH = 256


class Layer(NamedTuple):
    """A linear layer, as torch has it.

    Attributes:
        weight: float32 [out, in].
        bias: float32 [out].
    """

    weight: jax.Array
    bias: jax.Array


class Dense(NamedTuple):
    """What every device carries; the same for all.

    Attributes:
        bottom: from the counts to a vector.
        top: from the products to the odds.
    """

    bottom: tuple[Layer, ...]
    top: tuple[Layer, ...]


def start(seed: int) -> Dense:
    """Where learning begins."""
    random = np.random.default_rng(seed)

    def layers(sizes: tuple[int, ...]) -> tuple[Layer, ...]:
        return tuple(
            Layer(
                jnp.asarray(random.normal(0, (2 / before) ** 0.5, (after, before)), jnp.float32),
                jnp.zeros(after, jnp.float32),
            )
            for before, after in pairwise(sizes)
        )

    return Dense(layers(BOTTOM), layers(TOP))


def logits(device: Dense, counts: jax.Array, rows: jax.Array) -> jax.Array:
    """The logarithms of the odds of a click, float32 [impressions].

    Args:
        device: what the device carries.
        counts: float32 [impressions, 13].
        rows: float32 [impressions, 26, DIM].
    """
    vector = _run(device.bottom, counts, ends_linear=False)
    together = jnp.concatenate([vector[:, None], rows], axis=1)
    products = jnp.einsum("bid,bjd->bij", together, together)[:, _PAIRS[0], _PAIRS[1]]
    return _run(device.top, jnp.concatenate([vector, products], axis=1), ends_linear=True)[:, 0]


def _run(layers: tuple[Layer, ...], values: jax.Array, *, ends_linear: bool) -> jax.Array:
    for number, layer in enumerate(layers):
        values = values @ layer.weight.T + layer.bias
        if number < len(layers) - 1 or not ends_linear:
            values = jax.nn.relu(values)
    return values


_compiled = jax.jit(lambda device, counts, rows: jax.nn.sigmoid(logits(device, counts, rows)))


def predict(device: Dense, log: Log, rows: Floats) -> Floats:
    """The chance of a click for each impression, float32 [impressions].

    Args:
        device: what the device carries.
        log: the impressions.
        rows: float32 [impressions, 26, DIM], as looked up.
    """
    parts = []
    for first in range(0, len(log), BATCH):
        counts, own = log.dense[first : first + BATCH], rows[first : first + BATCH]
        short = BATCH - len(counts)
        counts = np.pad(counts, ((0, short), (0, 0)))
        own = np.pad(own, ((0, short), (0, 0), (0, 0)))
        parts.append(np.asarray(_compiled(device, counts, own))[: BATCH - short])
    return np.concatenate(parts)


def gather(tables: list[Floats], ids: Ints) -> Floats:
    """In the clear, the rows of the impressions' ids: float32 [impressions, 26, DIM]."""
    return np.stack([table[ids[:, column]] for column, table in enumerate(tables)], axis=1)

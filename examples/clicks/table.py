"""How a large table is learned from few events: a row is the sum of what its parts tell.

An item such as "this film, with four stars" is seen too seldom to learn a good row for it alone.
Its row is therefore the sum of a vector for each of its parts (the film; four stars) and of a
vector of its own, which decays to zero unless the item is seen often enough to hold it up. Once
learned, the sums are written out: the table that is served has one row an item, and the device
knows nothing of parts.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .pages import ABSENT, Floats, Numbers


class Summands(NamedTuple):
    """What rows are made of.

    Attributes:
        parts: float32 [part values, dim].
        own: float32 [items seen in training, dim].
    """

    parts: jax.Array
    own: jax.Array


def start_summands(
    random: np.random.Generator, part_count: int, own_count: int, dim: int
) -> Summands:
    """Small random vectors for the parts, nothing yet of the items' own."""
    return Summands(
        parts=start_vectors(random, part_count, dim), own=jnp.zeros((own_count, dim), jnp.float32)
    )


def start_vectors(random: np.random.Generator, count: int, dim: int) -> jax.Array:
    """Small random vectors, float32 [count, dim]."""
    return jnp.asarray(random.normal(0, 0.1, (count, dim)), jnp.float32)


def add_up(summands: Summands, parts: jax.Array, seen: jax.Array) -> jax.Array:
    """Rows, float32 [..., dim].

    Args:
        summands: learned so far.
        parts: int32 [..., parts of an item].
        seen: int32 [...], the item's place among those seen in training, or ABSENT.
    """
    own = summands.own[jnp.maximum(seen, 0)] * (seen != ABSENT)[..., None]
    return summands.parts[parts].sum(axis=-2) + own


def write_out(summands: Summands, parts: Numbers, seen: Numbers) -> Floats:
    """The rows of many items, float32 [items, dim], without a copy for each part.

    Args:
        summands: learned.
        parts: int32 [items, parts of an item].
        seen: int32 [items seen in training], ascending: which items have a vector of their own.
    """
    vectors = np.asarray(summands.parts)
    rows = np.zeros((len(parts), vectors.shape[1]), np.float32)
    for column in parts.T:
        rows += vectors[column]
    rows[seen] += np.asarray(summands.own)
    return rows

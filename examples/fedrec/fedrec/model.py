"""A small DLRM, and how one client trains it.

As in DLRM (Naumov et al., 2019): a bottom layer for the film's public features, embedding rows for
the film and for the user's past, their dot products, and a top network. Rows have 16 values, 64
bytes. The film's rows are public and so part of the dense weights; the rows of the past are in the
private table.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from .ratings import Floats, Lesson, Questions

#: Numbers in a row.
DIM = 16
_TOP = 64
#: Of the top network's hidden numbers, left out while learning.
_DROPOUT = 0.5
#: A client's step: one, over all of its samples.
_RATE = 1.0
#: Samples scored at once.
_SCORED = 16_384

#: The dense weights by name, in the order of :func:`start`.
Weights = dict[str, jax.Array]


def start(features: Floats, seed: int) -> dict[str, Floats]:
    """The dense weights before the first round."""
    random = np.random.default_rng(seed)
    films, inputs = features.shape

    def layer(given: int, made: int) -> Floats:
        return random.normal(0, np.sqrt(2 / given), (given, made)).astype(np.float32)

    return {
        "bottom.weight": layer(inputs, DIM),
        "bottom.bias": np.zeros(DIM, np.float32),
        "films": random.normal(0, 0.1, (films, DIM)).astype(np.float32),
        "films.bias": np.zeros(films, np.float32),
        "top.weight": layer(3 * DIM + 3, _TOP),
        "top.bias": np.zeros(_TOP, np.float32),
        "out.weight": layer(_TOP, 1),
        "out.bias": np.zeros(1, np.float32),
    }


def start_rows(rows: int, seed: int) -> Floats:
    """The private table before the first round, float32 [rows, DIM]."""
    return np.random.default_rng([seed, 1]).normal(0, 0.1, (rows, DIM)).astype(np.float32)


def score(
    weights: Weights,
    features: jax.Array,
    past: jax.Array,
    films: jax.Array,
    dropout: jax.Array | None = None,
) -> jax.Array:
    """The log-odds of a click, float32 [samples].

    Args:
        weights: the dense weights.
        features: float32 [films, features].
        past: float32 [samples, DIM], the mean of the rows of each sample's past.
        films: int32 [samples].
        dropout: a key; nothing is left out without one.
    """
    public = jax.nn.relu(features[films] @ weights["bottom.weight"] + weights["bottom.bias"])
    film = weights["films"][films]
    pairs = ((public, film), (public, past), (film, past))
    dots = jnp.stack([(one * other).sum(-1) for one, other in pairs], -1)
    given = jnp.concatenate([public, film, past, dots], -1)
    hidden = jax.nn.relu(given @ weights["top.weight"] + weights["top.bias"])
    if dropout is not None:
        kept = jax.random.bernoulli(dropout, 1 - _DROPOUT, hidden.shape)
        hidden = hidden * kept / (1 - _DROPOUT)
    out = (hidden @ weights["out.weight"])[..., 0] + weights["out.bias"][0]
    return out + weights["films.bias"][films]


class Task(NamedTuple):
    """A client's round as the compiled step takes it: a lesson with its rows.

    Attributes:
        rows: float32 [SLOTS, DIM].
        seen: float32 [SAMPLES, SLOTS], 1 where the row was found and is in the sample's past.
        films, clicks, real: of the lesson.
    """

    rows: jax.Array
    seen: jax.Array
    films: jax.Array
    clicks: jax.Array
    real: jax.Array


def task(lesson: Lesson, rows: Floats, found: npt.NDArray[np.bool_]) -> Task:
    """A lesson with the rows that the table gave; those not found are left out of the means."""
    return Task(*map(jnp.asarray, _arrays(lesson, rows, found)))


def tasks(lessons: Sequence[Lesson], rows: Floats, found: npt.NDArray[np.bool_]) -> Task:
    """The same of a round's clients; all arrays have them in front."""
    each = map(_arrays, lessons, rows, found)
    return Task(*(jnp.asarray(np.stack(arrays)) for arrays in zip(*each, strict=True)))


def _arrays(
    lesson: Lesson, rows: Floats, found: npt.NDArray[np.bool_]
) -> tuple[npt.NDArray[Any], ...]:
    return rows, lesson.seen * found[None, :], lesson.films, lesson.clicks, lesson.real


def _loss(
    weights: Weights, rows: jax.Array, features: jax.Array, task: Task, key: jax.Array
) -> jax.Array:
    """The cross-entropy of a click, mean over the client's samples."""
    past = (task.seen @ rows) / jnp.maximum(task.seen.sum(-1, keepdims=True), 1)
    scores = score(weights, features, past, task.films, key)
    losses = jnp.logaddexp(0, scores) - scores * task.clicks
    return (losses * task.real).sum() / jnp.maximum(task.real.sum(), 1)


class Update(NamedTuple):
    """What a client has learned: the weights before, minus those after.

    Attributes:
        dense: of the dense weights.
        rows: of the private rows, float32 [SLOTS, DIM].
        loss: before.
    """

    dense: Weights
    rows: jax.Array
    loss: jax.Array


def _train(weights: Weights, features: jax.Array, task: Task, key: jax.Array) -> Update:
    loss, (dense, rows) = jax.value_and_grad(_loss, argnums=(0, 1))(
        weights, task.rows, features, task, key
    )
    return Update({name: _RATE * slope for name, slope in dense.items()}, _RATE * rows, loss)


@jax.jit
def train(weights: Weights, features: jax.Array, task: Task, key: jax.Array) -> Update:
    """One client's local training: one step of gradient descent over all of its samples."""
    return _train(weights, features, task, key)


@jax.jit
def train_all(weights: Weights, features: jax.Array, tasks: Task, keys: jax.Array) -> Update:
    """The same for a round's clients at once; the arrays of ``tasks`` have them in front.

    Returns:
        as from each alone, except that ``dense`` is their mean weighted by samples already.
    """
    samples = tasks.real.sum(1)
    share = samples / samples.sum()

    # Weights are the same for all clients before their one step, so the weighted mean of their
    # updates is the gradient of the weighted mean: no client needs dense weights of its own.
    def mean(weights: Weights, rows: jax.Array) -> tuple[jax.Array, jax.Array]:
        losses = jax.vmap(partial(_loss, weights), in_axes=(0, None, 0, 0))(
            rows, features, tasks, keys
        )
        return (losses * share).sum(), losses

    (_, losses), (dense, rows) = jax.value_and_grad(mean, argnums=(0, 1), has_aux=True)(
        weights, tasks.rows
    )
    rows = rows / jnp.maximum(share, 1e-9)[:, None, None]
    return Update({name: _RATE * slope for name, slope in dense.items()}, _RATE * rows, losses)


def keys(seed: int, server_round: int, count: int) -> jax.Array:
    """A key for each client of a round."""
    # JAX's default generator: XLA's own draws other numbers for many at once than one by one.
    return jax.random.split(jax.random.fold_in(jax.random.key(seed), server_round), count)


_score = jax.jit(score)


def judge(
    weights: dict[str, Floats], features: Floats, table: Floats | None, questions: Questions
) -> float:
    """The AUC over all samples of ``questions``; ``table`` is None for a model without a past."""
    known = jax.tree.map(jnp.asarray, weights)
    public = jnp.asarray(features)
    padded = None if table is None else np.vstack([table, np.zeros((1, DIM), np.float32)])
    scores = []
    for first in range(0, len(questions.films), _SCORED):
        films = questions.films[first : first + _SCORED]
        past = np.zeros((len(films), DIM), np.float32)
        if padded is not None:
            ids = questions.past[first : first + _SCORED]
            count = (ids < len(padded) - 1).sum(1, keepdims=True)
            past = (padded[ids].sum(1) / np.maximum(count, 1)).astype(np.float32)
        scores.append(np.asarray(_score(known, public, jnp.asarray(past), jnp.asarray(films))))
    return auc(np.concatenate(scores), questions.clicks)


def auc(scores: Floats, clicks: npt.NDArray[np.bool_]) -> float:
    """The chance that a click scores above a non-click, ties counted half."""
    _, place, count = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(count) - (count - 1) / 2)[place]
    positive = int(clicks.sum())
    negative = len(clicks) - positive
    if not positive or not negative:
        raise ValueError("AUC needs clicks and non-clicks")
    return float((ranks[clicks].sum() - positive * (positive + 1) / 2) / (positive * negative))

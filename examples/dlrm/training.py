"""Learning the model: Adam over what each table's rows in the training part are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from . import model
from .criteo import Floats, Log


@dataclass(frozen=True)
class Recipe:
    """How the model is learned.

    Attributes:
        epochs: passes over the training part.
        batch: impressions in a step.
        rate: Adam's step.
        seed: of everything drawn.
    """

    epochs: int = 2
    batch: int = 128
    rate: float = 1e-3
    seed: int = 1


#: Called with a line for a person to read.
Say = Callable[[str], None]


class Trained(NamedTuple):
    """What training leaves.

    Attributes:
        dense: what the device carries.
        tables: float32 [rows, DIM] of each categorical column.
    """

    dense: model.Dense
    tables: list[Floats]


class _Weights(NamedTuple):
    dense: model.Dense
    # The rows that training reads, all tables' one after the other: learning takes no more memory
    # for large tables than for small ones.
    seen: jax.Array


def train(log: Log, rows: tuple[int, ...], recipe: Recipe, *, say: Say) -> Trained:
    """The model after the last pass. Rows that training never reads stay as they began."""
    random = np.random.default_rng(recipe.seed)
    tables = [
        random.uniform(-1, 1, (count, model.DIM)).astype(np.float32) * np.float32(0.05)
        for count in rows
    ]
    distinct, places = [], np.empty(log.ids.shape, np.int32)
    first = 0
    for column in range(len(rows)):
        seen, own = np.unique(log.ids[:, column], return_inverse=True)
        places[:, column] = first + own
        distinct.append(seen)
        first += len(seen)
    weights = _Weights(
        model.start(recipe.seed),
        jnp.asarray(
            np.concatenate([table[seen] for table, seen in zip(tables, distinct, strict=True)])
        ),
    )
    optimiser = optax.adam(recipe.rate)
    state = optimiser.init(weights)
    step = _compile(optimiser)
    batch = min(recipe.batch, len(log))
    for epoch in range(recipe.epochs):
        order = random.permutation(len(log))
        losses = []
        for at in range(0, len(log) - batch + 1, batch):
            chosen = order[at : at + batch]
            weights, state, loss = step(
                weights, state, log.dense[chosen], places[chosen], log.clicked[chosen]
            )
            losses.append(loss)
        say(f"  pass {epoch + 1}: loss {float(np.mean(losses)):.4f}")
    learned, first = np.asarray(weights.seen), 0
    for table, seen in zip(tables, distinct, strict=True):
        table[seen] = learned[first : first + len(seen)]
        first += len(seen)
    return Trained(jax.tree.map(np.asarray, weights.dense), tables)


def _compile(optimiser: optax.GradientTransformation) -> Any:
    def loss_of(weights: _Weights, counts: Any, places: Any, clicked: Any) -> jax.Array:
        odds = model.logits(weights.dense, counts, weights.seen[places])
        loss: jax.Array = optax.sigmoid_binary_cross_entropy(odds, clicked).mean()
        return loss

    def step(weights: _Weights, state: Any, counts: Any, places: Any, clicked: Any) -> Any:
        loss, slope = jax.value_and_grad(loss_of)(weights, counts, places, clicked)
        update, state = optimiser.update(slope, state, weights)
        return optax.apply_updates(weights, update), state, loss

    return jax.jit(step, donate_argnums=(0, 1))

"""Learning a click model and its table, in minutes on one core."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from .judging import Judge
from .pages import ABSENT, Bools, Ints, Numbers, Pages
from .scoring import Dropout, Inputs, Score
from .table import Summands, add_up

#: Called with a line for a person to read.
Say = Callable[[str], None]


class Weights(NamedTuple):
    """All that is learned.

    Attributes:
        table: what the private table's rows are made of.
        device: the rest of the model, as its ``score`` takes it.
    """

    table: Summands
    device: Any


@dataclass(frozen=True)
class Recipe:
    """How a model is learned.

    Attributes:
        dim: numbers in a row.
        hidden: sizes of the hidden layers.
        lookup_dropout: of each inference while learning, a share of the rows is dropped that is
            drawn anew between nothing and this.
        hidden_dropout: share of the hidden numbers dropped while learning.
        rate: Adam's step.
        decay: of what decays, as a multiple of the step (AdamW).
        averaging: weight of the past in the running mean of the weights, which is what is kept.
        batch: inferences in a step.
        epochs: passes over the training inferences at most.
        patience: passes without a better AUC on the validation users after which to stop.
        seed: of everything drawn.
    """

    dim: int
    hidden: tuple[int, ...]
    lookup_dropout: float = 0.9
    hidden_dropout: float = 0.2
    rate: float = 2e-3
    decay: float = 1.0
    averaging: float = 0.998
    batch: int = 256
    epochs: int = 24
    patience: int = 4
    seed: int = 1


class Batch(NamedTuple):
    """Some training inferences, as arrays that the compiled step takes.

    Attributes:
        parts: int32 [inferences, bag length, parts], of each item read.
        seen: int32 [inferences, bag length], each item's place in :class:`Summands`.
        kept: bool [inferences, bag length], False where there is nothing or it was dropped.
        candidates, clicked, features: of :class:`Pages`.
    """

    parts: Numbers
    seen: Numbers
    kept: Bools
    candidates: Numbers
    clicked: Bools
    features: Numbers


@dataclass(frozen=True)
class Lessons:
    """Training inferences with what is known of the items that they read.

    Attributes:
        pages: the inferences.
        parts: int32 [items, parts of an item].
        seen: int32 [items seen in training], ascending.
        bags_seen: int32 [inferences, bag length], places in ``seen``, or ABSENT.
    """

    pages: Pages
    parts: Numbers
    seen: Numbers
    bags_seen: Numbers

    @classmethod
    def of(cls, pages: Pages, parts: Numbers) -> Lessons:
        """Prepares ``pages``; ``parts`` is of all items, int32 [items, parts of an item]."""
        seen = np.unique(pages.items).astype(np.int32)
        places = np.searchsorted(seen, pages.bags)
        bags_seen = np.where(pages.present, places, ABSENT).astype(np.int32)
        return cls(pages, parts, seen, bags_seen)

    def batch(self, chosen: Ints, lookup_dropout: float, random: np.random.Generator) -> Batch:
        """The inferences with these numbers, a share of the rows of each dropped at random."""
        pages = self.pages
        bags = pages.bags[chosen]
        share = lookup_dropout * random.random((len(bags), 1), np.float32)
        dropped = random.random(bags.shape, np.float32) < share
        return Batch(
            parts=self.parts[np.maximum(bags, 0)],
            seen=self.bags_seen[chosen],
            kept=(bags != ABSENT) & ~dropped,
            candidates=pages.candidates[chosen],
            clicked=pages.clicked[chosen],
            features=pages.features[chosen],
        )


#: Of weights, a tree like them: for each array, whether it decays.
Decays = Callable[[Weights], Weights]


class _State(NamedTuple):
    weights: Weights
    mean: Weights
    optimiser: Any


def train(
    score: Score,
    start: Weights,
    decays: Decays,
    lessons: Lessons,
    validation: Judge,
    recipe: Recipe,
    *,
    say: Say,
) -> Weights:
    """The weights after the pass with the best AUC on the validation users, nothing dropped.

    Args:
        score: the model.
        start: where to begin.
        decays: of ``start``, for each of its arrays whether it decays.
        lessons: what to learn from.
        validation: what says when to stop.
        recipe: how.
        say: called after each pass.
    """
    best, best_auc, worse = start, 0.0, 0
    began = time.perf_counter()
    for epoch, (weights, loss) in enumerate(_learn(score, start, decays, lessons, recipe), 1):
        auc = validation.auc(score, weights, lessons)
        say(
            f"  pass {epoch}: loss {loss:.4f} in training, AUC {auc:.4f} in validation,"
            f" {time.perf_counter() - began:.0f} s"
        )
        worse = 0 if auc > best_auc else worse + 1
        if auc > best_auc:
            best, best_auc = weights, auc
        if worse == recipe.patience:
            break
    return best


def _learn(
    score: Score, start: Weights, decays: Decays, lessons: Lessons, recipe: Recipe
) -> Iterator[tuple[Weights, float]]:
    """The running mean of the weights, and the mean loss, after each pass."""
    optimiser, step = _compile(score, decays, recipe)
    # The step gives its state's memory back, so neither half may be `start` itself.
    state = _State(
        jax.tree.map(jnp.array, start), jax.tree.map(jnp.array, start), optimiser.init(start)
    )
    random = np.random.default_rng(recipe.seed)
    # The generator that XLA has of its own: far quicker to compile and run than JAX's default.
    key = jax.random.key(recipe.seed, impl="rbg")
    count = len(lessons.pages)
    batch = min(recipe.batch, count)
    for _epoch in range(recipe.epochs):
        order = random.permutation(count)
        losses = []
        # Steps have one size, so that they compile once: a pass leaves out a last few.
        for first in range(0, count - batch + 1, batch):
            key, own = jax.random.split(key)
            chosen = order[first : first + batch]
            taken = lessons.batch(chosen, recipe.lookup_dropout, random)
            state, loss = step(state, own, taken)
            losses.append(loss)
        yield jax.tree.map(np.asarray, state.mean), float(np.mean(losses))


@cache
def _compile(score: Score, decays: Decays, recipe: Recipe) -> tuple[Any, Any]:
    """The optimiser, and its step, which is compiled once for all data of the same shapes."""
    optimiser = optax.adamw(recipe.rate, weight_decay=recipe.decay, mask=decays)
    return optimiser, jax.jit(partial(_step, score, optimiser, recipe), donate_argnums=0)


def _step(
    score: Score,
    optimiser: optax.GradientTransformation,
    recipe: Recipe,
    state: _State,
    key: jax.Array,
    batch: Batch,
) -> tuple[_State, jax.Array]:
    loss, slope = jax.value_and_grad(partial(_loss, score, recipe))(state.weights, key, batch)
    update, inner = optimiser.update(slope, state.optimiser, state.weights)
    weights: Weights = optax.apply_updates(state.weights, update)
    past = recipe.averaging
    mean: Weights = jax.tree.map(
        lambda old, new: past * old + (1 - past) * new, state.mean, weights
    )
    return _State(weights, mean, inner), loss


def _loss(
    score: Score, recipe: Recipe, weights: Weights, key: jax.Array, batch: Batch
) -> jax.Array:
    """The cross-entropy of a candidate being clicked, mean over the batch's candidates."""
    inputs = Inputs(
        rows=add_up(weights.table, jnp.asarray(batch.parts), jnp.asarray(batch.seen)),
        kept=jnp.asarray(batch.kept),
        candidates=jnp.maximum(batch.candidates, 0),
        features=jnp.asarray(batch.features),
    )
    scores = score(weights.device, inputs, Dropout(key, recipe.hidden_dropout))
    shown = batch.candidates != ABSENT
    losses = optax.sigmoid_binary_cross_entropy(scores, batch.clicked)
    loss: jax.Array = (losses * shown).sum() / shown.sum()
    return loss

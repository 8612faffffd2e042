"""Training, and judging by perplexity."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from itertools import count

import jax
import numpy as np
import numpy.typing as npt
import optax

from .corpus import UNKNOWN_ID, WINDOW, Corpus, Ints, windows
from .model import Classes, Device, Recipe, Weights, read, start
from .output import Targets, group_sizes, log_likelihood, split_targets

Floats = npt.NDArray[np.float32]
#: Called with a line for a person to read.
Say = Callable[[str], None]

#: Windows that are judged at once: more would not fit a core's cache and take longer.
JUDGED_BATCH = 64
#: Room for targets beyond the head, over what a batch has on average: a few batches in a thousand
#: have more, and do not learn from the rest.
_ROOM = 1.15


@dataclass(frozen=True)
class Judge:
    """Windows to compute a perplexity on, prepared once.

    Attributes:
        ids: int64 [windows, WINDOW], the rows that the windows read.
        targets: of each batch of windows.
    """

    ids: Ints
    targets: tuple[Targets, ...]

    @classmethod
    def of(cls, cut: Ints, classes: Classes) -> Judge:
        """Prepares the windows that :func:`.corpus.windows` cut."""
        batches = []
        for batch in np.split(cut[:, 1:], range(JUDGED_BATCH, len(cut), JUDGED_BATCH)):
            padded = np.zeros((WINDOW, JUDGED_BATCH), np.int64)
            padded[:, : len(batch)] = batch.T
            batches.append((classes.of_rows(padded.ravel()), len(batch)))
        sizes = [group_sizes(targets, classes.edges) for targets, _windows in batches]
        rooms = [max(1, *column) for column in zip(*sizes, strict=True)]
        return cls(
            ids=cut[:, :-1],
            targets=tuple(
                _without_padding(split_targets(targets, classes.edges, rooms), window_count)
                for targets, window_count in batches
            ),
        )

    def perplexity(self, device: Device, rows: Floats) -> float:
        """The perplexity over what follows each token.

        Args:
            device: the model.
            rows: float32 [windows, WINDOW, dim], what was fetched for :attr:`ids`.
        """
        total = 0.0
        for number, targets in enumerate(self.targets):
            batch = rows[number * JUDGED_BATCH : (number + 1) * JUDGED_BATCH]
            short = JUDGED_BATCH - len(batch)
            if short:
                batch = np.pad(batch, ((0, short), (0, 0), (0, 0)))
            total += float(_likelihood(device, batch, targets))
        return float(np.exp(-total / self.ids.size))


def _without_padding(targets: Targets, window_count: int) -> Targets:
    """``targets`` of a batch of which only the first windows are real. Padding is of class 0,
    which is in the head, so no group has any of it."""
    weights = np.tile(np.arange(JUDGED_BATCH) < window_count, WINDOW).astype(np.float32)
    return targets._replace(weights=weights)


@jax.jit
def _likelihood(device: Device, rows: jax.Array, targets: Targets) -> jax.Array:
    return log_likelihood(device.output, read(device, rows), targets)


@dataclass(frozen=True)
class Epoch:
    """The state after a pass over the training documents.

    Attributes:
        weights: what was learned so far.
        training: the perplexity on the training windows while learning, with all dropout.
        validation: the perplexity on the validation windows, nothing dropped.
        seconds: since training began.
    """

    weights: Weights
    training: float
    validation: float
    seconds: float


def train(corpus: Corpus, recipe: Recipe, *, say: Say) -> Weights:
    """The weights of the epoch with the least perplexity on the validation documents."""
    best: Epoch | None = None
    for number, epoch in enumerate(learn(corpus, recipe), start=1):
        say(
            f"  epoch {number} of {recipe.epochs}: perplexity {epoch.training:.1f} in training,"
            f" {epoch.validation:.1f} in validation, {epoch.seconds:.0f} s"
        )
        if best is None or epoch.validation < best.validation:
            best = epoch
    assert best is not None, "a recipe has at least one epoch"
    return best.weights


def learn(corpus: Corpus, recipe: Recipe) -> Iterator[Epoch]:
    """The state after each epoch."""
    classes = Classes.of(corpus, recipe)
    random = np.random.default_rng(recipe.seed)
    # The counter-based default generator is several times slower on a CPU.
    keys = (
        jax.random.fold_in(jax.random.key(recipe.seed, impl="rbg"), number) for number in count()
    )
    batch_tokens = recipe.batch * WINDOW
    everything = classes.of_rows(np.concatenate(corpus.training))
    rooms = [
        int(_ROOM * batch_tokens * size / len(everything)) + 8
        for size in group_sizes(everything, classes.edges)
    ]
    replaced = recipe.lookup_dropout + (1 - recipe.lookup_dropout) * (
        recipe.rare_dropout / np.maximum(corpus.counts, 1)
    )
    judge = Judge.of(windows(corpus.validation), classes)
    # A pass that begins up to a window later may have that many windows less.
    step_count = len(windows(corpus.training, skip=WINDOW - 1)) // recipe.batch
    optimiser = make_optimiser(recipe, recipe.epochs * step_count)
    weights = start(corpus, recipe)
    state = optimiser.init(weights)
    began = time.perf_counter()
    for _epoch in range(recipe.epochs):
        cut = windows(corpus.training, skip=int(random.integers(WINDOW)))
        order = random.permutation(len(cut))[: step_count * recipe.batch]
        losses = []
        for chosen in order.reshape(step_count, recipe.batch):
            ids, following = cut[chosen, :-1], cut[chosen, 1:]
            ids = np.where(random.random(ids.shape) < replaced[ids], UNKNOWN_ID, ids)
            targets = split_targets(classes.of_rows(following.T.ravel()), classes.edges, rooms)
            weights, state, loss = _step(
                recipe, optimiser, weights, state, ids.astype(np.int32), targets, next(keys)
            )
            losses.append(loss)
        yield Epoch(
            weights=weights,
            training=float(np.exp(np.mean(jax.device_get(losses)))),
            validation=judge.perplexity(weights.device, np.asarray(weights.table)[judge.ids]),
            seconds=time.perf_counter() - began,
        )


@cache  # one object for equal arguments, so that a step is compiled once
def make_optimiser(recipe: Recipe, step_count: int) -> optax.GradientTransformation:
    """AdamW with a rate that rises for a tenth of the steps and falls to nothing."""
    rate = optax.cosine_onecycle_schedule(max(step_count, 2), recipe.rate, pct_start=0.1)
    return optax.chain(
        optax.clip_by_global_norm(1.0), optax.adamw(rate, b2=0.99, weight_decay=recipe.decay)
    )


def loss(
    weights: Weights, recipe: Recipe, ids: jax.Array, targets: Targets, key: jax.Array
) -> jax.Array:
    """The mean loss in nats of a batch of windows [windows, WINDOW], under dropout."""
    inward, outward = jax.random.split(key)
    window_count, tokens = ids.shape
    # The same values of a row for a whole window, as Gal and Ghahramani (2016) have it.
    left = jax.random.bernoulli(inward, 1 - recipe.input_dropout, (window_count, 1, recipe.dim))
    shown = jax.random.bernoulli(
        outward, 1 - recipe.hidden_dropout, (tokens, window_count, recipe.hidden)
    )
    rows = weights.table[ids] * left / (1 - recipe.input_dropout)
    vectors = read(weights.device, rows, shown / (1 - recipe.hidden_dropout))
    return -log_likelihood(weights.device.output, vectors, targets) / ids.size


@partial(jax.jit, static_argnums=(0, 1))
def _step(
    recipe: Recipe,
    optimiser: optax.GradientTransformation,
    weights: Weights,
    state: optax.OptState,
    ids: jax.Array,
    targets: Targets,
    key: jax.Array,
) -> tuple[Weights, optax.OptState, jax.Array]:
    value, gradient = jax.value_and_grad(loss)(weights, recipe, ids, targets, key)
    update, state = optimiser.update(gradient, state, weights)
    stepped: Weights = optax.apply_updates(weights, update)
    return stepped, state, value

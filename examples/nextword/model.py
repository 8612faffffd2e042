"""The language model: rows of the private table, an LSTM, and an output layer.

The table is the embedding of the words read. It is on the servers; all else ships with the app
and is the same for everyone. The words that can be predicted have vectors of their own in the
output layer: were they shared with the table, every device would carry its most-read part.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .corpus import UNKNOWN_ID, Corpus, Ints
from .output import Output, make_edges, make_output


@dataclass(frozen=True)
class Recipe:
    """All that decides the trained model beside the text it learns from.

    Attributes:
        dim: values of a row of the table.
        hidden: of the LSTM's state.
        projected: of the vectors that the output layer is applied to.
        output_count: the most frequent words, which can be predicted; all others are one class.
        cuts: where the output layer's head and its groups end; see :mod:`.output`.
        epochs: passes over the training documents.
        batch: windows a step.
        rate: the highest learning rate.
        decay: weight decay, times the learning rate.
        input_dropout: share of a row's values left out, the same for a whole window.
        hidden_dropout: share of the LSTM's values left out before the output.
        lookup_dropout: share of rows replaced by the unknown word's, as a lookup that drops does.
        rare_dropout: share of single occurrences so replaced, for the words still to be met; a
            word that occurs n times is replaced at an nth of it.
        seed: of everything random.
    """

    dim: int = 64
    hidden: int = 192
    projected: int = 64
    output_count: int = 10_000
    cuts: tuple[int, ...] = (1500, 3500, 6500)
    epochs: int = 8
    batch: int = 64
    rate: float = 4e-3
    decay: float = 1e-2
    input_dropout: float = 0.2
    hidden_dropout: float = 0.4
    lookup_dropout: float = 0.03
    rare_dropout: float = 0.25
    seed: int = 1


class Device(NamedTuple):
    """The part of the model that every device carries.

    Attributes:
        input: float32 [dim, 4 hidden]: a row's part of the gates (input, forget, new, output).
        recurrent: float32 [hidden, 4 hidden]: the state's part.
        bias: float32 [4 hidden].
        projection: float32 [hidden, projected].
        output: over the classes.
    """

    input: jax.Array
    recurrent: jax.Array
    bias: jax.Array
    projection: jax.Array
    output: Output


class Weights(NamedTuple):
    """What is learned.

    Attributes:
        table: float32 [rows, dim], which goes to the servers.
        device: the rest.
    """

    table: jax.Array
    device: Device


@dataclass(frozen=True)
class Classes:
    """What the model can predict: the words of the first rows, and class 0 for every other.

    Attributes:
        count: classes there are.
        edges: of :func:`.output.make_edges`.
    """

    count: int
    edges: tuple[int, ...]

    @classmethod
    def of(cls, corpus: Corpus, recipe: Recipe) -> Classes:
        """The classes of a corpus."""
        count = min(recipe.output_count + 1, len(corpus.words))
        return cls(count, make_edges(recipe.cuts, count))

    def of_rows(self, rows: Ints) -> Ints:
        """The class of each row number: itself, or :data:`UNKNOWN_ID` past the frequent ones."""
        return np.where(rows < self.count, rows, UNKNOWN_ID)


def start(corpus: Corpus, recipe: Recipe) -> Weights:
    """Weights before training."""
    classes = Classes.of(corpus, recipe)
    counts = np.bincount(classes.of_rows(np.concatenate(corpus.training)), minlength=classes.count)
    random = np.random.default_rng(recipe.seed)
    dim, hidden = recipe.dim, recipe.hidden

    def draw(scale: float, *shape: int) -> jax.Array:
        return jnp.asarray(random.normal(0, scale, shape), jnp.float32)

    bias = np.zeros(4 * hidden, np.float32)
    # A forget gate that starts open lets gradients through from the first step.
    bias[hidden : 2 * hidden] = 1
    return Weights(
        table=draw(0.1, len(corpus.words), dim),
        device=Device(
            input=draw(dim**-0.5, dim, 4 * hidden),
            recurrent=draw(hidden**-0.5, hidden, 4 * hidden),
            bias=jnp.asarray(bias),
            projection=draw(hidden**-0.5, hidden, recipe.projected),
            output=make_output(counts, classes.edges, recipe.projected, random),
        ),
    )


def read(device: Device, rows: jax.Array, keep: jax.Array | None = None) -> jax.Array:
    """What the LSTM makes of each window, from a state of zeros.

    Args:
        device: the weights.
        rows: float32 [windows, tokens, dim].
        keep: float32 [tokens, windows, hidden] that states are multiplied by on their way out.

    Returns:
        float32 [tokens x windows, projected]: token by token, each for all windows.
    """
    hidden = device.recurrent.shape[0]
    read_gates = jnp.swapaxes(rows @ device.input + device.bias, 0, 1)

    def step(
        state: tuple[jax.Array, jax.Array], gates: jax.Array
    ) -> tuple[tuple[jax.Array, jax.Array], jax.Array]:
        shown, cell = state
        into, forget, new, out = jnp.split(gates + shown @ device.recurrent, 4, axis=-1)
        cell = jax.nn.sigmoid(forget) * cell + jax.nn.sigmoid(into) * jnp.tanh(new)
        shown = jax.nn.sigmoid(out) * jnp.tanh(cell)
        return (shown, cell), shown

    zero = jnp.zeros((rows.shape[0], hidden))
    _, shown = jax.lax.scan(step, (zero, zero), read_gates)
    if keep is not None:
        shown = shown * keep
    return (shown @ device.projection).reshape(-1, device.projection.shape[1])

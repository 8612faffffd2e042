"""The output layer: a softmax over the frequent words that spends little on the less frequent.

The adaptive softmax of Grave et al., "Efficient softmax approximation for GPUs" (ICML 2017):
classes are in order of frequency, a head holds the first of them and one entry for each group of
the others, and a group's own softmax is computed only where the word to predict is in it. Here
that is a quarter of the products of a full softmax. Its distribution sums to one all the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


class Output(NamedTuple):
    """The layer's weights.

    Attributes:
        head: float32 [head classes + groups, dim].
        head_bias: float32 [head classes + groups].
        groups: float32 [classes, dim] of each group.
        group_biases: float32 [classes] of each group.
    """

    head: jax.Array
    head_bias: jax.Array
    groups: tuple[jax.Array, ...]
    group_biases: tuple[jax.Array, ...]


class GroupTargets(NamedTuple):
    """Which of a batch's targets are in one group, padded to a fixed number.

    Attributes:
        places: int32 [room], places in the batch; 0 where padded.
        classes: int32 [room], counted within the group; 0 where padded.
        weights: float32 [room], 0 where padded.
    """

    places: npt.NDArray[np.int32]
    classes: npt.NDArray[np.int32]
    weights: npt.NDArray[np.float32]


class Targets(NamedTuple):
    """What a batch is to predict.

    Attributes:
        heads: int32 [targets], the head's entry of each.
        weights: float32 [targets], 0 where the batch is padded.
        groups: those beyond the head.
    """

    heads: npt.NDArray[np.int32]
    weights: npt.NDArray[np.float32]
    groups: tuple[GroupTargets, ...]


def make_edges(cuts: Sequence[int], class_count: int) -> tuple[int, ...]:
    """Where the head and each group end, from the wanted ``cuts``."""
    return (*(cut for cut in cuts if cut < class_count), class_count)


def make_output(
    counts: Ints, edges: Sequence[int], dim: int, random: np.random.Generator
) -> Output:
    """A layer that starts at the classes' shares of training.

    Args:
        counts: int64 [classes], how often each occurs in training.
        edges: of :func:`make_edges`.
        dim: of the vectors it is applied to.
        random: draws the weights.
    """
    shares = (counts + 1) / (counts + 1).sum()
    group_shares = [shares[start:end] for start, end in pairwise(edges)]
    head_shares = [*shares[: edges[0]], *(share.sum() for share in group_shares)]
    sizes = [len(head_shares), *map(len, group_shares)]
    head, *groups = (jnp.asarray(random.normal(0, 0.1, (size, dim)), jnp.float32) for size in sizes)
    return Output(
        head=head,
        head_bias=jnp.log(jnp.array(head_shares, jnp.float32)),
        groups=tuple(groups),
        group_biases=tuple(
            jnp.log(jnp.array(share / share.sum(), jnp.float32)) for share in group_shares
        ),
    )


def group_sizes(classes: Ints, edges: Sequence[int]) -> list[int]:
    """How many of ``classes`` are in each group."""
    return [int(((classes >= start) & (classes < end)).sum()) for start, end in pairwise(edges)]


def split_targets(classes: Ints, edges: Sequence[int], rooms: Sequence[int]) -> Targets:
    """Sorts a batch's target classes [targets] into head and groups.

    Args:
        classes: int64 [targets].
        edges: of :func:`make_edges`.
        rooms: for how many of its targets each group has room; more are not counted.
    """
    group = np.searchsorted(edges, classes, side="right")
    groups = []
    for number, (start, room) in enumerate(zip(edges[:-1], rooms, strict=True), start=1):
        found = np.flatnonzero(group == number)[:room]
        places, inner = np.zeros((2, room), np.int32)
        weights = np.zeros(room, np.float32)
        places[: len(found)] = found
        inner[: len(found)] = classes[found] - start
        weights[: len(found)] = 1
        groups.append(GroupTargets(places, inner, weights))
    return Targets(
        heads=np.where(group == 0, classes, edges[0] + group - 1).astype(np.int32),
        weights=np.ones(len(classes), np.float32),
        groups=tuple(groups),
    )


def log_likelihood(output: Output, vectors: jax.Array, targets: Targets) -> jax.Array:
    """The sum over ``targets`` of their log-probabilities, in nats.

    Args:
        output: the layer.
        vectors: float32 [targets, dim], what the model computed at each place.
        targets: what follows there.
    """
    total = _picked(vectors @ output.head.T + output.head_bias, targets.heads) @ targets.weights
    for weight, bias, group in zip(output.groups, output.group_biases, targets.groups, strict=True):
        total += _picked(vectors[group.places] @ weight.T + bias, group.classes) @ group.weights
    return total


def log_probabilities(output: Output, vectors: jax.Array) -> jax.Array:
    """The whole distribution: float32 [places, classes], of ``vectors`` [places, dim]."""
    head = jax.nn.log_softmax(vectors @ output.head.T + output.head_bias)
    head_count = head.shape[1] - len(output.groups)
    parts = [head[:, :head_count]]
    for number, (weight, bias) in enumerate(zip(output.groups, output.group_biases, strict=True)):
        inner = jax.nn.log_softmax(vectors @ weight.T + bias)
        parts.append(head[:, head_count + number, None] + inner)
    return jnp.concatenate(parts, axis=1)


def _picked(scores: jax.Array, classes: npt.NDArray[np.int32]) -> jax.Array:
    chosen = jnp.take_along_axis(scores, jnp.asarray(classes)[:, None], axis=1)[:, 0]
    return chosen - jax.nn.logsumexp(scores, axis=1)

"""A matrix factorisation whose input is a list of films, learned in seconds with numpy.

Hu, Koren and Volinsky, "Collaborative Filtering for Implicit Feedback Datasets" (ICDM 2008):
alternating least squares in which a watched film has weight 1 + :data:`WATCHED_WEIGHT` and every
other film weight 1. A user who was not there during training is folded in: her vector is the
solution of one small linear system over the rows of the films she watched. Those rows are the
only thing the model reads that tells anything about her, and they are what is looked up in
private.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

#: Floats in a row; 64 float32 make a row of 256 bytes.
DIM = 64
WATCHED_WEIGHT = 4.0
RIDGE = 60.0

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Factors:
    """What training leaves.

    Attributes:
        items: float32 [films, DIM], the table that the servers hold.
        users: float32 [training users, DIM]; no one needs them after training.
    """

    items: Floats
    users: Floats


@dataclass(frozen=True)
class DeviceModel:
    """The part of the model that every device carries; the same for everyone, so it tells nothing.

    Attributes:
        gram: float32 [DIM, DIM], the items' Gram matrix plus the ridge.
        shortlist: film numbers that may be recommended: the most watched in training.
        shortlist_rows: float32 [shortlist, DIM], their rows.
    """

    gram: Floats
    shortlist: Ints
    shortlist_rows: Floats

    def fold_in(self, history_rows: Floats) -> Floats:
        """A user's vector, float32 [DIM], from the rows of her history [films, DIM]."""
        weighted = self.gram + WATCHED_WEIGHT * (history_rows.T @ history_rows)
        target = (1 + WATCHED_WEIGHT) * history_rows.sum(axis=0)
        return np.linalg.solve(weighted, target).astype(np.float32)

    def scores(self, history_rows: Floats) -> Floats:
        """A score for each film of the shortlist, float32 [shortlist]; more is better."""
        return self.shortlist_rows @ self.fold_in(history_rows)


def ship(factors: Factors, training: Sequence[Ints], *, shortlist_count: int = 1000) -> DeviceModel:
    """The device's part of a trained model."""
    popular = np.argsort(-popularity(training, len(factors.items)), kind="stable")
    shortlist = np.sort(popular[:shortlist_count])
    return DeviceModel(
        gram=_gram(factors.items), shortlist=shortlist, shortlist_rows=factors.items[shortlist]
    )


def popularity(training: Sequence[Ints], film_count: int) -> Ints:
    """How many training users watched each film."""
    return np.bincount(np.concatenate(training), minlength=film_count)


def learn(
    training: Sequence[Ints], film_count: int, *, dim: int = DIM, seed: int = 1
) -> Iterator[Factors]:
    """The factors after each sweep, without end: the caller stops when they no longer improve."""
    watchers = _transpose(training, film_count)
    random = np.random.default_rng(seed)
    items = random.normal(0, 0.1, (film_count, dim)).astype(np.float32)
    while True:
        users = _solve_all(items, training)
        items = _solve_all(users, watchers)
        yield Factors(items=items, users=users)


def _gram(rows: Floats) -> Floats:
    return (rows.T @ rows + RIDGE * np.eye(rows.shape[1], dtype=np.float32)).astype(np.float32)


def _solve_all(rows: Floats, lists: Sequence[Ints]) -> Floats:
    """The fold-in of each list over ``rows``, as one batch of small systems."""
    gram = _gram(rows)
    weighted = np.empty((len(lists), *gram.shape), dtype=np.float32)
    target = np.empty((len(lists), len(gram)), dtype=np.float32)
    for place, films in enumerate(lists):
        chosen = rows[films]
        weighted[place] = gram + WATCHED_WEIGHT * (chosen.T @ chosen)
        target[place] = (1 + WATCHED_WEIGHT) * chosen.sum(axis=0)
    return np.linalg.solve(weighted, target[..., None])[..., 0]


def _transpose(lists: Sequence[Ints], film_count: int) -> list[Ints]:
    """The users of each film, from the films of each user."""
    films = np.concatenate(lists)
    users = np.repeat(np.arange(len(lists)), [len(one) for one in lists])
    order = np.argsort(films, kind="stable")
    starts = np.searchsorted(films[order], np.arange(1, film_count))
    return np.split(users[order], starts)


def auc(scores: Floats, positive: npt.NDArray[np.bool_]) -> float:
    """The chance that a positive scores above a negative, ties counting one half.

    Args:
        scores: float32 [candidates].
        positive: bool [candidates], with both kinds in it.
    """
    _values, place, counts = np.unique(scores, return_inverse=True, return_counts=True)
    # The mean rank, from 1, of each group of equal scores.
    rank = (np.cumsum(counts) - (counts - 1) / 2)[place]
    positives = int(positive.sum())
    negatives = len(scores) - positives
    return float((rank[positive].sum() - positives * (positives + 1) / 2) / (positives * negatives))


def bootstrap_interval(values: npt.NDArray[np.float64], *, seed: int = 1) -> tuple[float, float]:
    """A 95 % interval for the mean of ``values`` [users], users drawn again 2,000 times."""
    random = np.random.default_rng(seed)
    means = values[random.integers(0, len(values), (2000, len(values)))].mean(axis=1)
    low, high = np.quantile(means, [0.025, 0.975])
    return float(low), float(high)

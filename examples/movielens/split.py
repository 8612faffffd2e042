"""Who the model may learn from, and what it is judged on.

Users are dealt into three groups that never mix: the model learns from the first, its number of
sweeps is chosen on the second, and the third is judged once. A held-out user's ratings are then
cut in time: the earlier ones are the history on the device, the later ones are what to guess.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hushtable.data import MovieLens

#: Of a held-out user's films, the last this share in time is what the model must guess.
FUTURE_SHARE = 0.2
#: The device keeps at most this many of the newest films: the bound that hides how many there are.
HISTORY_MAX = 128


@dataclass(frozen=True)
class Person:
    """One held-out user.

    Attributes:
        seen: every film number up to the cut, oldest first. It stays on the device.
        history: the newest of them, at most :data:`HISTORY_MAX`, whose rows the model reads.
        future: film numbers watched after the last of the history.
    """

    seen: npt.NDArray[np.int64]
    history: npt.NDArray[np.int64]
    future: npt.NDArray[np.int64]


@dataclass(frozen=True)
class Split:
    """The three groups.

    Attributes:
        training: film numbers of each training user, ascending.
        validation: held-out users on whom settings are chosen.
        test: held-out users whose figures are reported.
    """

    training: tuple[npt.NDArray[np.int64], ...]
    validation: tuple[Person, ...]
    test: tuple[Person, ...]


def deal(ratings: MovieLens, *, held_out: float = 0.1, seed: int = 1) -> Split:
    """Deal the users into training, validation and test, the last two of share ``held_out`` each.

    A film counts as watched whatever its stars. Ratings of the same second are ordered by film
    number, so the cut is the same on every machine.
    """
    order = np.lexsort((ratings.item, ratings.time, ratings.user))
    starts = np.searchsorted(ratings.user[order], np.arange(1, len(ratings.users)))
    watched = np.split(ratings.item[order].astype(np.int64), starts)
    dealt = np.random.default_rng(seed).permutation(len(watched))
    share = int(len(watched) * held_out)
    return Split(
        training=tuple(np.sort(watched[user]) for user in dealt[2 * share :]),
        validation=tuple(_cut(watched[user]) for user in dealt[:share]),
        test=tuple(_cut(watched[user]) for user in dealt[share : 2 * share]),
    )


def _cut(films: npt.NDArray[np.int64]) -> Person:
    future_count = max(1, int(len(films) * FUTURE_SHARE))
    seen = films[:-future_count]
    return Person(seen=seen, history=seen[-HISTORY_MAX:], future=films[-future_count:])

"""Ratings made up for tests: users of two tastes."""

from __future__ import annotations

import numpy as np

from hushtable.data import MovieLens

from .pages import Numbers

USERS = 300
FILMS = 60


def people(*, users: int = USERS) -> Numbers:
    """Features that tell nothing of a user's taste, int32 [users, 3]."""
    number = np.arange(users) // 2
    return np.stack([number % 7, 7 + number % 2, 9 + number % 21], axis=1).astype(np.int32)


def ratings(*, users: int = USERS, films: int = FILMS, seed: int = 7) -> MovieLens:
    """Users who rate the films of one half more often than the other's, and higher.

    One in ten ratings is of the other kind, so that no model can be perfect.
    """
    random = np.random.default_rng(seed)
    user, item, stars, time = [], [], [], []
    for number in range(users):
        count = int(random.integers(15, 32))
        own = np.arange(films) % 2 == number % 2
        chosen = random.choice(films, count, replace=False, p=np.where(own, 9, 1) / (5 * films))
        likes = own[chosen] ^ (random.random(count) < 0.1)
        user += [number] * count
        item += chosen.tolist()
        stars += (np.where(likes, 4, 2) + random.integers(0, 2, count)).tolist()
        time += np.sort(random.integers(0, 10**7, count)).tolist()
    return MovieLens(
        users=tuple(f"user {number}" for number in range(users)),
        titles=tuple(f"film {number}" for number in range(films)),
        genres=((),) * films,
        user=np.array(user, np.int32),
        item=np.array(item, np.int32),
        rating=np.array(stars, np.float32),
        time=np.array(time, np.int64),
    )

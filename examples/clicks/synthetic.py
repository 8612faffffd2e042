"""Ratings made up for tests: users of two tastes."""

from __future__ import annotations

import numpy as np

from hushtable.data import MovieLens


def ratings(*, users: int = 300, films: int = 40, seed: int = 7) -> MovieLens:
    """Users who give four or five stars to the films of one half, two or three to the other's.

    One in ten ratings is of the other kind, so that no model can be perfect.
    """
    random = np.random.default_rng(seed)
    user, item, stars, time = [], [], [], []
    for number in range(users):
        count = int(random.integers(15, 36))
        chosen = random.permutation(films)[:count]
        likes = (chosen % 2 == number % 2) ^ (random.random(count) < 0.1)
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

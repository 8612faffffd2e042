"""Ratings made up for tests: users of two tastes, which only their past tells."""

from __future__ import annotations

import numpy as np

from hushtable.data import MovieLens


def ratings(*, users: int = 120, films: int = 80, seed: int = 7) -> MovieLens:
    """Users who like one half of the films and not the other; one rating in ten is by chance."""
    random = np.random.default_rng(seed)
    user, item, stars, time = [], [], [], []
    for number in range(users):
        count = int(random.integers(30, 60))
        chosen = random.choice(films, count, replace=False)
        likes = (chosen % 2 == number % 2) ^ (random.random(count) < 0.1)
        user += [number] * count
        item += chosen.tolist()
        stars += np.where(likes, 5, 2).tolist()
        time += list(range(count))
    return MovieLens(
        users=tuple(f"user {number}" for number in range(users)),
        titles=tuple(f"film {number} ({1960 + number % 40})" for number in range(films)),
        genres=tuple(("Drama",) if number % 3 else ("Comedy", "War") for number in range(films)),
        user=np.array(user, np.int32),
        item=np.array(item, np.int32),
        rating=np.array(stars, np.float32),
        time=np.array(time, np.int64),
    )

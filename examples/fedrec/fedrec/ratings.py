"""MovieLens as behaviour that stays with its users: what one client learns from.

A user's past is private: which films she rated and whether she liked them. Each such value is a row
of the private table. The films themselves are public.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from hushtable.data import MovieLens
from hushtable.fl import DUMMY

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]

#: A rating of at least this many stars counts as a click.
CLICK_STARS_MIN = 4.0
#: Films of the past that the model sees.
HISTORY = 50
#: Samples that a client learns from in one round: consecutive ratings.
SAMPLES = 50
#: Private values that a client may ask for in one round.
SLOTS = HISTORY + SAMPLES
#: Shares of a user's ratings, in order of time: before the first to learn from, before the second
#: to validate with, the rest to test with.
SPLIT = (0.8, 0.9)
_YEAR_MIDDLE, _YEARS_SCALE = 1980, 20.0


class Behaviour(Protocol):
    """What clients learn from, whatever the data."""

    @property
    def features(self) -> Floats:
        """float32 [films, features], public."""

    @property
    def users(self) -> int:
        """How many users there are."""

    @property
    def rows(self) -> int:
        """Rows of the private table."""

    def lesson(self, user: int, random: np.random.Generator) -> Lesson:
        """What a client has for one round."""

    def questions(self, part: str) -> Questions:
        """The samples of ``"validation"`` or ``"test"``, all users'."""


class Lesson(NamedTuple):
    """What one client has for one round, in arrays of one shape for all clients.

    Attributes:
        ids: uint32 [SLOTS], the private values, DUMMY where there is none; no id twice.
        seen: float32 [SAMPLES, SLOTS], 1 where the value is in the sample's past.
        films: int32 [SAMPLES], the film to judge.
        clicks: float32 [SAMPLES], 1 where she liked it.
        real: float32 [SAMPLES], 0 where there is no sample.
    """

    ids: npt.NDArray[np.uint32]
    seen: Floats
    films: npt.NDArray[np.int32]
    clicks: Floats
    real: Floats


class Questions(NamedTuple):
    """Samples of all users to judge a model by.

    Attributes:
        past: int64 [samples, HISTORY], rows of the private table, ``rows`` where there is none.
        films: int32 [samples].
        clicks: bool [samples].
    """

    past: Ints
    films: npt.NDArray[np.int32]
    clicks: npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Ratings:
    """All users' ratings, user by user in order of time.

    Attributes:
        film: int32 [ratings].
        liked: bool [ratings].
        value: int64 [ratings], the private table's row: 2 * film, plus 1 if liked.
        starts: int64 [users + 1], where each user's ratings start.
        learned: int64 [users], how many of a user's ratings are to learn from.
        validated: int64 [users], how many are before those to test with.
        features: float32 [films, features], public: genres and year.
    """

    film: npt.NDArray[np.int32]
    liked: npt.NDArray[np.bool_]
    value: Ints
    starts: Ints
    learned: Ints
    validated: Ints
    features: Floats

    @property
    def users(self) -> int:
        """How many users there are."""
        return len(self.learned)

    @property
    def rows(self) -> int:
        """Rows of the private table."""
        return 2 * len(self.features)

    @classmethod
    def of(cls, found: MovieLens, *, seed: int = 7) -> Ratings:
        """The ratings in order; those of the same second are shuffled by ``seed``."""
        mixed = np.random.default_rng(seed).random(len(found.user))
        order = np.lexsort((mixed, found.time, found.user))
        film, liked = found.item[order], found.rating[order] >= CLICK_STARS_MIN
        starts = np.searchsorted(found.user[order], np.arange(len(found.users) + 1))
        counts = np.diff(starts)
        return cls(
            film=film,
            liked=liked,
            value=film.astype(np.int64) * 2 + liked,
            starts=starts.astype(np.int64),
            learned=(counts * SPLIT[0]).astype(np.int64),
            validated=(counts * SPLIT[1]).astype(np.int64),
            features=_features(found),
        )

    def lesson(self, user: int, random: np.random.Generator) -> Lesson:
        """Consecutive ratings of a user, drawn at random, and the past that they need."""
        start, learned = int(self.starts[user]), int(self.learned[user])
        first = int(random.integers(0, max(1, learned - SAMPLES + 1)))
        last = min(first + SAMPLES, learned)
        oldest, count = max(0, first - HISTORY), last - first
        # The last rating is in no sample's past.
        values = self.value[start + oldest : max(start + oldest, start + last - 1)]
        ids = np.full(SLOTS, DUMMY, np.uint32)
        ids[: len(values)] = values
        place, own = np.arange(SLOTS), np.arange(first, last)[:, None] - oldest
        seen = np.zeros((SAMPLES, SLOTS), np.float32)
        seen[:count] = (place < own) & (place >= own - HISTORY)
        films = np.zeros(SAMPLES, np.int32)
        films[:count] = self.film[start + first : start + last]
        clicks = np.zeros(SAMPLES, np.float32)
        clicks[:count] = self.liked[start + first : start + last]
        return Lesson(ids, seen, films, clicks, (np.arange(SAMPLES) < count).astype(np.float32))

    def questions(self, part: str) -> Questions:
        """The samples of ``"validation"`` or ``"test"``, all users'."""
        after, until = {
            "validation": (self.learned, self.validated),
            "test": (self.validated, np.diff(self.starts)),
        }[part]
        counts = until - after
        user = np.repeat(np.arange(self.users), counts)
        inside = np.arange(len(user)) - np.repeat(np.cumsum(counts) - counts, counts)
        at = self.starts[user] + after[user] + inside
        back = at[:, None] - 1 - np.arange(HISTORY)
        known = back >= self.starts[user][:, None]
        past = np.where(known, self.value[np.maximum(back, 0)], self.rows)
        return Questions(past, self.film[at], self.liked[at])


def _features(found: MovieLens) -> Floats:
    """Genres, and the year where the title ends in one."""
    genres = sorted({genre for of_film in found.genres for genre in of_film})
    features = np.zeros((len(found.titles), len(genres) + 1), np.float32)
    for film, (title, of_film) in enumerate(zip(found.titles, found.genres, strict=True)):
        for genre in of_film:
            features[film, genres.index(genre)] = 1
        year = title[-5:-1]
        if year.isdigit():
            features[film, -1] = (int(year) - _YEAR_MIDDLE) / _YEARS_SCALE
    return features

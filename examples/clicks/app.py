"""The click model on MovieLens as an application."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Self

import numpy as np

from hushtable import data
from hushtable.data import MovieLens

from . import model, ratings, synthetic
from .clickapp import ClickApp
from .judging import Judge
from .kept import train_once
from .pages import ABSENT, Events, Ints, Numbers, Pages, cut_evenly, cut_often, deal_users
from .scoring import Score
from .table import write_out
from .training import Lessons, Recipe, Say, train

#: Ids that an inference reads at most: the films rated last.
BAG_LENGTH = 64
#: Films that an inference scores at most: those rated next.
PAGE_LENGTH = 20
#: Films rated before the first inference of a user.
HISTORY_MIN = 5
#: Inferences of each held-out user at most, and of each training user in the trace.
CUTS_MAX = 4
#: Ratings from one training inference to the next; more where there are too many.
_STRIDE = 10
_TRAINING_INFERENCES_MAX = 100_000

#: For the made-up ratings of :meth:`App.small`.
SMALL = Recipe(
    dim=8,
    hidden=(16, 8),
    lookup_dropout=0.3,
    hidden_dropout=0.0,
    rate=2e-2,
    decay=0.05,
    averaging=0.8,
    batch=32,
    epochs=8,
)


def _silent(_line: str) -> None:
    pass


@dataclass(frozen=True, eq=False)
class App(ClickApp):
    """Will a user like the films that she rates next? From the films and stars of her past."""

    name: ClassVar[str] = "clicks"
    score: ClassVar[Score] = staticmethod(model.score)

    @classmethod
    def load(cls, *, progress: Say = _silent, recipe: Recipe | None = None) -> Self:
        """The model of MovieLens-1M: trained the first time, then out of the cache.

        Args:
            progress: called with a line for a person at each step.
            recipe: how to train; the published recipe if not given.

        Raises:
            hushtable.data.DataError: the ratings could not be fetched or read.
        """
        found = data.load_movielens(data.fetch("ml-1m", say=progress))
        return cls.of(found, recipe or model.RECIPE, progress=progress)

    @classmethod
    def load_20m(
        cls, folder: Path, *, progress: Say = _silent, recipe: Recipe | None = None
    ) -> Self:
        """The model of MovieLens-20M, from ``ratings.csv`` and ``movies.csv`` in ``folder``.

        Raises:
            hushtable.data.DataError: a file is missing, has another format, or has too few users.
        """
        return cls.of(ratings.load_movielens_20m(folder), recipe or model.RECIPE, progress=progress)

    @classmethod
    def small(cls) -> Self:
        """A model of made-up ratings, trained in seconds: for tests."""
        return cls.of(synthetic.ratings(), SMALL, progress=_silent, cached=False)

    @classmethod
    def of(
        cls, found: MovieLens, recipe: Recipe, *, progress: Say = _silent, cached: bool = True
    ) -> Self:
        """The model of any ratings; ``cached``: kept in, and taken from, the cache."""
        groups = Groups.of(found)
        for group, pages in vars(groups).items():
            pages.check(group)
        parts = parts_of_items(len(found.titles))
        lessons = Lessons.of(groups.lessons, parts)
        start = model.start(
            recipe,
            parts=len(found.titles) + ratings.STARS_COUNT,
            seen=len(lessons.seen),
            films=len(found.titles),
        )
        task = (model.score, start, model.decays, lessons, Judge(groups.validation), recipe)
        if cached:
            weights = train_once(cls.name, *task, say=progress)
        else:
            weights = train(*task, say=progress)
        return cls(
            weight=write_out(weights.table, parts, lessons.seen),
            device=weights.device,
            dtype="int8",
            train=groups.train.trace(),
            validation=groups.validation.trace(),
            test=groups.test.trace(),
            pages={"validation": groups.validation, "test": groups.test},
        )


def parts_of_items(film_count: int) -> Numbers:
    """Of each item, which is a film with its stars: int32 [films * STARS_COUNT, 2]."""
    films = np.repeat(np.arange(film_count), ratings.STARS_COUNT)
    stars = np.tile(np.arange(ratings.STARS_COUNT), film_count)
    return np.stack([films, film_count + stars], axis=1).astype(np.int32)


@dataclass(frozen=True)
class Groups:
    """The inferences of users who are in one group only.

    Attributes:
        lessons: of the training users, many each: to learn from.
        train: of the training users, as few each as of held-out users: for the trace.
        validation: of held-out users; learning stops by it.
        test: of held-out users.
    """

    lessons: Pages
    train: Pages
    validation: Pages
    test: Pages

    @classmethod
    def of(cls, found: MovieLens, *, seed: int = 1) -> Groups:
        """Deals the users out and cuts their ratings into inferences."""
        order = ratings.order_by_time(found, seed=seed)
        items = found.item.astype(np.int64) * ratings.STARS_COUNT + ratings.stars(found)
        events = ratings.events(found, order, items)
        liked = found.rating[order] >= ratings.CLICK_STARS_MIN
        training, validation, test = deal_users(len(found.users), seed=seed)
        stride = max(_STRIDE, -(-len(found.item) // _TRAINING_INFERENCES_MAX))
        often = cut_often(events.starts, training, before_min=HISTORY_MIN, stride=stride, seed=seed)
        few = [
            cut_evenly(
                events.starts, users, before_min=HISTORY_MIN, cuts_max=CUTS_MAX, seed=seed + place
            )
            for place, users in enumerate((training, validation, test))
        ]
        return cls(*(make_pages(events, liked, *cuts) for cuts in (often, *few)))


def make_pages(events: Events, liked: np.ndarray, users: Ints, cuts: Ints) -> Pages:
    """Inferences at ``cuts``: a bag of what came before, a page of the films that came next.

    Args:
        events: items, which are films with their stars.
        liked: bool [events], whether the rating is a click.
        users: int64 [cuts], whose cut.
        cuts: int64 [cuts], events.
    """
    places = cuts[:, None] + np.arange(PAGE_LENGTH)
    shown = places < events.starts[users + 1][:, None]
    places = places.clip(max=len(events.item) - 1)
    films = events.item[places] // ratings.STARS_COUNT
    return Pages(
        bags=events.bags(users, cuts, BAG_LENGTH),
        candidates=np.where(shown, films, ABSENT).astype(np.int32),
        clicked=liked[places] & shown,
        features=np.zeros((len(cuts), 0), np.int32),
    )

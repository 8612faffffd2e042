"""Inferences of the stand-in: 50 steps of behaviour, and a page of which some is clicked."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from examples.clicks import ratings
from examples.clicks.pages import (
    ABSENT,
    Events,
    Ints,
    Numbers,
    Pages,
    cut_evenly,
    cut_often,
    deal_users,
)

from hushtable.data import MovieLens

#: Ids that an inference reads at most: the newest behaviour.
BAG_LENGTH = 50
#: Candidates of a page that are clicked at most: the films that the user rates next.
CLICKED_COUNT = 5
#: Candidates of a page that are not: films that she never rates.
PASSED_COUNT = 15
#: Behaviour before the first inference of a user.
HISTORY_MIN = 5
#: Inferences of each held-out user at most, and of each training user in the trace.
CUTS_MAX = 4
#: Events from one training inference to the next; more where there are too many.
_STRIDE = 10
_TRAINING_INFERENCES_MAX = 100_000


@dataclass(frozen=True)
class Journeys:
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


def deal(found: MovieLens, items: Ints, features: Numbers, *, seed: int = 1) -> Journeys:
    """Deals the users out and cuts their ratings into inferences.

    A film that a user never rates is drawn for a page as often as training users rate it, so
    that what is popular is clicked no more than anything else: only her past can tell.

    Args:
        found: the ratings.
        items: int64 [ratings], what each is as an item.
        features: int32 [users, features].
        seed: of all that is drawn.
    """
    order = ratings.order_by_time(found, seed=seed)
    events = ratings.events(found, order, items)
    groups = deal_users(len(found.users), seed=seed)
    known = np.isin(found.user, groups[0])
    drawn = Shelf(
        film=found.item[order],
        rated=np.unique(found.user.astype(np.int64) * len(found.titles) + found.item),
        popularity=np.bincount(found.item[known], minlength=len(found.titles)),
    )
    stride = max(_STRIDE, -(-len(found.item) // _TRAINING_INFERENCES_MAX))
    cuts = [cut_often(events.starts, groups[0], before_min=HISTORY_MIN, stride=stride, seed=seed)]
    cuts += [
        cut_evenly(
            events.starts, users, before_min=HISTORY_MIN, cuts_max=CUTS_MAX, seed=seed + place
        )
        for place, users in enumerate(groups)
    ]
    random = np.random.default_rng(seed)
    return Journeys(*(_make_pages(events, drawn, features, *cut, random) for cut in cuts))


@dataclass(frozen=True)
class Shelf:
    """What a page's films are drawn from.

    Attributes:
        film: int32 [events], of each event.
        rated: int64, user * films + film for each that a user rates, ascending.
        popularity: int64 [films], how often training users rate each.
    """

    film: Numbers
    rated: Ints
    popularity: Ints

    def pass_by(self, users: Ints, count: int, random: np.random.Generator) -> Numbers:
        """Films that each of ``users`` never rates: int32 [users, count], by popularity.

        ABSENT at the end where fewer were found; a page may have a film twice.
        """
        climb = np.cumsum(self.popularity / self.popularity.sum())
        # Four times as many as are wanted: most users have rated few of the films.
        draws = np.searchsorted(climb, random.random((len(users), 4 * count)), side="right")
        draws = draws.clip(max=len(self.popularity) - 1)
        codes = users[:, None] * len(self.popularity) + draws
        place = np.searchsorted(self.rated, codes).clip(max=len(self.rated) - 1)
        known = self.rated[place] == codes
        first = np.argsort(known, axis=1, kind="stable")[:, :count]
        passed = np.take_along_axis(draws, first, axis=1)
        return np.where(np.take_along_axis(known, first, axis=1), ABSENT, passed).astype(np.int32)


def _make_pages(
    events: Events,
    shelf: Shelf,
    features: Numbers,
    users: Ints,
    cuts: Ints,
    random: np.random.Generator,
) -> Pages:
    places = cuts[:, None] + np.arange(CLICKED_COUNT)
    shown = places < events.starts[users + 1][:, None]
    clicked = np.where(shown, shelf.film[places.clip(max=len(shelf.film) - 1)], ABSENT)
    passed = shelf.pass_by(users, PASSED_COUNT, random)
    candidates = np.concatenate([clicked, passed], axis=1).astype(np.int32)
    return Pages(
        bags=events.bags(users, cuts, BAG_LENGTH),
        candidates=candidates,
        clicked=(np.arange(CLICKED_COUNT + PASSED_COUNT) < CLICKED_COUNT) & (candidates != ABSENT),
        features=features[users],
    )

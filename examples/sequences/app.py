"""The model with what it is learned from and judged on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from examples.clicks import ratings, synthetic
from examples.clicks.judging import Judge
from examples.clicks.kept import train_once
from examples.clicks.pages import ABSENT, Bools, Floats, Ints, Numbers, Pages
from examples.clicks.scoring import Score
from examples.clicks.table import write_out
from examples.clicks.training import Lessons, Recipe, Say, train
from examples.histories import journeys, people

from hushtable import data
from hushtable.data import MovieLens

from . import model

#: For the made-up ratings of :meth:`App.small`.
SMALL = replace(
    model.RECIPE, dim=8, hidden=(16,), rate=2e-2, decay=0.05, averaging=0.8, batch=32, epochs=5
)


@dataclass(frozen=True)
class Asked:
    """Predictions to make: a candidate each, with who it is shown to.

    Attributes:
        ids: by feature; int32 [predictions], of the history [predictions, BAG_LENGTH] with
            :data:`ABSENT` where there is none.
        dense: float32 [predictions, 1], how long each history is.
        clicked: bool [predictions].
    """

    ids: dict[str, Numbers]
    dense: Floats
    clicked: Bools

    def __len__(self) -> int:
        return len(self.clicked)

    def take(self, chosen: Ints) -> Asked:
        """The predictions with these numbers."""
        ids = {name: column[chosen] for name, column in self.ids.items()}
        return Asked(ids, self.dense[chosen], self.clicked[chosen])


@dataclass(frozen=True)
class App:
    """A trained model.

    Attributes:
        history: float32 [items, dim], the rows of what a history may hold.
        device: the rest of the model.
        train: inferences of training users, a few each.
        test: those of test users.
        without_auc: on ``test``, of a model that is learned without any history.
        valid_auc: on the validation users, of this one.
    """

    history: Floats
    device: model.Device
    train: Pages
    test: Pages
    without_auc: float
    valid_auc: float

    @classmethod
    def load(cls, *, say: Say, seed: int = 1) -> Self:
        """MovieLens-1M's: learned the first time, then out of the cache.

        Args:
            say: called with a line for a person at each step.
            seed: of where learning begins and of what it drops; the data is dealt as ever.

        Raises:
            hushtable.data.DataError: the data could not be fetched or read.
        """
        found = data.load_movielens(data.fetch("ml-1m", say=say))
        users = data.fetch(people.SOURCE, say=say) / people.SOURCE.members[0].name
        recipe = replace(model.RECIPE, seed=seed)
        return cls.of(found, people.load_people(users, found), recipe, say=say, cached=True)

    @classmethod
    def small(cls) -> Self:
        """A model of made-up ratings, learned in seconds: for tests."""
        found, features = synthetic.ratings(), synthetic.people()
        return cls.of(found, features, SMALL, say=lambda _line: None, cached=False)

    @classmethod
    def of(
        cls, found: MovieLens, features: Numbers, recipe: Recipe, *, say: Say, cached: bool
    ) -> Self:
        """The model of any ratings, ``features`` int32 [users, 3]; ``cached``: kept."""
        films, stars = len(found.titles), ratings.STARS_COUNT
        # What a history holds is a film with the stars that it got.
        pages = journeys.deal(found, found.item * np.int64(stars) + ratings.stars(found), features)
        every = np.arange(films * stars)
        parts = np.stack([every // stars, films + every % stars], axis=1).astype(np.int32)
        lessons, validation = Lessons.of(pages.lessons, parts), Judge(pages.validation)
        start = model.start(
            recipe,
            parts=films + stars,
            seen=len(lessons.seen),
            candidates=films,
        )

        def learned(name: str, score: Score) -> tuple[Floats, model.Device, float]:
            task = (score, start, model.decays, lessons, validation, recipe)
            weights = train_once(name, *task, say=say) if cached else train(*task, say=say)
            rows = write_out(weights.table, parts, lessons.seen)
            return rows, weights.device, validation.auc(score, weights, lessons)

        say("a model that knows no history:")
        rows, device, _ = learned("sequences-without", model.score_without)
        without = _auc(pages.test, model.score_without, device, rows)
        say("the model:")
        rows, device, valid = learned("sequences", model.score)
        return cls(rows, device, pages.train, pages.test, without, valid)

    def auc(self) -> float:
        """In the clear, over all candidates of all test inferences."""
        return _auc(self.test, model.score, self.device, self.history)

    def logits(self, pages: Pages) -> Floats:
        """In the clear, a logit for each prediction of :func:`flatten`."""
        scores = Judge(pages).scores(model.score, self.device, self.history[pages.items])
        shown: Floats = scores[pages.candidates != ABSENT]
        return shown


def _auc(pages: Pages, score: Score, device: model.Device, rows: Floats) -> float:
    judge = Judge(pages)
    return judge.auc_of(judge.scores(score, device, rows[pages.items]))


def some(pages: Pages, count: int, *, seed: int = 1) -> Pages:
    """``count`` of the inferences, or all where there are fewer, drawn at random."""
    chosen = np.random.default_rng(seed).permutation(len(pages))[:count]
    return Pages(*(one[chosen] for one in vars(pages).values()))


def flatten(pages: Pages) -> Asked:
    """A prediction for each candidate of each inference, page after page."""
    shown = pages.candidates != ABSENT
    of = np.nonzero(shown)[0]
    ids = {"candidate": pages.candidates[shown], "history": pages.bags[of]}
    for place, (name, first) in enumerate(zip(model.FEATURES, model.FIRST, strict=True)):
        ids[name] = pages.features[of, place] - np.int32(first)
    length = pages.present.sum(axis=1, dtype=np.float32)[of, None] / np.float32(journeys.BAG_LENGTH)
    return Asked(ids, length, pages.clicked[shown])

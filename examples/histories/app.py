"""The click model on behaviour histories as an application."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Self

from examples.clicks import synthetic
from examples.clicks.clickapp import ClickApp
from examples.clicks.judging import Judge
from examples.clicks.kept import train_once
from examples.clicks.pages import Numbers
from examples.clicks.scoring import Score
from examples.clicks.table import write_out
from examples.clicks.training import Lessons, Recipe, Say, train

from hushtable import data
from hushtable.data import MovieLens

from . import items, journeys, model, people, taobao
from .items import ROWS, Items
from .journeys import Journeys

#: For the made-up ratings of :meth:`App.small`.
SMALL = Recipe(
    dim=8,
    hidden=(16,),
    lookup_dropout=0.3,
    hidden_dropout=0.0,
    rate=2e-2,
    decay=0.05,
    averaging=0.8,
    batch=32,
    epochs=7,
)
SMALL_ROWS = 6_000


def _silent(_line: str) -> None:
    pass


@dataclass(frozen=True)
class Shop:
    """Data to learn from and to judge on.

    Attributes:
        items: what the table holds.
        journeys: the inferences.
        candidates: that may be on a page.
        feature_values: numbers that features of users have.
    """

    items: Items
    journeys: Journeys
    candidates: int
    feature_values: int

    @classmethod
    def of_movielens(cls, found: MovieLens, features: Numbers, *, rows: int = ROWS) -> Shop:
        """The stand-in: ratings as behaviour, ``features`` int32 [users, 3]."""
        stock, item = items.of_movielens(found, rows)
        return cls(
            items=stock,
            journeys=journeys.deal(found, item, features),
            candidates=len(found.titles),
            feature_values=people.FEATURE_VALUES,
        )

    @classmethod
    def of_taobao(cls, found: taobao.Taobao) -> Shop:
        """The real log."""
        return cls(
            items=taobao.make_items(found),
            journeys=taobao.make_journeys(found),
            candidates=len(found.adgroups),
            feature_values=found.profile_count + found.place_count,
        )


@dataclass(frozen=True, eq=False)
class App(ClickApp):
    """Which candidates does a user click? From the last 50 steps of her behaviour."""

    name: ClassVar[str] = "histories"
    score: ClassVar[Score] = staticmethod(model.score)

    @classmethod
    def load(cls, *, progress: Say = _silent, recipe: Recipe | None = None) -> Self:
        """The model of the stand-in: trained the first time, then out of the cache.

        Args:
            progress: called with a line for a person at each step.
            recipe: how to train; the published recipe if not given.

        Raises:
            hushtable.data.DataError: the data could not be fetched or read.
        """
        found = data.load_movielens(data.fetch("ml-1m", say=progress))
        users = data.fetch(people.SOURCE, say=progress) / people.SOURCE.members[0].name
        shop = Shop.of_movielens(found, people.load_people(users, found))
        return cls.of(shop, recipe or model.RECIPE, progress=progress)

    @classmethod
    def load_taobao(
        cls,
        folder: Path,
        *,
        users_max: int = 20_000,
        progress: Say = _silent,
        recipe: Recipe | None = None,
    ) -> Self:
        """The model of Taobao's log, from its files in ``folder``.

        Raises:
            hushtable.data.DataError: a file is missing, has another format, or has too few users.
        """
        shop = Shop.of_taobao(taobao.load_taobao(folder, users_max=users_max, say=progress))
        return cls.of(shop, recipe or model.RECIPE, progress=progress)

    @classmethod
    def small(cls) -> Self:
        """A model of made-up ratings, trained in seconds: for tests."""
        found, features = synthetic.ratings(), synthetic.people()
        shop = Shop.of_movielens(found, features, rows=SMALL_ROWS)
        return cls.of(shop, SMALL, progress=_silent, cached=False)

    @classmethod
    def of(
        cls, shop: Shop, recipe: Recipe, *, progress: Say = _silent, cached: bool = True
    ) -> Self:
        """The model of any shop; ``cached``: kept in, and taken from, the cache."""
        pages, stock = shop.journeys, shop.items
        for group, some in vars(pages).items():
            some.check(group)
        lessons = Lessons.of(pages.lessons, stock.parts)
        start = model.start(
            recipe,
            parts=stock.part_count,
            seen=len(lessons.seen),
            candidates=shop.candidates,
            feature_values=shop.feature_values,
            features=pages.lessons.features.shape[1],
        )
        task = (model.score, start, model.decays, lessons, Judge(pages.validation), recipe)
        if cached:
            weights = train_once(cls.name, *task, say=progress)
        else:
            weights = train(*task, say=progress)
        return cls(
            weight=stock.place(write_out(weights.table, stock.parts, lessons.seen)),
            device=weights.device,
            dtype="f16",
            train=pages.train.trace(stock.row),
            validation=pages.validation.trace(stock.row),
            test=pages.test.trace(stock.row),
            pages={"validation": pages.validation, "test": pages.test},
        )

"""The items of a shop as large as Taobao's, out of a million ratings.

No package holds Taobao's log, so MovieLens-1M stands in for it: an item is a film with its stars
and the week of its rating. There are 3,706 x 5 x 149 of those, nearly as many as Ali-CCP has
items, and ratings fall on 322,044 of them, few often and most hardly ever. They lie in the table
in an order drawn once, as a shop's ids say nothing of how often an item is seen.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from examples.clicks import ratings
from examples.clicks.pages import Floats, Ints, Numbers

from hushtable.data import MovieLens

#: Items of Ali-CCP, and so rows of the table.
ROWS = 3_078_306
_WEEK_SECONDS = 7 * 24 * 3600


@dataclass(frozen=True)
class Items:
    """All that may be read, and where it lies.

    Attributes:
        parts: int32 [items, parts of an item]; no two columns have a number in common.
        part_count: numbers of parts.
        row: int64 [items], where each item's row is in the table; no two in one place.
        rows: in the table, at least as many as there are items.
    """

    parts: Numbers
    part_count: int
    row: Ints
    rows: int

    def place(self, weight: Floats, *, seed: int = 1) -> Floats:
        """The table, float32 [rows, dim], from the items' rows [items, dim].

        What is left over gets random rows of the same spread; nothing ever reads them.
        """
        random = np.random.default_rng(seed)
        spread = np.float32(weight.std())
        table = random.standard_normal((self.rows, weight.shape[1]), dtype=np.float32)
        table *= spread
        table[self.row] = weight
        return table


def scatter(item_count: int, rows: int, *, seed: int = 1) -> Ints:
    """Where each item lies: int64 [items], places among ``rows`` drawn at random."""
    return np.random.default_rng(seed).permutation(rows)[:item_count]


def of_movielens(found: MovieLens, rows: int = ROWS) -> tuple[Items, Ints]:
    """The items of ratings, and the item of each rating, int64 [ratings].

    Raises:
        ValueError: more items than ``rows``.
    """
    films, stars = len(found.titles), ratings.STARS_COUNT
    week = (found.time - found.time.min()) // _WEEK_SECONDS
    weeks = int(week.max()) + 1
    count = films * stars * weeks
    if count > rows:
        raise ValueError(
            f"{films:,} films x {stars} stars x {weeks} weeks are {count:,} items, over {rows:,}"
        )
    every = np.arange(count)
    parts = np.stack(
        [
            every // (stars * weeks),
            films + every // weeks % stars,
            films + stars + every % weeks,
        ],
        axis=1,
    ).astype(np.int32)
    items = Items(
        parts=parts, part_count=films + stars + weeks, row=scatter(count, rows), rows=rows
    )
    item = (found.item.astype(np.int64) * stars + ratings.stars(found)) * weeks + week
    return items, item

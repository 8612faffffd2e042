"""Taobao's advertisements as behaviour that stays with its users: what one client learns from.

A user's past is private: each category and brand that she looked at, put in the cart, kept or
bought is a row of the private table. The advertisements that she was shown are public, and whether
she clicked is what is learned.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from hushtable.fl import DUMMY

from .ratings import HISTORY, SAMPLES, SLOTS, SPLIT, Floats, Ints, Lesson, Questions

if TYPE_CHECKING:
    from examples.histories.taobao import Taobao


@dataclass(frozen=True, eq=False)
class Displays:
    """All that was shown, user by user in order of time.

    Attributes:
        advert: int32 [displays].
        clicked: bool [displays].
        past: int64 [displays], where the user's behaviour before it ends in ``item``.
        starts: int64 [users + 1], where each user's displays start.
        item: int64 [steps], the private table's row of each step, user by user in order of time.
        item_starts: int64 [users + 1].
        learned, validated: int64 [users], how many of a user's displays are before those to
            validate and to test with.
        features: float32 [adverts, 1]: nothing of them but their number is known.
        rows: of the private table.
    """

    advert: npt.NDArray[np.int32]
    clicked: npt.NDArray[np.bool_]
    past: Ints
    starts: Ints
    item: Ints
    item_starts: Ints
    learned: Ints
    validated: Ints
    features: Floats
    rows: int

    @property
    def users(self) -> int:
        """How many users there are."""
        return len(self.learned)

    @classmethod
    def of(cls, found: Taobao, *, seed: int = 7) -> Displays:
        """The displays in order; those of the same second are shuffled by ``seed``."""
        mixed = np.random.default_rng(seed).random(len(found.user))
        order = np.lexsort((mixed, found.time, found.user))
        user, users = found.user[order], len(found.users)
        starts = np.searchsorted(user, np.arange(users + 1)).astype(np.int64)
        item_starts = found.events.starts.astype(np.int64)
        stepped = np.repeat(np.arange(users), np.diff(item_starts))
        # Of one moment, what was shown came first.
        moments = stepped << 40 | found.event_time
        past = np.searchsorted(moments, user << 40 | found.time[order]).astype(np.int64)
        counts = np.diff(starts)
        return cls(
            advert=found.adgroup[order].astype(np.int32),
            clicked=found.clicked[order],
            past=past,
            starts=starts,
            item=found.events.item.astype(np.int64),
            item_starts=item_starts,
            learned=(counts * SPLIT[0]).astype(np.int64),
            validated=(counts * SPLIT[1]).astype(np.int64),
            features=np.zeros((len(found.adgroups), 1), np.float32),
            rows=len(found.parts),
        )

    def lesson(self, user: int, random: np.random.Generator) -> Lesson:
        """Consecutive displays of a user, drawn at random, and the past that they need: of more
        different items than there are slots, the latest."""
        start, learned = int(self.starts[user]), int(self.learned[user])
        first = int(random.integers(0, max(1, learned - SAMPLES + 1)))
        last = min(first + SAMPLES, learned)
        count = last - first
        ends = self.past[start + first : start + last]
        pasts = [self.item[self._oldest(user, int(end)) : end] for end in ends]
        ids = np.full(SLOTS, DUMMY, np.uint32)
        seen = np.zeros((SAMPLES, SLOTS), np.float32)
        if pasts:
            latest = np.concatenate(pasts)[::-1]
            known, at = np.unique(latest, return_index=True)
            chosen = np.sort(known[np.argsort(at)][:SLOTS])
            ids[: len(chosen)] = chosen
            for sample, own in enumerate(pasts):
                seen[sample, : len(chosen)] = np.isin(chosen, own)
        adverts, clicks = np.zeros(SAMPLES, np.int32), np.zeros(SAMPLES, np.float32)
        adverts[:count] = self.advert[start + first : start + last]
        clicks[:count] = self.clicked[start + first : start + last]
        return Lesson(ids, seen, adverts, clicks, (np.arange(SAMPLES) < count).astype(np.float32))

    def _oldest(self, user: int, end: int) -> int:
        """Where the past of a display begins whose end is ``end``."""
        return max(int(self.item_starts[user]), end - HISTORY)

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
        back = self.past[at][:, None] - 1 - np.arange(HISTORY)
        known = back >= self.item_starts[user][:, None]
        past = np.where(known, self.item[np.maximum(back, 0)], self.rows)
        return Questions(past, self.advert[at], self.clicked[at])

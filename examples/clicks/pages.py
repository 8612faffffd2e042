"""Pages: what one inference reads, shows and is judged on.

An inference reads one bag of rows, the user's newest behaviour, and with it scores a page of
candidates. The bag is what must stay private. The candidates are not: whoever sent the page
knows what is on it, and sends what the model needs of them along.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hushtable.data import DataError
from hushtable.tune.trace import Trace

Floats = npt.NDArray[np.float32]
Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.int32]

#: Where a bag or a page has nothing.
ABSENT = -1


@dataclass(frozen=True)
class Pages:
    """Inferences.

    Attributes:
        bags: int32 [inferences, bag length], items, oldest first, :data:`ABSENT` in front where
            there are fewer.
        candidates: int32 [inferences, page length], at the end :data:`ABSENT` where there are
            fewer.
        clicked: bool [inferences, page length].
        features: int32 [inferences, features], what the device knows of its user.
    """

    bags: Numbers
    candidates: Numbers
    clicked: Bools
    features: Numbers

    def __len__(self) -> int:
        return len(self.bags)

    @property
    def present(self) -> Bools:
        """bool [inferences, bag length], False where a bag has nothing."""
        present: Bools = self.bags != ABSENT
        return present

    def check(self, name: str) -> None:
        """Refuses what nothing can be learned from or judged on.

        Args:
            name: what the error calls these inferences.

        Raises:
            DataError: no ids, or not both clicked and other candidates.
        """
        shown = self.candidates != ABSENT
        clicked = int(self.clicked.sum())
        passed = int(shown.sum()) - clicked
        if not (self.present.any() and clicked and passed):
            raise DataError(
                f"the {name} inferences are too few: {len(self):,} inferences read"
                f" {int(self.present.sum()):,} ids and have {clicked:,} candidates that are clicked"
                f" and {passed:,} that are not, expected some of each: use more users"
            )

    @property
    def items(self) -> Numbers:
        """The items of all bags, int32 [accesses]: bag after bag, oldest first."""
        return self.bags[self.present]

    def trace(self, row_of_item: Ints | None = None) -> Trace:
        """The rows that the bags read.

        Args:
            row_of_item: int64 [items], where each item's row is; None where it is the item's
                own number.
        """
        rows = self.items.astype(np.int64) if row_of_item is None else row_of_item[self.items]
        offsets = np.concatenate(([0], np.cumsum(self.present.sum(axis=1, dtype=np.int64))))
        return Trace(ids=rows, offsets=offsets)


@dataclass(frozen=True)
class Events:
    """What every user did, user after user and in each user's order of time.

    Attributes:
        item: int32 [events].
        starts: int64 [users + 1], each user's first event, and at last the number of events.
    """

    item: Numbers
    starts: Ints

    def bags(self, users: Ints, cuts: Ints, length: int) -> Numbers:
        """The ``length`` newest items before each cut: int32 [cuts, length].

        Args:
            users: int64 [cuts], whose bag.
            cuts: int64 [cuts], events of that user; the bag ends before it.
            length: items at most.
        """
        places = cuts[:, None] + np.arange(-length, 0)
        within = places >= self.starts[users][:, None]
        return np.where(within, self.item[places.clip(min=0)], ABSENT).astype(np.int32)


def deal_users(user_count: int, *, held_out: float = 0.1, seed: int = 1) -> tuple[Ints, Ints, Ints]:
    """Numbers of the training, validation and test users; nobody is in two of them.

    Args:
        user_count: how many there are.
        held_out: share of validation, and of test.
        seed: of the shuffle.
    """
    dealt = np.random.default_rng(seed).permutation(user_count)
    share = max(1, int(user_count * held_out))
    return dealt[2 * share :], dealt[:share], dealt[share : 2 * share]


def cut_often(
    starts: Ints, users: Ints, *, before_min: int, stride: int, seed: int
) -> tuple[Ints, Ints]:
    """Cuts for learning: each of ``users`` is cut every ``stride`` events.

    Args:
        starts: of :class:`Events`.
        users: whom to cut.
        before_min: events that a cut leaves before it at least.
        stride: events from one cut to the next.
        seed: draws where each user's first cut is.

    Returns:
        Users and cuts, int64 [cuts] each; a cut is the number of an event.
    """
    first = starts[users] + before_min
    first = first + np.random.default_rng(seed).integers(0, stride, len(users))
    counts = np.maximum(0, -((first - starts[users + 1]) // stride))
    whose = np.repeat(np.arange(len(users)), counts)
    step = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    return users[whose], first[whose] + step * stride


def cut_evenly(
    starts: Ints, users: Ints, *, before_min: int, cuts_max: int, seed: int
) -> tuple[Ints, Ints]:
    """Cuts for judging: every user counts alike, with up to ``cuts_max`` cuts.

    They are drawn from the later half of what she did, as who uses a model has a past.

    Args:
        starts: of :class:`Events`.
        users: whom to cut.
        before_min: events that a cut leaves before it at least.
        cuts_max: of a user.
        seed: draws the cuts.

    Returns:
        Users and cuts, int64 [cuts] each, as :func:`cut_often`.
    """
    random = np.random.default_rng(seed)
    drawn = []
    for start, end in zip(starts[users], starts[users + 1], strict=True):
        later = np.arange(max(start + before_min, (start + end) // 2), end)
        drawn.append(np.sort(random.permutation(later)[:cuts_max]))
    whose = np.repeat(users, [len(one) for one in drawn])
    return whose, np.concatenate([*drawn, np.zeros(0, np.int64)]).astype(np.int64)

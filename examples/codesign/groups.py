"""Traces in which groups of rows are read together, made up; and how much together the rows of any
trace are read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hushtable import ConfigError
from hushtable.tune.trace import Trace

Ints = npt.NDArray[np.int64]

#: Pairs of rows that are counted at once: what bounds memory.
_PAIRS_MAX = 20_000_000


@dataclass(frozen=True)
class GroupSpec:
    """A made-up trace.

    Attributes:
        rows: of the table.
        group_rows: rows of a group; groups are drawn once, of rows that lie anywhere.
        together: share of a bag's ids that are read with their whole group; the others are read
            alone.
        exponent: of Zipf's law, by which groups are drawn: the k-th as often as k to the minus
            this.
        bag_ids: ids of a bag, all distinct.
    """

    rows: int = 1 << 15
    group_rows: int = 4
    together: float = 0.5
    exponent: float = 1.0
    bag_ids: int = 32

    def __post_init__(self) -> None:
        if not 1 <= self.group_rows <= self.bag_ids:
            raise ConfigError(
                f"group_rows is {self.group_rows}, but must be 1 to the bag's {self.bag_ids} ids"
            )
        if not 0 <= self.together <= 1:
            raise ConfigError(f"together is {self.together:g}, but must be a share from 0 to 1")
        if self.rows < 4 * self.bag_ids:
            raise ConfigError(
                f"rows is {self.rows}, but must be at least four times the bag's {self.bag_ids} ids"
            )
        if not 0 <= self.exponent < 4:
            raise ConfigError(f"exponent is {self.exponent:g}, but must be 0 to below 4")

    def trace(self, bags: int, *, seed: int = 1) -> Trace:
        """``bags`` bags; the same for the same seed."""
        random = np.random.default_rng(seed)
        groups = random.permutation(self.rows)[: self.rows // self.group_rows * self.group_rows]
        groups = groups.reshape(-1, self.group_rows)
        odds = np.arange(1, len(groups) + 1, dtype=np.float64) ** -self.exponent
        climb = np.cumsum(odds / odds.sum())
        # A draw that is read whole brings group_rows ids, another brings one.
        whole = self.together / (self.group_rows - self.together * (self.group_rows - 1))
        ids = np.concatenate([self._bag(groups, climb, whole, random) for _ in range(bags)])
        return Trace(ids=ids, offsets=np.arange(bags + 1, dtype=np.int64) * self.bag_ids)

    def _bag(
        self,
        groups: Ints,
        climb: npt.NDArray[np.float64],
        whole: float,
        random: np.random.Generator,
    ) -> Ints:
        chosen: dict[int, None] = {}
        while len(chosen) < self.bag_ids:
            drawn = np.searchsorted(climb, random.random(self.bag_ids)).clip(max=len(groups) - 1)
            is_whole = random.random(self.bag_ids) < whole
            member = random.integers(0, self.group_rows, self.bag_ids)
            for group, all_of_it, one in zip(drawn, is_whole, member, strict=True):
                rows = groups[group] if all_of_it else groups[group, one : one + 1]
                chosen.update(dict.fromkeys(rows.tolist()))
                if len(chosen) >= self.bag_ids:
                    break
        return np.fromiter(chosen, np.int64, len(chosen))[: self.bag_ids]


@dataclass(frozen=True)
class Company:
    """How much together the rows of a trace are read, learned on one part and told of another.

    Attributes:
        bags, ids_mean: of the other part: bags, and distinct ids of one.
        companion_share: of the ids in a bag whose top companion is known, those whose companion is
            in the bag too.
        lift: that share over the same for a row that goes with nothing: how often the companions
            are in bags at all. 1 is no company.
        ids_a_key: by number of companions, the distinct ids of a bag over the rows that bring them
            all, each with its companions, chosen greedily. 1 is no gain; the number plus one is
            the most there can be.
    """

    bags: int
    ids_mean: float
    companion_share: float
    lift: float
    ids_a_key: dict[int, float]

    @classmethod
    def of(cls, learned: Trace, told: Trace, counts: Sequence[int] = (1, 3, 7)) -> Company:
        """Learns companions from ``learned`` and counts on ``told``."""
        companions = top_companions(learned, max(counts))
        bags = [
            list(dict.fromkeys(told.ids[start:end].tolist()))
            for start, end in zip(told.offsets[:-1], told.offsets[1:], strict=True)
        ]
        bags = [bag for bag in bags if bag]
        present: dict[int, int] = {}
        for bag in bags:
            for row in bag:
                present[row] = present.get(row, 0) + 1
        asked = found = 0
        by_chance = 0.0
        for bag in bags:
            within = set(bag)
            for row in bag:
                if row in companions:
                    first = companions[row][0]
                    asked += 1
                    found += first in within
                    by_chance += present.get(first, 0) / len(bags)
        ids = sum(map(len, bags))
        return cls(
            bags=len(bags),
            ids_mean=ids / len(bags),
            companion_share=found / max(asked, 1),
            lift=found / by_chance if by_chance else 1.0,
            ids_a_key={
                count: ids / sum(_keys(bag, companions, count) for bag in bags) for count in counts
            },
        )


def _keys(bag: list[int], companions: dict[int, list[int]], count: int) -> int:
    """Rows that bring all of ``bag``: again and again the one that brings most of what is left."""
    within = set(bag)
    brings = {
        row: {row, *(other for other in companions.get(row, ())[:count] if other in within)}
        for row in bag
    }
    left = within
    keys = 0
    for size in range(count + 1, 0, -1):
        for row in bag:
            if len(brings[row] & left) >= size:
                left = left - brings[row]
                keys += 1
    return keys


def top_companions(trace: Trace, count: int) -> dict[int, list[int]]:
    """Of each row that is read with another in at least two bags, at most ``count`` rows that most
    bags read with it; the lower number first among equals."""
    totals = _Pairs()
    firsts: list[Ints] = []
    seconds: list[Ints] = []
    pending = 0
    for start, end in zip(trace.offsets[:-1], trace.offsets[1:], strict=True):
        bag = np.unique(trace.ids[start:end])
        first, second = np.meshgrid(bag, bag, indexing="ij")
        apart = first != second
        firsts.append(first[apart])
        seconds.append(second[apart])
        pending += int(apart.sum())
        if pending > _PAIRS_MAX:
            totals.add(np.concatenate(firsts), np.concatenate(seconds))
            firsts, seconds, pending = [], [], 0
    if pending:
        totals.add(np.concatenate(firsts), np.concatenate(seconds))
    keep = totals.bags > 1
    codes, bags = totals.codes[keep], totals.bags[keep]
    first, second = codes >> 32, codes & 0xFFFFFFFF
    order = np.lexsort((second, -bags, first))
    first, second = first[order], second[order]
    rows, starts = np.unique(first, return_index=True)
    ends = [*starts[1:], len(first)]
    return {
        int(row): second[start : min(start + count, end)].tolist()
        for row, start, end in zip(rows, starts, ends, strict=True)
    }


class _Pairs:
    """Pairs of rows, and the bags that read both."""

    def __init__(self) -> None:
        self.codes: Ints = np.zeros(0, np.int64)
        self.bags: Ints = np.zeros(0, np.int64)

    def add(self, first: Ints, second: Ints) -> None:
        """Counts each pair once more."""
        codes, bags = np.unique(first << 32 | second, return_counts=True)
        every = np.concatenate([self.codes, codes])
        self.codes, place = np.unique(every, return_inverse=True)
        counted = np.concatenate([self.bags, bags])
        self.bags = np.bincount(place, weights=counted).astype(np.int64)

"""Which layouts to look at first, and which lie beside a good one."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from .screen import Screen
from .spec import LayoutSpec, PartSpec
from .trace import IntArray

__all__ = ["Space"]

_KEYS_MAX = 65_536
_COMPANIONS_MAX = 64
#: Bins an id at which a cuckoo code of three hashes loses next to nothing (Angel et al., 2018).
_CUCKOO_BINS_AN_ID = 1.5
_QUERIES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)


@dataclass(frozen=True)
class Space:
    """The layouts of one table: makes specs that are valid for it.

    Attributes:
        rows: rows of the table.
        ids_max: most ids of a bag.
        drop: which ids go first.
        seed: the layouts' seed, 64 hexadecimal digits.
        companions_max: most companions that a row's bytes leave room for, at most 64.
    """

    rows: int
    ids_max: int
    drop: str
    seed: str
    companions_max: int = _COMPANIONS_MAX

    def layout(self, hot: PartSpec | None, full: PartSpec | None) -> LayoutSpec:
        """The layout of these parts."""
        return LayoutSpec(hot, full, self.ids_max, self.drop, self.seed)

    def fits(self, spec: LayoutSpec) -> bool:
        """Whether it is a layout of this table."""
        return (
            bool(spec.parts)
            and spec.keys <= _KEYS_MAX
            and all(map(self._holds, spec.parts))
            and (spec.hot is None or spec.hot.rows <= self.hot_rows_max(spec.full is None))
        )

    def hot_rows_max(self, is_alone: bool) -> int:
        """Most hot rows: with a full part half of the table, alone a quarter."""
        return max(self.rows // (4 if is_alone else 2), 1)

    def full_parts(self, counts: IntArray) -> list[PartSpec]:
        """Full parts for bags of which ``counts`` distinct ids are left for them."""
        return [PartSpec(self.rows, bins, queries) for bins, queries in _shapes(counts, self.rows)]

    def hot_parts(self, screen: Screen, rows: int) -> list[PartSpec]:
        """Hot parts of ``rows``."""
        counts = np.maximum(screen.hot_counts(rows), 1)
        return [PartSpec(rows, bins, queries) for bins, queries in _shapes(counts, rows)]

    def cold_parts(self, screen: Screen, rows: int) -> list[PartSpec]:
        """Full parts to stand beside a hot part of ``rows``."""
        return self.full_parts(np.maximum(screen.distinct - screen.hot_counts(rows), 1))

    def hot_rows(self, screen: Screen) -> list[int]:
        """Numbers of hot rows: powers of two, from those that a bag meets to a quarter of all."""
        least = max(int(np.median(screen.distinct)), 8)
        sizes = (1 << power for power in range(least.bit_length(), 32))
        return [size for size in sizes if size <= self.hot_rows_max(is_alone=True)]

    def cuckoo(self, screen: Screen) -> Iterator[LayoutSpec]:
        """Each row in three bins, without and with a hot part."""
        for share in (1.0, _CUCKOO_BINS_AN_ID, 2.0):
            bins = math.ceil(share * _quantile(screen.distinct, 0.99))
            yield self.layout(None, PartSpec(self.rows, min(bins, self.rows), 1, hashes=3))
        for rows in self.hot_rows(screen)[1::3]:
            counts = screen.hot_counts(rows)
            cold = _quantile(screen.distinct - counts, 0.99)
            bins = max(math.ceil(_CUCKOO_BINS_AN_ID * cold), 1)
            hot = PartSpec(rows, min(max(_quantile(counts, 0.9), 1), rows))
            yield self.layout(hot, PartSpec(self.rows, min(bins, self.rows), 1, hashes=3))

    def with_companions(self, spec: LayoutSpec, counts: Sequence[int]) -> Iterator[LayoutSpec]:
        """``spec`` with companions in some of its parts, and fewer bins that they make up for."""
        for count in counts:
            for share in (1.0, 0.6, 0.35):
                hot, full = spec.hot, spec.full
                if full is not None:
                    yield self.layout(hot, _collocated(full, count, share))
                if hot is not None:
                    yield self.layout(_collocated(hot, count, share), full)
                if hot is not None and full is not None:
                    yield self.layout(
                        _collocated(hot, count, share), _collocated(full, count, share)
                    )

    def around(self, spec: LayoutSpec) -> tuple[list[PartSpec | None], list[PartSpec | None]]:
        """Hot and full parts like those of ``spec``, itself among them: any pair is a layout."""
        hots: list[PartSpec | None] = [None]
        if spec.hot is not None:
            most = self.hot_rows_max(spec.full is None)
            sizes = {min(round(spec.hot.rows * share), most) for share in _ROWS_BESIDE}
            hots = [
                part
                for rows in sorted(sizes)
                for part in _part_around(replace(spec.hot, rows=max(rows, 1)))
                if self._holds(part)
            ]
        fulls: list[PartSpec | None] = [None]
        if spec.full is not None:
            fulls = [part for part in _part_around(spec.full) if self._holds(part)]
        return hots, fulls

    def _holds(self, part: PartSpec) -> bool:
        return (
            1 <= part.bins <= part.rows <= self.rows
            and 1 <= part.queries <= 4096
            and 1 <= part.hashes <= 3
            and 0 <= part.companions <= self.companions_max
        )


_ROWS_BESIDE = (0.4, 0.7, 0.85, 1.0, 1.2, 1.5, 2.5)
_BINS_BESIDE = (0.45, 0.65, 0.8, 0.9, 1.0, 1.12, 1.3, 1.6, 2.2)


def _part_around(part: PartSpec) -> list[PartSpec]:
    """Parts with somewhat other bins, queries and companions."""
    queries = {part.queries - 1, part.queries, part.queries + 1}
    queries |= {round(part.queries * share) for share in (0.5, 0.7, 1.5, 2.0)}
    queries.discard(0)
    if part.hashes > 1:
        queries = {part.queries}
    companions = {part.companions}
    if part.companions:
        companions |= {part.companions + 1, max(part.companions - 1, 1)}
    found = []
    for count in sorted(queries):
        # Other queries go with as many keys.
        bins = {round(part.keys / count * share) for share in _BINS_BESIDE}
        bins |= {part.bins - 1, part.bins + 1} if count == part.queries else set()
        found += [
            replace(part, bins=min(bin_count, part.rows), queries=count, companions=others)
            for bin_count in sorted(bins)
            if bin_count > 0
            for others in sorted(companions)
        ]
    return found


def _collocated(part: PartSpec, companions: int, share: float) -> PartSpec:
    bins = min(max(round(part.bins * share), 1), part.rows)
    return replace(part, companions=companions, bins=bins)


def _shapes(counts: IntArray, rows: int) -> Iterator[tuple[int, int]]:
    """(bins, queries) for bags of ``counts`` ids: from room for few to room to spare."""
    typical, most = max(float(np.mean(counts)), 1.0), max(_quantile(counts, 0.99), 1)
    for queries in _QUERIES:
        if queries > most:
            break
        # By half octaves.
        least = max(0.35 * typical / queries, 1.0)
        last = min(24.0 * typical / queries, rows, _KEYS_MAX / queries)
        steps = math.ceil(2 * math.log2(max(last / least, 1.0)))
        bins = {round(least * 2 ** (step / 2)) for step in range(steps + 1)}
        yield from ((count, queries) for count in sorted(bins) if count <= min(last, rows))


def _quantile(counts: IntArray, share: float) -> int:
    ordered = np.sort(counts)
    return int(ordered[min(math.ceil(share * len(ordered)), len(ordered)) - 1])

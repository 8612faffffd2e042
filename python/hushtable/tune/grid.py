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
            and all(
                1 <= part.bins <= part.rows <= self.rows
                and 1 <= part.queries <= 4096
                and 1 <= part.hashes <= 3
                and 0 <= part.companions <= self.companions_max
                for part in spec.parts
            )
            and (spec.hot is None or spec.hot.rows < self.rows or spec.full is None)
        )

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
        """Numbers of hot rows: powers of two, from those that a bag meets to half the table."""
        least = max(int(np.median(screen.distinct)), 8)
        sizes = (1 << power for power in range(least.bit_length(), 32))
        return [size for size in sizes if size < self.rows]

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

    def beside(self, spec: LayoutSpec) -> Iterator[LayoutSpec]:
        """Layouts one step from ``spec``: the bins, queries, rows or companions of one part.

        Both parts' bins are also moved at once, one up and one down.
        """
        hot, full = spec.hot, spec.full
        found = []
        if full is not None:
            found += [self.layout(hot, part) for part in _part_beside(full)]
        if hot is not None:
            found += [self.layout(part, full) for part in _part_beside(hot)]
            for rows in (round(hot.rows / 1.4), round(hot.rows * 1.4)):
                if rows < self.rows:
                    found.append(self.layout(replace(hot, rows=rows), full))
        if hot is not None and full is not None:
            for share in (0.8, 1.25):
                found.append(self.layout(_scaled(hot, share), _scaled(full, 1 / share)))
                found.append(self.layout(_scaled(hot, share), _scaled(full, share)))
        yield from (other for other in found if other != spec and self.fits(other))


def _part_beside(part: PartSpec) -> Iterator[PartSpec]:
    for share in (0.7, 0.88, 1.14, 1.4):
        yield _scaled(part, share)
    if part.hashes == 1:
        for queries in (part.queries - 1, part.queries + 1):
            if queries:
                yield replace(part, queries=queries)
        if part.queries > 1:  # as many keys in more bins cost less work
            yield replace(_scaled(part, 1.6), queries=part.queries // 2)
    if part.companions:
        for companions in (part.companions - 1, part.companions + 1, part.companions * 2):
            if companions:
                yield replace(part, companions=companions)


def _scaled(part: PartSpec, share: float) -> PartSpec:
    bins = max(round(part.bins * share), part.bins + (1 if share > 1 else -1), 1)
    if share < 1:
        bins = max(min(round(part.bins * share), part.bins - 1), 1)
    return replace(part, bins=min(bins, part.rows))


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

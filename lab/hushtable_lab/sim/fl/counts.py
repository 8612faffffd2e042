"""Bytes that a round reads from and writes to the SSD, counted from the tree.

A round of K requests fetches k rows (k = K for Path ORAM+), then puts k back.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from hushtable._fdp import DEFAULT
from hushtable.errors import ConfigError

from .datasets import CHUNK
from .geometry import BUCKET_BYTES, Tree, own_tree, path_tree, raw_tree

__all__ = ["CACHED_LEVELS", "DESIGNS", "Design", "Pages", "distinct_nodes"]

#: Levels that hushtable keeps in memory by default: 64 MiB.
CACHED_LEVELS = 14


@dataclass(frozen=True, slots=True)
class Pages:
    """Pages that a round moves, in the mean; 4,096 B each."""

    read: float
    written: float

    @property
    def read_bytes(self) -> float:
        """Bytes read."""
        return self.read * BUCKET_BYTES

    @property
    def written_bytes(self) -> float:
        """Bytes written."""
        return self.written * BUCKET_BYTES


@dataclass(frozen=True, slots=True)
class Design:
    """How the main ORAM is kept, and which pages it moves.

    Attributes:
        name: for people.
        oram: ``raw`` or ``path``.
        is_ours: hushtable's tree and mechanism, else the published ones.
        union_reads: a page on several of a round's paths is read once.
        coalesce: a page on several of a round's eviction paths is read and written once.
        cached_levels: levels from the root that are in memory, and neither read nor written; of
            hushtable's tree, whose root has more children, as many buckets as these have.
        is_paired: of hushtable's trees one of a folder that was made before, with two copies.
        mechanism: how k is drawn.
        chunk: requests that k is drawn for at once; None for all of a round's.
        bucket_kib: KiB of a bucket of hushtable's tree: 4, 8 or 16.
    """

    name: str
    oram: str
    is_ours: bool = False
    union_reads: bool = False
    coalesce: bool = False
    cached_levels: int = 0
    is_paired: bool = False
    mechanism: str = "eq3"
    chunk: int | None = None
    bucket_kib: int = 4

    def tree(self, rows: int, row_bytes: int, requests: int = 10_000) -> Tree:
        """The tree of a table, for rounds of up to ``requests``."""
        if self.oram == "path":
            return path_tree(rows, row_bytes)
        if not self.is_ours:
            return raw_tree(rows, row_bytes)
        return own_tree(
            rows,
            row_bytes,
            bucket_bytes=1024 * self.bucket_kib,
            cached_levels=self.cached_levels,
            requests=int(requests),
            is_paired=self.is_paired,
        )

    def file_bytes(self, tree: Tree) -> int:
        """Bytes on the SSD: of hushtable's own tree with the places to spare for a round, so that
        what the last committed round wrote is never overwritten."""
        # What is in memory has its place in the file too, for when the service ends.
        return tree.file_bytes or tree.pages * BUCKET_BYTES

    def pages(self, tree: Tree, requests: float, k: float) -> Pages:
        """Pages that a round of ``requests`` that fetches ``k`` rows moves.

        Path ORAM+ reads and writes a path for each request when it fetches and again when it puts
        back: 2 · pages · 4,096 B a request, whatever k. The RAW ORAM reads a path for each of k
        rows, and reads and writes one for every A rows put back: L · 4,096 / A B written a row.
        """
        # A mean of outcomes that are at most K may be a rounding above it.
        k = min(k, float(requests)) if k <= requests * (1 + 1e-9) else k
        if not 0 < k <= requests:
            raise ConfigError(f"k is {k:g}, but must be 1 to the {requests:g} requests")
        if tree.oram == "path":
            moved = 2.0 * requests * tree.path_pages
            return Pages(moved, moved)
        # Leaves stay on the SSD.
        cached = min(tree.boundary or self.cached_levels, tree.levels - 1)
        below = range(cached, tree.levels)
        evictions = k / tree.period
        fetched = (
            sum(distinct_nodes(tree.nodes(level), k) for level in below)
            if self.union_reads
            else k * (tree.levels - cached)
        )
        evicted = (
            sum(min(tree.nodes(level), evictions) for level in below)
            if self.coalesce
            else evictions * (tree.levels - cached)
        )
        own = tree.bucket_pages
        return Pages((fetched + evicted) * own, evicted * own)


def distinct_nodes(nodes: float, paths: float) -> float:
    """Of a level's ``nodes``, those that ``paths`` independent, uniformly random paths pass, in the
    mean: n (1 - (1 - 1/n)^paths)."""
    if nodes == 1:
        return min(1.0, paths)
    return -nodes * math.expm1(paths * math.log1p(-1 / nodes))


PATH_PLUS = Design("Path ORAM+", "path")
FEDORA = Design("FEDORA", "raw", chunk=CHUNK)
HUSHTABLE = Design(
    "hushtable",
    "raw",
    is_ours=True,
    union_reads=True,
    coalesce=True,
    cached_levels=CACHED_LEVELS,
    mechanism=DEFAULT,
)
#: The published baseline, the published system, and ours.
DESIGNS = (PATH_PLUS, FEDORA, HUSHTABLE)

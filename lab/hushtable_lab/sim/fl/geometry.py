"""The trees: how many blocks, levels and pages a table takes, from its rows' size alone.

FEDORA (ASPLOS 2025), sections 4.4 and 6.1. A page, and with it a bucket of the RAW ORAM, has
4,096 bytes: 32 seal it (a nonce and a tag), the rest are blocks of a row, its id and its leaf.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from hushtable import _native
from hushtable.errors import ConfigError

__all__ = ["BUCKET_BYTES", "ROWS_MAX", "Tree", "margin", "own_tree", "path_tree", "raw_tree"]

#: Bytes of a page of the SSD, and of a bucket of the RAW ORAM.
BUCKET_BYTES = 4096
#: KiB that a bucket of hushtable's tree may have.
BUCKET_KIB = (4, 8, 16)
#: Bytes of a page that hold no block: a nonce and a tag.
SEAL_BYTES = 32
#: The most rows of a table, as in the oblivious memory itself.
ROWS_MAX = 1 << 31
#: The artifact fills its trees to three quarters at most, then rounds up to a power of two.
LOAD_MAX = 0.75
_PATH_SLOTS_MIN = 3
_RAW_SLOTS_MIN = 4


@dataclass(frozen=True, slots=True)
class Tree:
    """A tree of pages on an SSD.

    Attributes:
        oram: ``raw`` or ``path``.
        rows: of the table.
        row_bytes: of one row.
        slots: Z, blocks of a bucket.
        period: A, blocks that enter the stash between two evictions; 0 for Path ORAM.
        levels: L, levels of buckets, root and leaves included.
        levels_per_page: levels of a subtree that shares a page; 1 for the RAW ORAM.
        pages: of the whole tree, one copy.
        fan: children of the root; all other nodes have two.
        bucket_pages: pages of a bucket of the RAW ORAM.
        boundary: the first level on the SSD, where the levels above are kept in memory.
        file_bytes: of the file where it is more than one copy of each page; 0 where not.
    """

    oram: str
    rows: int
    row_bytes: int
    slots: int
    period: int
    levels: int
    levels_per_page: int
    pages: int
    fan: int = 2
    bucket_pages: int = 1
    boundary: int = 0
    file_bytes: int = 0

    def nodes(self, level: int) -> int:
        """Buckets of a level."""
        return 1 if level == 0 else self.fan << (level - 1)

    @property
    def buckets(self) -> int:
        """Buckets of the tree."""
        return sum(self.nodes(level) for level in range(self.levels))

    @property
    def path_pages(self) -> int:
        """Pages from the root to a leaf."""
        return -(-self.levels // self.levels_per_page)

    @property
    def tree_bytes(self) -> int:
        """Bytes of all pages, one copy."""
        return self.pages * BUCKET_BYTES

    @property
    def load(self) -> float:
        """Rows over the blocks that there is room for."""
        return self.rows / (self.buckets * self.slots)

    @property
    def valid_tree_bytes(self) -> int:
        """Bytes of the VTree in DRAM: Z valid bits a bucket, in groups of 512 B sealed by a tag and
        the counters of two children (sections 4.4 and 5.2, where three tables take 2 to 112 MB)."""
        if self.oram != "raw":
            return 0
        bits = self.buckets * self.slots
        return math.ceil(bits / 8 * 512 / (512 - 48))


def margin(slots: int, period: float) -> float:
    """Ring ORAM's condition, Z ln(2Z/A) + A/2 - Z - ln 4: positive where its stash is bounded."""
    return slots * math.log(2 * slots / period) + period / 2 - slots - math.log(4)


def raw_tree(rows: int, row_bytes: int) -> Tree:
    """The RAW ORAM's tree as published: the largest eviction period that Ring ORAM's condition
    allows, filled by three quarters at most.

    Args:
        rows: of the table, 1 to 2^31.
        row_bytes: of one row.

    Raises:
        ConfigError: no such tree.
    """
    _check(rows, row_bytes)
    id_bytes = _bytes_for(rows)
    leaf_bytes = 1
    while True:
        # A leaf's width depends on the number of leaves, which depends on Z: from below.
        slots = (BUCKET_BYTES - SEAL_BYTES) // (row_bytes + id_bytes + leaf_bytes)
        if slots < _RAW_SLOTS_MIN:
            raise ConfigError(
                f"row_bytes is {row_bytes}: {slots} such blocks fit a bucket of {BUCKET_BYTES} B, "
                f"but at least {_RAW_SLOTS_MIN} must"
            )
        period = next((a for a in range(2 * slots - 1, 1, -1) if margin(slots, a) > 0), 1)
        leaves = max(_power_of_two(math.ceil(rows / LOAD_MAX / slots)) // 2, 2)
        if _bytes_for(leaves) <= leaf_bytes:
            levels = leaves.bit_length()
            return Tree("raw", rows, row_bytes, slots, period, levels, 1, 2 * leaves - 1)
        leaf_bytes = _bytes_for(leaves)


def own_tree(
    rows: int,
    row_bytes: int,
    *,
    bucket_bytes: int = BUCKET_BYTES,
    cached_levels: int = 14,
    requests: int = 10_000,
    is_paired: bool = False,
) -> Tree:
    """hushtable's tree, as the oblivious memory itself shapes it: its stash is bounded for every
    sequence of requests, which the published tree's is not where rows are asked for in turn.

    Args:
        rows: of the table, 1 to 2^31.
        row_bytes: of one row.
        bucket_bytes: of a bucket, a multiple of the 4,096 of a page.
        cached_levels: as many buckets are in memory as so many levels of a binary tree have.
        requests: of the largest round: the file has places to spare for what it writes.
        is_paired: as folders were made before: two copies of each bucket, leaves a power of two.

    Raises:
        ConfigError: no such tree.
    """
    _check(rows, row_bytes)
    slots, period, levels, fan, boundary, file_bytes = _native.oram_shape(
        rows,
        row_bytes,
        bucket_bytes=bucket_bytes,
        cached_levels=cached_levels,
        requests=requests,
        is_paired=is_paired,
    )
    own = bucket_bytes // BUCKET_BYTES
    buckets = 1 + fan * ((1 << (levels - 1)) - 1)
    return Tree(
        "raw",
        rows,
        row_bytes,
        slots,
        period,
        levels,
        1,
        buckets * own,
        fan,
        own,
        boundary,
        file_bytes,
    )


def path_tree(rows: int, row_bytes: int) -> Tree:
    """Path ORAM+: Path ORAM whose pages hold subtrees, as published (section 6.1, ZeroTrace's).

    A page holds as many levels as leave room for three blocks a bucket, then as many blocks as fit:
    4, 3 and 2 levels of 3, 4 and 5 blocks for rows of 64, 128 and 256 B. That is what the artifact
    builds, filled by three quarters at most.

    Raises:
        ConfigError: no such tree.
    """
    _check(rows, row_bytes)
    id_bytes = _bytes_for(rows)
    leaf_bytes = 1
    while True:
        block_bytes = row_bytes + id_bytes + leaf_bytes
        fitting = [
            (height, slots)
            for height in range(1, 12)
            if (slots := (BUCKET_BYTES - SEAL_BYTES) // ((1 << height) - 1) // block_bytes)
            >= _PATH_SLOTS_MIN
        ]
        if not fitting:
            raise ConfigError(
                f"row_bytes is {row_bytes}, but {_PATH_SLOTS_MIN} blocks must fit a page of "
                f"{BUCKET_BYTES} B"
            )
        height, slots = fitting[-1]
        leaves = max(_power_of_two(math.ceil(rows / LOAD_MAX / slots)) // 2, 2)
        if _bytes_for(leaves) <= leaf_bytes:
            levels = leaves.bit_length()
            # The root's page has what is left over, so that all others are full.
            first = levels % height or height
            full = (levels - first) // height
            below = sum(1 << (first + height * level) for level in range(full))
            return Tree("path", rows, row_bytes, slots, 0, levels, height, 1 + below)
        leaf_bytes = _bytes_for(leaves)


def _check(rows: int, row_bytes: int) -> None:
    if not 1 <= rows <= ROWS_MAX:
        raise ConfigError(f"rows is {rows}, but must be 1 to {ROWS_MAX}")
    if row_bytes < 1:
        raise ConfigError(f"row_bytes is {row_bytes}, but must be at least 1")


def _bytes_for(count: int) -> int:
    """Bytes of a number up to ``count``: all ones is a dummy's."""
    return -(-count.bit_length() // 8)


def _power_of_two(count: int) -> int:
    return 1 << max(count - 1, 0).bit_length()

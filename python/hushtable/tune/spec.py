"""Layouts as they are proposed: what :class:`hushtable._native.Layout` is designed from."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from dataclasses import dataclass
from typing import Any

__all__ = ["FAMILIES", "LEAF_ROWS_MAX", "LayoutSpec", "PartSpec", "seed_text"]

#: Rows that one block of a key's expansion covers at most, as in crates/table (part.rs).
LEAF_ROWS_MAX = 512

#: Families in the order in which they are listed and drawn.
FAMILIES = (
    "plain",
    "hot",
    "collocated",
    "hot+collocated",
    "hot-only",
    "hot-only+collocated",
    "cuckoo",
    "hot+cuckoo",
)


@dataclass(frozen=True, slots=True)
class PartSpec:
    """One part of a layout.

    Attributes:
        rows: rows it covers: of the hot part those most read, of the full part all.
        bins: bins that the rows are cut into.
        queries: keys that every inference sends to each bin.
        hashes: bins that each row is stored in.
        companions: other rows stored beside each row.
    """

    rows: int
    bins: int
    queries: int = 1
    hashes: int = 1
    companions: int = 0

    @property
    def keys(self) -> int:
        """Keys that every inference sends."""
        return self.bins * self.queries

    @property
    def bin_rows(self) -> int:
        """Rows of a bin: over :data:`LEAF_ROWS_MAX`, its keys are trees."""
        return -(-self.rows // self.bins) * self.hashes

    def describe(self) -> str:
        """A few words."""
        words = f"{self.bins:,} bins x {self.queries}"
        if self.hashes > 1:
            words += f", {self.hashes} hashes"
        if self.companions:
            words += f", +{self.companions}"
        return words


@dataclass(frozen=True, slots=True)
class LayoutSpec:
    """A layout: its parts and rules, as in ``layout.json``.

    Attributes:
        hot: the part of the rows most read, or None.
        full: the part of all rows, or None: then what is not hot is always dropped.
        ids_max: most ids of one bag.
        drop: which ids go first where not all fit: ``most-frequent``, ``earliest`` or ``random``.
        seed: what permutations are made from, as 64 hexadecimal digits.
    """

    hot: PartSpec | None
    full: PartSpec | None
    ids_max: int
    drop: str
    seed: str

    @property
    def parts(self) -> tuple[PartSpec, ...]:
        """The parts there are, hot first."""
        return tuple(part for part in (self.hot, self.full) if part is not None)

    @property
    def keys(self) -> int:
        """Keys that every inference sends to each server."""
        return sum(part.keys for part in self.parts)

    @property
    def family(self) -> str:
        """What it is made of: one of :data:`FAMILIES`, or their like."""
        words = []
        if self.hot is not None:
            words.append("hot" if self.full is not None else "hot-only")
        if any(part.companions for part in self.parts):
            words.append("collocated")
        if any(part.hashes > 1 for part in self.parts):
            words.append("cuckoo")
        return "+".join(words) or "plain"

    def describe(self) -> str:
        """A line."""
        words = []
        if self.hot is not None:
            words.append(f"hot {self.hot.rows:,} rows: {self.hot.describe()}")
        if self.full is not None:
            words.append(f"full: {self.full.describe()}")
        return "; ".join(words)

    def to_dict(self) -> dict[str, Any]:
        """As in ``layout.json``."""
        return dataclasses.asdict(self)

    def to_json(self) -> str:
        """As the native module reads it."""
        return json.dumps(self.to_dict())


def seed_text(seed: int) -> str:
    """A layout's seed from a number: 64 hexadecimal digits."""
    return hashlib.blake2b(f"hushtable tune {seed}".encode(), digest_size=32).hexdigest()

"""Layouts, and the requests of whole inferences, by docs/layout-format.md."""

from __future__ import annotations

import json
import math
import os
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from blake3 import blake3

from .pair import convert, make, right_bits, with_bit, xor

_U64 = (1 << 64) - 1
DROP_RULES = ("most-frequent", "earliest", "random")


def mix(z: int) -> int:
    """The mixing of 64 bits that permutations use."""
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & _U64
    z = (z ^ z >> 27) * 0x94D049BB133111EB & _U64
    return z ^ z >> 31


class Permutation:
    """P_h of the numbers below `size`."""

    def __init__(self, size: int, seed: bytes, name: str) -> None:
        stream = blake3(name.encode(), key=seed).digest(length=48)
        self.size, self.keys = size, struct.unpack("<6Q", stream)
        self.b = math.isqrt(size - 1) + 1
        self.a = -(-size // self.b)

    def __call__(self, x: int) -> int:
        while True:
            u, v = divmod(x, self.b)
            for j, key in enumerate(self.keys):
                if j % 2 == 0:
                    u = (u + (mix(v ^ key) * self.a >> 64)) % self.a
                else:
                    v = (v + (mix(u ^ key) * self.b >> 64)) % self.b
            x = u * self.b + v
            if x < self.size:
                return x


class Part:
    """One part: where its rows lie, and how large its keys are."""

    def __init__(self, name: str, spec: dict[str, int], seed: bytes, row_bytes: int) -> None:
        self.rows, self.bins, self.queries = spec["rows"], spec["bins"], spec["queries"]
        self.hashes, self.companions = spec.get("hashes", 1), spec.get("companions", 0)
        self.slice = -(-self.rows // self.bins)
        places = self.slice * self.hashes
        self.leaf_count = -(-places // 512)
        leaf_rows = -(-places // self.leaf_count)
        self.leaf_rows = -(-leaf_rows // 16) * 16
        self.depth = (self.leaf_count - 1).bit_length()
        self.entry_bytes = row_bytes * (1 + self.companions)
        permutes = name == "full" or self.hashes > 1
        hashes = range(self.hashes) if permutes else ()
        self.permutations = [Permutation(self.rows, seed, f"{name} {h}") for h in hashes]

    def places(self, index: int) -> Iterator[tuple[int, int]]:
        """Bin and offset of a row, for each hash."""
        for h in range(self.hashes):
            x = self.permutations[h](index) if self.permutations else index
            yield x // self.slice, h * self.slice + x % self.slice


class Layout:
    """A layout as it came from a server."""

    def __init__(self, message: bytes) -> None:
        (length,) = struct.unpack("<I", message[:4])
        assert length <= 16_384
        document = json.loads(message[4 : 4 + length])
        assert (document["format"], document["format_version"]) == ("hushtable-layout", 1)
        self.table_version = bytes.fromhex(document["table_version"])
        self.rows, self.row_bytes = document["rows"], document["row_bytes"]
        spec = document["layout"]
        self.seed, self.ids_max = bytes.fromhex(spec["seed"]), spec["ids_max"]
        self.drop = spec.get("drop", "most-frequent")
        self.hot, self.full = (
            Part(name, spec[name], self.seed, self.row_bytes) if spec.get(name) else None
            for name in ("hot", "full")
        )
        self.parts = [part for part in (self.hot, self.full) if part]
        ids = struct.iter_unpack("<I", message[4 + length :])
        hot_rows, hot_companions = (self.hot.rows, self.hot.companions) if self.hot else (0, 0)
        counts = [hot_rows, hot_rows * hot_companions]
        counts.append(self.full.rows * self.full.companions if self.full else 0)
        self.lists = [[next(ids)[0] for _ in range(count)] for count in counts]
        assert next(ids, None) is None
        self.version = self._hash()
        assert self.version.hex() == document["layout_version"]

    def _hash(self) -> bytes:
        hasher = blake3(derive_key_context="hushtable layout v1")
        hasher.update(self.table_version + struct.pack("<QQ", self.rows, self.row_bytes))
        hasher.update(self.seed)
        hasher.update(struct.pack("<IB", self.ids_max, DROP_RULES.index(self.drop)))
        for part in (self.hot, self.full):
            if part is None:
                hasher.update(b"\0")
                continue
            numbers = (part.bins, part.queries, part.hashes, part.companions)
            hasher.update(struct.pack("<BQ4I", 1, part.rows, *numbers))
        for ids in self.lists:
            hasher.update(struct.pack(f"<Q{len(ids)}I", len(ids), *ids))
        return hasher.digest()

    def answer_bytes(self) -> int:
        """Bytes of an answer."""
        return sum(part.bins * part.queries * part.entry_bytes for part in self.parts)

    def stored(self, id: int) -> Iterator[tuple[int, int, int]]:
        """Where an id's entry is: number of the part, bin, offset."""
        for number, part in enumerate(self.parts):
            if part is self.full:
                index = id
            elif id in self.lists[0]:
                index = self.lists[0].index(id)
            else:
                continue
            yield from ((number, *place) for place in part.places(index))

    def companions(self, id: int, part: Part) -> list[int]:
        """What an id's entry holds beside its row."""
        index = id if part is self.full else self.lists[0].index(id)
        ids = self.lists[2] if part is self.full else self.lists[1]
        return ids[index * part.companions :][: part.companions]


@dataclass
class Plan:
    """An offset for each key, and for each id that was not dropped its key and place in it."""

    offsets: list[int | None]
    found: dict[int, tuple[int, int]]


def plan(layout: Layout, bag: Sequence[int]) -> Plan:
    """A maximum matching of a bag's ids and bins, in the order of the rule."""
    assert len(bag) <= layout.ids_max
    places = {id: list(layout.stored(id)) for id in bag}
    ids = list(places)
    if layout.drop == "most-frequent":
        hot = {
            id: next(layout.hot.places(index))[1]
            for index, id in enumerate(layout.lists[0])
            if layout.hot and id in places
        }
        ids.sort(key=lambda id: (-bag.count(id), hot.get(id, 1 << 32), bag.index(id)))
    elif layout.drop == "random":
        ids.sort(key=lambda _: os.urandom(8))
    bins: dict[tuple[int, int], dict[int, int]] = {}

    def put(id: int, seen: set[tuple[int, int]]) -> bool:
        for number, bin, offset in places[id]:
            if (number, bin) in seen:
                continue
            seen.add((number, bin))
            held = bins.setdefault((number, bin), {})
            if len(held) < layout.parts[number].queries:
                held[id] = offset
                return True
            for other in list(held):
                if put(other, seen):
                    del held[other]
                    held[id] = offset
                    return True
        return False

    for id in ids:
        put(id, set())
    offsets: list[int | None] = []
    found: dict[int, tuple[int, int]] = {}
    for number, part in enumerate(layout.parts):
        for bin in range(part.bins):
            held = bins.get((number, bin), {})
            for id, offset in held.items():
                for place, brought in enumerate([id, *layout.companions(id, part)]):
                    if brought in places:
                        found.setdefault(brought, (len(offsets), place))
                offsets.append(offset)
            offsets += [None] * (part.queries - len(held))
    return Plan(offsets, found)


def roots(seed: bytes, count: int) -> list[bytes]:
    """The root seeds of a server's keys."""
    hasher = blake3(seed, derive_key_context="hushtable batch request roots v1")
    stream = hasher.digest(length=16 * count)
    return [with_bit(stream[at : at + 16], 0) for at in range(0, 16 * count, 16)]


def request(
    layout: Layout, offsets: Sequence[int | None], prg: int, seeds: Sequence[bytes] | None = None
) -> tuple[bytes, bytes]:
    """The requests to left and right that ask each key's bin for its offset."""
    seeds = seeds or (os.urandom(16), os.urandom(16))
    left, right = (bytes([1, side, prg, 0]) + seeds[side] for side in (0, 1))
    pairs = zip(*(roots(seed, len(offsets)) for seed in seeds), strict=True)
    parts = (part for part in layout.parts for _ in range(part.bins * part.queries))
    for part, offset, pair in zip(parts, offsets, pairs, strict=True):
        offset, leaf_bytes = offset or 0, part.leaf_rows // 8
        if part.leaf_count == 1:
            bits = convert(prg, pair[0])[:leaf_bytes]
            right += xor(bits, (1 << offset).to_bytes(leaf_bytes, "little"))
            continue
        leaf, place = divmod(offset, part.leaf_rows)
        words = make(prg, 0, 512 * part.leaf_count, 512 * leaf + place, pair)
        key = b"".join(word for word, _ in words.levels) + right_bits(words.levels)
        left, right = (to + key + words.leaf[:leaf_bytes] for to in (left, right))
    return left, right


def rows(layout: Layout, planned: Plan, left: bytes, right: bytes) -> dict[int, bytes]:
    """The rows that arrived, by id."""
    assert len(left) == len(right) == layout.answer_bytes()
    entries, starts, at = xor(left, right), [], 0
    for part in layout.parts:
        for _ in range(part.bins * part.queries):
            starts.append(at)
            at += part.entry_bytes
    return {
        id: entries[starts[key] + place * layout.row_bytes :][: layout.row_bytes]
        for id, (key, place) in planned.found.items()
    }

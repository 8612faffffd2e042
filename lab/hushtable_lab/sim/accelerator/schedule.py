"""In which order a tree of ciphertexts is worked through, and what that moves to and from DRAM."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil, inf, log2

__all__ = ["SCHEDULES", "Moves", "Op", "Schedule", "Tree", "expansion", "plan", "tournament"]

#: Operations further back than this have long been finished: no one waits for them.
_FAR = 48
#: Nodes of an expansion's second tree are numbered from here.
_SECOND = 1 << 40


@dataclass(frozen=True, slots=True)
class Schedule:
    """An order of the operations of a tree.

    Attributes:
        is_hierarchical: in subtrees whose working set fits the register file.
        is_depth_first: an operation as soon as its inputs are there; else level by level.
        overlaps: digits are multiplied and added as soon as they are transformed (reduction
            overlapping), so that they take no room.
        subtree: depth of the subtrees; None for the deepest that fits.
    """

    is_hierarchical: bool = True
    is_depth_first: bool = True
    overlaps: bool = True
    subtree: int | None = None


#: By the names that the paper draws.
SCHEDULES = {
    "bfs": Schedule(False, False, False),
    "dfs": Schedule(False, True, False),
    "bfs-hs": Schedule(True, False, False),
    "dfs-hs": Schedule(True, True, False),
    "dfs-hs-ro": Schedule(True, True, True),
}


@dataclass(frozen=True, slots=True)
class Tree:
    """A tree of ciphertexts: an expansion (one to many) or a tournament (many to one).

    Attributes:
        leaves: ciphertexts at its wide end.
        is_expansion: which of the two.
        ct_bytes: of a ciphertext.
        key_bytes: of a level's key.
        digits: l.
        also: leaves of a second expansion that goes through the same levels with the same keys.
    """

    leaves: int
    is_expansion: bool
    ct_bytes: int
    key_bytes: int
    digits: int
    also: int = 0

    @property
    def levels(self) -> int:
        """Of operations."""
        return ceil(log2(self.leaves)) if self.leaves > 1 else 0

    @property
    def temporary_bytes(self) -> int:
        """Of the digits of one operation that are kept without reduction overlapping."""
        return self.digits * self.ct_bytes // (2 if self.is_expansion else 1)

    def width(self, level: int) -> int:
        """Ciphertexts that go into a level of a tournament."""
        return -(-self.leaves // (1 << level))

    def live(self, depth: int, is_depth_first: bool) -> int:
        """Ciphertexts of a subtree that are held at once, and those being fetched and stored.

        A tournament's product starts from an input, in whose place it stays; an expansion needs its
        input until both outputs are there. Two more are fetched for the next product; two leaves
        are being stored and one root fetched for the next substitution.
        """
        waiting = depth + 1 if is_depth_first else max(2, 1 << (depth - 1))
        return waiting + (2 if not self.is_expansion else 3 + (1 if is_depth_first else 2))

    def subtree_bytes(self, depth: int, schedule: Schedule) -> int:
        """Working set of a subtree."""
        return (
            depth * self.key_bytes
            + self.live(depth, schedule.is_depth_first) * self.ct_bytes
            + (0 if schedule.overlaps else self.temporary_bytes)
        )

    def subtree_depth(self, rf_bytes: int, schedule: Schedule) -> int:
        """The one that was asked for, or the deepest whose working set fits; 1 where none does."""
        if schedule.subtree is not None:
            return max(1, min(schedule.subtree, self.levels))
        depth = 1
        while depth < self.levels and self.subtree_bytes(depth + 1, schedule) <= rf_bytes:
            depth += 1
        return depth


@dataclass(frozen=True, slots=True)
class Op:
    """An operation with what it moves.

    Attributes:
        after: earlier operations whose results it takes, by how many back they are.
        ct_loads: ciphertexts fetched for it.
        key_loads: keys fetched for it.
        ct_stores: ciphertexts that it lets go to DRAM.
        outputs: ciphertexts that it makes.
    """

    after: tuple[int, ...]
    ct_loads: int
    key_loads: int
    ct_stores: int
    outputs: int


@dataclass(frozen=True)
class Moves:
    """A tree's operations in order, those of each subtree together.

    Attributes:
        ops: in order.
        blocks: where each subtree begins, and after the last one the number of operations.
        depth: of the subtrees.
        room: ciphertexts that there are places for.
        working_set_bytes: of a subtree.
        ct_bytes: moved, of ciphertexts.
        key_bytes: moved, of keys.
    """

    ops: tuple[Op, ...]
    blocks: tuple[int, ...]
    depth: int
    room: int
    working_set_bytes: int
    ct_bytes: int
    key_bytes: int

    def repeated(self, times: int) -> Moves:
        """The same for one query after another, without a pause."""
        if times == 1:
            return self
        many = len(self.ops)
        starts = [one * many + at for one in range(times) for at in self.blocks[:-1]]
        return replace(self, ops=self.ops * times, blocks=(*starts, many * times))


def _order(tree: Tree, depth: int, is_depth_first: bool) -> Iterator[list[tuple[int, int]]]:
    """Subtrees in order, each a list of (level, node)."""
    for low in range(0, tree.levels, depth):
        high = min(low + depth, tree.levels)
        if tree.is_expansion:
            for first, leaves in ((0, tree.leaves), (_SECOND, tree.also)):
                last = min(high, ceil(log2(leaves))) if leaves > 1 else 0
                for root in range(min(1 << low, leaves) if low < last else 0):
                    yield list(_subtree_down(tree, low, last, first + root, is_depth_first))
        else:
            for root in range(tree.width(high)):
                yield list(_subtree_up(tree, low, high, root, is_depth_first))


def _subtree_down(
    tree: Tree, low: int, high: int, root: int, is_depth_first: bool
) -> Iterator[tuple[int, int]]:
    if not is_depth_first:
        nodes = [root]
        for level in range(low, high):
            yield from ((level, node) for node in nodes)
            nodes = [one for node in nodes for one in _children(tree, level, node)]
        return
    stack = [(low, root)]
    while stack:
        level, node = stack.pop()
        yield level, node
        if level + 1 < high:
            for child in reversed(_children(tree, level, node)):
                stack.append((level + 1, child))


def _subtree_up(
    tree: Tree, low: int, high: int, root: int, is_depth_first: bool
) -> Iterator[tuple[int, int]]:
    """An operation (level, node) makes value ``node`` of ``level + 1``."""
    if not is_depth_first:
        for level in range(low, high):
            first = root << (high - 1 - level)
            last = min((root + 1) << (high - 1 - level), tree.width(level + 1))
            for node in range(first, last):
                if 2 * node + 1 < tree.width(level):
                    yield level, node
        return
    stack = [(high - 1, root, False)]
    while stack:
        level, node, is_ready = stack.pop()
        if node >= tree.width(level + 1):
            continue
        if is_ready or level == low:
            if 2 * node + 1 < tree.width(level):
                yield level, node
            continue
        stack.append((level, node, True))
        stack.append((level - 1, 2 * node + 1, False))
        stack.append((level - 1, 2 * node, False))


def plan(tree: Tree, schedule: Schedule, rf_bytes: int) -> Moves:
    """Orders a tree's operations and follows what the register file holds.

    The order is known beforehand, so that when room is needed, that goes which is needed again
    last; a ciphertext that is needed again is stored as it goes. A subtree's results are stored as
    they are made: they are for another subtree, or the answer. The digits' temporaries and the room
    to fetch ahead are no part of what can be held.
    """
    if schedule.is_hierarchical:
        depth = tree.subtree_depth(rf_bytes, schedule)
    else:
        depth = max(1, tree.levels) if schedule.is_depth_first else 1
    ahead = 3 if tree.is_expansion else 2
    temporary = 0 if schedule.overlaps else tree.temporary_bytes
    used = tree.subtree_bytes(depth, schedule)
    subtrees = list(_order(tree, depth, schedule.is_depth_first))
    register = _RegisterFile(rf_bytes - temporary - ahead * tree.ct_bytes, tree, subtrees)
    made: dict[tuple[int, int], int] = {}
    ops: list[Op] = []
    blocks: list[int] = []
    ct_moved = key_moved = 0
    for subtree in subtrees:
        blocks.append(len(ops))
        for level, node in subtree:
            takes, gives = _values(tree, level, node)
            key_loads, stores = register.fetch((-1, level), tree.key_bytes, len(ops))
            loads = 0
            for one in takes:
                is_load, gone = register.fetch(one, tree.ct_bytes, len(ops))
                loads += is_load
                stores += gone
            after = tuple(
                len(ops) - made[one] for one in takes if one in made and len(ops) - made[one] < _FAR
            )
            for one in takes:
                register.drop(one)
            for one in gives:
                made[one] = len(ops)
                stores += register.keep(one, len(ops))
            ops.append(Op(after, loads, key_loads, stores, len(gives)))
            ct_moved += (loads + stores) * tree.ct_bytes
            key_moved += key_loads * tree.key_bytes
    blocks.append(len(ops))
    keys = min(depth, max(1, (rf_bytes - temporary) // tree.key_bytes)) * tree.key_bytes
    spare = max(4, (rf_bytes - temporary - keys) // tree.ct_bytes)
    return Moves(tuple(ops), tuple(blocks), depth, spare, used, ct_moved, key_moved)


class _RegisterFile:
    """What is held, and when each thing is needed next."""

    def __init__(
        self, capacity: int, tree: Tree, subtrees: Sequence[Sequence[tuple[int, int]]]
    ) -> None:
        self.free, self.ct_bytes = capacity, tree.ct_bytes
        self.held: dict[tuple[int, int], tuple[int, bool]] = {}
        self.uses: dict[tuple[int, int], deque[int]] = {}
        self.subtree: list[int] = []
        at = 0
        for index, subtree in enumerate(subtrees):
            for level, node in subtree:
                for one in (*_values(tree, level, node)[0], (-1, level)):
                    self.uses.setdefault(one, deque()).append(at)
                self.subtree.append(index)
                at += 1

    def fetch(self, value: tuple[int, int], size: int, at: int) -> tuple[int, int]:
        """Has it held for operation ``at``: fetches made, and stores for its room."""
        uses = self.uses[value]
        while uses and uses[0] <= at:
            uses.popleft()
        if value in self.held:
            return 0, 0
        return 1, self._put(value, size, False)

    def keep(self, value: tuple[int, int], at: int) -> int:
        """A result of operation ``at``: stores made."""
        uses = self.uses.get(value)
        if not uses or self.subtree[uses[0]] != self.subtree[at]:
            return 1
        return self._put(value, self.ct_bytes, True)

    def drop(self, value: tuple[int, int]) -> None:
        """No one needs it any more."""
        if value in self.held:
            self.free += self.held.pop(value)[0]

    def _put(self, value: tuple[int, int], size: int, is_dirty: bool) -> int:
        stores = 0
        while self.free < size and self.held:
            last = max(self.held, key=self._next)
            gone, was_dirty = self.held.pop(last)
            self.free += gone
            stores += was_dirty
        self.held[value] = (size, is_dirty)
        self.free -= size
        return stores

    def _next(self, value: tuple[int, int]) -> tuple[float, int]:
        uses = self.uses.get(value)
        # What the operation at hand takes has no later use, and must not go before it ran.
        if not uses:
            return (inf, 0) if value[0] < 0 else (-1.0, 0)
        return float(uses[0]), value[0]


def _values(
    tree: Tree, level: int, node: int
) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """What an operation takes, and what it makes."""
    if not tree.is_expansion:
        # A column without an opponent goes up as it is, under the name it was made by.
        return [_made_by(tree, (level, 2 * node + side)) for side in (0, 1)], [(level + 1, node)]
    return [(level, node)], [(level + 1, one) for one in _children(tree, level, node)]


def _children(tree: Tree, level: int, node: int) -> list[int]:
    leaves, at = (tree.also, node - _SECOND) if node >= _SECOND else (tree.leaves, node)
    return [node, node + (1 << level)] if at + (1 << level) < leaves else [node]


def _made_by(tree: Tree, value: tuple[int, int]) -> tuple[int, int]:
    level, node = value
    while level > 0 and 2 * node + 1 >= tree.width(level - 1):
        level, node = level - 1, 2 * node
    return level, node


def expansion(leaves: int, ct_bytes: int, key_bytes: int, digits: int, also: int = 0) -> Tree:
    """From one ciphertext to ``leaves``, a substitution a node; from another to ``also``."""
    return Tree(leaves, True, ct_bytes, key_bytes, digits, also)


def tournament(leaves: int, ct_bytes: int, key_bytes: int, digits: int) -> Tree:
    """From ``leaves`` ciphertexts to one, an external product a pair."""
    return Tree(leaves, False, ct_bytes, key_bytes, digits)

"""One core, function by function: units with queues and pipelines, and its DRAM channel."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

from .machine import Machine
from .schedule import Moves, Op, Tree

__all__ = ["Run", "Tasks", "run_tasks", "run_tree"]

#: Units in the order of :class:`Tasks`; "hbm" is the core's DRAM channel.
UNITS = ("ntt", "icrt", "elementwise", "automorphism", "hbm")
_NTT, _ICRT, _ELEMENTWISE, _AUTOMORPHISM, _HBM = range(5)
#: Subtrees that are run before and checked for a steady state, of a run of equal ones.
_WARM, _PERIODS = 160, (1, 2, 3, 4, 5, 6, 8, 16, 32)


@dataclass
class Tasks:
    """Functions in program order: flat lists, as there are millions.

    A task occupies its unit for ``busy`` cycles (its initiation interval) and gives its result
    ``depth`` cycles after that. It may start when all that it comes after have given theirs: of
    each such pair, ``after`` has the earlier task and ``task`` the later one.
    """

    unit: list[int] = field(default_factory=list)
    busy: list[float] = field(default_factory=list)
    depth: list[float] = field(default_factory=list)
    after: list[int] = field(default_factory=list)
    task: list[int] = field(default_factory=list)

    def add(self, unit: int, busy: float, depth: float, after: Sequence[int]) -> int:
        """Its number."""
        number = len(self.unit)
        self.unit.append(unit)
        self.busy.append(busy)
        self.depth.append(depth)
        for one in after:
            self.after.append(one)
            self.task.append(number)
        return number


def run_tasks(tasks: Tasks, counts: Sequence[int]) -> list[float]:
    """When each task's result is there, in cycles.

    Each kind of unit takes, of the tasks whose inputs are there, the first in program order, as
    soon as one of its ``counts`` units is free.
    """
    total = len(tasks.unit)
    waits = [0] * total
    # A task's pairs, one leading to the next; -1 ends them. A list a task would keep the garbage
    # collector busy for longer than all the rest takes.
    first, following = [-1] * total, [0] * len(tasks.after)
    followers = tasks.task
    for pair, (one, task) in enumerate(zip(tasks.after, followers, strict=True)):
        waits[task] += 1
        following[pair] = first[one]
        first[one] = pair
    ready: list[list[int]] = [[] for _ in counts]
    free = list(counts)
    done = [0.0] * total
    events: list[tuple[float, int]] = []
    for task in range(total):
        if not waits[task]:
            heappush(ready[tasks.unit[task]], task)
    unit, busy, depth = tasks.unit, tasks.busy, tasks.depth
    now = 0.0
    touched = set(range(len(counts)))
    while True:
        for kind in touched:
            queue = ready[kind]
            while queue and free[kind]:
                task = heappop(queue)
                free[kind] -= 1
                end = now + busy[task]
                done[task] = end + depth[task]
                # A unit is free before a result is there: -1 - kind says so to the event loop.
                heappush(events, (end, -1 - kind))
                heappush(events, (done[task], task))
        if not events:
            return done
        now = events[0][0]
        touched = set()
        while events and events[0][0] == now:
            _, what = heappop(events)
            if what < 0:
                free[-1 - what] += 1
                touched.add(-1 - what)
                continue
            pair = first[what]
            while pair >= 0:
                follower = followers[pair]
                pair = following[pair]
                waits[follower] -= 1
                if not waits[follower]:
                    heappush(ready[unit[follower]], follower)
                    touched.add(unit[follower])


@dataclass(frozen=True)
class Run:
    """A tree on one core.

    Attributes:
        cycles: from the first fetch to the last store.
        busy: cycles of each unit, of all of its kind together.
        simulated_ops: that were run one by one; the rest were equal subtrees in a steady state.
    """

    cycles: float
    busy: dict[str, float]
    simulated_ops: int


def run_tree(
    machine: Machine,
    tree: Tree,
    moves: Moves,
    degree: int,
    primes: int,
    overlaps: bool,
    *,
    extrapolates: bool = True,
) -> Run:
    """Cycles of a tree on one core.

    Long runs of equal subtrees are run until the time between their ends repeats itself exactly,
    and the rest of them are counted with that time.
    """
    blocks = [
        moves.ops[low:high] for low, high in zip(moves.blocks, moves.blocks[1:], strict=False)
    ]
    runs: list[tuple[tuple[Op, ...], int]] = []
    for block in blocks:
        if runs and runs[-1][0] == block:
            runs[-1] = (block, runs[-1][1] + 1)
        else:
            runs.append((block, 1))
    kept = [min(many, _WARM) if extrapolates else many for _, many in runs]
    costs = _Costs(machine, tree, degree, primes, overlaps)
    while True:
        ops = [op for (block, _), many in zip(runs, kept, strict=True) for op in block * many]
        tasks, ends = costs.tasks(ops, moves.room)
        done = run_tasks(tasks, [machine.units[one].count for one in UNITS[:4]] + [1])
        extra = 0.0
        at = 0
        steady = True
        for index, ((block, many), keep) in enumerate(zip(runs, kept, strict=True)):
            if keep < many:
                times = [done[ends[at + (one + 1) * len(block) - 1]] for one in range(keep)]
                period = _period(times)
                # Whole periods only are left out: of the rest, some more are run.
                left = many - keep
                step = min(left, keep) if period is None else left % period[0]
                if step or period is None:
                    kept[index] = keep + step
                    steady = False
                    break
                extra += (many - keep) // period[0] * period[1]
            at += keep * len(block)
        if steady:
            break
    busy = dict.fromkeys(UNITS, 0.0)
    for op in moves.ops:
        for unit, cycles in costs.busy(op):
            busy[UNITS[unit]] += cycles
    return Run((max(done) if done else 0.0) + extra, busy, len(ops))


def _period(times: Sequence[float]) -> tuple[int, float] | None:
    """Subtrees after which the steady state repeats itself, and cycles; None where there is none.

    Where memory bounds, ends drift against the channel and slip back after some tens of subtrees.
    """
    for step in _PERIODS:
        span = times[-1] - times[-1 - step]
        if all(
            abs(times[-1 - back] - times[-1 - back - step] - span) < 1e-6
            for back in range(2 * max(_PERIODS))
        ):
            return step, span
    return None


class _Costs:
    """Cycles of the functions of one operation."""

    def __init__(
        self, machine: Machine, tree: Tree, degree: int, primes: int, overlaps: bool
    ) -> None:
        units = machine.units
        self.tree, self.overlaps, self.primes = tree, overlaps, primes
        self.depths = [float(units[one].depth) for one in UNITS[:4]]
        self.limb = [degree / units[one].lanes for one in UNITS[:4]]
        self.ntts = units["ntt"].count
        wide = units["elementwise"].macs_per_lane
        # A digit of one polynomial meets two polynomials of the key, in all primes.
        self.mac = 2 * primes * self.limb[_ELEMENTWISE] / wide
        self.poly = primes * self.limb[_ELEMENTWISE]
        self.ct = tree.ct_bytes / machine.hbm_bytes_per_cycle
        self.key = tree.key_bytes / machine.hbm_bytes_per_cycle

    def busy(self, op: Op) -> list[tuple[int, float]]:
        """Cycles that an operation keeps each unit."""
        tree = self.tree
        polys = 1 if tree.is_expansion else 2
        products = polys * tree.digits
        element = products * self.mac + (
            2 * self.poly + (4 * self.poly if op.outputs > 1 else 0.0)
            if tree.is_expansion
            else 2 * self.poly
        )
        return [
            (_NTT, (polys + products) * self.primes * self.limb[_NTT]),
            (_ICRT, products * self.limb[_ICRT]),
            (_ELEMENTWISE, element),
            (_AUTOMORPHISM, 2 * self.primes * self.limb[_AUTOMORPHISM] * tree.is_expansion),
            (
                _HBM,
                (op.ct_loads + op.ct_stores) * self.ct + op.key_loads * self.key,
            ),
        ]

    def tasks(self, ops: Sequence[Op], room: int) -> tuple[Tasks, list[int]]:
        """Functions of all operations, and which of them ends each."""
        tasks = Tasks()
        add = tasks.add
        ends: list[int] = []
        expands = self.tree.is_expansion
        # Places for ciphertexts, each with the task that empties it; -1 is empty from the start.
        places = deque([-1] * room)

        def place() -> list[int]:
            if not places:
                return [ends[-1]] if ends else []
            emptied = places.popleft()
            return [emptied] if emptied >= 0 else []

        for index, op in enumerate(ops):
            inputs: list[int] = [ends[index - back] for back in op.after if back <= index]
            for _ in range(op.key_loads):
                # The key takes the place of one whose last use was before.
                inputs.append(add(_HBM, self.key, 0.0, ends[-1:]))
            inputs += [add(_HBM, self.ct, 0.0, place()) for _ in range(op.ct_loads)]
            # Two operations are in flight: their buffers are the iCRT buffer's two halves.
            if index >= 2:
                inputs.append(ends[index - 2])
            room_for = [one for _ in range(op.outputs) for one in place()] if expands else []
            first, last = self._op(tasks, op, inputs, room_for)
            ends.append(last)
            places.append(first)
            for _ in range(op.ct_stores):
                places.append(add(_HBM, self.ct, 0.0, [last]))
        return tasks, ends

    def _op(
        self, tasks: Tasks, op: Op, inputs: Sequence[int], room_for: Sequence[int]
    ) -> tuple[int, int]:
        """Adds one operation; the task that empties an input's place, and the one that ends it."""
        add, depth, limb, primes = tasks.add, self.depths, self.limb, self.primes
        transforms: list[list[int]] = []
        if self.tree.is_expansion:
            turned = add(_AUTOMORPHISM, primes * limb[_AUTOMORPHISM], depth[_AUTOMORPHISM], inputs)
            other = add(_AUTOMORPHISM, primes * limb[_AUTOMORPHISM], depth[_AUTOMORPHISM], inputs)
            # One polynomial is shared among the units, residue by residue.
            share = primes / self.ntts
            transforms.append(
                [add(_NTT, share * limb[_NTT], depth[_NTT], [turned]) for _ in range(self.ntts)]
            )
            first = other
        else:
            first = add(_ELEMENTWISE, 2 * self.poly, depth[_ELEMENTWISE], inputs)
            transforms = [[add(_NTT, primes * limb[_NTT], depth[_NTT], [first])] for _ in range(2)]
            other = first
        digits = [
            add(
                _NTT,
                primes * limb[_NTT],
                depth[_NTT],
                [add(_ICRT, limb[_ICRT], depth[_ICRT], one)],
            )
            for one in transforms
            for _ in range(self.tree.digits)
        ]
        last = other
        macs = [
            add(_ELEMENTWISE, self.mac, depth[_ELEMENTWISE], [one] if self.overlaps else digits)
            for one in digits
        ]
        if self.tree.is_expansion:
            # Sum, difference, and the difference turned by a power of X.
            many = 2 * self.poly + (4 * self.poly if op.outputs > 1 else 0.0)
            last = add(_ELEMENTWISE, many, depth[_ELEMENTWISE], [*macs, other, *room_for])
            return last, last
        # The sum starts from the first input, so that nothing is left to add.
        last = add(_ELEMENTWISE, 0.0, 0.0, macs)
        return first, last

"""Points of the paper's figures and of the command, each simulated once.

The one place that turns what a figure names (a machine, GB, a schedule) into a simulation, and its
outcome into what figures and tables show.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache

from ...errors import ConfigError
from . import fitted
from .engine import Run, run_tree
from .first_order import Floor, floor
from .machine import Machine
from .machine import machine as machine_of
from .schedule import Moves, Schedule, Tree, expansion, plan, tournament
from .serving import Scheduler
from .workload import KsPir, Retrieval, SimplePir, Workload

__all__ = [
    "GB",
    "STEPS",
    "Digits",
    "Point",
    "Result",
    "area_mm2",
    "digits",
    "point",
    "prefetch",
    "scheduler",
    "scheduler_of",
    "steps",
]

GB = 2**30
#: What people call the steps.
STEPS = {
    "comm": "communication",
    "expand": "ExpandQuery",
    "row_select": "RowSel",
    "tournament": "ColTor",
    "gather": "gather",
}


@dataclass(frozen=True, slots=True)
class Digits:
    """Of the keys of each tree."""

    expand: int
    tournament: int


def digits() -> Digits:
    """The model's."""
    return Digits(fitted.EXPAND_DIGITS, fitted.TOURNAMENT_DIGITS)


@dataclass(frozen=True, slots=True)
class Point:
    """What is simulated; the attributes are the command's options.

    Attributes:
        machine: by name, or a TOML file.
        systems: machines, each with a part of the table's columns.
        table_gb: GB (2^30 B) of records, over all systems.
        workload: "onion", "simplepir" or "kspir".
        batch: queries that are answered together.
        d0: records of the first dimension.
        schedule: "breadth", "depth", "hierarchical" or "hierarchical-breadth".
        subtree: depth of the subtrees; None: the deepest that fits.
        overlap: whether digits are added up as they are made.
        special_primes: whether the multipliers are those of special primes, where the machine has
            them.
    """

    machine: str = "ive"
    systems: int = 1
    table_gb: float = 8
    workload: str = "onion"
    batch: int = 64
    d0: int = 256
    schedule: str = "hierarchical"
    subtree: int | None = None
    overlap: bool = True
    special_primes: bool = True


@dataclass(frozen=True, slots=True)
class Result:
    """What a batch takes.

    Attributes:
        seconds: by step.
        qps: queries a second, of batches one after another.
        latency_s: of a batch.
        joules: of a query, by component; empty where the machine has no powers.
        dram_bytes: of each system, by step and kind.
        busy: share of the latency in which a unit works, by unit.
        working_set_bytes: of a core, by step.
        subtrees: their depth, by step.
    """

    seconds: dict[str, float]
    qps: float
    latency_s: float
    joules: dict[str, float]
    dram_bytes: dict[str, dict[str, float]]
    busy: dict[str, float]
    working_set_bytes: dict[str, float]
    subtrees: dict[str, int]


@cache
def point(one: Point) -> Result:
    """What a batch takes at a point.

    Raises:
        ConfigError: a count below 1, a machine that is none, or a table that fits no memory.
    """
    for name in ("systems", "batch", "d0"):
        if getattr(one, name) < 1:
            raise ConfigError(f"{name} is {getattr(one, name)}, but must be 1 or more")
    if not 0 < one.table_gb < math.inf:
        raise ConfigError(f"the table has {one.table_gb:g} GB, but must have more than 0")
    if one.subtree is not None and one.subtree < 1:
        raise ConfigError(f"subtree is {one.subtree}, but must be 1 or more levels")
    machine, work = _machine(one), _workload(one)
    found = floor(machine, work, one.schedule, subtree=one.subtree, overlap=one.overlap)
    if isinstance(work, Retrieval):
        for step in ("expand", "tournament"):
            _play(found, step, one, machine, work)
    seconds = dict(found.seconds)
    if one.systems > 1 and isinstance(work, Retrieval):
        seconds["gather"] = _gather_s(machine, work, one.systems, seconds)
    latency = sum(seconds.values())
    busy: dict[str, float] = {}
    for units in found.work_s.values():
        for unit, worked in units.items():
            busy[unit] = busy.get(unit, 0.0) + worked / latency
    return Result(
        seconds,
        one.batch / latency,
        latency,
        _joules(machine, one, busy, latency),
        found.dram_bytes,
        busy,
        found.working_set_bytes,
        found.subtrees,
    )


#: The command's names of schedules, and the schedules': without overlapping, then with.
_ORDERS = {
    "breadth": (False, False),
    "depth": (False, True),
    "hierarchical-breadth": (True, False),
    "hierarchical": (True, True),
}


def _play(made: Floor, step: str, one: Point, machine: Machine, work: Retrieval) -> None:
    """Puts a tree's simulation in the place of its floor."""
    tree = (
        expansion(work.substitutions + 1, work.ct_bytes, work.evk_bytes, work.expand_digits)
        if step == "expand"
        else tournament(work.columns, work.ct_bytes, work.rgsw_bytes, work.tournament_digits)
    )
    order = Schedule(*_ORDERS[one.schedule], one.overlap)
    moves, run = _tree(one.machine, tree, order, one.subtree, work.degree, work.primes)
    queries = math.ceil(work.batch / machine.cores)
    made.seconds[step] = queries * run.cycles / machine.clock_hz
    made.work_s[step] = {
        ("dram" if unit == "hbm" else unit): queries
        * cycles
        / (1 if unit == "hbm" else machine.units[unit].count)
        / machine.clock_hz
        for unit, cycles in run.busy.items()
    }
    made.dram_bytes[step] = {
        "keys": float(work.batch * moves.key_bytes),
        "ciphertexts": float(work.batch * moves.ct_bytes),
    }
    made.working_set_bytes[step] = float(moves.working_set_bytes)
    made.subtrees[step] = moves.depth


@cache
def _tree(
    name: str, tree: Tree, order: Schedule, subtree: int | None, degree: int, primes: int
) -> tuple[Moves, Run]:
    """A tree of one query on one core, once for all batches that have it."""
    machine = machine_of(name)
    room = machine.rf_bytes
    if subtree is not None and order.is_hierarchical:
        wanted = min(subtree, max(1, tree.levels))
        needed = tree.subtree_bytes(wanted, order)
        if needed > room:
            raise ConfigError(
                f"subtrees of {wanted} levels take {needed / 2**20:.2f} MiB, but a core's register "
                f"file has {room / 2**20:.2f}: take fewer with --subtree, or leave it out"
            )
        # A register file that just holds them makes the planner take this depth.
        room = needed
    moves = plan(tree, order, room)
    return moves, run_tree(machine, tree, moves, degree, primes, order.overlaps)


def _machine(one: Point) -> Machine:
    found = machine_of(one.machine)
    special = found.uses_special_primes and one.special_primes
    return found.scaled(uses_special_primes=special)


def _workload(one: Point) -> Workload:
    table = math.ceil(one.table_gb * GB / one.systems)
    if one.workload == "simplepir":
        return SimplePir(table, one.batch)
    if one.workload == "kspir":
        return replace(KsPir(table, one.batch), first_dimension=one.d0)
    return Retrieval(table, one.batch, first_dimension=one.d0)


def _gather_s(
    machine: Machine, work: Retrieval, systems: int, seconds: Mapping[str, float]
) -> float:
    """Each system sends a ciphertext a query; one of them plays the last games."""
    sent = work.batch * (systems - 1) * work.ct_bytes / machine.pcie_bytes_per_s
    played = max(1, work.columns - 1)
    return sent + seconds["tournament"] * (systems - 1) / played


def _joules(
    machine: Machine, one: Point, busy: Mapping[str, float], latency: float
) -> dict[str, float]:
    """Of a query: each component's peak power, for as long as it works."""
    watts = {
        kind: machine.cores * unit.power_w * busy.get(kind, 0.0)
        for kind, unit in machine.units.items()
    }
    arrays = machine.gemm.power_w or (
        machine.units[machine.gemm.unit].power_w if machine.gemm.unit in machine.units else 0.0
    )
    watts["gemm"] = machine.cores * arrays * busy.get("gemm", 0.0)
    watts["registers"] = (
        machine.cores * machine.rf_power_w * min(1.0, busy.get("ntt", 0.0) + busy.get("gemm", 0.0))
    )
    watts["dram"] = machine.hbm_power_w * min(1.0, busy.get("dram", 0.0))
    if not any(watts.values()):
        return {}
    return {name: value * one.systems * latency / one.batch for name, value in watts.items()}


def steps(one: Result) -> dict[str, float]:
    """Seconds by what people call the steps."""
    return {STEPS[key]: seconds for key, seconds in one.seconds.items()}


def area_mm2(one: Point) -> float:
    """Of one of its machines; 0 where the machine has no areas."""
    return _machine(one).area_mm2


def prefetch(points: Mapping[str, Point]) -> dict[str, Result]:
    """All of them, by name."""
    return {name: point(one) for name, one in points.items()}


@cache
def scheduler(table_gb: float, batch_max: int) -> Scheduler:
    """IVE's, of one machine."""
    return scheduler_of(Point(table_gb=table_gb, batch=batch_max))


def scheduler_of(one: Point, progress: Callable[[int, int], None] | None = None) -> Scheduler:
    """Of a point: batches up to its own, a window of reading the table once (section V)."""
    service = []
    for batch in range(1, one.batch + 1):
        service.append(point(replace(one, batch=batch)).latency_s)
        if progress is not None:
            progress(batch, one.batch)
    machine, work = _machine(one), _workload(replace(one, batch=1))
    in_hbm = work.prepared_bytes + work.queries_bytes <= machine.hbm_bytes
    rate = machine.hbm_bytes_per_s if in_hbm else machine.lpddr_bytes_per_s
    return Scheduler(tuple(service), work.prepared_bytes / rate)

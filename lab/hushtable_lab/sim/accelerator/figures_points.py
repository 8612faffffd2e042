"""Points of the paper's figures and of the command, each simulated once.

The one place that turns what a figure names (a machine, GB, a schedule) into a simulation, and its
outcome into what figures and tables show.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache

from hushtable.errors import ConfigError

from . import fitted
from .machine import Machine
from .machine import machine as machine_of
from .passes import Table, predict
from .processor import Processor, processor_named
from .processor import machine as machine_of_processor
from .schedule import Schedule
from .serving import Scheduler
from .system import simulate
from .workload import KsPir, Retrieval, SimplePir, Workload

__all__ = [
    "GB",
    "PROCESSORS",
    "STEPS",
    "Digits",
    "Point",
    "ProcessorPass",
    "Result",
    "area_mm2",
    "digits",
    "point",
    "prefetch",
    "processor_pass",
    "scheduler",
    "scheduler_of",
    "steps",
]

GB = 2**30
#: Machines that are processors: this one, measured, and those that come with the package.
PROCESSORS = ("this", "sapphire-rapids")
#: What people call the steps.
STEPS = {
    "comm": "communication",
    "expand": "ExpandQuery",
    "transpose": "transposition",
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
        subtree: levels of a subtree of the hierarchical schedules; None for the most that fit.
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
        area_mm2: of a machine; 0 where it has no areas.
    """

    seconds: dict[str, float]
    qps: float
    latency_s: float
    joules: dict[str, float]
    dram_bytes: dict[str, dict[str, float]]
    busy: dict[str, float]
    working_set_bytes: dict[str, float]
    subtrees: dict[str, int]
    area_mm2: float


#: The simulation's names of schedules are the paper's; the command's are words.
_ORDERS = {
    "breadth": (False, False),
    "depth": (False, True),
    "hierarchical-breadth": (True, False),
    "hierarchical": (True, True),
}
_KINDS = {"ct": "ciphertexts", "key": "keys", "db": "table"}


@cache
def _processor(name: str) -> Processor:
    """Measured, or read, once."""
    return processor_named(name)


@dataclass(frozen=True, slots=True)
class ProcessorPass:
    """What `hushtable bench onion` is predicted to take on a processor.

    Attributes:
        processor: its name and when it was measured.
        seconds: of a pass by step.
        units: seconds of one core, by what it does.
    """

    processor: str
    seconds: dict[str, float]
    units: dict[str, float]

    @property
    def total(self) -> float:
        """Of a pass."""
        return sum(self.seconds.values())


def processor_pass(name: str, table_gb: float, batch: int, threads: int) -> ProcessorPass:
    """A pass of so many queries over a table of 256-byte rows.

    Raises:
        ConfigError: no such processor, or one that cannot be measured; a table, batch or number of
            threads that it cannot take.
    """
    processor = _processor(name)
    if not 0 < table_gb < math.inf:
        raise ConfigError(f"the table has {table_gb:g} GB, but must have more than 0")
    found = predict(processor, Table.of(table_gb * 1024), batch, threads)
    seconds = {
        "expand": found.expand,
        "row_select": found.row_select,
        "tournament": found.tournament,
    }
    return ProcessorPass(processor.measured, seconds, dict(found.units))


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
    if one.subtree is not None:
        if one.subtree < 1:
            raise ConfigError(f"subtree is {one.subtree}, but must be 1 level or more")
        if not one.schedule.startswith("hierarchical"):
            raise ConfigError(
                f"schedule {one.schedule!r} has no subtrees: leave --subtree out, or choose "
                "hierarchical or hierarchical-breadth"
            )
    order = Schedule(*_ORDERS[one.schedule], one.overlap, one.subtree)
    made = simulate(_machine(one), _workload(one), order, systems=one.systems)
    return Result(
        dict(made.seconds),
        made.qps,
        made.latency_s,
        {name: value / one.batch for name, value in made.joules.by_component.items()},
        {
            step: {_KINDS[kind]: amount for kind, amount in kinds.items()}
            for step, kinds in made.dram_bytes.items()
        },
        dict(made.busy),
        {step: float(held) for step, held in made.working_set_bytes.items()},
        dict(made.subtree_depth),
        made.area_mm2,
    )


def _machine(one: Point) -> Machine:
    if one.machine in PROCESSORS:
        found = machine_of_processor(_processor(one.machine))
    else:
        found = machine_of(one.machine)
    special = found.uses_special_primes and one.special_primes
    return found.scaled(uses_special_primes=special)


def _workload(one: Point) -> Workload:
    table = math.ceil(one.table_gb * GB)
    if one.workload == "simplepir":
        return SimplePir(table, one.batch)
    if one.workload == "kspir":
        return replace(KsPir(table, one.batch), first_dimension=one.d0)
    return Retrieval(table, one.batch, first_dimension=one.d0)


def steps(one: Result) -> dict[str, float]:
    """Seconds by what people call the steps."""
    return {STEPS[key]: seconds for key, seconds in one.seconds.items()}


def area_mm2(one: Point) -> float:
    """Of one of its machines; 0 where the machine has no areas."""
    return point(one).area_mm2


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
    machine, work = _machine(one), _workload(replace(one, table_gb=one.table_gb / one.systems))
    in_hbm = work.prepared_bytes + work.batch * work.queries_bytes <= machine.hbm_bytes
    rate = machine.hbm_bytes_per_s if in_hbm else machine.lpddr_bytes_per_s
    return Scheduler(tuple(service), work.prepared_bytes / rate)

"""A batch of queries on one system, or on a cluster of them: every step in seconds and bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from math import ceil, inf, log2

from hushtable.errors import ConfigError

from .energy import Joules, area_mm2, joules
from .engine import Run, run_tree
from .machine import Machine
from .schedule import SCHEDULES, Moves, Schedule, Tree, expansion, plan, tournament
from .workload import RESIDUE_BYTES, Retrieval, SimplePir, Workload

__all__ = ["STEPS", "Result", "simulate"]

#: In the order in which they follow one another.
STEPS = ("comm", "expand", "transpose", "row_select", "tournament", "gather")


@dataclass(frozen=True)
class Result:
    """What a batch takes.

    Attributes:
        seconds: by step.
        batch: queries answered.
        systems: that answered them.
        joules: by component, of the whole batch and all systems.
        dram_bytes: by step and kind ("ct", "key", "db"), of the batch on one system.
        busy: fraction of the time, by unit ("gemm" is wherever matrices are multiplied).
        working_set_bytes: of a subtree, by step.
        subtree_depth: by step.
        memory: what the table is read from: "hbm" or "lpddr".
        passes: parts of the columns that are selected and played off one after the other, where
            the HBM cannot hold what all of them leave.
        area_mm2: of a system.
    """

    seconds: Mapping[str, float]
    batch: int
    systems: int
    joules: Joules
    dram_bytes: Mapping[str, Mapping[str, float]]
    busy: Mapping[str, float]
    working_set_bytes: Mapping[str, int]
    subtree_depth: Mapping[str, int]
    memory: str
    passes: int
    area_mm2: float

    @property
    def latency_s(self) -> float:
        """Of the batch, from its queries' arrival to its answers' departure."""
        return sum(self.seconds.values())

    @property
    def qps(self) -> float:
        """Queries a second when batches follow one another."""
        return self.batch / self.latency_s

    @property
    def qps_per_system(self) -> float:
        """The same, shared out."""
        return self.qps / self.systems

    @property
    def joules_per_query(self) -> float:
        """Of all components."""
        return self.joules.total / self.batch


def simulate(
    machine: Machine,
    workload: Workload,
    schedule: Schedule | str = "dfs-hs-ro",
    *,
    systems: int = 1,
) -> Result:
    """Runs one batch.

    Args:
        machine: of each system.
        workload: with its batch; the table is shared out evenly among the systems.
        schedule: of both trees, or its name in ``SCHEDULES``.
        systems: on one PCIe switch; each answers all queries for its part of the records.

    Raises:
        ConfigError: the table fits no memory, the schedule is not known, or ``systems`` is no whole
            number above 0.
    """
    if isinstance(schedule, str):
        if schedule not in SCHEDULES:
            raise ConfigError(
                f"schedule {schedule!r} is not known; expected one of {', '.join(SCHEDULES)}."
            )
        schedule = SCHEDULES[schedule]
    if isinstance(systems, bool) or systems != int(systems) or systems < 1:
        raise ConfigError(f"systems is {systems!r}; expected a whole number above 0. Give one.")
    whole = workload
    if systems > 1:
        workload = replace(workload, table_bytes=ceil(workload.table_bytes / systems))
    memory, passes = _place(machine, workload)
    parts = _Parts(machine, workload.batch)
    parts.seconds["comm"] = workload.batch * workload.pcie_bytes / machine.pcie_bytes_per_s
    if isinstance(workload, Retrieval) and isinstance(whole, Retrieval):
        _expand(parts, workload, whole, schedule)
        leaves = workload.batch * workload.first_dimension * workload.ct_bytes
        parts.seconds["transpose"] = leaves / machine.noc_bytes_per_s
        _row_select(
            parts,
            workload,
            memory,
            passes,
            rows=ceil(workload.columns / passes),
            columns=2 * workload.batch,
            sums=workload.first_dimension,
            slices=workload.primes * workload.degree,
            taken=leaves,
            left=workload.batch * workload.columns * workload.ct_bytes,
        )
        _tournament(parts, workload, schedule, passes)
        if systems > 1:
            sent = (systems - 1) * workload.batch * workload.ct_bytes
            parts.seconds["gather"] = sent / machine.pcie_bytes_per_s
            last = tournament(
                systems, workload.ct_bytes, workload.rgsw_bytes, workload.tournament_digits
            )
            parts.seconds["gather"] += parts.tree("tournament", last, schedule, workload)
    elif isinstance(workload, SimplePir):
        _row_select(
            parts,
            workload,
            memory,
            passes,
            rows=workload.side,
            columns=workload.batch,
            sums=workload.side,
            slices=1,
            taken=workload.batch * workload.side * RESIDUE_BYTES,
            left=workload.batch * workload.side * RESIDUE_BYTES,
        )
    total = sum(parts.seconds.values())
    limits = {name: unit.count for name, unit in machine.units.items()} | {"gemm": 1, "hbm": 1}
    busy = {
        name: parts.busy.get(name, 0.0) / limits[name] / (total * machine.clock_hz)
        for name in limits
    }
    busy["rf"] = min(1.0, parts.rf_bytes / (machine.rf_bytes_per_s * total))
    busy["noc"] = parts.noc_bytes / (machine.noc_bytes_per_s * total)
    moved = sum(sum(kinds.values()) for kinds in parts.dram.values())
    if memory == "lpddr":
        moved -= parts.dram["row_select"]["db"]
    busy["hbm"] = moved / (machine.hbm_bytes_per_s * total)
    return Result(
        parts.seconds,
        workload.batch,
        systems,
        joules(machine, busy, total * systems),
        parts.dram,
        busy,
        parts.working_set,
        parts.depth,
        memory,
        passes,
        area_mm2(machine),
    )


def _place(machine: Machine, workload: Workload) -> tuple[str, int]:
    """Where the table is, and in how many passes its columns are worked through."""
    table, batch = workload.prepared_bytes, workload.batch
    if table + batch * workload.queries_bytes <= machine.hbm_bytes:
        return "hbm", 1
    columns = workload.columns if isinstance(workload, Retrieval) else 1
    results = columns * workload.ct_bytes if isinstance(workload, Retrieval) else 0
    rest = batch * (workload.queries_bytes - results)
    for memory, room in (
        ("lpddr", machine.hbm_bytes - rest if table <= machine.lpddr_bytes else -1),
        ("hbm", machine.hbm_bytes - rest - table),
    ):
        if room < 0 or (results and room < batch * 2 * results // columns):
            continue
        passes = 1
        while passes < columns and batch * ceil(results / passes) > room:
            passes *= 2
        return memory, passes
    raise ConfigError(
        f"{machine.name}: a table of {workload.table_bytes:,} bytes is {table:,} bytes as it is "
        f"read, and a batch of {batch} takes {batch * workload.queries_bytes:,} more; expected at "
        f"most {machine.hbm_bytes:,} bytes of HBM or {machine.lpddr_bytes:,} of LPDDR for the "
        "table, and HBM for the batch. Share it among more systems, or batch fewer queries."
    )


class _Parts:
    """What the steps add up to."""

    def __init__(self, machine: Machine, batch: int) -> None:
        self.machine, self.batch = machine, batch
        self.seconds = dict.fromkeys(STEPS, 0.0)
        self.dram: dict[str, dict[str, float]] = {
            step: {"ct": 0.0, "key": 0.0, "db": 0.0}
            for step in ("expand", "row_select", "tournament")
        }
        #: Cycles of a unit kind, of an average core.
        self.busy: dict[str, float] = {}
        #: Of an average core.
        self.rf_bytes = 0.0
        #: Of the chip.
        self.noc_bytes = 0.0
        self.working_set: dict[str, int] = {}
        self.depth: dict[str, int] = {}

    @property
    def rounds(self) -> int:
        """Queries that a core works on one after the other."""
        return ceil(self.batch / self.machine.cores)

    @property
    def joined(self) -> int:
        """Of those, as many as are simulated without a pause in between; more repeat them."""
        return min(2, self.rounds)

    @property
    def cores_each(self) -> int:
        """Cores that work on one query: a power of two."""
        return 1 << int(log2(max(1, self.machine.cores // self.batch)))

    def tree(
        self,
        step: str,
        tree: Tree,
        schedule: Schedule,
        workload: Retrieval,
        times: float = 1.0,
        cores: int = 1,
    ) -> float:
        """Seconds of ``times`` such trees for each query, on each of ``cores``; books the rest."""
        if tree.levels == 0:
            return 0.0
        moves, run = _run(
            self.machine, tree, schedule, workload.degree, workload.primes, self.joined
        )
        self.depth.setdefault(step, moves.depth)
        self.working_set.setdefault(step, moves.working_set_bytes)
        many = times * self.batch * cores
        self.dram[step]["ct"] += many * moves.ct_bytes
        self.dram[step]["key"] += many * moves.key_bytes
        for unit, cycles in run.busy.items():
            share = cycles / self.joined * many / self.machine.cores
            self.busy[unit] = self.busy.get(unit, 0.0) + share
            if unit != "hbm":
                # A word in and one out of each lane.
                lanes = self.machine.units[unit].lanes
                self.rf_bytes += share * lanes * 2 * RESIDUE_BYTES
        return times * self.rounds / self.joined * run.cycles / self.machine.clock_hz


@lru_cache(maxsize=256)
def _run_cached(key: _Key) -> tuple[Moves, Run]:
    machine, tree, schedule, degree, primes, rounds = key.parts
    moves = plan(tree, schedule, machine.rf_bytes)
    many = moves.repeated(rounds)
    return moves, run_tree(machine, tree, many, degree, primes, schedule.overlaps)


class _Key:
    """A machine has tables in it, so that it is told apart by its text."""

    def __init__(self, *parts: object) -> None:
        self.parts: tuple[Machine, Tree, Schedule, int, int, int] = parts  # type: ignore[assignment]
        self.text = repr(parts)

    def __hash__(self) -> int:
        return hash(self.text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Key) and self.text == other.text


def _run(
    machine: Machine, tree: Tree, schedule: Schedule, degree: int, primes: int, rounds: int
) -> tuple[Moves, Run]:
    return _run_cached(_Key(machine, tree, schedule, degree, primes, rounds))


def _expand(parts: _Parts, workload: Retrieval, whole: Retrieval, schedule: Schedule) -> None:
    """The first substitution parts the one-hot vector from the selection bits; then two trees."""
    sizes = (workload.ct_bytes, workload.evk_bytes, workload.expand_digits)
    if workload.rotations:
        one = expansion(2, *sizes)
        each = workload.rotations / parts.cores_each
        parts.seconds["expand"] = parts.tree("expand", one, schedule, workload, each)
        return
    cores = parts.cores_each
    seconds = 0.0
    also = whole.selection_leaves
    tree = expansion(
        ceil(workload.first_dimension / cores), *sizes, also=ceil(also / cores) if also else 0
    )
    seconds += parts.tree("expand", tree, schedule, workload, 1.0, cores)
    # Every core walks from the root to its own part: one substitution a level.
    walk = (1 if also else 0) + 2 * int(log2(cores))
    if walk:
        seconds += parts.tree("expand", expansion(2, *sizes), schedule, workload, walk, cores)
    parts.seconds["expand"] = seconds


def _tournament(parts: _Parts, workload: Retrieval, schedule: Schedule, passes: int) -> None:
    sizes = (workload.ct_bytes, workload.rgsw_bytes, workload.tournament_digits)
    cores = min(parts.cores_each, workload.columns)
    each = ceil(workload.columns / passes / cores)
    seconds = parts.tree("tournament", tournament(each, *sizes), schedule, workload, passes, cores)
    if cores > 1:
        sent = parts.batch * (cores - 1) * workload.ct_bytes * passes
        parts.noc_bytes += sent
        seconds += sent / parts.machine.noc_bytes_per_s
        last = tournament(cores, *sizes)
        seconds += parts.tree("tournament", last, schedule, workload, passes)
    if passes > 1:
        seconds += parts.tree("tournament", tournament(passes, *sizes), schedule, workload)
    parts.seconds["tournament"] = seconds


def _row_select(
    parts: _Parts,
    workload: Workload,
    memory: str,
    passes: int,
    *,
    rows: int,
    columns: int,
    sums: int,
    slices: int,
    taken: float,
    left: float,
) -> None:
    """Tiles of a matrix product, and the table that streams past them.

    A tile's sums stay in the array. Its values enter askew, so that it takes as many cycles more as
    the array has rows and columns; its results leave while the next one enters, except where a sum
    is longer than what is accumulated in place, and goes on from what has left.
    """
    machine, array = parts.machine, parts.machine.gemm
    if array.rows == 1:
        cycles = rows * columns * sums * slices / (machine.cores * array.count * array.columns)
        # A value, and the sum in and out; the table's values come out of their own buffer.
        words = 3.0 * array.count * array.columns
        wanted = words * RESIDUE_BYTES * machine.clock_hz
        cycles *= max(1.0, wanted / machine.rf_bytes_per_s)
        words *= min(1.0, machine.rf_bytes_per_s / wanted)
    else:
        deep = workload.split_depth or sums
        drain = array.rows if workload.split_depth else 0
        tile = deep + array.rows + array.columns - 2 + drain
        tiles = ceil(rows / array.rows) * ceil(columns / array.columns) * ceil(sums / deep)
        cycles = tiles * slices * tile / (machine.cores * array.count)
        words = float(array.count * (array.rows + array.columns))
    cycles *= passes
    table = float(workload.prepared_bytes)
    from_lpddr = memory == "lpddr"
    taken *= passes
    hbm = (taken + left + (0.0 if from_lpddr else table)) / machine.hbm_bytes_per_s
    stream = max(hbm, table / machine.lpddr_bytes_per_s if from_lpddr else 0.0)
    # Results are transposed as they leave the arrays.
    stream = max(stream, left / machine.noc_bytes_per_s)
    compute = cycles / machine.clock_hz
    # Half the buffer is filled while the other half is multiplied.
    chunks = max(1, ceil(table / (machine.cores * machine.db_buffer_bytes / 2)))
    first = min(stream, compute) / chunks
    parts.seconds["row_select"] = max(stream, compute) + (first if first < inf else 0.0)
    parts.dram["row_select"]["db"] += table
    parts.dram["row_select"]["ct"] += taken + left
    parts.noc_bytes += taken / passes + left
    parts.busy["gemm"] = parts.busy.get("gemm", 0.0) + cycles
    parts.rf_bytes += cycles * words * RESIDUE_BYTES
    if array.unit != "gemm":
        name = array.unit
        parts.busy[name] = parts.busy.get(name, 0.0) + cycles * machine.units[name].count

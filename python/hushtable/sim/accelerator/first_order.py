"""What each step takes at least: the slower of its busiest unit's work and of the bytes it moves.

No queues, no dependencies between operations, no start of pipelines: a floor under a simulation by
cycles, and what says which resource a step is bound by.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...errors import ConfigError
from .machine import Machine
from .workload import Retrieval, SimplePir, Workload

__all__ = ["Floor", "floor"]

#: Share of the arrays' multiply-adds that RowSel gets: 11,766 QPS of SimplePIR at 2 GB (Table IV).
GEMM_UTILISATION = 0.771


@dataclass(frozen=True, slots=True)
class Floor:
    """Of one batch on one machine; steps are "comm", "expand", "row_select" and "tournament".

    Attributes:
        seconds: by step.
        work_s: seconds in which a unit works, by step and unit ("dram" among them).
        dram_bytes: by step and kind.
        working_set_bytes: of a core, by step.
        subtrees: depth of the subtrees, by step.
    """

    seconds: dict[str, float]
    work_s: dict[str, dict[str, float]]
    dram_bytes: dict[str, dict[str, float]]
    working_set_bytes: dict[str, float]
    subtrees: dict[str, int]

    @property
    def latency_s(self) -> float:
        """Of the batch: steps follow one another."""
        return sum(self.seconds.values())


def floor(
    machine: Machine,
    work: Workload,
    schedule: str = "hierarchical",
    *,
    subtree: int | None = None,
    overlap: bool = True,
) -> Floor:
    """The least that a batch takes.

    Args:
        machine: one system.
        work: its part of the table, and the batch.
        schedule: "breadth", "depth", "hierarchical" or "hierarchical-breadth".
        subtree: depth of the subtrees; None: the deepest whose working set fits.
        overlap: digits are added up as they are made, and need no room of their own.

    Raises:
        ConfigError: the table fits no memory of the machine.
    """
    made = Floor({}, {}, {}, {}, {})
    made.seconds["comm"] = work.batch * work.pcie_bytes / machine.pcie_bytes_per_s
    if isinstance(work, Retrieval):
        _tree(made, "expand", machine, work, schedule, subtree, overlap)
    _row_select(made, machine, work)
    if isinstance(work, Retrieval):
        _tree(made, "tournament", machine, work, schedule, subtree, overlap)
    return made


def _row_select(made: Floor, machine: Machine, work: Workload) -> None:
    table, queries = work.prepared_bytes, work.batch * work.queries_bytes
    rows = (
        work.batch * work.queries_bytes
        if isinstance(work, SimplePir)
        else work.batch * (work.first_dimension + work.columns) * work.ct_bytes
    )
    if table + queries <= machine.hbm_bytes:
        reading = (table + rows) / machine.hbm_bytes_per_s
    elif table <= machine.lpddr_bytes:
        reading = max(table / machine.lpddr_bytes_per_s, rows / machine.hbm_bytes_per_s)
    else:
        gb = 2**30
        raise ConfigError(
            f"the prepared table takes {table / gb:,.1f} GB and the batch {queries / gb:,.1f} GB, "
            f"but {machine.name} has {machine.hbm_bytes / gb:,.0f} GB of HBM and "
            f"{machine.lpddr_bytes / gb:,.0f} GB of LPDDR: take more --systems or a smaller --batch"
        )
    peak = machine.macs_per_cycle * machine.clock_hz
    gemm = work.batch * work.row_macs / peak / GEMM_UTILISATION
    made.seconds["row_select"] = max(gemm, reading)
    made.work_s["row_select"] = {"gemm": gemm, "dram": reading}
    made.dram_bytes["row_select"] = {"table": float(table), "ciphertexts": float(rows)}


def _tree(
    made: Floor,
    step: str,
    machine: Machine,
    work: Retrieval,
    schedule: str,
    subtree: int | None,
    overlap: bool,
) -> None:
    if step == "expand":
        operations, polynomials, digits, key = (
            work.substitutions, 1, work.expand_digits, work.evk_bytes,
        )  # fmt: skip
        levels = math.ceil(math.log2(operations + 1))
    else:
        operations, polynomials, digits, key = (
            work.columns - 1, 2, work.tournament_digits, work.rgsw_bytes,
        )  # fmt: skip
        levels = work.depth
    temporary = 0 if overlap else polynomials * digits * work.poly_bytes

    def held(depth: int) -> int:
        """Section IV-A: keys of the levels, ciphertexts that wait, digits."""
        waiting = 2 ** (depth - 1) if schedule == "hierarchical-breadth" else depth + 1
        return depth * key + waiting * work.ct_bytes + temporary

    depth = subtree or 1
    if subtree is None and schedule.startswith("hierarchical"):
        fitting = [d for d in range(1, max(levels, 1) + 1) if held(d) <= machine.rf_bytes]
        depth = max(fitting, default=1)
    made.subtrees[step] = depth
    made.working_set_bytes[step] = float(held(depth))
    if schedule == "depth":
        keys, ciphertexts = operations * key, operations * 2 * work.ct_bytes
    else:
        keys = levels * key
        ciphertexts = round((2**depth + 1) / (2**depth - 1) * operations * work.ct_bytes)
    made.dram_bytes[step] = {
        "keys": float(work.batch * keys),
        "ciphertexts": float(work.batch * ciphertexts),
    }
    # Each core has its share of the memory's bandwidth, and queries of its own.
    queries = math.ceil(work.batch / machine.cores)
    done = queries * operations / machine.clock_hz
    limbs = work.primes * work.degree

    def lanes(kind: str) -> int:
        unit = machine.units[kind]
        return unit.count * unit.lanes * unit.macs_per_lane

    unit_s = {
        "ntt": done * polynomials * (1 + digits) * limbs / lanes("ntt"),
        "icrt": done * polynomials * work.degree / lanes("icrt"),
        "elementwise": done * polynomials * digits * 2 * limbs / lanes("elementwise"),
        "dram": queries * (keys + ciphertexts) / (machine.hbm_bytes_per_s / machine.cores),
    }
    if step == "expand":
        unit_s["automorphism"] = done * 2 * limbs / lanes("automorphism")
    made.work_s[step] = unit_s
    made.seconds[step] = max(unit_s.values())

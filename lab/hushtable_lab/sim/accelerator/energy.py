"""Energy and area of the component table: peak power while busy, and sums."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .fitted import MULTIPLIER_SAVING
from .machine import Machine

__all__ = ["Joules", "area_mm2", "joules"]


@dataclass(frozen=True)
class Joules:
    """By component, of all cores and systems."""

    by_component: Mapping[str, float]

    @property
    def total(self) -> float:
        """Of all components."""
        return sum(self.by_component.values())


def _arithmetic(machine: Machine) -> float:
    """Of units whose multipliers are made for special primes, 1; of others, what they save."""
    return 1.0 if machine.uses_special_primes else 1 / (1 - MULTIPLIER_SAVING)


def joules(machine: Machine, busy: Mapping[str, float], seconds: float) -> Joules:
    """Peak powers for as long as each component is busy.

    Clocks and leakage of what is idle are not in the table, and count as nothing. LPDDR is not in
    it either, and the rest of a core's power has no component whose use could be told.
    """
    found = {
        name: busy[name]
        * machine.cores
        * unit.power_w
        * seconds
        * (1.0 if name == "automorphism" else _arithmetic(machine))
        for name, unit in machine.units.items()
    }
    if machine.gemm.unit == "gemm":
        power = machine.gemm.power_w * _arithmetic(machine)
        found["gemm"] = busy["gemm"] * machine.cores * power * seconds
    found["rf"] = busy["rf"] * machine.cores * machine.rf_power_w * seconds
    found["noc"] = busy["noc"] * machine.noc_power_w * seconds
    found["hbm"] = busy["hbm"] * machine.hbm_power_w * seconds
    return Joules(found)


def area_mm2(machine: Machine) -> float:
    """Of the chip, with its multipliers made for special primes or not."""
    arithmetic = (
        sum(machine.units[name].area_mm2 for name in ("ntt", "icrt", "elementwise"))
        + machine.gemm.area_mm2
    )
    return machine.area_mm2 + machine.cores * arithmetic * (_arithmetic(machine) - 1)

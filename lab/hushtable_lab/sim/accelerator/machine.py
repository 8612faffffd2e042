"""Hardware as data: units of a core, memories, links, areas and powers."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from importlib import resources
from math import isfinite
from pathlib import Path
from typing import Any, Literal

from hushtable.errors import ConfigError

__all__ = ["GEMM_UNITS", "Gemm", "Machine", "MachineSpec", "Unit", "machine", "machine_names"]

UnitKind = Literal["ntt", "icrt", "elementwise", "automorphism"]
#: Units that every core has.
UNITS = ("ntt", "icrt", "elementwise", "automorphism")
#: What can multiply matrices: arrays of their own, the NTT units, or the element-wise ones.
GEMM_UNITS = ("gemm", "ntt", "elementwise")


@dataclass(frozen=True, slots=True)
class Unit:
    """One kind of functional unit of a core.

    Attributes:
        count: of them in a core.
        lanes: elements (28-bit residues) that one takes a cycle.
        depth: cycles from an element's entry to its exit.
        macs_per_lane: multiply-adds a lane and cycle in small matrix products.
        area_mm2: of all of the kind in a core.
        power_w: peak, likewise.
    """

    count: int
    lanes: int
    depth: int
    macs_per_lane: int = 1
    area_mm2: float = 0.0
    power_w: float = 0.0


@dataclass(frozen=True, slots=True)
class Gemm:
    """Where matrices are multiplied: output-stationary arrays of ``rows`` x ``columns`` cells.

    ``count`` arrays are in a core. An array of one row is a vector unit: it neither fills nor
    drains.
    """

    unit: str
    rows: int
    columns: int
    count: int
    area_mm2: float = 0.0
    power_w: float = 0.0


@dataclass(frozen=True, slots=True)
class MachineSpec:
    """A machine as it was read; :meth:`check` makes a :class:`Machine` of it."""

    fields: Mapping[str, Any]
    source: str

    @classmethod
    def read(cls, path: str | Path) -> MachineSpec:
        """Out of a TOML file.

        Raises:
            ConfigError: the file is not there, or no TOML.
        """
        try:
            text = Path(path).read_text(encoding="utf-8-sig")
            return cls(tomllib.loads(text), str(path))
        except OSError as error:
            raise ConfigError(
                f"{path}: cannot read the machine ({error.strerror}). Name one of "
                f"{', '.join(machine_names())}, or a TOML file written like theirs."
            ) from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ConfigError(f"{path}: not TOML: {error}. Mend that line.") from error

    def check(self) -> Machine:
        """The machine.

        Raises:
            ConfigError: a value is missing, unknown, of a wrong type, or not above zero.
        """
        top = dict(self.fields)
        units = self._table(top, "units")
        gemm = self._table(top, "gemm")
        for kind in units:
            if kind not in UNITS:
                raise self._error(f"units.{kind}", "no such unit", f"one of {', '.join(UNITS)}")
        made = {kind: self._unit(self._table(units, kind), kind) for kind in UNITS}
        unit = gemm.pop("unit", None)
        if unit not in GEMM_UNITS:
            raise self._error("gemm.unit", f"is {unit!r}", f"one of {', '.join(GEMM_UNITS)}")
        default = made[unit].count if unit != "gemm" else None
        array = Gemm(
            unit,
            int(self._number(gemm, "rows", "gemm.", whole=True)),
            int(self._number(gemm, "columns", "gemm.", whole=True)),
            int(self._number(gemm, "count", "gemm.", whole=True, default=default)),
            self._number(gemm, "area_mm2", "gemm.", default=0.0, zero=True),
            self._number(gemm, "power_w", "gemm.", default=0.0, zero=True),
        )
        self._empty(gemm, "gemm.")
        name = top.pop("name", None)
        if not isinstance(name, str) or not name:
            raise self._error("name", "is missing", "a name for people")
        special = top.pop("uses_special_primes", False)
        if not isinstance(special, bool):
            raise self._error("uses_special_primes", f"is {special!r}", "true or false")
        whole = {
            key: int(self._number(top, key, whole=True, zero=key == "lpddr_bytes", default=default))
            for key, default in (
                ("cores", None),
                ("rf_bytes", None),
                ("db_buffer_bytes", None),
                ("icrt_buffer_bytes", None),
                ("hbm_bytes", None),
                ("lpddr_bytes", 0),
            )
        }
        rates = {
            key: self._number(top, key)
            for key in (
                "clock_hz",
                "rf_bytes_per_s",
                "hbm_bytes_per_s",
                "noc_bytes_per_s",
                "pcie_bytes_per_s",
            )
        }
        rates["lpddr_bytes_per_s"] = self._number(
            top, "lpddr_bytes_per_s", default=0.0, zero=whole["lpddr_bytes"] == 0
        )
        costs = {
            key: self._number(top, key, default=0.0, zero=True)
            for key in (
                "noc_area_mm2",
                "noc_power_w",
                "hbm_area_mm2",
                "hbm_power_w",
                "rf_area_mm2",
                "rf_power_w",
                "core_rest_area_mm2",
                "core_rest_power_w",
            )
        }
        self._empty(top, "")
        fields: dict[str, Any] = {**whole, **rates, **costs}
        return Machine(name, units=made, gemm=array, uses_special_primes=special, **fields)

    def _error(self, key: str, wrong: str, expected: str) -> ConfigError:
        return ConfigError(f"{self.source}: {key} {wrong}; expected {expected}. Change it there.")

    def _table(self, fields: dict[str, Any], key: str) -> dict[str, Any]:
        found = fields.pop(key, None)
        if not isinstance(found, Mapping):
            raise self._error(f"[{key}]", "is missing", "a table of that name")
        return dict(found)

    def _unit(self, fields: dict[str, Any], kind: str) -> Unit:
        where = f"units.{kind}."
        made = Unit(
            int(self._number(fields, "count", where, whole=True)),
            int(self._number(fields, "lanes", where, whole=True)),
            int(self._number(fields, "depth", where, whole=True, zero=True)),
            int(self._number(fields, "macs_per_lane", where, whole=True, default=1)),
            self._number(fields, "area_mm2", where, default=0.0, zero=True),
            self._number(fields, "power_w", where, default=0.0, zero=True),
        )
        self._empty(fields, where)
        return made

    def _number(
        self,
        fields: dict[str, Any],
        key: str,
        where: str = "",
        *,
        whole: bool = False,
        zero: bool = False,
        default: float | None = None,
    ) -> float:
        found = fields.pop(key, default)
        expected = ("a whole number" if whole else "a number") + (
            " of at least 0" if zero else " above 0"
        )
        if found is None:
            raise self._error(where + key, "is missing", expected)
        if isinstance(found, bool) or not isinstance(found, int | float) or not isfinite(found):
            raise self._error(where + key, f"is {found!r}", expected)
        if found < 0 or (found == 0 and not zero) or (whole and found != int(found)):
            raise self._error(where + key, f"is {found!r}", expected)
        return found

    def _empty(self, fields: Mapping[str, Any], where: str) -> None:
        if fields:
            key = min(fields)
            raise self._error(where + key, "is not known", "only what machines/ive.toml has")


@dataclass(frozen=True)
class Machine:
    """A machine that can be simulated. Bytes, bytes a second, hertz, mm2 and watts.

    Register file, buffers, units and their costs are of one core; memories, links and the rest of
    the costs are of the whole chip. Every core has its even share of the HBM's bandwidth.
    """

    name: str
    cores: int
    clock_hz: float
    rf_bytes: int
    rf_bytes_per_s: float
    db_buffer_bytes: int
    icrt_buffer_bytes: int
    hbm_bytes: int
    hbm_bytes_per_s: float
    lpddr_bytes: int
    lpddr_bytes_per_s: float
    noc_bytes_per_s: float
    pcie_bytes_per_s: float
    units: Mapping[str, Unit]
    gemm: Gemm
    uses_special_primes: bool = False
    noc_area_mm2: float = 0.0
    noc_power_w: float = 0.0
    hbm_area_mm2: float = 0.0
    hbm_power_w: float = 0.0
    rf_area_mm2: float = 0.0
    rf_power_w: float = 0.0
    core_rest_area_mm2: float = 0.0
    core_rest_power_w: float = 0.0

    @cached_property
    def hbm_bytes_per_cycle(self) -> float:
        """Of one core's channel."""
        return self.hbm_bytes_per_s / self.cores / self.clock_hz

    @cached_property
    def macs_per_cycle(self) -> int:
        """Modular multiply-adds of all arrays of the chip."""
        return self.cores * self.gemm.count * self.gemm.rows * self.gemm.columns

    @cached_property
    def core_area_mm2(self) -> float:
        """Units, arrays of their own, register file and buffers."""
        units = sum(unit.area_mm2 for unit in self.units.values())
        return units + self.gemm.area_mm2 + self.rf_area_mm2 + self.core_rest_area_mm2

    @cached_property
    def area_mm2(self) -> float:
        """Of the chip with its memory interfaces."""
        return self.cores * self.core_area_mm2 + self.noc_area_mm2 + self.hbm_area_mm2

    @cached_property
    def core_power_w(self) -> float:
        """Peak, of one core."""
        units = sum(unit.power_w for unit in self.units.values())
        return units + self.gemm.power_w + self.rf_power_w + self.core_rest_power_w

    @cached_property
    def power_w(self) -> float:
        """Peak, of the chip with its memory."""
        return self.cores * self.core_power_w + self.noc_power_w + self.hbm_power_w

    def scaled(self, **changes: Any) -> Machine:
        """This machine with some fields changed, for studies of one of them."""
        return replace(self, **changes)


def machine_names() -> list[str]:
    """Machines that come with the package."""
    folder = resources.files(__package__).joinpath("machines")
    return sorted(one.name[:-5] for one in folder.iterdir() if one.name.endswith(".toml"))


def machine(name: str | Path) -> Machine:
    """One that comes with the package by its name, or one of a TOML file by its path.

    Raises:
        ConfigError: there is none, or it has bad values.
    """
    if str(name) in machine_names():
        file = resources.files(__package__).joinpath("machines", f"{name}.toml")
        return MachineSpec(tomllib.loads(file.read_text(encoding="utf-8")), f"{name}.toml").check()
    return MachineSpec.read(name).check()

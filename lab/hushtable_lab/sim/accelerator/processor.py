"""A processor as a machine: what its cores do of each operation a second, and what memory brings.

A core is one of the paper's cores whose functional units share the instructions that the core
issues: its times add up where an accelerator's units run side by side. The second-level cache is
the register file: operands are polynomials of 32 KiB, which the first level does not hold two of.
What a step keeps beyond it comes from the next level at the bandwidth of what the working set fits
into.
"""

from __future__ import annotations

import math
import os
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib import resources
from itertools import pairwise
from pathlib import Path
from typing import Any

from hushtable.errors import ConfigError

from .machine import Machine, MachineSpec

__all__ = [
    "OPERATIONS",
    "Processor",
    "ProcessorSpec",
    "ReadRate",
    "machine",
    "processor_named",
    "read_processor",
]

#: Operations whose seconds a processor must say; ``hushtable.native.unit_seconds`` has them.
OPERATIONS = (
    "forward",
    "inverse",
    "add",
    "permute",
    "split",
    "copy",
    "rescale",
    "sum_key",
    "sum_selector",
    "decompose_key",
    "decompose_selector",
    "uniform",
    "compress",
)


@dataclass(frozen=True, slots=True)
class ReadRate:
    """How fast memory is read that is gone through again and again.

    Attributes:
        bytes: gone through.
        one_gb_per_s: by one core.
        all_gb_per_s: by all cores together, each with its part of the bytes.
        gather_us: of a polynomial that one core puts together of pieces of 512 bytes, spread over
            these bytes.
    """

    bytes: float
    one_gb_per_s: float
    all_gb_per_s: float
    gather_us: float


@dataclass(frozen=True, slots=True)
class ProcessorSpec:
    """As read from a file; see `Processor`."""

    name: str
    measured: str
    parameters: str
    cores: int
    first_cache_bytes: int
    second_cache_bytes: int
    instruction_ns: float
    us: Mapping[str, float]
    reads: tuple[ReadRate, ...]
    residue_bytes: int = 8


@dataclass(frozen=True, slots=True)
class Processor:
    """A machine that runs hushtable's own engine.

    Attributes:
        name: for people.
        measured: where and when the rates were, for people.
        parameters: the parameter set that the operations were measured with.
        cores: that may be used.
        first_cache_bytes: of a core.
        second_cache_bytes: of a core: the register file.
        instruction_ns: of one 512-bit multiplication in a full pipeline, and so of any vector
            instruction that shares its ports.
        us: microseconds of one operation on one polynomial modulo one prime, by name
            (`OPERATIONS`), on one core, operands in the second-level cache.
        reads: rising by bytes; the first within a core's second-level cache.
        residue_bytes: of a number modulo a prime in memory.
    """

    name: str
    measured: str
    parameters: str
    cores: int
    first_cache_bytes: int
    second_cache_bytes: int
    instruction_ns: float
    us: Mapping[str, float]
    reads: tuple[ReadRate, ...]
    residue_bytes: int = 8

    @staticmethod
    def checked(spec: ProcessorSpec) -> Processor:
        """The processor that ``spec`` describes.

        Raises:
            ConfigError: for a rate that is missing or is no number above zero.
        """
        missing = [name for name in OPERATIONS if name not in spec.us]
        if missing:
            raise ConfigError(
                f"processor {spec.name!r} says no microseconds of {', '.join(missing)}, but all "
                f"of {', '.join(OPERATIONS)} are needed: measure them with "
                "`python -m hushtable_lab.sim.accelerator.measured`"
            )
        numbers: dict[str, float] = {
            "cores": spec.cores,
            "first_cache_bytes": spec.first_cache_bytes,
            "second_cache_bytes": spec.second_cache_bytes,
            "instruction_ns": spec.instruction_ns,
            "residue_bytes": spec.residue_bytes,
            **{f"us.{name}": value for name, value in spec.us.items()},
        }
        for rate in spec.reads:
            numbers |= {f"reads.{name}": value for name, value in asdict(rate).items()}
        for name, value in numbers.items():
            if not (math.isfinite(value) and value > 0):
                raise ConfigError(
                    f"{name} of processor {spec.name!r} is {value}, but must be above 0"
                )
        if len(spec.reads) < 2 or any(a.bytes >= b.bytes for a, b in pairwise(spec.reads)):
            raise ConfigError(
                f"reads of processor {spec.name!r} must be two or more, rising by bytes"
            )
        return Processor(
            spec.name,
            spec.measured,
            spec.parameters,
            spec.cores,
            spec.first_cache_bytes,
            spec.second_cache_bytes,
            spec.instruction_ns,
            dict(spec.us),
            spec.reads,
            spec.residue_bytes,
        )

    def seconds(self, operation: str) -> float:
        """Of one operation on one polynomial modulo one prime."""
        return self.us[operation] * 1e-6

    def read_bytes_per_s(self, footprint: float, threads: int) -> float:
        """Bytes a second that ``threads`` cores together read, where ``footprint`` bytes are
        touched between one use of a byte and the next: between measured sizes, by their logarithms.
        """
        share = min(1.0, (threads - 1) / max(1, self.cores - 1))
        rates = [
            one.one_gb_per_s + share * (one.all_gb_per_s - one.one_gb_per_s) for one in self.reads
        ]
        return self._between(rates, footprint) * 1e9

    def gather_seconds(self, footprint: float) -> float:
        """Of one polynomial out of pieces that lie spread over ``footprint`` bytes, on one core."""
        return self._between([one.gather_us for one in self.reads], footprint) * 1e-6

    def _between(self, values: list[float], footprint: float) -> float:
        sizes = [read.bytes for read in self.reads]
        footprint = min(max(footprint, sizes[0]), sizes[-1])
        for index, (low, high) in enumerate(pairwise(sizes)):
            if footprint <= high:
                part = math.log(footprint / low) / math.log(high / low)
                return float(values[index] ** (1 - part) * values[index + 1] ** part)
        return values[-1]

    def as_toml(self) -> str:
        """What `read_processor` reads."""
        lines = [f"{name} = {value!r}".replace("'", '"') for name, value in self._scalars()]
        lines += ["", "[us]", *(f"{name} = {self.us[name]:.4g}" for name in self.us)]
        for rate in self.reads:
            lines += ["", "[[reads]]", f"bytes = {rate.bytes:.0f}"]
            lines.append(f"one_gb_per_s = {rate.one_gb_per_s:.4g}")
            lines.append(f"all_gb_per_s = {rate.all_gb_per_s:.4g}")
            lines.append(f"gather_us = {rate.gather_us:.4g}")
        return "\n".join(lines) + "\n"

    def _scalars(self) -> list[tuple[str, Any]]:
        return [
            ("name", self.name),
            ("measured", self.measured),
            ("parameters", self.parameters),
            ("cores", self.cores),
            ("first_cache_bytes", self.first_cache_bytes),
            ("second_cache_bytes", self.second_cache_bytes),
            ("instruction_ns", round(self.instruction_ns, 5)),
            ("residue_bytes", self.residue_bytes),
        ]


def read_processor(path: str | Path) -> Processor:
    """The processor of a TOML file.

    Raises:
        ConfigError: for a file that cannot be read or says something else.
    """
    path = Path(path)
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8-sig"))
        rates = tuple(
            ReadRate(*(float(one[name]) for name in ReadRate.__dataclass_fields__))
            for one in found["reads"]
        )
        spec = ProcessorSpec(
            name=str(found["name"]),
            measured=str(found["measured"]),
            parameters=str(found["parameters"]),
            cores=int(found["cores"]),
            first_cache_bytes=int(found["first_cache_bytes"]),
            second_cache_bytes=int(found["second_cache_bytes"]),
            instruction_ns=float(found["instruction_ns"]),
            us={str(name): float(value) for name, value in found["us"].items()},
            reads=rates,
            residue_bytes=int(found.get("residue_bytes", 8)),
        )
    except KeyError as error:
        raise ConfigError(f"{path} says nothing of {error}, but a processor needs it") from None
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise ConfigError(f"cannot read a processor from {path}: {error}") from None
    return Processor.checked(spec)


def processor_named(name: str | Path) -> Processor:
    """``this``, measured now (seconds); one that comes with the package, ``sapphire-rapids``; or
    one of a TOML file by its path.

    Raises:
        ConfigError: there is none, or it has bad values.
    """
    if str(name) == "this":
        from .measured import best_of, measure

        return best_of(measure(), measure())
    file = resources.files(__package__).joinpath("processors", f"{name}.toml")
    with resources.as_file(file) as path:
        return read_processor(path if path.is_file() else name)


def machine(processor: Processor | None = None) -> Machine:
    """A processor, by default `this` one, as a machine that `simulate` takes: units and bandwidths.

    Each unit has the rate that the cores have where they do nothing else, and `simulate` lets units
    run side by side, as an accelerator's do; a core's share its instructions. So what `simulate`
    says of this machine is a bound from below. What `hushtable bench onion` takes on it is
    `passes.predict`'s to say, which adds the units up. The clock is 10 MHz, in which a core's rates
    are whole numbers of elements a cycle. No area and no power is known.

    Raises:
        ConfigError: where this processor cannot be measured.
    """
    from hushtable import _native

    found = processor if processor is not None else processor_named("this")
    facts = _native.onion_geometry(1024, 256, parameters=found.parameters, levels=None)
    degree, limbs, digits = (facts[k] for k in ("degree", "limbs", "key_switch_digits"))
    cycle_us = 0.1

    def unit(elements: float, us: float) -> dict[str, int]:
        return {"count": 1, "lanes": max(1, round(elements / us * cycle_us)), "depth": 1}

    near, far = found.reads[0], found.reads[-1]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    # The product of eight residues takes a low and a high half.
    products = 8 / 2 / found.instruction_ns * 1e3 * cycle_us
    fields = {
        "name": found.name,
        "cores": found.cores,
        "clock_hz": 1e6 / cycle_us,
        "rf_bytes": found.second_cache_bytes,
        "rf_bytes_per_s": near.one_gb_per_s * 1e9,
        "db_buffer_bytes": found.first_cache_bytes,
        "icrt_buffer_bytes": found.first_cache_bytes,
        "hbm_bytes": memory,
        "hbm_bytes_per_s": far.all_gb_per_s * 1e9,
        # What cores exchange and what clients send goes through memory too.
        "noc_bytes_per_s": far.all_gb_per_s * 1e9,
        "pcie_bytes_per_s": far.all_gb_per_s * 1e9,
        "gemm": {"unit": "gemm", "rows": 1, "columns": round(products), "count": 1},
        "units": {
            "ntt": unit(2 * degree, found.us["forward"] + found.us["inverse"]),
            "icrt": unit(limbs * degree, found.us["decompose_key"]),
            "elementwise": unit(digits * degree, found.us["sum_key"]),
            "automorphism": unit(degree, found.us["permute"]),
        },
    }
    return MachineSpec(fields, found.name).check()

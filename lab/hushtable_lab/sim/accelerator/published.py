"""What IVE prints: its tables, and the values its text gives of figures.

Only the text is to be had: of the curves of Figures 4, 6, 8, 12, 13 and 14 no points are known but
those that the text names. What is printed as a number is a `Published`, and ours is compared with
it; what is printed as a bound ("under 8 %", "58 to 66 %") is a `Bound`, which holds or does not.
Numbers of other systems are `Fact`s: they are shown beside ours and never compared with them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from ..published import Comparison, Published

__all__ = ["BOUNDS", "FACTS", "PUBLISHED", "Bound", "Fact", "bound", "compare"]

#: Relative errors that still count as repeated.
ARITHMETIC, QPS, QPS_LARGE, RATIO, ENERGY = 0.001, 0.05, 0.10, 0.10, 0.20
#: Half of the last digit of 4 %.
DIGIT = 0.125


@dataclass(frozen=True, slots=True)
class Bound:
    """What the paper says lies between two values.

    Attributes:
        name: what it is, for people.
        low: the least; 0 where the paper gives only a most.
        high: the most; infinity where the paper gives only a least.
        unit: of both; empty for a ratio or a share.
        source: where it is printed.
    """

    name: str
    low: float
    high: float
    unit: str
    source: str

    def holds(self, ours: float) -> bool:
        """Whether ours lies between, ends included."""
        return self.low <= ours <= self.high

    @property
    def printed(self) -> str:
        """As the paper has it: "58 to 66 %", "under 8 %"."""
        times, unit = (100, " %") if self.unit == "share" else (1, f" {self.unit}".rstrip())
        if self.low == 0:
            return f"under {times * self.high:g}{unit}"
        if math.isinf(self.high):
            return f"at least {times * self.low:g}{unit}"
        return f"{times * self.low:g} to {times * self.high:g}{unit}"

    def statement(self, ours: float) -> str:
        """A note: ours, the paper's, and whether it holds."""
        times, unit = (100, " %") if self.unit == "share" else (1, f" {self.unit}".rstrip())
        how = "holds" if self.holds(ours) else "does not hold"
        return f"{self.name}: ours {times * ours:.3g}{unit}, the paper's {self.printed}: {how}."

    def as_record(self, ours: float) -> dict[str, Any]:
        """For JSON."""
        return {
            "source": self.source,
            "name": self.name,
            "ours": ours,
            "paper": self.printed,
            "holds": self.holds(ours),
        }


@dataclass(frozen=True, slots=True)
class Fact:
    """A number of another system, as IVE prints it. Nothing of ours is compared with it."""

    system: str
    name: str
    value: float
    unit: str
    source: str


def _table_2() -> list[Published]:
    note = "sums of rows of the same table"
    return [
        Published("32 cores, area", 93.1, "mm2", "Table II", ARITHMETIC, note=note),
        Published("32 cores, peak power", 163.8, "W", "Table II", ARITHMETIC, note=note),
        Published("sum, area", 155.3, "mm2", "Table II", ARITHMETIC, note=note),
        Published("sum, peak power", 239.1, "W", "Table II", ARITHMETIC, note=note),
    ]


def _table_3() -> list[Published]:
    cluster = "16 systems, batch 128"
    return [
        Published("2 GB", 4261, "QPS", "Table III", QPS),
        Published("4 GB", 2350, "QPS", "Table III", QPS),
        Published("8 GB", 1242, "QPS", "Table III", QPS),
        Published("Vcall, 384 GB", 413.0, "QPS", "Table III", QPS_LARGE, note=cluster),
        Published("Comm, 288 GB", 544.6, "QPS", "Table III", QPS_LARGE, note=cluster),
        Published("Fsys, 1.25 TB", 127.5, "QPS", "Table III", QPS_LARGE, note=cluster),
        Published("Comm, latency", 0.24, "s", "Section VI-B", QPS_LARGE, note=cluster),
    ]


def _table_4() -> list[Published]:
    return [
        Published("SimplePIR, 2 GB", 11_766, "QPS", "Table IV", QPS),
        Published("SimplePIR, 4 GB", 5_883, "QPS", "Table IV", QPS),
        Published("KsPIR, 2 GB", 2_555, "QPS", "Table IV", QPS),
        Published("KsPIR, 4 GB", 1_288, "QPS", "Table IV", QPS),
    ]


def _figure_4() -> list[Published]:
    return [
        Published("RowSel, share of multiplications, 2 GB", 0.58, "", "Figure 4a", RATIO),
        Published("RowSel, share of multiplications, 16 GB", 0.66, "", "Figure 4a", RATIO),
    ]


def _figure_8() -> list[Published]:
    a, b = "Figure 8a", "Figure 8b"
    subtrees = "hierarchical, breadth first inside"
    return [
        Published(f"ExpandQuery, DRAM: breadth first over {subtrees}", 1.75, "", a, RATIO),
        Published("ExpandQuery, DRAM: breadth over depth first inside", 1.07, "", a, RATIO),
        Published("ExpandQuery, DRAM: breadth first over all of ours", 1.87, "", a, RATIO),
        Published(f"ColTor, DRAM: breadth first over {subtrees}", 1.81, "", b, RATIO),
        Published("ColTor, DRAM: without over with overlapping", 1.23, "", b, RATIO),
        Published("ColTor, DRAM: breadth first over all of ours", 2.24, "", b, RATIO),
    ]


def _figure_12() -> list[Published]:
    digit = "printed with one digit"
    return [
        Published("energy of a query, 2 GB", 0.03, "J", "Figure 12", ENERGY, note=digit),
        Published("energy of a query, 4 GB", 0.05, "J", "Figure 12", ENERGY, note=digit),
        Published("energy of a query, 8 GB", 0.09, "J", "Figure 12", ENERGY, note=digit),
    ]


def _figure_13() -> list[Published]:
    b, c, d, e = "Figure 13b", "Figure 13c", "Figure 13d", "Figure 13e"
    alone = "1 over 128 queries"
    return [
        Published("ExpandQuery: breadth first over hierarchical", 1.30, "", b, RATIO),
        Published("ColTor: breadth first over hierarchical", 1.75, "", b, RATIO),
        Published("all: breadth first over hierarchical", 1.20, "", b, RATIO),
        Published("ColTor: without over with overlapping", 1.28, "", b, RATIO),
        Published("all: without over with overlapping", 1.06, "", b, RATIO),
        Published("ExpandQuery: breadth first over all of ours", 1.30, "", b, RATIO),
        Published("ColTor: breadth first over all of ours", 2.23, "", b, RATIO),
        Published("all: breadth first over all of ours", 1.26, "", b, RATIO),
        Published("16 GB, batch 64", 591, "QPS", c, QPS_LARGE),
        Published("16 GB, QPS: batch 64 over 32", 1.1, "", c, RATIO),
        Published("16 GB, QPS: batch 64 over 1", 18.9, "", c, RATIO),
        Published("16 GB, latency: batch 64 over 1", 3.46, "", c, RATIO),
        Published("128 GB, batch 128", 79.9, "QPS", d, QPS),
        Published("128 GB, QPS: batch 128 over 1", 79.9, "", d, RATIO),
        Published("128 GB, latency: batch 128 over 1", 1.60, "", d, RATIO),
        Published("1 TB, a system of 16, batch 128", 9.89, "QPS", d, QPS_LARGE),
        Published("1 TB, QPS: batch 128 over 1", 79.1, "", d, RATIO, note=alone),
        Published("1 TB, latency: batch 128 over 1", 1.62, "", d, RATIO),
        # What changes is compared: of 0.96 a tolerance of 10 % would take no change at all.
        Published("area that special primes save", 0.04, "", e, DIGIT, note="4 %, as printed"),
        Published("energy that special primes save", 0.04, "", e, DIGIT, note="4 %, as printed"),
        Published("area that sysNTTUs save", 0.07, "", e, RATIO, note="7 %, as printed"),
        Published("energy that sysNTTUs add", 0.10, "", e, RATIO, note="1.1 times, as printed"),
    ]


def _figure_14() -> list[Published]:
    a, b = "Figure 14a", "Figure 14b"
    conflict = "Figure 13c has 591 / 18.9 = 31.3 for the same"
    return [
        Published("QPS: IVE over ARK-like", 4.2, "", a, RATIO),
        Published("energy: ARK-like over IVE", 2.4, "", a, RATIO),
        Published("energy x delay x area: ARK-like over IVE", 9.7, "", a, RATIO),
        Published("without batching, limit", 17.8, "QPS", b, QPS_LARGE, note=conflict),
        Published("rate from which batching waits less", 9.5, "QPS", b, QPS_LARGE),
        Published("rate up to which latency stays within 2x", 420, "QPS", b, QPS_LARGE),
        Published("that rate over the one from which batching pays", 44.2, "", b, RATIO),
    ]


_ALL = [
    *_table_2(),
    *_table_3(),
    *_table_4(),
    *_figure_4(),
    *_figure_8(),
    *_figure_12(),
    *_figure_13(),
    *_figure_14(),
]

#: By where they are printed and what they are.
PUBLISHED: dict[tuple[str, str], Published] = {(one.source, one.name): one for one in _ALL}

#: By the same.
BOUNDS: dict[tuple[str, str], Bound] = {
    (one.source, one.name): one
    for one in (
        Bound("Figure 4b: D0 of the fewest multiplications", 256, 512, "", "Figure 4b"),
        Bound("Figure 6: RowSel's multiplications a byte, batch 1", 1, 2, "a byte", "Figure 6"),
        Bound("Figure 13c: communication, 16 GB", 0, 0.08, "share", "Figure 13c"),
        Bound("Figure 13d: communication, 128 GB", 0, 0.01, "share", "Figure 13d"),
        Bound("Figure 13d: communication, 1 TB", 0, 0.01, "share", "Figure 13d"),
        Bound("Figure 14b: latency with batching over without", 0, 2, "times", "Figure 14b"),
    )
}


def _facts() -> list[Fact]:
    rows: list[tuple[str, str, str, dict[str, float]]] = [
        ("CIP-PIR", "Table III", "QPS", {"4 GB": 33.2, "8 GB": 16.0}),
        ("DPF-PIR", "Table III", "QPS", {"2 GB": 956, "4 GB": 466, "8 GB": 225}),
        (
            "INSPIRE",
            "Table III",
            "QPS",
            {"Vcall, 384 GB": 0.021, "Comm, 288 GB": 0.028, "Fsys, 1.25 TB": 0.006},
        ),
        ("INSPIRE", "Section VI-B", "s", {"Comm, latency": 36}),
        (
            "CPU",
            "Table IV",
            "QPS",
            {
                "SimplePIR, 2 GB": 6.2,
                "SimplePIR, 4 GB": 2.9,
                "KsPIR, 2 GB": 0.8,
                "KsPIR, 4 GB": 0.4,
            },
        ),
        (
            "CPU",
            "Figure 12",
            "J",
            {
                "energy of a query, 2 GB": 72,
                "energy of a query, 4 GB": 107,
                "energy of a query, 8 GB": 176,
            },
        ),
        ("CPU", "Figure 12", "times fewer QPS than IVE, geometric mean", {"2 to 8 GB": 687.6}),
        ("GPU", "Figure 12", "times fewer QPS than IVE", {"2 to 8 GB": 18.7}),
        ("GPU", "Figure 12", "times less energy than the CPU", {"2 to 8 GB": 43.3}),
        ("GPU", "Figure 12", "times more energy than IVE", {"2 to 8 GB": 51.3}),
    ]
    return [
        Fact(system, name, value, unit, source)
        for system, source, unit, values in rows
        for name, value in values.items()
    ]


#: Of other systems.
FACTS: tuple[Fact, ...] = tuple(_facts())


def compare(source: str, name: str, ours: float) -> Comparison:
    """Ours beside what is printed.

    Raises:
        KeyError: the paper prints no such number.
    """
    return Comparison(_marked(source, name), ours)


def bound(source: str, name: str) -> Bound:
    """A bound that the paper prints.

    Raises:
        KeyError: it prints none of this name.
    """
    return BOUNDS[source, name]


#: What a value was fitted to, or a choice was made with in sight, as ``fitted.py`` says.
_FITTED = frozenset(
    {
        ("Table III", "2 GB"),
        ("Table III", "4 GB"),
        ("Table III", "8 GB"),
        ("Figure 13c", "16 GB, batch 64"),
        ("Table IV", "SimplePIR, 2 GB"),
        ("Table IV", "KsPIR, 2 GB"),
        ("Table IV", "KsPIR, 4 GB"),
        ("Figure 8a", "ExpandQuery, DRAM: breadth first over hierarchical, breadth first inside"),
        ("Figure 8a", "ExpandQuery, DRAM: breadth over depth first inside"),
        ("Figure 8a", "ExpandQuery, DRAM: breadth first over all of ours"),
        # The register file's energy goes by its traffic.
        ("Figure 12", "energy of a query, 2 GB"),
        ("Figure 12", "energy of a query, 4 GB"),
        ("Figure 12", "energy of a query, 8 GB"),
        # In machines/ark.toml.
        ("Figure 14a", "QPS: IVE over ARK-like"),
        ("Figure 14a", "energy: ARK-like over IVE"),
        ("Figure 14a", "energy x delay x area: ARK-like over IVE"),
        # In machines/ive-separate.toml.
        ("Figure 13e", "area that sysNTTUs save"),
        ("Figure 13e", "energy that sysNTTUs add"),
    }
)


def _marked(source: str, name: str) -> Published:
    found = PUBLISHED[source, name]
    return replace(found, is_fitted=True) if (source, name) in _FITTED else found

"""Figures 13e and 14a: the same work on machines that are built otherwise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..figure import Figure
from .figures_draw import grouped
from .figures_points import Point, area_mm2, prefetch
from .published import compare

__all__ = ["FIGURES"]


def figure_13e() -> Figure:
    """Area and energy with special primes and with units that do both NTT and GEMM."""
    points = {
        "Base": Point(machine="ive-separate", table_gb=16, special_primes=False),
        "+ special primes": Point(machine="ive-separate", table_gb=16),
        "+ sysNTTU": Point(machine="ive", table_gb=16),
    }
    results = prefetch(points)
    joules = {name: sum(one.joules.values()) for name, one in results.items()}
    area = {name: area_mm2(point) for name, point in points.items()}
    base, primes, ours = points
    source = "Figure 13e"

    def draw(canvas: Any) -> None:
        axes = canvas.subplots()
        series: dict[str, list[float | None]] = {
            "area": [area[name] / area[base] for name in points],
            "energy": [joules[name] / joules[base] for name in points],
            "delay": [results[name].latency_s / results[base].latency_s for name in points],
        }
        grouped(axes, list(points), series, "over Base", form="{:.3f}")
        canvas.legend(loc="outside lower center", ncols=3, fontsize=8, frameon=False)

    return Figure(
        "13e",
        "Area and energy of separate and joined units",
        ("machine", "area_mm2", "joules", "latency_s", "qps"),
        [
            [name, area[name], joules[name], results[name].latency_s, results[name].qps]
            for name in points
        ],
        (
            compare(source, "area that special primes save", 1 - area[primes] / area[base]),
            compare(source, "energy that special primes save", 1 - joules[primes] / joules[base]),
            compare(source, "area that sysNTTUs save", 1 - area[ours] / area[primes]),
            compare(source, "energy that sysNTTUs add", joules[ours] / joules[primes] - 1),
        ),
        draw,
        notes=(
            "The paper gives percents of whole numbers: -4 %, -7 %, 1.1 times. It leaves unsaid "
            "whether the 7 % are of Base or of what special primes leave; the latter is taken.",
            "What special primes save is printed for the multiplier alone (9.1 %); how much of a "
            "unit, and of the chip, multipliers are is not. Both percents miss for that.",
        ),
    )


def figure_14a() -> Figure:
    """Energy, delay and area beside a machine like ARK."""
    points = {
        "IVE": Point(machine="ive", table_gb=16),
        "ARK-like": Point(machine="ark", table_gb=16),
    }
    results = prefetch(points)
    joules = {name: sum(one.joules.values()) for name, one in results.items()}
    area = {name: area_mm2(point) for name, point in points.items()}
    delay = {name: 1 / one.qps for name, one in results.items()}
    product = {name: joules[name] * delay[name] * area[name] for name in points}
    ours, other = points
    source = "Figure 14a"

    def draw(canvas: Any) -> None:
        axes = canvas.subplots()
        columns = {"energy": joules, "delay": delay, "area": area, "their product": product}
        series: dict[str, list[float | None]] = {
            name: [one[name] / one[ours] for one in columns.values()] for name in points
        }
        grouped(axes, list(columns), series, "over IVE", log=True)
        axes.legend(fontsize=8, frameon=False)

    return Figure(
        "14a",
        "Energy, delay and area beside a machine like ARK, 16 GB",
        ("machine", "joules", "delay_s", "area_mm2", "energy_delay_area", "qps"),
        [
            [name, joules[name], delay[name], area[name], product[name], results[name].qps]
            for name in points
        ],
        (
            compare(source, "QPS: IVE over ARK-like", delay[other] / delay[ours]),
            compare(source, "energy: ARK-like over IVE", joules[other] / joules[ours]),
            compare(
                source,
                "energy x delay x area: ARK-like over IVE",
                product[other] / product[ours],
            ),
        ),
        draw,
        notes=(
            "What an ARK-like core draws is not printed: its units are IVE's, scaled.",
            "9.7 is 4.2 x 2.4 over an area of 1.04; the text says that sysNTTUs add 1.4 % of area.",
        ),
    )


FIGURES: dict[str, Callable[..., Figure]] = {"13e": figure_13e, "14a": figure_14a}

"""Tables II, III and IV."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..figure import Figure
from .figures_draw import grouped
from .figures_points import Point, prefetch
from .machine import machine
from .published import FACTS, compare

__all__ = ["CLUSTER", "FIGURES", "SMALL"]

#: The databases that the paper makes up, in GB.
SMALL = {"2 GB": 2, "4 GB": 4, "8 GB": 8}
#: Those of applications, on 16 systems with batches of 128.
CLUSTER = {"Vcall, 384 GB": 384, "Comm, 288 GB": 288, "Fsys, 1.25 TB": 1280}
CLUSTER_SYSTEMS, CLUSTER_BATCH = 16, 128
#: A core's area and peak power as Table II prints them: more than its parts.
_CORE = (2.91, 5.12)


def table_2() -> Figure:
    """Area and peak power: the sums of the parts."""
    ive = machine("ive")
    rows: list[list[Any]] = [
        [name, ive.units[kind].area_mm2, ive.units[kind].power_w]
        for name, kind in (
            ("sysNTTU", "ntt"),
            ("iCRTU", "icrt"),
            ("EWU", "elementwise"),
            ("AutoU", "automorphism"),
        )
    ]
    rows.append(["RF & buffers", ive.rf_area_mm2, ive.rf_power_w])
    parts = [sum(row[column] for row in rows) for column in (1, 2)]
    cores = [ive.cores * value for value in _CORE]
    sums = [
        cores[0] + ive.noc_area_mm2 + ive.hbm_area_mm2,
        cores[1] + ive.noc_power_w + ive.hbm_power_w,
    ]
    rows += [
        ["sum of a core's parts", *parts],
        ["1 core, as printed", *_CORE],
        [f"{ive.cores} cores", *cores],
        ["NoC", ive.noc_area_mm2, ive.noc_power_w],
        ["HBM", ive.hbm_area_mm2, ive.hbm_power_w],
        ["sum", *sums],
    ]
    return Figure(
        "table-2",
        "Area and peak power of IVE",
        ("component", "area_mm2", "peak_power_w"),
        rows,
        tuple(
            compare("Table II", f"{name}, {what}", values[index])
            for name, values in (("32 cores", cores), ("sum", sums))
            for index, what in enumerate(("area", "peak power"))
        ),
        notes=(
            f"A core is printed as {_CORE[0]} mm2 and {_CORE[1]} W; its parts add up to "
            f"{parts[0]:.2f} mm2 and {parts[1]:.2f} W. What the rest is, is not said.",
        ),
    )


def table_3() -> Figure:
    """Queries a second for seven databases."""
    points = {name: Point(table_gb=gb) for name, gb in SMALL.items()}
    points |= {
        name: Point(table_gb=gb, systems=CLUSTER_SYSTEMS, batch=CLUSTER_BATCH)
        for name, gb in CLUSTER.items()
    }
    results = prefetch(points)
    comparisons = [compare("Table III", name, one.qps) for name, one in results.items()]
    latency = compare("Section VI-B", "Comm, latency", results["Comm, 288 GB"].latency_s)
    others = ("CIP-PIR", "DPF-PIR", "INSPIRE")
    printed = {(fact.system, fact.name): fact.value for fact in FACTS if fact.source == "Table III"}

    def draw(canvas: Any) -> None:
        left, right = canvas.subplots(1, 2)
        for axes, names in ((left, list(SMALL)), (right, list(CLUSTER))):
            series: dict[str, list[float | None]] = {
                "ours": [results[name].qps for name in names],
                "paper, IVE": [c.published.value for c in comparisons if c.published.name in names],
            }
            for system in others:
                values = [printed.get((system, name)) for name in names]
                if any(value is not None for value in values):
                    series[f"{system}, as printed"] = values
            labels = [name.replace(", ", "\n") for name in names]
            grouped(
                axes,
                labels,
                series,
                "queries a second",
                log=True,
                form="{:,.3g}" if names[0] in CLUSTER else "{:,.0f}",
            )
        left.set_title("one system, batch 64", fontsize=9)
        right.set_title(f"{CLUSTER_SYSTEMS} systems, batch {CLUSTER_BATCH}", fontsize=9)
        handles: dict[str, Any] = {}
        for axes in (left, right):
            for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
                handles.setdefault(label, handle)
        canvas.legend(
            handles.values(),
            handles.keys(),
            loc="outside lower center",
            ncols=5,
            fontsize=7,
            frameon=False,
        )

    return Figure(
        "table-3",
        "Queries a second, by database",
        (
            "database",
            "systems",
            "batch",
            "qps",
            "qps_per_system",
            "latency_s",
            "paper_qps",
            *(f"{system.lower().replace('-', '_')}_qps" for system in others),
        ),
        [
            [name, point.systems, point.batch, results[name].qps]
            + [results[name].qps / point.systems, results[name].latency_s, one.published.value]
            + [printed.get((system, name), "") for system in others]
            for (name, point), one in zip(points.items(), comparisons, strict=True)
        ],
        (*comparisons, latency),
        draw,
        inches=(10.6, 4.2),
        notes=(
            "CIP-PIR, DPF-PIR (several servers, GPUs) and INSPIRE are the paper's numbers, shown "
            "beside and not compared.",
            "INSPIRE's ratios are rounded apart from its QPS: 34.0 / 0.028 is 1,214, printed 1225.",
        ),
    )


def table_4() -> Figure:
    """Queries a second of two other protocols."""
    points = {
        f"{scheme}, {gb} GB": Point(table_gb=gb, workload=scheme.lower())
        for scheme in ("SimplePIR", "KsPIR")
        for gb in (2, 4)
    }
    results = prefetch(points)
    comparisons = [compare("Table IV", name, one.qps) for name, one in results.items()]
    printed = {fact.name: fact.value for fact in FACTS if fact.source == "Table IV"}

    def draw(canvas: Any) -> None:
        axes = canvas.subplots()
        series: dict[str, list[float | None]] = {
            "ours": [one.qps for one in results.values()],
            "paper, IVE": [one.published.value for one in comparisons],
            "CPU, as printed": [printed[name] for name in results],
        }
        labels = [name.replace(", ", "\n") for name in results]
        grouped(axes, labels, series, "queries a second", log=True, form="{:,.5g}")
        canvas.legend(loc="outside lower center", ncols=3, fontsize=8, frameon=False)

    return Figure(
        "table-4",
        "Queries a second of SimplePIR and KsPIR",
        ("scheme", "database", "qps", "paper_qps", "cpu_qps_printed"),
        [
            [
                *one.published.name.split(", "),
                one.ours,
                one.published.value,
                printed[one.published.name],
            ]
            for one in comparisons
        ],
        tuple(comparisons),
        draw,
        notes=(
            "The CPU's are the paper's numbers. Its ratios come from more digits than it prints: "
            "11,766 / 6.2 is 1,898, printed 1,904.",
        ),
    )


FIGURES: dict[str, Callable[..., Figure]] = {
    "table-2": table_2,
    "table-3": table_3,
    "table-4": table_4,
}

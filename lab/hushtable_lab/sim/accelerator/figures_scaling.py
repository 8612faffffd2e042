"""Figures 12, 13a, 13c and 13d: databases and batches of other sizes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..figure import Figure
from ..published import Comparison
from .figures_draw import finish, grouped, stacked
from .figures_points import Point, Result, prefetch, steps
from .figures_tables import CLUSTER_SYSTEMS, SMALL
from .published import FACTS, bound, compare

__all__ = ["FIGURES"]


def figure_12() -> Figure:
    """Queries a second and energy of a query."""
    results = prefetch({name: Point(table_gb=gb) for name, gb in SMALL.items()})
    joules = {name: sum(one.joules.values()) for name, one in results.items()}
    comparisons = [
        compare("Figure 12", f"energy of a query, {name}", value) for name, value in joules.items()
    ]
    cpu = {
        name: fact.value
        for fact in FACTS
        for name in SMALL
        if fact.name == f"energy of a query, {name}" and fact.source == "Figure 12"
    }
    mean = math.prod(one.qps for one in results.values()) ** (1 / len(results))
    parts = list(next(iter(results.values())).joules)

    def draw(canvas: Any) -> None:
        left, right = canvas.subplots(1, 2)
        rates: list[float | None] = [one.qps for one in results.values()]
        grouped(left, list(SMALL), {"ours": rates}, "queries a second", form="{:,.4g}")
        series: dict[str, list[float | None]] = {
            "ours": list(joules.values()),
            "paper, IVE": [one.published.value for one in comparisons],
            "CPU, as printed": [cpu[name] for name in SMALL],
        }
        grouped(right, list(SMALL), series, "J a query", log=True, form="{:.3g}")
        canvas.legend(
            *right.get_legend_handles_labels(),
            loc="outside lower center",
            ncols=3,
            fontsize=8,
            frameon=False,
        )

    return Figure(
        "12",
        "Queries a second and energy of a query",
        ("database", "qps", "joules", *(f"{part}_joules" for part in parts), "cpu_joules_printed"),
        [
            [name, one.qps, joules[name], *(one.joules[part] for part in parts), cpu[name]]
            for name, one in results.items()
        ],
        tuple(comparisons),
        draw,
        inches=(8.6, 4.0),
        notes=(
            "The CPU (72, 107 and 176 J) and the GPUs (18.7 times fewer queries, 51.3 times the "
            "energy) are the paper's measurements: nothing of ours is compared with them.",
            f"687.6 times fewer queries than our geometric mean of {mean:,.0f} would be "
            f"{mean / 687.6:.3g} QPS of the paper's 32-core CPU.",
        ),
    )


def figure_13a() -> Figure:
    """Seconds by step against the database."""
    points = {f"{gb} GB": Point(table_gb=gb) for gb in (2, 4, 8, 16)}
    results = prefetch(points)
    seconds = {name: steps(one) for name, one in results.items()}

    def draw(canvas: Any) -> None:
        left, right = canvas.subplots(1, 2)
        for axes, is_share in ((left, False), (right, True)):
            parts = {
                part: [
                    100 * one[part] / sum(one.values()) if is_share else 1e3 * one[part]
                    for one in seconds.values()
                ]
                for part in next(iter(seconds.values()))
            }
            stacked(axes, list(results), parts, "share of the time, %" if is_share else "ms")
        left.set_title("batch of 64", fontsize=9)
        canvas.legend(
            *left.get_legend_handles_labels(),
            loc="outside lower center",
            ncols=6,
            fontsize=8,
            frameon=False,
        )

    return Figure(
        "13a",
        "Seconds by step and database, batch of 64",
        ("database", *_step_columns(seconds), "latency_ms", "qps"),
        [
            [
                name,
                *(1000.0 * value for value in seconds[name].values()),
                1000.0 * one.latency_s,
                one.qps,
            ]
            for name, one in results.items()
        ],
        (compare("Figure 13c", "16 GB, batch 64", results["16 GB"].qps),),
        draw,
        inches=(8.6, 4.0),
        notes=("Of this figure the text has no numbers but the 591 QPS of 16 GB.",),
    )


def figure_13c() -> Figure:
    """Seconds by step and queries a second against the batch, 16 GB."""
    batches = (1, 2, 4, 8, 16, 32, 64, 128)
    results = prefetch({f"{b}": Point(table_gb=16, batch=b) for b in batches})
    at = {batch: results[f"{batch}"] for batch in batches}
    source = "Figure 13c"
    shares = [steps(one)["communication"] / one.latency_s for one in at.values()]
    limit = bound(source, "Figure 13c: communication, 16 GB")
    alone = 591 / 18.9
    return Figure(
        "13c",
        "Seconds by step and queries a second, by batch, 16 GB",
        _COLUMNS + tuple(_step_columns({"": steps(at[1])})),
        [_row("16 GB", 1, batch, one) for batch, one in at.items()],
        (
            compare(source, "16 GB, batch 64", at[64].qps),
            compare(source, "16 GB, QPS: batch 64 over 32", at[64].qps / at[32].qps),
            compare(source, "16 GB, QPS: batch 64 over 1", at[64].qps / at[1].qps),
            compare(source, "16 GB, latency: batch 64 over 1", at[64].latency_s / at[1].latency_s),
        ),
        lambda canvas: _panels(canvas, {"16 GB, one machine": at}),
        notes=(
            limit.statement(max(shares)),
            f"A query alone: ours {at[1].qps:.3g} QPS. The paper has 591 / 18.9 = {alone:.3g} "
            "here and 17.8 in Figure 14b for the same database.",
            "64 / 18.9 = 3.39, but the paper prints a latency of 3.46 times.",
        ),
    )


def figure_13d() -> Figure:
    """Seconds by step and queries a second against the batch, tables in LPDDR."""
    batches = (1, 8, 32, 64, 128, 256)
    systems = {"128 GB": (128, 1), "1 TB": (1024, CLUSTER_SYSTEMS)}
    points = {
        f"{name}, {batch}": Point(table_gb=gb, systems=count, batch=batch)
        for name, (gb, count) in systems.items()
        for batch in batches
    }
    results = prefetch(points)
    at = {name: {batch: results[f"{name}, {batch}"] for batch in batches} for name in systems}
    source = "Figure 13d"
    comparisons: list[Comparison] = []
    notes = []
    for name, (_, count) in systems.items():
        full, one = at[name][128], at[name][1]
        printed = "128 GB, batch 128" if count == 1 else "1 TB, a system of 16, batch 128"
        comparisons += [
            compare(source, printed, full.qps / count),
            compare(source, f"{name}, QPS: batch 128 over 1", full.qps / one.qps),
            compare(source, f"{name}, latency: batch 128 over 1", full.latency_s / one.latency_s),
        ]
        share = max(steps(each)["communication"] / each.latency_s for each in at[name].values())
        notes.append(bound(source, f"Figure 13d: communication, {name}").statement(share))
    notes.append(
        "The paper's 79.9 QPS and its gain of 79.9 times give 1.00 QPS for a query alone at "
        "128 GB: 448 GB over 512 GB/s would be 0.875 s."
    )
    return Figure(
        "13d",
        "Seconds by step and queries a second, by batch, tables in LPDDR",
        _COLUMNS + tuple(_step_columns({"": steps(at["1 TB"][1])})),
        [
            _row(name, systems[name][1], batch, one)
            for name in systems
            for batch, one in at[name].items()
        ],
        tuple(comparisons),
        lambda canvas: _panels(
            canvas, {"128 GB, one system": at["128 GB"], "1 TB, 16 systems": at["1 TB"]}
        ),
        inches=(9.4, 4.4),
        notes=tuple(notes),
    )


_COLUMNS = ("database", "systems", "batch", "qps", "qps_per_system", "latency_ms")


def _row(name: str, systems: int, batch: int, one: Result) -> list[Any]:
    parts = [1e3 * value for value in steps(one).values()]
    return [name, systems, batch, one.qps, one.qps / systems, 1e3 * one.latency_s, *parts]


def _step_columns(seconds: Mapping[str, Mapping[str, float]]) -> list[str]:
    return [f"{name.lower()}_ms" for name in next(iter(seconds.values()))]


def _panels(canvas: Any, at: Mapping[str, Mapping[int, Result]]) -> None:
    """Latency by step as bars, queries a second as a line on an axis of its own."""
    panels: Sequence[Any] = canvas.subplots(1, len(at), squeeze=False)[0]
    for axes, (title, results) in zip(panels, at.items(), strict=True):
        seconds = [steps(one) for one in results.values()]
        parts = {name: [1e3 * one[name] for one in seconds] for name in seconds[0]}
        stacked(axes, [str(batch) for batch in results], parts, "latency, ms")
        axes.set_xlabel("batch, queries", fontsize=9)
        axes.set_title(title, fontsize=9)
        right = axes.twinx()
        right.plot(
            range(len(results)),
            [one.qps for one in results.values()],
            color="black",
            marker="o",
            markersize=3.5,
            linewidth=1.2,
            label="queries a second (right axis)",
        )
        right.set_ylim(0, None)
        finish(right, "queries a second")
        right.grid(False)
        right.spines["right"].set_visible(True)
    handles, labels = panels[0].get_legend_handles_labels()
    more, names = right.get_legend_handles_labels()
    canvas.legend(
        handles + more,
        labels + names,
        loc="outside lower center",
        ncols=4,
        fontsize=7,
        frameon=False,
    )


FIGURES: dict[str, Callable[..., Figure]] = {
    "12": figure_12,
    "13a": figure_13a,
    "13c": figure_13c,
    "13d": figure_13d,
}

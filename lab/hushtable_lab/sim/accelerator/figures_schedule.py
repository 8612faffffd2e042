"""Figures 8a, 8b and 13b: what the order of the trees' operations costs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..figure import COLOURS, Figure
from ..published import Comparison
from .figures_draw import stacked
from .figures_points import Point, Result, prefetch, steps
from .published import compare

__all__ = ["FIGURES"]

#: As the paper orders them: name, schedule, reduction overlapping.
_SCHEDULES = {
    "BFS": ("breadth", False),
    "DFS": ("depth", False),
    "HS (BFS)": ("hierarchical-breadth", False),
    "HS (DFS)": ("hierarchical", False),
    "HS (DFS) + R.O.": ("hierarchical", True),
}
_KINDS = {
    "keys": COLOURS[1],
    "ciphertexts": COLOURS[5],
    "digits": COLOURS[3],
}


def _points(table_gb: float, batch: int) -> dict[str, Point]:
    return {
        name: Point(table_gb=table_gb, batch=batch, schedule=schedule, overlap=overlap)
        for name, (schedule, overlap) in _SCHEDULES.items()
    }


def _traffic(number: str, step: str, key: str, comparisons: Callable[..., Any]) -> Figure:
    results = prefetch(_points(8, 32))
    kinds = {
        name: {kind: amount / 1e9 for kind, amount in one.dram_bytes[key].items()}
        for name, one in results.items()
    }
    totals = {name: sum(one.values()) for name, one in kinds.items()}
    names = list(dict.fromkeys(kind for one in kinds.values() for kind in one))
    parts = {kind: [kinds[name].get(kind, 0.0) for name in results] for kind in names}

    def draw(canvas: Any) -> None:
        axes = canvas.subplots()
        stacked(axes, list(results), parts, f"DRAM traffic of {step}, GB", colours=_KINDS)
        top = max(totals.values())
        for place, (_name, total) in enumerate(totals.items()):
            axes.text(
                place,
                total + 0.015 * top,
                f"{total:.3g}\n({totals['BFS'] / total:.2f}x)",
                ha="center",
                fontsize=8,
            )
        axes.set_ylim(0, 1.2 * top)
        axes.legend(fontsize=8, frameon=False)

    return Figure(
        number,
        f"DRAM traffic of {step} by schedule, 32 queries, 8 GB",
        ("schedule", "overlap", *(f"{name}_gb" for name in names), "total_gb", "subtree"),
        [
            [
                name,
                _SCHEDULES[name][1],
                *(kinds[name].get(kind, 0.0) for kind in names),
                totals[name],
                results[name].subtrees[key],
            ]
            for name in results
        ],
        tuple(comparisons(totals)),
        draw,
        notes=(
            "As published, breadth and depth first and both hierarchical schedules write the "
            "digits of an operation out of the registers; overlapping keeps them from there.",
        ),
    )


def _figure_8(panel: str, step: str, key: str, middle: tuple[str, str, str]) -> Figure:
    """DRAM traffic of a step by schedule, of which the text names three quotients: to breadth-first
    subtrees, to all of the paper's, and one in between: its name, and between which schedules.
    """
    source, (name, before, after) = f"Figure {panel}", middle
    breadth = f"{step}, DRAM: breadth first over"
    subtrees = f"{breadth} hierarchical, breadth first inside"

    def comparisons(total: dict[str, float]) -> list[Comparison]:
        return [
            compare(source, subtrees, total["BFS"] / total["HS (BFS)"]),
            compare(source, f"{step}, DRAM: {name}", total[before] / total[after]),
            compare(source, f"{breadth} all of ours", total["BFS"] / total["HS (DFS) + R.O."]),
        ]

    return _traffic(panel, step, key, comparisons)


def figure_8a() -> Figure:
    """DRAM traffic of ExpandQuery by schedule."""
    middle = ("breadth over depth first inside", "HS (BFS)", "HS (DFS)")
    return _figure_8("8a", "ExpandQuery", "expand", middle)


def figure_8b() -> Figure:
    """DRAM traffic of ColTor by schedule."""
    middle = ("without over with overlapping", "HS (DFS)", "HS (DFS) + R.O.")
    return _figure_8("8b", "ColTor", "tournament", middle)


def figure_13b() -> Figure:
    """Seconds by step and schedule, 16 GB."""
    shown = {name: one for name, one in _points(16, 64).items() if name != "HS (BFS)"}
    results = prefetch(shown)
    seconds = {name: steps(one) for name, one in results.items()}
    names = list(next(iter(seconds.values())))

    def draw(canvas: Any) -> None:
        axes = canvas.subplots()
        parts = {name: [1e3 * seconds[one][name] for one in results] for name in names}
        stacked(axes, list(results), parts, "latency of a batch of 64, ms")
        canvas.legend(loc="outside right upper", fontsize=8, frameon=False)

    def ratio(part: Callable[[Result], float], over: str, under: str) -> float:
        return part(results[over]) / part(results[under])

    def step(key: str) -> Callable[[Result], float]:
        return lambda one: one.seconds[key]

    source, hierarchical, ours = "Figure 13b", "HS (DFS)", "HS (DFS) + R.O."
    expand, tournament = step("expand"), step("tournament")
    total: Callable[[Result], float] = lambda one: one.latency_s  # noqa: E731
    rows: tuple[tuple[str, Callable[[Result], float], str, str], ...] = (
        ("ExpandQuery: breadth first over hierarchical", expand, "BFS", hierarchical),
        ("ColTor: breadth first over hierarchical", tournament, "BFS", hierarchical),
        ("all: breadth first over hierarchical", total, "BFS", hierarchical),
        ("ColTor: without over with overlapping", tournament, hierarchical, ours),
        ("all: without over with overlapping", total, hierarchical, ours),
        ("ExpandQuery: breadth first over all of ours", expand, "BFS", ours),
        ("ColTor: breadth first over all of ours", tournament, "BFS", ours),
        ("all: breadth first over all of ours", total, "BFS", ours),
    )
    return Figure(
        "13b",
        "Seconds by step and schedule, 16 GB",
        ("schedule", "overlap", *(f"{name.lower()}_ms" for name in names), "latency_ms", "qps"),
        [
            [
                name,
                _SCHEDULES[name][1],
                *(1000.0 * seconds[name][part] for part in names),
                1000.0 * results[name].latency_s,
                results[name].qps,
            ]
            for name in results
        ],
        tuple(compare(source, name, ratio(part, over, under)) for name, part, over, under in rows),
        draw,
        notes=(
            "ExpandQuery gains more than printed: breadth first, its traffic binds it here all of "
            "the time, as little computation hides it.",
        ),
    )


FIGURES: dict[str, Callable[..., Figure]] = {
    "8a": figure_8a,
    "8b": figure_8b,
    "13b": figure_13b,
}

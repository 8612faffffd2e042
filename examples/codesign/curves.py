"""Figures 12 to 15 of Lam et al., "GPU-based Private Information Retrieval for On-Device Machine
Learning Inference", for one application: quality against computation, communication and
throughput, at the paper's limits, and communication against computation at one quality."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from hushtable.tune import Point
from hushtable.tune.plots import Axis, Figure, draw_figures

from .compare import (
    COMM_KB_MAX,
    LATENCY_MS_MAX,
    PAPER_TOLERANCE,
    PLAIN,
    TOLERANCE,
    UNBATCHED,
    CallsLimit,
    calls_limits,
    prf_calls,
    within_limits,
)
from .kept import points_of

#: The lines that the paper's figures have, and the baseline without batches.
LINES = (UNBATCHED, PLAIN, "hot", "collocated", "hot+collocated")
#: Quality this much worse than in the clear is not drawn: nobody would use it.
_WORSE_DRAWN_MAX = 0.06


def draw_curves(document: Mapping[str, Any], folder: Path, suffixes: Sequence[str]) -> list[Path]:
    """Draws what ``document``, an application's result, has points for; returns the files."""
    lines: dict[str, list[Point]] = {name: [] for name in LINES}
    for kind, point in points_of(document):
        if kind in lines and point.quality is not None:
            lines[kind].append(point)
    return draw_figures(figures_of(document), lines, folder, suffixes)


def figures_of(document: Mapping[str, Any]) -> list[Figure]:
    """What is drawn: Figure 13 once for each way of counting PRF calls, Figure 14 for the paper's
    tolerance and for ours."""
    name, metric = document["application"], document["metric"]
    clear = document["quality_clear"]["validation"]
    higher = bool(document["higher_is_better"])
    sign = 1 if higher else -1

    def is_kept(point: Point, tolerance: float) -> bool:
        return bool(sign * ((point.quality or 0.0) - clear * (1 - sign * tolerance)) >= 0)

    def usable(within: Callable[[Point], bool]) -> Callable[[Point], bool]:
        return lambda point: within(point) and is_kept(point, _WORSE_DRAWN_MAX)

    better = "higher" if higher else "lower"
    quality = Axis(
        f"{metric} ({better} is better)", lambda p: p.quality or 0.0, more_is_better=higher
    )
    calls = Axis("PRF calls an inference (leaves of one row)", prf_calls, is_log=True)
    comm = Axis("KB an inference, both servers, both ways", lambda p: p.comm_kb, is_log=True)
    rate = Axis(
        "inferences/s, a core of each server (predicted)",
        lambda p: p.inferences_per_s,
        is_log=True,
        more_is_better=True,
    )
    figures = [
        Figure(
            "computation-quality",
            f"{name}: at most {COMM_KB_MAX:g} KB an inference (as Figure 12)",
            calls,
            quality,
            usable(lambda p: p.comm_kb <= COMM_KB_MAX),
            clear,
        )
    ]
    for limit in calls_limits(name, document["rows"]):
        suffix = "" if limit.name == "paper" else f"-{limit.name}"
        figures.append(
            Figure(
                f"communication-quality{suffix}",
                f"{name}: at most {limit.text} (as Figure 13)",
                comm,
                quality,
                usable(partial(_is_within, limit)),
                clear,
            )
        )
    for tolerance, suffix in ((PAPER_TOLERANCE, ""), (TOLERANCE, "-strict")):
        figures.append(
            Figure(
                f"communication-computation{suffix}",
                f"{name}: {metric} within {tolerance:.1%} of the clear model's (as Figure 14)",
                comm,
                calls,
                partial(is_kept, tolerance=tolerance),
            )
        )
    figures.append(
        Figure(
            "throughput-quality",
            f"{name}: at most {COMM_KB_MAX:g} KB and {LATENCY_MS_MAX:g} ms (as Figure 15)",
            rate,
            quality,
            usable(within_limits),
            clear,
        )
    )
    return figures


def _is_within(limit: CallsLimit, point: Point) -> bool:
    return bool(limit.cost(point) <= limit.calls)

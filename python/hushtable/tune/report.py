"""What the tuner found, as JSON and as a table."""

from __future__ import annotations

import contextlib
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from .front import BudgetError, Point, choose, families_of
from .judge import spread_points
from .run import TuneResult

__all__ = [
    "COLUMNS",
    "best_by_family",
    "family_rows",
    "front_rows",
    "to_json",
    "write_json",
]

FORMAT = "hushtable-tune"
FORMAT_VERSION = 1

#: Heads of the table that people read.
COLUMNS = (
    "family",
    "KB/inference",
    "inferences/s/core",
    "dropped",
    "quality",
    "ms alone",
    "PRF calls",
    "stored",
    "layout",
)


def to_json(result: TuneResult) -> dict[str, Any]:
    """Everything that was found, for machines."""
    return {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        **result.facts,
        "budgets": asdict(result.budgets),
        "quality_clear": result.quality_clear,
        "cost_model": result.costs.to_dict(),
        "best": result.best.to_dict(),
        "best_by_family": [point.to_dict() for point in best_by_family(result)],
        "front": [point.to_dict() for point in result.front],
        "points": [point.to_dict() for point in result.points],
    }


def write_json(result: TuneResult, path: Path) -> None:
    """Writes :func:`to_json` to a file."""
    path.write_text(json.dumps(to_json(result), indent=1) + "\n")


def front_rows(result: TuneResult, count_max: int = 24) -> list[list[str]]:
    """Lines of the table: the best layout, then the front around the budgets, fastest first.

    The best is marked with ``*``.
    """
    budgets = result.budgets
    near = [
        point
        for point in result.front
        if all(excess <= 1.0 for excess in budgets.excesses(point).values())
    ] or list(result.front)
    shown = spread_points(near, count_max)
    if all(point.spec != result.best.spec for point in shown):
        shown.append(result.best)
    shown.sort(key=lambda point: (point.server_ms, point.comm_kb))
    return [_row(point, point.spec == result.best.spec) for point in shown]


def best_by_family(result: TuneResult) -> list[Point]:
    """Of each family the choice within the budgets; families without one are left out."""
    found = []
    for family in families_of(result.points):
        with contextlib.suppress(BudgetError):
            points = [point for point in result.points if point.family == family]
            found.append(choose(points, result.budgets))
    return found


def family_rows(result: TuneResult) -> list[list[str]]:
    """Lines of the table that compares families: each one's choice within the budgets.

    The best of all is marked with ``*``; families that cannot meet the budgets have no line.
    """
    return [_row(point, point.spec == result.best.spec) for point in best_by_family(result)]


def _row(point: Point, is_best: bool) -> list[str]:
    return [
        ("* " if is_best else "  ") + point.family,
        f"{point.comm_kb:,.1f}",
        f"{point.inferences_per_s:,.0f}",
        f"{point.drop:.3%}",
        "-" if point.quality is None else f"{point.quality:.5g}",
        f"{point.latency_ms:.3g}",
        f"{point.costs['prf_calls']:,}",
        f"{point.costs['stored_bytes'] / 1e6:,.1f} MB",
        point.spec.describe(),
    ]

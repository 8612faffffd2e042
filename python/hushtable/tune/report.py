"""What the tuner found, as JSON and as a table."""

from __future__ import annotations

import contextlib
import json
import textwrap
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from .front import BudgetError, Point, choose, families_of
from .judge import spread_points
from .run import TuneResult

__all__ = [
    "COLUMNS",
    "LEGEND",
    "WIDTH",
    "best_by_family",
    "family_rows",
    "folded",
    "front_rows",
    "short_count",
    "table_lines",
    "to_json",
    "write_json",
]

FORMAT = "hushtable-tune"
FORMAT_VERSION = 1

#: Columns that the table for people keeps to: terminals are seldom narrower.
WIDTH = 80

#: Heads of the table that people read: the first to the left, the others to the right.
COLUMNS = ("family", "KB", "inf./s", "dropped", "quality", "ms", "PRF", "MB")

#: What the heads mean.
LEGEND = (
    "KB: to and from both servers for one inference. inf./s: inferences a second of",
    "one core of each. dropped: of the held-out accesses. ms: one server, for one",
    "inference alone. PRF: calls an inference. MB: what a server stores.",
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


def table_lines(rows: list[list[str]]) -> list[str]:
    """The table as lines of at most :data:`WIDTH` columns: the figures of each layout in one, and
    what it is made of, indented, in those below."""
    figures = [row[: len(COLUMNS)] for row in rows]
    widths = [max(len(line[i]) for line in [list(COLUMNS), *figures]) for i in range(len(COLUMNS))]
    # A name too long for what the figures leave stands in a line of its own.
    widths[0] = min(widths[0], WIDTH - sum(widths[1:]) - len(widths[1:]))
    lines = [_aligned(COLUMNS, widths)]
    for row in rows:
        if len(row[0]) > widths[0]:
            lines.append(row[0])
            row = ["", *row[1:]]
        lines.append(_aligned(row, widths))
        lines += folded(row[len(COLUMNS)], indent="      ")
    return lines


def folded(text: str, *, indent: str = "", first: str | None = None) -> list[str]:
    """``text`` in lines of at most :data:`WIDTH` columns, broken between words only."""
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=indent if first is None else first,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _aligned(cells: Sequence[str], widths: list[int]) -> str:
    head = f"{cells[0]:<{widths[0]}}"
    return " ".join([head, *(f"{c:>{w}}" for c, w in zip(cells[1:], widths[1:], strict=False))])


def _row(point: Point, is_best: bool) -> list[str]:
    return [
        ("* " if is_best else "  ") + point.family,
        f"{point.comm_kb:,.1f}",
        f"{point.inferences_per_s:,.0f}",
        f"{point.drop:.3%}",
        "-" if point.quality is None else f"{point.quality:.5g}",
        f"{point.latency_ms:.3g}",
        short_count(point.costs["prf_calls"]),
        f"{point.costs['stored_bytes'] / 1e6:,.1f}",
        point.spec.describe(),
    ]


def short_count(count: int) -> str:
    """A count in at most six characters: 999, 12.3k, 4.57M."""
    for unit, size in (("G", 10**9), ("M", 10**6), ("k", 10**3)):
        if count >= 10 * size or (count >= size and unit != "k"):
            return f"{count / size:,.4g}{unit}"
    return str(count)

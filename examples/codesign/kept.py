"""Measured layouts as JSON, and back: so that curves are drawn, and times measured again, without
searching and judging anew."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import astuple, replace
from typing import Any

from hushtable import ConfigError
from hushtable.tune import CostModel, LayoutSpec, PartSpec, Point

from .compare import Application, Comparison, kind_of

_COSTS = (
    "keys",
    "up_left_bytes",
    "up_right_bytes",
    "down_bytes",
    "comm_bytes",
    "expanded_rows",
    "prf_calls",
    "prf_blocks",
    "product_bytes",
    "stored_bytes",
    "map_bytes",
)


def to_dict(comparison: Comparison) -> dict[str, Any]:
    """The layouts of a comparison, and by what their times were predicted.

    A part is (rows, bins, queries, hashes, companions); costs are in the order of ``costs``.
    """
    first = comparison.points[0].spec
    return {
        "ids_max": first.ids_max,
        "drop_rule": first.drop,
        "seed": first.seed,
        "batch": comparison.points[0].batch,
        "accesses": comparison.points[0].accesses,
        "cost_model": comparison.costs.to_dict(),
        "costs": list(_COSTS),
        "layouts": [
            {
                "kind": kind_of(point),
                "hot": None if point.spec.hot is None else astuple(point.spec.hot),
                "full": None if point.spec.full is None else astuple(point.spec.full),
                "costs": [point.costs[name] for name in _COSTS],
                "drop": point.drop,
                "quality": point.quality,
            }
            for point in comparison.points
        ],
    }


def points_of(document: Mapping[str, Any]) -> Iterator[tuple[str, Point]]:
    """The kind and the figures of each layout that an application's result holds."""
    points = document["points"]
    model = CostModel.from_dict(points["cost_model"])
    for layout in points["layouts"]:
        hot, full = (
            None if layout[name] is None else PartSpec(*layout[name]) for name in ("hot", "full")
        )
        spec = LayoutSpec(hot, full, points["ids_max"], points["drop_rule"], points["seed"])
        costs = dict(zip(points["costs"], layout["costs"], strict=True))
        point = Point(
            spec=spec,
            costs=costs,
            latency_ms=0.0,
            batch_ms=0.0,
            batch=points["batch"],
            drop=layout["drop"],
            accesses=points["accesses"],
            quality=layout["quality"],
        )
        yield layout["kind"], timed(point, model)


def timed(point: Point, model: CostModel) -> Point:
    """``point`` with the times that ``model`` predicts."""
    wire_ms = model.wire_seconds(point.costs) * 1e3
    return replace(
        point,
        latency_ms=model.alone_seconds(point.costs, point.spec) * 1e3 + wire_ms,
        batch_ms=model.batch_seconds(point.costs, point.spec) * 1e3,
        wire_ms=wire_ms,
    )


def from_dict(
    app: Application, document: Mapping[str, Any], model: CostModel | None = None
) -> Comparison:
    """The comparison that :func:`to_dict` kept.

    Args:
        app: the application that it is of.
        document: an application's result.
        model: predicts times; the one kept with the layouts by default.

    Raises:
        ConfigError: it is of another model or table.
    """
    rows = len(app.weight)
    if document["rows"] != rows:
        raise ConfigError(
            f"the kept layouts are of {document['rows']:,} rows, the table of {rows:,}"
        )
    clear = app.quality("validation"), app.quality("test")
    kept = document["quality_clear"]["validation"]
    if abs(clear[0] / kept - 1) > 1e-3:
        raise ConfigError(
            f"the kept layouts were judged by another model: its {app.metric} in the clear is"
            f" {kept:.5g}, this one's {clear[0]:.5g}: search anew"
        )
    model = model or CostModel.from_dict(document["points"]["cost_model"])
    points = [timed(point, model) for _, point in points_of(document)]
    return Comparison(app, points, clear, document["search"], model)

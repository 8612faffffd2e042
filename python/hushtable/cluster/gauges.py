"""What dashboards see of a cluster, as metrics of Ray's."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from .spec import Cluster
from .steps import Switch
from .wanted import Report, Wanted, parse_name, shard_name

__all__ = ["Gauges"]


class Gauges:
    """Gauges of the coordinator; Ray exports them with ``ray_`` before the name.

    No label comes from a query: a side, a number of a shard, a phase.
    """

    def __init__(self) -> None:
        metrics = importlib.import_module("ray.util.metrics")

        def gauge(name: str, text: str, *labels: str) -> Any:
            return metrics.Gauge(f"hushtable_cluster_{name}", text, tag_keys=("side", *labels))

        self._wanted = gauge("replicas_wanted", "Replicas that a shard is to have.", "shard")
        self._ready = gauge("replicas_ready", "Replicas that offer the newest version.", "shard")
        self._fronts_wanted = gauge("fronts_wanted", "Fronts that there are to be.")
        self._fronts_ready = gauge("fronts_ready", "Fronts that announce the newest version.")
        self._restarts = gauge("restarts", "Starts of servers after their first.", "shard")
        self._queue = gauge("queue_seconds", "Mean wait in a shard's queues.", "shard")
        self._phase = gauge("phase", "1 for the phase of the newest version.", "phase")

    def show(
        self,
        wanted: Wanted,
        cluster: Cluster,
        reports: Mapping[str, Report | None],
        at: Switch,
    ) -> None:
        """Sets all of them."""
        side, version = {"side": cluster.side}, wanted.newest.version
        for shard, count in enumerate(wanted.replicas):
            labels = {**side, "shard": str(shard)}
            found = [reports.get(shard_name(shard, index)) for index in range(count)]
            there = [report for report in found if report is not None]
            waits = [report.queue_s for report in there if report.queue_s is not None]
            self._wanted.set(count, labels)
            self._ready.set(sum(report.holds(version) for report in there), labels)
            self._restarts.set(sum(report.restarts for report in there), labels)
            if waits:
                self._queue.set(sum(waits) / len(waits), labels)
        fronts = [
            report
            for name, report in reports.items()
            if report is not None and (parse_name(name) or (0, 0))[0] is None
        ]
        self._fronts_wanted.set(cluster.fronts.count, side)
        self._fronts_ready.set(sum(report.holds(version) for report in fronts), side)
        self._restarts.set(sum(report.restarts for report in fronts), {**side, "shard": "fronts"})
        for phase in Switch.PHASES:
            self._phase.set(float(phase == at.phase), {**side, "phase": phase})

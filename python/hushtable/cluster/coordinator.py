"""What keeps one side's cluster as it is wanted: placement, addresses, versions, replica counts."""

from __future__ import annotations

import contextlib
import json
import sys
import threading
import time
import traceback
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ..errors import Error
from .connection import COORDINATOR, check_other_side, nodes
from .errors import ClusterError
from .gauges import Gauges
from .placing import Placing
from .scaling import Autoscaler
from .source import Source, read_source
from .spec import Cluster
from .steps import (
    Drain,
    Observed,
    Place,
    PlaceGroup,
    Remove,
    Switch,
    registry,
    steps,
    switch,
)
from .wanted import Report, Wanted, parse_name, shard_name, shards_text

__all__ = ["Coordinator", "ask_all", "next_generation", "targets"]

_STEP_S = 0.5
#: Of one call to an actor: its methods return at once, so that silence is an answer too.
CALL_S_MAX = 3.0
#: How long the address of a server whose actor does not answer is kept.
_KNOWN_S = 20.0
#: How long a coordinator that was started again waits for every actor to say what it was told.
_RECALL_S = 5.0


def next_generation(before: int) -> int:
    """Greater than any that was given out."""
    return max(before + 1, time.time_ns() // 1_000_000)


def ask_all(ray: Any, handles: Mapping[str, Any]) -> dict[str, tuple[Report, Wanted] | None]:
    """What each of the actors says; None where an actor does not answer in time."""
    asked = {handle.report.remote(): name for name, handle in handles.items()}
    found: dict[str, tuple[Report, Wanted] | None] = dict.fromkeys(handles)
    answered, _ = (
        ray.wait(list(asked), num_returns=len(asked), timeout=CALL_S_MAX) if asked else ([], [])
    )
    for reference in answered:
        # An actor that restarts or is gone: as one that says nothing.
        with contextlib.suppress(ray.exceptions.RayError):
            said = ray.get(reference, timeout=CALL_S_MAX)
            record = Report.of_record(said["report"]), Wanted.of_record(said["wanted"])
            found[asked[reference]] = record
    return found


class Coordinator:
    """Takes one step after the other, each from what is there: nothing depends on the last.

    What is wanted is in memory here and with every server's actor. Started again, it takes the
    newest of what they were told.
    """

    def __init__(self, ray: Any, record: Mapping[str, Any]) -> None:
        self._ray = ray
        self._lock = threading.Lock()
        self._wanted = Wanted.of_record(record)
        self._placing = Placing(ray)
        self._gauges = Gauges()
        self._reports: dict[str, Report | None] = {}
        self._known: dict[str, tuple[float, Report]] = {}
        self._left_at: dict[str, float] = {}
        self._urls: list[list[str]] = []
        self._wants: list[str] = []
        self._trouble = ""
        self._scaler: tuple[tuple[Any, ...], Autoscaler] | None = None
        self._look: Future[Source] | None = None
        self._looked_at = time.monotonic()
        self._look_reason = ""
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="source")
        self._is_recalled = False
        self._started_at = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="coordinator", daemon=True)

    def start(self) -> None:
        """Begins to take steps."""
        self._thread.start()

    def wanted(self) -> Wanted:
        """What is wanted now.

        Raises:
            ClusterError: that is not known yet; to be called again.
        """
        with self._lock:
            self._check_recalled()
            return self._wanted

    def apply(self, record: Mapping[str, Any]) -> None:
        """Takes another file's entries, and the version that its source has.

        Raises:
            ClusterError: no other actor has it yet, or this one does not know yet what was wanted
                before; to be called again.
        """
        given = Wanted.of_record(record)
        cluster = Cluster.of_record(given.cluster)
        with self._lock:
            self._check_recalled()
            before = self._wanted
            least, most = cluster.shards.replicas_min, cluster.shards.replicas_max
            replicas = tuple(min(max(count, least), most) for count in before.replicas)
            changed = replace(before, cluster=given.cluster, replicas=replicas)
            self._want(_with_version(changed, given.newest), is_newer=changed != before)
            record = self._wanted.record()
        self._keep(record)

    def _keep(self, record: Mapping[str, Any]) -> None:
        """Returns once another actor knows it: this one may end before its next step."""
        told = [handle.tell.remote(record, None) for handle in self._placing.known().values()]
        # Before there are any the caller's next try is as good.
        if not told:
            return
        answered, _ = self._ray.wait(told, num_returns=len(told), timeout=CALL_S_MAX)
        for reference in answered:
            with contextlib.suppress(self._ray.exceptions.RayError):
                self._ray.get(reference, timeout=CALL_S_MAX)
                return
        raise ClusterError("no server's actor answers, so that nothing would remember the change")

    def _want(self, wanted: Wanted, *, is_newer: bool = True) -> None:
        if is_newer or wanted != self._wanted:
            self._wanted = replace(wanted, generation=next_generation(self._wanted.generation))

    def _run(self) -> None:
        while True:
            try:
                self._step()
                self._trouble = ""
            except Exception as error:  # the next step may go
                traceback.print_exc(file=sys.stderr)
                self._trouble = f"{type(error).__name__}: {error}"
            time.sleep(_STEP_S)

    def _step(self) -> None:
        handles = self._placing.handles()
        said = ask_all(self._ray, handles)
        reports = {name: one and one[0] for name, one in said.items()}
        if not self._recall(said):
            return
        cluster = Cluster.of_record(self.wanted().cluster)
        now = time.monotonic()
        for name, report in reports.items():
            if report is not None:
                self._known[name] = now, report
        self._follow_source(cluster)
        self._scale(cluster, reports, now)
        self._finish_switch(cluster, reports)
        wanted = self.wanted()
        cluster = Cluster.of_record(wanted.cluster)
        check_other_side(self._ray, cluster.side)
        observed = Observed(
            reports,
            self._placing.groups(),
            nodes(self._ray),
            self._leaving(wanted, cluster, reports, now),
        )
        todo, wants = steps(wanted, cluster, observed)
        for step in todo:
            try:
                self._do(step, wanted, cluster, handles)
            except Exception as error:  # the others, and fronts' files, do not wait for it
                traceback.print_exc(file=sys.stderr)
                wants.append(f"{step}: {error}")
        known = {
            name: known
            for name, (at, known) in self._known.items()
            if reports.get(name) is not None or now - at < _KNOWN_S
        }
        self._urls = registry(wanted, known, self._urls)
        self._tell(wanted, cluster, handles, reports)
        with self._lock:
            self._reports, self._wants = reports, wants
        self._placing.hint(cluster, wants)
        self._write_targets(cluster, reports)
        self._gauges.show(wanted, cluster, reports, switch(wanted, cluster, reports))

    def _recall(self, said: Mapping[str, tuple[Report, Wanted] | None]) -> bool:
        """Takes the newest of what the actors were told; False while one may yet say more.

        At every step: one that was silent at the first may know the newest.
        """
        late = time.monotonic() - self._started_at > _RECALL_S
        if not self._is_recalled and None in said.values() and not late:
            return False
        with self._lock:
            for one in said.values():
                if one is not None and one[1].id == self._wanted.id:
                    self._wanted = max(self._wanted, one[1], key=lambda wanted: wanted.generation)
            self._is_recalled = True
        return True

    def _check_recalled(self) -> None:
        if not self._is_recalled:
            raise ClusterError("the coordinator has just started, and asks servers what is wanted")

    def _follow_source(self, cluster: Cluster) -> None:
        every_s = cluster.watch.every_s
        if self._look is not None and self._look.done():
            look, self._look = self._look, None
            try:
                found = look.result()
            except Error as error:
                self._look_reason = str(error)
            else:
                self._look_reason = ""
                with self._lock:
                    self._take(found)
        if self._look is None and every_s and time.monotonic() - self._looked_at >= every_s:
            self._looked_at = time.monotonic()
            self._look = self._pool.submit(read_source, cluster.source, cluster.scheme)

    def _take(self, found: Source) -> None:
        wanted = self._wanted
        if found.place != Cluster.of_record(wanted.cluster).source:
            return  # another was named while it was read
        if found.shards != wanted.shards:
            self._look_reason = (
                f"{found.shown} has a map of {found.shards} shards, and {wanted.shards} run: plan "
                "the new version with the same number, or bring up a cluster of another number"
            )
        elif found != wanted.newest:
            self._want(_with_version(wanted, found))

    def _scale(self, cluster: Cluster, reports: Mapping[str, Report | None], now: float) -> None:
        shards = cluster.shards
        key = (cluster.scaling, shards.replicas_min, shards.replicas_max)
        if self._scaler is None or self._scaler[0] != key:
            self._scaler = key, Autoscaler(*key)
        with self._lock:
            counts = []
            for shard, count in enumerate(self._wanted.replicas):
                asked = [reports.get(shard_name(shard, index)) for index in range(count)]
                waits = [r.queue_s for r in asked if r is not None and r.queue_s is not None]
                # While one is away the others' queues say nothing about how many there should be.
                is_whole = len(waits) == count
                mean = sum(waits) / count if is_whole else None
                counts.append(self._scaler[1].count(shard, count, mean, now))
            if tuple(counts) != self._wanted.replicas:
                self._want(replace(self._wanted, replicas=tuple(counts)))

    def _finish_switch(self, cluster: Cluster, reports: Mapping[str, Report | None]) -> None:
        with self._lock:
            wanted = self._wanted
            if len(wanted.versions) > 1 and switch(wanted, cluster, reports).phase == "steady":
                self._want(replace(wanted, versions=wanted.versions[-1:]))

    def _leaving(
        self, wanted: Wanted, cluster: Cluster, reports: Mapping[str, Report | None], now: float
    ) -> dict[str, float]:
        def is_wanted(name: str) -> bool:
            place = parse_name(name)
            if place is None:
                return False
            shard, index = place
            if shard is None:
                return index < cluster.fronts.count
            return shard < wanted.shards and index < wanted.replicas[shard]

        leaving = [name for name in reports if not is_wanted(name)]
        self._left_at = {name: self._left_at.get(name, now) for name in leaving}
        return {name: now - at for name, at in self._left_at.items()}

    def _do(
        self,
        step: PlaceGroup | Place | Drain | Remove,
        wanted: Wanted,
        cluster: Cluster,
        handles: Mapping[str, Any],
    ) -> None:
        if isinstance(step, PlaceGroup):
            self._placing.group(cluster, step)
        elif isinstance(step, Place):
            self._placing.place(cluster, step, wanted.record())
        elif isinstance(step, Drain):
            handles[step.name].drain.remote(cluster.drain_s)
        else:
            self._placing.remove(step.name)
            self._known.pop(step.name, None)

    def _tell(
        self,
        wanted: Wanted,
        cluster: Cluster,
        handles: Mapping[str, Any],
        reports: Mapping[str, Report | None],
    ) -> None:
        # The first file has a server of every shard; later ones keep what was known last.
        text = shards_text(cluster, self._urls) if all(self._urls) else None
        for name, report in reports.items():
            if report is None:
                continue
            is_front = name.startswith("front-")
            is_old = report.generation < wanted.generation
            is_stale = is_front and text is not None and report.shards_text != text
            if is_old or is_stale:
                handles[name].tell.remote(wanted.record(), text if is_front else None)

    def _write_targets(self, cluster: Cluster, reports: Mapping[str, Report | None]) -> None:
        if cluster.targets_file is None:
            return
        path, text = (
            Path(cluster.targets_file),
            json.dumps(targets(cluster.side, reports), indent=1),
        )
        with contextlib.suppress(OSError):
            if path.read_text() == text:
                return
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_name(f".{path.name}.next")
        beside.write_text(text)
        beside.replace(path)

    def status(self) -> dict[str, Any]:
        """What is wanted, and what there is.

        Raises:
            ClusterError: that is not known yet; to be called again.
        """
        with self._lock:
            self._check_recalled()
            wanted, reports, wants = self._wanted, dict(self._reports), list(self._wants)
        cluster = Cluster.of_record(wanted.cluster)
        return {
            **describe(wanted, cluster, reports),
            "reasons": [reason for reason in (*wants, self._look_reason, self._trouble) if reason],
        }


def describe(
    wanted: Wanted, cluster: Cluster, reports: Mapping[str, Report | None]
) -> dict[str, Any]:
    """A cluster's state, as ``hushtable cluster status --json`` prints it."""
    at: Switch = switch(wanted, cluster, reports)
    seconds = time.time() - wanted.since
    servers = []
    for name in sorted(reports, key=_order):
        report, place = reports[name], parse_name(name)
        shard, index = place if place is not None else (None, 0)
        empty = Report(name, "absent", reason="it has no node yet, or does not answer")
        record = (report or empty).record()
        del record["shards_text"]
        servers.append({"shard": shard, "index": index, **record})
    return {
        "side": cluster.side,
        "model": wanted.newest.name,
        "source": wanted.newest.shown,
        "version": wanted.newest.version,
        "versions": [version.version for version in wanted.versions],
        "phase": at.phase,
        "ready": at.ready,
        "all": at.all,
        "is_late": at.phase != "steady" and seconds > cluster.watch.prepare_s_max,
        "behind": [{"name": name, "reason": reason} for name, reason in at.behind],
        "replicas": list(wanted.replicas),
        "fronts": cluster.fronts.count,
        "servers": servers,
        "coordinator": COORDINATOR,
    }


def _order(name: str) -> tuple[int, int, int]:
    shard, index = parse_name(name) or (None, 0)
    return (0, shard, index) if shard is not None else (1, 0, index)


def targets(side: str, reports: Mapping[str, Report | None]) -> list[dict[str, Any]]:
    """The servers' metrics, as Prometheus discovers them from a file or over HTTP."""
    found = []
    for name in sorted(reports, key=_order):
        report, place = reports[name], parse_name(name)
        if report is None or report.metrics_url is None or place is None:
            continue
        shard, index = place
        labels = {"side": side, "role": "front" if shard is None else "shard"}
        labels |= (
            {"replica": str(index)}
            if shard is None
            else {"shard": str(shard), "replica": str(index)}
        )
        found.append({"targets": [urlsplit(report.metrics_url).netloc], "labels": labels})
    return found


def _with_version(wanted: Wanted, found: Source) -> Wanted:
    """``found`` as the newest; beside it the version that is announced, not one that never was."""
    if found == wanted.newest:
        return wanted
    if found.version == wanted.newest.version:
        versions = (*wanted.versions[:-1], found)
    else:
        kept = [v for v in wanted.versions[:1] if v.version != found.version]
        versions = (*kept, found)
    return replace(wanted, versions=versions, since=time.time())

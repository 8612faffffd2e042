"""Bringing a cluster up, asking how it is, and taking it down."""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..errors import ConfigError
from .actors import coordinator_class
from .connection import COORDINATOR, check_other_side, connected, is_loopback, nodes
from .coordinator import CALL_S_MAX, ask_all, describe, next_generation, targets
from .errors import ClusterError, ClusterLate, OtherSide
from .placing import Placing
from .room import Group, Node, check_room
from .source import Source, read_source
from .spec import Cluster
from .wanted import Report, Wanted

__all__ = ["bring_up", "status", "take_down"]

#: Called with what is ready and with all that is wanted.
Progress = Callable[[int, int], None]

#: What a running cluster cannot change: servers would have to be placed or started anew.
_FIXED = (
    ("folder",),
    ("command",),
    *(
        (part, name)
        for part in ("shards", "fronts")
        for name in ("num_cpus", "memory", "resources", "placement", "host", "tls", "settings")
    ),
    *(("fronts", name) for name in ("port", "metrics_port", "to_shards")),
)
_ASK_EVERY_S = 0.3
#: Of one call: longer than the coordinator takes to ask others.
_CALL_S_MAX = 10.0
_COORDINATOR_S_MAX = 60.0


def bring_up(
    cluster: Cluster,
    *,
    source: Source | None = None,
    wait_s: float = 600.0,
    on_progress: Progress | None = None,
) -> dict[str, Any]:
    """Brings a cluster to what ``cluster`` says, and waits until all of it is ready.

    One that is up already gets what has changed: another source, replicas, fronts, bounds.

    Args:
        cluster: what is wanted.
        source: what its source holds, where that was read already.
        wait_s: how long to wait; 0 returns once the coordinator knows what is wanted.
        on_progress: called with (servers that are ready, all that are wanted).

    Returns:
        The state, as :func:`status` has it.

    Raises:
        RayMissing, RayAbsent, RayOpen: of the Ray cluster.
        OtherSide: it serves the other side, or the map names a side.
        FetchError, ShardMapError: a source without a map that can be used.
        NodesFull: nodes that cannot hold it.
        ConfigError: a change that a running cluster cannot take; servers that others reach without
            TLS.
        ClusterLate: not ready in ``wait_s``; it goes on trying.
    """
    source = source or read_source(cluster.source, cluster.scheme)
    with connected(cluster.address, cluster.namespace) as ray:
        check_other_side(ray, cluster.side)
        running = _coordinator(ray)
        before = None if running is None else Wanted.of_record(_call(ray, "wanted"))
        wanted = Wanted(
            id=uuid.uuid4().hex if before is None else before.id,
            generation=next_generation(0),
            cluster=cluster.record,
            versions=(source,),
            replicas=(cluster.shards.replicas_min,) * source.shards,
            since=time.time(),
        )
        if before is not None:
            _check_change(cluster, before, wanted)
        there = nodes(ray)
        check_tls(cluster, [node.address for node in there])
        if not cluster.autoscaler:
            _check_room(ray, cluster, source.shards, there)
        if running is None:
            running = coordinator_class(ray, COORDINATOR).remote(wanted.record())
            _call(ray, "wanted")
            _check_alone(ray, cluster, running)
        # One that another client brought up at the same time is told too.
        _call(ray, "apply", wanted.record())
        return _await_steady(ray, wanted, wait_s, on_progress)


def status(cluster: Cluster) -> dict[str, Any]:
    """How a cluster is: what is wanted, each server, and how far its newest version is.

    Where the coordinator does not answer the servers' actors are asked themselves.

    Raises:
        RayMissing, RayAbsent, RayOpen: of the Ray cluster.
        ClusterError: nothing of this side is up.
    """
    with connected(cluster.address, cluster.namespace) as ray:
        running = _coordinator(ray)
        if running is not None:
            with contextlib.suppress(ray.exceptions.RayError):
                return _with_targets(ray.get(running.status.remote(), timeout=CALL_S_MAX))
        said = ask_all(ray, Placing(ray).handles())
        wanted = max(
            (one[1] for one in said.values() if one is not None),
            key=lambda wanted: wanted.generation,
            default=None,
        )
        if wanted is None:
            raise ClusterError(
                f"nothing of the {cluster.side} side runs on this Ray cluster: bring it up with "
                "`hushtable cluster up cluster.toml`"
            )
        reports = {name: one and one[0] for name, one in said.items()}
        found = describe(wanted, Cluster.of_record(wanted.cluster), reports)
        found["reasons"] = ["the coordinator does not answer: servers go on as they are"]
        return _with_targets(found)


def take_down(cluster: Cluster, *, on_progress: Progress | None = None) -> dict[str, int]:
    """Takes a cluster down: its fronts answer what is under way and end, then its shards.

    It may be ended and called again. Copies of the model stay on the nodes' disks.

    Returns:
        How many actors and groups were removed.

    Raises:
        RayMissing, RayAbsent, RayOpen: of the Ray cluster.
    """
    with connected(cluster.address, cluster.namespace) as ray:
        placing, removed = Placing(ray), 0
        # First who would start again what ends.
        if (running := _coordinator(ray)) is not None:
            ray.kill(running, no_restart=True)
            removed += 1
        total = len(placing.handles())
        for is_front in (True, False):
            handles = {
                n: h for n, h in placing.handles().items() if n.startswith("front") is is_front
            }
            for handle in handles.values():
                handle.drain.remote(cluster.drain_s)
            left, by = set(handles), time.monotonic() + cluster.drain_s + 5
            while left and time.monotonic() < by:
                said = ask_all(ray, {name: handles[name] for name in left})
                # One that says nothing has no server that could drain.
                left = {
                    n for n, one in said.items() if one is not None and one[0].state != "stopped"
                }
                if on_progress is not None:
                    on_progress(removed + len(handles) - len(left), total)
                time.sleep(0.1 if left else 0)
            for name in handles:
                placing.remove(name)
                removed += 1
        # What the coordinator had just asked for when it was ended.
        for name in placing.handles():
            placing.remove(name)
            removed += 1
        return {"actors": removed, "groups": placing.remove_groups()}


def _coordinator(ray: Any) -> Any:
    try:
        return ray.get_actor(COORDINATOR)
    except ValueError:
        return None


def _call(ray: Any, method: str, *arguments: Any) -> Any:
    """A call that is made again while the coordinator starts again: its methods may be."""
    by = time.monotonic() + _COORDINATOR_S_MAX
    while True:
        try:
            asked = getattr(ray.get_actor(COORDINATOR), method).remote(*arguments)
            return ray.get(asked, timeout=_CALL_S_MAX)
        except ray.exceptions.RayError as error:
            cause = getattr(error, "cause", None)
            is_bug = cause is not None and not isinstance(cause, ClusterError)
            if is_bug or time.monotonic() > by:
                why = str(cause or error).strip().splitlines()[:1]
                raise ClusterError(
                    f"the coordinator does not do its part ({''.join(why)}); servers go on as they "
                    "are. `ray logs actor` has what it says; `hushtable cluster down` ends it"
                ) from error
            time.sleep(_ASK_EVERY_S)
        except ValueError as error:  # no actor of that name; a ValueError of its own is a RayError
            raise ClusterError(
                "the coordinator has ended: somebody took the cluster down meanwhile"
            ) from error


def _check_change(cluster: Cluster, before: Wanted, wanted: Wanted) -> None:
    if wanted.shards != before.shards:
        raise ConfigError(
            f"{wanted.newest.shown} has a map of {wanted.shards} shards, and {before.shards} run: "
            "plan the new version with the same number, or take the cluster down first "
            "(`hushtable cluster down`)"
        )
    if wanted.newest.name != before.newest.name:
        raise ConfigError(
            f"{wanted.newest.shown} is a model called {wanted.newest.name!r}, and "
            f"{before.newest.name!r} runs: a next version has the name of the one that it follows"
        )
    changed = [
        ".".join(path)
        for path in _FIXED
        if _entry(cluster.record, path) != _entry(before.cluster, path)
    ]
    if changed:
        raise ConfigError(
            f"a running cluster cannot change {', '.join(changed)}: take it down first "
            "(`hushtable cluster down`), or leave them as they were. Source, replicas, "
            "fronts.count, watch, scale and drain_s may change"
        )


def _entry(record: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    value: Any = record
    for name in path:
        value = value.get(name, {}) if isinstance(value, Mapping) else {}
    return value


def check_tls(cluster: Cluster, hosts: Sequence[str]) -> None:
    """Whether servers that other machines reach are given certificates.

    Raises:
        ConfigError: they are not, and nothing says that the way is encrypted otherwise.
    """
    for name, part in (("shards", cluster.shards), ("fronts", cluster.fronts)):
        listens = [part.host] if part.host is not None else hosts
        reached = [host for host in listens if not is_loopback(host)]
        if reached and part.tls is None and not part.settings.get("insecure"):
            raise ConfigError(
                f"{name} would answer at {reached[0]}, which other machines reach, without TLS: "
                f"give {name}.tls its cert and key, or {name}.settings.insecure = true where "
                "something else encrypts the way"
            )


def _check_room(ray: Any, cluster: Cluster, shards: int, there: Sequence[Node]) -> None:
    """Room for what has none reserved yet."""
    reserved = Placing(ray).groups()
    shard, front = cluster.shards, cluster.fronts
    wants = [
        Group(number, shard.replicas_min, shard.needs.bundle(), shard.placement)
        for number in range(shards)
    ]
    wants.append(Group(None, front.count, front.needs.bundle(), front.placement))
    check_room(there, [group for group in wants if group.shard not in reserved])


def _check_alone(ray: Any, cluster: Cluster, running: Any) -> None:
    """Again, with the name taken: of two sides that came at once neither stays."""
    try:
        check_other_side(ray, cluster.side)
    except OtherSide:
        ray.kill(running, no_restart=True)
        raise


def _await_steady(
    ray: Any, wanted: Wanted, wait_s: float, on_progress: Progress | None
) -> dict[str, Any]:
    by = time.monotonic() + wait_s
    while True:
        found = _call(ray, "status")
        is_steady = found["phase"] == "steady" and found["version"] == wanted.newest.version
        if on_progress is not None:
            on_progress(found["ready"], found["all"])
        if is_steady or wait_s == 0:
            return _with_targets(found)
        if time.monotonic() > by:
            why = [f"{one['name']} ({one['reason']})" for one in found["behind"]] + found["reasons"]
            raise ClusterLate(
                f"after {wait_s:g} s {found['ready']} of {found['all']} servers are ready "
                f"({found['phase']}): {'; '.join(why)}. The cluster goes on trying; `hushtable "
                "cluster status` says how it is"
            )
        time.sleep(_ASK_EVERY_S)


def _with_targets(found: dict[str, Any]) -> dict[str, Any]:
    reports = {
        one["name"]: Report.of_record(
            {"shards_text": "", **{k: v for k, v in one.items() if k not in ("shard", "index")}}
        )
        for one in found["servers"]
    }
    return {**found, "targets": targets(found["side"], reports)}

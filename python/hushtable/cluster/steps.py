"""What the coordinator does next, from what is wanted and what is there. No Ray in here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .room import Node, lacking
from .spec import Cluster
from .wanted import Report, Wanted, front_name, parse_name, shard_name

__all__ = [
    "Drain",
    "Observed",
    "Place",
    "PlaceGroup",
    "Remove",
    "Step",
    "Switch",
    "group_name",
    "registry",
    "steps",
    "switch",
]

#: Fronts read their file within a second of a change: no pass goes to a server after that.
LEAVE_S = 3.0


@dataclass(frozen=True, slots=True)
class PlaceGroup:
    """Reserve room for a shard's replicas, or with None for the fronts."""

    shard: int | None
    count: int


@dataclass(frozen=True, slots=True)
class Place:
    """Start an actor: in its group's bundle, or on a node beyond the group."""

    name: str
    shard: int | None
    index: int
    bundle: int | None
    node: str | None = None


@dataclass(frozen=True, slots=True)
class Drain:
    """Have a server that is wanted no more end what is under way."""

    name: str


@dataclass(frozen=True, slots=True)
class Remove:
    """End an actor."""

    name: str


Step = PlaceGroup | Place | Drain | Remove


@dataclass(frozen=True)
class Observed:
    """What is there.

    Attributes:
        reports: one for each actor; None where an actor does not answer.
        groups: servers that each group has room reserved for.
        nodes: the nodes that are alive.
        leaving_s: seconds since an actor was wanted last, of those that are not.
    """

    reports: Mapping[str, Report | None]
    groups: Mapping[int | None, int]
    nodes: Sequence[Node]
    leaving_s: Mapping[str, float]


def group_name(cluster: Cluster, shard: int | None) -> str:
    """The placement group of a shard, or of the fronts."""
    part = "fronts" if shard is None else f"shard-{shard}"
    return f"{cluster.namespace}-{part}"


def steps(wanted: Wanted, cluster: Cluster, observed: Observed) -> tuple[list[Step], list[str]]:
    """What is to be done now, and what cannot be, with the reason.

    It is the same whenever it is asked in the same state: a coordinator that was ended in the
    middle goes on.
    """
    found: list[Step] = []
    wants: list[str] = []
    groups: list[tuple[int | None, int]] = [
        *((shard, count) for shard, count in enumerate(wanted.replicas)),
        (None, cluster.fronts.count),
    ]
    names = set()
    for shard, count in groups:
        reserved = observed.groups.get(shard)
        if reserved is None:
            least = cluster.fronts.count if shard is None else cluster.shards.replicas_min
            found.append(PlaceGroup(shard, least))
            reserved = least
        for index in range(count):
            name = front_name(index) if shard is None else shard_name(shard, index)
            names.add(name)
            if name in observed.reports:
                continue
            if index < reserved:
                found.append(Place(name, shard, index, index))
                continue
            node = _node_for(cluster, shard, observed)
            if node is None:
                what = f"front {index}" if shard is None else f"replica {index} of shard {shard}"
                wants.append(f"no node has room for {what} beyond what is reserved")
            else:
                found.append(Place(name, shard, index, None, node.id))
    for name in observed.reports:
        if name in names or parse_name(name) is None:
            continue
        report, seconds = observed.reports[name], observed.leaving_s.get(name, 0.0)
        is_over = seconds > LEAVE_S + cluster.drain_s + 5
        if is_over or (report is not None and report.state == "stopped"):
            found.append(Remove(name))
        elif seconds >= LEAVE_S and report is not None and report.state != "draining":
            found.append(Drain(name))
    return found, wants


def _node_for(cluster: Cluster, shard: int | None, observed: Observed) -> Node | None:
    part = cluster.fronts if shard is None else cluster.shards
    bundle = part.needs.bundle()
    taken = {
        report.node
        for name, report in observed.reports.items()
        if report is not None and (place := parse_name(name)) is not None and place[0] == shard
    }
    apart = part.placement == "strict_spread"
    fitting = [
        node
        for node in observed.nodes
        if not lacking(node.free, bundle) and not (apart and node.id in taken)
    ]
    return max(
        fitting, key=lambda node: (node.id not in taken, node.free.get("CPU", 0.0)), default=None
    )


def registry(
    wanted: Wanted, reports: Mapping[str, Report | None], last: Sequence[Sequence[str]]
) -> list[list[str]]:
    """Where each shard's servers answer.

    A shard of which nothing is known keeps what was known last: a front leaves out what does not
    answer by itself.
    """
    found = []
    for shard, count in enumerate(wanted.replicas):
        asked = [reports.get(shard_name(shard, index)) for index in range(count)]
        urls = [r.url for r in asked if r is not None and r.url and r.state in ("ready", "loading")]
        before = list(last[shard]) if shard < len(last) else []
        found.append(urls or before)
    return found


@dataclass(frozen=True)
class Switch:
    """How far the newest version is.

    Attributes:
        phase: ``placing`` (servers have no node yet), ``fetching`` (copies are made), ``loading``
            (shards load it), ``announcing`` (every shard has it, fronts are to say so), ``steady``.
        ready: replicas and fronts that offer it.
        all: how many are wanted.
        behind: names of those that keep it from going on, with their reasons.
    """

    phase: str
    ready: int
    all: int
    behind: tuple[tuple[str, str], ...]

    PHASES = ("steady", "placing", "fetching", "loading", "announcing")


def switch(wanted: Wanted, cluster: Cluster, reports: Mapping[str, Report | None]) -> Switch:
    """How far the newest version is, by what the servers say."""
    version = wanted.newest.version
    shards = [shard_name(s, i) for s, count in enumerate(wanted.replicas) for i in range(count)]
    fronts = [front_name(index) for index in range(cluster.fronts.count)]
    names = [*shards, *fronts]
    found = {name: reports.get(name) for name in names}
    ready = [name for name, report in found.items() if report is not None and report.holds(version)]
    if len(ready) == len(names):
        return Switch("steady", len(ready), len(names), ())
    absent = [name for name, report in found.items() if report is None]
    copying = [name for name, r in found.items() if r is not None and version not in r.copies]
    loading = [name for name in shards if name not in ready]
    if absent:
        phase, behind = "placing", absent
    elif copying:
        phase, behind = "fetching", copying
    elif loading:
        phase, behind = "loading", loading
    else:
        phase, behind = "announcing", [name for name in fronts if name not in ready]
    reasons = []
    for name in behind:
        report = found[name]
        reason = "it has no node yet, or does not answer" if report is None else report.reason
        state = "" if report is None else f"{report.state}: "
        reasons.append((name, f"{state}{reason}".removesuffix(": ")))
    return Switch(phase, len(ready), len(names), tuple(reasons))

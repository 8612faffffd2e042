"""What is wanted of a cluster, and what its servers report: the messages between its actors."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .source import Source
from .spec import Cluster

__all__ = ["Report", "Wanted", "front_name", "parse_name", "shard_name", "shards_text"]


def shard_name(shard: int, replica: int) -> str:
    """The actor of a shard's replica."""
    return f"shard-{shard}-replica-{replica}"


def front_name(index: int) -> str:
    """The actor of a front."""
    return f"front-{index}"


def parse_name(name: str) -> tuple[int | None, int] | None:
    """Shard and replica of an actor, or None and a front's index; None of any other name."""
    parts = name.split("-")
    if len(parts) == 4 and parts[0] == "shard" and parts[2] == "replica":
        numbers = parts[1], parts[3]
    elif len(parts) == 2 and parts[0] == "front":
        numbers = "0", parts[1]
    else:
        return None
    if not all(number.isdecimal() for number in numbers):
        return None
    return (int(parts[1]) if len(parts) == 4 else None), int(numbers[1])


@dataclass(frozen=True)
class Wanted:
    """The wanted state; the newest generation wins.

    Every actor keeps the last that it was told, on its node's disk too: a coordinator that starts
    again takes the newest of them for its own.

    Attributes:
        id: of the cluster from its `up` to its `down`: nothing of an earlier one is taken for its.
        generation: counts changes.
        cluster: the file's entries.
        versions: what is served, and last what is to be; two while versions change.
        replicas: of each shard.
        since: when the last version was wanted first, in seconds since 1970.
    """

    id: str
    generation: int
    cluster: Mapping[str, Any]
    versions: tuple[Source, ...]
    replicas: tuple[int, ...]
    since: float

    def record(self) -> dict[str, Any]:
        """As it travels."""
        return {
            "id": self.id,
            "generation": self.generation,
            "cluster": dict(self.cluster),
            "versions": [dataclasses.asdict(version) for version in self.versions],
            "replicas": list(self.replicas),
            "since": self.since,
        }

    @classmethod
    def of_record(cls, record: Mapping[str, Any]) -> Wanted:
        """The reverse."""
        return cls(
            id=record["id"],
            generation=record["generation"],
            cluster=record["cluster"],
            versions=tuple(Source(**version) for version in record["versions"]),
            replicas=tuple(record["replicas"]),
            since=record["since"],
        )

    @property
    def shards(self) -> int:
        """How many there are."""
        return len(self.replicas)

    @property
    def newest(self) -> Source:
        """The version that is to be served."""
        return self.versions[-1]


@dataclass(frozen=True)
class Report:
    """What an actor says of its server.

    Attributes:
        name: the actor's.
        state: ``fetching``, ``waiting`` (a front, for shards), ``starting``, ``loading``,
            ``ready``, ``failing``, ``draining`` or ``stopped``.
        generation: of what it was told last; 0 for nothing.
        node: Ray's id of its node.
        address: its node's IP address.
        url: where the server answers; None while there is none.
        metrics_url: the page of its metrics.
        copies: versions that are whole on its disk.
        versions: versions that the server has loaded and offers.
        held: how many it says it holds, older ones included.
        queue_s: mean wait in its queue lately.
        restarts: of the server, since the actor was started on this node first.
        pid: the server's process.
        reason: why it is not ready, or what it complained of last.
        shards_text: of a front, the file of servers that it goes by.
    """

    name: str
    state: str
    generation: int = 0
    node: str = ""
    address: str = ""
    url: str | None = None
    metrics_url: str | None = None
    copies: tuple[str, ...] = ()
    versions: tuple[str, ...] = ()
    held: int = 0
    queue_s: float | None = None
    restarts: int = 0
    pid: int | None = None
    reason: str = ""
    shards_text: str = ""

    def holds(self, version: str) -> bool:
        """Whether its server is up and offers ``version``."""
        return self.state == "ready" and version in self.versions

    def record(self) -> dict[str, Any]:
        """As it travels."""
        return dataclasses.asdict(self)

    @classmethod
    def of_record(cls, record: Mapping[str, Any]) -> Report:
        """The reverse."""
        lists = {name: tuple(record[name]) for name in ("copies", "versions")}
        return cls(**{**record, **lists})


def shards_text(cluster: Cluster, urls: Sequence[Sequence[str]]) -> str:
    """The file that fronts read: the servers of each shard."""
    lines = ["# Written by the coordinator; a front reads it again when it changes."]
    # For as long as `cluster status` does not call a version late, fronts wait for all replicas.
    lines.append(f"change_s_max = {max(1, int(cluster.watch.prepare_s_max))}")
    if (tls := cluster.fronts.to_shards) is not None:
        lines += [f"{name} = {json.dumps(getattr(tls, name))}" for name in ("ca", "cert", "key")]
    for replicas in urls:
        lines += ["", "[[shard]]", f"replicas = {json.dumps(list(replicas))}"]
    return "\n".join(lines) + "\n"

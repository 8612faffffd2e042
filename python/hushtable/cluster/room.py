"""Whether the nodes of a Ray cluster have room for what is asked, and what is missing where."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .errors import NodesFull

__all__ = ["Group", "Node", "check_room", "lacking"]


@dataclass(frozen=True, slots=True)
class Node:
    """A node, and what is free on it.

    Attributes:
        id: by which Ray knows it.
        address: its IP address.
        free: resources by Ray's names.
    """

    id: str
    address: str
    free: Mapping[str, float]

    @property
    def name(self) -> str:
        """For people."""
        return f"node {self.id[:8]} ({self.address})"


@dataclass(frozen=True, slots=True)
class Group:
    """Servers that are alike and are placed together.

    Attributes:
        shard: whose replicas they are; None for fronts.
        count: how many.
        bundle: what each takes, by Ray's names.
        placement: ``strict_spread``: no two on one node.
    """

    shard: int | None
    count: int
    bundle: Mapping[str, float]
    placement: str

    @property
    def name(self) -> str:
        """For people."""
        if self.shard is None:
            return f"the {self.count} front(s)"
        return f"the {self.count} replica(s) of shard {self.shard}"


def lacking(node_free: Mapping[str, float], bundle: Mapping[str, float]) -> dict[str, float]:
    """What ``bundle`` takes over what is free, by resource; empty where it fits."""
    over = {name: need - node_free.get(name, 0.0) for name, need in bundle.items()}
    return {name: value for name, value in over.items() if value > 1e-9}


def check_room(nodes: Sequence[Node], groups: Sequence[Group]) -> None:
    """Places every group, the hungriest first, each server where most is left.

    Raises:
        NodesFull: a group that has no place: which resource is missing on the node that is nearest.
    """
    free = {node.id: dict(node.free) for node in nodes}
    # Of the groups that must be apart those of most servers have the least choice.
    order = sorted(groups, key=lambda g: (-_weight(g.bundle), -g.count))
    for group in order:
        taken: set[str] = set()
        for placed in range(group.count):
            apart = group.placement == "strict_spread"
            left = [node for node in nodes if not (apart and node.id in taken)]
            fitting = [node for node in left if not lacking(free[node.id], group.bundle)]
            if not fitting:
                raise _nodes_full(group, placed, nodes, left, free)
            # Nodes that have none of the group yet, then those with most left.
            best = max(
                fitting,
                key=lambda node: (
                    (node.id not in taken) == (group.placement != "pack"),
                    _weight(free[node.id]),
                ),
            )
            taken.add(best.id)
            for name, need in group.bundle.items():
                free[best.id][name] = free[best.id].get(name, 0.0) - need


def _weight(resources: Mapping[str, float]) -> float:
    return resources.get("CPU", 0.0) + resources.get("memory", 0.0) / (4 << 30)


def _nodes_full(
    group: Group,
    placed: int,
    nodes: Sequence[Node],
    left: Sequence[Node],
    free: Mapping[str, Mapping[str, float]],
) -> NodesFull:
    wants = ", ".join(_amount(name, need) for name, need in group.bundle.items())
    head = f"no room for {group.name}, {wants} each: {placed} of {group.count} have a place"
    if not left:
        return NodesFull(
            f"{head}, and no two may be on one of the {len(nodes)} node(s): add "
            f"{group.count - placed} node(s) to the Ray cluster, lower replicas_min or count, or "
            'set placement = "spread", which risks all of them with one node',
            shard=group.shard,
            resource="node",
        )
    # Nearest: the fewest resources missing, then the least of them.
    missing = {node.id: lacking(free[node.id], group.bundle) for node in left}
    nearest = min(
        left,
        key=lambda node: (
            len(missing[node.id]),
            sum(over / group.bundle[name] for name, over in missing[node.id].items()),
        ),
    )
    parts = [
        f"{name} ({_amount(name, max(0.0, free[nearest.id].get(name, 0.0)))} free of "
        f"{_amount(name, group.bundle[name])} needed)"
        for name in missing[nearest.id]
    ]
    most = ", ".join(
        _amount(name, max(max(0.0, free[node.id].get(name, 0.0)) for node in left))
        for name in missing[nearest.id]
    )
    return NodesFull(
        f"{head}; the nearest, {nearest.name}, lacks {' and '.join(parts)}, the most that any of "
        f"the {len(left)} node(s) left has is {most}: add a node, free one, or ask for less in "
        "cluster.toml",
        shard=group.shard,
        resource=next(iter(missing[nearest.id])),
        node=nearest.id,
    )


def _amount(name: str, value: float) -> str:
    if name == "memory":
        return f"{value / (1 << 30):.3g} GiB memory"
    return f"{value:g} {name}"

"""Placement groups and actors of a cluster: the calls to Ray that place and remove them."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any

from .servers import server_class
from .spec import Cluster
from .steps import Place, PlaceGroup, group_name
from .wanted import parse_name

__all__ = ["Placing"]

_STRATEGIES = {"strict_spread": "STRICT_SPREAD", "spread": "SPREAD", "pack": "PACK"}


class Placing:
    """The actors and groups of one side, in the namespace of this client.

    Each call may be made again: what is there already is left as it is.
    """

    def __init__(self, ray: Any) -> None:
        self._ray = ray
        self._handles: dict[str, Any] = {}
        self._hinted: list[dict[str, float]] = []

    def handles(self) -> dict[str, Any]:
        """The servers' actors by name, those included that wait for a node or start again."""
        names = [n for n in self._ray.util.list_named_actors() if parse_name(n) is not None]
        found = {}
        for name in names:
            handle = self._handles.get(name)
            if handle is None:
                try:
                    handle = self._ray.get_actor(name)
                except ValueError:  # it ended since
                    continue
            found[name] = handle
        self._handles = found
        return dict(found)

    def known(self) -> dict[str, Any]:
        """The actors that were there when they were looked for last."""
        return dict(self._handles)

    def groups(self) -> dict[int | None, int]:
        """Servers that each group has room reserved for, by shard; None for the fronts."""
        found: dict[int | None, int] = {}
        for group in self._table().values():
            part = group["name"].removeprefix(f"{self._namespace}-")
            if part != group["name"]:
                shard = None if part == "fronts" else int(part.removeprefix("shard-"))
                found[shard] = len(group["bundles"])
        return found

    def group(self, cluster: Cluster, step: PlaceGroup) -> None:
        """Reserves room; Ray waits for nodes where there is none."""
        part = cluster.fronts if step.shard is None else cluster.shards
        self._ray.util.placement_group(
            [part.needs.bundle()] * step.count,
            strategy=_STRATEGIES[part.placement],
            name=group_name(cluster, step.shard),
            lifetime="detached",
        )

    def place(self, cluster: Cluster, step: Place, record: Mapping[str, Any]) -> None:
        """Starts an actor, which Ray places when there is room."""
        strategies = importlib.import_module("ray.util.scheduling_strategies")
        part = cluster.fronts if step.shard is None else cluster.shards
        if step.bundle is not None:
            group = self._ray.util.get_placement_group(group_name(cluster, step.shard))
            strategy = strategies.PlacementGroupSchedulingStrategy(group, step.bundle)
        else:
            strategy = strategies.NodeAffinitySchedulingStrategy(step.node, soft=False)
        actor = server_class(self._ray, step.name, part.needs, strategy)
        self._handles[step.name] = actor.remote(step.shard, step.index, record)

    def remove(self, name: str) -> None:
        """Ends an actor for good; its server ends with it."""
        handle = self._handles.pop(name, None)
        if handle is not None:
            self._ray.kill(handle, no_restart=True)

    def remove_groups(self) -> int:
        """Gives the room back that was reserved; returns of how many groups."""
        names = [group["name"] for group in self._table().values()]
        mine = [name for name in names if name.startswith(f"{self._namespace}-")]
        for name in mine:
            util = self._ray.util
            util.remove_placement_group(util.get_placement_group(name))
        return len(mine)

    def hint(self, cluster: Cluster, wants: Sequence[str]) -> None:
        """Asks Ray for nodes for servers beyond the groups: nothing else of theirs is demand."""
        if not cluster.autoscaler:
            return
        bundles = [
            (cluster.fronts if want.startswith("front") else cluster.shards).needs.bundle()
            for want in (text.removeprefix("no node has room for ") for text in wants)
        ]
        if bundles != self._hinted:
            sdk = importlib.import_module("ray.autoscaler.sdk")
            sdk.request_resources(bundles=bundles)
            self._hinted = bundles

    @property
    def _namespace(self) -> str:
        return str(self._ray.get_runtime_context().namespace)

    def _table(self) -> dict[str, Any]:
        table = self._ray.util.placement_group_table()
        return {id_: group for id_, group in table.items() if group["state"] != "REMOVED"}

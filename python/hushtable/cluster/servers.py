"""The actor of one server. Ray is asked for what only it has: nodes, restarts, names.

Not a key nor an answer goes through here: clients talk to fronts, and fronts to shards.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from .keeper import Keeper, Role
from .spec import Needs

__all__ = ["ServerActor", "server_class"]


class ServerActor:
    """The actor of one server. Its methods return at once; the keeper's own thread does the work.

    Ray runs the constructor again where the actor's process or node was lost: it is short, and what
    the server needs is fetched and started by the keeper.
    """

    def __init__(self, shard: int | None, index: int, record: Mapping[str, Any]) -> None:
        ray = importlib.import_module("ray")
        context = ray.get_runtime_context()
        address = ray.util.get_node_ip_address()
        self._keeper = Keeper(Role(shard, index), record, context.get_node_id(), address)
        self._keeper.start()

    def report(self) -> dict[str, Any]:
        """How the server is, and what the actor was told last."""
        return {
            "report": self._keeper.report().record(),
            "wanted": self._keeper.wanted.record(),
        }

    def tell(self, record: Mapping[str, Any], text: str | None) -> None:
        """Takes what is wanted."""
        self._keeper.tell(record, text)

    def drain(self, seconds: float) -> None:
        """Has the server end what is under way, and keeps it down."""
        self._keeper.drain(seconds)


def server_class(ray: Any, name: str, needs: Needs, strategy: Any) -> Any:
    """The class of the actor ``name``, ready for its arguments."""
    return ray.remote(ServerActor).options(
        name=name,
        lifetime="detached",
        get_if_exists=True,
        max_restarts=-1,
        # A call of a restarted actor is made again at the next step, not by Ray.
        max_task_retries=0,
        num_cpus=needs.num_cpus,
        memory=needs.memory_bytes or None,
        resources=dict(needs.resources),
        scheduling_strategy=strategy,
    )

"""What can go wrong with a cluster, as types."""

from __future__ import annotations

from ..errors import ConfigError, Error

__all__ = [
    "ClusterError",
    "ClusterLate",
    "NodesFull",
    "OtherSide",
    "RayAbsent",
    "RayMissing",
    "RayOpen",
]


class ClusterError(Error):
    """A cluster that cannot be brought up, asked or taken down."""


class RayMissing(ConfigError):
    """The package ray is not installed."""


class RayAbsent(ClusterError, ConnectionError):
    """No Ray cluster runs at the address, or it does not take this client's token."""


class RayOpen(ClusterError, ValueError):
    """A Ray cluster that other machines reach and that asks nobody for a token."""


class OtherSide(ClusterError, ValueError):
    """A Ray cluster, a file or a map that has to do with both sides.

    Attributes:
        side: the side that was found, where another was asked for.
    """

    def __init__(self, message: str, *, side: str = "") -> None:
        super().__init__(message)
        self.side = side


class NodesFull(ClusterError, ValueError):
    """A Ray cluster whose nodes cannot hold what is asked for.

    Attributes:
        shard: the first shard that has no place; None where it is a front.
        resource: what is missing: ``CPU``, ``memory``, a resource of one's own, or ``node``.
        node: the node that comes nearest.
    """

    def __init__(
        self, message: str, *, shard: int | None = None, resource: str = "", node: str = ""
    ) -> None:
        super().__init__(message)
        self.shard = shard
        self.resource = resource
        self.node = node


class ClusterLate(ClusterError, TimeoutError):
    """A cluster that is not ready in time; it goes on trying. The text has each server's reason."""

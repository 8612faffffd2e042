"""One side's servers on a Ray cluster, or those of a scheme with one server: shards and fronts.

Needs ``pip install 'hushtable[ray]'``. Ray places actors, restarts them and says what nodes there
are; each actor keeps one server, a child process, and what clients and fronts say goes between
servers alone. ``hushtable cluster`` is the command over this module.
"""

from __future__ import annotations

from .errors import (
    ClusterError,
    ClusterLate,
    NodesFull,
    OtherSide,
    RayAbsent,
    RayMissing,
    RayOpen,
)
from .operate import bring_up, status, take_down
from .source import Source, read_source
from .spec import Cluster, read_cluster

__all__ = [
    "Cluster",
    "ClusterError",
    "ClusterLate",
    "NodesFull",
    "OtherSide",
    "RayAbsent",
    "RayMissing",
    "RayOpen",
    "Source",
    "bring_up",
    "read_cluster",
    "read_source",
    "status",
    "take_down",
]

"""What a table on many machines costs and how fast it answers: shards, replicas and fronts.

From measured passes of one shard and the measured cost of a front: hosts, latency, the rate that
they carry, bytes on links and money. It is a model: nothing is looked up.
"""

from __future__ import annotations

from .closed import Carried, carried
from .deployment import Deployment, Front, Hedging, Stalls, TableSize
from .engine import Load, Run, Side, simulate
from .passes import Profile, read_profile
from .plan import Answer, Need, answer, choose
from .prices import Instance, Prices, read_prices

__all__ = [
    "Answer",
    "Carried",
    "Deployment",
    "Front",
    "Hedging",
    "Instance",
    "Load",
    "Need",
    "Prices",
    "Profile",
    "Run",
    "Side",
    "Stalls",
    "TableSize",
    "answer",
    "carried",
    "choose",
    "read_prices",
    "read_profile",
    "simulate",
]

"""What is simulated: the steps of each phase, who runs them, and what is between them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

__all__ = ["Costs", "Deployment", "Party", "Resource", "Step"]

Party = Literal["client", "server"]
#: What a step keeps busy: a party's cores, or the link to the server (up) or back (down).
Resource = Literal["client", "server", "up", "down"]


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that a phase does; a phase's steps follow one another.

    Attributes:
        part: what it is: "keygen", "he", "ot", "garble", "encode", "evaluate", "shares", …
        on: what it keeps busy.
        amount: seconds on ``threads`` idle cores where ``on`` is a party, bytes where it is a link.
        threads: cores it takes; 1 for links.
    """

    part: str
    on: Resource
    amount: float
    threads: int = 1


@dataclass(frozen=True, slots=True)
class Costs:
    """Of one network, garbler and way of encrypting layers.

    Attributes:
        network: for people, such as "resnet18 64x64".
        garbler: who garbles.
        offline: what a precompute takes, in order.
        online: what a prediction takes that has a precompute.
        client_bytes: what the client keeps of a precompute.
        server_bytes: what the server keeps of it.
    """

    network: str
    garbler: Party
    offline: tuple[Step, ...]
    online: tuple[Step, ...]
    client_bytes: int
    server_bytes: int


@dataclass(frozen=True, slots=True)
class Deployment:
    """A server, its clients and their links.

    Attributes:
        costs: of the network that all predict by.
        client_cores: of each client.
        server_cores: shared by all clients.
        up_mbps: to the server, of each client (10^6 bits a second).
        down_mbps: and back.
        client_storage_bytes: for precomputes, at each client.
        server_storage_bytes: for those of all clients.
        clients: who send requests; each has a queue, a store and a link of its own.
        precomputes_at_once: offline phases that a client runs beside one another (request-level
            parallelism); 1 with layer-parallel encryption.
        is_as_published: as the paper's simulator: phases do not compete for links and cores, a
            precompute is begun on whole seconds only, and a store must have more room than one
            takes.
    """

    costs: Costs
    client_cores: int
    server_cores: int
    up_mbps: float
    down_mbps: float
    client_storage_bytes: float
    server_storage_bytes: float
    clients: int = 1
    precomputes_at_once: int = 1
    is_as_published: bool = field(default=False)

"""Which ways of hybrid inference keep up with its clients, by the inference simulator."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from hushtable_lab.sim.inference.closed import best_split
from hushtable_lab.sim.inference.deployment import Deployment, Party
from hushtable_lab.sim.inference.profile import Profile
from hushtable_lab.sim.inference.sweep import Point, sustained_rate, sweep

GARBLERS: tuple[Party, ...] = ("server", "client")
#: Rates that are simulated, as shares of the one at which something is always busy.
_SHARES = (0.4, 0.6, 0.8, 1.0)


@dataclass(frozen=True)
class Predictions:
    """What clients want of inference.

    Attributes:
        network: of the profile.
        size: rows and columns of an image.
        clients: who ask, each over a link of its own.
        rate: predictions a second, of each client.
        latency_s: within which 95 of 100 have to be there.
        mbps: of each client's link, both ways together.
        storage_gb: rooms for precomputes that a client could be asked for.
    """

    network: str
    size: int
    clients: int
    rate: float
    latency_s: float
    mbps: float
    storage_gb: tuple[float, ...]


@dataclass(frozen=True)
class Way:
    """One way of doing it, simulated.

    Attributes:
        garbler: who garbles.
        storage_gb: a client's room.
        up_mbps: of its link, to the server; the rest is for the way back.
        stored: precomputes that fit the room.
        mean_s: latency at the wanted rate; NaN where it is not sustained.
        p95_s: of the same.
        sustained: the most predictions a second of each client that were sustained; 0 for none.
        is_enough: the wanted rate is sustained, within the wanted latency.
    """

    garbler: Party
    storage_gb: float
    up_mbps: float
    stored: int
    mean_s: float
    p95_s: float
    sustained: float
    is_enough: bool


def ways(
    wanted: Predictions,
    profile: Profile,
    *,
    runs: int,
    seconds: float,
    say: Callable[[str], None] = lambda _line: None,
) -> list[Way]:
    """Either garbler with every room, its link split evenly and at its best."""
    found = []
    for garbler, storage_gb in itertools.product(GARBLERS, wanted.storage_gb):
        for deployment in _split(wanted, profile, garbler, storage_gb):
            found.append(_way(wanted, deployment, garbler, storage_gb, runs, seconds))
            say(f"{garbler} garbles, {storage_gb:g} GB, {deployment.up_mbps:.0f} Mbit/s up")
    return found


def best(found: Sequence[Way]) -> Way | None:
    """Of those that are enough, the one that asks the client for the least room, then the
    fastest; None where none is."""
    enough = [way for way in found if way.is_enough]
    return min(enough, key=lambda way: (way.storage_gb, way.p95_s), default=None)


def _split(
    wanted: Predictions, profile: Profile, garbler: Party, storage_gb: float
) -> Iterator[Deployment]:
    def with_link(up_mbps: float) -> Deployment:
        return profile.deployment(
            wanted.network,
            wanted.size,
            garbler,
            "layer",
            client_storage_gb=storage_gb,
            up_mbps=up_mbps,
            down_mbps=wanted.mbps - up_mbps,
            clients=wanted.clients,
        )

    even = with_link(wanted.mbps / 2)
    yield even
    yield with_link(best_split(even.costs, wanted.mbps)[0])


def _way(
    wanted: Predictions,
    deployment: Deployment,
    garbler: Party,
    storage_gb: float,
    runs: int,
    seconds: float,
) -> Way:
    most = capacity(deployment)
    rates = sorted({wanted.rate, *(share * most for share in _SHARES)})
    points = sweep(deployment, rates, runs=runs, seconds=seconds, seed=1, jobs=1)
    here = points[rates.index(wanted.rate)]
    is_enough = here.is_sustained and here.p95 <= wanted.latency_s
    return Way(
        garbler,
        storage_gb,
        deployment.up_mbps,
        int(storage_gb * 1e9 // max(deployment.costs.client_bytes, 1)),
        here.mean if here.is_sustained else math.nan,
        here.p95 if here.is_sustained else math.nan,
        _sustained(points),
        is_enough,
    )


def _sustained(points: Sequence[Point]) -> float:
    return sustained_rate(points) or 0.0


def capacity(deployment: Deployment) -> float:
    """Predictions a second of each client at which a link or a party's cores never rest."""
    busy = {"client": 0.0, "server": 0.0, "up": 0.0, "down": 0.0}
    for step in (*deployment.costs.offline, *deployment.costs.online):
        busy[step.on] += step.amount * step.threads
    return 1 / max(
        busy["client"] / deployment.client_cores,
        busy["server"] / deployment.server_cores * deployment.clients,
        8e-6 * busy["up"] / deployment.up_mbps,
        8e-6 * busy["down"] / deployment.down_mbps,
    )

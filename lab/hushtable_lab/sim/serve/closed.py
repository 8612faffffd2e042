"""What follows without a simulation: the rate that is carried, the slowest of shards, a queue."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from .deployment import Deployment, Stalls

__all__ = ["Carried", "alone", "carried", "md1_wait", "slowest_mean", "slowest_quantile"]

_NORMAL = NormalDist()
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Carried:
    """Lookups a second that each part of a side carries, were it alone.

    Attributes:
        by: rates by part: ``shards``, ``fronts`` (which have so many passes under way), ``threads``
            (of fronts, that take lookups in), ``links`` and ``cores`` where they are bounded.
    """

    by: dict[str, float]

    @property
    def per_s(self) -> float:
        """The least of them."""
        return min(self.by.values())

    @property
    def limit(self) -> str:
        """Which that is."""
        return min(self.by, key=lambda name: self.by[name])


def md1_wait(rate: float, seconds: float) -> float:
    """Mean wait of a queue of one server and equal jobs (Pollaczek and Khinchine)."""
    busy = rate * seconds
    return busy * seconds / (2 * (1 - busy)) if busy < 1 else math.inf


def _share_within(seconds: float, stalls: Stalls, t: float) -> float:
    """F(t) of one pass that takes ``seconds`` as a median."""
    if t <= 0:
        return 0.0

    def calm(at: float) -> float:
        if stalls.spread == 0 or at <= 0:
            return float(at >= seconds)
        return _NORMAL.cdf(math.log(at / seconds) / stalls.spread)

    if stalls.share == 0 or stalls.seconds == 0:
        return calm(t)
    # A stall is exponential: its share within t, over the pass's own time in 64 equal parts.
    parts = 64
    own = [
        seconds * math.exp(stalls.spread * _NORMAL.inv_cdf((part + 0.5) / parts))
        for part in range(parts)
    ]
    stalled = sum(1 - math.exp(-(t - one) / stalls.seconds) for one in own if one < t) / parts
    return (1 - stalls.share) * calm(t) + stalls.share * stalled


def slowest_quantile(seconds: float, stalls: Stalls, shards: int, part: float) -> float:
    """Seconds within which a share ``part`` of passes have the answer of the slowest of ``shards``.

    P(all within t) = F(t)^n: what n shards have at p99, one has at 0.99^(1/n).
    """
    wanted = part ** (1 / shards)
    low, high = 0.0, seconds
    while _share_within(seconds, stalls, high) < wanted:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        if _share_within(seconds, stalls, middle) < wanted:
            low = middle
        else:
            high = middle
    return high


def slowest_mean(seconds: float, stalls: Stalls, shards: int) -> float:
    """The same, mean: the integral of 1 - F(t)^n."""
    if stalls.spread == 0 and (stalls.share == 0 or stalls.seconds == 0):
        return seconds
    top = slowest_quantile(seconds, stalls, shards, 0.9999)
    at: Floats = np.linspace(0.0, top, 400)
    late = np.array([1 - _share_within(seconds, stalls, one) ** shards for one in at.tolist()])
    return float(np.sum((late[1:] + late[:-1]) / 2 * np.diff(at)))


def carried(deployment: Deployment) -> Carried:
    """The rates at which each part of a side never rests, in full passes."""
    one, most = deployment, deployment.lookups_max
    stalls, front = one.spreads, one.profile.front
    work = one.pass_seconds(most) * stalls.mean_factor
    busy = work + stalls.share * stalls.seconds
    slowest = slowest_mean(one.pass_seconds(most), stalls, one.shards)
    cycle = one.own_seconds(most) + one.hop_seconds + one.link_seconds(most) + slowest
    found = {
        "shards": one.replicas * most / busy,
        "fronts": one.fronts * one.passes_at_once * most / cycle,
    }
    if front.request > 0:
        found["threads"] = one.fronts / (2 * front.request)
    if one.link_gbit_per_s is not None:
        (up, down), (asked, answered) = one.part_bytes, one.client_bytes
        bytes_a_lookup = max(one.shards * up + answered, one.shards * down + asked)
        found["links"] = one.fronts * one.link_gbit_per_s * 1e9 / 8 / bytes_a_lookup
    if one.cores is not None:
        threads = one.shards * one.threads
        spent = (threads * work + one.own_seconds(most)) / most + 2 * front.request
        found["cores"] = one.cores / spent
    return Carried(found)


def alone(deployment: Deployment, part: float, sides: int = 2) -> float:
    """Seconds within which a share of lookups is answered that meet no other, without hedging."""
    one = deployment
    slowest = slowest_quantile(one.pass_seconds(1), one.spreads, sides * one.shards, part)
    window = one.window or 0.0
    return (
        2 * one.profile.front.request + window + one.own_seconds(1) + one.hop_seconds
        + one.link_seconds(1) + slowest
    )  # fmt: skip

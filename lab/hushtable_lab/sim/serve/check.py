"""The simulation beside what is known without it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ..published import Comparison, Published, check_record
from .closed import carried, md1_wait, slowest_quantile
from .deployment import Deployment, Front, Hedging, Stalls, TableSize
from .engine import Load, Run, simulate
from .passes import Curve, Profile, Reading

__all__ = ["SHARDS", "compare", "compare_all", "example", "queue", "record"]

#: Milliseconds of n independent shards of a table that takes 100 ms, with a spread of 10 %, 0.2 %
#: of stalls of 50 ms and a hop of 1 ms: p50, p99, and p99 where a second replica is asked past the
#: 95th percentile. They were drawn independently of this code, and rounded.
SHARDS = {
    1: (101, 128, 128),
    2: (54, 67, 67),
    4: (29, 35, 35),
    8: (15, 36, 28),
    16: (8, 62, 16),
    32: (5, 95, 9),
    64: (3, 131, 6),
}
_STALLS = Stalls(0.1, 0.002, 0.05)
_HOP_S, _TABLE_S = 1e-3, 0.1
_ROWS = 1 << 20


def example(shards: int, *, stalls: Stalls = _STALLS, is_hedged: bool = False) -> Deployment:
    """The table of 100 ms."""
    curve = Curve(_ROWS, 8, 1, (1, 2), (_TABLE_S, _TABLE_S))
    profile = Profile("example", "made up", 256, Reading(1.0), Front(), stalls, (curve,))
    # As the table has it: late is past the percentile itself, and all that is late is asked again.
    hedging = Hedging(slack=1.0, least=0.0, budget=1.0) if is_hedged else Hedging(quantile=None)
    tables = (TableSize("example", _ROWS, 8),)
    return Deployment(tables, shards, 1 + is_hedged, 1, profile, hop=_HOP_S, hedging=hedging)


def apart(deployment: Deployment, lookups: int, seed: int) -> Run:
    """Lookups that seldom meet."""
    rate = 0.002 / (deployment.pass_seconds(1) + deployment.hop_seconds)
    return simulate(deployment, Load(rate, lookups), seed=seed, sides=1)


def _compared(
    name: str, ours: float, known: float, unit: str, source: str, within: float
) -> Comparison:
    return Comparison(Published(name, known, unit, source, within), ours)


def compare(shards: int, *, lookups: int | None = None, seed: int = 1) -> list[Comparison]:
    """The simulation of so many shards, the closed form and the table."""
    p50, p99, hedged = SHARDS[shards]
    count = lookups or min(max(4000, 120_000 // shards), 30_000)
    plain = apart(example(shards), count, seed)
    rounding = 0.5
    found = []
    for part, known in ((0.5, p50), (0.99, p99)):
        name = f"{shards} shards, p{100 * part:.0f}"
        ours = plain.quantile(part)
        exact = slowest_quantile(_TABLE_S / shards, _STALLS, shards, part) + _HOP_S
        # Of n stalls past p99, drawn of an exponential distribution, 1 / sqrt(n) is chance.
        chance = 0.0 if part < 0.9 or shards < 4 else _STALLS.seconds / math.sqrt(count / 100)
        within = 0.02 + 2 * chance / exact
        found += [
            _compared(name, 1e3 * ours, 1e3 * exact, "ms", "F(t)^n", within),
            _compared(name, 1e3 * ours, known, "ms", "independent", within + rounding / known),
        ]
    # Of one or two shards what is late is late by little: p99 hangs on how it is counted.
    if shards > 2:
        twice = apart(example(shards, is_hedged=True), min(count, 5000), seed)
        ours = 1e3 * twice.quantile(0.99)
        name = f"{shards} shards, p99, hedged"
        found.append(_compared(name, ours, hedged, "ms", "independent", 0.15 + rounding / hedged))
    return found


def queue(busy: float, *, lookups: int = 40_000, seed: int = 1) -> list[Comparison]:
    """One server, one lookup a pass, no window: waiting and use as a closed form has them."""
    curve = Curve(_ROWS, 8, 1, (1, 2), (_TABLE_S, _TABLE_S))
    profile = Profile("example", "made up", 256, Reading(1.0), Front(), Stalls(), (curve,))
    deployment = Deployment(
        (TableSize("example", _ROWS, 8),), 1, 1, 1, profile, hop=0.0, window=0.0, batch_keys_max=1
    )  # fmt: skip
    rate = busy * carried(deployment).per_s
    run = simulate(deployment, Load(rate, lookups, warmup=0.02), seed=seed, sides=1)
    wait = float(run.latency_s.mean()) - _TABLE_S
    known, used = md1_wait(rate, _TABLE_S), run.sides[0].shard_busy
    return [
        _compared(f"wait at {busy:.0%}", 1e3 * wait, 1e3 * known, "ms", "M/D/1", 0.1),
        _compared(f"use at {busy:.0%}", used, busy, "", "rate x time", 0.02),
    ]


def compare_all(
    seed: int = 1, progress: Callable[[int, int], None] | None = None
) -> list[Comparison]:
    """All of it."""
    found: list[Comparison] = []
    points: list[Callable[[], list[Comparison]]] = [
        *(lambda busy=busy: queue(busy, seed=seed) for busy in (0.3, 0.6, 0.8)),
        *(lambda shards=shards: compare(shards, seed=seed) for shards in SHARDS),
    ]
    for done, point in enumerate(points, 1):
        found += point()
        if progress is not None:
            progress(done, len(points))
    return found


def record(found: list[Comparison]) -> dict[str, Any]:
    """For JSON."""
    return check_record("sim serve check", {}, found)

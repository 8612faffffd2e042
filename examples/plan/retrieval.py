"""How many machines answer lookups in time: a processor that was measured, and a chip that is
simulated."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hushtable import ConfigError
from hushtable_lab.sim.accelerator.figures_points import Point, point
from hushtable_lab.sim.accelerator.serving import Scheduler, load

#: More machines than this nobody would buy for it.
MACHINES_MAX = 64


@dataclass(frozen=True)
class Lookups:
    """What clients want of retrieval from one server.

    Attributes:
        table_gb: GB (2^30 B) of records.
        rate: lookups a second, of all clients together.
        latency_s: within which 95 of 100 have to be answered, without the network.
    """

    table_gb: float
    rate: float
    latency_s: float


@dataclass(frozen=True)
class Fleet:
    """Machines of one kind, each with the whole table, that share the lookups.

    Attributes:
        machine: the kind.
        alone_s: one lookup that waits for nobody.
        qps: the most that one machine answers a second, in batches.
        machines: as few as answer in time; None where not even `MACHINES_MAX` do.
        mean_s: latency with so many, waiting included; NaN for none.
        p95_s: of the same.
        batch: lookups that are answered together, on average.
    """

    machine: str
    alone_s: float
    qps: float
    machines: int | None
    mean_s: float
    p95_s: float
    batch: float


def fleets(
    wanted: Lookups,
    kinds: Mapping[str, Passes],
    *,
    say: Callable[[str], None] = lambda _line: None,
) -> list[Fleet]:
    """How many it takes of each kind of machine."""
    found = []
    for machine, passes in kinds.items():
        found.append(fleet(wanted, machine, scheduler(passes, wanted.table_gb)))
        say(machine)
    return found


@dataclass(frozen=True)
class Passes:
    """What passes over a table take, by how many lookups share one.

    Attributes:
        batch_max: lookups of one pass, at most.
        seconds: of a pass over a table of so many GB, for so many lookups.
    """

    batch_max: int
    seconds: Callable[[float, int], float]


def accelerator() -> Passes:
    """IVE, simulated."""
    return Passes(
        64, lambda table_gb, batch: point(Point(table_gb=table_gb, batch=batch)).latency_s
    )


def core(path: Path) -> Passes:
    """A processor's core, from what `hushtable bench onion` measured of it.

    Two records of one table, by one thread: one lookup, and a batch. Expanding a query takes as
    long for any table; the other two steps grow with the table. Between the two batches a pass
    takes what the line between them says.

    Args:
        path: a file of bench/results.

    Raises:
        ConfigError: it has no such records.
    """
    try:
        records = json.loads(path.read_text(encoding="utf-8"))["results"]
        passes = {
            one["params"]["batch"]: one
            for one in reversed(records)
            if one["bench"] == "onion"
            and one["threads"] == 1
            and one["params"]["parameters"] == "n4096_128"
            and one["params"]["row_bytes"] == 256
            and one["params"]["schedule"] == "default"
        }
        sizes = sorted(passes)
        ms = [passes[size]["detail"]["ms_per_pass"] for size in sizes]
        shares = [passes[size]["detail"]["expand_share"] for size in sizes]
        table_gb = passes[sizes[0]]["params"]["table_mib"] / 1024
    except (OSError, ValueError, KeyError, IndexError) as error:
        raise ConfigError(
            f"{path} is not what `bench/run.py --suite onion` writes: {error!r}"
        ) from error
    expand = [1e-3 * each * share for each, share in zip(ms, shares, strict=True)]
    rest = [1e-3 * each - fixed for each, fixed in zip(ms, expand, strict=True)]

    def seconds(wanted_gb: float, batch: int) -> float:
        fixed = float(np.interp(batch, sizes, expand))
        return fixed + float(np.interp(batch, sizes, rest)) * wanted_gb / float(table_gb)

    return Passes(sizes[-1], seconds)


def scheduler(passes: Passes, table_gb: float) -> Scheduler:
    """Batches of one machine: as many lookups as have come while it worked.

    Passes of 1, 2, 4, … lookups are asked for; those between are taken from the line between.
    """
    sizes = [1 << log for log in range(passes.batch_max.bit_length())]
    sizes = [*(size for size in sizes if size < passes.batch_max), passes.batch_max]
    seconds = [passes.seconds(table_gb, size) for size in sizes]
    every = np.interp(np.arange(1, passes.batch_max + 1), sizes, seconds)
    return Scheduler(tuple(every.tolist()), 0.0)


def fleet(wanted: Lookups, machine: str, one: Scheduler) -> Fleet:
    """As few of a machine as answer in time."""
    least = max(1, math.ceil(wanted.rate / one.qps_max))
    for count in range(least, MACHINES_MAX + 1):
        found = load(one, wanted.rate / count)
        if found.is_sustained and found.p95_s <= wanted.latency_s:
            return Fleet(
                machine,
                one.service_s[0],
                one.qps_max,
                count,
                found.mean_s,
                found.p95_s,
                found.batch_mean,
            )
        if one.service_s[0] > wanted.latency_s:
            break  # Not even a lookup alone is in time.
    return Fleet(machine, one.service_s[0], one.qps_max, None, math.nan, math.nan, math.nan)

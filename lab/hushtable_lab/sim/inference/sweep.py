"""Many simulated days at many rates, over all cores, with the same result whatever their number."""

from __future__ import annotations

import math
import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from hushtable.errors import ConfigError

from .arrivals import Arrivals, arrivals_of
from .deployment import Deployment
from .engine import simulate

__all__ = ["Point", "saturation_rate", "sustained_rate", "sweep", "sweep_all"]

#: Requests that wait at the end, mean over runs, from which on published figures leave a point out.
MOST_LEFT = 2.0
Progress = Callable[[int, int], None]
Kind = str | Callable[[float], Arrivals]


@dataclass(frozen=True, slots=True)
class Point:
    """Latency at one rate, in seconds; NaN beyond saturation, or where nothing was served.

    Beyond saturation the queue grows for as long as is simulated, and a mean would say how long
    that was. A rate counts as sustained where fewer than two requests wait at the end of a run,
    mean over runs: the published figures leave out the others.

    Attributes:
        rate: requests a second, of each client.
        mean: over a run's requests, then over runs.
        interval: half of the 95 % confidence interval of the mean, by Student's t over runs.
        p50, p95, p99: percentiles of the requests of all runs.
        waiting: mean, in the queue behind others.
        offline: mean, for a precompute.
        online: mean.
        left: requests in the queue at the end, mean over runs (of all clients).
        served: in a run, mean.
        runs: how many.
        is_sustained: see above; for several clients, two a client.
        is_online_only: whether stores are too small for one precompute.
    """

    rate: float
    mean: float
    interval: float
    p50: float
    p95: float
    p99: float
    waiting: float
    offline: float
    online: float
    left: float
    served: float
    runs: int
    is_sustained: bool
    is_online_only: bool


def _without_latency(point: Point) -> Point:
    nan = math.nan
    return replace(
        point, mean=nan, interval=nan, p50=nan, p95=nan, p99=nan, waiting=nan, offline=nan,
        online=nan,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Task:
    deployment: Deployment
    rate: float
    kind: Callable[[float], Arrivals]
    seconds: float
    seed: int
    key: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Result:
    latency_s: npt.NDArray[np.float64]
    parts: tuple[float, float, float]
    queued: int
    is_online_only: bool


def _one(task: _Task) -> _Result:
    # The key alone decides what is drawn, as SeedSequence.spawn would: not which process, or when.
    seeds = np.random.SeedSequence(task.seed, spawn_key=task.key)
    arrivals = task.kind(task.rate)
    rngs = map(np.random.default_rng, seeds.spawn(task.deployment.clients))
    drawn = [arrivals.draw(task.seconds, rng) for rng in rngs]
    run = simulate(task.deployment, drawn, task.seconds)
    split = (run.waiting_s, run.offline_s, run.online_s)
    waiting, offline, online = (float(one.mean()) if one.size else math.nan for one in split)
    return _Result(run.latency_s, (waiting, offline, online), run.queued, run.is_online_only)


def _results(tasks: Sequence[_Task], jobs: int, progress: Progress | None) -> Iterator[_Result]:
    total = len(tasks)

    def said(found: Iterable[_Result]) -> Iterator[_Result]:
        for done, one in enumerate(found, 1):
            if progress is not None:
                progress(done, total)
            yield one

    jobs = min(jobs or len(os.sched_getaffinity(0)), total)
    if jobs <= 1:
        yield from said(map(_one, tasks))
        return
    # Forking a process with threads (progress bars have one) can hang, so each starts afresh. Runs
    # at high rates take longest: small chunks keep all cores busy to the end.
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        yield from said(pool.imap(_one, tasks, chunksize=max(1, min(16, total // (8 * jobs)))))


def _t95(freedom: int) -> float:
    """Student's t, 97.5 %: a table, then its expansion in 1 / freedom (within 0.1 %)."""
    table = (12.706, 4.303, 3.182, 2.776, 2.571)
    if freedom <= len(table):
        return table[freedom - 1]
    z = 1.959964
    first, second = (z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96
    return z + first / freedom + second / freedom**2


def _point(rate: float, clients: int, results: Sequence[_Result]) -> Point:
    # A run without a served request has no mean, and is no run of zero latency.
    means = np.array([one.latency_s.mean() for one in results if one.latency_s.size])
    parts = np.array([one.parts for one in results if one.latency_s.size])
    every = np.concatenate([one.latency_s for one in results])
    left = float(np.mean([one.queued for one in results]))
    waiting, offline, online = parts.mean(axis=0) if parts.size else (math.nan,) * 3
    p50, p95, p99 = np.percentile(every, (50, 95, 99)) if every.size else (math.nan,) * 3
    interval = math.nan
    if means.size > 1:
        interval = _t95(means.size - 1) * float(means.std(ddof=1)) / math.sqrt(means.size)
    return Point(
        rate=rate,
        mean=float(means.mean()) if means.size else math.nan,
        interval=interval,
        p50=float(p50),
        p95=float(p95),
        p99=float(p99),
        waiting=float(waiting),
        offline=float(offline),
        online=float(online),
        left=left,
        served=every.size / len(results),
        runs=len(results),
        is_sustained=left < MOST_LEFT * clients,
        is_online_only=results[0].is_online_only,
    )


def sweep_all(
    cases: Sequence[tuple[Deployment, Sequence[float]]],
    *,
    runs: int = 50,
    seconds: float = 86_400.0,
    seed: int = 1,
    jobs: int = 0,
    progress: Progress | None = None,
    arrivals: Kind = "poisson",
    keep_unsustained: bool = False,
) -> list[list[Point]]:
    """As :func:`sweep`, for several deployments by one set of processes.

    A rate's place in its list and the run decide what is drawn: deployments that have the same
    rates get the same requests, so that they are compared by the same days.
    """
    if runs < 1:
        raise ConfigError(f"there are {runs} runs, but must be 1 or more")
    if not (math.isfinite(seconds) and seconds > 0):
        raise ConfigError(f"{seconds:g} seconds are simulated, but must be above 0")
    if jobs < 0:
        raise ConfigError(f"there are {jobs} jobs, but must be 0 (one a core) or more")
    kind = arrivals_of(arrivals) if isinstance(arrivals, str) else arrivals
    tasks = []
    for deployment, rates in cases:
        for index, rate in enumerate(rates):
            if not (math.isfinite(rate) and rate > 0):
                raise ConfigError(f"a rate is {rate:g} requests a second, but must be above 0")
            tasks += [
                _Task(deployment, float(rate), kind, seconds, seed, (index, run))
                for run in range(runs)
            ]
    if not tasks:
        raise ConfigError("there is no rate to simulate: give one or more")
    results = list(_results(tasks, jobs, progress))
    found, at = [], 0
    for deployment, rates in cases:
        points = []
        for rate in rates:
            point = _point(float(rate), deployment.clients, results[at : at + runs])
            at += runs
            if not (point.is_sustained or keep_unsustained):
                point = _without_latency(point)
            points.append(point)
        found.append(points)
    return found


def sweep(
    deployment: Deployment,
    rates: Sequence[float],
    runs: int = 50,
    seconds: float = 86_400.0,
    seed: int = 1,
    jobs: int = 0,
    progress: Progress | None = None,
    arrivals: Kind = "poisson",
    keep_unsustained: bool = False,
) -> list[Point]:
    """Simulates ``runs`` days at each rate.

    Processes are started afresh, so a script that calls this with ``jobs`` other than 1 has to do
    so under ``if __name__ == "__main__"``.

    Args:
        deployment: what is simulated.
        rates: requests a second, of each client.
        runs: of each rate.
        seconds: of each run.
        seed: the same one gives the same points, whatever ``jobs`` is.
        jobs: processes; 0 is one a core.
        progress: called with runs done and all runs.
        arrivals: "poisson", "bursty", or what makes arrivals of a rate (see
            :func:`~hushtable_lab.sim.inference.arrivals.arrivals_of`).
        keep_unsustained: leave latencies in beyond saturation: of those that were served.

    Raises:
        ConfigError: no rates, or a number that cannot be; simpy is not installed.
    """
    return sweep_all(
        [(deployment, rates)],
        runs=runs,
        seconds=seconds,
        seed=seed,
        jobs=jobs,
        progress=progress,
        arrivals=arrivals,
        keep_unsustained=keep_unsustained,
    )[0]


def sustained_rate(points: Sequence[Point]) -> float:
    """The highest rate that is sustained, with all lower ones; 0 where none is."""
    found = 0.0
    for point in sorted(points, key=lambda one: one.rate):
        if not point.is_sustained:
            break
        found = point.rate
    return found


def saturation_rate(deployment: Deployment, requests: int = 200) -> float:
    """Requests a second of each client, where its queue is never empty: no higher rate can last.

    The first half of what is simulated is left out, as stores start empty.
    """
    costs, seconds = deployment.costs, 0.0
    for step in (*costs.offline, *costs.online):
        if step.on in ("up", "down"):
            mbps = deployment.up_mbps if step.on == "up" else deployment.down_mbps
            seconds += step.amount * 8 / (mbps * 1e6)
        else:
            seconds += step.amount
    if seconds <= 0:
        return math.inf
    run = simulate(deployment, [()] * deployment.clients, seconds * requests, is_full=True)
    ends = np.sort(run.arrival_s + run.latency_s)
    half = ends.size // 2
    if ends.size - half < 2:
        return ends.size / (seconds * requests) / deployment.clients
    return float((ends.size - 1 - half) / (ends[-1] - ends[half]) / deployment.clients)

"""Queries that arrive at random: batches after a waiting window, against one by one.

IVE, sections V ("Batch scheduler") and VI-F. The machine does one batch at a time. Without batching
it is a queue with Poisson arrivals, a fixed service time and one server (M/D/1), whose mean latency
is known in closed form: `md1_latency_s`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from hushtable.errors import ConfigError

__all__ = ["Load", "Scheduler", "crossing", "last_within", "load", "loads", "md1_latency_s"]

Seconds = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Scheduler:
    """Who is served together.

    The machine begins when it is free and either the oldest query has waited for the window or a
    full batch waits; it then takes all that wait, up to a full batch.

    Attributes:
        service_s: seconds of a batch of 1, 2, … queries, in order; as many as a batch may have.
        window_s: how long a query waits for others. 0: none is waited for.
    """

    service_s: tuple[float, ...]
    window_s: float

    def __post_init__(self) -> None:
        if not self.service_s or min(self.service_s) <= 0:
            raise ConfigError("a batch must take more than 0 seconds, for each of its sizes")
        if not 0 <= self.window_s < math.inf:
            raise ConfigError(f"the window is {self.window_s} s, but must be 0 or more, and finite")

    @property
    def qps_max(self) -> float:
        """Queries a second that it can sustain, whatever their batches."""
        return max(size / seconds for size, seconds in enumerate(self.service_s, 1))

    def alone(self) -> Scheduler:
        """The same machine, a query at a time and without a window."""
        return Scheduler(self.service_s[:1], 0.0)

    def serve(self, arrivals_s: Seconds) -> tuple[Seconds, npt.NDArray[np.int64]]:
        """When each query is answered, and the batches' sizes, in order.

        Args:
            arrivals_s: of each query, ascending.
        """
        if len(self.service_s) == 1 and self.window_s == 0:
            return self._serve_alone(arrivals_s), np.ones(len(arrivals_s), np.int64)
        full = len(self.service_s)
        answered = np.empty_like(arrivals_s)
        sizes: list[int] = []
        times = arrivals_s.tolist()
        first, free = 0, 0.0
        while first < len(times):
            begin = times[first] + self.window_s
            if first + full <= len(times):
                begin = min(begin, times[first + full - 1])
            begin = max(begin, free)
            last = min(int(np.searchsorted(arrivals_s, begin, "right")), first + full)
            free = begin + self.service_s[last - first - 1]
            answered[first:last] = free
            sizes.append(last - first)
            first = last
        return answered, np.asarray(sizes, np.int64)

    def _serve_alone(self, arrivals_s: Seconds) -> Seconds:
        """Lindley's recursion: each begins when it has come and the one before it is done."""
        seconds = self.service_s[0]
        work = seconds * np.arange(1, len(arrivals_s) + 1)
        # done[k] = max(done[k - 1], arrival[k]) + seconds, for all k at once.
        begun: Seconds = np.maximum.accumulate(arrivals_s - (work - seconds))
        return begun + work


@dataclass(frozen=True, slots=True)
class Load:
    """Latencies at one rate, over runs.

    Attributes:
        rate: queries a second that arrive.
        mean_s: of the latency, from a query's arrival to its answer; NaN where not sustained.
        low_s: of the 95 % confidence interval of the mean.
        high_s: of the same.
        p50_s: half of the queries are answered within it; NaN where not sustained, as p95_s and
            p99_s.
        p95_s: 95 % are.
        p99_s: 99 % are.
        batch_mean: queries of a batch.
        busy: share of the time in which the machine works.
        is_sustained: the rate is below what the machine can do; latencies grow without end
            otherwise, and a mean would say only how long the run was.
    """

    rate: float
    mean_s: float
    low_s: float
    high_s: float
    p50_s: float
    p95_s: float
    p99_s: float
    batch_mean: float
    busy: float
    is_sustained: bool


def load(
    scheduler: Scheduler, rate: float, *, runs: int = 10, queries: int = 4_000, seed: int = 1
) -> Load:
    """Poisson arrivals at a rate.

    Args:
        scheduler: who is served together.
        rate: queries a second.
        runs: apart from one another; the confidence interval is over their means.
        queries: of each run, of which the first fifth only fills the queue and is not counted.
        seed: the same gives the same arrivals, up to their rate.

    Raises:
        ConfigError: a rate that is not above 0, fewer than 2 runs or 10 queries.
    """
    if not 0 < rate < math.inf:
        raise ConfigError(f"the rate is {rate:g}, but must be above 0 queries a second")
    if runs < 2 or queries < 10:
        raise ConfigError(f"{runs} runs of {queries} queries: take at least 2 runs of 10 queries")
    if rate >= scheduler.qps_max:
        nan = math.nan
        return Load(rate, nan, nan, nan, nan, nan, nan, float(len(scheduler.service_s)), 1, False)
    means, all_latencies, batches, busy = [], [], [], []
    for run in range(runs):
        gaps = np.random.default_rng([seed, run]).exponential(1.0, queries)
        arrivals = np.cumsum(gaps) / rate
        answered, sizes = scheduler.serve(arrivals)
        latencies = (answered - arrivals)[queries // 5 :]
        means.append(float(latencies.mean()))
        all_latencies.append(latencies)
        batches.append(queries / len(sizes))
        worked = float(np.asarray(scheduler.service_s)[sizes - 1].sum())
        busy.append(worked / float(answered[-1]))
    mean = float(np.mean(means))
    half = _student(runs - 1) * float(np.std(means, ddof=1)) / math.sqrt(runs)
    p50, p95, p99 = np.quantile(np.concatenate(all_latencies), (0.5, 0.95, 0.99))
    return Load(
        rate,
        mean,
        mean - half,
        mean + half,
        float(p50),
        float(p95),
        float(p99),
        float(np.mean(batches)),
        float(np.mean(busy)),
        True,
    )


def loads(
    scheduler: Scheduler,
    rates: Sequence[float],
    *,
    runs: int = 10,
    queries: int = 4_000,
    seed: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> list[Load]:
    """`load` at each of the rates."""
    found = []
    for done, rate in enumerate(rates, 1):
        found.append(load(scheduler, rate, runs=runs, queries=queries, seed=seed))
        if progress is not None:
            progress(done, len(rates))
    return found


def md1_latency_s(rate: float, service_s: float) -> float:
    """Mean latency of M/D/1: Pollaczek and Khinchine's, with no variance of the service time.

    Infinite from the rate on that the server cannot sustain.
    """
    busy = rate * service_s
    return math.inf if busy >= 1 else service_s * (1 + busy / (2 * (1 - busy)))


def crossing(scheduler: Scheduler, *, runs: int = 10, queries: int = 4_000, seed: int = 1) -> float:
    """The rate from which batching answers sooner, on average, than one query at a time.

    Without batching the closed form is taken. 0 where batching is never later.
    """
    service = scheduler.service_s[0]

    def is_ahead(rate: float) -> bool:
        batched = load(scheduler, rate, runs=runs, queries=queries, seed=seed)
        return batched.is_sustained and batched.mean_s < md1_latency_s(rate, service)

    low, high = 1e-3 / service, 1 / service
    if is_ahead(low):
        return 0.0
    # Batching waits for a window and so is later at first; at `high` one at a time never ends.
    return _bisect(lambda rate: not is_ahead(rate), low, high)


def last_within(
    scheduler: Scheduler,
    latency_s: float,
    *,
    runs: int = 10,
    queries: int = 4_000,
    seed: int = 1,
) -> float:
    """The highest rate at which the mean latency is within a bound; 0 where it never is."""

    def is_within(rate: float) -> bool:
        found = load(scheduler, rate, runs=runs, queries=queries, seed=seed)
        return found.is_sustained and found.mean_s <= latency_s

    low, high = 1e-3 * scheduler.qps_max, scheduler.qps_max
    return _bisect(is_within, low, high) if is_within(low) else 0.0


def _bisect(is_below: Callable[[float], bool], low: float, high: float) -> float:
    """Where the answer turns, to a thousandth."""
    while high / low > 1.001:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if is_below(middle) else (low, middle)
    return math.sqrt(low * high)


def _student(freedom: int) -> float:
    """The 97.5 % quantile of Student's t, by its expansion around the normal's."""
    z = NormalDist().inv_cdf(0.975)
    return (
        z
        + (z**3 + z) / (4 * freedom)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * freedom**3)
    )

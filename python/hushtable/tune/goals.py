"""What the search looks for: the least of one cost within limits of the others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .front import Budgets, Point

__all__ = ["Figures", "Goal", "goals_of", "prf_calls_limit", "spread_out"]

FloatArray = npt.NDArray[np.float64]

#: Drops below this count alike.
_DROP_MIN = 1e-4
#: The drops at which trade-offs are followed, besides the budget's.
_DROPS = (0.01, 0.03, 0.003, 0.1, 0.001, 0.3)
_COMM_KB = 300.0


@dataclass(frozen=True, slots=True)
class Figures:
    """Costs and drops of layouts, each float64 [layouts]."""

    server_ms: FloatArray
    batch_ms: FloatArray
    latency_ms: FloatArray
    comm_kb: FloatArray
    prf_calls: FloatArray
    drop: FloatArray

    @classmethod
    def of(cls, points: Sequence[Point]) -> Figures:
        """Those of measured layouts."""
        rows = [
            (p.server_ms, p.batch_ms, p.latency_ms, p.comm_kb, p.prf_calls, p.drop) for p in points
        ]
        return cls(*np.array(rows, dtype=np.float64).reshape(-1, 6).T)

    def __len__(self) -> int:
        return len(self.drop)

    @classmethod
    def join(cls, figures: Sequence[Figures]) -> Figures:
        """Those of all, one after the other."""
        return cls(
            *(np.concatenate(columns) for columns in zip(*map(_columns, figures), strict=True))
        )

    def take(self, which: npt.NDArray[np.intp]) -> Figures:
        """Some of the layouts."""
        return Figures(*(column[which] for column in _columns(self)))

    def logs(self) -> FloatArray:
        """Logarithms of time, communication, PRF calls and drop, float64 [layouts, 4]."""
        drop = np.maximum(self.drop, _DROP_MIN)
        columns = (self.server_ms, self.comm_kb, self.prf_calls, drop)
        logs: FloatArray = np.log(np.stack(columns, axis=1))
        return logs


def _columns(figures: Figures) -> tuple[FloatArray, ...]:
    return (
        figures.server_ms,
        figures.batch_ms,
        figures.latency_ms,
        figures.comm_kb,
        figures.prf_calls,
        figures.drop,
    )


@dataclass(frozen=True, slots=True)
class Goal:
    """The least of one cost within limits of the others.

    Attributes:
        cost: ``server_ms``, ``batch_ms``, ``prf_calls`` or ``comm_kb``.
        drop_max: share of the accesses dropped at most.
        comm_kb_max: communication at most.
        prf_calls_max: PRF calls at most.
        latency_ms_max: latency at most.
    """

    cost: str
    drop_max: float
    comm_kb_max: float = np.inf
    prf_calls_max: float = np.inf
    latency_ms_max: float = np.inf

    def order(self, figures: Figures) -> npt.NDArray[np.intp]:
        """Numbers of the layouts, best first: those within the limits by cost, then the nearest."""
        least = max(self.drop_max, 1e-3)
        excess = np.maximum((figures.drop - self.drop_max) / least, 0.0)
        for name in ("comm_kb", "prf_calls", "latency_ms"):
            excess += np.maximum(getattr(figures, name) / getattr(self, name + "_max") - 1, 0.0)
        return np.lexsort((figures.drop, getattr(figures, self.cost), excess))


def goals_of(budgets: Budgets, prf_calls_max: int) -> list[Goal]:
    """What matters under ``budgets``, most important first.

    At the budget's drop and at several others: the least time of a server, the fewest PRF calls
    within the communication allowed, and the least communication within ``prf_calls_max``; and at
    the budget's drop the least time of the engine.
    """
    near = _DROPS[0] if budgets.drop_max is None else max(budgets.drop_max, _DROP_MIN)
    others = sorted(
        (d for d in _DROPS if abs(np.log(d / near)) > 0.6), key=lambda d: abs(np.log(d / near))
    )
    drops = [near if budgets.drop_max is None else budgets.drop_max, *others[:3]]
    comm = budgets.comm_kb_max or _COMM_KB
    latency = budgets.latency_ms_max or np.inf
    found = []
    for drop in drops:
        found += [
            Goal("server_ms", drop, comm_kb_max=comm, latency_ms_max=latency),
            Goal("prf_calls", drop, comm_kb_max=comm, latency_ms_max=latency),
            Goal("comm_kb", drop, prf_calls_max=prf_calls_max),
        ]
    engine = Goal("batch_ms", drops[0], comm_kb_max=comm, latency_ms_max=latency)
    return [*found[:3], engine, *found[3:]]


def prf_calls_limit(rows: int) -> int:
    """PRF calls that an inference may cost where nobody says how many: five for each of ``rows``.

    A key over the whole table counts two a row, so that two passes fit. The paper's own limits are
    numbers and no multiples of its tables (§V-D): 100,000, and 5,000,000 for the largest.
    """
    return 5 * rows


def spread_out(values: FloatArray, count: int) -> list[int]:
    """Of rows of figures at most ``count``, spread over the ranges that the figures have.

    First the row that is least in each figure, then again and again the one farthest from all
    chosen; equals by number. [n, figures] to row numbers, ascending.
    """
    if len(values) <= count:
        return list(range(len(values)))
    low, high = values.min(axis=0), values.max(axis=0)
    scaled = (values - low) / np.where(high > low, high - low, 1.0)
    chosen = list(dict.fromkeys(int(i) for i in scaled.argmin(axis=0)))[:count]
    distance = np.full(len(values), np.inf)
    for i in chosen:
        distance = np.minimum(distance, ((scaled - scaled[i]) ** 2).sum(axis=1))
    while len(chosen) < count:
        farthest = int(distance.argmax())
        if distance[farthest] == 0:
            break
        chosen.append(farthest)
        distance = np.minimum(distance, ((scaled - scaled[farthest]) ** 2).sum(axis=1))
    return sorted(chosen)


def interleave(queues: Iterable[Sequence[int]]) -> list[int]:
    """The first of each, then the second of each, and so on; each number once."""
    listed = [list(queue) for queue in queues]
    longest = max(map(len, listed), default=0)
    found = (queue[place] for place in range(longest) for queue in listed if place < len(queue))
    return list(dict.fromkeys(found))

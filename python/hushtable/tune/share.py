"""One budget for all tables of a model: which layout each of them takes.

Every table has a front of measured layouts. One is taken of each, so that together they stay
within a budget of bytes and one of server time, and so that the weighted share of accesses that is
lost is least. This is a knapsack of many choices and two limits. It is solved exactly: partial
choices are carried table by table, and one is forgotten only where another costs no more of both
and loses no more, or where what it must yet cost does not fit.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..errors import ConfigError, Error
from .front import Point

__all__ = ["Share", "ShareError", "check_limits", "split_budget", "split_evenly"]

_FloatArray = npt.NDArray[np.float64]

#: Partial choices carried at once, beyond which the answer would no longer be exact.
STATES_MAX = 20_000
#: Rounding of sums, as a share of a budget: the sum of parts that fill it exactly is within it.
_ROUNDING = 1e-9


class ShareError(Error, ValueError):
    """Budgets that no choice of the tables' layouts meets.

    Attributes:
        comm_kb_least: the least kilobytes of an inference that the layouts found need together.
        server_ms_least: the least time of a server that they need together.
    """

    def __init__(self, message: str, *, comm_kb_least: float, server_ms_least: float) -> None:
        super().__init__(message)
        self.comm_kb_least = comm_kb_least
        self.server_ms_least = server_ms_least


@dataclass(frozen=True, slots=True)
class Share:
    """A layout of each table.

    Attributes:
        points: the layout of each table, by its name.
        weights: the share of the model's loss that each table stands for; they sum up to 1.
        is_exact: whether no other choice within the budgets loses less.
    """

    points: Mapping[str, Point]
    weights: Mapping[str, float]
    is_exact: bool = True

    @property
    def comm_kb(self) -> float:
        """Kilobytes to and from both servers for one inference of every table."""
        return sum(point.comm_kb for point in self.points.values())

    @property
    def server_ms(self) -> float:
        """Predicted time of one core of one server for one inference of every table, of many."""
        return sum(point.server_ms for point in self.points.values())

    @property
    def latency_ms(self) -> float:
        """Predicted time of one server for one inference of every table alone, on one thread."""
        return sum(point.latency_ms for point in self.points.values())

    @property
    def drop(self) -> float:
        """The weighted share of the accesses that are not served."""
        return sum(self.weights[name] * point.drop for name, point in self.points.items())


def split_budget(
    fronts: Mapping[str, Sequence[Point]],
    weights: Mapping[str, float],
    *,
    comm_kb_max: float | None = None,
    server_us_max: float | None = None,
) -> Share:
    """The layout of each table that together lose least within both budgets.

    Of choices that lose equally the one that costs less time is taken, then fewer bytes.

    Args:
        fronts: measured layouts of each table, by its name; at least one of each.
        weights: how much an access of a table that is lost counts, by its name; over 0 in sum.
        comm_kb_max: kilobytes to and from both servers for one inference of all tables.
        server_us_max: microseconds of one core of one server for one such inference, of many.

    Raises:
        ConfigError: no budget at all, one that is not over 0, a table without layouts, or weights
            that are not those of the tables.
        ShareError: no choice meets the budgets; says how much the layouts need at least.
    """
    shares = _checked(fronts, weights, comm_kb_max, server_us_max)
    names = list(fronts)
    limits = np.array(
        [
            np.inf if comm_kb_max is None else comm_kb_max * (1 + _ROUNDING),
            np.inf if server_us_max is None else server_us_max / 1e3 * (1 + _ROUNDING),
        ]
    )
    costs = [_costs(fronts[name], shares[name]) for name in names]
    least = np.array([table[:, :2].min(axis=0) for table in costs])
    # What the tables after each one need at least: partial choices that leave less are dead.
    rest = np.concatenate((np.cumsum(least[::-1], axis=0)[::-1][1:], np.zeros((1, 2))))
    if (least.sum(axis=0) > limits).any():
        raise _unmet(costs, comm_kb_max, server_us_max)

    states = np.zeros((1, 3))
    trail: list[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]] = []
    is_exact = True
    for table, needed in zip(costs, rest, strict=True):
        sums = (states[:, None, :] + table[None, :, :]).reshape(-1, 3)
        fits = np.flatnonzero((sums[:, :2] + needed <= limits).all(axis=1))
        kept = fits[_undominated(sums[fits])]
        if kept.size > STATES_MAX:
            # By loss, evenly: then the answer is good, and `is_exact` says that it may not be best.
            kept = kept[np.linspace(0, kept.size - 1, STATES_MAX).astype(np.int64)]
            is_exact = False
        if kept.size == 0:
            raise _unmet(costs, comm_kb_max, server_us_max)
        trail.append((kept // len(table), kept % len(table)))
        states = sums[kept]
    # The least loss; then time; then bytes.
    at = int(np.lexsort((states[:, 0], states[:, 1], states[:, 2]))[0])
    chosen: dict[str, Point] = {}
    for name, (before, choice) in zip(reversed(names), reversed(trail), strict=True):
        chosen[name] = fronts[name][int(choice[at])]
        at = int(before[at])
    return Share({name: chosen[name] for name in names}, shares, is_exact)


def split_evenly(
    fronts: Mapping[str, Sequence[Point]],
    weights: Mapping[str, float],
    *,
    comm_kb_max: float | None = None,
    server_us_max: float | None = None,
) -> Share | None:
    """What every table takes where each gets an equal part of both budgets; None where one of them
    has no layout within its part."""
    count = len(fronts)
    chosen = {}
    for name, front in fronts.items():
        try:
            alone = split_budget(
                {name: front},
                {name: 1.0},
                comm_kb_max=None if comm_kb_max is None else comm_kb_max / count,
                server_us_max=None if server_us_max is None else server_us_max / count,
            )
        except ShareError:
            return None
        chosen[name] = alone.points[name]
    return Share(chosen, _checked(fronts, weights, comm_kb_max, server_us_max))


def check_limits(comm_kb_max: float | None, server_us_max: float | None) -> None:
    """Refuses no budget at all, and one that is not over 0."""
    if comm_kb_max is None and server_us_max is None:
        raise ConfigError("give a budget for the whole model: --max-comm-kb or --max-server-us")
    for name, limit in (("--max-comm-kb", comm_kb_max), ("--max-server-us", server_us_max)):
        if limit is not None and not (np.isfinite(limit) and limit > 0):
            raise ConfigError(f"{name} is {limit:g}, but must be over 0")


def _checked(
    fronts: Mapping[str, Sequence[Point]],
    weights: Mapping[str, float],
    comm_kb_max: float | None,
    server_us_max: float | None,
) -> dict[str, float]:
    """Weights that sum up to 1."""
    check_limits(comm_kb_max, server_us_max)
    if not fronts or not all(fronts.values()):
        raise ConfigError("every table needs at least one measured layout, and there must be one")
    if set(weights) != set(fronts):
        odd = sorted(set(weights) ^ set(fronts))[0]
        raise ConfigError(
            f"weights are of {', '.join(sorted(weights))}, but tables are {', '.join(fronts)}: "
            f"{odd!r} is in one of them only"
        )
    total = sum(weights.values())
    if not all(np.isfinite(w) and w >= 0 for w in weights.values()) or total <= 0:
        raise ConfigError("weights must be 0 or more, and not all 0")
    return {name: weights[name] / total for name in fronts}


def _costs(front: Sequence[Point], weight: float) -> _FloatArray:
    """Kilobytes, milliseconds and weighted loss of each layout, float64 [layouts, 3]."""
    return np.array(
        [(point.comm_kb, point.server_ms, weight * point.drop) for point in front],
        dtype=np.float64,
    )


def _undominated(values: _FloatArray) -> npt.NDArray[np.int64]:
    """Indices of the rows of [n, 3] that no other row is as small as in all three, by rising loss.

    Rows come by loss, then time, then bytes: one is dominated where, of those before it, one that
    takes no more time takes no more bytes. The staircase of these is kept sorted by time.
    """
    order = np.lexsort((values[:, 0], values[:, 1], values[:, 2]))
    kept: list[int] = []
    times: list[float] = []  # rising
    sizes: list[float] = []  # falling: the fewest bytes of those that take no more time
    for index in order:
        size, time = float(values[index, 0]), float(values[index, 1])
        place = bisect_right(times, time)
        if place and sizes[place - 1] <= size:
            continue
        kept.append(int(index))
        first = bisect_left(times, time)
        last = first
        while last < len(sizes) and sizes[last] >= size:
            last += 1
        times[first:last] = [time]
        sizes[first:last] = [size]
    return np.array(kept, dtype=np.int64)


def _unmet(
    costs: Sequence[_FloatArray], comm_kb_max: float | None, server_us_max: float | None
) -> ShareError:
    comm, time = (float(sum(table[:, i].min() for table in costs)) for i in range(2))
    said = []
    if comm_kb_max is not None:
        said.append(f"--max-comm-kb {comm_kb_max:g} (at least {comm:,.4g} KB)")
    if server_us_max is not None:
        said.append(f"--max-server-us {server_us_max:g} (at least {time * 1e3:,.4g} us)")
    together = " and ".join(said)
    return ShareError(
        f"no layouts of all {len(costs)} tables meet {together} together: what is in brackets is "
        "what the layouts found need of each alone; raise a budget, or search more --evaluations",
        comm_kb_least=comm,
        server_ms_least=time,
    )

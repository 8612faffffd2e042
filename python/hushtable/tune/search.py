"""The search: estimates, then simulated layouts, then steps around the best of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from .. import _native
from .costs import BATCH, CostModel
from .front import Budgets, Point, dominated, families_of, pareto
from .grid import Space, log_figures, spread_out
from .screen import Estimate, Screen
from .spec import LayoutSpec
from .trace import Trace

__all__ = ["Search", "Simulator"]

#: Called with what is being done, how much of it is, and how much there is.
Report = Callable[[str, int, int], None]

#: Shares of the evaluations that go to each family's first layouts; the rest refines.
_FIRST = {"plain": 0.08, "hot": 0.16, "hot-only": 0.03, "collocated": 0.08, "hot+collocated": 0.16}
_ROUNDS = 4


def native_arrays(trace: Trace) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint64]]:
    """A trace as the native module takes it."""
    return trace.ids.astype(np.uint32), trace.offsets.astype(np.uint64)


class Simulator:
    """Designs layouts from a profile and runs bags through their planner."""

    def __init__(
        self, table: _native.Table, profile: _native.Profile, model: CostModel, seed: int
    ) -> None:
        self._table = table
        self._profile = profile
        self._model = model
        self._seed = seed

    def design(self, spec: LayoutSpec) -> _native.Layout:
        """The layout of ``spec`` with the hot rows and companions that the profile suggests."""
        return self._profile.design(self._table, spec.to_json())

    def run(self, spec: LayoutSpec, bags: Trace) -> tuple[Point, npt.NDArray[np.bool_]]:
        """What ``spec`` costs, and for each access of ``bags`` whether it is served."""
        layout = self.design(spec)
        costs = layout.costs()
        kept = layout.simulate(*native_arrays(bags), seed=self._seed)
        point = Point(
            spec=spec,
            costs=costs,
            latency_ms=self._model.alone_seconds(costs, spec) * 1e3,
            batch_ms=self._model.batch_seconds(costs, spec) * 1e3,
            batch=BATCH,
            drop=1.0 - float(np.count_nonzero(kept)) / max(len(kept), 1),
            accesses=len(kept),
        )
        return point, kept


@dataclass
class Search:
    """Looks for layouts on a sample of bags.

    Attributes:
        space: the layouts of the table.
        simulator: runs them.
        screen: estimates them.
        sample: the bags that they are simulated on.
        budgets: where to look closely.
        evaluations: layouts simulated at most.
        report: told of progress.
    """

    space: Space
    simulator: Simulator
    screen: Screen
    sample: Trace
    budgets: Budgets
    evaluations: int
    report: Report
    _points: dict[LayoutSpec, Point] = field(default_factory=dict)

    def run(self) -> list[Point]:
        """Every layout simulated, in the order in which they were."""
        self._simulate(self._first_layouts())
        self._simulate(self._first_companions())
        for round_number in range(_ROUNDS):
            left = self.evaluations - len(self._points)
            self._simulate(self._steps(left // (_ROUNDS - round_number)))
        return list(self._points.values())

    def _simulate(self, specs: Iterable[LayoutSpec]) -> None:
        for spec in dict.fromkeys(specs):
            if len(self._points) >= self.evaluations:
                return
            if spec not in self._points and self.space.fits(spec):
                self._points[spec], _ = self.simulator.run(spec, self.sample)
                self.report("searching", len(self._points), self.evaluations)

    def _quota(self, family: str) -> int:
        return max(round(_FIRST[family] * self.evaluations), 4)

    def _first_layouts(self) -> list[LayoutSpec]:
        """The most promising of a wide grid, by estimate."""
        screen = self.screen
        plain = screen.estimate(self.space.plain(screen))
        hot: list[Estimate] = []
        for specs in self.space.hot(screen):
            hot += _front(self._within_reach(screen.estimate(specs)))
        hot_only = screen.estimate(self.space.hot_only(screen))
        return [
            *self._promising(plain, self._quota("plain")),
            *self._promising(hot, self._quota("hot")),
            *self._promising(hot_only, self._quota("hot-only")),
            *self.space.cuckoo(screen),
        ]

    def _within_reach(self, estimates: Sequence[Estimate]) -> list[Estimate]:
        """Those not far over the budgets; of all that are, the nearest."""
        limit = self.budgets.comm_kb_max
        if limit is None:
            return list(estimates)
        near = [e for e in estimates if e.comm_bytes <= 2e3 * limit]
        return near or sorted(estimates, key=lambda e: e.comm_bytes)[:16]

    def _promising(self, estimates: Sequence[Estimate], count: int) -> list[LayoutSpec]:
        """The estimates' front: half of them where the budgets are, half anywhere."""
        front = _front(self._within_reach(estimates))
        near = [e for e in front if self._is_near(e.drop)]
        close = [near[i] for i in spread_out(log_figures(near), count // 2)] if near else []
        wide = [front[i] for i in spread_out(log_figures(front), count - len(close))]
        return [estimate.spec for estimate in dict.fromkeys([*close, *wide])]

    def _is_near(self, drop: float) -> bool:
        limit = self.budgets.drop_max
        return drop <= 0.1 if limit is None else drop <= 3 * limit + 0.005

    def _first_companions(self) -> list[LayoutSpec]:
        """Companions for the best layouts that have none."""
        specs: list[LayoutSpec] = []
        for family, base in (("collocated", "plain"), ("hot+collocated", "hot")):
            counts = (1, 3) if base == "hot" else (1, 2, 4)
            quota = self._quota(family)
            variants = 3 * len(counts) * (3 if base == "hot" else 1)
            best = self._best(base, max(quota // variants, 1))
            found = [
                spec for point in best for spec in self.space.with_companions(point.spec, counts)
            ]
            specs += found[:quota]
        for point in self._best("hot-only", 1):
            specs += list(self.space.with_companions(point.spec, (1,)))
        return specs

    def _best(self, family: str, count: int) -> list[Point]:
        """The points of a family that matter most: within or nearest to the budgets, and a front
        around them."""
        points = [point for point in self._points.values() if point.family == family]
        if not points:
            return []
        front = pareto(points)
        near = [point for point in front if self._is_near(point.drop)] or front
        figures = np.log([(p.batch_ms, p.comm_kb, max(p.drop, 1e-4)) for p in near])
        first = sorted(points, key=self._rank)[: max(count // 2, 1)]
        spread = [near[i] for i in spread_out(figures, count)]
        # Specs are hashable; points, which hold dicts, are not.
        return list({point.spec: point for point in [*first, *spread]}.values())[:count]

    def _rank(self, point: Point) -> tuple[float, float]:
        """Within the budgets by time; else by how far beyond them."""
        excess = sum(self.budgets.excesses(point).values()) if self._has_limits() else point.drop
        if excess in (0.0, float("inf")):
            return (0.0, point.batch_ms if self.budgets.drop_max is not None else point.drop)
        return (excess, point.batch_ms)

    def _has_limits(self) -> bool:
        return any(
            limit is not None
            for limit in (
                self.budgets.comm_kb_max,
                self.budgets.latency_ms_max,
                self.budgets.drop_max,
            )
        )

    def _steps(self, count: int) -> list[LayoutSpec]:
        """Layouts beside the best ones, families in turn."""
        queues: list[list[LayoutSpec]] = []
        for family in families_of(self._points.values()):
            queue: list[LayoutSpec] = []
            for point in self._best(family, 6):
                queue += [s for s in self.space.beside(point.spec) if s not in self._points]
            queues.append(list(dict.fromkeys(queue)))
        chosen: list[LayoutSpec] = []
        for place in range(max(map(len, queues), default=0)):
            chosen += [queue[place] for queue in queues if place < len(queue)]
        return chosen[:count]


def _front(estimates: Sequence[Estimate]) -> list[Estimate]:
    """Estimates that no other beats; of those alike within a few percent, the one that drops least.

    Fastest first.
    """
    if not estimates:
        return []
    figures = log_figures(estimates)
    cells = np.round(figures[:, :2] / np.log(1.08)).astype(np.int64)
    order = np.lexsort((figures[:, 2], cells[:, 1], cells[:, 0]))
    _, first = np.unique(cells[order], axis=0, return_index=True)
    kept = order[first]
    front = kept[~dominated(figures[kept])]
    return [estimates[i] for i in front]

"""The search: estimates, then simulated layouts, then steps around the best of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from .. import _native
from .._machine import cores
from .costs import BATCH, CostModel
from .front import Point, dominated, families_of
from .goals import Figures, Goal, interleave, spread_out
from .grid import Space
from .screen import Screen
from .spec import LayoutSpec, PartSpec
from .surrogate import Surrogate
from .trace import Trace

FloatArray = npt.NDArray[np.float64]

__all__ = ["Search", "Simulator"]

#: Called with what is being done, how much of it is, and how much there is.
Report = Callable[[str, int, int], None]

#: Hot parts, full parts, the figures of their pairs, and the estimated drops [hots, fulls].
_Pairs = tuple[list[PartSpec | None], list[PartSpec | None], Figures, FloatArray]

#: Shares of the evaluations that go to each family's first layouts; the rest refines.
_FIRST = {"plain": 0.08, "hot": 0.16, "hot-only": 0.03, "collocated": 0.08, "hot+collocated": 0.16}
_ROUNDS = 12
#: Goals at the budget's drop, which get half of the search.
_FIRST_GOALS = 4


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
        return self.point(spec, costs, kept), kept

    def point(self, spec: LayoutSpec, costs: dict[str, int], kept: npt.NDArray[np.bool_]) -> Point:
        """The figures of a layout of these costs that serves ``kept`` of the accesses."""
        wire_ms = self._model.wire_seconds(costs) * 1e3
        return Point(
            spec=spec,
            costs=costs,
            latency_ms=self._model.alone_seconds(costs, spec) * 1e3 + wire_ms,
            batch_ms=self._model.batch_seconds(costs, spec) * 1e3,
            batch=BATCH,
            drop=1.0 - float(np.count_nonzero(kept)) / max(len(kept), 1),
            accesses=len(kept),
            wire_ms=wire_ms,
        )

    def run_all(
        self, specs: Iterable[LayoutSpec], bags: Trace
    ) -> Iterator[tuple[Point, npt.NDArray[np.bool_]]]:
        """:meth:`run` of each, in order; as many at a time as there are processors."""
        workers = cores()
        waiting: deque[Future[tuple[Point, npt.NDArray[np.bool_]]]] = deque()
        with ThreadPoolExecutor(workers) as pool:
            try:
                for spec in specs:
                    waiting.append(pool.submit(self.run, spec, bags))
                    if len(waiting) > workers:  # not all at once: each result has a flag an access
                        yield waiting.popleft().result()
                while waiting:
                    yield waiting.popleft().result()
            finally:
                for future in waiting:
                    future.cancel()


@dataclass
class Search:
    """Looks for layouts on a sample of bags.

    Attributes:
        space: the layouts of the table.
        simulator: runs them.
        screen: estimates them.
        sample: the bags that they are simulated on.
        goals: what is looked for, most important first.
        refocus: given the first layouts simulated, what is looked for from then on.
        evaluations: layouts simulated at most.
        report: told of progress.
    """

    space: Space
    simulator: Simulator
    screen: Screen
    sample: Trace
    goals: Sequence[Goal]
    evaluations: int
    report: Report
    refocus: Callable[[Sequence[Point]], Sequence[Goal]] | None = None
    _points: dict[LayoutSpec, Point] = field(default_factory=dict)
    _surrogate: Surrogate = field(default_factory=Surrogate)
    _around: dict[LayoutSpec, _Pairs] = field(default_factory=dict)
    _parts: dict[LayoutSpec, Figures] = field(default_factory=dict)

    def run(self) -> list[Point]:
        """Every layout simulated, in the order in which they were."""
        self._simulate(self._first_layouts())
        if self.refocus is not None:
            self.goals = self.refocus(list(self._points.values()))
        self._simulate(self._first_companions())
        for round_number in range(_ROUNDS):
            left = self.evaluations - len(self._points)
            self._simulate(self._steps(round_number, -(-left // (_ROUNDS - round_number))))
        return list(self._points.values())

    def _simulate(self, specs: Iterable[LayoutSpec]) -> None:
        new = [s for s in dict.fromkeys(specs) if s not in self._points and self.space.fits(s)]
        new = new[: self.evaluations - len(self._points)]
        for point, _ in self.simulator.run_all(new, self.sample):
            self._points[point.spec] = point
            self._surrogate.learn(point, self.screen.drop(point.spec))
            self.report("searching", len(self._points), self.evaluations)

    def _quota(self, family: str) -> int:
        return max(round(_FIRST[family] * self.evaluations), 4)

    def _first_layouts(self) -> list[LayoutSpec]:
        """The most promising of a wide grid, by estimate."""
        space, screen = self.space, self.screen
        plain = [space.layout(None, part) for part in space.full_parts(screen.distinct)]
        hot: list[LayoutSpec] = []
        hot_only: list[LayoutSpec] = []
        for rows in space.hot_rows(screen):
            hots, colds = space.hot_parts(screen, rows), space.cold_parts(screen, rows)
            hot += self._most_promising_pairs(hots, colds)
            hot_only += [space.layout(part, None) for part in hots]
        return [
            *self._promising(plain, "plain"),
            *self._promising(hot, "hot"),
            *self._promising(hot_only, "hot-only"),
            *space.cuckoo(screen),
        ]

    def _most_promising_pairs(
        self, hots: Sequence[PartSpec], colds: Sequence[PartSpec]
    ) -> list[LayoutSpec]:
        """Of all pairs of parts those that are best for some goal, by estimate."""
        figures, _ = self._pairs(hots, colds)
        chosen = {int(i) for goal in self.goals for i in goal.order(figures)[:2]}
        return [
            self.space.layout(hots[i // len(colds)], colds[i % len(colds)]) for i in sorted(chosen)
        ]

    def _promising(self, specs: Sequence[LayoutSpec], family: str) -> list[LayoutSpec]:
        """As many as the family has to begin with: two in three by the goals, the rest spread."""
        quota = self._quota(family)
        figures = self.screen.figures(specs)
        by_goals = interleave([int(i) for i in goal.order(figures)[:6]] for goal in self.goals)
        chosen = by_goals[: -(-2 * quota // 3)]
        front = np.flatnonzero(~dominated(figures.logs()))
        spread = spread_out(figures.take(front).logs(), quota - len(chosen))
        chosen += [int(front[i]) for i in spread]
        return [specs[i] for i in chosen]

    def _first_companions(self) -> list[LayoutSpec]:
        """Companions for the best layouts that have none."""
        specs: list[LayoutSpec] = []
        for family, base in (("collocated", "plain"), ("hot+collocated", "hot")):
            quota = self._quota(family)
            variants = [
                list(self.space.with_companions(point.spec, (1, 3)))
                for point, _ in self._best(base)
            ]
            # Every base's first variant, then every base's second.
            for place in range(max(map(len, variants), default=0)):
                specs += [found[place] for found in variants if place < len(found)][:quota]
                quota -= min(quota, len(variants))
        for point, _ in self._best("hot-only")[:1]:
            specs += list(self.space.with_companions(point.spec, (1,)))
        return specs

    def _best(self, family: str) -> list[tuple[Point, Goal]]:
        """A family's best for each goal; a layout once, with the first goal that it is best for."""
        points = [point for point in self._points.values() if point.family == family]
        if not points:
            return []
        figures = Figures.of(points)
        found = [(points[int(goal.order(figures)[0])], goal) for goal in self.goals]
        unique: dict[LayoutSpec, tuple[Point, Goal]] = {}
        for point, goal in found:
            unique.setdefault(point.spec, (point, goal))
        return list(unique.values())

    def _steps(self, round_number: int, count: int) -> list[LayoutSpec]:
        """Layouts around the best ones, the most promising of each family and goal.

        Every other round looks at the goals that matter most alone, the rest at the others in turn.
        """
        first, others = self.goals[:_FIRST_GOALS], self.goals[_FIRST_GOALS:]
        turn = len(others) * (round_number // 2) // max(_ROUNDS // 2, 1)
        goals = [*others[turn:], *others[:turn]] if round_number % 2 and others else first
        families = families_of(self._points.values())
        chosen: dict[LayoutSpec, None] = {}
        while len(chosen) < count:
            before = len(chosen)
            for goal in goals:
                for family in families:
                    spec = self._step(family, goal, chosen)
                    if spec is not None and len(chosen) < count:
                        chosen[spec] = None
            if len(chosen) == before:
                break
        return list(chosen)

    def _step(self, family: str, goal: Goal, taken: Mapping[LayoutSpec, None]) -> LayoutSpec | None:
        """Of the layouts around a family's best for ``goal``, what should be better by most."""
        points = [point for point in self._points.values() if point.family == family]
        best = points[int(goal.order(Figures.of(points))[0])]
        hots, fulls, figures, drops = self._neighbourhood(best.spec)
        expected = self._surrogate.correct(family, hots, fulls, drops, len(self.sample.ids))
        for i in goal.order(replace(figures, drop=expected.ravel())):
            spec = self.space.layout(hots[i // len(fulls)], fulls[i % len(fulls)])
            if spec not in taken and spec not in self._points and self.space.fits(spec):
                return spec
        return None

    def _neighbourhood(self, spec: LayoutSpec) -> _Pairs:
        """The parts of layouts around ``spec``, their figures, and the estimated drops."""
        if spec not in self._around:
            hots, fulls = self.space.around(spec)
            self._around[spec] = (hots, fulls, *self._pairs(hots, fulls))
        return self._around[spec]

    def _pairs(
        self, hots: Sequence[PartSpec | None], fulls: Sequence[PartSpec | None]
    ) -> tuple[Figures, FloatArray]:
        """Figures of all pairs, hot parts first, and their estimated drops [hots, fulls]."""
        drops = self.screen.drops(hots, fulls)
        hot, full = self._part_figures(hots, True), self._part_figures(fulls, False)
        # Costs are sums of the parts', but for a few bytes and what a cache keeps.
        figures = Figures(
            np.add.outer(hot.server_ms, full.server_ms).ravel(),
            np.add.outer(hot.batch_ms, full.batch_ms).ravel(),
            np.add.outer(hot.latency_ms, full.latency_ms).ravel(),
            np.add.outer(hot.comm_kb, full.comm_kb).ravel(),
            np.add.outer(hot.prf_calls, full.prf_calls).ravel(),
            drops.ravel(),
        )
        return figures, drops

    def _part_figures(self, parts: Sequence[PartSpec | None], are_hot: bool) -> Figures:
        if list(parts) == [None]:
            return Figures(*np.zeros((6, 1)))
        figures = []
        for part in parts:
            spec = self.space.layout(*((part, None) if are_hot else (None, part)))
            if spec not in self._parts:
                self._parts[spec] = self.screen.figures([spec], np.zeros(1))
            figures.append(self._parts[spec])
        return Figures.join(figures)

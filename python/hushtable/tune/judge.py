"""The measure of what the search found: on all held-out bags, and by the caller's quality."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from ..errors import ConfigError
from .front import Budgets, Point, families_of, pareto
from .goals import Figures, Goal, spread_out
from .search import Report, Simulator
from .spec import LayoutSpec
from .trace import Trace

__all__ = ["Judge", "Quality", "spread_points"]

#: What a model makes of the accesses that were served: bool [accesses of the held-out bags] to a
#: figure.
Quality = Callable[[npt.NDArray[np.bool_]], float]

#: Layouts of each family's front that are measured, besides the best.
_FRONT_POINTS = 8
#: Layouts that drop more are not asked about where the drop that quality allows is looked for.
_DROP_ASKED_MAX = 0.7


class Judge:
    """Measures what the search found on all held-out bags, and asks for quality."""

    def __init__(
        self,
        simulator: Simulator,
        held_out: Trace,
        quality: Quality | None,
        budgets: Budgets,
        quality_evaluations: int,
        report: Report,
    ) -> None:
        self._simulator = simulator
        self._held_out = held_out
        self._quality = quality
        self._budgets = budgets
        self._asks_left = quality_evaluations
        self._report = report
        self._asked: dict[LayoutSpec, float] = {}
        self.quality_clear: float | None = None
        if quality is not None:
            self.quality_clear = self._ask(np.ones(len(held_out.ids), dtype=bool))

    def allow_drops(self, found: Sequence[Point]) -> Budgets:
        """The budgets with the drop at which quality meets its limit, by bisection over ``found``.

        Half a dozen questions: quality is taken to fall with drops, whatever drops them.
        """
        few = (point for point in found if point.drop <= _DROP_ASKED_MAX)
        points = sorted(few, key=lambda point: point.drop)
        low, high = 0, len(points)
        while low < high and self._asks_left > 4:
            middle = (low + high) // 2
            worse = self._budgets.worse(self._measure(points[middle].spec, asks=True))
            if worse is not None and worse <= 0:
                low = middle + 1
            else:
                high = middle
        return replace(self._budgets, drop_max=points[max(low - 1, 0)].drop if points else 0.0)

    def measure(self, found: Sequence[Point], goals: Sequence[Goal]) -> list[Point]:
        """The promising ones of ``found``, measured."""
        chosen = [
            point
            for family in families_of(found)
            for point in _shortlist([p for p in found if p.family == family], goals)
        ]
        asked: set[LayoutSpec] = set()
        if self._quality is not None:
            families = families_of(chosen)
            each = max(3 * self._asks_left // (4 * len(families)), 1)
            for family in families:
                of_family = [point for point in chosen if point.family == family]
                asked |= {point.spec for point in spread_points(of_family, each)}
        points: dict[LayoutSpec, Point] = {}
        specs = [point.spec for point in chosen]
        for done, (point, kept) in enumerate(self._simulator.run_all(specs, self._held_out)):
            points[point.spec] = self._with_quality(point, kept, point.spec in asked)
            self._report("measuring", done + 1, len(chosen))
        if self._quality is not None:
            self._ask_near_the_limit(points)
        return list(points.values())

    def _measure(self, spec: LayoutSpec, asks: bool) -> Point:
        return self._with_quality(*self._simulator.run(spec, self._held_out), asks)

    def _with_quality(self, point: Point, kept: npt.NDArray[np.bool_], asks: bool) -> Point:
        if asks and point.spec not in self._asked and self._asks_left > 0:
            self._asked[point.spec] = self._ask(kept)
        return replace(point, quality=self._asked.get(point.spec))

    def _ask(self, kept: npt.NDArray[np.bool_]) -> float:
        assert self._quality is not None
        self._asks_left -= 1
        found = float(self._quality(kept))
        if not math.isfinite(found):
            raise ConfigError(f"the quality measure returned {found}, but must return a number")
        return found

    def _ask_near_the_limit(self, points: dict[LayoutSpec, Point]) -> None:
        """Asks more where the choice will fall: the fastest that may still meet the limit."""
        while self._asks_left > 0:
            spec = self._next_to_ask(list(points.values()))
            if spec is None:
                return
            points[spec] = self._measure(spec, asks=True)

    def _next_to_ask(self, points: Sequence[Point]) -> LayoutSpec | None:
        budgets = self._budgets
        others = replace(budgets, quality_limit=None)
        asked = [point for point in points if point.quality is not None]
        best = min(
            (point.server_ms for point in asked if budgets.meets(point)), default=float("inf")
        )
        if budgets.quality_limit is None:
            best = min((point.drop for point in asked if budgets.meets(point)), default=1.0)
        # Quality falls with drops: no layout that drops more than one that was too bad is better.
        too_bad = min(
            (p.drop for p in asked if others.meets(p) and not budgets.meets(p)), default=1.0
        )
        hopeful = [
            point
            for point in points
            if point.quality is None
            and others.meets(point)
            and point.drop < too_bad
            and (point.server_ms if budgets.quality_limit is not None else point.drop) < best
        ]
        if not hopeful:
            return None
        return min(hopeful, key=lambda point: (point.server_ms, point.drop)).spec


def _shortlist(points: Sequence[Point], goals: Sequence[Goal]) -> list[Point]:
    """A family's best for each goal, and its front, thinned."""
    figures = Figures.of(points)
    chosen = [points[int(goal.order(figures)[0])] for goal in goals]
    # The sample's drop is not that of all bags: near ones on either side may be the choice.
    for share in (1.0, 0.95, 0.85):
        goal = replace(goals[0], drop_max=goals[0].drop_max * share)
        chosen += [points[int(i)] for i in goal.order(figures)[:2]]
    chosen += spread_points(pareto(points), _FRONT_POINTS)
    return list({point.spec: point for point in chosen}.values())


def spread_points(points: Sequence[Point], count: int) -> list[Point]:
    """At most ``count`` of the points, spread over their figures."""
    return [points[i] for i in spread_out(Figures.of(points).logs(), count)]

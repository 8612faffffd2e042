"""Layouts of one application that keep its quality, family by family, and what they save.

Plain partial batch retrieval cuts the whole table into bins and asks each of them; co-design adds a
hot part, companions, or leaves rows out (Lam et al., §IV and §V-D). Both are searched by the same
tuner, with the same wire format and engine: what differs is the layout alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

import hushtable
from hushtable.tune import Budgets, TuneResult, tune
from hushtable.tune.front import Point
from hushtable.tune.goals import prf_calls_limit
from hushtable.tune.trace import Trace

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float32]
Split = Literal["validation", "test"]
Say = Callable[[str], None]

#: The paper's limits (§V-D) of an inference.
COMM_KB_MAX = 300.0
LATENCY_MS_MAX = 100.0
#: How much worse than in the clear a model may get.
TOLERANCE = 0.005
#: Families of the tuner that are plain partial batch retrieval; all others are co-designs.
PLAIN = "plain"


class Application(Protocol):
    """What an example offers; see examples/nextword/app.py for the attributes."""

    @property
    def name(self) -> str: ...
    @property
    def metric(self) -> str: ...
    @property
    def higher_is_better(self) -> bool: ...
    @property
    def weight(self) -> Floats: ...
    @property
    def dtype(self) -> str: ...
    @property
    def train(self) -> Trace: ...
    @property
    def validation(self) -> Trace: ...
    @property
    def test(self) -> Trace: ...
    def quality(
        self, split: Split, kept: Bools | None = None, rows: Floats | None = None
    ) -> float: ...


@dataclass(frozen=True)
class Choice:
    """A layout that was picked, and what for.

    Attributes:
        role: what it is the best at, e.g. ``computation, plain``.
        point: the layout, its costs, and its quality on the validation split.
        test_quality: its quality on the test split.
        test_drop: the share of the test split's accesses that it drops.
    """

    role: str
    point: Point
    test_quality: float
    test_drop: float


class Comparison:
    """An application's layouts, searched once; questions about them are asked of it."""

    def __init__(self, app: Application, *, seed: int = 0, evaluations: int = 600) -> None:
        self.app = app
        self.table = hushtable.Table.from_weight(app.weight, name=app.name, dtype=app.dtype)
        self.clear = app.quality("validation")
        self.clear_test = app.quality("test")
        sign = 1 if app.higher_is_better else -1
        #: The worst quality, on the validation split, that counts as kept.
        self.limit = self.clear * (1 - sign * TOLERANCE)
        self._asked: dict[Any, float] = {}
        ids_max = max(int(np.diff(trace.offsets).max()) for trace in self._traces())
        budgets = Budgets(
            comm_kb_max=COMM_KB_MAX,
            latency_ms_max=LATENCY_MS_MAX,
            quality_limit=self.limit,
            lower_is_better=not app.higher_is_better,
        )
        self.result: TuneResult = tune(
            self.table,
            app.train,
            budgets,
            quality=lambda kept: app.quality("validation", kept),
            seed=seed,
            held_out=app.validation,
            ids_max=ids_max,
            evaluations=evaluations,
        )
        for point in self.result.points:
            if point.quality is not None:
                self._asked[point.spec] = point.quality

    def _traces(self) -> tuple[Trace, ...]:
        return self.app.train, self.app.validation, self.app.test

    def is_kept(self, quality: float) -> bool:
        """Whether a figure is within the tolerance of the clear model's."""
        return quality >= self.limit if self.app.higher_is_better else quality <= self.limit

    def quality(self, point: Point) -> float:
        """The model's figure, on the validation split, where this layout fetches its rows."""
        if point.spec not in self._asked:
            self._asked[point.spec] = self.app.quality("validation", self.result.kept(point))
        return self._asked[point.spec]

    def families(self) -> list[str]:
        """The families that the search has layouts of."""
        return list(dict.fromkeys(point.family for point in self.result.points))

    def best(
        self,
        cost: Callable[[Point], float],
        families: Iterable[str],
        *,
        comm_kb_max: float = COMM_KB_MAX,
        prf_calls_max: float = float("inf"),
        count: int = 1,
    ) -> list[Point]:
        """The ``count`` least costly of ``families`` within the limits that keep quality."""
        wanted = set(families)
        points = [
            point
            for point in self.result.points
            if point.family in wanted
            and point.comm_kb <= comm_kb_max
            and point.latency_ms <= LATENCY_MS_MAX
            and point.prf_calls <= prf_calls_max
        ]
        found: list[Point] = []
        # What drops more than a layout of its family that was too bad is not asked for.
        too_bad: dict[str, float] = {}
        for point in sorted(points, key=lambda point: (cost(point), point.drop)):
            if point.drop >= too_bad.get(point.family, 1.0):
                continue
            if self.is_kept(self.quality(point)):
                found.append(replace(point, quality=self.quality(point)))
                if len(found) == count:
                    break
            else:
                too_bad[point.family] = min(point.drop, too_bad.get(point.family, 1.0))
        return found

    def choice(self, role: str, point: Point) -> Choice:
        """``point`` with its figures on the test split."""
        layout = self.result.layout(point)
        kept = simulate(layout, self.app.test)
        drop = 1 - float(np.count_nonzero(kept)) / max(len(kept), 1)
        return Choice(role, point, self.app.quality("test", kept), drop)


def simulate(layout: Any, trace: Trace) -> Bools:
    """For each access of a trace whether ``layout`` serves it."""
    ids = np.ascontiguousarray(trace.ids, dtype=np.uint32)
    offsets = np.ascontiguousarray(trace.offsets, dtype=np.uint64)
    kept: Bools = layout.simulate(ids, offsets)
    return kept


def batch_ms(point: Point) -> float:
    """Predicted milliseconds of one core of one server for a pass."""
    return point.batch_ms


def prf_calls(point: Point) -> float:
    """The paper's count of computation."""
    return point.prf_calls


def comm_kb(point: Point) -> float:
    """Kilobytes to and from both servers for one inference."""
    return point.comm_kb


@dataclass(frozen=True)
class Ratio:
    """How much co-design saves of one cost at equal quality.

    Attributes:
        what: the cost.
        limit: what was fixed.
        plain: the best plain layout, None where none keeps quality within the limit.
        designed: the best co-design.
    """

    what: str
    limit: str
    cost: Callable[[Point], float]
    plain: Choice | None
    designed: Choice | None

    @property
    def ratio(self) -> float | None:
        """Plain over co-designed; None where either is missing."""
        if self.plain is None or self.designed is None:
            return None
        return self.cost(self.plain.point) / self.cost(self.designed.point)


def ratios(comparison: Comparison) -> list[Ratio]:
    """The paper's three comparisons: computation and time at a communication limit, communication
    at a limit of PRF calls."""
    designed = [family for family in comparison.families() if family != PLAIN]
    calls = prf_calls_limit(comparison.table.info.rows)

    def ask(
        what: str,
        limit: str,
        cost: Callable[[Point], float],
        comm_kb_max: float = COMM_KB_MAX,
        prf_calls_max: float = float("inf"),
    ) -> Ratio:
        def one(families: Sequence[str], label: str) -> Choice | None:
            found = comparison.best(
                cost, families, comm_kb_max=comm_kb_max, prf_calls_max=prf_calls_max
            )
            return comparison.choice(f"{what}, {label}", found[0]) if found else None

        return Ratio(what, limit, cost, one([PLAIN], "plain"), one(designed, "co-design"))

    wide = float("inf")
    return [
        ask("engine time", f"{COMM_KB_MAX:.0f} KB", batch_ms),
        ask("PRF calls", f"{COMM_KB_MAX:.0f} KB", prf_calls),
        ask(
            "communication",
            f"{calls:,} PRF calls",
            comm_kb,
            comm_kb_max=wide,
            prf_calls_max=calls,
        ),
    ]

"""Layouts of one application that keep its quality, kind by kind.

Plain partial batch retrieval cuts the whole table into bins and asks each of them; co-design adds a
hot part, companions, or leaves rows out (Lam et al., §IV and §V-D). Both are searched by the same
tuner, with the same wire format and engine: what differs is the layout alone. The paper's baseline
without batches is a layout too: one bin, asked once an id.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

import hushtable
from hushtable import _native
from hushtable.tune import Budgets, CostModel, tune
from hushtable.tune.front import Point, dominated, families_of
from hushtable.tune.search import Simulator, native_arrays
from hushtable.tune.spec import LayoutSpec, PartSpec, seed_text
from hushtable.tune.trace import Trace

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float32]
Split = Literal["validation", "test"]
Say = Callable[[str], None]

#: The paper's limits (§V-D) of an inference.
COMM_KB_MAX = 300.0
LATENCY_MS_MAX = 100.0
#: The same of PRF calls, counted as the paper does: two for each row that a key expands over.
PRF_CALLS_MAX = {"next-word": 100_000, "clicks": 100_000, "histories": 5_000_000}
#: Rows of the paper's tables (Table I), which are what its limits of PRF calls go with.
PAPER_ROWS = {"next-word": 131_000, "clicks": 27_000, "histories": 900_000}
#: How much worse than in the clear a model may get: ours, and the paper's (Figure 14).
TOLERANCE = 0.005
PAPER_TOLERANCE = 0.02
#: What is no co-design: a key an id over the whole table, and plain partial batch retrieval.
UNBATCHED = "unbatched"
PLAIN = "plain"
#: Shares of the longest bag that unbatched layouts have keys for.
_UNBATCHED_SHARES = (1.0, 0.95, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1)
#: Layouts that drop more are not judged by the model.
_JUDGED_DROP_MAX = 0.9


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
    """A layout that was picked.

    Attributes:
        point: the layout, its costs, and its quality on the validation split.
        test_quality: its quality on the test split.
        test_drop: the share of the test split's accesses that it drops.
    """

    point: Point
    test_quality: float
    test_drop: float


def kind_of(point: Point) -> str:
    """The family of a layout, or :data:`UNBATCHED`."""
    spec = point.spec
    if spec.hot is None and spec.full is not None and spec.full.bins == 1:
        return UNBATCHED if spec.family == PLAIN else spec.family
    return spec.family


class Comparison:
    """An application's layouts, searched once; questions about them are asked of it.

    Attributes:
        app: the application.
        table: its table.
        points: layouts, with the share of the validation split's accesses that each drops.
        clear, clear_test: the model's figure in the clear, on both splits.
        facts: of each search, by name.
        costs: the model of time that predicts milliseconds.
    """

    def __init__(
        self,
        app: Application,
        points: Iterable[Point],
        clear: tuple[float, float],
        facts: list[dict[str, Any]],
        costs: CostModel,
    ) -> None:
        self.app = app
        self.table = hushtable.Table.from_weight(app.weight, name=app.name, dtype=app.dtype)
        self.points = list(points)
        self.clear, self.clear_test = clear
        self.facts = facts
        self.costs = costs
        self._asked = {p.spec: p.quality for p in self.points if p.quality is not None}
        self._chosen: dict[LayoutSpec, Choice] = {}
        profile = _native.Profile(*native_arrays(app.train), self.table.info.rows)
        self._simulator = Simulator(self.table._native, profile, costs, seed=0)

    @classmethod
    def search(
        cls, app: Application, *, evaluations: int = 600, say: Say = lambda _line: None
    ) -> Comparison:
        """Searches layouts at both tolerances, and lets the model judge all that a curve shows."""
        table = hushtable.Table.from_weight(app.weight, name=app.name, dtype=app.dtype)
        clear = app.quality("validation")
        traces = (app.train, app.validation, app.test)
        ids_max = max(int(np.diff(trace.offsets).max()) for trace in traces)
        sign = 1 if app.higher_is_better else -1
        points: dict[LayoutSpec, Point] = {}
        facts = []
        for tolerance in (TOLERANCE, PAPER_TOLERANCE):
            result = tune(
                table,
                app.train,
                Budgets(
                    comm_kb_max=COMM_KB_MAX,
                    latency_ms_max=LATENCY_MS_MAX,
                    quality_limit=clear * (1 - sign * tolerance),
                    lower_is_better=not app.higher_is_better,
                ),
                quality=lambda kept: app.quality("validation", kept),
                held_out=app.validation,
                ids_max=ids_max,
                evaluations=evaluations,
                prf_calls_max=calls_searched(app.name, table.info.rows),
            )
            say(
                f"searched {result.facts['evaluations']} layouts within {tolerance:.1%} of the"
                f" clear {app.metric} in {result.facts['seconds']:.0f} s"
            )
            facts.append({"tolerance": tolerance} | result.facts)
            for point in result.points:
                if point.spec not in points or point.quality is not None:
                    points[point.spec] = point
        for queries in sorted({max(round(share * ids_max), 1) for share in _UNBATCHED_SHARES}):
            full = PartSpec(table.info.rows, 1, queries)
            spec = LayoutSpec(None, full, ids_max, "most-frequent", seed_text(0))
            points.setdefault(spec, result.measure(spec))
        found = cls(app, points.values(), (clear, app.quality("test")), facts, result.costs)
        found.judge(say)
        return found

    def judge(self, say: Say) -> None:
        """Asks the model about every layout that a trade-off may show: of each kind those that no
        other beats in drops and any of the costs."""
        wanted: dict[LayoutSpec, Point] = {}
        limits: list[Callable[[Point], bool]] = [
            lambda p: p.comm_kb <= COMM_KB_MAX and p.latency_ms <= LATENCY_MS_MAX,
            lambda p: p.comm_kb <= COMM_KB_MAX,
            *(
                lambda p, limit=limit: p.prf_calls <= limit.calls
                for limit in calls_limits(self.app.name, self.table.info.rows)
                if limit.cost is prf_calls
            ),
            lambda _p: True,
        ]
        for kind in self.kinds():
            of_kind = [p for p in self.of_kinds([kind]) if p.drop <= _JUDGED_DROP_MAX]
            for cost in (prf_calls, prf_blocks, comm_kb, engine_ms, server_ms):
                for limit in limits:
                    points = [point for point in of_kind if limit(point)]
                    figures = np.array([(cost(p), p.drop) for p in points]).reshape(-1, 2)
                    beaten = dominated(figures)
                    wanted |= {
                        p.spec: p for p, lost in zip(points, beaten, strict=True) if not lost
                    }
        missing = [point for point in wanted.values() if point.spec not in self._asked]
        say(f"judging {len(missing)} more layouts by the model")
        for point in missing:
            self.quality(point)
        self.points = [replace(point, quality=self._asked.get(point.spec)) for point in self.points]

    def layout(self, point: Point) -> _native.Layout:
        """The layout of ``point``, with its map of hot rows and companions."""
        return self._simulator.design(point.spec)

    def limit(self, tolerance: float = TOLERANCE) -> float:
        """The worst quality, on the validation split, that counts as kept."""
        sign = 1 if self.app.higher_is_better else -1
        return self.clear * (1 - sign * tolerance)

    def is_kept(self, quality: float, tolerance: float = TOLERANCE) -> bool:
        """Whether a figure is within the tolerance of the clear model's."""
        limit = self.limit(tolerance)
        return quality >= limit if self.app.higher_is_better else quality <= limit

    def quality(self, point: Point) -> float:
        """The model's figure, on the validation split, where this layout fetches its rows."""
        if point.spec not in self._asked:
            kept = simulate(self.layout(point), self.app.validation)
            self._asked[point.spec] = self.app.quality("validation", kept)
        return self._asked[point.spec]

    def kinds(self) -> list[str]:
        """The kinds of layouts there are, the baselines first."""
        found = [point for point in self.points if kind_of(point) != UNBATCHED]
        unbatched = [UNBATCHED] if len(found) < len(self.points) else []
        return [*unbatched, *families_of(found)]

    def of_kinds(self, kinds: Iterable[str]) -> list[Point]:
        """The layouts of these kinds."""
        wanted = set(kinds)
        return [point for point in self.points if kind_of(point) in wanted]

    def best(
        self,
        cost: Callable[[Point], float],
        kinds: Iterable[str],
        within: Callable[[Point], bool] | None = None,
        *,
        tolerance: float = TOLERANCE,
        count: int = 1,
    ) -> list[Point]:
        """The ``count`` least costly of ``kinds`` within a limit that keep quality.

        Args:
            cost: what is to be small.
            kinds: families, or :data:`UNBATCHED`.
            within: the limit; the paper's of communication and latency by default.
            tolerance: how much worse than in the clear the model may get.
            count: how many.
        """
        points = [point for point in self.of_kinds(kinds) if (within or within_limits)(point)]
        found: list[Point] = []
        # What drops more than a layout of its kind that was too bad is not asked for.
        too_bad: dict[str, float] = {}
        for point in sorted(points, key=lambda point: (cost(point), point.drop)):
            kind = kind_of(point)
            if point.drop >= too_bad.get(kind, 1.0):
                continue
            if self.is_kept(self.quality(point), tolerance):
                found.append(replace(point, quality=self.quality(point)))
                if len(found) == count:
                    break
            else:
                too_bad[kind] = min(point.drop, too_bad.get(kind, 1.0))
        return found

    def choice(self, point: Point) -> Choice:
        """``point`` with its figures on the test split."""
        if point.spec not in self._chosen:
            kept = simulate(self.layout(point), self.app.test)
            drop = 1 - float(np.count_nonzero(kept)) / max(len(kept), 1)
            self._chosen[point.spec] = Choice(point, self.app.quality("test", kept), drop)
        return replace(self._chosen[point.spec], point=point)


def simulate(layout: Any, trace: Trace) -> Bools:
    """For each access of a trace whether ``layout`` serves it."""
    kept: Bools = layout.simulate(*native_arrays(trace))
    return kept


def within_limits(point: Point) -> bool:
    """Whether a layout is within the paper's communication and latency."""
    return point.comm_kb <= COMM_KB_MAX and point.latency_ms <= LATENCY_MS_MAX


def engine_ms(point: Point) -> float:
    """Predicted milliseconds of one core of one server's engine for one of many inferences."""
    return point.batch_ms / point.batch


def server_ms(point: Point) -> float:
    """The same with its messages: what bounds a server's throughput."""
    return point.server_ms


def prf_calls(point: Point) -> float:
    """Calls of a pseudorandom function as the paper's scheme needs them, with leaves of one row:
    two for each row that a key expands over (§III-C)."""
    return point.prf_calls


def prf_blocks(point: Point) -> float:
    """128-bit blocks of a pseudorandom function that one of our servers computes: leaves are of up
    to 512 rows, and a bin of one leaf needs none."""
    return point.costs["prf_blocks"]


def comm_kb(point: Point) -> float:
    """Kilobytes to and from both servers for one inference."""
    return point.comm_kb


@dataclass(frozen=True)
class CallsLimit:
    """A limit of PRF calls.

    Attributes:
        name: for files.
        calls: how many an inference may cost.
        cost: how they are counted.
        text: what it is, for people.
    """

    name: str
    calls: int
    cost: Callable[[Point], float]
    text: str


def calls_limits(name: str, rows: int) -> list[CallsLimit]:
    """The paper's limit of PRF calls in both ways of counting; and where one pass over ``rows`` is
    beyond it, what it is for a table of our size."""
    calls = PRF_CALLS_MAX[name]
    found = [
        CallsLimit("paper", calls, prf_calls, f"{calls:,} PRF calls, leaves of one row"),
        CallsLimit("blocks", calls, prf_blocks, f"{calls:,} PRF calls, our leaves"),
    ]
    if calls < 2 * rows:
        scaled = calls_searched(name, rows)
        text = f"{scaled:,} PRF calls, leaves of one row: the paper's for each row"
        found.append(CallsLimit("scaled", scaled, prf_calls, text))
    return found


def calls_searched(name: str, rows: int) -> int:
    """The paper's limit of PRF calls, or where one pass over ``rows`` is beyond it, as many for a
    row as the paper's are for a row of its table."""
    calls = PRF_CALLS_MAX[name]
    return calls if calls >= 2 * rows else round(calls * rows / PAPER_ROWS[name])

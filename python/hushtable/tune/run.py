"""The tuner as one call."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from .. import _native
from ..errors import ConfigError
from ..table import Table
from .costs import CostModel, calibrate, load_costs, save_costs
from .front import Budgets, Point, choose, families_of, pareto
from .goals import Figures, Goal, goals_of, spread_out
from .grid import Space
from .screen import Screen
from .search import Report, Search, Simulator, native_arrays
from .spec import LayoutSpec, seed_text
from .trace import Trace

__all__ = ["Quality", "TuneResult", "tune"]

#: What a model makes of the accesses that were served: bool [accesses of the held-out bags] to a
#: figure.
Quality = Callable[[npt.NDArray[np.bool_]], float]

_IDS_MAX = 65_536
_ROW_BYTES_MAX = 1 << 20


@dataclass(frozen=True)
class TuneResult:
    """What the search found.

    Attributes:
        points: the best layouts of every family, measured on all held-out bags.
        front: those that no other beats in time, communication and loss at once; fastest first.
        best: the choice within the budgets.
        budgets: the budgets.
        held_out: the bags that ``points`` were measured on.
        facts: what table, trace and search were, by name.
        costs: the model of time.
        quality_clear: the quality with every access served; None without a measure of it.
    """

    points: tuple[Point, ...]
    front: tuple[Point, ...]
    best: Point
    budgets: Budgets
    held_out: Trace
    facts: dict[str, Any]
    costs: CostModel
    quality_clear: float | None
    _table: Table = field(repr=False)
    _simulator: Simulator = field(repr=False)

    def layout(self, point: Point | None = None) -> _native.Layout:
        """The layout of ``point``, the best by default, with its map of hot rows and companions."""
        return self._simulator.design((point or self.best).spec)

    def kept(self, point: Point | None = None) -> npt.NDArray[np.bool_]:
        """Of each access of the held-out bags whether ``point``, else the best, serves it."""
        return self._simulator.run((point or self.best).spec, self.held_out)[1]

    def apply(self, bundle: str | Path, point: Point | None = None) -> _native.Layout:
        """Writes the table with the layout of ``point``, the best by default, as a bundle.

        Until the bundle is whole, what is at ``bundle`` stays; then both swap places in one step.

        Raises:
            TableError: the path cannot be written, or holds something that is no bundle.
        """
        layout = self.layout(point)
        self._table._native.with_layout(layout).save(Path(bundle))
        return layout


def tune(
    table: Table,
    trace: Trace,
    budgets: Budgets,
    quality: Quality | None = None,
    seed: int = 0,
    progress: Report | None = None,
    *,
    held_out: Trace | None = None,
    train: float = 0.8,
    shuffle: bool = False,
    ids_max: int | None = None,
    drop_rule: str = "most-frequent",
    evaluations: int = 400,
    sample_bags: int = 1000,
    quality_evaluations: int = 40,
    costs: CostModel | None = None,
) -> TuneResult:
    """Searches the layouts of a table that serve a trace within budgets.

    Hot rows and companions are learned from the first part of the trace; the search simulates
    layouts on a sample of the held-out bags, and measures the best of each family on all of them.
    The same table, trace, seed and cost model give the same result in every process.

    Args:
        table: the table to lay out.
        trace: what inferences read.
        budgets: what a layout may cost; at least one limit.
        quality: called with bool [accesses of the held-out bags], in their order: which were
            served; returns the model's figure. Asked of promising layouts only.
        seed: of samples, shuffling, and the layouts' permutations.
        progress: called with (what is being done, how much of it is, how much there is).
        held_out: bags to measure on; without them, the last ``1 - train`` of the trace.
        train: share of the trace's bags to learn from where ``held_out`` is not given.
        shuffle: whether bags are shuffled before they are divided.
        ids_max: most ids that one inference may ask for; the longest bag by default.
        drop_rule: ``most-frequent``, ``earliest`` or ``random``.
        evaluations: layouts that the search simulates at most.
        sample_bags: held-out bags that it simulates each of them on.
        quality_evaluations: calls of ``quality`` at most.
        costs: the model of time; by default what ``hushtable bench layout`` kept for this machine,
            and where there is nothing, this machine is measured and the model kept.

    Raises:
        ConfigError: no limit at all, a limit of quality without its measure, or an argument out of
            range.
        TraceError: an empty trace, ids that the table does not have, or a bag over ``ids_max``.
        BudgetError: no layout meets the budgets.
    """
    report = progress or _quiet
    _check_options(budgets, quality, drop_rule, evaluations, sample_bags, quality_evaluations)
    started = time.perf_counter()
    rows, row_bytes = table.info.rows, table.info.row_bytes
    # Before anything is divided, so that errors name the bags of the trace as it was given.
    ids_max = _bag_limit(trace, held_out, ids_max)
    for bags in (trace, held_out):
        if bags is not None:
            bags.check(rows, ids_max)
    learned = trace
    if held_out is None:
        learned, held_out = trace.split(train, shuffle_seed=seed if shuffle else None)

    model = costs or load_costs()
    if model is None:
        model, _ = calibrate(progress=lambda done, total: report("calibrating", done, total))
        with contextlib.suppress(OSError):  # a cache that cannot be written is no reason to fail
            save_costs(model)
    report("profiling", 0, 1)
    profile = _native.Profile(*native_arrays(learned), rows)
    report("profiling", 1, 1)

    sample = held_out.sample(sample_bags, seed)
    simulator = Simulator(table._native, profile, model, seed)
    screen = Screen(sample, profile.ranked(rows), row_bytes, model)
    space = Space(rows, ids_max, drop_rule, seed_text(seed), _ROW_BYTES_MAX // row_bytes - 1)
    goals = goals_of(budgets, rows)
    found = Search(space, simulator, screen, sample, goals, evaluations, report).run()
    judge = _Judge(simulator, held_out, quality, budgets, goals, quality_evaluations, report)
    points = judge.measure(found)
    lower = budgets.lower_is_better
    facts = {
        "table": {
            "name": table.info.name,
            "version": table.info.version,
            "rows": rows,
            "row_bytes": row_bytes,
        },
        "trace": _trace_facts(trace, learned, held_out, profile, rows),
        "seed": seed,
        "evaluations": len(found),
        "seconds": round(time.perf_counter() - started, 3),
    }
    return TuneResult(
        points=tuple(points),
        front=tuple(pareto(points, lower)),
        best=choose(points, budgets),
        budgets=budgets,
        held_out=held_out,
        facts=facts,
        costs=model,
        quality_clear=judge.quality_clear,
        _table=table,
        _simulator=simulator,
    )


class _Judge:
    """Measures what the search found on all held-out bags, and asks for quality."""

    #: Layouts of each family's front that are measured, besides the best.
    FAMILY_POINTS = 12

    def __init__(
        self,
        simulator: Simulator,
        held_out: Trace,
        quality: Quality | None,
        budgets: Budgets,
        goals: Sequence[Goal],
        quality_evaluations: int,
        report: Report,
    ) -> None:
        self._simulator = simulator
        self._held_out = held_out
        self._quality = quality
        self._budgets = budgets
        self._goals = goals
        self._asks_left = quality_evaluations
        self._report = report
        self.quality_clear: float | None = None
        if quality is not None:
            self.quality_clear = self._ask(np.ones(len(held_out.ids), dtype=bool))

    def measure(self, found: Sequence[Point]) -> list[Point]:
        """The promising ones of ``found``, measured."""
        chosen = [
            point for family in families_of(found) for point in self._shortlist(found, family)
        ]
        asked: set[LayoutSpec] = set()
        if self._quality is not None:
            families = families_of(chosen)
            each = max(3 * self._asks_left // (4 * len(families)), 1)
            for family in families:
                of_family = [point for point in chosen if point.family == family]
                asked |= {point.spec for point in _spread(of_family, each)}
        points: dict[LayoutSpec, Point] = {}
        for done, point in enumerate(chosen):
            points[point.spec] = self._measure(point.spec, point.spec in asked)
            self._report("measuring", done + 1, len(chosen))
        if self._quality is not None:
            self._ask_near_the_limit(points)
        return list(points.values())

    def _measure(self, spec: LayoutSpec, asks: bool) -> Point:
        point, kept = self._simulator.run(spec, self._held_out)
        if asks and self._asks_left > 0:
            point = replace(point, quality=self._ask(kept))
        return point

    def _ask(self, kept: npt.NDArray[np.bool_]) -> float:
        assert self._quality is not None
        self._asks_left -= 1
        found = float(self._quality(kept))
        if not math.isfinite(found):
            raise ConfigError(f"the quality measure returned {found}, but must return a number")
        return found

    def _shortlist(self, found: Sequence[Point], family: str) -> list[Point]:
        """A family's best for each goal, and its front, thinned."""
        points = [point for point in found if point.family == family]
        figures = Figures.of(points)
        chosen: list[Point] = []
        for goal in self._goals:
            chosen.append(points[int(goal.order(figures)[0])])
        # The sample's drop is not that of all bags: near ones on either side may be the choice.
        first = self._goals[0]
        for share in (1.0, 0.95, 0.85):
            goal = replace(first, drop_max=first.drop_max * share)
            chosen += [points[int(i)] for i in goal.order(figures)[:2]]
        chosen += _spread(pareto(points), self.FAMILY_POINTS)
        return list({point.spec: point for point in chosen}.values())

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
            (point.batch_ms for point in asked if budgets.meets(point)), default=float("inf")
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
            and (point.batch_ms if budgets.quality_limit is not None else point.drop) < best
        ]
        if not hopeful:
            return None
        return min(hopeful, key=lambda point: (point.batch_ms, point.drop)).spec


def _spread(points: Sequence[Point], count: int) -> list[Point]:
    """At most ``count`` of the points, spread over their figures."""
    return [points[i] for i in spread_out(Figures.of(points).logs(), count)]


def _quiet(_what: str, _done: int, _total: int) -> None:
    return


def _check_options(
    budgets: Budgets,
    quality: Quality | None,
    drop_rule: str,
    evaluations: int,
    sample_bags: int,
    quality_evaluations: int,
) -> None:
    limits = (
        budgets.comm_kb_max,
        budgets.latency_ms_max,
        budgets.drop_max,
        budgets.quality_limit,
    )
    if all(limit is None for limit in limits):
        raise ConfigError(
            "give at least one budget: --max-comm-kb, --max-latency-ms, --max-drop or --min-quality"
        )
    if budgets.quality_limit is not None and quality is None:
        raise ConfigError("a limit of quality needs its measure: give --quality module:function")
    if drop_rule not in ("most-frequent", "earliest", "random"):
        raise ConfigError(f"drop is {drop_rule!r}, but must be most-frequent, earliest or random")
    for name, value, least in (
        ("evaluations", evaluations, 20),
        ("sample_bags", sample_bags, 10),
        ("quality_evaluations", quality_evaluations, 8),
    ):
        if value < least:
            raise ConfigError(f"{name} is {value}, but must be at least {least}")


def _bag_limit(trace: Trace, held_out: Trace | None, ids_max: int | None) -> int:
    if ids_max is None:
        longest = max(int(bags.lengths.max()) for bags in (trace, held_out) if bags is not None)
        return min(max(longest, 1), _IDS_MAX)
    if not 1 <= ids_max <= _IDS_MAX:
        raise ConfigError(f"ids_max is {ids_max}, but must be 1 to {_IDS_MAX}")
    return ids_max


def _trace_facts(
    trace: Trace, learned: Trace, held_out: Trace, profile: _native.Profile, rows: int
) -> dict[str, Any]:
    counts = np.sort(profile.counts().astype(np.int64))[::-1]
    top = max(rows // 100, 1)
    distinct = np.sort(held_out.distinct_counts())
    return {
        "source": trace.source,
        "bags_learned": learned.bag_count,
        "accesses_learned": len(learned.ids),
        "bags_held_out": held_out.bag_count,
        "accesses_held_out": len(held_out.ids),
        "distinct_ids_mean": round(float(distinct.mean()), 3),
        "distinct_ids_p99": int(distinct[math.ceil(0.99 * len(distinct)) - 1]),
        "rows_read": int(np.count_nonzero(counts)),
        "share_of_top_percent": round(float(counts[:top].sum() / counts.sum()), 4),
    }

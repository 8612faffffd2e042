"""The tuner as one call."""

from __future__ import annotations

import contextlib
import math
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from .. import _native
from ..errors import ConfigError
from ..table import Table
from .costs import CostModel, load_costs, save_costs
from .front import Budgets, Point, choose, pareto
from .goals import goals_of, prf_calls_limit
from .grid import Space
from .judge import Judge, Quality
from .measure import calibrate, measure_wire
from .screen import Screen
from .search import Report, Search, Simulator, native_arrays
from .spec import LayoutSpec, seed_text
from .trace import Trace, TraceError

if TYPE_CHECKING:
    from ..scale.pool import Pool

__all__ = ["Quality", "TuneResult", "check_enough", "tune"]

_IDS_MAX = 65_536
#: The least inferences that a layout is measured on, and that it is learned from.
_BAGS_MIN = 20
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

    def measure(self, spec: LayoutSpec) -> Point:
        """What any layout of this table costs, and drops of the held-out bags."""
        return self._simulator.run(spec, self.held_out)[0]

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
    evaluations: int | None = None,
    sample_bags: int = 1000,
    quality_evaluations: int = 40,
    prf_calls_max: int | None = None,
    costs: CostModel | None = None,
    pool: Pool | None = None,
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
        evaluations: layouts that the search simulates at most; 400 by default, 240 for tables of
            over 200,000 rows, where each takes longer.
        sample_bags: held-out bags that it simulates each of them on.
        quality_evaluations: calls of ``quality`` at most.
        prf_calls_max: PRF calls, counted as :attr:`Point.prf_calls`, within which the least
            communication is looked for; five a row by default. Layouts over it stay candidates.
        costs: the model of time; by default what ``hushtable bench layout`` kept for this machine,
            and where there is nothing, this machine is measured and the model kept.
        pool: workers that simulate layouts, see :func:`hushtable.scale.open_pool`; the threads of
            this process by default. The result is the same.

    Raises:
        ConfigError: no limit at all, a limit of quality without its measure, or an argument out of
            range.
        TraceError: an empty trace, one of too few inferences to learn from 20 and hold 20 out, ids
            that the table does not have, or a bag over ``ids_max``.
        BudgetError: no layout meets the budgets.
    """
    report = progress or _quiet
    started = time.perf_counter()
    rows, row_bytes = table.info.rows, table.info.row_bytes
    if evaluations is None:
        evaluations = 400 if rows <= 200_000 else 240
    _check_options(
        budgets, quality, drop_rule, evaluations, sample_bags, quality_evaluations, prf_calls_max
    )
    # Before anything is divided, so that errors name the bags of the trace as it was given.
    ids_max = _bag_limit(trace, held_out, ids_max)
    for bags in (trace, held_out):
        if bags is not None:
            bags.check(rows, ids_max)
    learned = trace
    if held_out is None:
        check_enough(trace, train)
        learned, held_out = trace.split(train, shuffle_seed=seed if shuffle else None)
    elif held_out.bag_count < _BAGS_MIN:
        raise TraceError(
            f"{held_out.source} has {held_out.bag_count} inferences, but layouts are measured on "
            f"{_BAGS_MIN} or more: give a larger held-out trace"
        )

    model = costs or load_costs()
    if model is None:
        model, _ = calibrate(progress=lambda done, total: report("calibrating", done, total))
        model = measure_wire(model)
        with contextlib.suppress(OSError):  # a cache that cannot be written is no reason to fail
            save_costs(model)
    report("profiling", 0, 1)
    profile = _native.Profile(*native_arrays(learned), rows)
    report("profiling", 1, 1)

    sample = held_out.sample(sample_bags, seed)
    simulator = Simulator(table._native, profile, model, seed)
    screen = Screen(sample, profile.ranked(rows), row_bytes, model)
    space = Space(rows, ids_max, drop_rule, seed_text(seed), _ROW_BYTES_MAX // row_bytes - 1)
    calls = prf_calls_limit(rows) if prf_calls_max is None else prf_calls_max
    goals = goals_of(budgets, calls)
    with contextlib.ExitStack() as closing:
        runner = simulator
        if pool is not None:
            from ..scale.tuning import PooledSimulator

            traces = (sample, held_out)
            runner = closing.enter_context(
                PooledSimulator(table, learned, profile, traces, model, seed, pool)
            )
        judge = Judge(runner, held_out, quality, budgets, quality_evaluations, report)
        search = Search(space, runner, screen, sample, goals, evaluations, report)
        if budgets.quality_limit is not None and budgets.drop_max is None:
            search.refocus = lambda first: goals_of(judge.allow_drops(first), calls)
        found = search.run()
        points = judge.measure(found, search.goals)
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
        "prf_calls_max": calls,
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


def _quiet(_what: str, _done: int, _total: int) -> None:
    return


def _check_options(
    budgets: Budgets,
    quality: Quality | None,
    drop_rule: str,
    evaluations: int,
    sample_bags: int,
    quality_evaluations: int,
    prf_calls_max: int | None,
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
        ("prf_calls_max", 1 if prf_calls_max is None else prf_calls_max, 1),
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


def check_enough(trace: Trace, train: float) -> None:
    """Refuses a trace of which too little would be left to measure on, or to learn from.

    What a handful of inferences drop says nothing of the next: any layout looks right on them.
    """
    if not 0 < train < 1:
        raise ConfigError(f"train is {train:g}, but must be over 0 and below 1")
    bags = trace.bag_count
    # A hair less, so that 20 / (1 - 0.8) is 100 in binary too.
    needed = math.ceil(_BAGS_MIN / min(train, 1 - train) - 1e-9)
    if bags >= needed:
        return
    learned = min(max(round(train * bags), 1), max(bags - 1, 0))
    fits = "" if bags < 2 * _BAGS_MIN else ", a share nearer to one half by --train"
    raise TraceError(
        f"{trace.source} has {bags:,} inferences, of which {learned:,} would be learned from and "
        f"{bags - learned:,} held out to measure on, but each needs {_BAGS_MIN} or more: give a "
        f"trace of {needed:,} inferences{fits}, or another trace by --held-out"
    )


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

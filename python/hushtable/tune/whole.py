"""The tuner for a whole model: one budget, split over its tables by their fronts."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import ConfigError
from ..model import Model
from ..table import Table
from .costs import CostModel
from .front import BudgetError, Budgets, Point, pareto
from .run import TuneResult, check_enough, tune
from .search import Report
from .share import Share, check_limits, split_budget, split_evenly
from .trace import Trace

if TYPE_CHECKING:
    from ..scale.pool import Pool

__all__ = ["ModelTuneResult", "tune_model"]

#: Shares of the whole budget of bytes around which layouts of each table are searched.
_PARTS = (1.0, 0.25)


@dataclass(frozen=True)
class ModelTuneResult:
    """A layout of each table of a model.

    Figures are of one inference of the whole model: a table that two features read counts twice.

    Attributes:
        share: the choice.
        even: what an equal part of the budgets for each table gives; None where one of the tables
            has no layout within its part.
        fronts: of each table the layouts among which was chosen, by its name.
        reads: how many features of the model read each table.
        left: tables without a trace, which stay as they are and are in no figure.
        comm_kb_max: the budget of kilobytes to and from both servers; None without one.
        server_us_max: the budget of microseconds of one core of a server; None without one.
    """

    share: Share
    even: Share | None
    fronts: Mapping[str, Sequence[Point]]
    reads: Mapping[str, int]
    left: tuple[str, ...]
    comm_kb_max: float | None
    server_us_max: float | None
    _model: Model = field(repr=False)
    _results: Mapping[str, Mapping[int, TuneResult]] = field(repr=False)
    _singles: Mapping[str, Mapping[int, Point]] = field(repr=False)

    def apply(self, bundle: str | Path) -> Model:
        """Writes the model with the chosen layouts as a bundle, and opens it.

        Until the bundle is whole, what is at ``bundle`` stays; tables are shared, not copied.

        Raises:
            TableError: the path cannot be written, or holds something that is no bundle.
        """
        place = Path(bundle)
        model = self._model
        names = list(self.share.points)
        place.parent.mkdir(parents=True, exist_ok=True)
        # Beside it, so that files are shared and the last step is the only one that is seen.
        stage = Path(tempfile.mkdtemp(prefix=f".{place.name}-", dir=place.parent))
        try:
            for number, name in enumerate(names):
                is_last = number + 1 == len(names)
                out = place if is_last else stage / str(number)
                tuned = model.table(name)._native.with_layout(self._layout(name))
                model = model.replace_table(name, Table(tuned), out)
        finally:
            shutil.rmtree(stage, ignore_errors=True)
        return model

    def _layout(self, name: str) -> Any:
        chosen = id(self.share.points[name])
        result = self._results[name][chosen]
        return result.layout(self._singles[name][chosen])

    def to_json(self) -> dict[str, Any]:
        """Everything that was found, for machines."""
        return {
            "format": "hushtable-tune-model",
            "format_version": 1,
            "model": {"name": self._model.name, "version": self._model.version},
            "budgets": {"comm_kb_max": self.comm_kb_max, "server_us_max": self.server_us_max},
            "is_exact": self.share.is_exact,
            "total": _totals(self.share),
            "even_split": None if self.even is None else _totals(self.even),
            "tables": {
                name: {
                    "weight": self.share.weights[name],
                    "features": self.reads[name],
                    "best": point.to_dict(),
                    "even_split": None if self.even is None else self.even.points[name].to_dict(),
                    "front": [found.to_dict() for found in self.fronts[name]],
                }
                for name, point in self.share.points.items()
            },
            "left": list(self.left),
        }


def _totals(share: Share) -> dict[str, float]:
    return {
        "comm_kb": share.comm_kb,
        "server_us": share.server_ms * 1e3,
        "latency_ms": share.latency_ms,
        "drop": share.drop,
    }


def tune_model(
    model: Model,
    traces: Mapping[str, Trace],
    *,
    comm_kb_max: float | None = None,
    server_us_max: float | None = None,
    weights: Mapping[str, float] | None = None,
    seed: int = 0,
    progress: Report | None = None,
    train: float = 0.8,
    shuffle: bool = False,
    drop_rule: str = "most-frequent",
    evaluations: int | None = None,
    sample_bags: int = 1000,
    costs: CostModel | None = None,
    pool: Pool | None = None,
) -> ModelTuneResult:
    """Chooses a layout for each table of a model, within one budget for all of them.

    Each table's layouts are searched as by :func:`tune`; of each table's front one is then taken so
    that together they are within both budgets and lose least (:func:`split_budget`).

    Args:
        model: the model's bundle.
        traces: what inferences read, by feature. Tables of which no feature has a trace stay as
            they are, and are in no figure.
        comm_kb_max: kilobytes to and from both servers for one inference of the model.
        server_us_max: microseconds of one core of one server for one inference, of many.
        weights: how much a lost access counts, by feature; by default the feature's accesses per
            inference, so that what is least is the share of the model's lookups that are lost.
        seed: of samples, shuffling, and the layouts' permutations.
        progress: called with (what is being done, how much of it is, how much there is).
        train: share of each trace's bags to learn from; the rest is measured on.
        shuffle: whether bags are shuffled before they are divided.
        drop_rule: ``most-frequent``, ``earliest`` or ``random``.
        evaluations: layouts simulated at most, of each table.
        sample_bags: held-out bags that each of them is simulated on.
        costs: the model of time; by default this machine's, see :func:`tune`.
        pool: workers that simulate layouts, see :func:`tune`.

    Raises:
        ConfigError: no budget, no trace, or a weight of a feature without a trace.
        ModelError: a feature that the model does not have.
        TraceError: a trace too small to hold anything out, or with ids that its table lacks.
        ShareError: no choice of layouts meets the budgets.
    """
    _check(model, traces, weights, comm_kb_max, server_us_max)
    features = {name: model.feature(name) for name in traces}
    names = list(dict.fromkeys(feature.table for feature in features.values()))
    reads = {name: sum(f.table == name for f in model.features) for name in names}
    fronts: dict[str, list[Point]] = {}
    results: dict[str, dict[int, TuneResult]] = {}
    singles: dict[str, dict[int, Point]] = {}
    shares = dict.fromkeys(names, 0.0)
    for name in names:
        parts = []
        for feature in (f for f in features.values() if f.table == name):
            trace = traces[feature.name]
            trace.check(model.table(name).info.rows, feature.max_ids)
            check_enough(trace, train)
            parts.append(trace.split(train, shuffle_seed=seed if shuffle else None))
            own = len(trace.ids) / trace.bag_count
            shares[name] += own if weights is None else weights.get(feature.name, 0.0)
        learned, held_out = (_joined([part[i] for part in parts]) for i in range(2))
        found: list[tuple[Point, Point, TuneResult]] = []
        ids_max = max(f.max_ids for f in model.features if f.table == name)
        for budgets in _searches(comm_kb_max, reads[name]):
            with _naming(name):
                result = tune(
                    model.table(name),
                    learned,
                    budgets,
                    None,
                    seed,
                    progress,
                    held_out=held_out,
                    ids_max=ids_max,
                    drop_rule=drop_rule,
                    evaluations=evaluations,
                    sample_bags=sample_bags,
                    costs=costs,
                    pool=pool,
                )
            costs = result.costs  # the first search may have measured this machine
            found += [(_times(point, reads[name]), point, result) for point in result.points]
        fronts[name] = pareto(point for point, _, _ in found)
        kept = {id(point) for point in fronts[name]}
        results[name] = {id(whole): result for whole, _, result in found if id(whole) in kept}
        singles[name] = {id(whole): point for whole, point, _ in found if id(whole) in kept}
    limits = {"comm_kb_max": comm_kb_max, "server_us_max": server_us_max}
    return ModelTuneResult(
        share=split_budget(fronts, shares, **limits),
        even=split_evenly(fronts, shares, **limits),
        fronts=fronts,
        reads=reads,
        left=tuple(table.name for table in model.tables if table.name not in names),
        _model=model,
        _results=results,
        _singles=singles,
        **limits,
    )


def _check(
    model: Model,
    traces: Mapping[str, Trace],
    weights: Mapping[str, float] | None,
    comm_kb_max: float | None,
    server_us_max: float | None,
) -> None:
    check_limits(comm_kb_max, server_us_max)
    if not traces:
        names = ", ".join(feature.name for feature in model.features[:8])
        raise ConfigError(f"give a trace of each feature, --trace FEATURE=FILE, of: {names}")
    for name in weights or {}:
        if name not in traces:
            raise ConfigError(f"there is a weight of {name!r}, but no trace: give --trace {name}=")


def _searches(comm_kb_max: float | None, reads: int) -> list[Budgets]:
    """What layouts are searched for: any drop may turn out to be the best, within the bytes."""
    if comm_kb_max is None:
        return [Budgets(drop_max=0.9), Budgets(drop_max=0.01)]
    return [Budgets(comm_kb_max=comm_kb_max * part / reads) for part in _PARTS]


def _times(point: Point, reads: int) -> Point:
    """The figures of ``reads`` inferences by the layout, which one of the model needs."""
    scaled = {
        name: value * (1 if name in ("stored_bytes", "map_bytes") else reads)
        for name, value in point.costs.items()
    }
    return replace(
        point,
        costs=scaled,
        latency_ms=point.latency_ms * reads,
        batch_ms=point.batch_ms * reads,
        wire_ms=point.wire_ms * reads,
    )


def _joined(traces: Sequence[Trace]) -> Trace:
    """The bags of all, one trace after the other."""
    if len(traces) == 1:
        return traces[0]
    lengths = np.concatenate([trace.lengths for trace in traces])
    return Trace(
        np.concatenate([trace.ids for trace in traces]),
        np.concatenate(([0], np.cumsum(lengths))),
        source=" and ".join(trace.source for trace in traces),
    )


@contextlib.contextmanager
def _naming(table: str) -> Iterator[None]:
    try:
        yield
    except BudgetError as error:
        text = f"table {table!r}: {error}"
        raise BudgetError(text, binding=error.binding, nearest=error.nearest) from error

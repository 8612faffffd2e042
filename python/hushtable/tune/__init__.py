"""The tuner: from a table, a trace and budgets to a layout.

    from hushtable import Table
    from hushtable.tune import Budgets, read_trace, tune

    result = tune(
        Table.open("bundles/items"),
        read_trace("trace.parquet"),
        Budgets(comm_kb_max=300, drop_max=0.01),
    )
    print(result.best)
    result.apply("bundles/items-tuned")

A layout says what every inference asks for, whatever its ids are (Lam et al., "GPU-based Private
Information Retrieval for On-Device Machine Learning Inference", §IV): more bins cost
communication, more queries and companions computation, and too few of them drop ids.
"""

from __future__ import annotations

from .costs import CostModel, load_costs, save_costs, stored_costs
from .front import BudgetError, Budgets, Point, choose, pareto
from .judge import Quality
from .measure import calibrate
from .plots import Limits, draw
from .report import to_json, write_json
from .run import TuneResult, tune
from .share import Share, ShareError, split_budget
from .spec import LayoutSpec, PartSpec
from .trace import Trace, TraceError, read_trace
from .whole import ModelTuneResult, tune_model

__all__ = [
    "BudgetError",
    "Budgets",
    "CostModel",
    "LayoutSpec",
    "Limits",
    "ModelTuneResult",
    "PartSpec",
    "Point",
    "Quality",
    "Share",
    "ShareError",
    "Trace",
    "TraceError",
    "TuneResult",
    "calibrate",
    "choose",
    "draw",
    "load_costs",
    "pareto",
    "read_trace",
    "save_costs",
    "split_budget",
    "stored_costs",
    "to_json",
    "tune",
    "tune_model",
    "write_json",
]

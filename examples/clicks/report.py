"""Figures of a click model in the clear: its table, its accesses, and its quality under drops."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import hushtable
from hushtable.tune.trace import Trace

from .clickapp import ClickApp, Split
from .pages import Bools

#: Shares of the lookups that are dropped.
DROPPED = (0.0, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
DTYPES = ("f32", "f16", "int8", "fp8_e4m3", "fp8_e5m2", "int4", "int4/32", "int2", "int2/32")


def run(
    load: Callable[[argparse.Namespace, Callable[[str], None]], ClickApp],
    parser: argparse.ArgumentParser,
    *,
    stand_in: str,
    published: str,
) -> int:
    """Loads what the command line asks for and prints its figures; the exit code.

    Args:
        load: the application that the command line asks for.
        parser: of the command line; ``--data`` has the folder of published files.
        stand_in: the data without ``--data``.
        published: the data with it.
    """
    parser.add_argument("--json", action="store_true", help="print the figures, as JSON")
    chosen = parser.parse_args()
    errors = Console(stderr=True, soft_wrap=True, highlight=False)
    try:
        app = load(chosen, lambda line: errors.print(line, markup=False))
        data = published if chosen.data else stand_in
        figures = {"data": data, "table": describe(app), "quality": measure(app, "test")}
    except hushtable.Error as error:
        errors.print(f"error: {error}", style="red", markup=False)
        return 1
    if chosen.json:
        print(json.dumps(figures))
    else:
        show(Console(), figures)
    return 0


def measure(app: ClickApp, split: Split) -> dict[str, Any]:
    """Quality in the clear, under drops and by how the table is stored."""
    began = time.perf_counter()
    clear = app.quality(split)
    return {
        "auc": clear,
        "seconds": time.perf_counter() - began,
        "random_drops": {
            share: app.quality(split, drop_at_random(app.held_out(split), share))
            for share in DROPPED
        },
        "rarest_drops": {
            share: app.quality(split, drop_rarest(app.held_out(split), app.train, share))
            for share in DROPPED
        },
        "dtypes": {dtype: app.stored_as(dtype).quality(split) for dtype in DTYPES},
    }


def drop_at_random(trace: Trace, share: float, *, seed: int = 1) -> Bools:
    """bool [ids], False for about ``share`` of the lookups; more share drops the same and more."""
    return np.random.default_rng(seed).random(len(trace.ids)) >= share


def drop_rarest(trace: Trace, train: Trace, share: float) -> Bools:
    """bool [ids], False for the ``share`` of the lookups whose ids training reads least."""
    rows = 1 + max(int(trace.ids.max()), int(train.ids.max()))
    reads = np.bincount(train.ids, minlength=rows)[trace.ids]
    # Among equals it is chance, not place, that decides.
    tie = np.random.default_rng(1).random(len(reads))
    kept = np.ones(len(reads), dtype=np.bool_)
    kept[np.lexsort((tie, reads))[: round(share * len(reads))]] = False
    return kept


def describe(app: ClickApp) -> dict[str, Any]:
    """The table and its accesses, as the training trace has them."""
    rows = len(app.weight)
    reads = np.sort(np.bincount(app.train.ids, minlength=rows))[::-1]
    shares = np.cumsum(reads) / reads.sum()
    distinct = app.test.distinct_counts()
    return {
        "rows": rows,
        "dim": app.weight.shape[1],
        "dtype": app.dtype,
        "row_bytes": app.row_bytes,
        "bags": {split: getattr(app, split).bag_count for split in ("train", "validation", "test")},
        "candidates": int((app.pages["test"].candidates >= 0).sum()),
        "clicked": int(app.pages["test"].clicked.sum()),
        "distinct_mean": float(distinct.mean()),
        "distinct_p50": float(np.quantile(distinct, 0.5)),
        "distinct_p99": float(np.quantile(distinct, 0.99)),
        "distinct_max": int(distinct.max()),
        "rows_read": int((reads > 0).sum()),
        "share_of_top_percent": float(shares[max(rows // 100, 1) - 1]),
        "share_of_top_tenth": float(shares[max(rows // 10, 1) - 1]),
        "unread_in_training": float((~np.isin(app.test.ids, app.train.ids)).mean()),
    }


def show(console: Console, figures: dict[str, Any]) -> None:
    """Prints the figures as tables."""
    table, quality = figures["table"], figures["quality"]
    bags = table["bags"]
    console.print(
        f"{table['rows']:,} rows x {table['dim']} {table['dtype']} = {table['row_bytes']} bytes a"
        f" row\n{bags['test']:,} test inferences of {table['distinct_mean']:.1f} distinct ids"
        f" (half up to {table['distinct_p50']:.0f}, at most {table['distinct_max']}) that score"
        f" {table['candidates']:,} candidates, {table['clicked']:,} of them clicked\n"
        f"{bags['train']:,} training inferences read {table['rows_read']:,} rows; the top 1 % of"
        f" the table's rows take {table['share_of_top_percent']:.1%} of their accesses, the top"
        f" 10 % {table['share_of_top_tenth']:.1%}\n"
        f"{table['unread_in_training']:.1%} of the test accesses are to rows that they never read\n"
    )
    stored = Table("test AUC", "", box=None)
    for dtype, value in quality["dtypes"].items():
        stored.add_row(f"stored as {dtype}", f"{value:.4f}")
    drops = Table("dropped", "at random", "the rarest ids", box=None)
    for share in DROPPED:
        drops.add_row(
            f"{share:.1%}",
            f"{quality['random_drops'][share]:.4f}",
            f"{quality['rarest_drops'][share]:.4f}",
        )
    console.print(stored)
    console.print()
    console.print(drops)

"""Figure 14b: latency at random arrivals, with the waiting-window scheduler and without."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..figure import COLOURS, GREY, Figure
from .figures_draw import finish
from .figures_points import scheduler
from .published import bound, compare
from .serving import Load, Scheduler, crossing, last_within, loads, md1_latency_s

__all__ = ["FIGURES"]

_SOURCE = "Figure 14b"
#: Single-query rates of 16 GB that the paper prints: they differ.
_RATES = {"Figure 13c": 591 / 18.9, "Figure 14b": 17.8}


def figure_14b(*, runs: int = 10, queries: int = 4_000, seed: int = 1) -> Figure:
    """Mean latency against the rate of arrivals, 16 GB.

    Three times: as simulated, and with a query alone at each of the two rates that the paper has
    for it, where no batch is quicker than one query.
    """
    ours = scheduler(16, 64)
    variants = {"ours": ours}
    for source, qps in _RATES.items():
        alone = 1 / qps
        slowed = tuple(max(alone, seconds) for seconds in ours.service_s[1:])
        variants[f"one query as in {source}"] = Scheduler((alone, *slowed), ours.window_s)
    curves: dict[str, list[Load]] = {}
    marks: dict[str, tuple[float, float]] = {}
    for name, batched in variants.items():
        rates = _rates(batched)
        curves[name] = loads(batched, rates, runs=runs, queries=queries, seed=seed)
        marks[name] = (
            crossing(batched, runs=runs, queries=queries, seed=seed),
            last_within(batched, 2 * batched.service_s[0], runs=runs, queries=queries, seed=seed),
        )
    begins, ends = marks["ours"]
    worst = max(
        one.mean_s / md1_latency_s(one.rate, ours.service_s[0])
        for one in curves["ours"]
        if one.rate <= ends
    )
    notes = [
        "A rate beyond what the machine sustains has no mean and is left out.",
        "44.2x is 420 over 9.5, the rate from which batching waits less, and not over the limit "
        "without batching (420 / 17.8 = 23.6).",
        "The paper has two rates of single queries at 16 GB: 591 / 18.9 = 31.3 QPS from Figure "
        "13c, 17.8 QPS in Figure 14b. "
        + " ".join(
            f"{name}: batching pays from {low:.3g} QPS, within 2x up to {high:.4g} "
            f"({high / low:.3g}x), limit without batching "
            f"{1 / variants[name].service_s[0]:.3g}."
            for name, (low, high) in marks.items()
        ),
        bound(_SOURCE, "Figure 14b: latency with batching over without").statement(worst),
    ]
    rows = [
        [
            name,
            one.rate,
            1e3 * one.mean_s,
            1e3 * one.low_s,
            1e3 * one.high_s,
            1e3 * one.p50_s,
            1e3 * one.p95_s,
            1e3 * one.p99_s,
            one.batch_mean,
            one.busy,
            1e3 * md1_latency_s(one.rate, variants[name].service_s[0]),
        ]
        for name, curve in curves.items()
        for one in curve
        if one.is_sustained
    ]
    return Figure(
        "14b",
        "Latency at random arrivals, 16 GB",
        (
            "variant",
            "rate_qps",
            "mean_ms",
            "low_ms",
            "high_ms",
            "p50_ms",
            "p95_ms",
            "p99_ms",
            "batch_mean",
            "busy",
            "one_at_a_time_mean_ms",
        ),
        rows,
        (
            compare(_SOURCE, "without batching, limit", 1 / ours.service_s[0]),
            compare(_SOURCE, "rate from which batching waits less", begins),
            compare(_SOURCE, "rate up to which latency stays within 2x", ends),
            compare(_SOURCE, "that rate over the one from which batching pays", ends / begins),
        ),
        lambda canvas: _draw(canvas, variants, curves, marks),
        inches=(7.6, 4.4),
        notes=tuple(notes),
    )


def _rates(batched: Scheduler) -> list[float]:
    """From a tenth of what a query alone sustains to just below all that batches do."""
    alone = 1 / batched.service_s[0]
    low = np.geomspace(0.1 * alone, alone, 12)
    high = np.geomspace(1.2 * alone, 0.7 * batched.qps_max, 12)
    last = np.linspace(0.74, 0.98, 7) * batched.qps_max
    return [float(rate) for rate in (*low, *high, *last)]


def _draw(
    canvas: Any,
    variants: dict[str, Scheduler],
    curves: dict[str, list[Load]],
    marks: dict[str, tuple[float, float]],
) -> None:
    axes = canvas.subplots()
    for index, (name, curve) in enumerate(curves.items()):
        service = variants[name].service_s[0]
        shown = [one for one in curve if one.is_sustained]
        colour = COLOURS[index]
        axes.plot(
            [one.rate for one in shown],
            [1e3 * one.mean_s for one in shown],
            color=colour,
            marker="o",
            markersize=2.5,
            linewidth=1.3,
            label=f"{name}: batches",
        )
        alone = np.geomspace(0.1 / service, 0.97 / service, 80)
        axes.plot(
            alone,
            [1e3 * md1_latency_s(float(rate), service) for rate in alone],
            color=colour,
            linestyle="--",
            linewidth=1.3,
            label=f"{name}: one at a time",
        )
        begins = marks[name][0]
        axes.plot([begins], [1e3 * md1_latency_s(begins, service)], "x", color=colour, markersize=7)
    for rate, text in ((9.5, "paper: pays from 9.5"), (420, "paper: within 2x to 420")):
        axes.axvline(rate, color=GREY, linewidth=0.9, linestyle=":")
        axes.annotate(
            text,
            (rate, 0.98),
            xytext=(-3, 0),
            xycoords=("data", "axes fraction"),
            textcoords="offset points",
            rotation=90,
            fontsize=7,
            ha="right",
            va="top",
            color="#555555",
        )
    axes.set_xscale("log")
    slowest = max(scheduler.service_s[0] for scheduler in variants.values())
    axes.set_ylim(0, 4.5e3 * slowest)
    axes.set_xlabel("queries a second that arrive", fontsize=9)
    finish(axes, "mean latency, ms")
    canvas.legend(loc="outside lower center", ncols=3, fontsize=7, frameon=False)


FIGURES: dict[str, Callable[..., Figure]] = {"14b": figure_14b}

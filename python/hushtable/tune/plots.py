"""The trade-offs as figures: Figures 12 to 15 of Lam et al., "GPU-based Private Information
Retrieval for On-Device Machine Learning Inference", for one table and trace."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import ConfigError
from .front import Point, dominated, families_of
from .run import TuneResult

__all__ = ["Axis", "Figure", "Limits", "draw", "draw_figures", "require_matplotlib"]

#: Colours of Okabe and Ito, told apart by people who do not see all colours; each family also has
#: its own marker and line.
_STYLES = {
    "plain": ("#000000", "o", "-"),
    "hot": ("#E69F00", "s", "--"),
    "collocated": ("#56B4E9", "^", "-."),
    "hot+collocated": ("#009E73", "D", "-"),
    "hot-only": ("#CC79A7", "v", ":"),
    "hot-only+collocated": ("#882255", "<", ":"),
    "cuckoo": ("#0072B2", "P", "--"),
    "hot+cuckoo": ("#D55E00", "X", "-."),
    # One key an id over the whole table, which is no family of the search.
    "unbatched": ("#999999", "x", ":"),
}
_OTHER = ("#777777", "*", ":")

#: The paper's limits (§V-D), for figures whose limit is not among the budgets.
_COMM_KB = 300.0
_LATENCY_MS = 100.0
_DROP_SHOWN_MAX = 0.35


@dataclass(frozen=True, slots=True)
class Limits:
    """What each figure holds fixed.

    Attributes:
        comm_kb: of computation and throughput against quality.
        prf_calls: of communication against quality.
        loss: of communication against computation: the largest share of accesses dropped, or
            where quality was measured the worst quality.
        latency_ms: of throughput against quality.
    """

    comm_kb: float
    prf_calls: int
    loss: float
    latency_ms: float

    @classmethod
    def of(cls, result: TuneResult) -> Limits:
        """The budgets, and the paper's limits where there is none."""
        budgets = result.budgets
        loss = 0.02 if budgets.drop_max is None else budgets.drop_max
        if result.quality_clear is not None:
            clear = result.quality_clear
            sign = 1 if budgets.lower_is_better else -1
            within = clear + sign * 0.02 * abs(clear)  # the paper's 2 %
            loss = within if budgets.quality_limit is None else budgets.quality_limit
        return cls(
            comm_kb=budgets.comm_kb_max or _COMM_KB,
            prf_calls=result.facts["prf_calls_max"],
            loss=loss,
            latency_ms=budgets.latency_ms_max or _LATENCY_MS,
        )


@dataclass(frozen=True, slots=True)
class Axis:
    """What is drawn along an axis.

    Attributes:
        name: its label.
        of: the figure of a layout.
        is_log: whether powers of ten lie evenly.
        more_is_better: which end is the good one.
        is_share: whether it is a share of all, written as percents.
    """

    name: str
    of: Callable[[Point], float]
    is_log: bool = False
    more_is_better: bool = False
    is_share: bool = False


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure.

    Attributes:
        name: of its file, without a suffix.
        title: what stands above it.
        x, y: its axes.
        shows: which layouts it shows.
        clear: where to draw a line for the model in the clear; None for no line.
    """

    name: str
    title: str
    x: Axis
    y: Axis
    shows: Callable[[Point], bool]
    clear: float | None = None


def require_matplotlib() -> Any:
    """The drawing library.

    Raises:
        ConfigError: it is not installed.
    """
    try:
        return importlib.import_module("matplotlib")
    except ImportError as error:
        raise ConfigError(
            "plots need matplotlib: install it by `pip install 'hushtable[plot]'`, or leave them "
            "out with --no-plots"
        ) from error


def draw(result: TuneResult, folder: str | Path, limits: Limits | None = None) -> list[Path]:
    """Draws the four figures into ``folder``, each as .svg and .png; returns the files.

    Each family of layouts has a line: those of its layouts that no other of it beats in the two
    figures drawn.

    Raises:
        ConfigError: matplotlib is not installed.
    """
    limits = limits or Limits.of(result)
    # What drops most accesses is of no use, and would take up half of the figure.
    points = [p for p in result.points if p.drop <= _DROP_SHOWN_MAX] or result.points
    lines = {f: [p for p in points if p.family == f] for f in families_of(points)}
    return draw_figures(_figures(result, limits), lines, folder)


def draw_figures(
    figures: Iterable[Figure],
    lines: Mapping[str, Sequence[Point]],
    folder: str | Path,
    suffixes: Sequence[str] = (".svg", ".png"),
) -> list[Path]:
    """Draws ``figures`` into ``folder``, a file of each suffix; returns the files.

    Args:
        figures: what to draw.
        lines: layouts by the name of their line; of each, those are drawn that no other of the
            line beats in the two figures of the axes.
        folder: where to; made where it is missing.
        suffixes: ``.svg`` and ``.png``.

    Raises:
        ConfigError: matplotlib is not installed.
    """
    matplotlib = require_matplotlib()
    sheet_of = importlib.import_module("matplotlib.figure").Figure
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    # Text stays text, and the same result makes the same bytes.
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "hushtable"}):
        for figure in figures:
            canvas = sheet_of(figsize=(6.4, 4.4), layout="constrained")
            _draw_one(canvas.subplots(), figure, lines)
            for suffix in suffixes:
                path = folder / (figure.name + suffix)
                about = {"Date": None} if suffix == ".svg" else {"Software": None}
                canvas.savefig(path, dpi=160, metadata=about)
                written.append(path)
    return written


def _figures(result: TuneResult, limits: Limits) -> list[Figure]:
    lower = result.budgets.lower_is_better
    if result.quality_clear is None:
        quality = Axis("accesses dropped", lambda p: p.drop, is_share=True)
        text = f"at most {100 * limits.loss:.3g} % of accesses dropped"
    else:
        better = "lower" if lower else "higher"
        quality = Axis(
            f"model quality ({better} is better)",
            lambda p: p.quality or 0.0,
            more_is_better=not lower,
        )
        text = f"quality {'at most' if lower else 'at least'} {limits.loss:.5g}"

    def is_good(point: Point) -> bool:
        if result.quality_clear is None:
            return point.drop <= limits.loss
        if point.quality is None:
            return False
        return point.quality <= limits.loss if lower else point.quality >= limits.loss

    asks = result.quality_clear is not None

    def is_drawn(point: Point) -> bool:
        return point.quality is not None or not asks

    def within_comm(point: Point) -> bool:
        return point.comm_kb <= limits.comm_kb and is_drawn(point)

    work = Axis("PRF calls an inference, one server", lambda p: p.prf_calls, is_log=True)
    comm = Axis("KB an inference, both servers, both ways", lambda p: p.comm_kb, is_log=True)
    rate = Axis(
        "inferences/s a core", lambda p: p.inferences_per_s, is_log=True, more_is_better=True
    )
    at_comm = f"at most {limits.comm_kb:g} KB an inference"
    return [
        Figure(
            "computation-quality",
            f"Computation and quality\n{at_comm}",
            work,
            quality,
            within_comm,
            result.quality_clear,
        ),
        Figure(
            "communication-quality",
            f"Communication and quality\nat most {limits.prf_calls:,} PRF calls an inference",
            comm,
            quality,
            lambda p: p.prf_calls <= limits.prf_calls and is_drawn(p),
            result.quality_clear,
        ),
        Figure(
            "communication-computation",
            f"Communication and computation\n{text}",
            comm,
            work,
            is_good,
        ),
        Figure(
            "throughput-quality",
            f"Throughput and quality\n{at_comm}, {limits.latency_ms:g} ms",
            rate,
            quality,
            lambda p: within_comm(p) and p.latency_ms <= limits.latency_ms,
            result.quality_clear,
        ),
    ]


def _draw_one(axes: Any, figure: Figure, lines: Mapping[str, Sequence[Point]]) -> None:
    shown: list[Point] = []
    for name, points in lines.items():
        points = [point for point in points if figure.shows(point)]
        if not points:
            continue
        shown += points
        colour, marker, line = _STYLES.get(name, _OTHER)
        points = _line(points, figure)
        axes.plot(
            [figure.x.of(p) for p in points],
            [figure.y.of(p) for p in points],
            color=colour,
            marker=marker,
            linestyle=line,
            markersize=5,
            linewidth=1.5,
            label=name,
        )
    if not shown:
        axes.text(0.5, 0.5, "no layout within this limit", ha="center", transform=axes.transAxes)
    if figure.clear is not None:
        axes.axhline(figure.clear, color="#44AA99", linewidth=1, label="in the clear")
    for axis, what in ((axes.xaxis, figure.x), (axes.yaxis, figure.y)):
        axis.set_label_text(what.name)
        if shown and what.is_log:
            _log_scale(axis, [what.of(point) for point in shown])
        elif shown and what.is_share:
            _share_scale(axis, [what.of(point) for point in shown])
    axes.set_title(figure.title, fontsize=10)
    axes.grid(True, which="major", color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    if shown or figure.clear is not None:
        axes.legend(fontsize=8, frameon=False)


def _log_scale(axis: Any, values: Sequence[float]) -> None:
    """Evenly by powers of ten, with plain numbers at the ticks: the more, the shorter the range."""
    ticker = importlib.import_module("matplotlib.ticker")
    axis.axes.set(**{f"{axis.axis_name}scale": "log"})
    low, high = min(values) / 1.15, max(values) * 1.15
    steps: tuple[float, ...] = (1.0,)
    if high < 200 * low:
        steps = (1.0, 2.0, 5.0) if high > 6 * low else (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [step * 10.0**power for power in powers for step in steps]
    axis.set_major_locator(ticker.FixedLocator([tick for tick in ticks if low <= tick <= high]))
    axis.set_major_formatter(ticker.FuncFormatter(lambda value, _: _short_number(value)))
    axis.set_minor_locator(ticker.NullLocator())
    axis.axes.set(**{f"{axis.axis_name}lim": (low, high)})


def _short_number(value: float) -> str:
    for size, letter in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if value >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"


def _share_scale(axis: Any, shares: Sequence[float]) -> None:
    """Percents; where they span powers of ten, evenly by those, from zero."""
    ticker = importlib.import_module("matplotlib.ticker")
    if max(shares) > 0.05:
        # Below a tenth of a percent differences no longer matter to a model.
        axis.axes.set_yscale("symlog", linthresh=1e-3, linscale=0.5)
        ticks = [0.0, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0]
        axis.set_major_locator(ticker.FixedLocator(ticks))
        axis.set_minor_locator(ticker.NullLocator())
        axis.axes.set_ylim(-2e-4, max(shares) * 1.3)
    axis.set_major_formatter(ticker.FuncFormatter(lambda share, _: f"{100 * share:g} %"))


def _line(points: Sequence[Point], figure: Figure) -> list[Point]:
    """The points that no other beats in both figures, from left to right."""
    signs = [-1.0 if axis.more_is_better else 1.0 for axis in (figure.x, figure.y)]
    values = np.array([(figure.x.of(p), figure.y.of(p)) for p in points]) * signs
    lost = dominated(values)
    kept = [point for point, beaten in zip(points, lost, strict=True) if not beaten]
    return sorted(kept, key=figure.x.of)

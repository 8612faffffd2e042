"""Figures 7 to 9 of FEDORA (ASPLOS 2025), with hushtable beside it."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from hushtable.errors import ConfigError

from .points import MEAN, Point

__all__ = ["draw", "require_matplotlib"]

#: Colours of Okabe and Ito, told apart by people who do not see all colours: one a data set. What
#: is ours is hatched.
_COLOURS = ("#E69F00", "#56B4E9", "#F0E442", "#009E73", "#CC79A7", "#0072B2", "#D55E00", "#882255")
_GREYS = {"Path ORAM+": "#555555", "FEDORA": "#AAAAAA", "hushtable": "#AAAAAA"}
_SINGLE = ("#555555", "#E69F00", "#0072B2", "#56B4E9", "#009E73")
_HATCH = "////"


def require_matplotlib() -> Any:
    """The drawing library.

    Raises:
        ConfigError: it is not installed.
    """
    try:
        return importlib.import_module("matplotlib")
    except ImportError as error:
        raise ConfigError(
            "plots need matplotlib: install it by `pip install 'hushtable-lab[plot]'`, or leave "
            "out --plots"
        ) from error


def draw(points: Sequence[Point], folder: str | Path) -> list[Path]:
    """Draws ``lifetime`` (Figure 7), ``overhead`` (8) and ``cost`` (9) into ``folder``, each as
    .svg and .png; returns the files.

    Raises:
        ConfigError: matplotlib is not installed, or there is nothing to draw.
    """
    if not points:
        raise ConfigError("there are no points to draw")
    matplotlib = require_matplotlib()
    figure_of = importlib.import_module("matplotlib.figure").Figure
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    # Text stays text, and the same points make the same bytes.
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "hushtable"}):
        for name, fill in (("lifetime", _lifetime), ("overhead", _overhead), ("cost", _cost)):
            figure = figure_of(figsize=(13.0, 3.8), layout="constrained")
            fill(figure, points)
            for suffix in (".svg", ".png"):
                path = folder / (name + suffix)
                about = {"Date": None} if suffix == ".svg" else {"Software": None}
                figure.savefig(path, dpi=140, metadata=about)
                written.append(path)
    return written


def _lifetime(figure: Any, points: Sequence[Point]) -> None:
    axes = _panels(figure, points, lambda point: point.costs.life_months)
    for panel in axes:
        panel.set_yscale("log")
        for months, style in ((24, ":"), (60, "--")):
            panel.axhline(months, color="#0072B2", linewidth=0.8, linestyle=style)
    axes[0].set_ylabel("SSD's life, months\n(dotted 2, dashed 5 years)")


def _overhead(figure: Any, points: Sequence[Point]) -> None:
    axes = _panels(figure, points, lambda point: 100 * point.costs.overhead)
    axes[0].set_ylabel("overhead of a round, %")


def _cost(figure: Any, points: Sequence[Point]) -> None:
    """Against the same in DRAM: a bar under 1 is a saving."""
    shown = _without_datasets(points)
    labels = list(dict.fromkeys(point.label for point in shown))
    groups = list(dict.fromkeys((point.requests, point.table.name) for point in shown))
    panels = figure.subplots(1, 3)
    metrics = (("hardware cost", "dollars"), ("power", "watts"), ("energy a round", "joules"))
    for panel, (title, field) in zip(panels, metrics, strict=True):
        for index, label in enumerate(labels):
            ours = {(p.requests, p.table.name): p for p in shown if p.label == label}
            values = [
                getattr(ours[group].costs, field) / getattr(ours[group].in_dram, field)
                for group in groups
            ]
            _bars(panel, index, len(labels), values, label, _SINGLE[index % len(_SINGLE)], "")
        panel.axhline(1, color="black", linewidth=0.8)
        panel.set_yscale("log")
        panel.set_title(title, fontsize=10)
        _groups(panel, [f"{_short(requests)}\n{name}" for requests, name in groups], 6.5)
    panels[0].set_ylabel("with an SSD over all in DRAM")
    _legend(figure, panels[0])


def _panels(figure: Any, points: Sequence[Point], value: Callable[[Point], float]) -> Sequence[Any]:
    """A panel for each K; in it groups of tables, a bar for each design and data set."""
    counts = list(dict.fromkeys(point.requests for point in points))
    panels = figure.subplots(1, len(counts), squeeze=False)[0]
    bars = list(dict.fromkeys((point.label, point.dataset) for point in points))
    sets = [name for name in dict.fromkeys(point.dataset for point in points) if name != "all"]
    for panel, requests in zip(panels, counts, strict=True):
        here = [point for point in points if point.requests == requests]
        tables = list(dict.fromkeys(point.table.name for point in here))
        for index, (label, dataset) in enumerate(bars):
            bar = [p for p in here if (p.label, p.dataset) == (label, dataset)]
            values = {point.table.name: value(point) for point in bar}
            design = bar[0].design
            colour = (
                _GREYS[design.name]
                if dataset == "all"
                else _COLOURS[sets.index(dataset) % len(_COLOURS)]
            )
            name = label if dataset == "all" else f"{label}, {dataset}"
            hatch = _HATCH if design.is_ours else ""
            _bars(panel, index, len(bars), [values[table] for table in tables], name, colour, hatch)
        panel.set_title(f"{requests:,} updates a round", fontsize=10)
        _groups(panel, tables)
    _legend(figure, panels[0])
    return list(panels)


def _without_datasets(points: Sequence[Point]) -> list[Point]:
    return [point for point in points if point.dataset in ("all", MEAN)]


def _bars(
    panel: Any, index: int, count: int, values: Sequence[float], label: str, colour: str, hatch: str
) -> None:
    width = 0.86 / count
    places = [group - 0.43 + (index + 0.5) * width for group in range(len(values))]
    panel.bar(
        places,
        values,
        width,
        label=label,
        color=colour,
        hatch=hatch,
        edgecolor="white" if hatch else colour,
        linewidth=0.3,
    )


def _groups(panel: Any, names: Sequence[str], size: float = 8) -> None:
    panel.set_xticks(range(len(names)), names, fontsize=size)
    panel.grid(True, axis="y", which="major", color="#dddddd", linewidth=0.6)
    panel.set_axisbelow(True)


def _legend(figure: Any, panel: Any) -> None:
    handles, labels = panel.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right upper", fontsize=7, frameon=False)


def _short(requests: int) -> str:
    for size, letter in ((1_000_000, "M"), (1_000, "K")):
        if requests >= size:
            return f"{requests / size:g}{letter}"
    return str(requests)

"""Bars and lines that several figures share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..figure import COLOURS, GREY

__all__ = ["STEP_COLOURS", "finish", "grouped", "lines", "stacked"]

#: One colour a step in all figures.
STEP_COLOURS: dict[str, str] = {
    "ExpandQuery": COLOURS[5],
    "RowSel": COLOURS[0],
    "ColTor": COLOURS[1],
    "transposition": COLOURS[3],
    "communication": COLOURS[4],
    "gather": COLOURS[7],
}
_SERIES_COLOURS = {
    "CIP-PIR, as printed": COLOURS[3],
    "DPF-PIR, as printed": COLOURS[2],
    "INSPIRE, as printed": COLOURS[4],
    "CPU, as printed": COLOURS[1],
}


def stacked(
    axes: Any,
    labels: Sequence[str],
    parts: Mapping[str, Sequence[float]],
    what: str,
    *,
    colours: Mapping[str, str] = STEP_COLOURS,
    width: float = 0.62,
) -> None:
    """Bars of parts on one another; parts that are 0 everywhere are left out.

    Args:
        axes: of matplotlib.
        labels: one a bar.
        parts: by name, from the bottom up, one value a bar.
        what: the axis' label, with its unit.
        colours: by a part's name; those that are not in it get one in turn.
        width: of a bar.
    """
    below = [0.0] * len(labels)
    for index, (name, values) in enumerate(parts.items()):
        if not any(values):
            continue
        colour = colours.get(name, COLOURS[index % len(COLOURS)])
        axes.bar(range(len(labels)), values, width, bottom=below, label=name, color=colour)
        below = [low + value for low, value in zip(below, values, strict=True)]
    axes.set_xticks(range(len(labels)), labels)
    axes.set_ylim(0, 1.08 * max(below, default=1))
    finish(axes, what)


def grouped(
    axes: Any,
    groups: Sequence[str],
    series: Mapping[str, Sequence[float | None]],
    what: str,
    *,
    form: str = "{:.3g}",
    log: bool = False,
) -> None:
    """Bars beside one another, each with its value above it; None leaves a bar out.

    Args:
        axes: of matplotlib.
        groups: labels below the groups.
        series: by name, one value a group.
        what: the axis' label, with its unit.
        form: of the values above the bars.
        log: a logarithmic axis.
    """
    width = 0.84 / len(series)
    present = [v for values in series.values() for v in values if v is not None]
    for index, (name, values) in enumerate(series.items()):
        places = [group - 0.42 + (index + 0.5) * width for group in range(len(groups))]
        shown = [
            (place, value) for place, value in zip(places, values, strict=True) if value is not None
        ]
        own = GREY if name.startswith("paper") else COLOURS[index % len(COLOURS)]
        colour = _SERIES_COLOURS.get(name, own)
        axes.bar([p for p, _ in shown], [v for _, v in shown], width, label=name, color=colour)
        for place, value in shown:
            axes.annotate(
                form.format(value),
                (place, value),
                xytext=(0, 1.5),
                textcoords="offset points",
                ha="center",
                va="bottom",
                fontsize=6.5,
            )
    axes.set_xticks(range(len(groups)), groups)
    if log:
        axes.set_yscale("log")
        axes.set_ylim(min(present) / 3, max(present) * 4)
    else:
        axes.set_ylim(0, 1.14 * max(present))
    finish(axes, what)


def lines(
    axes: Any,
    series: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    across: str,
    what: str,
    *,
    log: str = "",
) -> None:
    """A line a series, through its points.

    Args:
        axes: of matplotlib.
        series: by name: places across, and values.
        across: label of the horizontal axis, with its unit.
        what: of the vertical one.
        log: which axes are logarithmic: "", "x", "y" or "xy".
    """
    for index, (name, (places, values)) in enumerate(series.items()):
        colour = STEP_COLOURS.get(name, COLOURS[index % len(COLOURS)])
        axes.plot(places, values, marker="o", markersize=3, linewidth=1.4, label=name, color=colour)
    if "x" in log:
        axes.set_xscale("log")
    if "y" in log:
        axes.set_yscale("log")
    axes.set_xlabel(across, fontsize=9)
    finish(axes, what)


def finish(axes: Any, what: str) -> None:
    """The look that all have: a label, a light grid behind, small type."""
    axes.set_ylabel(what, fontsize=9)
    axes.tick_params(labelsize=8)
    axes.grid(True, axis="y", which="major", color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)

"""A study as a table to print, and as a plot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

_HEAD = f"{'':63} {'AUC':>6} {'±':>6} {'of the gain':>11} {'k/K':>6} {'dummy':>7} {'lost':>6}"


def lines(document: dict[str, Any]) -> list[str]:
    """One line a setting; dummies and losses are shares of the distinct rows asked for."""
    found = [_HEAD]
    for entry in document["settings"]:
        line = (
            f"{entry['name']:63} {entry['auc_mean']:6.4f} {entry['auc_std']:6.4f}"
            f" {entry['gain_kept_mean']:11.1%}"
        )
        if accesses := entry.get("accesses"):
            line += f" {1 - accesses['reduced']:6.3f} {accesses['dummy']:7.2%}"
            line += f" {accesses['lost']:6.2%}"
        found.append(line)
    return found


def draw(document: dict[str, Any], path: Path) -> None:
    """The AUC of each setting, a dot for each seed.

    Raises:
        ImportError: matplotlib is not installed.
    """
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    matplotlib.rcParams |= {"svg.hashsalt": "hushtable", "svg.fonttype": "none"}
    entries = document["settings"][::-1]
    figure, axes = pyplot.subplots(figsize=(7.2, 0.6 + 0.42 * len(entries)), layout="constrained")
    for place, entry in enumerate(entries):
        aucs = [outcome["auc"] for outcome in entry["runs"]]
        axes.barh(place, entry["auc_mean"], height=0.62, color="#9ecae1", zorder=1)
        axes.plot(aucs, [place] * len(aucs), "o", color="#08519c", markersize=4, zorder=2)
    lowest = min(outcome["auc"] for entry in entries for outcome in entry["runs"])
    left = int(lowest * 50) / 50
    axes.set_xlim(left=left)
    axes.set_yticks(range(len(entries)), [entry["name"] for entry in entries])
    axes.set_xlabel(f"AUC on test: mean and each seed; from {left:g}")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)

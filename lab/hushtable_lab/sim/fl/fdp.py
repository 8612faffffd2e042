"""Figure 3 of FEDORA, its Table 1, and what each mechanism loses as epsilon changes."""

from __future__ import annotations

import importlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hushtable._fdp import Mechanism

from .datasets import CHUNK, DATASETS, round_of
from .plots import require_matplotlib
from .privacy import Accesses, accesses, probabilities

__all__ = ["CHUNKED_REQUESTS", "FIGURE_3", "Sample", "chunked", "curve", "draw_fdp"]

#: Of Figure 3: requests and different rows.
SAMPLE_REQUESTS = 100
SAMPLE_UNION = 30
#: K of rounds that the paper's union takes in several chunks.
CHUNKED_REQUESTS = (100_000, 1_000_000)


@dataclass(frozen=True, slots=True)
class Sample:
    """A panel of Figure 3."""

    panel: str
    mechanism: str
    epsilon: float


#: Section 3.3 names each panel's Y; the figure's epsilons are read off their shapes, as the text
#: gives none: (a) is almost exact, (e) nearly flat, and (b) to (d) lie between.
FIGURE_3 = (
    Sample("a", "eq3", 3.0),
    Sample("b", "eq3:y=square,low=25,high=100", 0.3),
    Sample("c", "eq3", 0.3),
    Sample("d", "eq3:y=power,exponent=5", 0.3),
    Sample("e", "eq3", 0.1),
    Sample("f", "eq3:y=delta", 0.1),
)
#: hushtable's own beside them, at the epsilons of (a), (c) and (e).
OWN = tuple(
    Sample(mechanism, mechanism, epsilon)
    for mechanism in ("shifted", "geometric")
    for epsilon in (3.0, 0.3, 0.1)
)


def curve(
    mechanism: str, requests: int, k_union: int, epsilons: Sequence[float]
) -> list[tuple[float, Accesses]]:
    """What a mechanism reads and loses at each epsilon of one value."""
    return [(each, accesses(mechanism, requests, k_union, each)) for each in epsilons]


def chunked(mechanism: str, epsilon: float) -> list[tuple[str, int, Accesses, Accesses]]:
    """For each data set and K of :data:`CHUNKED_REQUESTS`: its name, K, what a round reads if it
    draws once, and if it draws for every 16K requests.

    The share of different rows is the data set's in both, as the paper's synthetic rounds have it;
    rows that two chunks ask for are read twice on top of that, which is not in here.
    """
    return [
        (
            dataset.name,
            requests,
            round_of(dataset, mechanism, requests, epsilon),
            round_of(dataset, mechanism, requests, epsilon, chunk=CHUNK),
        )
        for dataset in DATASETS
        for requests in CHUNKED_REQUESTS
    ]


def draw_fdp(
    requests: int, unions: Sequence[int], values: int, mechanisms: Sequence[str], folder: Path
) -> list[Path]:
    """Draws ``fdp-figure3`` (the six panels, and six of hushtable's) and ``fdp-curves`` (dummies
    and lost rows against epsilon) into ``folder``, each as .svg and .png; returns the files.

    Raises:
        ConfigError: matplotlib is not installed.
    """
    matplotlib = require_matplotlib()
    figure_of = importlib.import_module("matplotlib.figure").Figure
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "hushtable"}):
        samples = figure_of(figsize=(11.0, 8.0), layout="constrained")
        _panels(samples)
        curves = figure_of(figsize=(11.0, 3.6 * len(unions)), layout="constrained")
        _curves(curves, requests, unions, values, mechanisms)
        for name, figure in (("fdp-figure3", samples), ("fdp-curves", curves)):
            for suffix in (".svg", ".png"):
                path = folder / (name + suffix)
                about = {"Date": None} if suffix == ".svg" else {"Software": None}
                figure.savefig(path, dpi=120, metadata=about)
                written.append(path)
    return written


def _panels(figure: Any) -> None:
    """Blue: exactly the union; orange: fewer, rows are lost; green: more, dummies."""
    panels = figure.subplots(4, 3, sharex=True).flatten()
    for panel, sample in zip(panels, (*FIGURE_3, *OWN), strict=True):
        chances = probabilities(sample.mechanism, SAMPLE_REQUESTS, SAMPLE_UNION, sample.epsilon)
        mean = accesses(sample.mechanism, SAMPLE_REQUESTS, SAMPLE_UNION, sample.epsilon)
        outcomes = np.arange(1, SAMPLE_REQUESTS + 1)
        edges = np.arange(SAMPLE_REQUESTS + 1) + 0.5
        for colour, shown in (
            ("#E69F00", outcomes < SAMPLE_UNION),
            ("#0072B2", outcomes == SAMPLE_UNION),
            ("#009E73", outcomes > SAMPLE_UNION),
        ):
            panel.stairs(np.where(shown, chances, 0), edges, fill=True, color=colour)
        name = f"({sample.panel}) {sample.mechanism}" if len(sample.panel) == 1 else sample.panel
        panel.set_title(
            f"{name}, ε = {sample.epsilon:g}\n{mean.dummy_percent:.3g} % dummies,"
            f" {mean.lost_percent:.3g} % lost",
            fontsize=8,
        )
        panel.tick_params(labelsize=7)
    figure.supxlabel(f"rows read, {SAMPLE_UNION} different ones of {SAMPLE_REQUESTS} requests")
    figure.supylabel("probability")


def _curves(
    figure: Any, requests: int, unions: Sequence[int], values: int, mechanisms: Sequence[str]
) -> None:
    epsilons = [10 ** (step / 8) for step in range(-12, 9)]
    grid = figure.subplots(len(unions), 2, squeeze=False)
    for row, union in zip(grid, unions, strict=True):
        for name in mechanisms:
            # Weights whose outcomes are summed need no finer curve than the others.
            found = [accesses(name, requests, union, each / values) for each in epsilons]
            row[0].plot(epsilons, [each.lost_percent for each in found], label=name)
            row[1].plot(epsilons, [each.dummy_percent for each in found], label=name)
        for panel, title in zip(row, ("lost", "dummies"), strict=True):
            panel.set_xscale("log")
            panel.set_yscale("symlog", linthresh=1)
            panel.set_ylim(bottom=0)
            panel.set_title(
                f"{title}, % of {union:,} rows ({requests:,} requests, {values} values hidden)",
                fontsize=9,
            )
            panel.set_xlabel("ε", fontsize=8)
            panel.grid(True, color="#dddddd", linewidth=0.6)
    handles, labels = grid[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right upper", fontsize=7, frameon=False)


def worst_loss_share(mechanism: str, requests: int, epsilon: float) -> float:
    """The largest mean loss, as a share of the union, over all unions of ``requests``; on a grid
    of 400 unions, and all of the first hundred."""
    unions = {*range(1, min(requests, 100) + 1)}
    unions |= {
        max(1, min(requests, round(math.exp(step / 400 * math.log(requests)))))
        for step in range(401)
    }
    chosen = Mechanism.parse(mechanism)
    shares = [chosen.mean(requests, union, epsilon)[1] / union for union in unions]
    return float(max(shares))

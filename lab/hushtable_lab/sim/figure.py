"""A figure or table of a paper, made again: a picture, its points, and ours beside the paper's."""

from __future__ import annotations

import csv
import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .published import Comparison, write_csv

__all__ = ["BLUE", "COLOURS", "GREY", "Figure", "has_matplotlib"]

#: Colours of Okabe and Ito, told apart by people who do not see all colours.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#E69F00", "#CC79A7", "#56B4E9", "#F0E442", "#882255")
BLUE, GREY = COLOURS[0], "#999999"


@dataclass(frozen=True, slots=True)
class Figure:
    """What ``--figure`` writes.

    Attributes:
        number: as the paper numbers it: "7", "13a", "table-3".
        title: what it shows.
        columns: of the points' CSV.
        rows: the points that are drawn.
        comparisons: ours beside the paper's.
        draw: puts the points onto an empty matplotlib figure; None for a table of numbers.
        inches: width and height.
        notes: what a reader has to know, such as why a number differs.
    """

    number: str
    title: str
    columns: tuple[str, ...]
    rows: Sequence[Sequence[Any]]
    comparisons: tuple[Comparison, ...] = ()
    draw: Callable[[Any], None] | None = None
    inches: tuple[float, float] = (7.2, 4.2)
    notes: tuple[str, ...] = field(default=())

    def write(self, folder: str | Path, stem: str) -> list[Path]:
        """Writes ``STEM-NUMBER.csv`` (points), ``STEM-NUMBER-paper.csv`` (comparisons) and
        ``STEM-NUMBER.png`` into ``folder``, which is made if it is not there.

        Returns:
            The files. The picture is left out where matplotlib is not installed.
        """
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        base = folder / f"{stem}-{self.number}"
        written = [base.with_name(base.name + ".csv")]
        with written[0].open("w", newline="", encoding="utf-8") as file:
            out = csv.writer(file)
            out.writerow(self.columns)
            out.writerows(self.rows)
        if self.comparisons:
            written.append(base.with_name(base.name + "-paper.csv"))
            write_csv(written[-1], self.comparisons)
        if self.draw is not None and has_matplotlib():
            canvas = importlib.import_module("matplotlib.figure").Figure(
                figsize=self.inches, layout="constrained"
            )
            self.draw(canvas)
            written.append(base.with_name(base.name + ".png"))
            canvas.savefig(written[-1], dpi=140, metadata={"Software": None})
        return written


def has_matplotlib() -> bool:
    """Whether pictures can be drawn."""
    try:
        importlib.import_module("matplotlib.figure")
    except ImportError:
        return False
    return True

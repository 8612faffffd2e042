"""What a paper has printed, and how far a simulation is from it."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..measure.records import bench_record

__all__ = ["Comparison", "Published", "check_record", "comparison_rows", "worst", "write_csv"]


@dataclass(frozen=True, slots=True)
class Published:
    """One number that a paper, or its artifact, has.

    Attributes:
        name: what it is, for people: "QPS, 2 GB".
        value: as printed.
        unit: of the value; empty for a ratio.
        source: where it is printed: "Table III".
        tolerance: relative error that still counts as repeated.
        is_fitted: it set a value of the model, so that it says nothing of the model.
        note: what to know about it, such as where the paper contradicts itself.
    """

    name: str
    value: float
    unit: str
    source: str
    tolerance: float
    is_fitted: bool = False
    note: str = ""


@dataclass(frozen=True, slots=True)
class Comparison:
    """A published number beside ours."""

    published: Published
    ours: float

    @property
    def error(self) -> float:
        """Relative, and signed: above zero where ours is more."""
        return self.ours / self.published.value - 1

    @property
    def is_within(self) -> bool:
        """Whether the error is within the tolerance."""
        return abs(self.error) <= self.published.tolerance

    def as_record(self) -> dict[str, Any]:
        """For JSON and CSV."""
        return {
            "source": self.published.source,
            "name": self.published.name,
            "unit": self.published.unit,
            "ours": self.ours,
            "paper": self.published.value,
            "error": self.error,
            "tolerance": self.published.tolerance,
            "is_within": self.is_within,
            "is_fitted": self.published.is_fitted,
            "note": self.published.note,
        }


def worst(comparisons: Iterable[Comparison]) -> Comparison | None:
    """The one furthest off, of those that fitted nothing; None where there is none."""
    held_out = (one for one in comparisons if not one.published.is_fitted)
    return max(held_out, key=lambda one: abs(one.error), default=None)


def comparison_rows(comparisons: Iterable[Comparison]) -> list[list[str]]:
    """Cells of a table: where, what, ours, the paper's, the difference, the tolerance."""
    return [
        [
            one.published.source,
            one.published.name + (f", {one.published.unit}" if one.published.unit else ""),
            f"{one.ours:,.5g}",
            f"{one.published.value:,.5g}",
            f"{one.error:+.2%}",
            "fitted" if one.published.is_fitted else f"{one.published.tolerance:.3g}",
            "" if one.is_within else "off",
        ]
        for one in comparisons
    ]


def write_csv(path: Path, comparisons: Sequence[Comparison]) -> None:
    """One line a comparison."""
    with path.open("w", newline="", encoding="utf-8") as file:
        out = csv.DictWriter(file, list(comparisons[0].as_record()))
        out.writeheader()
        out.writerows(one.as_record() for one in comparisons)


def check_record(
    bench: str, params: dict[str, Any], comparisons: Sequence[Comparison]
) -> dict[str, Any]:
    """What ``--check --json`` prints: the worst relative error of what was not fitted."""
    found = worst(comparisons)
    return bench_record(
        bench,
        params,
        0.0 if found is None else abs(found.error),
        "relative error",
        None,
        None,
        1,
        "model",
        worst=None if found is None else f"{found.published.source}: {found.published.name}",
        compared=sum(not one.published.is_fitted for one in comparisons),
        fitted=sum(one.published.is_fitted for one in comparisons),
        off=sum(not one.is_within for one in comparisons if not one.published.is_fitted),
        comparisons=[one.as_record() for one in comparisons],
    )

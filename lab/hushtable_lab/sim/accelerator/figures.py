"""Every table and figure of IVE that can be made again, by its number."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from hushtable.errors import ConfigError

from ..figure import Figure
from . import (
    figures_counts,
    figures_design,
    figures_load,
    figures_scaling,
    figures_schedule,
    figures_tables,
)

__all__ = ["FIGURES", "chosen", "figure"]

_MADE: dict[str, Callable[..., Figure]] = (
    figures_tables.FIGURES
    | figures_counts.FIGURES
    | figures_schedule.FIGURES
    | figures_scaling.FIGURES
    | figures_design.FIGURES
    | figures_load.FIGURES
)

#: In the paper's order.
FIGURES: dict[str, Callable[..., Figure]] = {
    number: _MADE[number]
    for number in (
        "table-2",
        "table-3",
        "table-4",
        "4a",
        "4b",
        "6",
        "7d",
        "8a",
        "8b",
        "12",
        "13a",
        "13b",
        "13c",
        "13d",
        "13e",
        "14a",
        "14b",
    )
}


def figure(number: str, **knobs: Any) -> Figure:
    """A figure or table of the paper.

    Args:
        number: as in `FIGURES`.
        knobs: of that figure; 14b takes runs, queries and seed.

    Raises:
        ConfigError: there is none of this number.
    """
    (known,) = chosen([number])
    return FIGURES[known](**knobs)


def chosen(numbers: Iterable[str]) -> list[str]:
    """The numbers, each once, with "all", "13" and the like spelled out.

    Raises:
        ConfigError: there is no figure of one of the numbers.
    """
    found: list[str] = []
    for number in numbers:
        name = number.strip().lower().replace(" ", "-")
        parts = [known for known in FIGURES if known == name or known[:-1] == name]
        if name == "all":
            parts = list(FIGURES)
        if not parts:
            raise ConfigError(
                f"there is no figure {number!r}: take one of {', '.join(FIGURES)}, or all"
            )
        found += parts
    return list(dict.fromkeys(found))

"""Every table and figure of Garimella et al. that is made again, by its number."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from hushtable.errors import ConfigError

from ..figure import Figure
from . import deterministic, stochastic

__all__ = ["figure", "figures", "numbers"]


def figures() -> dict[str, Callable[..., Figure]]:
    """What makes each, in the paper's order."""
    both = deterministic.FIGURES | stochastic.FIGURES
    return {number: both[number] for number in sorted(both, key=_order)}


def _order(number: str) -> tuple[int, str]:
    found = re.match(r"[0-9]+", number)
    if found is None:
        # Tables before figures, what is in the text alone after them.
        return (0 if number.startswith("table") else 1_000, number)
    return int(found[0]), number


def numbers(asked: list[str]) -> list[str]:
    """Numbers of figures as they were asked for, without doubles; "all" is every one.

    Raises:
        ConfigError: there is no such figure.
    """
    known = list(figures())
    found: list[str] = []
    for one in asked:
        name = one.strip().lower().replace(" ", "-")
        if name == "all":
            found += known
        elif name in known:
            found.append(name)
        elif part := [each for each in known if re.fullmatch(re.escape(name) + "[a-z]", each)]:
            found += part
        else:
            raise ConfigError(
                f"there is no figure {one!r}: give {', '.join(known)} or all (Figures 1, 2 and 6 "
                "are drawings without numbers)"
            )
    return list(dict.fromkeys(found))


def figure(number: str, **knobs: Any) -> Figure:
    """Makes one.

    Args:
        number: as :func:`numbers` has it.
        knobs: runs, seed, jobs, progress of those that are simulated; None is the default.

    Raises:
        ConfigError: there is no such figure, or simpy is not installed.
    """
    found = numbers([number])
    made = figures()[found[0]]
    return made(**{name: value for name, value in knobs.items() if value is not None})

"""Every published number of private inference beside ours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..figure import Figure
from ..published import check_record
from .figures import figure, figures

__all__ = ["check", "record"]


def check(*, say: Callable[[str], None] = lambda _line: None, **knobs: Any) -> list[Figure]:
    """Makes every table and figure.

    Args:
        say: is told what is made next.
        knobs: of :func:`figure`.
    """
    made = []
    for number in figures():
        say(f"figure {number}")
        made.append(figure(number, **knobs))
    return made


def record(made: list[Figure], params: dict[str, Any]) -> dict[str, Any]:
    """What ``--check --json`` prints."""
    comparisons = [one for each in made for one in each.comparisons]
    found = check_record("sim inference check", params, comparisons)
    found["detail"]["figures"] = [each.number for each in made]
    return found

"""Every printed number of IVE beside ours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..published import Comparison, check_record
from .figures import FIGURES, figure

__all__ = ["compare_all", "record"]


def compare_all(
    *, jobs: int = 0, progress: Callable[[int, int], None] | None = None, **knobs: Any
) -> list[Comparison]:
    """The comparisons of all figures, each once, in the paper's order.

    Args:
        jobs: processes that simulate; 0: one a core.
        progress: told how many figures are done, of how many.
        knobs: of Figure 14b: runs, queries, seed.
    """
    found: dict[tuple[str, str], Comparison] = {}
    for done, number in enumerate(FIGURES, 1):
        made = figure(number, **(knobs if number == "14b" else {}))
        for one in made.comparisons:
            found.setdefault((one.published.source, one.published.name), one)
        if progress is not None:
            progress(done, len(FIGURES))
    return list(found.values())


def record(comparisons: list[Comparison]) -> dict[str, Any]:
    """What ``hushtable sim accelerator --check --json`` prints."""
    return check_record("sim accelerator check", {"paper": "IVE"}, comparisons)

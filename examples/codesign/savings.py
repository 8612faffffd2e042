"""What co-design saves: the paper's ratios (Lam et al., §V-D) at one quality."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hushtable.tune.front import Point

from .compare import (
    COMM_KB_MAX,
    PAPER_TOLERANCE,
    PLAIN,
    TOLERANCE,
    UNBATCHED,
    Choice,
    Comparison,
    calls_limits,
    comm_kb,
    engine_ms,
    prf_calls,
    server_ms,
    within_limits,
)

#: What the paper's co-design is made of.
DESIGNED = ("hot", "collocated", "hot+collocated", "hot-only", "hot-only+collocated")
#: Bins by which nothing is lost: not in the paper.
LOSSLESS = ("cuckoo", "hot+cuckoo")


@dataclass(frozen=True)
class Saving:
    """The least of one cost within one limit, by kind of layout.

    Attributes:
        name: of cost and limit, for those who look it up.
        figure: of the paper.
        what: the cost.
        limit: what was fixed besides quality.
        tolerance: how much worse than in the clear the model may get.
        paper: the ratio in the paper's text, "up to" its second number; None where it has none.
        chosen: the best layout by what it is made of, None where none keeps quality within the
            limit: ``unbatched``, ``plain``, ``hot``, ``collocated``, ``both``, ``designed`` (the
            best of the paper's co-designs) and ``lossless``.
    """

    name: str
    figure: str
    what: str
    limit: str
    tolerance: float
    paper: tuple[float, float] | None
    cost: Callable[[Point], float]
    chosen: dict[str, Choice | None]

    def ratio(self, over: str, under: str = "designed") -> float | None:
        """How many times the cost of ``over`` is that of ``under``; None where one is missing."""
        first, second = self.chosen[over], self.chosen[under]
        if first is None or second is None:
            return None
        return self.cost(first.point) / self.cost(second.point)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "name": self.name,
            "figure": self.figure,
            "what": self.what,
            "limit": self.limit,
            "tolerance": self.tolerance,
            "paper": self.paper,
            "ratio": self.ratio(PLAIN),
            "ratio_unbatched": self.ratio(UNBATCHED),
            "ratio_lossless": self.ratio(PLAIN, "lossless"),
            "ratio_hot": self.ratio(PLAIN, "hot"),
            "ratio_collocated": self.ratio(PLAIN, "collocated"),
            "ratio_both": self.ratio(PLAIN, "both"),
            "chosen": {
                name: None if choice is None else _brief(choice, self.cost)
                for name, choice in self.chosen.items()
            },
        }


def _brief(choice: Choice, cost: Callable[[Point], float]) -> dict[str, Any]:
    """What a ratio is made of."""
    point = choice.point
    return {
        "cost": cost(point),
        "layout": point.spec.describe(),
        "comm_kb": point.comm_kb,
        "prf_calls": point.prf_calls,
        "prf_blocks": point.costs["prf_blocks"],
        "engine_us": engine_ms(point) * 1e3,
        "latency_ms": point.latency_ms,
        "quality": point.quality,
        "test_quality": choice.test_quality,
        "test_drop": choice.test_drop,
    }


def entry(choice: Choice) -> dict[str, Any]:
    """A choice for JSON."""
    return {
        "layout": choice.point.to_dict(),
        "test_quality": choice.test_quality,
        "test_drop": choice.test_drop,
    }


def savings(comparison: Comparison) -> list[Saving]:
    """The paper's comparisons at both tolerances: computation at a communication limit, the other
    way round, and throughput."""
    groups = {
        UNBATCHED: (UNBATCHED,),
        PLAIN: (PLAIN,),
        "hot": ("hot",),
        "collocated": ("collocated",),
        "both": ("hot+collocated",),
        "designed": DESIGNED,
        "lossless": LOSSLESS,
    }

    def ask(
        name: str,
        figure: str,
        what: str,
        cost: Callable[[Point], float],
        limit: str,
        within: Callable[[Point], bool],
        paper: tuple[float, float] | None,
        tolerance: float,
    ) -> Saving:
        chosen: dict[str, Choice | None] = {}
        for group, kinds in groups.items():
            best = comparison.best(cost, kinds, within, tolerance=tolerance)
            chosen[group] = comparison.choice(best[0]) if best else None
        return Saving(name, figure, what, limit, tolerance, paper, cost, chosen)

    def within_comm(point: Point) -> bool:
        return point.comm_kb <= COMM_KB_MAX

    kb = f"{COMM_KB_MAX:.0f} KB"
    rows = comparison.table.info.rows
    found = []
    for tolerance in (TOLERANCE, PAPER_TOLERANCE):
        found += [
            ask(
                "calls", "Figure 12", "PRF calls", prf_calls, kb, within_comm, (2.0, 3.0), tolerance
            ),
            ask(
                "engine",
                "Figure 12",
                "engine time",
                engine_ms,
                kb,
                within_comm,
                (2.0, 3.0),
                tolerance,
            ),
        ]
        for limit in calls_limits(comparison.app.name, rows):

            def within_calls(point: Point, limit: Any = limit) -> bool:
                return bool(limit.cost(point) <= limit.calls)

            paper = (2.0, 4.0) if limit.name != "blocks" else None
            found.append(
                ask(
                    f"communication-{limit.name}",
                    "Figure 13",
                    "communication",
                    comm_kb,
                    limit.text,
                    within_calls,
                    paper,
                    tolerance,
                )
            )
        found.append(
            ask(
                "server",
                "Figure 15",
                "a server's time",
                server_ms,
                f"{kb} and 100 ms",
                within_limits,
                (2.5, 4.0),
                tolerance,
            )
        )
    return found

"""Measured layouts, their Pareto front, and the choice among them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import ConfigError, Error
from .spec import FAMILIES, LayoutSpec

__all__ = ["BudgetError", "Budgets", "Point", "choose", "families_of", "pareto"]


@dataclass(frozen=True, slots=True)
class Point:
    """A layout, what it costs and what it serves.

    Attributes:
        spec: the layout.
        costs: the figures of ``Layout.costs()``; bytes and keys are of one inference.
        latency_ms: predicted time of one server for one inference alone, on one thread: engine
            and messages.
        batch_ms: predicted time of one server's engine for ``batch`` inferences at once, on one
            thread.
        batch: inferences of such a pass.
        drop: share of the accesses that were not served.
        accesses: accesses that ``drop`` was measured on.
        quality: what the caller's measure says of it; None where it was not asked.
        wire_ms: predicted time of one server for the messages of one inference.
    """

    spec: LayoutSpec
    costs: dict[str, int]
    latency_ms: float
    batch_ms: float
    batch: int
    drop: float
    accesses: int
    quality: float | None = None
    wire_ms: float = 0.0

    @property
    def family(self) -> str:
        """What the layout is made of."""
        return self.spec.family

    @property
    def comm_kb(self) -> float:
        """Kilobytes (1,000 bytes) that both servers receive and send for one inference."""
        return self.costs["comm_bytes"] / 1e3

    @property
    def prf_calls(self) -> int:
        """The paper's count of computation: two for each row that a key expands over."""
        return self.costs["prf_calls"]

    @property
    def server_ms(self) -> float:
        """Predicted time of one core of one server for one of many inferences: its share of a pass
        of ``batch``, and its messages."""
        return self.batch_ms / self.batch + self.wire_ms

    @property
    def inferences_per_s(self) -> float:
        """Inferences a second of one core of each server."""
        return 1e3 / self.server_ms

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "family": self.family,
            "spec": self.spec.to_dict(),
            "comm_kb": self.comm_kb,
            "inferences_per_s_per_core": self.inferences_per_s,
            "latency_ms": self.latency_ms,
            "batch": self.batch,
            "batch_ms": self.batch_ms,
            "wire_ms": self.wire_ms,
            "drop": self.drop,
            "accesses": self.accesses,
            "quality": self.quality,
            "costs": dict(self.costs),
        }


@dataclass(frozen=True, slots=True)
class Budgets:
    """What a layout may cost at most, and must serve at least; None where there is no limit.

    Attributes:
        comm_kb_max: kilobytes (1,000 bytes) to and from both servers for one inference.
        latency_ms_max: predicted time of one server for one inference alone, on one thread.
        drop_max: share of the accesses that are not served.
        quality_limit: the worst quality allowed, of the caller's measure.
        lower_is_better: whether a lower quality figure is the better one, as of perplexity.
    """

    comm_kb_max: float | None = None
    latency_ms_max: float | None = None
    drop_max: float | None = None
    quality_limit: float | None = None
    lower_is_better: bool = False

    def __post_init__(self) -> None:
        limits = {
            "comm_kb_max": self.comm_kb_max,
            "latency_ms_max": self.latency_ms_max,
        }
        for name, limit in limits.items():
            if limit is not None and not (0 < limit < float("inf")):
                raise ConfigError(f"{name} is {limit:g}, but must be a number over 0")
        if self.drop_max is not None and not 0 <= self.drop_max < 1:
            raise ConfigError(
                f"drop_max is {self.drop_max:g}, but must be a share from 0 to below 1 (0.01 is 1%)"
            )
        if self.quality_limit is not None and not np.isfinite(self.quality_limit):
            raise ConfigError(f"quality_limit is {self.quality_limit:g}, but must be a number")

    @property
    def limits_loss(self) -> bool:
        """Whether anything says how much must be served."""
        return self.drop_max is not None or self.quality_limit is not None

    def excesses(self, point: Point) -> dict[str, float]:
        """For each budget that there is, by what share of it ``point`` is beyond it; 0 within."""
        found = {}
        if self.comm_kb_max is not None:
            found["comm_kb_max"] = point.comm_kb / self.comm_kb_max - 1
        if self.latency_ms_max is not None:
            found["latency_ms_max"] = point.latency_ms / self.latency_ms_max - 1
        if self.drop_max is not None:
            # Of no drops at all one in a thousand counts as a whole budget beyond.
            found["drop_max"] = (point.drop - self.drop_max) / max(self.drop_max, 1e-3)
        if self.quality_limit is not None:
            worse = self.worse(point)
            found["quality_limit"] = float("inf") if worse is None else worse
        return {name: max(excess, 0.0) for name, excess in found.items()}

    def worse(self, point: Point) -> float | None:
        """By what share of the limit its quality is worse; None where it was not asked."""
        if point.quality is None or self.quality_limit is None:
            return None
        gap = self.quality_limit - point.quality
        return (-gap if self.lower_is_better else gap) / max(abs(self.quality_limit), 1e-9)

    def meets(self, point: Point) -> bool:
        """Whether ``point`` is within every budget."""
        return not any(self.excesses(point).values())


class BudgetError(Error, ValueError):
    """Budgets that no layout meets.

    Attributes:
        binding: the budgets that stand in the way: names of :class:`Budgets`.
        nearest: the layout that comes nearest.
    """

    def __init__(self, message: str, *, binding: tuple[str, ...], nearest: Point) -> None:
        super().__init__(message)
        self.binding = binding
        self.nearest = nearest


def _loss(point: Point, lower_is_better: bool) -> float:
    if point.quality is None:
        return point.drop
    return point.quality if lower_is_better else -point.quality


def objectives(
    points: Sequence[Point], lower_is_better: bool = False, *, count_prf: bool = False
) -> npt.NDArray[np.float64]:
    """What is to be small, float64 [points, 3]: computation, communication and loss of quality.

    Computation is predicted time, or the paper's count of PRF calls. Where any point has a quality,
    points without one have the worst.
    """
    asks = any(point.quality is not None for point in points)
    rows = [
        (
            point.costs["prf_calls"] if count_prf else point.server_ms,
            point.comm_kb,
            np.inf if asks and point.quality is None else _loss(point, lower_is_better),
        )
        for point in points
    ]
    return np.array(rows, dtype=np.float64).reshape(-1, 3)


def dominated(values: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
    """Of rows of figures that are to be small: whether another row is as small in all of them.

    Of equal rows the first stays. [n, figures] to bool [n].
    """
    order = np.lexsort(values.T[::-1])
    lost = np.zeros(len(values), dtype=bool)
    kept = np.empty((0, values.shape[1]))
    for index in order:  # a row can only be beaten by one that sorts before it
        if kept.size and (kept <= values[index]).all(axis=1).any():
            lost[index] = True
        else:
            kept = np.vstack((kept, values[index]))
    return lost


def pareto(
    points: Iterable[Point], lower_is_better: bool = False, *, count_prf: bool = False
) -> list[Point]:
    """Points that no other beats in computation, communication and loss at once.

    Those with the least computation come first; it is time, or the paper's count of PRF calls.
    """
    listed = list(points)
    if not listed:
        return []
    values = objectives(listed, lower_is_better, count_prf=count_prf)
    lost = dominated(values)
    front = [(tuple(values[i]), point) for i, point in enumerate(listed) if not lost[i]]
    return [point for _, point in sorted(front, key=lambda entry: entry[0])]


def families_of(points: Iterable[Point]) -> list[str]:
    """The families among ``points``, in their usual order."""
    found = {point.family for point in points}
    known = [family for family in FAMILIES if family in found]
    return known + sorted(found - set(known))


def choose(points: Sequence[Point], budgets: Budgets) -> Point:
    """The best layout within the budgets.

    Where drops or quality are limited, the fastest that meets everything; else the one that serves
    most. Ties go to the other, then to less communication.

    Raises:
        BudgetError: none meets them; says which budgets bind and what the nearest layout costs.
    """
    within = [point for point in points if budgets.meets(point)]
    if not within:
        raise _unmet(points, budgets)

    def key(point: Point) -> tuple[float, ...]:
        seconds, comm, loss = objectives([point], budgets.lower_is_better)[0]
        figures = (seconds, loss, comm) if budgets.limits_loss else (loss, seconds, comm)
        return tuple(float(figure) for figure in figures)

    return min(within, key=key)


def _unmet(points: Sequence[Point], budgets: Budgets) -> BudgetError:
    excesses = [budgets.excesses(point) for point in points]
    nearest_index = min(range(len(points)), key=lambda i: (max(excesses[i].values()), i))
    nearest = points[nearest_index]
    names = list(excesses[nearest_index])
    binding = tuple(
        name
        for name in names
        if any(not any(v for k, v in excess.items() if k != name) for excess in excesses)
    )
    if len(names) == 1:
        first = f"no layout meets {_budget_text(names[0], budgets)}, which binds alone"
    elif binding:
        what = " or ".join(_budget_text(name, budgets) for name in binding)
        raised = f"{what} binds: without it" if len(binding) == 1 else f"{what} binds: without one"
        first = f"no layout meets all budgets; {raised}, layouts meet the others"
    else:
        binding = tuple(name for name, excess in excesses[nearest_index].items() if excess)
        what = " and ".join(_budget_text(name, budgets) for name in binding)
        first = f"no layout meets the budgets: {what} bind together"
    return BudgetError(
        f"{first}. The nearest layout is {describe_point(nearest)}",
        binding=binding,
        nearest=nearest,
    )


def describe_point(point: Point) -> str:
    """Its spec and its figures, in a line."""
    quality = "" if point.quality is None else f", quality {point.quality:.5g}"
    return (
        f"{point.spec.describe()} [{point.family}]: {point.comm_kb:,.4g} KB and "
        f"{point.latency_ms:.3g} ms an inference, {point.drop:.3%} of accesses dropped{quality}"
    )


def _budget_text(name: str, budgets: Budgets) -> str:
    flags = {
        "comm_kb_max": ("--max-comm-kb", budgets.comm_kb_max),
        "latency_ms_max": ("--max-latency-ms", budgets.latency_ms_max),
        "drop_max": ("--max-drop", budgets.drop_max),
        "quality_limit": ("--min-quality", budgets.quality_limit),
    }
    flag, limit = flags[name]
    return f"{flag} {limit:g}"

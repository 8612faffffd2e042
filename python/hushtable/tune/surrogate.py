"""What simulated layouts say of those not yet simulated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from .front import Point
from .spec import PartSpec

__all__ = ["Surrogate"]

FloatArray = npt.NDArray[np.float64]

#: How far a simulated layout's word goes: in natural logarithms of rows, bins and queries, and in
#: companions.
_REACH = 0.4
_REACH_COMPANIONS = 0.7
#: Weight of the family's mean, where no simulated layout is near.
_MEAN_WEIGHT = 0.01


@dataclass
class _Family:
    """Of each simulated layout where its hot and its full part lie, and its error's logarithm."""

    hots: list[FloatArray] = field(default_factory=list)
    fulls: list[FloatArray] = field(default_factory=list)
    errors: list[float] = field(default_factory=list)


class Surrogate:
    """Corrects estimated drops by what simulations of layouts of the same family found.

    The logarithm of found to estimated drop is averaged over those simulated, the nearest first
    (Nadaraya and Watson's kernel regression).
    """

    def __init__(self) -> None:
        self._families: dict[str, _Family] = {}

    def learn(self, point: Point, estimated: float) -> None:
        """Takes in a simulated layout and what its drop was estimated at."""
        least = _least(point.accesses)
        family = self._families.setdefault(point.family, _Family())
        family.hots.append(_place(point.spec.hot))
        family.fulls.append(_place(point.spec.full))
        family.errors.append(float(np.log(max(point.drop, least) / max(estimated, least))))

    def correct(
        self,
        family_name: str,
        hots: Sequence[PartSpec | None],
        fulls: Sequence[PartSpec | None],
        estimated: FloatArray,
        accesses: int,
    ) -> FloatArray:
        """Expected drops of all pairs of a hot and a full part, float64 [hots, fulls].

        ``estimated`` are the estimates [hots, fulls], ``accesses`` those of the sample.
        """
        estimated = np.maximum(estimated, _least(accesses))
        family = self._families.get(family_name)
        if family is None:
            return estimated
        # A layout's weight is the product of its parts' weights.
        hot, full = _weights(hots, family.hots), _weights(fulls, family.fulls)
        errors = np.array(family.errors)
        total = hot @ full.T + _MEAN_WEIGHT
        error = ((hot * errors) @ full.T + _MEAN_WEIGHT * errors.mean()) / total
        expected: FloatArray = np.minimum(estimated * np.exp(error), 1.0)
        return expected


def _least(accesses: int) -> float:
    """What a drop of none in a sample stands for."""
    return 0.3 / max(accesses, 1)


def _place(part: PartSpec | None) -> FloatArray:
    if part is None:
        return np.zeros(4)
    logs = np.log([part.rows, part.bins, part.queries]) / _REACH
    return np.array([*logs, part.companions / _REACH_COMPANIONS])


def _weights(parts: Sequence[PartSpec | None], known: Sequence[FloatArray]) -> FloatArray:
    """How much each known part says of each of ``parts``, float64 [parts, known]."""
    gaps = np.array([_place(part) for part in parts])[:, None] - np.array(known)
    weights: FloatArray = np.exp(-0.5 * (gaps**2).sum(axis=2))
    return weights

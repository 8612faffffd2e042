"""How many rows a round reads: the mechanisms of epsilon-FDP, and what they cost.

A round's users ask for K rows, k_union of them distinct. Reading k_union rows would tell how alike
the users are, so k is drawn: by Eq. 3 of FEDORA (section 3.3), by a clamped two-sided geometric, or
by hushtable's own, which is that geometric shifted (:mod:`hushtable._fdp` has them all). k over
k_union are dummy accesses, k under it lost rows. To hide how many values a user has (of n at most),
each value is hidden at epsilon / n (section 3.1).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hushtable._fdp import Mechanism
from hushtable.errors import ConfigError

__all__ = ["MECHANISMS", "Accesses", "accesses", "mean_accesses", "probabilities"]

#: The paper's with Y = 1, hushtable's, and the one that hushtable had before. Others have settings:
#: ``eq3:y=power,exponent=5``, ``shifted:loss=0.02``.
MECHANISMS = ("eq3", "shifted", "geometric")
#: The most requests of a round.
REQUESTS_MAX = 1 << 28
_POINTS = 200


@dataclass(frozen=True, slots=True)
class Accesses:
    """What a round reads, in the mean.

    Attributes:
        requests: K.
        k_union: distinct rows asked for.
        k: rows read.
        dummy: rows read beyond k_union.
        lost: rows of the union not read.
    """

    requests: float
    k_union: float
    k: float
    dummy: float
    lost: float

    @property
    def share(self) -> float:
        """k / K."""
        return self.k / self.requests

    @property
    def reduced_percent(self) -> float:
        """Table 1's *reduced accesses*: against K accesses."""
        return 100 * (1 - self.share)

    @property
    def dummy_percent(self) -> float:
        """Table 1's *dummy*: against k_union accesses."""
        return 100 * self.dummy / self.k_union

    @property
    def lost_percent(self) -> float:
        """Table 1's *lost*: against k_union accesses."""
        return 100 * self.lost / self.k_union


def probabilities(
    mechanism: str, requests: int, k_union: int, epsilon: float
) -> NDArray[np.float64]:
    """The probability of each k from 1 to K; float64 [K].

    Raises:
        ConfigError: an argument out of its range.
    """
    _check(requests, k_union, epsilon)
    if epsilon == 0:
        return np.asarray(np.arange(1, requests + 1) == requests, np.float64)
    return Mechanism.parse(mechanism).probabilities(requests, k_union, epsilon)


def accesses(mechanism: str, requests: int, k_union: float, epsilon: float) -> Accesses:
    """The mean accesses of a round of ``requests`` with ``k_union`` distinct rows.

    Args:
        mechanism: as ``hushtable train create --mechanism`` takes it.
        requests: K.
        k_union: distinct rows, 1 to K.
        epsilon: of one value; infinite for k = k_union, 0 for k = K.

    Raises:
        ConfigError: an argument out of its range.
    """
    chosen = Mechanism.parse(mechanism)
    _check(requests, k_union, epsilon)
    if epsilon == 0:
        # Perfect privacy: every request is an access (Strawman 1, section 3.2).
        return Accesses(requests, k_union, requests, requests - k_union, 0)
    dummy, lost = chosen.mean(requests, k_union, epsilon)
    return Accesses(requests, k_union, k_union + dummy - lost, dummy, lost)


def _check(requests: int, k_union: float, epsilon: float) -> None:
    if not 1 <= requests <= REQUESTS_MAX:
        raise ConfigError(f"requests is {requests}, but must be 1 to {REQUESTS_MAX}")
    if not 1 <= k_union <= requests:
        raise ConfigError(f"k_union is {k_union:g}, but must be 1 to the {requests} requests")
    if not epsilon >= 0:
        raise ConfigError(f"epsilon is {epsilon:g}, but must be 0 or more")


def mean_accesses(
    mechanism: str, requests: int, k_union: float, epsilon: float, *, spread: float = 0.0
) -> Accesses:
    """Mean accesses over rounds whose k_union varies: gamma distributed about ``k_union``.

    Eq. 3 is not linear in k_union near its ends, so an average k_union does not give the average
    losses. Table 1's Taobao row (k_union 95 of 10,000 on average) loses 2.42 % at epsilon 0.1 where
    95 in every round would lose 2.19 %; a spread of 0.35 gives 2.42 %, and 12.8 % at epsilon 1,
    where the paper has 12.89 and 95 in every round 12.54: two figures by one number.

    Args:
        spread: standard deviation of k_union over its mean; 0 for the same in every round.
    """
    if not 0 <= spread <= 1:
        raise ConfigError(f"spread is {spread:g}, but must be 0 to 1")
    if spread == 0:
        return accesses(mechanism, requests, k_union, epsilon)
    shape = 1 / spread**2
    values = np.linspace(0, k_union * (1 + 6 * spread), _POINTS + 1)[1:]
    logs = (shape - 1) * np.log(values) - values * shape / k_union
    weights = np.exp(logs - logs.max())
    weights /= weights.sum()
    rounds = [
        accesses(mechanism, requests, float(value), epsilon)
        for value in np.clip(values, 1, requests)
    ]

    def mean(name: str) -> float:
        return float(weights @ np.array([getattr(each, name) for each in rounds]))

    return Accesses(requests, *(mean(name) for name in ("k_union", "k", "dummy", "lost")))

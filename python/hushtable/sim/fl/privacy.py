"""How many rows a round reads: the mechanisms of epsilon-FDP, and what they cost.

A round's users ask for K rows, k_union of them distinct. Reading k_union rows would tell how alike
the users are, so k is drawn: Eq. 3 of FEDORA (section 3.3), or hushtable's clamped two-sided
geometric. k over k_union are dummy accesses, k under it lost rows. To hide how many values a user
has (of n at most), each value is hidden at epsilon / n (section 3.1).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...errors import ConfigError

__all__ = ["MECHANISMS", "Accesses", "accesses", "mean_accesses", "probabilities"]

MECHANISMS = ("eq3", "geometric")
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
    """The probability of each k from 1 to K; float64 [K]. ``eq3`` has uniform Y."""
    outcomes = np.arange(1, requests + 1)
    distance = np.abs(outcomes - k_union)
    if mechanism == "eq3":
        # exp underflows to zero far from k_union, where nothing is lost by it.
        weights = np.exp(-epsilon / 2 * distance)
        return np.asarray(weights / weights.sum())
    ratio = math.exp(-epsilon)
    weights = (1 - ratio) / (1 + ratio) * ratio**distance
    # What falls outside is moved to the ends.
    weights[0] = ratio ** (k_union - 1) / (1 + ratio)
    weights[-1] = ratio ** (requests - k_union) / (1 + ratio)
    if requests == 1:
        weights[0] = 1.0
    return np.asarray(weights)


def accesses(mechanism: str, requests: int, k_union: float, epsilon: float) -> Accesses:
    """The mean accesses of a round of ``requests`` with ``k_union`` distinct rows.

    In closed form. With r = e^(-epsilon/2) for Eq. 3, e^-epsilon for the geometric, a = k_union - 1
    outcomes below and b = K - k_union above, and sums over j from 1 to n:

    - Eq. 3: dummy = T(b) / (1 + S(a) + S(b)), lost = T(a) / (1 + S(a) + S(b)), where S(n) = sum r^j
      and T(n) = sum j r^j;
    - clamped geometric: dummy = S(b) / (1 + r), lost = S(a) / (1 + r), since the noise is j or more
      with probability r^j / (1 + r).

    Args:
        mechanism: ``eq3`` or ``geometric``.
        requests: K.
        k_union: distinct rows, 1 to K.
        epsilon: of one value; infinite for k = k_union, 0 for k = K.

    Raises:
        ConfigError: an argument out of its range.
    """
    if mechanism not in MECHANISMS:
        raise ConfigError(f"mechanism is {mechanism!r}, but must be one of {', '.join(MECHANISMS)}")
    if not 1 <= requests <= REQUESTS_MAX:
        raise ConfigError(f"requests is {requests}, but must be 1 to {REQUESTS_MAX}")
    if not 1 <= k_union <= requests:
        raise ConfigError(f"k_union is {k_union:g}, but must be 1 to the {requests} requests")
    if not epsilon >= 0:
        raise ConfigError(f"epsilon is {epsilon:g}, but must be 0 or more")
    if epsilon == 0:
        # Perfect privacy: every request is an access (Strawman 1, section 3.2).
        return Accesses(requests, k_union, requests, requests - k_union, 0)
    below, above = k_union - 1, requests - k_union
    if mechanism == "eq3":
        total = 1 + _powers(epsilon / 2, below) + _powers(epsilon / 2, above)
        dummy, lost = (_moments(epsilon / 2, n) / total for n in (above, below))
    else:
        dummy, lost = (_powers(epsilon, n) / (1 + math.exp(-epsilon)) for n in (above, below))
    return Accesses(requests, k_union, k_union + dummy - lost, dummy, lost)


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


def _powers(rate: float, count: float) -> float:
    """sum of e^(-rate j), j from 1 to count."""
    if math.isinf(rate):
        return 0.0
    return math.exp(-rate) * math.expm1(-rate * count) / math.expm1(-rate)


def _moments(rate: float, count: float) -> float:
    """sum of j e^(-rate j), j from 1 to count."""
    if math.isinf(rate):
        return 0.0
    if rate * count < 1e-9:
        return count * (count + 1) / 2  # the difference below would be of equals
    last = count * math.exp(-rate * (count + 1))
    return (_powers(rate, count) - last) / -math.expm1(-rate)

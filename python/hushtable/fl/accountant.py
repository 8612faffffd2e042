"""What a user has lost to the numbers of rows that rounds read.

A round of K requests reads k rows, a noisy number of how many different ones were asked for
(FEDORA, ASPLOS 2025, section 3). One slot's value changes that number by at most one, and the
mechanism hides a change of one up to ε. An :class:`Accountant` adds up what each user's rounds
come to:

    accountant = Accountant(epsilon=1.0, delta=1e-6, limit=20.0)
    accountant.spend("ann")  # before ann's part in a round
    accountant.epsilon("ann")  # what is lost so far

**Within a round** the cost is ε times the slots that may change at once:

- one, where a value fills one slot and one value is hidden;
- n, where n values are hidden together, as they are when their number is (section 3.1);
- all of a user's slots, where one value may fill several of them (``slots_distinct=False``).

Chunks of a round, each with noise of its own, cost nothing more as long as a slot's *position*
says which chunk it is in: every changed slot then is in one chunk (parallel composition). Where
chunks are cut after a sort or shuffle by value, one changed slot moves every chunk's border, and
the cost is that of each chunk once more (``chunks_by_position=False``).

**Over rounds** losses add up, as the same server sees all of them and knows who takes part; there
is no amplification by sampling. Three ways to add up:

``basic``
    Sums ε. Holds with δ = 0.
``zcdp``
    By concentrated differential privacy: rho sums up, and ε = rho + 2·√(rho·ln(1/δ)) (Bun and
    Steinke, TCC 2016, proposition 1.3), or the basic sum if that is less. What a round costs
    depends on the mechanism. Equation 3 is an exponential mechanism, whose losses lie in a range
    of width ε: ε²/8 (Cesar and Rogers, ALT 2021). The geometric mechanism's do not, as they are
    -ε and ε: ε·tanh(ε/2). That is never more than the ε²/2 of any pure mechanism; it is the
    Kullback-Leibler divergence of randomized response, which all of ε-DP is dominated by
    (Kairouz, Oh and Viswanath, ICML 2015), and the Kearns-Saul inequality gives the other orders.
``pld``
    By the distribution of the privacy loss, with the dp-accounting library, or the zcdp sum if
    that is less: randomized response for the geometric mechanism, which is exact; for equation 3
    the worst of all mechanisms of range ε and losses up to ``worst_loss``, at each order.

At the same ε equation 3 adds up to less, as it spends less of ε to begin with; compare mechanisms
at the same noise (the geometric one at ε/2 has the noise of the uniform equation 3 at ε). Its
``worst_loss`` is ``Mechanism::exact_epsilon`` in Rust, and :func:`uniform_worst_loss` for Y = 1
(``mechanism="uniform"``): 0.714 at ε = 1. The basic sum gains by it, and few rounds; many are best
added up by zcdp. A shift and a clamp change nothing of the geometric mechanism's losses, as they
are functions of its outcome. A delta always reads as many rows, and so costs nothing.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from .._fdp import uniform_worst_loss
from ..errors import BudgetSpent, ConfigError, Error

__all__ = [
    "Accountant",
    "BudgetSpent",
    "Composition",
    "Mechanism",
    "MissingExtra",
    "compose",
    "uniform_worst_loss",
]

#: How the number of rows is drawn: by geometric noise, as it is or ``shifted``; by equation 3 of
#: the paper with any shape (``exponential``), with Y = 1 (``uniform``), or always the same
#: (``delta``).
Mechanism = Literal["geometric", "shifted", "exponential", "uniform", "delta"]
#: How losses over rounds are added up.
Composition = Literal["basic", "zcdp", "pld"]

#: Most points of the grid that losses of all rounds are rounded to.
_GRID_POINTS_MAX = 1_000_000
#: Points of the grid within one round's smallest loss.
_GRID_POINTS_A_ROUND = 64


class MissingExtra(Error, ImportError):
    """An optional library that this way of adding up needs."""


class Accountant:
    """What each user has lost.

    Attributes:
        epsilon_per_value: of one changed slot in one round, as the mechanism has it: a spec's ε,
            divided by n where it hides the number of up to n values (then spend with
            ``values=n``). 0 and infinity are allowed.
        mechanism: how the number of rows is drawn.
        delta: the δ that :meth:`epsilon` holds with; unused by the basic sum.
        composition: how rounds are added up.
        limit: the ε that no user may get past; none if not given.
        worst_loss: the largest loss of one changed slot, where that is known to be less than ε:
            under equation 3, where it is ε/2 or more.
    """

    def __init__(
        self,
        epsilon: float,
        *,
        mechanism: Mechanism = "geometric",
        delta: float = 1e-6,
        composition: Composition = "zcdp",
        limit: float | None = None,
        worst_loss: float | None = None,
    ) -> None:
        """Books for users of which none is known yet.

        Args:
            epsilon: of one changed slot in one round; for the others, see the attributes.

        Raises:
            ConfigError: an argument that cannot be.
            MissingExtra: ``composition="pld"`` without dp-accounting.
        """
        if not epsilon >= 0:
            raise ConfigError(f"epsilon is {epsilon}: expected 0 or more, or infinity")
        if mechanism not in get_args(Mechanism):
            expected = ", ".join(map(repr, get_args(Mechanism)))
            raise ConfigError(f"mechanism is {mechanism!r}: expected one of {expected}")
        if composition not in get_args(Composition):
            expected = ", ".join(map(repr, get_args(Composition)))
            raise ConfigError(f"composition is {composition!r}: expected one of {expected}")
        if not 0 < delta < 1:
            raise ConfigError(f"delta is {delta}: expected more than 0 and less than 1")
        if limit is not None and not limit >= 0:
            raise ConfigError(f"limit is {limit}: expected 0 or more, or None for no limit")
        if worst_loss is not None:
            if mechanism in ("geometric", "shifted"):
                raise ConfigError(f"worst_loss is epsilon itself for the {mechanism} mechanism")
            if mechanism != "exponential":
                raise ConfigError(f"worst_loss is known for mechanism {mechanism!r}: leave it out")
            if not epsilon / 2 <= worst_loss <= epsilon:
                raise ConfigError(
                    f"worst_loss is {worst_loss}: expected {epsilon / 2} (half of epsilon) to"
                    f" {epsilon}"
                )
        if composition == "pld":
            _dp_accounting()
        self.epsilon_per_value = float(epsilon)
        self.mechanism = mechanism
        self.delta = float(delta)
        self.composition = composition
        self.limit = limit
        self.worst_loss = float(epsilon if worst_loss is None else worst_loss)
        if mechanism == "uniform" and 0 < epsilon < math.inf:
            self.worst_loss = min(self.worst_loss, uniform_worst_loss(epsilon))
        self._ledger: dict[str, Counter[float]] = {}

    def __repr__(self) -> str:
        return (
            f"Accountant(epsilon={self.epsilon_per_value!r}, mechanism={self.mechanism!r},"
            f" delta={self.delta!r}, composition={self.composition!r}, limit={self.limit!r},"
            f" worst_loss={self.worst_loss!r})"
        )

    def cost(
        self,
        *,
        values: int = 1,
        slots_distinct: bool = True,
        slots: int | None = None,
        chunks: int = 1,
        chunks_by_position: bool = True,
    ) -> float:
        """ε of one round, as the module's text has it.

        Args:
            values: how many values are hidden at once; all a user may have where their number is
                hidden.
            slots_distinct: whether a value fills only one slot.
            slots: the user's slots; needed where they are not distinct.
            chunks: in how many chunks, with noise each, the round is done.
            chunks_by_position: whether a slot's position alone says which chunk it is in.

        Raises:
            ConfigError: counts that cannot be.
        """
        for name, count in (("values", values), ("chunks", chunks)):
            if count < 1:
                raise ConfigError(f"{name} is {count}: expected 1 or more")
        changed = values
        if not slots_distinct:
            if slots is None or slots < values:
                raise ConfigError(
                    f"slots is {slots}: where a value may fill several slots, expected how many"
                    f" the user has, {values} or more"
                )
            changed = slots
        if not chunks_by_position:
            changed *= chunks
        if self.mechanism == "delta":
            return 0.0
        # 0 · inf does not occur: changed is positive.
        return changed * self.epsilon_per_value

    def spend(
        self,
        user: str,
        *,
        values: int = 1,
        slots_distinct: bool = True,
        slots: int | None = None,
        chunks: int = 1,
        chunks_by_position: bool = True,
    ) -> None:
        """Books a user's part in a round, before it: reading the rows is what loses it, whatever
        becomes of the round.

        Args:
            user: who. For the others, see :meth:`cost`.

        Raises:
            BudgetSpent: that would be past the limit; nothing was booked.
            ConfigError: counts that cannot be.
        """
        cost = self.cost(
            values=values,
            slots_distinct=slots_distinct,
            slots=slots,
            chunks=chunks,
            chunks_by_position=chunks_by_position,
        )
        booked = self._ledger.get(user, Counter())
        after = booked.copy()
        if cost > 0:
            after[cost] += 1
        if self.limit is not None:
            needed = self._add_up(after)
            if needed > self.limit:
                spent = self._add_up(booked)
                raise BudgetSpent(
                    f"user {user!r} has lost epsilon {spent:.4g} and would have lost {needed:.4g}"
                    f" after this round, more than the limit of {self.limit:.4g}: leave the user"
                    " out, or read more rows a round at a smaller epsilon",
                    user=user,
                    rounds=booked.total(),
                    spent=spent,
                    needed=needed,
                    limit=self.limit,
                )
        self._ledger[user] = after

    def epsilon(self, user: str, *, composition: Composition | None = None) -> float:
        """What a user has lost so far, with this accountant's δ; 0 for one never seen.

        Args:
            user: who.
            composition: another way to add up than the accountant's.

        Raises:
            MissingExtra: ``"pld"`` without dp-accounting.
        """
        return self._add_up(self._ledger.get(user, Counter()), composition)

    def rounds(self, user: str) -> int:
        """The rounds that were booked for a user at a cost."""
        return self._ledger.get(user, Counter()).total()

    @property
    def users(self) -> list[str]:
        """Whoever was booked, in order of first appearance."""
        return list(self._ledger)

    def _add_up(self, booked: Counter[float], composition: Composition | None = None) -> float:
        if math.isinf(self.epsilon_per_value):
            return math.inf if booked else 0.0
        return _add_up(self._losses(booked), composition or self.composition, self.delta)

    def _losses(self, booked: Counter[float]) -> tuple[tuple[_Loss, int], ...]:
        # For a round of cost 1: the width of the interval that losses lie in, and its upper end.
        width = 2.0 if self.mechanism in ("geometric", "shifted") else 1.0
        worst = self.worst_loss / self.epsilon_per_value if booked else 1.0
        return tuple(
            (_Loss(width=width * cost, worst=worst * cost), rounds)
            for cost, rounds in sorted(booked.items())
        )

    def to_json(self) -> str:
        """All of it as text, so that a budget outlives the process."""
        return json.dumps(
            {
                "epsilon": self.epsilon_per_value,
                "mechanism": self.mechanism,
                "delta": self.delta,
                "composition": self.composition,
                "limit": self.limit,
                "worst_loss": self.worst_loss if self.mechanism == "exponential" else None,
                "users": {user: list(booked.items()) for user, booked in self._ledger.items()},
            }
        )

    @classmethod
    def from_json(cls, text: str) -> Accountant:
        """The accountant that :meth:`to_json` wrote.

        Raises:
            ConfigError: text that it did not write.
        """
        try:
            fields: dict[str, Any] = json.loads(text)
            users: dict[str, list[tuple[float, int]]] = fields.pop("users")
            accountant = cls(**fields)
            for user, booked in users.items():
                counts = Counter({float(cost): int(rounds) for cost, rounds in booked})
                if any(not cost > 0 or rounds < 1 for cost, rounds in counts.items()):
                    raise ConfigError(f"the accountant's text books nonsense for user {user!r}")
                accountant._ledger[user] = counts
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            if isinstance(error, ConfigError):
                raise
            raise ConfigError(
                f"this is not an accountant's text ({error!r}): expected what to_json wrote"
            ) from error
        return accountant


def compose(
    accountants: Iterable[Accountant], user: str, composition: Composition, delta: float
) -> float:
    """What a user has lost to the rounds of several accountants together.

    Their noise is drawn apart, so losses add up as those of so many rounds of one do, whichever of
    them ran at once.

    Raises:
        MissingExtra: ``"pld"`` without dp-accounting.
    """
    booked = [(each, each._ledger.get(user, Counter())) for each in accountants]
    if any(counts and math.isinf(each.epsilon_per_value) for each, counts in booked):
        return math.inf
    losses = Counter[_Loss]()
    for each, counts in booked:
        losses.update(dict(each._losses(counts)))
    # In one order, as sums of floats depend on it.
    ordered = sorted(losses.items(), key=lambda loss: (loss[0].worst, loss[0].width))
    return _add_up(tuple(ordered), composition, delta)


@dataclass(frozen=True)
class _Loss:
    """Of one round: losses are at most ``worst`` and at least its negative, and for each pair of
    neighbours within some range of ``width``."""

    width: float
    worst: float

    @property
    def rho(self) -> float:
        return min(self.width**2 / 8, self.worst * math.tanh(self.worst / 2))

    def profile(self, epsilons: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """The least δ for each of ``epsilons``.

        Neighbours of losses in [t - w, t] are at worst of losses t, with the probability
        (e^w - e^t)/(e^w - 1), and t - w. For losses of an absolute value up to e, t is of w - e to
        e. δ(ε) is largest at t = (ε + w)/2, or at the end that is nearer.
        """
        top = np.clip((epsilons + self.width) / 2, self.width - self.worst, self.worst)
        chance = np.expm1(top - self.width) / math.expm1(-self.width)
        high = -np.expm1(np.minimum(epsilons - top, 0))
        low = -np.expm1(np.minimum(epsilons - top + self.width, 0))
        return np.asarray(chance * high + (1 - chance) * low, dtype=np.float64)


@lru_cache(maxsize=4096)
def _add_up(booked: tuple[tuple[_Loss, int], ...], composition: Composition, delta: float) -> float:
    """ε of so many rounds at each cost."""
    if not booked:
        return 0.0
    basic = math.fsum(loss.worst * rounds for loss, rounds in booked)
    if composition == "basic":
        return basic
    rho = math.fsum(loss.rho * rounds for loss, rounds in booked)
    concentrated = min(basic, rho + 2 * math.sqrt(rho * -math.log(delta)))
    if composition == "zcdp":
        return concentrated
    return min(concentrated, _pld_epsilon(booked, delta, basic))


def _pld_epsilon(booked: tuple[tuple[_Loss, int], ...], delta: float, basic: float) -> float:
    pld_pmf, plds = _dp_accounting()
    step = max(booked[0][0].worst / _GRID_POINTS_A_ROUND, basic / _GRID_POINTS_MAX)
    composed = None
    for loss, rounds in booked:
        points = math.ceil(loss.worst / step)
        deltas = loss.profile(np.arange(-points, points + 1, dtype=np.float64) * step)
        # Rounding may break the order by a little: upwards only.
        deltas = np.maximum.accumulate(deltas[::-1])[::-1]
        pmf = pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(step, -points, points, deltas)
        one = plds.PrivacyLossDistribution(pmf).self_compose(rounds)
        composed = one if composed is None else composed.compose(one)
    return float(composed.get_epsilon_for_delta(delta)) if composed is not None else 0.0


def _dp_accounting() -> tuple[Any, Any]:
    """The library's modules for distributions of losses."""
    try:
        from dp_accounting.pld import pld_pmf, privacy_loss_distribution
    except ImportError as error:
        raise MissingExtra(
            "composition='pld' is done by dp-accounting: install it by"
            " `pip install 'hushtable[fl]'`, or take composition='zcdp'"
        ) from error
    return pld_pmf, privacy_loss_distribution

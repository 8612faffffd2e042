"""What a model's rounds cost its users: the losses to all tables together.

Each table draws how many rows it reads with noise of its own, and the same operator sees all of
those numbers. A change of **one value** of a user changes one table's number, so that it is hidden
at that table's epsilon, however many tables there are. All that **a user** asks for in a round is
in all tables at once: what is lost to them adds up, as the losses of rounds do (basic composition;
or by concentrated differential privacy, where rho adds up, which is less for many tables). Here it
is the latter that is counted. A value that is looked up in several tables (an item's id, and its
maker's that follows from it) is a change in each of them, and so is covered too.
"""

from __future__ import annotations

import json
import math
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..errors import BudgetSpent, ConfigError
from ..fl import Budget, Spent
from ..fl.accountant import Accountant, Composition, Mechanism, compose
from ..fl.budget import _booked_as
from .messages import from_spec

__all__ = ["ModelAccountant", "ModelBudget", "ModelSpent"]

#: Whoever was in every round.
_ANYONE = "anyone"


def _accountant(spec: Mapping[str, Any], delta: float) -> tuple[Accountant, int]:
    """An empty accountant for a controller, and how many values its epsilon is for."""
    fdp = spec["fdp"]
    protects = fdp.get("protects", "value")
    values = 1 if protects == "value" else int(protects["count"]["values"])
    mechanism: Mechanism = _booked_as(json.dumps(fdp.get("mechanism", "geometric")))
    epsilon = float(fdp["epsilon"]) / values
    return Accountant(epsilon, mechanism=mechanism, delta=delta), values


@dataclass(frozen=True)
class ModelSpent:
    """What a model's rounds have cost: an upper bound of what they have cost any one user.

    Attributes:
        tables: by table.
    """

    tables: Mapping[str, Spent]
    _specs: Mapping[str, Mapping[str, Any]] = field(repr=False)

    @property
    def epsilon(self) -> float:
        """The sum over the tables, which holds with the sum of their deltas."""
        return math.fsum(spent.epsilon for spent in self.tables.values())

    @property
    def delta(self) -> float:
        """What :attr:`epsilon` holds with."""
        return math.fsum(spent.delta for spent in self.tables.values())

    @property
    def rounds_left(self) -> int | None:
        """Rounds that may still begin in all tables; None where there is no end to them."""
        left = (spent.rounds_left for spent in self.tables.values())
        return min((rounds for rounds in left if rounds is not None), default=None)

    def composed(self, delta: float, composition: Composition = "zcdp") -> float:
        """The rounds of all tables, composed together: at this delta, at most :attr:`epsilon`'s
        sum.

        Raises:
            ConfigError: a delta that cannot be.
            MissingExtra: ``"pld"`` without dp-accounting.
        """
        accountants = []
        for name, spent in self.tables.items():
            accountant, values = _accountant(self._specs[name], delta)
            if cost := accountant.cost(values=values):
                accountant._ledger[_ANYONE] = Counter({cost: spent.rounds} if spent.rounds else {})
            accountants.append(accountant)
        return compose(accountants, _ANYONE, composition, delta)


class ModelAccountant:
    """Books of what each user has lost to the rounds of several tables.

    Args:
        specs: what each table's controller was created as: ``ModelController.facts[name].spec``.
        delta: what :meth:`epsilon` holds with; unused by the basic sum.
        composition: how losses add up, over rounds and tables alike.
        limit: the epsilon that no user may get past, over all tables; None for no limit.

    Raises:
        ConfigError: an argument that cannot be.
        MissingExtra: ``composition="pld"`` without dp-accounting.
    """

    def __init__(
        self,
        specs: Mapping[str, Mapping[str, Any]],
        *,
        delta: float = 1e-6,
        composition: Composition = "zcdp",
        limit: float | None = None,
    ) -> None:
        if not specs:
            raise ConfigError("a model has at least one table: give specs")
        made = {name: _accountant(spec, delta) for name, spec in specs.items()}
        self._tables = {name: accountant for name, (accountant, _) in made.items()}
        self._values = {name: values for name, (_, values) in made.items()}
        # Refuses what an accountant does.
        Accountant(0, delta=delta, composition=composition, limit=limit)
        self.delta, self.composition, self.limit = delta, composition, limit

    @property
    def round_epsilon(self) -> float:
        """What one round costs one user: the sum over the tables."""
        return math.fsum(t.cost(values=self._values[n]) for n, t in self._tables.items())

    def spend(self, user: str) -> None:
        """Books a user's part in a round of all tables, before it.

        Raises:
            BudgetSpent: that would be past the limit; nothing was booked.
        """
        spent = self.epsilon(user)
        before = {n: t._ledger.get(user) for n, t in self._tables.items()}
        rounds = max(table.rounds(user) for table in self._tables.values())
        for name, table in self._tables.items():
            table.spend(user, values=self._values[name])
        needed = self.epsilon(user)
        if self.limit is None or needed <= self.limit:
            return
        for name, booked in before.items():
            self._tables[name]._ledger.pop(user)
            if booked is not None:
                self._tables[name]._ledger[user] = booked
        raise BudgetSpent(
            f"user {user!r} has lost epsilon {spent:.4g} to {len(self._tables)} tables and would"
            f" have lost {needed:.4g} after this round, more than the limit of {self.limit:.4g}:"
            " leave the user out, or train fewer tables at once",
            user=user,
            rounds=rounds,
            spent=spent,
            needed=needed,
            limit=self.limit,
        )

    def epsilon(self, user: str, *, composition: Composition | None = None) -> float:
        """What a user has lost so far to all tables together; 0 for one never seen."""
        chosen = composition or self.composition
        return compose(self._tables.values(), user, chosen, self.delta)

    def by_table(self, user: str) -> dict[str, float]:
        """What a user has lost to each table alone: what hides one value of the user's."""
        return {
            name: table.epsilon(user, composition=self.composition)
            for name, table in self._tables.items()
        }


class ModelBudget(Budget):
    """What this user may lose to a model's rounds, in a file: :class:`hushtable.fl.Budget`, of
    which ``epsilon`` is what a round costs in all tables together."""

    def __init__(self, path: str | os.PathLike[str], **settings: Any) -> None:
        super().__init__(path, **settings)

    def check_terms(self, spec: bytes) -> None:
        """Holds the sum over the tables in a model's terms against what is booked for a round.

        A :class:`~hushtable.scale.ModelSession` must have held them against the user's pin.

        Raises:
            ConfigError: rounds that cost more than is booked for them.
        """
        fdps = [json.loads(table.spec)["fdp"] for table in from_spec(spec)]
        total = math.fsum(float(fdp["epsilon"]) for fdp in fdps)
        for fdp in fdps:
            self.check(total, json.dumps(fdp.get("mechanism", "geometric")))

"""What one user may lose to a controller's rounds, kept in a file on the user's side.

The controller has a budget of its own (``hushtable train create --epsilon-budget``), which holds as
long as the controller is what it says it is. A user's own holds whatever the other side says or
restores: rounds are booked here before a request leaves, and a process that is started again reads
what was booked.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from pathlib import Path

from .._fdp import Mechanism as Spec
from ..errors import BudgetSpent, ConfigError
from .accountant import Accountant, Composition, Mechanism

__all__ = ["Budget"]

#: The one user in the file.
_SELF = "self"


class Budget:
    """What this user may lose, in a file of the user's.

        budget = Budget("films.budget", limit=20.0, epsilon=1.0)
        client = hushtable.fl.TrainingClient.connect(address, budget=budget)

    Any number of processes may share the file: each books under a lock, and what is booked is on
    the disk before :meth:`charge` returns. A request that is booked and then fails stays booked,
    and one that is sent again is booked again. Removing the file forgets all of it: keep it where
    the user's own data is kept.

    Args:
        path: the file; made where there is none.
        limit: the epsilon that all rounds may come to.
        epsilon: what a round costs one value: the controller's. It should come from whoever the
            controller's key comes from, not from the server.
        values: how many of this user's values are to be hidden at once; all that she may have where
            their number is.
        mechanism: how the controller draws the number of rows.
        delta: the delta that ``limit`` holds with; unused by the basic sum.
        composition: how rounds add up: ``basic`` by their sum, or ``zcdp``; see
            :mod:`hushtable.fl.accountant`.

    Raises:
        ConfigError: settings that cannot be, or other than those that the file was made with
            (``limit`` may change); a file that is no budget or cannot be written.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        limit: float,
        epsilon: float,
        values: int = 1,
        mechanism: Mechanism = "geometric",
        delta: float = 1e-6,
        composition: Composition = "basic",
    ) -> None:
        self.path = Path(path)
        self.limit = float(limit)
        self.epsilon = float(epsilon)
        self.values = values
        self.mechanism: Mechanism = mechanism
        self._empty = Accountant(
            epsilon, mechanism=mechanism, delta=delta, composition=composition, limit=limit
        )
        self._empty.cost(values=values)
        with self._locked():
            if not self.path.exists():
                self._write(self._empty)
            self._read()

    @property
    def spent(self) -> float:
        """The epsilon of all rounds that were booked."""
        return self._read().epsilon(_SELF)

    @property
    def left(self) -> float:
        """What is left of the limit."""
        return max(self.limit - self.spent, 0.0)

    @property
    def rounds(self) -> int:
        """Rounds that were booked at a cost."""
        return self._read().rounds(_SELF)

    def charge(self) -> None:
        """Books a round, before its request leaves.

        Raises:
            BudgetSpent: that would be past the limit. Nothing was booked, and nothing may be sent.
            ConfigError: a file that was damaged, or cannot be written.
        """
        with self._locked():
            booked = self._read()
            try:
                booked.spend(_SELF, values=self.values)
            except BudgetSpent as error:
                left = max(error.limit - error.spent, 0.0)
                raise BudgetSpent(
                    f"{error.rounds} rounds have cost epsilon {error.spent:.4g} of"
                    f" {error.limit:.4g}, which leaves {left:.4g}: one more would make it"
                    f" {error.needed:.4g}. Sit the round out",
                    rounds=error.rounds,
                    spent=error.spent,
                    needed=error.needed,
                    limit=error.limit,
                ) from None
            self._write(booked)

    def check(self, epsilon: float, mechanism: str) -> None:
        """Holds what a server announces against what rounds are booked at.

        Raises:
            ConfigError: rounds that cost more than is booked for them.
        """
        if not epsilon <= self.epsilon:
            raise ConfigError(
                f"the server's rounds cost epsilon {epsilon:g}, this budget books {self.epsilon:g}"
                " for each: ask who runs the controller which of them is right"
            )
        # Geometric noise loses all of epsilon both ways: no mechanism costs more.
        if _COSTS[self.mechanism] < _COSTS["geometric"] and (
            _COSTS[_booked_as(mechanism)] > _COSTS[self.mechanism]
        ):
            raise ConfigError(
                f"the server's mechanism is {mechanism!r}, this budget books rounds as"
                f" {self.mechanism}, which add up to less: make it with"
                f" mechanism={_booked_as(mechanism)!r}"
            )

    def check_terms(self, spec: bytes) -> None:
        """As :meth:`check`, of a controller's ``controller.json``.

        A session must have held it against the user's pin: nothing else vouches for it.

        Raises:
            ConfigError: rounds that cost more than is booked for them.
        """
        fdp = json.loads(spec)["fdp"]
        self.check(float(fdp["epsilon"]), json.dumps(fdp.get("mechanism", "geometric")))

    def _read(self) -> Accountant:
        try:
            booked = Accountant.from_json(self.path.read_text())
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"the budget in {self.path} cannot be read: {error}") from error
        except ConfigError as error:
            raise ConfigError(
                f"{self.path} holds no budget ({error}): what was lost is not known, so nothing may"
                " be sent; restore the file"
            ) from error
        for setting in ("epsilon_per_value", "mechanism", "delta", "composition"):
            made, given = getattr(booked, setting), getattr(self._empty, setting)
            if made != given:
                raise ConfigError(
                    f"the budget in {self.path} was made with {setting} {made!r}, not {given!r}:"
                    " give what it was made with"
                )
        booked.limit = self.limit
        return booked

    def _write(self, booked: Accountant) -> None:
        """Puts it in the file's place in one step: after a crash there is the old or the new."""
        beside = self.path.with_name(self.path.name + ".new")
        try:
            with open(beside, "w", opener=_private) as file:
                file.write(booked.to_json())
                file.flush()
                os.fsync(file.fileno())
            beside.replace(self.path)
            folder = os.open(self.path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        except OSError as error:
            raise ConfigError(f"the budget in {self.path} cannot be written: {error}") from error

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        lock = self.path.with_name(self.path.name + ".lock")
        try:
            file = open(lock, "w", opener=_private)  # noqa: SIM115 (closed below)
        except OSError as error:
            raise ConfigError(f"the budget in {self.path} cannot be written: {error}") from error
        with file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def __repr__(self) -> str:
        return f"Budget({str(self.path)!r}, limit={self.limit!r}, epsilon={self.epsilon!r})"


#: Mechanisms in the order of what rounds add up to.
_COSTS: dict[Mechanism, int] = {
    "delta": 0,
    "uniform": 1,
    "exponential": 2,
    "shifted": 3,
    "geometric": 3,
}


def _booked_as(mechanism: str) -> Mechanism:
    """What an accountant calls the mechanism that a server announces: a word, or JSON.

    Raises:
        ConfigError: one that this version does not know.
    """
    try:
        spec = json.loads(mechanism)
    except ValueError:
        spec = mechanism
    known = Spec.of_spec(spec)
    if known.kind != "eq3":
        return "shifted" if known.kind == "shifted" else "geometric"
    if known.shape == "uniform":
        return "uniform"
    return "delta" if known.shape == "delta" else "exponential"


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)

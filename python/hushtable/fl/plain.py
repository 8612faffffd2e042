"""The table of :class:`~hushtable.fl.TrainedTable` in plain memory: to compare, and for tests."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._fdp import DEFAULT, Mechanism
from ..errors import RoundError
from ._arrays import DUMMY, Flags, Floats, Ids
from .aggregate import aggregate_of
from .clip import VALUE_MAX, WEIGHT_MAX, Clip, clip_spec

__all__ = ["PlainReport", "PlainTable"]


@dataclass(frozen=True)
class PlainReport:
    """What a round of a :class:`PlainTable` did. Only ``accesses`` may be public in
    the real one.

    Attributes:
        accesses: k, rows read.
        union_rows: distinct rows asked for.
        lost_rows: of them, not read.
        dummy_rows: read though nobody asked.
        uploaded: users who added gradients.
    """

    accesses: int
    union_rows: int
    lost_rows: int
    dummy_rows: int
    uploaded: int


@dataclass
class _Round:
    requests: Ids
    found: Flags
    union: Ids
    k: int
    sums: Floats
    weights: Floats
    uploaded: set[int]


class PlainTable:
    """An embedding table that hides nothing: whoever runs it sees every id.

    It reads as many rows as the oblivious controller would, so that a model trained on it meets the
    same losses: k is drawn about the number of distinct rows asked for as ``mechanism`` says, from
    1 to users * slots; where that is too few, the lost rows are drawn at random. The noise comes
    from a seeded generator, which is right for experiments and wrong for privacy.

    Args:
        rows: float32 [rows, dim] to start from; copied.
        users: of a round, at most.
        slots: values of a user, at most.
        epsilon: of one value in one round; ``math.inf`` for no noise.
        mechanism: how k is drawn, as for :meth:`hushtable.fl.Controller.create`.
        aggregate: how gradients become updates, see :func:`~hushtable.fl.aggregate.aggregate_of`.
        clip: how much of one user's upload counts, as for :meth:`hushtable.fl.Controller.create`.
        seed: of the noise.

    Raises:
        ConfigError: a clip or mechanism that cannot be.
        ValueError: a size below 1, an epsilon of 0 or less, rows that are not finite float32.
    """

    def __init__(
        self,
        rows: Floats,
        *,
        users: int,
        slots: int,
        epsilon: float = math.inf,
        mechanism: str = DEFAULT,
        aggregate: Mapping[str, Any] | None = None,
        clip: str | Clip | Mapping[str, Any] | None = "default",
        seed: int | None = None,
    ) -> None:
        if rows.ndim != 2 or 0 in rows.shape or rows.dtype != np.float32:
            raise ValueError(f"rows are {rows.dtype} {rows.shape}, expected float32 [rows, dim]")
        if not np.isfinite(rows).all():
            raise ValueError("rows have values that are not finite")
        if users < 1 or slots < 1:
            raise ValueError(f"{users} users with {slots} slots, expected at least 1 of each")
        if not epsilon > 0:
            raise ValueError(f"epsilon is {epsilon}, expected more than 0")
        self._rows = rows.copy()
        self._users, self._slots, self._epsilon = users, slots, epsilon
        self._mechanism = Mechanism.parse(mechanism)
        self._aggregate = aggregate_of(aggregate or {"name": "fed_avg"})
        bounds = clip_spec(clip, aggregate or {"name": "fed_avg"})
        self._clip = None if bounds is None else Clip(**bounds)
        self._state = self._aggregate.start(self._rows.shape)
        self._random = np.random.default_rng(seed)
        self._round: _Round | None = None

    @property
    def users(self) -> int:
        """Users of a round, at most."""
        return self._users

    @property
    def slots(self) -> int:
        """Values of a user, at most."""
        return self._slots

    @property
    def dim(self) -> int:
        """Numbers in a row."""
        return int(self._rows.shape[1])

    def begin(self, requests: Ids) -> int:
        """See :meth:`hushtable.fl.TrainedTable.begin`."""
        if self._round is not None:
            raise RoundError("a round is open: commit or abandon it first")
        if requests.shape != (self._users, self._slots) or requests.dtype != np.uint32:
            raise RoundError(
                f"requests are {requests.dtype} {requests.shape},"
                f" expected uint32 {(self._users, self._slots)}"
            )
        real = requests != DUMMY
        if (requests[real] >= len(self._rows)).any():
            raise RoundError(
                f"row id {int(requests[real].max())} is out of range, the table has"
                f" {len(self._rows)} rows"
            )
        union = np.unique(requests[real])
        k = self._noisy(len(union))
        lost = self._random.choice(union, max(0, len(union) - k), replace=False)
        self._round = _Round(
            requests=requests.copy(),
            found=real & ~np.isin(requests, lost),
            union=union,
            k=k,
            sums=np.zeros((len(union), self.dim), np.float32),
            weights=np.zeros(len(union), np.float32),
            uploaded=set(),
        )
        return k

    def _noisy(self, union_rows: int) -> int:
        requests, epsilon, mechanism = self._users * self._slots, self._epsilon, self._mechanism
        union_rows = max(union_rows, 1)
        if mechanism.kind == "eq3":
            chances = mechanism.probabilities(requests, union_rows, epsilon)
            return int(self._random.choice(requests, p=chances)) + 1
        if math.isinf(epsilon):
            return union_rows
        by, least = mechanism.shift(epsilon, requests)
        # The difference of two geometric variables: P(x) in proportion to exp(-epsilon |x|).
        up, down = self._random.geometric(-math.expm1(-epsilon), 2)
        return min(max(union_rows + by + int(up) - int(down), least), requests)

    def _open(self, user: int) -> _Round:
        if self._round is None:
            raise RoundError("no round is open: begin one first")
        if not 0 <= user < self._users:
            raise RoundError(f"user {user} is out of range, a round has {self._users}")
        return self._round

    def rows(self, user: int) -> tuple[Floats, Flags]:
        """See :meth:`hushtable.fl.TrainedTable.rows`."""
        found = self._open(user).found[user]
        rows = np.zeros((self._slots, self.dim), np.float32)
        rows[found] = self._rows[self._open(user).requests[user][found]]
        return rows, found.copy()

    def add(self, user: int, gradients: Floats, weight: float) -> None:
        """See :meth:`hushtable.fl.TrainedTable.add`."""
        current = self._open(user)
        if gradients.shape != (self._slots, self.dim) or gradients.dtype != np.float32:
            raise RoundError(
                f"gradients are {gradients.dtype} {gradients.shape},"
                f" expected float32 {(self._slots, self.dim)}"
            )
        if not np.isfinite(gradients).all():
            raise RoundError(f"user {user}'s gradients have values that are not finite")
        if not 0 <= weight <= WEIGHT_MAX:
            raise RoundError(
                f"the weight of user {user} is {weight}, expected 0 to {WEIGHT_MAX:.0f}"
            )
        if user in current.uploaded:
            raise RoundError(f"user {user} has added gradients in this round already")
        current.uploaded.add(user)
        found = current.found[user]
        # So that no sum is ever infinite, as in the controller.
        gradients = np.clip(gradients, -np.float32(VALUE_MAX), np.float32(VALUE_MAX))
        if self._clip is not None:
            gradients, weight = self._clip.apply(gradients, weight, found)
        places = np.searchsorted(current.union, current.requests[user][found])
        np.add.at(current.sums, places, np.float32(weight) * gradients[found])
        np.add.at(current.weights, places, np.float32(weight))

    def commit(self) -> PlainReport:
        """See :meth:`hushtable.fl.TrainedTable.commit`."""
        current = self._open(0)
        updated = current.weights > 0
        ids = current.union[updated]
        means = current.sums[updated] / current.weights[updated, None]
        self._rows[ids] -= self._aggregate.step(self._state, ids, means)
        self._round = None
        asked = len(current.union)
        return PlainReport(
            accesses=current.k,
            union_rows=asked,
            lost_rows=max(0, asked - current.k),
            dummy_rows=max(0, current.k - asked),
            uploaded=len(current.uploaded),
        )

    def abandon(self) -> None:
        """See :meth:`hushtable.fl.TrainedTable.abandon`."""
        self._round = None

    def export(self) -> Floats:
        """See :meth:`hushtable.fl.TrainedTable.export`."""
        return self._rows.copy()

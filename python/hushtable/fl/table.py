"""What training asks of an embedding table whose accesses stay private.

One round, as in FEDORA (ASPLOS 2025), section 4.2: the users' requests go in together, the table
reads some number k of rows, serves each user from them, adds up the users' gradients, and writes
the rows back once.
"""

from __future__ import annotations

from typing import Protocol

from ._arrays import Flags, Floats, Ids

__all__ = ["Report", "TrainedTable"]


class Report(Protocol):
    """What a round did, as far as its observer sees it too."""

    @property
    def accesses(self) -> int:
        """k: rows read and written back, dummies included."""


class TrainedTable(Protocol):
    """An embedding table that is trained round by round.

    ``begin``, then ``rows`` and ``add`` for each user in any order, then ``commit`` or
    ``abandon``. Users are numbered 0 to ``users - 1``, anew in each round.
    """

    @property
    def users(self) -> int:
        """Users of a round, at most."""

    @property
    def slots(self) -> int:
        """Values of a user, at most."""

    @property
    def dim(self) -> int:
        """Numbers in a row."""

    def begin(self, requests: Ids) -> int:
        """Reads the rows of a round.

        Args:
            requests: uint32 [users, slots] row ids, :data:`hushtable.fl.DUMMY` where there is none.

        Returns:
            k, how many rows were read: the requested ones with noise, 1 to users * slots.
        """

    def rows(self, user: int) -> tuple[Floats, Flags]:
        """The rows that a user asked for.

        Returns:
            float32 [slots, dim], and bool [slots]: False where the slot is a dummy or its row was
            lost to the noise; what is in its place then is not the table's.
        """

    def add(self, user: int, gradients: Floats, weight: float) -> None:
        """Adds a user's gradients; those of slots that were not found count for nothing.

        Args:
            user: whose.
            gradients: float32 [slots, dim], the row before local training minus the row after it.
            weight: how much they count, usually the number of samples; 0 or more.
        """

    def commit(self) -> Report:
        """Updates the rows that got gradients. Users who added none are as if not there."""

    def abandon(self) -> None:
        """Ends the round and leaves the rows as they were."""

    def export(self) -> Floats:
        """All rows, float32 [rows, dim]: for evaluation, and for a bundle to serve."""

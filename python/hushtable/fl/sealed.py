"""The halves of a sealed round: what a user says to the controller goes through a relay unread.

The relay is a federated-learning server. It passes bytes on and sees their sizes, which depend on
slots and dim alone; see docs/federated.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from ._arrays import Flags, Floats, Ids
from .table import Report

__all__ = ["RoundTerms", "SealedController", "SealedSession", "Sessions"]


@dataclass(frozen=True)
class RoundTerms:
    """What a user must know to take part in a round; nothing here is secret.

    The messages are bound to it: a relay that tells a user other terms than the controller's gets
    messages that do not open.

    Attributes:
        table: the table's name.
        rows: of the table.
        slots: values of a user, at most.
        dim: numbers in a row.
        round: the round's number, 1 to 2^64 - 1; no other round has it.
        user: the user's number in the round.
    """

    table: str
    rows: int
    slots: int
    dim: int
    round: int
    user: int


class SealedController(Protocol):
    """The controller as a relay sees it.

    ``open_round``, ``request`` for each user, ``close_requests``, ``reply`` and ``upload`` for
    each, then ``commit``; or ``abandon`` at any time. A refused message raises ``ValueError`` and
    leaves the round and its other users as they were.
    """

    @property
    def public_key(self) -> bytes:
        """What users seal to, 32 bytes."""

    @property
    def users(self) -> int:
        """Users of a round, at most."""

    def open_round(self, users: int) -> int:
        """Starts a round that takes the requests of so many users; returns its number."""

    def terms(self, user: int) -> RoundTerms:
        """The open round's, for one user."""

    def request(self, user: int, sealed: bytes) -> None:
        """Takes a user's sealed ids."""

    def close_requests(self) -> int:
        """Takes no more requests and reads the rows; returns how many, noise included."""

    def reply(self, user: int) -> bytes:
        """A user's rows, sealed to her."""

    def upload(self, user: int, sealed: bytes) -> None:
        """Takes a user's sealed gradients."""

    def commit(self) -> Report:
        """Updates the rows by the gradients that came."""

    def abandon(self) -> None:
        """Ends the round and leaves the rows as they were."""


class SealedSession(Protocol):
    """A user's half of one round."""

    def request(self, ids: Ids) -> bytes:
        """Seals the ids, at most as many as there are slots."""

    def rows(self, reply: bytes) -> tuple[Floats, Flags]:
        """Opens a reply: float32 [slots, dim], and bool [slots], whether each was found."""

    def upload(self, gradients: Floats, weight: float) -> bytes:
        """Seals gradients, float32 [slots, dim], and how much they count."""

    def to_bytes(self) -> bytes:
        """The session with its keys, to go on in another process of the same user's. Secret."""


class Sessions(Protocol):
    """Where sessions come from: :class:`hushtable.fl.Session` is one."""

    def __call__(self, key: bytes, terms: RoundTerms) -> SealedSession:
        """A new session with the controller of this public key."""

    def from_bytes(self, kept: bytes) -> SealedSession:
        """A session as :meth:`SealedSession.to_bytes` kept it."""

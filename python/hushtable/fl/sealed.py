"""The halves of a sealed round: what a user says to the controller goes through a relay unread.

The relay is a federated-learning server. It passes bytes on and sees their sizes, which depend on
slots and dim alone; see docs/federated.md.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from ._arrays import Flags, Floats, Ids
from .table import Report

__all__ = ["Credential", "RoundTerms", "SealedController", "SealedSession", "Sessions"]


@dataclass(frozen=True)
class RoundTerms:
    """What a user is told of a round; nothing here is secret, and nothing is believed.

    A session holds ``spec`` against its pin before anything else is looked at, and every key that
    user and controller share depends on all of this.

    Attributes:
        spec: what the controller is: its ``controller.json``, byte for byte.
        round: the round's number, 1 to 2^64 - 1; no other round has it.
        user: the user's number in the round.
    """

    spec: bytes
    round: int
    user: int


@dataclass(frozen=True)
class Credential:
    """What an enrolled user takes part by.

    Attributes:
        key: the user's secret, 32 bytes, as ``hushtable train key`` makes it.
        ticket: ``ticket1:...``, as ``hushtable train enroll`` makes it for that key and one
            controller. Useless without the key.
    """

    key: bytes = field(repr=False)
    ticket: str

    @classmethod
    def read(cls, key: str | os.PathLike[str], ticket: str | os.PathLike[str]) -> Credential:
        """Reads a key file, and a ticket from its text or from a file that holds it."""
        if not (isinstance(ticket, str) and ticket.startswith("ticket1:")):
            ticket = Path(ticket).read_text(encoding="utf-8-sig").strip()
        return cls(Path(key).read_bytes(), ticket)


class SealedController(Protocol):
    """The controller as a relay sees it.

    ``open_round``, ``request`` for each user, ``close_requests``, ``reply`` and ``upload`` for
    each, then ``commit``; or ``abandon`` at any time. A refused message raises ``ValueError``, with
    one text for whatever is wrong with it, and leaves the round and its other users as they were.
    """

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

    def __call__(
        self, pin: str, terms: RoundTerms, credential: Credential | None = None
    ) -> SealedSession:
        """A new session with the controller of this pin; an error for terms of any other."""

    def from_bytes(self, kept: bytes) -> SealedSession:
        """A session as :meth:`SealedSession.to_bytes` kept it."""

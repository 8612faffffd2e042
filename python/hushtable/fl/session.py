"""A user's half of a sealed round."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, Self

from .. import _native
from ..errors import RoundError
from ._arrays import Flags, Floats, Ids, as_floats, as_ids

__all__ = ["RoundTerms", "Session"]


class _Terms(Protocol):
    """What a user must know to take part: ``hushtable.fl.Terms``."""

    @property
    def table(self) -> str: ...
    @property
    def rows(self) -> int: ...
    @property
    def slots(self) -> int: ...
    @property
    def dim(self) -> int: ...
    @property
    def round(self) -> int: ...
    @property
    def user(self) -> int: ...


@dataclass(frozen=True)
class RoundTerms:
    """What a user must know to take part in a round; nothing here is secret.

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


class Session:
    """A user's half of one sealed round: request, then rows, then upload.

    Either of ``Session(public_key, terms)`` and ``Session(public_key, table, rows, dim, slots,
    round, user)``. The key must come from somebody whom the user trusts with the ids, not from the
    relay.

    Raises:
        ConfigError: a key that no secret can be shared with, terms that no round has.
    """

    def __init__(
        self,
        public_key: bytes,
        table: str | _Terms,
        rows: int = 0,
        dim: int = 0,
        slots: int = 0,
        round: int = 0,
        user: int = 0,
    ) -> None:
        if not isinstance(table, str):
            terms = table
            table, rows, dim = terms.table, terms.rows, terms.dim
            slots, round, user = terms.slots, terms.round, terms.user
        self._native = _native.Session(public_key, table, rows, dim, slots, round, user)

    @classmethod
    def from_bytes(cls, kept: bytes) -> Self:
        """A session as :meth:`to_bytes` kept it."""
        session = cls.__new__(cls)
        session._native = _native.Session.from_bytes(kept)
        return session

    def to_bytes(self) -> bytes:
        """The session with its keys, to go on in another process of this user's. Secret."""
        return self._native.to_bytes()

    @property
    def terms(self) -> RoundTerms:
        """What the messages are bound to."""
        table, rows, dim, slots, round_, user = self._native.facts()
        return RoundTerms(table, rows, slots, dim, round_, user)

    def request(self, ids: Ids) -> bytes:
        """Seals the ids, at most as many as there are slots; once.

        Raises:
            TooManyIds: more ids than slots.
            IdOutOfRange: an id that is no row.
        """
        return self._native.request(as_ids(ids).reshape(-1))

    def rows(self, reply: bytes) -> tuple[Floats, Flags]:
        """Opens a reply: float32 [slots, dim], and bool [slots], whether each row is the table's.

        Raises:
            RoundError: a reply that does not open.
        """
        return self._native.rows(reply)

    def upload(self, gradients: Floats, weight: float = 1.0) -> bytes:
        """Seals gradients, float32 [slots, dim] (of the first slots, if fewer), and their weight.

        Raises:
            RoundError: another shape, a number that is not finite.
        """
        gradients = as_floats(gradients, "gradients")
        if gradients.ndim != 2:
            raise RoundError(f"gradients are {gradients.shape}, but must be [slots, dim]")
        return self._native.upload(gradients, weight)

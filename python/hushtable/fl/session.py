"""A user's half of a sealed round."""

from __future__ import annotations

from typing import Self

from .. import _native
from ..errors import RoundError
from ._arrays import Flags, Floats, Ids, as_floats, as_ids
from .sealed import RoundTerms

__all__ = ["Session"]


class Session:
    """A user's half of one sealed round: request, then rows, then upload.

    Args:
        key: the controller's public key, 32 bytes. It must come from somebody whom the user trusts
            with the ids, not from the relay.
        terms: of the round.

    Raises:
        ConfigError: a key that no secret can be shared with, terms that no round has.
    """

    def __init__(self, key: bytes, terms: RoundTerms) -> None:
        self._native = _native.Session(
            key, terms.table, terms.rows, terms.dim, terms.slots, terms.round, terms.user
        )

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

"""A user's half of a sealed round."""

from __future__ import annotations

from typing import Self

from .. import _native
from ._arrays import Flags, Floats, Ids, as_floats, as_ids
from .sealed import Credential, RoundTerms

__all__ = ["Session"]


class Session:
    """A user's half of one sealed round: request, then rows, then upload.

    Args:
        pin: the controller's: ``pin1:`` and 128 hex digits. It must come from somebody whom the
            user trusts with the ids, not from the relay.
        terms: of the round, from whoever it is.
        credential: of the user, where the controller's users are enrolled.

    Raises:
        PinMismatch: terms of another controller than the pinned one.
        ConfigError: a pin, key or ticket that cannot be; no credential where one is needed.
    """

    def __init__(self, pin: str, terms: RoundTerms, credential: Credential | None = None) -> None:
        self._native = _native.Session(
            pin,
            terms.spec,
            terms.round,
            terms.user,
            key=None if credential is None else credential.key,
            ticket=None if credential is None else credential.ticket,
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
        return RoundTerms(*self._native.facts())

    def request(self, ids: Ids) -> bytes:
        """Seals the ids, at most as many as there are slots; once.

        No error says which id, or how many: it may be raised where others read it.

        Raises:
            TooManyIds: more ids than slots.
            IdOutOfRange: an id that is no row.
        """
        return self._native.request(as_ids(ids).reshape(-1))

    def rows(self, reply: bytes) -> tuple[Floats, Flags]:
        """Opens a reply: float32 [slots, dim], and bool [slots], whether each row is the table's.

        Raises:
            RoundError: a reply that is refused, with one text whatever is wrong with it.
        """
        return self._native.rows(reply)

    def upload(self, gradients: Floats, weight: float = 1.0) -> bytes:
        """Seals gradients, float32 [slots, dim] (of the first slots, if fewer), and their weight.

        Raises:
            RoundError: another shape, a number that is not finite.
        """
        return self._native.upload(as_floats(gradients, "gradients"), weight)

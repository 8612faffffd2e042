"""One message a user with a part a table, and what a user knows the controllers by.

A message is its parts, each behind its length, in the order of the terms. Every table has a part in
every message, whether its user has values for it or not, and each part has one size, which the
table's slots and dim alone say: so has the message.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from ..errors import ConfigError, PinMismatch, RoundError
from ..fl import Credential, Flags, Floats, Ids, RoundTerms, Session

__all__ = ["ModelSession", "TableTerms", "model_pin", "pack", "unpack"]

#: Tables of a model.
TABLES_MAX = 4096
_LENGTH_BYTES = 4
_ROUND_BYTES = 8
_PIN = "modelpin1:"
_PIN_DOMAIN = b"hushtable model pin 1"


def pack(parts: Sequence[bytes]) -> bytes:
    """Parts as one message."""
    return b"".join(len(part).to_bytes(_LENGTH_BYTES, "little") + part for part in parts)


def unpack(message: bytes, count: int) -> list[bytes]:
    """The ``count`` parts of a message.

    Raises:
        RoundError: another number of parts, or lengths that are not the message's.
    """
    parts: list[bytes] = []
    at = 0
    while at < len(message) and len(parts) < count:
        end = at + _LENGTH_BYTES
        length = int.from_bytes(message[at:end], "little")
        if end + length > len(message):
            break
        parts.append(message[end : end + length])
        at = end + length
    if at != len(message) or len(parts) != count:
        raise RoundError(
            f"the message does not have {count} parts, one a table: it was changed on its way, or"
            " made for another model"
        )
    return parts


@dataclass(frozen=True)
class TableTerms:
    """What a user is told of one table's round; nothing here is secret, and nothing is believed.

    Attributes:
        name: the table's.
        pin: the controller's.
        spec: its ``controller.json``, byte for byte.
        round: the number of its round.
    """

    name: str
    pin: str
    spec: bytes
    round: int

    def to_bytes(self) -> bytes:
        """As it stands in a model's terms."""
        number = self.round.to_bytes(_ROUND_BYTES, "little")
        return pack([self.name.encode(), self.pin.encode(), self.spec, number])

    @classmethod
    def from_bytes(cls, text: bytes) -> Self:
        """What :meth:`to_bytes` wrote.

        Raises:
            RoundError: anything else.
        """
        name, pin, spec, number = unpack(text, 4)
        if len(number) != _ROUND_BYTES:
            raise RoundError("a round's number has 8 bytes")
        try:
            return cls(name.decode(), pin.decode(), spec, int.from_bytes(number, "little"))
        except UnicodeDecodeError as error:
            raise RoundError("a table's name and pin are text") from error


def to_spec(tables: Sequence[TableTerms]) -> bytes:
    """What stands in ``RoundTerms.spec`` of a model's round."""
    return len(tables).to_bytes(_LENGTH_BYTES, "little") + pack([t.to_bytes() for t in tables])


def from_spec(spec: bytes) -> list[TableTerms]:
    """What :func:`to_spec` wrote.

    Raises:
        RoundError: anything else.
    """
    count = int.from_bytes(spec[:_LENGTH_BYTES], "little")
    if len(spec) < _LENGTH_BYTES or not 1 <= count <= TABLES_MAX:
        raise RoundError(f"terms of {count} tables: expected 1 to {TABLES_MAX}")
    return [TableTerms.from_bytes(part) for part in unpack(spec[_LENGTH_BYTES:], count)]


def model_pin(pins: Mapping[str, str]) -> str:
    """What users know a model's controllers by: one line, from each table's pin, in their order.

    It is a hash of all names and pins. A relay that leaves a table out, adds one, exchanges two of
    them, or puts another controller in one's place has other terms than those of this line.
    """
    text = pack([part.encode() for pair in pins.items() for part in pair])
    return _PIN + hashlib.sha256(_PIN_DOMAIN + pack([text])).hexdigest()


class ModelSession:
    """A user's half of one round of all tables: request, then rows, then upload.

    It is :class:`hushtable.fl.Session` for each table, and seals to each controller what is that
    table's.

    Args:
        pin: of the model, ``modelpin1:...``, from somebody whom the user trusts with the ids.
        terms: of the round, from whoever it is.
        credentials: of the user, by table, where users are enrolled.

    Raises:
        PinMismatch: terms of other controllers than the pinned ones.
        RoundError: terms that are none.
        ConfigError: no credential where one is needed.
    """

    def __init__(
        self,
        pin: str,
        terms: RoundTerms,
        credentials: Mapping[str, Credential] | None = None,
    ) -> None:
        if not pin.startswith(_PIN):
            raise ConfigError(
                f"a model's pin begins with {_PIN}, as ModelController.pin and `hushtable train"
                " model info` have it; that of a single controller is for hushtable.fl.Session"
            )
        tables = from_spec(terms.spec)
        # Before anything of the user's is looked at.
        if model_pin({table.name: table.pin for table in tables}) != pin or len(
            {table.name for table in tables}
        ) != len(tables):
            raise PinMismatch(
                "these terms are of other controllers than the pinned ones: give nothing to whoever"
                " sent them, and ask whoever the pin came from"
            )
        self._sessions = {
            table.name: Session(
                table.pin,
                RoundTerms(table.spec, table.round, terms.user),
                None if credentials is None else credentials.get(table.name),
            )
            for table in tables
        }

    @classmethod
    def from_bytes(cls, kept: bytes) -> Self:
        """A session as :meth:`to_bytes` kept it."""
        session = cls.__new__(cls)
        count = int.from_bytes(kept[:_LENGTH_BYTES], "little")
        parts = unpack(kept[_LENGTH_BYTES:], 2 * count)
        session._sessions = {
            name.decode(): Session.from_bytes(own)
            for name, own in zip(parts[::2], parts[1::2], strict=True)
        }
        return session

    def to_bytes(self) -> bytes:
        """The session with its keys, to go on in another process of this user's. Secret."""
        parts = [
            part for name, own in self._sessions.items() for part in (name.encode(), own.to_bytes())
        ]
        return len(self._sessions).to_bytes(_LENGTH_BYTES, "little") + pack(parts)

    @property
    def tables(self) -> tuple[str, ...]:
        """Names of the tables."""
        return tuple(self._sessions)

    def request(self, ids: Mapping[str, Ids]) -> bytes:
        """Seals the ids of each table, at most as many as it has slots; once.

        A table without ids is asked for nothing, which looks the same.

        Raises:
            RoundError: a table that the model does not have.
            TooManyIds: more ids than slots.
            IdOutOfRange: an id that is no row.
        """
        self._check(ids)
        nothing = np.zeros(0, np.uint32)
        return pack([own.request(ids.get(n, nothing)) for n, own in self._sessions.items()])

    def rows(self, reply: bytes) -> tuple[dict[str, Floats], dict[str, Flags]]:
        """Opens a reply: of each table float32 [slots, dim], and bool [slots], whether each row is
        the table's.

        Raises:
            RoundError: a reply that is refused.
        """
        parts = unpack(reply, len(self._sessions))
        opened = {
            name: own.rows(part)
            for (name, own), part in zip(self._sessions.items(), parts, strict=True)
        }
        return {n: rows for n, (rows, _) in opened.items()}, {n: f for n, (_, f) in opened.items()}

    def upload(self, gradients: Mapping[str, Floats], weight: float = 1.0) -> bytes:
        """Seals each table's gradients, float32 [slots, dim] (of the first slots, if fewer).

        A table without gradients gets zeros, which look the same.

        Raises:
            RoundError: a table that the model does not have; another shape, a number that is not
                finite.
        """
        self._check(gradients)
        return pack(
            [
                own.upload(gradients[name] if name in gradients else _zeros(own), weight)
                for name, own in self._sessions.items()
            ]
        )

    def _check(self, given: Mapping[str, Any]) -> None:
        if unknown := [name for name in given if name not in self._sessions]:
            raise RoundError(
                f"the model has no table {unknown[0]!r}; it has {', '.join(self._sessions)}"
            )


def _zeros(session: Session) -> Floats:
    spec = json.loads(session.terms.spec)
    return np.zeros((spec["slots"], spec["dim"]), np.float32)

"""What a request asks for, read and checked, and rows as JSON."""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np
import numpy.typing as npt

from .refusals import Refused

__all__ = ["Asked", "encoded", "read"]

#: Ids are rows' numbers: a table has at most 2^32.
_ID_DIGITS_MAX = 20


def read(body: bytes) -> Asked:
    """A body's object.

    Raises:
        Refused: it is none.
    """
    try:
        found = json.loads(body, object_pairs_hook=_object)
    except (ValueError, RecursionError):
        raise Refused(400, "invalid_json", "the body is no JSON") from None
    if not isinstance(found, dict):
        raise Refused(400, "invalid_json", "the body must be a JSON object")
    return Asked(found)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise Refused(400, "invalid_json", "an object of the body has a field twice")
    return found


class Asked:
    """The fields of a request. What a route does not take is refused, and so nothing is ignored."""

    def __init__(self, fields: dict[str, Any]) -> None:
        self._fields = fields

    def only(self, *names: str) -> None:
        """Refuses fields of other names."""
        if other := set(self._fields) - set(names):
            first = repr(min(other))[:64]
            taken = ", ".join(names)
            raise _invalid(f"the field {first} is not taken here: there are {taken}")

    def text(self, name: str, default: str | None = None) -> str:
        """A string."""
        found = self._fields.get(name, default)
        if not isinstance(found, str):
            raise _invalid(f"{name} must be a string")
        return found

    def whole(self, name: str) -> int | None:
        """A whole number from 1 to 2^32, where there is one."""
        found = self._fields.get(name)
        if found is None:
            return None
        if isinstance(found, bool) or not isinstance(found, int) or not 0 < found <= 1 << 32:
            raise _invalid(f"{name} must be a whole number from 1 to 4,294,967,296")
        return found

    def seconds(self, name: str) -> float | None:
        """Seconds, where there are some."""
        found = self._fields.get(name)
        if found is None:
            return None
        is_number = isinstance(found, int | float) and not isinstance(found, bool)
        if not is_number or not 0.001 <= found <= 86_400:
            raise _invalid(f"{name} must be seconds, 0.001 to 86,400")
        return float(found)

    def encoding(self) -> str:
        """``float`` or ``base64``."""
        found = self.text("encoding_format", "float")
        if found not in ("float", "base64"):
            raise _invalid("encoding_format must be float or base64")
        return found

    def ids(self, name: str, ids_max: int) -> npt.NDArray[np.uint64]:
        """Ids: one or a list, as numbers or as strings of digits."""
        return _ids(name, self._fields.get(name), ids_max)

    def ids_by_feature(self, name: str, ids_max: int) -> dict[str, npt.NDArray[np.uint64]]:
        """Ids by features' names; at most ``ids_max`` of all."""
        found = self._fields.get(name)
        if not isinstance(found, dict):
            raise _invalid(f"{name} must be an object of ids by features' names")
        read = {feature: _ids(name, ids, ids_max) for feature, ids in found.items()}
        if sum(ids.size for ids in read.values()) > ids_max:
            raise _too_many(name, ids_max)
        return read


def _ids(name: str, found: object, ids_max: int) -> npt.NDArray[np.uint64]:
    listed = found if isinstance(found, list) else [found]
    if len(listed) > ids_max:
        raise _too_many(name, ids_max)
    try:
        return np.array([_id(one) for one in listed], dtype=np.uint64)
    except (ValueError, OverflowError):
        raise _invalid(
            f"{name} must be an id or a list of ids: whole numbers from 0 on, or strings of their "
            "digits; text has no row, and a list in a list is not taken"
        ) from None


def _id(one: object) -> int:
    if isinstance(one, str) and one.isascii() and one.isdigit() and len(one) <= _ID_DIGITS_MAX:
        return int(one)
    if isinstance(one, int) and not isinstance(one, bool) and one >= 0:
        return one
    raise ValueError


def encoded(rows: npt.NDArray[np.float32], encoding: str) -> list[Any]:
    """Each row as a list of numbers, or as its float32 in base64, lowest byte first.

    JSON has no NaN: a list says null where a row holds one, or an infinity.
    """
    if encoding == "base64":
        return [base64.b64encode(row.astype("<f4").tobytes()).decode("ascii") for row in rows]
    listed: list[Any]
    if np.isfinite(rows).all():
        listed = rows.tolist()
        return listed
    holed = rows.astype(object)
    holed[~np.isfinite(rows)] = None
    listed = holed.tolist()
    return listed


def _invalid(message: str) -> Refused:
    return Refused(400, "invalid_value", message)


def _too_many(name: str, ids_max: int) -> Refused:
    return Refused(400, "too_many_ids", f"{name} holds more than the {ids_max:,} ids of a request")

"""What others wrote, field by field: nothing of it is passed over without a word.

A reader of other people's models takes the fields that it computes with, names those that may only
stand at a value that changes nothing, and those that say nothing about numbers. Whatever is left
when it is done is refused by name: an option that a reader does not know is an option that it would
silently ignore.

    with Fields(config, wrong) as own:
        stride = own.take("strides")
        own.neutral("dilation_rate", [1, 1])
        own.skip("dtype", "trainable")
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self

__all__ = ["Fields"]

_MISSING = object()


class Fields:
    """Fields of which each is taken, at its neutral value, without a meaning, or refused.

    As a context manager it calls :meth:`finish` where its block ends without an error.

    Args:
        fields: by name, what was read.
        wrong: makes the error of a refusal from what is wrong.
        kind: what a field is called in a refusal.
    """

    def __init__(
        self, fields: Mapping[str, Any], wrong: Callable[[str], Exception], kind: str = "attribute"
    ) -> None:
        self._left = dict(fields)
        self._wrong = wrong
        self._kind = kind

    def __contains__(self, name: str) -> bool:
        """Whether a field is there and was not taken."""
        return name in self._left

    def take(self, name: str, default: Any = _MISSING) -> Any:
        """A field's value; ``default`` where there is no such field.

        Raises:
            Exception: by ``wrong``, for a field that is not there and has no default.
        """
        found = self._left.pop(name, default)
        if found is _MISSING:
            raise self._wrong(f"it has no {self._kind} {name}")
        return found

    def neutral(self, name: str, *possible: Any) -> None:
        """Refuses a field that is there with another value than these.

        Raises:
            Exception: by ``wrong``, with the value, and those that are possible.
        """
        found = self._left.pop(name, _MISSING)
        if found is _MISSING or any(_same(found, one) for one in possible):
            return
        values = " and ".join(dict.fromkeys(_text(one) for one in possible))
        are = "are" if " and " in values else "is"
        raise self._wrong(f"{name} {_text(found)}: {values} {are} possible")

    def skip(self, *names: str) -> None:
        """Passes over fields that say nothing about what is computed in an inference."""
        for name in names:
            self._left.pop(name, None)

    def finish(self) -> None:
        """Refuses what is left.

        Raises:
            Exception: by ``wrong``, with every name and value that is left.
        """
        if self._left:
            left = ", ".join(f"{name} ({_text(value)})" for name, value in self._left.items())
            many = "s" if len(self._left) > 1 else ""
            raise self._wrong(f"the {self._kind}{many} {left}: not read, and it may change numbers")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.finish()


def _same(found: Any, possible: Any) -> bool:
    """Whether two values are equal: a list is one with a tuple, a truth is no number."""
    if isinstance(found, list | tuple) and isinstance(possible, list | tuple):
        return len(found) == len(possible) and all(map(_same, found, possible))
    if isinstance(found, bool) != isinstance(possible, bool):
        return False
    return bool(found == possible)


def _text(value: Any) -> str:
    """A value in a few words."""
    if isinstance(value, bytes):
        value = value.decode(errors="replace")
    shape = getattr(value, "shape", None)
    if shape is not None:
        return f"of shape {list(shape)}"
    text = str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."

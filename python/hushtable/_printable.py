"""Names of other people's files as text that any terminal prints."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Any

from .errors import Error

#: Characters of a name, and of a message.
_NAME_MAX = 160
_LINE_MAX = 4000


def named(name: Any) -> str:
    """A name of a file as text for people: what no terminal prints is escaped as in Python, and
    what is too long is clipped.
    """
    text = str(name)[: _NAME_MAX + 1]
    return _clipped("".join(map(_printed, text)), _NAME_MAX)


def quoted(name: Any) -> str:
    """A name of a file, as `named` has it, between quotes."""
    return repr(named(name)).replace("\\\\", "\\")


def one_line(text: str) -> str:
    """A message as one line that any terminal prints, whatever names of a file are in it."""
    text = text[:_LINE_MAX]
    text = text if text.isprintable() else re.sub(r"[\r\n]\s*", " ", text)
    return _clipped("".join(map(_printed, text)), _LINE_MAX)


def _printed(one: str) -> str:
    return one if one.isprintable() else repr(one)[1:-1]


def _clipped(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 3]}..."


@contextlib.contextmanager
def printed() -> Iterator[None]:
    """Makes one line that any terminal prints of the message of an error."""
    try:
        yield
    except Error as error:
        if (text := one_line(str(error))) == str(error):
            raise
        raise type(error)(text) from error

"""What docstrings of the package say, as Markdown: references and blocks of code.

Docstrings name things as :class:`Table` and mark code by two backticks. A name that the reference
has becomes a link to it.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

_ROLE = re.compile(
    r":(?:class|func|meth|attr|mod|data|exc|obj):`(~?)(?:[\w.]+ <)?([\w.]+)(?:\(\)|>)?`"
)
_LITERAL = re.compile(r"^(.*?)::$", re.MULTILINE)


class Roles(griffe.Extension):
    """Turns roles into links, and `::` before a block of code into a colon."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Changes every docstring of a package that was read."""
        _change(pkg)


def _change(obj: Any) -> None:
    if obj.docstring is not None:
        obj.docstring.value = _markdown(obj.docstring.value, obj)
    for member in obj.members.values():
        if not member.is_alias:
            _change(member)


def _markdown(text: str, obj: griffe.Object) -> str:
    text = _ROLE.sub(lambda found: _link(found[2], bool(found[1]), obj), text)
    return _LITERAL.sub(lambda found: f"{found[1]}:" if found[1].strip() else "", text)


def _link(name: str, is_short: bool, obj: griffe.Object) -> str:
    shown = name.rsplit(".", 1)[-1] if is_short else name
    # The first scope that has the first word is meant, as Python would look it up.
    first = name.partition(".")[0]
    path = name
    if first != "hushtable":
        for scope in [obj, *_parents(obj)]:
            if first in getattr(scope, "members", {}):
                path = f"{scope.path}.{name}"
                break
    return f'<autoref identifier="{path}" optional><code>{shown}</code></autoref>'


def _parents(obj: griffe.Object) -> list[Any]:
    found = []
    while (obj := obj.parent) is not None:  # type: ignore[assignment]
        found.append(obj)
    return found

"""Variables that the command reads, and those that look as if it did."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from .._settings import PREFIX, did_you_mean

__all__ = ["warn_of_unknown"]

#: Variables that are no option's: what this machine is, where things are on it, and our own.
_OTHERS = frozenset(
    {
        "HUSHTABLE_DATA",
        "HUSHTABLE_ISA",
        "HUSHTABLE_LOG",
        "HUSHTABLE_MAVEN",
        "HUSHTABLE_NVRTC",
        "HUSHTABLE_PARENT_PROCESS",
        "HUSHTABLE_SHOW_CLIENT_ERRORS",
    }
)
#: What our tests are told by.
_OF_TESTS = (
    "HUSHTABLE_NEEDS_",
    "HUSHTABLE_SCALE_",
    "HUSHTABLE_SHUFFLE",
    "HUSHTABLE_SOAK_",
    "HUSHTABLE_TEST_",
)


def known_variables(command: Any) -> frozenset[str]:
    """Every variable that this command or one below it reads."""
    return _OTHERS | frozenset(_of_options(command))


def _of_options(command: Any) -> Iterator[str]:
    for parameter in command.params:
        named = parameter.envvar or ()
        yield from (named,) if isinstance(named, str) else named
    for below in getattr(command, "commands", {}).values():
        yield from _of_options(below)


def warn_of_unknown(
    command: Any, whole: Callable[[], Any], environment: Mapping[str, str] = os.environ
) -> None:
    """Says on standard error which variables look like settings and are none.

    ``command`` is what runs; ``whole``, which has all commands, is made where it does not know one.
    """
    strange = [name for name in sorted(environment) if name.startswith(PREFIX)]
    strange = [name for name in strange if not name.startswith(_OF_TESTS)]
    if known_variables(command).issuperset(strange):
        return
    known = known_variables(whole())
    for name in strange:
        if name not in known:
            print(
                f"warning: {name} is no variable of hushtable{did_you_mean(name, known)}",
                file=sys.stderr,
            )

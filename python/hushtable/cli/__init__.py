"""The command ``hushtable``."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, NoReturn

from . import _commands
from ._variables import warn_of_unknown

if TYPE_CHECKING:
    from ._run import app

__all__ = ["app", "main"]


def __getattr__(name: str) -> Any:
    """``app``, with all commands: for what documents and checks them."""
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from ._run import app

    return app


def main(arguments: list[str] | None = None) -> NoReturn:
    """Runs the command and exits: 0 for success, 2 for bad input, 1 for what went wrong else.

    What a user can cause is one line and a hint, as JSON with ``--json``; never a traceback.
    """
    _hold_streams()
    arguments = sys.argv[1:] if arguments is None else arguments
    warn_of_unknown()
    if _COMPLETING not in os.environ and (text := _soon(arguments)) is not None:
        try:
            print(text, flush=True)
        except BrokenPipeError:
            leave_unread()
        sys.exit(0 if arguments else 2)
    from ._run import run

    run(arguments)


def _soon(arguments: list[str]) -> str | None:
    """What is printed without what runs commands, whose import takes most of a short one's time."""
    *path, last = arguments or ["--help"]
    if arguments == ["--version"]:
        return _commands.version()
    return _commands.page(" ".join(path)) if last in ("-h", "--help") else None


def leave_unread() -> NoReturn:
    """Ends where whoever reads has enough; the flush at exit must not complain again."""
    sys.stderr.close()
    sys.exit(141)


#: What a shell that completes a command line sets.
_COMPLETING = "_HUSHTABLE_COMPLETE"


def _hold_streams() -> None:
    """Opens on nothing what whoever started the command closed of its three streams.

    A server's log would else be written into whatever file or connection took the number.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)
            os.dup2(opened, number)
            if opened != number:
                os.close(opened)
        if getattr(sys, name) is None:
            nothing = os.open(os.devnull, os.O_RDWR)
            setattr(sys, name, os.fdopen(nothing, "r" if name == "stdin" else "w"))

"""The command ``hushtable``."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

import typer

from ..errors import (
    Error,
    FetchError,
    IdOutOfRange,
    ModelError,
    ShardMapError,
    TableError,
    VersionMismatch,
)
from . import _commands
from ._variables import warn_of_unknown
from .output import USAGE_ERROR, fail, usage_hint, usage_text

__all__ = ["app", "main"]


def __getattr__(name: str) -> typer.Typer:
    """``app``, with all commands: for what documents and checks them, not for what runs one."""
    if name != "app":
        raise AttributeError(name)
    return _commands.whole()


def main(arguments: list[str] | None = None) -> NoReturn:
    """Runs the command and exits: 0 for success, 2 for bad input, 1 for what went wrong else.

    What a user can cause is one line and a hint, as JSON with ``--json``; never a traceback.
    """
    _hold_streams()
    arguments = sys.argv[1:] if arguments is None else arguments
    as_json = "--json" in arguments
    command = typer.main.get_command(_commands.first_of(arguments))
    warn_of_unknown(command, lambda: typer.main.get_command(_commands.whole()))
    try:
        code = command(args=arguments, prog_name="hushtable", standalone_mode=False)
    except USAGE_ERROR as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            print(usage_text(error))
            sys.exit(2)
        code = getattr(error, "exit_code", 2)
        fail(usage_text(error), usage_hint(error), "UsageError", code, as_json)
    except Error as error:
        # ConfigError, IdOutOfRange and their like are also ValueErrors or LookupErrors.
        code = 2 if isinstance(error, ValueError | LookupError | TableError) else 1
        fail(str(error), _hint(error), type(error).__name__, code, as_json)
    except (ValueError, TypeError, OverflowError) as error:
        # The native module says in a note which argument it was.
        text = ", ".join([str(error), *getattr(error, "__notes__", ())])
        fail(text, None, type(error).__name__, 2, as_json)
    except BrokenPipeError:
        # Whoever read has enough; the flush at exit must not complain again.
        sys.stderr.close()
        sys.exit(141)
    except OSError as error:
        fail(str(error), None, type(error).__name__, 2, as_json)
    except (KeyboardInterrupt, typer.Abort):
        sys.exit(130)
    sys.exit(code if isinstance(code, int) else 0)


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


def _hint(error: Error) -> str | None:
    if isinstance(error, ShardMapError):
        return "`hushtable shard show MODEL` prints a map, `shard plan --help` makes one"
    if isinstance(error, FetchError):
        # The others say themselves what to do.
        kept = "what was copied is kept: the same command goes on with it"
        return kept if type(error) is FetchError else None
    if isinstance(error, ModelError):
        return "`hushtable model verify MODEL` checks a model, `model build --help` makes one"
    if isinstance(error, TableError):
        return "`hushtable table verify BUNDLE` checks a bundle, `table build --help` makes one"
    if isinstance(error, IdOutOfRange):
        return "nothing was sent to the servers"
    if isinstance(error, VersionMismatch):
        return "`hushtable table info BUNDLE` prints the version that each server should have"
    if isinstance(error, ConnectionError):
        return "the server's /readyz on its metrics port says whether it serves"
    return None

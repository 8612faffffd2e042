"""Runs a command, and says what went wrong."""

from __future__ import annotations

import functools
import sys
from typing import Any, NoReturn

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
from . import leave_unread
from ._groups import root
from .output import USAGE_ERROR, fail, usage_hint, usage_text

__all__ = ["app", "run"]

#: The command with all below it.
app = root()


@functools.cache
def _command() -> Any:
    return typer.main.get_command(app)


def run(arguments: list[str]) -> NoReturn:
    """Runs a command and exits as :func:`hushtable.cli.main` says."""
    as_json = "--json" in arguments
    command = _command()
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
        leave_unread()
    except OSError as error:
        fail(str(error), None, type(error).__name__, 2, as_json)
    except (KeyboardInterrupt, typer.Abort):
        sys.exit(130)
    sys.exit(code if isinstance(code, int) else 0)


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

"""A model's description, as users give it."""

from __future__ import annotations

import os
from pathlib import Path

from ..errors import ConfigError

_Path = str | os.PathLike[str]


def read_description(spec: _Path | str) -> str:
    """A description's text, which may be given as it is.

    Raises:
        ConfigError: a file that is not there, or no text.
    """
    is_text = isinstance(spec, str) and "\n" in spec
    return (str(spec) if is_text else read_spec(spec)) or ""


def read_spec(spec: _Path | None) -> str | None:
    """The text of a description's file; None where there is none to read.

    Raises:
        ConfigError: a file that is not there, or no text.
    """
    if spec is None:
        return None
    try:
        return Path(spec).read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot read the model's description: {error}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"the model's description {os.fspath(spec)} is no text") from error

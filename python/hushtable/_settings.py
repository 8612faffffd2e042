"""The settings of servers, as the native module describes them: one name for each."""

from __future__ import annotations

import difflib
import functools
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from . import _native
from .errors import ConfigError

__all__ = ["Setting", "checked", "did_you_mean", "flat", "nested", "settings"]

PREFIX = "HUSHTABLE_"


@dataclass(frozen=True, slots=True)
class Setting:
    """A field of a server's spec, and with it a flag, a variable and a key of a file.

    Attributes:
        name: the field; with a dot, the field of a field.
        kind: what its value is: ``addr``, ``bytes``, ``choice``, ``count``, ``flag``,
            ``fraction``, ``names``, ``path``, ``paths``, ``text`` or ``time``.
        unit: what numbers count: ``bytes``, ``ms``, ``us``, or None.
        choices: the words that it may be; empty for others.
        default: its value where nobody gives one; None for none.
        unset: what happens then, in words.
        help: what it does.
    """

    name: str
    kind: str
    unit: str | None
    choices: tuple[str, ...]
    default: Any
    unset: str
    help: str

    @property
    def parameter(self) -> str:
        """Its name in Python."""
        return self.name.replace(".", "_")

    @property
    def flag(self) -> str:
        """Its flag."""
        return "--" + self.parameter.replace("_", "-")

    @property
    def variable(self) -> str:
        """Its variable."""
        return PREFIX + self.parameter.upper()


@functools.cache
def settings(scheme: str) -> tuple[Setting, ...]:
    """All settings of a server of this scheme: one of the native module's ``schemes``."""
    return tuple(
        Setting(
            facts.name,
            facts.kind,
            facts.unit,
            tuple(facts.choices),
            json.loads(facts.default_json),
            facts.unset,
            facts.help,
        )
        for facts in _native.options(scheme)
    )


def checked(scheme: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """What was given, by name, with paths as text; names of parts are joined by dots.

    Raises:
        ConfigError: a name that is none of this kind of server, a value of no kind that settings
            have.
    """
    known = {setting.name: setting for setting in settings(scheme)}
    values = {}
    for name, value in given.items():
        setting = known.get(name)
        if setting is None:
            raise ConfigError(_unknown(scheme, name, known))
        if setting.kind == "path" and value is not None:
            value = _path(name, value)
        elif setting.kind == "paths":
            if isinstance(value, str | os.PathLike) or not isinstance(value, Iterable):
                raise ConfigError(f"{name} must be a list of paths, not {value!r}")
            value = [_path(name, one) for one in value]
        elif not isinstance(value, str | int | float | list | tuple | None):
            raise ConfigError(f"{name} cannot be {value!r}: it must be text, a number or a list")
        values[name] = value
    return values


def _path(name: str, value: Any) -> str:
    if not isinstance(value, str | os.PathLike):
        raise ConfigError(f"{name} must be a path, not {value!r}")
    return os.fspath(value)


def _unknown(scheme: str, name: str, known: Iterable[str]) -> str:
    whose = {each.name: each.whose for each in _native.schemes()}
    for other in whose:
        if any(setting.name == name for setting in settings(other)):
            return f"{name} is a setting of {whose[other]}: {whose[scheme]} has none of that name"
    return f"there is no setting {name!r}{did_you_mean(name, known)}"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The nearest of the known names, as the end of a sentence; empty where none is near."""
    near = difflib.get_close_matches(name, list(known), n=1)
    return f": did you mean {near[0]}?" if near else ""


def flat(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Tables within a file's table, as names with dots.

    Raises:
        ConfigError: a table without entries, or one that is there twice.
    """
    found: dict[str, Any] = {}
    for name, value in settings.items():
        parts = {name: value}
        if isinstance(value, Mapping):
            parts = {f"{name}.{part}": one for part, one in flat(value).items()}
            if not parts:
                raise ConfigError(f"[{name}] is empty: leave it out, or say what it is to hold")
        twice = sorted(found.keys() & parts.keys())
        if twice:
            raise ConfigError(f"{twice[0]} is given twice")
        found |= parts
    return found


def nested(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Names with dots, as tables within a table; None in them is left out."""
    found: dict[str, Any] = {}
    for name, value in settings.items():
        table, _, part = name.rpartition(".")
        if not table:
            found[name] = value
        elif value is not None:
            found.setdefault(table, {})[part] = value
    return found

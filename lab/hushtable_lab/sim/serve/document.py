"""A table of a TOML or JSON file, whose values are checked as they are read."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hushtable.errors import ConfigError

__all__ = ["Document", "read_toml"]


class Document:
    """Values by name; what is missing, of another type or out of its range is refused by name."""

    def __init__(self, where: str, found: Mapping[str, Any]) -> None:
        self.where = where
        self.found = found

    def wrong(self, name: str, expected: str) -> ConfigError:
        """The error of a value that is not ``expected``."""
        value = self.found.get(name)
        found = "is missing" if name not in self.found else f"is {value!r}"
        return ConfigError(f"{self.where}: {name} {found}, but must be {expected}")

    def number(
        self, name: str, default: float | None = None, *, above: float | None = None
    ) -> float:
        """A finite number of 0 or more, or above ``above``."""
        value = self.found.get(name, default)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if (
            not is_number
            or not math.isfinite(value)
            or (value < 0 if above is None else value <= above)
        ):
            raise self.wrong(name, "a number of 0 or more" if above is None else f"above {above:g}")
        return float(value)

    def count(self, name: str, default: int | None = None, *, least: int = 1) -> int:
        """A whole number of ``least`` or more."""
        value = self.found.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise self.wrong(name, f"a whole number of {least} or more")
        return value

    def text(self, name: str, default: str | None = None) -> str:
        """Some text."""
        value = self.found.get(name, default)
        if not isinstance(value, str) or not value:
            raise self.wrong(name, "text")
        return value

    def table(self, name: str) -> Document:
        """A table of it; empty where there is none."""
        value = self.found.get(name, {})
        if not isinstance(value, Mapping):
            raise self.wrong(name, "a table")
        return Document(f"{self.where}, [{name}]", value)

    def tables(self, name: str) -> list[Document]:
        """Tables of it, one or more."""
        value = self.found.get(name)
        if (
            not isinstance(value, list)
            or not value
            or not all(isinstance(one, Mapping) for one in value)
        ):
            raise self.wrong(name, f"one or more tables: [[{name}]]")
        return [
            Document(f"{self.where}, [[{name}]] {number}", one)
            for number, one in enumerate(value, 1)
        ]

    def numbers(self, name: str) -> list[float]:
        """Numbers above 0, one or more."""
        value = self.found.get(name)
        if not isinstance(value, list) or not value:
            raise self.wrong(name, "a list of numbers above 0")
        return [Document(self.where, {name: one}).number(name, above=0) for one in value]

    def known(self, *names: str) -> None:
        """Refuses names that mean nothing: most likely they are misspelt."""
        for name in self.found:
            if name not in names:
                raise ConfigError(
                    f"{self.where}: {name} is not known; there are {', '.join(names)}"
                )


def read_toml(path: Path) -> Document:
    """The file, which must be format 1.

    Raises:
        ConfigError: no such file, no TOML, or of another format.
    """
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{path} cannot be read as TOML: {error}") from error
    document = Document(path.name, found)
    if document.count("format") != 1:
        raise document.wrong("format", "1")
    return document

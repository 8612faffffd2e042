"""Licences: what an expression allows, and under which ones something is used here.

The policy is `allow` of deny.toml, for crates and for Python's packages alike. What cargo-deny has
no place for (names that packages use in place of SPDX's, exceptions by package) is
`tool.hushtable.licences` of pyproject.toml.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from fnmatch import fnmatchcase
from functools import cache
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
#: Which one is taken where there is a choice: first of all what this project has itself.
PREFERRED = ("Apache-2.0", "MIT", "BSD-3-Clause", "BSD-2-Clause", "ISC", "Zlib")
_TOKEN = re.compile(r"\(|\)|[^\s()]+(?:\s+WITH\s+\S+?(?=[\s)]|$))?")


def alternatives(expression: str) -> list[frozenset[str]]:
    """Sets of licences, each of which an SPDX expression offers: of `A AND (B OR C)` two.

    Raises:
        ValueError: no expression.
    """
    # Old manifests put a slash for OR.
    tokens = _TOKEN.findall(expression.replace("/", " OR "))
    at = 0

    def either() -> list[frozenset[str]]:
        nonlocal at
        found = both()
        while at < len(tokens) and tokens[at] == "OR":
            at += 1
            found += both()
        return found

    def both() -> list[frozenset[str]]:
        nonlocal at
        found = one()
        while at < len(tokens) and tokens[at] == "AND":
            at += 1
            other = one()
            found = [left | right for left in found for right in other]
        return found

    def one() -> list[frozenset[str]]:
        nonlocal at
        if at == len(tokens) or tokens[at] in (")", "OR", "AND"):
            raise ValueError(f"{expression!r} is no expression of licences")
        at += 1
        if tokens[at - 1] != "(":
            return [frozenset({" ".join(tokens[at - 1].split())})]
        found = either()
        if at == len(tokens) or tokens[at] != ")":
            raise ValueError(f"{expression!r} has a bracket that is not closed")
        at += 1
        return found

    found = either()
    if at != len(tokens):
        raise ValueError(f"{expression!r} is no expression of licences")
    return found


@cache
def allowed() -> frozenset[str]:
    """The licences that this project may be made of."""
    return frozenset(tomllib.loads((ROOT / "deny.toml").read_text())["licenses"]["allow"])


@cache
def _of_packages() -> dict[str, dict[str, str]]:
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
    table: dict[str, dict[str, str]] = tools["hushtable"]["licences"]
    return table


def taken(expression: str) -> frozenset[str]:
    """The licences under which something is used, of those that its expression offers.

    Raises:
        ValueError: the policy allows none of them.
    """
    offered = [found for found in alternatives(expression) if found <= allowed()]
    if not offered:
        raise ValueError(f"{expression} is not allowed by deny.toml")
    rank = {name: place for place, name in enumerate(PREFERRED)}
    return min(offered, key=lambda found: (sum(rank.get(name, 9) for name in found), sorted(found)))


def expression_of(found: metadata.Distribution) -> str:
    """What an installed package says of its licence, as an SPDX expression.

    Raises:
        ValueError: it says nothing that has a name here.
    """
    head = found.metadata
    if "License-Expression" in head:
        return head["License-Expression"]
    names = _of_packages()["names"]
    said = head["License"].strip() if "License" in head else ""
    marks = [line for line in head.get_all("Classifier", []) if line.startswith("License ::")]
    for text in (said, *marks):
        text = text.removeprefix("License :: OSI Approved :: ")
        if text in names:
            return str(names[text])
        if text in allowed():
            return str(text)
    try:
        if said and all(one <= allowed() for one in alternatives(said)):
            return said
    except ValueError:
        pass
    raise ValueError(f"{head['Name']} says of its licence {said[:60]!r} and {marks}")


def normalised(name: str) -> str:
    """A package's name as indexes spell it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def needed_by(
    requirements: list[str], folder: Path | None = None
) -> Iterator[metadata.Distribution]:
    """The installed packages that requirements name, and those that these need, each once.

    Of what is installed in a folder; without one, in this environment.
    """
    where = (
        metadata.distributions() if folder is None else metadata.distributions(path=[str(folder)])
    )
    installed = {normalised(one.metadata["Name"]): one for one in where}
    todo = [(Requirement(text), "") for text in requirements]
    # With which extras a package has been looked through.
    seen: dict[str, set[str]] = {}
    while todo:
        requirement, extra = todo.pop()
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": extra}):
            continue
        name = normalised(requirement.name)
        new = {"", *requirement.extras} - seen.get(name, set())
        if not new:
            continue
        found = installed.get(name)
        if found is None:
            # An extra that is not installed here.
            continue
        if name not in seen:
            yield found
        seen.setdefault(name, set()).update(new)
        todo += [(Requirement(text), part) for part in new for text in found.requires or ()]


def defect(found: metadata.Distribution) -> str | None:
    """Why the policy does not let a package be depended on; None where it does."""
    name = normalised(found.metadata["Name"])
    if any(fnmatchcase(name, pattern) for pattern in _of_packages()["exceptions"]):
        return None
    try:
        taken(expression_of(found))
    except ValueError as error:
        return f"{name} {found.version}: {error}"
    return None

"""What files say of the release: its version, and where the project is.

`version` and `repository` of Cargo.toml's workspace say it; the others follow.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

#: What stands in Cargo.toml as long as the project has no public address.
NOWHERE = "example.invalid"
_VERSION = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)")
_NUMBERS = r"\d+\.\d+\.\d+"
_ADDRESS = r"https?://[^\s\"\]]+?"
_DAY = r"\d{4}-\d\d-\d\d"
_CHART = "deploy/helm/hushtable/Chart.yaml"
#: (file, what stands before the field, what stands after it); the field is between.
_VERSIONS = (
    ("Cargo.toml", r'^version = "', r'"$'),
    ("Cargo.lock", r'^name = "hushtable-[a-z]+"\nversion = "', r'"$'),
    ("fuzz/Cargo.lock", r'^name = "hushtable-(?!fuzz)[a-z]+"\nversion = "', r'"$'),
    ("lab/pyproject.toml", r'^version = "', r'"$'),
    ("lab/pyproject.toml", r'^dependencies = \["hushtable==', r'"\]$'),
    (_CHART, r"^version: ", r"$"),
    (_CHART, r'^appVersion: "', r'"$'),
    ("CITATION.cff", r"^version: ", r"$"),
    ("docs/kubernetes.md", r"registry\.left\.example/hushtable(?::|, tag: )", r"(?=[ }]|$)"),
)
_ADDRESSES = (
    ("Cargo.toml", r'^repository = "', r'"$'),
    *(
        (path, rf'^{name} = "', rf'{tail}"$')
        for path in ("pyproject.toml", "lab/pyproject.toml")
        for name, tail in (
            ("Source", ""),
            ("Documentation", "/tree/main/docs"),
            ("Changelog", r"/blob/main/CHANGELOG\.md"),
            ("Security", r"/blob/main/SECURITY\.md"),
        )
    ),
    (_CHART, r"^home: ", r"$"),
    (_CHART, r"^sources: \[", r"\]$"),
    ("CITATION.cff", r"^repository-code: ", r"$"),
)


class Refused(Exception):
    """Why there is no release of this tree; what to do is in it."""


def parsed(version: str) -> tuple[int, int, int]:
    """A version's three numbers.

    Raises:
        Refused: it has none.
    """
    match = _VERSION.fullmatch(version)
    if match is None:
        raise Refused(f"VERSION={version!r} is no version: give three numbers, as 0.2.0")
    major, minor, patch = map(int, match.groups())
    return major, minor, patch


def version_of(root: Path) -> str:
    """The version of a tree."""
    workspace = tomllib.loads((root / "Cargo.toml").read_text())["workspace"]
    return str(workspace["package"]["version"])


def address_of(root: Path) -> str:
    """Where the project of a tree is: an address without a slash at its end."""
    workspace = tomllib.loads((root / "Cargo.toml").read_text())["workspace"]
    return str(workspace["package"]["repository"]).rstrip("/")


def rewritten(root: Path, version: str, address: str, day: str | None = None) -> dict[str, str]:
    """The texts of all files with fields, by path, once they say this. Nothing is written.

    Args:
        root: the tree.
        version: the version that they are to have.
        address: where the project is.
        day: when the version was released, as 2026-11-28; None leaves it.

    Raises:
        Refused: a file without its field.
    """
    texts: dict[str, str] = {}
    fields = [(*field, _NUMBERS, version) for field in _VERSIONS]
    fields += [(*field, _ADDRESS, address) for field in _ADDRESSES]
    if day is not None:
        fields.append(("CITATION.cff", r"^date-released: ", r"$", _DAY, day))
    for path, before, after, kind, value in fields:
        text = texts.get(path) or (root / path).read_text()
        pattern = re.compile(f"({before}){kind}({after})", re.MULTILINE)
        texts[path], count = pattern.subn(rf"\g<1>{value}\g<2>", text)
        if not count:
            raise Refused(f"{path} has no field {before}: .ci/release/fields.py says where it was")
    return texts


def unlike(root: Path) -> Iterator[str]:
    """Files that do not say what Cargo.toml says."""
    for path, text in rewritten(root, version_of(root), address_of(root)).items():
        if text != (root / path).read_text():
            yield path


def section(changelog: str, title: str) -> str:
    """What a changelog says under a heading, without the heading; nothing where there is none."""
    match = re.search(rf"^## {re.escape(title)}\b[^\n]*\n(.*?)(?=^## |\Z)", changelog, re.M | re.S)
    return match[1].strip() if match else ""


def cut(changelog: str, version: str, day: str) -> str:
    """The changelog once what was unreleased is a version's.

    Raises:
        Refused: nothing is unreleased, or the version is there already.
    """
    if section(changelog, version):
        raise Refused(f"CHANGELOG.md has a {version} already: choose the next version")
    if not section(changelog, "Unreleased"):
        raise Refused("CHANGELOG.md has nothing under Unreleased: say there what is new")
    heading = re.compile(r"^## Unreleased\n", re.M)
    return heading.sub(f"## Unreleased\n\n## {version} ({day})\n", changelog, count=1)

"""The crates that are compiled into a wheel's module, on either processor."""

from __future__ import annotations

import json
import subprocess
import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TARGETS = ("x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu")


@dataclass(frozen=True)
class Crate:
    """A crate of crates.io: where its sources are, and what is known of it."""

    name: str
    version: str
    folder: Path
    expression: str
    authors: tuple[str, ...]
    repository: str
    sha256: str


def linked(root: Path = ROOT) -> list[Crate]:
    """All of them, by name. Those of this project are not among them, nor what only builds run.

    Raises:
        CalledProcessError: cargo has not got them all, and no network to get them.
    """
    names = set()
    # Macros run in builds alone. `cargo metadata` would unite features of all crates.
    options = ["-p", "hushtable-python", "-e", "normal,no-proc-macro", "--prefix", "none"]
    for target in TARGETS:
        listed = _cargo(["tree", "--target", target, *options, "-f", "{p}"], root)
        names |= {tuple(line.split()[:2]) for line in listed.splitlines() if line}
    filters = [word for target in TARGETS for word in ("--filter-platform", target)]
    packages = json.loads(_cargo(["metadata", "--format-version", "1", *filters], root))["packages"]
    lock = tomllib.loads((root / "Cargo.lock").read_text())["package"]
    sums = {(one["name"], one["version"]): one.get("checksum", "") for one in lock}
    found = [
        Crate(
            name=package["name"],
            version=package["version"],
            folder=Path(package["manifest_path"]).parent,
            expression=package["license"] or "",
            authors=tuple(package["authors"]),
            repository=package["repository"] or "",
            sha256=sums[package["name"], package["version"]],
        )
        for package in packages
        if package["source"] is not None and (package["name"], f"v{package['version']}") in names
    ]
    return sorted(found, key=lambda crate: (crate.name, crate.version))


def _cargo(arguments: list[str], root: Path) -> str:
    command = ["cargo", *arguments, "--locked"]
    return subprocess.check_output(command, cwd=root, text=True, stderr=subprocess.PIPE)

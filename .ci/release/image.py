"""What the image is made of, pinned: Python's packages by hash, the images below it by digest."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from . import fields

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ROOT / "deploy" / "image.txt"
BASES = ROOT / "deploy" / "image.digests"
#: Which Python the image has, and on which processors.
PYTHON = "3.13"
CPUS = ("x86_64", "aarch64")
#: Beside what the wheel needs with its extra `remote`: what fsspec needs for s3://.
BESIDE = ("s3fs",)
_BASE = re.compile(r"^ARG (RUST|PYTHON)=(\S+)$", re.MULTILINE)
_HEAD = """\
# What the image installs beside the wheel: what `hushtable[remote]` needs, and s3fs. Made by
# `python .ci/release image`, for Python 3.13 on x86-64 and arm64.
"""


def packages(requirements: list[str]) -> str:
    """The packages that requirements need, each with the hashes of its files for the image.

    Raises:
        CalledProcessError: pip finds no such packages.
    """
    found: dict[str, set[str]] = {}
    for cpu in CPUS:
        platforms = [f"--platform=manylinux_{at}_{cpu}" for at in ("2_28", "2_17")]
        platforms.append(f"--platform=manylinux2014_{cpu}")
        with tempfile.TemporaryDirectory() as folder:
            report = Path(folder) / "report.json"
            how = ["--quiet", "--dry-run", "--ignore-installed", "--only-binary=:all:"]
            where = [f"--python-version={PYTHON}", f"--target={folder}", f"--report={report}"]
            pip = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check"]
            subprocess.run([*pip, *how, *platforms, *where, *requirements], check=True)
            for one in json.loads(report.read_text())["install"]:
                name = f"{one['metadata']['name'].lower()}=={one['metadata']['version']}"
                digest = one["download_info"]["archive_info"]["hashes"]["sha256"]
                found.setdefault(name, set()).add(digest)
    lines = []
    for name in sorted(found):
        lines.append(
            " \\\n".join([name, *(f"    --hash=sha256:{one}" for one in sorted(found[name]))])
        )
    return _HEAD + "\n".join(lines) + "\n"


def bases() -> dict[str, str]:
    """The images below, as Containerfile names them: RUST and PYTHON."""
    return dict(_BASE.findall((ROOT / "Containerfile").read_text()))


def digests() -> str:
    """The images below by digest, a line each, as their registry has them today.

    Raises:
        Refused: no builder is at work, or it cannot reach the registry.
    """
    builders = ("podman", "docker")
    builder = next((name for name in builders if shutil.which(name) and _works(name)), None)
    if builder is None:
        raise fields.Refused(
            "the bases are not pinned: that takes podman or docker at work, and the network"
        )
    lines = []
    for name, base in sorted(bases().items()):
        subprocess.run([builder, "pull", "--quiet", base], check=True, stdout=subprocess.DEVNULL)
        shown = [builder, "image", "inspect", "--format", "{{index .RepoDigests 0}}", base]
        found = subprocess.check_output(shown, text=True).strip()
        if "@sha256:" not in found:
            raise fields.Refused(f"{builder} says of {base} no digest but {found!r}")
        lines.append(f"{name}={found}\n")
    return "".join(lines)


def _works(builder: str) -> bool:
    return subprocess.run([builder, "info"], capture_output=True).returncode == 0

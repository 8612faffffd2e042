"""What releases are made by, for tests of it: the package of .ci/release."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / ".ci"))

from release import contents, crates, fields, image, licences, notices, sbom, tree  # noqa: E402

__all__ = [
    "NO_NETWORK",
    "ROOT",
    "command",
    "contents",
    "crates",
    "fields",
    "image",
    "licences",
    "notices",
    "sbom",
    "tree",
]

#: What cargo says where it has not got a crate, and cannot get it.
NO_NETWORK = re.compile(
    r"offline|[Ff]ailed to (?:download|fetch|query)|[Cc]ould(?:n't| not) resolve"
)


def _command() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "release_command", ROOT / ".ci" / "release" / "__main__.py"
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


#: What `python .ci/release` runs.
command = _command()

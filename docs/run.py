"""Runs what README.md and the pages of docs/ show, so that it stays true.

    .venv/bin/python docs/run.py [PAGE ...]

Every fenced block marked `bash` or `python` runs, a page's blocks in order, in one new folder and
one shell; a command that fails fails the page. Of blocks marked `console` the `hushtable` commands
are parsed, as the command would, and not run. Blocks marked otherwise (`text`, `toml`) are shown.
Servers that a page starts in the background end with it.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import commands

ROOT = Path(__file__).resolve().parents[1]
SECONDS_MAX = 120
_BLOCK = re.compile(r"^```(bash|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_END = "PYTHON_BLOCK_ENDS"


def script(page: Path) -> tuple[str, int]:
    """A page's blocks as one shell script, and how many there are."""
    blocks = _BLOCK.findall(page.read_text(encoding="utf-8"))
    lines = ["set -euo pipefail"]
    for language, body in blocks:
        # `python -` and not `-c`: the block then reads as it does on the page.
        lines.append(body if language == "bash" else f"python - <<'{_END}'\n{body}{_END}\n")
    return "\n".join(lines), len(blocks)


def run(page: Path) -> bool:
    """Runs a page; says how it went and, where it went wrong, what it printed."""
    text, count = script(page)
    name = page.relative_to(ROOT)
    if wrong := commands.defects(page.read_text(encoding="utf-8")):
        print(f"{name}: commands that would not be taken\n" + "\n".join(wrong), file=sys.stderr)
        return False
    if count == 0:
        print(f"{name}: nothing to run")
        return True
    binaries = Path(sys.executable).parent
    environment = {**os.environ, "PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}"}
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="hushtable-docs-") as folder:
        # Its own process group, so that servers left in the background can be ended with it.
        shell = subprocess.Popen(
            ["bash", "-c", text],
            cwd=folder,
            # What the machine keeps of what was used goes with the folder.
            env={**environment, "XDG_STATE_HOME": f"{folder}/.state"},
            stdin=subprocess.DEVNULL,
            stdout=(Path(folder) / ".printed").open("wb"),
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code: int | None = shell.wait(timeout=SECONDS_MAX)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGTERM)
            shell.wait(timeout=20)
        printed = (Path(folder) / ".printed").read_text(errors="replace")
    seconds = time.monotonic() - started
    if code == 0:
        print(f"{name}: {count} blocks passed in {seconds:.1f} s")
        return True
    how = "did not end in time" if code is None else f"failed with {code}"
    print(f"{name}: {how}\n{printed}", file=sys.stderr)
    return False


def main() -> int:
    """Runs the pages named, or all; 1 where one failed."""
    pages = [Path(page).resolve() for page in sys.argv[1:]]
    pages = pages or [
        ROOT / "README.md",
        *sorted((ROOT / "docs").glob("*.md")),
        *sorted((ROOT / "examples").glob("*/README.md")),
    ]
    results = [run(page) for page in pages]
    print(f"{sum(results)} pages passed, {len(results) - sum(results)} failed")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())

"""How much memory a process held."""

from __future__ import annotations

import os
import resource
from pathlib import Path

__all__ = ["peak_bytes"]


def peak_bytes(process: int | None = None) -> int:
    """The most memory that a process held: this one, if none is named."""
    try:
        path = Path(f"/proc/{os.getpid() if process is None else process}/status")
        lines = path.read_text(encoding="utf-8").splitlines()
        line = next(line for line in lines if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024
    except (OSError, StopIteration, ValueError, IndexError):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

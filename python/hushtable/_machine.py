"""What this machine has, and how fast it reads and computes."""

from __future__ import annotations

import functools
import importlib.util
import os
from pathlib import Path
from typing import Any

from . import _native

_STREAM_BYTES = 1 << 30


def cores() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0))


@functools.cache
def read_gb_per_s(bytes_: int, threads: int) -> float:
    """Measured read bandwidth over ``bytes_`` of memory, at most 1 GiB, by ``threads`` threads."""
    return _native.read_gb_per_s(min(bytes_, _STREAM_BYTES), threads)


@functools.cache
def instruction_ns() -> tuple[float | None, float | None]:
    """Measured (``vgf2p8affineqb``, ``vaesenc``) of 512 bits, in ns; None below AVX-512."""
    return _native.instruction_ns()


def wheel_folders() -> list[Path]:
    """The folders of NVIDIA's wheels with NVRTC: ``nvidia/cuda_nvrtc/lib``, ``nvidia/cu13/lib``."""
    try:
        spec = importlib.util.find_spec("nvidia")
    except (ImportError, ValueError):  # a module of that name that is no package
        return []
    roots = [] if spec is None else spec.submodule_search_locations or []
    found = [folder for root in roots for folder in sorted(Path(root).glob("*/lib"))]
    return [folder for folder in found if any(folder.glob("libnvrtc.so*"))]


def gpu_report() -> dict[str, Any]:
    """What was looked for and what was found, for ``hushtable doctor``."""
    folders = [str(folder) for folder in wheel_folders()]
    report: dict[str, Any] = _native.gpu_report(folders)
    report["visible_devices"] = os.environ.get("CUDA_VISIBLE_DEVICES")
    return report

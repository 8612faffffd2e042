"""This machine's processor, measured: each operation alone, never a whole retrieval.

``python -m hushtable_lab.sim.accelerator.measured NAME > NAME.toml`` keeps what was found.
"""

from __future__ import annotations

import datetime
import platform
import sys
from collections.abc import Callable
from pathlib import Path

from hushtable import _native
from hushtable._machine import cores
from hushtable.errors import ConfigError

from ... import native
from .processor import OPERATIONS, Processor, ProcessorSpec, ReadRate

__all__ = ["best_of", "measure"]

#: Sizes at which memory is read, each to twice the last but one.
_READ_BYTES = tuple(mib << 20 for mib in (1, 4, 16, 64, 128, 256, 1024))
_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")


def measure(
    parameters: str = "n4096_128",
    *,
    seconds: float = 0.02,
    read_bytes_max: int = 1 << 30,
    progress: Callable[[], None] | None = None,
) -> Processor:
    """The processor that this runs on.

    Args:
        parameters: the set whose operations are measured.
        seconds: of measuring each of some dozen operations.
        read_bytes_max: most memory that is read, and allocated.
        progress: called after each measurement.

    Raises:
        ConfigError: where the processor has no 52-bit multiplications, whose time the model needs.
    """
    one_ns = native.multiply_ns()
    if one_ns is None:
        raise ConfigError(
            "this processor has no AVX-512 IFMA, whose multiplications the model counts: "
            "give a machine's file instead of `this`"
        )
    first, second = cache_bytes()
    us = {}
    for operation in OPERATIONS:
        times = native.unit_seconds(
            operation, parameters=parameters, bytes=second // 2, seconds=seconds
        )
        us[operation] = min(times) * 1e6
        if progress is not None:
            progress()
    reads = []
    for size in _READ_BYTES:
        if size > max(read_bytes_max, _READ_BYTES[1]):
            break
        one, every = (_native.read_gb_per_s(size, threads) for threads in (1, cores()))
        gathers = native.unit_seconds("gather", parameters=parameters, bytes=size, seconds=seconds)
        reads.append(ReadRate(size, one, max(one, every), min(gathers) * 1e6))
        if progress is not None:
            progress()
    model = _model_name()
    when = datetime.datetime.now(datetime.UTC).date().isoformat()
    spec = ProcessorSpec(
        name="this",
        measured=f"{model}, {cores()} cores, {when}",
        parameters=parameters,
        cores=cores(),
        first_cache_bytes=first,
        second_cache_bytes=second,
        instruction_ns=one_ns,
        us=us,
        reads=tuple(reads),
    )
    return Processor.checked(spec)


def best_of(one: Processor, two: Processor) -> Processor:
    """The lower of both times of each operation, and the higher of both rates of each read: what an
    undisturbed moment would have shown, where others use the machine too.
    """
    pairs = zip(one.reads, two.reads, strict=False)
    return Processor(
        two.name,
        two.measured,
        two.parameters,
        two.cores,
        two.first_cache_bytes,
        two.second_cache_bytes,
        min(one.instruction_ns, two.instruction_ns),
        {name: min(one.us[name], two.us[name]) for name in OPERATIONS},
        tuple(
            ReadRate(
                a.bytes,
                max(a.one_gb_per_s, b.one_gb_per_s),
                max(a.all_gb_per_s, b.all_gb_per_s),
                min(a.gather_us, b.gather_us),
            )
            for a, b in pairs
        ),
    )


def cache_bytes() -> tuple[int, int]:
    """Bytes of a core's first-level data cache and of its second-level cache, as the system says
    them; of a small core where it does not.
    """
    found = {1: 32 << 10, 2: 512 << 10}
    for folder in sorted(_CACHES.glob("index*")):
        try:
            kind = (folder / "type").read_text().strip()
            level = int((folder / "level").read_text())
            size = (folder / "size").read_text().strip()
        except (OSError, ValueError):
            continue
        if kind != "Instruction" and level in found and size.endswith("K"):
            found[level] = int(size[:-1]) << 10
    return found[1], found[2]


def _model_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


if __name__ == "__main__":
    found = measure(seconds=0.2)
    for _ in range(2):
        found = best_of(found, measure(seconds=0.2))
    sys.stdout.write(found.as_toml())

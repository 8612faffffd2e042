"""This machine, measured: passes of one shard, and how passes that are alike differ.

``python -m hushtable_lab.sim.serve.measured NAME > NAME.toml`` keeps what was found.
"""

from __future__ import annotations

import datetime
import platform
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from hushtable import _native
from hushtable._machine import cores

from ... import native
from .deployment import Front, Stalls
from .passes import Curve, Profile, Reading

__all__ = ["measure", "stalls_of"]

#: Keys of a pass: the first costs most, and from the engine's best on they grow evenly.
_KEYS = (1, 2, 16, 32, 64, 128, 256)
#: Tables that are measured: the largest is filled in about a second.
_TABLE_BYTES_MAX, _ROWS_LEAST = 256 << 20, 1 << 14
#: Passes that take longer than this many medians stall.
_STALL_FACTOR = 1.5


def stalls_of(seconds: Sequence[float]) -> Stalls:
    """How passes that are alike differ: the spread of the middle two thirds, and what is beyond."""
    times = np.asarray(seconds)
    median = float(np.median(times))
    low, high = np.quantile(np.log(times), [0.16, 0.84])
    stalled = times[times > _STALL_FACTOR * median]
    share = len(stalled) / len(times)
    mean = float(np.mean(stalled) - median) if len(stalled) else 0.0
    return Stalls(min(float(high - low) / 2, 2.0), share, mean)


def measure(
    shapes: Sequence[tuple[int, int]],
    front: Front,
    *,
    threads: Sequence[int] = (),
    seconds: float = 0.12,
    progress: Callable[[int, int], None] | None = None,
) -> Profile:
    """The machine that this runs on.

    Args:
        shapes: rows and row bytes of a shard's part of each table. Larger ones than 256 MB are
            measured at that, and carried over by rows.
        front: what a front takes, which is not measured here.
        threads: to measure; one and all by default.
        seconds: of measuring each number of keys.
        progress: called with how many tables of how many are done.
    """
    threads = threads or sorted({1, cores()})
    sizes: set[tuple[int, int]] = set()
    for rows, row_bytes in shapes:
        most = min(rows, _TABLE_BYTES_MAX // row_bytes)
        sizes |= {(max(1, most), row_bytes), (max(1, min(most, _ROWS_LEAST)), row_bytes)}
    curves: list[Curve] = []
    stalls, best = Stalls(), 0
    runs = [(size, count) for size in sorted(sizes) for count in threads]
    for done, ((rows, row_bytes), count) in enumerate(runs, 1):
        engine = native.Bench(rows, row_bytes, threads=count, isa=None)
        best = best or engine.batch_keys_best
        keys = sorted({min(one, best) for one in _KEYS} | {best})
        times = {one: engine.answer_seconds(one, prg="aes128", seconds=seconds) for one in keys}
        medians = tuple(float(np.median(times[one])) for one in keys)
        curves.append(Curve(rows, row_bytes, count, tuple(keys), medians))
        if count == threads[0] and (rows, row_bytes) == max(sizes, key=lambda one: one[0] * one[1]):
            stalls = stalls_of(engine.answer_seconds(keys[-1], prg="aes128", seconds=10 * seconds))
        if progress is not None:
            progress(done, len(runs))
    reading = _native.read_gb_per_s(_TABLE_BYTES_MAX, cores())
    when = datetime.datetime.now(datetime.UTC).date().isoformat()
    isa = _native.platforms().chosen
    return Profile(
        "this",
        f"{_model_name()}, {cores()} cores, {isa}, {when}",
        best,
        Reading(reading),
        front,
        stalls,
        tuple(curves),
    )


def _model_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _main(name: str) -> None:
    shapes = [
        (1 << power, row_bytes)
        for power in (14, 16, 18, 20)
        for row_bytes in (32, 64, 128, 256, 512)
    ]
    # What `hushtable bench serve --fixed` and the check of bench/shards_sim.py say goes in by hand.
    found = measure(shapes, Front(), seconds=0.3)
    print(found.as_toml().replace('name = "this"', f'name = "{name}"', 1), end="")


if __name__ == "__main__":
    _main(sys.argv[1])

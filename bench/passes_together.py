"""Passes of several engines that share processors: what one takes where each has rows of its own.

An engine by itself finds some of its rows in a cache still from its last pass; one that takes turns
with others finds theirs.
"""

from __future__ import annotations

import dataclasses
import multiprocessing
import os
import time
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from typing import Any

import numpy as np

from hushtable.errors import Error
from hushtable_lab import native
from hushtable_lab.sim.serve import Profile
from hushtable_lab.sim.serve.passes import Curve

#: An engine is made and its rows are filled within it.
START_S_MAX = 120.0
#: Until most passes of an engine have met the others'.
PASSES_LEAST = 12


def together(profile: Profile, engines: int, cpus: set[int], seconds: float) -> Profile:
    """The profile, its largest table's passes measured while so many engines share processors.

    Args:
        profile: as one engine alone has it.
        engines: how many there are. One is alone.
        cpus: that all of them run on; each has a thread.
        seconds: of measuring each number of keys, at least.
    """
    if engines == 1:
        return profile
    largest = max(profile.curves, key=lambda curve: curve.rows * curve.row_bytes)
    found = _measured(largest, engines, cpus, seconds)
    curves = tuple(
        dataclasses.replace(curve, seconds=found) if curve is largest else curve
        for curve in profile.curves
    )
    return dataclasses.replace(profile, curves=curves)


def _measured(curve: Curve, engines: int, cpus: set[int], seconds: float) -> tuple[float, ...]:
    """Processor seconds of a pass, for each number of keys."""
    spawn = multiprocessing.get_context("spawn")
    barrier = spawn.Barrier(engines)
    ends: list[Connection] = []
    children = []
    try:
        for _ in range(engines):
            end, other = spawn.Pipe(duplex=False)
            child = spawn.Process(
                target=_engine, args=(curve, engines, sorted(cpus), seconds, barrier, other)
            )
            child.start()
            other.close()
            ends.append(end)
            children.append(child)
        each = [_received(end, curve, engines, seconds) for end in ends]
    finally:
        for child in children:
            child.terminate()
            child.join()
    cores = min(len(cpus), engines)
    return tuple(
        cores * _of_one([passes[place] for passes in each]) for place in range(len(curve.keys))
    )


def _received(
    end: Connection, curve: Curve, engines: int, seconds: float
) -> list[np.ndarray[Any, np.dtype[np.float64]]]:
    longest = max(PASSES_LEAST * engines * curve.seconds[-1], seconds) + seconds
    if not end.poll(START_S_MAX + 3 * longest * len(curve.keys)):
        raise Error("an engine that shares processors with others did not end")
    try:
        found: list[np.ndarray[Any, np.dtype[np.float64]]] = end.recv()
    except EOFError:
        raise Error("an engine that shares processors with others has failed") from None
    return found


def _engine(
    curve: Curve,
    engines: int,
    cpus: list[int],
    seconds: float,
    barrier: Barrier,
    end: Connection,
) -> None:
    """When each pass of one engine ended, for each number of keys."""
    os.sched_setaffinity(0, cpus)
    engine = native.Bench(curve.rows, curve.row_bytes, threads=1, isa=None)
    found = []
    for keys, alone in zip(curve.keys, curve.seconds, strict=True):
        least = max(seconds, PASSES_LEAST * engines * alone)
        barrier.wait(START_S_MAX)
        times = engine.answer_seconds(keys, prg="aes128", seconds=least)
        # Passes follow each other, and the last has just ended. Linux has one such clock for all.
        now = time.monotonic()
        found.append(now - sum(times) + np.cumsum([0.0, *times]))
    end.send(found)


def _of_one(each: list[np.ndarray[Any, np.dtype[np.float64]]]) -> float:
    """Seconds for each pass of them all, while all of them were at work."""
    begin, end = max(one[0] for one in each), min(one[-1] for one in each)
    passes = 0.0
    for ends in each:
        # Of a pass that is cut, its part.
        passes += float(np.diff(np.interp([begin, end], ends, np.arange(len(ends))))[0])
    return float(end - begin) / passes

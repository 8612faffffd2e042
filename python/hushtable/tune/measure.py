"""Measuring what layouts cost on this machine."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from .. import _native
from ..errors import Error
from ..server import ServerProcess, make_certificates
from .costs import BATCH, CostModel, Sample, fit_costs
from .spec import LayoutSpec, PartSpec, seed_text

__all__ = ["SHAPES", "calibrate", "design_shape", "measure_specs", "measure_wire"]

#: Share by which a measurement may be over the model before it is taken again.
_DOUBT = 0.12
#: Clients that load two servers while messages are measured.
_CLIENTS = 32
#: Layouts whose messages are measured: few bytes, and many in rows so wide that the engine has
#: little to do: (rows, row bytes, bins).
_WIRE_SHAPES = ((1024, 64, 16), (1024, 2048, 32))
#: Longest time in which no answer comes before it is given up.
_WIRE_SECONDS_MAX = 5.0


def _spec(hot: PartSpec | None, full: PartSpec | None) -> LayoutSpec:
    return LayoutSpec(hot, full, ids_max=1024, drop="most-frequent", seed=seed_text(0))


#: (rows, row bytes, layout) of the layouts measured: bins of one leaf and of many, few and many
#: keys, narrow and wide rows, tables that fit a second-level cache and tables that fit none. Passes
#: are short, most below 2 ms, so that even on a busy machine some run undisturbed.
_K = 1 << 10
SHAPES: tuple[tuple[int, int, LayoutSpec], ...] = (
    (4 * _K, 64, _spec(None, PartSpec(4 * _K, 8))),
    (4 * _K, 64, _spec(None, PartSpec(4 * _K, 64))),
    (4 * _K, 256, _spec(None, PartSpec(4 * _K, 16))),
    (8 * _K, 128, _spec(None, PartSpec(8 * _K, 16, 2))),
    (8 * _K, 512, _spec(None, PartSpec(8 * _K, 4))),
    (16 * _K, 32, _spec(None, PartSpec(16 * _K, 128))),
    (16 * _K, 128, _spec(None, PartSpec(16 * _K, 4, 4))),
    (16 * _K, 1024, _spec(None, PartSpec(16 * _K, 2))),
    (32 * _K, 128, _spec(None, PartSpec(32 * _K, 16))),
    (32 * _K, 64, _spec(PartSpec(512, 8), PartSpec(32 * _K, 16))),
    (64 * _K, 64, _spec(PartSpec(4 * _K, 2, 8), PartSpec(64 * _K, 32))),
    (64 * _K, 64, _spec(None, PartSpec(64 * _K, 16, hashes=3))),
    (64 * _K, 64, _spec(None, PartSpec(64 * _K, 16, companions=3))),
    (128 * _K, 64, _spec(PartSpec(8 * _K, 8, companions=1), PartSpec(128 * _K, 16))),
    (128 * _K, 128, _spec(None, PartSpec(128 * _K, 32))),
    (128 * _K, 256, _spec(None, PartSpec(128 * _K, 2))),
    (256 * _K, 64, _spec(None, PartSpec(256 * _K, 1, 2))),
    (192 * _K, 256, _spec(None, PartSpec(192 * _K, 4))),
)


def calibrate(
    *,
    seconds: float = 0.03,
    rounds_max: int = 12,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[CostModel, list[Sample]]:
    """Measures this machine and fits the model to it; keeps nothing.

    Args:
        seconds: time of each measurement.
        rounds_max: times that a layout is measured at most.
        progress: called with (layouts done, layouts).
    """
    stopwatch = _Stopwatch(SHAPES, seconds)
    stopwatch.settle(rounds_max, progress)
    model = fit_costs(stopwatch.samples())
    for _ in range(3):
        doubtful = [
            index
            for index, sample in enumerate(stopwatch.samples())
            if min(model.errors(sample)) < -_DOUBT
        ]
        if not doubtful:
            break
        # What took longer than all others suggest was most likely disturbed.
        stopwatch.measure(doubtful, rounds_max // 3)
        model = fit_costs(stopwatch.samples())
    return model, stopwatch.samples()


def measure_specs(
    shapes: Sequence[tuple[int, int, LayoutSpec]],
    *,
    seconds: float = 0.03,
    rounds_max: int = 12,
    progress: Callable[[int, int], None] | None = None,
) -> list[Sample]:
    """Times layouts on one thread of this machine: (rows, row bytes, spec) each."""
    stopwatch = _Stopwatch(shapes, seconds)
    stopwatch.settle(rounds_max, progress)
    return stopwatch.samples()


class _Stopwatch:
    """Measures layouts again and again: other programs only ever make a pass longer, so the
    shortest median of each counts."""

    def __init__(self, shapes: Sequence[tuple[int, int, LayoutSpec]], seconds: float) -> None:
        self._shapes = shapes
        self._seconds = seconds
        self._layouts = [design_shape(*shape) for shape in shapes]
        self._medians = [{1: list[float](), BATCH: list[float]()} for _ in shapes]

    def settle(self, rounds_max: int, progress: Callable[[int, int], None] | None) -> None:
        """Measures layouts in turn until the two shortest medians of each agree."""
        for _ in range(rounds_max):
            for layout, found in zip(self._layouts, self._medians, strict=True):
                for batch, medians in found.items():
                    if not _agree(medians):
                        medians.append(layout.measure(batch, self._seconds, 1))
            settled = sum(all(map(_agree, found.values())) for found in self._medians)
            if progress is not None:
                progress(settled, len(self._layouts))
            if settled == len(self._layouts):
                return

    def measure(self, indices: Sequence[int], rounds: int) -> None:
        """Measures some layouts anew."""
        for _ in range(rounds):
            for index in indices:
                for batch, medians in self._medians[index].items():
                    medians.append(self._layouts[index].measure(batch, self._seconds, 1))

    def samples(self) -> list[Sample]:
        """What was found so far."""
        return [
            Sample(*shape, layout.costs(), min(found[1]), min(found[BATCH]))
            for shape, layout, found in zip(self._shapes, self._layouts, self._medians, strict=True)
        ]


def _agree(medians: Sequence[float]) -> bool:
    """Whether there are four, of which the two shortest are within a few percent."""
    if len(medians) < 4:
        return False
    first, second = sorted(medians)[:2]
    return second <= 1.03 * first


def design_shape(rows: int, row_bytes: int, spec: LayoutSpec) -> _native.Layout:
    """A layout of a table of zeros that has this shape: for its costs and to be measured."""
    return _design(rows, row_bytes, spec)[1]


def _design(rows: int, row_bytes: int, spec: LayoutSpec) -> tuple[_native.Table, _native.Layout]:
    weight = np.zeros((rows, row_bytes // 4), dtype=np.float32)
    table = _native.Table.from_weight("costs", weight, "f32")
    trace = np.zeros(1, dtype=np.uint32), np.array([0, 1], dtype=np.uint64)
    return table, _native.Profile(*trace, rows).design(table, spec.to_json())


def measure_wire(model: CostModel, *, seconds: float = 1.5) -> CostModel:
    """``model`` with what messages cost a server, measured at two real ones over TLS on loopback.

    What counts is the processor time of the right server, less what its engine takes; both servers
    and the load may share cores.

    Raises:
        Error: the servers did not start, or refused inferences.
    """
    found = [_measure_messages(model, seconds, *shape) for shape in _WIRE_SHAPES]
    (few_bytes, few_seconds), (many_bytes, many_seconds) = found
    each = max((many_seconds - few_seconds) / (many_bytes - few_bytes), 0.0)
    return replace(model, wire=(max(few_seconds - each * few_bytes, 0.0), each))


def _measure_messages(
    model: CostModel, seconds: float, rows: int, row_bytes: int, bins: int
) -> tuple[int, float]:
    """(bytes, seconds) of the right server's messages for one inference."""
    spec = _spec(None, PartSpec(rows, bins))
    table, layout = _design(rows, row_bytes, spec)
    costs = layout.costs()
    with tempfile.TemporaryDirectory(prefix="hushtable-wire-") as folder:
        bundle = Path(folder, "bundle")
        table.with_layout(layout).save(bundle)
        tls = make_certificates(Path(folder, "certificates"))
        with (
            ServerProcess(bundle, "left", tls=tls.server, threads=1) as left,
            ServerProcess(bundle, "right", tls=tls.server, threads=1) as right,
        ):
            while True:
                warmup = seconds / 4
                before = _process_seconds(right.process.pid)
                load = _native.load_bags(
                    left.url, right.url, ca=tls.ca, clients=_CLIENTS, warmup=warmup, seconds=seconds
                )
                spent = _process_seconds(right.process.pid) - before
                if load["requests"] or load["errors"] or seconds > _WIRE_SECONDS_MAX:
                    break
                # Too short for one answer on a busy machine.
                seconds *= 4
    if load["errors"] or not load["requests"]:
        raise Error(
            f"{load['errors']} inferences failed and {load['requests']} were answered in "
            f"{seconds:g} s: see the log"
        )
    # Warm-up included at both: what one inference takes.
    each = spent * seconds / (warmup + seconds) / load["requests"]
    engine = model.batch_seconds(costs, spec) / BATCH
    return costs["up_right_bytes"] + costs["down_bytes"], max(each - engine, 0.0)


def _process_seconds(pid: int) -> float:
    # After the name, which may hold anything: fields 14 and 15 are user and system time (proc(5)).
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

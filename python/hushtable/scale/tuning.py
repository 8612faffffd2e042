"""A tuner's simulations, over layouts and ranges of the trace at once.

Nearly all of a search is spent in :meth:`Simulator.run`: layouts are designed from the profile, and
bags run through their planner. Each layout is worked on by itself, and a long trace in ranges of
bags. What comes back is which accesses were served, and the figures are made here, as ever: the
result is the same, bit for bit, wherever it was worked out.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from .. import _native
from ..errors import ConfigError
from ..table import Table
from ..tune.costs import CostModel
from ..tune.front import Point
from ..tune.search import Simulator, native_arrays
from ..tune.spec import LayoutSpec
from ..tune.trace import Trace
from .pool import Pool, Stage

__all__ = ["RANGE_BAGS", "PooledSimulator", "bag_ranges"]

Bits = npt.NDArray[np.uint8]

#: Bags of a range; a power of two, see :func:`bag_ranges`. Below it a layout is designed more often
#: than is gained.
RANGE_BAGS = 1 << 14
#: Layouts that a worker keeps for the other ranges of the same trace.
_LAYOUTS_MAX = 4


def bag_ranges(bags: int, range_bags: int = RANGE_BAGS) -> list[range]:
    """Bags in ranges that each begin at a multiple of ``range_bags``, a power of two.

    Bag b of a trace is simulated with the random numbers of ``seed ^ b``. Bag i of a range that
    begins at such a b is bag b + i = b ^ i, and so has those of ``(seed ^ b) ^ i``: a range with
    the seed ``seed ^ b`` gives what it would within the whole.
    """
    if range_bags < 1 or range_bags & (range_bags - 1):
        raise ConfigError(f"range_bags is {range_bags}, but must be a power of two")
    return [range(b, min(b + range_bags, bags)) for b in range(0, bags, range_bags)]


class _Bench:
    """What a worker simulates with."""

    def __init__(
        self,
        table: Table,
        learned: tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint64]],
        traces: Sequence[tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint64]]],
        seed: int,
    ) -> None:
        self._table = table._native
        self._profile = _native.Profile(*learned, table.info.rows)
        self._traces = traces
        self._seed = seed
        self._layouts: OrderedDict[str, tuple[_native.Layout, dict[str, int]]] = OrderedDict()

    def run(self, spec: str, trace: int, bags: range) -> tuple[dict[str, int], Bits]:
        layout, costs = self._layout(spec)
        ids, offsets = self._traces[trace]
        first = int(offsets[bags.start])
        own = np.ascontiguousarray(offsets[bags.start : bags.stop + 1] - np.uint64(first))
        part = np.ascontiguousarray(ids[first : first + int(own[-1])])
        kept = layout.simulate(part, own, seed=self._seed ^ bags.start)
        return costs, np.packbits(kept)

    def _layout(self, spec: str) -> tuple[_native.Layout, dict[str, int]]:
        if spec not in self._layouts:
            while len(self._layouts) >= _LAYOUTS_MAX:
                self._layouts.popitem(last=False)
            layout = self._profile.design(self._table, spec)
            self._layouts[spec] = layout, layout.costs()
        self._layouts.move_to_end(spec)
        return self._layouts[spec]


def _work(bench: _Bench, part: tuple[str, int, range]) -> tuple[dict[str, int], Bits]:
    return bench.run(*part)


class PooledSimulator(Simulator):
    """A simulator whose layouts are worked on by a pool.

    Args:
        table: the table.
        learned: the bags of its profile.
        profile: their profile.
        traces: the traces that :meth:`run_all` will be given.
        model: the model of time.
        seed: of the simulations.
        pool: the workers.
        range_bags: bags of a range, a power of two.
    """

    def __init__(
        self,
        table: Table,
        learned: Trace,
        profile: _native.Profile,
        traces: Sequence[Trace],
        model: CostModel,
        seed: int,
        pool: Pool,
        *,
        range_bags: int = RANGE_BAGS,
    ) -> None:
        super().__init__(table._native, profile, model, seed)
        self._traces = list(traces)
        arrays = [native_arrays(trace) for trace in self._traces]
        self._ranges = [bag_ranges(trace.bag_count, range_bags) for trace in self._traces]
        self._stage: Stage = pool.stage(
            # A bundle goes along as its path and version, a table in memory whole.
            _Bench,
            table,
            native_arrays(learned),
            arrays,
            seed,
        )

    def run_all(
        self, specs: Iterable[LayoutSpec], bags: Trace
    ) -> Iterator[tuple[Point, npt.NDArray[np.bool_]]]:
        """As :meth:`Simulator.run_all`, by the pool."""
        number = next((i for i, trace in enumerate(self._traces) if trace is bags), None)
        if number is None:
            yield from super().run_all(specs, bags)
            return
        ranges = self._ranges[number]
        asked: deque[LayoutSpec] = deque()

        def parts() -> Iterator[tuple[str, int, range]]:
            for spec in specs:
                asked.append(spec)
                yield from ((spec.to_json(), number, part) for part in ranges)

        found: list[npt.NDArray[np.bool_]] = []
        for costs, bits in self._stage.map(_work, parts()):
            part = ranges[len(found)]
            accesses = int(bags.offsets[part.stop] - bags.offsets[part.start])
            found.append(np.unpackbits(bits, count=accesses).view(np.bool_))
            if len(found) == len(ranges):
                yield self.point(asked.popleft(), costs, kept := np.concatenate(found)), kept
                found = []

    def close(self) -> None:
        """Lets go of what the workers were given."""
        self._stage.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

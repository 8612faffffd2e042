"""Costs and drops of layouts by arithmetic alone, to choose which are worth simulating.

Costs are those of ``Layout.costs()`` to the byte (a test compares them). Drops are an estimate:
distinct ids are taken to fall into bins at random, and the planner's choice
among the ids of a full hot bin to be about as good as it can be.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from .costs import BATCH, CostModel
from .goals import Figures
from .spec import LEAF_ROWS_MAX, LayoutSpec, PartSpec
from .trace import IntArray, Trace

__all__ = ["Screen", "layout_costs", "overflow"]

FloatArray = npt.NDArray[np.float64]

#: As in crates/table (part.rs) and crates/pir (batch/geometry.rs).
_LEAF_ROWS_STEP = 16
_REQUEST_HEADER_BYTES = 20

#: Places that a hot id without room may be thought to choose from: fits what the planner does.
_CHOICES = 4
#: Bags that drops are estimated on.
_BAGS_MAX = 128


def layout_costs(spec: LayoutSpec, row_bytes: int) -> dict[str, int]:
    """What ``Layout.costs()`` will say of ``spec``."""
    parts = [_part_costs(part, row_bytes) for part in spec.parts]
    total = {name: sum(part[name] for part in parts) for name in parts[0]}
    up_left = _message_bytes(_REQUEST_HEADER_BYTES + total.pop("left_bytes"), 0)
    up_right = _message_bytes(_REQUEST_HEADER_BYTES + total.pop("right_bytes"), 0)
    down = _message_bytes(total.pop("answer_bytes"), 18)
    map_rows = spec.hot.rows * (1 + spec.hot.companions) if spec.hot is not None else 0
    map_rows += spec.full.rows * spec.full.companions if spec.full is not None else 0
    return total | {
        "up_left_bytes": up_left,
        "up_right_bytes": up_right,
        "down_bytes": down,
        "comm_bytes": up_left + up_right + 2 * down,
        "prf_calls": 2 * total["expanded_rows"],
        "map_bytes": 4 * map_rows,
    }


@functools.lru_cache(maxsize=1 << 16)
def _part_costs(part: PartSpec, row_bytes: int) -> dict[str, int]:
    leaves = -(-part.bin_rows // LEAF_ROWS_MAX)
    leaf_rows = -(-part.bin_rows // leaves)
    leaf_rows = -(-leaf_rows // _LEAF_ROWS_STEP) * _LEAF_ROWS_STEP
    bin_rows = leaves * leaf_rows
    depth = (leaves - 1).bit_length()
    key_bytes = 16 * depth + -(-depth // 8) + leaf_rows // 8
    entry_bytes = row_bytes * (1 + part.companions)
    return {
        "keys": part.keys,
        "left_bytes": part.keys * key_bytes if depth else 0,
        "right_bytes": part.keys * key_bytes,
        "answer_bytes": part.keys * entry_bytes,
        "expanded_rows": part.keys * bin_rows,
        "prf_blocks": part.keys * (6 * leaves - 2) if leaves > 1 else 0,
        "product_bytes": part.keys * bin_rows * entry_bytes,
        "stored_bytes": part.bins * bin_rows * entry_bytes,
    }


def _message_bytes(payload_bytes: int, others: int) -> int:
    varint = -(-max(payload_bytes, 1).bit_length() // 7)
    return 5 + 34 + 1 + varint + payload_bytes + others


@functools.lru_cache(maxsize=4096)
def overflow(bins: int, queries: int, balls_max: int) -> FloatArray:
    """Of n balls thrown into ``bins`` that hold ``queries`` each, how many find no room on average.

    For n from 0 to ``balls_max``: float64 [balls_max + 1].
    """
    balls = np.arange(balls_max + 1, dtype=np.float64)
    if queries >= balls_max:
        return np.zeros_like(balls)
    if bins == 1:
        return np.maximum(balls - queries, 0)
    logs = _log_factorials(balls_max)
    log_hit, log_miss = -np.log(bins), np.log1p(-1 / bins)
    # E (X - q)+ = E X - q + sum over k < q of (q - k) P(X = k)
    excess = balls / bins - queries
    for k in range(queries):
        n = balls[k:]
        log_chance = logs[k:] - logs[k] - logs[: len(n)] + k * log_hit + (n - k) * log_miss
        excess[k:] += (queries - k) * np.exp(log_chance)
    return np.maximum(bins * excess, 0)


def _left_over(part: PartSpec, balls_max: int) -> FloatArray:
    """:func:`overflow` of a part; of one whose rows are stored twice or more, a guess."""
    if part.hashes == 1:
        return overflow(part.bins, part.queries, balls_max)
    # Hardly any are lost until the bins are nearly full (for three hashes at 92 % of them), then
    # all that are more.
    room = (0.92 if part.hashes > 2 else 0.7) * part.keys
    soft = 0.3 * np.sqrt(part.keys) + 0.1
    over = (np.arange(balls_max + 1) - room) / soft
    found: FloatArray = soft * np.logaddexp(0, over)
    return found


@functools.lru_cache(maxsize=4)
def _log_factorials(count: int) -> FloatArray:
    return np.concatenate(([0.0], np.cumsum(np.log(np.arange(1, count + 1)))))


class Screen:
    """Estimates layouts of one table for one sample of bags.

    Attributes:
        distinct: distinct ids of each bag looked at, int64 [bags].
    """

    def __init__(
        self, sample: Trace, ranked: npt.NDArray[np.uint32], row_bytes: int, model: CostModel
    ) -> None:
        self._row_bytes = row_bytes
        self._model = model
        count = min(sample.bag_count, _BAGS_MAX)
        bags = np.linspace(0, sample.bag_count - 1, count).astype(np.int64)
        few = sample.take(np.unique(bags))
        ranks = np.empty(len(ranked), dtype=np.int64)
        ranks[ranked] = np.arange(len(ranked))
        # Each bag's distinct ids as ranks, in order: how many are hot is then a search.
        bag_of = few.bag_of_access()
        pairs = np.unique(np.stack((bag_of, ranks[few.ids]), axis=1), axis=0)
        starts = np.searchsorted(pairs[:, 0], np.arange(few.bag_count + 1))
        self._ranks = [pairs[a:b, 1] for a, b in itertools.pairwise(starts)]
        self.distinct: IntArray = np.diff(starts).astype(np.int64)
        self._balls_max = int(self.distinct.max())
        # Where the most frequent go first, those that are dropped mostly stand once in their bag.
        self._accesses = len(few.ids)
        self._hot: dict[int, IntArray] = {}

    def hot_counts(self, rows: int) -> IntArray:
        """Of each bag the distinct ids that are among the ``rows`` most read."""
        if rows not in self._hot:
            counts = [np.searchsorted(ranks, rows) for ranks in self._ranks]
            self._hot[rows] = np.array(counts, dtype=np.int64)
        return self._hot[rows]

    def figures(self, specs: Sequence[LayoutSpec], drop: FloatArray | None = None) -> Figures:
        """Costs and estimated drops of ``specs``; with ``drop``, those drops."""
        costs = [layout_costs(spec, self._row_bytes) for spec in specs]
        if drop is None:
            drop = np.array([self.drop(spec) for spec in specs])
        model, pairs = self._model, list(zip(costs, specs, strict=True))
        wire_ms = np.array([model.wire_seconds(cost) * 1e3 for cost in costs])
        batch_ms = np.array([model.batch_seconds(*pair) * 1e3 for pair in pairs])
        return Figures(
            batch_ms / BATCH + wire_ms,
            batch_ms,
            np.array([model.alone_seconds(*pair) * 1e3 for pair in pairs]) + wire_ms,
            np.array([cost["comm_bytes"] / 1e3 for cost in costs]),
            np.array([cost["prf_calls"] for cost in costs], dtype=np.float64),
            drop,
        )

    def drop(self, spec: LayoutSpec) -> float:
        """The estimated share of accesses dropped, as if there were no companions."""
        return float(self.drops([spec.hot], [spec.full])[0, 0])

    def drops(
        self, hots: Sequence[PartSpec | None], fulls: Sequence[PartSpec | None]
    ) -> FloatArray:
        """:meth:`drop` of every pair of a hot and a full part, float64 [hots, fulls]."""
        # Without a full part all that reaches it is dropped.
        everything = np.arange(self._balls_max + 1, dtype=np.float64)
        tables = np.stack(
            [everything if full is None else _left_over(full, self._balls_max) for full in fulls]
        )
        room = np.array([[0 if full is None else full.keys] for full in fulls], dtype=np.float64)
        found = np.empty((len(hots), len(fulls)))
        for index, hot in enumerate(hots):
            cold, past = self.distinct, np.zeros(len(self.distinct))
            if hot is not None:
                counts = self.hot_counts(hot.rows)
                cold = cold - counts
                past = _left_over(hot, self._balls_max)[counts]
            dropped = tables[:, cold]
            placed = cold - dropped
            # Of the hot ids of a bin that is too full, any may go to the full part, and which does
            # is chosen by where there is room: hardly any fails until the full part is.
            taken = np.minimum((placed + past / 2) / np.maximum(room, 1), 1.0)
            dropped = dropped + np.maximum(past - (room - placed), past * taken**_CHOICES)
            found[index] = dropped.sum(axis=1) / self._accesses
        return found

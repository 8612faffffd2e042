"""Bags of ids on their way to the native module, and their rows on the way back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import pairwise
from typing import Self

import numpy as np
import numpy.typing as npt

from ._ids import Ids, flatten_ids
from ._types import Bag, LookupStats
from .errors import BadIds


@dataclass(frozen=True, slots=True)
class AskedBags:
    """Bags of ids, one after the other.

    Attributes:
        ids: all bags' ids.
        bounds: where in ``ids`` each bag begins, and at last where the last one ends.
        shapes: of each bag the shape that its ids came in.
    """

    ids: npt.NDArray[np.uint64]
    bounds: list[int]
    shapes: list[tuple[int, ...]]

    @classmethod
    def of(cls, bags: Sequence[Ids]) -> Self:
        """Of bags as callers hold them.

        Raises:
            BadIds: bags without an order or a number; else as :func:`flatten_ids`.
            IdOutOfRange: as :func:`flatten_ids`.
        """
        is_list = hasattr(bags, "__len__") and getattr(bags, "ndim", 1) > 0
        if not is_list or isinstance(bags, Mapping | Set | str | bytes):
            raise BadIds(
                f"bags must be a list with the ids of each inference, not a {type(bags).__name__}"
            )
        flat = [flatten_ids(ids) for ids in bags]
        ids = np.concatenate([np.empty(0, np.uint64), *(part for part, _ in flat)])
        bounds = np.cumsum([0, *(part.size for part, _ in flat)])
        return cls(ids, bounds.tolist(), [shape for _, shape in flat])

    def split(
        self,
        rows: npt.NDArray[np.float32],
        kept: npt.NDArray[np.bool_],
        dropped: Sequence[int],
        stats: LookupStats,
    ) -> list[Bag]:
        """Each bag's part of all ids' rows, float32 ``[ids, dim]``."""
        dim = rows.shape[1]
        places = zip(pairwise(self.bounds), self.shapes, dropped, strict=True)
        return [
            Bag(rows[first:end].reshape(*shape, dim), kept[first:end].reshape(shape), lost, stats)
            for (first, end), shape, lost in places
        ]

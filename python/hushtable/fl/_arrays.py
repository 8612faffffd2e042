"""Arrays as they come to the bindings."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import BadIds, RoundError

__all__ = ["DUMMY", "Flags", "Floats", "Ids", "as_floats", "as_ids"]

#: Fills the slots of a user who has fewer values than slots.
DUMMY = 2**32 - 1

Floats = npt.NDArray[np.float32]
Ids = npt.NDArray[np.uint32]
Flags = npt.NDArray[np.bool_]


def as_ids(ids: Any) -> Ids:
    """Whole numbers of any kind, as ids."""
    array = np.asarray(ids)
    if array.size == 0:
        return np.ascontiguousarray(array, dtype=np.uint32)
    if not np.issubdtype(array.dtype, np.integer):
        raise BadIds(f"ids must be integers, not {array.dtype}: pass an integer array or list")
    if int(array.min()) < 0 or int(array.max()) > DUMMY:
        raise RoundError(f"ids must be 0 to {DUMMY}")
    return np.ascontiguousarray(array, dtype=np.uint32)


def as_floats(values: Any, what: str) -> Floats:
    """Two dimensions of numbers, as float32."""
    array = np.asarray(values)
    if not np.issubdtype(array.dtype, np.floating):
        raise TypeError(f"{what} must be floating-point numbers, not {array.dtype}")
    if array.ndim != 2:
        raise RoundError(f"{what} must have two dimensions, not {array.ndim}")
    return np.ascontiguousarray(array, dtype=np.float32)

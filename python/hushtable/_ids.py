"""Ids as callers hold them, to the flat array that the native module takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from .errors import IdOutOfRange

#: An integer array, a (nested) list of integers, one integer, or an integer tensor.
Ids = npt.NDArray[np.integer[Any]] | Sequence[Any] | int | Any


def flatten_ids(ids: Ids) -> tuple[npt.NDArray[np.uint64], tuple[int, ...]]:
    """The ids as one contiguous ``uint64`` array, and the shape they came in.

    Raises:
        TypeError: not integers (booleans and floats are refused, whatever their values).
        ValueError: a ragged nested list.
        IdOutOfRange: a negative id.
    """
    if hasattr(ids, "detach"):  # a tensor, maybe on a device
        ids = ids.detach().cpu().numpy()
    array = np.asarray(ids)
    if array.size == 0 and not hasattr(ids, "dtype"):
        array = array.astype(np.int64)  # numpy takes an empty list for floats
    if array.dtype.kind not in "iu":
        raise TypeError(f"ids must be integers, not {array.dtype}: convert them, e.g. to int64")
    if array.dtype.kind == "i" and array.size and (lowest := int(array.min())) < 0:
        raise IdOutOfRange(f"id {lowest} is out of range: ids start at 0", id=lowest)
    return np.ascontiguousarray(array, dtype=np.uint64).reshape(-1), array.shape


def default_max_ids(count: int) -> int:
    """The power of two at or above ``count``, and at least 1."""
    return 1 << max(count - 1, 0).bit_length()

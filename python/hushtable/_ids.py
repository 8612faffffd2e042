"""Ids as callers hold them, to the flat array that the native module takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from .errors import BadIds, IdOutOfRange

#: An integer array, a (nested) list of integers, one integer, or an integer tensor.
Ids = npt.NDArray[np.integer[Any]] | Sequence[Any] | int | Any


def flatten_ids(ids: Ids) -> tuple[npt.NDArray[np.uint64], tuple[int, ...]]:
    """The ids as one contiguous ``uint64`` array, and the shape they came in.

    Raises:
        BadIds: not integers (booleans and floats are refused, whatever their values), or a ragged
            nested list.
        IdOutOfRange: a negative id, or one that no table has.
    """
    if hasattr(ids, "detach"):  # a tensor, maybe on a device
        ids = ids.detach().cpu().numpy()
    try:
        array = np.asarray(ids)
    except ValueError as error:
        raise BadIds(
            "ids must be integers in an array or in (nested) lists of one length: these lists are "
            "ragged (look each up by itself, or pad them)"
        ) from error
    if array.size == 0 and not hasattr(ids, "dtype"):
        array = array.astype(np.int64)  # numpy takes an empty list for floats
    if array.dtype.kind == "O" and all(type(one) is int for one in array.flat):
        # What 64 bits do not hold.
        far = next(one for one in array.flat if not 0 <= one < 2**64)
        raise IdOutOfRange(f"id {far} is out of range: ids are 0 to 2^32 - 1 at most", id=far)
    if array.dtype.kind not in "iu":
        what = type(ids).__name__ if array.ndim == 0 else f"{array.dtype}"
        raise BadIds(
            f"ids must be integers, not {what}: pass an integer array, a (nested) list of integers "
            "or an integer tensor (int64, say)"
        )
    if array.dtype.kind == "i" and array.size and (lowest := int(array.min())) < 0:
        raise IdOutOfRange(f"id {lowest} is out of range: ids start at 0", id=lowest)
    return np.ascontiguousarray(array, dtype=np.uint64).reshape(-1), array.shape


def default_max_ids(count: int) -> int:
    """The power of two at or above ``count``, and at least 1."""
    return 1 << max(count - 1, 0).bit_length()

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
        BadIds: not integers (booleans and floats are refused, whatever their values), a ragged
            nested list, ids that are masked, or a tensor that has no values.
        IdOutOfRange: a negative id, or one that no table has.
    """
    array = id_array(ids)
    if array.size == 0 and not hasattr(ids, "dtype"):
        array = array.astype(np.int64)  # numpy takes an empty list for floats
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


def id_array(ids: Ids) -> npt.NDArray[Any]:
    """The ids as numpy holds them, none of them changed on the way."""
    try:
        if hasattr(ids, "detach") and hasattr(ids, "numpy"):  # a tensor, maybe on a device
            ids = ids.detach().cpu().numpy()
        array = np.asarray(ids)
    except MemoryError:
        raise
    except ValueError as error:
        raise BadIds(
            "ids must be integers in an array or in (nested) lists of one length: these lists are "
            "ragged (look each up by itself, or pad them)"
        ) from error
    except Exception as error:  # a stranger's __array__, or a tensor without values
        raise BadIds(
            f"ids must be integers: this {type(ids).__name__} gives none ({error})"
        ) from error
    _check_none_masked(ids)
    if isinstance(ids, Sequence) and array.ndim:
        _check_leaves(ids)
    return _from_objects(ids, array)


def _check_none_masked(ids: Ids) -> None:
    if isinstance(ids, np.ma.MaskedArray) and np.ma.is_masked(ids):
        raise BadIds(
            "some of the ids are masked, and numpy would look up what lies behind the mask: leave "
            "them out (ids.compressed()) or fill them (ids.filled(0))"
        )


def _check_leaves(ids: Sequence[Any]) -> None:
    """Refuses what numpy takes for a number beside numbers: a truth, or what a mask hides."""
    if isinstance(ids, range) or set(map(type, ids)) <= {int}:
        return
    for one in ids:
        _check_none_masked(one)
        if isinstance(one, bool) or getattr(one, "dtype", None) is not None:
            if np.asarray(one).dtype.kind == "b":
                raise BadIds("ids must be integers, not bool: True and False are among them")
        elif isinstance(one, Sequence) and not isinstance(one, str | bytes):
            _check_leaves(one)


def _from_objects(ids: Ids, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Integers that came as objects, or that numpy made floats of; else the array as it is."""
    # Of integers that no type of 64 bits holds together numpy makes floats, without a word.
    if array.dtype.kind == "f" and isinstance(ids, Sequence):
        array, floats = np.asarray(ids, dtype=object), array
    elif array.dtype.kind == "O":
        floats = array
    else:
        return array
    for one in array.flat:
        if isinstance(one, bool) or not isinstance(one, int | np.integer):
            return floats
    far = [int(one) for one in array.flat if not 0 <= one < 2**64]
    if far:
        raise IdOutOfRange(f"id {far[0]} is out of range: ids are 0 to 2^32 - 1 at most", id=far[0])
    return array.astype(np.uint64)

"""The arithmetic of embedding bags, in numpy, with torch.nn.EmbeddingBag's semantics."""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from .errors import ConfigError

Mode = Literal["sum", "mean", "max"]
IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float32]


def check_mode(mode: str) -> None:
    """Refuses a mode that is none of the three."""
    if mode not in get_args(Mode):
        raise ConfigError(f"mode must be sum, mean or max, not {mode!r}")


def bag_bounds(
    shape: tuple[int, ...], offsets: IntArray | None, include_last_offset: bool
) -> IntArray:
    """Where each bag starts in the flattened input, and at last where the last one ends.

    Raises:
        ValueError: offsets missing, out of order, out of range, or given with a 2-D input.
    """
    if len(shape) == 2:
        if offsets is not None:
            raise ValueError("a 2-D input is bags of equal length: leave offsets out")
        return np.arange(shape[0] + 1, dtype=np.int64) * shape[1]
    if len(shape) != 1:
        raise ValueError(f"input must be 1-D (with offsets) or 2-D, not {len(shape)}-D")
    if offsets is None:
        raise ValueError("a 1-D input needs offsets: the position where each bag starts")
    if offsets.ndim != 1:
        raise ValueError(f"offsets must be 1-D, not {offsets.ndim}-D")
    if include_last_offset and offsets.size == 0:
        raise ValueError("include_last_offset=True needs at least one offset, the input's length")
    if offsets.size and offsets[0] != 0:
        raise ValueError(f"offsets[0] must be 0, not {offsets[0]}: the first bag starts there")
    bounds = offsets if include_last_offset else np.append(offsets, shape[0])
    if np.any(np.diff(bounds) < 0):
        raise ValueError(f"offsets must not fall, nor pass the input's length of {shape[0]}")
    if bounds[-1] > shape[0]:
        raise ValueError(f"the last offset is {bounds[-1]}, past the input's length of {shape[0]}")
    return bounds.astype(np.int64)


def reduce_bags(
    rows: FloatArray,
    bounds: IntArray,
    mode: Mode,
    *,
    kept: npt.NDArray[np.bool_] | None = None,
    weights: FloatArray | None = None,
) -> FloatArray:
    """Reduces ``rows`` [n, dim] to one row a bag, [bags, dim]; an empty bag is zero.

    ``kept`` [n] leaves rows out of the reduction (and of the mean's count); ``weights`` [n] scale
    rows before they are summed.
    """
    bag_count = len(bounds) - 1
    bag_index = np.repeat(np.arange(bag_count), np.diff(bounds))
    rows = rows[: len(bag_index)]
    if weights is not None:
        rows = rows * weights[: len(bag_index), None]
    if kept is not None:
        kept = kept[: len(bag_index)]
        rows, bag_index = rows[kept], bag_index[kept]
    counts = np.bincount(bag_index, minlength=bag_count)
    if mode == "max":
        reduced = np.full((bag_count, rows.shape[1]), -np.inf, dtype=np.float32)
        np.maximum.at(reduced, bag_index, rows)
        reduced[counts == 0] = 0.0
        return reduced
    reduced = np.zeros((bag_count, rows.shape[1]), dtype=np.float32)
    np.add.at(reduced, bag_index, rows)
    if mode == "mean":
        reduced /= np.maximum(counts, 1).astype(np.float32)[:, None]
    return reduced

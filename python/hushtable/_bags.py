"""The arithmetic of embedding bags, in numpy, with torch.nn.EmbeddingBag's semantics."""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from .errors import ConfigError

Mode = Literal["sum", "mean", "max"]
IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float32]
_Doubles = npt.NDArray[np.float64]


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
    fused: bool = True,
) -> FloatArray:
    """Reduces ``rows`` [n, dim] to one row a bag, [bags, dim]; an empty bag is zero.

    The additions are float32 and in the order of the rows, as in torch's CPU kernels, so that the
    result is theirs to the last bit: a sum starts at zero and takes one row after the other, a mean
    is that sum divided by the count. torch adds weighted rows by fused multiply-adds, which round
    once (its FBGEMM kernel), but rounds the product too where a layer has a ``padding_idx`` (its
    plain kernel).

    Args:
        rows: float32 [n, dim].
        bounds: int64 [bags + 1], where each bag starts, and the end of the last.
        mode: how.
        kept: bool [n]; leaves rows out of the reduction, and of the mean's count.
        weights: float32 [n]; scale rows before they are summed.
        fused: whether a weighted row is added with one rounding.
    """
    bag_count = len(bounds) - 1
    bag_index = np.repeat(np.arange(bag_count), np.diff(bounds))
    rows = rows[: len(bag_index)]
    if weights is not None:
        weights = weights[: len(bag_index)]
    if kept is not None:
        kept = kept[: len(bag_index)]
        rows, bag_index = rows[kept], bag_index[kept]
        weights = None if weights is None else weights[kept]
    counts = np.bincount(bag_index, minlength=bag_count)
    if mode == "max":
        reduced = np.full((bag_count, rows.shape[1]), -np.inf, dtype=np.float32)
        np.maximum.at(reduced, bag_index, rows)
        reduced[counts == 0] = 0.0
        return reduced
    if weights is not None and fused:
        return _fused_sums(rows, weights, counts)
    if weights is not None:
        rows = rows * weights[:, None]
    reduced = np.zeros((bag_count, rows.shape[1]), dtype=np.float32)
    np.add.at(reduced, bag_index, rows)
    if mode == "mean":
        reduced /= np.maximum(counts, 1).astype(np.float32)[:, None]
    return reduced


def _fused_sums(rows: FloatArray, weights: FloatArray, counts: npt.NDArray[np.intp]) -> FloatArray:
    """Weighted sums of bags of ``counts`` rows each, by fused multiply-adds in the rows' order."""
    # A product of two float32 is exact in float64.
    products = rows.astype(np.float64) * weights.astype(np.float64)[:, None]
    # Longest first: the bags that have a row at some position are then the first few.
    order = np.argsort(-counts, kind="stable")
    first = (np.cumsum(counts) - counts)[order]
    totals = np.zeros((len(counts), rows.shape[1]), dtype=np.float32)
    # As torch: what is too large becomes infinite without a word.
    with np.errstate(over="ignore", invalid="ignore"):
        for position in range(int(counts.max(initial=0))):
            active = int(np.count_nonzero(counts > position))
            added = products[first[:active] + position]
            totals[:active] = _round_once(added, totals[:active].astype(np.float64))
    sums = np.empty_like(totals)
    sums[order] = totals
    return sums


def _round_once(left: _Doubles, right: _Doubles) -> FloatArray:
    """``left + right`` as float32, as if the float64 sum had not been rounded before."""
    total = left + right
    # Rounding twice goes wrong only where the first rounding may have made a tie of the second:
    # 2^28 in the 29 bits that float32 does not have, or any bits below its normal numbers.
    tie = (total.view(np.uint64) & np.uint64(0x1FFFFFFF)) == np.uint64(0x10000000)
    doubtful = tie | (np.abs(total) < np.finfo(np.float32).tiny)
    if doubtful.any():
        total[doubtful] = _round_to_odd(left[doubtful], right[doubtful])
    return total.astype(np.float32)


def _round_to_odd(left: _Doubles, right: _Doubles) -> _Doubles:
    """Sums with an odd last bit where they are not exact: those round on as the exact sum does.

    Boldo and Melquiond, "Emulation of FMA and Correctly Rounded Sums: Proved Algorithms Using
    Rounding to Odd" (IEEE Transactions on Computers 57(4), 2008), over Knuth's exact error of a
    sum.
    """
    total = left + right
    part = total - left
    error = (left - (total - part)) + (right - part)
    is_even = (total.view(np.uint64) & np.uint64(1)) == 0
    towards = np.where(error > 0, np.inf, -np.inf)
    return np.where((error != 0) & is_even, np.nextafter(total, towards), total)

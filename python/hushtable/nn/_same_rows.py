"""Holds the rows of a layer against those that are served in its place.

A name and a shape do not make two tables one: the servers may hold the rows of another checkpoint.
So a few rows are computed by both and compared, as far as the table's stored type tells them apart.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import ConfigError
from ..table import Table
from ._module import HAS_TORCH, array_of, is_tensor

if HAS_TORCH:
    import torch

__all__ = ["check_same_rows", "has_values"]

#: The step from a number to the next, of the number itself, by the type that a table is stored in.
_STEPS = {"f32": 2.0**-23, "f16": 2.0**-10, "bf16": 2.0**-7}
#: The smallest step of each, below its normal numbers.
_LEAST = {"f32": 2.0**-149, "f16": 2.0**-24, "bf16": 2.0**-133}


def has_values(layer: Any) -> bool:
    """Whether a layer's weights are there, and not only their shape."""
    return is_tensor(layer.weight) and not layer.weight.is_meta


def check_same_rows(path: str, layer: Any, private: Any, dtype: str) -> None:
    """Computes a few rows by an embedding layer and by the private one, of the same class.

    The ids are the same for every model of a shape: the first two, the last, and padding. They say
    nothing about a user, and are one lookup.

    Args:
        path: where the layer is, for messages.
        layer: with weights that are there.
        private: what is to stand in its place.
        dtype: how the table's values are stored.

    Raises:
        ConfigError: other rows.
        ServerError: a server did not answer.
    """
    last = private.num_embeddings - 1
    padding = [] if layer.padding_idx is None else [layer.padding_idx % (last + 1)]
    ids = np.unique([0, min(1, last), last, *padding])
    wanted = _own_rows(layer, ids)
    found = array_of(private(ids, *_offsets(private, ids)))
    far = _is_far(wanted, found, dtype)
    if not far.any():
        return
    row, column = (int(index[0]) for index in np.nonzero(far))
    (table,) = private.tables()
    raise ConfigError(
        f"{path} and the table {table!r} that is served have other values: row {ids[row]}, column "
        f"{column} is {wanted[row, column]:.9g} in the layer and {found[row, column]:.9g} in the "
        f"table, and {dtype} does not round so far. Load the layer's checkpoint first, and serve "
        "a bundle that was built from it; a layer whose weights are not meant to be the table's is "
        "replaced with compare=False"
    )


def _own_rows(layer: Any, ids: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
    """Rows by the layer's own code."""
    with torch.no_grad():
        given = [
            torch.from_numpy(one).to(layer.weight.device) for one in (ids, *_offsets(layer, ids))
        ]
        return array_of(layer(*given))


def _offsets(layer: Any, ids: npt.NDArray[np.int64]) -> list[npt.NDArray[np.int64]]:
    """Of a layer of bags, those that put each id into one of its own."""
    if not hasattr(layer, "mode"):
        return []
    return [np.arange(len(ids) + int(layer.include_last_offset))]


def _distance(wanted: npt.NDArray[Any], found: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """How far numbers are apart; zero of two that are infinite or no number alike."""
    left, right = wanted.astype(np.float64), found.astype(np.float64)
    same = (left == right) | (np.isnan(left) & np.isnan(right))
    with np.errstate(invalid="ignore"):
        return np.where(same, 0.0, np.nan_to_num(np.abs(left - right), nan=np.inf))


def _is_far(wanted: npt.NDArray[Any], found: npt.NDArray[Any], dtype: str) -> npt.NDArray[np.bool_]:
    """Which numbers are further apart than the type that they are stored in explains."""
    distance = _distance(wanted, found)
    if not dtype.startswith(("int4", "int2")):
        return distance > _rounding(wanted, dtype)
    # Single numbers of such rows may be anywhere in them; whole rows are as near as rows are.
    weight = np.nan_to_num(wanted, nan=0.0, posinf=0.0, neginf=0.0).astype(np.float32)
    stored = Table.from_weight(weight, dtype=dtype).rows(np.arange(len(weight)))
    size = [np.linalg.norm(one, axis=1) for one in (distance, weight - stored, weight)]
    is_far = size[0] > 1.5 * size[1] + 0.1 * size[2]
    return np.asarray(is_far[:, None] & (distance == distance.max(axis=1, keepdims=True)))


def _rounding(wanted: npt.NDArray[Any], dtype: str) -> npt.NDArray[np.float64]:
    """How far a stored number may be from the one that it was made of: one step, not half of one,
    since what a checkpoint holds may have been rounded once before.
    """
    size = np.where(np.isfinite(wanted), np.abs(wanted), 0.0).astype(np.float64)
    largest = size.max(axis=1, keepdims=True)
    if dtype == "int8":
        # A row's values are whole multiples of a scale, of which 127 are its largest.
        return np.broadcast_to(largest / 127, size.shape)
    if dtype.startswith("fp8"):
        step, least = (2.0**-3, 2.0**-17) if "e4m3" in dtype else (2.0**-2, 2.0**-31)
        return np.asarray(np.maximum(size * step, largest * least))
    return np.maximum(size * _STEPS.get(dtype, _STEPS["f32"]), _LEAST.get(dtype, 0.0))

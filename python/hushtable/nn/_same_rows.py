"""Holds the rows of a layer against those that are served in its place.

A name and a shape do not make two tables one: the servers may hold the rows of another checkpoint.
So a few rows are computed by both and compared, as far as the table's stored type tells them apart.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import ConfigError
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
    far = _distance(wanted, found) > _rounding(wanted, dtype)
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


def _rounding(wanted: npt.NDArray[Any], dtype: str) -> npt.NDArray[np.float64]:
    """How far a stored number may be from the one that it was made of: one step, not half of one,
    since what a checkpoint holds may have been rounded once before.
    """
    size = np.where(np.isfinite(wanted), np.abs(wanted), 0.0).astype(np.float64)
    if dtype == "int8":
        # A row's values are whole multiples of a scale, of which 127 are its largest.
        return np.broadcast_to(size.max(axis=1, keepdims=True) / 127, size.shape)
    return np.maximum(size * _STEPS.get(dtype, _STEPS["f32"]), _LEAST.get(dtype, 0.0))

"""Numbers as callers hold them, to the float32 that the native module takes."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ._bags import FloatArray
from ._torchao import dequantized
from .errors import ConfigError, Error

__all__ = ["float_array"]


def float_array(values: Any, what: str, overflow: type[Error] = ConfigError) -> FloatArray:
    """Numbers in their shape, each rounded to float32 once.

    Args:
        values: an array, (nested) lists of one length, or a tensor, on whatever device.
        what: what they are called in errors.
        overflow: the error of a finite number that float32 cannot hold.

    Raises:
        ConfigError: no numbers, complex ones, ragged lists, values that are masked, a tensor that
            has no values (on the meta device) or only some of them (a sparse one).
        Error: as ``overflow`` says.
    """
    array = _array_of(values, what)
    kind = array.dtype.kind
    # Of types that numpy was taught (bfloat16, as JAX has it) it knows that float32 holds them.
    if kind not in "biuf" and (kind != "V" or not np.can_cast(array.dtype, np.float32)):
        raise ConfigError(
            f"{what} must be numbers, not {array.dtype}: pass an array or a tensor of floats"
        )
    with np.errstate(over="ignore"):
        narrow = np.asarray(array, dtype=np.float32)
    if kind in "iuf" and array.dtype.itemsize > 4:
        far = np.isinf(narrow) & np.isfinite(array)
        if far.any():
            place = [int(index[0]) for index in np.nonzero(far)]
            raise overflow(
                f"{what}{place} is {array[far].flat[0]!s}, past the range of float32 (3.4e38): it "
                "would become infinite; scale the values, or make it infinite yourself"
            )
    return narrow


def _array_of(values: Any, what: str) -> npt.NDArray[Any]:
    try:
        if hasattr(values, "detach") and hasattr(values, "numpy"):
            values = dequantized(values).detach().cpu()
            # numpy has no such types; float32 holds all of their values.
            if str(getattr(values, "dtype", "")).startswith(("torch.bfloat16", "torch.float8")):
                values = values.float()
            values = values.numpy()
        array = np.asarray(values)
    except MemoryError:
        raise
    except Exception as error:  # ragged lists, and what tensors without values raise, of any kind
        raise ConfigError(
            f"{what} must be numbers in an array, a tensor, or (nested) lists of one length: this "
            f"{type(values).__name__} is none ({error})"
        ) from error
    rows = values if isinstance(values, list | tuple) else [values]
    if any(isinstance(row, np.ma.MaskedArray) and np.ma.is_masked(row) for row in rows):
        raise ConfigError(
            f"some values of {what} are masked, and numpy would take what lies behind the mask: "
            "fill them with what they are meant to be (values.filled(0))"
        )
    return array

"""Weights that torchao has quantised, as they stand."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["dequantized", "served_codes"]

#: Of torchao's types of codes, those that a table stores with a float32 scale.
_KINDS = {"torch.int8": "int8", "torch.float8_e4m3fn": "fp8_e4m3", "torch.float8_e5m2": "fp8_e5m2"}


def _is_torchao(values: Any) -> bool:
    return type(values).__module__.partition(".")[0] == "torchao"


def dequantized(values: Any) -> Any:
    """The numbers of a tensor of codes; of any other, itself."""
    if _is_torchao(values) or getattr(values, "is_quantized", False):
        return values.detach().dequantize()
    return values


def served_codes(values: Any, dtype: str) -> tuple[int, int, bytes] | None:
    """Rows, dim, and the rows as tables of ``dtype`` serve them, of a tensor whose codes they hold.

    They are symmetric and have a float32 scale a row or group. None of any other tensor.
    """
    codes, scale = (getattr(values, name, None) for name in ("qdata", "scale"))
    if not _is_torchao(values) or codes is None or scale is None:
        return None
    kind, _, group = dtype.partition("/")
    zero = getattr(values, "zero_point", None)
    if (
        kind != _KINDS.get(str(codes.dtype))
        or codes.ndim != 2
        or str(scale.dtype) != "torch.float32"
        or (zero is not None and bool((zero != 0).any()))
        or getattr(values, "act_pre_scale", None) is not None
    ):
        return None
    import torch

    rows, dim = codes.shape
    length = int(group or dim)
    if tuple(values.block_size) != (1, length) or tuple(scale.shape) != (rows, -(-dim // length)):
        return None
    bytes_of: npt.NDArray[np.uint8] = codes.detach().cpu().contiguous().view(torch.uint8).numpy()
    scales = np.ascontiguousarray(scale.detach().cpu().numpy(), dtype="<f4").view(np.uint8)
    return rows, dim, np.concatenate([scales.reshape(rows, -1), bytes_of], axis=1).tobytes()

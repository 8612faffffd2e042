"""What layers are made on: torch's modules, or numpy where there is no torch."""

from __future__ import annotations

import abc
import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from .._bags import FloatArray, IntArray
from .._floats import float_array
from .._ids import flatten_ids
from ..errors import BadIds, ConfigError, IdOutOfRange
from ._handles import take

try:
    import torch
except ImportError:
    HAS_TORCH = False
else:
    HAS_TORCH = True

__all__ = [
    "HAS_TORCH",
    "Module",
    "Served",
    "array_of",
    "as_tensor",
    "check_answers_now",
    "is_tensor",
    "offset_array",
    "output",
    "weight_array",
    "whole_array",
]


class NumpyModule(abc.ABC):
    """What is left of ``torch.nn.Module`` without torch: a layer can be called."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.forward(*args, **kwargs)

    @abc.abstractmethod
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the layer computes."""


if TYPE_CHECKING:
    # Where torch is not installed, this is Any.
    from torch.nn import Module
else:
    Module = torch.nn.Module if HAS_TORCH else NumpyModule


class Served(Module):
    """A layer without weights: what it stands for lies at servers.

    Its state dict holds no rows, but says whose they are: under ``_extra_state`` the tables' names,
    shapes and versions. A checkpoint of the layer that it replaced has a ``weight``; loading one is
    refused, since nothing here could take it.

    Attributes:
        handle: how a compiled or exported program names this layer (:func:`hushtable.nn.bind`).
    """

    handle: str
    #: What the whole model's parameters were turned into: of a fresh layer float32, and wherever
    #: the ids are.
    _dtype: Any = None
    _device: Any = None

    def __init__(self) -> None:
        super().__init__()
        self.handle = take(self)

    def _apply(self, fn: Any, recurse: bool = True) -> Self:
        # As torch turns weights into another type, or moves them: `half()`, `to(...)`, `cuda()`.
        super()._apply(fn, recurse)
        before = torch.empty(0, dtype=self._dtype or torch.float32, device=self._device or "cpu")
        after = fn(before)
        if after.dtype != before.dtype:
            self._dtype = None if after.dtype == torch.float32 else after.dtype
        if after.device not in (before.device, torch.device("meta")):
            self._device = after.device
        return self

    def beside(self, weight: Any) -> None:
        """Gives results on the device of the weight that this layer stands for."""
        if is_tensor(weight) and weight.device.type not in ("cpu", "meta"):
            self._device = weight.device

    def _rounded(self, rows: Any) -> Any:
        """Rows of float32 as the weight of the layer that this one stands for has them."""
        return rows if self._dtype is None else rows.to(self._dtype).float()

    def _own(self, found: Any) -> Any:
        """What the layer gives, in its type and on its device."""
        if self._dtype is None and self._device is None:
            return found
        return found.to(device=self._device, dtype=self._dtype)

    def __setstate__(self, state: dict[str, Any]) -> None:
        # A copy in the same process is another layer.
        if HAS_TORCH:
            super().__setstate__(state)
        else:
            self.__dict__.update(state)
        self.handle = take(self, self.handle)

    @abc.abstractmethod
    def tables(self) -> dict[str, dict[str, Any]]:
        """By name, the tables that this layer reads: ``rows``, ``dim`` and ``version``."""

    def _placeless(self) -> str:
        """Why a ``weight`` of a checkpoint has no place here, and what to do with it."""
        tables = ", ".join(
            f"{name!r} ({facts['rows']} x {facts['dim']})" for name, facts in self.tables().items()
        )
        return (
            f"no place for it: the rows are at servers, in {tables}; build a bundle from the "
            "checkpoint to serve its rows (hushtable model build), or load the rest with "
            "strict=False"
        )

    def extra_state(self) -> dict[str, Any]:
        """What a state dict has instead of the rows."""
        return {"rows are at servers": self.tables()}

    #: As torch asks for it.
    get_extra_state = extra_state

    def set_extra_state(self, state: Any) -> None:
        """Holds another layer's tables against this one's; a newer version is no other table.

        Raises:
            ConfigError: a state of other tables.
        """
        found = state.get("rows are at servers") if isinstance(state, Mapping) else None
        if found is None:
            raise ConfigError("the state dict is not of a layer whose rows are at servers")
        for name, own in self.tables().items():
            other = found.get(name)
            if other is None:
                known = ", ".join(map(repr, found)) or "none"
                raise ConfigError(
                    f"the state dict is of other tables: it has {known}, this layer reads {name!r}"
                )
            if (other["rows"], other["dim"]) != (own["rows"], own["dim"]):
                raise ConfigError(
                    f"the state dict is of a table {name!r} of {other['rows']} x {other['dim']}, "
                    f"but the one that is served is {own['rows']} x {own['dim']}"
                )

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        weights = [
            key
            for key in state_dict
            if key.startswith(prefix) and key.rpartition(".")[2] == "weight"
        ]
        super()._load_from_state_dict(
            state_dict,
            prefix,
            local_metadata,
            strict,
            missing_keys,
            unexpected_keys,
            error_msgs,
        )
        # A checkpoint from before the layer was private has nothing to say here.
        own = f"{prefix}_extra_state"
        if own in missing_keys:
            missing_keys.remove(own)
        for place, key in enumerate(unexpected_keys):
            if key in weights:
                unexpected_keys[place] = _Placeless(key, self._placeless())


class _Placeless(str):
    """A key of a state dict that says why it cannot be loaded where torch lists it as unexpected.

    torch lists what strict loading refuses, and returns what other loading passes over: for whoever
    compares, it is the key and nothing else.
    """

    why: str

    def __new__(cls, key: str, why: str) -> Self:
        made = super().__new__(cls, key)
        made.why = why
        return made

    def __format__(self, spec: str) -> str:
        return format(f"{self!s} [{self.why}]", spec)


def check_answers_now(source: Any) -> None:
    """Refuses a source whose answers are to be awaited: a layer returns them.

    Raises:
        ConfigError: such a source.
    """
    kinds = {
        "lookup": ("lookups", "hushtable.connect()"),
        "lookup_many": ("lookups", "hushtable.connect()"),
        "predict": ("predictions", "hushtable.connect(scheme='shares')"),
    }
    for name, (what, connect) in kinds.items():
        if inspect.iscoroutinefunction(getattr(source, name, None)):
            raise ConfigError(
                f"a layer cannot wait for a {type(source).__name__}, whose {what} are awaited: "
                f"give it a client that {connect} makes"
            )


def is_tensor(value: Any) -> bool:
    """Whether a value is one of torch's tensors."""
    return HAS_TORCH and isinstance(value, torch.Tensor)


def array_of(values: Any) -> npt.NDArray[Any]:
    """A tensor, maybe on a device, or anything that numpy takes, as an array.

    numpy has no bfloat16: such a tensor becomes float32, which holds its values.

    Raises:
        ConfigError: values that are masked: numpy would take what lies behind the mask.
    """
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        raise ConfigError("some values are masked: fill them (values.filled(0)), or leave them out")
    if hasattr(values, "detach"):
        values = values.detach().cpu()
        if HAS_TORCH and values.dtype is torch.bfloat16:
            values = values.float()
        values = values.numpy()
    return np.asarray(values)


def as_tensor(values: Any | None, like: Any) -> Any:
    """What may be given as a list or an array beside a tensor."""
    return values if values is None or is_tensor(values) else output(array_of(values), like)


def offset_array(offsets: Any | None) -> IntArray | None:
    """Offsets of bags as int64, in their shape.

    Raises:
        ConfigError: as :func:`whole_array`.
    """
    return None if offsets is None else whole_array(offsets, "offsets")


def whole_array(values: Any, what: str) -> IntArray:
    """Whole numbers from 0 on as int64, in their shape.

    Raises:
        ConfigError: others, with what they are called.
    """
    try:
        flat, shape = flatten_ids(values)
    except (BadIds, IdOutOfRange) as error:
        raise ConfigError(f"{what} must be whole numbers from 0 on, as ids are: {error}") from error
    return flat.astype(np.int64).reshape(shape)


def weight_array(weights: Any) -> FloatArray:
    """Weights of rows as float32, in their shape.

    Raises:
        ConfigError: no real numbers, or one that float32 cannot hold.
    """
    return float_array(weights, "weights of rows")


def output(values: npt.NDArray[Any], like: Any) -> Any:
    """What a layer returns: a tensor, where ``like`` is; without torch an array."""
    if not HAS_TORCH:
        return values
    tensor = torch.from_numpy(np.asarray(values, order="C"))
    return tensor.to(like.device) if isinstance(like, torch.Tensor) else tensor

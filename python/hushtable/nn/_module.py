"""What layers are made on: torch's modules, or numpy where there is no torch."""

from __future__ import annotations

import abc
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

try:
    import torch
except ImportError:
    HAS_TORCH = False
else:
    HAS_TORCH = True

__all__ = ["HAS_TORCH", "Module", "array_of", "output"]


class NumpyModule(abc.ABC):
    """What is left of ``torch.nn.Module`` without torch: a layer can be called."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.forward(*args, **kwargs)

    @abc.abstractmethod
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the layer computes."""


if TYPE_CHECKING:
    Module = NumpyModule
else:
    Module = torch.nn.Module if HAS_TORCH else NumpyModule


def array_of(values: Any) -> npt.NDArray[Any]:
    """A tensor, maybe on a device, or anything that numpy takes, as an array."""
    if hasattr(values, "detach"):
        values = values.detach().cpu().numpy()
    return np.asarray(values)


def output(values: npt.NDArray[Any], like: Any) -> Any:
    """What a layer returns: a tensor, where ``like`` is; without torch an array."""
    if not HAS_TORCH:
        return values
    tensor = torch.from_numpy(np.asarray(values, order="C"))
    return tensor.to(like.device) if isinstance(like, torch.Tensor) else tensor

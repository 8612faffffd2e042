"""From the mean gradient of a row to its update: the ``Post`` of FEDORA's equation 4, in NumPy.

For :class:`~hushtable.fl.PlainTable`; names, options and defaults are the controller's.
``Pre`` is the weighting by samples and the mean over the users who sent gradients, as in FedAvg.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ._arrays import Floats, Ids

__all__ = ["Aggregate", "FedAdagrad", "FedAdam", "FedAvg", "aggregate_of"]

#: What an aggregate keeps of each row, by name.
State = dict[str, Floats]


class Aggregate(Protocol):
    """One way to update rows."""

    def start(self, shape: tuple[int, ...]) -> State:
        """What is kept of the rows of a table of this shape, before the first round."""

    def step(self, state: State, ids: Ids, means: Floats) -> Floats:
        """What to take from the rows ``ids``, given their mean gradients; updates ``state``."""


@dataclass(frozen=True)
class FedAvg:
    """The mean gradient times ``learning_rate`` (McMahan et al., 2017)."""

    learning_rate: float = 1.0

    def start(self, shape: tuple[int, ...]) -> State:
        """Nothing."""
        return {}

    def step(self, state: State, ids: Ids, means: Floats) -> Floats:
        """See :class:`Aggregate`."""
        return np.float32(self.learning_rate) * means


@dataclass(frozen=True)
class FedAdagrad:
    """Steps that shrink with the sum of squared gradients (Reddi et al., 2021)."""

    learning_rate: float = 0.1
    tau: float = 1e-3

    def start(self, shape: tuple[int, ...]) -> State:
        """The sum of squares."""
        return {"squares": np.zeros(shape, np.float32)}

    def step(self, state: State, ids: Ids, means: Floats) -> Floats:
        """See :class:`Aggregate`."""
        state["squares"][ids] += means**2
        scale = np.sqrt(state["squares"][ids]) + np.float32(self.tau)
        return (np.float32(self.learning_rate) * means / scale).astype(np.float32)


@dataclass(frozen=True)
class FedAdam:
    """Adam of the mean gradients, without correction of its start (Reddi et al., 2021)."""

    learning_rate: float = 0.01
    beta1: float = 0.9
    beta2: float = 0.99
    tau: float = 1e-3

    def start(self, shape: tuple[int, ...]) -> State:
        """Both moments."""
        return {"means": np.zeros(shape, np.float32), "squares": np.zeros(shape, np.float32)}

    def step(self, state: State, ids: Ids, means: Floats) -> Floats:
        """See :class:`Aggregate`."""
        first, second = state["means"], state["squares"]
        first[ids] = self.beta1 * first[ids] + (1 - self.beta1) * means
        second[ids] = self.beta2 * second[ids] + (1 - self.beta2) * means**2
        scale = np.sqrt(second[ids]) + np.float32(self.tau)
        return (np.float32(self.learning_rate) * first[ids] / scale).astype(np.float32)


_BY_NAME: dict[str, type[FedAvg] | type[FedAdagrad] | type[FedAdam]] = {
    "fed_avg": FedAvg,
    "fed_adagrad": FedAdagrad,
    "fed_adam": FedAdam,
}


def aggregate_of(spec: Mapping[str, Any]) -> Aggregate:
    """The aggregate that ``{"name": "fed_adagrad", "learning_rate": 0.05, ...}`` describes.

    Raises:
        ValueError: an unknown name or option, a learning rate or tau of 0 or less, a beta
            outside 0 to 1.
    """
    options = dict(spec)
    name = options.pop("name", None)
    if name not in _BY_NAME:
        raise ValueError(f"aggregate {name!r} is unknown, expected one of {', '.join(_BY_NAME)}")
    kind = _BY_NAME[name]
    known = set(kind.__dataclass_fields__)
    if not options.keys() <= known:
        extra = ", ".join(sorted(options.keys() - known))
        raise ValueError(f"{name} has no option {extra}; it has {', '.join(sorted(known))}")
    for option, value in options.items():
        ok = 0 <= value < 1 if option.startswith("beta") else 0 < value < float("inf")
        if not ok:
            raise ValueError(f"{option} of {name} is {value}, out of range")
    return kind(**options)

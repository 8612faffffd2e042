"""Torch's tensors while a module is read: what each is in a draft, and whose memory it shares."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from .._fields import Fields
from ..errors import ModelError
from ._draft import Draft
from ._network import Floats


class _Batch:
    """The number of images: what is read for one is computed for any number of them."""

    def __repr__(self) -> str:
        return "the number of images"


BATCH = _Batch()


@dataclass(eq=False)
class Tensor:
    """A tensor while the module computes.

    Attributes:
        name: the node of the draft that gives its numbers, as they are by now.
        rank: 4, or 2 where it is flat.
        memory: the tensors that may share its memory, itself among them.
        changed: where one of the others was changed in place; empty where none was.
    """

    name: str
    rank: int
    memory: list[Tensor] = field(default_factory=list)
    changed: str = ""

    def __post_init__(self) -> None:
        self.memory.append(self)

    def __repr__(self) -> str:
        return f"the tensor {self.name}"

    def view(self, name: str, rank: int) -> Tensor:
        """Another tensor, of what may be the same memory."""
        return Tensor(name, rank, self.memory)

    def change(self, name: str, where: str) -> Tensor:
        """The same tensor, with other numbers."""
        self.name = name
        for other in self.memory:
            if other is not self:
                other.changed = where
        return self


@dataclass(frozen=True, eq=False)
class Regrouped:
    """A tensor whose channels stand in several dimensions or, of one channel, in none.

    Attributes:
        tensor: four dimensions, and the numbers.
        order: which of its channels stands where; rows and columns follow as they are.
    """

    tensor: Tensor
    order: npt.NDArray[np.intp]

    def __repr__(self) -> str:
        return f"{self.tensor}, of {self.order.ndim + 3} dimensions"


@dataclass(frozen=True, eq=False)
class Constant:
    """Numbers of the module's own, that its forward reads itself."""

    values: Floats

    def __repr__(self) -> str:
        return f"a tensor of its own, of shape {self.values.shape}"


def pair(value: Any) -> tuple[int, int]:
    """A size down and across; of one number, that for both."""
    first, second = value if isinstance(value, (tuple, list)) else (value, value)
    return operator.index(first), operator.index(second)


def truth(value: Any) -> bool:
    """A flag."""
    if isinstance(value, int):
        return bool(value)
    raise TypeError(f"{value!r} is neither true nor false")


def in_place(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """What changes its tensor to what a function of it gives."""

    def changing(name: str, input: Tensor, *given: Any, **named: Any) -> Tensor:
        return input.change(function(name, input, *given, **named).name, name)

    return changing


class Operators:
    """Operators of one kind, as a draft has them.

    Each takes a node's name and the arguments in torch's own order and with its names. A layer's
    get its options and its tensors beside the input.

    Attributes:
        layers: by type, modules with tensors.
        alike: by type, modules that compute what a function does, and their options in the order of
            its arguments.
        functions: by what a trace calls.
        methods: by name, those of tensors.
        first: of these the first argument need not be a tensor of four or two dimensions.
    """

    def __init__(self, torch: Any, draft: Draft, dtype: Any) -> None:
        self.torch = torch
        self.draft = draft
        self.dtype = dtype
        self.layers: dict[type, Callable[[str, Tensor, Fields, Fields], Tensor]] = {}
        self.alike: dict[type, tuple[Callable[..., Tensor], tuple[str, ...]]] = {}
        self.functions: dict[Any, Callable[..., Any]] = {}
        self.methods: dict[str, Callable[..., Any]] = {}
        self.first: list[Callable[..., Any]] = []

    def take(self, other: Operators) -> None:
        """Adds those of another kind."""
        self.layers |= other.layers
        self.alike |= other.alike
        self.functions |= other.functions
        self.methods |= other.methods
        self.first += other.first

    def of_both(self, functions: Mapping[str, Callable[..., Any]]) -> None:
        """Adds what is a function of torch and a method of tensors, as far as there is one."""
        for name, function in functions.items():
            if hasattr(self.torch, name):
                self.functions[getattr(self.torch, name)] = function
            if hasattr(self.torch.Tensor, name):
                self.methods[name] = function

    def wrong(self, name: str, what: str) -> ModelError:
        """An error about a node."""
        return self.draft.wrong(name, what)

    def images(self, name: str, tensor: Tensor) -> str:
        """The node of a tensor that must be images."""
        if tensor.rank != 4:
            raise self.wrong(name, "it is of one row per image: rows and columns are missing")
        return tensor.name

    def rows(self, name: str, tensor: Tensor) -> str:
        """The node of a tensor that must be flat."""
        if tensor.rank != 2:
            shape = " x ".join(map(str, self.draft.shape(tensor.name)))
            raise self.wrong(name, f"it is of {shape} per image, not of one row: flatten before it")
        return tensor.name

    def floats(self, name: str, tensor: Any) -> Floats:
        """Weights; those of a type of their own may compute something."""
        if type(tensor) not in (self.torch.Tensor, self.torch.nn.Parameter):
            raise self.wrong(name, f"weights of the type {type(tensor).__name__}")
        if tensor.dtype != self.dtype:
            raise self.wrong(name, f"weights of {tensor.dtype}")
        return np.asarray(tensor.detach().float().numpy(), np.float32)

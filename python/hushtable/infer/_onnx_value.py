"""What a value of an ONNX file is: the numbers of a node, in the file's order of axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from ._network import Shape
from ._onnx_file import Array

__all__ = ["CHANNELS", "COLUMNS", "FIRST", "LAST", "ROWS", "Axes", "Pad", "Pads", "Value"]

#: Top, left, bottom, right.
Pads = tuple[int, int, int, int]
#: For each axis after that of images those of a node that it runs over.
Axes = tuple[tuple[int, ...], ...]

#: Axes of what a node gives, and their names.
CHANNELS, ROWS, COLUMNS = range(3)
_NAMES = ("channels", "rows", "columns")
FIRST: Axes = ((0,), (1,), (2,))
LAST: Axes = ((1,), (2,), (0,))


@dataclass(frozen=True, slots=True)
class Pad:
    """Zeros around planes that no node has yet: the name of what pads, and how many."""

    name: str
    around: Pads


@dataclass(frozen=True, slots=True)
class Value:
    """An ONNX value, which is made by :meth:`of`.

    Of channels first it has the axes ((0,), (1,), (2,)), of channels last ((1,), (2,), (0,)); a row
    of the latter has ((1, 2, 0),). An axis of one runs over none: wherever it stands, numbers are
    in the same order.

    Attributes:
        node: whose numbers it has.
        shape: channels, rows and columns of them, with the zeros around.
        axes: what each axis after that of images runs over.
        pad: zeros around, if any.
    """

    node: str
    shape: Shape
    axes: Axes
    pad: Pad | None = None

    @classmethod
    def of(cls, node: str, shape: Shape, axes: Axes = FIRST, pad: Pad | None = None) -> Self:
        """A value, without the axes of one."""
        kept = tuple(tuple(one for one in axis if shape[one] > 1) for axis in axes)
        return cls(node, shape, kept, pad)

    @property
    def rank(self) -> int:
        """How many axes it has, with that of images."""
        return len(self.axes) + 1

    @property
    def sizes(self) -> list[int]:
        """Of its axes, for one image."""
        return [1, *(math.prod(self.shape[one] for one in axis) for axis in self.axes)]

    @property
    def order(self) -> list[int]:
        """The node's axes of more than one, in the file's order."""
        return [one for axis in self.axes for one in axis]

    @property
    def is_in_order(self) -> bool:
        """Whether its numbers are in the node's order."""
        return self.order == sorted(self.order)

    @property
    def is_planes(self) -> bool:
        """Whether it is [batch, channels, rows, columns]."""
        return self.axes == Value.of(self.node, self.shape).axes

    def is_of_channels(self, at: int) -> bool:
        """Whether an axis is that of channels, and of nothing else."""
        own = (CHANNELS,) if self.shape[CHANNELS] > 1 else ()
        return 0 < at < self.rank and self.axes[at - 1] == own

    def with_channels(self, at: int, node: str, shape: Shape) -> Self:
        """What a node gives whose channels run along an axis, and all else as here."""
        axes = list(self.axes)
        axes[at - 1] = (CHANNELS,)
        return self.of(node, shape, tuple(axes))

    def turned(self, order: Sequence[int]) -> Self:
        """With its axes in another order, of which the first is that of images."""
        return self.of(
            self.node, self.shape, tuple(self.axes[at - 1] for at in order[1:]), self.pad
        )

    def reshaped(self, sizes: Sequence[int]) -> Self | None:
        """With these sizes; None where an axis would be divided."""
        rest, axes = self.order, []
        for size in sizes[1:]:
            axis = []
            while size > 1:
                if not rest or size % self.shape[rest[0]]:
                    return None
                size //= self.shape[rest[0]]
                axis.append(rest.pop(0))
            axes.append(tuple(axis))
        return None if rest else self.of(self.node, self.shape, tuple(axes), self.pad)

    def in_node(self, found: Array) -> Array:
        """Numbers [batch, ...] of the file as [batch, channels, rows, columns]."""
        order = self.order
        apart = found.reshape(len(found), *(self.shape[one] for one in order))
        places = [0, *(1 + at for at in np.argsort(order))]
        return apart.transpose(places).reshape(len(found), *self.shape)

    def __str__(self) -> str:
        sizes = f"[batch, {', '.join(str(size) for size in self.sizes[1:])}]"
        if self.axes == Value.of(self.node, self.shape, FIRST[: len(self.axes)]).axes:
            return sizes
        return f"{sizes} in the order {', '.join(_NAMES[one] for one in self.order)}"

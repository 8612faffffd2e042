"""The graph of an ONNX file while it is read: its constants, and what nodes of a draft give."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._fields import Fields
from .._printable import quoted
from ._draft import Draft, Numbers
from ._network import INPUT, Floats, Shape
from ._onnx_file import Array, Ends, File
from ._onnx_value import FIRST, LAST, Value

__all__ = ["IMAGES", "Graph", "Operator", "trimmed"]

#: How many images a file that takes any number of them is read for, beside one: what comes out
#: otherwise depends on it.
IMAGES = 3


@dataclass(frozen=True, slots=True)
class Operator:
    """An ONNX node.

    Attributes:
        name: its own.
        where: what it is called in messages.
        inputs: names; where an input is left out, its name is empty.
        outputs: names.
        own: its attributes.
    """

    name: str
    where: str
    inputs: list[str]
    outputs: list[str]
    own: Fields


class Graph:
    """A value is a constant, or what a node of the draft gives."""

    def __init__(self, file: File, shape: Shape | None, output: str | None) -> None:
        self.file = file
        self.constants = file.initializers()
        #: Those constants that are others for `IMAGES` images than for one.
        self.others: dict[str, Array] = {}
        self.values: dict[str, Value] = {}
        #: Outputs that are not read, and whose they are.
        self.beside: dict[str, str] = {}
        #: What depends on something that was refused.
        self.unknown: set[str] = set()
        #: And those of them that are sizes or constants, or computed from these alone.
        self.unknown_sizes: set[str] = set()
        #: What nodes of the file gave: the value, whose it is, its name.
        self.made: list[tuple[Value, str, str]] = []
        #: Nodes that give zeros around others.
        self.padded: dict[Value, str] = {}
        self.ends = Ends.of(file, self.constants, shape, output)
        self.input, self.output = self.ends.input, self.ends.output
        self.draft = Draft(self.ends.shape, file.source)
        #: Of all that the file's nodes give, which its evaluator holds.
        self.numbers = Numbers()
        file.keep(self.ends)
        axes = FIRST[:1] if self.ends.rank == 2 else LAST if self.ends.is_turned else FIRST
        self.values[self.input] = Value.of(INPUT, self.ends.shape, axes)
        #: Whether the file takes one image only, not any number of them.
        self.is_for_one = self.ends.is_for_one
        for name in self.ends.left:
            self.draft.leave_out(name, "an output that was not chosen")

    def answers(self, images: Floats) -> Array:
        """What onnx's reference evaluator answers."""
        return self._run(images)[self.output]

    def between(self, images: Floats) -> Iterable[tuple[str, str, Array]]:
        """Its values in between."""
        found = self._run(images)
        for value, where, name in self.made:
            numbers = found[name]
            is_alike = list(numbers.shape) == value.sizes
            yield value.node, where, value.in_node(numbers) if is_alike else numbers

    def _run(self, images: Floats) -> dict[str, Array]:
        given = images.reshape(1, -1) if self.ends.rank == 2 else images
        turned = given.transpose(0, 2, 3, 1) if self.ends.is_turned else given
        return self.file.run({self.input: turned})

    def _outputs(self, node: Any, where: str) -> list[str]:
        """A node's outputs, which nothing else may give."""
        found = trimmed(node.output)
        if not found or not found[0]:
            raise self.draft.wrong(where, "its first output has no name: nothing can read it")
        for one in found:
            if one in (self.input, *self.constants, *self.values, *self.beside, *self.unknown):
                raise self.draft.wrong(where, f"it gives {quoted(one)}, which is there already")
        return found

    def _fold(self, node: Any, where: str) -> None:
        """Computes a node over constants: for one image, and where that matters for more."""
        names = [one for one in node.input if one]
        try:
            feeds = {one: self.constants[one] for one in names}
            self.constants.update(self.file.folded(node, feeds))
            if any(one in self.others for one in names):
                feeds = {one: self.others.get(one, self.constants[one]) for one in names}
                for name, value in self.file.folded(node, feeds).items():
                    self._other(name, value)
        except ValueError as error:
            raise self.draft.wrong(where, str(error)) from error

    def _other(self, name: str, value: Array) -> None:
        """Keeps what a constant is for more images, where it is another."""
        one = self.constants[name]
        if one.shape != value.shape or not (one == value).all():
            self.others[name] = value

    def _raw(self, name: str, where: str) -> Value:
        """A value, which may have zeros around that no node has yet."""
        if name in self.beside:
            raise self.draft.wrong(
                where,
                f"{quoted(name)} is an output of {self.beside[name]} beside the first: not read",
            )
        if name not in self.values:
            what = "a constant" if name in self.constants else "not there"
            raise self.draft.wrong(
                where, f"its input {quoted(name)} is {what}, expected what a node gives"
            )
        return self.values[name]

    def _value(self, name: str, where: str) -> Value:
        """A value of which a node gives every number."""
        return self._whole(self._raw(name, where))

    def _whole(self, value: Value) -> Value:
        if value.pad is None:
            return value
        key = Value.of(value.node, value.shape, FIRST, value.pad)
        if key not in self.padded:
            self.padded[key] = self.draft.pad(value.pad.name, value.node, value.pad.around)
        return dataclasses.replace(value, node=self.padded[key], pad=None)

    def _source(self, operator: Operator) -> Value:
        return self._value(operator.inputs[0], operator.where)

    def _are_planes(self, operator: Operator, value: Value) -> None:
        if not value.is_planes:
            raise self.draft.wrong(
                operator.where, f"over {value}, expected [batch, channels, rows, columns]"
            )

    def _planes(self, operator: Operator) -> str:
        """The node of what is read, which is of rows and columns."""
        value = self._source(operator)
        self._are_planes(operator, value)
        return value.node

    def _given(self, value: Value, node: str) -> Value:
        """What a node gives that has the shape of a value."""
        return dataclasses.replace(value, node=node)

    def _first(self, node: str) -> Value:
        """What a node gives, as [batch, channels, rows, columns]."""
        return Value.of(node, self.draft.shape(node))

    def _constant(
        self,
        operator: Operator,
        at: int,
        what: str,
        *kinds: type[np.generic],
        of_images: bool = False,
    ) -> Array:
        """A constant that is an input; ``of_images`` where it may depend on how many images.

        It is of numbers of 32 bits, or of one of the kinds that are given.
        """
        name, where = operator.inputs[at], operator.where
        if name not in self.constants:
            raise self.draft.wrong(where, f"its {what} {quoted(name)} must be a constant")
        if name in self.others and not of_images:
            raise self.draft.wrong(
                where, f"its {what} {quoted(name)} depends on how many images there are"
            )
        found = self.constants[name]
        if found.dtype not in (possible := [np.dtype(one) for one in kinds or (np.float32,)]):
            raise self.draft.wrong(
                where, f"its {what} {quoted(name)} is of {found.dtype}, expected {possible[0]}"
            )
        return found

    def _optional(self, operator: Operator, at: int, what: str) -> Array | None:
        return self._constant(operator, at, what) if operator.inputs[at] else None

    def _is_set(self, operator: Operator, name: str, default: bool = False) -> bool:
        """An attribute that is a number for a truth."""
        found = operator.own.take(name, int(default))
        if found not in (0, 1):
            raise self.draft.wrong(operator.where, f"{name} {found}: 0 and 1 are possible")
        return bool(found)

    def _integers(self, operator: Operator, name: str, at: int = 1) -> list[int] | None:
        """An attribute of old opsets, which is an input in new ones."""
        found = operator.own.take(name, None)
        if operator.inputs[at]:
            found = self._constant(operator, at, name, np.int64, np.int32).ravel().tolist()
        return None if found is None else [int(one) for one in found]

    def _axis(self, operator: Operator, axis: int, rank: int) -> int:
        """An axis, which may be counted from the end."""
        if not -rank <= axis < rank:
            raise self.draft.wrong(operator.where, f"axis {axis} of {rank} axes")
        return axis % rank

    def _axes(self, operator: Operator, axes: list[int] | None, rank: int) -> list[int]:
        """Axes, of which none is that of images or there twice."""
        found = [self._axis(operator, one, rank) for one in axes or ()]
        if not found or 0 in found or len(set(found)) != len(found):
            raise self.draft.wrong(
                operator.where, f"axes {axes}: some after that of images are possible, each once"
            )
        return found

    def _each(self, value: Value, constant: Array) -> Array | None:
        """A constant's number for each channel, where it is one; it broadcasts as numpy has it."""
        try:
            whole = value.in_node(np.broadcast_to(constant, value.sizes))
        except ValueError:
            return None
        first = whole[:, :, :1, :1]
        return np.asarray(first.ravel()) if (whole == first).all() else None

    def _by_channel(
        self, operator: Operator, at: int, what: str, made: Callable[[Array], tuple[Any, Any]]
    ) -> Value:
        """What a constant input does to the other one: a factor, and what is added."""
        constant = self._constant(operator, at, what)
        value = self._value(operator.inputs[1 - at], operator.where)
        factor, offset = made(self._numbers_of_channels(operator, at, what, value, constant))
        return self._given(value, self.draft.affine(operator.name, value.node, factor, offset))

    def _numbers_of_channels(
        self, operator: Operator, at: int, what: str, value: Value, constant: Array
    ) -> Array:
        found = self._each(value, constant)
        if found is None:
            name, shape = quoted(operator.inputs[at]), list(constant.shape)
            raise self.draft.wrong(
                operator.where,
                f"its {what} {name} of {shape} over {value}, for {value.shape[0]} channels: one "
                "number, or one for each channel, which stand where the channels do, is possible",
            )
        return found

    def _count(self, where: str, value: Value) -> None:
        """Refuses what a node of the file gives, where that is too much to be held."""
        if why := self.numbers.add(value.shape):
            raise self.draft.wrong(where, why)

    def _settled(self, operator: Operator, value: Value) -> Value:
        """A value after another shape: one row in a node's order is a node's own."""
        if value.rank != 2 or not value.is_in_order:
            return value
        whole = self._whole(value)
        if whole.shape[1:] == (1, 1):
            return whole
        node = self.draft.flatten(operator.name, whole.node)
        return Value.of(node, self.draft.shape(node), FIRST[:1])


def trimmed(names: Iterable[str]) -> list[str]:
    """Names of inputs or outputs, without those at the end that are left out."""
    found = list(names)
    while found and not found[-1]:
        found.pop()
    return found

"""Operators of ONNX files that order, divide and join axes, and compute nothing."""

from __future__ import annotations

import math

import numpy as np

from ._onnx_graph import IMAGES, Graph, Operator
from ._onnx_value import CHANNELS, COLUMNS, Axes, Value

__all__ = ["Axed"]

#: The end of what is of any size.
_ALL = 2**31 - 1


class Axed(Graph):
    """Reads operators over axes."""

    def _shape(self, operator: Operator) -> list[Value]:
        """Sizes, which are constants: it gives no value."""
        sizes = self._raw(operator.inputs[0], operator.where).sizes
        part = slice(operator.own.take("start", 0), operator.own.take("end", None))
        self.constants[operator.outputs[0]] = np.array(sizes[part], np.int64)
        if not self.is_for_one:
            self._other(operator.outputs[0], np.array([IMAGES, *sizes[1:]][part], np.int64))
        return []

    def _transpose(self, operator: Operator) -> Value:
        value = self._raw(operator.inputs[0], operator.where)
        default = list(range(value.rank))[::-1]
        order = [int(one) for one in operator.own.take("perm", default)]
        if sorted(order) != list(range(value.rank)) or order[0] != 0:
            raise self.draft.wrong(
                operator.where,
                f"perm {order} of {value}: one of its axes that leaves images first is possible",
            )
        self.draft.leave_out(
            operator.name, "an order of axes, which what reads it takes as its own"
        )
        return value.turned(order)

    def _flatten(self, operator: Operator) -> Value:
        value = self._source(operator)
        axis = operator.own.take("axis", 1)
        if axis != 1 and (axis != 1 - value.rank or value.rank == 1):
            raise self.draft.wrong(operator.where, f"axis {axis}: 1 is possible")
        return self._reshaped(operator, value, [1, math.prod(value.sizes)], "of what is flat")

    def _reshaped(self, operator: Operator, value: Value, sizes: list[int], note: str) -> Value:
        """A value of other sizes, if they divide no axis."""
        found = value.reshaped(sizes)
        if found is None:
            raise self.draft.wrong(
                operator.where,
                f"a reshape of {value} to {sizes}: axes may be put together, as in "
                f"[batch, {math.prod(sizes)}], and not be divided",
            )
        settled = self._settled(operator, found)
        if settled.node == value.node:
            self.draft.leave_out(operator.name, note)
        return settled

    def _reshape(self, operator: Operator) -> Value:
        value = self._source(operator)
        sizes = value.sizes
        zeros = self._is_set(operator, "allowzero")
        target = self._constant(operator, 1, "shape", np.int64, of_images=True)
        one = _sizes(sizes, target.ravel().tolist(), zeros)
        more = one
        if not self.is_for_one:
            target_of_more = self.others.get(operator.inputs[1], target)
            more = _sizes([IMAGES, *sizes[1:]], target_of_more.ravel().tolist(), zeros)
            if more is None and target_of_more is target:
                self.is_for_one, more = True, one  # it takes no other number of images
            elif more is not None:
                more = [1, *more[1:]] if more[0] == IMAGES else None
        if one is None or one != more or one[0] != 1:
            raise self.draft.wrong(
                operator.where,
                f"a reshape of {value} to {target.tolist()}: [batch, {math.prod(sizes)}] is "
                "possible, of any batch, or of a batch of 1 where the input is fixed to one image",
            )
        return self._reshaped(operator, value, one, "a reshape of the same numbers")

    def _squeeze(self, operator: Operator) -> Value:
        value = self._source(operator)
        axes = self._axes(operator, self._integers(operator, "axes"), value.rank)
        if any(value.axes[at - 1] for at in axes):
            raise self.draft.wrong(
                operator.where, f"axes {axes} of {value}: axes of one are possible"
            )
        sizes = [size for at, size in enumerate(value.sizes) if at not in axes]
        return self._reshaped(operator, value, sizes, "an axis of one less")

    def _unsqueeze(self, operator: Operator) -> Value:
        value = self._source(operator)
        asked = self._integers(operator, "axes")
        axes = self._axes(operator, asked, value.rank + len(asked or ()))
        sizes = value.sizes
        for at in sorted(axes):
            sizes.insert(at, 1)
        return self._reshaped(operator, value, sizes, "an axis of one more")

    def _concat(self, operator: Operator) -> Value:
        values = [self._value(one, operator.where) for one in operator.inputs]
        first = values[0]
        axis = self._axis(operator, int(operator.own.take("axis")), first.rank)
        for one in values:
            if one.rank != first.rank or not one.is_of_channels(axis):
                raise self.draft.wrong(
                    operator.where,
                    f"of {first} and {one} along axis {axis}: parts of as many axes, along that of "
                    "channels, are possible",
                )
            if _others(one, axis) != _others(first, axis):
                raise self.draft.wrong(
                    operator.where, f"of {first} and {one} along axis {axis}: they must be alike"
                )
        node = self.draft.concat(operator.name, [one.node for one in values])
        return first.with_channels(axis, node, self.draft.shape(node))

    def _slice(self, operator: Operator) -> Value:
        value = self._source(operator)
        starts, ends = (
            self._integers(operator, one, at) for at, one in ((1, "starts"), (2, "ends"))
        )
        axes = self._integers(operator, "axes", 3)
        if starts is None or ends is None:
            raise self.draft.wrong(operator.where, "it has no starts, or no ends")
        steps = self._integers(operator, "steps", 4) if operator.inputs[4] else [1] * len(starts)
        axes = list(range(len(starts))) if axes is None else axes
        if not len(starts) == len(ends) == len(axes) == len(steps or ()):
            raise self.draft.wrong(
                operator.where, f"starts {starts}, ends {ends}, axes {axes}, steps {steps}"
            )
        found = {self._axis(operator, axis, value.rank) for axis in axes}
        if len(found) != len(axes) or not all(steps or ()):
            raise self.draft.wrong(
                operator.where, f"axes {axes} by steps {steps}: each once, by no 0, is possible"
            )
        for axis, *ends_and_step in zip(axes, starts, ends, steps or (), strict=True):
            value = self._part(operator, value, axis % value.rank, slice(*ends_and_step))
        return value

    def _part(self, operator: Operator, value: Value, at: int, part: slice) -> Value:
        """A part of an axis."""
        size = value.sizes[at]
        which = range(size)[part]
        is_all = which == range(size)
        if at == 0 and not self.is_for_one:
            is_all = part.start == 0 and part.stop >= _ALL and part.step == 1
        if is_all:
            return value
        if at == 0 or not which or len(value.axes[at - 1]) != 1:
            raise self.draft.wrong(
                operator.where,
                f"{part.start} to {part.stop} by {part.step} of axis {at} of {value}: a part of "
                "channels, rows or columns is possible",
            )
        (axis,) = value.axes[at - 1]
        if axis == CHANNELS:
            return self._some(value, operator.name, which)
        return self._cut(operator, value, axis, which)

    def _some(self, value: Value, name: str, which: range) -> Value:
        """Some of the channels."""
        node = self.draft.channels(name, value.node, which)
        return Value.of(node, self.draft.shape(node), value.axes)

    def _cut(self, operator: Operator, value: Value, axis: int, which: range) -> Value:
        """Some of the rows or columns: windows of a single one, that reach as far as none begins
        outside of what is wanted.
        """
        if len(which) > 1 and which.step < 1:
            raise self.draft.wrong(operator.where, f"by {which.step}: forwards is possible")
        after = value.shape[axis] - 1 - which[-1]
        step = which.step if len(which) > 1 else after + 1
        size = which[0] + 1 + (after if after >= step else 0)
        kernel, place, stride = (size, 1), (which[0], 0), (step, 1)
        if axis == COLUMNS:
            kernel, place, stride = kernel[::-1], place[::-1], stride[::-1]
        node = self.draft.places(operator.name, value.node, kernel, place, stride)
        return Value.of(node, self.draft.shape(node), value.axes)

    def _split(self, operator: Operator) -> list[Value]:
        own, value = operator.own, self._source(operator)
        at = self._axis(operator, int(own.take("axis", 0)), value.rank)
        count, sizes = len(operator.outputs), self._integers(operator, "split")
        own.neutral("num_outputs", count)
        whole = value.sizes[at]
        if sizes is None:
            each = -(-whole // count)
            sizes = [each] * (count - 1) + [whole - each * (count - 1)]
            if self.file.opset < 18 and whole % count:
                raise self.draft.wrong(operator.where, f"{whole} channels in {count} like parts")
        if not value.is_of_channels(at) or len(sizes) != count or sum(sizes) != whole:
            raise self.draft.wrong(
                operator.where,
                f"axis {at} of {value} into {sizes}: channels, each in one part, are possible",
            )
        if min(sizes) < 1:
            raise self.draft.wrong(operator.where, f"parts of {sizes}: 1 or more each")
        ends = np.cumsum(sizes).tolist()
        parts = [range(end - size, end) for end, size in zip(ends, sizes, strict=True)]
        return [
            self._some(value, f"{operator.name}.{one}", which) for one, which in enumerate(parts)
        ]


def _others(value: Value, at: int) -> Axes:
    """The axes of a value but one."""
    return value.axes[: at - 1] + value.axes[at:]


def _sizes(shape: list[int], target: list[int], zeros: bool) -> list[int] | None:
    """What a shape becomes; None where it cannot. ``zeros`` where a 0 is no size to be kept."""
    found = []
    for at, size in enumerate(target):
        if size == 0 and not zeros:
            if at >= len(shape):
                return None
            size = shape[at]
        found.append(size)
    count = math.prod(shape)
    if found.count(-1) == 1:
        rest = -math.prod(found)
        if rest < 1 or count % rest:
            return None
        found[found.index(-1)] = count // rest
    return found if min(found, default=0) > 0 and math.prod(found) == count else None

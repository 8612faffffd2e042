"""Operators of ONNX files over planes: convolutions, pools, and zeros around them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ._draft import same_pad
from ._network import INPUT
from ._onnx_graph import Graph, Operator
from ._onnx_value import CHANNELS, COLUMNS, FIRST, ROWS, Pad, Pads, Value

__all__ = ["Windows"]

_NONE: Pads = (0, 0, 0, 0)


class Windows(Graph):
    """Reads operators over planes."""

    def _windows(
        self,
        operator: Operator,
        sizes: tuple[int, int],
        kernel: list[int],
        step_max: Sequence[float],
    ) -> tuple[list[int], Pads]:
        """Stride and pads of a convolution or pool; automatic ones up to a stride."""
        own, where = operator.own, operator.where
        stride = [int(one) for one in own.take("strides", [1, 1])]
        if len(stride) != 2 or min(stride) < 1:
            raise self.draft.wrong(where, f"strides {stride}: two are possible, 1 or more each")
        auto = own.take("auto_pad", b"NOTSET")
        if auto == b"NOTSET":
            pads = [int(one) for one in own.take("pads", [0] * 4)]
            if len(pads) != 4 or min(pads) < 0:
                raise self.draft.wrong(where, f"pads {pads}: four are possible, 0 or more each")
            top, left, bottom, right = pads
            return stride, (top, left, bottom, right)
        own.neutral("pads", [0] * 4)
        if auto in (b"SAME_UPPER", b"SAME_LOWER"):
            if any(one > most for one, most in zip(stride, step_max, strict=True)):
                raise self.draft.wrong(
                    where, f"auto_pad by strides {stride} of windows {kernel}: pads are possible"
                )
            below = auto == b"SAME_UPPER"
            return stride, same_pad(*sizes, kernel, stride, more_below=below)
        if auto != b"VALID":
            raise self.draft.wrong(where, f"auto_pad {auto.decode(errors='replace')} is none")
        return stride, _NONE

    def _of_planes(self, operator: Operator) -> tuple[Value, Pads, tuple[int, int]]:
        """What is read, zeros around it that no node has, and its rows and columns with those."""
        value = self._raw(operator.inputs[0], operator.where)
        self._are_planes(operator, value)
        return value, value.pad.around if value.pad else _NONE, value.shape[1:]

    def _conv(self, operator: Operator) -> Value:
        own, where = operator.own, operator.where
        value, pad, sizes = self._of_planes(operator)
        weight = self._constant(operator, 1, "weight")
        if weight.ndim != 4:
            raise self.draft.wrong(
                where, f"a kernel of {weight.ndim - 2} dimensions: 2 are possible"
            )
        own.neutral("kernel_shape", list(weight.shape[2:]))
        dilation = [int(one) for one in own.take("dilations", [1, 1])]
        if len(dilation) != 2 or min(dilation) < 1:
            raise self.draft.wrong(where, f"dilations {dilation}: two are possible, 1 or more each")
        kernel = [(one - 1) * by + 1 for one, by in zip(weight.shape[2:], dilation, strict=True)]
        stride, own_pad = self._windows(operator, sizes, kernel, [np.inf] * 2)
        # Before zeros are put between its weights, as many as a file says.
        if any(
            one > size + own_pad[at] + own_pad[at + 2]
            for at, (one, size) in enumerate(zip(kernel, sizes, strict=True))
        ):
            raise self.draft.wrong(
                where, f"a kernel of {kernel} over {list(sizes)}, padded by {list(own_pad)}"
            )
        around = [a + b for a, b in zip(own_pad, pad, strict=True)]
        node = self.draft.conv(
            operator.name,
            value.node,
            weight,
            self._optional(operator, 2, "bias"),
            stride=stride,
            pad=around,
            groups=int(own.take("group", 1)),
            dilation=dilation,
        )
        return self._first(node)

    def _pad(self, operator: Operator) -> Value:
        """Zeros around: of channels at once, of rows and columns as late as they are read."""
        operator.own.neutral("mode", b"constant")
        value = self._source(operator)
        pads = self._integers(operator, "pads") or []
        filled = np.asarray(operator.own.take("value", 0.0))
        if operator.inputs[2]:
            filled = self._constant(operator, 2, "value")
        if filled.any():
            raise self.draft.wrong(operator.where, f"pads of {filled}: zeros are possible")
        axes = list(range(value.rank))
        if operator.inputs[3]:
            axes = self._integers(operator, "axes", 3) or []
            axes = [self._axis(operator, one, value.rank) for one in axes]
        if len(pads) != 2 * len(axes) or len(set(axes)) != len(axes) or min(pads, default=0) < 0:
            raise self.draft.wrong(operator.where, f"pads {pads}: two an axis are possible")
        around = {at: (pads[one], pads[one + len(axes)]) for one, at in enumerate(axes)}
        return self._around(operator, value, {at: of for at, of in around.items() if any(of)})

    def _around(
        self, operator: Operator, value: Value, around: dict[int, tuple[int, int]]
    ) -> Value:
        """A value with zeros before and after some of its axes."""
        axes = list(value.axes)
        # An axis of one can be any of the node's that has one: they are taken in order.
        free = [at for at in FIRST if value.shape[at[0]] == 1]
        if value.rank == 4 and axes.count(()) == len(free):
            axes = [one or free.pop(0) for one in axes]
        before, after = [0, 0, 0], [0, 0, 0]
        for at, (less, more) in around.items():
            if at == 0 or len(axes[at - 1]) != 1:
                raise self.draft.wrong(
                    operator.where, f"pads of axis {at} of {value}: not those of a plane"
                )
            (own,) = axes[at - 1]
            before[own], after[own] = less, more
        node, (channels, rows, columns) = value.node, value.shape
        if before[CHANNELS] or after[CHANNELS]:
            node = self.draft.pad_channels(operator.name, node, before[0], after[0])
            channels += before[0] + after[0]
        pads = (before[1], before[2], after[1], after[2])
        shape = (channels, rows + pads[0] + pads[2], columns + pads[1] + pads[3])
        pad = Pad(operator.name, pads) if any(pads) else None
        if not around:
            self.draft.leave_out(operator.name, "a pad of nothing")
        return Value.of(node, shape, tuple(axes), pad)

    def _maxpool(self, operator: Operator) -> Value:
        operator.own.skip("storage_order")  # that of the indices, which are not read
        return self._pool(operator, "max_pool")

    def _averagepool(self, operator: Operator) -> Value:
        return self._pool(operator, "average_pool")

    def _pool(self, operator: Operator, op: str) -> Value:
        own, where = operator.own, operator.where
        value, pad, sizes = self._of_planes(operator)
        kernel = [int(one) for one in own.take("kernel_shape")]
        if len(kernel) != 2:
            raise self.draft.wrong(where, f"a kernel of {len(kernel)} dimensions: 2 are possible")
        own.neutral("dilations", [1, 1])
        if is_up := self._is_set(operator, "ceil_mode"):
            own.neutral("auto_pad", b"NOTSET")
        # Over what no window reaches, evaluators differ.
        stride, own_pad = self._windows(operator, sizes, kernel, kernel)
        counts = op != "average_pool" or self._is_set(operator, "count_include_pad")
        if any(own_pad) and not counts:
            raise self.draft.wrong(
                where, "pads that means leave out: count_include_pad 1 is possible"
            )
        if not _are_smaller(own_pad, kernel):
            raise self.draft.wrong(
                where, f"pads {list(own_pad)}: smaller than windows of {kernel} are possible"
            )
        for at, size in enumerate(sizes):
            whole = size + own_pad[at] + own_pad[at + 2] - kernel[at]
            if is_up and -(-whole // stride[at]) * stride[at] >= size + own_pad[at]:
                raise self.draft.wrong(
                    where,
                    f"ceil_mode 1, by strides {stride} over {list(sizes)}: some count windows that "
                    "begin behind the end, and others do not; 0 is possible",
                )
        around = [a + b for a, b in zip(own_pad, pad, strict=True)]
        # Zeros are as good as nothing at all beside numbers that are not negative.
        are_equal = op == "average_pool" or self._is_relu(value.node)
        if any(pad) and (is_up or not are_equal or not _are_smaller(around, kernel)):
            value, around = self._whole(value), list(own_pad)
        node = self.draft.pool(operator.name, op, value.node, kernel, stride, around, ceil=is_up)
        return self._first(node)

    def _is_relu(self, node: str) -> bool:
        return node != INPUT and self.draft.op(node) == "relu"

    def _globalaveragepool(self, operator: Operator) -> Value:
        return self._first(self._of_whole(operator, "average_pool", self._planes(operator)))

    def _globalmaxpool(self, operator: Operator) -> Value:
        return self._first(self._of_whole(operator, "max_pool", self._planes(operator)))

    def _of_whole(self, operator: Operator, op: str, node: str) -> str:
        """One number of each plane."""
        if op == "average_pool":
            return self.draft.global_average_pool(operator.name, node)
        return self.draft.pool(operator.name, op, node, self.draft.shape(node)[1:], (1, 1))

    def _reducemean(self, operator: Operator) -> Value:
        return self._reduce(operator, "average_pool")

    def _reducemax(self, operator: Operator) -> Value:
        return self._reduce(operator, "max_pool")

    def _reduce(self, operator: Operator, op: str) -> Value:
        operator.own.skip("noop_with_empty_axes")  # they are not empty
        value = self._source(operator)
        asked = self._integers(operator, "axes")
        axes = self._axes(operator, asked, value.rank)
        over = {one for at in axes for one in value.axes[at - 1]}
        if over not in (set(), {one for one in (ROWS, COLUMNS) if value.shape[one] > 1}):
            raise self.draft.wrong(
                operator.where, f"axes {asked} of {value}: those of rows and columns are possible"
            )
        node = value.node
        if over:
            node = self._of_whole(operator, op, node)
        else:
            self.draft.leave_out(operator.name, "of one number each")
        is_kept = self._is_set(operator, "keepdims", True)
        left = [
            () if at in axes else axis
            for at, axis in enumerate(value.axes, 1)
            if is_kept or at not in axes
        ]
        return self._settled(operator, Value.of(node, self.draft.shape(node), tuple(left)))


def _are_smaller(pad: Sequence[int], kernel: list[int]) -> bool:
    return all(one < size for one, size in zip(pad, kernel * 2, strict=True))

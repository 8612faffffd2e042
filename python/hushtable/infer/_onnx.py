"""ONNX files as networks.

Every attribute, input and output of a node is read, stands at a value that changes nothing, or is
refused by name. What was read is compared with onnx's reference evaluator of the same file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .._fields import Fields
from ..errors import ModelError
from ._compare import compared
from ._draft import Draft, same_pad
from ._network import INPUT, Floats, Network, Shape
from ._onnx_file import CHANNELS_FIRST, Array, Ends, File

_Pads = tuple[int, int, int, int]

#: What changes nothing in an inference.
_NOTHING = {"Identity": "an identity", "Dropout": "a dropout, which inference does without"}
#: Operators that are taken, and how many inputs each has at most.
_READ = {
    "Add": 2,
    "AveragePool": 1,
    "BatchNormalization": 5,
    "Conv": 3,
    "Div": 2,
    "Dropout": 3,
    "Flatten": 1,
    "Gemm": 3,
    "GlobalAveragePool": 1,
    "Identity": 1,
    "MatMul": 2,
    "MaxPool": 1,
    "Mul": 2,
    "Pad": 3,
    "ReduceMean": 2,
    "Relu": 1,
    "Reshape": 2,
    "Shape": 1,
    "Sigmoid": 1,
    "Softmax": 1,
    "Squeeze": 2,
    "Sub": 2,
    "Transpose": 1,
}
#: Outputs beside the first that say nothing about it, as long as nothing reads them.
_BESIDE = {"MaxPool", "Dropout"}
#: How many images a file that takes any number of them is read for, beside one: what comes out
#: otherwise depends on it.
_IMAGES = 3


def read(path: Path, shape: Shape | None, output: str | None) -> Network:
    """See `networks.from_onnx`."""
    file = File(path)
    reader = _Reader(file, shape, output)
    # The draft refuses weights that are not finite; values that are not are so on both sides.
    with np.errstate(all="ignore"):
        network = reader.read()
        return compared(
            network, "onnx's reference evaluator", reader.answers, reader.between, file.source
        )


@dataclass(frozen=True, slots=True)
class _Value:
    """What an ONNX value is: that of a node, [batch, channels] or [batch, channels, rows, columns].

    A node's own shape does not say which, where there is one row of one column.
    """

    node: str
    rank: int


@dataclass(frozen=True, slots=True)
class _Operator:
    """An ONNX node: where an input is left out, its name is empty."""

    name: str
    where: str
    inputs: list[str]
    own: Fields


class _Reader:
    """Walks a graph: a value is a constant, or what a node of the draft gives."""

    def __init__(self, file: File, shape: Shape | None, output: str | None) -> None:
        self.file = file
        self.constants = file.initializers()
        #: Those constants that are others for `_IMAGES` images than for one.
        self.others: dict[str, Array] = {}
        self.values: dict[str, _Value] = {}
        self.pads: dict[str, tuple[_Operator, _Value, _Pads]] = {}
        #: Outputs that are not read, and whose they are.
        self.beside: dict[str, str] = {}
        #: Nodes of the draft as they are made: their names, those in the file, their values'.
        self.made: list[tuple[str, str, str]] = []
        self.ends = Ends.of(file, self.constants, shape, output)
        self.input, self.output = self.ends.input, self.ends.output
        self.draft = Draft(self.ends.shape, file.source)
        if not self.ends.is_turned:
            self.values[self.input] = _Value(INPUT, self.ends.rank)
        #: Whether the file takes one image only, not any number of them.
        self.is_for_one = self.ends.is_for_one
        for name in self.ends.left:
            self.draft.leave_out(name, "an output that was not chosen")

    def read(self) -> Network:
        """The network, which is not compared yet."""
        for node in self.ends.nodes:
            self._one(node)
        if self.output in self.constants:
            raise ModelError(
                f"{self.file.source}: the output {self.output!r} does not depend on the input"
            )
        return self.draft.finish(self._value(self.output, "the graph's output").node)

    def answers(self, images: Floats) -> Array:
        """What onnx's reference evaluator answers."""
        return self._run(images)[self.output]

    def between(self, images: Floats) -> Iterable[tuple[str, str, Array]]:
        """Its values in between."""
        found = self._run(images)
        return ((node, where, found[value]) for node, where, value in self.made)

    def _run(self, images: Floats) -> dict[str, Array]:
        given = images.reshape(1, -1) if self.ends.rank == 2 else images
        turned = given.transpose(0, 2, 3, 1) if self.ends.is_turned else given
        return self.file.run({self.input: turned})

    def _one(self, node: Any) -> None:
        name = node.name or (node.output[0] if node.output else node.op_type)
        where = f"node {name!r} ({node.op_type})"
        if node.domain:
            raise self._unsupported(node, where)
        try:
            attributes = self.file.attributes(node)
        except ValueError as error:
            raise self.draft.wrong(where, str(error)) from error
        inputs = _trimmed(node.input)
        outputs = self._outputs(node, where)
        if all(one in self.constants for one in inputs if one):
            self._fold(node, where)
            return
        if node.op_type not in _READ:
            raise self._unsupported(node, where)
        most = _READ[node.op_type]
        if len(inputs) > most:
            raise self.draft.wrong(where, f"{len(inputs)} inputs: at most {most} are possible")
        inputs += [""] * (most - len(inputs))
        if len(outputs) > 1 and node.op_type not in _BESIDE:
            raise self.draft.wrong(where, f"{len(outputs)} outputs: one is possible")
        self.beside.update(dict.fromkeys(outputs[1:], where))
        with Fields(attributes, lambda what: self.draft.wrong(where, what)) as own:
            operator = _Operator(name, where, inputs, own)
            if node.op_type == "Shape":
                self._shape(operator, outputs[0])
            elif node.op_type == "Transpose":
                self.values[outputs[0]] = self._transpose(operator)
            elif node.op_type == "Pad":
                self._pad(operator, outputs[0])
            elif inputs[0] in self.pads and node.op_type in _NOTHING:
                self._nothing(operator, node.op_type)
                self.pads[outputs[0]] = self.pads[inputs[0]]
            else:
                value = getattr(self, f"_{node.op_type.lower()}")(operator)
                self.values[outputs[0]] = value
                self.made.append((value.node, where, outputs[0]))

    def _outputs(self, node: Any, where: str) -> list[str]:
        """A node's outputs, which nothing else may give."""
        found = _trimmed(node.output)
        if not found or not found[0]:
            raise self.draft.wrong(where, "its first output has no name: nothing can read it")
        for one in found:
            if one in (self.input, *self.constants, *self.values, *self.pads, *self.beside):
                raise self.draft.wrong(where, f"it gives {one!r}, which is there already")
        return found

    def _unsupported(self, node: Any, where: str) -> ModelError:
        domain = f"{node.domain}." if node.domain else ""
        return self.draft.wrong(
            where,
            f"the operator {domain}{node.op_type} is not supported: possible are "
            f"{', '.join(sorted(_READ))}, and any over constants",
        )

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

    def _value(self, name: str, where: str) -> _Value:
        if name in self.pads:
            pad = self.pads[name][0]
            raise self.draft.wrong(pad.where, "is not followed by a convolution")
        if name in self.beside:
            raise self.draft.wrong(
                where, f"{name!r} is an output of {self.beside[name]} beside the first: not read"
            )
        if name not in self.values:
            what = "a constant" if name in self.constants else "not there"
            raise self.draft.wrong(
                where, f"its input {name!r} is {what}, expected what a node gives"
            )
        return self.values[name]

    def _sizes(self, value: _Value) -> list[int]:
        """Of what a value has for one image."""
        shape = self.draft.shape(value.node)
        return [1, *shape] if value.rank == 4 else [1, shape[0]]

    def _text(self, value: _Value) -> str:
        return f"[batch, {', '.join(str(size) for size in self._sizes(value)[1:])}]"

    def _source(self, operator: _Operator) -> _Value:
        return self._value(operator.inputs[0], operator.where)

    def _planes(self, operator: _Operator) -> str:
        """The node of what is read, which is of rows and columns."""
        value = self._source(operator)
        if value.rank != 4:
            raise self.draft.wrong(
                operator.where,
                f"over {self._text(value)}, expected [batch, channels, rows, columns]",
            )
        return value.node

    def _numbers(self, operator: _Operator) -> str:
        """The node of what is read, which is flat."""
        value = self._source(operator)
        if value.rank != 2:
            raise self.draft.wrong(
                operator.where, f"a matrix over {self._text(value)}: flatten before it"
            )
        return value.node

    def _constant(
        self,
        operator: _Operator,
        at: int,
        what: str,
        kind: type[np.generic] = np.float32,
        *,
        of_images: bool = False,
    ) -> Array:
        """A constant that is an input; ``of_images`` where it may depend on how many images."""
        name, where = operator.inputs[at], operator.where
        if name not in self.constants:
            raise self.draft.wrong(where, f"its {what} {name!r} must be a constant")
        if name in self.others and not of_images:
            raise self.draft.wrong(
                where, f"its {what} {name!r} depends on how many images there are"
            )
        found = self.constants[name]
        if found.dtype != kind:
            raise self.draft.wrong(
                where, f"its {what} {name!r} is of {found.dtype}, expected {np.dtype(kind)}"
            )
        return found

    def _optional(self, operator: _Operator, at: int, what: str) -> Array | None:
        return self._constant(operator, at, what) if operator.inputs[at] else None

    def _is_set(self, operator: _Operator, name: str, default: bool = False) -> bool:
        """An attribute that is a number for a truth."""
        found = operator.own.take(name, int(default))
        if found not in (0, 1):
            raise self.draft.wrong(operator.where, f"{name} {found}: 0 and 1 are possible")
        return bool(found)

    def _integers(self, operator: _Operator, name: str) -> list[int] | None:
        """An attribute of old opsets, which is the second input in new ones."""
        found = operator.own.take(name, None)
        if operator.inputs[1]:
            found = self._constant(operator, 1, name, np.int64).ravel().tolist()
        return None if found is None else [int(one) for one in found]

    def _shape(self, operator: _Operator, output: str) -> None:
        sizes = self._sizes(self._source(operator))
        part = slice(operator.own.take("start", 0), operator.own.take("end", None))
        self.constants[output] = np.array(sizes[part], np.int64)
        if not self.is_for_one:
            self._other(output, np.array([_IMAGES, *sizes[1:]][part], np.int64))

    def _nothing(self, operator: _Operator, kind: str) -> None:
        if kind == "Dropout":
            operator.own.skip("ratio", "seed")
            if operator.inputs[2] and self._constant(operator, 2, "training mode", np.bool_).any():
                raise self.draft.wrong(
                    operator.where, "a dropout of training: export the model for inference"
                )
        self.draft.leave_out(operator.name, _NOTHING[kind])

    def _transpose(self, operator: _Operator) -> _Value:
        """Of the file's images, to channels first, as they are given here."""
        if not self.ends.is_turned or operator.inputs[0] != self.input:
            raise self.draft.wrong(
                operator.where,
                "one of the input to channels first is possible, if nothing else reads the input",
            )
        operator.own.neutral("perm", CHANNELS_FIRST)
        self.draft.leave_out(operator.name, "images are given channels first, not last")
        return _Value(INPUT, 4)

    def _identity(self, operator: _Operator) -> _Value:
        self._nothing(operator, "Identity")
        return self._source(operator)

    def _dropout(self, operator: _Operator) -> _Value:
        self._nothing(operator, "Dropout")
        return self._source(operator)

    def _windows(
        self, operator: _Operator, source: str, kernel: list[int], step_max: Sequence[float]
    ) -> tuple[list[int], _Pads]:
        """Stride and pads of a convolution or pool; automatic ones up to a stride."""
        own, where = operator.own, operator.where
        if len(kernel) != 2:
            raise self.draft.wrong(where, f"a kernel of {len(kernel)} dimensions: 2 are possible")
        own.neutral("dilations", [1, 1])
        stride = [int(one) for one in own.take("strides", [1, 1])]
        if len(stride) != 2:
            raise self.draft.wrong(where, f"strides {stride}: two are possible")
        auto = own.take("auto_pad", b"NOTSET")
        _, rows, columns = self.draft.shape(source)
        if auto == b"NOTSET":
            pads = [int(one) for one in own.take("pads", [0] * 4)]
            if len(pads) != 4:
                raise self.draft.wrong(where, f"pads {pads}: four are possible")
            top, left, bottom, right = pads
            return stride, (top, left, bottom, right)
        own.neutral("pads", [0] * 4)
        if auto in (b"SAME_UPPER", b"SAME_LOWER"):
            if operator.inputs[0] in self.pads:
                raise self.draft.wrong(where, "auto_pad after a Pad: pads are possible")
            if any(not 1 <= one <= most for one, most in zip(stride, step_max, strict=True)):
                raise self.draft.wrong(
                    where, f"auto_pad by strides {stride} of windows {kernel}: pads are possible"
                )
            below = auto == b"SAME_UPPER"
            return stride, same_pad(rows, columns, kernel, stride, more_below=below)
        if auto != b"VALID":
            raise self.draft.wrong(where, f"auto_pad {auto.decode(errors='replace')} is none")
        return stride, (0, 0, 0, 0)

    def _conv(self, operator: _Operator) -> _Value:
        pad: _Pads = (0, 0, 0, 0)
        if operator.inputs[0] in self.pads:
            _, value, pad = self.pads[operator.inputs[0]]
            source = value.node
        else:
            source = self._planes(operator)
        weight = self._constant(operator, 1, "weight")
        kernel = list(weight.shape[2:])
        operator.own.neutral("kernel_shape", kernel)
        stride, own_pad = self._windows(operator, source, kernel, [np.inf] * len(kernel))
        around = [a + b for a, b in zip(own_pad, pad, strict=True)]
        groups = int(operator.own.take("group", 1))
        bias = self._optional(operator, 2, "bias")
        name = self.draft.conv(
            operator.name, source, weight, bias, stride=stride, pad=around, groups=groups
        )
        return _Value(name, 4)

    def _pad(self, operator: _Operator, output: str) -> None:
        """Zeros around an image, which the convolution after it takes."""
        operator.own.neutral("mode", b"constant")
        pads = self._integers(operator, "pads")
        filled = np.asarray(operator.own.take("value", 0.0))
        if operator.inputs[2]:
            filled = self._constant(operator, 2, "value")
        if filled.any():
            raise self.draft.wrong(operator.where, f"pads of {filled}: zeros are possible")
        if pads is None or len(pads) != 8 or any(pads[at] for at in (0, 1, 4, 5)) or min(pads) < 0:
            raise self.draft.wrong(
                operator.where, f"pads {pads}: those of rows and columns are possible"
            )
        self._planes(operator)
        around = (pads[2], pads[3], pads[6], pads[7])
        self.pads[output] = (operator, self._source(operator), around)

    def _gemm(self, operator: _Operator) -> _Value:
        own = operator.own
        own.neutral("transA", 0)
        source = self._numbers(operator)
        weight = self._matrix(operator) * np.float32(own.take("alpha", 1.0))
        bias = self._optional(operator, 2, "bias")
        matrix = weight if self._is_set(operator, "transB") else weight.T
        factor = np.float32(own.take("beta", 1.0))
        if bias is not None:
            try:
                bias = np.broadcast_to(bias, (1, len(matrix)))[0] * factor
            except ValueError as error:
                raise self.draft.wrong(
                    operator.where, f"a bias of {list(bias.shape)} for {len(matrix)} numbers"
                ) from error
        return _Value(self.draft.linear(operator.name, source, matrix, bias), 2)

    def _matmul(self, operator: _Operator) -> _Value:
        source, weight = self._numbers(operator), self._matrix(operator)
        return _Value(self.draft.linear(operator.name, source, weight.T, None), 2)

    def _matrix(self, operator: _Operator) -> Array:
        weight = self._constant(operator, 1, "right side")
        if weight.ndim != 2:
            raise self.draft.wrong(
                operator.where, f"a right side of {list(weight.shape)}, expected a matrix"
            )
        return weight

    def _batchnormalization(self, operator: _Operator) -> _Value:
        own, value = operator.own, self._source(operator)
        own.neutral("training_mode", 0)
        own.neutral("spatial", 1)
        own.skip("momentum")
        parts = ("scale", "shift", "mean", "variance")
        values = {part: self._constant(operator, at, part) for at, part in enumerate(parts, 1)}
        epsilon = own.take("epsilon", 1e-5)
        name = self.draft.batch_norm(operator.name, value.node, epsilon=epsilon, **values)
        return _Value(name, value.rank)

    def _relu(self, operator: _Operator) -> _Value:
        value = self._source(operator)
        return _Value(self.draft.relu(operator.name, value.node), value.rank)

    def _maxpool(self, operator: _Operator) -> _Value:
        operator.own.skip("storage_order")  # that of the indices, which are not read
        return self._pool(operator, "max_pool")

    def _averagepool(self, operator: _Operator) -> _Value:
        return self._pool(operator, "average_pool")

    def _pool(self, operator: _Operator, op: str) -> _Value:
        own, source = operator.own, self._planes(operator)
        own.neutral("ceil_mode", 0)
        kernel = [int(one) for one in own.take("kernel_shape")]
        # Over what no window reaches, evaluators differ.
        stride, pad = self._windows(operator, source, kernel, kernel)
        if op == "average_pool" and not self._is_set(operator, "count_include_pad") and any(pad):
            raise self.draft.wrong(
                operator.where, "pads that means leave out: count_include_pad 1 is possible"
            )
        if any(one >= size for one, size in zip(pad, kernel * 2, strict=True)):
            raise self.draft.wrong(
                operator.where, f"pads {list(pad)}: smaller than windows of {kernel} are possible"
            )
        return _Value(self.draft.pool(operator.name, op, source, kernel, stride, pad), 4)

    def _globalaveragepool(self, operator: _Operator) -> _Value:
        return _Value(self.draft.global_average_pool(operator.name, self._planes(operator)), 4)

    def _are_rows_and_columns(self, axes: list[int] | None) -> bool:
        return axes is not None and sorted(one + 4 * (one < 0) for one in axes) == [2, 3]

    def _reducemean(self, operator: _Operator) -> _Value:
        operator.own.skip("noop_with_empty_axes")  # they are not empty
        axes = self._integers(operator, "axes")
        value = self._source(operator)
        if value.rank != 4 or not self._are_rows_and_columns(axes):
            raise self.draft.wrong(
                operator.where,
                f"axes {axes} of {self._text(value)}: rows and columns, 2 and 3, are possible",
            )
        rank = 4 if self._is_set(operator, "keepdims", True) else 2
        return _Value(self.draft.global_average_pool(operator.name, value.node), rank)

    def _affine(
        self, operator: _Operator, at: int, what: str, made: Callable[[Array], tuple[Any, Any]]
    ) -> _Value:
        """What a constant, the input ``at``, does to the other input: a factor, and what is added.

        It broadcasts as numpy has it, from the last axis on. What comes out must be one number for
        each channel.
        """
        constant = self._constant(operator, at, what)
        value = self._value(operator.inputs[1 - at], operator.where)
        sizes = self._sizes(value)
        try:
            whole = np.broadcast_to(constant, sizes)
        except ValueError:
            whole = None
        first = None if whole is None else whole[:, :, *[slice(1)] * (value.rank - 2)]
        if whole is None or first is None or not (whole == first).all():
            name, shape = operator.inputs[at], list(constant.shape)
            raise self.draft.wrong(
                operator.where,
                f"its {what} {name!r} of {shape} over {self._text(value)}, for {sizes[1]} "
                f"channels: one number, or one for each channel, {[1] * value.rank} with channels "
                "in the second place, is possible",
            )
        factor, offset = made(first.ravel())
        return _Value(self.draft.affine(operator.name, value.node, factor, offset), value.rank)

    def _add(self, operator: _Operator) -> _Value:
        for at in (0, 1):
            if operator.inputs[at] in self.constants:
                return self._affine(operator, at, "constant", lambda each: (1.0, each))
        left, right = (self._value(one, operator.where) for one in operator.inputs)
        if left.rank != right.rank:
            raise self.draft.wrong(
                operator.where,
                f"a sum of {self._text(left)} and {self._text(right)}: they must be alike",
            )
        return _Value(self.draft.add(operator.name, left.node, right.node), left.rank)

    def _sub(self, operator: _Operator) -> _Value:
        if operator.inputs[0] in self.constants:
            return self._affine(operator, 0, "left side", lambda each: (-1.0, each))
        return self._affine(operator, 1, "right side", lambda each: (1.0, -each))

    def _mul(self, operator: _Operator) -> _Value:
        at = 0 if operator.inputs[0] in self.constants else 1
        return self._affine(operator, at, "factor", lambda each: (each, 0.0))

    def _div(self, operator: _Operator) -> _Value:
        if not self._constant(operator, 1, "divisor").all():
            raise self.draft.wrong(operator.where, "a division by 0")
        return self._affine(operator, 1, "divisor", lambda each: (1 / each, 0.0))

    def _flatten(self, operator: _Operator) -> _Value:
        value = self._source(operator)
        axis = operator.own.take("axis", 1)
        if axis not in (1, 1 - value.rank):
            raise self.draft.wrong(operator.where, f"axis {axis}: 1 is possible")
        return self._flat(operator, value)

    def _flat(self, operator: _Operator, value: _Value, rank: int = 2) -> _Value:
        name = self.draft.flatten(operator.name, value.node)
        if name == value.node:
            self.draft.leave_out(operator.name, "of what is flat")
        return _Value(name, rank)

    def _reshape(self, operator: _Operator) -> _Value:
        value = self._source(operator)
        sizes = self._sizes(value)
        zeros = self._is_set(operator, "allowzero")
        target = self._constant(operator, 1, "shape", np.int64, of_images=True)
        one = _reshaped(sizes, target.ravel().tolist(), zeros)
        more = one
        if not self.is_for_one:
            target_of_more = self.others.get(operator.inputs[1], target)
            more = _reshaped([_IMAGES, *sizes[1:]], target_of_more.ravel().tolist(), zeros)
            if more is None and target_of_more is target:
                self.is_for_one, more = True, one  # it takes no other number of images
            elif more is not None:
                more = [1, *more[1:]] if more[0] == _IMAGES else None
        if one is not None and one == more and one[0] == 1:
            if one == sizes:
                self.draft.leave_out(operator.name, "a reshape to the same shape")
                return value
            if len(one) in (2, 4) and set(one[2:]) <= {1}:
                return self._flat(operator, value, len(one))
        raise self.draft.wrong(
            operator.where,
            f"a reshape of {self._text(value)} to {target.tolist()}: [batch, {np.prod(sizes)}] is "
            "possible, of any batch, or of a batch of 1 where the input is fixed to one image",
        )

    def _squeeze(self, operator: _Operator) -> _Value:
        axes = self._integers(operator, "axes")
        value = self._source(operator)
        if value.rank != 4 or self.draft.shape(value.node)[1:] != (1, 1):
            raise self.draft.wrong(
                operator.where,
                f"of planes or of what is flat, {self._text(value)}: one number each is possible",
            )
        if not self._are_rows_and_columns(axes):
            raise self.draft.wrong(
                operator.where, f"axes {axes}: rows and columns, 2 and 3, are possible"
            )
        return self._flat(operator, value)

    def _softmax(self, operator: _Operator) -> _Value:
        value = self._source(operator)
        # Below 13 it is over all axes from that one on: of one number, but for the channels.
        axis = operator.own.take("axis", -1 if self.file.opset >= 13 else 1)
        if axis not in (1, 1 - value.rank):
            raise self.draft.wrong(
                operator.where, f"axis {axis} of {self._text(value)}: 1 is possible"
            )
        return _Value(self.draft.post(operator.name, "softmax", value.node), value.rank)

    def _sigmoid(self, operator: _Operator) -> _Value:
        value = self._source(operator)
        return _Value(self.draft.post(operator.name, "sigmoid", value.node), value.rank)


def _trimmed(names: Iterable[str]) -> list[str]:
    """Names of inputs or outputs, without those at the end that are left out."""
    found = list(names)
    while found and not found[-1]:
        found.pop()
    return found


def _reshaped(shape: list[int], target: list[int], zeros: bool) -> list[int] | None:
    """What a shape becomes; None where it cannot. ``zeros`` where a 0 is no size to be kept."""
    found = []
    for at, size in enumerate(target):
        if size == 0 and not zeros:
            if at >= len(shape):
                return None
            size = shape[at]
        found.append(size)
    count = int(np.prod(shape))
    if found.count(-1) == 1:
        rest = -int(np.prod(found))
        if rest < 1 or count % rest:
            return None
        found[found.index(-1)] = count // rest
    return found if min(found, default=0) > 0 and int(np.prod(found)) == count else None

"""ONNX files as networks.

Every attribute, input and output of a node is read, stands at a value that changes nothing, or is
refused by name. What was read is compared with onnx's reference evaluator of the same file.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any, overload

import numpy as np

from .._fields import Fields
from .._printable import named, one_line, printed, quoted
from ..errors import ModelError
from ._compare import compared
from ._network import Network, Shape
from ._onnx_axes import Axed
from ._onnx_file import Array, File
from ._onnx_graph import Operator, trimmed
from ._onnx_value import CHANNELS, FIRST, Value
from ._onnx_windows import Windows

#: What changes nothing in an inference.
_NOTHING = {"Identity": "an identity", "Dropout": "a dropout, which inference does without"}
#: Operators that are taken, and how many inputs each has at most; None of any number.
_READ = {
    "Add": 2,
    "AveragePool": 1,
    "BatchNormalization": 5,
    "Clip": 3,
    "Concat": None,
    "Conv": 3,
    "Div": 2,
    "Dropout": 3,
    "Flatten": 1,
    "Gemm": 3,
    "GlobalAveragePool": 1,
    "GlobalMaxPool": 1,
    "Identity": 1,
    "LeakyRelu": 1,
    "MatMul": 2,
    "Max": 2,
    "MaxPool": 1,
    "Mul": 2,
    "PRelu": 2,
    "Pad": 4,
    "ReduceMax": 2,
    "ReduceMean": 2,
    "Relu": 1,
    "Reshape": 2,
    "Shape": 1,
    "Sigmoid": 1,
    "Slice": 5,
    "Softmax": 1,
    "Split": 2,
    "Squeeze": 2,
    "Sub": 2,
    "Sum": None,
    "Transpose": 1,
    "Unsqueeze": 2,
}
#: Outputs beside the first that say nothing about it, as long as nothing reads them.
_BESIDE = {"MaxPool", "Dropout"}
#: Why operators are not taken.
_WHY = {
    "it is recurrent": {"GRU", "LSTM", "Loop", "RNN", "Scan"},
    "it computes a curve": {
        *("Celu", "Cos", "Elu", "Erf", "Exp", "Gelu", "HardSigmoid", "HardSwish", "Log", "Mish"),
        *("Pow", "Reciprocal", "Selu", "Sin", "Softplus", "Softsign", "Sqrt", "Swish", "Tanh"),
    },
    "it makes planes larger": {"ConvTranspose", "DepthToSpace", "Resize", "Upsample"},
    "it depends on other numbers of the same input": {
        *("Attention", "GroupNormalization", "InstanceNormalization", "LayerNormalization"),
        *("LpNormalization", "LRN", "RMSNormalization", "TopK", "NonMaxSuppression"),
    },
}
#: The largest number of 32 bits, which bounds nothing.
_LARGEST = float(np.finfo(np.float32).max)


@overload
def read(path: Path, shape: Shape | None, output: str | None) -> Network: ...


@overload
def read(
    path: Path, shape: Shape | None, output: str | None, refusals: list[str] | None
) -> Network | None: ...


def read(
    path: Path, shape: Shape | None, output: str | None, refusals: list[str] | None = None
) -> Network | None:
    """See `networks.from_onnx`. Refusals of nodes go to ``refusals``, if it is given."""
    # The draft refuses weights that are not finite; values that are not are so on both sides.
    with printed(), np.errstate(all="ignore"):
        file = File(path)
        reader = _Reader(file, shape, output)
        network = reader.read(refusals)
        if network is None:
            return None
        return compared(
            network, "onnx's reference evaluator", reader.answers, reader.between, file.source
        )


class _Reader(Windows, Axed):
    """Walks a graph."""

    def read(self, refusals: list[str] | None) -> Network | None:
        """The network, which is not compared yet; None where there are refusals."""
        for node in self.ends.nodes:
            if self.unknown.intersection(filter(None, node.input)):
                self.unknown.update(node.output)
                # Whatever is done to sizes is done to constants, which any operator may read.
                if node.op_type == "Shape" or self._is_of_constants(node):
                    self.unknown_sizes.update(node.output)
                elif refusals is not None and not self._is_read(node):
                    refusals.append(str(self._unsupported(node, _where(node))))
                continue
            try:
                self._one(node)
            except ModelError as error:
                if refusals is None:
                    raise
                refusals.append(one_line(str(error)))
                self.unknown.update(node.output)
                if self._is_of_constants(node):
                    self.unknown_sizes.update(node.output)
        if refusals:
            return None
        if self.output in self.constants:
            raise ModelError(
                f"{self.file.source}: the output {quoted(self.output)} does not depend on the input"
            )
        value = self._value(self.output, "the graph's output")
        if not value.is_in_order:
            raise self.draft.wrong(
                "the graph's output", f"{value}: that of channels, rows, columns is possible"
            )
        return self.draft.finish(value.node)

    def _is_of_constants(self, node: Any) -> bool:
        """Whether a node reads constants alone, of which some may have been refused."""
        own = (self.constants, self.unknown_sizes)
        return all(any(one in those for those in own) for one in node.input if one)

    def _is_read(self, node: Any) -> bool:
        return not node.domain and node.op_type in _READ

    def _one(self, node: Any) -> None:
        name, where = _name(node), _where(node)
        if node.domain:
            raise self._unsupported(node, where)
        try:
            attributes = self.file.attributes(node)
        except ValueError as error:
            raise self.draft.wrong(where, str(error)) from error
        inputs = trimmed(node.input)
        outputs = self._outputs(node, where)
        if all(one in self.constants for one in inputs if one):
            self._fold(node, where)
            return
        if not self._is_read(node):
            raise self._unsupported(node, where)
        most = _READ[node.op_type] or len(inputs)
        if len(inputs) > most:
            raise self.draft.wrong(where, f"{len(inputs)} inputs: at most {most} are possible")
        inputs += [""] * (most - len(inputs))
        if len(outputs) > 1 and node.op_type not in (*_BESIDE, "Split"):
            raise self.draft.wrong(where, f"{len(outputs)} outputs: one is possible")
        if node.op_type in _BESIDE:
            self.beside.update(dict.fromkeys(outputs[1:], where))
        with Fields(attributes, lambda what: self.draft.wrong(where, what)) as own:
            operator = Operator(name, where, inputs, outputs, own)
            found = getattr(self, f"_{node.op_type.lower()}")(operator)
            each = [found] if isinstance(found, Value) else found
            for value in each:
                self._count(where, value)
            for output, value in zip(outputs, each, strict=False):
                self.values[output] = value
                if value.pad is None:
                    self.made.append((value, where, output))

    def _unsupported(self, node: Any, where: str) -> ModelError:
        domain = f"{node.domain}." if node.domain else ""
        why = next((f", for {one}" for one, kinds in _WHY.items() if node.op_type in kinds), "")
        return self.draft.wrong(
            where,
            f"the operator {named(domain + node.op_type)} is not supported{why}: possible are "
            f"{', '.join(sorted(_READ))}, and more over constants",
        )

    def _identity(self, operator: Operator) -> Value:
        return self._nothing(operator, "Identity")

    def _dropout(self, operator: Operator) -> Value:
        operator.own.skip("ratio", "seed")
        if operator.inputs[2] and self._constant(operator, 2, "training mode", np.bool_).any():
            raise self.draft.wrong(
                operator.where, "a dropout of training: export the model for inference"
            )
        return self._nothing(operator, "Dropout")

    def _nothing(self, operator: Operator, kind: str) -> Value:
        self.draft.leave_out(operator.name, _NOTHING[kind])
        return self._raw(operator.inputs[0], operator.where)

    def _gemm(self, operator: Operator) -> Value:
        own, value = operator.own, self._source(operator)
        own.neutral("transA", 0)
        if value.rank != 2:
            raise self.draft.wrong(operator.where, f"a matrix over {value}: flatten before it")
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
        return self._linear(operator, value, matrix, bias)

    def _matmul(self, operator: Operator) -> Value:
        """Over rows, and over planes whose channels are last: there it is a convolution."""
        value, matrix = self._source(operator), self._matrix(operator).T
        last = value.rank - 1
        if value.rank == 2:
            return self._linear(operator, value, matrix, None)
        if not value.is_of_channels(last):
            raise self.draft.wrong(
                operator.where, f"a matrix over the last axis of {value}: flatten before it"
            )
        node = self.draft.conv(operator.name, value.node, matrix[:, :, None, None], None)
        return value.with_channels(last, node, self.draft.shape(node))

    def _linear(self, operator: Operator, value: Value, matrix: Array, bias: Array | None) -> Value:
        """A matrix over a row, which may be of planes in another order than a node's."""
        node, count = value.node, value.sizes[1]
        if matrix.shape[1] == count and not value.is_in_order:
            node = self.draft.flatten(f"{operator.name}.flat", node)
            matrix = matrix[:, value.in_node(np.arange(count)[None]).ravel()]
        elif not value.is_in_order:
            raise self.draft.wrong(
                operator.where, f"a matrix of {matrix.shape} for {count} numbers"
            )
        node = self.draft.linear(operator.name, node, matrix, bias)
        return Value.of(node, self.draft.shape(node), FIRST[:1])

    def _matrix(self, operator: Operator) -> Array:
        weight = self._constant(operator, 1, "right side")
        if weight.ndim != 2:
            raise self.draft.wrong(
                operator.where, f"a right side of {list(weight.shape)}, expected a matrix"
            )
        return weight

    def _batchnormalization(self, operator: Operator) -> Value:
        own, value = operator.own, self._source(operator)
        own.neutral("training_mode", 0)
        own.neutral("spatial", 1)
        own.skip("momentum")
        if not value.is_of_channels(1):
            raise self.draft.wrong(operator.where, f"over {value}, expected channels after images")
        parts = ("scale", "shift", "mean", "variance")
        values = {part: self._constant(operator, at, part) for at, part in enumerate(parts, 1)}
        epsilon = own.take("epsilon", 1e-5)
        node = self.draft.batch_norm(operator.name, value.node, epsilon=epsilon, **values)
        return self._given(value, node)

    def _relu(self, operator: Operator) -> Value:
        value = self._source(operator)
        return self._given(value, self.draft.relu(operator.name, value.node))

    def _max(self, operator: Operator) -> Value:
        """The larger of a value and 0, as some exports write a ReLU."""
        at = 0 if operator.inputs[0] in self.constants else 1
        constant = self._constant(operator, at, "constant")
        value = self._value(operator.inputs[1 - at], operator.where)
        if self._numbers_of_channels(operator, at, "constant", value, constant).any():
            raise self.draft.wrong(operator.where, "a constant other than 0: Clip is possible")
        return self._given(value, self.draft.relu(operator.name, value.node))

    def _clip(self, operator: Operator) -> Value:
        value = self._source(operator)
        least = self._bound(operator, 1, "min", -_LARGEST)
        most = self._bound(operator, 2, "max", _LARGEST)
        if least == 0 and most is None:
            return self._given(value, self.draft.relu(operator.name, value.node))
        if least is None or most is None:
            raise self.draft.wrong(
                operator.where,
                f"min {least} and max {most}: both, or a min of 0 alone, are possible",
            )
        return self._given(value, self.draft.clip(operator.name, value.node, least, most))

    def _bound(self, operator: Operator, at: int, name: str, none: float) -> float | None:
        """A bound, which is an attribute in old opsets; None where it bounds nothing."""
        found = np.asarray(operator.own.take(name, none), np.float32)
        if operator.inputs[at]:
            found = self._constant(operator, at, name)
        if found.shape not in ((), (1,)):
            raise self.draft.wrong(
                operator.where, f"{name} of {list(found.shape)}: one number is possible"
            )
        number = float(found.item())
        return None if number / none >= 1 else number

    def _leakyrelu(self, operator: Operator) -> Value:
        value = self._source(operator)
        slope = operator.own.take("alpha", 0.01)
        return self._given(value, self.draft.leaky_relu(operator.name, value.node, slope))

    def _prelu(self, operator: Operator) -> Value:
        value, slope = self._source(operator), self._constant(operator, 1, "slope")
        each = self._numbers_of_channels(operator, 1, "slope", value, slope)
        return self._given(value, self.draft.leaky_relu(operator.name, value.node, each))

    def _add(self, operator: Operator) -> Value:
        for at in (0, 1):
            if operator.inputs[at] in self.constants:
                return self._by_channel(operator, at, "constant", lambda each: (1.0, each))
        return self._sum(operator)

    def _sum(self, operator: Operator) -> Value:
        values = [self._value(one, operator.where) for one in operator.inputs]
        return functools.reduce(functools.partial(self._sum_of, operator), values)

    def _sum_of(self, operator: Operator, left: Value, right: Value) -> Value:
        if left.axes != right.axes:
            raise self.draft.wrong(
                operator.where, f"a sum of {left} and {right}: they must be alike"
            )
        return self._given(left, self.draft.add(operator.name, left.node, right.node))

    def _sub(self, operator: Operator) -> Value:
        if operator.inputs[0] in self.constants:
            return self._by_channel(operator, 0, "left side", lambda each: (-1.0, each))
        if operator.inputs[1] in self.constants:
            return self._by_channel(operator, 1, "right side", lambda each: (1.0, -each))
        left, right = (self._value(one, operator.where) for one in operator.inputs)
        negative = self.draft.affine(f"{operator.name}.negative", right.node, -1.0, 0.0)
        return self._sum_of(operator, left, self._given(right, negative))

    def _mul(self, operator: Operator) -> Value:
        left, right = (one in self.constants for one in operator.inputs)
        if not (left or right):
            raise self.draft.wrong(
                operator.where,
                "a product of two values that the graph computes (gates, attention, squeeze and "
                "excitation): one by a constant is possible",
            )
        return self._by_channel(operator, 0 if left else 1, "factor", lambda each: (each, 0.0))

    def _div(self, operator: Operator) -> Value:
        if not self._constant(operator, 1, "divisor").all():
            raise self.draft.wrong(operator.where, "a division by 0")
        return self._by_channel(operator, 1, "divisor", lambda each: (1 / each, 0.0))

    def _softmax(self, operator: Operator) -> Value:
        value = self._source(operator)
        # Below 13 it is over all axes from that one on: of one number, but for the channels.
        is_new = self.file.opset >= 13
        asked = operator.own.take("axis", -1 if is_new else 1)
        axis = self._axis(operator, asked, value.rank)
        at = value.axes.index((CHANNELS,)) + 1 if (CHANNELS,) in value.axes else 0
        if value.shape[CHANNELS] == 1:
            at = axis
        if axis == 0 or (axis != at if is_new else axis > at):
            raise self.draft.wrong(
                operator.where, f"axis {asked} of {value}: that of channels is possible"
            )
        return self._given(value, self.draft.post(operator.name, "softmax", value.node))

    def _sigmoid(self, operator: Operator) -> Value:
        value = self._source(operator)
        return self._given(value, self.draft.post(operator.name, "sigmoid", value.node))


def _name(node: Any) -> str:
    return named(node.name or (node.output[0] if node.output else node.op_type))


def _where(node: Any) -> str:
    return f"node {quoted(_name(node))} ({named(node.op_type)})"

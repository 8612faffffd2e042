"""ONNX files as networks."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import ConfigError, ModelError
from .networks import INPUT, Draft, Network, Shape, same_pad

_Array = npt.NDArray[Any]

#: What changes nothing in an inference.
_NOTHING = {"Identity": "an identity", "Dropout": "a dropout, which inference does without"}


def read(path: Path) -> Network:
    """See `networks.from_onnx`."""
    try:
        onnx = importlib.import_module("onnx")
        importlib.import_module("onnx.numpy_helper")
        importlib.import_module("onnx.reference")
    except ImportError as error:
        raise ConfigError(
            "ONNX files are read by the package onnx: `pip install 'hushtable[onnx]'`"
        ) from error
    if not path.is_file():
        raise ConfigError(f"{path} is no file")
    try:
        model = onnx.load(str(path))
    except Exception as error:  # protobuf's and onnx's own, which have no common kind
        raise ModelError(f"{path} is no readable ONNX model: {error}") from error
    if not model.graph.node:
        raise ModelError(f"{path} is no readable ONNX model: its graph has no nodes")
    return _Reader(onnx, model, path.name).read()


class _Reader:
    """Walks a graph: a value is a constant, or what a node of the draft gives."""

    def __init__(self, onnx: Any, model: Any, source: str) -> None:
        self.onnx = onnx
        self.graph = model.graph
        self.source = source
        self.opsets = list(model.opset_import)
        self.constants: dict[str, _Array] = {
            one.name: onnx.numpy_helper.to_array(one) for one in self.graph.initializer
        }
        self.values: dict[str, str] = {}
        self.pads: dict[str, tuple[str, tuple[int, int, int, int]]] = {}
        inputs = [one for one in self.graph.input if one.name not in self.constants]
        if len(inputs) != 1 or len(self.graph.output) != 1:
            raise ModelError(
                f"{source} has {len(inputs)} inputs and {len(self.graph.output)} outputs: one each "
                "is possible"
            )
        self.draft = Draft(self._input_shape(inputs[0]), source)
        self.values[inputs[0].name] = INPUT

    def _input_shape(self, value: Any) -> Shape:
        sizes = [one.dim_value or 0 for one in value.type.tensor_type.shape.dim]
        if len(sizes) not in (2, 4) or min(sizes[1:], default=0) < 1:
            raise ModelError(
                f"{self.source}: the input {value.name!r} has the shape {sizes} (0 where it is not "
                "fixed), expected [batch, channels, rows, columns] or [batch, numbers], fixed but "
                "for the batch"
            )
        if sizes[0] > 1:
            raise ModelError(
                f"{self.source}: the input {value.name!r} is of {sizes[0]} images: export the "
                "model for one, or for a batch of any size"
            )
        return (sizes[1], *sizes[2:]) if len(sizes) == 4 else (sizes[1], 1, 1)  # type: ignore[return-value]

    def read(self) -> Network:
        """The network."""
        for node in self.graph.node:
            self._one(node)
        output = self.graph.output[0].name
        if output in self.pads:
            raise self._wrong_pad(output)
        if output not in self.values:
            raise ModelError(f"{self.source}: the output {output!r} does not depend on the input")
        return self.draft.finish(self.values[output])

    def _one(self, node: Any) -> None:
        name = node.name or (node.output[0] if node.output else node.op_type)
        where = f"node {name!r} ({node.op_type})"
        if node.domain not in ("", "ai.onnx"):
            raise self._unsupported(node, where)
        inputs = list(node.input)
        own = {one.name: self.onnx.helper.get_attribute_value(one) for one in node.attribute}
        if all(one in self.constants for one in inputs if one):
            self._fold(node, where)
            return
        if node.op_type == "Shape":
            shape = self.draft.shape(self._value(inputs[0], where))
            sizes = [1, *shape] if shape[1:] != (1, 1) else [1, shape[0]]
            end = own.get("end", len(sizes))
            self.constants[node.output[0]] = np.array(sizes[own.get("start", 0) : end], np.int64)
            return
        if node.op_type in _NOTHING:
            self.draft.leave_out(name, _NOTHING[node.op_type])
            found = inputs[0]
            if found in self.pads:
                self.pads[node.output[0]] = self.pads[found]
            else:
                self.values[node.output[0]] = self._value(found, where)
            return
        if node.op_type == "Pad":
            self._pad(node, inputs, own, where)
            return
        reader: Callable[..., str] | None = getattr(self, f"_{node.op_type.lower()}", None)
        if reader is None or node.op_type not in _READ:
            raise self._unsupported(node, where)
        self.values[node.output[0]] = reader(name, inputs, own, where)

    def _unsupported(self, node: Any, where: str) -> ModelError:
        domain = f"{node.domain}." if node.domain else ""
        return self.draft.wrong(
            where,
            f"the operator {domain}{node.op_type} is not supported: possible are "
            f"{', '.join(sorted({*_READ, *_NOTHING, 'Pad'}))}, and any over constants",
        )

    def _wrong_pad(self, name: str) -> ModelError:
        return self.draft.wrong(
            f"node {self.pads[name][0]!r} (Pad)", "is not followed by a convolution"
        )

    def _fold(self, node: Any, where: str) -> None:
        """Computes a node over constants."""
        try:
            feeds = {one: self.constants[one] for one in node.input if one}
            inputs = [
                self.onnx.helper.make_tensor_value_info(
                    one, self.onnx.helper.np_dtype_to_tensor_dtype(value.dtype), value.shape
                )
                for one, value in feeds.items()
            ]
            outputs = [
                self.onnx.helper.make_empty_tensor_value_info(one) for one in node.output if one
            ]
            graph = self.onnx.helper.make_graph([node], "fold", inputs, outputs)
            model = self.onnx.helper.make_model(graph, opset_imports=self.opsets)
            evaluator = self.onnx.reference.ReferenceEvaluator(model)
            found = evaluator.run(None, feeds)
        except Exception as error:  # the evaluator's own, of any kind
            raise self.draft.wrong(
                where, f"could not be computed over constants: {error}"
            ) from error
        self.constants.update(
            {name: np.asarray(value) for name, value in zip(node.output, found, strict=False)}
        )

    def _value(self, name: str, where: str) -> str:
        if name in self.pads:
            raise self._wrong_pad(name)
        if name not in self.values:
            what = "a constant" if name in self.constants else "not there"
            raise self.draft.wrong(
                where, f"its input {name!r} is {what}, expected what a node gives"
            )
        return self.values[name]

    def _constant(self, name: str, what: str, where: str) -> _Array:
        if name not in self.constants:
            raise self.draft.wrong(where, f"its {what} {name!r} must be a constant")
        return self.constants[name]

    def _optional(self, inputs: list[str], at: int, what: str, where: str) -> _Array | None:
        if at >= len(inputs) or not inputs[at]:
            return None
        return self._constant(inputs[at], what, where)

    def _windows(
        self, source: str, kernel: list[int], own: dict[str, Any], where: str
    ) -> tuple[list[int], tuple[int, int, int, int]]:
        """Stride and pads of a convolution or pool."""
        if len(kernel) != 2:
            raise self.draft.wrong(where, f"a kernel of {len(kernel)} dimensions: 2 are possible")
        if any(one != 1 for one in own.get("dilations", [])):
            raise self.draft.wrong(where, f"dilations {list(own['dilations'])}: 1 is possible")
        if own.get("ceil_mode"):
            raise self.draft.wrong(where, "ceil_mode 1: 0 is possible")
        stride = [int(one) for one in own.get("strides", [1, 1])]
        auto = own.get("auto_pad", b"NOTSET").decode()
        _, rows, columns = self.draft.shape(source)
        if auto in ("SAME_UPPER", "SAME_LOWER"):
            below = auto == "SAME_UPPER"
            return stride, same_pad(rows, columns, kernel, stride, more_below=below)
        if auto not in ("NOTSET", "VALID"):
            raise self.draft.wrong(where, f"auto_pad {auto} is none")
        pads = [0] * 4 if auto == "VALID" else [int(one) for one in own.get("pads", [0] * 4)]
        top, left, bottom, right = pads
        return stride, (top, left, bottom, right)

    def _conv(self, name: str, inputs: list[str], own: dict[str, Any], where: str) -> str:
        more = (0, 0, 0, 0)
        if inputs[0] in self.pads:
            source, more = self.pads[inputs[0]]
            source = self.values[source]
        else:
            source = self._value(inputs[0], where)
        weight = self._constant(inputs[1], "weight", where)
        stride, pad = self._windows(source, list(weight.shape[2:]), own, where)
        if any(more) and own.get("auto_pad", b"NOTSET") in (b"SAME_UPPER", b"SAME_LOWER"):
            raise self.draft.wrong(where, "auto_pad after a Pad")
        top, left, bottom, right = (a + b for a, b in zip(pad, more, strict=True))
        return self.draft.conv(
            name,
            source,
            weight,
            self._optional(inputs, 2, "bias", where),
            stride=stride,
            pad=(top, left, bottom, right),
            groups=int(own.get("group", 1)),
        )

    def _pad(self, node: Any, inputs: list[str], own: dict[str, Any], where: str) -> None:
        """Zeros around an image, which the convolution after it takes."""
        mode = own.get("mode", b"constant")
        found = self._optional(inputs, 1, "pads", where)
        pads = own.get("pads") if found is None else found.ravel().tolist()
        value = self._optional(inputs, 2, "value", where)
        filled = float(own.get("value", 0.0) if value is None else np.squeeze(value))
        if mode != b"constant" or filled != 0.0 or (len(inputs) > 3 and inputs[3]):
            raise self.draft.wrong(
                where, "zeros around rows and columns are possible, nothing else"
            )
        if pads is None or len(pads) != 8 or any(pads[at] for at in (0, 1, 4, 5)) or min(pads) < 0:
            raise self.draft.wrong(where, f"pads {pads}: those of rows and columns are possible")
        self._value(inputs[0], where)
        around = (int(pads[2]), int(pads[3]), int(pads[6]), int(pads[7]))
        self.pads[node.output[0]] = (inputs[0], around)

    def _gemm(self, name: str, inputs: list[str], own: dict[str, Any], where: str) -> str:
        if own.get("transA", 0):
            raise self.draft.wrong(where, "transA 1: 0 is possible")
        weight = self._constant(inputs[1], "weight", where) * own.get("alpha", 1.0)
        bias = self._optional(inputs, 2, "bias", where)
        matrix = weight if own.get("transB", 0) else weight.T
        if bias is not None:
            row = np.squeeze(bias) * own.get("beta", 1.0)
            bias = np.broadcast_to(row, (matrix.shape[0],))
        return self.draft.linear(name, self._value(inputs[0], where), matrix, bias)

    def _matmul(self, name: str, inputs: list[str], _own: dict[str, Any], where: str) -> str:
        weight = self._constant(inputs[1], "right side", where)
        if weight.ndim != 2:
            raise self.draft.wrong(where, f"a right side of {weight.shape}, expected a matrix")
        return self.draft.linear(name, self._value(inputs[0], where), weight.T, None)

    def _batchnormalization(
        self, name: str, inputs: list[str], own: dict[str, Any], where: str
    ) -> str:
        if own.get("training_mode"):
            raise self.draft.wrong(where, "training_mode 1: export the model for inference")
        parts = ("scale", "shift", "mean", "variance")
        values = {
            part: self._constant(name, part, where)
            for part, name in zip(parts, inputs[1:], strict=True)
        }
        return self.draft.batch_norm(
            name, self._value(inputs[0], where), epsilon=own.get("epsilon", 1e-5), **values
        )

    def _relu(self, name: str, inputs: list[str], _own: dict[str, Any], where: str) -> str:
        return self.draft.relu(name, self._value(inputs[0], where))

    def _maxpool(self, name: str, inputs: list[str], own: dict[str, Any], where: str) -> str:
        return self._pool("max_pool", name, inputs, own, where)

    def _averagepool(self, name: str, inputs: list[str], own: dict[str, Any], where: str) -> str:
        return self._pool("average_pool", name, inputs, own, where)

    def _pool(self, op: str, name: str, inputs: list[str], own: dict[str, Any], where: str) -> str:
        source = self._value(inputs[0], where)
        kernel = [int(one) for one in own["kernel_shape"]]
        stride, pad = self._windows(source, kernel, own, where)
        if op == "average_pool" and any(pad) and not own.get("count_include_pad"):
            raise self.draft.wrong(
                where, "pads that means leave out: count_include_pad 1 is possible"
            )
        return self.draft.pool(name, op, source, kernel, stride, pad)

    def _globalaveragepool(
        self, name: str, inputs: list[str], _own: dict[str, Any], where: str
    ) -> str:
        return self.draft.global_average_pool(name, self._value(inputs[0], where))

    def _reducemean(self, name: str, inputs: list[str], own: dict[str, Any], where: str) -> str:
        found = self._optional(inputs, 1, "axes", where)
        axes = own.get("axes", []) if found is None else found.ravel().tolist()
        if sorted(axis % 4 for axis in axes) != [2, 3]:
            raise self.draft.wrong(
                where, f"axes {list(axes)}: rows and columns, 2 and 3, are possible"
            )
        return self.draft.global_average_pool(name, self._value(inputs[0], where))

    def _add(self, name: str, inputs: list[str], _own: dict[str, Any], where: str) -> str:
        for at in (0, 1):
            if inputs[at] in self.constants:
                source = self._value(inputs[1 - at], where)
                return self.draft.affine(name, source, 1.0, self.constants[inputs[at]])
        left, right = (self._value(one, where) for one in inputs)
        return self.draft.add(name, left, right)

    def _sub(self, name: str, inputs: list[str], _own: dict[str, Any], where: str) -> str:
        if inputs[0] in self.constants:
            source = self._value(inputs[1], where)
            return self.draft.affine(name, source, -1.0, self.constants[inputs[0]])
        offset = self._constant(inputs[1], "right side", where)
        return self.draft.affine(name, self._value(inputs[0], where), 1.0, -offset)

    def _mul(self, name: str, inputs: list[str], _own: dict[str, Any], where: str) -> str:
        at = 0 if inputs[0] in self.constants else 1
        factor = self._constant(inputs[at], "factor", where)
        return self.draft.affine(name, self._value(inputs[1 - at], where), factor, 0.0)

    def _div(self, name: str, inputs: list[str], _own: dict[str, Any], where: str) -> str:
        divisor = self._constant(inputs[1], "divisor", where)
        if not np.all(divisor):
            raise self.draft.wrong(where, "a division by 0")
        return self.draft.affine(name, self._value(inputs[0], where), 1.0 / divisor, 0.0)

    def _flatten(self, name: str, inputs: list[str], own: dict[str, Any], where: str) -> str:
        if own.get("axis", 1) != 1:
            raise self.draft.wrong(where, f"axis {own['axis']}: 1 is possible")
        return self.draft.flatten(name, self._value(inputs[0], where))

    def _reshape(self, name: str, inputs: list[str], _own: dict[str, Any], where: str) -> str:
        source = self._value(inputs[0], where)
        sizes = self._constant(inputs[1], "shape", where).ravel().tolist()
        count = int(np.prod(self.draft.shape(source)))
        if len(sizes) == 2 and sizes[0] in (0, 1, -1) and sizes[1] in (-1, count):
            return self.draft.flatten(name, source)
        shape = self.draft.shape(source)
        if len(sizes) == 4 and shape[1:] == (1, 1) and sizes[1:] == [count, 1, 1]:
            return source
        raise self.draft.wrong(where, f"a reshape to {sizes}: [batch, {count}] is possible")

    def _squeeze(self, name: str, inputs: list[str], _own: dict[str, Any], where: str) -> str:
        source = self._value(inputs[0], where)
        if self.draft.shape(source)[1:] != (1, 1):
            raise self.draft.wrong(where, "of planes: it is possible of one number each")
        return self.draft.flatten(name, source)

    def _softmax(self, name: str, inputs: list[str], _own: dict[str, Any], where: str) -> str:
        return self.draft.post(name, "softmax", self._value(inputs[0], where))

    def _sigmoid(self, name: str, inputs: list[str], _own: dict[str, Any], where: str) -> str:
        return self.draft.post(name, "sigmoid", self._value(inputs[0], where))


_READ = {
    "Add",
    "AveragePool",
    "BatchNormalization",
    "Conv",
    "Div",
    "Flatten",
    "Gemm",
    "GlobalAveragePool",
    "MatMul",
    "MaxPool",
    "Mul",
    "ReduceMean",
    "Relu",
    "Reshape",
    "Shape",
    "Sigmoid",
    "Softmax",
    "Squeeze",
    "Sub",
}

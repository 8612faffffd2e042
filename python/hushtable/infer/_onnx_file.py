"""An ONNX file: its graph, its constants, and onnx's reference evaluator of it."""

from __future__ import annotations

import importlib
import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from .. import _within
from .._fields import Fields
from .._printable import named, quoted
from ..errors import ConfigError, ModelError
from ._draft import NUMBERS_MAX

__all__ = ["Array", "Ends", "File"]

Array = npt.NDArray[Any]

#: What makes channels first of images that are channels last.
CHANNELS_FIRST = [0, 3, 1, 2]

#: What is computed over constants: what needs no memory but for what it reads and gives. What is
#: random is not there, nor what onnx's reference evaluator computes otherwise than others do.
_FOLDED = {
    *("Abs", "Add", "And", "ArgMax", "ArgMin", "BitShift", "BitwiseAnd", "BitwiseNot", "BitwiseOr"),
    *("BitwiseXor", "Cast", "CastLike", "Ceil", "Clip", "Compress", "Concat", "Constant"),
    *("ConstantOfShape", "Cos", "CumSum", "DequantizeLinear", "Div", "Elu", "Equal", "Erf", "Exp"),
    *("Expand", "EyeLike", "Flatten", "Floor", "Gather", "GatherElements", "GatherND", "Gemm"),
    *("Greater", "GreaterOrEqual", "HardSigmoid", "HardSwish", "Identity", "IsInf", "IsNaN"),
    *("LeakyRelu", "Less", "LessOrEqual", "Log", "MatMul", "Max", "Mean", "Min", "Mod", "Mul"),
    *("Neg", "NonZero", "Not", "OneHot", "Or", "PRelu", "Pad", "Pow", "QuantizeLinear", "Range"),
    *("Reciprocal", "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax"),
    *("ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare", "Relu", "Reshape"),
    *("Round", "ScatterElements", "ScatterND", "Shape", "Sigmoid", "Sign", "Sin", "Size", "Slice"),
    *("Softplus", "Split", "Sqrt", "Squeeze", "Sub", "Sum", "Tan", "Tanh", "Tile", "Transpose"),
    *("Trilu", "Unsqueeze", "Where", "Xor"),
}
#: Of these the size is not known before; it is no more than that of indices of all that is read.
_FEWER = {"Compress", "NonZero"}
#: Numbers of a constant by which the size of another is known before that is computed.
_SIZES_MAX = 1024
#: What leaves the order of axes open.
_ELEMENTWISE = {"Add", "Clip", "Div", "Dropout", "Identity", "Mul", "Pad", "Relu", "Sub"}
#: Below it, operators broadcast by attributes, and normalisations are those of training.
_OPSET_MIN = 7


class File:
    """An ONNX file as it was read, without what a graph alone does not say.

    Attributes:
        onnx: the package.
        graph: ONNX's own.
        source: the file's name, for messages.
        opset: the version of ONNX's own operators.

    Raises:
        ConfigError: onnx is not installed, or no such file.
        ModelError: no ONNX model; or one that has parts beside its graph.
    """

    def __init__(self, path: Path) -> None:
        try:
            self.onnx: Any = importlib.import_module("onnx")
            importlib.import_module("onnx.numpy_helper")
            importlib.import_module("onnx.reference")
            importlib.import_module("onnx.shape_inference")
        except ImportError as error:
            raise ConfigError(
                "ONNX files are read by the package onnx: `pip install 'hushtable[onnx]'`"
            ) from error
        if not path.is_file():
            raise ConfigError(f"{path} is no file")
        try:
            self.model = self.onnx.load(str(path), load_external_data=False)
        except Exception as error:  # protobuf's and onnx's own, which have no common kind
            raise ModelError(f"{path} is no readable ONNX model: {error}") from error
        self.graph = self.model.graph
        if not self.graph.node:
            raise ModelError(f"{path} is no readable ONNX model: its graph has no nodes")
        self.source = path.name
        self.opset = self._opset()
        #: Bytes of the file's own constants, and how many numbers were computed over them.
        self._bytes = 0
        self._folded = 0
        self._refuse_parts()
        self._load_weights(path)
        self._context = self.onnx.checker.C.CheckerContext()
        self._context.ir_version = self.model.ir_version
        self._context.opset_imports = {one.domain: one.version for one in self.model.opset_import}

    def _opset(self) -> int:
        """That of ONNX's own operators, whose domain has two names."""
        for one in (*self.model.opset_import, *self.graph.node):
            if one.domain == "ai.onnx":
                one.domain = ""
        versions = [int(one.version) for one in self.model.opset_import if one.domain == ""]
        if len(versions) != 1:
            raise ModelError(f"{self.source} has the opsets {versions}: one is possible")
        if versions[0] < _OPSET_MIN:
            raise ModelError(
                f"{self.source} is of opset {versions[0]}: {_OPSET_MIN} and later are possible; "
                "onnx.version_converter converts it"
            )
        known = {"opset": self.onnx.defs.onnx_opset_version(), "format": self.onnx.IR_VERSION}
        for what, version in {"opset": versions[0], "format": self.model.ir_version}.items():
            if version > known[what]:
                raise ModelError(
                    f"{self.source} is of {what} {version}, and the onnx that is installed reads "
                    f"those up to {known[what]}: install a newer one"
                )
        return versions[0]

    def _refuse_parts(self) -> None:
        """Refuses what a model has beside its graph's nodes and their weights."""
        parts = {
            "a sparse initializer: make it dense": self.graph.sparse_initializer,
            "quantisation annotations: export it without them": self.graph.quantization_annotation,
            "a part for training: export it for inference": self.model.training_info,
        }
        for what, part in parts.items():
            if len(part):
                raise ModelError(f"{self.source} has {what}")
        functions = {(one.domain, one.name) for one in self.model.functions}
        for node in self.graph.node:
            if (node.domain, node.op_type) in functions:
                raise ModelError(
                    f"{self.source}, node {quoted(node.name)}: {named(node.op_type)} is a function "
                    "of the file's own: put its nodes in its place by "
                    "onnx.inliner.inline_local_functions"
                )

    def _load_weights(self, path: Path) -> None:
        """Reads weights that stand in files of their own, which must be beside the model's file.

        A file elsewhere is refused, as is a link, which could lead anywhere. The Hugging Face hub's
        cache is of links alone, to files beside each other: where a model and its weights are links
        into one folder, they are read there.
        """
        helper = self.onnx.external_data_helper
        nodes = self.graph.node
        attributes = [one.t for node in nodes for one in node.attribute if one.HasField("t")]
        for tensor in [*self.graph.initializer, *attributes]:
            if not helper.uses_external_data(tensor):
                continue
            where = f"{path}, the weights {quoted(tensor.name)}"

            def wrong(what: str, where: str = where) -> ModelError:
                return ModelError(f"{where}: {what}")

            entries = {entry.key: entry for entry in tensor.external_data}
            values = {name: entry.value for name, entry in entries.items()}
            with Fields(values, wrong, "field") as own:
                location = own.take("location")
                own.skip("offset", "length", "checksum", "basepath")
            try:
                folder, entries["location"].value = _beside(path, location)
                helper.load_external_data_for_tensor(tensor, str(folder))
            except Exception as error:  # onnx's own, and Python's
                raise wrong(
                    f"{error}; copy the model and its files of weights into one folder, as files "
                    "that are no links"
                ) from error
            tensor.data_location = self.onnx.TensorProto.DEFAULT
            del tensor.external_data[:]

    def initializers(self) -> dict[str, Array]:
        """Constants by name."""
        found: dict[str, Array] = {}
        for one in self.graph.initializer:
            if one.name in found:
                raise ModelError(
                    f"{self.source}: the initializer {quoted(one.name)} is there twice"
                )
            try:
                found[one.name] = self.onnx.numpy_helper.to_array(one)
            except Exception as error:  # onnx's own and numpy's
                raise ModelError(
                    f"{self.source}: the initializer {quoted(one.name)} is not readable: {error}"
                ) from error
        self._bytes = sum(one.nbytes for one in found.values())
        return found

    def keep(self, ends: Ends) -> None:
        """Leaves only what the output that is wanted depends on."""
        if len(ends.nodes) < len(self.graph.node):
            del self.graph.node[:]
            self.graph.node.extend(ends.nodes)
        for one in [one for one in self.graph.output if one.name != ends.output]:
            self.graph.output.remove(one)

    def attributes(self, node: Any) -> dict[str, Any]:
        """A node's attributes by name.

        Raises:
            ValueError: a node that is not as ONNX defines it, or that has a part of its own.
        """
        names = ("GRAPH", "GRAPHS", "SPARSE_TENSOR", "SPARSE_TENSORS")
        kinds = [self.onnx.AttributeProto.AttributeType.Value(name) for name in names]
        for one in node.attribute:
            if one.ref_attr_name or one.type in kinds:
                raise ValueError(
                    f"{one.name} is a graph, a sparse tensor or a function's: none is possible"
                )
        try:
            self.onnx.checker.check_node(node, self._context)
        except Exception as error:  # onnx's own
            raise ValueError(str(error)) from error
        return {one.name: self.onnx.helper.get_attribute_value(one) for one in node.attribute}

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """What onnx's reference evaluator gives for an input, all values in between with it."""
        found = self._evaluator(self.model).run(None, dict(feeds), intermediate=True)
        return {name: np.asarray(value) for name, value in found.items() if value is not None}

    def folded(self, node: Any, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """What a node gives that reads constants alone.

        Raises:
            ValueError: one that gives something else each time, or that the evaluator does not run.
        """
        if node.op_type not in _FOLDED:
            raise ValueError(f"{named(node.op_type)} is not computed over constants")
        if node.op_type != "Constant":
            self._refuse_many(node, feeds)
        helper = self.onnx.helper
        names = [one for one in node.output if one]
        try:
            inputs = [
                helper.make_tensor_value_info(
                    one, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape
                )
                for one, value in feeds.items()
            ]
            outputs = [helper.make_empty_tensor_value_info(one) for one in names]
            graph = helper.make_graph([node], "fold", inputs, outputs)
            model = helper.make_model(graph, opset_imports=list(self.model.opset_import))
            found = self._evaluator(model).run(None, dict(feeds))
            if node.op_type == "Constant":
                self._bytes += sum(np.asarray(one).nbytes for one in found)
        except Exception as error:  # the evaluator's own, of any kind
            raise ValueError(f"could not be computed over constants: {error}") from error
        if not all(isinstance(value, np.ndarray | np.generic) for value in found):
            raise ValueError("gives no arrays")
        return {name: np.asarray(value) for name, value in zip(names, found, strict=True)}

    def _refuse_many(self, node: Any, feeds: Mapping[str, Array]) -> None:
        """Refuses what gives too many numbers over constants, before it is computed.

        Raises:
            ValueError: too many, text, or a size that is not known before.
        """
        most = max(NUMBERS_MAX, 4 * self._bytes)
        if node.op_type in _FEWER:
            count = sum(one.size * max(one.ndim, 1) for one in feeds.values())
        else:
            count = self._count(node, feeds)
        if (folded := self._folded + count) > most:
            raise ValueError(
                f"{folded} numbers computed over constants so far: at most {most} are possible of "
                "this file"
            )
        self._folded = folded

    def _count(self, node: Any, feeds: Mapping[str, Array]) -> int:
        """How many numbers a node gives over constants, as onnx infers it."""
        helper = self.onnx.helper
        sizes = {one: value for one, value in feeds.items() if value.size <= _SIZES_MAX}
        try:
            large = [
                helper.make_tensor_value_info(
                    one, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape
                )
                for one, value in feeds.items()
                if one not in sizes
            ]
            small = [self.onnx.numpy_helper.from_array(value, one) for one, value in sizes.items()]
            outputs = [helper.make_empty_tensor_value_info(one) for one in node.output if one]
            graph = helper.make_graph([node], "sizes", large, outputs, small)
            model = helper.make_model(
                graph,
                opset_imports=list(self.model.opset_import),
                ir_version=max(self.model.ir_version, 4),
            )
            found = self.onnx.shape_inference.infer_shapes(model, data_prop=True).graph.output
        except Exception as error:  # onnx's own, of any kind
            raise ValueError(f"could not be computed over constants: {error}") from error
        count = 0
        for one in found:
            tensor = one.type.tensor_type
            shape = tensor.shape.dim
            if not tensor.HasField("shape") or not all(
                size.HasField("dim_value") for size in shape
            ):
                raise ValueError(
                    "over constants: how many numbers it gives is not known before it is computed"
                )
            if tensor.elem_type == self.onnx.TensorProto.STRING:
                raise ValueError("text over constants: numbers are possible")
            count += math.prod(size.dim_value for size in shape)
        return count

    def _evaluator(self, model: Any) -> Any:
        """onnx's reference evaluator of a model, but for three of its operators.

        In files of old opsets it has a normalisation of training, and a softmax along the last axis
        by default: here they are as those opsets define them. Its largest of windows takes minutes
        for a network of images, and mistakes pads that are not alike.
        """
        base = importlib.import_module("onnx.reference.op_run").OpRun
        pool = importlib.import_module("onnx.reference.ops.op_max_pool").MaxPool
        until = {
            "BatchNormalization": (14, base, _normalised),
            "Softmax": (13, base, _softmax),
            "MaxPool": (math.inf, pool, _largest),
        }
        replaced = []
        for name, (version, kind, run) in until.items():
            if self.opset < version:
                schema = self.onnx.defs.get_schema(name, self.opset)
                own = {"op_domain": "", "op_schema": schema, "_run": run}
                replaced.append(type(name, (kind,), own))
        return self.onnx.reference.ReferenceEvaluator(model, new_ops=replaced)


@dataclass(frozen=True, slots=True)
class Ends:
    """What a graph is given, and which of its outputs is wanted.

    Attributes:
        input: the input's name.
        rank: 4 of images, 2 of numbers.
        shape: channels, rows and columns of one input.
        is_turned: whether the file's images are channels last.
        is_for_one: whether the file takes one image only, not any number of them.
        output: the name of the output that is wanted.
        left: those of the others.
        nodes: the graph's; where there are several outputs those that the wanted one needs.
    """

    input: str
    rank: int
    shape: tuple[int, int, int]
    is_turned: bool
    is_for_one: bool
    output: str
    left: tuple[str, ...]
    nodes: tuple[Any, ...]

    @classmethod
    def of(
        cls,
        file: File,
        constants: Mapping[str, Array],
        shape: tuple[int, int, int] | None,
        output: str | None,
    ) -> Self:
        """Of a file, for a shape where it leaves sizes open, and an output where it has several.

        Raises:
            ConfigError: a shape or an output that is none of it.
            ModelError: several inputs, sizes that are open, numbers that are not of 32 bits.
        """
        inputs = [one for one in file.graph.input if one.name not in constants]
        outputs = {one.name: one for one in file.graph.output}
        names = ", ".join(map(quoted, outputs))
        if len(inputs) != 1:
            raise ModelError(f"{file.source} has {len(inputs)} inputs: one is possible")
        if output is None and len(outputs) != 1:
            raise ModelError(
                f"{file.source} has {len(outputs)} outputs, {names}: choose one by its name "
                "(--output, output=)"
            )
        if output is not None and output not in outputs:
            raise ConfigError(f"{file.source} has no output {quoted(output)}: it has {names}")
        (value,), wanted = inputs, output or next(iter(outputs))
        types = file.onnx.TensorProto.DataType
        for one in (value, outputs[wanted]):
            kind = one.type.tensor_type.elem_type
            # An output's kind may be left out.
            if kind != types.Value("FLOAT") and (kind or one is value):
                raise ModelError(
                    f"{file.source}: {quoted(one.name)} is of numbers of {types.Name(kind)}, "
                    "expected FLOAT: export the model with numbers of 32 bits"
                )
        sizes = [one.dim_value or 0 for one in value.type.tensor_type.shape.dim]
        is_turned = _is_turned(file, value.name, sizes, constants)
        nodes = list(file.graph.node)
        return cls(
            input=value.name,
            rank=len(sizes),
            shape=_shape_of(file.source, value.name, sizes, is_turned, shape),
            is_turned=is_turned,
            is_for_one=sizes[0] == 1,
            output=wanted,
            left=tuple(name for name in outputs if name != wanted),
            nodes=tuple(nodes if len(outputs) == 1 else _needed(nodes, wanted)),
        )


def _is_turned(file: File, name: str, sizes: list[int], constants: Mapping[str, Array]) -> bool:
    """Whether images are channels last: what first asks for an order makes them channels first.

    That is a transpose; or a reshape, of images of one channel.
    """
    helper, same = file.onnx.helper, {name}
    one_channel = [1, *sizes[1:3]]
    for node in file.graph.node:
        if not same.intersection(node.input) or len(sizes) != 4:
            continue
        if node.op_type == "Transpose":
            return any(helper.get_attribute_value(one) == CHANNELS_FIRST for one in node.attribute)
        if node.op_type == "Reshape":
            target = constants.get(node.input[1]) if len(node.input) > 1 else None
            is_one = target is not None and target.ravel().tolist()[1:] == one_channel
            return is_one and sizes[3] == 1 and sizes[1] != 1
        if node.op_type not in _ELEMENTWISE:
            return False
        same.update(node.output)
    return False


def _shape_of(
    source: str, name: str, sizes: list[int], is_turned: bool, given: tuple[int, int, int] | None
) -> tuple[int, int, int]:
    what = f"{source}: the input {quoted(name)} has the shape {sizes}"
    if len(sizes) not in (2, 4):
        raise ModelError(f"{what}, expected [batch, channels, rows, columns] or [batch, numbers]")
    if sizes[0] > 1:
        raise ModelError(f"{what}: export the model for one image, or for a batch of any size")
    own = sizes[1:] if len(sizes) == 4 else [sizes[1], 1, 1]
    if is_turned:
        own = [own[2], *own[:2]]
    if given is not None:
        if any(size not in (0, wanted) for size, wanted in zip(own, given, strict=True)):
            raise ConfigError(f"{what}, which {given} does not fit: channels, rows, columns")
        return given
    if min(own) < 1:
        raise ModelError(
            f"{what}, 0 where it is not fixed: say channels, rows and columns (--shape, shape=)"
        )
    channels, rows, columns = own
    return channels, rows, columns


def _needed(nodes: list[Any], output: str) -> list[Any]:
    """The nodes that an output depends on."""
    needed, found = {output}, []
    for node in reversed(nodes):
        if needed.intersection(node.output):
            needed.update(node.input)
            found.append(node)
    return found[::-1]


def _beside(path: Path, location: str) -> tuple[Path, str]:
    """The folder and the name of a file of weights.

    Raises:
        ValueError: one outside the model's folder, or a link that is none of the hub's cache.
    """
    # Some exporters write "./weights".
    beside = _within.join(path.parent, PurePosixPath(location).as_posix())
    real = beside.resolve()
    if path.is_symlink() and real.parent == path.resolve().parent:
        return real.parent, real.name
    if beside.is_symlink() or not real.is_relative_to(path.parent.resolve()):
        raise ValueError(f"{beside} is a link, or not in the model's folder")
    return path.parent, location


def _normalised(
    _operator: Any,
    images: Array,
    scale: Array,
    shift: Array,
    mean: Array,
    variance: Array,
    **attributes: Any,
) -> tuple[Array]:
    """A normalisation by what is known of all images, as onnx defines it below opset 14."""
    axes = (-1, *[1] * (images.ndim - 2))
    deviation = np.sqrt(variance.reshape(axes) + attributes["epsilon"])
    normal = (images - mean.reshape(axes)) / deviation
    return ((normal * scale.reshape(axes) + shift.reshape(axes)).astype(images.dtype),)


def _softmax(_operator: Any, values: Array, axis: int) -> tuple[Array]:
    """A softmax over every axis from one on, as onnx defines it below opset 13."""
    axes = tuple(range(axis % values.ndim, values.ndim))
    powers = np.exp(values - values.max(axes, keepdims=True))
    return (powers / powers.sum(axes, keepdims=True),)


def _largest(operator: Any, images: Array, **attributes: Any) -> tuple[Array, ...]:
    """The largest of windows, one place of all windows after the other."""
    kernel, sizes = attributes["kernel_shape"], images.shape[2:]
    dilations = attributes.get("dilations") or [1]
    if max(dilations) > 1 or len(operator.output) > 1:
        both: tuple[Array, ...] = super(type(operator), operator)._run(images, **attributes)
        return both
    rank = len(kernel)
    steps = attributes["strides"] or [1] * rank
    pads = attributes["pads"] or [0] * (2 * rank)
    around = list(zip(pads[:rank], pads[rank:], strict=True))
    if attributes["auto_pad"] in ("SAME_UPPER", "SAME_LOWER"):
        lacking = [
            max(-(-size // step) * step - step + window - size, 0)
            for size, step, window in zip(sizes, steps, kernel, strict=True)
        ]
        around = [(one // 2, one - one // 2) for one in lacking]
        if attributes["auto_pad"] == "SAME_LOWER":
            around = [pair[::-1] for pair in around]
    if attributes.get("ceil_mode"):
        wholes = [size + sum(pair) for size, pair in zip(sizes, around, strict=True)]
        around = [
            (less, more + (window - whole) % step)
            for (less, more), whole, window, step in zip(around, wholes, kernel, steps, strict=True)
        ]
    padded = np.pad(images, [(0, 0), (0, 0), *around], constant_values=-np.inf)
    ends = [size - window + 1 for size, window in zip(padded.shape[2:], kernel, strict=True)]
    found = np.full((), -np.inf, images.dtype)
    for start in itertools.product(*map(range, kernel)):
        each = zip(start, ends, steps, strict=True)
        place: Any = (..., *[slice(at, at + end, step) for at, end, step in each])
        found = np.maximum(found, padded[place])
    return (found,)

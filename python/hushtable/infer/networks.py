"""Networks of convolutions and activations, for hybrid private inference.

    from hushtable.infer import networks

    network = networks.from_onnx("resnet.onnx")  # or from_torch(module, (3, 32, 32)), from_keras
    network.evaluate(images)  # float32 [images, answers], in the clear
    network.build("models/resnet", name="resnet")  # a model bundle

A network is a graph of a few operators and its weights. What an importer leaves out (dropouts) or
cannot take is said by name; `Network.evaluate` computes the graph as it was taken, so that an
import can be compared with where it came from.
"""

from __future__ import annotations

import json
import math
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from .. import _native
from ..errors import ConfigError, ModelError

__all__ = ["METADATA_KEY", "Draft", "Network", "Node", "from_keras", "from_onnx", "from_torch"]

_Path = str | os.PathLike[str]
Floats = npt.NDArray[np.float32]
Shape = tuple[int, int, int]

#: Where a network's graph stands among the metadata of its safetensors file.
METADATA_KEY = "hushtable.network"
#: The name of the input among nodes' inputs.
INPUT = "input"
_FORMAT = 1
#: What a client does to an opened answer: it stands at the end of a network only.
_POSTS = {"softmax", "sigmoid"}


@dataclass(frozen=True, slots=True)
class Node:
    """One operator at its place.

    Attributes:
        name: its name, which others read it by.
        op: conv, linear, batch_norm, relu, max_pool, average_pool, global_average_pool, add,
            flatten, softmax or sigmoid.
        inputs: names of nodes, or ``input``.
        attributes: names of tensors, and sizes.
        shape: channels, rows and columns of what it gives.
    """

    name: str
    op: str
    inputs: tuple[str, ...]
    attributes: Mapping[str, Any]
    shape: Shape


@dataclass(frozen=True)
class Network:
    """A graph of operators with its weights.

    Attributes:
        input: channels, rows and columns.
        nodes: in an order in which each node's inputs stand before it.
        output: the name of the node whose numbers are the answer.
        tensors: float32 weights by name.
        range: the lowest and the highest number of an input, where known.
        notes: what the importer left out, and why that changes nothing.
        checked: what it was compared with, and how well they agree; empty where nothing runs what
            it was read from (Keras).
    """

    input: Shape
    nodes: tuple[Node, ...]
    output: str
    tensors: Mapping[str, Floats]
    range: tuple[float, float] | None = None
    notes: tuple[str, ...] = ()
    checked: str = ""

    @property
    def activations(self) -> int:
        """Numbers that go through ReLUs."""
        return sum(math.prod(node.shape) for node in self.nodes if node.op == "relu")

    @property
    def parameters(self) -> int:
        """Weights, all told."""
        return sum(tensor.size for tensor in self.tensors.values())

    @property
    def answers(self) -> int:
        """Numbers of an answer."""
        return math.prod(next(node.shape for node in self.nodes if node.name == self.output))

    def graph(self) -> dict[str, Any]:
        """What is written beside the weights."""
        image: dict[str, Any] = {"shape": list(self.input)}
        if self.range is not None:
            image["range"] = list(self.range)
        nodes = [
            {"name": one.name, "op": one.op, "inputs": list(one.inputs), **one.attributes}
            for one in self.nodes
        ]
        return {"format": _FORMAT, "input": image, "nodes": nodes, "output": self.output}

    def save(self, path: _Path) -> None:
        """Writes a safetensors file, with the graph among its metadata. The same network makes the
        same bytes.
        """
        header: dict[str, Any] = {
            "__metadata__": {METADATA_KEY: json.dumps(self.graph(), separators=(",", ":"))}
        }
        end = 0
        for name in sorted(self.tensors):
            tensor = self.tensors[name]
            begin, end = end, end + 4 * tensor.size
            header[name] = {
                "dtype": "F32",
                "shape": list(tensor.shape),
                "data_offsets": [begin, end],
            }
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        with Path(path).open("wb") as file:
            file.write(len(text).to_bytes(8, "little") + text)
            for name in sorted(self.tensors):
                file.write(np.ascontiguousarray(self.tensors[name], "<f4").tobytes())

    def build(self, out: _Path, *, name: str | None = None) -> Path:
        """Makes a model bundle without tables, which `hushtable.infer.compile` takes; returns it.

        Args:
            out: the bundle's folder, which must not exist.
            name: the model's name; that of the folder if not given.

        Raises:
            ModelError: a folder that exists, or one that cannot be written.
        """
        out = Path(out)
        with tempfile.TemporaryDirectory(prefix="hushtable-network-") as folder:
            dense = Path(folder) / "dense.safetensors"
            self.save(dense)
            _native.model_of_dense(out, name or out.name, dense)
        return out

    def evaluate(self, images: npt.ArrayLike) -> Floats:
        """Answers in the clear, of float32 images [images, channels, rows, columns].

        Raises:
            ConfigError: images of another shape.
        """
        found = self.values(images)
        return found[self.output].reshape(len(found[INPUT]), -1)

    def values(self, images: npt.ArrayLike) -> dict[str, Floats]:
        """What every node gives for images, by its name; :meth:`evaluate` in full.

        Raises:
            ConfigError: images of another shape.
        """
        values = np.asarray(images, np.float32)
        if values.ndim != 4 or values.shape[1:] != self.input:
            raise ConfigError(f"images are {values.shape}, expected [images, {_text(self.input)}]")
        found = {INPUT: values}
        for node in self.nodes:
            sources = [found[name] for name in node.inputs]
            found[node.name] = _OPERATORS[node.op](node, sources, self.tensors)
        return found


def from_onnx(
    path: _Path, *, shape: Sequence[int] | None = None, output: str | None = None
) -> Network:
    """Reads an ONNX file. It needs the package onnx: ``pip install 'hushtable[onnx]'``.

    onnx's reference evaluator computes random inputs, and so does what was read: other answers end
    the import (:attr:`Network.checked`). Images are channels first; those of a file that turns them
    at its begin are turned.

    Args:
        path: the file.
        shape: channels, rows and columns of one input, where the file leaves them open.
        output: the name of the output that is wanted, where there are several.

    Raises:
        ConfigError: onnx is not installed, no such file, a shape or an output that is none of it.
        ModelError: a file that is no ONNX model, an operator that is not supported (with its
            name and the node's), or a shape that is not fixed.
    """
    from . import _onnx

    return _onnx.read(Path(path), None if shape is None else _shape(shape), output)


def from_torch(
    module: Any, shape: Sequence[int], *, range: tuple[float, float] | None = None
) -> Network:
    """Takes a torch module, as it is in evaluation. It needs torch: ``pip install
    'hushtable[torch]'``.

    The module is copied and stays as it is. The copy computes random inputs, and so does what was
    read of it: other answers end the import (:attr:`Network.checked`).

    Args:
        module: a ``torch.nn.Module`` that `torch.fx` can trace: no branches on values.
        shape: channels, rows and columns of one input.
        range: the lowest and the highest number of an input, where known.

    Raises:
        ConfigError: torch is not installed, or a shape that is none.
        ModelError: a module that cannot be traced; an operator or an option that is not supported,
            hooks, parameters of half precision; other answers than the module's.
    """
    from . import _torch

    return _torch.read(module, _shape(shape), range)


def from_keras(path: _Path) -> Network:
    """Reads a Keras model of an HDF5 file, written by Keras 2. It needs h5py: ``pip install
    'hushtable[keras]'``. Images become channels first; the file's are channels last.

    Raises:
        ConfigError: h5py is not installed, or no such file.
        ModelError: a file that is no Keras model, or a layer that is not supported.
    """
    from . import _keras

    return _keras.read(Path(path))


def _shape(shape: Sequence[int]) -> Shape:
    if len(shape) != 3 or not all(isinstance(size, int) and size > 0 for size in shape):
        raise ConfigError(f"the shape is {tuple(shape)}, expected (channels, rows, columns)")
    channels, rows, columns = shape
    return channels, rows, columns


def _text(shape: Sequence[int]) -> str:
    return ", ".join(str(size) for size in shape)


@dataclass
class Draft:
    """A network while an importer puts it together; every node is checked as it is added.

    Attributes:
        input: channels, rows and columns.
        source: what is imported, for messages.
    """

    input: Shape
    source: str
    nodes: list[Node] = field(default_factory=list)
    tensors: dict[str, Floats] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    _shapes: dict[str, Shape] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._shapes[INPUT] = self.input

    def shape(self, name: str) -> Shape:
        """Of what a node gives."""
        return self._shapes[name]

    def wrong(self, where: str, what: str) -> ModelError:
        """An error about a node."""
        return ModelError(f"{self.source}, {where}: {what}")

    def tensor(self, name: str, values: npt.ArrayLike) -> str:
        """Keeps weights, as float32, and returns their name; another where that one is taken.

        Raises:
            ModelError: weights that are not finite.
        """
        array = np.ascontiguousarray(values, np.float32)
        if not np.isfinite(array).all():
            raise self.wrong(name, "weights that are not finite")
        name = _free(name, self.tensors)
        self.tensors[name] = array
        return name

    def leave_out(self, name: str, why: str) -> None:
        """Notes an operator that changes nothing."""
        self.notes.append(f"{name}: {why}")

    def conv(
        self,
        name: str,
        source: str,
        weight: npt.ArrayLike,
        bias: npt.ArrayLike | None,
        *,
        stride: Sequence[int] = (1, 1),
        pad: Sequence[int] = (0, 0, 0, 0),
        groups: int = 1,
    ) -> str:
        """Adds a convolution; ``pad`` is top, left, bottom, right."""
        kernel = np.asarray(weight)
        channels, rows, columns = self.shape(source)
        if kernel.ndim != 4 or groups < 1 or kernel.shape[1] * groups != channels:
            raise self.wrong(
                name, f"weights of {kernel.shape} in {groups} groups over {channels} channels"
            )
        if kernel.shape[0] % groups:
            raise self.wrong(name, f"{kernel.shape[0]} kernels in {groups} groups")
        size = _windows(rows, columns, kernel.shape[2:], stride, pad)
        if size is None:
            raise self.wrong(
                name, f"a kernel of {kernel.shape[2:]} over {rows} x {columns}, padded by {pad}"
            )
        attributes = {
            "weight": self.tensor(f"{name}.weight", kernel),
            **self._bias(name, bias, kernel.shape[0]),
            "stride": list(stride),
            "pad": list(pad),
            "groups": groups,
        }
        return self._add(name, "conv", [source], attributes, (kernel.shape[0], *size))

    def linear(
        self, name: str, source: str, weight: npt.ArrayLike, bias: npt.ArrayLike | None
    ) -> str:
        """Adds a fully connected layer; weights are outputs x inputs."""
        matrix = np.asarray(weight)
        channels, rows, columns = self.shape(source)
        if rows * columns > 1:
            raise self.wrong(
                name, f"a matrix over {channels} x {rows} x {columns}: flatten before it"
            )
        if matrix.ndim != 2 or matrix.shape[1] != channels:
            raise self.wrong(name, f"a matrix of {matrix.shape} for {channels} numbers")
        attributes = {
            "weight": self.tensor(f"{name}.weight", matrix),
            **self._bias(name, bias, matrix.shape[0]),
        }
        return self._add(name, "linear", [source], attributes, (matrix.shape[0], 1, 1))

    def _bias(self, name: str, bias: npt.ArrayLike | None, outputs: int) -> dict[str, str]:
        if bias is None:
            return {}
        if np.shape(bias) != (outputs,):
            raise self.wrong(name, f"a bias of {np.shape(bias)} for {outputs} outputs")
        return {"bias": self.tensor(f"{name}.bias", bias)}

    def batch_norm(
        self,
        name: str,
        source: str,
        *,
        scale: npt.ArrayLike,
        shift: npt.ArrayLike,
        mean: npt.ArrayLike,
        variance: npt.ArrayLike,
        epsilon: float,
    ) -> str:
        """Adds scale · (x - mean) / sqrt(variance + epsilon) + shift, of each channel."""
        shape = self.shape(source)
        parts = {"scale": scale, "shift": shift, "mean": mean, "variance": variance}
        for part, values in parts.items():
            if np.shape(values) != (shape[0],):
                raise self.wrong(name, f"{part} of {np.shape(values)} for {shape[0]} channels")
        if not epsilon >= 0 or not (np.asarray(variance, np.float64) + epsilon > 0).all():
            raise self.wrong(name, "a variance that is not positive")
        attributes: dict[str, Any] = {
            part: self.tensor(f"{name}.{part}", values) for part, values in parts.items()
        }
        attributes["epsilon"] = float(epsilon)
        return self._add(name, "batch_norm", [source], attributes, shape)

    def affine(self, name: str, source: str, scale: npt.ArrayLike, shift: npt.ArrayLike) -> str:
        """Adds scale · x + shift, of each channel or by one number for all."""
        channels = self.shape(source)[0]
        values = []
        for part in (scale, shift):
            found = np.squeeze(np.asarray(part, np.float32))
            if found.ndim == 0:
                found = np.full(channels, found, np.float32)
            if found.shape != (channels,):
                raise self.wrong(
                    name,
                    f"constants of {np.shape(part)} for {channels} channels: one each is possible",
                )
            values.append(found)
        return self.batch_norm(
            name,
            source,
            scale=values[0],
            shift=values[1],
            mean=np.zeros(channels),
            variance=np.ones(channels),
            epsilon=0.0,
        )

    def relu(self, name: str, source: str) -> str:
        """Adds a ReLU."""
        return self._add(name, "relu", [source], {}, self.shape(source))

    def pool(
        self,
        name: str,
        op: str,
        source: str,
        kernel: Sequence[int],
        stride: Sequence[int],
        pad: Sequence[int] = (0, 0, 0, 0),
    ) -> str:
        """Adds ``max_pool`` or ``average_pool``; one of 1 x 1 is left out."""
        channels, rows, columns = self.shape(source)
        size = _windows(rows, columns, kernel, stride, pad)
        if size is None:
            raise self.wrong(name, f"windows of {tuple(kernel)} over {rows} x {columns}")
        if math.prod(kernel) == 1 and math.prod(stride) == 1 and not any(pad):
            self.leave_out(name, "a pool of 1 x 1")
            return source
        if op == "average_pool" and tuple(kernel) == (rows, columns) and not any(pad):
            return self.global_average_pool(name, source)
        attributes = {"kernel": list(kernel), "stride": list(stride), "pad": list(pad)}
        return self._add(name, op, [source], attributes, (channels, *size))

    def global_average_pool(self, name: str, source: str) -> str:
        """Adds the mean of each plane."""
        shape = (self.shape(source)[0], 1, 1)
        return self._add(name, "global_average_pool", [source], {}, shape)

    def add(self, name: str, left: str, right: str) -> str:
        """Adds a sum of two."""
        if self.shape(left) != self.shape(right):
            shapes = f"({_text(self.shape(left))}) and ({_text(self.shape(right))})"
            raise self.wrong(name, f"a sum of {shapes}: they must be alike")
        return self._add(name, "add", [left, right], {}, self.shape(left))

    def flatten(self, name: str, source: str) -> str:
        """Adds a flattening; one of what is flat is left out."""
        shape = self.shape(source)
        if shape[1:] == (1, 1):
            return source
        return self._add(name, "flatten", [source], {}, (math.prod(shape), 1, 1))

    def post(self, name: str, op: str, source: str) -> str:
        """Adds ``softmax`` or ``sigmoid``, at the network's end: who opens the answer does it."""
        if self.shape(source)[1:] != (1, 1):
            raise self.wrong(name, f"a {op} over planes: it is possible over one row, at the end")
        return self._add(name, op, [source], {}, self.shape(source))

    def _add(
        self, name: str, op: str, inputs: list[str], attributes: dict[str, Any], shape: Shape
    ) -> str:
        for one in inputs:
            if one != INPUT and self.op(one) in _POSTS:
                raise self.wrong(
                    name, f"a {op} after a {self.op(one)}: that is possible at the end only"
                )
        name = _free(name or op, self._shapes)
        self.nodes.append(Node(name, op, tuple(inputs), attributes, shape))
        self._shapes[name] = shape
        return name

    def op(self, name: str) -> str:
        """Which operator a node is."""
        return next(node.op for node in self.nodes if node.name == name)

    def finish(self, output: str, range: tuple[float, float] | None = None) -> Network:
        """The network, of those nodes that the output needs.

        Raises:
            ModelError: no node at all.
        """
        if output == INPUT:
            raise ModelError(f"{self.source}: the output is the input: there is nothing to compute")
        needed = {output}
        for node in reversed(self.nodes):
            if node.name in needed:
                needed.update(node.inputs)
        nodes = tuple(node for node in self.nodes if node.name in needed)
        for node in self.nodes:
            if node.name not in needed:
                self.leave_out(node.name, "the output does not depend on it")
        read = _names(nodes)
        tensors = {name: tensor for name, tensor in self.tensors.items() if name in read}
        return Network(self.input, nodes, output, tensors, range, tuple(self.notes))


def _names(nodes: Sequence[Node]) -> set[str]:
    """Of the tensors that nodes read."""
    return {value for node in nodes for value in node.attributes.values() if isinstance(value, str)}


def _free(name: str, taken: Mapping[str, Any]) -> str:
    if name not in taken:
        return name
    at = 2
    while f"{name}_{at}" in taken:
        at += 1
    return f"{name}_{at}"


def _windows(
    rows: int, columns: int, kernel: Sequence[int], stride: Sequence[int], pad: Sequence[int]
) -> tuple[int, int] | None:
    """How many windows there are down and across; None where none fits, or sizes are none."""
    if min(*kernel, *stride) < 1 or min(pad) < 0:
        return None
    down = rows + pad[0] + pad[2] - kernel[0]
    across = columns + pad[1] + pad[3] - kernel[1]
    if down < 0 or across < 0:
        return None
    return down // stride[0] + 1, across // stride[1] + 1


def same_pad(
    rows: int,
    columns: int,
    kernel: Sequence[int],
    stride: Sequence[int],
    *,
    more_below: bool = True,
) -> tuple[int, int, int, int]:
    """The zeros around an image with which windows of a stride are its sizes over that, rounded up.

    Of an odd number one more stands below and to the right, or above and to the left.
    """
    less, more = [], []
    for size, window, step in zip((rows, columns), kernel, stride, strict=True):
        whole = max((math.ceil(size / step) - 1) * step + window - size, 0)
        less.append(whole // 2)
        more.append(whole - whole // 2)
    if more_below:
        return less[0], less[1], more[0], more[1]
    return more[0], more[1], less[0], less[1]


def _padded(images: Floats, pad: Sequence[int], value: float) -> Floats:
    top, left, bottom, right = pad
    around = ((0, 0), (0, 0), (top, bottom), (left, right))
    return np.pad(images, around, constant_values=value)


def _views(images: Floats, kernel: Sequence[int], stride: Sequence[int]) -> npt.NDArray[Any]:
    """[images, channels, rows, columns, kernel rows, kernel columns]."""
    windows = np.lib.stride_tricks.sliding_window_view(images, tuple(kernel), axis=(2, 3))
    return windows[:, :, :: stride[0], :: stride[1]]


_Tensors = Mapping[str, Floats]


def _conv(node: Node, sources: list[Floats], tensors: _Tensors) -> Floats:
    own = node.attributes
    weight = tensors[own["weight"]]
    images = _padded(sources[0], own["pad"], 0.0)
    views = _views(images, weight.shape[2:], own["stride"])
    groups = own["groups"]
    parts = []
    for kernels, planes in zip(np.split(weight, groups), np.split(views, groups, 1), strict=True):
        found = np.tensordot(planes, kernels, ((1, 4, 5), (1, 2, 3)))
        parts.append(np.moveaxis(found, 3, 1))
    found = np.concatenate(parts, 1)
    if "bias" in own:
        found = found + tensors[own["bias"]][:, None, None]
    return found.astype(np.float32)


def _linear(node: Node, sources: list[Floats], tensors: _Tensors) -> Floats:
    own = node.attributes
    flat = sources[0].reshape(len(sources[0]), -1)
    found = flat @ tensors[own["weight"]].T
    if "bias" in own:
        found = found + tensors[own["bias"]]
    return found.astype(np.float32)[:, :, None, None]


def _batch_norm(node: Node, sources: list[Floats], tensors: _Tensors) -> Floats:
    own = node.attributes
    scale, shift, mean, variance = (
        tensors[own[part]].astype(np.float64) for part in ("scale", "shift", "mean", "variance")
    )
    factor = scale / np.sqrt(variance + own["epsilon"])
    found = sources[0] * factor[:, None, None] + (shift - mean * factor)[:, None, None]
    return np.asarray(found, np.float32)


def _relu(_node: Node, sources: list[Floats], _tensors: _Tensors) -> Floats:
    return np.maximum(sources[0], np.float32(0))


def _max_pool(node: Node, sources: list[Floats], _tensors: _Tensors) -> Floats:
    own = node.attributes
    images = _padded(sources[0], own["pad"], -np.inf)
    return np.asarray(_views(images, own["kernel"], own["stride"]).max((4, 5)), np.float32)


def _average_pool(node: Node, sources: list[Floats], _tensors: _Tensors) -> Floats:
    own = node.attributes
    images = _padded(sources[0], own["pad"], 0.0)
    return np.asarray(_views(images, own["kernel"], own["stride"]).mean((4, 5)), np.float32)


def _global_average_pool(_node: Node, sources: list[Floats], _tensors: _Tensors) -> Floats:
    return np.asarray(sources[0].mean((2, 3), keepdims=True), np.float32)


def _add(_node: Node, sources: list[Floats], _tensors: _Tensors) -> Floats:
    return np.asarray(sources[0] + sources[1], np.float32)


def _flatten(_node: Node, sources: list[Floats], _tensors: _Tensors) -> Floats:
    return sources[0].reshape(len(sources[0]), -1, 1, 1)


def _softmax(_node: Node, sources: list[Floats], _tensors: _Tensors) -> Floats:
    powers = np.exp(sources[0] - sources[0].max(1, keepdims=True))
    return np.asarray(powers / powers.sum(1, keepdims=True), np.float32)


def _sigmoid(_node: Node, sources: list[Floats], _tensors: _Tensors) -> Floats:
    return np.asarray(1 / (1 + np.exp(-sources[0])), np.float32)


_OPERATORS: dict[str, Callable[[Node, list[Floats], _Tensors], Floats]] = {
    "conv": _conv,
    "linear": _linear,
    "batch_norm": _batch_norm,
    "relu": _relu,
    "max_pool": _max_pool,
    "average_pool": _average_pool,
    "global_average_pool": _global_average_pool,
    "add": _add,
    "flatten": _flatten,
    "softmax": _softmax,
    "sigmoid": _sigmoid,
}

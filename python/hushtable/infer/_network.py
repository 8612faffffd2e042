"""A network: nodes, weights, and what they compute in the clear."""

from __future__ import annotations

import json
import math
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from .. import _native
from ..errors import ConfigError

Path_ = str | os.PathLike[str]
Floats = npt.NDArray[np.float32]
Shape = tuple[int, int, int]

#: Where a network's graph stands among the metadata of its safetensors file.
METADATA_KEY = "hushtable.network"
#: The name of the input among nodes' inputs.
INPUT = "input"
_FORMAT = 1


@dataclass(frozen=True, slots=True)
class Node:
    """One operator at its place.

    Attributes:
        name: its name, which others read it by.
        op: conv, linear, batch_norm, relu, max_pool, average_pool, global_average_pool, add,
            concat, flatten, softmax or sigmoid.
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

    def save(self, path: Path_) -> None:
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

    def build(self, out: Path_, *, name: str | None = None) -> Path:
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
            raise ConfigError(f"images are {values.shape}, expected [images, {text(self.input)}]")
        found = {INPUT: values}
        for node in self.nodes:
            sources = [found[name] for name in node.inputs]
            found[node.name] = _OPERATORS[node.op](node, sources, self.tensors)
        return found


def text(shape: Sequence[int]) -> str:
    return ", ".join(str(size) for size in shape)


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


def _relu(node: Node, sources: list[Floats], _tensors: _Tensors) -> Floats:
    found = np.maximum(sources[0], np.float32(0))
    most = node.attributes.get("max")
    return found if most is None else np.minimum(found, np.float32(most))


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


def _concat(_node: Node, sources: list[Floats], _tensors: _Tensors) -> Floats:
    return np.concatenate(sources, 1)


def _flatten(_node: Node, sources: list[Floats], _tensors: _Tensors) -> Floats:
    return sources[0].reshape(len(sources[0]), -1, 1, 1)


def _softmax(_node: Node, sources: list[Floats], _tensors: _Tensors) -> Floats:
    powers = np.exp(sources[0] - sources[0].max(1, keepdims=True))
    return np.asarray(powers / powers.sum(1, keepdims=True), np.float32)


def _sigmoid(_node: Node, sources: list[Floats], _tensors: _Tensors) -> Floats:
    # As 1 / (1 + e^-x), without the power of what is far below 0.
    return np.asarray(np.exp(-np.logaddexp(0.0, -sources[0].astype(np.float64))), np.float32)


_OPERATORS: dict[str, Callable[[Node, list[Floats], _Tensors], Floats]] = {
    "conv": _conv,
    "linear": _linear,
    "batch_norm": _batch_norm,
    "relu": _relu,
    "max_pool": _max_pool,
    "average_pool": _average_pool,
    "global_average_pool": _global_average_pool,
    "add": _add,
    "concat": _concat,
    "flatten": _flatten,
    "softmax": _softmax,
    "sigmoid": _sigmoid,
}

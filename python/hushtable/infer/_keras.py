"""Keras models of HDF5 files as networks.

A file holds the layers as JSON and the weights by name. Nothing in it is executed.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import ConfigError, ModelError
from .networks import INPUT, Draft, Network, Shape, same_pad

_Layer = dict[str, Any]


def read(path: Path) -> Network:
    """See `networks.from_keras`."""
    try:
        h5py = importlib.import_module("h5py")
    except ImportError as error:
        raise ConfigError(
            "Keras models are read by the package h5py: `pip install 'hushtable[keras]'`"
        ) from error
    if not path.is_file():
        raise ConfigError(f"{path} is no file")
    try:
        with h5py.File(path, "r") as file:
            model = json.loads(file.attrs["model_config"])
            weights: dict[str, npt.NDArray[Any]] = {}

            def keep(name: str, found: Any) -> None:
                if isinstance(found, h5py.Dataset):
                    weights[name.rpartition("/")[2] + "@" + name.split("/")[0]] = found[()]

            file["model_weights"].visititems(keep)
        layers: list[_Layer] = model["config"]["layers"]
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise ModelError(f"{path} is no Keras model with its weights: {error}") from error
    return _Reader(path.name, layers, weights).read(model)


class _Reader:
    def __init__(
        self, source: str, layers: list[_Layer], weights: dict[str, npt.NDArray[Any]]
    ) -> None:
        self.source = source
        self.layers = layers
        self.weights = weights
        self.values: dict[str, str] = {}
        self.draft = Draft(self._input_shape(), source)

    def _input_shape(self) -> Shape:
        for layer in self.layers:
            sizes = layer["config"].get("batch_input_shape")
            if sizes is None:
                continue
            if len(sizes) == 4 and all(sizes[1:]):
                return sizes[3], sizes[1], sizes[2]
            if len(sizes) == 2 and sizes[1]:
                return sizes[1], 1, 1
            raise ModelError(f"{self.source}: inputs are {sizes}, expected fixed rows and columns")
        raise ModelError(f"{self.source}: no layer says what an input's sizes are")

    def read(self, model: dict[str, Any]) -> Network:
        last = INPUT
        for layer in self.layers:
            name = layer["config"]["name"]
            kind = layer["class_name"]
            if kind == "InputLayer":
                self.values[name] = INPUT
                continue
            sources = [self.values[one] for one in self._inbound(layer)] or [last]
            reader: Callable[..., str] | None = _LAYERS.get(kind)
            if reader is None:
                raise self.draft.wrong(
                    f"layer {name!r}",
                    f"the layer {kind} is not supported: possible are {', '.join(sorted(_LAYERS))}",
                )
            last = reader(self, name, layer["config"], sources)
            last = self._activation(name, layer["config"], last, kind)
            self.values[name] = last
        outputs = model["config"].get("output_layers")
        if outputs is not None and len(outputs) != 1:
            raise ModelError(f"{self.source} has {len(outputs)} outputs: one is possible")
        return self.draft.finish(self.values[outputs[0][0]] if outputs else last)

    def _inbound(self, layer: _Layer) -> list[str]:
        nodes = layer.get("inbound_nodes") or []
        if len(nodes) > 1:
            name = layer["config"]["name"]
            raise self.draft.wrong(f"layer {name!r}", "is used more than once")
        return [one[0] for one in nodes[0]] if nodes else []

    def weight(self, name: str, part: str) -> npt.NDArray[Any] | None:
        return self.weights.get(f"{part}:0@{name}")

    def needed(self, name: str, part: str) -> npt.NDArray[Any]:
        found = self.weight(name, part)
        if found is None:
            raise self.draft.wrong(f"layer {name!r}", f"the file has no weights {part}")
        return found

    def _activation(self, name: str, own: dict[str, Any], source: str, kind: str) -> str:
        activation = own.get("activation", "linear")
        if kind == "ReLU" or activation == "relu":
            named = name if kind in ("Activation", "ReLU") else f"{name}_relu"
            return self.draft.relu(named, source)
        if activation in ("softmax", "sigmoid"):
            return self.draft.post(f"{name}_{activation}", activation, source)
        if activation != "linear":
            raise self.draft.wrong(
                f"layer {name!r}",
                f"the activation {activation} is not supported: possible are relu, and at the end "
                "softmax and sigmoid",
            )
        return source

    def windows(
        self, own: dict[str, Any], kernel: list[int], source: str
    ) -> tuple[list[int], tuple[int, int, int, int]]:
        where = f"layer {own['name']!r}"
        if own.get("data_format", "channels_last") != "channels_last":
            raise self.draft.wrong(where, "channels_last is possible")
        if any(one != 1 for one in own.get("dilation_rate", [])):
            raise self.draft.wrong(where, f"a dilation of {own['dilation_rate']}: 1 is possible")
        stride = list(own["strides"])
        if own["padding"] == "valid":
            return stride, (0, 0, 0, 0)
        _, rows, columns = self.draft.shape(source)
        return stride, same_pad(rows, columns, kernel, stride)


def _conv(reader: _Reader, name: str, own: dict[str, Any], sources: list[str]) -> str:
    kernel = reader.needed(name, "kernel").transpose(3, 2, 0, 1)
    stride, pad = reader.windows(own, list(kernel.shape[2:]), sources[0])
    bias = reader.needed(name, "bias") if own.get("use_bias", True) else None
    return reader.draft.conv(
        name, sources[0], kernel, bias, stride=stride, pad=pad, groups=own.get("groups", 1)
    )


def _dense(reader: _Reader, name: str, own: dict[str, Any], sources: list[str]) -> str:
    matrix = reader.needed(name, "kernel").T
    node = next((one for one in reader.draft.nodes if one.name == sources[0]), None)
    if node is not None and node.op == "flatten":
        # The file's numbers stand by rows, columns and channels; ours by channels first.
        channels, rows, columns = reader.draft.shape(node.inputs[0])
        if matrix.shape[1] == channels * rows * columns:
            matrix = matrix.reshape(-1, rows, columns, channels).transpose(0, 3, 1, 2)
            matrix = matrix.reshape(len(matrix), -1)
    bias = reader.needed(name, "bias") if own.get("use_bias", True) else None
    return reader.draft.linear(name, sources[0], matrix, bias)


def _batch_norm(reader: _Reader, name: str, own: dict[str, Any], sources: list[str]) -> str:
    mean = reader.needed(name, "moving_mean")
    scale = reader.weight(name, "gamma") if own.get("scale", True) else None
    shift = reader.weight(name, "beta") if own.get("center", True) else None
    return reader.draft.batch_norm(
        name,
        sources[0],
        scale=np.ones_like(mean) if scale is None else scale,
        shift=np.zeros_like(mean) if shift is None else shift,
        mean=mean,
        variance=reader.needed(name, "moving_variance"),
        epsilon=own["epsilon"],
    )


def _max_pool(reader: _Reader, name: str, own: dict[str, Any], sources: list[str]) -> str:
    return _pool(reader, name, "max_pool", own, sources)


def _average_pool(reader: _Reader, name: str, own: dict[str, Any], sources: list[str]) -> str:
    return _pool(reader, name, "average_pool", own, sources)


def _pool(reader: _Reader, name: str, op: str, own: dict[str, Any], sources: list[str]) -> str:
    kernel = list(own["pool_size"])
    stride, pad = reader.windows(own, kernel, sources[0])
    if op == "average_pool" and any(pad):
        raise reader.draft.wrong(f"layer {name!r}", "an average of padded windows")
    return reader.draft.pool(name, op, sources[0], kernel, stride, pad)


def _global(reader: _Reader, name: str, _own: dict[str, Any], sources: list[str]) -> str:
    return reader.draft.global_average_pool(name, sources[0])


def _add(reader: _Reader, name: str, _own: dict[str, Any], sources: list[str]) -> str:
    if len(sources) != 2:
        raise reader.draft.wrong(f"layer {name!r}", f"a sum of {len(sources)}: 2 are possible")
    return reader.draft.add(name, *sources)


def _flatten(reader: _Reader, name: str, _own: dict[str, Any], sources: list[str]) -> str:
    return reader.draft.flatten(name, sources[0])


def _nothing(reader: _Reader, name: str, _own: dict[str, Any], sources: list[str]) -> str:
    reader.draft.leave_out(name, "a dropout, which inference does without")
    return sources[0]


def _same(_reader: _Reader, _name: str, _own: dict[str, Any], sources: list[str]) -> str:
    return sources[0]


_LAYERS: dict[str, Callable[[_Reader, str, dict[str, Any], list[str]], str]] = {
    "Activation": _same,
    "Add": _add,
    "AveragePooling2D": _average_pool,
    "BatchNormalization": _batch_norm,
    "Conv2D": _conv,
    "Dense": _dense,
    "Dropout": _nothing,
    "Flatten": _flatten,
    "GlobalAveragePooling2D": _global,
    "MaxPooling2D": _max_pool,
    "ReLU": _same,
}

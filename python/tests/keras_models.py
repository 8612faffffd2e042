"""Keras models for tests: files as Keras 2 writes them, and what Keras computes of them.

Keras is not installed: `answers` computes what it does, channels last and in float64, by
definitions of its own.
"""

from __future__ import annotations

import contextlib
import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hushtable.errors import ModelError
from hushtable.infer import networks
from hushtable.infer.networks import Network

h5py = pytest.importorskip("h5py", reason="the extra hushtable[keras] is not installed")

Array = np.ndarray
Layer = dict[str, Any]
Model = dict[str, Any]
#: By layer and by part, in Keras' order; of a model within another by "layer/part".
Weights = dict[str, dict[str, Array]]

MODELS = ("Functional", "Model", "Sequential")


# What Keras computes.


def answers(model: Model, weights: Weights, images: Array) -> Array:
    """A model's answers to images, channels last. What is not known here is no answer."""
    layers = model["config"] if isinstance(model["config"], list) else model["config"]["layers"]
    if model["class_name"] == "Sequential":
        value = images.astype(np.float64)
        for layer in layers[layers[0]["class_name"] == "InputLayer" :]:
            value = layered(layer, weights, value)
        return value
    named = {name_of(layer): layer for layer in layers}

    def value_of(tensor: list[Any]) -> Array:
        name, node, place, *_ = tensor
        layer = named[name]
        assert place == 0 and node in ((0, 1) if layer["class_name"] in MODELS else (0,))
        if layer["class_name"] == "InputLayer":
            return images.astype(np.float64)
        (tensors,) = layer["inbound_nodes"]
        return layered(layer, weights, *[value_of(one) for one in tensors])

    (end,) = model["config"]["output_layers"]
    return value_of(end)


def name_of(layer: Layer) -> str:
    """Of a layer; that of an old Sequential within a model stands beside its layers."""
    return layer["name"] if isinstance(layer["config"], list) else layer["config"]["name"]


def by_layer(listed: dict[str, Array]) -> Weights:
    """The weights of a model within another, layer by layer."""
    found: Weights = {}
    for path, numbers in listed.items():
        name, _, part = path.rpartition("/")
        found.setdefault(name, {})[part] = numbers
    return found


def layered(layer: Layer, weights: Weights, *sources: Array) -> Array:
    """What one layer gives."""
    kind, own = layer["class_name"], layer["config"]
    if kind in MODELS:
        (x,) = sources
        listed = weights.get(name_of(layer))
        return answers(layer, weights if listed is None else by_layer(listed), x)
    numbers = [part.astype(np.float64) for part in weights.get(own["name"], {}).values()]
    assert own.get("data_format", "channels_last") == "channels_last"
    if kind == "Add":
        assert len({x.shape for x in sources}) == 1 < len(sources)
        return sum(sources[1:], sources[0])
    if kind == "Concatenate":
        assert own.get("axis", -1) in (-1, sources[0].ndim - 1) and len(sources) > 1
        return np.concatenate(sources, -1)
    (x,) = sources
    if kind == "Conv2D":
        kernel = numbers.pop(0)
        rows, columns, _, filters = kernel.shape
        assert pair(own, "kernel_size", [rows, columns]) == [rows, columns]
        assert own.get("filters") in (None, filters)
        own = {"strides": [1, 1], **own}
        seen, groups = views(x, [rows, columns], own, 0.0), own.get("groups", 1)
        parts = zip(np.split(seen, groups, 5), np.split(kernel, groups, 3), strict=True)
        x = np.concatenate([np.einsum("nrcijk,ijko->nrco", *part) for part in parts], 3)
    elif kind in ("DepthwiseConv2D", "SeparableConv2D"):
        kernel = numbers.pop(0)
        rows, columns, channels, each = kernel.shape
        assert pair(own, "kernel_size", [rows, columns]) == [rows, columns]
        assert (own.get("groups", 1), own.get("depth_multiplier", 1)) == (1, each)
        seen = views(x, [rows, columns], {"strides": [1, 1], **own}, 0.0)
        x = np.einsum("nrcijk,ijkm->nrckm", seen, kernel)
        x = x.reshape(*x.shape[:3], channels * each)
        if kind == "SeparableConv2D":
            x = np.einsum("nrck,ijko->nrco", x, numbers.pop(0))
            assert own.get("filters") in (None, x.shape[3])
    elif kind == "Dense":
        x = x @ numbers.pop(0)
        assert own.get("units") in (None, x.shape[-1])
    elif kind == "BatchNormalization":
        assert own.get("axis", -1) in (-1, x.ndim - 1, [-1], [x.ndim - 1])
        scale = numbers.pop(0) if own.get("scale", True) else 1
        shift = numbers.pop(0) if own.get("center", True) else 0
        mean, variance = numbers
        return scale * (x - mean) / np.sqrt(variance + own.get("epsilon", 1e-3)) + shift
    elif kind in ("MaxPooling2D", "AveragePooling2D"):
        size = pair(own, "pool_size", [2, 2])
        own = {**own, "strides": pair(own, "strides", size)}
        assert "dilation_rate" not in own
        if kind == "MaxPooling2D":
            return views(x, size, own, -np.inf).max((3, 4))
        return np.nanmean(views(x, size, own, np.nan), (3, 4))
    elif kind in ("GlobalAveragePooling2D", "GlobalMaxPooling2D"):
        assert x.ndim == 4
        over = np.mean if kind == "GlobalAveragePooling2D" else np.max
        return over(x, (1, 2), keepdims=own.get("keepdims", False))
    elif kind == "ZeroPadding2D":
        assert x.ndim == 4
        pads = [[one, one] if isinstance(one, int) else one for one in pair(own, "padding", [1, 1])]
        return np.pad(x, [(0, 0), *pads, (0, 0)])
    elif kind == "Flatten":
        return x.reshape(len(x), -1)
    elif kind == "Reshape":
        return x.reshape(len(x), *own["target_shape"])
    elif kind == "Rescaling":
        return x * own["scale"] + own.get("offset", 0.0)
    elif kind == "ReLU":
        most, slope, least = (
            own.get(name, default)
            for name, default in (("max_value", None), ("negative_slope", 0), ("threshold", 0))
        )
        return np.where(x > least, np.minimum(x, most or np.inf), slope * (x - least))
    elif kind == "LeakyReLU":
        return np.where(x > 0, x, own.get("alpha", 0.3) * x)
    elif kind == "PReLU":
        slopes = numbers.pop(0)
        shared = own.get("shared_axes") or []
        assert slopes.shape == tuple(1 if at in shared else x.shape[at] for at in range(1, x.ndim))
        return np.maximum(x, 0) - slopes * np.maximum(-x, 0)
    elif kind == "Softmax":
        assert own.get("axis", -1) in (-1, x.ndim - 1, [-1], [x.ndim - 1])
        return softmax(x)
    else:
        assert kind in ("Activation", "Dropout")
    if kind not in ("Activation", "Dropout") and own.get("use_bias", True):
        x = x + numbers.pop(0)
    assert not numbers
    activation = own.get("activation", "linear")
    if activation in ("relu", "relu6"):
        return np.clip(x, 0, 6 if activation == "relu6" else None)
    if activation == "leaky_relu":
        return np.maximum(x, 0.2 * x)
    if activation == "softmax":
        return softmax(x)
    if activation == "sigmoid":
        return 1 / (1 + np.exp(-x))
    assert activation in (None, "linear")
    return x


def softmax(x: Array) -> Array:
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def pair(own: Layer, name: str, default: list[Any]) -> list[Any]:
    """What is down and across, of which one number stands for both."""
    found = own.get(name)
    return default if found is None else [found, found] if isinstance(found, int) else found


def views(x: Array, size: list[int], own: Layer, fill: float) -> Array:
    """The windows of images: [images, windows down and across, rows, columns, channels]."""
    assert x.ndim == 4
    pads, strides = [(0, 0)], pair(own, "strides", [])
    steps = pair(own, "dilation_rate", [1, 1])
    assert max(strides) == 1 or max(steps) == 1
    wide = [(window - 1) * step + 1 for window, step in zip(size, steps, strict=True)]
    for length, window, stride in zip(x.shape[1:3], wide, strides, strict=True):
        # As TensorFlow's documentation has it.
        whole = max(window - (length % stride or stride), 0)
        is_same = {"same": True, "valid": False}[own.get("padding", "valid")]
        pads.append((whole // 2, whole - whole // 2) if is_same else (0, 0))
    x = np.pad(x, [*pads, (0, 0)], constant_values=fill)
    down, across = (x.shape[1 + axis] - wide[axis] for axis in (0, 1))
    assert min(down, across) >= 0
    places = [
        [
            x[:, row : row + wide[0] : steps[0], at : at + wide[1] : steps[1]]
            for at in range(0, across + 1, strides[1])
        ]
        for row in range(0, down + 1, strides[0])
    ]
    return np.moveaxis(np.array(places), 2, 0)


# Models and files, as Keras 2 writes them.


def trained(*parts: str) -> Layer:
    """How weights began and were trained, which changes no answer."""
    whats = {"initializer": {"class_name": "Zeros", "config": {}}, "regularizer": None}
    whats["constraint"] = {"class_name": "MaxNorm", "config": {"max_value": 2, "axis": 0}}
    return {f"{part}_{what}": one for part in parts for what, one in whats.items()}


WINDOWS = {"padding": "valid", "data_format": "channels_last"}
CONVOLUTION = {
    "kernel_size": [3, 3],
    "strides": [1, 1],
    **WINDOWS,
    "dilation_rate": [1, 1],
    "groups": 1,
    "activation": "linear",
    "use_bias": True,
    **trained("bias"),
    "activity_regularizer": None,
}
CONFIGS: dict[str, Layer] = {
    "Activation": {"activation": "relu"},
    "AveragePooling2D": {"pool_size": [2, 2], "strides": [2, 2], **WINDOWS},
    "BatchNormalization": {
        "axis": [3],
        "momentum": 0.99,
        "epsilon": 0.001,
        "center": True,
        "scale": True,
        "moving_mean_initializer": {"class_name": "Zeros", "config": {}},
        "moving_variance_initializer": {"class_name": "Ones", "config": {}},
        **trained("beta", "gamma"),
    },
    "Concatenate": {"axis": -1},
    "Conv2D": {"filters": 3, **CONVOLUTION, **trained("kernel")},
    "Dense": {
        "units": 3,
        "activation": "linear",
        "use_bias": True,
        **trained("kernel", "bias"),
        "activity_regularizer": {"class_name": "L2", "config": {"l2": 1e-4}},
    },
    "DepthwiseConv2D": {**CONVOLUTION, "depth_multiplier": 1, **trained("depthwise")},
    "Dropout": {"rate": 0.5, "noise_shape": [None, 1], "seed": 3},
    "Flatten": {"data_format": "channels_last"},
    "GlobalAveragePooling2D": {"data_format": "channels_last", "keepdims": False},
    "GlobalMaxPooling2D": {"data_format": "channels_last", "keepdims": False},
    "LeakyReLU": {"alpha": 0.30000001192092896},
    "MaxPooling2D": {"pool_size": [2, 2], "strides": [2, 2], **WINDOWS},
    "PReLU": {**trained("alpha"), "shared_axes": [1, 2]},
    "ReLU": {"max_value": None, "negative_slope": 0.0, "threshold": 0.0},
    "Rescaling": {"scale": 0.00392156862745098, "offset": 0.0},
    "Reshape": {"target_shape": [-1]},
    "SeparableConv2D": {
        "filters": 3,
        **CONVOLUTION,
        "depth_multiplier": 1,
        **trained("kernel", "depthwise", "pointwise"),
    },
    "Softmax": {"axis": -1},
    "ZeroPadding2D": {"padding": [[1, 1], [1, 1]], "data_format": "channels_last"},
}


def layer(kind: str, name: str, **own: Any) -> Layer:
    config = {"name": name, "trainable": True, "dtype": "float32", **CONFIGS.get(kind, {}), **own}
    return {"class_name": kind, "config": config}


def but(like: Layer, **own: Any) -> Layer:
    """A layer as another, but for some of its config."""
    return {**like, "config": {**like["config"], **own}}


def image(*sizes: int | None, name: str = "image", **own: Any) -> Layer:
    config = {"dtype": "float32", "sparse": False, "ragged": False, "name": name}
    return {
        "class_name": "InputLayer",
        "config": {"batch_input_shape": [None, *sizes], **config, **own},
    }


class Made:
    """A model with random weights, layer by layer, in the graph of a functional one.

    Attributes:
        images: four of them, channels last.
        models: those that are layers of it.
        values: what each layer gives for them; None where that is not known.
    """

    def __init__(self, *sizes: int, seed: int = 1) -> None:
        self.random = np.random.default_rng(seed)
        self.images = self.random.normal(0, 1, (4, *sizes)).astype(np.float32)
        self.layers: list[Layer] = [{**image(*sizes), "name": "image", "inbound_nodes": []}]
        self.weights: Weights = {}
        self.models: dict[str, Made] = {}
        self.values: dict[str, Array | None] = {"image": self.images}
        self.last = "image"

    def add(self, added: Layer, *sources: str, **call: Any) -> str:
        """Adds a layer that reads others, or the one that was added last; returns its name."""
        added = copy.deepcopy(added)
        sources, name = sources or (self.last,), name_of(added)
        models = {name_of(one) for one in self.layers if one["class_name"] in MODELS}
        tensors = [[one, int(one in models), 0, call] for one in sources]
        self.layers.append({**added, "name": name, "inbound_nodes": [tensors]})
        found = [self.values[one] for one in sources]
        self.last, self.values[name] = name, None
        if any(one is None for one in found):
            return name
        kind, own = added["class_name"], added["config"]
        if kind == "BatchNormalization" and own["axis"] == [3]:
            own["axis"] = [found[0].ndim - 1]
        made = {
            part: self.floats(part, shape)
            for part, shape in shapes(kind, own, found[0].shape[1:]).items()
        }
        if made:
            self.weights[name] = made
        with contextlib.suppress(Exception):  # of what no one knows
            self.values[name] = layered(added, self.weights, *found)
        return name

    def nest(self, inner: Made, name: str, *sources: str, of: str = "functional") -> str:
        """Adds a model as a layer; returns its name."""
        model = getattr(inner, of)()
        model["config"]["name"] = name
        self.models[name] = inner
        self.weights[name] = {path: numbers for part in in_order(inner) for path, numbers in part}
        return self.add(model, *sources)

    def floats(self, part: str, shape: tuple[int, ...]) -> Array:
        if part == "moving_variance":
            return self.random.uniform(0.3, 2, shape).astype(np.float32)
        return self.random.normal(0, 0.5, shape).astype(np.float32)

    def functional(self, *outputs: str) -> Model:
        models = {name_of(one) for one in self.layers if one["class_name"] in MODELS}
        ends = [[name, int(name in models), 0] for name in outputs or (self.last,)]
        config = {"name": "model", "trainable": True, "layers": self.layers}
        config |= {"input_layers": [["image", 0, 0]], "output_layers": ends}
        return {"class_name": "Functional", "config": config}

    def sequential(self) -> Model:
        layers = [{key: one[key] for key in ("class_name", "config")} for one in self.layers]
        return {"class_name": "Sequential", "config": {"name": "chain", "layers": layers}}


Listed = list[tuple[str, Array]]


def in_order(inner: Made) -> tuple[Listed, Listed]:
    """A model's weights as Keras lists them: those that training changes, then the others."""
    changed, others = [], []
    for one in inner.layers:
        name = name_of(one)
        own = [(f"{name}/{part}", found) for part, found in inner.weights.get(name, {}).items()]
        at = next((at for at, (path, _) in enumerate(own) if "moving" in path), len(own))
        parts = own[:at], own[at:]
        if name in inner.models:
            parts = in_order(inner.models[name])
        is_changed = one["config"].get("trainable", True)
        (changed if is_changed else others).extend(parts[0])
        others.extend(parts[1])
    return changed, others


def shapes(kind: str, own: Layer, sizes: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    """Of a layer's weights, in Keras' order."""
    *_, channels = sizes
    if kind == "BatchNormalization":
        has = {"gamma": own["scale"], "beta": own["center"]}
        parts = ["gamma", "beta", "moving_mean", "moving_variance"]
        return {part: (channels,) for part in parts if has.get(part, True)}
    if kind == "PReLU":
        shared = own["shared_axes"] or []
        return {"alpha": tuple(1 if at in shared else size for at, size in enumerate(sizes, 1))}
    found: dict[str, tuple[int, ...]] = {}
    if kind == "Conv2D":
        outputs = own["filters"]
        found["kernel"] = (*own["kernel_size"], channels // own["groups"], outputs)
    elif kind == "Dense":
        outputs = own["units"]
        found["kernel"] = (channels, outputs)
    elif kind in ("DepthwiseConv2D", "SeparableConv2D"):
        each = own["depth_multiplier"]
        outputs = channels * each
        found["depthwise_kernel"] = (*own["kernel_size"], channels, each)
        if kind == "SeparableConv2D":
            found["pointwise_kernel"] = (1, 1, outputs, own["filters"])
            outputs = own["filters"]
    if found and own["use_bias"]:
        found["bias"] = (outputs,)
    return found


def made(sizes: tuple[int, ...], *layers: Layer) -> Made:
    """A chain of layers."""
    chain = Made(*sizes)
    for one in layers:
        chain.add(one)
    return chain


def write(path: Path, model: Any, weights: Weights, **attributes: Any) -> Path:
    """A file as Keras 2 writes it."""
    versions = {"keras_version": "2.9.0", "backend": "tensorflow", **attributes}
    config = model["config"]
    layers = config["layers"] if isinstance(config, dict) else config
    names = [name_of(one) for one in layers if one]
    names = [name for name in dict.fromkeys(names) if name.isprintable()]
    with h5py.File(path, "w") as file:
        file.attrs["model_config"] = json.dumps(model)
        group = file.create_group("model_weights")
        for attrs in (file.attrs, group.attrs):
            attrs.update(versions)
        group.attrs["layer_names"] = np.array([name.encode() for name in names])
        for name in names:
            own, listed = group.require_group(name), []
            for part, values in weights.get(name, {}).items():
                listed.append(f"{part}:0" if "/" in part else f"{name}/{part}:0")
                own[listed[-1]] = values
            encoded = [one.encode() for one in listed]
            own.attrs["weight_names"] = np.array(encoded) if encoded else np.array([])
    return path


def is_equal(network: Network, model: Model, weights: Weights, images: Array) -> None:
    """Asserts that a network gives Keras' answers, rounding apart."""
    axes = (0, 3, 1, 2) if images.ndim == 4 else (0, 1)
    found = network.evaluate(images.transpose(axes).reshape(len(images), *network.input))
    wanted = answers(model, weights, images).reshape(len(images), -1)
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, atol=1e-4 * max(1e-3, np.abs(wanted).max()), rtol=0)


def taken(
    folder: Path, model: Model, weights: Weights, images: Array, **attributes: Any
) -> Network:
    """The network of a file, which gives Keras' answers."""
    network = networks.from_keras(write(folder / "net.h5", model, weights, **attributes))
    is_equal(network, model, weights, images)
    return network


def refused(folder: Path, model: Any, weights: Weights, match: str, **attributes: Any) -> None:
    with pytest.raises(ModelError, match=match):
        networks.from_keras(write(folder / "net.h5", model, weights, **attributes))


def residual() -> Made:
    """Sums of planes, and of two that were flattened."""
    net = Made(4, 5, 2)
    left = net.add(layer("Conv2D", "c", filters=2, padding="same"), "image")
    right = net.add(layer("BatchNormalization", "n"), "image", training=False, mask=None)
    net.add(layer("Add", "sum"), left, right)
    flat = net.add(layer("Flatten", "f"))
    one = net.add(layer("BatchNormalization", "m"), flat)
    net.add(layer("Add", "twice"), net.add(layer("Flatten", "g"), left), one)
    net.add(layer("Dense", "last"))
    return net

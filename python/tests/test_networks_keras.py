"""Keras files as networks: equal to what Keras computes, or refused by name.

Keras is not installed: files are made as it writes them, and `answers` computes what it does,
channels last and in float64, by definitions of its own.
"""

from __future__ import annotations

import contextlib
import copy
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hushtable.errors import ConfigError, Error, ModelError
from hushtable.infer import networks
from hushtable.infer.networks import Network

h5py = pytest.importorskip("h5py", reason="the extra hushtable[keras] is not installed")

Array = np.ndarray
Layer = dict[str, Any]
Model = dict[str, Any]
#: By layer and by part, in Keras' order.
Weights = dict[str, dict[str, Array]]

#: How many random models and damaged ones there are; many where HUSHTABLE_SOAK_LONG is set.
MODELS, DAMAGED = (5_000, 10_000) if "HUSHTABLE_SOAK_LONG" in os.environ else (200, 600)


# What Keras computes.


def answers(model: Model, weights: Weights, images: Array) -> Array:
    """A model's answers to images, channels last. What is not known here is no answer."""
    layers = model["config"] if isinstance(model["config"], list) else model["config"]["layers"]
    if model["class_name"] == "Sequential":
        value = images.astype(np.float64)
        for layer in layers[layers[0]["class_name"] == "InputLayer" :]:
            value = layered(layer["class_name"], layer["config"], weights, value)
        return value
    named = {layer["config"]["name"]: layer for layer in layers}

    def value_of(tensor: list[Any]) -> Array:
        name, node, place, *_ = tensor
        assert (node, place) == (0, 0)
        layer = named[name]
        if layer["class_name"] == "InputLayer":
            return images.astype(np.float64)
        (tensors,) = layer["inbound_nodes"]
        sources = [value_of(one) for one in tensors]
        return layered(layer["class_name"], layer["config"], weights, *sources)

    (end,) = model["config"]["output_layers"]
    return value_of(end)


def layered(kind: str, own: Layer, weights: Weights, *sources: Array) -> Array:
    """What one layer gives."""
    numbers = [part.astype(np.float64) for part in weights.get(own["name"], {}).values()]
    assert own.get("data_format", "channels_last") == "channels_last"
    if kind == "Add":
        left, right = sources
        assert left.shape == right.shape
        return left + right
    (x,) = sources
    if kind == "Conv2D":
        kernel = numbers.pop(0)
        rows, columns, _, filters = kernel.shape
        assert own.get("dilation_rate", [1, 1]) == [1, 1]
        assert pair(own, "kernel_size", [rows, columns]) == [rows, columns]
        assert own.get("filters") in (None, filters)
        own = {"strides": [1, 1], **own}
        seen, groups = views(x, [rows, columns], own, 0.0), own.get("groups", 1)
        parts = zip(np.split(seen, groups, 5), np.split(kernel, groups, 3), strict=True)
        x = np.concatenate([np.einsum("nrcijk,ijko->nrco", *part) for part in parts], 3)
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
        if kind == "MaxPooling2D":
            return views(x, size, own, -np.inf).max((3, 4))
        return np.nanmean(views(x, size, own, np.nan), (3, 4))
    elif kind == "GlobalAveragePooling2D":
        assert x.ndim == 4
        return x.mean((1, 2), keepdims=own.get("keepdims", False))
    elif kind == "Flatten":
        return x.reshape(len(x), -1)
    elif kind == "ReLU":
        assert (own.get("max_value"), own.get("threshold", 0)) == (None, 0)
        assert own.get("negative_slope", 0) == 0
        return np.maximum(x, 0)
    else:
        assert kind in ("Activation", "Dropout")
    if kind in ("Conv2D", "Dense") and own.get("use_bias", True):
        x = x + numbers.pop(0)
    assert not numbers
    activation = own.get("activation", "linear")
    if activation == "relu":
        return np.maximum(x, 0)
    if activation == "softmax":
        powers = np.exp(x - x.max(-1, keepdims=True))
        return powers / powers.sum(-1, keepdims=True)
    if activation == "sigmoid":
        return 1 / (1 + np.exp(-x))
    assert activation in (None, "linear")
    return x


def pair(own: Layer, name: str, default: list[int]) -> list[int]:
    """Sizes down and across, of which one number stands for both."""
    found = own.get(name)
    return default if found is None else [found, found] if isinstance(found, int) else found


def views(x: Array, size: list[int], own: Layer, fill: float) -> Array:
    """The windows of images: [images, windows down and across, rows, columns, channels]."""
    assert x.ndim == 4
    pads, strides = [(0, 0)], pair(own, "strides", [])
    for length, window, stride in zip(x.shape[1:3], size, strides, strict=True):
        # As TensorFlow's documentation has it.
        whole = max(window - (length % stride or stride), 0)
        is_same = {"same": True, "valid": False}[own.get("padding", "valid")]
        pads.append((whole // 2, whole - whole // 2) if is_same else (0, 0))
    x = np.pad(x, [*pads, (0, 0)], constant_values=fill)
    down, across = (x.shape[1 + axis] - size[axis] for axis in (0, 1))
    assert min(down, across) >= 0
    places = [
        [x[:, row : row + size[0], at : at + size[1]] for at in range(0, across + 1, strides[1])]
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
    "Conv2D": {
        "filters": 3,
        "kernel_size": [3, 3],
        "strides": [1, 1],
        **WINDOWS,
        "dilation_rate": [1, 1],
        "groups": 1,
        "activation": "linear",
        "use_bias": True,
        **trained("kernel", "bias"),
        "activity_regularizer": None,
    },
    "Dense": {
        "units": 3,
        "activation": "linear",
        "use_bias": True,
        **trained("kernel", "bias"),
        "activity_regularizer": {"class_name": "L2", "config": {"l2": 1e-4}},
    },
    "Dropout": {"rate": 0.5, "noise_shape": [None, 1], "seed": 3},
    "Flatten": {"data_format": "channels_last"},
    "GlobalAveragePooling2D": {"data_format": "channels_last", "keepdims": False},
    "MaxPooling2D": {"pool_size": [2, 2], "strides": [2, 2], **WINDOWS},
    "ReLU": {"max_value": None, "negative_slope": 0.0, "threshold": 0.0},
}


def layer(kind: str, name: str, **own: Any) -> Layer:
    config = {"name": name, "trainable": True, "dtype": "float32", **CONFIGS.get(kind, {}), **own}
    return {"class_name": kind, "config": config}


def image(*sizes: int, name: str = "image", **own: Any) -> Layer:
    config = {"dtype": "float32", "sparse": False, "ragged": False, "name": name}
    return {
        "class_name": "InputLayer",
        "config": {"batch_input_shape": [None, *sizes], **config, **own},
    }


class Made:
    """A model with random weights, layer by layer, in the graph of a functional one.

    Attributes:
        images: four of them, channels last.
        values: what each layer gives for them; None where that is not known.
    """

    def __init__(self, *sizes: int, seed: int = 1) -> None:
        self.random = np.random.default_rng(seed)
        self.images = self.random.normal(0, 1, (4, *sizes)).astype(np.float32)
        self.layers: list[Layer] = [{**image(*sizes), "name": "image", "inbound_nodes": []}]
        self.weights: Weights = {}
        self.values: dict[str, Array | None] = {"image": self.images}
        self.last = "image"

    def add(self, added: Layer, *sources: str, **call: Any) -> str:
        """Adds a layer that reads others, or the one that was added last; returns its name."""
        added = copy.deepcopy(added)
        sources, name = sources or (self.last,), added["config"]["name"]
        tensors = [[one, 0, 0, call] for one in sources]
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
            for part, shape in shapes(kind, own, found[0].shape[-1]).items()
        }
        if made:
            self.weights[name] = made
        with contextlib.suppress(Exception):  # of what no one knows
            self.values[name] = layered(kind, own, self.weights, *found)
        return name

    def floats(self, part: str, shape: tuple[int, ...]) -> Array:
        if part == "moving_variance":
            return self.random.uniform(0.3, 2, shape).astype(np.float32)
        return self.random.normal(0, 0.5, shape).astype(np.float32)

    def functional(self, *outputs: str) -> Model:
        ends = [[name, 0, 0] for name in outputs or (self.last,)]
        config = {"name": "model", "trainable": True, "layers": self.layers}
        config |= {"input_layers": [["image", 0, 0]], "output_layers": ends}
        return {"class_name": "Functional", "config": config}

    def sequential(self) -> Model:
        layers = [{key: one[key] for key in ("class_name", "config")} for one in self.layers]
        return {"class_name": "Sequential", "config": {"name": "chain", "layers": layers}}


def shapes(kind: str, own: Layer, channels: int) -> dict[str, tuple[int, ...]]:
    """Of a layer's weights, in Keras' order."""
    if kind == "BatchNormalization":
        has = {"gamma": own["scale"], "beta": own["center"]}
        parts = ["gamma", "beta", "moving_mean", "moving_variance"]
        return {part: (channels,) for part in parts if has.get(part, True)}
    found: dict[str, tuple[int, ...]] = {}
    if kind == "Conv2D":
        outputs = own["filters"]
        found["kernel"] = (*own["kernel_size"], channels // own["groups"], outputs)
    elif kind == "Dense":
        outputs = own["units"]
        found["kernel"] = (channels, outputs)
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
    names = [one["config"]["name"] for one in layers if one]
    names = [name for name in dict.fromkeys(names) if name.isprintable()]
    with h5py.File(path, "w") as file:
        file.attrs["model_config"] = json.dumps(model)
        group = file.create_group("model_weights")
        for attrs in (file.attrs, group.attrs):
            attrs.update(versions)
        group.attrs["layer_names"] = np.array([name.encode() for name in names])
        for name in names:
            own = group.require_group(name)
            listed = [f"{name}/{part}:0".encode() for part in weights.get(name, {})]
            own.attrs["weight_names"] = np.array(listed) if listed else np.array([])
            for part, values in weights.get(name, {}).items():
                own[f"{name}/{part}:0"] = values
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


# Right.


def test_a_keras_network_is_turned_channels_first(tmp_path: Path) -> None:
    chain = made(
        (4, 4, 2),
        layer("Conv2D", "c", strides=[2, 2], padding="same", activation="relu", use_bias=False),
        layer("Dropout", "d"),
        layer("Flatten", "f"),
        layer("Dense", "l"),
    )
    network = taken(tmp_path, chain.sequential(), chain.weights, chain.images)
    assert network.input == (2, 4, 4)
    assert network.notes == ("d: a dropout, which inference does without",)


FLAT, LAST = layer("Flatten", "flat"), layer("Dense", "last")
CHAINS: dict[str, list[Layer]] = {
    "flat": [FLAT, LAST],
    "flat, batch norm": [FLAT, layer("BatchNormalization", "n"), LAST],
    "flat, relu": [FLAT, layer("ReLU", "r"), LAST],
    "flat, dropout": [FLAT, layer("Dropout", "d"), LAST],
    "flat, activation": [FLAT, layer("Activation", "a"), LAST],
    "flat, all of them": [
        layer("Conv2D", "c"),
        FLAT,
        layer("ReLU", "r"),
        layer("BatchNormalization", "n", scale=False),
        layer("Dropout", "d"),
        layer("Flatten", "again"),
        layer("Activation", "a"),
        layer("BatchNormalization", "m", center=False, axis=-1),
        layer("Dense", "l", units=5, activation="relu"),
        layer("BatchNormalization", "o", axis=1),
        LAST,
    ],
    "a dense over planes": [layer("Dense", "d", activation="relu"), FLAT, LAST],
    "a dense over planes of one place": [
        layer("GlobalAveragePooling2D", "g", keepdims=True),
        layer("Dense", "d", activation="relu"),
        layer("BatchNormalization", "n"),
        FLAT,
        LAST,
    ],
    "dimensions that are kept": [
        layer("GlobalAveragePooling2D", "g", keepdims=True),
        layer("Conv2D", "c", kernel_size=[1, 1]),
        layer("Activation", "a", activation="softmax"),
    ],
    "groups": [
        layer("Conv2D", "c", filters=4),
        layer("Conv2D", "d", filters=6, groups=2, kernel_size=[1, 1]),
        layer("GlobalAveragePooling2D", "g"),
    ],
    "windows that are not square": [
        layer("Conv2D", "c", kernel_size=[3, 2], strides=[1, 3], padding="same"),
        layer("MaxPooling2D", "p", pool_size=[3, 1], strides=[2, 2], padding="same"),
        FLAT,
        LAST,
    ],
    "strides above windows": [
        layer("Conv2D", "c", kernel_size=[1, 1], strides=[2, 3], padding="same"),
        layer("AveragePooling2D", "p", pool_size=[2, 1], strides=None, padding="same"),
        FLAT,
        LAST,
    ],
    "a batch norm of means": [
        layer("BatchNormalization", "n", scale=False, center=False, epsilon=0.3),
        layer("GlobalAveragePooling2D", "g"),
    ],
    "a softmax": [FLAT, layer("Dense", "l", activation="softmax")],
    "a sigmoid, then dropout": [
        FLAT,
        layer("Dense", "l", activation="sigmoid"),
        layer("Dropout", "d"),
    ],
    "types that change nothing": [
        layer("Conv2D", "c", dtype={"class_name": "Policy", "config": {"name": "float32"}}),
        layer("Flatten", "flat", dtype=None),
        layer("Dense", "l", dtype="float64"),
    ],
}


@pytest.mark.parametrize("name", CHAINS)
def test_a_chain_has_keras_answers(name: str, tmp_path: Path) -> None:
    chain = made((4, 5, 2), *CHAINS[name])
    for model in (chain.sequential(), chain.functional()):
        taken(tmp_path, model, chain.weights, chain.images)


def test_answers_in_one_order_need_no_last_layer(tmp_path: Path) -> None:
    for sizes, layers in (
        ((4, 5, 1), [layer("ReLU", "r"), FLAT]),
        ((4, 5, 1), [layer("ReLU", "r")]),
        ((1, 1, 5), [layer("ReLU", "r"), FLAT]),
        ((1, 1, 5), [FLAT, layer("BatchNormalization", "n")]),
        ((7,), [layer("BatchNormalization", "n"), FLAT, layer("Dense", "d")]),
    ):
        chain = made(sizes, *layers)
        taken(tmp_path, chain.sequential(), chain.weights, chain.images)


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


def test_sums_and_layers_out_of_order_have_keras_answers(tmp_path: Path) -> None:
    net = residual()
    nodes = taken(tmp_path, net.functional(), net.weights, net.images).nodes
    assert [node.name for node in nodes] == ["c", "n", "sum", "f", "m", "g", "twice", "last"]
    net.layers.reverse()
    taken(tmp_path, net.functional(), net.weights, net.images)
    flat = Made(4, 5, 2)
    flat.add(layer("Add", "double"), *[flat.add(FLAT)] * 2)
    flat.add(LAST)
    taken(tmp_path, flat.functional(), flat.weights, flat.images)


def test_older_and_newer_ways_to_write_the_same_are_read(tmp_path: Path) -> None:
    chain = made((4, 5, 2), layer("Conv2D", "c", batch_input_shape=[8, 4, 5, 2]), FLAT, LAST)
    model = chain.sequential()
    first, *rest = model["config"]["layers"]

    def written(layers: list[Layer], **more: Any) -> None:
        now = {**model, "config": {"name": "chain", "layers": layers, **more}}
        taken(tmp_path, now, chain.weights, chain.images)

    written(rest)
    written(rest, build_input_shape=[None, 4, 5, 2])
    # Keras goes by the first layer's sizes alone.
    written([first, *rest[:-1], layer("Dense", "last", batch_input_shape=[None, 9, 9, 9])])
    written([image(4, 5, 2, batch_input_shape=None, batch_shape=[None, 4, 5, 2]), *rest])
    taken(tmp_path, {**model, "config": rest}, chain.weights, chain.images)
    del rest[0]["config"]["batch_input_shape"]
    written(rest, build_input_shape=[None, 4, 5, 2])

    # Names that are split over attributes, and none at all; numbers of other floats.
    def changed(change: Any) -> None:
        path = write(tmp_path / "net.h5", model, chain.weights)
        with h5py.File(path, "a") as file:
            change(file["model_weights"], file["model_weights"].attrs)
        is_equal(networks.from_keras(path), model, chain.weights, chain.images)

    def split(group: Any, names: Any) -> None:
        names["layer_names0"], names["layer_names1"] = np.split(names["layer_names"], [2])
        del names["layer_names"]
        group.create_group("top_level_model_weights").attrs["weight_names"] = np.array([])

    def unnamed(group: Any, names: Any) -> None:
        del names["layer_names"], group["c"].attrs["weight_names"]

    chain.weights["c"] = {part: x.astype(">f8") for part, x in chain.weights["c"].items()}
    changed(split)
    changed(unnamed)


def test_names_that_are_like_others_are_kept_apart(tmp_path: Path) -> None:
    net = Made(4, 5, 2)
    left = net.add(layer("Conv2D", "block/c", activation="relu"))
    net.add(layer("Activation", "block", activation="linear"))
    net.add(layer("BatchNormalization", "block/c_relu"))
    net.add(layer("Add", "input"), net.add(layer("Dense", "ü")), left)
    net.add(layer("GlobalAveragePooling2D", "output"))
    taken(tmp_path, net.functional(), net.weights, net.images)


# Refused.


CONV, NORM, RELU = layer("Conv2D", "c"), layer("BatchNormalization", "n"), layer("ReLU", "r")
SOFTMAX, POOL = layer("Activation", "a", activation="softmax"), layer("MaxPooling2D", "p")
MEAN = layer("GlobalAveragePooling2D", "g")
INNER = {"class_name": "Sequential", "config": {"name": "inner", "layers": [FLAT]}}
HALF = {"class_name": "Policy", "config": {"name": "mixed_float16"}}
BOUNDED = {"class_name": "ReLU", "config": {"max_value": 6.0}}


def but(like: Layer, **own: Any) -> Layer:
    """A layer as another, but for some of its config."""
    return {**like, "config": {**like["config"], **own}}


REFUSED: tuple[tuple[str | Layer, ...], ...] = (
    ("'r': max_value 6.0: None is possible", but(RELU, max_value=6.0)),
    ("'r': negative_slope 0.1: 0 is possible", but(RELU, negative_slope=0.1)),
    ("'r': threshold 1.0: 0 is possible", but(RELU, threshold=1.0)),
    ("'r': the attribute slope .0.: not read", but(RELU, slope=0)),
    ("'g': data_format channels_first: channels_last", but(MEAN, data_format="channels_first")),
    ("'flat': data_format channels_first", but(FLAT, data_format="channels_first"), LAST),
    ("'c': data_format channels_first", but(CONV, data_format="channels_first")),
    ("'p': data_format channels_first", but(POOL, data_format="channels_first")),
    (r"'n': axis \[1\]: -1 and 3 and \[-1\] and \[3\] are possible", but(NORM, axis=[1])),
    ("'n': axis 2", but(NORM, axis=2)),
    ("'n': axis", but(NORM, axis=[1, 3])),
    ("'n': the attribute renorm .True.", but(NORM, renorm=True)),
    ("'n': epsilon nan|n: a variance", but(NORM, epsilon=float("nan"))),
    ("'n': epsilon '1': a number", but(NORM, epsilon="1")),
    (r"'c': dilation_rate \[2, 1\]: \[1, 1\] is possible", but(CONV, dilation_rate=[2, 1])),
    ("'c': padding 'causal': valid and same", but(CONV, padding="causal")),
    ("'c': 3 groups of 2 channels", but(CONV, groups=3)),
    (r"'c': strides \[0, 1\]: two whole numbers", but(CONV, strides=[0, 1])),
    ("'c': strides None: two whole numbers", but(CONV, strides=None)),
    ("'p': strides", but(POOL, strides=[10**400, 1])),
    ("'p': pool_size .True, 1.", but(POOL, pool_size=[True, 1])),
    ("p: windows of", but(POOL, pool_size=[5, 5])),
    (
        "'p': an average of padded windows: padding valid is possible",
        layer("AveragePooling2D", "p", pool_size=[3, 3], padding="same"),
    ),
    ("'a': the activation relu6 is not supported: possible are", but(SOFTMAX, activation="relu6")),
    ("'c': the activation swish is not supported", but(CONV, activation="swish")),
    ("'last': the activation leaky_relu is not", FLAT, but(LAST, activation="leaky_relu")),
    ("'c': the activation that is an object of ReLU is not", but(CONV, activation=BOUNDED)),
    ("a_softmax: a softmax over planes", SOFTMAX),
    ("last_softmax: a softmax over planes", but(LAST, activation="softmax")),
    ("last: a linear after a softmax", MEAN, SOFTMAX, LAST),
    ("'c': dtype 'float16': float32 is possible", but(CONV, dtype="float16")),
    ("'c': dtype 'mixed_float16': float32 is possible", but(CONV, dtype=HALF)),
    ("'c': its input is a row of numbers: planes are possible", FLAT, CONV),
    ("'p': its input is a row", FLAT, but(POOL, pool_size=[1, 1])),
    ("'g': its input is a row", FLAT, MEAN),
    ("net.h5: the answers of 'c' are planes: Keras gives rows", CONV),
    ("the answers of 'flat' are planes", CONV, FLAT),
    ("the answers of 'r' are planes", FLAT, NORM, RELU),
    ("the answers of 'a' are planes", FLAT, SOFTMAX),
    ("'other': a second InputLayer", image(4, 5, 2, name="other"), FLAT, LAST),
    ("'inner': a model as a layer is not supported", INNER, LAST),
)
OTHERS = "LSTM Lambda LeakyReLU Reshape Permute ZeroPadding2D DepthwiseConv2D Softmax TFOpLambda"


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: str(case[0]))
def test_what_has_other_answers_is_refused_by_name(case: Any, tmp_path: Path) -> None:
    match, *layers = case
    chain = made((4, 5, 2), *layers)
    refused(tmp_path, chain.sequential(), chain.weights, match)
    refused(tmp_path, chain.functional(), chain.weights, match)


@pytest.mark.parametrize("kind", [*OTHERS.split(), "Custom>Dense"])
def test_a_keras_layer_that_is_not_supported_is_named(kind: str, tmp_path: Path) -> None:
    chain = made((4, 5, 2), layer(kind, "other", function=["YWJj", None, None]), LAST)
    match = f"net.h5, layer 'other': the layer {kind} is not supported: possible are Activation, A"
    refused(tmp_path, chain.sequential(), chain.weights, match)


def called(name: str, *tensor: Any) -> Any:
    """Has a layer read another tensor."""
    return lambda named, _config: named[name].update(inbound_nodes=[[[*tensor]]])


OTHER = {**image(4, 5, 2, name="other"), "name": "other", "inbound_nodes": []}
GRAPHS: tuple[tuple[str, Any], ...] = (
    ("'n': training True: None and False are", called("n", "image", 0, 0, {"training": True})),
    ("'n': the argument y .2.0.: not read", called("n", "image", 0, 0, {"y": 2.0})),
    ("'n': the tensor .'image', 1, 0, .*: .layer, 0, 0. is", called("n", "image", 1, 0, {})),
    ("'n': the tensor .'image', 0, 1", called("n", "image", 0, 1)),
    ("'n': the tensor .'_CONSTANT_VALUE', -1", called("n", "_CONSTANT_VALUE", -1, 2.0, {})),
    ("'n': it reads 'none', which is no layer", called("n", "none", 0, 0, {})),
    ("layers that read each other in a circle: ", called("c", "sum", 0, 0, {})),
    ("'sum': 1 inputs: 2 are possible", called("sum", "c", 0, 0, {})),
    ("'n': it is used more than once", lambda named, _: named["n"]["inbound_nodes"].append([])),
    ("'n': 2 inputs: 1 are", lambda named, _: named["n"]["inbound_nodes"][0].append(["c", 0, 0])),
    ("'n': 0 inputs: 1 are", lambda named, _: named["n"].update(inbound_nodes=[])),
    ("'n': name o: n is possible", lambda named, _: named["n"].update(name="o")),
    ("'n': module mine: keras.layers is", lambda named, _: named["n"].update(module="mine")),
    ("'other': a second InputLayer", lambda _, config: config["layers"].insert(0, OTHER)),
    (
        "input_layers .*: a list of one",
        lambda _, config: config["input_layers"].append(["c", 0, 0]),
    ),
    ("its input 'c' is no InputLayer", lambda _, config: config.update(input_layers=[["c", 0, 0]])),
    ("two layers of one name", lambda named, config: config["layers"].append(named["n"])),
    ("net.h5: the attribute quantize", lambda _, config: config.update(quantize=True)),
    (
        "output_layers .*: a list of one",
        lambda _, config: config["output_layers"].append(["c", 0, 0]),
    ),
    ("its output 'none' is no", lambda _, config: config.update(output_layers=[["none", 0, 0]])),
    ("the output is the input", lambda _, config: config.update(output_layers=[["image", 0, 0]])),
    ("answers of 'sum' are planes", lambda _, config: config.update(output_layers=[["sum", 0, 0]])),
)


@pytest.mark.parametrize(("match", "change"), GRAPHS)
def test_graphs_that_are_not_read_are_refused_by_name(
    match: str, change: Any, tmp_path: Path
) -> None:
    net = residual()
    model = copy.deepcopy(net.functional())
    change({one["name"]: one for one in model["config"]["layers"]}, model["config"])
    refused(tmp_path, model, net.weights, match)


def test_a_sum_of_rows_in_two_orders_is_refused(tmp_path: Path) -> None:
    net = Made(4, 5, 2)
    net.add(layer("Add", "sum"), net.add(FLAT), net.add(layer("Dense", "d", units=40)))
    net.add(LAST)
    refused(tmp_path, net.functional(), net.weights, "'sum': a sum of two whose numbers stand in")
    net = Made(4, 5, 2)
    means = net.add(MEAN, "image")
    net.add(layer("Add", "sum"), means, net.add(but(MEAN, name="h", keepdims=True), "image"))
    refused(tmp_path, net.functional(), net.weights, "'sum': a sum of two whose numbers stand in")


def test_models_that_are_not_read_are_refused_by_name(tmp_path: Path) -> None:
    chain = made((4, 5, 2), FLAT, LAST)
    model = chain.sequential()
    (first, *rest), config = model["config"]["layers"], model["config"]
    nameless = [first, but(rest[0], name="\ud800"), rest[1]]
    for match, changed in (
        ("net.h5: it is of the class 'Net', which may compute what", {"class_name": "Net"}),
        ("net.h5: it is of the class None", {"class_name": None}),
        ("net.h5: it has no attribute input_layers", {"class_name": "Functional"}),
        ("net.h5: the attribute compiled .3.: not read", {"compiled": 3}),
        ("net.h5: it has no layers", {"config": []}),
        ("net.h5: build_input_shape", {"config": {**config, "build_input_shape": [1, 2, 3, 4]}}),
        ("inputs are None, expected .null, rows, columns, channels.", {"config": rest}),
        ("inputs are None, expected", {"config": [but(first, batch_input_shape=None), *rest]}),
        ("net.h5: the output is the input", {"config": [first]}),
        ("registered_name My", {"config": [first, {**rest[0], "registered_name": "My>Flatten"}]}),
        ("inbound_nodes: in a Sequential", {"config": [first, chain.layers[1], *rest[1:]]}),
        ("layer 1 has no name that can be", {"config": nameless}),
        ("layer 1 is None, expected an object", {"config": [first, None]}),
    ):
        refused(tmp_path, {**model, **changed}, chain.weights, match)
    for match, more in (
        ("inputs are .None, None, None, 3., e", {"batch_input_shape": [None, None, None, 3]}),
        ("inputs are .None, 4, 4., expected", {"batch_input_shape": [None, 4, 4]}),
        ("'image': batch_shape .None, 4, 5, 3.", {"batch_shape": [None, 4, 5, 3]}),
        ("'image': sparse True: False is possible", {"sparse": True}),
        ("'image': ragged True: False is possible", {"ragged": True}),
        ("'image': dtype uint8: float32 and float64 are possible", {"dtype": "uint8"}),
    ):
        changed = {"config": [image(4, 5, 2, **more), *rest]}
        refused(tmp_path, {**model, **changed}, chain.weights, match)


def test_weights_that_are_not_read_are_refused_by_name(tmp_path: Path) -> None:
    net = made((4, 5, 2), but(CONV, use_bias=False), NORM, RELU, FLAT, LAST)
    kernel, norm = net.weights["c"]["kernel"], net.weights["n"]
    swapped = {part: norm[part] for part in ("beta", "gamma", "moving_mean", "moving_variance")}
    for match, name, own in (
        ("'c': the file has no weights kernel", "c", {}),
        ("'c': its weights are kernel, bias: kernel are", "c", {"kernel": kernel, "bias": kernel}),
        (r"kernel are float32 of shape \[2, 3, 2, 3\]: floats", "c", {"kernel": kernel[:2]}),
        (r"kernel are .*: floats of shape \[3, 3, 2, 3\]", "c", {"kernel": kernel[..., 0]}),
        ("'c': the weights kernel are int64 of shape", "c", {"kernel": kernel.astype(int)}),
        ("c.weight: weights that are not finite", "c", {"kernel": kernel * np.nan}),
        ("c.weight: weights that are not", "c", {"kernel": kernel.astype(float) * 1e300}),
        ("'n': its weights are beta, gamma, moving_mean, moving_variance: gamma, b", "n", swapped),
        ("'n': the weights moving_mean are", "n", {**norm, "moving_mean": kernel}),
        ("n: a variance that is not", "n", {**norm, "moving_variance": -norm["moving_variance"]}),
        ("'r': its weights are alpha: none are possible", "r", {"alpha": kernel}),
        ("weights that no layer takes: .'image/image/mean:0'", "image", {"mean": kernel}),
    ):
        refused(tmp_path, net.sequential(), {**net.weights, name: own}, match)


def linked(group: Any) -> None:
    del group["c/c/kernel:0"]
    group["c/c/kernel:0"] = h5py.ExternalLink("other.h5", "kernel")


def elsewhere(group: Any) -> None:
    del group["c/c/kernel:0"]
    own = [("/etc/hostname", 0, 3 * 3 * 2 * 3 * 4)]
    group.create_dataset("c/c/kernel:0", (3, 3, 2, 3), "f4", external=own)


def unwritten(group: Any) -> None:
    del group["c/c/kernel:0"]
    group.create_dataset("c/c/kernel:0", (3, 3, 2, 3), "f4", chunks=(3, 3, 2, 3))


WEIGHTS: tuple[tuple[str, Any], ...] = (
    ("no layer takes: .'c/c/scale:0'", lambda group: group.update({"c/c/scale:0": [1.0]})),
    ("no layer takes: .'other/kernel:0'", lambda group: group.update({"other/kernel:0": [1.0]})),
    ("'c': the file has no weights kernel, and lists", lambda group: group.pop("c/c/kernel:0")),
    ("'c': the file has no weights kernel, and lists", linked),
    ("'c': the weights kernel are not in the file in full", elsewhere),
    ("'c': the weights kernel are not in the file in full", unwritten),
    (
        "layer_names is last, c: it must name the layers with weights in their order",
        lambda group: group.attrs.update({"layer_names": [b"last", b"flat", b"c"]}),
    ),
    ("layer_names is c: it must", lambda group: group.attrs.update({"layer_names": [b"c"]})),
    ("is no Keras model", lambda group: group.attrs.update({"layer_names": 3})),
    ("is no Keras model", lambda group: group["c"].attrs.update({"weight_names": [b"\xff"]})),
)


@pytest.mark.parametrize(("match", "change"), WEIGHTS)
def test_weights_that_stand_otherwise_are_refused(match: str, change: Any, tmp_path: Path) -> None:
    net = made((4, 5, 2), CONV, FLAT, LAST)
    path = write(tmp_path / "net.h5", net.sequential(), net.weights)
    with h5py.File(path, "a") as file:
        change(file["model_weights"])
    with pytest.raises(ModelError, match=match):
        networks.from_keras(path)


def test_files_that_are_no_models_of_keras_2_are_refused(tmp_path: Path) -> None:
    chain = made((4, 5, 2), FLAT, LAST)
    model = chain.sequential()
    for match, attributes in (
        ("net.h5 is of Keras 3.5.0, and 2 is possible: save it by", {"keras_version": "3.5.0"}),
        ("net.h5 is of Keras 1.2.2", {"keras_version": b"1.2.2"}),
        ("net.h5 is of Keras on theano", {"backend": "theano"}),
    ):
        refused(tmp_path, model, chain.weights, match, **attributes)
    path = write(tmp_path / "net.h5", model, chain.weights)
    whole = path.read_bytes()

    def not_read(match: str, content: bytes | None = None) -> None:
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(ModelError, match=match):
            networks.from_keras(path)

    for match, text in (
        ("net.h5 is no Keras model with its weights", "{"),
        ("net.h5 is no Keras model with its weights", b"\xff"),
        ("net.h5 is no Keras model with its weights", "[" * 100_000),
        ("net.h5: model_config is 3, expected an object", "3"),
        ("net.h5: config is 3, expected an object", '{"class_name": "Sequential", "config": 3}'),
    ):
        with h5py.File(path, "a") as file:
            file.attrs["model_config"] = text
        not_read(match)
    with h5py.File(path, "a") as file:
        del file.attrs["model_config"]
    not_read("net.h5 is no Keras model: it has no model_config")
    with h5py.File(path, "a") as file:
        file.attrs["layer_names"] = [b"last"]
    not_read("it has weights only, as of save_weights; save it by Keras 2")
    for size in (*range(0, 100, 9), *range(100, len(whole), len(whole) // 30)):
        not_read("is no Keras model", whole[:size])
    not_read("is no Keras model", b"noise")
    not_read("net.h5 is a zip archive, as Keras' .keras files are: save", b"PK\x03\x04 and so on")
    (tmp_path / "saved").mkdir()
    with pytest.raises(ConfigError, match="saved is no file"):
        networks.from_keras(tmp_path / "saved")
    (tmp_path / "saved/saved_model.pb").write_bytes(b"")
    with pytest.raises(ModelError, match="saved is a SavedModel of TensorFlow: save it by Keras 2"):
        networks.from_keras(tmp_path / "saved")


# Random models, and damaged ones.


class Drawn:
    """A random model.

    Attributes:
        is_odd: it may be refused: something in it is none of what is read.
    """

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.is_odd = False
        self.is_chain = self.chance(0.4)
        planes = (self.pick(4, 5, 6), self.pick(3, 4, 7), self.pick(1, 2, 4))
        self.net = Made(*(planes if self.chance(0.9) else (7,)), seed=seed)
        #: Of rows that were planes: the sizes of those.
        self.planes: dict[str, tuple[int, ...] | None] = {"image": None}
        for _ in range(self.pick(1, 3, 5, 8)):
            self.step()
        if not (self.chance(0.03) and self.may_be_odd()):
            self.end()
        if not self.is_chain and self.chance(0.3):
            self.random.shuffle(self.net.layers)  # type: ignore[arg-type]
        self.model = self.net.sequential() if self.is_chain else self.net.functional()

    def chance(self, share: float) -> bool:
        return bool(self.random.random() < share)

    def pick(self, *some: Any) -> Any:
        return some[self.random.integers(len(some))]

    def may_be_odd(self) -> bool:
        self.is_odd = True
        return True

    def odd(self, usual: Any, *others: Any) -> Any:
        """What is usual, or seldom another that is not read."""
        return self.pick(*others) if self.chance(0.02) and self.may_be_odd() else usual

    def step(self) -> None:
        net = self.net
        source = net.last if self.is_chain or self.chance(0.75) else self.pick(*net.values)
        like = [
            name
            for name, value in net.values.items()
            if value.shape == net.values[source].shape
            and (self.planes[name] == self.planes[source] or self.chance(0.02))
        ]
        if not self.is_chain and len(like) > 1 and self.chance(0.4):
            other = self.pick(*like)
            self.is_odd |= self.planes[other] != self.planes[source]
            self.add("Add", source, other)
            return
        kinds = "BatchNormalization ReLU Activation Dropout Flatten Dense"
        if net.values[source].ndim == 4:
            kinds += " Conv2D Conv2D MaxPooling2D AveragePooling2D GlobalAveragePooling2D"
        self.add(self.pick(*kinds.split()), source)

    def end(self) -> None:
        if self.net.values[self.net.last].ndim == 4:
            self.add(self.pick("Flatten", "GlobalAveragePooling2D"))
        if self.planes[self.net.last] or self.chance(0.5):
            self.add("Dense")
        if self.chance(0.2):
            self.add("Activation", activation=self.pick("softmax", "sigmoid"))

    def add(self, kind: str, *sources: str, **own: Any) -> None:
        net = self.net
        sources = sources or (net.last,)
        x = net.values[sources[0]]
        own = {**self.own(kind, x), **own}
        call = {} if self.is_chain else {"training": self.odd(False, True, 0)}
        name = net.add(layer(kind, f"l{len(net.layers)}", **own), *sources, **call)
        self.planes[name] = self.planes[sources[0]]
        if net.values[name] is None:
            net.values[name] = x
            self.is_odd = True
        elif kind in ("Dense", "GlobalAveragePooling2D"):
            self.planes[name] = None
        elif kind == "Flatten" and x.ndim == 4 and x.shape[3] > 1 and x.shape[1:3] != (1, 1):
            self.planes[name] = x.shape

    def own(self, kind: str, x: Array) -> Layer:
        """A layer's config, of what it has otherwise than by default."""
        own: Layer = {"dtype": self.odd("float32", "mixed_float16", "int32", 3)}
        if kind in ("Dense", "Conv2D", "Activation"):
            own["activation"] = self.odd(
                self.pick("linear", "relu"), "relu6", "swish", {}, "softmax", None
            )
        if kind in ("Dense", "Conv2D"):
            own["use_bias"] = self.chance(0.7)
        if kind == "Dense":
            own["units"] = self.pick(2, 5, x.shape[-1])
        if kind == "BatchNormalization":
            axis = self.pick(-1, x.ndim - 1, [x.ndim - 1])
            own |= {"axis": self.odd(axis, 1, [1], [1, 2], 0, -2), "epsilon": self.pick(1e-3, 0.5)}
            own |= {"scale": self.chance(0.7), "center": self.chance(0.7)}
            own |= self.odd({}, {"renorm": True})
        if kind == "ReLU":
            own |= self.odd({}, {"max_value": 1}, {"threshold": 0.2}, {"negative_slope": 0.1})
        if kind in ("Flatten", "GlobalAveragePooling2D"):
            own["data_format"] = self.odd("channels_last", "channels_first")
        if kind == "GlobalAveragePooling2D":
            own["keepdims"] = self.chance(0.5)
        if kind in ("Conv2D", "MaxPooling2D", "AveragePooling2D"):
            size = [self.pick(*range(1, 1 + min(length, 3))) for length in x.shape[1:3]]
            own |= {"padding": self.pick("valid", "same"), "strides": [self.pick(1, 2, 3), 1]}
            own["data_format"] = self.odd("channels_last", "channels_first")
            own["kernel_size" if kind == "Conv2D" else "pool_size"] = size
            self.is_odd |= kind == "AveragePooling2D" and own["padding"] == "same"
        if kind == "Conv2D":
            own["groups"] = self.pick(*(one for one in (1, 2) if x.shape[3] % one == 0))
            own["filters"] = self.pick(2, 4)
            own["dilation_rate"] = self.odd([1, 1], [2, 1], [2, 2])
        return own


def test_random_models_have_keras_answers_or_are_refused(tmp_path: Path) -> None:
    read = 0
    for seed in range(MODELS):
        drawn = Drawn(seed)
        net = drawn.net
        path = write(tmp_path / "net.h5", drawn.model, net.weights)
        try:
            network = networks.from_keras(path)
        except Error as error:
            assert drawn.is_odd or "the output is the input" in str(error), seed
            continue
        is_equal(network, drawn.model, net.weights, net.images)
        read += 1
    assert read > MODELS / 2


#: What stands in damaged files in place of another value.
WRONG: tuple[Any, ...] = (
    *(None, True, False, -1, 0, 1, 2, 3, 0.5, 10**30, float("nan"), "", "relu", "same", "image"),
    *([], {}, [1, 1], [2, 2], [[]], [None, 5, 5, 2], "channels_first", "Flatten", "float64"),
)


def places(found: Any) -> list[tuple[Any, Any]]:
    """Of every value in JSON: what it stands in, and where."""
    if isinstance(found, dict | list):
        keys = list(found) if isinstance(found, dict) else range(len(found))
        own = [(found, key) for key in keys]
        return own + [place for key in keys for place in places(found[key])]
    return []


def test_damaged_models_have_keras_answers_or_are_refused(tmp_path: Path) -> None:
    random = np.random.default_rng(5)
    bases = [made((4, 5, 2), *layers) for layers in CHAINS.values()]
    bases = [(net, net.sequential()) for net in bases] + [(net, net.functional()) for net in bases]
    bases.append((residual(), residual().functional()))
    read = 0
    for _ in range(DAMAGED):
        net, model = bases[random.integers(len(bases))]
        model = copy.deepcopy(model)
        for _ in range(random.integers(1, 3)):
            some = places(model)
            inside, key = some[random.integers(len(some))]
            how = random.random()
            if how < 0.3:
                del inside[key]
            elif how < 0.7:
                inside[key] = copy.deepcopy(WRONG[random.integers(len(WRONG))])
            else:
                other, at = some[random.integers(len(some))]
                inside[key] = copy.deepcopy(other[at])
        path = write(tmp_path / "net.h5", net.functional(), net.weights)
        with h5py.File(path, "a") as file:
            file.attrs["model_config"] = json.dumps(model)
        try:
            network = networks.from_keras(path)
        except Error:
            continue
        sizes = (network.input[1], network.input[2], network.input[0])
        images = random.normal(0, 1, (2, *sizes)).astype(np.float32)
        is_equal(network, model, net.weights, images)
        read += 1
    assert read > DAMAGED / 10

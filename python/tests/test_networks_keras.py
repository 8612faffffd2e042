"""Keras files as networks: equal to what Keras computes."""

from __future__ import annotations

import copy
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from keras_models import (
    Array,
    Layer,
    Made,
    but,
    h5py,
    image,
    is_equal,
    layer,
    made,
    residual,
    taken,
    write,
)

from hushtable.errors import Error
from hushtable.infer import networks

#: How many random models and damaged ones there are; many where HUSHTABLE_SOAK_LONG is set.
MODELS, DAMAGED = (5_000, 10_000) if "HUSHTABLE_SOAK_LONG" in os.environ else (200, 600)


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
    "a softmax of its own": [FLAT, LAST, layer("Softmax", "s"), layer("Dropout", "d")],
    "a softmax of a row's axis": [FLAT, LAST, layer("Softmax", "s", axis=1)],
    "a bounded relu": [layer("ReLU", "r", max_value=0.7), FLAT, LAST],
    "a leaky relu": [layer("LeakyReLU", "r"), FLAT, LAST],
    "a leaky relu that falls": [FLAT, layer("LeakyReLU", "r", alpha=-1.5), LAST],
    "a relu with a slope": [FLAT, layer("ReLU", "r", negative_slope=0.1), LAST],
    "activations with names": [
        layer("Rescaling", "s", scale=9, offset=-1.5),
        layer("Conv2D", "c", kernel_size=[1, 1], activation="relu6"),
        layer("Activation", "a", activation="leaky_relu"),
        FLAT,
        layer("Dense", "d", activation="leaky_relu"),
        layer("Activation", "b", activation="relu6"),
    ],
    "slopes of channels": [layer("PReLU", "p"), FLAT, LAST],
    "a slope of all channels": [layer("PReLU", "p", shared_axes=[1, 2, 3]), FLAT, LAST],
    "slopes of a row that was planes": [FLAT, layer("PReLU", "p", shared_axes=None), LAST],
    "a slope of a row": [FLAT, layer("PReLU", "p", shared_axes=[1]), LAST],
    "slopes of one place": [
        layer("GlobalMaxPooling2D", "g", keepdims=True),
        layer("PReLU", "p", shared_axes=None),
        layer("Reshape", "r", target_shape=[2]),
        layer("Reshape", "again", target_shape=[1, 1, 2]),
        layer("Conv2D", "c", kernel_size=[1, 1]),
    ],
    "depthwise": [
        layer("DepthwiseConv2D", "c", kernel_size=[2, 3], strides=[2, 1], depth_multiplier=3),
        layer("DepthwiseConv2D", "d", kernel_size=[2, 2], padding="same", use_bias=False),
        FLAT,
        LAST,
    ],
    "separable": [
        layer("SeparableConv2D", "c", depth_multiplier=2, padding="same", activation="relu"),
        layer("SeparableConv2D", "d", strides=[1, 2], filters=5, use_bias=False),
        layer("Reshape", "r"),
        LAST,
    ],
    "dilations": [
        layer("Conv2D", "c", dilation_rate=[1, 2]),
        layer("DepthwiseConv2D", "d", dilation_rate=[2, 3], padding="same"),
        layer("SeparableConv2D", "e", dilation_rate=2, padding="same", kernel_size=[2, 3]),
        layer("GlobalAveragePooling2D", "g"),
    ],
    "zeros before convolutions": [
        layer("ZeroPadding2D", "z", padding=[[1, 0], [2, 3]]),
        layer("Conv2D", "c", strides=[2, 2]),
        layer("ZeroPadding2D", "y", padding=1),
        layer("ZeroPadding2D", "x", padding=[0, 2]),
        layer("DepthwiseConv2D", "d", strides=[2, 2], padding="same"),
        layer("GlobalMaxPooling2D", "g"),
    ],
    "zeros before pools": [
        layer("ZeroPadding2D", "z"),
        layer("MaxPooling2D", "p", pool_size=[3, 3], strides=[1, 2]),
        layer("ReLU", "r", max_value=1),
        layer("ZeroPadding2D", "y"),
        layer("MaxPooling2D", "q", pool_size=[3, 3], strides=[2, 2], padding="same"),
        layer("ReLU", "s"),
        layer("ZeroPadding2D", "x", padding=[[2, 0], [0, 2]]),
        layer("MaxPooling2D", "o", strides=[1, 1]),
        layer("BatchNormalization", "n"),
        layer("ZeroPadding2D", "w", padding=[[0, 1], [1, 0]]),
        layer("AveragePooling2D", "v", strides=[1, 1]),
        FLAT,
        LAST,
    ],
    "zeros alone": [layer("ZeroPadding2D", "z", padding=[[0, 1], [2, 0]]), FLAT, LAST],
    "zeros that are none": [layer("ZeroPadding2D", "z", padding=0), FLAT, LAST],
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


def test_zeros_are_pads_of_what_reads_them(tmp_path: Path) -> None:
    zeros, pool = layer("ZeroPadding2D", "z"), layer("MaxPooling2D", "p", pool_size=[3, 3])
    relu, norm = layer("ReLU", "r"), layer("BatchNormalization", "n")
    for layers, ops in (
        ([zeros, layer("Conv2D", "c")], "conv"),
        ([zeros, layer("SeparableConv2D", "c")], "conv conv"),
        ([relu, zeros, pool], "relu max_pool"),
        ([norm, zeros, pool], "batch_norm conv max_pool"),
        # A window of zeros alone would be one of no number.
        ([relu, but(zeros, padding=3), pool], "relu conv max_pool"),
        ([zeros, norm], "conv batch_norm"),
    ):
        chain = made((4, 5, 2), *layers, FLAT, LAST)
        network = taken(tmp_path, chain.sequential(), chain.weights, chain.images)
        assert [node.op for node in network.nodes][:-2] == ops.split()
    net = Made(4, 5, 2)
    padded = net.add(zeros)
    conv = net.add(layer("Conv2D", "c", filters=2, padding="same"), padded)
    net.add(layer("Add", "sum"), net.add(norm, padded), conv, padded)
    net.add(LAST, net.add(FLAT))
    taken(tmp_path, net.functional(), net.weights, net.images)


def test_values_after_each_other_have_keras_answers(tmp_path: Path) -> None:
    net = Made(4, 5, 2)
    conv = net.add(layer("Conv2D", "c", padding="same"), "image")
    planes = net.add(layer("Concatenate", "planes", axis=3), "image", conv, "image")
    flat, means = net.add(FLAT, planes), net.add(layer("GlobalAveragePooling2D", "g"), planes)
    rows = net.add(layer("Concatenate", "rows", axis=1), means, flat, net.add(but(FLAT, name="f")))
    net.add(layer("PReLU", "p", shared_axes=None), rows)
    net.add(layer("Add", "sum"), net.add(layer("BatchNormalization", "n")), rows)
    net.add(LAST)
    taken(tmp_path, net.functional(), net.weights, net.images)


def inner(prefix: str, *sizes: int) -> Made:
    """A model for others, with weights that training changes, that it does not, and frozen ones."""
    net = Made(*sizes)
    begin = net.add(layer("BatchNormalization", f"{prefix}n"))
    conv = net.add(layer("Conv2D", f"{prefix}c", filters=sizes[2], padding="same", trainable=False))
    net.add(layer("BatchNormalization", f"{prefix}m", scale=False, center=False), conv)
    net.add(layer("Add", f"{prefix}s"), net.last, begin)
    net.add(layer("SeparableConv2D", f"{prefix}d", filters=2, padding="same"))
    return net


def nested(trainable: bool = True) -> Made:
    """A model within a model within a model."""
    deep = inner("", 4, 5, 2)
    deep.layers[0] = {**image(None, None, 2), "name": "image", "inbound_nodes": []}
    middle = inner("a/", 4, 5, 2)
    middle.nest(deep, "deep")
    middle.layers[-1]["config"]["trainable"] = trainable
    middle.nest(chain(), "chain", of="sequential")
    outer = Made(4, 5, 2)
    outer.add(layer("ZeroPadding2D", "z", padding=0))
    outer.nest(middle, "middle")
    outer.layers[-1]["config"]["trainable"] = trainable
    outer.add(layer("Dense", "dense"))
    return outer


def chain() -> Made:
    return made((4, 5, 2), layer("DepthwiseConv2D", "dense_1"), FLAT, layer("Dense", "dense"))


@pytest.mark.parametrize("trainable", [True, False])
def test_models_within_models_have_keras_answers(trainable: bool, tmp_path: Path) -> None:
    outer = nested(trainable)
    for model in (outer.functional(), outer.sequential()):
        network = taken(tmp_path, model, outer.weights, outer.images)
        assert "middle/deep/c" in [node.name for node in network.nodes]


def test_models_within_models_are_read_as_they_were_written_before(tmp_path: Path) -> None:
    # Nothing says an input's sizes but the first model's.
    first = made((4, 5, 2))
    first.nest(chain(), "chain", of="sequential")
    model = first.sequential()
    del model["config"]["layers"][0]
    taken(tmp_path, model, first.weights, first.images)
    # Names stand beside layers that are a list, and weights' names are numbered.
    first = made((4, 5, 2))
    first.nest(chain(), "chain", of="sequential")
    layers = first.layers[-1]["config"]["layers"]
    first.layers[-1]["config"] = layers
    numbered = {path.replace("/", "_1/"): one for path, one in first.weights["chain"].items()}
    path = write(tmp_path / "net.h5", first.functional(), {"chain": numbered})
    is_equal(networks.from_keras(path), first.functional(), first.weights, first.images)


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
        beside = [
            name
            for name, value in net.values.items()
            if value.shape[:-1] == net.values[source].shape[:-1]
        ]
        if not self.is_chain and self.chance(0.15):
            some = [source, *(self.pick(*beside) for _ in range(self.pick(1, 2)))]
            self.add("Concatenate", *some)
            return
        kinds = "BatchNormalization ReLU Activation Dropout Flatten Dense LeakyReLU PReLU Rescaling"
        if net.values[source].ndim == 4:
            kinds += " Conv2D Conv2D MaxPooling2D MaxPooling2D AveragePooling2D ZeroPadding2D"
            kinds += " GlobalAveragePooling2D GlobalMaxPooling2D DepthwiseConv2D SeparableConv2D"
            kinds += " ZeroPadding2D model"
        kind = self.pick(*kinds.split())
        if kind == "model":
            self.nest(source)
        else:
            self.add(kind, source)

    def nest(self, source: str) -> None:
        """Adds a model of convolutions and norms, of which training changes some."""
        name, sizes = f"l{len(self.net.layers)}", self.net.values[source].shape[1:]
        inner = Made(*sizes, seed=len(name))
        for at in range(self.pick(1, 2, 4)):
            kind = self.pick("BatchNormalization", "Dense", "DepthwiseConv2D")
            own = {"trainable": self.chance(0.7), "kernel_size": [1, self.pick(1, 2)]}
            if kind != "DepthwiseConv2D":
                del own["kernel_size"]
            inner.add(layer(kind, f"i{at}", **own, **self.odd({}, {"padding": "causal"})))
        self.net.nest(inner, name, source, of=self.pick("functional", "sequential"))
        if self.net.values[name] is None:
            self.net.values[name] = self.net.values[source]
            self.is_odd = True
        self.planes[name] = None

    def end(self) -> None:
        if self.net.values[self.net.last].ndim == 4:
            self.add(self.pick("Flatten", "GlobalAveragePooling2D", "GlobalMaxPooling2D"))
        if self.planes[self.net.last] or self.chance(0.5):
            self.add("Dense")
        if self.chance(0.2):
            self.add("Activation", activation=self.pick("softmax", "sigmoid"))
        elif self.chance(0.1):
            self.add("Softmax", axis=self.odd(self.pick(-1, 1, [1]), 0, [0, 1]))

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
        elif kind == "Concatenate":
            parts = [self.planes[one] for one in sources]
            if any(parts):
                shapes = [
                    part or net.values[one].shape for part, one in zip(parts, sources, strict=True)
                ]
                self.planes[name] = tuple(shapes)
        elif kind in ("Dense", "GlobalAveragePooling2D", "GlobalMaxPooling2D"):
            self.planes[name] = None
        elif kind == "Flatten" and x.ndim == 4 and x.shape[3] > 1 and x.shape[1:3] != (1, 1):
            self.planes[name] = x.shape

    def own(self, kind: str, x: Array) -> Layer:
        """A layer's config, of what it has otherwise than by default."""
        own: Layer = {"dtype": self.odd("float32", "mixed_float16", "int32", 3)}
        convolutions = ("Conv2D", "DepthwiseConv2D", "SeparableConv2D")
        if kind in ("Dense", "Activation", *convolutions):
            own["activation"] = self.odd(
                self.pick("linear", "relu", "relu6", "leaky_relu"), "swish", {}, "softmax", None
            )
        if kind in ("Dense", *convolutions):
            own["use_bias"] = self.chance(0.7)
        if kind == "Dense":
            own["units"] = self.pick(2, 5, x.shape[-1])
        if kind == "BatchNormalization":
            axis = self.pick(-1, x.ndim - 1, [x.ndim - 1])
            own |= {"axis": self.odd(axis, 1, [1], [1, 2], 0, -2), "epsilon": self.pick(1e-3, 0.5)}
            own |= {"scale": self.chance(0.7), "center": self.chance(0.7)}
            own |= self.odd({}, {"renorm": True})
        if kind == "ReLU":
            own |= self.pick({}, {}, {"max_value": self.pick(6, 0.4)}, {"negative_slope": 0.1})
            own |= self.odd({}, {"threshold": 0.2}, {"max_value": 1, "negative_slope": 0.1})
            own |= self.odd({}, {"max_value": 0}, {"negative_slope": -0.1}, {"max_value": "6"})
        if kind == "LeakyReLU":
            own["alpha"] = self.odd(self.pick(0.3, 0, 1.5, -0.2), None, "0.3", float("nan"))
        if kind == "PReLU":
            shared = [*range(1, x.ndim - 1)]
            own["shared_axes"] = self.odd(self.pick(shared, [*shared, x.ndim - 1]), [0], [-1], [4])
            if not shared or self.chance(0.1):
                own["shared_axes"] = None
                self.is_odd |= bool(shared)
        if kind == "Concatenate":
            own["axis"] = self.odd(self.pick(-1, x.ndim - 1), 0, -2, [3], None)
        if kind == "Rescaling":
            own |= {"scale": self.pick(0.1, 2), "offset": self.odd(self.pick(0, -1.0), [1], None)}
        if kind == "ZeroPadding2D":
            one, two, three = (self.pick(0, 1, 1, 2) for _ in range(3))
            own["padding"] = self.pick([[one, two], [three, 0]], [[one, one], [two, two]], one)
            own |= self.odd({}, {"padding": [1, 1, 1, 1]}, {"padding": [[1, -1], [0, 0]]})
        if kind in ("Flatten", "GlobalAveragePooling2D", "GlobalMaxPooling2D", "ZeroPadding2D"):
            own["data_format"] = self.odd("channels_last", "channels_first")
        if kind in ("GlobalAveragePooling2D", "GlobalMaxPooling2D"):
            own["keepdims"] = self.chance(0.5)
        if kind in ("MaxPooling2D", "AveragePooling2D", *convolutions):
            size = [self.pick(*range(1, 1 + min(length, 3))) for length in x.shape[1:3]]
            own |= {"padding": self.pick("valid", "same"), "strides": [self.pick(1, 2, 3), 1]}
            own["data_format"] = self.odd("channels_last", "channels_first")
            own["kernel_size" if kind in convolutions else "pool_size"] = size
            self.is_odd |= kind == "AveragePooling2D" and own["padding"] == "same"
        if kind == "Conv2D":
            own["groups"] = self.pick(*(one for one in (1, 2) if x.shape[3] % one == 0))
        if kind in ("Conv2D", "SeparableConv2D"):
            own["filters"] = self.pick(2, 4)
        if kind in ("DepthwiseConv2D", "SeparableConv2D"):
            own |= {"depth_multiplier": self.pick(1, 2), "groups": self.odd(1, 2)}
        if kind in convolutions and self.chance(0.3):
            # Wider than the image it is none, and with strides it is none of Keras'.
            own |= {"dilation_rate": [self.pick(1, 2, 3), self.pick(1, 2)], "strides": [1, 1]}
            wide = zip(x.shape[1:3], size, own["dilation_rate"], strict=True)
            if any(length < (window - 1) * step + 1 for length, window, step in wide):
                own["padding"] = "same"
            own |= self.odd({}, {"strides": [1, 2], "dilation_rate": [2, 1]})
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
    bases += [(net, net.functional()) for net in [residual(), *[nested()] * 10]]
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

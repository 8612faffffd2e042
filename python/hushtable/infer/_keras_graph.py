"""Keras' JSON of a model: its layers, and which reads which."""

from __future__ import annotations

import dataclasses
import graphlib
import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from .._fields import Fields
from .._printable import one_line
from ..errors import ModelError
from ._network import Shape

#: A larger size is no network's, and overflows what is computed of it.
SIZE_MAX = 2**31 - 1
_MODELS = ("Functional", "Model", "Sequential")
_INPUT_LAYER = "InputLayer"
_NORM = {"gamma": "scale", "beta": "center", "moving_mean": "", "moving_variance": ""}
#: The layers that are read, and the weights of each in Keras' order, with the flag in its config
#: that says whether it has them.
_WEIGHTS: dict[str, dict[str, str]] = {
    "Activation": {},
    "Add": {},
    "AveragePooling2D": {},
    "BatchNormalization": _NORM,
    "Concatenate": {},
    "Conv2D": {"kernel": "", "bias": "use_bias"},
    "Dense": {"kernel": "", "bias": "use_bias"},
    "DepthwiseConv2D": {"depthwise_kernel": "", "bias": "use_bias"},
    "Dropout": {},
    "Flatten": {},
    "GlobalAveragePooling2D": {},
    "GlobalMaxPooling2D": {},
    "LeakyReLU": {},
    "MaxPooling2D": {},
    "PReLU": {"alpha": ""},
    "ReLU": {},
    "Rescaling": {},
    "Reshape": {},
    "SeparableConv2D": {"depthwise_kernel": "", "pointwise_kernel": "", "bias": "use_bias"},
    "Softmax": {},
    "ZeroPadding2D": {},
}

Wrong = Callable[[str], ModelError]
_Default = TypeVar("_Default")


class Config(Fields):
    """A layer's config, of whose values the types are checked."""

    def whole(self, name: str, default: _Default) -> int | _Default:
        """A size."""
        found: int | _Default = self.take(name, default)
        if found is not default and not is_size(found):
            raise self._wrong(f"{name} {found!r:.60}: a whole number from 1 is possible")
        return found

    def pair(self, name: str, default: _Default) -> list[int] | _Default:
        """Sizes down and across."""
        found = self.take(name, default)
        pair: list[int] | _Default = [found, found] if is_size(found) else found
        is_pair = isinstance(pair, list) and len(pair) == 2 and all(map(is_size, pair))
        if found is not default and not is_pair:
            raise self._wrong(f"{name} {found!r:.60}: two whole numbers from 1 are possible")
        return pair

    def flag(self, name: str, default: bool) -> bool:
        """True or false."""
        found = self.take(name, default)
        if not isinstance(found, bool):
            raise self._wrong(f"{name} {found!r:.60}: true and false are possible")
        return found

    def number(self, name: str, default: _Default) -> float | _Default:
        """A number."""
        found = self.take(name, default)
        if found is default:
            return default
        if isinstance(found, bool) or not isinstance(found, int | float) or abs(found) > SIZE_MAX:
            raise self._wrong(f"{name} {found!r:.60}: a number is possible")
        return float(found)

    def common(self) -> None:
        """What any layer may have. Its type is checked: Keras computes in it."""
        found = self.take("dtype", None)
        if isinstance(found, dict) and isinstance(found.get("config"), dict):
            found = found["config"].get("name")
        if found not in (None, "float32", "float64"):
            raise self._wrong(
                f"dtype {found!r:.60}: float32 is possible; make the model with the policy float32 "
                "and the same weights, and save that"
            )
        # An input's sizes count where the network begins, and are taken there.
        self.skip("trainable", "batch_input_shape", "activity_regularizer")

    def trained(self, *parts: str) -> None:
        """Passes over how weights began, and how they were trained."""
        for part in parts:
            self.skip(*(f"{part}_{what}" for what in ("initializer", "regularizer", "constraint")))


def is_size(found: Any) -> bool:
    return isinstance(found, int) and not isinstance(found, bool) and 1 <= found <= SIZE_MAX


@dataclass(frozen=True)
class Layer:
    """A layer of a file, and the names of those that it reads.

    Attributes:
        path: the names of the models that it stands in, and its own.
        parts: its weights, in Keras' order.
        is_trained: whether training changes it, which has a part in the order of weights.
        graph: what it is, where it is a model itself.
        refused: why it is not read, where that is known.
    """

    path: tuple[str, ...]
    kind: str
    config: Config
    inputs: tuple[str, ...]
    wrong: Wrong
    parts: tuple[str, ...] = ()
    is_trained: bool = True
    graph: Graph | None = None
    refused: ModelError | None = None

    @property
    def name(self) -> str:
        """Among the layers of its model."""
        return self.path[-1]

    @property
    def node(self) -> str:
        """Among all layers."""
        return "/".join(self.path)


@dataclass(frozen=True)
class Graph:
    """The layers of a model; the input is none of them.

    Attributes:
        input: its name.
        sizes: the input's, as the file has them.
        wrong: makes errors about the model as a whole.
    """

    input: str
    sizes: Any
    layers: list[Layer]
    output: str
    wrong: Wrong

    def shape(self) -> tuple[Shape, bool]:
        """Of the input, and whether it is a row; for a model that stands in no other.

        Raises:
            ModelError: sizes that are open, or none.
        """
        sizes = self.sizes
        if isinstance(sizes, list) and all(map(is_size, sizes[sizes[:1] == [None] :])):
            if len(sizes) == 4:
                return (sizes[3], sizes[1], sizes[2]), False
            if len(sizes) == 2:
                return (sizes[1], 1, 1), True
        raise self.wrong(
            f"inputs are {sizes!r:.60}, expected [null, rows, columns, channels] or [null, numbers]"
        )

    def takes(self, sizes: list[int]) -> bool:
        """Whether inputs can have these sizes, of which some may be open; for one in another."""
        own = self.sizes
        return own is None or (
            isinstance(own, list)
            and len(own) == len(sizes) + 1
            and all(one in (None, size) for one, size in zip(own[1:], sizes, strict=True))
        )

    def refused(self) -> Iterator[ModelError]:
        """Why layers are not read, here and in models within, as far as that is known."""
        for layer in self.layers:
            if layer.refused is not None:
                yield layer.refused
            elif layer.graph is not None:
                yield from layer.graph.refused()

    def weights(self) -> tuple[list[tuple[Layer, str]], list[tuple[Layer, str]]]:
        """The layers' weights in Keras' order: those that are trained, then the others."""
        trained, others = [], []
        for layer in self.layers:
            if layer.graph is not None:
                first, second = layer.graph.weights()
            else:
                own = [(layer, part) for part in layer.parts]
                first = [one for one in own if not one[1].startswith("moving_")]
                second = own[len(first) :]
            if layer.is_trained:
                trained += first
                others += second
            else:
                others += first + second
        return trained, others

    def in_order(self) -> list[Layer]:
        """Each layer after those that it reads: as they stand in the file, where that is so."""
        at = {layer.name: index for index, layer in enumerate(self.layers)}
        for layer in self.layers:
            for name in layer.inputs:
                if name not in at and name != self.input:
                    raise layer.wrong(f"it reads {name!r:.60}, which is no layer")
        if self.output not in at and self.output != self.input:
            raise self.wrong(f"its output {self.output!r:.60} is no layer")
        waiting = graphlib.TopologicalSorter(
            {layer.name: set(layer.inputs) - {self.input} for layer in self.layers}
        )
        try:
            waiting.prepare()
        except graphlib.CycleError as error:
            circle = ", ".join(error.args[1])
            raise self.wrong(f"layers that read each other in a circle: {circle:.200}") from error
        ready: list[int] = []
        order = []
        while waiting.is_active():
            for name in waiting.get_ready():
                heapq.heappush(ready, at[name])
            order.append(self.layers[heapq.heappop(ready)])
            waiting.done(order[-1].name)
        return order


def graph(model: Any, source: str) -> Graph:
    """A file's model.

    Args:
        model: its JSON.
        source: the file, for messages.

    Raises:
        ModelError: what is no model, or none that is read. What is wrong with one layer alone is
            said where that is read (`Layer.refused`).
    """

    def wrong(what: str) -> ModelError:
        return ModelError(one_line(f"{source}: {what}"))

    with Fields(_object(model, "model_config", wrong), wrong) as own:
        kind = own.take("class_name")
        if kind not in _MODELS:
            raise wrong(
                f"it is of the class {kind!r:.60}, which may compute what the file does not "
                f"say: {', '.join(_MODELS)} are possible"
            )
        return _Parser(source, (), wrong).graph(kind, own.take("config"))


@dataclass(frozen=True)
class _Parser:
    """Reads a model, of which `path` are the names of those that it stands in and its own."""

    source: str
    path: tuple[str, ...]
    wrong: Wrong

    def graph(self, kind: str, config: Any) -> Graph:
        if isinstance(config, list):  # a Sequential of before Keras 2.2.3
            config = {"layers": config}
        with Fields(_object(config, "config", self.wrong), self.wrong) as own:
            own.skip("name", "trainable")
            entries = own.take("layers")
            if not isinstance(entries, list) or not entries:
                raise self.wrong("it has no layers")
            models = {str(_name(one)) for one in entries if _is_model(one)}
            layers = [self._layer(index, one, models) for index, one in enumerate(entries)]
            names = [layer.name for layer in layers]
            if len(set(names)) < len(names):
                raise self.wrong(f"two layers of one name, of {', '.join(names):.200}")
            make = self._sequential if kind == "Sequential" else self._functional
            return make(own, layers, models)

    def _layer(self, index: int, entry: Any, models: set[str]) -> Layer:
        entry = _object(entry, f"layer {index}", self.wrong)
        kind, name = entry.get("class_name"), _name(entry)
        if not _is_model(entry):
            _object(entry.get("config"), f"the config of layer {index}", self.wrong)
        if not isinstance(name, str) or not name or not name.isprintable():
            raise self.wrong(f"layer {index} has no name that can be printed")
        path = (*self.path, name)

        def wrong(what: str) -> ModelError:
            return ModelError(one_line(f"{self.source}, layer {'/'.join(path)!r:.80}: {what}"))

        config = entry["config"] if isinstance(entry.get("config"), dict) else {}
        layer = Layer(path, str(kind), Config(config, wrong), (), wrong)
        try:
            return self._read(layer, entry, models)
        except ModelError as error:
            return dataclasses.replace(layer, refused=error)

    def _read(self, layer: Layer, entry: Any, models: set[str]) -> Layer:
        wrong, config = layer.wrong, layer.config
        with Fields(entry, wrong) as own:
            kind = own.take("class_name")
            modules: tuple[str, ...] = ("keras.layers",)
            if kind in _MODELS:
                modules = ("keras", "keras.models", "keras.src.engine.functional")
                own.neutral("registered_name", None, kind)
            own.skip("config", "build_config", "shared_object_id")
            own.neutral("name", layer.name)
            own.neutral("module", *modules)
            inputs = _inputs(own.take("inbound_nodes", []), models, wrong)
            is_trained = bool(config.take("trainable", True))
            layer = dataclasses.replace(layer, inputs=inputs, is_trained=is_trained)
            if kind in _MODELS:
                found = _Parser(self.source, layer.path, wrong).graph(kind, entry.get("config"))
                return dataclasses.replace(layer, graph=found)
            if not isinstance(kind, str) or kind not in {*_WEIGHTS, _INPUT_LAYER}:
                raise wrong(
                    f"the layer {kind!s:.60} is not supported: possible are "
                    f"{', '.join(sorted(_WEIGHTS))}"
                )
            own.neutral("registered_name", None)
        config.skip("name")
        flags = _WEIGHTS.get(kind, {}).items()
        parts = tuple(part for part, flag in flags if not flag or config.flag(flag, True))
        return dataclasses.replace(layer, parts=parts)

    def _sequential(self, own: Fields, layers: list[Layer], _models: set[str]) -> Graph:
        for layer in layers:
            if layer.inputs:
                raise layer.wrong("inbound_nodes: in a Sequential none are possible")
        first, name = layers[0], ""
        build = own.take("build_input_shape", None)
        if first.kind == _INPUT_LAYER:
            sizes, name, layers = _input(first), first.name, layers[1:]
        elif first.graph is not None:
            sizes = first.graph.sizes or build
        else:
            sizes = first.config.take("batch_input_shape", None) or build
        if build is not None and _each(build) != _each(sizes):
            raise self.wrong(
                f"build_input_shape {build!r:.60}, and its first layer's is {sizes!r:.60}"
            )
        names = [name, *(layer.name for layer in layers)]
        chain = [
            dataclasses.replace(layer, inputs=(before,))
            for before, layer in zip(names, layers, strict=False)
        ]
        return Graph(name, sizes, _with_one_input(chain), names[-1], self.wrong)

    def _functional(self, own: Fields, layers: list[Layer], models: set[str]) -> Graph:
        ends = []
        for field in ("input_layers", "output_layers"):
            tensors = own.take(field)
            if not isinstance(tensors, list) or len(tensors) != 1:
                raise self.wrong(f"{field} {tensors!r:.60}: a list of one is possible")
            ends.append(_tensor(tensors[0], models, self.wrong))
        first = next((one for one in layers if one.name == ends[0]), None)
        if first is None or first.kind != _INPUT_LAYER or first.inputs:
            raise self.wrong(f"its input {ends[0]!r:.60} is no {_INPUT_LAYER}")
        rest = [layer for layer in layers if layer is not first]
        return Graph(first.name, _input(first), _with_one_input(rest), ends[1], self.wrong)


def _object(found: Any, what: str, wrong: Wrong) -> dict[str, Any]:
    if not isinstance(found, dict):
        raise wrong(f"{what} is {found!r:.60}, expected an object")
    return found


def _is_model(entry: Any) -> bool:
    return isinstance(entry, dict) and entry.get("class_name") in _MODELS


def _name(entry: dict[str, Any]) -> Any:
    """Of a layer; an old Sequential within a model has it beside its layers, not with them."""
    config = entry.get("config")
    return config.get("name") if isinstance(config, dict) else entry.get("name")


def _each(sizes: Any) -> Any:
    """Of one input: how many there are at once is free."""
    return sizes[1:] if isinstance(sizes, list) else sizes


def _inputs(nodes: Any, models: set[str], wrong: Wrong) -> tuple[str, ...]:
    if not isinstance(nodes, list) or not all(isinstance(node, list) for node in nodes):
        raise wrong(f"inbound_nodes {nodes!r:.60}: lists are possible")
    if len(nodes) > 1:
        raise wrong("it is used more than once: once is possible")
    inputs = []
    for tensor in nodes[0] if nodes else []:
        inputs.append(_tensor(tensor, models, wrong))
        if len(tensor) > 3:
            with Fields(_object(tensor[3], "a call", wrong), wrong, "argument") as call:
                call.neutral("training", None, False)
                call.neutral("mask", None)
    return tuple(inputs)


def _tensor(found: Any, models: set[str], wrong: Wrong) -> str:
    """The layer whose one value it is. A model's first value is that of its own input, which may
    count or not.
    """
    is_tensor = isinstance(found, list) and 3 <= len(found) <= 4 and isinstance(found[0], str)
    possible = ([0, 0], [1, 0]) if is_tensor and found[0] in models else ([0, 0],)
    if not is_tensor or found[1:3] not in possible:
        raise wrong(f"the tensor {found!r:.60}: [layer, 0, 0] is possible, a layer's only value")
    return str(found[0])


def _input(layer: Layer) -> Any:
    """The sizes that an InputLayer says."""
    if layer.refused is not None:
        raise layer.refused
    with layer.config as own:
        sizes = own.take("batch_input_shape", None) or own.take("batch_shape", None)
        own.neutral("batch_shape", sizes)
        own.neutral("dtype", "float32", "float64")
        own.neutral("sparse", False)
        own.neutral("ragged", False)
    return sizes


def _with_one_input(layers: list[Layer]) -> list[Layer]:
    """Layers, of which a second InputLayer is refused."""
    return [
        dataclasses.replace(one, refused=one.wrong(f"a second {_INPUT_LAYER}: one is possible"))
        if one.kind == _INPUT_LAYER
        else one
        for one in layers
    ]

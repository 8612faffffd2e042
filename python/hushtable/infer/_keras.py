"""Keras models of HDF5 files as networks.

A file holds the layers as JSON and the weights by name. Nothing in it is executed, and nothing here
runs Keras: what a file says is read to the last key and the last weight, or refused by name.
"""

from __future__ import annotations

import contextlib
import dataclasses
import graphlib
import heapq
import importlib
import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from .._fields import Fields
from ..errors import ConfigError, Error, ModelError
from ._draft import Draft, same_pad
from ._network import INPUT, Floats, Network, Shape

#: A larger size is no network's, and overflows what is computed of it.
_SIZE_MAX = 2**31 - 1
_MODELS = ("Functional", "Model", "Sequential")
_INPUT_LAYER = "InputLayer"
_SAVE = 'save it by Keras 2, `model.save("model.h5")`, or export it to ONNX for networks.from_onnx'

_Wrong = Callable[[str], ModelError]
_Default = TypeVar("_Default")
#: Sizes of weights; None where the file's decide.
_Sizes = tuple[int | None, ...]


def read(path: Path) -> Network:
    """See `networks.from_keras`."""
    try:
        h5py = importlib.import_module("h5py")
    except ImportError as error:
        raise ConfigError(
            "Keras models are read by the package h5py: `pip install 'hushtable[keras]'`"
        ) from error
    _refuse_others(path)
    with contextlib.ExitStack() as opened:
        with _hdf5(path):
            file = opened.enter_context(h5py.File(path, "r"))
            model = _model(path, file, h5py)
            weights = _Weights(path, file["model_weights"], h5py)
        return _Reader(path.name, weights).read(model)


def _refuse_others(path: Path) -> None:
    """Says what a file is that is no HDF5 file, where that is seen."""
    if (path / "saved_model.pb").is_file():
        raise ModelError(
            f"{path} is a SavedModel of TensorFlow: {_SAVE}, by "
            f"`python -m tf2onnx.convert --saved-model {path} --output model.onnx`"
        )
    if not path.is_file():
        raise ConfigError(f"{path} is no file")
    with _hdf5(path), path.open("rb") as file:
        if file.read(4) == b"PK\x03\x04":
            raise ModelError(f"{path} is a zip archive, as Keras' .keras files are: {_SAVE}")


def _text(found: Any) -> str:
    """Text, of Unicode: h5py passes other bytes on as halves of characters."""
    return (found if isinstance(found, bytes) else str(found).encode()).decode()


@contextlib.contextmanager
def _hdf5(path: Path) -> Iterator[None]:
    """Makes one kind of error of all that reading a damaged file can raise."""
    try:
        yield
    except Error:
        raise
    except Exception as error:  # of h5py, numpy and json, of any kind
        raise ModelError(f"{path} is no Keras model with its weights: {error}") from error


def _model(path: Path, file: Any, h5py: Any) -> Any:
    """What a file says of its layers; of a file of Keras 2 only, that has its weights."""
    text = file.attrs.get("model_config")
    if text is None:
        is_weights = "layer_names" in file.attrs
        what = "it has weights only, as of save_weights" if is_weights else "it has no model_config"
        raise ModelError(f"{path} is no Keras model: {what}; {_SAVE}")
    if not isinstance(file.get("model_weights", getlink=True), h5py.HardLink):
        raise ModelError(f"{path} is no Keras model with its weights: it has no model_weights")
    for attributes in (file.attrs, file["model_weights"].attrs):
        version = _text(attributes.get("keras_version", "2."))
        if not version.startswith("2."):
            raise ModelError(f"{path} is of Keras {version}, and 2 is possible: {_SAVE}")
        backend = _text(attributes.get("backend", "tensorflow"))
        if backend != "tensorflow":
            raise ModelError(
                f"{path} is of Keras on {backend}, which may have kernels mirrored; on tensorflow "
                f"is possible: {_SAVE}"
            )
    return json.loads(_text(text))


def _names(attributes: Any, name: str) -> list[str] | None:
    """Names in an attribute, or in several that are numbered, where Keras had too many for one."""
    if name in attributes:
        return [_text(one) for one in attributes[name]]
    parts: list[Any] = []
    while (numbered := f"{name}{len(parts)}") in attributes:
        parts.append(attributes[numbered])
    return [_text(one) for part in parts for one in part] if parts else None


class _Weights:
    """The numbers of a file: each belongs to a layer that takes it.

    Only what stands in the file itself is found, nothing through links to others.
    """

    def __init__(self, path: Path, group: Any, h5py: Any) -> None:
        self._path = path
        self._left: dict[str, Any] = {}
        self._listed: dict[str, list[str]] = {}
        self._order = _names(group.attrs, "layer_names")
        self._taken: set[str] = set()

        def keep(name: str, found: Any) -> None:
            if isinstance(found, h5py.Dataset):
                self._left[name] = found
            elif (listed := _names(found.attrs, "weight_names")) is not None:
                self._listed[name] = [f"{name}/{one}" for one in listed]

        group.visititems(keep)

    def take(self, layer: _Layer, sizes: Mapping[str, _Sizes]) -> dict[str, Floats]:
        """All weights of a layer, by part.

        Args:
            layer: whose.
            sizes: what they must be, in Keras' order.

        Raises:
            ModelError: others.
        """
        listed, inside = self._listed.get(layer.name), f"{layer.name}/"
        paths = (
            [name for name in self._left if name.startswith(inside)] if listed is None else listed
        )
        parts = [name.rpartition("/")[2].removesuffix(":0") for name in paths]
        for part in sizes:
            if part not in parts:
                raise layer.wrong(f"the file has no weights {part}")
        if sorted(parts) != sorted(sizes) or (listed is not None and parts != list(sizes)):
            raise layer.wrong(
                f"its weights are {', '.join(parts)}: {', '.join(sizes) or 'none'} are possible"
            )
        if parts:
            self._taken.add(layer.name)
        found = dict(zip(parts, paths, strict=True))
        return {part: self._numbers(layer, part, found[part], sizes[part]) for part in sizes}

    def _numbers(self, layer: _Layer, part: str, name: str, sizes: _Sizes) -> Floats:
        dataset = self._left.pop(name, None)
        if dataset is None:
            raise layer.wrong(f"the file has no weights {part}, and lists them as {name}")
        with _hdf5(self._path):
            shape, dtype = dataset.shape or (), dataset.dtype
            fits = len(shape) == len(sizes) and all(
                wanted in (None, size) for size, wanted in zip(shape, sizes, strict=True)
            )
            if not fits or dtype.kind != "f":
                wanted = ", ".join("any" if size is None else str(size) for size in sizes)
                raise layer.wrong(
                    f"the weights {part} are {dtype} of shape {list(shape)}: floats of shape "
                    f"[{wanted}] are possible"
                )
            # A file of a few bytes can claim sizes that no memory has.
            held = dataset.id.get_storage_size()
            if dataset.external or held < math.prod(shape) * dtype.itemsize:
                raise layer.wrong(
                    f"the weights {part} are not in the file in full: missing, in another file, or "
                    "compressed, which `h5repack -f NONE` undoes"
                )
            with np.errstate(over="ignore"):
                return np.asarray(dataset[()], np.float32)

    def finish(self, *orders: list[_Layer]) -> None:
        """Refuses what no layer took, and names in another order than the layers have.

        Raises:
            ModelError: with their names.
        """
        if self._left:
            raise ModelError(
                f"{self._path} has weights that no layer takes: {list(self._left)[:10]}"
            )
        if self._order is None:
            return
        found = [name for name in self._order if name in self._taken]
        named = ([layer.name for layer in order] for order in orders)
        if not any(found == [name for name in one if name in self._taken] for one in named):
            raise ModelError(
                f"{self._path}: layer_names is {', '.join(found)}: it must name the layers with "
                "weights in their order, as Keras goes by it"
            )


class _Config(Fields):
    """A layer's config, of whose values the types are checked."""

    def whole(self, name: str, default: _Default) -> int | _Default:
        """A size."""
        found: int | _Default = self.take(name, default)
        if found is not default and not _is_size(found):
            raise self._wrong(f"{name} {found!r:.60}: a whole number from 1 is possible")
        return found

    def pair(self, name: str, default: _Default) -> list[int] | _Default:
        """Sizes down and across."""
        found = self.take(name, default)
        pair: list[int] | _Default = [found, found] if _is_size(found) else found
        is_pair = isinstance(pair, list) and len(pair) == 2 and all(map(_is_size, pair))
        if found is not default and not is_pair:
            raise self._wrong(f"{name} {found!r:.60}: two whole numbers from 1 are possible")
        return pair

    def flag(self, name: str, default: bool) -> bool:
        """True or false."""
        found = self.take(name, default)
        if not isinstance(found, bool):
            raise self._wrong(f"{name} {found!r:.60}: true and false are possible")
        return found

    def number(self, name: str, default: float) -> float:
        """A number."""
        found = self.take(name, default)
        if isinstance(found, bool) or not isinstance(found, int | float) or abs(found) > _SIZE_MAX:
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


def _is_size(found: Any) -> bool:
    return isinstance(found, int) and not isinstance(found, bool) and 1 <= found <= _SIZE_MAX


@dataclass(frozen=True)
class _Layer:
    """A layer of a file, and the names of those that it reads."""

    name: str
    kind: str
    config: _Config
    inputs: tuple[str, ...]
    wrong: _Wrong


@dataclass(frozen=True)
class _Graph:
    """The layers of a model; the input, which is a row or planes, is none of them."""

    input: str
    shape: Shape
    is_row: bool
    layers: list[_Layer]
    output: str


@dataclass(frozen=True)
class _Value:
    """What a layer gives.

    Attributes:
        node: its node in the draft.
        is_row: to Keras it is a row of numbers; otherwise planes.
        planes: where a row was planes of these channels, rows and columns, which stand in the file
            by rows, columns and channels, and here by channels first. None where that is the same.
    """

    node: str
    is_row: bool
    planes: Shape | None = None


class _Reader:
    draft: Draft

    def __init__(self, source: str, weights: _Weights) -> None:
        self.source = source
        self.weights = weights

    def wrong(self, what: str) -> ModelError:
        """An error about the model as a whole."""
        return ModelError(f"{self.source}: {what}")

    def read(self, model: Any) -> Network:
        graph = self._graph(model)
        self.draft = Draft(graph.shape, self.source)
        values = {graph.input: _Value(INPUT, graph.is_row)}
        layers = self._in_order(graph)
        for layer in layers:
            sources = [values[name] for name in layer.inputs]
            wanted = 2 if layer.kind == "Add" else 1
            if len(sources) != wanted:
                raise layer.wrong(f"{len(sources)} inputs: {wanted} are possible")
            with layer.config as own:
                own.common()
                values[layer.name] = _LAYERS[layer.kind](self, layer, *sources)
            if layer.kind not in _WEIGHTED:
                self.weights.take(layer, {})
        self.weights.finish(graph.layers, layers)
        output = values[graph.output]
        network = self.draft.finish(output.node)
        channels, rows, columns = self.draft.shape(output.node)
        if output.planes is not None or (channels > 1 and rows * columns > 1):
            raise self.wrong(
                f"the answers of {graph.output!r} are planes: Keras gives rows and columns first, "
                "a network channels first; end it in a Dense or a GlobalAveragePooling2D"
            )
        return network

    def _graph(self, model: Any) -> _Graph:
        with Fields(self._object(model, "model_config"), self.wrong) as own:
            kind = own.take("class_name")
            if kind not in _MODELS:
                raise self.wrong(
                    f"it is of the class {kind!r:.60}, which may compute what the file does not "
                    f"say: {', '.join(_MODELS)} are possible"
                )
            config = own.take("config")
        if isinstance(config, list):  # a Sequential of before Keras 2.2.3
            config = {"layers": config}
        with Fields(self._object(config, "config"), self.wrong) as own:
            own.skip("name", "trainable")
            entries = own.take("layers")
            if not isinstance(entries, list) or not entries:
                raise self.wrong("it has no layers")
            layers = [self._layer(index, entry) for index, entry in enumerate(entries)]
            names = [layer.name for layer in layers]
            if len(set(names)) < len(names):
                raise self.wrong(f"two layers of one name, of {', '.join(names):.200}")
            make = self._sequential if kind == "Sequential" else self._functional
            graph = make(own, layers)
        for layer in graph.layers:
            if layer.kind == _INPUT_LAYER:
                raise layer.wrong(f"a second {_INPUT_LAYER}: one is possible")
        return graph

    def _object(self, found: Any, what: str) -> dict[str, Any]:
        if not isinstance(found, dict):
            raise self.wrong(f"{what} is {found!r:.60}, expected an object")
        return found

    def _layer(self, index: int, entry: Any) -> _Layer:
        entry = self._object(entry, f"layer {index}")
        config = self._object(entry.get("config"), f"the config of layer {index}")
        name = config.get("name")
        if not isinstance(name, str) or not name or not name.isprintable():
            raise self.wrong(f"layer {index} has no name that can be printed")

        def wrong(what: str) -> ModelError:
            return ModelError(f"{self.source}, layer {name!r:.80}: {what}")

        with Fields(entry, wrong) as own:
            kind = own.take("class_name")
            if kind in _MODELS:
                raise wrong("a model as a layer is not supported: put its layers in its place")
            if not isinstance(kind, str) or kind not in {*_LAYERS, _INPUT_LAYER}:
                raise wrong(
                    f"the layer {kind!s:.60} is not supported: possible are "
                    f"{', '.join(sorted(_LAYERS))}"
                )
            own.skip("config", "build_config", "shared_object_id")
            own.neutral("name", name)
            own.neutral("module", "keras.layers")
            own.neutral("registered_name", None)
            inputs = self._inputs(own.take("inbound_nodes", []), wrong)
        taken = _Config(config, wrong)
        taken.skip("name")
        return _Layer(name, kind, taken, inputs, wrong)

    def _inputs(self, nodes: Any, wrong: _Wrong) -> tuple[str, ...]:
        if not isinstance(nodes, list) or not all(isinstance(node, list) for node in nodes):
            raise wrong(f"inbound_nodes {nodes!r:.60}: lists are possible")
        if len(nodes) > 1:
            raise wrong("it is used more than once: once is possible")
        inputs = []
        for tensor in nodes[0] if nodes else []:
            inputs.append(_tensor(tensor, wrong))
            if len(tensor) > 3:
                with Fields(self._object(tensor[3], "a call"), wrong, "argument") as call:
                    call.neutral("training", None, False)
                    call.neutral("mask", None)
        return tuple(inputs)

    def _sequential(self, own: Fields, layers: list[_Layer]) -> _Graph:
        for layer in layers:
            if layer.inputs:
                raise layer.wrong("inbound_nodes: in a Sequential none are possible")
        first, name = layers[0], ""
        build = own.take("build_input_shape", None)
        if first.kind == _INPUT_LAYER:
            sizes, name, layers = _input(first), first.name, layers[1:]
        else:
            sizes = first.config.take("batch_input_shape", None) or build
        shape = self._shape(sizes)
        if build is not None and self._shape(build) != shape:
            raise self.wrong(f"build_input_shape {build!r:.60}, and its first layer's is {sizes}")
        names = [name, *(layer.name for layer in layers)]
        chain = [
            dataclasses.replace(layer, inputs=(before,))
            for before, layer in zip(names, layers, strict=False)
        ]
        return _Graph(name, *shape, chain, names[-1])

    def _functional(self, own: Fields, layers: list[_Layer]) -> _Graph:
        ends = []
        for field in ("input_layers", "output_layers"):
            tensors = own.take(field)
            if not isinstance(tensors, list) or len(tensors) != 1:
                raise self.wrong(f"{field} {tensors!r:.60}: a list of one is possible")
            ends.append(_tensor(tensors[0], self.wrong))
        first = next((one for one in layers if one.name == ends[0]), None)
        if first is None or first.kind != _INPUT_LAYER or first.inputs:
            raise self.wrong(f"its input {ends[0]!r:.60} is no {_INPUT_LAYER}")
        rest = [layer for layer in layers if layer is not first]
        return _Graph(first.name, *self._shape(_input(first)), rest, ends[1])

    def _shape(self, sizes: Any) -> tuple[Shape, bool]:
        """Of an input, and whether it is a row."""
        # How many inputs there are at once is free.
        if isinstance(sizes, list) and all(map(_is_size, sizes[sizes[:1] == [None] :])):
            if len(sizes) == 4:
                return (sizes[3], sizes[1], sizes[2]), False
            if len(sizes) == 2:
                return (sizes[1], 1, 1), True
        raise self.wrong(
            f"inputs are {sizes!r:.60}, expected [null, rows, columns, channels] or [null, numbers]"
        )

    def _in_order(self, graph: _Graph) -> list[_Layer]:
        """Each layer after those that it reads: as they stand in the file, where that is so."""
        at = {layer.name: index for index, layer in enumerate(graph.layers)}
        for layer in graph.layers:
            for name in layer.inputs:
                if name not in at and name != graph.input:
                    raise layer.wrong(f"it reads {name!r:.60}, which is no layer")
        if graph.output not in at and graph.output != graph.input:
            raise self.wrong(f"its output {graph.output!r:.60} is no layer")
        waiting = graphlib.TopologicalSorter(
            {layer.name: set(layer.inputs) - {graph.input} for layer in graph.layers}
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
            order.append(graph.layers[heapq.heappop(ready)])
            waiting.done(order[-1].name)
        return order

    def activation(self, layer: _Layer, value: _Value) -> _Value:
        """A value after the activation of a layer's config."""
        found = layer.config.take("activation", None)
        name = layer.name
        if found is None or found == "linear":
            return value
        if found == "relu":
            named = name if layer.kind == "Activation" else f"{name}_relu"
            return dataclasses.replace(value, node=self.draft.relu(named, value.node))
        if found in ("softmax", "sigmoid"):
            node = self.draft.post(f"{name}_{found}", found, value.node)
            return dataclasses.replace(value, node=node)
        if isinstance(found, dict):
            found = found.get("class_name")
            found = f"that is an object of {found!s:.40}"
        raise layer.wrong(
            f"the activation {found!s:.60} is not supported: possible are relu, and at the end "
            "softmax and sigmoid"
        )

    def planes(self, layer: _Layer, value: _Value) -> Shape:
        """Of a layer's input, which must be planes."""
        if value.is_row:
            raise layer.wrong("its input is a row of numbers: planes are possible")
        return self.draft.shape(value.node)

    def pads(
        self, layer: _Layer, value: _Value, kernel: list[int], stride: list[int]
    ) -> tuple[int, int, int, int]:
        """The pads of windows."""
        layer.config.neutral("data_format", "channels_last")
        padding = layer.config.take("padding", "valid")
        if padding == "valid":
            return 0, 0, 0, 0
        if padding != "same":
            raise layer.wrong(f"padding {padding!r:.60}: valid and same are possible")
        _, rows, columns = self.planes(layer, value)
        return same_pad(rows, columns, kernel, stride)


def _tensor(found: Any, wrong: _Wrong) -> str:
    """The layer whose one value it is."""
    is_tensor = isinstance(found, list) and 3 <= len(found) <= 4 and isinstance(found[0], str)
    if not is_tensor or found[1:3] != [0, 0]:
        raise wrong(f"the tensor {found!r:.60}: [layer, 0, 0] is possible, a layer's only value")
    return str(found[0])


def _input(layer: _Layer) -> Any:
    """The sizes that an InputLayer says."""
    with layer.config as own:
        sizes = own.take("batch_input_shape", None) or own.take("batch_shape", None)
        own.neutral("batch_shape", sizes)
        own.neutral("dtype", "float32", "float64")
        own.neutral("sparse", False)
        own.neutral("ragged", False)
    return sizes


def _turned(values: Floats, planes: Shape | None) -> Floats:
    """Weights of a row's numbers, which the file has in its order, in the network's."""
    if planes is None:
        return values
    channels, rows, columns = planes
    by_rows = values.reshape(rows, columns, channels, -1)
    return by_rows.transpose(2, 0, 1, 3).reshape(values.shape)


def _conv(reader: _Reader, layer: _Layer, value: _Value) -> _Value:
    own = layer.config
    channels = reader.planes(layer, value)[0]
    filters, size = own.whole("filters", None), own.pair("kernel_size", None)
    groups = own.whole("groups", 1)
    own.neutral("dilation_rate", [1, 1])
    own.trained("kernel", "bias")
    if channels % groups:
        raise layer.wrong(f"{groups} groups of {channels} channels")
    sizes: dict[str, _Sizes] = {
        "kernel": (*(size or (None, None)), channels // groups, filters),
        "bias": (filters,),
    }
    if not own.flag("use_bias", True):
        del sizes["bias"]
    weights = reader.weights.take(layer, sizes)
    kernel = weights["kernel"].transpose(3, 2, 0, 1)
    stride = own.pair("strides", [1, 1])
    pad = reader.pads(layer, value, list(kernel.shape[2:]), stride)
    bias = weights.get("bias")
    node = reader.draft.conv(
        layer.name, value.node, kernel, bias, stride=stride, pad=pad, groups=groups
    )
    return reader.activation(layer, _Value(node, is_row=False))


def _dense(reader: _Reader, layer: _Layer, value: _Value) -> _Value:
    own, draft = layer.config, reader.draft
    channels, rows, columns = draft.shape(value.node)
    units = own.whole("units", None)
    own.trained("kernel", "bias")
    sizes: dict[str, _Sizes] = {"kernel": (channels, units), "bias": (units,)}
    if not own.flag("use_bias", True):
        del sizes["bias"]
    weights = reader.weights.take(layer, sizes)
    matrix, bias = _turned(weights["kernel"], value.planes).T, weights.get("bias")
    if rows * columns > 1:
        # Over planes Keras has it at each place, over channels.
        node = draft.conv(layer.name, value.node, matrix[:, :, None, None], bias)
    else:
        node = draft.linear(layer.name, value.node, matrix, bias)
    return reader.activation(layer, _Value(node, value.is_row))


def _batch_norm(reader: _Reader, layer: _Layer, value: _Value) -> _Value:
    own = layer.config
    last = 1 if value.is_row else 3
    own.neutral("axis", -1, last, [-1], [last])
    parts = ["moving_mean", "moving_variance"]
    if own.flag("center", True):
        parts.insert(0, "beta")
    if own.flag("scale", True):
        parts.insert(0, "gamma")
    epsilon = own.number("epsilon", 1e-3)
    own.trained("beta", "gamma")
    # How means and variances are come by in training.
    own.skip("moving_mean_initializer", "moving_variance_initializer", "momentum", "synchronized")
    channels = reader.draft.shape(value.node)[0]
    weights = {
        part: _turned(values, value.planes)
        for part, values in reader.weights.take(layer, dict.fromkeys(parts, (channels,))).items()
    }
    node = reader.draft.batch_norm(
        layer.name,
        value.node,
        scale=weights.get("gamma", np.ones(channels)),
        shift=weights.get("beta", np.zeros(channels)),
        mean=weights["moving_mean"],
        variance=weights["moving_variance"],
        epsilon=epsilon,
    )
    return dataclasses.replace(value, node=node)


def _pool(reader: _Reader, layer: _Layer, value: _Value) -> _Value:
    reader.planes(layer, value)
    kernel = layer.config.pair("pool_size", None) or [2, 2]
    stride = layer.config.pair("strides", None) or kernel
    pad = reader.pads(layer, value, kernel, stride)
    op = "max_pool" if layer.kind == "MaxPooling2D" else "average_pool"
    if op == "average_pool" and any(pad):
        raise layer.wrong("an average of padded windows: padding valid is possible")
    node = reader.draft.pool(layer.name, op, value.node, kernel, stride, pad)
    return _Value(node, is_row=False)


def _global(reader: _Reader, layer: _Layer, value: _Value) -> _Value:
    reader.planes(layer, value)
    layer.config.neutral("data_format", "channels_last")
    is_row = not layer.config.flag("keepdims", False)
    return _Value(reader.draft.global_average_pool(layer.name, value.node), is_row)


def _add(reader: _Reader, layer: _Layer, left: _Value, right: _Value) -> _Value:
    if (left.is_row, left.planes) != (right.is_row, right.planes):
        raise layer.wrong(
            "a sum of two whose numbers stand in different orders: both flattened from planes of "
            "the same sizes is possible, or neither"
        )
    node = reader.draft.add(layer.name, left.node, right.node)
    return dataclasses.replace(left, node=node)


def _flatten(reader: _Reader, layer: _Layer, value: _Value) -> _Value:
    layer.config.neutral("data_format", "channels_last")
    if value.is_row:
        return value
    shape = channels, rows, columns = reader.draft.shape(value.node)
    is_same = channels == 1 or rows * columns == 1
    node = reader.draft.flatten(layer.name, value.node)
    return _Value(node, is_row=True, planes=None if is_same else shape)


def _dropout(reader: _Reader, layer: _Layer, value: _Value) -> _Value:
    # How much, of what and by which numbers: in training.
    layer.config.skip("rate", "noise_shape", "seed")
    reader.draft.leave_out(layer.name, "a dropout, which inference does without")
    return value


def _relu(reader: _Reader, layer: _Layer, value: _Value) -> _Value:
    layer.config.neutral("max_value", None)
    layer.config.neutral("negative_slope", 0)
    layer.config.neutral("threshold", 0)
    return dataclasses.replace(value, node=reader.draft.relu(layer.name, value.node))


_LAYERS: dict[str, Callable[..., _Value]] = {
    "Activation": _Reader.activation,
    "Add": _add,
    "AveragePooling2D": _pool,
    "BatchNormalization": _batch_norm,
    "Conv2D": _conv,
    "Dense": _dense,
    "Dropout": _dropout,
    "Flatten": _flatten,
    "GlobalAveragePooling2D": _global,
    "MaxPooling2D": _pool,
    "ReLU": _relu,
}
#: Those that have weights.
_WEIGHTED = {"BatchNormalization", "Conv2D", "Dense"}

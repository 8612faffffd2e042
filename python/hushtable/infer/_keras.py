"""Keras models of HDF5 files as networks.

A file holds the layers as JSON and the weights by name. Nothing in it is executed, and nothing here
runs Keras: what a file says is read to the last key and the last weight, or refused by name.
"""

from __future__ import annotations

import contextlib
import importlib
from pathlib import Path
from typing import overload

from .._printable import one_line, printed
from ..errors import ConfigError, ModelError
from ._draft import Draft
from ._keras_file import Weights, hdf5, model, refuse_others
from ._keras_graph import Graph, Layer, graph
from ._keras_layers import Layers, Value
from ._network import INPUT, Network


@overload
def read(path: Path) -> Network: ...


@overload
def read(path: Path, refusals: list[str] | None) -> Network | None: ...


def read(path: Path, refusals: list[str] | None = None) -> Network | None:
    """See `networks.from_keras`.

    Args:
        path: the file.
        refusals: where given, what is refused of single layers is added to it, not raised, and what
            does not depend on them is read all the same.

    Returns:
        None where there are refusals.
    """
    try:
        h5py = importlib.import_module("h5py")
    except ImportError as error:
        raise ConfigError(
            "Keras models are read by the package h5py: `pip install 'hushtable[keras]'`"
        ) from error
    with printed(), contextlib.ExitStack() as opened:
        refuse_others(path)
        with hdf5(path):
            file = opened.enter_context(h5py.File(path, "r"))
            found = model(path, file, h5py)
            weights = Weights(path, file["model_weights"], h5py)
        return _Reader(path.name, weights, refusals).read(graph(found, path.name))


class _Reader:
    layers: Layers

    def __init__(self, source: str, weights: Weights, refusals: list[str] | None) -> None:
        self.source = source
        self.weights = weights
        self.refusals = refusals

    def read(self, graph: Graph) -> Network | None:
        shape, is_row = graph.shape()
        self.layers = Layers(Draft(shape, self.source), self.weights)
        output = self._value(graph, Value(INPUT, is_row))
        if self.refusals:
            return None
        self.weights.finish(graph.layers, graph.in_order())
        assert output is not None  # everything was read
        output = self.layers.settled(output)
        network = self.layers.draft.finish(output.node)
        channels, rows, columns = self.layers.draft.shape(output.node)
        if output.order is not None or (channels > 1 and rows * columns > 1):
            raise graph.wrong(
                f"the answers of {graph.output!r} are planes: Keras gives rows and columns first, "
                "a network channels first; end it in a Dense or a GlobalAveragePooling2D"
            )
        return network

    def _value(self, graph: Graph, value: Value) -> Value | None:
        """What a model gives for a value; None where something that was refused decides it."""
        values: dict[str, Value | None] = {graph.input: value}
        for layer in graph.in_order():
            values[layer.name] = None
            sources = [one for name in layer.inputs if (one := values[name]) is not None]
            if layer.refused is None and len(sources) < len(layer.inputs):
                continue
            try:
                values[layer.name] = self._layer(layer, sources)
            except ModelError as error:
                if self.refusals is None:
                    raise
                self.refusals.append(one_line(str(error)))
        return values[graph.output]

    def _layer(self, layer: Layer, sources: list[Value]) -> Value | None:
        if layer.refused is not None:
            raise layer.refused
        if layer.graph is None:
            return self.layers.value(layer, sources)
        value = self.layers.model(layer, sources)
        if refused := [*layer.graph.refused()]:
            if self.refusals is None:
                raise refused[0]
            self.refusals += map(str, refused)
            return None
        if len(layer.path) == 1:
            trained, others = layer.graph.weights()
            self.weights.spread(layer, [*trained, *others])
        return self._value(layer.graph, value)

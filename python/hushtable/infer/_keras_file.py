"""Keras' HDF5 files: the layers as JSON, and the weights by name."""

from __future__ import annotations

import contextlib
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import ConfigError, Error, ModelError
from ._keras_graph import Layer
from ._network import Floats

#: How many lists and objects stand in each other: Python's stack has an end.
_DEPTH_MAX = 100
_SAVE = 'save it by Keras 2, `model.save("model.h5")`, or export it to ONNX for networks.from_onnx'

#: Sizes of weights; None where the file's decide.
Sizes = tuple[int | None, ...]


def refuse_others(path: Path) -> None:
    """Says what a file is that is no HDF5 file, where that is seen."""
    if (path / "saved_model.pb").is_file():
        raise ModelError(
            f"{path} is a SavedModel of TensorFlow: {_SAVE}, by "
            f"`python -m tf2onnx.convert --saved-model {path} --output model.onnx`"
        )
    if not path.is_file():
        raise ConfigError(f"{path} is no file")
    with hdf5(path), path.open("rb") as file:
        if file.read(4) == b"PK\x03\x04":
            raise ModelError(f"{path} is a zip archive, as Keras' .keras files are: {_SAVE}")


def _text(found: Any) -> str:
    """Text, of Unicode: h5py passes other bytes on as halves of characters."""
    return (found if isinstance(found, bytes) else str(found).encode()).decode()


@contextlib.contextmanager
def hdf5(path: Path) -> Iterator[None]:
    """Makes one kind of error of all that reading a damaged file can raise."""
    try:
        yield
    except Error:
        raise
    except Exception as error:  # of h5py, numpy and json, of any kind
        raise ModelError(f"{path} is no Keras model with its weights: {error}") from error


def model(path: Path, file: Any, h5py: Any) -> Any:
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
    found = json.loads(_text(text))
    level = [found] if isinstance(found, dict | list) else []
    for _ in range(_DEPTH_MAX):
        inside = (one.values() if isinstance(one, dict) else one for one in level)
        level = [one for some in inside for one in some if isinstance(one, dict | list)]
        if not level:
            return found
    raise ModelError(f"{path} has a model_config over {_DEPTH_MAX} deep: models within models")


def _names(attributes: Any, name: str) -> list[str] | None:
    """Names in an attribute, or in several that are numbered, where Keras had too many for one."""
    if name in attributes:
        return [_text(one) for one in attributes[name]]
    parts: list[Any] = []
    while (numbered := f"{name}{len(parts)}") in attributes:
        parts.append(attributes[numbered])
    return [_text(one) for part in parts for one in part] if parts else None


def _part(path: str) -> str:
    """Which part of its layer a file's weights are."""
    return path.rpartition("/")[2].removesuffix(":0")


class Weights:
    """The numbers of a file: each belongs to a layer that takes it.

    Only what stands in the file itself is found, nothing through links to others.
    """

    def __init__(self, path: Path, group: Any, h5py: Any) -> None:
        self._path = path
        self._left: dict[str, Any] = {}
        self._listed: dict[str, list[str]] = {}
        #: By the layer's path, of layers in nested models.
        self._nested: dict[tuple[str, ...], list[str]] = {}
        self._order = _names(group.attrs, "layer_names")
        self._taken: set[str] = set()

        def keep(name: str, found: Any) -> None:
            if isinstance(found, h5py.Dataset):
                self._left[name] = found
            elif (listed := _names(found.attrs, "weight_names")) is not None:
                self._listed[name] = [f"{name}/{one}" for one in listed]

        group.visititems(keep)

    def spread(self, model: Layer, parts: Iterable[tuple[Layer, str]]) -> None:
        """Gives a nested model's weights, which the file lists together, to its layers.

        Keras goes by their order alone. Their names must agree with it: those of the layers, which
        it may have numbered (dense_1_1 of dense_1).

        Args:
            model: the model, as a layer of the file's own.
            parts: the layers' weights, in Keras' order.

        Raises:
            ModelError: others are listed, or none.
        """
        listed = self._listed.get(model.name)
        if listed is None:
            raise model.wrong("the file does not list its weights")
        wanted = list(parts)
        found = [_part(path) for path in listed]
        if found != [part for _, part in wanted]:
            raise model.wrong(
                f"its weights are {', '.join(found)!s:.200}: "
                f"{', '.join(part for _, part in wanted)!s:.200} are possible, in that order"
            )
        for path, (layer, part) in zip(listed, wanted, strict=True):
            if not re.search(rf"/{re.escape(layer.name)}(_\d+)?/[^/]*$", path):
                raise layer.wrong(f"in its weights' place, of {part}, are those named {path:.100}")
            self._nested.setdefault(layer.path, []).append(path)

    def take(self, layer: Layer, sizes: Mapping[str, Sizes]) -> dict[str, Floats]:
        """All weights of a layer, by part.

        Args:
            layer: whose.
            sizes: what they must be, if the layer has them.

        Raises:
            ModelError: others.
        """
        if len(layer.path) > 1:
            listed: list[str] | None = self._nested.get(layer.path, [])
        else:
            listed = self._listed.get(layer.name)
        inside = f"{layer.name}/"
        paths = (
            [name for name in self._left if name.startswith(inside)] if listed is None else listed
        )
        parts = [_part(path) for path in paths]
        for part in layer.parts:
            if part not in parts:
                raise layer.wrong(f"the file has no weights {part}")
        if sorted(parts) != sorted(layer.parts) or (
            listed is not None and parts != list(layer.parts)
        ):
            raise layer.wrong(
                f"its weights are {', '.join(parts)}: {', '.join(layer.parts) or 'none'} are "
                "possible"
            )
        if parts:
            self._taken.add(layer.path[0])
        found = dict(zip(parts, paths, strict=True))
        return {part: self._numbers(layer, part, found[part], sizes[part]) for part in layer.parts}

    def _numbers(self, layer: Layer, part: str, name: str, sizes: Sizes) -> Floats:
        dataset = self._left.pop(name, None)
        if dataset is None:
            raise layer.wrong(f"the file has no weights {part}, and lists them as {name}")
        with hdf5(self._path):
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

    def finish(self, *orders: list[Layer]) -> None:
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

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

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..errors import ConfigError
from ._check import Report, reader_of, report_of
from ._draft import Draft
from ._network import METADATA_KEY, Network, Node, Shape

__all__ = [
    "METADATA_KEY",
    "Draft",
    "Network",
    "Node",
    "Report",
    "check",
    "from_file",
    "from_keras",
    "from_onnx",
    "from_torch",
]

_Path = str | os.PathLike[str]


def from_file(
    path: _Path, *, shape: Sequence[int] | None = None, output: str | None = None
) -> Network:
    """Reads a file that is known by its name: ONNX (.onnx), or Keras (.h5, .hdf5).

    Args:
        path: the file.
        shape: as for :func:`from_onnx`.
        output: as for :func:`from_onnx`.

    Raises:
        ConfigError: a name that is of neither kind, or an argument that is for another; as for
            :func:`from_onnx` and :func:`from_keras`.
        ModelError: as for these.
    """
    *_, read = reader_of(Path(path), None if shape is None else _shape(shape), output)
    network = read(None)
    assert network is not None  # it is only where refusals are listed
    return network


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


def check(
    source: Any,
    *,
    shape: Sequence[int] | None = None,
    output: str | None = None,
    range: tuple[float, float] | None = None,
) -> Report:
    """Says what would be taken of a network, what is refused of it, and what it would cost.

    Refusals are said together, where an import ends at the first (:class:`Report` says which are
    not). A network that is taken is compiled for hybrid inference, in a temporary folder: its plan
    is the price.

    Args:
        source: an ONNX or Keras file, known by its name (.onnx, .h5, .hdf5); or a torch module.
        shape: as for :func:`from_onnx`; of a module it must be given.
        output: as for :func:`from_onnx`.
        range: as for :func:`from_torch`: the price depends on it.

    Raises:
        ConfigError: as for :func:`from_onnx`; a file that no importer is for, or an argument that
            is for another.
        ModelError: no room for the temporary folder.
    """
    return report_of(source, None if shape is None else _shape(shape), output, range)


def _shape(shape: Sequence[int]) -> Shape:
    if len(shape) != 3 or not all(isinstance(size, int) and size > 0 for size in shape):
        raise ConfigError(f"the shape is {tuple(shape)}, expected (channels, rows, columns)")
    channels, rows, columns = shape
    return channels, rows, columns

